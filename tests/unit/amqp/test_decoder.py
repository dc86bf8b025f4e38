"""Decoder: one table of streams, each fed whole, byte by byte, and with a tail; and the faults of peers."""

from __future__ import annotations

import pytest

from penstock.amqp import content
from penstock.amqp.decoder import (
    CRUMB_BYTES,
    PUBLISH_CACHE_MAX,
    Acks,
    Command,
    Decoder,
    Item,
    Nack,
    Oversize,
    Publishes,
)
from penstock.amqp.frame import BODY, HEADER, HEARTBEAT_FRAME, METHOD, encode_frame
from penstock.amqp.method import (
    BasicAck,
    BasicConsume,
    BasicNack,
    BasicPublish,
    BasicReject,
    ChannelOpen,
    ConnectionOpen,
    Method,
    QueueDeclare,
    encode_method,
)
from penstock.amqp.properties import Properties, encode_properties
from tests.unit.fakes import NO_PROPERTIES, make_wire

BODY_MAX = 1_000_000
RICH = encode_properties(Properties(content_type="text/plain", headers={"a": 1}, delivery_mode=2, message_id="m"))


def publish(
    body: bytes, channel: int = 1, key: str = "q", exchange: str = "", properties: bytes = NO_PROPERTIES, **flags: bool
) -> bytes:
    return encode_method(BasicPublish(exchange, key, **flags), channel) + make_wire(body, channel, properties, 4096)


def method(what: Method, channel: int = 1) -> bytes:
    return encode_method(what, channel)


def flat(items: list[Item]) -> list[tuple]:
    """Each message, ack and method by itself, as plain values: what must not depend on how the stream was split."""
    out: list[tuple] = []
    for item in items:
        if isinstance(item, Publishes):
            assert item.bytes == sum(len(wire) for _, wire in item.messages)
            assert item.messages
            assert not item.alike or len({id(how) for how, _ in item.messages}) == 1
            for how, wire in item.messages:
                assert how.channel == item.channel
                out.append(
                    (
                        "publish",
                        item.channel,
                        how.exchange,
                        how.routing_key,
                        how.mandatory,
                        how.immediate,
                        content.header_payload(wire),
                        content.body(wire),
                    )
                )
        elif isinstance(item, Acks):
            out += [("ack", item.channel, tag, multiple) for tag, multiple in item.acks]
        elif isinstance(item, Nack):
            out.append(("nack", item.channel, item.method_id, item.tag, item.multiple, item.requeue))
        elif isinstance(item, Oversize):
            out.append(("oversize", item.channel, item.size, item.limit))
        else:
            out.append(("command", item.channel, item.method))
    return out


def published(
    body: bytes, channel: int = 1, key: str = "q", exchange: str = "", properties: bytes = NO_PROPERTIES
) -> tuple:
    header = content.header_payload(make_wire(body, channel, properties))
    return ("publish", channel, exchange, key, False, False, header, body)


CASES: dict[str, tuple[bytes, list[tuple]]] = {
    "one publish": (publish(b"hello"), [published(b"hello")]),
    "an empty body": (publish(b""), [published(b"")]),
    "a run of the same": (publish(b"aaa") * 5, [published(b"aaa")] * 5),
    "a run of other bodies of the same size": (
        b"".join(publish(b"%03d" % n) for n in range(20)),
        [published(b"%03d" % n) for n in range(20)],
    ),
    "a run of other sizes": (
        b"".join(publish(b"x" * n) for n in range(20)),
        [published(b"x" * n) for n in range(20)],
    ),
    "empty bodies in a run": (
        publish(b"") * 3 + publish(b"x") + publish(b""),
        [published(b"")] * 3 + [published(b"x"), published(b"")],
    ),
    "other keys": (
        publish(b"1", key="a") + publish(b"2", key="b") + publish(b"3", key="a"),
        [published(b"1", key="a"), published(b"2", key="b"), published(b"3", key="a")],
    ),
    "properties that come and go": (
        publish(b"1", properties=RICH) * 2 + publish(b"2") + publish(b"3", properties=RICH),
        [published(b"1", properties=RICH)] * 2 + [published(b"2"), published(b"3", properties=RICH)],
    ),
    "a body in several frames": (publish(b"x" * 10_000), [published(b"x" * 10_000)]),
    "a body that looks like frames": (publish(publish(b"inner") * 3), [published(publish(b"inner") * 3)]),
    "flags": (
        publish(b"", mandatory=True) + publish(b"", immediate=True),
        [
            (*published(b"")[:4], True, False, *published(b"")[6:]),
            (*published(b"")[:4], False, True, *published(b"")[6:]),
        ],
    ),
    "names that are no text": (
        publish(b"x", key="\udcff\udc80k", exchange="é"),
        [published(b"x", key="\udcff\udc80k", exchange="é")],
    ),
    "two channels in turns": (
        publish(b"1", 1) + publish(b"2", 2) + publish(b"3", 1),
        [published(b"1", 1), published(b"2", 2), published(b"3", 1)],
    ),
    "bodies of two channels interleaved": (
        method(BasicPublish("", "q"), 1)
        + make_wire(b"", 1)[:11]
        + (4).to_bytes(8, "big")
        + NO_PROPERTIES
        + b"\xce"
        + method(BasicPublish("", "q"), 2)
        + encode_frame(BODY, 1, b"ab")
        + HEARTBEAT_FRAME
        + make_wire(b"whole", 2)
        + encode_frame(BODY, 1, b"c")
        + encode_frame(BODY, 1, b"")
        + method(BasicAck(3, False), 2)
        + encode_frame(BODY, 1, b"d"),
        [published(b"whole", 2), ("ack", 2, 3, False), published(b"abcd", 1)],
    ),
    "acks": (
        b"".join(method(BasicAck(tag, tag == 3)) for tag in (1, 2, 3)) + method(BasicAck(2**64 - 1), 2),
        [("ack", 1, 1, False), ("ack", 1, 2, False), ("ack", 1, 3, True), ("ack", 2, 2**64 - 1, False)],
    ),
    "nacks and rejects": (
        method(BasicNack(1, True, True))
        + method(BasicNack(2, False, False))
        + method(BasicReject(3, True))
        + method(BasicReject(4, False)),
        [
            ("nack", 1, 120, 1, True, True),
            ("nack", 1, 120, 2, False, False),
            ("nack", 1, 90, 3, False, True),
            ("nack", 1, 90, 4, False, False),
        ],
    ),
    "other methods": (
        method(ConnectionOpen("/"), 0)
        + HEARTBEAT_FRAME
        + method(ChannelOpen(), 3)
        + method(QueueDeclare("ü" * 100), 3),
        [("command", 0, ConnectionOpen("/")), ("command", 3, ChannelOpen()), ("command", 3, QueueDeclare("ü" * 100))],
    ),
    "a body above the limit, and the stream goes on": (
        publish(b"x" * (BODY_MAX + 1)) + publish(b"after"),
        [("oversize", 1, BODY_MAX + 1, BODY_MAX), published(b"after")],
    ),
    "heartbeats only": (HEARTBEAT_FRAME * 3, []),
    "nothing": (b"", []),
}


@pytest.mark.parametrize("name", CASES)
def test_a_stream_fed_whole_is_decoded(name: str) -> None:
    stream, expected = CASES[name]
    decoder = Decoder(BODY_MAX)
    assert flat(decoder.feed(stream)) == expected
    assert decoder.error is None
    assert decoder.buffered_bytes() == 0


@pytest.mark.parametrize("name", [name for name, (stream, _) in CASES.items() if len(stream) < 100_000])
def test_a_stream_fed_byte_by_byte_is_decoded_just_the_same(name: str) -> None:
    stream, expected = CASES[name]
    decoder = Decoder(BODY_MAX)
    items: list[Item] = []
    for at in range(len(stream)):
        items += decoder.feed(stream[at : at + 1])
    assert flat(items) == expected
    assert decoder.error is None
    assert decoder.buffered_bytes() == 0


@pytest.mark.parametrize("name", CASES)
def test_a_tail_waits_for_its_rest(name: str) -> None:
    stream, expected = CASES[name]
    tail = publish(b"tail of some length", key="tail")
    for cut in (1, 6, 7, 8, 20, 30, len(tail) - 1):
        decoder = Decoder(BODY_MAX)
        assert flat(decoder.feed(stream + tail[:cut])) == expected
        assert flat(decoder.feed(tail[cut:])) == [published(b"tail of some length", key="tail")]
        assert decoder.buffered_bytes() == 0


def test_consecutive_identical_publishes_are_one_item_with_one_method() -> None:
    (item,) = Decoder(BODY_MAX).feed(publish(b"same") * 1000)
    assert isinstance(item, Publishes)
    assert len(item.messages) == 1000
    assert item.alike
    assert len({id(how) for how, _ in item.messages}) == 1


def test_consecutive_publishes_with_other_keys_are_one_item_that_is_not_alike() -> None:
    (item,) = Decoder(BODY_MAX).feed(publish(b"1", key="a") + publish(b"2", key="b") + publish(b"3", key="b"))
    assert isinstance(item, Publishes)
    assert not item.alike
    assert [how.routing_key for how, _ in item.messages] == ["a", "b", "b"]


def test_publishes_of_a_connection_with_the_same_bytes_share_their_method_across_reads() -> None:
    decoder = Decoder(BODY_MAX)
    seen = set()
    for _ in range(3):
        (item,) = decoder.feed(publish(b"x"))
        assert isinstance(item, Publishes)
        seen.add(item.messages[0][0])
    assert len(seen) == 1


def test_distinct_publish_methods_are_remembered_up_to_a_limit() -> None:
    decoder = Decoder(BODY_MAX)
    for number in range(PUBLISH_CACHE_MAX + 10):
        decoder.feed(publish(b"", key=str(number)))
    assert len(decoder._publishes) <= PUBLISH_CACHE_MAX


def test_the_payload_of_deliver_ends_as_publish_has_it() -> None:
    (item,) = Decoder(BODY_MAX).feed(publish(b"", exchange="ex", key="key"))
    assert isinstance(item, Publishes)
    assert item.messages[0][0].deliver_tail == b"\x00\x02ex\x03key\xce"


# Memory.


def test_a_body_in_crumbs_costs_no_more_than_its_bytes_and_leaves_in_proper_frames() -> None:
    decoder = Decoder(BODY_MAX)
    size = 20_000
    header = make_wire(b"")[:11] + size.to_bytes(8, "big") + NO_PROPERTIES + b"\xce"
    decoder.feed(method(BasicPublish("", "q")) + header)
    for _ in range(size - 1):
        decoder.feed(encode_frame(BODY, 1, b"x"))
    assert decoder.buffered_bytes() <= size + 100
    (item,) = decoder.feed(encode_frame(BODY, 1, b"y"))
    assert isinstance(item, Publishes)
    ((_, wire),) = item.messages
    assert content.body(wire) == b"x" * (size - 1) + b"y"
    assert len(wire) < size + 100
    assert content.largest_frame(wire) <= 4096


def test_empty_body_frames_cost_nothing() -> None:
    decoder = Decoder(BODY_MAX)
    header = make_wire(b"")[:11] + (5).to_bytes(8, "big") + NO_PROPERTIES + b"\xce"
    decoder.feed(method(BasicPublish("", "q")) + header)
    before = decoder.buffered_bytes()
    decoder.feed(encode_frame(BODY, 1, b"") * 1000)
    assert decoder.buffered_bytes() == before


def test_large_frames_before_crumbs_keep_their_order() -> None:
    parts = [b"a" * CRUMB_BYTES, b"b", b"c" * CRUMB_BYTES, b"d"]
    header = make_wire(b"")[:11] + sum(map(len, parts)).to_bytes(8, "big") + NO_PROPERTIES + b"\xce"
    stream = method(BasicPublish("", "q")) + header + b"".join(encode_frame(BODY, 1, part) for part in parts)
    (item,) = Decoder(BODY_MAX).feed(stream)
    assert isinstance(item, Publishes)
    assert content.body(item.messages[0][1]) == b"".join(parts)


def test_a_body_above_the_limit_is_not_kept_while_it_comes() -> None:
    decoder = Decoder(body_max=10)
    (item,) = decoder.feed(publish(b"x" * 5000)[:2000])
    assert isinstance(item, Oversize)
    decoder = Decoder(body_max=10)
    stream = publish(b"x" * 50_000)
    for at in range(0, len(stream), 1000):
        decoder.feed(stream[at : at + 1000])
        assert decoder.buffered_bytes() <= 4096
    assert decoder.error is None


def test_a_whole_body_above_the_limit_is_refused_in_a_run_too() -> None:
    items = Decoder(body_max=10).feed(publish(b"x" * 10) + publish(b"x" * 11) + publish(b"x" * 10))
    assert [type(item) for item in items] == [Publishes, Oversize, Publishes]


def test_a_body_at_the_limit_passes() -> None:
    (item,) = Decoder(body_max=10).feed(publish(b"x" * 10))
    assert isinstance(item, Publishes)


def test_forgetting_a_channel_drops_the_content_it_began() -> None:
    decoder = Decoder(BODY_MAX)
    whole_frames = len(method(BasicPublish("", "q"))) + 22 + 4096
    decoder.feed(publish(b"x" * 10_000)[:whole_frames])
    assert decoder.buffered_bytes() > 4000
    decoder.forget(1)
    assert decoder.buffered_bytes() == 0
    assert flat(decoder.feed(method(ChannelOpen()))) == [("command", 1, ChannelOpen())]
    assert decoder.error is None


# Faults.

HEAD_FRAME = make_wire(b"")[:11] + (4).to_bytes(8, "big") + NO_PROPERTIES + b"\xce"
PUBLISH_Q = b"\x00\x3c\x00\x28\x00\x00\x00\x01q\x00"

FAULTS: dict[str, tuple[bytes, int]] = {
    "a frame without its end": (method(ChannelOpen())[:-1] + b"\x00", 501),
    "an unknown frame type": (encode_frame(9, 1, b"x"), 501),
    "an HTTP request": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 10, 501),
    "a frame above frame_max": (b"\x01\x00\x01\x7f\xff\xff\xff", 501),
    "a method frame of three bytes": (encode_frame(METHOD, 1, b"\x00\x0a\x00"), 501),
    "an unknown method": (encode_frame(METHOD, 1, b"\x00\x63\x00\x63"), 503),
    "arguments cut short": (encode_frame(METHOD, 1, b"\x00\x32\x00\x0a\x00\x00\xff"), 501),
    "a publish with bytes behind its arguments": (encode_frame(METHOD, 1, PUBLISH_Q + b"\x00"), 501),
    "a publish cut short": (encode_frame(METHOD, 1, b"\x00\x3c\x00\x28\x00\x00\x05ab"), 501),
    "a header without publish": (HEAD_FRAME, 505),
    "a body without publish": (encode_frame(BODY, 1, b"x"), 505),
    "a body without header": (method(BasicPublish("", "q")) + encode_frame(BODY, 1, b"x"), 505),
    "a method instead of a header": (method(BasicPublish("", "q")) + method(ChannelOpen()), 505),
    "a method instead of a body": (method(BasicPublish("", "q")) + HEAD_FRAME + method(ChannelOpen()), 505),
    "a header instead of a body": (method(BasicPublish("", "q")) + HEAD_FRAME + HEAD_FRAME, 505),
    "a body longer than announced": (method(BasicPublish("", "q")) + HEAD_FRAME + encode_frame(BODY, 1, b"12345"), 505),
    "a header of another class": (
        method(BasicPublish("", "q")) + encode_frame(HEADER, 1, b"\x00\x0a" + bytes(12)),
        505,
    ),
    "a header with a weight": (
        method(BasicPublish("", "q")) + encode_frame(HEADER, 1, b"\x00\x3c\x00\x01" + bytes(10)),
        505,
    ),
    "a header too short": (method(BasicPublish("", "q")) + encode_frame(HEADER, 1, b"\x00\x3c"), 501),
    "broken properties": (
        method(BasicPublish("", "q")) + encode_frame(HEADER, 1, b"\x00\x3c" + bytes(10) + b"\x80\x00\x09a"),
        501,
    ),
    "a heartbeat on a channel": (encode_frame(8, 1, b""), 505),
    "a heartbeat with a payload": (encode_frame(8, 0, b"x"), 501),
    "a publish with no content on channel 0": (method(BasicPublish("", "q"), 0) + make_wire(b"x", 0), 505),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("step", [1, 5, 1 << 30])
def test_a_fault_has_its_code_however_the_bytes_come_and_what_was_right_before_is_kept(name: str, step: int) -> None:
    broken, code = FAULTS[name]
    stream = publish(b"good") + method(BasicConsume("q", "tag")) + broken
    decoder = Decoder(BODY_MAX)
    items: list[Item] = []
    for at in range(0, len(stream), step):
        items += decoder.feed(stream[at : at + step])
    assert flat(items)[:2] == [published(b"good"), ("command", 1, BasicConsume("q", "tag"))]
    assert decoder.error is not None
    assert decoder.error.code == code
    assert decoder.feed(publish(b"more")) == [], "nothing is decoded after a fault"
    assert decoder.buffered_bytes() == 0


def test_frame_max_counts_as_rabbitmq_counts_it() -> None:
    decoder = Decoder(BODY_MAX)
    decoder.feed(encode_frame(METHOD, 1, b"\x00" * 4097)[:7])
    assert decoder.error is not None
    assert decoder.error.code == 501
    decoder = Decoder(BODY_MAX)
    decoder.frame_max = 8192
    decoder.feed(encode_frame(METHOD, 1, b"\x00" * 4097)[:7])
    assert decoder.error is None


def test_a_frame_too_large_is_refused_before_it_has_come() -> None:
    decoder = Decoder(BODY_MAX)
    decoder.feed(b"\x03\x00\x01\x00\x10\x00\x00")
    assert decoder.error is not None
    assert decoder.error.code == 501


def test_items_of_commands_tell_what_they_are() -> None:
    command, publishes = Decoder(BODY_MAX).feed(method(ChannelOpen()) + publish(b"x"))
    assert isinstance(command, Command)
    assert repr(command) == "<Command channel=1 ChannelOpen()>"
    assert repr(publishes).startswith("<Publishes channel=1 <Publish exchange='' key='q'> messages=1 ")

"""The hot codec: any split of any stream decodes to the same values, and no bytes do anything worse than a close."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.amqp import content
from penstock.amqp.decoder import Acks, Decoder, Item, Nack, Oversize, Publishes
from penstock.amqp.frame import BODY, CONTENT_HEAD, FRAME_MIN_BYTES, HEADER, HEARTBEAT_FRAME, encode_frame
from penstock.amqp.method import (
    BasicAck,
    BasicConsume,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicReject,
    ChannelOpen,
    Method,
    QueueDeclare,
    encode_method,
)
from penstock.amqp.properties import Properties, encode_properties

BODY_MAX = 12_000
CODES = {501, 502, 503, 504, 505}

names = st.sampled_from(["", "q", "a.b.c", "é", "\udcff", "k" * 255])
bodies = st.one_of(
    st.binary(max_size=6),
    st.sampled_from([b"", b"x", b"\xce", b"same", b"same", HEARTBEAT_FRAME]),
    st.integers(4000, 9000).map(lambda size: bytes(range(250)) * (size // 250)),
)
properties = st.sampled_from(
    [
        encode_properties(Properties()),
        encode_properties(Properties(delivery_mode=2)),
        encode_properties(Properties(content_type="text/plain", headers={"a": [1, "x"]}, message_id="m" * 40)),
    ]
)
tags = st.integers(0, 2**64 - 1)
methods: st.SearchStrategy[Method] = st.one_of(
    st.builds(BasicAck, tags, st.booleans()),
    st.builds(BasicAck, tags, st.booleans()),
    st.builds(BasicNack, tags, st.booleans(), st.booleans()),
    st.builds(BasicReject, tags, st.booleans()),
    st.builds(BasicQos, st.just(0), st.integers(0, 99), st.booleans()),
    st.builds(QueueDeclare, st.sampled_from(["", "q", "ü" * 50])),
    st.just(ChannelOpen()),
    st.just(BasicConsume("q", "tag", arguments={"x-priority": 5})),
)


class Thing:
    """Something to send: its frames, and what must come out of the decoder when the last of them is in."""

    def __init__(self, frames: list[bytes], value: tuple) -> None:
        self.frames = frames
        self.value = value


@st.composite
def publishes(draw: st.DrawFn, channel: int) -> Thing:
    how = BasicPublish(draw(names), draw(names), draw(st.booleans()), draw(st.booleans()))
    body = draw(bodies)
    raw = draw(properties)
    header = CONTENT_HEAD.pack(HEADER, channel, 12 + len(raw), 60, 0, len(body))[7:] + raw
    step = draw(st.sampled_from([4088, 4088, 1000, 7])) if len(body) < 100 else 4088
    cuts = sorted(draw(st.sets(st.integers(0, len(body)), max_size=3))) if draw(st.booleans()) else []
    parts: list[bytes] = []
    for start, stop in zip([0, *cuts], [*cuts, len(body)]):
        part = body[start:stop]
        parts += [part[at : at + step] for at in range(0, len(part), step)]
    frames = [encode_method(how, channel), encode_frame(HEADER, channel, header)]
    frames += [encode_frame(BODY, channel, part) for part in parts]
    names_and_flags = (how.exchange, how.routing_key, how.mandatory, how.immediate)
    return Thing(frames, ("publish", channel, *names_and_flags, header, body))


def commands(channel: int) -> st.SearchStrategy[Thing]:
    def make(method: Method) -> Thing:
        value: tuple
        if isinstance(method, BasicAck):
            value = ("ack", channel, method.delivery_tag, method.multiple)
        elif isinstance(method, BasicNack):
            value = ("nack", channel, 120, method.delivery_tag, method.multiple, method.requeue)
        elif isinstance(method, BasicReject):
            value = ("nack", channel, 90, method.delivery_tag, False, method.requeue)
        else:
            value = ("command", channel, method)
        return Thing([encode_method(method, channel)], value)

    return methods.map(make)


def things(channel: int) -> st.SearchStrategy[Thing]:
    return publishes(channel) | publishes(channel) | commands(channel)


@st.composite
def repeated(draw: st.DrawFn, channel: int) -> list[Thing]:
    """A channel's history: things, some of them several times in a row, as publishers do."""
    history: list[Thing] = []
    for thing in draw(st.lists(things(channel), max_size=5)):
        history += [thing] * draw(st.sampled_from([1, 1, 2, 5]))
    return history


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[tuple]]:
    """Frames of up to three channels, interleaved, heartbeats between; and the values, in order of completion."""
    waiting = []
    for channel in draw(st.sampled_from([(1,), (1, 2), (1, 7, 65_535)])):
        frames = [
            (frame, thing.value if at == len(thing.frames) - 1 else None)
            for thing in draw(repeated(channel))
            for at, frame in enumerate(thing.frames)
        ]
        if frames:
            waiting.append(frames)
    stream = bytearray()
    values: list[tuple] = []
    while waiting:
        source = waiting[draw(st.integers(0, len(waiting) - 1))]
        for _ in range(draw(st.integers(1, 12))):
            if not source:
                break
            frame, value = source.pop(0)
            stream += frame
            if value is not None:
                values.append(value)
        waiting = [frames for frames in waiting if frames]
        if draw(st.integers(0, 3)) == 0:
            stream += HEARTBEAT_FRAME
    return bytes(stream), values


@st.composite
def splits(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    if not stream:
        return []
    if len(stream) < 2000 and draw(st.integers(0, 4)) == 0:
        return [stream[at : at + 1] for at in range(len(stream))]
    cuts = sorted(draw(st.sets(st.integers(1, len(stream)), max_size=8)))
    return [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)])]


def values_of(items: list[Item]) -> list[tuple]:
    out: list[tuple] = []
    for item in items:
        if isinstance(item, Publishes):
            assert item.bytes == sum(len(wire) for _, wire in item.messages)
            for how, wire in item.messages:
                names_and_flags = (how.exchange, how.routing_key, how.mandatory, how.immediate)
                header, body = content.header_payload(wire), content.body(wire)
                out.append(("publish", item.channel, *names_and_flags, header, body))
                assert how.channel == item.channel == int.from_bytes(wire[1:3], "big")
        elif isinstance(item, Acks):
            out += [("ack", item.channel, tag, multiple) for tag, multiple in item.acks]
        elif isinstance(item, Nack):
            out.append(("nack", item.channel, item.method_id, item.tag, item.multiple, item.requeue))
        elif isinstance(item, Oversize):
            out.append(("oversize", item.channel, item.size, item.limit))
        else:
            out.append(("command", item.channel, item.method))
    return out


def decode(pieces: Sequence[bytes]) -> tuple[list[tuple], int]:
    """All values, and the code of the error, 0 if there is none."""
    decoder = Decoder(BODY_MAX)
    items: list[Item] = []
    for piece in pieces:
        items += decoder.feed(piece)
        assert decoder.buffered_bytes() <= 3 * (BODY_MAX + 2 * FRAME_MIN_BYTES)
    return values_of(items), decoder.error.code if decoder.error is not None else 0


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_split_of_a_stream_decodes_to_what_was_sent(data: st.DataObject) -> None:
    stream, values = data.draw(streams())
    assert decode(data.draw(splits(stream))) == (values, 0)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), bodies, st.booleans())
def test_publishes_in_a_row_are_one_item_and_identical_ones_are_alike(count: int, body: bytes, alike: bool) -> None:
    wire = content.build_basic(1, b"\x00\x00", body, 0)
    keys = ["same"] * count if alike else [str(number) for number in range(count)]
    decoder = Decoder(BODY_MAX)
    decoder.frame_max = 131_072
    (item,) = decoder.feed(b"".join(encode_method(BasicPublish("", key), 1) + wire for key in keys))
    assert isinstance(item, Publishes)
    assert len(item.messages) == count
    assert item.alike == (len(set(keys)) == 1)
    assert item.bytes == count * len(wire)


@settings(max_examples=150, deadline=None)
@given(st.data(), bodies, properties, st.integers(1, 65_535), st.sampled_from([4096, 4097, 8192, 131_072]))
def test_a_refitted_wire_has_the_same_content_and_no_frame_above_frame_max(
    data: st.DataObject, body: bytes, raw: bytes, channel: int, frame_max: int
) -> None:
    wire = content.build_basic(1, raw, body, 0)[: 7 + 12 + len(raw) + 1]
    cuts = sorted(data.draw(st.sets(st.integers(0, len(body)), max_size=4)))
    for start, stop in zip([0, *cuts], [*cuts, len(body)]):
        wire += encode_frame(BODY, 1, body[start:stop]) if stop > start else b""
    fitted = content.refit(wire, channel, frame_max)
    assert content.body(fitted) == body
    assert content.header_payload(fitted) == content.header_payload(wire)
    assert content.largest_frame(fitted) <= frame_max
    decoder = Decoder(BODY_MAX)
    decoder.frame_max = frame_max
    (item,) = decoder.feed(encode_method(BasicPublish("", "q"), channel) + fitted)
    assert isinstance(item, Publishes)
    assert content.body(item.messages[0][1]) == body


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
@example(b"\x01\x00\x01\x00\x00\x00\x04\x00\x3c\x00\x28\xce")
def test_garbage_is_decoded_waited_for_or_refused_with_a_code(garbage: bytes) -> None:
    values, code = decode([garbage])
    assert code in CODES | {0}
    assert decode([garbage[at : at + 1] for at in range(len(garbage))]) == (values, code)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    stream = bytearray(draw(streams())[0])
    for _ in range(draw(st.integers(1, 3))):
        if not stream:
            break
        at = draw(st.integers(0, len(stream) - 1))
        action = draw(st.sampled_from(("set", "set", "flip", "delete", "insert", "repeat")))
        if action == "set":
            stream[at] = draw(st.sampled_from([0, 1, 2, 3, 8, 60, 0x7F, 0xCE, 0xFF]))
        elif action == "flip":
            stream[at] ^= 1 << draw(st.integers(0, 7))
        elif action == "delete":
            del stream[at : at + draw(st.integers(1, 30))]
        elif action == "insert":
            stream[at:at] = draw(st.binary(min_size=1, max_size=10))
        else:
            stream[at:at] = stream[at : at + draw(st.integers(1, 60))]
    return bytes(stream)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_damaged_stream_is_decoded_waited_for_or_refused_and_the_split_does_not_matter(data: st.DataObject) -> None:
    stream = data.draw(mutated())
    values, code = decode([stream])
    assert code in CODES | {0}
    assert decode(data.draw(splits(stream))) == (values, code)


@settings(max_examples=100, deadline=None)
@given(st.data(), st.integers(BODY_MAX + 1, BODY_MAX + 20_000), st.lists(things(1), max_size=3))
def test_a_body_above_the_limit_is_told_once_and_dropped_and_the_stream_goes_on(
    data: st.DataObject, size: int, after: list[Thing]
) -> None:
    stream = encode_method(BasicPublish("", "q"), 1) + content.build_basic(1, b"\x00\x00", bytes(size), 4096)
    stream += b"".join(frame for thing in after for frame in thing.frames)
    decoder = Decoder(BODY_MAX)
    items: list[Item] = []
    for piece in data.draw(splits(stream)):
        items += decoder.feed(piece)
    assert decoder.error is None
    assert values_of(items) == [("oversize", 1, size, BODY_MAX), *(thing.value for thing in after)]

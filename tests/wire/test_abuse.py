"""Peers that are broken, slow or hostile: closed with the right code or by a timeout, and the broker stays up."""

from __future__ import annotations

import random
import socket
from dataclasses import replace

import pytest

from penstock.amqp.content import build_basic
from penstock.amqp.frame import BODY, CONTENT_HEAD, FRAME_MIN_BYTES, HEAD, HEADER, METHOD, PROTOCOL_HEADER, encode_frame
from penstock.amqp.method import BasicPublish, ConnectionStart, QueueDeclare, QueueDeclareOk, encode_method
from penstock.amqp.properties import Properties
from penstock.amqp.table import Table, Value
from tests.wire.live import LiveBroker
from tests.wire.raw import RawClient
from tests.wire.waiting import wait_until

QUICK_HANDSHAKE = {"limits.handshake_timeout_s": "0.3", "log.level": "error"}


def be_patient(broker: LiveBroker) -> None:
    """From now on a handshake may take its time."""

    def change() -> None:
        listener = broker.server.listener
        assert listener is not None
        listener._limits = replace(listener._limits, handshake_timeout_s=60.0)

    broker.call(change)


def assert_alive(broker: LiveBroker) -> None:
    """A well-behaved client is served, and nobody else is left."""
    with RawClient(broker.port).handshake() as client:
        client.open()
        client.ask(QueueDeclare("alive"), QueueDeclareOk)
        client.close()
    wait_until(lambda: not broker.call(broker.connections), what="all connections to be gone")
    assert "crash" not in broker.log


def gone_with(client: RawClient) -> bytes:
    return client.expect_gone()


@pytest.mark.parametrize(
    "header",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"AMQP\x01\x01\x00\x0a",
        b"AMQP\x00\x00\x08\x00",
        b"AMQP\x00\x01\x00\x00",
        b"\x00" * 8,
    ],
)
def test_another_protocol_is_answered_with_ours_and_closed(broker: LiveBroker, header: bytes) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(header)
        assert gone_with(client) == PROTOCOL_HEADER
    assert_alive(broker)


@pytest.mark.parametrize("broker", [QUICK_HANDSHAKE], indirect=True)
@pytest.mark.parametrize("sent", [b"", b"AMQ", PROTOCOL_HEADER, PROTOCOL_HEADER + b"\x01\x00\x00\x00"])
def test_a_handshake_that_is_never_finished_ends_by_a_timeout(broker: LiveBroker, sent: bytes) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(sent)
        gone_with(client)
    be_patient(broker)
    assert_alive(broker)


@pytest.mark.parametrize("broker", [QUICK_HANDSHAKE], indirect=True)
def test_a_handshake_a_byte_at_a_time_is_still_bounded_in_time(broker: LiveBroker) -> None:
    with RawClient(broker.port) as client, pytest.raises(OSError):
        wait_until(lambda: client.send_bytes(b"A"), what="the broker to have enough of nonsense")
    be_patient(broker)
    assert_alive(broker)


def test_garbage_after_the_handshake_closes_with_a_code_and_never_crashes(broker: LiveBroker) -> None:
    chance = random.Random(2)
    for _ in range(60):
        with RawClient(broker.port).handshake() as client:
            client.open()
            client.send_bytes(chance.randbytes(chance.randrange(8, 2000)) + b"\xff" * 8)
            assert client.expect_connection_close().reply_code in (501, 502, 503, 504, 505)
    assert_alive(broker)


def test_valid_frames_with_flipped_bytes_never_crash_the_broker(broker: LiveBroker) -> None:
    chance = random.Random(3)
    publish = encode_method(BasicPublish("", "q"), 1) + build_basic(1, b"\x00\x00", b"x" * 50, 4096)
    good = encode_method(QueueDeclare("q", arguments={"x-max-length": 5, "deep": {"a": [1, "b"]}}), 1) + publish * 3
    for _ in range(150):
        bad = bytearray(good)
        for _ in range(chance.randrange(1, 4)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        with RawClient(broker.port).handshake() as client:
            client.open()
            client.send_bytes(bytes(bad))
    assert_alive(broker)


def test_a_frame_that_announces_more_than_frame_max_is_refused_before_it_comes(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake() as client:
        client.send_bytes(HEAD.pack(METHOD, 0, 0xFFFFFFFF))
        assert client.expect_connection_close().reply_code == 501
    assert_alive(broker)


def test_a_frame_too_large_before_login_is_closed_without_a_word(broker: LiveBroker) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(PROTOCOL_HEADER + HEAD.pack(METHOD, 0, FRAME_MIN_BYTES + 1))
        wait_until(lambda: "frame_too_large" in broker.log)
        client.expect_gone()
    assert_alive(broker)


@pytest.mark.parametrize("broker", [{"limits.message_bytes": "1000"}], indirect=True)
def test_a_body_above_the_limit_closes_its_channel_and_takes_no_memory(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake() as client:
        client.open()
        client.publish("q", b"x" * 100_001)
        refusal = client.expect_channel_close()
        assert (refusal.reply_code, refusal.reply_text) == (
            406,
            "PRECONDITION_FAILED - message size 100001 is larger than configured max size 1000",
        )
        client.open()
        client.ask(QueueDeclare("q"), QueueDeclareOk)
        client.publish("q", b"x" * 1000)
        assert client.ask(QueueDeclare("q", passive=True), QueueDeclareOk).message_count == 1
        client.close()
    assert_alive(broker)


def test_half_a_message_holds_nobody_up_and_is_forgotten_with_its_connection(broker: LiveBroker) -> None:
    half = encode_method(BasicPublish("", "q"), 1) + build_basic(1, b"\x00\x00", b"x" * 5000, 4096)[:-100]
    with RawClient(broker.port).handshake() as slow, RawClient(broker.port).handshake() as other:
        slow.open()
        other.open()
        other.ask(QueueDeclare("q"), QueueDeclareOk)
        slow.send_bytes(half)
        other.publish("q", b"whole")
        assert other.ask(QueueDeclare("q", passive=True), QueueDeclareOk).message_count == 1
        slow.close_socket()
        other.close()
    assert_alive(broker)


def test_a_body_in_frames_of_one_byte_from_a_slow_sender_arrives_whole(broker: LiveBroker) -> None:
    body = bytes(range(256)) * 8
    with RawClient(broker.port).handshake() as client:
        client.open()
        client.ask(QueueDeclare("q"), QueueDeclareOk)
        frames = build_basic(1, b"\x00\x00", body, 9)
        stream = encode_method(BasicPublish("", "q"), 1) + frames
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for at in range(0, len(stream), 7):
            client.send_bytes(stream[at : at + 7])
        wait_until(lambda: broker.count("q") == 1)
        client.close()
    queue = broker.queue("q")
    kept = broker.call(lambda: len(queue.shelves.front().ready[0][1]))
    assert kept < len(body) + 100  # frames of one byte would be nine times that
    assert_alive(broker)


def test_one_that_asks_and_never_reads_is_not_read_from_for_ever(broker: LiveBroker) -> None:
    """Replies that nobody reads are bounded: the broker stops reading, so the asker's own socket blocks."""
    ask = encode_method(QueueDeclare("q" * 200), 1) * 1000
    with RawClient(broker.port).handshake() as client:
        client.open()
        connection = broker.call(broker.connections)[0]
        client.socket.setblocking(False)
        sent = 0

        def is_stuck() -> bool:
            """The broker does not read, and the socket takes nothing more."""
            nonlocal sent
            try:
                at = sent % len(ask)
                sent += client.socket.send(ask[at:])
            except BlockingIOError:
                return not broker.call(connection._transport.is_reading)
            return False

        wait_until(is_stuck, what="the broker to read no more")
        assert broker.call(connection._transport.get_write_buffer_size) < 40_000_000
    assert_alive(broker)


# Limits: each is a setting, and the text that refuses names it.

TIGHT = {
    "limits.table_depth": "3",
    "limits.table_bytes": "200",
    "limits.table_entries": "20",
    "limits.name_bytes": "30",
    "limits.unfinished_bytes": "20000",
}
DEEP: Value = {"a": [[1]]}
TOO_MUCH: list[tuple[Table, str]] = [
    ({"deep": DEEP}, "cannot decode table: nested deeper than limits.table_depth, 3"),
    ({"long": "x" * 200}, "cannot decode table: its 210 bytes are more than limits.table_bytes, 200"),
    ({"many": [True] * 30}, "cannot decode table: its 31 entries are more than limits.table_entries, 20"),
]


@pytest.mark.parametrize("broker", [TIGHT], indirect=True)
@pytest.mark.parametrize(("table", "text"), TOO_MUCH, ids=["deep", "long", "many"])
def test_a_table_above_a_limit_closes_with_501_in_arguments_and_in_headers(
    broker: LiveBroker, table: Table, text: str
) -> None:
    with RawClient(broker.port).handshake(properties={}) as client:
        client.open()
        client.send(QueueDeclare("q", arguments=table))
        close = client.expect_connection_close()
        assert (close.reply_code, close.reply_text) == (501, f"FRAME_ERROR - {text}")
        assert (close.class_id, close.method_id) == (50, 10)
    with RawClient(broker.port).handshake(properties={}) as client:
        client.open()
        client.publish("q", b"", properties=Properties(headers=table))
        close = client.expect_connection_close()
        assert (close.reply_code, close.reply_text) == (501, f"FRAME_ERROR - {text}")
        assert (close.class_id, close.method_id) == (60, 40)


@pytest.mark.parametrize("broker", [TIGHT], indirect=True)
def test_a_name_above_the_limit_closes_with_530(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake(properties={}) as client:
        client.open()
        client.ask(QueueDeclare("q" * 30), QueueDeclareOk)
        client.send(QueueDeclare("q" * 31))
        close = client.expect_connection_close()
        text = "NOT_ALLOWED - a name of 31 bytes is longer than limits.name_bytes, 30"
        assert (close.reply_code, close.reply_text) == (530, text)


def begun(channel: int, size: int) -> bytes:
    """A publish up to its content header."""
    header = CONTENT_HEAD.pack(HEADER, channel, 14, 60, 0, size) + b"\x00\x00\xce"
    return encode_method(BasicPublish("", "q"), channel) + header


@pytest.mark.parametrize("broker", [TIGHT], indirect=True)
def test_bodies_that_are_never_finished_close_with_506_when_they_are_too_many(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake(properties={}) as client:
        for channel in range(1, 6):
            client.open(channel)
            client.send_bytes(begun(channel, 100_000) + encode_frame(BODY, channel, bytes(4000)))
        close = client.expect_connection_close()
        text = "RESOURCE_ERROR - contents still coming hold more than 20000 bytes (limits.unfinished_bytes)"
        assert (close.reply_code, close.reply_text) == (506, text)


def test_contents_begun_on_channels_that_were_never_opened_close_with_504(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake(channel_max=5) as client:
        client.send_bytes(b"".join(begun(channel, 10) for channel in range(1, 10)))
        assert client.expect_connection_close().reply_code == 504
    assert_alive(broker)


def test_who_has_not_logged_in_cannot_fill_memory_with_bodies(broker: LiveBroker) -> None:
    with RawClient(broker.port) as client:
        client.send_bytes(PROTOCOL_HEADER)
        client.expect(ConnectionStart, 0)
        client.send_bytes(begun(1, 100_000_000) + encode_frame(BODY, 1, bytes(4000)) * 100)
        wait_until(lambda: "limits.unfinished_bytes" in broker.log)
        client.expect_gone()
    assert_alive(broker)


@pytest.mark.parametrize("broker", [{"limits.connections": "2"}], indirect=True)
def test_one_connection_too_many_is_closed_at_once_and_the_others_go_on(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake() as one, RawClient(broker.port).handshake():
        with RawClient(broker.port) as third:
            assert gone_with(third) == b""
        one.open()
        one.ask(QueueDeclare("q"), QueueDeclareOk)

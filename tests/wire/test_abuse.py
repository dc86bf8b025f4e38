"""Peers that are broken, slow or hostile: closed with the right code or by a timeout, and the broker stays up."""

from __future__ import annotations

import random
import socket

import pytest

from penstock.amqp.content import build_basic
from penstock.amqp.frame import FRAME_MIN_BYTES, HEAD, METHOD, PROTOCOL_HEADER
from penstock.amqp.method import BasicPublish, QueueDeclare, QueueDeclareOk, encode_method
from tests.wire.live import LiveBroker
from tests.wire.raw import RawClient
from tests.wire.waiting import wait_until

QUICK_HANDSHAKE = {"limits.handshake_timeout_s": "0.3", "log.level": "error"}


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
    assert_alive(broker)


@pytest.mark.parametrize("broker", [QUICK_HANDSHAKE], indirect=True)
def test_a_handshake_a_byte_at_a_time_is_still_bounded_in_time(broker: LiveBroker) -> None:
    with RawClient(broker.port) as client:
        for _ in range(100_000):
            try:
                client.send_bytes(b"A")
            except OSError:
                break
        else:
            pytest.fail("the broker took a hundred thousand bytes of nonsense")
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
    assert broker.call(lambda: len(queue.ready[0][1])) < len(body) + 100  # frames of one byte would be nine times that
    assert_alive(broker)


def flood(client: RawClient, block: bytes) -> None:
    for _ in range(2000):
        client.socket.sendall(block)


def test_one_that_asks_and_never_reads_is_not_read_from_for_ever(broker: LiveBroker) -> None:
    """Replies that nobody reads are bounded: the broker stops reading, so the asker's own socket blocks."""
    ask = encode_method(QueueDeclare("q" * 200), 1) * 1000
    with RawClient(broker.port).handshake() as client:
        client.open()
        client.socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            flood(client, ask)
        connection = broker.call(broker.connections)[0]
        assert not broker.call(connection._transport.is_reading)
        assert broker.call(connection._transport.get_write_buffer_size) < 40_000_000
    assert_alive(broker)

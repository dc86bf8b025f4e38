"""Consumer: the same deliveries however the bytes come in; limits hold; whatever ends it is told."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.amqp.content import build_basic
from penstock.amqp.frame import HEARTBEAT_FRAME
from penstock.amqp.method import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsumeOk,
    BasicDeliver,
    BasicNack,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionUnblocked,
    encode_method,
)
from penstock.amqp.properties import Properties, encode_properties
from penstock.client import consumer as module
from penstock.client.consumer import Consumer, Deliveries
from penstock.client.error import Closed
from tests.unit.client.script import FRAME_MAX, TAG, ScriptedSocket, channel_on, consumer_on, cut, delivery

PROPERTIES = encode_properties(Properties(content_type="text/plain", headers={"x-stream-offset": 1 << 40, "a": "b"}))
LARGE = bytes(range(256)) * 40  # three frames of FRAME_MAX
EXACT = b"e" * (FRAME_MAX - 8)  # just one

# (tag, redelivered, exchange, key, properties, body), and the wire they come in.
ROWS = [
    (1, False, "ex", "key", PROPERTIES, b"one"),
    (2, False, "ex", "key", PROPERTIES, b"two"),
    (3, True, "ex", "key", b"\0\0", b"again"),
    (4, False, "ex", "another", b"\0\0", b"x" * 200),
    (5, False, "", "q", b"\0\0", b""),
    (6, False, "ex", "key", PROPERTIES, LARGE),
    (7, False, "ex", "key", PROPERTIES, EXACT),
    (8, False, "ex", "kéy", b"\0\0", b"\xce" * 40),
    (9, False, "ex", "key", b"\0\0", b"last"),
]
WIRES = [
    delivery(tag, body, properties, key, exchange, redelivered)
    for tag, redelivered, exchange, key, properties, body in ROWS
]
NOISE = [HEARTBEAT_FRAME, encode_method(ConnectionBlocked("low"), 0), encode_method(ConnectionUnblocked(), 0)]


def rows(*reads: Deliveries) -> list[tuple[int, bool, str, str, bytes, bytes]]:
    return [
        row
        for got in reads
        for row in zip(got.tags, got.redelivered, got.exchanges, got.routing_keys, got.headers, got.bodies, strict=True)
    ]


def read_all(consumer: Consumer, limit: int = 1000, bytes_max: int = 1 << 30) -> list[Deliveries]:
    reads = []
    while got := consumer.read(limit, 0, bytes_max):
        reads.append(got)
    return reads


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 19, 64, 300, 4095, 4096, 4097, 200_000])
@pytest.mark.parametrize("noise", [b"", b"".join(NOISE)])
def test_deliveries_are_the_same_in_whatever_pieces_they_come(size: int, noise: bytes) -> None:
    socket = ScriptedSocket(cut(noise + noise.join(WIRES), size))
    reads = read_all(consumer_on(socket))
    assert rows(*reads) == ROWS
    assert sum(got.bytes for got in reads) == sum(len(row[-1]) for row in ROWS)
    assert socket.sent == b""


@given(
    st.lists(st.tuples(st.sampled_from(ROWS), st.integers(1, 6)), min_size=1, max_size=12),
    st.sampled_from([50, 300, 1000, 4096, 200_000]),
    st.integers(1, 40),
    st.sampled_from([1, 300, 1 << 30]),
)
def test_runs_of_deliveries_that_are_alike_end_where_one_differs(
    runs: list[tuple[tuple[int, bool, str, str, bytes, bytes], int]], size: int, limit: int, bytes_max: int
) -> None:
    expected: list[tuple[int, bool, str, str, bytes, bytes]] = []
    for row, count in runs:
        for at in range(count):
            body = row[-1] + b"." * (at % 3) if len(row[-1]) < 300 else row[-1]
            expected.append((len(expected) + 1, *row[1:-1], body))
    wires = [delivery(row[0], row[5], row[4], row[3], row[2], row[1]) for row in expected]
    reads = read_all(consumer_on(ScriptedSocket(cut(b"".join(wires), size))), limit, bytes_max)
    assert rows(*reads) == expected
    assert max(map(len, reads)) <= limit
    for got in reads:
        assert got.bytes == sum(map(len, got.bodies))
        assert sum(map(len, got.bodies[:-1])) < bytes_max


def test_one_read_takes_all_that_has_come() -> None:
    socket = ScriptedSocket(cut(b"".join(WIRES), 100))
    assert rows(consumer_on(socket).read(1000, 0)) == ROWS


@pytest.mark.parametrize("limit", [1, 2, 3, 5])
def test_a_read_brings_no_more_than_its_limit_and_the_rest_comes_next(limit: int) -> None:
    reads = read_all(consumer_on(ScriptedSocket([b"".join(WIRES)])), limit)
    assert rows(*reads) == ROWS
    assert max(map(len, reads)) == limit


def test_what_comes_behind_a_limit_is_there_for_the_next_read_though_a_longer_frame_came_in_part_before() -> None:
    first, second = delivery(1, b"one", key="k" * 200), delivery(2, b"two", key="k")
    socket = ScriptedSocket()
    consumer = consumer_on(socket)
    socket.pieces.append(first[:60])
    assert not consumer.read(1, 0)
    socket.pieces += [first[60:], second]  # the read that is full with the first looks at the socket once more
    assert [got.bodies for got in read_all(consumer, 1)] == [[b"one"], [b"two"]]


def test_a_read_stops_once_its_bytes_are_reached() -> None:
    socket = ScriptedSocket([b"".join(delivery(tag, b"x" * 100) for tag in range(1, 11))])
    assert [len(got) for got in read_all(consumer_on(socket), bytes_max=250)] == [3, 3, 3, 1]


def test_a_body_in_more_frames_than_needed_is_put_together() -> None:
    socket = ScriptedSocket([delivery(1, b"x" * 100, frame_max=20) + delivery(2)])
    assert consumer_on(socket).read(10, 0).bodies == [b"x" * 100, b"body"]


def test_more_routing_keys_than_the_cache_holds_are_all_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROUTES_MAX", 3)
    keys = [f"key{number % 5}" for number in range(20)]
    socket = ScriptedSocket([b"".join(delivery(number + 1, key=key) for number, key in enumerate(keys))])
    assert consumer_on(socket).read(100, 0).routing_keys == keys


def test_nothing_in_time_is_an_empty_result() -> None:
    got = consumer_on(ScriptedSocket()).read(10, 0)
    assert (len(got), got.bytes) == (0, 0)


def test_the_socket_has_its_time_out_back_after_a_read() -> None:
    socket = ScriptedSocket()
    consumer = consumer_on(socket)
    consumer.read(10, 0)
    assert socket.timeout == consumer.channel.connection.timeout_s


def test_the_brokers_cancel_ends_it_behind_the_last_delivery() -> None:
    socket = ScriptedSocket([WIRES[0] + encode_method(BasicCancel(TAG, nowait=True), 1)])
    consumer = consumer_on(socket)
    assert len(consumer.read(10, 0)) == 1
    assert consumer.ended
    assert not consumer.read(10, 60)
    assert socket.sent == b""


def test_a_cancel_that_wants_an_answer_gets_one() -> None:
    socket = ScriptedSocket([encode_method(BasicCancel(TAG), 1)])
    consumer = consumer_on(socket)
    consumer.read(10, 0)
    assert consumer.ended
    assert socket.sent == encode_method(BasicCancelOk(TAG), 1)


def test_its_own_cancel_hands_over_what_was_under_way() -> None:
    socket = ScriptedSocket([*WIRES, encode_method(BasicCancelOk(TAG), 1)])
    consumer = consumer_on(socket)
    assert rows(consumer.cancel()) == ROWS
    assert socket.sent == encode_method(BasicCancel(TAG), 1)
    assert consumer.ended
    assert not consumer.cancel()


def test_a_close_is_told_with_its_code_and_answered() -> None:
    socket = ScriptedSocket([encode_method(ChannelClose(404, "NOT_FOUND - gone"), 1)])
    with pytest.raises(Closed, match=r"closed the channel: 404 NOT_FOUND - gone") as closed:
        consumer_on(socket).read(10, 0)
    assert closed.value.code == 404
    assert socket.sent == encode_method(ChannelCloseOk(), 1)
    assert pickle.loads(pickle.dumps(closed.value)).code == 404
    socket = ScriptedSocket([encode_method(ConnectionClose(320, "CONNECTION_FORCED"), 0)])
    with pytest.raises(Closed, match="closed the connection: 320") as closed:
        consumer_on(socket).read(10, 0)
    assert closed.value.code == 320
    assert socket.sent == encode_method(ConnectionCloseOk(), 0)


def test_a_lost_connection_is_told_with_code_0() -> None:
    with pytest.raises(Closed, match="without a word") as closed:
        consumer_on(ScriptedSocket(hang_up=True)).read(10, 60)
    assert closed.value.code == 0


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (delivery(1)[:-1] + b"\x00", "has no end"),
        (b"\x01\x00\x01\xff\xff\xff\xff" + b"x" * 60, "4096 were agreed on"),
        (b"AMQP\x00\x01\x00\x00" + b"x" * 60, "another version of AMQP"),
        (encode_method(BasicDeliver(TAG, 1, False, "", "q"), 1) + WIRES[0], "where a delivery was due"),
        (encode_method(BasicDeliver("other", 1, False, "", "q"), 1) + b"x" * 60, "where a delivery was due"),
        (encode_method(BasicDeliver(TAG, 1, False, "", "q"), 2) + b"x" * 60, "where a delivery was due"),
        (build_basic(1, b"\0\0", b"body", 4096) + WIRES[0], "where none was due"),
        (encode_method(BasicQos(0), 1), "where a delivery was due"),
    ],
)
def test_what_is_no_delivery_is_an_error_in_one_line(data: bytes, why: str) -> None:
    with pytest.raises(Closed, match=why):
        consumer_on(ScriptedSocket([data])).read(10, 0)


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_what_comes_before_the_broker_says_that_it_will_is_read_first(limit: int) -> None:
    """RabbitMQ does so on streams."""
    started = encode_method(BasicConsumeOk(TAG), 1)
    socket = ScriptedSocket([*WIRES[:3], started, *WIRES[3:]])
    consumer = Consumer(channel_on(socket), "q", tag=TAG)
    assert rows(*read_all(consumer, limit)) == ROWS
    socket = ScriptedSocket([*WIRES[:3], started, WIRES[3], encode_method(BasicCancelOk(TAG), 1)])
    assert rows(Consumer(channel_on(socket), "q", tag=TAG).cancel()) == ROWS[:4]


def test_consumers_of_a_channel_have_names_of_their_own() -> None:
    socket = ScriptedSocket([encode_method(BasicConsumeOk(name), 1) for name in ("penstock-1", "penstock-2")])
    channel = channel_on(socket)
    assert [Consumer(channel, "q").tag for _ in range(2)] == ["penstock-1", "penstock-2"]


def test_acks_and_nacks_go_out_as_asked() -> None:
    socket = ScriptedSocket()
    consumer = consumer_on(socket)
    consumer.ack(7)
    consumer.nack(9, requeue=False)
    assert socket.sent == encode_method(BasicAck(7, True), 1) + encode_method(BasicNack(9, True, False), 1)


def test_a_prefetch_that_amqp_cannot_say_is_refused() -> None:
    with pytest.raises(ValueError, match="65535"):
        Consumer(channel_on(ScriptedSocket()), "q", prefetch=70_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def test_a_broker_that_is_silent_for_long_is_asked_and_given_up_without_an_answer(clock: list[float]) -> None:
    socket = ScriptedSocket()
    consumer = consumer_on(socket, prefetch=5)
    consumer.read(10, 0)
    clock[0] += module.QUIET_S - 1
    consumer.read(10, 0)
    assert socket.sent == b""
    clock[0] += 1
    consumer.read(10, 0)
    assert socket.sent == encode_method(BasicQos(prefetch_count=5), 1)
    clock[0] += module.ANSWER_S
    with pytest.raises(Closed, match="has not answered for 30 s"):
        consumer.read(10, 0)


def test_a_broker_that_answers_is_believed_however_late_the_caller_reads(clock: list[float]) -> None:
    socket = ScriptedSocket()
    consumer = consumer_on(socket)
    for _ in range(3):
        consumer.read(10, 0)
        clock[0] += module.QUIET_S
        consumer.read(10, 0)
        assert socket.sent == encode_method(BasicQos(), 1)
        socket.sent = b""
        socket.pieces.append(encode_method(BasicQosOk(), 1))
        clock[0] += 3600
        assert not consumer.read(10, 0)


def test_a_caller_that_was_away_for_an_hour_finds_its_deliveries(clock: list[float]) -> None:
    socket = ScriptedSocket()
    consumer = consumer_on(socket)
    consumer.read(10, 0)
    clock[0] += 3600
    socket.pieces.append(WIRES[0])
    assert len(consumer.read(10, 0)) == 1
    assert socket.sent == b""

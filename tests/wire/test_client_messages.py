"""The client's Publisher and Consumer against a real broker, plain and over TLS: nothing lost, limits kept."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.amqp.frame import HEARTBEAT_FRAME
from penstock.amqp.method import (
    BasicAck,
    BasicNack,
    ChannelClose,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionUnblocked,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    encode_method,
)
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import Table
from penstock.client import consumer as consumer_module
from penstock.client import publisher as module
from penstock.client.connection import Channel, Connection
from penstock.client.consumer import Consumer
from penstock.client.error import Closed, Refused
from penstock.client.publisher import Publisher
from penstock.client.uri import Tls, Uri, parse_uri
from tests.wire.certificates import Authority, needs_openssl
from tests.wire.live import LiveBroker, ServeProcess
from tests.wire.waiting import LIMIT_S, wait_until

NONE = b"\0\0"  # no properties
MEMORY = "alarms.memory_bytes_high"


@pytest.fixture
def uri(broker: LiveBroker) -> Uri:
    return parse_uri(broker.uri)


@pytest.fixture
def channel(uri: Uri) -> Iterator[Channel]:
    """For a publisher."""
    with Connection.connect(uri, name="publisher", notices=True) as connection:
        yield connection.open_channel()


@pytest.fixture
def other(uri: Uri) -> Iterator[Channel]:
    """For a consumer."""
    with Connection.connect(uri, name="consumer") as connection:
        yield connection.open_channel()


def declare(channel: Channel, queue: str = "q", arguments: Table | None = None) -> None:
    channel.call(QueueDeclare(queue, arguments=arguments or {}), QueueDeclareOk)


def read(consumer: Consumer, count: int, limit: int = 1000) -> list[bytes]:
    """The next `count` bodies, acked batch by batch."""
    bodies: list[bytes] = []
    while len(bodies) < count:
        got = consumer.read(limit, LIMIT_S)
        assert got, f"{len(bodies)} of {count} came"
        consumer.ack(got.tags[-1])
        bodies += got.bodies
    return bodies


def test_messages_of_all_sizes_arrive_once_and_in_order(channel: Channel, other: Channel) -> None:
    declare(channel)
    sizes = [0, 1, 200, 4096, 131_063, 131_064, 131_065, 300_000, 3_000_000, 10]
    bodies = [os.urandom(size) for size in sizes] * 3 + [b"%d" % number for number in range(5000)]
    publisher = Publisher(channel, window=100)
    consumer = Consumer(other, "q", prefetch=300)
    for body in bodies[:30]:
        publisher.publish("", "q", NONE, body)
    publisher.flush()
    for body in bodies[30:]:
        publisher.publish("", "q", NONE, body)
    publisher.flush()
    assert publisher.unconfirmed() == []
    assert read(consumer, len(bodies)) == bodies
    assert not consumer.read(10, 0)


def test_properties_exchange_key_and_redelivered_come_with_a_delivery(channel: Channel, other: Channel) -> None:
    declare(channel)
    properties = encode_properties(Properties(message_id="m", headers={"a": 1, "b": [True, None]}, delivery_mode=2))
    publisher = Publisher(channel)
    publisher.publish("amq.direct", "nowhere", properties, b"dropped")
    publisher.publish("", "q", properties, b"kept")
    publisher.flush()
    consumer = Consumer(other, "q", prefetch=10)
    got = consumer.read(10, LIMIT_S)
    assert (got.exchanges, got.routing_keys, got.redelivered) == ([""], ["q"], [False])
    assert (got.headers, got.bodies, got.bytes) == ([properties], [b"kept"], 4)
    consumer.nack(got.tags[-1])
    assert consumer.read(10, LIMIT_S).redelivered == [True]


def test_a_prefetch_is_the_most_that_comes_without_an_ack(channel: Channel, other: Channel, broker: LiveBroker) -> None:
    declare(channel)
    publisher = Publisher(channel)
    for number in range(100):
        publisher.publish("", "q", NONE, b"%d" % number)
    publisher.flush()
    consumer = Consumer(other, "q", prefetch=7)
    got = consumer.read(100, LIMIT_S)
    while len(got) < 7:  # the first read may find some of them only
        got.tags += consumer.read(100, LIMIT_S).tags
    assert not consumer.read(100, 0)
    consumer.ack(got.tags[2])
    assert [int(body) for body in read(consumer, 3, 3)] == [7, 8, 9]


def test_a_cancelled_consumer_hands_over_what_was_under_way(channel: Channel, other: Channel) -> None:
    declare(channel)
    publisher = Publisher(channel)
    for number in range(1000):
        publisher.publish("", "q", NONE, b"%d" % number)
    publisher.flush()
    consumer = Consumer(other, "q", no_ack=True)
    first = consumer.read(10, LIMIT_S)
    rest = consumer.cancel()
    left = channel.call(QueueDeclare("q", passive=True), QueueDeclareOk).message_count
    assert len(first) + len(rest) + left == 1000
    other.call(QueueDeclare("q", passive=True), QueueDeclareOk)  # the channel is free for calls again


def test_a_deleted_queue_ends_its_consumer(channel: Channel, other: Channel) -> None:
    declare(channel)
    consumer = Consumer(other, "q")
    channel.call(QueueDelete("q"), QueueDeleteOk)
    assert not consumer.read(1, LIMIT_S)
    assert consumer.ended


def test_a_wrong_ack_closes_the_channel_and_the_reader_is_told(channel: Channel, other: Channel) -> None:
    declare(channel)
    consumer = Consumer(other, "q")
    consumer.ack(99)
    with pytest.raises(Closed, match="406 PRECONDITION_FAILED - unknown delivery tag 99") as closed:
        consumer.read(1, LIMIT_S)
    assert closed.value.code == 406
    with pytest.raises(Closed, match="is closed"):
        consumer.ack(1)


def test_a_refused_message_is_named_and_the_others_are_taken(channel: Channel) -> None:
    declare(channel, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    publisher = Publisher(channel)
    for name in ("a", "b", "c", "d", "e", "f", "g"):
        publisher.publish("", "q", encode_properties(Properties(message_id=name)), b"x")
    with pytest.raises(Refused) as refused:
        publisher.flush()
    text = str(refused.value)
    assert "message 'c' to exchange '' with routing key 'q': the broker refused it (basic.nack)" in text
    assert text.endswith("; and 2 more")
    assert refused.value.numbers == [3, 4, 5, 6, 7]
    assert "\n" not in text
    publisher.flush()
    assert channel.connection.open_channel().call(QueueDeclare("q", passive=True), QueueDeclareOk).message_count == 2


def test_a_mandatory_message_that_no_queue_wants_is_named(channel: Channel) -> None:
    declare(channel)
    publisher = Publisher(channel)
    for number in range(10):
        properties = encode_properties(Properties(message_id=f"m{number}"))
        publisher.publish("", "q" if number % 2 else "nowhere", properties, b"x" * 100 * number, number != 0)
    with pytest.raises(Refused, match=r"message 'm2' to .* 'nowhere': it was returned: 312 NO_ROUTE") as refused:
        publisher.flush()
    assert refused.value.numbers == [3, 5, 7, 9]
    publisher.publish("", "q", NONE, b"goes on")
    publisher.flush()


def test_a_refusal_is_told_by_the_next_publishes_too(channel: Channel) -> None:
    publisher = Publisher(channel)
    with pytest.raises(Refused, match="NO_ROUTE") as refused:  # noqa: PT012 it comes when the broker has said so
        for _ in itertools.count():
            publisher.publish("", "nowhere", NONE, b"x" * 300_000, mandatory=True)
    assert refused.value.numbers[0] == 1


def test_a_channel_has_one_publisher_because_confirms_are_counted(channel: Channel) -> None:
    Publisher(channel)
    with pytest.raises(ValueError, match="has a publisher already"):
        Publisher(channel)


def test_a_connection_closes_although_confirms_and_deliveries_are_on_their_way(uri: Uri) -> None:
    with Connection.connect(uri) as one, Connection.connect(uri) as two:
        channel = one.open_channel()
        declare(channel)
        publisher = Publisher(channel, window=10_000)
        for _ in range(5000):
            publisher.publish("", "q", NONE, b"x" * 200)
        Consumer(two.open_channel(), "q").read(1, LIMIT_S)


def test_an_exchange_that_is_not_there_is_told_with_its_code(channel: Channel) -> None:
    publisher = Publisher(channel)
    publisher.publish("missing", "q", NONE, b"x")
    with pytest.raises(Closed, match="no exchange 'missing'") as closed:
        publisher.flush()
    assert closed.value.code == 404
    assert publisher.unconfirmed() == [1]
    publisher.publish("", "q", NONE, b"x")
    with pytest.raises(Closed, match="is closed"):
        publisher.flush()
    assert publisher.unconfirmed() == [1, 2]


def test_a_blocked_publisher_waits_says_so_and_goes_on(channel: Channel, broker: LiveBroker) -> None:
    declare(channel)
    said: list[str] = []
    tuning = broker.server.tuning
    assert tuning is not None
    publisher = Publisher(channel, window=50, blocked=said.append)
    broker.call(lambda: tuning.change(MEMORY, "1"))
    thread = threading.Thread(target=publish_all, args=(publisher, 20_000))
    thread.start()
    try:
        wait_until(lambda: said)
        assert broker.count("q") == 0
        assert thread.is_alive()
    finally:
        broker.call(lambda: tuning.change(MEMORY, "0"))
        thread.join(LIMIT_S)
    assert broker.count("q") == 20_000
    assert len(said) == 2
    assert said[0].startswith("low on memory: ")
    assert said[1] == ""


def publish_all(publisher: Publisher, count: int, size: int = 200) -> None:
    for number in range(count):
        publisher.publish("", "q", NONE, b"%0*d" % (size, number))
    publisher.flush()


def test_a_publisher_waits_as_long_as_the_queue_does_not_take_its_messages(
    channel: Channel, other: Channel, broker: LiveBroker
) -> None:
    declare(channel)
    broker.suspend("q")
    publisher = Publisher(channel, window=5000)
    thread = threading.Thread(target=publish_all, args=(publisher, 20_000, 2000))
    thread.start()
    try:
        wait_until(lambda: broker.call(lambda: broker.connection("publisher").flow_state()) != "running")
        assert thread.is_alive()
    finally:
        broker.release("q")
        thread.join(LIMIT_S)
    assert broker.count("q") == 20_000
    assert [int(body) for body in read(Consumer(other, "q", prefetch=1000), 20_000)] == list(range(20_000))


def test_what_a_killed_broker_has_not_confirmed_is_known_by_number(serve_process: Callable[..., ServeProcess]) -> None:
    process = serve_process()
    connection = Connection.connect(parse_uri(process.uri), notices=True)
    channel = connection.open_channel()
    declare(channel)
    publisher = Publisher(channel, window=500)
    number = 0
    with pytest.raises(Closed):  # noqa: PT012 the error comes when the window is full
        for number in itertools.count(1):
            publisher.publish("", "q", NONE, b"x" * 200)
            if number == 5000:
                process.process.kill()
    connection.abort()
    unconfirmed = publisher.unconfirmed()
    assert 0 < len(unconfirmed) <= 500
    assert unconfirmed == list(range(unconfirmed[0], unconfirmed[-1] + 1))
    assert unconfirmed[-1] == number


def test_a_broker_that_stands_still_is_noticed_by_a_waiting_consumer(
    serve_process: Callable[..., ServeProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "QUIET_S", 0.05)
    process = serve_process()
    connection = Connection.connect(parse_uri(process.uri))
    channel = connection.open_channel()
    declare(channel)
    consumer = Consumer(channel, "q")
    while not consumer._asked_at:  # it asks
        assert not consumer.read(1, 0.01)
    while consumer._asked_at:  # and hears the answer
        assert not consumer.read(1, 0.01)
    monkeypatch.setattr(consumer_module, "ANSWER_S", 0.5)
    process.process.send_signal(signal.SIGSTOP)
    with pytest.raises(Closed, match="has not answered") as closed:  # noqa: PT012 it takes several reads
        for _ in range(1000):
            assert not consumer.read(1, 0.01)
    assert closed.value.code == 0
    connection.abort()


@needs_openssl
def test_all_of_it_works_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.sign("server")
    settings = {"tls.certificate": str(pair.certificate), "tls.key": str(pair.key)}
    with LiveBroker(settings, tls_port=0) as broker:
        uri = Uri("localhost", broker.tls_port, tls=Tls(str(authority.ca)))
        bodies = [os.urandom(size) for size in (0, 200, 131_064, 5_000_000)] * 4 + [b"%d" % n for n in range(20_000)]
        with Connection.connect(uri, notices=True) as one, Connection.connect(uri) as two:
            channel = one.open_channel()
            declare(channel)
            publisher = Publisher(channel)
            for body in bodies:
                publisher.publish("", "q", NONE, body)
            publisher.flush()
            consumer = Consumer(two.open_channel(), "q", prefetch=1000)
            assert read(consumer, len(bodies)) == bodies
            assert not consumer.read(1, 0)


# A broker made of prepared bytes, for what a real one does not do at will.


@pytest.fixture
def peer() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel, and the socket that its broker would have."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(encode_method(ConfirmSelectOk(), 1))
        yield Channel(Connection(Uri(), ours, LIMIT_S), 1), theirs


def test_a_broker_that_stops_reading_can_still_block_and_confirm(peer: tuple[Channel, socket.socket]) -> None:
    channel, theirs = peer
    said: list[str] = []
    publisher = Publisher(channel, window=10_000, blocked=said.append)
    thread = threading.Thread(target=publish_all, args=(publisher, 3000, 2000))  # far more than the sockets hold
    thread.start()
    theirs.sendall(encode_method(ConnectionBlocked("disk"), 0))
    wait_until(lambda: said == ["disk"])
    theirs.sendall(HEARTBEAT_FRAME + encode_method(ConnectionUnblocked(), 0))
    wait_until(lambda: said == ["disk", ""])
    drain = threading.Thread(target=read_until, args=(theirs, b"%02000d" % 2999))
    drain.start()
    drain.join(LIMIT_S)
    for number in range(1, 1001):  # one by one, as RabbitMQ does now and then
        theirs.sendall(encode_method(BasicAck(number), 1))
    theirs.sendall(encode_method(BasicAck(3000, True), 1))
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert publisher.unconfirmed() == []


def read_until(sock: socket.socket, text: bytes) -> None:
    seen = b""
    while text not in seen:
        seen = seen[-len(text) :] + sock.recv(65_536)


def test_a_publisher_goes_on_after_its_caller_was_interrupted_while_blocked(
    peer: tuple[Channel, socket.socket],
) -> None:
    channel, theirs = peer

    def interrupt(reason: str) -> None:
        if reason:
            raise InterruptedError(reason)

    publisher = Publisher(channel, blocked=interrupt)
    publisher.publish("", "q", NONE, b"first")
    theirs.sendall(encode_method(ConnectionBlocked("disk"), 0))
    with pytest.raises(InterruptedError, match="disk"):
        publisher.flush()
    publisher.publish("", "q", NONE, b"second")
    theirs.sendall(encode_method(ConnectionUnblocked(), 0) + encode_method(BasicAck(2, True), 1))
    publisher.flush()
    sent = theirs.recv(65_536)
    assert 0 < sent.index(b"first") < sent.index(b"second")


def test_a_long_block_is_told_again(peer: tuple[Channel, socket.socket], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    monkeypatch.setattr(module, "TELL_AGAIN_S", 0.02)
    channel, theirs = peer
    said: list[str] = []
    publisher = Publisher(channel, blocked=said.append)
    theirs.sendall(encode_method(ConnectionBlocked("disk"), 0))
    thread = threading.Thread(target=publish_all, args=(publisher, 1))
    thread.start()
    wait_until(lambda: len(said) >= 3)
    theirs.sendall(encode_method(ConnectionUnblocked(), 0) + encode_method(BasicAck(1), 1))
    thread.join(LIMIT_S)
    assert set(said[:-1]) == {"disk"}
    assert said[-1] == ""


def test_nacks_of_several_name_each(peer: tuple[Channel, socket.socket]) -> None:
    channel, theirs = peer
    publisher = Publisher(channel)
    for number in range(6):
        publisher.publish("", f"k{number}", NONE, b"x")
    theirs.sendall(encode_method(BasicAck(2), 1) + encode_method(BasicNack(3, True), 1))
    theirs.sendall(encode_method(BasicAck(6, True), 1))
    with pytest.raises(Refused, match=r"'k0': .*; .*'k2'") as refused:
        publisher.flush()
    assert refused.value.numbers == [1, 3]


def test_the_brokers_last_words_are_heard_although_it_hung_up(peer: tuple[Channel, socket.socket]) -> None:
    channel, theirs = peer
    publisher = Publisher(channel)
    theirs.sendall(encode_method(ChannelClose(406, "PRECONDITION_FAILED - too large"), 1))
    theirs.close()
    publisher.publish("", "q", NONE, b"x")
    with pytest.raises(Closed, match="406 PRECONDITION_FAILED - too large"):
        publisher.flush()


def test_a_broker_that_hangs_up_is_noticed_while_waiting_for_confirms(peer: tuple[Channel, socket.socket]) -> None:
    channel, theirs = peer
    publisher = Publisher(channel)
    publisher.publish("", "q", NONE, b"x")
    threading.Timer(0.05, theirs.shutdown, (socket.SHUT_RDWR,)).start()
    with pytest.raises(Closed):
        publisher.flush()
    assert publisher.unconfirmed() == [1]

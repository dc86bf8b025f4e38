"""Isolation and overload: a suspended queue stops those who publish to it, and nobody else; memory stays flat.

The queue is suspended by holding its mailbox, inside the broker; all the rest is done by clients.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from penstock.amqp.decoder import Publishes
from penstock.amqp.method import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
)
from penstock.net.connection import Connection
from penstock.net.reader import Reader
from tests.wire.live import LiveBroker, ServeProcess
from tests.wire.raw import RawClient, publish_bytes
from tests.wire.waiting import LIMIT_S, wait_until

CREDIT = 400  # the default, on both hops
PARKED_BYTES = 1_048_576  # the default
READ_BYTES = 262_144  # what one read of a socket may bring on top


def reader_of(connection: Connection) -> Reader:
    assert connection.reader is not None
    return connection.reader


class Watch:
    """Looks at one connection inside the broker."""

    def __init__(self, broker: LiveBroker, name: str) -> None:
        self.broker = broker
        self.connection = broker.call(lambda: broker.connection(name))

    @property
    def parked_bytes(self) -> int:
        return self.broker.call(lambda: reader_of(self.connection).parked_bytes)

    @property
    def parked(self) -> int:
        """Messages parked."""
        return self.broker.call(
            lambda: sum(
                len(item.messages)
                for lane in reader_of(self.connection).lanes.values()
                for item in lane.parked
                if isinstance(item, Publishes)
            )
        )

    @property
    def paused(self) -> bool:
        return self.broker.call(lambda: not self.connection._transport.is_reading())


def waiting(broker: LiveBroker, queue: str) -> int:
    """Messages in the mailbox of a queue."""
    return broker.call(lambda: sum(link.in_flight() for link in broker.queue(queue).incoming.values()))


def wait_for_standstill(broker: LiveBroker, watch: Watch, queue: str, count: int, expected: int) -> None:
    """Until all of so many messages are parked, but for those that the suspended queue is expected to have."""
    wait_until(
        lambda: (watch.parked, waiting(broker, queue)) == (count - expected, expected),
        what=f"{expected} of {count} messages with {queue}, the others parked",
    )


def connect(broker: LiveBroker, name: str = "") -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", broker.port, client_properties={"connection_name": name})
    )


def bodies(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def drained(broker: LiveBroker, queue: str, count: int) -> list[bytes]:
    """All that is in a queue, by a client of its own, once this much is there."""
    wait_until(lambda: broker.count(queue) >= count, what=f"{count} messages in {queue}")
    got = []
    with RawClient(broker.port).handshake().open() as client:
        left = client.ask(QueueDeclare(queue, passive=True), QueueDeclareOk).message_count
        client.ask(BasicConsume(queue, no_ack=True), BasicConsumeOk)
        for _ in range(left):
            client.expect(BasicDeliver)
            got.append(client.read_content().body)
    return got


@pytest.fixture
def shared(broker: LiveBroker) -> Iterator[tuple[BlockingChannel, BlockingChannel, Watch]]:
    """One connection of pika with channels A and B; A has published 3000 messages to a suspended queue."""
    connection = connect(broker, "shared")
    channel_a, channel_b = connection.channel(), connection.channel()
    channel_a.queue_declare("slow")
    channel_b.queue_declare("fast")
    broker.suspend("slow")
    for body in bodies(3000):
        channel_a.basic_publish("", "slow", body)
    channel_b.queue_declare("fast")  # a round trip: all of A's publishes have been read
    watch = Watch(broker, "shared")
    wait_for_standstill(broker, watch, "slow", 3000, 2 * CREDIT)
    yield channel_a, channel_b, watch
    if connection.is_open:
        connection.close()


def test_a_suspended_queue_gets_two_credits_worth_and_the_rest_is_parked(
    shared: tuple[BlockingChannel, BlockingChannel, Watch], broker: LiveBroker
) -> None:
    _, channel_b, watch = shared
    channel_b.queue_declare("fast")  # more would have come by now
    assert waiting(broker, "slow") == 2 * CREDIT
    assert watch.parked == 3000 - 2 * CREDIT
    assert not watch.paused


@pytest.mark.parametrize("first", [0, 1, 2, 3])
@pytest.mark.parametrize("broker", [{"credit.reader_channel": "2,1", "credit.channel_queue": "2,1"}], indirect=True)
def test_with_a_credit_of_2_exactly_4_of_100_publishes_reach_a_suspended_queue(broker: LiveBroker, first: int) -> None:
    assert_exactly(broker, first, 100, 4)


@pytest.mark.parametrize("first", [0, 1, 300, 500, 799])
def test_with_the_default_credit_exactly_800_reach_a_suspended_queue_however_they_are_packed(
    broker: LiveBroker, first: int
) -> None:
    assert_exactly(broker, first, 2000, 2 * CREDIT)


def assert_exactly(broker: LiveBroker, first: int, count: int, expected: int) -> None:
    """Publish `first` messages in one packet, then the others in another: `expected` must reach the queue."""
    with RawClient(broker.port).handshake(name="packed").open() as client:
        client.ask(QueueDeclare("q"), QueueDeclareOk)
        broker.suspend("q")
        messages = [publish_bytes("q", body) for body in bodies(count)]
        client.send_bytes(b"".join(messages[:first]))
        wait_until(lambda: waiting(broker, "q") == first)
        client.send_bytes(b"".join(messages[first:]))
        wait_for_standstill(broker, Watch(broker, "packed"), "q", count, expected)
        client.ask(QueueDeclare("other"), QueueDeclareOk)  # more would have come by now
        assert waiting(broker, "q") == expected
        broker.release("q")
        assert drained(broker, "q", count) == bodies(count)


@pytest.mark.parametrize(
    "broker",
    [
        {
            "credit.reader_channel": "0,0",
            "credit.channel_queue": "0,0",
            "credit.reader_channel_bytes": "0,0",
            "credit.channel_queue_bytes": "0,0",
        }
    ],
    indirect=True,
)
def test_without_credit_all_publishes_reach_a_suspended_queue(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake().open() as client:
        client.ask(QueueDeclare("q"), QueueDeclareOk)
        broker.suspend("q")
        client.send_bytes(b"".join(publish_bytes("q", body) for body in bodies(5000)))
        wait_until(lambda: waiting(broker, "q") == 5000)
        broker.release("q")
        assert drained(broker, "q", 5000) == bodies(5000)


def test_another_channel_consumes_and_acks_at_full_speed_while_one_is_blocked(
    shared: tuple[BlockingChannel, BlockingChannel, Watch], broker: LiveBroker
) -> None:
    _, channel_b, watch = shared
    parked = watch.parked_bytes
    got: list[bytes] = []

    def take(channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        got.append(body)
        channel.basic_ack(method.delivery_tag)

    channel_b.basic_qos(prefetch_count=200)
    channel_b.basic_consume("fast", take)
    with RawClient(broker.port).handshake().open() as other:
        other.send_bytes(b"".join(publish_bytes("fast", body) for body in bodies(5000)))

        def all_came() -> bool:
            channel_b.connection.process_data_events(0)
            return len(got) == 5000

        wait_until(all_came, what="5000 deliveries to channel B")
    assert got == bodies(5000)
    wait_until(lambda: broker.call(lambda: not broker.queue("fast").unacked), what="the acks of channel B")
    # All this time nothing of A moved.
    assert watch.parked_bytes == parked < PARKED_BYTES
    assert waiting(broker, "slow") == 2 * CREDIT
    assert not watch.paused
    broker.release("slow")
    assert drained(broker, "slow", 3000) == bodies(3000)
    assert watch.parked_bytes == 0


def test_another_channel_publishes_while_one_is_blocked(
    shared: tuple[BlockingChannel, BlockingChannel, Watch], broker: LiveBroker
) -> None:
    channel_a, channel_b, _ = shared
    channel_b.confirm_delivery()
    for body in bodies(1000):
        channel_b.basic_publish("", "fast", body)  # each waits for its confirm
    assert broker.count("fast") == 1000
    assert waiting(broker, "slow") == 2 * CREDIT
    assert channel_a.is_open


def test_a_blocked_channel_itself_declares_consumes_gets_and_acks(
    shared: tuple[BlockingChannel, BlockingChannel, Watch], broker: LiveBroker
) -> None:
    channel_a, channel_b, watch = shared
    parked = watch.parked_bytes
    for body in bodies(20):
        channel_b.basic_publish("", "fast", body)
    channel_b.queue_declare("fast")
    channel_a.exchange_declare("x")
    assert channel_a.queue_declare("made while blocked").method.message_count == 0
    channel_a.queue_bind("made while blocked", "x", "k")
    channel_a.basic_qos(prefetch_count=5)
    method, _, body = channel_a.basic_get("fast")
    assert body == b"0"
    channel_a.basic_ack(method.delivery_tag)
    got: list[bytes] = []

    def take(channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        got.append(body)
        channel.basic_ack(method.delivery_tag)

    tag = channel_a.basic_consume("fast", take)

    def all_came() -> bool:
        channel_a.connection.process_data_events(0)
        return len(got) == 19

    wait_until(all_came, what="deliveries to the blocked channel")
    channel_a.basic_cancel(tag)
    assert watch.parked_bytes == parked
    assert waiting(broker, "slow") == 2 * CREDIT
    broker.release("slow")
    assert drained(broker, "slow", 3000) == bodies(3000)


def test_confirms_of_a_blocked_channel_come_after_the_release_and_all_of_them(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake(name="confirming").open() as client:
        client.ask(QueueDeclare("slow"), QueueDeclareOk)
        client.ask(ConfirmSelect(), ConfirmSelectOk)
        broker.suspend("slow")
        client.send_bytes(b"".join(publish_bytes("slow", body) for body in bodies(2000)))
        wait_for_standstill(broker, Watch(broker, "confirming"), "slow", 2000, 2 * CREDIT)
        client.ask(QueueDeclare("other"), QueueDeclareOk)  # the next method is no confirm
        broker.release("slow")
        unconfirmed = set(range(1, 2001))
        while unconfirmed:
            ack = client.expect(BasicAck)
            done = {tag for tag in unconfirmed if tag <= ack.delivery_tag} if ack.multiple else {ack.delivery_tag}
            assert done <= unconfirmed, "confirmed twice"
            unconfirmed -= done
    assert drained(broker, "slow", 2000) == bodies(2000)


@pytest.mark.parametrize("end", ["channel.close", "connection.close", "socket"])
def test_a_blocked_publisher_may_leave_and_what_it_sent_arrives(broker: LiveBroker, end: str) -> None:
    with RawClient(broker.port).handshake(name="leaving").open() as client:
        client.ask(QueueDeclare("slow"), QueueDeclareOk)
        broker.suspend("slow")
        client.send_bytes(b"".join(publish_bytes("slow", body) for body in bodies(3000)))
        watch = Watch(broker, "leaving")
        wait_for_standstill(broker, watch, "slow", 3000, 2 * CREDIT)
        if end == "channel.close":
            client.ask(ChannelClose(200, "", 0, 0), ChannelCloseOk)
            assert watch.parked_bytes == 0
            client.open()
        elif end == "connection.close":
            client.close()
        else:
            client.close_socket()
    wait_until(lambda: not broker.call(broker.connections))
    broker.release("slow")
    assert drained(broker, "slow", 3000) == bodies(3000)
    wait_until(lambda: not broker.call(broker.connections))
    # Nobody is left with a credit of those who went.
    hops = (broker.inside.reader_channel, broker.inside.channel_queue)
    wait_until(lambda: broker.call(lambda: not any(hop.links for hop in hops)))


def test_deleting_the_suspended_queue_frees_its_publisher(
    shared: tuple[BlockingChannel, BlockingChannel, Watch], broker: LiveBroker
) -> None:
    channel_a, _, watch = shared
    broker.call(lambda: broker.queue("slow").delete())
    wait_until(lambda: watch.parked_bytes == 0)
    channel_a.basic_publish("", "fast", b"free again")
    wait_until(lambda: broker.count("fast") == 1)
    assert broker.call(lambda: not reader_of(watch.connection).blocked_by)


def test_a_message_for_a_suspended_and_a_running_queue_reaches_the_running_one_once(broker: LiveBroker) -> None:
    connection = connect(broker)
    channel = connection.channel()
    for queue in ("slow", "fast"):
        channel.queue_declare(queue)
        channel.queue_bind(queue, "amq.fanout")
    broker.suspend("slow")
    for body in bodies(2000):
        channel.basic_publish("amq.fanout", "", body)
    wait_until(lambda: broker.count("fast") == 2 * CREDIT)
    connection.channel().queue_declare("fast")  # more would have come by now
    assert broker.count("fast") == 2 * CREDIT  # one credit per destination: the slower one sets the pace
    broker.release("slow")
    assert drained(broker, "fast", 2000) == bodies(2000)
    assert drained(broker, "slow", 2000) == bodies(2000)
    connection.close()


@pytest.mark.parametrize("broker", [{"limits.parked_bytes": "100000"}], indirect=True)
def test_the_socket_pauses_only_when_the_parking_space_is_full_and_resumes_by_itself(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake(name="publisher").open().open(2) as client:
        client.ask(QueueDeclare("slow"), QueueDeclareOk)
        broker.suspend("slow")
        watch = Watch(broker, "publisher")
        message = publish_bytes("slow", b"x" * 100)
        per_message = len(message) - message.index(b"\xce") - 1  # the content; the method is kept once
        sent = 0
        while watch.parked_bytes < 90_000:
            client.send_bytes(message * 50)
            sent += 50
            client.ask(QueueDeclare("fast"), QueueDeclareOk, 2)  # read, and served
        assert not watch.paused
        wait_until(lambda: watch.parked_bytes == (sent - 2 * CREDIT) * per_message)
        client.send_bytes(message * 200)
        sent += 200
        wait_until(lambda: watch.paused)
        assert watch.parked_bytes <= 100_000 + READ_BYTES
        client.send(QueueDeclare("fast"), 2)  # nobody reads it now
        broker.release("slow")
        client.expect(QueueDeclareOk, 2)
        wait_until(lambda: broker.count("slow") == sent)
        assert not watch.paused
        assert watch.parked_bytes == 0


def test_one_that_only_consumes_is_never_blocked(broker: LiveBroker) -> None:
    with (
        RawClient(broker.port).handshake(name="consumer").open() as consumer,
        RawClient(broker.port).handshake(name="publisher").open() as publisher,
    ):
        publisher.ask(QueueDeclare("slow"), QueueDeclareOk)
        publisher.ask(QueueDeclare("fast"), QueueDeclareOk)
        broker.suspend("slow")
        publisher.send_bytes(b"".join(publish_bytes("slow", body) for body in bodies(2000)))
        publisher_watch, consumer_watch = Watch(broker, "publisher"), Watch(broker, "consumer")
        wait_until(lambda: publisher_watch.parked_bytes)
        consumer.ask(BasicQos(0, 10, False), BasicQosOk)
        consumer.ask(BasicConsume("fast"), BasicConsumeOk)
        publisher.open(2)
        publisher.send_bytes(b"".join(publish_bytes("fast", body, channel=2) for body in bodies(2000)))
        for number in range(2000):
            assert consumer.expect(BasicDeliver).delivery_tag == number + 1
            consumer.read_content()
            consumer.send(BasicAck(number + 1))
        assert broker.call(lambda: reader_of(consumer_watch.connection).blocks) == 0
        assert not consumer_watch.paused


# Overload.


class Flood:
    """A thread that sends as fast as the socket takes it. `sent` counts messages handed to the kernel."""

    def __init__(self, client: RawClient, queue: str, count: int, size: int) -> None:
        self._client = client
        self._queue = queue
        self._count = count
        self._padding = b"." * size
        self.sent = 0
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        client.socket.settimeout(LIMIT_S)
        self._thread.start()

    def _run(self) -> None:
        try:
            for number in range(self._count):
                self._client.send_bytes(publish_bytes(self._queue, b"%d%b" % (number, self._padding)))
                self.sent = number + 1
        except OSError:
            if not self._abandoned:
                raise

    def abandon(self) -> None:
        """Give up sending, in the middle of it."""
        self._abandoned = True
        self._client.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(LIMIT_S)

    def join(self) -> None:
        self._thread.join(2 * LIMIT_S)
        assert not self._thread.is_alive()
        assert self.sent == self._count

    def is_stuck(self) -> bool:
        """The socket takes nothing more, and has not for a while."""
        before = self.sent
        _, writable, _ = select.select([], [self._client.socket], [], 0.2)
        return not writable and self.sent == before


def numbers(messages: list[bytes]) -> list[int]:
    return [int(message.rstrip(b".")) for message in messages]


@pytest.mark.parametrize(("count", "size"), [(40_000, 1_000), (400, 150_000)])
def test_a_flood_into_a_suspended_queue_blocks_the_socket_and_goes_on_after_the_release(
    broker: LiveBroker, count: int, size: int
) -> None:
    with RawClient(broker.port).handshake(name="flood").open() as client:
        client.ask(QueueDeclare("slow"), QueueDeclareOk)
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 262_144)
        broker.suspend("slow")
        flood = Flood(client, "slow", count, size)
        watch = Watch(broker, "flood")
        wait_until(lambda: watch.paused and flood.is_stuck(), what="the socket to block")
        assert flood.sent < count
        # What the broker holds is bounded by credit and by the parking space, whatever the publisher does.
        hops = (broker.inside.reader_channel, broker.inside.channel_queue)
        in_flight = broker.call(lambda: sum(link.in_flight_bytes() for hop in hops for link in hop.links))
        assert watch.parked_bytes <= PARKED_BYTES + READ_BYTES + size
        assert in_flight <= 2 * (16_777_216 + size)
        assert waiting(broker, "slow") <= 2 * CREDIT
        broker.release("slow")
        flood.join()
        assert numbers(drained(broker, "slow", count)) == list(range(count))
        wait_until(lambda: not watch.paused)


def test_heartbeats_go_on_while_a_flood_is_blocked_and_its_silence_is_forgiven(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake(name="flood", heartbeat=1).open() as client:
        client.ask(QueueDeclare("slow"), QueueDeclareOk)
        broker.suspend("slow")
        flood = Flood(client, "slow", 40_000, 1_000)
        watch = Watch(broker, "flood")
        wait_until(lambda: watch.paused and flood.is_stuck(), what="the socket to block")
        for _ in range(4):  # longer than a silent peer is given
            client.read_heartbeat()
        assert watch.paused
        broker.release("slow")
        flood.join()
        client.ask(QueueDeclare("fast"), QueueDeclareOk)
        wait_until(lambda: broker.count("slow") == 40_000)


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} is gone")


@pytest.mark.parametrize(("count", "size", "grows_bytes"), [(200_000, 1_000, 16_000_000), (2_000, 100_000, 64_000_000)])
def test_the_memory_of_the_broker_stays_flat_under_a_flood(
    serve_process: Callable[..., ServeProcess], count: int, size: int, grows_bytes: int
) -> None:
    # A second per message: for a test's time, as good as suspended.
    serve = serve_process("--set", "faults.queue_delay_us=1000000")
    with RawClient(serve.port).handshake().open() as client:
        client.send(QueueDeclare("slow", nowait=True))
        before = resident_bytes(serve.process.pid)
        flood = Flood(client, "slow", count, size)
        wait_until(lambda: flood.sent > 0 and flood.is_stuck() and flood.is_stuck(), what="the socket to block")
        assert flood.sent < count
        assert resident_bytes(serve.process.pid) - before < grows_bytes
        # Others are served.
        with RawClient(serve.port).handshake().open() as other:
            other.ask(ConfirmSelect(), ConfirmSelectOk)
        flood.abandon()


def test_a_slow_queue_slows_its_publisher_and_every_message_arrives(serve_process: Callable[..., ServeProcess]) -> None:
    count = 3_000
    serve = serve_process("--set", "faults.queue_delay_us=1000", "--set", "credit.channel_queue=50,25")
    with RawClient(serve.port).handshake().open() as consumer, RawClient(serve.port).handshake().open() as client:
        consumer.ask(QueueDeclare("slow"), QueueDeclareOk)
        consumer.ask(BasicConsume("slow", no_ack=True), BasicConsumeOk)
        before = most = resident_bytes(serve.process.pid)
        flood = Flood(client, "slow", count, 10_000)
        got = []
        for number in range(count):
            consumer.expect(BasicDeliver)
            got.append(consumer.read_content().body)
            if number % 100 == 0:
                most = max(most, resident_bytes(serve.process.pid))
        flood.join()
        assert numbers(got) == list(range(count))
        assert most - before < 20_000_000  # of 30 MB


def test_get_of_a_blocked_channel_keeps_the_order_of_its_replies(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake(name="mixed").open() as client:
        client.ask(QueueDeclare("slow"), QueueDeclareOk)
        client.ask(QueueDeclare("fast"), QueueDeclareOk)
        client.publish("fast", b"one")
        broker.suspend("slow")
        client.send_bytes(b"".join(publish_bytes("slow", body) for body in bodies(1000)))
        client.send(BasicGet("fast", True))
        client.send(QueueDeclare("later"))
        client.expect(BasicGetOk)
        assert client.read_content().body == b"one"
        client.expect(QueueDeclareOk)
        broker.release("slow")
        assert drained(broker, "slow", 1000) == bodies(1000)

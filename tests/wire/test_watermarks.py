"""Watermarks and x-overflow=block-publish, as clients see them: whose confirms are held, and who is blocked."""

from __future__ import annotations

import base64
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pika.exceptions
import pytest

from penstock.amqp.method import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from penstock.amqp.properties import Properties
from penstock.amqp.table import Table
from penstock.broker.saturation import Saturation
from tests.wire.live import LiveBroker, ServeProcess
from tests.wire.raw import RawClient, publish_bytes
from tests.wire.waiting import LIMIT_S, wait_until

CREDIT = 400  # the default, on both hops
BLOCKING: Table = {"x-max-length": 1000, "x-overflow": "block-publish"}


class Publisher:
    """A channel with confirms: what is acked, and what is not."""

    def __init__(self, client: RawClient, channel: int = 1) -> None:
        self.client = client
        self.channel = channel
        self.sent = 0
        self.acked: set[int] = set()
        client.open(channel)
        client.ask(ConfirmSelect(), ConfirmSelectOk, channel)

    def declare(self, queue: str, arguments: Table, durable: bool = False) -> None:
        self.client.ask(QueueDeclare(queue, durable=durable, arguments=arguments), QueueDeclareOk, self.channel)

    def publish(self, queue: str, count: int, exchange: str = "", mode: int | None = None) -> None:
        messages = [
            publish_bytes(
                queue, b"%d" % (self.sent + at), exchange, self.channel, properties=Properties(delivery_mode=mode)
            )
            for at in range(count)
        ]
        self.client.send_bytes(b"".join(messages))
        self.sent += count

    def wait_for(self, count: int) -> None:
        """Until so many are acked, and not one more."""
        while len(self.acked) < count:
            self._note(self.client.expect(BasicAck, self.channel))
        self.settle()
        assert len(self.acked) == count

    def settle(self) -> None:
        """Two round trips: what the broker had to say until now has come, confirms and all."""
        for _ in range(2):
            self.client.send(QueueDeclare("q", passive=True), self.channel)
            while True:
                number, method = self.client.read_method()
                assert number == self.channel
                if isinstance(method, QueueDeclareOk):
                    break
                self._note(method)

    def _note(self, method: Any) -> None:
        assert isinstance(method, BasicAck), f"{method}: nothing may be nacked here"
        first = 1 if method.multiple else method.delivery_tag
        numbers = set(range(first, method.delivery_tag + 1)) - self.acked
        assert numbers, f"{method} says nothing new"
        self.acked |= numbers


@pytest.fixture
def publisher(broker: LiveBroker) -> Iterator[Publisher]:
    with RawClient(broker.port).handshake(name="publisher") as client:
        yield Publisher(client)


@pytest.fixture
def consumer(broker: LiveBroker) -> Iterator[RawClient]:
    with RawClient(broker.port).handshake(name="consumer").open() as client:
        yield client


def take(client: RawClient, count: int, queue: str = "q") -> list[bytes]:
    bodies = []
    for _ in range(count):
        client.ask(BasicGet(queue, no_ack=True), BasicGetOk)
        bodies.append(client.read_content().body)
    return bodies


def saturation(broker: LiveBroker, queue: str = "q") -> Saturation:
    marks = broker.call(lambda: broker.queue(queue).marks)
    assert marks is not None
    assert marks.saturation is not None
    return marks.saturation


def connect(broker: LiveBroker) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", broker.port))


@pytest.mark.parametrize(("durable", "mode"), [(False, None), (True, 1), (True, 2)])
def test_a_queue_of_1000_is_saturated_at_801_and_released_at_699(
    broker: LiveBroker, publisher: Publisher, consumer: RawClient, durable: bool, mode: int | None
) -> None:
    publisher.declare("q", BLOCKING, durable)
    publisher.publish("q", 801, mode=mode)
    publisher.wait_for(800)
    assert saturation(broker).saturated
    assert saturation(broker).held == 1
    publisher.publish("q", 50, mode=mode)
    wait_until(lambda: broker.count("q") == 851)
    take(consumer, 151)
    publisher.wait_for(800)
    assert broker.count("q") == 700
    take(consumer, 1)
    publisher.wait_for(851)
    assert (saturation(broker).saturated, saturation(broker).times) == (False, 1)


def test_persistent_messages_are_confirmed_when_they_are_on_disk_and_not_held_also_after_a_crash(
    serve_process: Callable[..., ServeProcess],
) -> None:
    first = serve_process()
    with RawClient(first.port).handshake() as client:
        publisher = Publisher(client)
        publisher.declare("q", BLOCKING, durable=True)
        publisher.publish("q", 801, mode=2)
        publisher.wait_for(800)
        publisher.publish("q", 50, mode=2)
        publisher.wait_for(800)
    first.kill()
    second = serve_process("--data", str(first.data))
    with RawClient(second.port).handshake() as client, RawClient(second.port).handshake().open() as consumer:
        publisher = Publisher(client)
        there = client.ask(QueueDeclare("q", passive=True), QueueDeclareOk).message_count
        assert there >= 800, "held confirms promise nothing, but all that were given do"
        publisher.publish("q", 10, mode=2)
        publisher.wait_for(max(0, 800 - there))
        take(consumer, there + 10 - 700)
        publisher.wait_for(max(0, 800 - there))
        take(consumer, 1)
        publisher.wait_for(10)


def test_a_window_of_unconfirmed_publishes_throttles_its_own_channel_and_nobody_else(
    broker: LiveBroker, consumer: RawClient
) -> None:
    """pika's window is 1: it publishes the next message when the last one is confirmed."""
    slow, fast = connect(broker), connect(broker)
    slow_channel, fast_channel = slow.channel(), fast.channel()
    slow_channel.queue_declare("q", arguments={"x-flow-stop-count": 10, "x-flow-resume-count": 5})
    fast_channel.queue_declare("fast")
    slow_channel.confirm_delivery()
    fast_channel.confirm_delivery()

    def publish() -> None:
        for number in range(30):
            slow_channel.basic_publish("", "q", b"%d" % number)

    thread = threading.Thread(target=publish)
    thread.start()
    wait_until(lambda: broker.count("q") == 11)
    for _ in range(200):
        fast_channel.basic_publish("", "fast", b"x")
    assert broker.count("fast") == 200
    assert broker.count("q") == 11
    assert thread.is_alive()
    assert not broker.call(lambda: [one.reader for one in broker.connections() if one.reader and one.reader.blocked_by])
    bodies = take(consumer, 7)
    wait_until(lambda: broker.count("q") == 11, what="the window moves until the queue is saturated again")
    while len(bodies) < 30:
        wait_until(lambda: broker.count("q") > 0)
        bodies += take(consumer, 1)
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert bodies == [b"%d" % number for number in range(30)]
    slow.close()
    fast.close()


def test_another_channel_of_the_same_connection_is_confirmed_at_once(broker: LiveBroker, publisher: Publisher) -> None:
    publisher.declare("q", {"x-flow-stop-count": 5, "x-flow-resume-count": 1})
    publisher.declare("fast", {})
    publisher.publish("q", 1000)
    publisher.wait_for(5)
    other = Publisher(publisher.client, 2)
    other.publish("fast", 500)
    other.wait_for(500)
    assert len(publisher.acked) == 5


def test_a_held_message_that_is_taken_is_confirmed_by_itself(
    broker: LiveBroker, publisher: Publisher, consumer: RawClient
) -> None:
    publisher.declare("q", {"x-flow-stop-count": 5, "x-flow-resume-count": 1})
    publisher.publish("q", 10)
    publisher.wait_for(5)
    take(consumer, 5)
    publisher.wait_for(5)
    take(consumer, 1)
    publisher.wait_for(6)
    assert saturation(broker).saturated


def test_deleting_the_queue_releases_all(broker: LiveBroker, publisher: Publisher, consumer: RawClient) -> None:
    publisher.declare("q", {})
    publisher.declare("doomed", {"x-flow-stop-count": 5, "x-flow-resume-count": 1})
    publisher.publish("doomed", 50)
    publisher.wait_for(5)
    assert consumer.ask(QueueDelete("doomed"), QueueDeleteOk).message_count == 50
    publisher.wait_for(50)


def test_a_message_in_two_saturated_queues_needs_both(
    broker: LiveBroker, publisher: Publisher, consumer: RawClient
) -> None:
    for queue in ("q", "q2"):
        publisher.declare(queue, {"x-flow-stop-count": 5, "x-flow-resume-count": 1})
    with connect(broker) as connection:
        channel = connection.channel()
        channel.exchange_declare("fan", "fanout")
        channel.queue_bind("q", "fan")
        channel.queue_bind("q2", "fan")
    publisher.publish("", 10, exchange="fan")
    publisher.wait_for(5)
    take(consumer, 10, "q")
    publisher.wait_for(5)
    take(consumer, 6, "q2")
    publisher.wait_for(6)
    take(consumer, 4, "q2")
    publisher.wait_for(10)


# Policies.


def put_policy(broker: LiveBroker, definition: dict[str, Any]) -> tuple[int, str]:
    """Status and body of the answer."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{broker.manage()}/api/policies/%2F/marks",
        json.dumps({"pattern": "^q$", "definition": definition, "apply-to": "queues"}).encode(),
        {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return answer.status, ""
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_marks_are_changed_at_run_time_by_a_policy(
    broker: LiveBroker, publisher: Publisher, consumer: RawClient
) -> None:
    publisher.declare("q", {})
    publisher.publish("q", 20)
    publisher.wait_for(20)
    assert put_policy(broker, {"flow-stop-count": 10})[0] == 201
    publisher.publish("q", 20)
    publisher.wait_for(20)
    assert put_policy(broker, {"flow-stop-count": 100})[0] == 204
    publisher.wait_for(40)
    assert put_policy(broker, {"flow-stop-count": 10, "flow-resume-count": 3})[0] == 204
    publisher.publish("q", 1)
    wait_until(lambda: broker.count("q") == 41)
    take(consumer, 38)
    publisher.wait_for(40)
    take(consumer, 1)
    publisher.wait_for(41)


def test_a_policy_that_contradicts_itself_is_refused_with_the_numbers(broker: LiveBroker) -> None:
    status, body = put_policy(broker, {"flow-stop-count": 800, "flow-resume-count": 900})
    assert status == 400
    assert "'flow-resume-count': 900 is greater than flow-stop-count 800" in body


# The hard maximum.


def test_a_queue_that_blocks_at_its_maximum_neither_drops_nor_rejects(
    broker: LiveBroker, publisher: Publisher, consumer: RawClient
) -> None:
    publisher.declare("q", {"x-max-length": 10, "x-overflow": "block-publish"})
    publisher.publish("q", 200)
    publisher.wait_for(8)
    wait_until(lambda: broker.count("q") == 200)
    assert take(consumer, 200) == [b"%d" % number for number in range(200)]
    publisher.wait_for(200)


def test_a_publisher_without_confirms_is_blocked_by_credit_at_the_maximum(
    broker: LiveBroker, consumer: RawClient
) -> None:
    count = 20_000
    with RawClient(broker.port).handshake(name="careless").open() as careless:
        careless.ask(QueueDeclare("q", arguments=BLOCKING), QueueDeclareOk)
        careless.socket.settimeout(None)  # it is held back as long as the test takes
        thread = threading.Thread(
            target=lambda: careless.send_bytes(b"".join(publish_bytes("q", b"%d" % at) for at in range(count)))
        )
        thread.start()
        connection = broker.call(lambda: broker.connection("careless"))
        wait_until(lambda: broker.call(lambda: bool(connection.reader and connection.reader.blocked_by)))
        wait_until(lambda: broker.count("q") >= 1000)
        assert broker.call(lambda: list(broker.queue("q").blocked_by)) == ["maximum"]

        consumer.ask(BasicConsume("q", "c", no_ack=True), BasicConsumeOk)
        most = 0
        for number in range(count):
            consumer.expect(BasicDeliver)
            assert consumer.read_content().body == b"%d" % number
            if not number % 500:
                most = max(most, broker.count("q"))
        assert most < 1000 + 2 * CREDIT
        thread.join(LIMIT_S)
        wait_until(lambda: not broker.call(lambda: bool(connection.reader and connection.reader.blocked_by)))
        assert not broker.call(lambda: broker.queue("q").blocked_by)


def test_a_blocked_publisher_can_still_close_and_what_it_sent_is_there(broker: LiveBroker) -> None:
    with RawClient(broker.port).handshake().open() as careless:
        careless.ask(QueueDeclare("q", arguments={**BLOCKING, "x-max-length": 10}), QueueDeclareOk)
        careless.send_bytes(b"".join(publish_bytes("q", b"x") for _ in range(2000)))
        careless.close()
    assert broker.count("q") == 2000


# Wrong marks.


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"x-flow-stop-count": 800, "x-flow-resume-count": 900},
            "invalid arg 'x-flow-resume-count' for queue 'q' in vhost '/': 900 is greater than x-flow-stop-count 800",
        ),
        (
            {"x-max-length": 1000, "x-flow-stop-count": 1200},
            "invalid arg 'x-flow-stop-count' for queue 'q' in vhost '/': 1200 is greater than x-max-length 1000",
        ),
        (
            {"x-max-length-bytes": 1000, "x-qpid-capacity": 1200},
            "invalid arg 'x-qpid-capacity' for queue 'q' in vhost '/': 1200 is greater than x-max-length-bytes 1000",
        ),
        (
            {"qpid.flow_stop_count": "many"},
            "invalid arg 'qpid.flow_stop_count' for queue 'q' in vhost '/': \"expected integer, got longstr\"",
        ),
    ],
)
def test_marks_that_cannot_work_are_406_with_the_numbers(
    broker: LiveBroker, arguments: dict[str, Any], text: str
) -> None:
    with connect(broker) as connection:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
            connection.channel().queue_declare("q", arguments=arguments)
        assert (raised.value.reply_code, raised.value.reply_text) == (406, f"PRECONDITION_FAILED - {text}")


def test_marks_are_compared_on_redeclare(broker: LiveBroker) -> None:
    with connect(broker) as connection:
        connection.channel().queue_declare("q", arguments={"x-flow-stop-count": 10})
        connection.channel().queue_declare("q", arguments={"x-flow-stop-count": 10})
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as raised:
            connection.channel().queue_declare("q", arguments={"x-flow-stop-count": 11})
        assert "inequivalent arg 'x-flow-stop-count'" in raised.value.reply_text

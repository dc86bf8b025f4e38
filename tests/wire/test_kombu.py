"""kombu over py-amqp, as Celery uses it: declarations from entities, producers with retry, consumers, SimpleQueue."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import amqp.exceptions  # type: ignore[import-untyped]
import pytest
from kombu.common import eventloop
from kombu.connection import Connection
from kombu.entity import Exchange, Queue, binding
from kombu.messaging import Consumer, Producer
from kombu.mixins import ConsumerProducerMixin
from kombu.pools import producers

from tests.wire.live import LiveBroker
from tests.wire.waiting import LIMIT_S, wait_until


@pytest.fixture
def connection(broker: LiveBroker) -> Iterator[Connection]:
    with Connection(broker.uri, connect_timeout=LIMIT_S) as opened:
        yield opened


def drain_until(connection: Connection, got: list[Any], count: int) -> None:
    def enough() -> bool:
        try:
            connection.drain_events(timeout=0.05)
        except TimeoutError:
            pass  # nothing came; the caller's limit decides
        return len(got) >= count

    wait_until(enough, what=f"{count} messages")


def test_a_producer_and_a_consumer_talk_through_every_type_of_exchange(connection: Connection) -> None:
    for kind, key, arguments in (
        ("direct", "k", None),
        ("fanout", "", None),
        ("topic", "a.*", None),
        ("headers", "", {"x-match": "any", "colour": "red"}),
    ):
        exchange = Exchange(f"x-{kind}", kind, durable=False, auto_delete=True)
        queue = Queue(f"q-{kind}", exchange, key, durable=False, auto_delete=True, binding_arguments=arguments)
        got: list[Any] = []
        channel = connection.channel()
        with Consumer(channel, [queue], on_message=got.append, accept={"json"}):
            Producer(channel).publish(
                {"kind": kind},
                exchange=exchange,
                routing_key="a.b" if kind == "topic" else key,
                headers={"colour": "red"},
            )
            drain_until(connection, got, 1)
            assert got[0].payload == {"kind": kind}
            assert got[0].content_type == "application/json"
            got[0].ack()
        channel.close()


@pytest.mark.parametrize("serializer", ["json", "pickle"])
def test_serialized_and_compressed_bodies_arrive(connection: Connection, serializer: str) -> None:
    queue = connection.SimpleQueue("q", serializer=serializer, compression="zlib")
    body = {"text": "größe" * 1000, "numbers": list(range(100))}
    queue.put(body)
    queue.consumer.accept = {f"application/{'json' if serializer == 'json' else 'x-python-serialize'}"}
    message = queue.get(timeout=LIMIT_S)
    assert message.payload == body
    message.ack()
    queue.close()


def test_a_simple_queue_keeps_order_and_counts(connection: Connection) -> None:
    queue = connection.SimpleQueue("simple")
    for number in range(20):
        queue.put(number)
    assert queue.qsize() == 20
    got = []
    for _ in range(20):
        message = queue.get(timeout=LIMIT_S)
        got.append(message.payload)
        message.ack()
    assert got == list(range(20))
    with pytest.raises(queue.Empty):
        queue.get_nowait()
    queue.close()
    other = connection.SimpleQueue("never read")
    other.put("left")
    assert other.clear() == 1
    other.close()


def test_a_simple_buffer_goes_with_its_last_user(connection: Connection, broker: LiveBroker) -> None:
    buffer = connection.SimpleBuffer("buffer")
    buffer.put("x")
    assert buffer.get(timeout=LIMIT_S).payload == "x"
    buffer.close()
    wait_until(lambda: broker.count("buffer") == -1)


def test_several_bindings_of_one_queue_are_declared_and_deleted(connection: Connection) -> None:
    exchange = Exchange("x", "topic", durable=False)
    queue = Queue("q", [binding(exchange, "a.#"), binding(exchange, "b.*")], durable=False)
    bound = queue(connection.default_channel)
    bound.declare()
    producer = Producer(connection.default_channel, exchange)
    for key in ("a.b.c", "b.c", "b.c.d", "c"):
        producer.publish(key, routing_key=key)
    assert [bound.get(no_ack=True).payload for _ in range(2)] == ["a.b.c", "b.c"]
    assert bound.get() is None
    bound.unbind_from(exchange, "a.#")
    producer.publish("gone", routing_key="a.b")
    assert bound.purge() == 0
    bound.delete()
    exchange(connection.default_channel).delete()


def test_qos_limits_consumers_and_can_be_changed_while_they_run(connection: Connection) -> None:
    channel = connection.channel()
    queue = Queue("q", durable=False)(channel)
    queue.declare()
    for number in range(20):
        Producer(channel).publish(number, routing_key="q")
    got: list[Any] = []
    consumer = Consumer(channel, [queue], callbacks=[lambda body, message: got.append(message)], prefetch_count=4)
    consumer.consume()
    drain_until(connection, got, 4)
    queue.queue_declare(passive=True)  # a round trip: what would have come is here
    assert len(got) == 4
    # kombu raises the limit of a running consumer only if it believes that the broker counts per channel.
    assert not connection.qos_semantics_matches_spec
    got[3].ack(multiple=True)
    drain_until(connection, got, 8)
    consumer.qos(prefetch_count=0, apply_global=True)
    consumer.recover(requeue=True)
    drain_until(connection, got, 12)
    assert [message.payload for message in got[:8]] == list(range(8))


def test_the_broker_looks_like_rabbitmq_to_kombu(connection: Connection) -> None:
    connection.connect()
    properties = connection.connection.server_properties
    assert properties["product"] == "RabbitMQ"
    assert tuple(map(int, properties["version"].split("."))) >= (3, 3)
    assert properties["capabilities"]["consumer_cancel_notify"] is True
    assert connection.transport.driver_type == "amqp"


def test_acks_rejects_and_requeues(connection: Connection) -> None:
    queue = connection.SimpleQueue("q")
    for number in range(4):
        queue.put(number)
    taken = [queue.get(timeout=LIMIT_S) for _ in range(4)]
    taken[0].ack()
    taken[1].reject()
    taken[3].requeue()
    taken[2].requeue()
    again = [queue.get(timeout=LIMIT_S) for _ in range(2)]
    assert {(message.payload, message.delivery_info["redelivered"]) for message in again} == {(2, True), (3, True)}
    queue.close()


def test_a_publish_with_confirms_waits_for_the_broker(broker: LiveBroker) -> None:
    with Connection(broker.uri, transport_options={"confirm_publish": True}) as connection:
        Queue("q", durable=False)(connection.default_channel).declare()
        producer = connection.Producer()
        for number in range(200):
            producer.publish(number, routing_key="q")
        assert broker.count("q") == 200


def test_a_mandatory_message_without_a_route_is_returned(connection: Connection) -> None:
    returned: list[Any] = []
    producer = connection.Producer(on_return=lambda *parts: returned.append(parts))
    producer.publish("lost", routing_key="nowhere", mandatory=True)
    drain_until(connection, returned, 1)
    error, exchange, routing_key, message = returned[0]
    assert error.reply_code == 312
    assert (exchange, routing_key, message.body) == ("", "nowhere", "lost")


def test_ensure_publishes_again_after_the_connection_was_lost(connection: Connection, broker: LiveBroker) -> None:
    queue = Queue("q", Exchange("x", durable=False), "k", durable=False)
    producer = connection.Producer()
    errors: list[BaseException] = []
    publish = connection.ensure(
        producer,
        producer.publish,
        errback=lambda error, interval: errors.append(error),
        interval_start=0.01,
        max_retries=5,
    )
    publish("before", exchange=queue.exchange, routing_key="k", declare=[queue])
    broker.cut_all()
    wait_until(lambda: not broker.call(broker.connections))
    with pytest.raises((ConnectionError, OSError)):
        connection.drain_events(timeout=LIMIT_S)  # the loss is noticed here at the latest
    publish("after", exchange=queue.exchange, routing_key="k", declare=[queue])
    wait_until(lambda: broker.count("q") == 2)
    assert errors


def test_a_pool_of_producers_shares_connections(broker: LiveBroker) -> None:
    with Connection(broker.uri) as connection:
        pool = producers[connection]
        queue = Queue("pooled", durable=False)
        for number in range(10):
            with pool.acquire(block=True) as producer:
                producer.publish(number, routing_key="pooled", declare=[queue], retry=True)
        wait_until(lambda: broker.count("pooled") == 10)
        assert len(broker.call(broker.connections)) <= 10
        pool.force_close_all()


def test_a_consumer_producer_mixin_answers_requests(connection: Connection) -> None:
    requests = Queue("requests", durable=False)

    class Worker(ConsumerProducerMixin):
        def __init__(self) -> None:
            self.connection = connection.clone()

        def get_consumers(self, consumer: Any, channel: Any) -> list[Any]:
            return [consumer([requests], on_message=self.answer, accept={"json"}, prefetch_count=1)]

        def answer(self, message: Any) -> None:
            self.producer.publish(
                {"twice": message.payload["number"] * 2},
                routing_key=message.properties["reply_to"],
                correlation_id=message.properties["correlation_id"],
            )
            message.ack()
            if message.payload["number"] == 9:
                self.should_stop = True

    replies = Queue("replies", durable=False, exclusive=True)(connection.default_channel)
    replies.declare()
    requests(connection.default_channel).declare()
    for number in range(10):
        connection.Producer().publish(
            {"number": number}, routing_key="requests", reply_to="replies", correlation_id=str(number)
        )
    worker = Worker()
    worker.run()
    worker.connection.release()
    got: list[Any] = []
    with Consumer(connection.default_channel, [replies], on_message=got.append, no_ack=True, accept={"json"}):
        drain_until(connection, got, 10)
    assert [(message.properties["correlation_id"], message.payload["twice"]) for message in got] == [
        (str(number), number * 2) for number in range(10)
    ]


def test_headers_of_every_type_arrive_unchanged(connection: Connection) -> None:
    headers = {
        "bool": True,
        "int": -5,
        "long": 1 << 40,
        "string": "größe",
        "bytes": b"\x00\xff",
        "decimal": Decimal("3.14"),
        "float": 2.5,
        "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "nothing": None,
        "table": {"inner": {"deep": [1, "two", None, {"three": 3}]}},
        "list": [1, "two", True, None],
    }
    channel = connection.default_channel
    queue = Queue("q", durable=False)(channel)
    queue.declare()
    Producer(channel).publish("x", routing_key="q", headers=dict(headers), priority=3, expiration=60)
    got = queue.get(no_ack=True)
    assert got.headers.pop("time").replace(tzinfo=UTC) == headers.pop("time")
    bytes_got, bytes_sent = got.headers.pop("bytes"), headers.pop("bytes")
    assert bytes_got in (bytes_sent, bytes_sent.decode("utf-8", "surrogateescape"))  # type: ignore[attr-defined]
    assert got.headers == headers
    assert got.properties["priority"] == 3
    assert got.properties["expiration"] == "60000"


@pytest.mark.parametrize("size", [0, 131_065, 10_000_000])
def test_a_body_of_any_size_arrives_whole(connection: Connection, size: int) -> None:
    channel = connection.default_channel
    queue = Queue("q", durable=False)(channel)
    queue.declare()
    body = b"x" * size
    Producer(channel).publish(body, routing_key="q", content_type="application/data", content_encoding="binary")
    message = queue.get(no_ack=True, accept={"application/data"})
    assert (message.body or b"") == body  # py-amqp has "" for no body at all


def test_errors_are_the_exceptions_of_py_amqp(connection: Connection, broker: LiveBroker) -> None:
    with Connection(broker.uri) as owner:
        Queue("locked", exclusive=True, durable=False)(owner.default_channel).declare()
        Queue("plain", durable=False)(owner.default_channel).declare()
        for expected, queue, passive in (
            (amqp.exceptions.NotFound, Queue("nope"), True),
            (amqp.exceptions.ResourceLocked, Queue("locked", exclusive=True, durable=False), False),
            (amqp.exceptions.PreconditionFailed, Queue("plain", durable=True), False),
            (amqp.exceptions.AccessRefused, Queue("amq.mine"), False),
        ):
            with pytest.raises(expected):
                queue(connection.channel()).queue_declare(passive=passive)
    assert connection.connected


def test_a_consumer_is_told_when_its_queue_is_deleted(connection: Connection) -> None:
    channel = connection.channel()
    queue = Queue("q", durable=False)(channel)
    queue.declare()
    cancelled: list[str] = []
    queue.consume(consumer_tag="mine", callback=lambda message: None)
    channel.cancel_callbacks["mine"] = cancelled.append
    queue.channel.queue_delete("q")
    drain_until(connection, cancelled, 1)
    assert cancelled == ["mine"]


def test_heartbeats_keep_an_idle_connection(broker: LiveBroker) -> None:
    with Connection(broker.uri, heartbeat=2) as connection:
        connection.connect()
        transport = connection.connection

        def three_intervals() -> bool:
            connection.heartbeat_check(rate=4)
            try:
                connection.drain_events(timeout=0.25)
            except TimeoutError:
                pass  # an idle connection, as meant
            return transport.bytes_recv >= started + 3

        started = transport.bytes_recv
        wait_until(three_intervals)
        assert connection.connected
        connection.SimpleQueue("q").put("still here")


def test_the_event_loop_ends_when_nothing_comes(connection: Connection) -> None:
    with Consumer(connection.default_channel, [Queue("q", durable=False)], callbacks=[lambda *_: None]):
        assert list(eventloop(connection, limit=2, timeout=0.01, ignore_timeouts=True)) in ([], [None], [None, None])


def test_an_unreachable_broker_is_a_connection_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    with Connection(f"amqp://guest:guest@127.0.0.1:{port}//") as connection, pytest.raises(ConnectionRefusedError):
        connection.connect()

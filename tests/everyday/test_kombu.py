"""kombu over py-amqp on an ordinary day: ensure, autoretry, mixin, pidbox, py-amqp's exceptions; the same with both."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import amqp.exceptions  # type: ignore[import-untyped]
import pytest
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.exceptions import OperationalError
from kombu.messaging import Consumer, Producer
from kombu.mixins import ConsumerMixin
from kombu.pidbox import Mailbox
from kombu.pools import ProducerPool

from tests.everyday.answers import ANSWERS, FORCED
from tests.everyday.conftest import Outage, SomebodyElse
from tests.everyday.targets import Target
from tests.wire.waiting import LIMIT_S, wait_until

DIRECT_REPLY = "amq.rabbitmq.reply-to"
# Tries again quickly, and gives up before the test's own limit.
PATIENT: Any = {"max_retries": 300, "interval_start": 0.1, "interval_step": 0, "interval_max": 0.1}


@pytest.fixture
def connection(uri: str) -> Iterator[Connection]:
    with Connection(uri, connect_timeout=LIMIT_S) as opened:
        yield opened


def drain_until(connection: Connection, got: list[Any], count: int) -> list[Any]:
    def enough() -> bool:
        if len(got) < count:
            try:
                connection.drain_events(timeout=0.1)
            except TimeoutError:
                pass  # nothing came; wait_until decides how long is too long
        return len(got) >= count

    wait_until(enough, what=f"{count} of {got}")
    return got


def plain(name: str, channel: Any = None, **options: Any) -> Queue:
    """A queue on the default exchange, not durable."""
    queue = Queue(name, durable=False, **options)
    return queue if channel is None else queue(channel)


def settle(channel: Any) -> None:
    """A round trip behind everything the broker has sent on this channel."""
    channel.queue_declare("", exclusive=True)


# Losing the connection.


def test_a_lost_connection_is_an_error_and_ensure_publishes_again(outage: Outage, q: str) -> None:
    with Connection(outage.uri, transport_options={"confirm_publish": True}) as connection:
        channel = connection.default_channel
        queue = Queue(q, Exchange(f"{q}.x", "direct"), "k")
        queue(channel).declare()
        producer = Producer(channel, exchange=queue.exchange, routing_key="k", serializer="json")
        producer.publish("before")
        held: list[Any] = []
        consumer = Consumer(channel, [queue], on_message=held.append, accept={"json"}, prefetch_count=1)
        consumer.consume()
        drain_until(connection, held, 1)

        outage.begin()
        with pytest.raises(connection.connection_errors) as lost:
            drain_until(connection, [], 1)
        if isinstance(lost.value, amqp.exceptions.ConnectionForced):
            assert outage.told
            assert (lost.value.reply_code, lost.value.reply_text) == FORCED
        else:
            # py-amqp answers a close before it tells; a broker that is gone by then is a reset to it, told or not.
            assert isinstance(lost.value, OSError)
        if not outage.told:  # a broker that is stopping may still take one
            with Connection(outage.uri) as early, pytest.raises(OperationalError):
                early.ensure_connection(max_retries=1, interval_start=0)
        outage.end()

        tried: list[Any] = []
        publish = connection.ensure(
            producer,
            producer.publish,
            errback=lambda *what: tried.append(what),
            on_revive=lambda channel: queue(channel).declare(),
            **PATIENT,
        )
        publish("after", mandatory=True)
        assert tried
        got: list[Any] = []
        with Consumer(connection.default_channel, [queue], on_message=got.append, accept={"json"}, no_ack=True):
            while not got or got[-1].payload != "after":
                drain_until(connection, got, len(got) + 1)
        if outage.keeps_messages:
            assert [(message.payload, message.delivery_info["redelivered"]) for message in got] == [
                ("before", True),
                ("after", False),
            ]


def test_autoretry_gives_the_function_a_new_channel(outage: Outage, q: str) -> None:
    with Connection(outage.uri) as connection:
        channels: list[Any] = []

        def declare(channel: Any) -> str:
            channels.append(channel)
            return Queue(q)(channel).queue_declare().queue

        work = connection.autoretry(declare, **PATIENT)
        assert work()[0] == q
        outage.begin()
        with pytest.raises(connection.connection_errors):
            drain_until(connection, [], 1)
        outage.end()
        name, channel = work()
        assert name == q
        assert channel is channels[-1]
        assert channels[0] is not channels[-1]


def test_a_consumer_mixin_goes_on_by_itself(outage: Outage, q: str) -> None:
    class Worker(ConsumerMixin):
        def __init__(self, connection: Connection) -> None:
            self.connection = connection
            self.got: list[str] = []
            self.errors: list[Any] = []
            self.ready = threading.Semaphore(0)

        def get_consumers(self, consumer_class: Any, channel: Any) -> list[Any]:
            return [consumer_class([Queue(q)], callbacks=[self.take], accept={"json"}, prefetch_count=1)]

        def take(self, body: str, message: Any) -> None:
            self.got.append(body)
            if body == "after" or message.delivery_info["redelivered"]:
                message.ack()
            if body == "after":
                self.should_stop = True

        def on_consume_ready(self, *_what: Any, **_more: Any) -> None:
            self.ready.release()

        def on_connection_error(self, exc: Any, interval: float) -> None:
            self.errors.append(exc)

    with Connection(outage.uri, transport_options=PATIENT) as connection:
        worker = Worker(connection)
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        assert worker.ready.acquire(timeout=LIMIT_S)
        with Connection(outage.uri) as sender:
            sender.Producer().publish("held", routing_key=q, serializer="json")
        wait_until(lambda: worker.got == ["held"])
        outage.begin()
        outage.end()
        assert worker.ready.acquire(timeout=LIMIT_S)
        with Connection(outage.uri) as sender:
            sender.Producer().publish("after", routing_key=q, serializer="json")
        thread.join(LIMIT_S)
        assert not thread.is_alive(), worker.got
        assert worker.got[-1] == "after"
        if outage.keeps_messages:
            assert worker.got == ["held", "held", "after"]


def test_a_pool_gives_working_producers_after_an_outage(outage: Outage, q: str) -> None:
    with Connection(outage.uri) as connection:
        connections = connection.Pool(2)
        pool = ProducerPool(connections=connections, limit=2)
        for body in ("before", "after"):
            with pool.acquire(block=True) as producer:
                producer.publish(body, routing_key=q, declare=[Queue(q)], retry=True, retry_policy=PATIENT)
            if body == "before":
                outage.begin()
                outage.end()
        wait_until(lambda: Queue(q)(connection.default_channel).queue_declare(passive=True).message_count >= 1)
        pool.force_close_all()
        connections.force_close_all()


# The broker speaks first: cancel, return, nack.


def test_a_deleted_queue_is_consumer_cancelled_or_a_callback(
    connection: Connection, other: SomebodyElse, q: str
) -> None:
    cancelled: list[str] = []
    for name in (f"{q}.1", f"{q}.2"):
        plain(name, connection.default_channel).declare()
    channel: Any = connection.default_channel
    channel.basic_consume(f"{q}.1", callback=lambda message: None, consumer_tag="told", on_cancel=cancelled.append)
    other.delete(f"{q}.1")
    assert drain_until(connection, cancelled, 1) == ["told"]
    channel.basic_consume(f"{q}.2", callback=lambda message: None, consumer_tag="raises")
    other.delete(f"{q}.2")
    with pytest.raises(amqp.exceptions.ConsumerCancelled):
        drain_until(connection, [], 1)


@pytest.mark.parametrize("options", [{"exclusive": True}, {"auto_delete": True}], ids=["exclusive", "auto_delete"])
def test_closing_a_connection_tells_none_of_its_own_consumers_that_their_queue_goes(
    uri: str, q: str, options: dict[str, bool]
) -> None:
    # py-amqp would raise ConsumerCancelled out of close(), and kombu would leave the socket open.
    with Connection(uri) as connection:
        for number in range(2):
            channel = connection.channel()
            plain(f"{q}.{number}", channel, **options).declare()
            plain(f"{q}.{number}", channel).consume(callback=print)
        connection.connection.close()


def test_a_returned_message_is_a_callback_with_and_without_confirms(uri: str, q: str) -> None:
    for options in ({}, {"confirm_publish": True}):
        with Connection(uri, transport_options=options) as connection:
            returned: list[tuple[Any, ...]] = []
            producer = Producer(connection.default_channel, on_return=lambda *what, got=returned: got.append(what))
            producer.publish("back", routing_key=q, mandatory=True, serializer="json")
            ((error, exchange, key, message),) = drain_until(connection, returned, 1)
            assert isinstance(error, amqp.exceptions.ChannelError)
            assert (error.reply_code, error.reply_text, exchange, key) == (312, "NO_ROUTE", "", q)
            assert message.body == '"back"'


def test_a_full_queue_that_rejects_is_message_nacked(uri: str, q: str) -> None:
    with Connection(uri, transport_options={"confirm_publish": True}) as connection:
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        queue = plain(q, connection.default_channel, queue_arguments=arguments)
        queue.declare()
        producer = connection.Producer()
        producer.publish("fits", routing_key=q)
        with pytest.raises(amqp.exceptions.MessageNacked):
            producer.publish("does not", routing_key=q)
        assert queue.get(no_ack=True).payload == "fits"
        producer.publish("fits again", routing_key=q)
        assert queue.get(no_ack=True).payload == "fits again"


# Wrong use.


def do_wrong(what: str, channel: Any, owner: Any, q: str) -> None:
    match what:
        case "declare another's exclusive queue":
            plain(q, owner, exclusive=True).declare()
            plain(q, channel, exclusive=True).declare()
        case "consume from another's exclusive queue":
            plain(q, owner, exclusive=True).declare()
            plain(q, channel).consume(callback=print)
        case "consume beside an exclusive consumer":
            plain(q, owner).declare()
            owner.basic_consume(q, callback=print, exclusive=True)
            plain(q, channel).consume(callback=print)
        case "look for a missing queue":
            plain(q, channel).queue_declare(passive=True)
        case "look for a missing exchange":
            Exchange(q, "direct")(channel).declare(passive=True)
        case "consume from a missing queue":
            plain(q, channel).consume(callback=print)
        case "bind to a missing exchange":
            plain(q, owner).declare()
            plain(q, channel).bind_to(f"{q}.x", "k")
        case "publish to a missing exchange":
            Producer(channel).publish("lost", exchange=q, routing_key="k")
            settle(channel)
        case "declare a queue otherwise":
            plain(q, owner).declare()
            Queue(q)(channel).declare()
        case "declare a queue with other arguments":
            plain(q, owner, max_length=5).declare()
            plain(q, channel, max_length=6).declare()
        case "declare an exchange otherwise":
            Exchange(q, "direct")(owner).declare()
            Exchange(q, "fanout")(channel).declare()
        case "declare a reserved name":
            plain(f"amq.{q}", channel).declare()
        case "delete a queue in use":
            plain(q, owner).declare()
            plain(q, owner).consume(callback=print)
            plain(q, channel).delete(if_unused=True)
        case "delete a queue with messages":
            plain(q, owner).declare()
            Producer(owner).publish("x", routing_key=q)
            settle(owner)
            plain(q, channel).delete(if_empty=True)
        case "ack twice":
            plain(q, owner).declare()
            Producer(owner).publish("x", routing_key=q)
            settle(owner)
            tag = plain(q, channel).get().delivery_tag
            channel.basic_ack(tag)
            channel.basic_ack(tag)
            settle(channel)
        case _:
            raise AssertionError(f"no such case: {what}")


EXCEPTIONS = {
    403: amqp.exceptions.AccessRefused,
    404: amqp.exceptions.NotFound,
    405: amqp.exceptions.ResourceLocked,
    406: amqp.exceptions.PreconditionFailed,
}


@pytest.mark.parametrize("what", ANSWERS)
def test_wrong_use_is_the_exception_of_its_code_with_the_text(
    connection: Connection, uri: str, q: str, what: str
) -> None:
    answer = ANSWERS[what]
    with Connection(uri) as owner:
        channel = connection.channel()
        with pytest.raises(EXCEPTIONS[answer.code]) as closed:
            do_wrong(what, channel, owner.default_channel, q)
        assert (closed.value.reply_code, closed.value.reply_text) == (answer.code, answer.said(q))
        assert isinstance(closed.value, connection.channel_errors)
        assert connection.connected
        again = connection.channel()
        assert again.queue_declare("", exclusive=True).message_count == 0


def test_with_confirms_a_publish_to_an_unknown_exchange_raises_itself(uri: str, q: str) -> None:
    with (
        Connection(uri, transport_options={"confirm_publish": True}) as connection,
        pytest.raises(amqp.exceptions.NotFound),
    ):
        connection.Producer().publish("lost", exchange=q, routing_key="k")


def test_a_wrong_password_and_an_unknown_vhost_are_told(uri: str) -> None:
    with (
        Connection(uri.replace("guest:guest", "guest:wrong")) as connection,
        pytest.raises(amqp.exceptions.AccessRefused, match="Login was refused"),
    ):
        connection.connect()
    with (
        Connection(uri.replace("%2F", "nowhere")) as connection,
        pytest.raises(amqp.exceptions.NotAllowed, match="vhost nowhere not found"),
    ):
        connection.connect()


# Taking messages, and what queues do with them.


def test_prefetch_requeue_and_redelivered(connection: Connection, q: str) -> None:
    queue = plain(q, connection.default_channel)
    queue.declare()
    for number in range(4):
        connection.Producer().publish(number, routing_key=q)
    got: list[Any] = []
    with Consumer(connection.default_channel, [queue], on_message=got.append, prefetch_count=2):
        drain_until(connection, got, 2)
        settle(connection.default_channel)
        assert [message.payload for message in got] == [0, 1]
        got[0].requeue()
        drain_until(connection, got, 3)
        assert (got[2].payload, got[2].delivery_info["redelivered"]) == (0, True)
        got[1].reject()
        got[2].ack()
        drain_until(connection, got, 5)
        assert [(message.payload, message.delivery_info["redelivered"]) for message in got[3:]] == [
            (2, False),
            (3, False),
        ]


def test_get_purge_and_delete_answer_with_counts(connection: Connection, q: str) -> None:
    queue = plain(q, connection.default_channel)
    queue.declare()
    for number in range(5):
        connection.Producer().publish(number, routing_key=q)
    message = queue.get()
    assert (message.payload, message.delivery_info["message_count"]) == (0, 4)
    assert queue.purge() == 4
    assert queue.get() is None
    connection.Producer().publish("x", routing_key=q)
    assert queue.delete() == 1
    assert queue.delete() == 0


def test_a_consumer_of_higher_priority_is_served_first(connection: Connection, q: str) -> None:
    channel = connection.default_channel
    low: list[Any] = []
    high: list[Any] = []
    channel.basic_qos(0, 1, False)
    queue = plain(q, channel)
    favoured = plain(q, channel, consumer_arguments={"x-priority": 10})
    queue.declare()
    with (
        Consumer(channel, [queue], on_message=low.append),
        Consumer(channel, [favoured], on_message=high.append, tag_prefix="high"),
    ):
        for number in range(2):
            connection.Producer().publish(number, routing_key=q)
        drain_until(connection, low, 1)
        assert ([message.payload for message in high], [message.payload for message in low]) == ([0], [1])


def test_an_expired_message_is_dead_lettered_with_its_history(connection: Connection, q: str) -> None:
    channel = connection.default_channel
    dead = plain(f"{q}.dead", channel, exchange=Exchange(f"{q}.dlx", "fanout", durable=False))
    dead.declare()
    plain(q, channel, queue_arguments={"x-dead-letter-exchange": f"{q}.dlx"}).declare()
    got: list[Any] = []
    with Consumer(channel, [dead], on_message=got.append, no_ack=True):
        connection.Producer().publish("late", routing_key=q, expiration=0.02)
        (message,) = drain_until(connection, got, 1)
    assert message.payload == "late"
    assert "expiration" not in message.properties
    (death,) = message.headers["x-death"]
    assert isinstance(death.pop("time"), datetime)
    assert death == {
        "count": 1,
        "reason": "expired",
        "queue": q,
        "exchange": "",
        "routing-keys": [q],
        "original-expiration": "20",
    }
    assert message.headers["x-first-death-reason"] == "expired"


def test_a_queue_with_limits_drops_the_oldest_and_expires_the_rest(connection: Connection, q: str) -> None:
    channel = connection.default_channel
    dead = plain(f"{q}.dead", channel)
    dead.declare()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
    plain(q, channel, max_length=1, message_ttl=2, queue_arguments=arguments).declare()
    got: list[Any] = []
    with Consumer(channel, [dead], on_message=got.append, no_ack=True):
        for number in range(2):
            connection.Producer().publish(number, routing_key=q)
        drain_until(connection, got, 2)
    assert [(message.payload, message.headers["x-first-death-reason"]) for message in got] == [
        (0, "maxlen"),
        (1, "expired"),
    ]


def test_messages_of_higher_priority_overtake(connection: Connection, q: str) -> None:
    queue = plain(q, connection.default_channel, max_priority=3)
    queue.declare()
    for priority in (0, 1, 2, 3):
        connection.Producer().publish(priority, routing_key=q, priority=priority)
    assert [queue.get(no_ack=True).payload for _ in range(4)] == [3, 2, 1, 0]


def test_a_request_is_answered_over_direct_reply_to(connection: Connection, uri: str, q: str) -> None:
    with Connection(uri) as server:
        queue = plain(q)

        def answer(message: Any) -> None:
            server.Producer().publish(message.payload.upper(), routing_key=message.properties["reply_to"])

        with Consumer(server.default_channel, [queue], on_message=answer, no_ack=True):
            replies: list[Any] = []
            channel: Any = connection.default_channel
            channel.basic_consume(DIRECT_REPLY, no_ack=True, callback=replies.append)
            connection.Producer().publish("how", routing_key=q, reply_to=DIRECT_REPLY)
            server.drain_events(timeout=LIMIT_S)
            (reply,) = drain_until(connection, replies, 1)
            assert channel.message_to_python(reply).payload == "HOW"


# Values, names, sizes, numbers.


def test_headers_of_every_type_come_back_as_they_were(connection: Connection, q: str) -> None:
    headers: dict[str, Any] = {
        "bool": True,
        "small": -5,
        "large": 1 << 40,
        "text": "größe",
        "decimal": Decimal("3.14"),
        "float": 2.5,
        "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "nothing": None,
        "table": {"inner": {"deep": [1, "two", None]}},
        "list": [1, "two", True, {"three": 3}],
    }
    queue = plain(q, connection.default_channel)
    queue.declare()
    connection.Producer().publish("x", routing_key=q, headers=dict(headers))
    got = queue.get(no_ack=True).headers
    assert got.pop("time").replace(tzinfo=UTC) == headers.pop("time")
    assert got == headers


def test_large_messages_and_unicode_names(connection: Connection, q: str) -> None:
    name = f"{q}.größe.队列"
    queue = plain(name, connection.default_channel, exchange=Exchange(name, "topic"), routing_key="schlüssel.*")
    queue.declare()
    for body in ("", "☃" * 1_500_000):
        connection.Producer().publish(body, exchange=name, routing_key="schlüssel.钥匙", serializer="json")
        assert queue.get(no_ack=True).payload == body


def test_many_channels_of_one_connection(connection: Connection, q: str) -> None:
    channels = [connection.channel() for _ in range(100)]
    for number, channel in enumerate(channels):
        queue = plain(f"{q}.{number}", channel, exclusive=True)
        queue.declare()
        Producer(channel).publish(number, routing_key=queue.name)
        assert queue.get(no_ack=True).payload == number
    for channel in channels:
        channel.close()
    assert connection.connected


def test_a_pidbox_reaches_every_node_and_brings_their_answers(uri: str, q: str) -> None:
    mailbox = Mailbox(q, type="fanout", accept=["json"], serializer="json")
    with Connection(uri) as server, Connection(uri) as client:
        nodes = []
        for name in ("a", "b"):
            node = mailbox(server).Node(f"{name}@{q}", state={"name": name}, channel=server.channel())
            node.handlers["ask"] = lambda state, word: f"{state['name']} says {word}"
            nodes.append(node)
            node.consumer = node.listen()
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                try:
                    server.drain_events(timeout=0.05)
                except TimeoutError:
                    pass  # nothing to do

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            everybody = mailbox(client).multi_call("ask", {"word": "hi"}, timeout=LIMIT_S, limit=2)
            one = mailbox(client).call([f"b@{q}"], "ask", {"word": "ho"}, timeout=LIMIT_S)
        finally:
            stop.set()
            thread.join(LIMIT_S)
    assert sorted(next(iter(reply.values())) for reply in everybody) == ["a says hi", "b says hi"]
    assert one == [{f"b@{q}": "b says ho"}]


def test_a_broker_that_is_away_refuses_connections(target: Target, uri: str) -> None:
    target.kill()
    with Connection(uri) as connection:
        with pytest.raises(ConnectionRefusedError):
            connection.connect()
        with pytest.raises(OperationalError):
            connection.ensure_connection(max_retries=1, interval_start=0)

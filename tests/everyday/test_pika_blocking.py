"""pika's BlockingConnection on an ordinary day: what it raises and calls, the same with both brokers."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.everyday.answers import ANSWERS, FORCED
from tests.everyday.conftest import Outage, SomebodyElse
from tests.everyday.targets import Target
from tests.wire.waiting import LIMIT_S, wait_until

Connect = Callable[..., pika.BlockingConnection]
DIRECT_REPLY = "amq.rabbitmq.reply-to"


@pytest.fixture
def connect(target: Target) -> Iterator[Connect]:
    opened: list[pika.BlockingConnection] = []

    def open_one(**parameters: Any) -> pika.BlockingConnection:
        parameters.setdefault("port", target.port)
        opened.append(pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", **parameters)))
        return opened[-1]

    yield open_one
    for connection in opened:
        if connection.is_open:
            connection.close()


@pytest.fixture
def channel(connect: Connect) -> BlockingChannel:
    return connect().channel()


def persistent_connect(port: int) -> pika.BlockingConnection:
    """Connects as the documentation of pika tells: again and again, until it works."""

    def attempt() -> pika.BlockingConnection | None:
        try:
            return pika.BlockingConnection(
                pika.ConnectionParameters("127.0.0.1", port, blocked_connection_timeout=LIMIT_S)
            )
        except pika.exceptions.AMQPConnectionError:
            return None

    connection = wait_until(attempt, what="a connection")
    assert connection is not None
    return connection


def pump(channel: BlockingChannel, got: list[Any], count: int) -> list[Any]:
    """Handle events until `count` of what a callback collects are there."""

    def enough() -> bool:
        channel.connection.process_data_events(0)
        return len(got) >= count

    wait_until(enough, what=f"{count} of {got}")
    return got


def settle(channel: BlockingChannel) -> None:
    """A round trip behind everything the broker has sent on this channel."""
    try:
        channel.queue_declare("", exclusive=True)
    except pika.exceptions.ChannelWrongStateError:
        pass  # the broker's close was faster than the question; start_consuming's inner step raises it
    channel._process_data_events(0)


def get_all(channel: BlockingChannel, queue: str) -> list[bytes]:
    bodies: list[bytes] = []
    while True:
        method, _, body = channel.basic_get(queue, auto_ack=True)
        if method is None:
            return bodies
        bodies.append(body)


# Losing the connection.


def test_a_lost_connection_is_an_exception_and_a_new_one_goes_on(outage: Outage, connect: Connect, q: str) -> None:
    connection = connect(port=outage.port)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare(q, durable=True)
    for body in (b"0", b"1", b"2"):
        channel.basic_publish("", q, body, pika.BasicProperties(delivery_mode=2), mandatory=True)
    held: list[bytes] = []
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume(q, lambda _channel, _method, _properties, body: held.append(body))
    assert pump(channel, held, 1) == [b"0"]

    outage.begin()
    with pytest.raises(pika.exceptions.AMQPConnectionError) as lost:
        channel.start_consuming()
    if outage.told:
        assert isinstance(lost.value, pika.exceptions.ConnectionClosedByBroker)
        assert (lost.value.reply_code, lost.value.reply_text) == FORCED
    else:
        assert isinstance(lost.value, pika.exceptions.StreamLostError)
    assert connection.is_closed
    assert channel.is_closed
    with pytest.raises(pika.exceptions.ChannelWrongStateError):
        channel.basic_publish("", q, b"too late")
    outage.end()

    got: list[tuple[bytes, bool]] = []

    def take(channel: BlockingChannel, method: Any, _properties: Any, body: bytes) -> None:
        got.append((body, method.redelivered))
        channel.basic_ack(method.delivery_tag)
        if body == b"after":
            channel.stop_consuming()

    with persistent_connect(outage.port) as again:
        channel = again.channel()
        channel.queue_declare(q, durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", q, b"after", mandatory=True)
        channel.basic_consume(q, take)
        channel.start_consuming()
    if outage.keeps_messages:
        assert got == [(b"0", True), (b"1", False), (b"2", False), (b"after", False)]
    assert got[-1] == (b"after", False)


def test_a_broker_that_is_away_refuses_connections(target: Target) -> None:
    target.kill()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", target.port))


# The broker speaks first: cancel, return, nack.


def test_a_deleted_queue_ends_start_consuming_and_calls_on_cancel(
    channel: BlockingChannel, other: SomebodyElse, q: str
) -> None:
    cancelled: list[Any] = []
    channel.queue_declare(q)
    channel.add_on_cancel_callback(cancelled.append)
    tag = channel.basic_consume(q, lambda *_: None)
    other.delete(q)
    channel.start_consuming()  # returns: no consumer is left
    assert [frame.method.consumer_tag for frame in cancelled] == [tag]
    assert channel.is_open
    assert channel.consumer_tags == []


def test_a_deleted_queue_ends_the_generator_of_consume(channel: BlockingChannel, other: SomebodyElse, q: str) -> None:
    channel.queue_declare(q)
    channel.basic_publish("", q, b"one")
    messages = channel.consume(q, inactivity_timeout=LIMIT_S)
    assert next(messages)[2] == b"one"
    other.delete(q)
    assert list(messages) == []
    assert channel.is_open


def test_without_confirms_a_returned_message_is_a_callback(channel: BlockingChannel, q: str) -> None:
    returned: list[tuple[Any, Any, bytes]] = []
    channel.add_on_return_callback(lambda _channel, *what: returned.append(what))
    channel.basic_publish("", q, b"back", pika.BasicProperties(message_id="1"), mandatory=True)
    channel.basic_publish("", q, b"dropped")
    settle(channel)
    ((method, properties, body),) = pump(channel, returned, 1)
    assert (method.reply_code, method.reply_text) == (312, "NO_ROUTE")
    assert (method.exchange, method.routing_key, properties.message_id, body) == ("", q, "1", b"back")


def test_with_confirms_a_returned_message_is_unroutable_error(channel: BlockingChannel, q: str) -> None:
    channel.confirm_delivery()
    with pytest.raises(pika.exceptions.UnroutableError) as unroutable:
        channel.basic_publish("", q, b"back", mandatory=True)
    (message,) = unroutable.value.messages
    assert (message.method.reply_code, message.method.reply_text, message.body) == (312, "NO_ROUTE", b"back")
    channel.basic_publish("", q, b"dropped")
    channel.queue_declare(q)
    channel.basic_publish("", q, b"kept", mandatory=True)
    assert get_all(channel, q) == [b"kept"]


def test_a_full_queue_that_rejects_is_nack_error(channel: BlockingChannel, q: str) -> None:
    channel.queue_declare(q, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.confirm_delivery()
    channel.basic_publish("", q, b"fits")
    with pytest.raises(pika.exceptions.NackError):
        channel.basic_publish("", q, b"does not")
    assert get_all(channel, q) == [b"fits"]
    channel.basic_publish("", q, b"fits again")
    assert get_all(channel, q) == [b"fits again"]


# Wrong use: each closes the channel with its code and text, and the connection stays.


def do_wrong(what: str, channel: BlockingChannel, owner: BlockingChannel, q: str) -> None:
    """Prepare on `owner`'s connection, then do what is wrong on `channel`."""
    match what:
        case "declare another's exclusive queue":
            owner.queue_declare(q, exclusive=True)
            channel.queue_declare(q, exclusive=True)
        case "consume from another's exclusive queue":
            owner.queue_declare(q, exclusive=True)
            channel.basic_consume(q, lambda *_: None)
        case "consume beside an exclusive consumer":
            owner.queue_declare(q)
            owner.basic_consume(q, lambda *_: None, exclusive=True)
            channel.basic_consume(q, lambda *_: None)
        case "look for a missing queue":
            channel.queue_declare(q, passive=True)
        case "look for a missing exchange":
            channel.exchange_declare(q, passive=True)
        case "consume from a missing queue":
            channel.basic_consume(q, lambda *_: None)
        case "bind to a missing exchange":
            owner.queue_declare(q)
            channel.queue_bind(q, f"{q}.x", "k")
        case "publish to a missing exchange":
            channel.confirm_delivery()
            channel.basic_publish(q, "k", b"lost")
        case "declare a queue otherwise":
            owner.queue_declare(q)
            channel.queue_declare(q, durable=True)
        case "declare a queue with other arguments":
            owner.queue_declare(q, arguments={"x-max-length": 5})
            channel.queue_declare(q, arguments={"x-max-length": 6})
        case "declare an exchange otherwise":
            owner.exchange_declare(q, "direct")
            channel.exchange_declare(q, "fanout")
        case "declare a reserved name":
            channel.queue_declare(f"amq.{q}")
        case "delete a queue in use":
            owner.queue_declare(q)
            owner.basic_consume(q, lambda *_: None)
            channel.queue_delete(q, if_unused=True)
        case "delete a queue with messages":
            owner.queue_declare(q)
            owner.basic_publish("", q, b"x")
            settle(owner)
            channel.queue_delete(q, if_empty=True)
        case "ack twice":
            owner.queue_declare(q)
            owner.basic_publish("", q, b"x")
            settle(owner)
            method, _, _ = channel.basic_get(q)
            channel.basic_ack(method.delivery_tag)
            channel.basic_ack(method.delivery_tag)
            settle(channel)
        case _:
            raise AssertionError(f"no such case: {what}")


@pytest.mark.parametrize("what", ANSWERS)
def test_wrong_use_is_channel_closed_by_broker_with_code_and_text(connect: Connect, q: str, what: str) -> None:
    connection = connect()
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        do_wrong(what, channel, connect().channel(), q)
    assert (closed.value.reply_code, closed.value.reply_text) == (ANSWERS[what].code, ANSWERS[what].said(q))
    assert channel.is_closed
    with pytest.raises(pika.exceptions.ChannelWrongStateError):
        channel.queue_declare("", exclusive=True)
    # The channel's number is free again at once.
    again = connection.channel(channel.channel_number)
    assert again.queue_declare("", exclusive=True).method.message_count == 0


def test_without_confirms_an_unknown_exchange_closes_the_channel_behind_the_publish(connect: Connect, q: str) -> None:
    channel = connect().channel()
    channel.basic_publish(q, "k", b"lost")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        settle(channel)
    assert closed.value.reply_code == 404


def test_passive_declares_of_what_is_there_answer_with_counts(channel: BlockingChannel, q: str) -> None:
    channel.exchange_declare(q, "topic")
    channel.exchange_declare(q, passive=True)
    channel.queue_declare(q)
    channel.basic_publish("", q, b"x")
    channel.basic_publish("", q, b"y")
    settle(channel)
    found = channel.queue_declare(q, passive=True).method
    assert (found.queue, found.message_count, found.consumer_count) == (q, 2, 0)


def test_a_wrong_password_and_an_unknown_vhost_are_told(connect: Connect) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError) as refused:
        connect(credentials=pika.PlainCredentials("guest", "wrong"))
    assert "Login was refused using authentication mechanism PLAIN" in str(refused.value)
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError) as denied:
        connect(virtual_host="nowhere")
    assert "NOT_ALLOWED - vhost nowhere not found" in str(denied.value)


# Taking messages.


def test_prefetch_bounds_what_is_unacked(channel: BlockingChannel, q: str) -> None:
    channel.queue_declare(q)
    for number in range(6):
        channel.basic_publish("", q, b"%d" % number)
    got: list[tuple[int, bytes]] = []
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume(q, lambda _channel, method, _properties, body: got.append((method.delivery_tag, body)))
    pump(channel, got, 2)
    settle(channel)
    assert [body for _, body in got] == [b"0", b"1"]
    channel.basic_ack(got[0][0])
    pump(channel, got, 3)
    channel.basic_ack(got[2][0], multiple=True)
    pump(channel, got, 5)
    settle(channel)
    assert [body for _, body in got] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_requeued_message_comes_again_marked_as_redelivered(channel: BlockingChannel, q: str) -> None:
    channel.queue_declare(q)
    for body in (b"0", b"1", b"2"):
        channel.basic_publish("", q, body)
    first, second, third = (channel.basic_get(q)[0] for _ in range(3))
    assert [method.redelivered for method in (first, second, third)] == [False] * 3
    channel.basic_nack(second.delivery_tag, multiple=True, requeue=True)
    channel.basic_reject(third.delivery_tag, requeue=False)
    again = [channel.basic_get(q, auto_ack=True) for _ in range(2)]
    assert [(method.redelivered, body) for method, _, body in again] == [(True, b"0"), (True, b"1")]
    assert channel.basic_get(q) == (None, None, None)


def test_get_purge_and_delete_answer_with_counts(channel: BlockingChannel, q: str) -> None:
    channel.queue_declare(q)
    for number in range(5):
        channel.basic_publish("", q, b"%d" % number)
    method, _, body = channel.basic_get(q)
    assert (method.message_count, method.exchange, method.routing_key, body) == (4, "", q, b"0")
    assert channel.queue_purge(q).method.message_count == 4
    channel.basic_publish("", q, b"x")
    assert channel.queue_delete(q).method.message_count == 1
    assert channel.queue_delete(q).method.message_count == 0


def test_a_consumer_of_higher_priority_is_served_first(channel: BlockingChannel, q: str) -> None:
    channel.queue_declare(q)
    low: list[bytes] = []
    high: list[bytes] = []
    channel.basic_qos(prefetch_count=2)
    channel.basic_consume(q, lambda _channel, _method, _properties, body: low.append(body))
    channel.basic_consume(
        q, lambda _channel, _method, _properties, body: high.append(body), arguments={"x-priority": 10}
    )
    for number in range(3):
        channel.basic_publish("", q, b"%d" % number)
    pump(channel, low, 1)
    assert (high, low) == ([b"0", b"1"], [b"2"])


# What queues do with messages.


def test_an_expired_message_is_dead_lettered_with_its_history(channel: BlockingChannel, q: str) -> None:
    channel.exchange_declare(f"{q}.dlx", "fanout")
    channel.queue_declare(f"{q}.dead")
    channel.queue_bind(f"{q}.dead", f"{q}.dlx")
    channel.queue_declare(q, arguments={"x-dead-letter-exchange": f"{q}.dlx"})
    channel.basic_publish("", q, b"late", pika.BasicProperties(expiration="20", headers={"mine": 1}))
    got: list[tuple[Any, bytes]] = []
    channel.basic_consume(f"{q}.dead", lambda _channel, _method, properties, body: got.append((properties, body)))
    ((properties, body),) = pump(channel, got, 1)
    assert body == b"late"
    assert properties.expiration is None
    headers = properties.headers
    assert (headers["mine"], headers["x-first-death-queue"], headers["x-first-death-reason"]) == (1, q, "expired")
    (death,) = headers["x-death"]
    time = death.pop("time")
    assert isinstance(time, datetime.datetime)
    assert death == {
        "count": 1,
        "reason": "expired",
        "queue": q,
        "exchange": "",
        "routing-keys": [q],
        "original-expiration": "20",
    }


def test_a_rejected_message_is_dead_lettered_under_another_key(channel: BlockingChannel, q: str) -> None:
    channel.queue_declare(f"{q}.dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{q}.dead"}
    channel.queue_declare(q, arguments=arguments)
    got: list[Any] = []
    channel.basic_consume(f"{q}.dead", lambda _channel, _method, properties, _body: got.append(properties))
    for turn in (1, 2):
        channel.basic_publish("", q, b"bad", pika.BasicProperties(headers=got[0].headers if got else None))
        method, _, _ = channel.basic_get(q)
        channel.basic_reject(method.delivery_tag, requeue=False)
        pump(channel, got, turn)
    assert [(death["reason"], death["queue"], death["count"]) for death in got[0].headers["x-death"]] == [
        ("rejected", q, 1)
    ]
    assert [death["count"] for death in got[1].headers["x-death"]] == [2]


def test_messages_of_higher_priority_overtake(channel: BlockingChannel, q: str) -> None:
    channel.queue_declare(q, arguments={"x-max-priority": 5})
    for priority in (None, 0, 3, 9, 5, 1):
        channel.basic_publish("", q, str(priority).encode(), pika.BasicProperties(priority=priority))
    settle(channel)
    assert get_all(channel, q) == [b"9", b"5", b"3", b"1", b"None", b"0"]


def test_a_request_is_answered_over_direct_reply_to(connect: Connect, q: str) -> None:
    asker, answerer = connect().channel(), connect().channel()
    answerer.queue_declare(q)

    def answer(channel: BlockingChannel, _method: Any, properties: Any, body: bytes) -> None:
        assert properties.reply_to.startswith(f"{DIRECT_REPLY}.")
        reply = pika.BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, body.upper(), reply)
        channel.stop_consuming()

    answerer.basic_consume(q, answer, auto_ack=True)
    replies: list[tuple[str, bytes]] = []
    asker.basic_consume(
        DIRECT_REPLY,
        lambda _channel, _method, properties, body: replies.append((properties.correlation_id, body)),
        auto_ack=True,
    )
    asker.basic_publish("", q, b"how", pika.BasicProperties(reply_to=DIRECT_REPLY, correlation_id="1"))
    answerer.start_consuming()
    assert pump(asker, replies, 1) == [("1", b"HOW")]


def test_direct_reply_to_wants_no_acks_and_a_consumer(connect: Connect) -> None:
    connection = connect()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        connection.channel().basic_consume(DIRECT_REPLY, lambda *_: None)
    assert closed.value.reply_text == "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    channel = connection.channel()
    channel.basic_publish("", "anywhere", b"x", pika.BasicProperties(reply_to=DIRECT_REPLY))
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        settle(channel)
    assert closed.value.reply_text == "PRECONDITION_FAILED - fast reply consumer does not exist"


# Values, names, sizes, numbers.


def test_headers_of_every_type_come_back_as_they_were(channel: BlockingChannel, q: str) -> None:
    headers = {
        "bool": True,
        "small": -5,
        "large": 1 << 40,
        "text": "größe",
        "bytes": b"\x00\xff",
        "decimal": decimal.Decimal("3.14"),
        "time": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "nothing": None,
        "table": {"inner": {"deep": [1, "two", None]}},
        "list": [1, "two", True, {"three": 3}],
    }
    channel.queue_declare(q)
    channel.basic_publish("", q, b"", pika.BasicProperties(headers=headers))
    _, properties, _ = channel.basic_get(q, auto_ack=True)
    got = properties.headers
    assert got.pop("time").replace(tzinfo=datetime.UTC) == headers.pop("time")
    assert got == headers


def test_names_and_keys_may_be_unicode(channel: BlockingChannel, q: str) -> None:
    name, key = f"{q}.größe.Ω.队列.🚰", "schlüssel.钥匙"
    channel.exchange_declare(name, "topic")
    assert channel.queue_declare(name).method.queue == name
    channel.queue_bind(name, name, "schlüssel.*")
    channel.basic_publish(name, key, "☃".encode())
    settle(channel)
    method, _, body = channel.basic_get(name, auto_ack=True)
    assert (method.exchange, method.routing_key, body.decode()) == (name, key, "☃")


def test_large_and_empty_messages_arrive_whole(channel: BlockingChannel, q: str) -> None:
    channel.queue_declare(q)
    bodies = [b"", b"x", bytes(131_064), bytes(131_065), b"\xce" * 8_000_000]
    for body in bodies:
        channel.basic_publish("", q, body)
    settle(channel)
    assert get_all(channel, q) == bodies


def test_many_channels_work_side_by_side(connect: Connect, q: str) -> None:
    connection = connect()
    channels = [connection.channel() for _ in range(100)]
    for number, channel in enumerate(channels):
        channel.queue_declare(f"{q}.{number}", exclusive=True)
        channel.basic_publish("", f"{q}.{number}", b"%d" % number)
    for number, channel in enumerate(channels):
        settle(channel)
        assert get_all(channel, f"{q}.{number}") == [b"%d" % number]
    for channel in channels[::2]:
        channel.close()
    assert channels[1].queue_delete(f"{q}.0").method.message_count == 0
    assert connection.channel().channel_number == 1


def test_a_transaction_publishes_and_acks_at_its_commit(connect: Connect, q: str) -> None:
    channel, outside = connect().channel(), connect().channel()
    channel.queue_declare(q)
    channel.tx_select()
    channel.basic_publish("", q, b"rolled back")
    channel.tx_rollback()
    channel.basic_publish("", q, b"kept")
    assert outside.queue_declare(q, passive=True).method.message_count == 0
    channel.tx_commit()
    assert outside.queue_declare(q, passive=True).method.message_count == 1
    method, _, _ = channel.basic_get(q)
    channel.basic_ack(method.delivery_tag)
    channel.tx_rollback()
    channel.basic_nack(method.delivery_tag, requeue=True)
    channel.tx_commit()
    assert get_all(outside, q) == [b"kept"]


def test_only_one_consumer_of_a_single_active_queue_is_served_until_it_goes(channel: BlockingChannel, q: str) -> None:
    channel.queue_declare(q, arguments={"x-single-active-consumer": True})
    first: list[bytes] = []
    second: list[bytes] = []
    tag = channel.basic_consume(q, lambda _channel, _method, _properties, body: first.append(body), auto_ack=True)
    channel.basic_consume(q, lambda _channel, _method, _properties, body: second.append(body), auto_ack=True)
    for body in (b"0", b"1"):
        channel.basic_publish("", q, body)
    pump(channel, first, 2)
    channel.basic_cancel(tag)
    channel.basic_publish("", q, b"2")
    pump(channel, second, 1)
    assert (first, second) == ([b"0", b"1"], [b"2"])

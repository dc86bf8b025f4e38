"""pika's SelectConnection on an ordinary day: which callback is called with what, the same with both brokers."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pika.exceptions
import pytest

from tests.everyday.answers import ANSWERS, FORCED
from tests.everyday.callbacks import Callbacks, SelectChannel, wait_for
from tests.everyday.conftest import Outage, SomebodyElse
from tests.everyday.targets import Target
from tests.wire.waiting import wait_until

Connect = Callable[..., Callbacks]
DIRECT_REPLY = "amq.rabbitmq.reply-to"


@pytest.fixture
def connect(target: Target) -> Iterator[Connect]:
    started: list[Callbacks] = []

    def start(**parameters: Any) -> Callbacks:
        started.append(Callbacks(parameters.pop("port", target.port), **parameters))
        return started[-1]

    yield start
    for connection in started:
        connection.close()


@pytest.fixture
def channel(connect: Connect) -> SelectChannel:
    return connect().opened().channel()


def bodies(got: list[tuple[Any, Any, bytes]]) -> list[bytes]:
    return [body for _, _, body in got]


# Losing the connection.


def test_a_lost_connection_is_a_close_callback_and_a_new_one_goes_on(outage: Outage, connect: Connect, q: str) -> None:
    connection = connect(port=outage.port).opened()
    channel = connection.channel()
    confirmed: list[Any] = []
    channel.ask("queue_declare", q, durable=True)
    channel.ask("confirm_delivery", ack_nack_callback=confirmed.append)
    for body in (b"0", b"1", b"2"):
        channel.call("basic_publish", "", q, body, pika.BasicProperties(delivery_mode=2))
    wait_until(lambda: confirmed and confirmed[-1].method.delivery_tag == 3)
    channel.ask("basic_qos", prefetch_count=1)
    held = channel.consume(q)
    assert bodies(wait_for(held, 1)) == [b"0"]

    outage.begin()
    lost = connection.ended()
    if outage.told:
        assert isinstance(lost, pika.exceptions.ConnectionClosedByBroker)
        assert (lost.reply_code, lost.reply_text) == FORCED
    else:
        assert isinstance(lost, pika.exceptions.StreamLostError)
    assert channel.closed == [lost]
    if not outage.told:  # a broker that is stopping may still take one
        failed = connect(port=outage.port).ended()
        assert isinstance(failed, pika.exceptions.AMQPConnectionError)
    outage.end()

    channel = connect(port=outage.port).opened().channel()
    channel.ask("queue_declare", q, durable=True)
    got = channel.consume(q, auto_ack=True)
    channel.call("basic_publish", "", q, b"after")
    wait_until(lambda: got and got[-1][2] == b"after")
    if outage.keeps_messages:
        assert [(body, method.redelivered) for method, _, body in got] == [
            (b"0", True),
            (b"1", False),
            (b"2", False),
            (b"after", False),
        ]


# The broker speaks first: cancel, return, nack.


def test_a_deleted_queue_calls_on_cancel(channel: SelectChannel, other: SomebodyElse, q: str) -> None:
    cancelled: list[Any] = []
    channel.ask("queue_declare", q)
    channel.call("add_on_cancel_callback", cancelled.append)
    channel.consume(q, consumer_tag="mine")
    other.delete(q)
    assert [frame.method.consumer_tag for frame in wait_for(cancelled, 1)] == ["mine"]
    channel.settle()
    assert channel.raw.is_open
    assert channel.raw.consumer_tags == []


@pytest.mark.parametrize("confirms", [False, True])
def test_a_returned_message_is_a_callback_and_acked_after_it(channel: SelectChannel, q: str, confirms: bool) -> None:
    heard: list[tuple[str, Any]] = []
    channel.call("add_on_return_callback", lambda _channel, *what: heard.append(("return", what)))
    if confirms:
        channel.ask("confirm_delivery", ack_nack_callback=lambda frame: heard.append((frame.method.NAME, frame.method)))
    channel.call("basic_publish", "", q, b"back", mandatory=True)
    channel.settle()
    assert [what for what, _ in wait_for(heard, 1 + confirms)] == ["return", "Basic.Ack"][: 1 + confirms]
    method, _, body = heard[0][1]
    assert (method.reply_code, method.reply_text, method.routing_key, body) == (312, "NO_ROUTE", q, b"back")


def test_a_full_queue_that_rejects_is_a_nack(channel: SelectChannel, q: str) -> None:
    heard: list[Any] = []
    channel.ask("queue_declare", q, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.ask("confirm_delivery", ack_nack_callback=heard.append)
    for number in (1, 2):
        channel.call("basic_publish", "", q, b"x", mandatory=True)
        wait_for(heard, number)
    assert [(frame.method.NAME, frame.method.delivery_tag) for frame in heard] == [("Basic.Ack", 1), ("Basic.Nack", 2)]


def test_many_confirms_at_once_all_come(channel: SelectChannel, q: str) -> None:
    acked: set[int] = set()

    def note(frame: Any) -> None:
        assert frame.method.NAME == "Basic.Ack"
        tag = frame.method.delivery_tag
        acked.update(range(1, tag + 1) if frame.method.multiple else [tag])

    channel.ask("queue_declare", q)
    channel.ask("confirm_delivery", ack_nack_callback=note)

    def publish_all() -> None:
        for number in range(500):
            channel.raw.basic_publish("", q, b"%d" % number)

    channel.owner.call(publish_all)
    wait_until(lambda: len(acked) == 500)
    assert channel.ask("queue_declare", q, passive=True).message_count == 500


# Wrong use: the channel's close callback, and the connection stays.


def do_wrong(what: str, channel: SelectChannel, owner: SelectChannel, q: str) -> None:
    match what:
        case "declare another's exclusive queue":
            owner.ask("queue_declare", q, exclusive=True)
            channel.ask("queue_declare", q, exclusive=True)
        case "consume from another's exclusive queue":
            owner.ask("queue_declare", q, exclusive=True)
            channel.consume(q)
        case "consume beside an exclusive consumer":
            owner.ask("queue_declare", q)
            owner.consume(q, exclusive=True)
            channel.consume(q)
        case "look for a missing queue":
            channel.ask("queue_declare", q, passive=True)
        case "look for a missing exchange":
            channel.ask("exchange_declare", q, passive=True)
        case "consume from a missing queue":
            channel.consume(q)
        case "bind to a missing exchange":
            owner.ask("queue_declare", q)
            channel.ask("queue_bind", q, f"{q}.x", "k")
        case "publish to a missing exchange":
            channel.call("basic_publish", q, "k", b"lost")
            channel.settle()
        case "declare a queue otherwise":
            owner.ask("queue_declare", q)
            channel.ask("queue_declare", q, durable=True)
        case "declare a queue with other arguments":
            owner.ask("queue_declare", q, arguments={"x-max-length": 5})
            channel.ask("queue_declare", q, arguments={"x-max-length": 6})
        case "declare an exchange otherwise":
            owner.ask("exchange_declare", q, "direct")
            channel.ask("exchange_declare", q, "fanout")
        case "declare a reserved name":
            channel.ask("queue_declare", f"amq.{q}")
        case "delete a queue in use":
            owner.ask("queue_declare", q)
            owner.consume(q)
            channel.ask("queue_delete", q, if_unused=True)
        case "delete a queue with messages":
            owner.ask("queue_declare", q)
            owner.call("basic_publish", "", q, b"x")
            owner.settle()
            channel.ask("queue_delete", q, if_empty=True)
        case "ack twice":
            owner.ask("queue_declare", q)
            owner.call("basic_publish", "", q, b"x")
            owner.settle()
            got = channel.get(q)
            assert got is not None
            channel.call("basic_ack", got[0].delivery_tag)
            channel.call("basic_ack", got[0].delivery_tag)
            channel.settle()
        case _:
            raise AssertionError(f"no such case: {what}")


@pytest.mark.parametrize("what", ANSWERS)
def test_wrong_use_calls_the_channels_close_callback_with_code_and_text(connect: Connect, q: str, what: str) -> None:
    connection = connect().opened()
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        do_wrong(what, channel, connect().opened().channel(), q)
    (reason,) = wait_for(channel.closed, 1)
    assert isinstance(reason, pika.exceptions.ChannelClosedByBroker)
    assert (reason.reply_code, reason.reply_text) == (ANSWERS[what].code, ANSWERS[what].said(q))
    assert connection.connection.is_open
    assert connection.channel().ask("queue_declare", "", exclusive=True).message_count == 0


def test_a_wrong_password_and_an_unknown_vhost_are_open_errors(connect: Connect) -> None:
    refused = connect(credentials=pika.PlainCredentials("guest", "wrong")).ended()
    assert isinstance(refused, pika.exceptions.ProbableAuthenticationError)
    assert "Login was refused" in str(refused)
    denied = connect(virtual_host="nowhere").ended()
    assert isinstance(denied, pika.exceptions.ProbableAccessDeniedError)
    assert "vhost nowhere not found" in str(denied)


# Taking messages, and what queues do with them. Callbacks only: what a message is, test_pika_blocking.py says.


def test_prefetch_requeue_and_redelivered(channel: SelectChannel, q: str) -> None:
    channel.ask("queue_declare", q)
    for number in range(4):
        channel.call("basic_publish", "", q, b"%d" % number)
    channel.ask("basic_qos", prefetch_count=2)
    got = channel.consume(q)
    wait_for(got, 2)
    channel.settle()
    assert bodies(got) == [b"0", b"1"]
    channel.call("basic_nack", got[1][0].delivery_tag, multiple=True, requeue=True)
    wait_for(got, 4)
    assert [(body, method.redelivered) for method, _, body in got[2:4]] == [(b"0", True), (b"1", True)]
    channel.call("basic_ack", 0, multiple=True)
    wait_for(got, 6)
    assert [(body, method.redelivered) for method, _, body in got[4:]] == [(b"2", False), (b"3", False)]


def test_get_purge_and_delete_answer_with_counts(channel: SelectChannel, q: str) -> None:
    channel.ask("queue_declare", q)
    for number in range(5):
        channel.call("basic_publish", "", q, b"%d" % number)
    got = channel.get(q)
    assert got is not None
    assert (got[0].message_count, got[2]) == (4, b"0")
    assert channel.ask("queue_purge", q).message_count == 4
    assert channel.get(q) is None
    channel.call("basic_publish", "", q, b"x")
    assert channel.ask("queue_delete", q).message_count == 1


def test_a_consumer_of_higher_priority_is_served_first(channel: SelectChannel, q: str) -> None:
    channel.ask("queue_declare", q)
    channel.ask("basic_qos", prefetch_count=1)
    low = channel.consume(q)
    high = channel.consume(q, arguments={"x-priority": 1})
    for number in range(2):
        channel.call("basic_publish", "", q, b"%d" % number)
    assert bodies(wait_for(low, 1)) == [b"1"]
    assert bodies(wait_for(high, 1)) == [b"0"]


def test_an_expired_message_is_dead_lettered_with_its_history(channel: SelectChannel, q: str) -> None:
    channel.ask("queue_declare", f"{q}.dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{q}.dead", "x-message-ttl": 20}
    channel.ask("queue_declare", q, arguments=arguments)
    got = channel.consume(f"{q}.dead", auto_ack=True)
    channel.call("basic_publish", "", q, b"late")
    ((method, properties, body),) = wait_for(got, 1)
    assert (method.routing_key, method.redelivered, body) == (f"{q}.dead", False, b"late")
    (death,) = properties.headers["x-death"]
    assert isinstance(death.pop("time"), datetime.datetime)
    assert death == {"count": 1, "reason": "expired", "queue": q, "exchange": "", "routing-keys": [q]}


def test_messages_of_higher_priority_overtake(channel: SelectChannel, q: str) -> None:
    channel.ask("queue_declare", q, arguments={"x-max-priority": 3})
    for priority in (0, 1, 2, 3):
        channel.call("basic_publish", "", q, b"%d" % priority, pika.BasicProperties(priority=priority))
    channel.settle()
    got = channel.consume(q, auto_ack=True)
    assert bodies(wait_for(got, 4)) == [b"3", b"2", b"1", b"0"]


def test_a_request_is_answered_over_direct_reply_to(connect: Connect, q: str) -> None:
    asker, answerer = (connect().opened().channel() for _ in range(2))
    answerer.ask("queue_declare", q)

    def answer(channel: Any, _method: Any, properties: Any, body: bytes) -> None:
        channel.basic_publish("", properties.reply_to, body.upper())

    answerer.ask("basic_consume", q, answer, auto_ack=True)
    replies = asker.consume(DIRECT_REPLY, auto_ack=True)
    asker.call("basic_publish", "", q, b"how", pika.BasicProperties(reply_to=DIRECT_REPLY))
    assert bodies(wait_for(replies, 1)) == [b"HOW"]


def test_large_messages_and_unicode_names(channel: SelectChannel, q: str) -> None:
    name = f"{q}.größe.队列"
    channel.ask("queue_declare", name)
    got = channel.consume(name, auto_ack=True)
    channel.call("basic_publish", "", name, b"\xce" * 4_000_000)
    assert bodies(wait_for(got, 1)) == [b"\xce" * 4_000_000]


def test_many_channels_of_one_connection(connect: Connect, q: str) -> None:
    connection = connect().opened()
    channels = [connection.channel() for _ in range(50)]
    inboxes = []
    for number, channel in enumerate(channels):
        channel.ask("queue_declare", f"{q}.{number}", exclusive=True)
        inboxes.append(channel.consume(f"{q}.{number}", auto_ack=True))
        channel.call("basic_publish", "", f"{q}.{49 - number}", b"%d" % number)
    for number in range(25):
        assert bodies(wait_for(inboxes[number], 1)) == [b"%d" % (49 - number)]

"""aio-pika on an ordinary day, mostly its robust connection: what it restores by itself, what it raises and calls."""

from __future__ import annotations

import asyncio
import datetime
import decimal
from collections.abc import Callable, Coroutine
from typing import Any

import aio_pika
import aio_pika.exceptions
import aiormq.exceptions
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractRobustConnection

from tests.everyday.answers import ANSWERS, FORCED
from tests.everyday.conftest import Outage, SomebodyElse
from tests.everyday.targets import Target
from tests.wire.waiting import LIMIT_S

Work = Callable[[AbstractRobustConnection], Coroutine[Any, Any, None]]
DIRECT_REPLY = "amq.rabbitmq.reply-to"


def run(uri: str, work: Work, **parameters: Any) -> None:
    """Run this with a robust connection that tries again quickly."""

    async def connected() -> None:
        parameters.setdefault("reconnect_interval", 0.1)
        connection = await aio_pika.connect_robust(uri, **parameters)
        async with asyncio.timeout(LIMIT_S), connection:
            await work(connection)

    asyncio.run(connected())


async def publish(channel: AbstractChannel, queue: str, *bodies: bytes, **properties: Any) -> None:
    for body in bodies:
        await channel.default_exchange.publish(aio_pika.Message(body, **properties), queue)


class Inbox:
    """Collects deliveries; its condition is what a test waits for."""

    def __init__(self) -> None:
        self.got: list[AbstractIncomingMessage] = []
        self._came = asyncio.Condition()

    async def __call__(self, message: AbstractIncomingMessage) -> None:
        async with self._came:
            self.got.append(message)
            self._came.notify_all()

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.got]

    async def wait_for(self, count: int) -> list[AbstractIncomingMessage]:
        async with self._came:
            await self._came.wait_for(lambda: len(self.got) >= count)
        return self.got

    async def wait_until(self, body: bytes) -> None:
        async with self._came:
            await self._came.wait_for(lambda: body in self.bodies)


async def settle(channel: AbstractChannel) -> None:
    """A round trip behind everything the broker has sent on this channel."""
    await channel.declare_queue(exclusive=True, robust=False)  # type: ignore[call-arg]  # a robust channel has it


# Losing the connection.


def test_a_robust_connection_restores_queues_bindings_and_consumers_by_itself(
    outage: Outage, other: SomebodyElse, q: str
) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        lost: asyncio.Queue[BaseException | None] = asyncio.Queue()
        restored = asyncio.Event()
        connection.close_callbacks.add(lambda _sender, reason: lost.put_nowait(reason))
        connection.reconnect_callbacks.add(lambda *_: restored.set())
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        exchange = await channel.declare_exchange(f"{q}.x", "direct", auto_delete=True)
        queue = await channel.declare_queue(q, durable=True)
        private = await channel.declare_queue(f"{q}.private", exclusive=True)
        await queue.bind(exchange, "k")
        inbox, alone = Inbox(), Inbox()
        await queue.consume(inbox, consumer_tag="mine")
        await private.consume(alone, no_ack=True)
        for body in (b"0", b"1", b"2"):
            await exchange.publish(aio_pika.Message(body, delivery_mode=2), "k")
        assert [message.body for message in await inbox.wait_for(1)] == [b"0"]

        await asyncio.to_thread(outage.begin)
        reason = await lost.get()
        assert isinstance(reason, (aiormq.exceptions.AMQPConnectionError, OSError)), repr(reason)
        if outage.told:
            assert isinstance(reason, aiormq.exceptions.ConnectionClosed)
            assert reason.args[:2] == FORCED
        inbox.got.clear()  # the one from before: its channel is gone, and so is its tag
        await asyncio.to_thread(outage.end)
        await restored.wait()

        # The same objects go on working: exchange, binding, consumer, prefetch, confirms.
        await exchange.publish(aio_pika.Message(b"after"), "k", mandatory=True)
        taken: list[tuple[bytes, bool | None]] = []
        while not taken or taken[-1][0] != b"after":
            await inbox.wait_for(1)
            message = inbox.got.pop(0)
            taken.append((message.body, message.redelivered))
            await message.ack()
        if outage.keeps_messages:
            assert taken == [(b"0", True), (b"1", False), (b"2", False), (b"after", False)]
        await asyncio.to_thread(other.publish, f"{q}.private", b"alone")
        await alone.wait_until(b"alone")

    run(outage.uri, work)


def test_a_publish_during_the_outage_is_refused_until_the_channel_is_ready(outage: Outage, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        closed = asyncio.Event()
        connection.close_callbacks.add(lambda *_: closed.set())
        channel = await connection.channel()
        queue = await channel.declare_queue(q, durable=True)
        await asyncio.to_thread(outage.begin)
        await closed.wait()
        with pytest.raises(aio_pika.exceptions.ChannelInvalidStateError):
            await publish(channel, q, b"too early")
        await asyncio.to_thread(outage.end)
        await channel.ready()
        await publish(channel, q, b"patient")
        assert (await queue.get(timeout=LIMIT_S)).body == b"patient"

    run(outage.uri, work)


def test_a_plain_connection_stays_closed(outage: Outage, q: str) -> None:
    async def work() -> None:
        connection = await aio_pika.connect(outage.uri)
        channel = await connection.channel()
        closed = asyncio.Event()
        channel.close_callbacks.add(lambda *_: closed.set())
        await asyncio.to_thread(outage.begin)
        await closed.wait()
        with pytest.raises((aiormq.exceptions.ChannelInvalidStateError, RuntimeError)):
            await channel.declare_queue(q)
        await connection.close()
        await asyncio.to_thread(outage.end)

    asyncio.run(asyncio.wait_for(work(), LIMIT_S))


# The broker speaks first: cancel, return, nack.


def test_a_consumer_whose_queue_was_deleted_is_restored_with_its_queue(uri: str, other: SomebodyElse, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue(q)
        inbox = Inbox()
        await queue.consume(inbox, no_ack=True)
        await asyncio.to_thread(other.delete, q)
        while await asyncio.to_thread(other.consumers, q) != 1:
            await asyncio.sleep(0.02)
        await asyncio.to_thread(other.publish, q, b"again")
        assert [message.body for message in await inbox.wait_for(1)] == [b"again"]

    run(uri, work)


def test_an_iterator_of_a_plain_connection_ends_when_its_queue_is_deleted(
    uri: str, other: SomebodyElse, q: str
) -> None:
    async def work() -> None:
        async with await aio_pika.connect(uri) as connection:
            channel = await connection.channel()
            cancelled: asyncio.Queue[Any] = asyncio.Queue()
            queue = await channel.declare_queue(q)
            underlay = await channel.get_underlay_channel()
            underlay.on_consumer_cancel_callbacks.add(cancelled.put_nowait)
            await queue.consume(Inbox(), consumer_tag="mine")
            await asyncio.to_thread(other.delete, q)
            assert (await cancelled.get()).consumer_tag == "mine"
            assert not channel.is_closed

    asyncio.run(asyncio.wait_for(work(), LIMIT_S))


def test_a_returned_message_is_a_callback_or_an_exception(uri: str, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        raising = await connection.channel(on_return_raises=True)
        with pytest.raises(aio_pika.exceptions.PublishError) as unroutable:
            await raising.default_exchange.publish(aio_pika.Message(b"back"), q, mandatory=True)
        assert unroutable.value.message is not None
        returned = unroutable.value.message.delivery
        assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")  # type: ignore[union-attr]

        quiet = await connection.channel()
        back: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        quiet.return_callbacks.add(lambda _channel, message: back.put_nowait(message))
        await quiet.default_exchange.publish(aio_pika.Message(b"back", message_id="1"), q, mandatory=True)
        message = await back.get()
        assert (message.body, message.message_id, message.routing_key) == (b"back", "1", q)

    run(uri, work)


def test_a_full_queue_that_rejects_is_delivery_error(uri: str, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue(q, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        await publish(channel, q, b"fits")
        with pytest.raises(aio_pika.exceptions.DeliveryError) as nacked:
            await publish(channel, q, b"does not")
        assert not isinstance(nacked.value, aio_pika.exceptions.PublishError)
        assert nacked.value.frame.name == "Basic.Nack"
        await (await queue.get(timeout=LIMIT_S)).ack()
        await publish(channel, q, b"fits again")

    run(uri, work)


# Wrong use.


async def do_wrong(what: str, channel: AbstractChannel, owner: AbstractChannel, q: str) -> None:
    async def ignore(_message: AbstractIncomingMessage) -> None:
        pass

    match what:
        case "declare another's exclusive queue":
            await owner.declare_queue(q, exclusive=True)
            await channel.declare_queue(q, exclusive=True)
        case "consume from another's exclusive queue":
            await owner.declare_queue(q, exclusive=True)
            await (await channel.get_queue(q, ensure=False)).consume(ignore)
        case "consume beside an exclusive consumer":
            await (await owner.declare_queue(q)).consume(ignore, exclusive=True)
            await (await channel.get_queue(q, ensure=False)).consume(ignore)
        case "look for a missing queue":
            await channel.get_queue(q)
        case "look for a missing exchange":
            await channel.get_exchange(q)
        case "consume from a missing queue":
            await (await channel.get_queue(q, ensure=False)).consume(ignore)
        case "bind to a missing exchange":
            await owner.declare_queue(q)
            await (await channel.get_queue(q, ensure=False)).bind(f"{q}.x", "k")
        case "publish to a missing exchange":
            await (await channel.get_exchange(q, ensure=False)).publish(aio_pika.Message(b"lost"), "k")
        case "declare a queue otherwise":
            await owner.declare_queue(q)
            await channel.declare_queue(q, durable=True)
        case "declare a queue with other arguments":
            await owner.declare_queue(q, arguments={"x-max-length": 5})
            await channel.declare_queue(q, arguments={"x-max-length": 6})
        case "declare an exchange otherwise":
            await owner.declare_exchange(q, "direct")
            await channel.declare_exchange(q, "fanout")
        case "declare a reserved name":
            await channel.declare_queue(f"amq.{q}")
        case "delete a queue in use":
            await (await owner.declare_queue(q)).consume(ignore)
            await channel.queue_delete(q, if_unused=True)
        case "delete a queue with messages":
            await owner.declare_queue(q)
            await publish(owner, q, b"x")
            await channel.queue_delete(q, if_empty=True)
        case "ack twice":
            await owner.declare_queue(q)
            await publish(owner, q, b"x")
            message = await (await channel.get_queue(q, ensure=False)).get(timeout=LIMIT_S)
            underlay = await channel.get_underlay_channel()
            assert message.delivery_tag is not None
            await underlay.basic_ack(message.delivery_tag)
            await underlay.basic_ack(message.delivery_tag)
            await channel.declare_queue(exclusive=True)
        case _:
            raise AssertionError(f"no such case: {what}")


EXCEPTIONS = {
    403: aiormq.exceptions.ChannelAccessRefused,
    404: aiormq.exceptions.ChannelNotFoundEntity,
    405: aiormq.exceptions.ChannelLockedResource,
    406: aiormq.exceptions.ChannelPreconditionFailed,
}


@pytest.mark.parametrize("what", ANSWERS)
def test_wrong_use_is_the_exception_of_its_code_with_the_text(uri: str, q: str, what: str) -> None:
    # A plain connection: a robust one would open the channel again before the test looks at it.
    async def work() -> None:
        async with await aio_pika.connect(uri) as connection, await aio_pika.connect(uri) as owner:
            channel = await connection.channel()
            with pytest.raises(EXCEPTIONS[ANSWERS[what].code]) as closed:
                await do_wrong(what, channel, await owner.channel(), q)
            assert closed.value.args[0] == ANSWERS[what].said(q)
            assert channel.is_closed
            assert not connection.is_closed
            again = await connection.channel()
            assert (await again.declare_queue(exclusive=True)).declaration_result.message_count == 0

    asyncio.run(asyncio.wait_for(work(), LIMIT_S))


def test_a_robust_channel_opens_again_by_itself_after_an_error(uri: str, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue(q)
        inbox = Inbox()
        await queue.consume(inbox, no_ack=True)
        reopened = asyncio.Event()
        channel.reopen_callbacks.add(lambda *_: reopened.set())
        with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
            await channel.get_queue(f"{q}.missing")
        await reopened.wait()
        await publish(channel, q, b"still here")
        await inbox.wait_until(b"still here")

    run(uri, work)


def test_a_wrong_password_is_told_and_an_unknown_vhost_refused(uri: str) -> None:
    async def work() -> None:
        with pytest.raises(aiormq.exceptions.ProbableAuthenticationError, match="Login was refused"):
            await aio_pika.connect(uri.replace("guest:guest", "guest:wrong"))
        # aiormq expects open-ok and does not look into the close that comes instead.
        with pytest.raises(aiormq.exceptions.InvalidFrameError, match=r"Connection\.Close"):
            await aio_pika.connect(uri.replace("%2F", "nowhere"))

    asyncio.run(asyncio.wait_for(work(), LIMIT_S))


# Taking messages, and what queues do with them.


def test_prefetch_requeue_and_redelivered(uri: str, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=2)
        queue = await channel.declare_queue(q)
        await publish(channel, q, b"0", b"1", b"2", b"3")
        inbox = Inbox()
        await queue.consume(inbox)
        await inbox.wait_for(2)
        await settle(channel)
        assert inbox.bodies == [b"0", b"1"]
        await inbox.got[1].nack(multiple=True, requeue=True)
        await inbox.wait_for(4)
        assert [(message.body, message.redelivered) for message in inbox.got[2:]] == [(b"0", True), (b"1", True)]
        await inbox.got[3].ack(multiple=True)
        await inbox.wait_for(6)
        assert inbox.bodies[4:] == [b"2", b"3"]
        assert not any(message.redelivered for message in inbox.got[4:])

    run(uri, work)


def test_get_purge_and_delete_answer_with_counts(uri: str, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue(q)
        await publish(channel, q, *(b"%d" % number for number in range(5)))
        message = await queue.get(timeout=LIMIT_S)
        assert (message.body, message.message_count) == (b"0", 4)
        assert (await channel.declare_queue(q, passive=True)).declaration_result.message_count in (0, 4)
        assert (await queue.purge()).message_count == 4
        with pytest.raises(aio_pika.exceptions.QueueEmpty):
            await queue.get(timeout=LIMIT_S)
        assert await queue.get(fail=False, timeout=LIMIT_S) is None
        await publish(channel, q, b"x")
        assert (await queue.delete(if_empty=False)).message_count == 1

    run(uri, work)


def test_a_consumer_of_higher_priority_is_served_first(uri: str, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        queue = await channel.declare_queue(q)
        low, high = Inbox(), Inbox()
        await queue.consume(low)
        await queue.consume(high, arguments={"x-priority": 10})
        await publish(channel, q, b"0", b"1")
        await low.wait_for(1)
        assert (high.bodies, low.bodies) == ([b"0"], [b"1"])

    run(uri, work)


def test_an_expired_message_is_dead_lettered_with_its_history(uri: str, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(f"{q}.dlx", "fanout")
        dead = await channel.declare_queue(f"{q}.dead")
        await dead.bind(exchange)
        await channel.declare_queue(q, arguments={"x-dead-letter-exchange": f"{q}.dlx"})
        inbox = Inbox()
        await dead.consume(inbox)
        await publish(channel, q, b"late", expiration=0.02)
        (message,) = await inbox.wait_for(1)
        assert (message.body, message.expiration) == (b"late", None)
        assert message.headers["x-first-death-reason"] == "expired"
        headers: Any = message.headers
        (death,) = headers["x-death"]
        assert isinstance(death.pop("time"), datetime.datetime)
        assert death == {
            "count": 1,
            "reason": "expired",
            "queue": q,
            "exchange": "",
            "routing-keys": [q],
            "original-expiration": "20",
        }

    run(uri, work)


def test_a_handler_that_fails_dead_letters_its_message(uri: str, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        dead = await channel.declare_queue(f"{q}.dead")
        arguments: Any = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
        queue = await channel.declare_queue(q, arguments=arguments)
        inbox = Inbox()
        await dead.consume(inbox)
        await publish(channel, q, b"bad")
        with pytest.raises(ZeroDivisionError):
            async with (await queue.get(timeout=LIMIT_S)).process():
                raise ZeroDivisionError
        (message,) = await inbox.wait_for(1)
        headers: Any = message.headers
        assert [death["reason"] for death in headers["x-death"]] == ["rejected"]

    run(uri, work)


def test_messages_of_higher_priority_overtake(uri: str, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue(q, arguments={"x-max-priority": 3})
        for priority in (0, 1, 2, 3):
            await publish(channel, q, b"%d" % priority, priority=priority)
        assert [(await queue.get(no_ack=True, timeout=LIMIT_S)).body for _ in range(4)] == [b"3", b"2", b"1", b"0"]

    run(uri, work)


def test_a_request_is_answered_over_direct_reply_to(uri: str, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        asker, answerer = await connection.channel(), await connection.channel()

        async def answer(message: AbstractIncomingMessage) -> None:
            assert message.reply_to is not None
            await publish(answerer, message.reply_to, message.body.upper(), correlation_id=message.correlation_id)

        await (await answerer.declare_queue(q)).consume(answer, no_ack=True)
        inbox = Inbox()
        await (await asker.get_queue(DIRECT_REPLY, ensure=False)).consume(inbox, no_ack=True)
        await publish(asker, q, b"how", reply_to=DIRECT_REPLY, correlation_id="1")
        (reply,) = await inbox.wait_for(1)
        assert (reply.body, reply.correlation_id) == (b"HOW", "1")

    run(uri, work)


def test_a_transaction_of_a_channel_commits_or_rolls_back(uri: str, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue(q)
        async with channel.transaction():
            await publish(channel, q, b"kept")
        transaction = channel.transaction()
        await transaction.select()
        await publish(channel, q, b"rolled back")
        await transaction.rollback()
        assert (await queue.get(no_ack=True, timeout=LIMIT_S)).body == b"kept"
        assert await queue.get(fail=False, timeout=LIMIT_S) is None

    run(uri, work)


# Values, names, sizes, numbers.


def test_headers_of_every_type_come_back_as_they_were(uri: str, q: str) -> None:
    headers: Any = {
        "bool": True,
        "small": -5,
        "large": 1 << 40,
        "text": "größe",
        "bytes": bytearray(b"\x00\xff"),
        "decimal": decimal.Decimal("3.14"),
        "float": 2.5,
        "time": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "nothing": None,
        "table": {"inner": {"deep": [1, "two", None]}},
        "list": [1, "two", True, {"three": 3}],
    }

    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue(q)
        await publish(channel, q, b"", headers=dict(headers))
        assert (await queue.get(no_ack=True, timeout=LIMIT_S)).headers == headers

    run(uri, work)


def test_large_messages_and_unicode_keys(uri: str, q: str) -> None:
    # Keys only: aio-pika itself refuses names of queues and exchanges that are not ASCII.
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        exchange = await channel.declare_exchange(q, "topic")
        queue = await channel.declare_queue(q)
        await queue.bind(exchange, "schlüssel.*")
        for body in (b"", b"\xce" * 4_000_000):
            await exchange.publish(aio_pika.Message(body), "schlüssel.钥匙", mandatory=True)
            message = await queue.get(no_ack=True, timeout=LIMIT_S)
            assert (message.body, message.routing_key) == (body, "schlüssel.钥匙")

    run(uri, work)


def test_many_channels_of_one_connection(uri: str, q: str) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        async def one(number: int) -> bytes:
            channel = await connection.channel()
            queue = await channel.declare_queue(f"{q}.{number}", exclusive=True)
            await publish(channel, queue.name, b"%d" % number)
            return (await queue.get(no_ack=True, timeout=LIMIT_S)).body

        assert await asyncio.gather(*(one(number) for number in range(100))) == [
            b"%d" % number for number in range(100)
        ]

    run(uri, work)


def test_a_broker_that_is_away_refuses_connections(target: Target, uri: str) -> None:
    target.kill()

    async def work() -> None:
        with pytest.raises(ConnectionError):
            await aio_pika.connect_robust(uri)

    asyncio.run(asyncio.wait_for(work(), LIMIT_S))

"""aio-pika: robust connections, confirms, iterators and the RPC pattern."""

from __future__ import annotations

import asyncio
import datetime
import decimal
from collections.abc import Callable, Coroutine
from typing import Any

import aio_pika
import aiormq.exceptions
import pytest
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage, AbstractRobustConnection
from aio_pika.patterns import RPC, Master

from tests.wire.live import LiveBroker
from tests.wire.waiting import LIMIT_S

Work = Callable[[AbstractRobustConnection], Coroutine[Any, Any, None]]


def run(broker: LiveBroker, work: Work, **parameters: Any) -> None:
    """Run this with a robust connection to the broker."""

    async def connected() -> None:
        connection = await aio_pika.connect_robust(broker.uri, **parameters)
        async with asyncio.timeout(LIMIT_S), connection:
            await work(connection)

    asyncio.run(connected())


async def publish(channel: AbstractChannel, queue: str, *bodies: bytes) -> None:
    for body in bodies:
        await channel.default_exchange.publish(aio_pika.Message(body), queue)


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_a_message_goes_through_every_type_of_exchange(broker: LiveBroker) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        red: Any = {"x-match": "all", "colour": "red"}
        for kind, key, arguments in (
            ("direct", "k", None),
            ("fanout", "", None),
            ("topic", "a.#", None),
            ("headers", "", red),
        ):
            exchange = await channel.declare_exchange(f"x-{kind}", kind, auto_delete=True)
            queue = await channel.declare_queue(f"q-{kind}", auto_delete=True)
            await queue.bind(exchange, key, arguments=arguments)
            message = aio_pika.Message(kind.encode(), headers={"colour": "red"})
            await exchange.publish(message, "a.b" if kind == "topic" else key)
            got = await queue.get(timeout=LIMIT_S)
            assert got.body == kind.encode()
            await got.ack()
            await queue.unbind(exchange, key, arguments=arguments)

    run(broker, work)


def test_a_publish_waits_for_its_confirm_and_an_unroutable_one_is_returned(broker: LiveBroker) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel(on_return_raises=True)
        queue = await channel.declare_queue("q")
        confirmed = await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")
        assert type(confirmed).__name__ == "Ack"
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await channel.default_exchange.publish(aio_pika.Message(b"lost"), "nowhere", mandatory=True)
        assert (await queue.get(timeout=LIMIT_S)).body == b"x"

    run(broker, work)


def test_a_thousand_publishes_at_once_are_all_confirmed(broker: LiveBroker) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        await channel.declare_queue("q")
        await asyncio.gather(
            *(channel.default_exchange.publish(aio_pika.Message(body), "q") for body in numbered(1000))
        )
        assert broker.count("q") == 1000

    run(broker, work)


def test_confirms_of_routed_and_returned_messages_mix(broker: LiveBroker) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel(on_return_raises=True)
        await channel.declare_queue("q")
        outcomes = await asyncio.gather(
            *(
                channel.default_exchange.publish(
                    aio_pika.Message(body, message_id=body.decode()), "q" if number % 2 else "nowhere"
                )
                for number, body in enumerate(numbered(200))
            ),
            return_exceptions=True,
        )
        for number, outcome in enumerate(outcomes):
            assert isinstance(outcome, aio_pika.exceptions.DeliveryError) == (number % 2 == 0)
        assert broker.count("q") == 100

    run(broker, work)


def test_an_iterator_gets_every_message_once_in_order(broker: LiveBroker) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=10)
        queue = await channel.declare_queue("q")
        await publish(channel, "q", *numbered(100))
        got = []
        async with queue.iterator() as messages:
            async for message in messages:
                async with message.process():
                    got.append(message.body)
                if len(got) == 100:
                    break
        assert got == numbered(100)
        assert (await channel.declare_queue("q", passive=True)).declaration_result.message_count == 0

    run(broker, work)


def test_a_message_whose_handler_fails_is_requeued_or_rejected(broker: LiveBroker) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        await publish(channel, "q", b"x")
        for redelivered in (False, True):
            message = await queue.get(timeout=LIMIT_S)
            assert message.redelivered is redelivered
            with pytest.raises(ZeroDivisionError):
                async with message.process(requeue=not redelivered):
                    raise ZeroDivisionError
        assert await queue.get(fail=False, timeout=LIMIT_S) is None

    run(broker, work)


def test_ack_nack_and_reject_of_several(broker: LiveBroker) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        await publish(channel, "q", *numbered(6))
        taken = [await queue.get(timeout=LIMIT_S) for _ in range(6)]
        await taken[1].ack(multiple=True)
        await taken[3].nack(multiple=True, requeue=True)
        await taken[4].reject(requeue=False)
        await taken[5].reject(requeue=True)
        again = [await queue.get(timeout=LIMIT_S) for _ in range(3)]
        assert [(message.body, message.redelivered) for message in again] == [(b"2", True), (b"3", True), (b"5", True)]

    run(broker, work)


def test_prefetch_bounds_what_a_consumer_holds(broker: LiveBroker) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        for is_global in (False, True):
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=3, global_=is_global)
            queue = await channel.declare_queue("", exclusive=True)
            await publish(channel, queue.name, *numbered(10))
            held: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
            await queue.consume(held.put)
            first = [await held.get() for _ in range(3)]
            await channel.declare_queue("", exclusive=True)  # a round trip: what would have come is here
            assert held.empty()
            await first[0].ack()
            assert (await held.get()).body == b"3"
            await channel.close()

    run(broker, work)


def test_a_cancelled_consumer_gets_no_more(broker: LiveBroker) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        held: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        tag = await queue.consume(held.put, no_ack=True)
        await publish(channel, "q", b"one")
        assert (await held.get()).body == b"one"
        await queue.cancel(tag)
        await publish(channel, "q", b"two")
        assert held.empty()
        assert broker.count("q") == 1

    run(broker, work)


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 10_000_000])
def test_a_body_of_any_size_arrives_whole(broker: LiveBroker, size: int) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        body = (b"0123456789abcdef" * (size // 16 + 1))[:size]
        await publish(channel, queue.name, body)
        assert (await queue.get(timeout=LIMIT_S)).body == body

    run(broker, work)


def test_properties_and_headers_of_every_type_arrive_unchanged(broker: LiveBroker) -> None:
    headers: dict[str, Any] = {
        "bool": True,
        "int": -5,
        "long": 1 << 40,
        "string": "größe",
        "bytes": bytearray(b"\x00\xff"),
        "decimal": decimal.Decimal("3.14"),
        "float": 2.5,
        "time": datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        "nothing": None,
        "table": {"inner": {"deep": [1, "two", None, {"three": 3}]}},
        "list": [1, "two", True, None, [2.5]],
    }

    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        queue = await channel.declare_queue("q")
        sent = aio_pika.Message(
            b"x",
            headers=dict(headers),
            content_type="text/plain",
            content_encoding="utf-8",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            priority=3,
            correlation_id="correlation",
            reply_to="reply",
            expiration=60,
            message_id="message",
            timestamp=datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
            type="type",
            user_id="guest",
            app_id="app",
        )
        await channel.default_exchange.publish(sent, "q")
        got = await queue.get(timeout=LIMIT_S)
        for name, value in headers.items():
            assert got.headers[name] == value, name
        received: dict[str, Any] = dict(got.info())
        for name, value in sent.info().items():
            if name != "headers" and value is not None:
                assert received[name] == value, name

    run(broker, work)


def test_rpc_calls_are_answered_and_errors_come_back(broker: LiveBroker) -> None:
    async def multiply(*, x: int, y: int) -> int:
        return x * y

    async def fail() -> None:
        raise ValueError("on purpose")

    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        rpc = await RPC.create(channel)
        await rpc.register("multiply", multiply, auto_delete=True)
        await rpc.register("fail", fail, auto_delete=True)
        products = await asyncio.gather(*(rpc.call("multiply", {"x": x, "y": 3}) for x in range(50)))
        assert products == [x * 3 for x in range(50)]
        with pytest.raises(ValueError, match="on purpose"):
            await rpc.call("fail")
        await rpc.close()

    run(broker, work)


def test_a_master_gives_tasks_to_workers(broker: LiveBroker) -> None:
    done: list[int] = []

    async def work(connection: AbstractRobustConnection) -> None:
        all_done = asyncio.Event()

        async def handle(*, number: int) -> None:
            done.append(number)
            if len(done) == 30:
                all_done.set()

        channel = await connection.channel()
        await channel.set_qos(prefetch_count=1)
        master = Master(channel)
        workers = [await master.create_worker("tasks", handle, auto_delete=True) for _ in range(3)]
        for number in range(30):
            await master.create_task("tasks", {"number": number})
        await all_done.wait()
        for worker in workers:
            await worker.close()

    run(broker, work)
    assert sorted(done) == list(range(30))


def test_errors_close_the_channel_with_the_right_exception(broker: LiveBroker) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        async with await aio_pika.connect(broker.uri) as owner:
            await (await owner.channel()).declare_queue("locked", exclusive=True)
            await (await owner.channel()).declare_queue("plain")
            for expected, text, use in (
                (aiormq.exceptions.ChannelNotFoundEntity, "no queue 'nope'", ("nope", {"passive": True})),
                (aiormq.exceptions.ChannelLockedResource, "cannot obtain exclusive access", ("locked", {})),
                (aiormq.exceptions.ChannelPreconditionFailed, "inequivalent arg", ("plain", {"durable": True})),
                (aiormq.exceptions.ChannelAccessRefused, "contains reserved prefix", ("amq.mine", {})),
            ):
                name, arguments = use
                async with await aio_pika.connect(broker.uri) as other:
                    channel = await other.channel()
                    with pytest.raises(expected, match=text):
                        await channel.declare_queue(name, **arguments)  # type: ignore[arg-type]

    run(broker, work)


def test_a_wrong_password_is_refused(broker: LiveBroker) -> None:
    async def connect() -> None:
        await aio_pika.connect(host="127.0.0.1", port=broker.port, login="guest", password="wrong")

    with pytest.raises(aiormq.exceptions.ProbableAuthenticationError, match="ACCESS_REFUSED"):
        asyncio.run(connect())


def test_a_robust_connection_comes_back_with_its_queues_bindings_and_consumers(broker: LiveBroker) -> None:
    async def work(connection: AbstractRobustConnection) -> None:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("x", "direct", auto_delete=True)
        queue = await channel.declare_queue("mine", exclusive=True)
        await queue.bind(exchange, "k")
        held: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        await queue.consume(held.put, no_ack=True)
        back = asyncio.Event()
        connection.reconnect_callbacks.add(lambda *_: back.set())
        await asyncio.to_thread(broker.cut_all)
        await back.wait()
        await exchange.publish(aio_pika.Message(b"after"), "k")
        assert (await held.get()).body == b"after"

    run(broker, work, reconnect_interval=0.05)


def test_an_idle_connection_with_a_short_heartbeat_stays_open(broker: LiveBroker) -> None:
    async def work() -> None:
        async with await aio_pika.connect(f"{broker.uri}?heartbeat=1") as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            # Three intervals without a word: longer than either side waits for a silent peer.
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3):
                    await connection.closed()
            await publish(channel, "q", b"still here")
            assert (await queue.get(timeout=LIMIT_S)).body == b"still here"

    asyncio.run(work())

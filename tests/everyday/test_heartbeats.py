"""Heartbeats with every library: they keep an idle connection, and a client without them is dropped.

All libraries at the same time, each over a cable of its own: a heartbeat cannot be hurried.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import aio_pika
import aiormq.exceptions
import pika
import pika.exceptions
import pytest
from kombu.connection import Connection

from tests.everyday.cable import Cable
from tests.everyday.callbacks import Callbacks
from tests.everyday.conftest import SomebodyElse
from tests.everyday.targets import Target
from tests.everyday.test_amqplib import run_node
from tests.wire.waiting import wait_until

INTERVAL_S = 2  # a busy machine may forget about a client for two of them, and a second is soon over
NOTICE_S = 60  # three intervals, and a busy machine

# Stays idle until the function says that it was long enough, then works.
Idle = Callable[[Cable, str, Callable[[], bool]], None]
# Declares the exclusive queue, falls silent, and sees the connection end.
Fade = Callable[[Cable, str], None]


def idle_blocking(cable: Cable, q: str, enough: Callable[[], bool]) -> None:
    with pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", cable.port, heartbeat=INTERVAL_S)
    ) as connection:
        while not enough():
            connection.process_data_events(0.1)
        connection.channel().queue_declare(q, exclusive=True)


def idle_select(cable: Cable, q: str, enough: Callable[[], bool]) -> None:
    connection = Callbacks(cable.port, heartbeat=INTERVAL_S).opened()
    wait_until(enough, NOTICE_S)
    connection.channel().ask("queue_declare", q, exclusive=True)
    connection.close()


def idle_aio_pika(cable: Cable, q: str, enough: Callable[[], bool]) -> None:
    async def work() -> None:
        async with await aio_pika.connect(f"{cable.uri}?heartbeat={INTERVAL_S}") as connection:
            channel = await connection.channel()
            while not enough():
                await asyncio.sleep(0.05)
            await channel.declare_queue(q, exclusive=True)

    asyncio.run(work())


def idle_kombu(cable: Cable, q: str, enough: Callable[[], bool]) -> None:
    with Connection(cable.uri, heartbeat=INTERVAL_S) as connection:
        connection.connect()
        while not enough():
            pump_kombu(connection)
        connection.default_channel.queue_declare(q, exclusive=True)


def idle_amqplib(cable: Cable, q: str, enough: Callable[[], bool]) -> None:
    duties = {"idle": lambda: wait_until(enough, NOTICE_S)}
    run_node(cable.uri, q, "heartbeats keep an idle connection", duties=duties)


def pump_kombu(connection: Connection) -> bool:
    """What a program with kombu has to do itself: read, and look at the heartbeats, more than once per interval."""
    connection.heartbeat_check(rate=4)
    try:
        connection.drain_events(timeout=0.25)
    except TimeoutError:
        pass  # an idle connection, as meant
    return False


def fade_blocking(cable: Cable, q: str) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", cable.port, heartbeat=INTERVAL_S))
    connection.channel().queue_declare(q, exclusive=True)
    cable.lose_what_the_client_sends()
    with pytest.raises(pika.exceptions.StreamLostError):
        connection.process_data_events(NOTICE_S)


def fade_select(cable: Cable, q: str) -> None:
    connection = Callbacks(cable.port, heartbeat=INTERVAL_S).opened()
    connection.channel().ask("queue_declare", q, exclusive=True)
    cable.lose_what_the_client_sends()
    assert isinstance(connection.ended(), pika.exceptions.StreamLostError)
    connection.close()


def fade_aio_pika(cable: Cable, q: str) -> None:
    async def work() -> None:
        connection = await aio_pika.connect(f"{cable.uri}?heartbeat={INTERVAL_S}")
        lost: asyncio.Queue[BaseException | None] = asyncio.Queue()
        connection.close_callbacks.add(lambda _sender, reason: lost.put_nowait(reason))
        channel = await connection.channel()
        await channel.declare_queue(q, exclusive=True)
        cable.lose_what_the_client_sends()
        reason = await asyncio.wait_for(lost.get(), NOTICE_S)
        assert isinstance(reason, aiormq.exceptions.AMQPConnectionError), repr(reason)
        await connection.close()

    asyncio.run(work())


def fade_kombu(cable: Cable, q: str) -> None:
    connection = Connection(cable.uri, heartbeat=INTERVAL_S)
    connection.default_channel.queue_declare(q, exclusive=True)
    cable.lose_what_the_client_sends()
    with pytest.raises(OSError, match=r"reset|closed"):
        wait_until(lambda: pump_kombu(connection), NOTICE_S)
    connection.collect()


def fade_amqplib(cable: Cable, q: str) -> None:
    duties = {"fall silent": cable.lose_what_the_client_sends}
    run_node(cable.uri, q, "a silent connection is dropped", duties=duties)


def test_heartbeats_keep_idle_connections_of_every_library(target: Target, q: str) -> None:
    started = time.monotonic()

    def keep(idle: Idle) -> None:
        with Cable(target.port) as cable:

            def enough() -> bool:
                # More than two intervals without a word, which only heartbeats from both sides can bridge.
                return time.monotonic() > started + 3 * INTERVAL_S and min(cable.heartbeats.values()) >= 2

            idle(cable, f"{q}.{idle.__name__}", enough)

    everyone = (idle_blocking, idle_select, idle_aio_pika, idle_kombu, idle_amqplib)
    with ThreadPoolExecutor(len(everyone)) as pool:
        for outcome in [pool.submit(keep, idle) for idle in everyone]:
            outcome.result()


def test_a_client_of_whom_nothing_is_heard_is_dropped(target: Target, other: SomebodyElse, q: str) -> None:
    def lose(fade: Fade) -> float:
        with Cable(target.port) as cable:
            started = time.monotonic()
            fade(cable, f"{q}.{fade.__name__}")
            took_s = time.monotonic() - started
        wait_until(lambda: other.exclusive_is_gone(f"{q}.{fade.__name__}"), NOTICE_S)
        return took_s

    everyone = (fade_blocking, fade_select, fade_aio_pika, fade_kombu, fade_amqplib)
    with ThreadPoolExecutor(len(everyone)) as pool:
        for outcome in [pool.submit(lose, fade) for fade in everyone]:
            assert outcome.result() >= 2 * INTERVAL_S

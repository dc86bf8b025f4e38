"""What connections cost, and that nothing of them is left: counted in objects and in resident memory."""

from __future__ import annotations

import gc
import resource
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from penstock.amqp.decoder import Decoder
from penstock.amqp.method import (
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    ChannelClose,
    ChannelCloseOk,
    QueueDeclare,
    QueueDeclareOk,
)
from penstock.broker.channel import Channel
from penstock.broker.consumer import Consumer
from penstock.broker.outbox import Outbox
from penstock.broker.queue import Queue
from penstock.credit import Link
from penstock.net.connection import Connection
from penstock.net.reader import Reader
from penstock.net.writer import Writer
from penstock.runtime import Mailbox
from tests.wire.live import LiveBroker, ServeProcess
from tests.wire.raw import RawClient
from tests.wire.waiting import wait_until

OURS = (Connection, Decoder, Reader, Writer, Outbox, Channel, Consumer, Link, Mailbox, Queue)
IDLE_CONNECTIONS = 2000
IDLE_BYTES_MAX = 60 * 1024  # a connection with a channel open


def living() -> Counter[str]:
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, OURS))


def open_and_close(port: int, number: int) -> None:
    with RawClient(port).handshake() as client:
        for channel in range(1, 6):
            client.open(channel)
            queue = client.ask(QueueDeclare(exclusive=True), QueueDeclareOk, channel).queue
            client.ask(BasicConsume(queue, no_ack=bool(number % 2)), BasicConsumeOk, channel)
            client.publish(queue, b"x", channel=channel)
            client.expect(BasicDeliver, channel)
            client.read_content(channel)
            if number % 3:
                client.ask(ChannelClose(200, "", 0, 0), ChannelCloseOk, channel)
        if number % 5:
            client.close()


def test_a_hundred_connections_that_open_and_close_channels_at_once_leave_nothing(broker: LiveBroker) -> None:
    gc.collect()
    gc.disable()  # what is left must go by itself: the collector comes late when there are many messages
    before = broker.call(living)
    try:
        with ThreadPoolExecutor(100) as threads:
            for done in [threads.submit(open_and_close, broker.port, number) for number in range(100)]:
                done.result()
        wait_until(lambda: not broker.call(broker.connections))
        wait_until(lambda: broker.call(living) == before, what=f"{before}")
    finally:
        gc.enable()


@pytest.mark.parametrize("end", ["close", "cut"])
def test_a_connection_that_ends_with_consumers_and_unacked_messages_leaves_nothing(
    broker: LiveBroker, end: str
) -> None:
    with RawClient(broker.port).handshake() as keeper:
        keeper.open()
        keeper.ask(QueueDeclare("q"), QueueDeclareOk)
        gc.collect()
        gc.disable()
        before = broker.call(living)
        try:
            for _ in range(3):
                with RawClient(broker.port).handshake() as client:
                    client.open()
                    client.ask(QueueDeclare("mine", exclusive=True), QueueDeclareOk)
                    client.publish("q", b"x" * 1000)
                    client.ask(BasicConsume("q"), BasicConsumeOk)
                    client.expect(BasicDeliver)
                    if end == "close":
                        client.close()
            wait_until(lambda: broker.call(living) == before, what=f"{before}")
        finally:
            gc.enable()
        assert broker.count("q") == 3


def test_2000_idle_connections_cost_less_than_60_kb_each(serve_process: Callable[..., ServeProcess]) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # the usual limit of 1024 may be raised by anybody
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    process = serve_process("--set", "log.level=warning")
    memory = psutil.Process(process.process.pid).memory_info
    clients = []
    try:
        with RawClient(process.port).handshake() as first:
            first.open()
        before = memory().rss
        for _ in range(IDLE_CONNECTIONS):
            client = RawClient(process.port).handshake()
            client.open()
            clients.append(client)
        cost = (memory().rss - before) / IDLE_CONNECTIONS
    finally:
        for client in clients:
            client.close_socket()
    assert cost < IDLE_BYTES_MAX

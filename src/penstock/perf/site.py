"""Site: where one run takes place. It declares objects under a name of its own and deletes them, whatever happens.

Upstream: scenario.py says what is needed.  Downstream: the broker, by penstock.client; the workers of load.py.
Not here: the loops (load.py).
"""

import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from penstock.amqp.method import (
    BasicConsume,
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
    ExchangeDelete,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    encode_method,
)
from penstock.amqp.properties import TRANSIENT, Properties
from penstock.amqp.table import Table
from penstock.client.connection import Channel, ClientError, Connection
from penstock.client.uri import Uri
from penstock.perf.block import Block, block, block_messages, numbered_body, publish
from penstock.perf.cpu import per_message_us, used_s
from penstock.perf.figure import Figure
from penstock.perf.interrupt import uninterrupted
from penstock.perf.load import ConfirmedPublisher, Consumer, LoadError, Publisher, Worker, check

PREFETCH = 1000  # RabbitMQ and LavinMQ gain nothing above it
BATCH = 100  # messages a consumer acks at once
WAKE = 200  # deliveries a consumer sleeps for: two acks in one send, a fifth of the prefetch
WAKE_UNACKED = 500  # without acks nothing waits for the consumer
POLL_S = 0.002
START_TIMEOUT_S = 20


@dataclass(frozen=True, slots=True)
class Reading:
    """Clocks at one moment."""

    at_s: float
    broker_s: float | None
    load_s: float


class Site:
    """Use it in a with-statement: on leaving, connections are closed and all that was declared is deleted."""

    __slots__ = (
        "_admin",
        "_channels",
        "_exchanges",
        "_queues",
        "_workers",
        "body_bytes",
        "name",
        "pid",
        "seconds",
        "uri",
    )

    def __init__(self, uri: Uri, pid: int | None, seconds: float, body_bytes: int) -> None:
        self.uri = uri
        self.pid = pid
        self.seconds = seconds
        self.body_bytes = body_bytes
        self.name = f"perf.{os.getpid()}.{secrets.token_hex(4)}"
        self._queues: list[str] = []
        self._exchanges: list[str] = []
        self._channels: list[Channel] = []
        self._workers: list[Worker] = []

    def __enter__(self) -> Self:
        self._admin = self.channel()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                for worker in self._workers:
                    worker.settle()
        finally:
            with uninterrupted():
                self._leave(quiet=error is not None)

    def queues(self, count: int, durable: bool = False, arguments: Table | None = None) -> list[str]:
        names = [f"{self.name}.{len(self._queues) + index:04d}" for index in range(count)]
        self._queues += names
        found = arguments or {}
        declares = [QueueDeclare(name, durable=durable, nowait=True, arguments=found) for name in names]
        self._send_all(self._admin, declares)
        return names

    def exchange(self, kind: str) -> str:
        self._exchanges.append(self.name)
        self._send_all(self._admin, [ExchangeDeclare(self.name, kind, nowait=True)])
        return self.name

    def bind(self, queues: Sequence[str], exchange: str, keys: Sequence[str]) -> None:
        pairs = zip(queues, keys, strict=True)
        self._send_all(self._admin, [QueueBind(queue, exchange, key, nowait=True) for queue, key in pairs])

    def message_count(self, queue: str) -> int:
        return self._admin.call(QueueDeclare(queue, passive=True), QueueDeclareOk).message_count

    def channel(self) -> Channel:
        """A channel on a connection of its own."""
        channel = Connection.connect(self.uri).open_channel()
        self._channels.append(channel)
        return channel

    def consumer(
        self, queues: Sequence[str], batch: int = BATCH, wake: int = WAKE, prefetch: int = PREFETCH
    ) -> Consumer:
        """A consumer of these queues on one channel, not started yet; without acks when batch is 0."""
        channel = self.channel()
        if batch:
            channel.call(BasicQos(prefetch_count=prefetch), BasicQosOk)
        consumer = Consumer(channel, self.body_bytes, batch, wake)
        self._workers.append(consumer)
        self.consume(consumer, queues)
        return consumer

    def consume(self, consumer: Consumer, queues: Sequence[str]) -> None:
        channel, no_ack = consumer.channel, not consumer.batch
        # Tags of one length: every delivery must have the same size.
        consumes = [BasicConsume(name, f"{n:04d}", no_ack=no_ack, nowait=True) for n, name in enumerate(queues)]
        channel.connection.send(b"".join(encode_method(method, channel.number) for method in consumes))

    def publisher(self, exchange: str, key: str, limit: int | None = None, delivery_mode: int = TRANSIENT) -> Publisher:
        """A publisher of messages that differ in their bodies only, not started yet."""
        channel = self.channel()
        properties = Properties(delivery_mode=delivery_mode)
        count = block_messages(len(self.message(channel, exchange, key, properties)))
        messages = (self.message(channel, exchange, key, properties, number) for number in range(count))
        return self.publisher_of(channel, [block(messages)], limit)

    def publisher_of(self, channel: Channel, blocks: Sequence[Block], limit: int | None = None) -> Publisher:
        publisher = Publisher(channel, blocks, limit)
        self._workers.append(publisher)
        return publisher

    def confirmed_publisher(self, keys: Sequence[str], window: int, delivery_mode: int) -> ConfirmedPublisher:
        """A publisher to the queues of these names in turn, not started yet."""
        channel = self.channel()
        channel.call(ConfirmSelect(), ConfirmSelectOk)
        properties = Properties(delivery_mode=delivery_mode)
        # A tenth of the window at a time: the broker has always something to do while confirms travel.
        count = min(max(1, window // 10), block_messages(len(self.message(channel, "", keys[0], properties))))
        count = max(count, len(keys))
        messages = (self.message(channel, "", keys[n % len(keys)], properties, n) for n in range(count))
        publisher = ConfirmedPublisher(channel, [block(messages)], window)
        self._workers.append(publisher)
        return publisher

    def message(
        self, channel: Channel, exchange: str, key: str, properties: Properties | None = None, number: int = 0
    ) -> bytes:
        found = properties or Properties(delivery_mode=TRANSIENT)
        body = numbered_body(number, self.body_bytes)
        return publish(exchange, key, found, body, channel.connection.frame_max, channel.number)

    def start(self, publishers: Sequence[Publisher], consumers: Sequence[Consumer]) -> None:
        """Start all, and wait until each consumer has got something."""
        for worker in (*consumers, *publishers):
            worker.start()
        deadline = time.monotonic() + START_TIMEOUT_S
        while not all(consumer.received for consumer in consumers):
            check([*publishers, *consumers])
            if time.monotonic() > deadline:
                raise LoadError(f"a consumer got nothing for {START_TIMEOUT_S} s")
            time.sleep(POLL_S)

    def read_clocks(self) -> Reading:
        return Reading(time.perf_counter(), used_s(self.pid), time.process_time())

    def rate(self, label: str, unit: str, start: Reading, end: Reading, messages: int, amount: float) -> Figure:
        """The figure for `amount` of a unit, and so many messages, between two readings."""
        if messages <= 0:
            raise LoadError("not one message in the time that was measured")
        cpu_us = per_message_us(start.broker_s, end.broker_s, messages)
        load_us = (end.load_s - start.load_s) * 1e6 / messages
        return Figure(label, amount / (end.at_s - start.at_s), unit, cpu_us, load_us)

    def _send_all(self, channel: Channel, methods: Sequence[Method]) -> None:
        """Many methods without replies in one send, then a question: its answer means they are done."""
        with uninterrupted():
            channel.connection.send(b"".join(encode_method(method, channel.number) for method in methods))
            channel.call(BasicQos(), BasicQosOk)

    def _leave(self, quiet: bool) -> None:
        """End all threads, close all sockets, delete all objects. Quiet: an error before this one tells more."""
        for worker in self._workers:
            worker.abort()
        for channel in self._channels:
            channel.connection.socket.close()
        try:
            self._delete_all()
        except LoadError:
            if not quiet:
                raise

    def _delete_all(self) -> None:
        """On a new connection: the old one may be broken, which is perhaps why we are here."""
        methods: list[Method] = [QueueDelete(name, nowait=True) for name in self._queues]
        methods += [ExchangeDelete(name, nowait=True) for name in self._exchanges]
        if not methods:
            return
        try:
            with Connection.connect(self.uri) as connection:
                self._send_all(connection.open_channel(), methods)
        except ClientError as error:
            raise LoadError(f"what was declared as {self.name}.* could not be deleted: {error}") from None

"""Ten million messages in a queue: how much memory, how fast, in order? And how long is a start with a million?

Fills durable queues with persistent messages of 100 bytes, with confirms; drains them with acks and checks every
message's number on the way; watches the broker's resident memory all the time. With --restart: fills again, stops the
broker, starts it on the same directory, and times its ready line and the first delivery. `--queues 20` spreads the
messages over queues, which are then drained all at once.
Not here: RabbitMQ beside it at a size that fits into a run (`penstock perf backlog drain-disk`, compare.py).
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from brokers import PENSTOCK, RABBITMQ, Running, end_with_us, fail, running, running_penstock

from penstock.amqp.method import (
    BasicConsume,
    BasicConsumeOk,
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
)
from penstock.amqp.properties import PERSISTENT, Properties
from penstock.client.connection import Channel, ClientError, Connection
from penstock.client.uri import parse_uri
from penstock.perf.block import Block, NotADelivery, acks, delivery_bytes
from penstock.perf.load import STALL_S, ConfirmedPublisher, LoadError, Worker, check, set_timeouts
from penstock.perf.memory import MemoryWatch, resident_bytes
from penstock.perf.rabbitmq import NotInstalled, NotStarted
from penstock.perf.sequence import Blocks, Order

MESSAGES = 10_000_000
RESTART_MESSAGES = 1_000_000
BODY_BYTES = 100
BLOCK_MESSAGES = 500
WINDOW = 10_000  # deep enough that the client is never what is waited for
PREFETCH = 2000
BATCH = 200  # messages acked at once, or a block if that is more
RING_BLOCKS_BYTES = 1 << 20
SHOW_S = 1.0
MEGABYTE = 1e6


class SequencePublisher(ConfirmedPublisher):
    """Sends each block of a sequence once."""

    def __init__(self, channel: Channel, blocks: Blocks, count: int) -> None:
        super().__init__(channel, (), WINDOW)
        self.sequence = blocks
        self.count = count

    def supply(self) -> Iterator[Block]:
        return map(self.sequence.block, range(self.count))


class OrderedConsumer(Worker):
    """Takes all of a queue with acks. Every delivery must be the one whose turn it is."""

    def __init__(self, channel: Channel, places: int, blocks: int) -> None:
        super().__init__(channel)
        self.places = places
        self.blocks = blocks
        self.received = 0
        self.first_s = 0.0  # on time.perf_counter's clock: when the first delivery was whole

    def work(self) -> None:
        set_timeouts(self.socket, STALL_S)
        start = bytearray(self.channel.connection.take_unread())
        while not delivery_bytes(start):
            start += self._recv()
        self.first_s = time.perf_counter()
        order = Order(bytes(start), self.places)
        block_bytes, batch = order.block_bytes, max(BATCH, self.places)
        held = start
        acked = 0
        while order.checked < self.blocks:
            whole = len(held) // block_bytes
            view = memoryview(held)
            for number in range(whole):
                order.check(view[number * block_bytes : (number + 1) * block_bytes])
            view.release()
            del held[: whole * block_bytes]
            # Deliveries of a block that is not whole are not checked yet, but count: the prefetch must never run dry.
            self.received = order.checked * self.places + len(held) // order.size
            if self.received - acked >= batch:
                frames, acked = acks(acked, self.received, batch)
                self.socket.sendall(frames)
            if order.checked < self.blocks:
                held += self._recv()
        if held:
            raise LoadError(f"{len(held)} bytes came after the last delivery that was due")
        if acked < self.received:
            self.socket.sendall(acks(acked, self.received, self.received - acked)[0])

    def _recv(self) -> bytes:
        try:
            found = self.socket.recv(RING_BLOCKS_BYTES)
        except BlockingIOError:
            raise LoadError(f"no delivery for {STALL_S} s after {self.received}") from None
        if not found:
            raise LoadError("the broker closed the connection")
        return found


class Backlog:
    """Queues of one broker, filled and drained. Names stay the same, so that another start finds them."""

    def __init__(self, broker: Running, messages: int, queues: int) -> None:
        self.broker = broker
        self.names = [f"backlog.{number:04d}" for number in range(queues)]
        self.places = max(1, BLOCK_MESSAGES // queues)
        self.blocks = max(1, messages // (self.places * queues))
        self.messages = self.blocks * self.places * queues

    def fill(self) -> None:
        with self._connection() as connection:
            channel = connection.open_channel()
            for name in self.names:
                channel.call(QueueDeclare(name, durable=True), QueueDeclareOk)
            channel.call(ConfirmSelect(), ConfirmSelectOk)
            properties = Properties(delivery_mode=PERSISTENT)
            blocks = Blocks(self.names, self.places, BODY_BYTES, properties, connection.frame_max)
            publisher = SequencePublisher(channel, blocks, self.blocks)
            with self._told("fill", lambda: publisher.confirmed):
                self._run([publisher], lambda: publisher.confirmed, "filled")

    def drain(self, what: str = "drain") -> float:
        """All messages, checked; when the first was delivered, on time.perf_counter's clock."""
        with ExitStack() as stack:
            connections = [stack.enter_context(self._connection()) for _ in self.names]
            consumers = []
            for name, connection in zip(self.names, connections, strict=True):
                channel = connection.open_channel()
                channel.call(BasicQos(prefetch_count=PREFETCH), BasicQosOk)
                consumers.append(OrderedConsumer(channel, self.places, self.blocks))
                channel.call(BasicConsume(name, "t"), BasicConsumeOk)
            with self._told(what, lambda: sum(consumer.received for consumer in consumers)):
                self._run(consumers, lambda: sum(consumer.received for consumer in consumers), "drained")
            for consumer in consumers:
                consumer.settle()
        return min(consumer.first_s for consumer in consumers)

    def left(self) -> int:
        with self._connection() as connection:
            channel = connection.open_channel()
            return sum(
                channel.call(QueueDeclare(name, passive=True), QueueDeclareOk).message_count for name in self.names
            )

    def _connection(self) -> Connection:
        return Connection.connect(parse_uri(self.broker.uri))

    @contextmanager
    def _told(self, what: str, count: Callable[[], int]) -> Iterator[None]:
        """Rate, and the broker's memory while it lasted, as a line on stdout."""
        begun_s = time.perf_counter()
        with MemoryWatch(self.broker.pid) as watch:
            yield
        taken_s = time.perf_counter() - begun_s
        if count() != self.messages:
            raise LoadError(f"{what}: {count()} messages, {self.messages} were due")
        now = resident_bytes(self.broker.pid) / MEGABYTE
        print(
            f"{what}: {self.messages:,} messages, {len(self.names)} queues, {taken_s:.1f} s, "
            f"{self.messages / taken_s:,.0f} msg/s; resident at most {watch.highest_bytes / MEGABYTE:.0f} MB, "
            f"at the end {now:.0f} MB",
            flush=True,
        )

    def _run(self, workers: Sequence[Worker], count: Callable[[], int], word: str) -> None:
        """Start them, show how far they are, and wait for their end."""
        for worker in workers:
            worker.start()
        try:
            while any(worker.is_alive() for worker in workers):
                show_s = time.monotonic() + SHOW_S
                for worker in workers:
                    worker.join(max(0.0, show_s - time.monotonic()))
                check(workers)
                memory = resident_bytes(self.broker.pid) / MEGABYTE
                self._show(f"{word} {count():,} of {self.messages:,}, {memory:.0f} MB")
        finally:
            self._show("")
            if any(worker.is_alive() for worker in workers):
                for worker in workers:
                    worker.abort()

    @staticmethod
    def _show(text: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif text:
            print(text, file=sys.stderr, flush=True)


def fill_and_drain(broker: str, messages: int, queues: int) -> None:
    with running(broker, {}) as found:
        print(f"{broker}: resident {resident_bytes(found.pid) / MEGABYTE:.0f} MB at rest", flush=True)
        backlog = Backlog(found, messages, queues)
        backlog.fill()
        backlog.drain()
        if left := backlog.left():
            raise LoadError(f"{left} messages are left in the queues")


def restart(messages: int, queues: int, kill: bool) -> None:
    """Penstock only: a RabbitMQ of this tool lives in a directory that goes with it."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        data = Path(directory) / "data"
        with running_penstock(data=data, kill=kill) as found:
            Backlog(found, messages, queues).fill()
            stopping_s = time.perf_counter()
        print(f"{'kill -9' if kill else 'stop'}: {time.perf_counter() - stopping_s:.2f} s", flush=True)
        with running_penstock(data=data) as found:
            backlog = Backlog(found, messages, queues)
            count, memory = backlog.left(), resident_bytes(found.pid) / MEGABYTE
            print(
                f"restart with {backlog.messages:,} messages: ready after {found.ready_s - found.started_s:.2f} s, "
                f"counts {count:,}, resident {memory:.0f} MB",
                flush=True,
            )
            if count != backlog.messages:
                raise LoadError(f"{count} messages after the restart, {backlog.messages} were confirmed")
            asked_s = time.perf_counter()
            first_s = backlog.drain("drain after the restart")
            print(
                f"first delivery {first_s - found.started_s:.2f} s after the start of the process, "
                f"{first_s - asked_s:.3f} s after it was asked for",
                flush=True,
            )


def main() -> int:
    options = _options()
    end_with_us()
    try:
        if options.restart:
            restart(options.messages or RESTART_MESSAGES, options.queues, options.kill)
        else:
            broker = RABBITMQ if options.rabbitmq else PENSTOCK
            fill_and_drain(broker, options.messages or MESSAGES, options.queues)
    except KeyboardInterrupt:
        fail("stopped", 130)
    except (LoadError, NotADelivery, ClientError, NotInstalled, NotStarted) as error:
        fail(str(error), 1)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/backlog.py", description="Millions of messages in durable queues.")
    parser.add_argument("--messages", type=int, help=f"{MESSAGES:,}; with --restart {RESTART_MESSAGES:,}")
    parser.add_argument("--queues", type=int, default=1, help="spread over so many queues, at most 100")
    parser.add_argument("--restart", action="store_true", help="fill, stop, start again, drain")
    parser.add_argument("--kill", action="store_true", help="with --restart: kill -9 instead of a clean stop")
    parser.add_argument("--rabbitmq", action="store_true", help="fill and drain RabbitMQ instead of Penstock")
    options = parser.parse_args()
    if (options.messages is not None and options.messages < 1) or not 1 <= options.queues <= 100:
        parser.error("--messages must be at least 1 and --queues 1 to 100")
    if options.rabbitmq and options.restart:
        parser.error("--restart is for Penstock only")
    return options


if __name__ == "__main__":
    sys.exit(main())

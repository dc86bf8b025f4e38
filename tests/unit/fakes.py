"""Fakes: a broker without loop and sockets, on a clock that is turned by hand. All unit tests' fakes are here.

HandLoop runs a real Scheduler turn by turn; House puts a real Broker on it; FakePeer is one client's connection as the
broker sees it, with a real Reader, and reads back what was sent to it; FakeTransport is the socket below net/.
StoreHouse is a House whose broker has a message store in a real directory, with its real threads; FakeDisk is a disk
that counts, stands still and fails when it is told to; FakeLedger remembers definitions for the next life.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

from penstock.amqp import content
from penstock.amqp.close import CloseConnection
from penstock.amqp.decoder import Acks, Command, Decoder, Nack, Publish, Publishes
from penstock.amqp.frame import BODY, FRAME_MAX_BYTES, HEAD, HEAD_BYTES, HEADER, METHOD, OVERHEAD_BYTES
from penstock.amqp.method import (
    BasicConsume,
    BasicDeliver,
    BasicGetOk,
    BasicPublish,
    BasicReturn,
    ChannelOpen,
    ChannelOpenOk,
    Method,
    QueueDeclare,
    decode_method,
    encode_method,
)
from penstock.broker import keeping, paging
from penstock.broker.access import Access
from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.ledger import Json
from penstock.broker.memory import Memory
from penstock.broker.outbox import Outbox
from penstock.broker.queue import Queue
from penstock.broker.records import QUEUE, QUEUE_LOG
from penstock.broker.vault import Vault
from penstock.credit import Hop, Link, Spec
from penstock.net.reader import Reader
from penstock.runtime import FakeClock, Mailbox, Scheduler
from penstock.store.deposit import Deposit
from penstock.store.files import Files
from penstock.store.log import LEVEL_END, QueueLog
from penstock.store.pager import Fetch
from penstock.store.ranges import union
from penstock.store.record import Range
from penstock.store.recovery import recover
from penstock.store.store import MessageStore
from penstock.store.stream import Append, Read

TURNS_MAX = 20_000  # a test that needs more has stages that wake each other for ever
NO_PROPERTIES = b"\x00\x00"
PERSISTENT = b"\x10\x00\x02"  # delivery mode 2 and nothing else
WAIT_S = 60.0  # only ends a test that would hang


class HandLoop:
    """The event loop's side of the scheduler: it only notes that a turn was asked for."""

    def __init__(self, **budgets: int) -> None:
        self.clock = FakeClock()
        self.awake = False
        self.wakes = 0
        self.scheduler = Scheduler(self.clock, self._wake, None, **budgets)

    def _wake(self) -> None:
        assert not self.awake, "the loop was asked twice for one turn"
        self.awake = True
        self.wakes += 1

    def turn(self) -> None:
        self.awake = False
        self.scheduler.turn()

    def run_until_idle(self) -> int:
        """Turns as long as the scheduler asks for them; how many there were."""
        turns = 0
        while self.awake:
            self.turn()
            turns += 1
            assert turns < TURNS_MAX, f"no end: {self.scheduler!r}"
        return turns


class House(HandLoop):
    """A broker on a HandLoop. Both hops have the same credit, in messages; bytes are off unless given."""

    def __init__(
        self,
        credit: str = "400,200",
        credit_bytes: str = "0,0",
        *,
        channel_delay_us: int = 0,
        queue_delay_us: int = 0,
        **budgets: int,
    ) -> None:
        super().__init__(**budgets)
        messages, bytes_ = Spec.parse(credit), Spec.parse(credit_bytes)
        self.broker = Broker(
            self.scheduler,
            Hop("reader_channel", messages, bytes_),
            Hop("channel_queue", messages, bytes_),
            channel_delay_us,
            queue_delay_us,
        )
        self.vhost = self.broker.vhosts["/"]

    def peer(self, name: str = "peer", **options: Any) -> FakePeer:
        return FakePeer(self, name, **options)

    def queue(self, name: str = "q", **options: Any) -> Queue:
        """Declared without a channel."""
        return self.vhost.declare_queue(QueueDeclare(name, **options), self.peer("declarer"))


class Said:
    """One method that the broker sent, with its content if it has one."""

    __slots__ = ("body", "channel", "method", "wire")

    def __init__(self, channel: int, method: Method) -> None:
        self.channel = channel
        self.method = method
        self.wire = b""
        self.body: bytes | None = None

    def __repr__(self) -> str:
        return f"<Said {self.channel} {self.method!r} {self.body!r}>"


def read_said(stream: bytes) -> list[Said]:
    """What a client would read from these bytes; strict about frames, so that a broken stream fails the test."""
    said: list[Said] = []
    open_contents: dict[int, Said] = {}
    pos = 0
    while pos < len(stream):
        kind, channel, size = HEAD.unpack_from(stream, pos)
        stop = pos + size + OVERHEAD_BYTES
        assert stop <= len(stream), "cut in the middle of a frame"
        assert stream[stop - 1] == 0xCE, "a frame without its end"
        payload = stream[pos + HEAD_BYTES : stop - 1]
        if kind == METHOD:
            assert channel not in open_contents, f"a method inside a content on channel {channel}"
            one = Said(channel, decode_method(payload))
            said.append(one)
            if isinstance(one.method, (BasicDeliver, BasicGetOk, BasicReturn)):
                open_contents[channel] = one
        else:
            one = open_contents[channel]
            assert kind == (BODY if one.wire else HEADER), f"frame type {kind} out of order"
            one.wire += stream[pos:stop]
            if len(content.body(one.wire)) == content.body_size(one.wire):
                one.body = content.body(one.wire)
                del open_contents[channel]
        pos = stop
    assert not open_contents, "a content that is not finished"
    return said


def publish_method(channel: int, key: str) -> Publish:
    return Publish(channel, encode_method(BasicPublish("", key), channel)[HEAD_BYTES:-1])


def make_wire(
    body: bytes, channel: int = 1, properties: bytes = NO_PROPERTIES, frame_max: int = FRAME_MAX_BYTES
) -> bytes:
    return content.build_basic(channel, properties, body, frame_max)


class FakePeer:
    """One client's connection: broker/peer.py for the broker, and the client's own hands for the test."""

    def __init__(
        self,
        house: House,
        name: str,
        frame_max: int = FRAME_MAX_BYTES,
        channel_max: int = 2047,
        parked_bytes_max: int = 1 << 20,
        notify_cancel: bool = True,
        numbers: bool = True,
    ) -> None:
        self.house = house
        self.name = name
        self.user = "guest"
        self.vhost = house.vhost
        self.access = Access(house.broker.users, self.user, house.vhost.name)
        self.frame_max = frame_max
        self.is_client = True
        self.notify_cancel = notify_cancel
        self.numbers = numbers
        self.exclusive_queues: dict[Queue, None] = {}
        self.outbox = Outbox(lambda: house.scheduler.call_after_turn(self.flush))
        self.reader = Reader(house.broker, self, channel_max, parked_bytes_max, self._fullness_changed)
        self.is_paused = False  # as the socket would be
        self.pauses = 0
        self.errors: list[CloseConnection] = []
        self.frames: list[bytes] = []
        self._decoder = Decoder(body_max=1 << 30)
        self._decoder.frame_max = FRAME_MAX_BYTES
        self._decoder.numbers = numbers

    # For the broker.

    def fail(self, error: CloseConnection) -> None:
        self.errors.append(error)

    def unpark(self, channel: Channel, behind: int) -> list[Publishes]:
        return self.reader.unpark(channel.number, behind)

    def channel_gone(self, channel: Channel) -> None:
        lane = self.reader.lanes.get(channel.number)
        if lane is not None and lane.channel is channel:
            self.reader.forget(channel.number)

    def parked_bytes(self) -> int:
        return self.reader.parked_bytes

    def client_name(self) -> str:
        return ""

    def flow_state(self) -> str:
        return self.reader.flow_state()

    def blocked_by(self) -> list[Json]:
        return [str(reason) for reason in self.reader.blocked_by]

    def channel_count(self) -> int:
        return len(self.reader.lanes)

    def octets(self) -> tuple[int, int, int, int]:
        return 0, 0, 0, 0

    def work(self) -> tuple[int, int, int, int]:
        return 0, 0, 0, 0

    def portrait(self) -> dict[str, Json]:
        return {}

    def _fullness_changed(self) -> None:
        self.is_paused = self.reader.is_full
        self.pauses += self.is_paused

    def flush(self) -> None:
        self.frames += self.outbox.emptied()

    # For the test.

    def open(self, number: int = 1) -> Channel:
        self.tell(number, ChannelOpen())
        channel = self.reader.lanes[number].channel
        self.house.run_until_idle()
        assert [type(said.method) for said in self.said()] == [ChannelOpenOk]
        return channel

    def tell(self, number: int, method: Method) -> None:
        """Send it; nothing runs yet."""
        self.reader.receive(Command(number, method))

    def ask(self, number: int, method: Method) -> list[Method]:
        """Send it, let everything run; the methods that came since the last look."""
        self.tell(number, method)
        return self.methods()

    def publish(
        self,
        number: int,
        key: str,
        *bodies: bytes,
        exchange: str = "",
        mandatory: bool = False,
        properties: bytes = NO_PROPERTIES,
    ) -> None:
        """These messages as one read from the socket brings them: one item."""
        method = encode_method(BasicPublish(exchange, key, mandatory), number)
        self._receive(b"".join(method + make_wire(body, number, properties) for body in bodies))

    def publish_mixed(self, number: int, *keys_and_bodies: tuple[str, bytes], exchange: str = "") -> None:
        """Messages with other keys in one item."""
        self._receive(
            b"".join(
                encode_method(BasicPublish(exchange, key), number) + make_wire(body, number)
                for key, body in keys_and_bodies
            )
        )

    def _receive(self, stream: bytes) -> None:
        items = self._decoder.feed(stream)
        assert len(items) == (1 if stream else 0)
        assert self._decoder.error is None
        for item in items:
            self.reader.receive(item)

    def publish_singly(self, number: int, key: str, count: int) -> None:
        """As many items of one message each: the queue can then take exactly n."""
        for at in range(count):
            self.publish(number, key, b"%d" % at)

    def ack(self, number: int, *tags: int, multiple: bool = False) -> None:
        self.reader.receive(Acks(number, [(tag, multiple) for tag in tags]))

    def nack(self, number: int, tag: int, multiple: bool = False, requeue: bool = True) -> None:
        self.reader.receive(Nack(number, 120, tag, multiple, requeue))

    def consume(self, number: int, queue: str = "q", tag: str = "c", **options: Any) -> None:
        self.tell(number, BasicConsume(queue, tag, **options))

    def said(self) -> list[Said]:
        """Let everything run; what came since the last look."""
        self.house.run_until_idle()
        frames, self.frames = self.frames, []
        return read_said(b"".join(frames))

    def methods(self) -> list[Method]:
        return [said.method for said in self.said()]

    def deliveries(self) -> list[tuple[str, bytes]]:
        """Consumer tag and body of what was delivered since the last look; other methods are passed over."""
        return [
            (said.method.consumer_tag, said.body or b"")
            for said in self.said()
            if isinstance(said.method, BasicDeliver)
        ]

    def bodies(self) -> list[bytes]:
        return [body for _, body in self.deliveries()]


def take_by_hand(mailbox: Mailbox[Any], count: int) -> None:
    """Let a held stage take this many items, and nothing else."""
    for _ in range(count):
        mailbox.worker.take(mailbox.ordinary.popleft())


class FakeTransport(asyncio.Transport):
    """A socket: what was written, whether it is read from, whether it is closing."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.unsent_bytes = 0  # set by the test: what the peer has not read yet
        self.is_paused = False
        self.closing = False
        self.aborted = False

    def write(self, data: Any) -> None:
        assert not self.closing, "written to a socket that is closing"
        self.written.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        assert low is not None
        assert low < high

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def is_reading(self) -> bool:
        return not self.is_paused and not self.closing

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("127.0.0.1", 50_000), "socket": FakeSocket()}.get(name, default)


class FakeSocket:
    def setsockopt(self, *option: int) -> None:
        return


# The message store.


class Posts:
    """Functions that other threads want to have called on the broker's thread, which is the test's."""

    def __init__(self) -> None:
        self._waiting: deque[Callable[[], None]] = deque()
        self._some = threading.Event()

    def __call__(self, function: Callable[[], None]) -> None:
        self._waiting.append(function)
        self._some.set()

    def run(self) -> bool:
        """Call all that wait; whether there were any."""
        self._some.clear()
        had_some = bool(self._waiting)
        while self._waiting:
            self._waiting.popleft()()
        return had_some

    def run_until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.wait()
            self.run()

    def wait(self) -> None:
        assert self._waiting or self._some.wait(WAIT_S), "no thread of the store reports anything"

    def __len__(self) -> int:
        return len(self._waiting)


class FakeDisk(Files):
    """A real directory on a disk that can be told to fail or to stand still: operations by name, files by the first
    part of theirs ("journal", "segment", "bodies", "pages"), those of streams as "stream". Nothing is really synced:
    that is counted."""

    def __init__(self) -> None:
        self.done: Counter[tuple[str, str]] = Counter()
        self.bytes: Counter[str] = Counter()  # written, by kind of file
        self._failures: dict[tuple[str, str], tuple[int, int]] = {}  # error, how often still
        self._gates: dict[tuple[str, str], threading.Event] = {}
        self._standing: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        self._kinds: dict[int, str] = {}

    # For the test.

    def fail(self, operation: str, kind: str, times: int = 1, number: int = errno.EIO) -> None:
        """The next ones, so many of them."""
        self._failures[operation, kind] = number, times

    def stop(self, operation: str, kind: str) -> None:
        """From now on these stand still, until `go_on`. Who stands there already does so at the same gate."""
        self._gates.setdefault((operation, kind), threading.Event())

    def is_standing(self, operation: str, kind: str) -> bool:
        """Whether a thread stands there now."""
        return (operation, kind) in self._standing

    def step(self, operation: str, kind: str) -> None:
        """The one that stands there goes on, and the next one will stand."""
        gate = self._gates[operation, kind]
        self._gates[operation, kind] = threading.Event()
        self._standing.discard((operation, kind))
        gate.set()

    def go_on(self) -> None:
        gates, self._gates = self._gates, {}
        self._standing.clear()
        for gate in gates.values():
            gate.set()

    def heal(self) -> None:
        self._failures.clear()
        self.go_on()

    def end(self) -> None:
        """Close what is still open, as the kernel does when a process ends."""
        for descriptor in list(self._kinds):
            self.close(descriptor)

    # For the store.

    def _do(self, operation: str, kind: str) -> None:
        gate = self._gates.get((operation, kind))
        if gate is not None:
            self._standing.add((operation, kind))
            assert gate.wait(WAIT_S), f"{operation} {kind} was never told to go on"
        with self._lock:  # several threads sync at the same time
            self.done[operation, kind] += 1
            number, times = self._failures.get((operation, kind), (0, 0))
            if times:
                self._failures[operation, kind] = number, times - 1
        if times:
            raise OSError(number, os.strerror(number))

    def create(self, path: Path) -> int:
        self._do("create", _kind(path))
        descriptor = super().create(path)
        self._kinds[descriptor] = _kind(path)
        return descriptor

    def open(self, path: Path) -> int:
        self._do("open", _kind(path))
        descriptor = super().open(path)
        self._kinds[descriptor] = _kind(path)
        return descriptor

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        kind = self._kinds[descriptor]
        self._do("write", kind)
        self.bytes[kind] += sum(map(len, buffers))
        super().write(descriptor, buffers, offset)

    def write_direct(self, descriptor: int, blocks: memoryview, offset: int) -> None:
        self.write(descriptor, [blocks], offset)

    def sync(self, descriptor: int) -> None:
        self._do("sync", self._kinds[descriptor])

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        self._do("read", self._kinds[descriptor])
        return super().read(descriptor, size, offset)

    def close(self, descriptor: int) -> None:
        del self._kinds[descriptor]
        super().close(descriptor)

    def remove(self, path: Path) -> None:
        self._do("remove", _kind(path))
        super().remove(path)

    def sync_directory(self, path: Path) -> None:
        self._do("sync", "directory")


def _kind(path: Path) -> str:
    return "stream" if path.suffix == ".seg" else path.name.split("-")[0]


class FakeLedger:
    """Definitions, as they are known to the next life."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, tuple[str, ...]], dict[str, Json]] = {}

    def put(self, kind: str, key: tuple[str, ...], body: dict[str, Json]) -> None:
        self.known[kind, key] = body

    def drop(self, kind: str, key: tuple[str, ...]) -> None:
        self.known.pop((kind, key), None)

    def after_commit(self, callback: Callable[[], None]) -> None:
        callback()


class FakeReceipt:
    """Waits for deposits, and counts what it hears."""

    def __init__(self) -> None:
        self.kept_count = 0
        self.doubted_count = 0

    def kept(self) -> None:
        self.kept_count += 1

    def doubted(self) -> None:
        self.doubted_count += 1


class FakeOwner:
    """A queue with nothing but positions, as the store sees it."""

    def __init__(self, store: MessageStore, id_: int, log: QueueLog | None = None) -> None:
        self.store = store
        self.log = log or store.log(id_, f"queue {id_}")
        self.log.owner = self
        self.alive: set[int] = set()
        self.next = 0
        self.known: dict[str, int] = {}  # how far its producers have come
        self.origin = publish_method(1, "q")

    def deposit(
        self,
        *contents: bytes,
        receipt: FakeReceipt | None = None,
        large: Sequence[int] = (),
        link: Link | None = None,
        deadlines: Sequence[int] | None = None,
        marks: dict[str, int] | None = None,
    ) -> None:
        first = self.next
        self.next += len(contents)
        self.alive.update(range(first, self.next))
        messages = [(self.origin, content) for content in contents]
        size = sum(map(len, contents))
        self.store.deposit(Deposit(self.log, link, first, messages, size, large, deadlines, receipt, marks))
        self.known |= marks or {}

    def remove(self, *positions: int) -> None:
        self.alive.difference_update(positions)
        self.store.remove(self.log, positions)

    def living(self) -> list[Range]:
        return union([*((position, position + 1) for position in self.alive), (self.next, LEVEL_END)])

    def ends(self) -> dict[int, int]:
        return {0: self.next}

    def redelivered_below(self) -> dict[int, int]:
        return {0: min(self.alive, default=self.next)}

    def marks(self) -> dict[str, int]:
        return dict(self.known)


class FakeStream:
    """A stream with nothing but offsets, as the store sees it; and a reader of it."""

    def __init__(self, house: StoreHouse, id_: int = 1, segment_bytes: int = 1 << 26) -> None:
        self.house = house
        self.store = house.store
        self.log = house.store.streams.open(id_, f"stream {id_}")
        self.log.owner = self
        self.log.segment_bytes = segment_bytes
        self.origin = publish_method(1, "s")
        self.appended_count = self.retained_count = 0

    def append(
        self,
        *contents: bytes,
        stamp_ms: int = 0,
        receipt: FakeReceipt | None = None,
        link: Link | None = None,
        marks: dict[str, int] | None = None,
    ) -> int:
        """Cast these as one append; the offset of the first."""
        first = self.log.end
        self.log.end += len(contents)
        messages = [(self.origin, content) for content in contents]
        size = sum(map(len, contents))
        self.store.streams.append(Append(self.log, link, first, messages, size, stamp_ms, receipt, marks))
        return first

    def keep(self, *contents: bytes, stamp_ms: int = 0, marks: dict[str, int] | None = None) -> int:
        """The same, and wait for the sync."""
        first = self.append(*contents, stamp_ms=stamp_ms, receipt=FakeReceipt(), marks=marks)
        self.house.run_until_idle()
        return first

    def read(self, offset: int, bytes_max: int = 1) -> Read:
        read = Read(self, self.log, offset, bytes_max)
        self.store.streams.read(read)
        self.house.posts.run_until(lambda: self.answered is read)
        return read

    def read_all(self, offset: int = 0, bytes_max: int = 1, damages: list[str] | None = None) -> dict[int, bytes]:
        """All that is there from this offset on, without what is damaged."""
        found: dict[int, bytes] = {}
        while offset < self.log.synced:
            read = self.read(offset, bytes_max)
            assert not read.trouble, read.trouble
            assert not read.stale
            assert read.next > offset, "it would go on for ever"
            for one in read.found:
                assert one.end() > offset
                assert sum(messages for messages, _ in one.origins) == len(one.contents)
                for at, one_content in enumerate(one.contents, one.first):
                    assert at not in found, f"offset {at} came twice"
                    if one_content is not None and at >= offset:
                        found[at] = one_content
            if damages is not None:
                damages += read.damages
            offset = read.next
        return found

    def names(self) -> list[str]:
        """Of its files, when all that is to be removed is."""
        self.read(self.log.synced)
        return sorted(path.name for path in self.log.directory.iterdir())

    def fetched_stream(self, read: Read) -> None:
        self.answered = read

    answered: Read | None = None

    def appended(self) -> None:
        self.appended_count += 1

    def retained(self) -> None:
        self.retained_count += 1


class StoreHouse(House):
    """A House whose broker keeps messages in this directory. `run_until_idle` also waits for the store's threads;
    `run_turns` does not. Wall-clock time follows the clock, so that deadlines on disk are those in RAM.

    Use it as a context, so that its threads end."""

    def __init__(
        self,
        directory: Path,
        credit: str = "400,200",
        *,
        store_credit: str = "2000,500",
        journal_bytes: int = 1 << 26,
        embed_below: int = 4096,
        disk: FakeDisk | None = None,
        ledger: FakeLedger | None = None,
        now_ns: int = 1_000_000_000,  # a monotonic clock never says 0
        **options: Any,
    ) -> None:
        super().__init__(credit, **options)
        self.options = {
            "credit": credit,
            "store_credit": store_credit,
            "journal_bytes": journal_bytes,
            "embed_below": embed_below,
            **options,
        }
        self.clock._now_ns = now_ns
        wall = SimpleNamespace(time=lambda: self.clock.now_ns() / 1e9 + 1e-4)  # so that rounding down is exact
        vars(keeping)["time"] = vars(paging)["time"] = wall  # for as long as this lives
        self.directory = directory
        self.disk = disk or FakeDisk()
        self.ledger = ledger or FakeLedger()
        self.posts = Posts()
        self.reports: list[str] = []
        self.troubles: list[str] = []
        self.recovered = recover(directory, self.disk, self.reports.append)
        self.store = MessageStore(
            directory,
            self.scheduler,
            Hop("queue_store", Spec.parse(store_credit), Spec.parse("0,0")),
            self.posts,
            self.troubles.append,
            self.reports.append,
            self.disk,
            self.recovered,
        )
        self.store.journal_bytes = journal_bytes
        self.store.embed_below = embed_below
        self.store.journal.retry_s = 0.001
        self.store.begin()
        self.memory = Memory(self.store, self.store.pager, self.clock, self.reports.append)
        records = [(kind, key, body) for (kind, key), body in self.ledger.known.items()]
        self.vault = Vault(self.store, self.memory, self.ledger, records, self.recovered)
        self.broker.keep_in(self.ledger)
        self.broker.keep_messages(self.vault)
        self.is_begun = self.is_over = False
        if not any(kind == QUEUE_LOG for kind, _, _ in records):
            self.begin()

    def begin(self) -> None:
        """All queues of the last life are declared again."""
        self.vault.begin()
        self.is_begun = True

    def durable(self, name: str = "q", **arguments: Any) -> Queue:
        named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        return self.queue(name, durable=True, arguments=named)

    def run_turns(self) -> int:
        """As long as the scheduler asks for them, and no thread is waited for."""
        turns = super().run_until_idle()
        while self.posts.run() or self.awake:
            turns += super().run_until_idle()
        return turns

    def run_until_idle(self) -> int:
        turns = self.run_turns()
        while not self.is_over:
            if self.is_waiting():
                self.posts.wait()
                turns += self.run_turns()
                continue
            asked = self.asked()
            if asked:
                self.catch_up()
                turns += self.run_turns()
            if not self.is_waiting() and asked == self.asked():
                break  # what is left waits for the clock, if for anything
        return turns

    def is_waiting(self) -> bool:
        """Whether the journal or the keeper has something to do that the broker's thread will hear of."""
        store = self.store
        checkpoints = store.checkpoints
        is_busy = checkpoints.busy and checkpoints._timer is None and self.is_begun
        return store.streams.reading.asked > 0 or (not store.trouble and bool(store._writing or is_busy))

    def asked(self) -> list[object]:
        """What the pager was asked to do."""
        return [
            what for one in self.memory.pagings for what in ([one._fetch] if one._fetch else []) + list(one._leaving)
        ]

    def catch_up(self) -> None:
        """The pager has done, and told, all that it was asked for so far."""
        answers: list[Fetch] = []
        self.store.pager.fetch(Fetch(SimpleNamespace(fetched=answers.append), [], []))
        self.posts.run_until(lambda: answers)

    def flush(self) -> None:
        """Have all written that the store gathers, without waiting for its time."""
        self.run_until_idle()
        self.store._gathered_enough()
        self.run_until_idle()

    def kill(self) -> None:
        """End without a word; what was cast before is on disk."""
        if self.is_over:
            return
        self.disk.heal()
        self.is_over = True
        self.store.journal.close()
        self.store.checkpoints._keeper.close()
        self.store.pager.close()
        self.store.streams.reading.close()
        self.disk.end()

    def stop(self) -> bool:
        """End in order."""
        self.run_until_idle()
        self.is_over = True
        return self.store.close()

    def reborn(self, in_order: bool = False) -> StoreHouse:
        """Another store on the same directory, for streams that no queue stands for: nothing is removed as unclaimed
        until `begin`. This one is killed, or stopped in order, unless it has ended."""
        if in_order and not self.is_over:
            self.stop()
        self.kill()
        ledger = FakeLedger()
        ledger.put(QUEUE_LOG, ("/", "nobody"), {"id": 1})
        options = {key: value for key, value in self.options.items() if key in ("credit", "store_credit")}
        return StoreHouse(self.directory, ledger=ledger, now_ns=self.clock.now_ns(), **options)

    def next_life(self, **options: Any) -> StoreHouse:
        """Another broker on the same directory, with the same durable queues. This one must have ended."""
        assert self.is_over
        options = self.options | options
        house = StoreHouse(self.directory, ledger=self.ledger, now_ns=self.clock.now_ns(), **options)
        for kind, key in list(self.ledger.known):
            if kind == QUEUE:
                house.queue(key[1], durable=True, arguments=self.vhost.queues[key[1]].arguments)
        house.begin()
        return house

    def names(self, kind: str) -> list[str]:
        """The files of this kind, when the pager has removed what it was told to."""
        if not self.is_over:
            self.catch_up()
        return sorted(path.name for path in self.directory.rglob(f"{kind}-*"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        vars(keeping)["time"] = vars(paging)["time"] = time

"""Keeping: what a durable queue gives to the store, and what it waits for.

Place in the chain: inside queue.py, on the way to store/store.py. Persistent messages are deposited as they arrive;
those that are confirmed, are confirmed when the store has synced them. Whatever leaves the queue for good is removed.
The marks of producers go with the messages that moved them: one is on disk if and only if the other is.
Not here: the disk (store/), what is held in RAM (paging.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.amqp.content import FLAGS_OFFSET, body_size, properties_end
from penstock.amqp.decoder import Message
from penstock.amqp.properties import PERSISTENT, delivery_mode_of
from penstock.broker.casts import NO_TTL, Arrival
from penstock.broker.duplicates import Duplicates
from penstock.broker.producers import Producers, Publishing, highest
from penstock.credit import Link
from penstock.store.deposit import Deposit
from penstock.store.log import LEVEL_SHIFT, QueueLog
from penstock.store.ranges import union
from penstock.store.record import Marks, Range
from penstock.store.recovery import RecoveredLog
from penstock.store.store import MessageStore

if TYPE_CHECKING:
    from penstock.broker.queue import Queue

NOTHING: Final = -1  # a position below all
FRAMING_BYTES: Final = 31  # of a content beside its body: two frames, and a delivery mode as the only property


class Pending:
    """The confirms of one arrival, or the queue that its dead letters come from: they wait for all its deposits."""

    __slots__ = ("arrival", "is_doubtful", "positions", "queue", "waiting")

    def __init__(self, queue: Queue, arrival: Arrival, positions: Sequence[int]) -> None:
        self.queue = queue
        self.arrival = arrival
        self.positions = positions
        self.waiting = 0
        self.is_doubtful = False

    def kept(self) -> None:
        self.waiting -= 1
        if self.waiting:
            return
        if not self.is_doubtful:
            self.queue.confirm(self.arrival, self.positions)
        if self.arrival.burial is not None:
            self.arrival.burial.arrived()

    def doubted(self) -> None:
        """One nack, whatever follows: the publisher must not believe what we cannot know."""
        if not self.is_doubtful:
            self.is_doubtful = True
            channel = self.arrival.channel
            if channel is not None and self.arrival.numbers:
                channel.refused(self.arrival.numbers)


class Keeping:
    __slots__ = ("_dying", "_link", "_producers", "_queue", "_store", "log", "mixed", "newest")

    def __init__(self, queue: Queue, store: MessageStore, log: QueueLog) -> None:
        self._queue = queue
        self._store = store
        self._link: Link | None = None
        self._dying: set[int] = set()  # positions of dead letters that are on their way
        self._producers = Producers()  # by persistent messages alone: what came of others is gone after a crash
        self.log = log
        self.newest = NOTHING if log.is_empty() else 1 << 62  # the largest position that was deposited
        self.mixed = False  # transient messages are, or were, among those in RAM
        log.owner = self

    def keep(self, arrival: Arrival, positions: Sequence[int], ttl_of: Sequence[int] | None) -> bool:
        """Deposit what is persistent of these messages; whether somebody has to wait for it."""
        messages = arrival.messages
        if arrival.modes == PERSISTENT:
            runs = _runs(positions)
        else:
            runs = _persistent_runs(positions, messages)
            self.mixed = self.mixed or sum(stop - start for start, stop in runs) < len(messages)
        if not runs:
            return False
        if self._link is None:
            self._link = self._store.link(self._queue)
        pending: Pending | None = None
        if arrival.burial is not None or (arrival.numbers and arrival.channel is not None):
            pending = self._pending(arrival, positions, runs)
            pending.waiting = len(runs)
        for start, stop in runs:
            self._deposit(arrival, start, stop, positions[start], ttl_of, pending)
        return pending is not None

    def _pending(self, arrival: Arrival, positions: Sequence[int], runs: list[tuple[int, int]]) -> Pending:
        """What waits for the disk. What needs no disk is confirmed at once, whatever it came with."""
        count = sum(stop - start for start, stop in runs)
        if count == len(positions) or not arrival.numbers:
            return Pending(self._queue, arrival, positions)
        numbers = [number for first, last in arrival.numbers for number in range(first, last + 1)]
        waits = {at for start, stop in runs for at in range(start, stop)}
        parts: list[Pending] = []
        for indexes in ([at for at in range(len(positions)) if at not in waits], sorted(waits)):
            part = Arrival(arrival.channel, None, [], 0, [(numbers[at], numbers[at]) for at in indexes])
            parts.append(Pending(self._queue, part, [positions[at] for at in indexes]))
        self._queue.confirm(parts[0].arrival, parts[0].positions)
        return parts[1]

    def _deposit(
        self,
        arrival: Arrival,
        start: int,
        stop: int,
        first: int,
        ttl_of: Sequence[int] | None,
        pending: Pending | None,
    ) -> None:
        messages: Sequence[Message] = arrival.messages
        size = arrival.bytes
        if stop - start < len(messages):
            messages = messages[start:stop]
            size = sum(len(wire) for _, wire in messages)
        below = self._store.embed_below
        large: list[int] = []
        if size > below:
            large = [at for at, (_, wire) in enumerate(messages) if len(wire) > below and body_size(wire) >= below]
        deadlines = _deadlines(ttl_of[start:stop]) if ttl_of is not None else None
        marks: Marks | None = None
        if arrival.publishings is not None:
            marks = highest(arrival.publishings[start:stop])
            self._producers.restore(marks)
        self.newest = max(self.newest, first + stop - start - 1)
        self._store.deposit(Deposit(self.log, self._link, first, messages, size, large, deadlines, pending, marks))

    def is_known(self, publishing: Publishing) -> bool:
        """Whether this message, or a later one of its producer, was deposited before."""
        return self._producers.is_known(*publishing)

    def when_synced(self, then: Callable[[], None]) -> None:
        """Call this when all that was deposited until now is on disk."""
        self._store.when_synced(then)

    def remove(self, positions: Sequence[int]) -> None:
        """These have left the queue for good."""
        if not positions:
            return
        known = self.newest != NOTHING and (positions[0] <= self.newest or min(positions) <= self.newest)
        # A queue that refuses may give messages to consumers before it has deposited them.
        if known or self._queue.shelves.refuses:
            self._store.remove(self.log, positions)

    def purge(self) -> None:
        """All that is ready has left for good."""
        ranges: list[Range] = []
        for backlog in self._queue.shelves.levels:
            ranges += backlog.held()
        if ranges and self.newest != NOTHING:
            self._store.remove_ranges(self.log, ranges)

    def bury(self, positions: Sequence[int]) -> None:
        """These are dead letters on their way: gone when `buried` says so."""
        if self.newest != NOTHING:
            self._dying.update(positions)

    def buried(self, positions: Sequence[int]) -> None:
        self._dying.difference_update(positions)
        if not self.log.forgotten:
            self.remove(positions)

    def forget(self) -> None:
        """The queue is deleted."""
        self._link = None
        self._dying.clear()
        self._store.forget(self.log)
        self.log.owner = None

    def living(self) -> list[Range]:
        """Every position that may still be wanted, in order."""
        ranges = self._queue.shelves.living()
        single = [(position, position + 1) for position in self._queue.unacked]
        single += [(position, position + 1) for position in self._dying]
        if single:
            ranges = union(ranges + single)
        return ranges

    def ends(self) -> dict[int, int]:
        return {level: backlog.end for level, backlog in enumerate(self._queue.shelves.levels)}

    def redelivered_below(self) -> dict[int, int]:
        return {level: backlog.undelivered() for level, backlog in enumerate(self._queue.shelves.levels)}

    def marks(self) -> Marks:
        return self._producers.marks()

    def restore(self, recovered: RecoveredLog, reserved: int = 0) -> None:
        """What the disk has of this queue at the start waits in it, on disk. So many positions of each priority are
        not given again, whether the disk has them or not: in an earlier life they may have been told to consumers."""
        if recovered.marks:
            self._producers.restore(recovered.marks)
            self._queue.duplicates = Duplicates(self._queue)
            self._queue.duplicates.producers.restore(recovered.marks)
        for level, backlog in enumerate(self._queue.shelves.levels):
            start, end = level << LEVEL_SHIFT, level + 1 << LEVEL_SHIFT
            ranges = [(first, stop) for first, stop in recovered.living if start <= first < end]
            count = sum(stop - first for first, stop in ranges)
            backlog.restore(
                ranges,
                count,
                self.log.content_bytes(level, ranges) - count * FRAMING_BYTES if backlog.measured else 0,
                max(recovered.ends.get(level, start), start + reserved),
                recovered.redelivered_below.get(level, start),
            )

    def __repr__(self) -> str:
        return f"<Keeping {self.log!r} dying={len(self._dying)}>"


def _runs(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Indexes of consecutive positions: start and stop."""
    if isinstance(positions, range):
        return [(0, len(positions))]
    runs: list[tuple[int, int]] = []
    start = 0
    for at in range(1, len(positions) + 1):
        if at == len(positions) or positions[at] != positions[at - 1] + 1:
            runs.append((start, at))
            start = at
    return runs


def _persistent_runs(positions: Sequence[int], messages: Sequence[Message]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for at, (_, wire) in enumerate(messages):
        if not is_persistent(wire):
            continue
        if runs and runs[-1][1] == at and positions[at] == positions[at - 1] + 1:
            runs[-1] = runs[-1][0], at + 1
        else:
            runs.append((at, at + 1))
    return runs


def is_persistent(wire: bytes) -> bool:
    return delivery_mode_of(wire, FLAGS_OFFSET, properties_end(wire)) == PERSISTENT


def _deadlines(ttls_ms: Sequence[int]) -> list[int] | None:
    """When messages with these times to live expire, in milliseconds since 1970; 0 is never."""
    now_ms = int(time.time() * 1000)
    deadlines = [0 if ttl_ms == NO_TTL else max(1, now_ms + ttl_ms) for ttl_ms in ttls_ms]
    return deadlines if any(deadlines) else None

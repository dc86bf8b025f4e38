"""Replay: what journals and damaged segments say, record by record.

A Trace is all that is found of one queue. Positions are never used twice, so it does not matter in which order a
position is found and found to be removed; what is alive is reckoned when everything has been read.

Doubt: a journal is synced in groups, and what was not synced when the power went may be torn anywhere, also in its
middle. A removal behind damage may then stand for a message that was moved to another queue and is lost in the damage.
So removals behind damage count only if a SYNCED record follows, which was written when all before it was synced.
Messages behind damage count always. Marks of producers do as removals: a message below the mark may be lost in the
damage, and was not confirmed then, so what its producer sends again must be taken.
Place in the chain: inside recovery.py, which finds the files.
Not here: the ends of segments (recovery.py), the records (record.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.store.log import LEVEL_END, LEVEL_SHIFT, DamagedBytes, Extent, QueueLog, StoredFile
from penstock.store.ranges import union
from penstock.store.record import (
    BATCH,
    FORGOTTEN,
    NOTHING,
    REFERENCE,
    REFERENCE_BIT,
    REFERENCE_BYTES,
    REMOVED,
    SYNCED,
    Batch,
    Damage,
    Marks,
    Range,
    Record,
    decode_forgotten,
    decode_removed,
    raise_marks,
)
from penstock.store.scan import FileScan

DAMAGES_MAX: Final = 10_000  # of one file; a person needs no more, and a file of noise must not fill the memory
RANGES_MERGED: Final = 65_536  # of one queue; more are merged as they come, so that they do not fill the memory
POSITION_END: Final = 1 << 63  # a higher one was never given out


class Trace:
    """One queue, as far as it is known."""

    __slots__ = ("_merge_at", "ends", "forgotten", "log", "marks", "removed", "stored")

    def __init__(self, id_: int) -> None:
        self.log = QueueLog(id_, f"{id_:x}")
        self.stored: dict[int, list[Extent]] = {}  # in segments, by priority; `log` has those in journals
        self.removed: list[Range] = []  # and what is damaged
        self.ends: dict[int, int] = {}
        self.marks: Marks = {}  # of its producers
        self.forgotten = False
        self._merge_at = RANGES_MERGED

    def remove(self, ranges: Sequence[Range]) -> None:
        """In any order; consumers ack in turns, and what they leave between them they fill later."""
        self.removed += ranges
        if len(self.removed) >= self._merge_at:
            self.removed = union(self.removed)
            self._merge_at = max(RANGES_MERGED, 2 * len(self.removed))

    def reach(self, end: int) -> None:
        """This position is the next free one, if there is no higher one."""
        level = (end - 1) >> LEVEL_SHIFT
        if end > self.ends.get(level, 0):
            self.ends[level] = end


class Traces:
    """All queues."""

    __slots__ = ("by_id", "damages", "messages")

    def __init__(self) -> None:
        self.by_id: dict[int, Trace] = {}
        self.damages: list[DamagedBytes] = []
        self.messages = 0

    def of(self, id_: int) -> Trace:
        trace = self.by_id.get(id_)
        if trace is None:
            trace = self.by_id[id_] = Trace(id_)
        return trace


class Replay:
    """One file."""

    __slots__ = ("_damages", "_doubt", "_marks", "_pending", "_seen", "file", "messages", "scan", "traces")

    def __init__(self, file: StoredFile, scan: FileScan, traces: Traces) -> None:
        self.file = file
        self.scan = scan
        self.traces = traces
        self.messages = 0
        self._damages = 0
        self._seen = 0  # of the scan's damages
        self._doubt = False
        self._pending: list[tuple[int, list[Range] | None]] = []  # removals behind damage; None: all of the queue
        self._marks: list[tuple[Trace, Marks]] = []  # of producers, behind damage

    def run(self, tick: Callable[[int, int], None]) -> None:
        """All of a journal. `tick` is told how far it is: offset and messages."""
        for record in self.scan:
            self.look_back()
            kind = record.kind
            try:
                if kind == BATCH:
                    batch = self.batch(record)
                    trace = self.traces.of(batch.queue)
                    if not trace.forgotten:
                        self.append(trace, trace.log, batch)
                elif kind == REMOVED:
                    self._remove(*self._removed(record))
                elif kind == FORGOTTEN:
                    self._remove(decode_forgotten(self.scan.buf, record), None)
                elif kind == SYNCED:
                    self._settle()
                elif kind != NOTHING:
                    raise Damage(f"a record of kind {kind} is in the wrong file")
            except Damage as damage:
                self.damage(record.offset, record.end() - record.offset, str(damage))
            tick(self.scan.base + record.offset, self.messages)
        self.look_back()

    # Messages.

    def batch(self, record: Record) -> Batch:
        batch = Batch(self.scan.buf, record)
        first, last = batch.first, batch.end() - 1
        if first >> LEVEL_SHIFT != last >> LEVEL_SHIFT or last >= POSITION_END:
            raise Damage("a batch's positions are impossible")
        return batch

    def append(self, trace: Trace, log: QueueLog, batch: Batch) -> None:
        """Enter it. Each message that is damaged is reported, and counts as removed."""
        record, first = batch.record, batch.first
        extents = log.extents.get(first >> LEVEL_SHIFT)
        if extents and first < extents[-1].end():
            raise Damage("a batch's positions were there before")
        offset = self.scan.base + record.offset
        extent = log.append(self.file, first, batch.count, offset, record.end() - record.offset)
        contents = batch.contents(self.scan.buf)
        self.messages += batch.count
        if None in contents:
            self._leave_out(trace, batch, contents)
        if batch.large:
            self._refer(trace, batch, contents, extent)
        if batch.marks:
            if self._doubt:
                self._marks.append((trace, batch.marks))
            else:
                raise_marks(trace.marks, batch.marks)

    def _leave_out(self, trace: Trace, batch: Batch, contents: list[bytes | None]) -> None:
        at = batch.record.data_at
        for index, (content, size) in enumerate(zip(contents, batch.sizes, strict=True)):
            size &= ~REFERENCE_BIT
            if content is None:
                position = batch.first + index
                trace.remove([(position, position + 1)])
                self.damage(at, size, f"the checksum of message {position} of queue {trace.log.id:x} is wrong")
            at += size

    def _refer(self, trace: Trace, batch: Batch, contents: list[bytes | None], extent: Extent) -> None:
        for index, size in enumerate(batch.sizes):
            content = contents[index]
            if not size & REFERENCE_BIT or content is None:
                continue
            position = batch.first + index
            if len(content) != REFERENCE_BYTES:
                trace.remove([(position, position + 1)])
                self.damage(batch.record.data_at, len(content), f"the reference of message {position} is wrong")
                continue
            number, offset, length, _ = REFERENCE.unpack(content)
            extent.append_large(position, number, offset, length)

    # What is gone.

    def _removed(self, record: Record) -> tuple[int, list[Range]]:
        queue, ranges = decode_removed(self.scan.buf, record)
        for first, end in ranges:
            if not first < end <= POSITION_END or end - first > LEVEL_END:
                raise Damage("a removal's positions are impossible")
        return queue, ranges

    def _remove(self, queue: int, ranges: list[Range] | None) -> None:
        trace = self.traces.of(queue)
        if ranges is not None:
            for _, end in ranges:
                trace.reach(end)
        if self._doubt:
            self._pending.append((queue, ranges))
        elif ranges is None:
            trace.forgotten = True
        else:
            trace.remove(ranges)

    def _settle(self) -> None:
        """All before this was synced: the damage is no torn write, and what is behind it counts."""
        self._doubt = False
        pending, self._pending = self._pending, []
        for queue, ranges in pending:
            self._remove(queue, ranges)
        for trace, marks in self._marks:
            raise_marks(trace.marks, marks)
        self._marks.clear()

    # Damage.

    def look_back(self) -> None:
        """Report what the scan has passed over."""
        damaged = self.scan.damaged
        if len(damaged) == self._seen:
            return
        for offset, size, why in damaged[self._seen :]:
            self.damage(offset - self.scan.base, size, why)
        self._seen = len(damaged)

    def damage(self, offset: int, size: int, why: str) -> None:
        """At this offset of the scan's buffer."""
        self._doubt = True
        self._damages += 1
        if self._damages < DAMAGES_MAX:
            self.traces.damages.append(DamagedBytes(self.file.path, self.scan.base + offset, size, why))
        elif self._damages == DAMAGES_MAX:
            self.traces.damages.append(
                DamagedBytes(self.file.path, self.scan.base + offset, 0, "from here on there is more than is reported")
            )

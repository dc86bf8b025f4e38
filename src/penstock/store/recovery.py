"""Recovery: what the files of the message store say, at a start.

The newest segment says which journals it covers, which positions of which queue were alive, and whether it was written
by a stop in order. Journals that are newer are read from beginning to end, and every message's checksum with them.
Place in the chain: before it; store.py begins with what is found here.

Whatever is in the files, this never fails on it: what is damaged is reported by file and offset and left out, and what
is behind it is found again. Only a directory that cannot be read, or files of a newer Penstock, refuse the start.
Not here: the records (record.py), journals (replay.py), sealed files (unsealing.py).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.store.bodies import Moved
from penstock.store.compact import BodyFile
from penstock.store.files import Files
from penstock.store.index import KnownState
from penstock.store.log import LEVEL_SHIFT, DamagedBytes, Extent, QueueLog, StoredFile
from penstock.store.ranges import difference, intersection, total, union
from penstock.store.record import (
    BODIES,
    BODY_HEAD_BYTES,
    FILE_HEAD_BYTES,
    JOURNAL,
    SEGMENT,
    Damage,
    Marks,
    NewerFormat,
    Range,
    check_file_head,
    raise_marks,
)
from penstock.store.replay import Replay, Trace, Traces
from penstock.store.scan import FileScan
from penstock.store.sealed import NEW_SUFFIX
from penstock.store.unsealing import ReadSegment, read_bodies, read_segment

QUIET_S: Final = 2.0  # a recovery that takes less says nothing,
PROGRESS_S: Final = 1.0  # a longer one says so often how far it is
TICK_BYTES: Final = 1_048_576

_NAME: Final = re.compile(rf"(journal|segment|bodies|pages)-(\d{{1,10}})({re.escape(NEW_SUFFIX)})?")


class StoreError(Exception):
    """The store cannot be used; one line with the path and the reason."""


class RecoveredLog:
    """One queue. It may have nothing left; `ends` and `marks` are then all that is to be kept of it."""

    __slots__ = ("ends", "living", "log", "marks", "redelivered_below")

    def __init__(self, log: QueueLog) -> None:
        self.log = log
        self.living: list[Range] = []  # closed, and every position is in log's extents
        self.ends: dict[int, int] = {}  # by priority: the next free position
        self.redelivered_below: dict[int, int] = {}  # by priority: what is below this may have been delivered once
        self.marks: Marks = {}  # how far its producers had come, the one not heard of for longest first

    def __repr__(self) -> str:
        return f"<RecoveredLog {self.log.id:x} living={total(self.living)}>"


class RecoveredFile:
    """A journal or segment that is still needed."""

    __slots__ = ("bytes", "file", "messages")

    def __init__(self, file: StoredFile, size: int, messages: int) -> None:
        self.file = file
        self.bytes = size
        self.messages = messages  # in it, alive or not

    def __repr__(self) -> str:
        return f"<RecoveredFile {self.file.path.name} bytes={self.bytes} messages={self.messages}>"


class Recovered:
    __slots__ = (
        "bodies",
        "clean",
        "cut",
        "damages",
        "journals",
        "logs",
        "messages",
        "moved",
        "next_number",
        "scanned_bytes",
        "segments",
    )

    def __init__(self) -> None:
        self.logs: dict[int, RecoveredLog] = {}
        self.next_number = 1  # of whatever file is made next
        self.journals: list[RecoveredFile] = []  # all of them to be covered by the next checkpoint
        self.segments: list[RecoveredFile] = []
        self.bodies: list[BodyFile] = []
        self.moved: dict[int, Moved] = {}  # by the number of the file that bodies were moved to
        self.damages: list[DamagedBytes] = []
        self.cut: DamagedBytes | None = None  # the torn end of the newest journal, which was cut off
        self.clean = False
        self.scanned_bytes = 0
        self.messages = 0  # alive

    def __repr__(self) -> str:
        return f"<Recovered queues={len(self.logs)} messages={self.messages} damages={len(self.damages)}>"


def recover(
    directory: Path,
    files: Files,
    progress: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> Recovered:
    """Read the directory, remove what is left over in it, and cut a torn end. `progress` is told a line every second or
    so if it takes long. StoreError if the start must be refused."""
    recovery = _Recovery(directory, files, _Progress(progress, clock))
    try:
        return recovery.run()
    except NewerFormat as error:
        raise StoreError(f"{recovery.path}: {error}") from None
    except OSError as error:
        raise StoreError(f"{recovery.path}: {error.strerror or error}") from None


class _Progress:
    __slots__ = ("_clock", "_done", "_messages", "_next", "_tell", "_ticked", "of_bytes")

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self._tell = tell
        self._clock = clock
        self._next = clock() + QUIET_S
        self._done = 0  # bytes and messages of the files before this one
        self._messages = 0
        self._ticked = 0
        self.of_bytes = 0

    def tick(self, offset: int, messages: int) -> None:
        """So far in the file at hand."""
        if offset - self._ticked < TICK_BYTES:
            return
        self._ticked = offset
        now = self._clock()
        if now >= self._next:
            self._next = now + PROGRESS_S
            done, of = (self._done + offset) >> 20, self.of_bytes >> 20
            self._tell(f"recovering messages: {done} of {of} MB, {self._messages + messages} messages so far")

    def done(self, size: int, messages: int) -> None:
        """All of the file at hand."""
        self._done += size
        self._messages += messages
        self._ticked = 0


class _Recovery:
    __slots__ = ("_body_sizes", "_directory", "_files", "_found", "_moved", "_names", "_progress", "_traces", "path")

    def __init__(self, directory: Path, files: Files, progress: _Progress) -> None:
        self._directory = directory
        self._files = files
        self._progress = progress
        self._found = Recovered()
        self._traces = Traces()
        self._names: dict[str, dict[int, Path]] = {"journal": {}, "segment": {}, "bodies": {}, "pages": {}}
        self._body_sizes: dict[int, int] = {}  # of files, by number
        self._moved: set[int] = set()  # the numbers of files whose bodies are in others
        self.path = directory  # what is being looked at, for a line that says what went wrong

    def run(self) -> Recovered:
        found = self._found
        found.damages = self._traces.damages
        self._files.make_directory(self._directory)
        self._list()
        newest, covers = self._read_segments()
        self._read_bodies()
        self._drop("journal", [number for number in self._names["journal"] if number <= covers])
        found.clean = newest is not None and newest.seal.clean and not self._names["journal"]
        self._read_journals()
        self._reckon(newest)
        self.path = self._directory
        self._files.sync_directory(self._directory)
        return found

    # Names.

    def _list(self) -> None:
        """What there is. What a crash has left behind, and what was paged out in another life, is removed."""
        found = self._found
        for name in self._files.names(self._directory):
            match = _NAME.fullmatch(name)
            if match is None:
                continue
            number = int(match[2])
            found.next_number = max(found.next_number, number + 1)
            if match[3]:
                self._remove(self._directory / name)
            else:
                self._names[match[1]][number] = self._directory / name
        self._drop("pages", list(self._names["pages"]))

    def _drop(self, kind: str, numbers: list[int]) -> None:
        for number in numbers:
            path = self._names[kind].pop(number, None)
            if path is not None:
                self._remove(path)

    def _remove(self, path: Path) -> None:
        self.path = path
        self._files.remove(path)

    # Segments, the newest first: it says which of the older ones are still needed.

    def _read_segments(self) -> tuple[ReadSegment | None, int]:
        newest: ReadSegment | None = None
        covers = 0
        for number in sorted(self._names["segment"], reverse=True):
            path = self._names["segment"].get(number)
            if path is None:
                continue  # replaced by one that was read already
            self.path = path
            file = StoredFile(SEGMENT, number, path)
            segment = read_segment(self._files, file, self._traces, self._progress.tick)
            newest = newest or segment
            covers = max(covers, segment.seal.covers)
            self._drop("segment", [old for old in segment.seal.replaces if old < number])
            for (queue, level), extent in segment.extents.items():
                trace = self._traces.of(queue)
                trace.stored.setdefault(level, []).append(extent)
            self._found.scanned_bytes += segment.read_bytes
            self._found.segments.append(RecoveredFile(file, segment.bytes, segment.messages))
        self._found.segments.reverse()
        return newest, covers

    def _read_bodies(self) -> None:
        for number in sorted(self._names["bodies"], reverse=True):
            path = self._names["bodies"].get(number)
            if path is None:
                continue
            self.path = path
            file = StoredFile(BODIES, number, path)
            read = read_bodies(self._files, file, self._traces)
            self._found.bodies.append(BodyFile(number, path, read.bytes))
            if read.moved is not None:
                self._found.moved[number] = read.moved
                self._drop("bodies", [old for old in read.seal.replaces if old < number])
            self._body_sizes[number] = read.bytes
        self._found.bodies.reverse()
        for moved in self._found.moved.values():
            self._moved.update(moved.files)

    # Journals, the oldest first.

    def _read_journals(self) -> None:
        sizes: dict[int, int] = {}
        for number, path in self._names["journal"].items():
            self.path = path
            descriptor = self._files.open(path)
            sizes[number] = self._files.size(descriptor)
            self._files.close(descriptor)
        self._progress.of_bytes = sum(sizes.values())
        for number in sorted(sizes):
            path = self.path = self._names["journal"][number]
            newest = number == max(sizes)
            descriptor = self._files.create(path) if newest else self._files.open(path)
            try:
                self._read_journal(StoredFile(JOURNAL, number, path), descriptor, sizes[number], newest)
            finally:
                self._files.close(descriptor)

    def _read_journal(self, file: StoredFile, descriptor: int, size: int, newest: bool) -> None:
        found = self._found
        found.scanned_bytes += size
        scan = FileScan(self._files, descriptor, size)
        replay = Replay(file, scan, self._traces)
        head = self._files.read(descriptor, FILE_HEAD_BYTES, 0)
        wrong = ""
        try:
            check_file_head(head, JOURNAL, file.number)
        except Damage as damage:
            wrong = str(damage)
        replay.run(self._progress.tick)
        self._progress.done(size, replay.messages)
        if newest and wrong and (size <= FILE_HEAD_BYTES or scan.cut == FILE_HEAD_BYTES):
            # The file had its name before its first bytes: nothing of it was ever synced.
            if size:
                found.cut = DamagedBytes(file.path, 0, size, wrong)
            self._files.remove(file.path)
            return
        if wrong:
            found.damages.append(DamagedBytes(file.path, 0, len(head), wrong))
        if scan.cut:
            torn = DamagedBytes(file.path, scan.cut, size - scan.cut, "no record to the end of the file")
            if newest:
                found.cut = torn
                self._files.truncate(descriptor, scan.cut)
                self._files.sync(descriptor)
                size = scan.cut
            else:
                found.damages.append(torn)
        found.journals.append(RecoveredFile(file, size, replay.messages))

    # What is alive.

    def _reckon(self, newest: ReadSegment | None) -> None:
        found = self._found
        states = newest.states if newest is not None else {}
        for queue in states:
            self._traces.of(queue)
        for queue, trace in self._traces.by_id.items():
            if trace.forgotten:
                continue
            state = states.get(queue)
            if state is not None and not state.whole():
                state = None
            elif state is None and newest is not None and newest.whole:
                state = KnownState(0)  # all states are there, and this queue has none: nothing of it was left
            found.logs[queue] = self._reckon_one(trace, state)
            if newest is not None:
                found.logs[queue].marks = newest.marks.get(queue, {})
            raise_marks(found.logs[queue].marks, trace.marks)
        found.messages = sum(total(log.living) for log in found.logs.values())

    def _reckon_one(self, trace: Trace, state: KnownState | None) -> RecoveredLog:
        made = RecoveredLog(trace.log)
        replayed = [extent for extents in trace.log.extents.values() for extent in extents]
        stored = [extent for extents in trace.stored.values() for extent in extents]
        living = _covered(stored)
        if state is not None:
            living = intersection(living, union(state.living))
            for level, end in state.heads.items():
                if end > level << LEVEL_SHIFT:  # or nothing ever came there, and it is the end of the level below
                    trace.reach(end)
        living = union([*living, *_covered(replayed)])
        living = difference(living, union(trace.removed))
        by_level: dict[int, list[Extent]] = {}
        for extent in stored + replayed:
            trace.reach(extent.end())
            by_level.setdefault(extent.level(), []).append(extent)
        ordered = {level: _in_order(extents) for level, extents in sorted(by_level.items())}
        living = self._without_lost_bodies(living, ordered)
        made.living = living
        trace.log.extents = {}
        for level, extents in ordered.items():
            kept = [extent for extent in extents if extent.count(living)]
            if kept:
                trace.log.extents[level] = kept
        made.ends = trace.ends
        if self._found.clean and state is not None:
            made.redelivered_below = dict(state.redelivered_below)
        else:
            made.redelivered_below = dict(trace.ends)
        return made

    def _without_lost_bodies(self, living: list[Range], by_level: dict[int, list[Extent]]) -> list[Range]:
        """Messages whose large content cannot be there are damage. Whether it is as it was is seen when it is read."""
        sizes, moved = self._body_sizes, self._moved
        lost: list[Range] = []
        for extents in by_level.values():
            for extent in extents:
                if not extent.large_positions:
                    continue
                numbers = set(extent.large_files)
                if extent.file.kind == SEGMENT and all(number in sizes or number in moved for number in numbers):
                    continue  # it was written long after them
                for position, number, offset, size in zip(
                    extent.large_positions, extent.large_files, extent.large_offsets, extent.large_sizes, strict=True
                ):
                    there = number in moved or offset + BODY_HEAD_BYTES + size <= sizes.get(number, 0)
                    if not there:
                        lost.append((position, position + 1))
        if not lost:
            return living
        for first, end in intersection(union(lost), living):
            why = f"the large contents of {end - first} messages, from {first} on, are not in any file"
            self._found.damages.append(DamagedBytes(self._directory, 0, 0, why))
        return difference(living, union(lost))


def _covered(extents: list[Extent]) -> list[Range]:
    """The positions that these have."""
    ranges: list[Range] = []
    for extent in extents:
        first, end = extent.first(), extent.end()
        if end - first == extent.messages():
            ranges.append((first, end))
        else:
            ranges += [(start, start + count) for start, count in zip(extent.starts, extent.counts, strict=True)]
    return union(ranges)


def _in_order(extents: list[Extent]) -> list[Extent]:
    """In order of position, cut where others lie between. A position that two files have counts in the newer one only:
    it was written there by a checkpoint whose end is not known."""
    spots = sorted(extents, key=Extent.first)
    if all(spots[at].end() <= spots[at + 1].first() for at in range(len(spots) - 1)):
        return spots
    batches = sorted(
        (start, which, at) for which, extent in enumerate(extents) for at, start in enumerate(extent.starts)
    )
    kept: list[tuple[int, int, int]] = []
    for batch in batches:
        while kept and _end(extents, kept[-1]) > batch[0]:
            if extents[kept[-1][1]].file.number >= extents[batch[1]].file.number:
                break
            kept.pop()
        else:
            kept.append(batch)
    ordered: list[Extent] = []
    for _, which, at in kept:
        part = extents[which].part(at, at + 1)
        if ordered and ordered[-1].file is part.file:
            ordered[-1].extend(part)
        else:
            ordered.append(part)
    return ordered


def _end(extents: list[Extent], batch: tuple[int, int, int]) -> int:
    start, which, at = batch
    return start + extents[which].counts[at]

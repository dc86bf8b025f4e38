"""Streams: all streams of the message store: what is appended to them, and what retention takes away.

Upstream: broker/stream.py casts appends to the store's mailbox, which costs store credit as a deposit does.
Downstream: the journal's thread, which writes and syncs the streams' segments with its own file.

Each piece of work has one stretch for each segment it adds to. When it is synced the stretches are entered: readers see
them, receipts are told. A segment that is full is rolled: the next one begins, and when all of the old one is synced,
its index is written behind it. Only then may retention drop it.
Not here: what is where (stream.py), bytes and recovery (streamfile.py), reading (streamreader.py).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Final

from penstock.runtime import Clock, Timer
from penstock.store.deposit import Content, origins_of
from penstock.store.files import Files
from penstock.store.journal import Target, Work, Write
from penstock.store.log import StoredFile
from penstock.store.record import FILE_HEAD_BYTES, STREAM, SYNCED_RECORD, NewerFormat, encode_batch
from penstock.store.recovery import StoreError
from penstock.store.stream import SEGMENT_NAME, Append, Read, StreamLog, StreamSegment, Stretch, mark
from penstock.store.streamfile import StreamRecovery, encode_offsets, encode_segment_head
from penstock.store.streamreader import Removal, StreamReading, find_stamp

if TYPE_CHECKING:
    from penstock.store.store import MessageStore

DIRECTORY: Final = "streams"
BATCH_BYTES: Final = 131_072  # in one batch, about: a reader has a whole batch in RAM
BATCH_MESSAGES_MAX: Final = 4096  # in one batch of more than one append
RECORD_BYTES: Final = 64  # of a batch beside its messages, about
JOIN_MS: Final = 10  # appends that are further apart are not one batch, so that offsets are found by time
RETAIN_S: Final = 5.0  # how often retention is looked at beside when a segment begins

_NAME: Final = re.compile("[0-9a-f]{16}")


class Roll:
    """A stream whose next message goes to a new segment, and whose old ones are sealed."""

    __slots__ = ("log",)

    def __init__(self, log: StreamLog) -> None:
        self.log = log


class Index:
    """A segment whose index can be written: all else in it is synced."""

    __slots__ = ("log", "segment")

    def __init__(self, log: StreamLog, segment: StreamSegment) -> None:
        self.log = log
        self.segment = segment


StreamItem = Append | Roll | Index


class Streams:
    __slots__ = (
        "_clock",
        "_directory",
        "_files",
        "_found",
        "_report",
        "_store",
        "_stretches",
        "_timer",
        "logs",
        "now_ms",
        "reading",
    )

    def __init__(
        self,
        store: MessageStore,
        directory: Path,
        files: Files,
        clock: Clock,
        post: Callable[[Callable[[], None]], object],
        report: Callable[[str], None],
    ) -> None:
        """The store's directory; `report` gets lines for the log."""
        self._store = store
        self._directory = directory / DIRECTORY
        self._files = files
        self._clock = clock
        self._report = report
        self._stretches: dict[StreamSegment, Stretch] = {}  # of the piece of work at hand
        self._timer: Timer | None = None
        self.reading = StreamReading(files, post, report)
        self.logs: dict[int, StreamLog] = {}
        self.now_ms: Callable[[], int] = wall_ms
        self._found = self._list()

    # Streams come and go.

    def _list(self) -> set[int]:
        try:
            return {int(name, 16) for name in self._files.names(self._directory) if _NAME.fullmatch(name)}
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise StoreError(f"{self._directory}: {error.strerror}") from None

    @property
    def strangers(self) -> set[int]:
        """Ids of streams that are on disk and that nobody has opened."""
        return self._found - self.logs.keys()

    def open(self, id_: int, name: str) -> StreamLog:
        """What the disk has of it, or a new one. StoreError says why it cannot be used."""
        log = StreamLog(id_, name, self._directory / f"{id_:016x}", self)
        if id_ in self._found:
            recovery = StreamRecovery(self._files, log, self._report)
            try:
                recovery.run()
            except NewerFormat as newer:
                raise StoreError(f"{recovery.path}: {newer}") from None
            except OSError as error:
                raise StoreError(f"{recovery.path}: {error.strerror}") from None
            log.unsealed = [segment for segment in log.segments[:-1] if not segment.sealed]
            if log.unsealed or (log.segments and not log.segments[-1].durable):
                self._store.mailbox.cast(Index(log, log.segments[-1]))
        self.logs[id_] = log
        if self._timer is None:
            self._timer = self._clock.call_later(RETAIN_S, self._retain)
        return log

    def forget(self, log: StreamLog) -> None:
        """The stream is gone."""
        log.forgotten = True
        self.logs.pop(log.id, None)
        self._found.discard(log.id)
        # The journal's thread may still be about to write to it, or even to make its files.
        self._store.when_synced(partial(self._remove, log))

    def remove_strangers(self) -> int:
        """Streams that nobody has opened; how many there were."""
        strangers = self.strangers
        for id_ in strangers:
            self._found.discard(id_)
            self.reading.remove(Removal([], self._directory / f"{id_:016x}"))
        return len(strangers)

    def _remove(self, log: StreamLog) -> None:
        self.reading.remove(Removal([], log.directory, self._released(log.segments)))
        log.segments.clear()

    def _released(self, segments: Sequence[StreamSegment]) -> list[int]:
        """Descriptors that the journal's thread has left open, and does not use any more."""
        descriptors: list[int] = []
        for segment in segments:
            target, segment.target = segment.target, None
            if target is not None and target.descriptor >= 0:
                descriptors.append(target.descriptor)
                target.descriptor = -1
        return descriptors

    # Reading.

    def read(self, read: Read) -> None:
        """The answer comes later, on this thread."""
        if not read.log.forgotten:
            read.log.locate(read)
        self.reading.read(read)

    def offset_within(self, segment: StreamSegment, position: int, offset: int, stamp_ms: int) -> int:
        return find_stamp(self._files, segment, position, offset, stamp_ms)

    # The broker's side of appending and retention.

    def append(self, append: Append) -> None:
        if append.link is not None:
            append.link.spend(len(append.messages), append.size)
        self._store.expect(len(append.messages), append.size)
        self._store.mailbox.cast(append)

    def roll(self, log: StreamLog) -> None:
        self._store.mailbox.cast(Roll(log))

    def dropped(self, log: StreamLog, segments: list[StreamSegment]) -> None:
        self.reading.remove(Removal([segment.path for segment in segments], None, self._released(segments)))

    def _retain(self) -> None:
        self._timer = None
        now_ms = self.now_ms()
        for log in list(self.logs.values()):
            if log.max_bytes >= 0 or log.max_age_ms >= 0:
                log.retain(now_ms)
        if self.logs:
            self._timer = self._clock.call_later(RETAIN_S, self._retain)

    # The stage's turn.

    def take(self, item: StreamItem, work: Work) -> int:
        """How many bytes it adds to the piece of work."""
        log = item.log
        if isinstance(item, Append):
            return self._append(item, work)
        if log.forgotten:
            return 0
        if isinstance(item, Index):
            return self._index(log, item.segment, work)
        active = log.active()
        if active is None or active.is_empty():
            return 0
        work.to_sync = True
        return self._roll(log, active)

    def writes(self, work: Work) -> list[Write]:
        """All that was taken since the last time."""
        work.stretches = list(self._stretches.values())
        self._stretches.clear()
        for stretch in work.stretches:
            target = stretch.write.target
            self._encode(stretch)
            stretch.size = target.size
            if stretch.indexes and stretch.segment.rolled:
                work.seals.append(target)
        return [stretch.write for stretch in work.stretches]

    def _append(self, append: Append, work: Work) -> int:
        log = append.log
        if append.link is not None:
            append.link.handle(len(append.messages), append.size)
        if log.forgotten:
            self._store.expect(-len(append.messages), -append.size)
            if append.receipt is not None:
                append.receipt.kept()  # a deleted stream counts as confirmed
            return 0
        work.messages += len(append.messages)
        work.bytes += append.size
        stamp_ms = log.stamp_ms = max(log.stamp_ms, append.stamp_ms)
        gathered = append.size + RECORD_BYTES
        active = log.active()
        if active is None:
            gathered += self._begin(log, append.first)
        elif self._is_full(log, active):
            gathered += self._roll(log, active, append.first)
        stretch = self._stretch(log, log.segments[-1])
        first = append.first
        for messages, size in _parts(append):
            if stretch.open and not _fits(stretch, first, len(messages), size, stamp_ms):
                self._encode(stretch)
            if not stretch.open:
                stretch.open_first, stretch.open_since_ms = first, stamp_ms
            stretch.open += messages
            stretch.open_bytes += size
            stretch.stamp_ms = stamp_ms
            first += len(messages)
        stretch.end = first
        stretch.indexes = False
        if append.marks:
            mark(log.cast_marks, append.marks)
            mark(stretch.marks, append.marks)
            mark(stretch.open_marks, append.marks)  # they speak of all its messages, so they come with the last ones
        if append.receipt is not None:
            stretch.receipts.append(append.receipt)
            work.awaited = True
        work.to_sync = True
        return gathered

    def _encode(self, stretch: Stretch) -> None:
        """What is open, as one batch; it has the time of its last message, so that none is looked for in vain."""
        if not stretch.open:
            return
        contents = [content for _, content in stretch.open]
        record = encode_batch(
            stretch.log.id,
            stretch.open_first,
            _joined(origins_of(stretch.open)),
            contents,
            stamp_ms=stretch.stamp_ms,
            marks=stretch.open_marks,
        )
        target = stretch.write.target
        stretch.segment.enter(stretch.open_first, target.size, stretch.stamp_ms)
        stretch.write.buffers.append(record)
        stretch.last = stretch.open_first
        target.size += len(record)
        stretch.open, stretch.open_bytes, stretch.open_marks = [], 0, {}

    def _is_full(self, log: StreamLog, active: StreamSegment) -> bool:
        size = active.size if active.target is None else active.target.size
        stretch = self._stretches.get(active)
        if stretch is not None and stretch.open:
            return size + stretch.open_bytes >= log.segment_bytes
        return size >= log.segment_bytes and not active.is_empty()

    def _stretch(self, log: StreamLog, segment: StreamSegment) -> Stretch:
        target = segment.target
        is_first = target is None  # in this life
        if target is None:
            target = segment.target = Target(StoredFile(STREAM, segment.salt, segment.path))
            target.size = segment.size
        stretch = self._stretches.get(segment)
        if stretch is None:
            stretch = self._stretches[segment] = Stretch(log, segment, Write(target, target.size, []))
            segment.pending += 1
            record = b""
            if target.size == 0:
                settled = log.synced == segment.first
                record = encode_segment_head(segment.salt)
                record += encode_offsets(log.id, segment, log.cast_marks, FILE_HEAD_BYTES, settled)
                stretch.indexes = True
            elif is_first and not segment.indexed:
                # What another life has left behind, and what was made of its marks.
                record = encode_offsets(log.id, segment, log.producers, target.size, settled=True)
                stretch.indexes = True
            elif self._store.is_synced():  # so all before it is, which recovery wants to know
                record = SYNCED_RECORD
            if record:
                stretch.write.buffers.append(record)
                target.size += len(record)
        return stretch

    def _begin(self, log: StreamLog, first: int) -> int:
        """A new segment; how many bytes it has."""
        segment = StreamSegment(log.directory / SEGMENT_NAME.format(first), first, randbits(32))
        segment.stamp_ms = log.stamp_ms
        log.segments.append(segment)
        return self._stretch(log, segment).write.target.size

    def _roll(self, log: StreamLog, active: StreamSegment, first: int = -1) -> int:
        """The next segment begins, with this offset or with whatever comes next."""
        active.rolled = True
        stretch = self._stretches.get(active)
        if first < 0:
            first = stretch.end if stretch is not None and stretch.end else active.end
        size = self._begin(log, first)
        if not active.pending:
            self._store.mailbox.cast(Index(log, active))
        return size

    def _index(self, log: StreamLog, segment: StreamSegment, work: Work) -> int:
        """Of a segment whose stretches are all entered."""
        if segment.sealed or segment.pending:
            return 0
        stretch = self._stretch(log, segment)
        target = stretch.write.target
        if not stretch.indexes:
            record = encode_offsets(log.id, segment, log.producers, target.size, settled=True)
            stretch.write.buffers.append(record)
            stretch.indexes = True
            target.size += len(record)
        work.to_sync = True
        return target.size - segment.size

    # Synced, or not.

    def enter(self, stretches: Sequence[Stretch]) -> None:
        """They are synced: from now on they can be read, and confirmed."""
        appended: dict[StreamLog, None] = {}
        rolled: dict[StreamLog, None] = {}
        for stretch in stretches:
            if stretch.log.forgotten:
                continue
            self._enter(stretch.log, stretch.segment, stretch)
            if stretch.end:
                appended[stretch.log] = None
            if stretch.segment.sealed:
                rolled[stretch.log] = None
        for stretch in stretches:
            for receipt in stretch.receipts:
                receipt.kept()
        for log in appended:
            if log.owner is not None:
                log.owner.appended()
        for log in rolled:
            log.retain(self.now_ms())

    def _enter(self, log: StreamLog, segment: StreamSegment, stretch: Stretch) -> None:
        log.bytes += stretch.size - segment.size
        segment.size = stretch.size
        segment.pending -= 1
        segment.durable = True
        segment.indexed = stretch.indexes
        if stretch.end:
            segment.end = log.synced = stretch.end
            segment.last = stretch.last
            segment.stamp_ms = stretch.stamp_ms
            log.mark(stretch.marks)
        if log.unsealed:
            # Only now: the last segment says what was made of the marks, so these may say the same.
            for old in log.unsealed:
                self._store.mailbox.cast(Index(log, old))
            log.unsealed = []
        if not segment.rolled:
            return
        if stretch.indexes:
            segment.sealed = True
        elif not segment.pending:
            self._store.mailbox.cast(Index(log, segment))

    def doubt(self, stretches: Sequence[Stretch]) -> None:
        """A sync failed."""
        for stretch in stretches:
            for receipt in stretch.receipts:
                receipt.doubted()

    # The end.

    def index_all(self, work: Work) -> int:
        """When all is synced, before a stop in order: so that the next start reads the ends of segments only."""
        gathered = 0
        for log in self.logs.values():
            for segment in log.segments:
                if not segment.sealed and not segment.indexed and segment.size and segment not in log.unsealed:
                    gathered += self._index(log, segment, work)
        return gathered

    def close(self) -> None:
        """The journal's thread has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for log in self.logs.values():
            for descriptor in self._released(log.segments):
                self._files.close(descriptor)
        self.reading.close()

    def __repr__(self) -> str:
        return f"<Streams logs={len(self.logs)} strangers={len(self.strangers)} reads={self.reading.asked}>"


def _parts(append: Append) -> Iterator[tuple[Sequence[Content], int]]:
    """The messages in parts of about BATCH_BYTES, with their bytes."""
    messages = append.messages
    if append.size <= BATCH_BYTES:
        yield messages, append.size
        return
    begin, size = 0, 0
    for at, (_, content) in enumerate(messages):
        if size and size + len(content) > BATCH_BYTES:
            yield messages[begin:at], size
            begin, size = at, 0
        size += len(content)
    yield messages[begin:], size


def _fits(stretch: Stretch, first: int, count: int, size: int, stamp_ms: int) -> bool:
    """Whether these can be in one batch with what is open."""
    messages = len(stretch.open)
    return (
        stretch.open_bytes + size <= BATCH_BYTES
        and messages + count <= BATCH_MESSAGES_MAX
        and stamp_ms - stretch.open_since_ms <= JOIN_MS
        and first == stretch.open_first + messages
    )


def _joined(runs: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Neighbours of the same origin as one: what came in several appends was mostly published in the same way."""
    if len(runs) == 1:
        return runs
    joined: list[tuple[int, bytes]] = []
    for count, origin in runs:
        if joined and joined[-1][1] == origin:
            joined[-1] = joined[-1][0] + count, origin
        else:
            joined.append((count, origin))
    return joined


def wall_ms() -> int:
    return int(time.time() * 1000)

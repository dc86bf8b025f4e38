"""StreamLog: one stream on disk: its segments, which offset is where in them, and how far readers may see.

A stream only grows at its end and is only cut at its beginning. A message's offset is its number for ever. Batches of
messages lie in segments, one file each; the sparse index of a segment has an entry for the first batch in about every
INDEX_BYTES, so what is in RAM does not depend on how small batches are.
Place in the chain: beside it. The broker gives out offsets (`end`) and casts appends; streams.py encodes and enters
them; streamreader.py reads. `synced` is the line between what was cast and what readers may see.
Not here: files and threads (streams.py, streamreader.py), what a segment's bytes are (record.py, streamfile.py), AMQP.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final, Protocol

from penstock.credit import Link
from penstock.store.deposit import Content, Receipt
from penstock.store.journal import Target, Write
from penstock.store.record import Marks, raise_marks

SEGMENT_BYTES: Final = 67_108_864  # when a segment has so many, the next one begins; retention drops whole segments
INDEX_BYTES: Final = 65_536  # between two entries of the sparse index, at least: what a seek reads in vain, at most
PRODUCERS_MAX: Final = 4096  # whose marks are kept, the last ones heard of; RabbitMQ's limit is 255
HINTS_MAX: Final = 256  # readers of one stream whose place in the file is remembered

SEGMENT_NAME: Final = "{:020d}.seg"  # by its first offset

_FIRST = attrgetter("first")


class StreamOwner(Protocol):
    """A stream, as the store sees it."""

    def appended(self) -> None:
        """`synced` has moved."""
        ...

    def retained(self) -> None:
        """`first` has moved."""
        ...


class StreamReader(Protocol):
    """Who asked for messages."""

    def fetched_stream(self, read: Read) -> None: ...


class StreamHome(Protocol):
    """What a log asks of streams.py."""

    def roll(self, log: StreamLog) -> None: ...

    def dropped(self, log: StreamLog, segments: list[StreamSegment]) -> None: ...

    def offset_within(self, segment: StreamSegment, position: int, offset: int, stamp_ms: int) -> int: ...


class Append:
    """Messages to be kept at the end of a stream; the first of them has offset `first`."""

    __slots__ = ("first", "link", "log", "marks", "messages", "receipt", "size", "stamp_ms")

    def __init__(
        self,
        log: StreamLog,
        link: Link | None,
        first: int,
        messages: Sequence[Content],
        size: int,
        stamp_ms: int,
        receipt: Receipt | None = None,
        marks: Marks | None = None,
    ) -> None:
        self.log = log
        self.link = link
        self.first = first
        self.messages = messages
        self.size = size  # bytes of the contents
        self.stamp_ms = stamp_ms  # milliseconds since 1970
        self.receipt = receipt
        self.marks = marks  # by producer, the highest publishing id in it

    def __repr__(self) -> str:
        return f"<Append {self.log.name} first={self.first} count={len(self.messages)}>"


class StreamFound:
    """Messages of one batch; a content is None where it is damaged."""

    __slots__ = ("contents", "first", "origins", "stamp_ms")

    def __init__(
        self, first: int, origins: list[tuple[int, bytes]], contents: list[bytes | None], stamp_ms: int
    ) -> None:
        self.first = first
        self.origins = origins  # runs
        self.contents = contents
        self.stamp_ms = stamp_ms

    def end(self) -> int:
        return self.first + len(self.contents)

    def __repr__(self) -> str:
        return f"<StreamFound first={self.first} count={len(self.contents)}>"


class Read:
    """Messages of a stream to be read, from this offset on: whole batches, so the first one may begin before it, and
    at least one of them if there is any, so there may be more than `bytes_max`. What is gone by now is passed over.

    It may come back with nothing found and yet a `next` that has moved: behind damage, the rest of a segment may be
    unreadable."""

    __slots__ = (
        "bytes_max",
        "damages",
        "found",
        "log",
        "next",
        "offset",
        "position",
        "reader",
        "seek_bytes",
        "segment",
        "size",
        "stale",
        "trouble",
        "until",
    )

    def __init__(self, reader: StreamReader, log: StreamLog, offset: int, bytes_max: int) -> None:
        self.reader = reader
        self.log = log
        self.offset = offset
        self.bytes_max = bytes_max
        # What streams.py fills in:
        self.segment: StreamSegment | None = None
        self.position = 0  # in its file: where to begin; when it is answered, where to go on
        self.size = 0  # of it, that may be read
        self.until = offset  # no message with this offset or a higher one is to be read from it
        self.seek_bytes = 0  # that may lie between the position and the offset
        # The answer:
        self.found: list[StreamFound] = []
        self.next = offset  # to go on with
        self.damages: list[str] = []  # what is wrong, by file and offset
        self.trouble = ""  # why the disk cannot be read
        self.stale = False  # the stream is gone, or its file

    def __repr__(self) -> str:
        return f"<Read {self.log.name} offset={self.offset} next={self.next} found={len(self.found)}>"


class StreamSegment:
    """One file of a stream. The sparse index has what was cast; all else is as of the last sync."""

    __slots__ = (
        "durable",
        "end",
        "first",
        "indexed",
        "last",
        "offsets",
        "path",
        "pending",
        "positions",
        "rolled",
        "salt",
        "sealed",
        "size",
        "stamp_ms",
        "stamps",
        "target",
    )

    def __init__(self, path: Path, first: int, salt: int) -> None:
        self.path = path
        self.first = first
        self.salt = salt  # a random number of this file: what a client sent cannot pass for its index
        self.end = first  # the offset behind its last message
        self.last = first  # the first offset of its last batch
        self.stamp_ms = 0  # of its last batch; of the one before it, if it has none
        self.size = 0
        self.durable = False  # it is on disk, with all that must be known if those before it are dropped
        self.pending = 0  # pieces of work that add to it and are not synced yet
        self.indexed = False  # its last record is its index
        self.rolled = False  # the next segment has begun
        self.sealed = False  # and nothing more is written here
        self.target: Target | None = None  # if it may still be written to
        self.offsets = array("Q")
        self.positions = array("Q")
        self.stamps = array("Q")

    def enter(self, offset: int, position: int, stamp_ms: int) -> None:
        """A batch, into the sparse index."""
        positions = self.positions
        if not positions or position - positions[-1] >= INDEX_BYTES:
            self.offsets.append(offset)
            positions.append(position)
            self.stamps.append(stamp_ms)

    def is_empty(self) -> bool:
        """Nothing was ever cast to it."""
        return not self.positions

    def position_of(self, offset: int) -> int:
        """Where to begin in order to find this offset; 0 if nothing is there."""
        at = bisect_right(self.offsets, offset)
        return self.positions[max(0, at - 1)] if self.positions else 0

    def __repr__(self) -> str:
        state = " sealed" if self.sealed else " rolled" if self.rolled else ""
        return f"<StreamSegment {self.path.name} end={self.end} size={self.size}{state}>"


class Stretch:
    """What one piece of work adds to one segment. Appends that come together become one batch: `open` has the messages
    that are not encoded yet."""

    __slots__ = (
        "end",
        "indexes",
        "last",
        "log",
        "marks",
        "open",
        "open_bytes",
        "open_first",
        "open_marks",
        "open_since_ms",
        "receipts",
        "segment",
        "size",
        "stamp_ms",
        "write",
    )

    def __init__(self, log: StreamLog, segment: StreamSegment, write: Write) -> None:
        self.log = log
        self.segment = segment
        self.write = write
        self.open: list[Content] = []
        self.open_bytes = 0
        self.open_first = 0
        self.open_marks: Marks = {}
        self.open_since_ms = 0
        self.end = 0  # 0: there are no messages in it
        self.last = 0
        self.stamp_ms = 0
        self.size = 0
        self.marks: Marks = {}
        self.receipts: list[Receipt] = []
        self.indexes = False  # the segment's index is the last of it


class StreamLog:
    __slots__ = (
        "bytes",
        "cast_marks",
        "directory",
        "end",
        "first",
        "forgotten",
        "hints",
        "home",
        "id",
        "max_age_ms",
        "max_bytes",
        "name",
        "owner",
        "producers",
        "segment_bytes",
        "segments",
        "stamp_ms",
        "synced",
        "unsealed",
    )

    def __init__(self, id_: int, name: str, directory: Path, home: StreamHome) -> None:
        self.id = id_
        self.name = name
        self.directory = directory
        self.home = home
        self.first = 0  # the oldest message that is kept
        self.end = 0  # what the next append begins with; the broker moves it
        self.synced = 0  # readers may see what is below
        self.bytes = 0  # on disk
        self.segment_bytes = SEGMENT_BYTES
        self.max_bytes = -1  # retention; -1 is without limit
        self.max_age_ms = -1
        self.producers: Marks = {}  # as of the synced end, the one not heard of for longest first
        self.forgotten = False
        self.owner: StreamOwner | None = None
        # For streams.py:
        self.segments: list[StreamSegment] = []  # in order; the last one is active
        self.unsealed: list[StreamSegment] = []  # that another life has left without an index
        self.cast_marks: Marks = {}  # as of what was cast
        self.stamp_ms = 0  # the highest that was cast: a clock that is set back must not make offsets go back with time
        self.hints: dict[int, tuple[StreamSegment, int]] = {}  # where the offsets are that readers will ask for next

    # For the broker.

    def offset_at(self, stamp_ms: int) -> int:
        """The first offset of the first batch that is stamped with this time or a later one; if there is none, the one
        that is written next. Reads some 64 KB from disk."""
        for segment in self.segments:
            if segment.end > segment.first and segment.stamp_ms >= stamp_ms:
                break
        else:
            return self.synced
        at = bisect_left(segment.stamps, stamp_ms)
        if at == 0:
            return max(self.first, segment.offsets[0])
        # It is the batch of this entry, or one between the entry before it, which is too early, and this.
        behind = segment.offsets[at] if at < len(segment.offsets) else segment.end
        found = self.home.offset_within(segment, segment.positions[at - 1], segment.offsets[at - 1], stamp_ms)
        return min(found, behind, self.synced)

    def last_batch(self) -> int:
        """The first offset of the last batch that readers may see; the end, if there is none."""
        for segment in reversed(self.segments):
            if segment.end > segment.first:
                return max(self.first, segment.last)
        return self.synced

    def retain(self, now_ms: int) -> None:
        """Drop old segments that retention does not want: never the active one. If even that is too old, a new one
        begins first."""
        segments = self.segments
        too_old_ms = now_ms - self.max_age_ms if self.max_age_ms >= 0 else -1
        count, size = 0, self.bytes
        while count < len(segments) - 1 and segments[count].sealed and segments[count + 1].durable:
            segment = segments[count]
            if not (0 <= self.max_bytes < size or segment.stamp_ms < too_old_ms):
                break
            size -= segment.size
            count += 1
        if count:
            dropped = segments[:count]
            del segments[:count]
            self.bytes = size
            self.first = segments[0].first
            self.home.dropped(self, dropped)
            if self.owner is not None:
                self.owner.retained()
        if len(segments) == 1 and self.synced == self.end:
            active = segments[0]
            if active.end > active.first and active.stamp_ms < too_old_ms and not active.rolled:
                self.home.roll(self)

    # For streams.py.

    def active(self) -> StreamSegment | None:
        return self.segments[-1] if self.segments else None

    def locate(self, read: Read) -> None:
        """Where the read begins, and how far it may go. Its segment stays None if there is nothing to read."""
        read.next = offset = max(read.offset, self.first)
        if offset >= self.synced:
            return
        segments = self.segments
        at = bisect_right(segments, offset, key=_FIRST) - 1
        while at < len(segments) and segments[at].end <= offset:
            at += 1  # what was between them is lost
        if at == len(segments):
            read.next = self.synced
            return
        segment = segments[at]
        behind = segments[at + 1].first if at + 1 < len(segments) else self.synced
        read.segment = segment
        read.until = min(behind, segment.end)
        read.size = segment.size
        hint = self.hints.pop(offset, None)
        if hint is not None and hint[0] is segment:
            read.position = hint[1]
        else:
            read.position = segment.position_of(offset)
            read.seek_bytes = INDEX_BYTES
        read.next = max(offset, segment.first)

    def remember(self, read: Read) -> None:
        """Where a reader will go on, probably."""
        if read.segment is None or (read.next >= read.until and read.until < self.synced):
            return  # it goes on in another file
        if len(self.hints) >= HINTS_MAX:
            del self.hints[next(iter(self.hints))]
        self.hints[read.next] = read.segment, read.position

    def mark(self, marks: Marks) -> None:
        """These are synced."""
        mark(self.producers, marks)

    def __repr__(self) -> str:
        return f"<StreamLog {self.name} first={self.first} synced={self.synced} end={self.end} bytes={self.bytes}>"


def mark(known: Marks, marks: Marks) -> None:
    raise_marks(known, marks)
    while len(known) > PRODUCERS_MAX:
        del known[next(iter(known))]

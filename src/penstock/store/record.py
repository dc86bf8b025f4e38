"""Record: the byte format of the message store's files; docs/store.md has it byte by byte. No I/O.

A file begins with a head of 16 bytes and goes on with records. A record is a head of 20 bytes, a table and data:

    magic 4, kind 1, flags 1, zero 2, table bytes 4, data bytes 4, crc32 of bytes 4..16 and the table 4

The data of a batch are messages back to back, each with its own checksum in the table, so that one flipped byte costs
one message. The magic lets a reader find the next record behind a damaged one.
Not here: reading and writing files (files.py), which file a record goes to (store.py, segment.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, error, pack, unpack_from
from typing import Final
from zlib import crc32

FILE_MAGIC: Final = b"PENSTOCK"
FILE_HEAD: Final = Struct(">8sBBHI")  # magic, kind of file, format, low half of the crc32 of the rest, number
FILE_HEAD_BYTES: Final = FILE_HEAD.size
FORMAT: Final = 1  # of all files; one with a higher format was written by a newer Penstock

JOURNAL: Final = 1
SEGMENT: Final = 2
BODIES: Final = 3
PAGES: Final = 4
COMPACTED: Final = (
    5  # bodies that were moved; a file of its own kind, for what a client sent must not pass for its index
)
STREAM: Final = 6

MAGIC: Final = b"\x9cPnR"  # no text has it, and no AMQP frame begins so
HEAD: Final = Struct(">4sBBHIII")
HEAD_BYTES: Final = HEAD.size
CRC_AT: Final = HEAD_BYTES - 4

BATCH: Final = 1  # messages of one queue with consecutive positions
REMOVED: Final = 2  # positions of one queue that are gone
FORGOTTEN: Final = 3  # a queue that is gone
BODY: Final = 4  # one large content, in a file of bodies
STATES: Final = 5  # which positions of which queue are alive, at the end of a segment (index.py)
INDEX: Final = 6  # where the batches of a segment are, at its end
MOVED: Final = 7  # which bodies a compacted file of bodies has, at its end
SEAL: Final = 8  # what a segment or compacted file stands for: its first and its last record
SYNCED: Final = 9  # everything before this in the journal was synced when it was written
NOTHING: Final = 10  # has no meaning: it is written where there must be something to sync
OFFSETS: Final = 11  # what is in a stream's segment up to here (streamfile.py)
MARKS: Final = 12  # how far the producers of each queue have come, at the end of a segment (index.py)

# Flags of a batch: its table has
DEADLINES: Final = 1  # the deadline of every message,
STAMPED: Final = 2  # the time when it was appended to a stream,
MARKED: Final = 4  # the highest publishing ids of producers that are in it

REFERENCE_BIT: Final = 1 << 31  # in a size: the data are a reference to a body
REFERENCE: Final = Struct(">IQII")  # file, offset of its record there, size, zero
REFERENCE_BYTES: Final = REFERENCE.size
MESSAGE_BYTES_MAX: Final = REFERENCE_BIT - 1
TABLE_BYTES_MAX: Final = 67_108_864  # a longer one is a damaged length: nothing is read for it

_BATCH: Final = Struct(">QQII")  # queue, first position, messages, runs of origins
_REMOVED: Final = Struct(">QI")  # queue, ranges
_RUN: Final = Struct(">IH")  # messages, bytes of their origin
_STAMP: Final = Struct(">Q")  # milliseconds since 1970
_MARKS: Final = Struct(">I")  # producers
_PRODUCER: Final = Struct(">H")  # bytes of its name
_MARK: Final = Struct(">q")  # a publishing id; AMQP's is signed
_QUEUE: Final = Struct(">Q")
_BODY: Final = Struct(">IIQ")  # crc32 of the content; the file and the offset it is known by
BODY_HEAD_BYTES: Final = HEAD_BYTES + _BODY.size

PRODUCER_BYTES_MAX: Final = 65_535  # of a producer's name; whoever takes marks from clients must see to it

Range = tuple[int, int]  # first, and the one behind the last
Marks = dict[str, int]  # the highest publishing id by producer


class Damage(Exception):
    """Bytes that cannot be what was written."""


class Short(Damage):
    """The buffer ends before the record does, which has `needs` bytes, as far as can be seen."""

    def __init__(self, why: str, needs: int) -> None:
        super().__init__(why)
        self.needs = needs


def encode_file_head(kind: int, number: int) -> bytes:
    check = crc32(FILE_HEAD.pack(FILE_MAGIC, kind, FORMAT, 0, number)) & 0xFFFF
    return FILE_HEAD.pack(FILE_MAGIC, kind, FORMAT, check, number)


def check_file_head(buf: bytes, kind: int, number: int) -> None:
    """Damage says what is wrong with it."""
    if len(buf) < FILE_HEAD_BYTES:
        raise Damage("it ends within its head")
    magic, its_kind, its_format, check, its_number = FILE_HEAD.unpack_from(buf, 0)
    if magic != FILE_MAGIC:
        raise Damage("it is no file of Penstock's store")
    # Before the format: one flipped bit must not pass for a newer Penstock, which would refuse the start.
    if crc32(FILE_HEAD.pack(magic, its_kind, its_format, 0, its_number)) & 0xFFFF != check:
        raise Damage("its head's checksum is wrong")
    if its_format > FORMAT:
        raise NewerFormat(f"it has format {its_format}, written by a newer Penstock; this one knows format {FORMAT}")
    if its_kind != kind or its_number != number:
        raise Damage(f"its head says kind {its_kind}, number {its_number}")


class NewerFormat(Exception):
    """Not damage: a newer Penstock must read it."""


def encode_record(kind: int, flags: int, table: bytes, data_bytes: int) -> bytes:
    """Head and table; the data follow."""
    head = HEAD.pack(MAGIC, kind, flags, 0, len(table), data_bytes, 0)
    crc = crc32(table, crc32(head[4:CRC_AT]))
    return b"".join((head[:CRC_AT], crc.to_bytes(4, "big"), table))


class Record:
    """One record in a buffer: where it is, and where its table and data are."""

    __slots__ = ("data_at", "data_bytes", "flags", "kind", "offset", "table_at")

    def __init__(self, kind: int, flags: int, offset: int, table_bytes: int, data_bytes: int) -> None:
        self.kind = kind
        self.flags = flags
        self.offset = offset
        self.table_at = offset + HEAD_BYTES
        self.data_at = self.table_at + table_bytes
        self.data_bytes = data_bytes

    def end(self) -> int:
        return self.data_at + self.data_bytes

    def __repr__(self) -> str:
        return f"<Record kind={self.kind} at {self.offset} bytes={self.end() - self.offset}>"


def read_record(buf: bytes, offset: int) -> Record:
    """The record at this offset of the buffer; Damage if there is none, or not all of it."""
    if len(buf) - offset < HEAD_BYTES:
        raise Short("it ends within a record's head", HEAD_BYTES)
    magic, kind, flags, _, table_bytes, data_bytes, crc = HEAD.unpack_from(buf, offset)
    if magic != MAGIC:
        raise Damage("no record begins here")
    if table_bytes > TABLE_BYTES_MAX:
        raise Damage("a record's length is wrong")
    record = Record(kind, flags, offset, table_bytes, data_bytes)
    if record.data_at > len(buf):
        raise Short("it ends within a record's table", HEAD_BYTES + table_bytes)
    table = buf[record.table_at : record.data_at]
    if crc32(table, crc32(buf[offset + 4 : offset + CRC_AT])) != crc:
        raise Damage("a record's checksum is wrong")
    if record.end() > len(buf):
        raise Short("it ends within a record's data", record.end() - offset)
    return record


# Batches.


def encode_batch(
    queue: int,
    first: int,
    origins: Sequence[tuple[int, bytes]],
    contents: Sequence[bytes],
    large: Sequence[int] = (),
    deadlines: Sequence[int] | None = None,
    stamp_ms: int = -1,
    marks: Marks | None = None,
) -> bytes:
    """The whole record. `contents` at the indexes in `large` are references; deadlines are milliseconds since 1970, 0
    is never. A stamp below 0 is none."""
    count = len(contents)
    sizes = list(map(len, contents))
    data_bytes = sum(sizes)
    for at in large:
        sizes[at] |= REFERENCE_BIT
    flags = 0
    parts = [_BATCH.pack(queue, first, count, len(origins))]
    if stamp_ms >= 0:
        flags |= STAMPED
        parts.append(_STAMP.pack(stamp_ms))
    parts.append(pack(f">{count}I", *sizes))
    parts.append(pack(f">{count}I", *map(crc32, contents)))
    if deadlines is not None:
        flags |= DEADLINES
        parts.append(pack(f">{count}Q", *deadlines))
    for messages, origin in origins:
        parts += (_RUN.pack(messages, len(origin)), origin)
    if marks:
        flags |= MARKED
        parts.append(encode_marks(marks))
    head = encode_record(BATCH, flags, b"".join(parts), data_bytes)
    return b"".join((head, *contents))


def encode_marks(marks: Marks) -> bytes:
    """As a table has them at its end."""
    parts = [_MARKS.pack(len(marks))]
    for producer, mark in marks.items():
        name = producer.encode("utf-8", "surrogateescape")
        parts += (_PRODUCER.pack(len(name)), name, _MARK.pack(mark))
    return b"".join(parts)


def decode_marks(buf: bytes, at: int) -> tuple[Marks, int]:
    """The marks at this offset of a buffer, in order, and where they end; struct's error if it ends before they do."""
    marks: Marks = {}
    (count,) = _MARKS.unpack_from(buf, at)
    at += _MARKS.size
    for _ in range(count):
        (size,) = _PRODUCER.unpack_from(buf, at)
        at += _PRODUCER.size
        name = buf[at : at + size].decode("utf-8", "surrogateescape")
        at += size
        (marks[name],) = _MARK.unpack_from(buf, at)
        at += _MARK.size
    return marks, at


class Batch:
    """A batch as it was read. Nothing of the data is looked at before it is asked for."""

    __slots__ = (
        "count",
        "deadlines",
        "first",
        "large",
        "marks",
        "origins",
        "queue",
        "record",
        "sizes",
        "stamp_ms",
        "sums",
    )

    def __init__(self, buf: bytes, record: Record) -> None:
        self.record = record
        self.queue: int
        self.first: int
        self.count: int
        try:
            self.queue, self.first, self.count, runs = _BATCH.unpack_from(buf, record.table_at)
            at = record.table_at + _BATCH.size
            count = self.count
            self.stamp_ms = -1  # none
            if record.flags & STAMPED:
                (self.stamp_ms,) = _STAMP.unpack_from(buf, at)
                at += _STAMP.size
            self.sizes: tuple[int, ...] = unpack_from(f">{count}I", buf, at)
            at += 4 * count
            self.sums: tuple[int, ...] = unpack_from(f">{count}I", buf, at)
            at += 4 * count
            self.deadlines: tuple[int, ...] | None = None
            if record.flags & DEADLINES:
                self.deadlines = unpack_from(f">{count}Q", buf, at)
                at += 8 * count
            self.origins: list[tuple[int, bytes]] = []
            for _ in range(runs):
                messages, size = _RUN.unpack_from(buf, at)
                at += _RUN.size
                self.origins.append((messages, buf[at : at + size]))
                at += size
            self.marks: Marks | None = None
            if record.flags & MARKED:
                self.marks, at = decode_marks(buf, at)
        except error:
            raise Damage("a batch's table is too short") from None
        # Each reference adds its bit to the sum of the sizes, and nothing else may.
        self.large, rest = divmod(sum(self.sizes) - record.data_bytes, REFERENCE_BIT)  # how many are references
        if rest or self.large < 0 or not count or at != record.data_at or sum(run[0] for run in self.origins) != count:
            raise Damage("a batch's table contradicts itself")

    def end(self) -> int:
        """The position behind its last message."""
        return self.first + self.count

    def contents(self, buf: bytes) -> list[bytes | None]:
        """Every message's content, or reference; None where it is damaged."""
        found = self.cut(buf)
        if tuple(map(crc32, found)) == self.sums:
            return list(found)
        return [
            content if crc32(content) == checksum else None for content, checksum in zip(found, self.sums, strict=True)
        ]

    def cut(self, buf: bytes) -> tuple[bytes, ...]:
        """Every message's content, or reference, whether damaged or not."""
        lengths = self.sizes
        if self.large:
            lengths = tuple([size & MESSAGE_BYTES_MAX for size in lengths])
        if lengths.count(lengths[0]) == self.count:
            form = f"{lengths[0]}s" * self.count
        else:
            form = "%ds" * self.count % lengths
        return unpack_from(form, buf, self.record.data_at)

    def is_reference(self, index: int) -> bool:
        return bool(self.sizes[index] & REFERENCE_BIT)

    def __repr__(self) -> str:
        return f"<Batch queue={self.queue:x} first={self.first} count={self.count}>"


class Slab:
    """A batch, or a part of one, whose tables are left as bytes, to be copied without a look at messages. It has no
    stamp: those of streams are never copied."""

    __slots__ = ("count", "data", "deadlines", "first", "marks", "origins", "queue", "sizes", "sums")

    def __init__(
        self,
        queue: int,
        first: int,
        count: int,
        sizes: bytes,
        sums: bytes,
        deadlines: bytes | None,
        origins: list[tuple[int, bytes]],
        data: bytes,
        marks: Marks | None = None,
    ) -> None:
        self.queue = queue
        self.first = first
        self.count = count
        self.sizes = sizes
        self.sums = sums
        self.deadlines = deadlines
        self.origins = origins
        self.data = data
        self.marks = marks

    def end(self) -> int:
        return self.first + self.count


def decode_slab(buf: bytes, record: Record) -> Slab:
    at = record.table_at
    try:
        queue, first, count, runs = _BATCH.unpack_from(buf, at)
        at += _BATCH.size
        if record.flags & STAMPED:
            at += _STAMP.size
        sizes = buf[at : at + 4 * count]
        sums = buf[at + 4 * count : at + 8 * count]
        at += 8 * count
        deadlines: bytes | None = None
        if record.flags & DEADLINES:
            deadlines = buf[at : at + 8 * count]
            at += 8 * count
        origins: list[tuple[int, bytes]] = []
        for _ in range(runs):
            messages, size = _RUN.unpack_from(buf, at)
            at += _RUN.size
            origins.append((messages, buf[at : at + size]))
            at += size
        marks: Marks | None = None
        if record.flags & MARKED:
            marks, at = decode_marks(buf, at)
    except error:
        raise Damage("a batch's table is too short") from None
    if at != record.data_at or not count or sum(run[0] for run in origins) != count:
        raise Damage("a batch's table contradicts itself")
    return Slab(queue, first, count, sizes, sums, deadlines, origins, buf[at : record.end()], marks)


def encode_slabs(slabs: Sequence[Slab]) -> list[bytes]:
    """One record of slabs that follow each other, all with deadlines or all without: its head and table, and data. It
    has the marks of all of them."""
    origins: list[tuple[int, bytes]] = []
    for slab in slabs:
        for messages, origin in slab.origins:
            if origins and origins[-1][1] == origin:
                origins[-1] = origins[-1][0] + messages, origin
            else:
                origins.append((messages, origin))
    count = sum(slab.count for slab in slabs)
    table = [_BATCH.pack(slabs[0].queue, slabs[0].first, count, len(origins))]
    table += [slab.sizes for slab in slabs]
    table += [slab.sums for slab in slabs]
    deadlines = [slab.deadlines for slab in slabs if slab.deadlines is not None]
    table += deadlines
    for messages, origin in origins:
        table += (_RUN.pack(messages, len(origin)), origin)
    flags = DEADLINES if deadlines else 0
    marks: Marks = {}
    for slab in slabs:
        if slab.marks:
            raise_marks(marks, slab.marks)
    if marks:
        flags |= MARKED
        table.append(encode_marks(marks))
    data = [slab.data for slab in slabs]
    head = encode_record(BATCH, flags, b"".join(table), sum(map(len, data)))
    return [head, *data]


def raise_marks(marks: Marks, by: Marks) -> None:
    """The producers in `by` become the last ones, so that the first is the one not heard of for longest."""
    for producer, mark in by.items():
        known = marks.pop(producer, mark)
        marks[producer] = max(known, mark)


# What is gone.


def encode_removed(queue: int, ranges: Sequence[Range]) -> bytes:
    flat = [position for pair in ranges for position in pair]
    return encode_record(REMOVED, 0, _REMOVED.pack(queue, len(ranges)) + pack(f">{len(flat)}Q", *flat), 0)


def decode_removed(buf: bytes, record: Record) -> tuple[int, list[Range]]:
    try:
        queue, count = _REMOVED.unpack_from(buf, record.table_at)
        flat = unpack_from(f">{2 * count}Q", buf, record.table_at + _REMOVED.size)
    except error:
        raise Damage("a removal's table is too short") from None
    return queue, list(zip(flat[::2], flat[1::2], strict=True))


def encode_forgotten(queue: int) -> bytes:
    return encode_record(FORGOTTEN, 0, _QUEUE.pack(queue), 0)


def decode_forgotten(buf: bytes, record: Record) -> int:
    try:
        return int(_QUEUE.unpack_from(buf, record.table_at)[0])
    except error:
        raise Damage("a record's table is too short") from None


# Bodies.


def encode_body_head(checksum: int, size: int, file: int, offset: int) -> bytes:
    """Head and table of a body's record; the content follows. File and offset are the name it is known by."""
    return encode_record(BODY, 0, _BODY.pack(checksum, file, offset), size)


def decode_body(buf: bytes, record: Record) -> tuple[int, int, int]:
    """Checksum, and the file and offset it is known by."""
    try:
        checksum, file, offset = _BODY.unpack_from(buf, record.table_at)
    except error:
        raise Damage("a body's table is too short") from None
    return checksum, file, offset


SYNCED_RECORD: Final = encode_record(SYNCED, 0, b"", 0)
NOTHING_RECORD: Final = encode_record(NOTHING, 0, b"", 0)

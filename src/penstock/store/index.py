"""Index: the tables of sealed files, which are segments and compacted files of bodies. No I/O.

A sealed file begins and ends with a SEAL, which says what the file stands for. Before the last one are INDEX, STATES
and MARKS records (of a segment) or MOVED records (of a compacted file), so that a start reads the end of the file only.
Tables are cut into records of about RECORD_BYTES, so that none of them is ever large in memory.
Place in the chain: beside it; sealed.py writes and reads the files.
Not here: the frame of a record (record.py).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from struct import Struct, error
from typing import Final

from penstock.store.log import Extent, StoredFile
from penstock.store.record import (
    INDEX,
    MARKS,
    MOVED,
    SEAL,
    STATES,
    Damage,
    Marks,
    Range,
    Record,
    decode_marks,
    encode_marks,
    encode_record,
    raise_marks,
)

RECORD_BYTES: Final = 65_536

_SEAL: Final = Struct(">IIQQI")  # covers, clean, where the index begins, messages, files it replaces
_EXTENT: Final = Struct(">QII")  # queue, batches, large messages
_STATE: Final = Struct(">QIIII")  # queue, ranges in all, the first of those here, how many are here, priorities
_LEVEL: Final = Struct(">IQQ")  # priority, next position, redelivered below
_MOVED: Final = Struct(">II")  # file, bodies
_QUEUE: Final = Struct(">Q")
_TRAILER: Final = Struct(">Q")  # where the index begins, as the last bytes of a file
TRAILER_BYTES: Final = _TRAILER.size

_BATCH_BYTES: Final = 24
_LARGE_BYTES: Final = 24
_RANGE_BYTES: Final = 16
_BODY_BYTES: Final = 16
_MARKS_MOST: Final = 256  # producers in one entry: a name has at most 255 bytes
_SWAP: Final = sys.byteorder == "little"


class Seal:
    """What a sealed file stands for. In the file's first record `index_at` and `messages` are not known yet, and 0."""

    __slots__ = ("clean", "covers", "index_at", "messages", "replaces")

    def __init__(
        self, covers: int = 0, clean: bool = False, replaces: Sequence[int] = (), index_at: int = 0, messages: int = 0
    ) -> None:
        self.covers = covers
        self.clean = clean
        self.replaces = replaces
        self.index_at = index_at
        self.messages = messages


class KnownState:
    """What a segment's STATES say of one queue. It is `whole` if all of its ranges were found."""

    __slots__ = ("heads", "living", "ranges", "redelivered_below")

    def __init__(self, ranges: int) -> None:
        self.ranges = ranges
        self.living: list[Range] = []
        self.heads: dict[int, int] = {}
        self.redelivered_below: dict[int, int] = {}

    def whole(self) -> bool:
        return len(self.living) == self.ranges


# Arrays of numbers, big-endian on disk.


def _pack(numbers: array[int]) -> bytes:
    if _SWAP:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


class _Reader:
    """A table, read from its beginning to its end."""

    __slots__ = ("_at", "_buf", "_end")

    def __init__(self, buf: bytes, record: Record) -> None:
        self._buf = buf
        self._at = record.table_at
        self._end = record.data_at

    def more(self) -> bool:
        return self._at < self._end

    def numbers(self, typecode: str, count: int) -> array[int]:
        made = array(typecode)
        end = self._at + count * made.itemsize
        if end > self._end:
            raise Damage("a table is too short")
        made.frombytes(self._buf[self._at : end])
        if _SWAP:
            made.byteswap()
        self._at = end
        return made

    def head(self, struct: Struct) -> tuple[int, ...]:
        try:
            found: tuple[int, ...] = struct.unpack_from(self._buf, self._at)
        except error:
            raise Damage("a table is too short") from None
        self._at += struct.size
        return found


def _records(kind: int, parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts, as many in one record as fit."""
    table: list[bytes] = []
    size = 0
    for part in parts:
        table.append(part)
        size += len(part)
        if size >= RECORD_BYTES:
            yield encode_record(kind, 0, b"".join(table), 0)
            table.clear()
            size = 0
    if table:
        yield encode_record(kind, 0, b"".join(table), 0)


# The seal.


def encode_seal(seal: Seal, last: bool) -> bytes:
    """The whole record; the last one of a file ends with the trailer."""
    table = _SEAL.pack(seal.covers, seal.clean, seal.index_at, seal.messages, len(seal.replaces))
    table += _pack(array("I", seal.replaces))
    if not last:
        return encode_record(SEAL, 0, table, 0)
    return encode_record(SEAL, 0, table, TRAILER_BYTES) + _TRAILER.pack(seal.index_at)


def decode_seal(buf: bytes, record: Record) -> Seal:
    reader = _Reader(buf, record)
    covers, clean, index_at, messages, replaced = reader.head(_SEAL)
    return Seal(covers, bool(clean), reader.numbers("I", replaced), index_at, messages)


def decode_trailer(buf: bytes) -> int:
    """Where the index begins, if this is the end of a sealed file."""
    return int(_TRAILER.unpack(buf)[0])


# Where the batches are.


def encode_index(extents: Iterable[tuple[int, Extent]]) -> Iterator[bytes]:
    """Records, of (queue, extent) pairs."""
    return _records(INDEX, _extent_parts(extents))


def _extent_parts(extents: Iterable[tuple[int, Extent]]) -> Iterator[bytes]:
    most = RECORD_BYTES // _BATCH_BYTES
    for queue, extent in extents:
        for at in range(0, len(extent), most):
            part = extent if len(extent) <= most else extent.part(at, min(at + most, len(extent)))
            # Large messages are cut apart from their batches: one batch may have any number of them.
            cut = RECORD_BYTES // _LARGE_BYTES
            yield _extent_part(queue, part, True, 0, cut)
            for low in range(cut, len(part.large_positions), cut):
                yield _extent_part(queue, part, False, low, low + cut)


def _extent_part(queue: int, extent: Extent, batches: bool, low: int, high: int) -> bytes:
    columns: list[array[int]] = []
    if batches:
        columns += (extent.starts, extent.counts, extent.offsets, extent.sizes)
    positions = extent.large_positions[low:high]
    columns += (positions, extent.large_files[low:high], extent.large_offsets[low:high], extent.large_sizes[low:high])
    head = _EXTENT.pack(queue, len(extent) if batches else 0, len(positions))
    return head + b"".join(map(_pack, columns))


def decode_index(buf: bytes, record: Record, file: StoredFile) -> Iterator[tuple[int, Extent]]:
    """(queue, part of its extent); a part may have large messages only, of the part before it."""
    reader = _Reader(buf, record)
    while reader.more():
        queue, batches, larges = reader.head(_EXTENT)
        extent = Extent(file)
        extent.starts = reader.numbers("Q", batches)
        extent.counts = reader.numbers("I", batches)
        extent.offsets = reader.numbers("Q", batches)
        extent.sizes = reader.numbers("I", batches)
        extent.large_positions = reader.numbers("Q", larges)
        extent.large_files = reader.numbers("I", larges)
        extent.large_offsets = reader.numbers("Q", larges)
        extent.large_sizes = reader.numbers("I", larges)
        yield queue, extent


# What is alive.


def encode_states(
    states: Iterable[tuple[int, Sequence[Range], Mapping[int, int], Mapping[int, int]]],
) -> Iterator[bytes]:
    """Records, of (queue, living ranges, heads, redelivered below)."""
    return _records(STATES, _state_parts(states))


def _state_parts(
    states: Iterable[tuple[int, Sequence[Range], Mapping[int, int], Mapping[int, int]]],
) -> Iterator[bytes]:
    most = RECORD_BYTES // _RANGE_BYTES
    for queue, living, heads, redelivered_below in states:
        levels = b"".join(
            _LEVEL.pack(level, heads.get(level, 0), redelivered_below.get(level, 0))
            for level in sorted({*heads, *redelivered_below})
        )
        count = len(levels) // _LEVEL.size
        for at in range(0, max(1, len(living)), most):
            here = living[at : at + most]
            flat = array("Q", [position for pair in here for position in pair])
            yield _STATE.pack(queue, len(living), at, len(here), count) + levels + _pack(flat)


def decode_states(buf: bytes, record: Record, states: dict[int, KnownState]) -> None:
    """Enter what this record says."""
    reader = _Reader(buf, record)
    while reader.more():
        queue, ranges, at, here, levels = reader.head(_STATE)
        state = states.get(queue)
        if state is None:
            state = states[queue] = KnownState(ranges)
        for _ in range(levels):
            level, head, redelivered_below = reader.head(_LEVEL)
            state.heads[level] = head
            state.redelivered_below[level] = redelivered_below
        flat = reader.numbers("Q", 2 * here)
        if at == len(state.living):  # otherwise a part is missing, and the state stays incomplete
            state.living += zip(flat[::2], flat[1::2], strict=True)


# How far producers have come.


def encode_producers(marked: Iterable[tuple[int, Marks]]) -> Iterator[bytes]:
    """Records, of (queue, marks) pairs."""
    return _records(MARKS, _mark_parts(marked))


def _mark_parts(marked: Iterable[tuple[int, Marks]]) -> Iterator[bytes]:
    for queue, marks in marked:
        pairs = list(marks.items())
        for at in range(0, len(pairs), _MARKS_MOST):
            yield _QUEUE.pack(queue) + encode_marks(dict(pairs[at : at + _MARKS_MOST]))


def decode_producers(buf: bytes, record: Record, found: dict[int, Marks]) -> None:
    """Enter what this record says."""
    at = record.table_at
    while at < record.data_at:
        try:
            queue = int(_QUEUE.unpack_from(buf, at)[0])
            marks, at = decode_marks(buf, at + _QUEUE.size)
        except error:
            raise Damage("a table is too short") from None
        raise_marks(found.setdefault(queue, {}), marks)


# Where bodies have gone.


def encode_moved(files: array[int], names: array[int], offsets: array[int]) -> Iterator[bytes]:
    """Records, of the file and offset each body is known by, sorted, and its offset in the compacted file."""
    return _records(MOVED, _moved_parts(files, names, offsets))


def _moved_parts(files: array[int], names: array[int], offsets: array[int]) -> Iterator[bytes]:
    most = RECORD_BYTES // _BODY_BYTES
    at = 0
    while at < len(files):
        end = at + 1
        while end < len(files) and end - at < most and files[end] == files[at]:
            end += 1
        yield _MOVED.pack(files[at], end - at) + _pack(names[at:end]) + _pack(offsets[at:end])
        at = end


def decode_moved(buf: bytes, record: Record, files: array[int], names: array[int], offsets: array[int]) -> None:
    """Append what this record says."""
    reader = _Reader(buf, record)
    while reader.more():
        file, count = reader.head(_MOVED)
        names += reader.numbers("Q", count)
        offsets += reader.numbers("Q", count)
        files += array("I", [file]) * count

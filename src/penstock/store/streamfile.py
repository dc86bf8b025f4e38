"""StreamFile: the bytes of a stream's segment beside its batches, and what a start makes of the segments it finds.

A segment is a file head, whose number is random (its salt), an OFFSETS record with the producers' marks so far, and
batches, with SYNCED records wherever a write began when all before it was synced. When it is full or the broker stops
in order, and all of it is synced, one more OFFSETS record with the sparse index is its last; the last 8 bytes of that
say where it begins. So a start reads the end of such segments, and only what a crash has left without an index from its
beginning.

A mark without its messages would have a producer's second try dropped for nothing. So marks behind damage count only if
a SYNCED record follows, which proves that the damage was no torn write; see docs/store.md. An OFFSETS record that was
written when all before it was synced says so (SETTLED), and its marks are what counts, whatever is before it.
Place in the chain: before it; streams.py opens streams with it.
Not here: batches (record.py), reading for consumers (streamreader.py).
"""

from __future__ import annotations

import re
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from secrets import randbits
from struct import Struct, error
from typing import Final
from zlib import crc32

from penstock.store.files import Files
from penstock.store.log import DamagedBytes
from penstock.store.record import (
    BATCH,
    FILE_HEAD,
    FILE_HEAD_BYTES,
    HEAD_BYTES,
    OFFSETS,
    STREAM,
    SYNCED,
    TABLE_BYTES_MAX,
    Batch,
    Damage,
    Marks,
    Record,
    check_file_head,
    decode_marks,
    encode_file_head,
    encode_marks,
    encode_record,
    read_record,
)
from penstock.store.scan import FileScan
from penstock.store.stream import StreamLog, StreamSegment, mark

_OFFSETS: Final = Struct(">QIQQQQI")  # stream, salt, first and next offset, first of the last batch, its stamp, entries
_TRAILER: Final = Struct(">Q")  # where the record begins
_SETTLED: Final = 1  # flag of an OFFSETS record
_ENTRY_BYTES: Final = 24
_NAME: Final = re.compile(r"(\d{20})\.seg")
_SWAP: Final = sys.byteorder == "little"


def encode_segment_head(salt: int) -> bytes:
    return encode_file_head(STREAM, salt)


def encode_offsets(id_: int, segment: StreamSegment, marks: Marks, position: int, settled: bool) -> bytes:
    """The whole record, which will be at this position of the file; whether all before it is synced."""
    table = b"".join(
        (
            _OFFSETS.pack(
                id_,
                segment.salt,
                segment.first,
                segment.end,
                segment.last,
                segment.stamp_ms,
                len(segment.offsets),
            ),
            _packed(segment.offsets),
            _packed(segment.positions),
            _packed(segment.stamps),
            encode_marks(marks),
        )
    )
    return encode_record(OFFSETS, _SETTLED if settled else 0, table, _TRAILER.size) + _TRAILER.pack(position)


def decode_offsets(buf: bytes, record: Record, id_: int, segment: StreamSegment) -> Marks:
    """Fill in what it says; Damage if it is not one of this segment."""
    try:
        stream, salt, first, end, last, stamp_ms, count = _OFFSETS.unpack_from(buf, record.table_at)
        at = record.table_at + _OFFSETS.size
        if at + _ENTRY_BYTES * count > record.data_at:
            raise Damage("an index contradicts itself")
        marks, marks_end = decode_marks(buf, at + _ENTRY_BYTES * count)
    except error:
        raise Damage("an index is too short") from None
    if marks_end != record.data_at or record.data_bytes != _TRAILER.size or not first <= last <= end:
        raise Damage("an index contradicts itself")
    if (stream, salt, first) != (id_, segment.salt, segment.first):
        raise Damage("an index of another file")
    segment.end, segment.last, segment.stamp_ms = end, last, stamp_ms
    segment.offsets = _unpacked(buf, at, count)
    segment.positions = _unpacked(buf, at + 8 * count, count)
    segment.stamps = _unpacked(buf, at + 16 * count, count)
    return marks


def _packed(numbers: array[int]) -> bytes:
    if _SWAP:
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


def _unpacked(buf: bytes, at: int, count: int) -> array[int]:
    numbers = array("Q", buf[at : at + 8 * count])
    if _SWAP:
        numbers.byteswap()
    return numbers


class Doubt:
    """A place in a segment behind damage, and what the segment was before it."""

    __slots__ = ("_end", "_entries", "_last", "_stamp_ms", "position")

    def __init__(self, segment: StreamSegment, position: int) -> None:
        self.position = position
        self._end = segment.end
        self._last = segment.last
        self._stamp_ms = segment.stamp_ms
        self._entries = len(segment.offsets)

    def restore(self, segment: StreamSegment) -> None:
        """Nothing from here on is there."""
        segment.size = self.position
        segment.end, segment.last, segment.stamp_ms = self._end, self._last, self._stamp_ms
        for entries in (segment.offsets, segment.positions, segment.stamps):
            del entries[self._entries :]


class StreamRecovery:
    """Fills a log with what its directory has. Never fails on what is in the files, but on a disk that cannot be read
    (OSError) and a newer format (NewerFormat); `path` is then where."""

    __slots__ = ("_doubtful", "_files", "_in_doubt", "_log", "_report", "path")

    def __init__(self, files: Files, log: StreamLog, report: Callable[[str], None]) -> None:
        self._files = files
        self._log = log
        self._report = report
        self._in_doubt = False  # there was damage, and nothing has proven yet that it was once synced
        self._doubtful: list[Marks] = []  # of these producers, what comes behind it
        self.path = log.directory

    def run(self) -> None:
        log = self._log
        found: list[tuple[int, Path]] = []
        for name in self._files.names(log.directory):
            match = _NAME.fullmatch(name)
            if match is not None:
                found.append((int(match[1]), log.directory / name))
        for at, (first, path) in enumerate(found):
            self.path = path
            last = log.active()
            if last is not None and last.end != first:
                self._gap(last, path, first)
            segment = self._read(path, first, is_last=at == len(found) - 1)
            log.segments.append(segment)
            log.bytes += segment.size
            log.stamp_ms = max(log.stamp_ms, segment.stamp_ms)
        last = log.active()
        if last is not None:
            log.first = log.segments[0].first
            log.end = log.synced = last.end
        log.producers = dict(log.cast_marks)

    def _gap(self, last: StreamSegment, path: Path, first: int) -> None:
        if last.end < first:
            self._damaged(DamagedBytes(path, 0, 0, f"the {first - last.end} messages from {last.end} on are not there"))
            self._in_doubt = True
        last.end = min(last.end, first)

    def _damaged(self, damage: DamagedBytes) -> None:
        self._report(f"{self._log.name}: {damage}")

    # One segment.

    def _read(self, path: Path, first: int, is_last: bool) -> StreamSegment:
        files = self._files
        descriptor = files.create(path) if is_last else files.open(path)
        try:
            size = files.size(descriptor)
            head = files.read(descriptor, FILE_HEAD_BYTES, 0)
            salt, wrong = self._check_head(head, descriptor, size, first)
            segment = StreamSegment(path, first, salt)
            segment.stamp_ms = self._log.stamp_ms
            segment.size = size
            segment.rolled = not is_last
            if wrong and not (is_last and size <= FILE_HEAD_BYTES):  # or it had its name before its first bytes
                self._damaged(DamagedBytes(path, 0, len(head), wrong))
            if not self._read_index(segment, descriptor):
                is_whole = self._scan(segment, descriptor, is_last)
                if not is_last and not is_whole:  # or the broker was killed just before it wrote its index
                    self._damaged(DamagedBytes(path, 0, size, "its index is damaged or missing; all of it was read"))
                if is_last:
                    files.sync(descriptor)  # what is written behind it will say that it is
            segment.durable = segment.indexed  # the marks that it has may be damaged
            if is_last and segment.size <= FILE_HEAD_BYTES:
                files.truncate(descriptor, 0)
                segment.size = 0
            elif is_last and wrong:
                files.write(descriptor, [encode_segment_head(salt)], 0)
                files.sync(descriptor)
            return segment
        finally:
            files.close(descriptor)

    def _check_head(self, head: bytes, descriptor: int, size: int, first: int) -> tuple[int, str]:
        """The salt, and what is wrong with the head."""
        try:
            salt = int(FILE_HEAD.unpack(head)[-1]) if len(head) == FILE_HEAD_BYTES else 0
            check_file_head(head, STREAM, salt)
            return salt, ""
        except Damage as damage:
            wrong = str(damage)
        # No client's bytes can be directly behind the head: the record there has the salt too.
        scan = FileScan(self._files, descriptor, size)
        for record in scan:
            if record.kind == OFFSETS and scan.base + record.offset == FILE_HEAD_BYTES:
                stream, salt, its_first = _OFFSETS.unpack_from(scan.buf, record.table_at)[:3]
                if (stream, its_first) == (self._log.id, first):
                    return salt, wrong
            break
        return randbits(32), wrong  # a new one: no index that is there already counts

    def _read_index(self, segment: StreamSegment, descriptor: int) -> bool:
        """From the end of the file; False if there is none, or it is damaged."""
        size = segment.size
        if size < FILE_HEAD_BYTES + HEAD_BYTES:
            return False
        (position,) = _TRAILER.unpack(self._files.read(descriptor, _TRAILER.size, size - _TRAILER.size))
        if not FILE_HEAD_BYTES <= position < size or size - position > TABLE_BYTES_MAX:
            return False
        buf = self._files.read(descriptor, size - position, position)
        try:
            record = read_record(buf, 0)
            if record.kind != OFFSETS or record.end() != len(buf):
                return False
            marks = decode_offsets(buf, record, self._log.id, segment)
        except Damage:
            return False
        self._settle(record, marks)
        segment.indexed = bool(record.flags & _SETTLED)
        segment.sealed = segment.indexed and segment.rolled
        return True

    def _scan(self, segment: StreamSegment, descriptor: int, is_last: bool) -> bool:
        """Read all of it; whether all was in order."""
        files, log = self._files, self._log
        scan = FileScan(files, descriptor, segment.size)
        is_whole = True
        doubt: Doubt | None = None  # since when
        for record in scan:
            position = scan.base + record.offset
            if scan.damaged:
                doubt = doubt or Doubt(segment, scan.damaged[0][0])
                for damage in scan.damaged:
                    self._damaged(DamagedBytes(segment.path, *damage))
                scan.damaged.clear()
                self._in_doubt = True
                is_whole = False
            before = Doubt(segment, position)
            try:
                if record.kind == BATCH:
                    self._enter(segment, Batch(scan.buf, record), scan.buf, position)
                elif record.kind == SYNCED:
                    self._prove()
                elif record.kind == OFFSETS:
                    known = StreamSegment(segment.path, segment.first, segment.salt)
                    self._settle(record, decode_offsets(scan.buf, record, log.id, known))
            except Damage as damage_found:
                why = str(damage_found)
                self._damaged(DamagedBytes(segment.path, position, record.end() - record.offset, why))
                self._in_doubt = True
                is_whole = False
            doubt = (doubt or before) if self._in_doubt else None
        if is_last and doubt is not None:
            # Nothing proves that this was ever synced: it is a write that the power cut short, whole batches behind the
            # hole or not. Nobody was told of it. Kept, it would be a hole in the offsets for ever.
            torn = DamagedBytes(segment.path, doubt.position, segment.size - doubt.position, "a write was cut short")
            self._report(f"{log.name}: the torn end is cut off: {torn}")
            files.truncate(descriptor, doubt.position)
            doubt.restore(segment)
            self._doubtful.clear()
            self._in_doubt = False
            return False
        if not scan.cut:
            return is_whole
        torn = DamagedBytes(segment.path, scan.cut, segment.size - scan.cut, "no record to the end of the file")
        if is_last:
            self._report(f"{log.name}: the torn end is cut off: {torn}")
            files.truncate(descriptor, scan.cut)
            segment.size = scan.cut
        else:
            self._damaged(torn)
            self._in_doubt = True
        return False

    def _enter(self, segment: StreamSegment, batch: Batch, buf: bytes, position: int) -> None:
        if batch.queue != self._log.id or batch.first < segment.end:
            raise Damage("a batch that does not belong here")
        if batch.first > segment.end:
            # Told already: there is damage before it.
            self._in_doubt = True
        if tuple(map(crc32, batch.cut(buf))) != batch.sums:
            size = batch.record.end() - batch.record.offset
            self._damaged(DamagedBytes(segment.path, position, size, "a message's checksum is wrong"))
            self._in_doubt = True
        segment.last, segment.end = batch.first, batch.end()
        segment.stamp_ms = max(segment.stamp_ms, batch.stamp_ms)
        segment.enter(batch.first, position, segment.stamp_ms)
        if batch.marks:
            self._mark(batch.marks)

    def _mark(self, marks: Marks) -> None:
        if self._in_doubt:
            self._doubtful.append(marks)
        else:
            mark(self._log.cast_marks, marks)

    def _settle(self, record: Record, marks: Marks) -> None:
        """What an OFFSETS record says."""
        if not record.flags & _SETTLED:
            self._mark(marks)
            return
        self._log.cast_marks = marks
        self._doubtful.clear()
        self._in_doubt = False

    def _prove(self) -> None:
        for marks in self._doubtful:
            mark(self._log.cast_marks, marks)
        self._doubtful.clear()
        self._in_doubt = False

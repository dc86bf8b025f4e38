"""Segment: what is still alive of the queues' messages, copied out of journals and older segments into one new file.

Place in the chain: the keeper's work (keeper.py). A queue's messages come together in order of position, in batches
of about BATCH_BYTES, so that a drain reads the disk in long pieces.

A batch whose messages are all alive is copied as bytes: its tables are joined with those of its neighbours, and nobody
looks at a message. Only a batch that is partly dead is taken apart, and its messages' checksums are tried then.
Not here: which files are read and which can go (store.py), large contents (compact.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final
from zlib import crc32

from penstock.store.files import Files
from penstock.store.log import DamagedBytes, Extent, StoredFile
from penstock.store.record import (
    BATCH,
    MESSAGE_BYTES_MAX,
    Batch,
    Damage,
    Range,
    Slab,
    decode_slab,
    encode_slabs,
    read_record,
)
from penstock.store.sealed import SealedWriter

BATCH_BYTES: Final = 65_536  # of data in one batch: little enough to be read for a single message
BATCH_MESSAGES: Final = 4096  # of small messages
WINDOW_BYTES: Final = 524_288  # what is read at once, if most of it is wanted


class Sources:
    """The files that are copied from; each is opened once."""

    __slots__ = ("_base", "_buf", "_descriptors", "_files", "_number")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._descriptors: dict[int, int] = {}
        self._number = 0  # of the file that `_buf` is a part of
        self._base = 0
        self._buf = b""

    def read(self, extent: Extent, at: int) -> tuple[bytes, int]:
        """Bytes with this batch of the extent in them, and where in them it begins."""
        offset, size = extent.offsets[at], extent.sizes[at]
        inside = offset - self._base
        if extent.file.number == self._number and 0 <= inside <= len(self._buf) - size:
            return self._buf, inside
        last = bisect_right(extent.offsets, offset + WINDOW_BYTES, at) - 1
        span = extent.offsets[last] + extent.sizes[last] - offset
        if sum(extent.sizes[at : last + 1]) * 2 < span:
            span = size  # most of what lies there belongs to others
        self._buf = self._files.read(self._open(extent.file), span, offset)
        self._base = offset
        self._number = extent.file.number
        return self._buf, 0

    def _open(self, file: StoredFile) -> int:
        descriptor = self._descriptors.get(file.number)
        if descriptor is None:
            descriptor = self._descriptors[file.number] = self._files.open(file.path)
        return descriptor

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            self._files.close(descriptor)
        self._descriptors.clear()


class SegmentCopy:
    """One queue's messages, as they are written to the new segment."""

    __slots__ = ("_data_bytes", "_file", "_level", "_slabs", "_sources", "_writer", "damages", "extents", "messages")

    def __init__(self, file: StoredFile, writer: SealedWriter, sources: Sources, damages: list[DamagedBytes]) -> None:
        self._file = file
        self._writer = writer
        self._sources = sources
        self._slabs: list[Slab] = []  # that become one batch
        self._data_bytes = 0
        self._level = -1  # of the last of the extents
        self.extents: list[Extent] = []
        self.messages = 0
        self.damages = damages

    def copy(self, log_id: int, name: str, living: Sequence[Range], sources: Sequence[Extent]) -> None:
        for extent in sources:
            for at, parts in wanted(extent, living):
                try:
                    self._copy_batch(log_id, name, extent, at, parts)
                except Damage as damage:
                    self._damaged(extent, at, f"{damage} (messages of queue {name})")
                self._writer.pace.breathe()
        self._flush()

    def _copy_batch(self, log_id: int, name: str, extent: Extent, at: int, parts: list[Range]) -> None:
        buf, offset = self._sources.read(extent, at)
        record = read_record(buf, offset)
        if record.kind != BATCH:
            raise Damage("another record is in its place")
        slab = decode_slab(buf, record)
        first, end = extent.starts[at], extent.starts[at] + extent.counts[at]
        if (slab.queue, slab.first, slab.end()) != (log_id, first, end):
            raise Damage("another batch is in its place")
        whole = parts[0] == (first, end)
        if whole and len(slab.data) <= 2 * BATCH_BYTES and slab.count <= BATCH_MESSAGES:
            self._add(slab, extent)
            return
        batch = Batch(buf, record)
        lengths = batch.sizes
        if batch.large:
            lengths = tuple([size & MESSAGE_BYTES_MAX for size in lengths])
        ends = list(accumulate(lengths, initial=0))
        if not whole:
            parts = self._sound_parts(name, extent, at, buf, batch, ends, parts)
        for part in parts:
            for low, high in _pieces(part[0] - first, part[1] - first, ends):
                self._add(_cut(slab, low, high, ends), extent)

    def _sound_parts(
        self, name: str, extent: Extent, at: int, buf: bytes, batch: Batch, ends: list[int], parts: list[Range]
    ) -> list[Range]:
        """The parts without messages that are damaged."""
        sound: list[Range] = []
        data_at = batch.record.data_at
        for first, end in parts:
            begin = first
            for index in range(first - batch.first, end - batch.first):
                if crc32(buf[data_at + ends[index] : data_at + ends[index + 1]]) == batch.sums[index]:
                    continue
                position = batch.first + index
                offset = extent.offsets[at] + data_at - batch.record.offset + ends[index]
                why = f"the checksum of message {position} of queue {name} is wrong"
                self.damages.append(DamagedBytes(extent.file.path, offset, ends[index + 1] - ends[index], why))
                if begin < position:
                    sound.append((begin, position))
                begin = position + 1
            if begin < end:
                sound.append((begin, end))
        return sound

    def _add(self, slab: Slab, source: Extent) -> None:
        slabs = self._slabs
        if slabs and (
            slabs[-1].end() != slab.first
            or (slabs[-1].deadlines is None) != (slab.deadlines is None)
            or self._data_bytes + len(slab.data) > BATCH_BYTES
            or slab.end() - slabs[0].first > BATCH_MESSAGES
        ):
            self._flush()
        if source.level() != self._level:
            self._level = source.level()
            self.extents.append(Extent(self._file))
        self._slabs.append(slab)
        self._data_bytes += len(slab.data)
        if source.large_positions:
            self.extents[-1].extend_large(source, slab.first, slab.end())

    def _flush(self) -> None:
        slabs = self._slabs
        if not slabs:
            return
        offset = self._writer.size()
        parts = encode_slabs(slabs)
        self._writer.write(*parts)
        count = slabs[-1].end() - slabs[0].first
        self.extents[-1].append(slabs[0].first, count, offset, sum(map(len, parts)))
        self.messages += count
        self._slabs = []
        self._data_bytes = 0

    def _damaged(self, extent: Extent, at: int, why: str) -> None:
        self.damages.append(DamagedBytes(extent.file.path, extent.offsets[at], extent.sizes[at], why))


def wanted(extent: Extent, living: Sequence[Range]) -> Iterator[tuple[int, list[Range]]]:
    """The batches with living messages: index, and the ranges that are alive in it. No work per message."""
    starts, counts = extent.starts, extent.counts
    last, parts = -1, list[Range]()
    index = max(0, bisect_right(living, (starts[0], starts[0])) - 1)
    while index < len(living) and living[index][0] < extent.end():
        first, end = living[index]
        index += 1
        for at in range(max(0, bisect_right(starts, first) - 1), bisect_left(starts, end)):
            low, high = max(first, starts[at]), min(end, starts[at] + counts[at])
            if low >= high:
                continue
            if at != last:
                if parts:
                    yield last, parts
                last, parts = at, []
            parts.append((low, high))
    if parts:
        yield last, parts


def _pieces(low: int, high: int, ends: list[int]) -> Iterator[Range]:
    """Indexes of messages, cut where the data or the count become too much for one batch."""
    while low < high:
        cut = bisect_right(ends, ends[low] + BATCH_BYTES) - 1
        cut = min(max(cut, low + 1), low + BATCH_MESSAGES, high)
        yield low, cut
        low = cut


def _cut(slab: Slab, low: int, high: int, ends: list[int]) -> Slab:
    origins: list[tuple[int, bytes]] = []
    begin = 0
    for messages, origin in slab.origins:
        count = min(high, begin + messages) - max(low, begin)
        if count > 0:
            origins.append((count, origin))
        begin += messages
    return Slab(
        slab.queue,
        slab.first + low,
        high - low,
        slab.sizes[4 * low : 4 * high],
        slab.sums[4 * low : 4 * high],
        None if slab.deadlines is None else slab.deadlines[8 * low : 8 * high],
        origins,
        slab.data[ends[low] : ends[high]],
    )

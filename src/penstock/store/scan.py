"""FileScan: all whole records of a file in order, whatever is between them, a window at a time.

Place in the chain: beside it; recovery reads journals with it, and sealed files whose end is damaged.
Not here: what a record means (record.py, index.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.store.files import Files
from penstock.store.record import FILE_HEAD_BYTES, HEAD_BYTES, MAGIC, Damage, Record, Short, read_record

WINDOW_BYTES: Final = 8_388_608  # what is in memory of a file; more only if one record is larger


class FileScan:
    """A record's offsets are those in `buf`, which begins at `base` of the file and is only good until the next record.

    `damaged` has what lies between whole records; `cut`, if not 0, is where the last whole record ends and what follows
    is no record to the end of the file."""

    __slots__ = ("_descriptor", "_files", "_size", "_start", "_window", "base", "buf", "cut", "damaged")

    def __init__(
        self, files: Files, descriptor: int, size: int, start: int = FILE_HEAD_BYTES, window: int = WINDOW_BYTES
    ) -> None:
        self._files = files
        self._descriptor = descriptor
        self._size = size
        self._start = start
        self._window = max(window, HEAD_BYTES)
        self.base = start
        self.buf = b""
        self.cut = 0
        self.damaged: list[tuple[int, int, str]] = []  # offset, bytes, why

    def __iter__(self) -> Iterator[Record]:
        offset = self._start
        while offset < self._size:
            try:
                record = self._read(offset)
            except Damage as damage:
                found = self._find(offset + 1)
                if found is None:
                    self.cut = offset
                    return
                self.damaged.append((offset, self.base + found.offset - offset, str(damage)))
                record = found
            end = record.end()
            yield record
            offset = self.base + end

    def _read(self, offset: int) -> Record:
        """The record at this offset of the file; Damage if there is none."""
        while True:
            try:
                return read_record(self.buf, offset - self.base)
            except Short as short:
                if self.base + len(self.buf) >= self._size or offset + short.needs > self._size:
                    raise
                self._fill(offset, short.needs)

    def _find(self, offset: int) -> Record | None:
        """The first whole record at or behind this offset of the file."""
        while True:
            at = self.buf.find(MAGIC, offset - self.base)
            if at < 0:
                end = self.base + len(self.buf)
                if end >= self._size:
                    return None
                offset = max(offset, end - len(MAGIC) + 1)  # half of it may be at the window's end
                self._fill(offset, 0)
                continue
            offset = self.base + at
            try:
                return self._read(offset)
            except Damage:
                offset += 1

    def _fill(self, offset: int, needs: int) -> None:
        size = min(max(self._window, needs), self._size - offset)
        self.buf = self._files.read(self._descriptor, size, offset)
        self.base = offset
        if len(self.buf) < size:
            self._size = offset + len(self.buf)  # it is shorter than it was

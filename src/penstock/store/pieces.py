"""Pieces: long writes, past the kernel's cache, prepared and written at the same time.

Place in the chain: bodies.py gives what is to be written, on the journal's thread; files.py is next. The bytes are put
into one of a few buffers, and while a thread of its own writes one, the next is filled. What the disk takes from there
itself (O_DIRECT) is not copied to the kernel's pages: that is most of what a long write costs, and what a sync waits
for.

Such a write has whole blocks only. The few bytes before the first block and behind the last are written as ever, while
nothing else is: so the file has the same bytes either way, and written again after a failure they are the same again.
Not here: what is written (bodies.py), the sync (journal.py), file systems that refuse O_DIRECT (files.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from mmap import mmap
from queue import SimpleQueue
from typing import Final, NamedTuple

from penstock.store.files import BLOCK_BYTES, Files

PIECE_BYTES: Final = 256 * BLOCK_BYTES  # written in one go: half a millisecond of a disk
BUFFERS: Final = 2  # one is filled, one is written


class Piece(NamedTuple):
    """Whole blocks: of the buffer from here to there, for this place in the file."""

    files: Files
    descriptor: int
    offset: int
    buffer: mmap
    first: int
    last: int


class Filling:
    """The buffer at hand of a long write. It begins with a block of the file, the bytes to be written maybe later."""

    __slots__ = ("base", "begin", "buffer", "descriptor", "end", "files", "tail")

    def __init__(self, files: Files, descriptor: int, offset: int, buffer: mmap) -> None:
        self.files = files
        self.descriptor = descriptor
        self.buffer = buffer
        self.begin = self.end = offset % BLOCK_BYTES
        self.base = offset - self.begin  # where in the file the buffer begins
        self.tail = b""  # behind the last whole block


class Pieces:
    """For one thread, the journal's."""

    __slots__ = ("_buffers", "_done", "_error", "_full", "_idle", "_thread", "_under_way")

    def __init__(self) -> None:
        self._buffers: list[mmap] = []  # made when they are needed first, as is the thread
        self._idle: list[mmap] = []
        self._full: SimpleQueue[Piece | None] = SimpleQueue()
        self._done: SimpleQueue[mmap] = SimpleQueue()
        self._under_way = 0  # pieces that the other thread has
        self._error: OSError | None = None  # what went wrong with one
        self._thread: threading.Thread | None = None

    def write(self, files: Files, descriptor: int, offset: int, parts: Iterable[bytes]) -> None:
        """All of the parts, one behind the other, from this offset on. Nothing is being written when this returns."""
        if self._thread is None:
            self._start()
        try:
            filling = Filling(files, descriptor, offset, self._buffer())
            for part in parts:
                self._add(filling, part)
            self._hand_over(filling)
        finally:
            error = self._wait()
        if error is not None:
            raise error
        if filling.tail:
            files.write(descriptor, [filling.tail], filling.base + filling.end - len(filling.tail))

    def _add(self, filling: Filling, part: bytes) -> None:
        at, left = 0, len(part)
        while filling.end + left > PIECE_BYTES:
            room = PIECE_BYTES - filling.end
            filling.buffer[filling.end :] = memoryview(part)[at : at + room]
            filling.end = PIECE_BYTES
            self._hand_over(filling)
            filling.buffer = self._buffer()
            filling.base += PIECE_BYTES
            filling.begin = filling.end = 0
            at += room
            left -= room
        filling.buffer[filling.end : filling.end + left] = memoryview(part)[at:]
        filling.end += left

    def _hand_over(self, filling: Filling) -> None:
        """The whole blocks to the other thread. Only the first buffer has bytes before them: nothing else is written
        then; only the last one has bytes behind them."""
        begin, end = filling.begin, filling.end
        first, last = begin + -begin % BLOCK_BYTES, end - end % BLOCK_BYTES
        if begin < first:
            filling.files.write(filling.descriptor, [filling.buffer[begin : min(first, end)]], filling.base + begin)
        filling.tail = filling.buffer[last:end] if first <= last else b""
        if first < last:
            self._under_way += 1
            self._full.put(Piece(filling.files, filling.descriptor, filling.base + first, filling.buffer, first, last))

    def _buffer(self) -> mmap:
        """One that is not being written; not after an error."""
        if self._idle:
            return self._idle.pop()
        buffer = self._done.get()
        self._under_way -= 1
        if self._error is not None:
            raise self._error
        return buffer

    def _wait(self) -> OSError | None:
        """Until nothing is being written; what went wrong."""
        while self._under_way:
            self._done.get()
            self._under_way -= 1
        self._idle = list(self._buffers)
        error, self._error = self._error, None
        return error

    def close(self) -> None:
        """Nothing more will come."""
        if self._thread is not None:
            self._full.put(None)
            self._thread.join()
            self._thread = None

    def _start(self) -> None:
        if not self._buffers:
            self._buffers = [mmap(-1, PIECE_BYTES) for _ in range(BUFFERS)]
            self._idle = list(self._buffers)
        self._thread = threading.Thread(target=self._run, name="pieces", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            piece = self._full.get()
            if piece is None:
                return
            try:
                blocks = memoryview(piece.buffer)[piece.first : piece.last]
                piece.files.write_direct(piece.descriptor, blocks, piece.offset)
            except OSError as error:
                self._error = error
            self._done.put(piece.buffer)

"""Bodies: large contents, each once, however many queues hold it.

A body is known by the file and the offset it was first written to; that is what a queue's batches refer to. Compaction
moves bodies to other files, and `moved` says where they are now. Who still refers to what is counted when the keeper
makes a checkpoint (keeper.py), so that taking a message from a queue costs nothing here.
Place in the chain: inside store.py, before the journal; read by pager.py.
Not here: compaction (compact.py), writing (journal.py).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

from penstock.store.files import Files
from penstock.store.journal import Target, Write
from penstock.store.log import BODIES_NAME, StoredFile
from penstock.store.pieces import Pieces
from penstock.store.record import (
    BODIES,
    BODY_HEAD_BYTES,
    FILE_HEAD_BYTES,
    REFERENCE,
    encode_body_head,
    encode_file_head,
)

# A content that goes to several queues reaches them within a few turns; it is remembered for so many bytes.
RECENT_BYTES_MAX: Final = 8_388_608
PIECE_BYTES: Final = 524_288  # of bodies, written in one go: about a millisecond of a disk
LONG_BYTES: Final = 262_144  # of bodies, in one write: from here on past the kernel's cache (pieces.py),
LONG_BODY_BYTES: Final = 16_384  # if they are as long on average: putting each into a buffer costs more than it saves


class Moved:
    """Bodies that compaction has put into one file: the names they are known by, sorted, and where they are now."""

    __slots__ = ("file", "files", "names", "offsets")

    def __init__(self, file: StoredFile, files: array[int], names: array[int], offsets: array[int]) -> None:
        self.file = file
        self.files = files  # sorted by file, then by name, which is the offset there
        self.names = names
        self.offsets = offsets

    def find(self, file: int, name: int) -> int:
        """The offset in this file; 0 if it is not here."""
        at = bisect_left(self.files, file)
        at = bisect_left(self.names, name, at, bisect_left(self.files, file + 1))
        if at < len(self.files) and self.files[at] == file and self.names[at] == name:
            return self.offsets[at]
        return 0


class BodyWrite(Write):
    """Bodies to be written. Their checksums are made on the journal's thread: of long contents that takes as long as
    everything else about them, and zlib lets other threads run meanwhile."""

    __slots__ = ("_pieces", "contents")

    def __init__(self, target: Target, offset: int, buffers: list[bytes], pieces: Pieces) -> None:
        super().__init__(target, offset, buffers)
        self._pieces = pieces
        self.contents: list[tuple[int, bytes]] = []  # with the offset in the file

    def put(self, files: Files) -> None:
        """In pieces: while the disk writes one, the next one is prepared."""
        size = sum(len(content) for _, content in self.contents)
        if size >= max(LONG_BYTES, LONG_BODY_BYTES * len(self.contents)):
            self._pieces.write(files, self.target.descriptor, self.offset, self._parts())
        else:
            self._put_cached(files)

    def _put_cached(self, files: Files) -> None:
        descriptor = self.target.descriptor
        piece, begin, size = list[bytes](), self.offset, 0
        for part in self._parts():
            piece.append(part)
            size += len(part)
            if size >= PIECE_BYTES:
                files.write(descriptor, piece, begin)
                files.begin_sync(descriptor, begin, size)
                piece, begin, size = [], begin + size, 0
        if piece:
            files.write(descriptor, piece, begin)
            files.begin_sync(descriptor, begin, size)

    def _parts(self) -> Iterator[bytes]:
        yield from self.buffers
        number = self.target.file.number
        for offset, content in self.contents:
            yield encode_body_head(crc32(content), len(content), number, offset)
            yield content


class Bodies:
    __slots__ = (
        "_directory",
        "_pieces",
        "_recent",
        "_recent_bytes",
        "_writes",
        "files",
        "moved",
        "target",
        "written_bytes",
    )

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._pieces = Pieces()
        self._recent: dict[int, tuple[bytes, int, int]] = {}  # by identity of the content, which is kept alive by it
        self._recent_bytes = 0
        self._writes: dict[Target, BodyWrite] = {}  # for the piece of work at hand
        self.files: dict[int, StoredFile] = {}  # that may hold bodies, by number
        self.moved: dict[int, Moved] = {}  # by the number of the file they are in now
        self.target: Target | None = None
        self.written_bytes = 0  # since the last checkpoint

    def begin(self, number: int) -> None:
        """A new file, with this number."""
        file = StoredFile(BODIES, number, self._directory / BODIES_NAME.format(number))
        target = self.target = Target(file)
        self.files[number] = file
        self._writes[target] = BodyWrite(target, 0, [encode_file_head(BODIES, number)], self._pieces)
        target.size = FILE_HEAD_BYTES

    def place(self, content: bytes) -> tuple[bytes, int, int]:
        """The reference to this content, and the file and offset in it; written with the next piece of work unless it
        is there already."""
        known = self._recent.get(id(content))
        if known is None:
            known = content, *self._write(content)
            self._remember(known)
        _, file, offset = known
        return REFERENCE.pack(file, offset, len(content), 0), file, offset

    def _write(self, content: bytes) -> tuple[int, int]:
        target = self.target
        assert target is not None, "begin comes first"
        write = self._writes.get(target)
        if write is None:
            write = self._writes[target] = BodyWrite(target, target.size, [], self._pieces)
        number, offset = target.file.number, target.size
        write.contents.append((offset, content))
        size = BODY_HEAD_BYTES + len(content)
        target.size += size
        self.written_bytes += size
        return number, offset

    def _remember(self, known: tuple[bytes, int, int]) -> None:
        self._recent[id(known[0])] = known
        self._recent_bytes += len(known[0])
        while self._recent_bytes > RECENT_BYTES_MAX and len(self._recent) > 1:
            oldest = self._recent.pop(next(iter(self._recent)))
            self._recent_bytes -= len(oldest[0])

    def writes(self) -> list[Write]:
        """What is to be written before the batches that refer to it."""
        writes: list[Write] = list(self._writes.values())
        self._writes.clear()
        return writes

    def seal(self) -> Target | None:
        """The next body begins a new file."""
        # A content that comes again later is written again: the file may have been dropped by then.
        self._recent.clear()
        self._recent_bytes = 0
        self.written_bytes = 0
        target, self.target = self.target, None
        if target is not None:
            target.sealed = True
        return target

    def locate(self, file: int, offset: int) -> tuple[Path, int]:
        """Where the body of this name is now."""
        if file in self.files:
            return self.files[file].path, offset
        for moved in list(self.moved.values()):  # the pager asks, while the broker's thread may add to it
            found = moved.find(file, offset)
            if found:
                return moved.file.path, found
        return self._directory / BODIES_NAME.format(file), offset

    def forget(self, number: int) -> None:
        """The file is removed."""
        self.files.pop(number, None)
        self.moved.pop(number, None)

    def close(self) -> None:
        """The journal is closed: nothing more will be written."""
        self._pieces.close()

    def __repr__(self) -> str:
        return f"<Bodies files={len(self.files)} target={self.target}>"

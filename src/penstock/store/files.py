"""Files: every operation of the message store on the disk, in one place.

Place in the chain: the last thing before the kernel. All threads of the store use it, so it keeps no state. Tests put a
slow, full, failing or forgetful disk in its place.
Not here: what is written (record.py), who writes it (journal.py, keeper.py).
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

BUFFERS_MAX: Final = 1024  # what one pwritev takes (IOV_MAX)
JOIN_BELOW_BYTES: Final = 4096  # buffers that are shorter on average are joined first: that costs less than the list
BLOCK_BYTES: Final = 4096  # what write_direct takes a multiple of: a page, and no disk has longer blocks


class Files:
    """The real disk. Whatever goes wrong is an OSError."""

    __slots__ = ()

    # One file, by its descriptor.

    def create(self, path: Path) -> int:
        """For reading and writing, made if it is not there."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def open(self, path: Path) -> int:
        """For reading."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        """All of the buffers, from this offset on; written again after a failure, it is the same."""
        if len(buffers) > 1 and sum(map(len, buffers)) < JOIN_BELOW_BYTES * len(buffers):
            buffers = [b"".join(buffers)]
        waiting: list[bytes | memoryview] = list(buffers)
        while waiting:
            written = os.pwritev(descriptor, waiting[:BUFFERS_MAX], offset)
            offset += written
            waiting = _after(waiting, written)

    def write_direct(self, descriptor: int, blocks: memoryview, offset: int) -> None:
        """As write, from a buffer that begins with a page, whole blocks to a multiple of BLOCK_BYTES; by the disk from
        that buffer, not through the kernel's cache, if the file system can. Still to be synced: the disk has a cache
        too. Nobody else may write by this descriptor meanwhile."""
        flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_DIRECT)
            try:
                written = 0
                while written < len(blocks):
                    written += os.pwrite(descriptor, blocks[written:], offset + written)
            finally:
                fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # It cannot, or wants larger blocks, or wrote a part that ends within one.
            self.write(descriptor, [blocks], offset)
            self.begin_sync(descriptor, offset, len(blocks))

    def begin_sync(self, descriptor: int, offset: int, size: int) -> None:
        """Have the disk begin with these bytes now, so that the sync that follows has less to wait for."""
        # Of pages that are still to be written, this advice has the kernel begin to write them.
        os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_DONTNEED)

    def sync(self, descriptor: int) -> None:
        """What was written to the file survives a power loss from now on."""
        os.fdatasync(descriptor)

    def read(self, descriptor: int, size: int, offset: int) -> bytes:
        """As much as there is of it."""
        parts: list[bytes] = []
        while size > 0:
            part = os.pread(descriptor, size, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    # Directories.

    def make_directory(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def names(self, path: Path) -> list[str]:
        """Of all files there, sorted."""
        return sorted(os.listdir(path))

    def rename(self, old: Path, new: Path) -> None:
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        """Nothing happens if it is not there."""
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        """An empty one."""
        path.rmdir()

    def sync_directory(self, path: Path) -> None:
        """Names that were made, changed or removed there survive a power loss from now on."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _after(buffers: list[bytes | memoryview], written: int) -> list[bytes | memoryview]:
    """What is left of the buffers when this many bytes are written."""
    for at, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer)[written:], *buffers[at + 1 :]]
        written -= len(buffer)
    return []

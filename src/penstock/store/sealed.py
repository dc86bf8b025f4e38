"""SealedWriter: a file that is written once, from its beginning to its end, and is there as a whole or not at all.

Place in the chain: beside it; the keeper's segments (segment.py) and compacted files of bodies (compact.py) are such.

The order that makes it whole: written under another name (`.new`), synced, renamed, the directory synced. What a crash
leaves behind under the other name is removed at the next start.
Not here: the tables (index.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from penstock.store.files import Files
from penstock.store.index import Seal, encode_seal
from penstock.store.record import encode_file_head

NEW_SUFFIX: Final = ".new"
PIECE_BYTES: Final = 1_048_576  # what is gathered before it is written
SYNC_BYTES: Final = 8_388_608  # synced as it grows: one large sync at the end would hold up the journal's for long
WORK_S: Final = 0.002  # the broker's loop waits at most so long for the interpreter,
PAUSE_S: Final = 0.001  # and then has it for so long at least


class Stopped(Exception):
    """The keeper is to end: what it was doing is given up."""


class Pace:
    """When the keeper's thread pauses. Both fields may be set by another thread."""

    __slots__ = ("_since", "hurry", "stopped")

    def __init__(self, hurry: bool = False) -> None:
        self.hurry = hurry
        self.stopped = False
        self._since = time.monotonic()

    def breathe(self) -> None:
        """Between two pieces of work of less than a millisecond."""
        if self.stopped:
            raise Stopped
        if not self.hurry and time.monotonic() - self._since >= WORK_S:
            time.sleep(PAUSE_S)
            self._since = time.monotonic()


class SealedWriter:
    __slots__ = (
        "_descriptor",
        "_files",
        "_new",
        "_parts",
        "_path",
        "_seal",
        "_synced",
        "_waiting",
        "_written",
        "pace",
    )

    def __init__(self, files: Files, path: Path, kind: int, number: int, seal: Seal, pace: Pace) -> None:
        self._files = files
        self._path = path
        self._new = path.with_name(path.name + NEW_SUFFIX)
        self._seal = seal
        self.pace = pace
        self._parts: list[bytes] = []
        self._waiting = 0  # bytes of these
        self._written = 0  # bytes in the file
        self._synced = 0
        self._descriptor = files.create(self._new)
        try:
            files.truncate(self._descriptor, 0)  # a try that failed may have left it
        except OSError:
            self.abandon()
            raise
        self._parts.append(encode_file_head(kind, number) + encode_seal(seal, last=False))
        self._waiting = len(self._parts[0])

    def size(self) -> int:
        """Where the next record goes."""
        return self._written + self._waiting

    def write(self, *parts: bytes) -> None:
        for part in parts:
            self._parts.append(part)
            self._waiting += len(part)
        if self._waiting >= PIECE_BYTES:
            self._flush()
        self.pace.breathe()

    def finish(self, index: Iterable[bytes], messages: int = 0) -> int:
        """Write the index and the last seal; when this returns, the file is there for good. Its size."""
        seal = self._seal
        seal.index_at = self.size()
        seal.messages = messages
        for record in index:
            self.write(record)
        self.write(encode_seal(seal, last=True))
        self._flush()
        self._files.sync(self._descriptor)
        descriptor, self._descriptor = self._descriptor, -1
        self._files.close(descriptor)
        self._files.rename(self._new, self._path)
        try:
            self._files.sync_directory(self._path.parent)
        except OSError:
            # Nobody knows whether the name is durable, so the file must not count: the task will be tried again.
            self._files.remove(self._path)
            raise
        return self._written

    def abandon(self) -> None:
        """As if it had never been. What cannot be removed now is removed at the next start."""
        try:
            if self._descriptor >= 0:
                descriptor, self._descriptor = self._descriptor, -1
                self._files.close(descriptor)
            self._files.remove(self._new)
        except OSError:
            pass  # the error that led here is the one that is told

    def _flush(self) -> None:
        if not self._parts:
            return
        self._files.write(self._descriptor, self._parts, self._written)
        self._written += self._waiting
        self._parts = []
        self._waiting = 0
        if self._written - self._synced >= SYNC_BYTES:
            self._files.sync(self._descriptor)
            self._synced = self._written

    def __repr__(self) -> str:
        return f"<SealedWriter {self._new.name} bytes={self.size()}>"

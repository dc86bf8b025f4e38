"""Lock: one process per data directory.

Place in the chain: taken before anything in the directory is opened, released when all of it is closed. The kernel
releases it when the process ends, however it ends; the file stays, only the lock on it counts.
Not here: what lies in the directory (definitions.py).
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

LOCK_FILE: Final = "lock"


class DirectoryInUse(Exception):
    """Another process works in this data directory, or it cannot be locked; one line for the operator."""


class DirectoryLock:
    """Held from its making until `release`."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK_FILE
        self._descriptor = -1
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DirectoryInUse(f"data directory {directory}: cannot lock it: {error.strerror}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise DirectoryInUse(f"data directory {directory} is in use by {holder}") from None
        except OSError as error:
            os.close(descriptor)
            raise DirectoryInUse(f"data directory {directory}: cannot lock it: {error.strerror}") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Nothing happens if it is released already."""
        if self._descriptor >= 0:
            # The file is not removed: a process that has it open already would lock what nobody else can see.
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def __repr__(self) -> str:
        return f"<DirectoryLock {self.path} {'held' if self._descriptor >= 0 else 'released'}>"


def _holder(descriptor: int) -> str:
    # The holder writes its pid a moment after it has the lock, so it can be missing.
    pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    return f"process {pid}" if pid.isdecimal() else "another process"

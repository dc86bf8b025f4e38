"""SpoolLock: one query per spool.

Place in the chain: taken before anything in the directory is looked at, released when the query's process ends,
however it ends: the kernel does that. A query that is started again at once may meet its own last process, which is
just ending: so a lock can be waited for.
Not here: what lies in the directory (spool.py).
"""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Final

LOCK_FILE: Final = "lock"
_POLL_S: Final = 0.05


class SpoolInUse(Exception):
    """Another query has this spool; one line for the user."""


class SpoolLock:
    """Held from its making until `release`."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, directory: Path, wait_s: float = 0.0) -> None:
        self.path = directory / LOCK_FILE
        self._descriptor = -1
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SpoolInUse(f"spool {directory}: cannot lock it: {error.strerror}") from None
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(_POLL_S)
                    continue
                holder = _holder(descriptor)
                os.close(descriptor)
                raise SpoolInUse(
                    f"spool {directory} is in use by {holder}: each query on a queue needs a spool of its own; "
                    "give this one another consumerName or spoolDir"
                ) from None
            except OSError as error:
                os.close(descriptor)
                raise SpoolInUse(f"spool {directory}: cannot lock it: {error.strerror}") from None
            break
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        self._descriptor = descriptor

    def release(self) -> None:
        """Nothing happens if it is released already."""
        if self._descriptor >= 0:
            # The file stays: a process that has it open already would lock what nobody else can see.
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def __repr__(self) -> str:
        return f"<SpoolLock {self.path} {'held' if self._descriptor >= 0 else 'released'}>"


def _holder(descriptor: int) -> str:
    # The holder writes its pid a moment after it has the lock, so it can be missing.
    pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
    return f"process {pid}" if pid.isdecimal() else "another process"

"""Lock: one process writes to a directory of tables.

Taken before the manifest is read for writing, released when the process ends, however it ends: the kernel does that.
Readers need none: a part that a manifest names stays for a while after the next manifest no longer does.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from penstock.spark.complaint import Complaint


class Lock:
    """Held from its making until `release`."""

    __slots__ = ("_descriptor",)

    def __init__(self, path: Path, directory: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # The holder writes its pid a moment after it has the lock, so it can be missing.
            pid = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            self._descriptor = -1
            holder = f"process {pid}" if pid.isdecimal() else "another process"
            raise Complaint(f"the tables in {directory} are being written by {holder}") from None
        except OSError:
            os.close(self._descriptor)
            raise
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Nothing happens if it is released already. The file stays: another may have it open."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

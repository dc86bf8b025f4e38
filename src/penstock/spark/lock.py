"""Lock: one process has a directory: tables, archives, checkpoints of replays and their lanes, spools.

Taken before anything there is looked at, released when the process ends, however it ends: the kernel does that. What is
started again at once may meet its own last process, which is just ending: so a lock can be waited for.
Upstream: ledger/, archive/, replay/, spool.py, each of which tells its user in its own words what is taken.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

POLL_S: Final = 0.05


class Taken(Exception):
    """Another process has it."""

    def __init__(self, directory: Path, holder: str) -> None:
        super().__init__(f"{directory} is in use by {holder}")
        self.holder = holder  # "process 4711", or "another process"


class Lock:
    """Held from its making until `release`; Taken if another process has it for longer than `wait_s`.

    `waiting` is called once, if it has to be waited for."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path, wait_s: float = 0.0, waiting: Callable[[], None] | None = None) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._take(time.monotonic() + wait_s, waiting)
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)
        except BaseException:
            os.close(self._descriptor)
            self._descriptor = -1
            raise

    def _take(self, deadline: float, waiting: Callable[[], None] | None) -> None:
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise Taken(self.path.parent, self._holder()) from None
            if waiting is not None:
                waiting()
                waiting = None
            time.sleep(POLL_S)

    def _holder(self) -> str:
        # It writes its pid a moment after it has the lock, so it can be missing.
        pid = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip()
        return f"process {pid}" if pid.isdecimal() else "another process"

    def release(self) -> None:
        """Nothing happens if it is released already."""
        if self._descriptor >= 0:
            # The file stays: a process that has it open already would lock what nobody else can see.
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1

    def __repr__(self) -> str:
        return f"<Lock {self.path} {'held' if self._descriptor >= 0 else 'released'}>"

"""Archive lock: one job per directory, for archives, checkpoints of replays, and their lanes.

The kernel releases it when the process ends, however it ends. A job that is started again at once may meet its own last
processes, which are just ending: so a lock can be waited for.
Not here: spools, whose lock tells of queries (spoollock.py).
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from penstock.spark.ledger import disk

POLL_S: Final = 0.05


class Taken(Exception):
    """Another process has it; the text is one line."""


class Lock:
    """Held from its making until `release`."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: Path, wait_s: float = 0.0, waiting: Callable[[], None] | None = None) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        deadline = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    os.close(self._descriptor)
                    raise Taken(f"{path.parent} is in use by another process") from None
            if waiting is not None:
                waiting()
                waiting = None
            time.sleep(POLL_S)

    def release(self) -> None:
        """Nothing happens if it is released already. The file stays: somebody may have it open and wait for it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __repr__(self) -> str:
        return f"<Lock {self.path} {'held' if self._descriptor >= 0 else 'released'}>"


def write_synced(path: Path, text: str) -> None:
    """The file has this text, or what it had before, whatever happens in between."""
    beside = path.with_name(f"{path.name}.new")
    disk.write(beside, text.encode())
    disk.rename(beside, path)
    disk.sync(path.parent)

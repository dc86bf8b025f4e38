"""Memory: how much of a broker is resident, from /proc, now and at its highest. Without /proc nothing is known.

Not here: the load tool's own memory, processor time (cpu.py).
"""

import re
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.perf.cpu import PROC, family

SAMPLE_S = 0.2  # the kernel keeps the main process's own highest; samples add its children, and cost 2 ms each
RESIDENT = "VmRSS"
HIGHEST = "VmHWM"
FORGET_HIGHEST = "5"  # what /proc/PID/clear_refs takes to begin anew with VmHWM


def resident_bytes(pid: int | None) -> int:
    """What a process and its living descendants have in memory; 0 if it is not there."""
    return sum(_status_bytes(member, RESIDENT) for member in family(pid))


class MemoryWatch:
    """The highest resident memory of a process and its descendants, from the with-statement's begin to its end."""

    __slots__ = ("_ended", "_exact", "_thread", "highest_bytes", "pid")

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.highest_bytes = 0
        self._exact = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __repr__(self) -> str:
        return f"<MemoryWatch pid={self.pid} highest_bytes={self.highest_bytes}>"

    def __enter__(self) -> Self:
        try:
            (PROC / str(self.pid) / "clear_refs").write_text(FORGET_HIGHEST)
            self._exact = True
        except OSError:
            pass  # not ours, or no such file: the samples alone must do
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._sample()
        if self._exact:
            self.highest_bytes = max(self.highest_bytes, _status_bytes(self.pid, HIGHEST))

    def _watch(self) -> None:
        while not self._ended.wait(SAMPLE_S):
            self._sample()

    def _sample(self) -> None:
        self.highest_bytes = max(self.highest_bytes, resident_bytes(self.pid))


def _status_bytes(pid: int, field: str) -> int:
    try:
        found = re.search(rf"^{field}:\s+(\d+) kB$", Path(PROC / str(pid) / "status").read_text(), re.MULTILINE)
    except OSError:
        return 0  # it ended meanwhile
    return int(found[1]) * 1024 if found else 0

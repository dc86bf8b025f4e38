"""Vitals: what memory this process uses, how much there is for it, how much of its disk is free, if it has a core.

Place: read by the watch (broker/alarms.py), put together by server.py. Every reading is a few system calls on files
that the kernel answers from memory, so the event loop may make them.
What the machine does not have (no /proc, no control groups) is answered with "cannot be told", and raises no alarm.
Not here: what is too much or too little (broker/alarms.py).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

PROC: Final = Path("/proc")
CGROUPS: Final = Path("/sys/fs/cgroup")


class Vitals:
    __slots__ = ("_cgroups", "_data", "_page_bytes", "_proc")

    def __init__(self, data: Path | None, proc: Path = PROC, cgroups: Path = CGROUPS) -> None:
        """Without a data directory there is no disk to look at."""
        self._data = data
        self._proc = proc
        self._cgroups = cgroups
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")

    def memory_used_bytes(self) -> int:
        """Resident memory; 0 if it cannot be told."""
        words = _read(self._proc / "self" / "statm").split()
        return int(words[1]) * self._page_bytes if len(words) > 1 else 0

    def memory_bytes(self) -> int:
        """The machine's, or the limit of the control group if that is lower; 0 if it cannot be told."""
        sizes = [self._machine_bytes(), *self._group_limits()]
        return min((size for size in sizes if size > 0), default=0)

    def disk_free_bytes(self) -> int | None:
        """For a user without privileges; None without a data directory, or if it cannot be told."""
        if self._data is None:
            return None
        try:
            found = os.statvfs(self._data)
        except OSError:
            return None
        return found.f_bavail * found.f_frsize

    def core_wait(self) -> tuple[int, int]:
        """Nanoseconds that the calling thread was ready but had no core, and how often it got one; so far.

        Zeros if it cannot be told."""
        words = _read(self._proc / "thread-self" / "schedstat").split()
        return (int(words[1]), int(words[2])) if len(words) > 2 else (0, 0)

    def give_back(self) -> None:
        """The C library keeps freed memory between what is still in use, unless it is told to give it back."""
        try:
            trim = ctypes.CDLL(None).malloc_trim
        except (AttributeError, OSError):  # not glibc
            return
        trim(0)

    def _machine_bytes(self) -> int:
        for line in _read(self._proc / "meminfo").splitlines():
            name, _, size = line.partition(":")
            if name == "MemTotal":
                return int(size.split()[0]) * 1024
        return 0

    def _group_limits(self) -> Iterator[int]:
        """Of our group and all above it, in both versions of control groups; "max" in version 2 is none."""
        for line in _read(self._proc / "self" / "cgroup").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                top, file = self._cgroups, "memory.max"
            elif "memory" in controllers.split(","):
                top, file = self._cgroups / "memory", "memory.limit_in_bytes"
            else:
                continue
            own = PurePosixPath(path.lstrip("/"))
            # In a container the path may be the host's and lead nowhere here: then the top is our group.
            for group in (own, *own.parents):
                text = _read(top / group / file).strip()
                if text.isdigit():
                    yield int(text)


def _read(file: Path) -> str:
    try:
        return file.read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return ""

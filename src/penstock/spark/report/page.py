"""Page: page.json in the ledger's directory, from which the broker's page draws its History view.

    {"version": 1, "made_ms": …, "ranges": {"15m": digest, "1h": digest, "24h": digest}}

`PageWriter.write` is called after a commit. A range is summed up again when its picture may have changed by as much as
one can see: a day need not be read every five seconds. A range of which a file is damaged or gone stays as it was, and
the others go on. page.json is replaced as a whole: a reader never sees half of it.
Upstream: flowjob.py.  Downstream: management/tables.py reads it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

from penstock.spark.complaint import Complaint
from penstock.spark.ledger.parts import Damaged
from penstock.spark.report.digest import WINDOW_S, digest, encoded, read_advice
from penstock.spark.report.frame import Row, Tables

FILE: Final = "page.json"
VERSION: Final = 1
# Range, its length in seconds, and after how many seconds it is summed up again.
RANGES: Final = (("15m", 900, 0.0), ("1h", 3600, 15.0), ("24h", 86_400, 180.0))
COST_SHARE_MAX: Final = 0.05  # of the time: where summing up takes long, it is done less often

log = logging.getLogger("penstock.spark")


class History(Tables, Protocol):
    """What is asked of the ledger beside its rows."""

    @property
    def window_s(self) -> float | None: ...

    def newest(self) -> datetime | None:
        """The start of the newest window there is."""
        ...


class PageWriter:
    """Of one ledger; remembers what it has summed up."""

    __slots__ = ("_clock", "_due_s", "_history", "_ranges", "_root", "_told")

    def __init__(self, history: History, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._history = history
        self._root = root
        self._clock = clock
        self._due_s: dict[str, float] = {}
        self._ranges: dict[str, Row] = {}
        self._told: set[str] = set()  # files that cannot be read, of which the log has a line

    def write(self, whole: bool = False) -> bool:
        """A new page.json; False: there is nothing to show yet. `whole`: all of it anew, whatever it costs."""
        newest = self._history.newest()
        if newest is None:
            return False
        window_s = self._history.window_s or WINDOW_S
        until = newest + timedelta(seconds=window_s)
        advice = read_advice(self._root)
        for name, seconds, every_s in RANGES:
            if not whole and self._clock() < self._due_s.get(name, 0.0):
                continue
            began_s = self._clock()
            since = until - timedelta(seconds=seconds)
            try:
                self._ranges[name] = digest(self._history, since, until, window_s, advice=advice)
            except (Complaint, OSError) as error:
                self._tell(error)
            took_s = self._clock() - began_s
            self._due_s[name] = self._clock() + max(every_s, took_s / COST_SHARE_MAX)
        if not self._ranges:
            return False
        replace(self._root / FILE, encoded({"version": VERSION, "made_ms": _now_ms(), "ranges": self._ranges}))
        return True

    def _tell(self, error: Complaint | OSError) -> None:
        """In one line, once for each file: it is found again every few seconds."""
        what = str(error.path if isinstance(error, Damaged) else error)
        if what not in self._told:
            self._told.add(what)
            log.warning("%s; the History page keeps the ranges that need it as they were", error)


def replace(path: Path, content: bytes) -> None:
    """The whole file or the one before. Not synced: after a power cut it is written again."""
    new = path.with_name(f".{path.name}.new")
    new.write_bytes(content)
    os.replace(new, path)


def _now_ms() -> int:
    return int(time.time() * 1000)

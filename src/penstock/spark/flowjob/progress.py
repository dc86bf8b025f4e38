"""Progress: what the flow job did since it last said so, as one line for operators.

Upstream: job.py, after each batch.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

from penstock.spark.flowjob.batch import Done

EVERY_S = 60.0  # between two lines while there is work; without work there are none
NAMED = 3  # rules whose failures are told by name


class Progress:
    """Adds batches up until a line is due."""

    __slots__ = (
        "_batches",
        "_clock",
        "_events",
        "_failures",
        "_last",
        "_late",
        "_newest",
        "_rows",
        "_slowest_s",
        "every_s",
    )

    def __init__(self, every_s: float = EVERY_S, clock: Callable[[], float] = time.monotonic) -> None:
        self.every_s = every_s
        self._clock = clock
        self._last = clock()
        self._newest: datetime | None = None
        self._reset()

    def _reset(self) -> None:
        self._batches = self._events = self._late = self._rows = 0
        self._slowest_s = 0.0
        self._failures: Counter[str] = Counter()

    def add(self, done: Done) -> None:
        self._batches += 1
        self._events += done.events
        self._late += done.late
        self._rows += done.rows
        self._slowest_s = max(self._slowest_s, done.total_s)
        self._failures.update(done.failures)
        self._newest = done.newest or self._newest

    def is_due(self, now: bool = False) -> bool:
        """Whether something happened, and it is time to say so."""
        return self._batches > 0 and (now or self._clock() - self._last >= self.every_s)

    def line(self, lag: int | None, now: bool = False) -> str | None:
        """What happened since the last line; None: it is not due. lag: events that are not read."""
        if not self.is_due(now):
            return None
        batches = f"{self._batches} batch{'' if self._batches == 1 else 'es'}"
        text = f"{batches}, {self._events:,} events, {self._rows:,} rows, slowest {self._slowest_s:.1f} s"
        if self._newest is not None:
            text += f", newest event {max((datetime.now(UTC) - self._newest).total_seconds(), 0.0):.1f} s ago"
        if lag is not None:
            text += f", behind by {lag:,}"
        if self._late:
            text += f", {self._late:,} late"
        text += f", {sum(self._failures.values()):,} quality failures"
        if self._failures:
            worst = ", ".join(f"{rule}: {count:,}" for rule, count in self._failures.most_common(NAMED))
            text += f" ({worst})"
        self._last = self._clock()
        self._reset()
        return text

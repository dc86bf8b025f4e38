"""Sampling: looks at the broker in its own time, so that a question about rates or the past has an answer at once.

Place: api.py makes it, the listener runs it beside the API. Not here: what is looked at (rates.py, history.py).
"""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol

from penstock.management.history import History, Observed
from penstock.management.rates import Counted, Rates

WALKS_MAX: Final = 2  # long answers about all objects at the same time: of 10,000 queues, 15 MB each
SWEEP_S: Final = 1.0  # how old the sums over all queues are at most
SWEEP_SHARE: Final = 0.005  # of the time that sweeps may take: then they are older


class Sampled(Counted, Observed, Protocol):
    """What is asked of the broker."""

    def sweep(self) -> bool:
        """Count a slice of what must be counted for the sums over all queues; True: all of it was."""
        ...


class Sampling:
    __slots__ = ("_admin", "_started_s", "history", "rates", "walks")

    def __init__(self, admin: Sampled) -> None:
        self._admin = admin
        self._started_s: float | None = None
        self.rates = Rates(admin)
        self.history = History(admin)
        self.walks = asyncio.Semaphore(WALKS_MAX)

    def started_s(self, uptime_s: float) -> float:
        """When the broker started, in seconds since 1970. Computed once: a start that moves looks like a restart."""
        if self._started_s is None:
            self._started_s = round(time.time() - uptime_s, 1)
        return self._started_s

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._sweep())
            tasks.create_task(self.rates.run())
            tasks.create_task(self.history.run())

    async def _sweep(self) -> None:
        while True:
            spent_s = await self.sweep()
            await asyncio.sleep(max(SWEEP_S, spent_s / SWEEP_SHARE))

    async def sweep(self) -> float:
        """One round over all queues, in slices; the seconds that it took of the loop."""
        spent_s = 0.0
        while True:
            began_s = time.perf_counter()
            done = self._admin.sweep()
            spent_s += time.perf_counter() - began_s
            if done:
                return spent_s
            await asyncio.sleep(0)

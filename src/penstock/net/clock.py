"""Clock: the event loop's time and timers, for the packages that know no event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class LoopClock:
    __slots__ = ("_loop",)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return self._loop.call_later(delay_s, callback)

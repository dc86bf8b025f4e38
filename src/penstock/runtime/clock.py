"""Clock: time and timers, as the no-I/O packages see them.

The server passes one that sits on the event loop; tests pass FakeClock and turn it by hand, so they never sleep.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def now_ns(self) -> int:
        """Monotonic nanoseconds."""
        ...

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer: ...


class FakeTimer:
    __slots__ = ("callback", "cancelled", "due_ns", "number")

    def __init__(self, due_ns: int, number: int, callback: Callable[[], None]) -> None:
        self.due_ns = due_ns
        self.number = number
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def __lt__(self, other: FakeTimer) -> bool:
        return (self.due_ns, self.number) < (other.due_ns, other.number)


class FakeClock:
    """Time stands still until `advance`, which runs what falls due, in order."""

    def __init__(self) -> None:
        self._now_ns = 0
        self._timers: list[FakeTimer] = []
        self._count = 0

    def now_ns(self) -> int:
        return self._now_ns

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> FakeTimer:
        self._count += 1
        timer = FakeTimer(self._now_ns + int(delay_s * 1e9), self._count, callback)
        heapq.heappush(self._timers, timer)
        return timer

    def advance(self, seconds: float) -> None:
        until = self._now_ns + int(seconds * 1e9)
        while self._timers and self._timers[0].due_ns <= until:
            timer = heapq.heappop(self._timers)
            self._now_ns = timer.due_ns
            if not timer.cancelled:
                timer.callback()
        self._now_ns = until

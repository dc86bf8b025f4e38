"""Wakeup: a turn for a queue when its first message is due.

Place in the chain: inside queue.py. Not here: when that is (shelves.py).
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime import Clock, Timer


class Wakeup:
    __slots__ = ("_clock", "_due_ns", "_timer", "_wake")

    def __init__(self, clock: Clock, wake: Callable[[], None]) -> None:
        self._clock = clock
        self._wake = wake
        self._timer: Timer | None = None
        self._due_ns = 0

    def at(self, due_ns: int) -> None:
        """Then, instead of when it was said before; 0 is never."""
        if due_ns == self._due_ns:
            return
        self.stop()
        self._due_ns = due_ns
        if due_ns:
            self._timer = self._clock.call_later(max(0, due_ns - self._clock.now_ns()) / 1e9, self._due)

    def stop(self) -> None:
        self._due_ns = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        self._timer = None
        self._due_ns = 0
        self._wake()

"""Vacancy: the end of a queue that nobody uses, by x-expires.

Used is: a consumer, a basic.get, a declare. Place in the chain: inside queue.py, which says when it is used.
Not here: messages that expire (shelves.py).
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.options import NONE, Options
from penstock.broker.shelves import NS_PER_MS
from penstock.runtime import Clock, Timer


class Vacancy:
    __slots__ = ("_clock", "_expires_ms", "_timer", "_used_ns", "_vacate")

    def __init__(self, clock: Clock, vacate: Callable[[], None]) -> None:
        self._clock = clock
        self._vacate = vacate
        self._expires_ms = NONE
        self._used_ns = clock.now_ns()
        self._timer: Timer | None = None

    def used(self) -> None:
        self._used_ns = self._clock.now_ns()

    def apply(self, options: Options, in_use: bool) -> None:
        """From now on this limit. It counts from now, or a policy could delete at once what lies idle."""
        if options.expires_ms != self._expires_ms:
            self._expires_ms = options.expires_ms
            self.used()
        self.stop()
        self.watch(in_use)

    def watch(self, in_use: bool) -> None:
        """Unless it is in use, have it vacated when it is time."""
        if self._timer is None and self._expires_ms != NONE and not in_use:
            self._timer = self._clock.call_later(max(0, self._left_ns()) / 1e9, self._due)

    def end(self) -> None:
        """The queue is gone; it must not be kept alive by its own timer's end."""
        self.stop()
        self._vacate = _nobody

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _left_ns(self) -> int:
        return self._used_ns + self._expires_ms * NS_PER_MS - self._clock.now_ns()

    def _due(self) -> None:
        self._timer = None
        if self._left_ns() > 0:
            self.watch(False)
        else:
            self._vacate()


def _nobody() -> None:
    """Who is told of a queue that is gone."""

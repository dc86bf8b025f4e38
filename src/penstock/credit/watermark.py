"""Watermark and Gauge: when a queue is saturated, in integers.

A queue is saturated when its messages or their bytes go above the stop mark, and released when both are below the
resume mark: between the two it stays what it was, so that one message more or less does not change it back and forth.
A dimension without a stop mark says nothing. An empty queue is always released, or it would stay saturated for ever.

Place: broker/options.py makes a watermark of a queue's arguments and policies; broker/saturation.py holds confirms by
the gauge.
Not here: what is counted (broker/queue.py), what being saturated means to a publisher (broker/saturation.py).
"""

from __future__ import annotations

from typing import Final

OFF: Final = -1  # no mark in this dimension

# Qpid's: enough room above the stop for what is on its way, and enough between the two for a batch or more.
STOP_PERCENT: Final = 80
RESUME_PERCENT: Final = 70


def default_stop(maximum: int) -> int:
    """For a queue that may hold this much: 80 % of it, rounded down, so that a queue at its maximum is saturated."""
    return maximum * STOP_PERCENT // 100


def default_resume(stop: int) -> int:
    """What a stop of 80 % and a resume of 70 % are to each other: seven eighths."""
    return stop * RESUME_PERCENT // STOP_PERCENT


class Watermark:
    """Stop and resume marks, in messages and in bytes. A stop of OFF switches its dimension off."""

    __slots__ = ("resume_bytes", "resume_count", "stop_bytes", "stop_count")

    def __init__(
        self, stop_count: int = OFF, resume_count: int = OFF, stop_bytes: int = OFF, resume_bytes: int = OFF
    ) -> None:
        self.stop_count = max(OFF, stop_count)
        self.resume_count = _resume(self.stop_count, resume_count)
        self.stop_bytes = max(OFF, stop_bytes)
        self.resume_bytes = _resume(self.stop_bytes, resume_bytes)

    def is_above(self, count: int, bytes_: int) -> bool:
        """Above a stop mark, in messages or in bytes."""
        return (self.stop_count != OFF and count > self.stop_count) or (
            self.stop_bytes != OFF and bytes_ > self.stop_bytes
        )

    def is_below(self, count: int, bytes_: int) -> bool:
        """Below both resume marks, as far as there are any; nothing is always below."""
        if not count:
            return True
        return (self.stop_count == OFF or count < self.resume_count) and (
            self.stop_bytes == OFF or bytes_ < self.resume_bytes
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Watermark) and self._marks() == other._marks()

    def __hash__(self) -> int:
        return hash(self._marks())

    def _marks(self) -> tuple[int, int, int, int]:
        return self.stop_count, self.resume_count, self.stop_bytes, self.resume_bytes

    def __repr__(self) -> str:
        return f"Watermark{self._marks()}"


def _resume(stop: int, resume: int) -> int:
    """The resume mark for this stop: never above it, or a queue would be saturated and released at once."""
    if stop == OFF:
        return OFF
    return max(0, min(stop, resume if resume >= 0 else default_resume(stop)))


class Gauge:
    """Whether a queue is saturated, as its messages and bytes change."""

    __slots__ = ("saturated", "watermark")

    def __init__(self, watermark: Watermark) -> None:
        self.watermark = watermark
        self.saturated = False

    def read(self, count: int, bytes_: int) -> bool:
        """The queue now has this much; whether it is saturated."""
        if not self.saturated:
            self.saturated = self.watermark.is_above(count, bytes_)
        elif self.watermark.is_below(count, bytes_):
            self.saturated = False
        return self.saturated

    def __repr__(self) -> str:
        return f"<Gauge {self.watermark!r}{' saturated' if self.saturated else ''}>"

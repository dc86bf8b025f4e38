"""Alarms: too much memory used, too little disk free, a store that cannot write. While one is on, publishers wait.

Place: beside the chain. server.py starts the Watch; the store raises and clears its own alarm; every reader listens
(net/reader.py) and blocks at its connection's next publish. Counted by source: what one source clears, another still
holds.

    memory  the process uses more than the watermark        Watch
    disk    the data directory's disk has less than that    Watch
    store   the journal cannot write                        store

Not here: reading /proc and the disk (vitals.py), what a blocked connection does (net/reader.py, net/blocked.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.runtime import Clock, Timer

MEMORY: Final = "memory"
DISK: Final = "disk"
STORE: Final = "store"

MEMORY_CHECK_S: Final = 1.0  # RabbitMQ's
DISK_CHECK_S_MIN: Final = 0.1
DISK_CHECK_S_MAX: Final = 10.0
DISK_CHECK_ALARMED_S: Final = 1.0  # while it is on: soon enough to go on, whatever is missing
DISK_FAST_BYTES_S: Final = 500_000_000  # how fast space may go: looked at again before the limit can be reached
# Parked publishes that may still go to their queues while alarms are on, because their channel or connection is closed
# behind them: a close must not hang, but closing must not be a way around an alarm either. For the whole broker, once
# per episode: sixteen connections' full parking space.
PUSH_BYTES_MAX: Final = 16_777_216


@dataclass(frozen=True, slots=True)
class Thresholds:
    memory_bytes_high: int = 0  # 0: memory_relative_high counts
    memory_relative_high: float = 0.6  # of the memory there is; 0 is none
    disk_free_bytes_low: int = 50_000_000
    disk_free_relative_low: float = 0.0  # of the memory there is; of the two the larger counts
    blocked_deadline_s: float = 0.0  # how long a publisher may stay blocked by alarms; 0 is for ever

    def memory_high(self, memory_bytes: int) -> int:
        """The watermark where there is so much memory; 0 is none."""
        return self.memory_bytes_high or int(self.memory_relative_high * memory_bytes)

    def disk_low(self, memory_bytes: int) -> int:
        """The least free space; 0 is none."""
        return max(self.disk_free_bytes_low, int(self.disk_free_relative_low * memory_bytes))


def low_on_memory(used_bytes: int, high_bytes: int) -> str:
    """Why there is an alarm, or an empty string."""
    if not high_bytes or used_bytes <= high_bytes:
        return ""
    return f"low on memory: {_size(used_bytes)} used of {_size(high_bytes)}"


def low_on_disk(free_bytes: int, low_bytes: int) -> str:
    if free_bytes >= low_bytes:
        return ""
    return f"low on disk: {_size(free_bytes)} free, limit {_size(low_bytes)}"


def disk_check_s(free_bytes: int, low_bytes: int) -> float:
    """When to look at the disk again: the sooner, the closer it is."""
    if free_bytes < low_bytes:
        return DISK_CHECK_ALARMED_S
    return min(DISK_CHECK_S_MAX, max(DISK_CHECK_S_MIN, (free_bytes - low_bytes) / DISK_FAST_BYTES_S))


def _size(bytes_: int) -> str:
    if bytes_ < 1000:
        return f"{bytes_} B"
    if bytes_ >= 10_000_000:
        return f"{bytes_ / 1e6:.0f} MB"
    return f"{bytes_ / 1e6:.3f}".rstrip("0").rstrip(".") + " MB"  # 1.000 would be read as a thousand


class Listener(Protocol):
    def alarms_changed(self) -> None:
        """An alarm began, ended or has another reason, or the deadline changed."""
        ...


class Alarms:
    __slots__ = ("_push_bytes", "_reasons", "listeners", "noted", "recheck", "thresholds", "told")

    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.thresholds = thresholds if thresholds is not None else Thresholds()
        self.listeners: dict[Listener, None] = {}
        self.told: Callable[[str, str], None] = _nobody  # source and reason when one begins or changes; "" at its end
        self.noted: Callable[[str, str], None] = _nobody  # the same, for whoever keeps a record
        self.recheck: Callable[[], None] = _nothing  # the watch's: look again at once
        self._reasons: dict[str, str] = {}
        self._push_bytes = 0  # what may still be pushed in this episode

    def raise_alarm(self, source: str, reason: str) -> None:
        """This source blocks publishers until it clears it; again with another reason, if that has changed."""
        if self._reasons.get(source) == reason:
            return
        if not self._reasons:
            self._push_bytes = PUSH_BYTES_MAX
        self._reasons[source] = reason
        self.noted(source, reason)
        self.told(source, reason)
        self._tell_all()

    def renew(self, source: str, reason: str) -> None:
        """Newer numbers for an alarm that is on: for those who ask from now on. Nobody is told."""
        assert source in self._reasons
        self._reasons[source] = reason

    def clear(self, source: str) -> None:
        """As often as one likes."""
        if self._reasons.pop(source, None) is not None:
            self.noted(source, "")
            self.told(source, "")
            self._tell_all()

    def reasons(self) -> dict[str, str]:
        """By source; empty if publishers are free."""
        return dict(self._reasons)

    def text(self) -> str:
        """All reasons, for a client."""
        return "; ".join(self._reasons.values())

    def change(self, thresholds: Thresholds) -> None:
        """From now on these count: an alarm begins or ends at once."""
        deadline_s, self.thresholds = self.thresholds.blocked_deadline_s, thresholds
        self.recheck()
        if deadline_s != thresholds.blocked_deadline_s:
            self._tell_all()

    def admit(self, bytes_: int) -> bool:
        """Whether this much may go to the queues although an alarm is on; it is counted."""
        if not self._reasons:
            return True
        if bytes_ > self._push_bytes:
            return False
        self._push_bytes -= bytes_
        return True

    def _tell_all(self) -> None:
        for listener in list(self.listeners):
            listener.alarms_changed()

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def __repr__(self) -> str:
        return f"<Alarms {self.text() or 'none'}>"


class Vitals(Protocol):
    """The machine, as the watch sees it; vitals.py reads it."""

    def memory_used_bytes(self) -> int:
        """By this process; 0 if it cannot be told."""
        ...

    def memory_bytes(self) -> int:
        """That there is for it: the machine's or, if smaller, its group's limit; 0 if it cannot be told."""
        ...

    def disk_free_bytes(self) -> int | None:
        """On the data directory's disk; None without one, or if it cannot be told."""
        ...

    def core_wait(self) -> tuple[int, int]:
        """Nanoseconds that this thread was ready but had no core, and how often it got one; 0 if it cannot be told."""
        ...

    def give_back(self) -> None:
        """Return freed memory to the machine, which allocators like to keep."""
        ...


class Watch:
    """Looks at memory every second, at the disk the more often the closer it is to its limit."""

    __slots__ = (
        "_alarms",
        "_clock",
        "_disk_timer",
        "_memory_timer",
        "_vitals",
        "core_wait_ns",
        "core_waits",
        "disk_free_bytes",
        "disk_low_bytes",
        "memory_high_bytes",
        "memory_used_bytes",
        "observed",
    )

    def __init__(self, clock: Clock, alarms: Alarms, vitals: Vitals) -> None:
        self._clock = clock
        self._alarms = alarms
        self._vitals = vitals
        self.observed: Callable[[int, int], None] = _unobserved  # told what memory is used, and what is too much
        self._memory_timer: Timer | None = None
        self._disk_timer: Timer | None = None
        self.memory_used_bytes = 0  # as last seen; 0 if it cannot be told
        self.memory_high_bytes = 0  # the watermark; 0 is none
        self.disk_free_bytes: int | None = None
        self.disk_low_bytes = 0
        self.core_wait_ns = 0  # no alarm: only for those who want to know whether others need the core
        self.core_waits = 0

    def start(self) -> None:
        """The first look is now: a broker that starts on a full disk has its alarm before its first client."""
        self._alarms.recheck = self.look
        self.look()

    def look(self) -> None:
        self.stop()
        self._look_at_memory()
        self._look_at_disk()

    def stop(self) -> None:
        for timer in (self._memory_timer, self._disk_timer):
            if timer is not None:
                timer.cancel()
        self._memory_timer = self._disk_timer = None

    def _look_at_memory(self) -> None:
        high = self._alarms.thresholds.memory_high(self._vitals.memory_bytes())
        used = self._vitals.memory_used_bytes()
        self.memory_used_bytes, self.memory_high_bytes = used, high
        self.core_wait_ns, self.core_waits = self._vitals.core_wait()
        self.observed(used, high)
        reason = low_on_memory(used, high)
        if reason:
            # What queues have let go of may still be the allocator's: an alarm for that would never end.
            self._vitals.give_back()
            reason = low_on_memory(self._vitals.memory_used_bytes(), high)
        self._decide(MEMORY, reason)
        self._memory_timer = self._clock.call_later(MEMORY_CHECK_S, self._look_at_memory)

    def _look_at_disk(self) -> None:
        self.disk_free_bytes = free = self._vitals.disk_free_bytes()
        if free is None:
            self._decide(DISK, "")
            delay_s = DISK_CHECK_S_MAX
        else:
            self.disk_low_bytes = low = self._alarms.thresholds.disk_low(self._vitals.memory_bytes())
            self._decide(DISK, low_on_disk(free, low))
            delay_s = disk_check_s(free, low)
        self._disk_timer = self._clock.call_later(delay_s, self._look_at_disk)

    def _decide(self, source: str, reason: str) -> None:
        if not reason:
            self._alarms.clear(source)
        elif source in self._alarms.reasons():
            self._alarms.renew(source, reason)
        else:
            self._alarms.raise_alarm(source, reason)


def _nobody(source: str, reason: str) -> None:
    """Who is told before server.py says who."""


def _unobserved(used_bytes: int, high_bytes: int) -> None:
    """Nobody pages."""


def _nothing() -> None:
    """Nothing is measured yet."""

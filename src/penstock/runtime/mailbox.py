"""Mailbox: what waits for a stage, in two lanes.

Casting never waits and never runs the receiver: it appends and makes the stage runnable. The urgent lane (confirms,
rejects) is emptied before any ordinary work, as in RabbitMQ's priority mailbox.
A held mailbox keeps its ordinary lane: a stage that waits for an answer, or that a test suspends. Holds are counted, so
that two holders do not release each other.
It counts its turns and how long they took: one in TIMED_EVERY is timed and stands for those before it. The first one
stands for itself only, so that a stage with few turns does not look sixteen times as busy as it is. While turns take
too long, each of them is timed.
Not here: whose turn it is (scheduler.py), how much may wait (credit/).
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, Protocol, TypeVar

from penstock.runtime.scheduler import Scheduler

UNTIMED: Final = -1
NS_PER_US: Final = 1000

Item = TypeVar("Item")
Item_contra = TypeVar("Item_contra", contravariant=True)


class Worker(Protocol[Item_contra]):
    """A stage as its mailbox sees it."""

    def take(self, item: Item_contra) -> int:
        """Work on one ordinary item; the cost in messages."""
        ...

    def take_urgent(self, item: Item_contra) -> None: ...

    def finish(self, budget: int) -> int:
        """The turn ends: do what is done once per turn, within a budget of its own; the cost in messages.

        If there is more of it to do, the stage wakes its mailbox."""
        ...


class Nobody:
    """The worker of a closed mailbox: takes everything, does nothing."""

    __slots__ = ()

    def take(self, item: object) -> int:
        return 1

    def take_urgent(self, item: object) -> None:
        return

    def finish(self, budget: int) -> int:
        return 0


NOBODY: Final = Nobody()


class Mailbox(Generic[Item]):
    __slots__ = (
        "busy_ns",
        "delay_us",
        "holds",
        "ordinary",
        "scheduled",
        "scheduler",
        "slowed",
        "turns",
        "urgent",
        "worker",
    )

    def __init__(self, scheduler: Scheduler, worker: Worker[Item]) -> None:
        self.scheduler = scheduler
        self.worker: Worker[Item] = worker
        self.ordinary: deque[Item] = deque()
        self.urgent: deque[Item] = deque()
        self.scheduled = False
        self.holds = 0
        self.delay_us = 0  # faults.*_delay_us: this many microseconds per message, on purpose
        self.slowed = False  # while such a delay lasts: nothing is taken, but deliveries go on
        self.turns = 0
        self.busy_ns = 0  # that all turns took, about; with such delays, as they stand for work

    def cast(self, item: Item) -> None:
        self.ordinary.append(item)
        if not self.scheduled and not self.holds:
            self.scheduler.schedule(self)

    def cast_urgent(self, item: Item) -> None:
        self.urgent.append(item)
        if not self.scheduled:
            self.scheduler.schedule(self)

    def wake(self) -> None:
        """Give the stage a turn although nothing was cast to it."""
        if not self.scheduled:
            self.scheduler.schedule(self)

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        if self.worker is NOBODY:
            return
        assert self.holds > 0, "released a mailbox that nobody holds"
        self.holds -= 1
        if not self.holds:
            self.wake()

    def close(self) -> None:
        """The stage is gone. It is let go of, so that its memory is free at once and not when cycles are looked for."""
        self.worker = NOBODY
        self.ordinary.clear()
        self.urgent.clear()
        self.holds = 0

    def run(self, budget: int) -> int:
        """One turn of the stage: urgent first, then ordinary until the budget is spent. Returns what it cost."""
        self.scheduled = False
        turns = self.turns
        self.turns = turns + 1
        timed_every = self.scheduler.timed_every
        began_ns = UNTIMED if turns & (timed_every - 1) else self.scheduler.clock.now_ns()
        worker, urgent, ordinary = self.worker, self.urgent, self.ordinary
        told = taken = 0
        while told + taken < budget:
            if urgent:
                worker.take_urgent(urgent.popleft())
                told += 1
            elif ordinary and not self.holds and not self.slowed:
                taken += worker.take(ordinary.popleft())
            else:
                break
        # A budget of its own, or a queue that many publish to would never get to its consumers.
        given = worker.finish(budget)
        if self.delay_us and taken:
            self.slowed = True
            self.busy_ns += taken * self.delay_us * NS_PER_US
            self.scheduler.clock.call_later(taken * self.delay_us / 1e6, self._go_on)
        if urgent or (ordinary and not self.holds and not self.slowed):
            self.wake()
        if began_ns != UNTIMED:
            self.busy_ns += (self.scheduler.clock.now_ns() - began_ns) * (timed_every if turns else 1)
        return told + taken + given

    def _go_on(self) -> None:
        """The delay that a fault asks for is over."""
        self.slowed = False
        self.wake()

    def __len__(self) -> int:
        return len(self.ordinary) + len(self.urgent)

    def __repr__(self) -> str:
        return f"<Mailbox ordinary={len(self.ordinary)} urgent={len(self.urgent)} holds={self.holds}>"

"""Scheduler: whose turn it is. A run list of mailboxes, a budget for each, one for all, then the event loop's turn.

The scheduler knows no event loop: `wake_loop` asks for one call of `turn` soon, and `turn` returns when its budget is
spent, so that sockets and timers are served however much work there is. After each turn the `after_turn` callbacks run
once: writers flush there, one write per connection and turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.runtime.clock import Clock

STAGE_BUDGET: Final = 1000  # messages a stage may work on before the next stage's turn: a few credit batches
TURN_BUDGET: Final = 4000  # messages before the event loop's turn: a few milliseconds


class Runnable(Protocol):
    scheduled: bool

    def run(self, budget: int) -> int: ...

    def wake(self) -> None: ...


class Scheduler:
    __slots__ = ("_awake", "after_turn", "clock", "crashed", "runnable", "stage_budget", "turn_budget", "wake_loop")

    def __init__(
        self,
        clock: Clock,
        wake_loop: Callable[[], None],
        crashed: Callable[[str, BaseException], None] | None = None,
        stage_budget: int = STAGE_BUDGET,
        turn_budget: int = TURN_BUDGET,
    ) -> None:
        self.clock = clock
        self.wake_loop = wake_loop
        self.crashed = crashed  # told of a stage's bug; without it the bug is raised
        self.stage_budget = stage_budget
        self.turn_budget = turn_budget
        self.runnable: deque[Runnable] = deque()
        self.after_turn: list[Callable[[], None]] = []
        self._awake = False

    def schedule(self, mailbox: Runnable) -> None:
        mailbox.scheduled = True
        self.runnable.append(mailbox)
        if not self._awake:
            self._awake = True
            self.wake_loop()

    def call_after_turn(self, callback: Callable[[], None]) -> None:
        """Run this once, when the turn that is under way, or the next one, is over."""
        self.after_turn.append(callback)
        if not self._awake:
            self._awake = True
            self.wake_loop()

    def turn(self) -> None:
        """Run stages until the budget is spent or nobody has work; then the after-turn callbacks."""
        self._awake = True
        runnable = self.runnable
        left = self.turn_budget
        while runnable and left > 0:
            # A turn costs at least 1, or stages that only wake each other would never let the loop in.
            mailbox = runnable.popleft()
            try:
                left -= mailbox.run(self.stage_budget) + 1
            except Exception as error:
                # A bug in one stage must not stop the others.
                left -= 1
                if self.crashed is None:
                    raise
                self.crashed(repr(mailbox), error)
                mailbox.wake()  # what lies behind the item that failed still has its turn
        callbacks, self.after_turn = self.after_turn, []
        for callback in callbacks:
            callback()
        self._awake = False
        if runnable or self.after_turn:
            self._awake = True
            self.wake_loop()

    def __repr__(self) -> str:
        return f"<Scheduler runnable={len(self.runnable)}>"

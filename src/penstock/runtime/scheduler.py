"""Scheduler: whose turn it is. A run list of mailboxes, a budget for each, one for all, then the event loop's turn.

The scheduler knows no event loop: `wake_loop` asks for one call of `turn` soon, and `turn` returns when its budget is
spent, so that sockets and timers are served however much work there is. After each turn the `after_turn` callbacks run
once: writers flush there, one write per connection and turn.

Budgets are in messages, which are no measure of time: routing one by ten thousand bindings takes a hundred times as
long as most. A turn that took longer than TURN_NS_MAX halves the budgets of the next ones; short ones bring them back.
Meanwhile stages cut batches to `batch_max`, as one batch alone could take longer than a turn may, and every turn of a
stage is timed: who takes so long is what people want to know then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.runtime.clock import Clock

STAGE_BUDGET: Final = 1000  # messages a stage may work on before the next stage's turn: a few credit batches
TURN_BUDGET: Final = 4000  # messages before the event loop's turn: a few milliseconds
TURN_NS_MAX: Final = 30_000_000  # an answer of the API waits for three turns or so, and has 200 ms
TURN_NS_SHORT: Final = TURN_NS_MAX // 4  # with twice the budget it is still within the limit
TIMED_EVERY: Final = 16  # a power of two; a look at the clock costs a tenth of an empty turn, a count far less
BATCH_ANY: Final = 1 << 62  # nothing is cut: a batch is what one read from a socket brought


class Runnable(Protocol):
    scheduled: bool

    def run(self, budget: int) -> int: ...

    def wake(self) -> None: ...


class Scheduler:
    __slots__ = (
        "_awake",
        "_full_stage_budget",
        "_full_turn_budget",
        "_halvings",
        "after_turn",
        "batch_max",
        "clock",
        "crashed",
        "runnable",
        "stage_budget",
        "timed_every",
        "turn_budget",
        "wake_loop",
    )

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
        self.stage_budget = self._full_stage_budget = stage_budget
        self.turn_budget = self._full_turn_budget = turn_budget
        self._halvings = 0  # of both
        self.batch_max = BATCH_ANY
        self.timed_every = TIMED_EVERY  # turns of a stage
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
        began_ns = self.clock.now_ns()
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
        took_ns = self.clock.now_ns() - began_ns
        if took_ns > TURN_NS_MAX or (self._halvings and took_ns < TURN_NS_SHORT):
            self._fit(took_ns)
        callbacks, self.after_turn = self.after_turn, []
        for callback in callbacks:
            callback()
        self._awake = False
        if runnable or self.after_turn:
            self._awake = True
            self.wake_loop()

    def _fit(self, took_ns: int) -> None:
        if took_ns <= TURN_NS_MAX:
            self._halvings -= 1
        elif self.turn_budget > 1:
            self._halvings += 1
        self.stage_budget = max(1, self._full_stage_budget >> self._halvings)
        self.turn_budget = max(1, self._full_turn_budget >> self._halvings)
        self.batch_max = self.stage_budget if self._halvings else BATCH_ANY
        self.timed_every = 1 if self._halvings else TIMED_EVERY

    def __repr__(self) -> str:
        return f"<Scheduler runnable={len(self.runnable)}>"

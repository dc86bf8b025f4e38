"""Machine: simulated time, and the broker's one CPU: rounds of its event loop, turns of its stages.

A round is what the broker's is: what other threads and timers asked for, one turn of the scheduler, then one poll, in
which each readable socket is read. What clients do happens outside, at its own time, and takes none of this CPU; it is
caught up with before every look at a socket.
Place: below stages.py and clients.py, which know it. Not here: what anybody does (there), what it costs (plant.py).
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from penstock.flow.twin.plant import Plant

GOLDEN: Final = (math.sqrt(5) - 1) / 2
DECK: Final = 32  # waits in a deck: its longest is about four times the mean
LONG_WAITS: Final = 0.25  # of all waits for a core; the others are over at once
NAPS_LEAST: Final = 0.03  # of a client's wakings, those with such a wait

Outside = Callable[[float], None]  # told the moment at which it happens
Inside = Callable[[], None]  # on the broker's thread, in its turn


class Runnable(Protocol):
    scheduled: bool

    def run(self, budget: int) -> int: ...


class Readable(Protocol):
    def read(self) -> None: ...

    def is_readable(self) -> bool:
        """Something has come, and the broker wants to read it."""
        ...

    def is_empty(self) -> bool: ...


class Deck:
    """Values dealt in random order, each once before any comes again: a few draws have the right mean already, so that
    two settings differ by what they do and not by their luck."""

    __slots__ = ("_left", "_random", "_values")

    def __init__(self, values: Sequence[float], chance: random.Random) -> None:
        self._values = values
        self._random = chance
        self._left: list[float] = []

    def draw(self) -> float:
        if not self._left:
            self._left = list(self._values)
            self._random.shuffle(self._left)
        return self._left.pop()


class Round:
    """Sorted values, many of them, dealt by steps of the golden ratio: any few dozen draws in a row have short and long
    ones as often as they are, where a shuffled deck of thousands would have those of its luck."""

    __slots__ = ("_at", "_values")

    def __init__(self, values: Sequence[float], chance: random.Random) -> None:
        self._values = values
        self._at = chance.random()

    def draw(self) -> float:
        self._at = (self._at + GOLDEN) % 1.0
        return self._values[int(self._at * len(self._values))]


def waits(count: int) -> list[float]:
    """So many waits that stand for all of an exponential distribution whose mean is 1."""
    found = [-math.log(1 - (at + 0.5) / count) for at in range(count)]
    return [value * count / sum(found) for value in found]


class Machine:
    """`now_us` is the broker's time: it moves as its thread works, or jumps when it sleeps."""

    __slots__ = (
        "_count",
        "_due",
        "_outside",
        "_polling",
        "_runs",
        "_until_nap",
        "_until_wait_us",
        "_waits",
        "after_turn",
        "busy_us",
        "chance",
        "now_us",
        "plant",
        "runnable",
        "steps",
        "woke_us",
    )

    def __init__(self, plant: Plant, seed: int = 0) -> None:
        self.plant = plant
        self.chance = random.Random(seed)
        self._waits = Deck(waits(DECK), self.chance)
        self._runs = Deck(waits(DECK), self.chance)
        self._until_wait_us = self._run_us()
        self._until_nap = self._wakes()
        self.now_us = 0.0
        self.woke_us = 0.0  # when this round began to work: before, the thread was asleep
        self.busy_us = 0.0
        self.steps = 0  # turns, reads and what happened outside, so far
        self.runnable: deque[Runnable] = deque()
        self.after_turn: dict[Inside, None] = {}
        self._outside: list[tuple[float, int, Outside]] = []
        self._count = 0
        self._due: deque[Inside] = deque()
        self._polling: dict[Readable, None] = {}  # those with something in them, wanted or not

    def clock_ns(self) -> int:
        """What stages take for the time."""
        return int(self.now_us * 1000)

    def work(self, us: float) -> None:
        """The broker's thread works; now and then it must wait for a core that others use."""
        self.now_us += us
        self.busy_us += us
        self._until_wait_us -= us
        while self._until_wait_us <= 0:
            self.now_us += self._waits.draw() * self.plant.steal_us
            self._until_wait_us += self._run_us()

    def _run_us(self) -> float:
        """How long it works until it must wait again."""
        plant = self.plant
        return self._runs.draw() * plant.steal_us / plant.stolen if plant.stolen > 0 else math.inf

    def nap_us(self) -> float:
        """How long it takes until a client's thread that was woken runs: it may have to wait for a core too."""
        plant = self.plant
        self._until_nap -= 1
        if self._until_nap > 0:
            return plant.wake_us
        self._until_nap += self._wakes()
        return plant.wake_us + self._waits.draw() * max(plant.steal_us, plant.nap_us)

    def _wakes(self) -> float:
        """How often a client is woken until it must wait for a core: cores are as busy for it as for the broker, and
        where the broker hardly ever sleeps, its clients have one core less than it."""
        stolen = self.plant.stolen
        if stolen <= 0 and self.plant.nap_us <= 0:
            return math.inf
        return self._runs.draw() / max(stolen / (1 + stolen), NAPS_LEAST)

    def came(self, socket: Readable) -> None:
        """Something has come on this socket."""
        self._polling[socket] = None

    def at(self, when_us: float, happens: Outside) -> None:
        """Outside of the broker's thread, at that time."""
        self._count += 1
        heapq.heappush(self._outside, (when_us, self._count, happens))

    def post(self, when_us: float, then: Inside) -> None:
        """On the broker's thread, as soon as it has a round after that time."""
        self.at(when_us, lambda _: self._due.append(then))

    def call_later(self, delay_us: float, then: Inside) -> None:
        """A timer of the event loop, as coarse as those are, and never early."""
        grain = self.plant.timer_us
        self.post(self.now_us + max(delay_us, round(delay_us / grain) * grain if grain else 0.0), then)

    def schedule(self, stage: Runnable) -> None:
        if not stage.scheduled:
            stage.scheduled = True
            self.runnable.append(stage)

    def catch_up(self) -> None:
        """Whatever has happened outside until now."""
        outside, now_us = self._outside, self.now_us
        while outside and outside[0][0] <= now_us:
            when_us, _, happens = heapq.heappop(outside)
            happens(when_us)
            self.steps += 1

    def round(self, until_us: float) -> bool:
        """One round of the event loop, asleep before it if there is nothing to do; False when the time is over."""
        while True:
            self.catch_up()
            readable = [socket for socket in self._polling if socket.is_readable()]
            if readable or self._due or self.runnable or self.after_turn:
                break
            if not self._outside or self._outside[0][0] > until_us:
                self.now_us = until_us
                return False
            self.now_us = max(self.now_us, self._outside[0][0])
        if self.now_us >= until_us:
            return False
        self.woke_us = self.now_us
        self.work(self.plant.loop_us)
        for _ in range(len(self._due)):
            self._due.popleft()()
        if self.runnable or self.after_turn:
            self._turn()
        for socket in readable:
            self.catch_up()
            if socket.is_readable():
                socket.read()
                self.steps += 1
                if socket.is_empty():
                    self._polling.pop(socket, None)
        return True

    def _turn(self) -> None:
        """As runtime/scheduler.py: stages until the budget is spent, then what is done once after a turn."""
        runnable, budget = self.runnable, self.plant.stage_budget
        left = self.plant.turn_budget
        while runnable and left > 0:
            stage = runnable.popleft()
            stage.scheduled = False
            left -= stage.run(budget) + 1
            self.steps += 1
        callbacks, self.after_turn = self.after_turn, {}
        for callback in callbacks:
            callback()

    def __repr__(self) -> str:
        return f"<Machine now_us={self.now_us:.0f} runnable={len(self.runnable)} steps={self.steps}>"

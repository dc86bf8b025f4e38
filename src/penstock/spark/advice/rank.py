"""Rank: of many predictions the few that nothing beats, and which of them is best for a goal.

Three things count: throughput, p99 latency, memory. A setting is on the front if no other is at least as good in all
three and better in one. Numbers that differ by less than the twin can tell are taken for equal, and of equals the one
nearest to what is set now counts: advice should change little.
Upstream: adviser.py.  Downstream: plain values. Not here: predicting (sweep.py), saying why (words.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, log, log2
from typing import Final

from penstock.flow.twin import Outcome, Settings
from penstock.spark.advice.grid import distance

ERROR: Final = 0.05  # the least that counts as better: two runs of one broker differ as much
FLOOR: Final = 0.97  # who asks for latency or memory does not want to pay with more throughput than this leaves
# Below these nobody notices: what differs less is the same.
MEMORY_GRAIN: Final = 1_000_000
LATENCY_GRAIN_MS: Final = 1.0
# So much of what can be gained is given away for a setting that is nearer to the current one: p99 and memory are
# predicted less well than throughput, and the smallest credit of all is the first that a busy machine is slow with.
SLACK: Final = {"latency": 0.1, "memory": 0.1}
# The boxes of the front: throughput, latency and memory within one box are equal.
STEPS: Final = (0.02, 0.05, 0.05)

# Goal -> what a doubling of throughput is worth, a halving of p99, a halving of memory.
GOALS: Final[dict[str, tuple[float, float, float]]] = {
    "throughput": (1.0, 0.05, 0.02),
    "latency": (0.05, 1.0, 0.02),
    "memory": (0.05, 0.02, 1.0),
    "balanced": (1.0, 0.4, 0.1),
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting, and what the twin says would come of it."""

    settings: Settings
    outcome: Outcome


def doublings(then: Outcome, now: Outcome) -> tuple[float, float, float]:
    """How much better in throughput, latency and memory: 1 is twice the throughput, half the p99, half the memory."""
    return (
        log2(max(then.throughput, 1.0) / max(now.throughput, 1.0)),
        log2((now.p99_ms + LATENCY_GRAIN_MS) / (then.p99_ms + LATENCY_GRAIN_MS)),
        log2((now.memory_bytes + MEMORY_GRAIN) / (then.memory_bytes + MEMORY_GRAIN)),
    )


def gain(goal: str, then: Outcome, now: Outcome) -> float:
    """How much better for a goal, in doublings; 0 is the same, below 0 is worse."""
    return sum(weight * better for weight, better in zip(GOALS[goal], doublings(then, now), strict=True))


def allowed(goal: str, then: Outcome, now: Outcome, memory_room: float) -> bool:
    """Whether a setting may be advised at all: it fits into memory, and does not cost throughput nobody offered."""
    if then.memory_bytes - now.memory_bytes > memory_room:
        return False
    return goal == "throughput" or then.throughput >= now.throughput * FLOOR


def is_better(goal: str, then: Outcome, now: Outcome, error: float) -> bool:
    """By more than the twin may be wrong; for a goal with one quantity, in that quantity."""
    own = dict(zip(("throughput", "latency", "memory"), doublings(then, now), strict=True))
    return min(gain(goal, then, now), own.get(goal, float("inf"))) > log2(1.0 + error)


def front(candidates: Iterable[Candidate], current: Settings) -> list[Candidate]:
    """Those that no other beats, the highest throughput first."""
    boxes: dict[tuple[int, int, int], Candidate] = {}
    for one in candidates:
        box = _box(one.outcome)
        held = boxes.get(box)
        if held is None or distance(one.settings, current) < distance(held.settings, current):
            boxes[box] = one
    kept: list[tuple[tuple[int, int, int], Candidate]] = []
    # Sorted so that whatever beats a box comes before it.
    for box in sorted(boxes, key=lambda box: (-box[0], box[1], box[2])):
        if not any(_beats(other, box) for other, _ in kept):
            kept.append((box, boxes[box]))
    return [one for _, one in kept]


def best(goal: str, candidates: Sequence[Candidate], current: Candidate, memory_room: float) -> Candidate:
    """The best for a goal; of those that are as good, the nearest to the current setting, which may be itself."""
    now = current.outcome
    fit = [one for one in candidates if allowed(goal, one.outcome, now, memory_room)]
    if not fit:
        return current
    top = max(gain(goal, one.outcome, now) for one in fit)
    slack = max(STEPS[0], top * SLACK.get(goal, 0.0))
    near = [one for one in [current, *fit] if gain(goal, one.outcome, now) >= top - slack]
    return min(near, key=lambda one: (distance(one.settings, current.settings), -gain(goal, one.outcome, now)))


def mean(outcomes: Sequence[Outcome]) -> Outcome:
    """Several runs of one setting as one: means, of latencies and memory in proportions."""
    count = len(outcomes)
    first = outcomes[0]
    if count == 1:
        return first
    kinds = {kind for one in outcomes for kind in one.blocked}
    names = [one.bottleneck for one in outcomes]
    return Outcome(
        throughput=sum(one.throughput for one in outcomes) / count,
        delivered=sum(one.delivered for one in outcomes) / count,
        p50_ms=_middle([one.p50_ms for one in outcomes]),
        p99_ms=_middle([one.p99_ms for one in outcomes]),
        memory_bytes=round(_middle([float(one.memory_bytes) for one in outcomes])),
        in_flight=sum(one.in_flight for one in outcomes) / count,
        blocked={kind: sum(one.blocked.get(kind, 0.0) for one in outcomes) / count for kind in sorted(kinds)},
        saturated=sum(one.saturated for one in outcomes) / count,
        bottleneck=max(dict.fromkeys(names), key=names.count),
        cpu=sum(one.cpu for one in outcomes) / count,
        syncs=sum(one.syncs for one in outcomes) / count,
        seconds=sum(one.seconds for one in outcomes),
        steps=sum(one.steps for one in outcomes),
    )


def _box(outcome: Outcome) -> tuple[int, int, int]:
    return (
        round(log(max(outcome.throughput, 1.0)) / STEPS[0]),
        round(log(outcome.p99_ms + LATENCY_GRAIN_MS) / STEPS[1]),
        round(log(outcome.memory_bytes + MEMORY_GRAIN) / STEPS[2]),
    )


def _beats(a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    """At least as good in all three, better in one."""
    return a != b and a[0] >= b[0] and a[1] <= b[1] and a[2] <= b[2]


def _middle(values: Sequence[float]) -> float:
    """The geometric mean: one long tail must not be all that counts."""
    return exp(sum(log(max(value, 1e-9)) for value in values) / len(values))

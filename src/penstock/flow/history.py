"""History: a minute of snapshots, as seconds: for how long each stage was blocked, and by what.

Blocks come and go hundreds of times a second, so one snapshot says little about who holds up whom. The broker counts
blocked time per stage and per link; the history takes the differences, second by second. From them it tells

    share_1m   the part of the last 60 s in which a stage was blocked; for people
    weight     the same seconds, the older the less: they count half after HALF_LIFE_S. What decides (graph.py): steady
               though blocks are not, yet a new cause has its say within seconds
    passed     of the seconds that a stage blocked another, those in which it was blocked itself
    busy       how long the turns of channels and queues took, by age: who takes the core that all of them share
    since      when the present episode began: a connection counts as held back until nothing has held it for QUIET_S

An edge is a pair: who waits, for what. What waits for confirms that a saturated queue holds is an edge too, from the
connection to the consumers of that queue, though no credit is out.

Place: management/flowapi.py adds one snapshot per second. `Shares` is what graph.py and verdict.py work with.
Not here: verdicts that are over (past.py).
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from penstock.flow.state import ALARM, CONNECTION, CONSUMERS, StageState, State

MINUTE_S: Final = 60.0
SAMPLES_MAX: Final = 75  # a minute's, and some that came early
HALF_LIFE_S: Final = 5.0
QUIET_S: Final = 3.0  # after so long without a block, it is over
HELD_SHARE: Final = 0.05  # of the last QUIET_S: below that, credit does its daily work and holds nobody back
SYNC_S: Final = 5.0  # over how long a sync's time is taken: some syncs are ten times as long as others
LEAST_S: Final = 1e-6  # a block that has just begun is one all the same
NOTHING_S: Final = 1e-9  # less is what adding and taking away floats leaves behind
COUNTS_MAX: Final = 20_000  # of stages and of links; some megabytes
RESCALE_S: Final = 300.0  # after so long, weights are made small again: they double every HALF_LIFE_S

Edge = tuple[str, str]
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Sample:
    """One step: seconds blocked in it. What is not named was not blocked."""

    at_s: float  # monotonic; its end
    at_ms: int
    step_s: float
    stages: Mapping[str, float]
    edges: Mapping[Edge, float]
    passed: Mapping[Edge, float]  # of an edge's seconds those in which what is waited for was blocked itself
    held: Mapping[str, float]  # of connections: blocked or waiting for confirms, whichever is longer
    syncs: int = 0  # so far
    sync_seconds: float = 0.0
    busy: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Shares:
    """A minute, summed up for one moment."""

    stages_s: Mapping[str, float]  # seconds blocked in the last minute
    edges_s: Mapping[Edge, float]
    edge_weights: Mapping[Edge, float]  # the same, by age
    passed_weights: Mapping[Edge, float]
    held_s: Mapping[str, float]  # of connections: seconds blocked or waiting for confirms in the last minute
    since_s: Mapping[str, float]  # of connections that are held back: for how long, with interruptions below QUIET_S
    is_moment: bool = False  # there was nothing before: only what lasts now is known
    sync_ms: float = 0.0  # what a sync took lately, in the mean
    busy_weights: Mapping[str, float] = field(default_factory=dict)  # of channels and queues: what their turns took

    def share_1m(self, id_: str) -> float:
        seconds = max(self.stages_s.get(id_, 0.0), self.held_s.get(id_, 0.0))
        return min(1.0, seconds / MINUTE_S)

    def edge_share_1m(self, edge: Edge) -> float:
        # No longer than the one that waits: that may be another one of the same name, whose minute is forgotten.
        return min(self.share_1m(edge[0]), self.edges_s.get(edge, 0.0) / MINUTE_S)


class Sums(Generic[Key]):
    """Seconds and weights over all samples, kept up to date: a minute of a broker with 300 stages is 60,000 numbers.

    A weight halves with every HALF_LIFE_S; instead, what is added counts twice as much with every HALF_LIFE_S. Only
    their proportions mean something."""

    __slots__ = ("seconds", "weights")

    def __init__(self) -> None:
        self.seconds: dict[Key, float] = {}
        self.weights: dict[Key, float] = {}

    def copy(self) -> Sums[Key]:
        other: Sums[Key] = Sums()
        other.seconds, other.weights = dict(self.seconds), dict(self.weights)
        return other

    def add(self, more: Mapping[Key, float], scale: float) -> None:
        seconds, weights = self.seconds, self.weights
        for key, value in more.items():
            seconds[key] = seconds.get(key, 0.0) + value
            weights[key] = weights.get(key, 0.0) + value * scale

    def take(self, less: Mapping[Key, float], scale: float, part: float = 1.0) -> None:
        """The opposite, of a part of what was added."""
        seconds, weights = self.seconds, self.weights
        for key, value in less.items():
            if key not in seconds:
                continue
            seconds[key] -= value * part
            weights[key] -= value * scale * part
            if seconds[key] < NOTHING_S or weights[key] <= 0:
                del seconds[key], weights[key]

    def forget(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.seconds.pop(key, None)
            self.weights.pop(key, None)

    def rescale(self, factor: float) -> None:
        for key in self.weights:
            self.weights[key] *= factor


class History:
    __slots__ = (
        "_began",
        "_busy",
        "_busy_sums",
        "_edge_sums",
        "_held_sums",
        "_last_held",
        "_links",
        "_passed_sums",
        "_stage_sums",
        "_stages",
        "_zero_s",
        "samples",
    )

    def __init__(self) -> None:
        self.samples: deque[Sample] = deque()
        self._stage_sums: Sums[str] = Sums()
        self._edge_sums: Sums[Edge] = Sums()
        self._passed_sums: Sums[Edge] = Sums()
        self._held_sums: Sums[str] = Sums()
        self._busy_sums: Sums[str] = Sums()
        self._zero_s = 0.0  # when a second weighs 1
        self._stages: dict[str, float] = {}  # blocked seconds of all time, when last seen; the latest last
        self._busy: dict[str, float] = {}
        self._links: dict[Edge, float] = {}
        self._began: dict[str, float] = {}  # of connections that are held back
        self._last_held: dict[str, float] = {}

    def add(self, state: State) -> None:
        """One more moment."""
        self._begin_anew(_others(state, self._stages))
        sample = self._measure(state)
        self._append(sample)
        _remember(self._stages, {stage.id: stage.blocked_s for stage in state.stages.values()})
        _remember(self._busy, {stage.id: stage.busy_s for stage in state.stages.values()})
        _remember(self._links, {(link.upstream, link.downstream): link.blocked_s or 0.0 for link in state.links})
        for id_, seconds in sample.held.items():
            if seconds >= HELD_SHARE * min(sample.step_s, QUIET_S):
                self._began.setdefault(id_, _start(sample, state, id_, seconds))
                self._last_held[id_] = sample.at_s
        self._forget(state.at_s)

    def quiet(self, at_s: float, at_ms: int) -> None:
        """One more moment, of which is known that nothing was blocked since the last."""
        step_s = at_s - self.samples[-1].at_s if self.samples else MINUTE_S
        if step_s > 0:
            self._append(Sample(at_s, at_ms, step_s, {}, {}, {}, {}))
        self._forget(at_s)

    def _begin_anew(self, ids: list[str]) -> None:
        """These are other stages than those that had their names. Who waited for those has waited all the same: edges
        stay, and lose their weight within seconds."""
        if not ids:
            return
        self._stage_sums.forget(ids)
        self._held_sums.forget(ids)
        for id_ in ids:
            del self._stages[id_]
            self._began.pop(id_, None)
            self._last_held.pop(id_, None)
        gone = frozenset(ids)
        for at, sample in enumerate(self.samples):
            if gone & sample.stages.keys() or gone & sample.held.keys():
                stages, held = _without(sample.stages, gone), _without(sample.held, gone)
                self.samples[at] = replace(sample, stages=stages, held=held)

    def _append(self, sample: Sample) -> None:
        if not self.samples:
            self._zero_s = sample.at_s
        elif sample.at_s - self._zero_s > RESCALE_S:
            factor = 2.0 ** ((self._zero_s - sample.at_s) / HALF_LIFE_S)
            for sums in (self._stage_sums, self._edge_sums, self._passed_sums, self._held_sums, self._busy_sums):
                sums.rescale(factor)
            self._zero_s = sample.at_s
        self.samples.append(sample)
        scale = self._scale(sample.at_s)
        self._stage_sums.add(sample.stages, scale)
        self._edge_sums.add(sample.edges, scale)
        self._passed_sums.add(sample.passed, scale)
        self._held_sums.add(sample.held, scale)
        self._busy_sums.add(sample.busy, scale)

    def _scale(self, at_s: float) -> float:
        return float(2.0 ** (min(at_s - self._zero_s, 2 * RESCALE_S) / HALF_LIFE_S))  # a machine may have slept

    def _forget(self, now_s: float) -> None:
        while self.samples and (now_s - self.samples[0].at_s >= MINUTE_S or len(self.samples) > SAMPLES_MAX):
            sample = self.samples.popleft()
            scale = self._scale(sample.at_s)
            self._stage_sums.take(sample.stages, scale)
            self._edge_sums.take(sample.edges, scale)
            self._passed_sums.take(sample.passed, scale)
            self._held_sums.take(sample.held, scale)
            self._busy_sums.take(sample.busy, scale)
        for id_ in [id_ for id_, last_s in self._last_held.items() if now_s - last_s > QUIET_S]:
            del self._last_held[id_], self._began[id_]

    def shares(self, state: State) -> Shares:
        """Up to this moment, which need not be added."""
        fresh = self._measure(state)
        stages, edges, held = self._stage_sums.copy(), self._edge_sums.copy(), self._held_sums.copy()
        passed, busy = self._passed_sums.copy(), self._busy_sums.copy()
        others = _others(state, self._stages)
        stages.forget(others)
        held.forget(others)
        for sample in self.samples:  # of the oldest, a part is not in the last minute any more
            begin_s = state.at_s - MINUTE_S
            if sample.at_s - sample.step_s >= begin_s:
                break
            part = min(1.0, (begin_s - sample.at_s + sample.step_s) / sample.step_s)
            scale = self._scale(sample.at_s)
            stages.take(sample.stages, scale, part)
            edges.take(sample.edges, scale, part)
            passed.take(sample.passed, scale, part)
            held.take(sample.held, scale, part)
            busy.take(sample.busy, scale, part)
        scale = self._scale(fresh.at_s) if self.samples else 1.0
        stages.add(fresh.stages, scale)
        edges.add(fresh.edges, scale)
        passed.add(fresh.passed, scale)
        held.add(fresh.held, scale)
        busy.add(fresh.busy, scale)
        return Shares(
            stages_s=stages.seconds,
            edges_s=edges.seconds,
            edge_weights=edges.weights,
            passed_weights=passed.weights,
            held_s=held.seconds,
            since_s=self._since(state, fresh),
            is_moment=not self.samples,
            sync_ms=self._sync_ms(state),
            busy_weights=busy.weights,
        )

    def _since(self, state: State, fresh: Sample) -> dict[str, float]:
        """Who is held back, and for how long already."""
        lately_s: dict[str, float] = {}
        for sample in (fresh, *reversed(self.samples)):
            if state.at_s - sample.at_s >= QUIET_S:
                break
            for id_, seconds in _held_still(state, sample).items():
                lately_s[id_] = lately_s.get(id_, 0.0) + seconds
        since_s: dict[str, float] = {}
        for id_, seconds in lately_s.items():
            if not self.samples or seconds >= HELD_SHARE * QUIET_S:
                began_s = self._began.get(id_)
                if began_s is None:
                    began_s = _start(fresh, state, id_, fresh.held.get(id_, 0.0))
                since_s[id_] = max(0.0, state.at_s - began_s)
        return since_s

    def _sync_ms(self, state: State) -> float:
        before = [sample for sample in self.samples if sample.syncs and state.at_s - sample.at_s >= SYNC_S][-1:]
        syncs = state.syncs - before[0].syncs if before else 0
        return 1000 * (state.sync_seconds - before[0].sync_seconds) / syncs if syncs > 0 else state.last_sync_ms or 0.0

    def _measure(self, state: State) -> Sample:
        """The seconds since the last sample. Without one: what lasts by now."""
        step_s = state.at_s - self.samples[-1].at_s if self.samples else MINUTE_S
        stages: dict[str, float] = {}
        edges: dict[Edge, float] = {}
        if step_s > 0:
            for stage in state.stages.values():
                seconds = self._stage_seconds(stage, step_s)
                if seconds > 0:
                    stages[stage.id] = seconds
                    self._explain(state, stage, seconds, step_s, edges)
        held = {id_: seconds for id_, seconds in stages.items() if state.stages[id_].kind == CONNECTION}
        if step_s > 0:
            _wait_for_confirms(state, step_s, edges, held)
        return Sample(
            at_s=state.at_s,
            at_ms=state.at_ms,
            step_s=max(0.0, step_s),
            stages=stages,
            edges=edges,
            passed={edge: min(seconds, stages[edge[1]]) for edge, seconds in edges.items() if edge[1] in stages},
            held=held,
            syncs=state.syncs,
            sync_seconds=state.sync_seconds,
            busy=self._busy_seconds(state, step_s),
        )

    def _busy_seconds(self, state: State, step_s: float) -> dict[str, float]:
        """Of those that were there before: what a stage had done when it was first seen says nothing about now."""
        busy: dict[str, float] = {}
        for id_, stage in state.stages.items() if step_s > 0 else ():
            seconds = stage.busy_s - self._busy.get(id_, stage.busy_s)
            if seconds > 0:
                busy[id_] = min(seconds, step_s)
        return busy

    def _stage_seconds(self, stage: StageState, step_s: float) -> float:
        seconds = _grown(stage.blocked_s, self._stages.get(stage.id)) if self.samples else 0.0
        if stage.blocked:
            seconds = max(seconds, stage.blocked_for_s, LEAST_S)
        return min(seconds, step_s)

    def _explain(
        self, state: State, stage: StageState, seconds: float, step_s: float, edges: dict[Edge, float]
    ) -> None:
        """By what it was blocked for these seconds."""
        explained = 0.0
        counted = True
        now = {reason.by: max(reason.for_s, LEAST_S) for reason in stage.reasons}
        for link in state.downstream.get(stage.id, ()):
            edge = (stage.id, link.downstream)
            by_link = max(now.get(link.downstream, 0.0), LEAST_S if link.blocking else 0.0)
            if link.blocked_s is None:
                counted = False
            elif self.samples:
                by_link = max(by_link, _grown(link.blocked_s, self._links.get(edge)))
            if by_link > 0:
                edges[edge] = min(by_link, step_s)
                explained += edges[edge]
        for by, for_s in now.items():
            if (stage.id, by) not in edges:
                edges[stage.id, by] = min(for_s, step_s)
                explained += edges[stage.id, by]
        # Only links are counted. A queue at its maximum may come and go as quickly: if it was there, the rest is its.
        maximum = (stage.id, CONSUMERS + stage.id)
        if counted and explained < seconds and any(maximum in sample.edges for sample in self.samples):
            edges[maximum] = edges.get(maximum, 0.0) + seconds - explained


def _wait_for_confirms(state: State, step_s: float, edges: dict[Edge, float], held: dict[str, float]) -> None:
    """A connection whose confirms a saturated queue holds waits for the consumers of that queue."""
    for queue in state.stages.values():
        if queue.saturated_for_s is None or not queue.held:
            continue
        seconds = min(max(queue.saturated_for_s, LEAST_S), step_s)
        for channel_id in queue.held_from if queue.held_from is not None else _guess(state, queue.id):
            connection = _connection_of(state, channel_id)
            if connection in state.stages:
                edges[connection, CONSUMERS + queue.id] = seconds
                held[connection] = max(held.get(connection, 0.0), seconds)


def _connection_of(state: State, channel_id: str) -> str:
    channel = state.stages.get(channel_id)
    if channel is not None and channel.connection:
        return channel.connection
    return next((link.upstream for link in state.links if link.downstream == channel_id), "")


def _guess(state: State, queue_id: str) -> list[str]:
    """Channels that wait for confirms and publish to this queue, where the queue does not tell."""
    return [
        link.upstream
        for link in state.links
        if link.downstream == queue_id and link.upstream in state.stages and state.stages[link.upstream].unconfirmed
    ]


def _held_still(state: State, sample: Sample) -> dict[str, float]:
    """Of connections that are there: for how long they were held back in it, by anything that is not over."""
    held: dict[str, float] = {}
    explained = set()
    for (waits, by), seconds in sample.edges.items():
        if waits in sample.held and waits in state.stages:
            explained.add(waits)
            if not is_over(state, waits, by):
                held[waits] = max(held.get(waits, 0.0), seconds)
    for id_, seconds in sample.held.items():
        if id_ not in explained and id_ in state.stages:
            held[id_] = seconds
    return held


def is_over(state: State, waits: str, by: str) -> bool:
    """Alarms and held confirms do not flicker: what is over counts no more, however long it was."""
    stage = state.stages[waits]
    if by.startswith(ALARM):
        return by[len(ALARM) :] not in state.alarms and all(reason.by != by for reason in stage.reasons)
    if by.startswith(CONSUMERS) and stage.kind == CONNECTION:
        queue = state.stages.get(by[len(CONSUMERS) :])
        return queue is None or queue.saturated_for_s is None
    return False


def _start(sample: Sample, state: State, id_: str, seconds: float) -> float:
    """When it began, seen from the first sample that has it."""
    stage = state.stages.get(id_)
    lasting_s = stage.blocked_for_s if stage is not None and stage.blocked else 0.0
    return sample.at_s - max(seconds, lasting_s)


def _others(state: State, counts: Mapping[str, float]) -> list[str]:
    """Stages that have the name of another one that is gone: blocked time of all time only grows."""
    return [id_ for id_, stage in state.stages.items() if stage.blocked_s < counts.get(id_, 0.0)]


def _without(seconds: Mapping[str, float], ids: frozenset[str]) -> dict[str, float]:
    return {id_: value for id_, value in seconds.items() if id_ not in ids}


def _grown(now: float, before: float | None) -> float:
    """What was never seen was never blocked before: whoever is blocked is in the snapshot of that second. Less than
    before is another one of the same name."""
    return now if before is None or now < before else now - before


def _remember(counts: dict[Key, float], seen: Mapping[Key, float]) -> None:
    """Also of those that are not seen any more: they may come again, and were not blocked meanwhile."""
    for key, value in seen.items():
        if value:
            counts.pop(key, None)
            counts[key] = value
    for key in list(itertools.islice(counts, max(0, len(counts) - COUNTS_MAX))):
        del counts[key]

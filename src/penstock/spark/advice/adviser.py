"""Adviser: from tables to advice, in order: observe, fit, try thousands of settings, the best of them longer, say why.

The best of thousands of predictions is partly the luckiest one, so what is shown was simulated again, longer and with
other seeds; and what a setting does not need is taken back out of it.
Upstream: pipeline/advise.py.  Downstream: the modules beside it. Not here: the terminal, the broker (change.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from penstock.flow.twin import Outcome, Settings, fit
from penstock.spark.advice import words
from penstock.spark.advice.applied import write_json
from penstock.spark.advice.clients import NO_CEILING, Clients
from penstock.spark.advice.grid import SECTION, changed, grid
from penstock.spark.advice.knob import marks_of
from penstock.spark.advice.load import Model, load_of, message_room, settings_of, short_s, throughput_of, tuned
from penstock.spark.advice.observed import Observed, Tables, observe
from penstock.spark.advice.rank import ERROR, GOALS, Candidate, allowed, best, front, gain, is_better
from penstock.spark.advice.sweep import Trial, sweep

FILE: Final = "advice.json"
LONG: Final = 4.0  # so many times as long as all others the finalists are simulated, and with each seed
SEEDS: Final = (1, 2)
FINALISTS: Final = 32
SHOWN: Final = 4
ALTERNATIVE: Final = 0.2  # what was not asked for is shown only if it is better by this
SLACK: Final = 0.01  # doublings that a simpler setting may be worse by
ERROR_MAX: Final = 0.35  # a twin that misses the measured throughput by more is none
MARKS: Final = ("stop", "resume")
ONLY_ADVISED: Final = ("prefetch",)  # clients' matter

Said = Callable[[str, int, int], None]  # what is under way, how many of it are done, all


@dataclass(frozen=True, slots=True)
class Option:
    """One setting that is worth showing."""

    name: str  # best, or what it is best in
    candidate: Candidate
    why: str
    change: str
    settings: dict[str, str]  # what differs from now, by the names that people set it with


@dataclass(frozen=True, slots=True)
class Advice:
    made_ms: int
    goal: str
    subject: str
    observed: Observed
    model: Model
    current: Candidate
    options: tuple[Option, ...]
    applies: Candidate | None  # the best of what can be set from here; None: that is no better
    sentence: str
    cures: tuple[str, ...]
    tried: int
    seconds: float  # that it took
    marked: tuple[str, ...] = ()  # the knobs of queues that have the marks of now

    @property
    def error(self) -> float:
        return max(ERROR, self.model.error)

    @property
    def to_apply(self) -> dict[str, str]:
        """What can be set at run time: settings by their names, and marks as a knob of each queue."""
        if self.applies is None:
            return {}
        names = words.named(self.applies.settings, self.current.settings)
        found = {name: value for name, value in names.items() if name.startswith(SECTION)}
        if len(found) < len(names):
            found |= dict.fromkeys(self.marked, f"{self.applies.settings.stop},{self.applies.settings.resume}")
        return found

    def document(self, notes: Sequence[str] = ()) -> dict[str, object]:
        """As JSON has it: for --json, the terminal, the report and the page."""
        return {
            "made_ms": self.made_ms,
            "scenario": scenario(self),
            "goal": self.goal,
            "for": self.subject,
            "sentence": self.sentence,
            "options": [
                {
                    "name": one.name,
                    "settings": one.settings,
                    **predicted(one.candidate.outcome),
                    "why": one.why,
                    "change": one.change,
                }
                for one in self.options
            ],
            "applies": self._applies(),
            "current": {
                "settings": credit_settings(self.current.settings),
                **predicted(self.current.outcome),
                "blocked": {kind: round(share, 4) for kind, share in self.current.outcome.blocked.items()},
                "bottleneck": self.current.outcome.bottleneck,
            },
            "observed": {
                "since": self.observed.since.isoformat(),
                "until": self.observed.until.isoformat(),
                "throughput": round(self.observed.throughput, 1),
                "delivered": round(self.observed.delivered, 1),
                "blocked": round(self.observed.blocked, 4),
                "memory_bytes": self.observed.memory_used,
            },
            "cures": list(self.cures),
            "notes": [*self.model.notes, *notes],
            "simulated": self.tried,
            "error": round(self.error, 4),
            "seconds": round(self.seconds, 1),
        }

    def _applies(self) -> dict[str, object] | None:
        if self.applies is None:
            return None
        settings = words.named(self.applies.settings, self.current.settings)
        return {"settings": settings, **predicted(self.applies.outcome)}


@dataclass(frozen=True, slots=True)
class Study:
    """What there is to go by, before anything is simulated on Spark."""

    observed: Observed
    model: Model
    settings: dict[str, str]  # of the broker, as far as they are known
    subject: str = ""
    marked: tuple[str, ...] = ()  # the knobs of queues that have the marks of `model.settings`
    ceiling: tuple[int, int] = (NO_CEILING, NO_CEILING)  # the largest stop and resume that all of these can have


def study(
    tables: Tables,
    over_s: float = 600.0,
    subject: str = "",
    clients: Clients | None = None,
    settings: Mapping[str, str] | None = None,
    not_before: datetime | None = None,
) -> Study:
    """The tables read and the twin fitted. `settings`: the broker's own, where no `clients` were asked."""
    given = dict(settings or {}) | (clients.settings if clients else {})
    observed = observe(tables, over_s, subject, not_before)
    load, notes = load_of(observed, clients)
    current = settings_of(given)
    stages, notes_of_marks = marked(observed, clients)
    if clients is not None and stages:
        stop, resume = clients.marks[stages[0]]
        current = replace(current, stop=stop, resume=resume)
    if load.consumers.count and load.consumers.acks:
        current = replace(current, prefetch=load.consumers.prefetch or None)
    plant = fit(observed.samples, observed.syncs, observed.resources, None, given, load.publishers.body_bytes)
    model = tuned(plant, load, current, observed)
    knobs = tuple(marks_of(*clients.marked[stage]) for stage in stages) if clients is not None else ()
    model = replace(model, notes=(*notes, *notes_of_marks, *model.notes))
    return Study(observed, model, given, subject, knobs, ceiling_of(stages, clients))


def marked(observed: Observed, clients: Clients | None) -> tuple[list[str], list[str]]:
    """The queues whose marks are those of the busiest one that has any, and a note of the others: the twin has one."""
    if clients is None:
        return [], []
    found = [one.stage for one in observed.queues if one.stage in clients.marks]
    in_bytes = [one.stage for one in observed.queues if one.stage in clients.in_bytes]
    alike = [stage for stage in found if clients.marks[stage] == clients.marks[found[0]]]
    others, more = len(found) - len(alike), len(in_bytes) - 1
    notes: list[str] = []
    if others:
        note = f"of queues with marks, {others} with others than {found[0]} are simulated as if they had the same"
        notes.append(f"{note}; what is said of marks is not for them")
    if in_bytes:
        named = in_bytes[0] + (f" (and {more} more)" if more else "")
        notes.append(
            f"{named} has marks in bytes, which the twin does not know and which are never tried: where they hold "
            "confirms back, the twin misses that or takes it for the publishers' own pace"
        )
    return alike, notes


def ceiling_of(stages: Sequence[str], clients: Clients | None) -> tuple[int, int]:
    """The largest stop and resume mark that count for all of these queues."""
    each = [clients.ceilings[stage] for stage in stages if stage in clients.ceilings] if clients is not None else []
    return min([one for one, _ in each], default=NO_CEILING), min([one for _, one in each], default=NO_CEILING)


def advise(
    spark: SparkSession, study: Study, goal: str = "balanced", count: int = 2000, say: Said | None = None
) -> Advice:
    """What to set for this goal, out of so many settings."""
    began = time.monotonic()
    observed, model, tell = study.observed, study.model, say or _silent
    all_settings = grid(model.load, model.settings, max(2, count), study.ceiling)
    pace = observed.delivered if model.full else 0.0
    short = Trial(model.plant, model.load, short_s(model.plant, model.load), pace=pace)
    tried = sweep(spark, short, all_settings, lambda done, whole: tell("settings", done, whole))
    long = replace(short, seconds=LONG * short.seconds, seeds=SEEDS)
    room = message_room(observed.memory_room, model.load.publishers.body_bytes)
    chosen, applies, current = _finals(spark, long, tried, goal, room, tell)
    measured = throughput_of(model.load, observed)
    model = replace(model, error=abs(current.outcome.throughput / measured - 1.0) if measured else 0.0)
    error = max(ERROR, model.error)
    options = _options(chosen, current, observed, goal, error) if error <= ERROR_MAX else []
    sentence = words.astray(error) if error > ERROR_MAX else words.nothing(goal, error, len(tried))
    reached = options[0].candidate.outcome if options else current.outcome
    return Advice(
        made_ms=round(time.time() * 1000),
        goal=goal,
        subject=study.subject,
        observed=observed,
        model=model,
        current=current,
        options=tuple(options),
        applies=applies if options and is_better(goal, applies.outcome, current.outcome, error) else None,
        sentence=options[0].why if options else sentence,
        cures=(*words.cures(observed, reached, study.settings), *words.small_prefetch(model)),
        tried=len(tried),
        seconds=time.monotonic() - began,
        marked=study.marked,
    )


def _finals(
    spark: SparkSession, long: Trial, tried: Sequence[Candidate], goal: str, memory_room: float, tell: Said
) -> tuple[dict[str, Candidate], Candidate, Candidate]:
    """The best for each goal, the asked one first, after a second and longer look; the best of what can be set
    from here; and the current setting's."""
    current = tried[0]
    goals = [goal, *(other for other in GOALS if other != goal)]
    ranked = sorted(front(tried, current.settings), key=lambda one: -gain(goal, one.outcome, current.outcome))
    picked = {current.settings: current}
    for one in goals:  # the best of each goal by the first look, then the others of the front
        found = best(one, tried, current, memory_room)
        picked.setdefault(found.settings, found)
    found = best(goal, _own(tried, current), current, memory_room)
    picked.setdefault(found.settings, found)
    for candidate in ranked[: FINALISTS - len(picked)]:
        picked.setdefault(candidate.settings, candidate)
    finalists = sweep(spark, long, list(picked), lambda done, whole: tell("finalists", done, whole))
    current = finalists[0]
    kept = front(finalists, current.settings)
    chosen = {one: best(one, kept, current, memory_room) for one in goals}
    applies = best(goal, _own(finalists, current), current, memory_room)
    is_one = applies is chosen[goal]
    chosen[goal] = _simpler(spark, long, chosen[goal], current, goal, memory_room, tell)
    if not is_one:
        applies = _simpler(spark, long, applies, current, goal, memory_room, tell)
    return chosen, chosen[goal] if is_one else applies, current


def _own(candidates: Sequence[Candidate], current: Candidate) -> list[Candidate]:
    """Those that change nothing but what can be set from here."""
    return [one for one in candidates if not set(changed(one.settings, current.settings)) & set(ONLY_ADVISED)]


def _simpler(
    spark: SparkSession,
    trial: Trial,
    chosen: Candidate,
    current: Candidate,
    goal: str,
    memory_room: float,
    tell: Said,
) -> Candidate:
    """Without the changes that bring nothing."""
    now = current.outcome
    while len(names := changed(chosen.settings, current.settings)) > 1:
        groups = [MARKS if name in MARKS else (name,) for name in names]
        back = [
            replace(chosen.settings, **{name: getattr(current.settings, name) for name in group})
            for group in dict.fromkeys(groups)
        ]
        found = sweep(spark, trial, back, lambda done, whole: tell("simpler ones", done, whole))
        least = gain(goal, chosen.outcome, now) - SLACK
        fit = [one for one in found if allowed(goal, one.outcome, now, memory_room)]
        as_good = [one for one in fit if gain(goal, one.outcome, now) >= least]
        if not as_good:
            break
        chosen = max(as_good, key=lambda one: gain(goal, one.outcome, now))
    return chosen


def _options(
    chosen: Mapping[str, Candidate], current: Candidate, observed: Observed, goal: str, error: float
) -> list[Option]:
    """The goal's best first, then the best of the other goals, each only if it is better by more than the error."""
    options: list[Option] = []
    seen = {current.settings}
    for name, candidate in chosen.items():
        least = error if name == goal else max(error, ALTERNATIVE)
        if candidate.settings in seen or not is_better(name, candidate.outcome, current.outcome, least):
            if name == goal:
                return []
            continue
        seen.add(candidate.settings)
        options.append(
            Option(
                name=name,
                candidate=candidate,
                why=words.why(candidate, current, observed),
                change=words.change(name, candidate.outcome, current.outcome),
                settings=words.named(candidate.settings, current.settings),
            )
        )
    return options[:SHOWN]


def predicted(outcome: Outcome) -> dict[str, object]:
    return {
        "throughput": round(outcome.throughput, 1),
        "p99_ms": round(outcome.p99_ms, 3),
        "memory_bytes": outcome.memory_bytes,
    }


def credit_settings(settings: Settings) -> dict[str, str]:
    """All of a setting, by the names that people set it with."""
    nothing = replace(settings, prefetch=-1, stop=-1, resume=-1)
    shown = {
        SECTION + name: getattr(settings, name) for name in Settings.__slots__ if name not in (*ONLY_ADVISED, *MARKS)
    }
    return shown | {name: value for name, value in words.named(settings, nothing).items() if value not in ("None", "0")}


def scenario(advice: Advice) -> str:
    """The load in a line."""
    load = advice.model.load
    publishers, consumers = load.publishers, load.consumers
    confirms = f"confirms in a window of {publishers.window}" if publishers.window else "no confirms"
    pace = f"{publishers.rate * publishers.count:,.0f} a second" if publishers.rate else "as fast as they may"
    kind = "persistent" if publishers.persistent else "transient"
    return (
        f"{publishers.count} publisher{'s' * (publishers.count != 1)}, {kind} messages of "
        f"{publishers.body_bytes} bytes, {confirms}, {pace}; {load.queues} queue{'s' * (load.queues != 1)}, "
        f"{consumers.count} consumer{'s' * (consumers.count != 1)}"
    )


def write(root: Path, document: Mapping[str, object]) -> None:
    """ROOT/advice.json: the report and the page read it."""
    write_json(root / FILE, document)


def _silent(what: str, done: int, whole: int) -> None:
    """Nobody watches."""

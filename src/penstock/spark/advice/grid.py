"""Grid: the settings that are worth a try for a load: first the sane ones, then random ones around what is set now.

A knob that cannot matter is left alone: the store's credit where nothing is persistent, bytes where messages are small,
prefetch where nobody acks, watermarks where there are none, or only in bytes. Marks stay below their ceiling.
Upstream: adviser.py.  Downstream: plain values. Not here: what comes of a setting (sweep.py, rank.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import product
from math import log2
from typing import Final

from penstock.flow.twin import Load, Settings
from penstock.spark.advice.clients import NO_CEILING

# Fewer than 100 messages of credit hold back no memory that anybody notices (large ones are bounded in bytes), and
# batches so small are what a busy machine is slow with; the twin sees less of that than there is.
LEAST: Final = 100
INITIALS: Final = (LEAST, 200, 400, 800, 1600, 3200, 6400, 12800)
RATIOS: Final = (0.1, 0.25, 0.5, 0.8)  # more_after as a part of initial
JOINT: Final = (100, 400, 1600, 6400)  # all hops together, coarsely: their effects are not independent
JOINT_RATIOS: Final = (0.25, 0.5)
BYTE_FACTORS: Final = (1 / 16, 1 / 4, 4.0)
PREFETCHES: Final = (10, 30, 100, 300, 1000, 3000, 10_000)
STOPS: Final = (100, 300, 1000, 3000, 10_000, 30_000)
STOP_FACTORS: Final = (0.25, 0.5, 2.0, 4.0)
RESUME_PARTS: Final = (0.5, 0.7, 0.9)  # of the stop mark
BYTES_MATTER: Final = 1600  # messages that fit into the credit in bytes: with more of them, messages run out first
SPREAD: Final = 1.5  # of random settings around the current one, in doublings
INITIAL_MAX: Final = 100_000  # more than this is no bound any more: 0,0 says so more clearly
SEED: Final = 20_260_101

HOPS: Final = ("reader_channel", "channel_queue", "queue_store")
SECTION: Final = "credit."  # of the broker's names for them


@dataclass(frozen=True, slots=True)
class Knobs:
    """Which of the settings can matter for a load."""

    hops: tuple[str, ...]
    byte_hops: tuple[str, ...]
    prefetch: bool
    marks: bool


def knobs_of(load: Load, current: Settings) -> Knobs:
    persistent = load.publishers.persistent
    hops = HOPS if persistent else HOPS[:2]
    size = max(1, load.publishers.body_bytes)
    tight = tuple(f"{hop}_bytes" for hop in hops if _initial(getattr(current, f"{hop}_bytes")) < size * BYTES_MATTER)
    consumers = load.consumers
    return Knobs(
        hops=hops,
        byte_hops=tight,
        prefetch=consumers.count > 0 and consumers.acks,
        marks=current.stop > 0 and load.publishers.window > 0,
    )


def grid(
    load: Load, current: Settings, count: int, ceiling: tuple[int, int] = (NO_CEILING, NO_CEILING), seed: int = SEED
) -> list[Settings]:
    """`count` different settings, the current one first. The same in, the same out. `ceiling`: of stop and resume."""
    knobs = knobs_of(load, current)
    found: dict[Settings, None] = {current: None}
    for settings in _sane(load, current, knobs, ceiling):
        found.setdefault(settings)
        if len(found) >= count:
            return list(found)
    draw = random.Random(seed)
    misses = 0
    while len(found) < count and misses < 1000:  # a load with one knob may have fewer settings than were asked for
        before = len(found)
        found.setdefault(_around(current, knobs, draw, ceiling))
        misses = misses + 1 if len(found) == before else 0
    return list(found)


def changed(settings: Settings, current: Settings) -> list[str]:
    """The fields that differ."""
    return [one.name for one in fields(Settings) if getattr(settings, one.name) != getattr(current, one.name)]


def distance(settings: Settings, current: Settings) -> float:
    """How far away it is: a setting that was touched counts 1, and each doubling of one of its numbers 1 more."""
    total = 0.0
    for name in changed(settings, current):
        ours, theirs = numbers(getattr(settings, name)), numbers(getattr(current, name))
        total += 1.0 + sum(abs(log2(max(1, a) / max(1, b))) for a, b in zip(ours, theirs, strict=False))
    return total


def numbers(value: str | int | None) -> tuple[int, ...]:
    """The numbers of a setting: two of a credit, one of a mark; none where nothing is set."""
    if value is None:
        return ()
    if isinstance(value, int):
        return (value,)
    return tuple(int(part) for part in value.split(","))


def _sane(load: Load, current: Settings, knobs: Knobs, ceiling: tuple[int, int]) -> Iterator[Settings]:
    yield replace(Settings(), prefetch=current.prefetch, stop=current.stop, resume=current.resume)
    # One knob alone: what helps then is the simplest advice there is.
    for hop in knobs.hops:
        for initial, ratio in product(INITIALS, RATIOS):
            yield replace(current, **{hop: credit(initial, ratio)})  # type: ignore[arg-type]
    for hop in knobs.byte_hops:
        for factor in BYTE_FACTORS:
            start = _initial(getattr(current, hop)) or _initial(getattr(Settings(), hop))  # 0,0: from the default on
            yield replace(current, **{hop: credit(start * factor, 0.5, is_bytes=True)})  # type: ignore[arg-type]
    if knobs.prefetch:
        for prefetch in PREFETCHES:
            yield replace(current, prefetch=prefetch)
    if knobs.marks:
        stops = (*STOPS, *(max(1, round(current.stop * factor)) for factor in STOP_FACTORS))
        for stop, part in product(stops, RESUME_PARTS):
            yield _marked(current, stop, round(stop * part), ceiling)
    for initials in product(JOINT, repeat=len(knobs.hops)):
        for ratio in JOINT_RATIOS:
            pairs = zip(knobs.hops, initials, strict=True)
            yield replace(current, **{hop: credit(initial, ratio) for hop, initial in pairs})  # type: ignore[arg-type]


def _around(current: Settings, knobs: Knobs, draw: random.Random, ceiling: tuple[int, int]) -> Settings:
    """Each knob stays as it is, or goes somewhere near: half and half."""
    changes: dict[str, str | int] = {}
    for hop in (*knobs.hops, *knobs.byte_hops):
        if draw.random() < 0.5:
            initial, more_after = numbers(getattr(current, hop))
            start = initial or numbers(getattr(Settings(), hop))[0]  # 0,0: from the default on
            ratio = more_after / initial if initial else 0.5
            ratio = min(1.0, max(0.05, ratio * 2 ** draw.gauss(0.0, 0.7)))
            least = 0 if hop.endswith("_bytes") else LEAST
            there = max(least, start * 2 ** draw.gauss(0.0, SPREAD))
            changes[hop] = credit(there, ratio, hop.endswith("_bytes"))
    if knobs.prefetch and draw.random() < 0.5:
        changes["prefetch"] = max(1, _rounded((current.prefetch or 300) * 2 ** draw.gauss(0.0, SPREAD)))
    if knobs.marks and draw.random() < 0.5:
        stop = min(ceiling[0], max(2, _rounded(current.stop * 2 ** draw.gauss(0.0, SPREAD))))
        current = _marked(current, stop, _rounded(stop * draw.choice(RESUME_PARTS)), ceiling)
    return replace(current, **changes)  # type: ignore[arg-type]


def _marked(current: Settings, stop: int, resume: int, ceiling: tuple[int, int]) -> Settings:
    """Marks above the ceiling would be cut down to it, and the broker asked for what it cannot do."""
    stop = min(stop, ceiling[0])
    return replace(current, stop=stop, resume=min(max(1, resume), stop, ceiling[1]))


def credit(initial: float, ratio: float, is_bytes: bool = False) -> str:
    """`initial,more_after` as the broker takes it, in round numbers."""
    first = max(2, _rounded(initial)) if is_bytes else min(INITIAL_MAX, max(2, _rounded(initial)))
    return f"{first},{min(first, max(1, _rounded(first * ratio)))}"


def _rounded(value: float) -> int:
    """Two digits are as much as the twin knows; people read them more easily, too."""
    whole = round(value)
    if whole < 100:
        return max(1, whole)
    unit: int = 10 ** (len(str(whole)) - 2)
    return round(whole / unit) * unit


def _initial(value: str) -> int:
    return numbers(value)[0]

"""Samples: the past of a counter as RabbitMQ's API tells it: `samples` of `sample` and `timestamp`, `avg`, `avg_rate`.

Place: rates.py and history.py keep looks at counters; a request that says `msg_rates_age` and `msg_rates_incr`, or
`lengths_age` and `lengths_incr`, gets them as samples, the newest first, at whole multiples of `incr`.
Before the first look all was 0. Not here: keeping them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.broker.admin import Json

SAMPLES_MAX: Final = 721  # an hour of every 5 s: what RabbitMQ's own page asks for at most
LENGTHS: Final = ("messages_ready", "messages_unacknowledged")  # together they are `messages`

Look = tuple[int, Sequence[float]]  # wall clock in ms, and all counters


class Span(NamedTuple):
    """How far back, and how far apart."""

    age_s: int
    step_s: int


class Ask(NamedTuple):
    """What a request wants to know of the past; None: nothing."""

    rates: Span | None
    lengths: Span | None

    def __bool__(self) -> bool:
        return self.rates is not None or self.lengths is not None


def ask(query: Mapping[str, str]) -> Ask:
    """From the query of a request; ValueError says what is wrong with it."""
    return Ask(_span(query, "msg_rates"), _span(query, "lengths"))


def _span(query: Mapping[str, str], name: str) -> Span | None:
    age, step = query.get(f"{name}_age"), query.get(f"{name}_incr")
    if age is None or step is None:
        return None
    if not (age.isascii() and age.isdecimal() and step.isascii() and step.isdecimal() and int(age) and int(step)):
        raise ValueError(f"{name}_age and {name}_incr are whole seconds, 1 or more")
    if int(age) // int(step) >= SAMPLES_MAX:
        raise ValueError(f"{name}_age is more than {SAMPLES_MAX - 1} times {name}_incr")
    return Span(int(age), int(step))


def add_samples(part: dict[str, Json], names: Sequence[str], looks: Sequence[Look], span: Span | None) -> None:
    """Into every `…_details` of this part that there are looks for; the names say what a look has at which place."""
    if span is None:
        return
    moments = _moments(looks, span)
    for at, name in enumerate(names):
        details = part.get(f"{name}_details")
        if isinstance(details, dict):
            _fill(details, [(at_ms, row[at] if row else 0) for at_ms, row in moments], span)
    total = part.get("messages_details")
    if isinstance(total, dict) and all(name in names for name in LENGTHS):
        places = [names.index(name) for name in LENGTHS]
        _fill(total, [(at_ms, sum(row[at] for at in places) if row else 0) for at_ms, row in moments], span)


def _moments(looks: Sequence[Look], span: Span) -> list[tuple[int, Sequence[float]]]:
    """The last look at or before each whole multiple of the step, the newest first."""
    if not looks:
        return []
    step_ms = span.step_s * 1000
    newest_ms = looks[-1][0] // step_ms * step_ms
    past = list(looks)
    found: list[tuple[int, Sequence[float]]] = []
    for at_ms in range(newest_ms, newest_ms - span.age_s * 1000 - 1, -step_ms):
        while past and past[-1][0] > at_ms:
            past.pop()
        found.append((at_ms, past[-1][1] if past else ()))
    return found


def _fill(details: dict[str, Json], values: list[tuple[int, float]], span: Span) -> None:
    if not values:
        details |= {"samples": [], "avg": 0.0, "avg_rate": 0.0}
        return
    numbers = [int(value) for _, value in values]
    details["samples"] = [{"sample": number, "timestamp": at_ms} for number, (at_ms, _) in zip(numbers, values)]
    details["avg"] = sum(numbers) / len(numbers)
    details["avg_rate"] = (numbers[0] - numbers[-1]) / span.age_s

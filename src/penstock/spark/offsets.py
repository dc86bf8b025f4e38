"""Offsets: where a query stands in a stream, one number per partition, and the arithmetic on it. Pure.

Used by options.py (positions as the user writes them) and by the stream readers.
An offset is the *next* message to read, so a range is [start, end). Spark compares offsets as JSON text: the same
offsets must always give the same text, so what leaves here has its keys sorted.
UNSETTLED stands for "latest" or a time until the first batch has settled it: that batch reads nothing, but its end is
in Spark's log before a message is read. A replay of it, or a second run, begins at the same place.
Not here: asking the broker (streamview.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
UNSETTLED: Final = -1
_KAFKA: Final = {-1: LATEST, -2: EARLIEST}  # how Kafka's source writes them in JSON

Offsets: TypeAlias = dict[str, int]  # partition's stream -> next offset
# earliest, latest, one number for every partition, or one of these for each by name
Position: TypeAlias = "str | int | dict[str, str | int]"


class PositionError(ValueError):
    """A position that cannot be read; the text says what is allowed."""


class Range(NamedTuple):
    """Messages start to end - 1 of one partition."""

    stream: str
    partition: int
    start: int
    end: int


def parse_position(text: str) -> Position:
    """What startingOffsets and endingOffsets may say."""
    stripped = text.strip()
    if stripped.lower() in (EARLIEST, LATEST):
        return stripped.lower()
    if stripped.isdecimal():
        return int(stripped)
    if not stripped.startswith("{"):
        raise _no_position(text)
    try:
        found = json.loads(stripped)
    except ValueError as error:
        raise PositionError(f"not JSON ({error}): {text!r}") from None
    position: dict[str, str | int] = {}
    for stream, value in found.items():
        if isinstance(value, int) and not isinstance(value, bool) and value in _KAFKA:
            value = _KAFKA[value]
        if value not in (EARLIEST, LATEST) and not (type(value) is int and value >= 0):
            raise PositionError(f"{stream} may be earliest, latest or a number from 0, not {value!r}")
        position[stream] = value
    if not position:
        raise _no_position(text)
    return position


def _no_position(text: str) -> PositionError:
    return PositionError(f'earliest, latest, a number or JSON as {{"orders-0": 17}}, not {text!r}')


def position_of(position: Position, stream: str) -> str | int | None:
    """What a position says about one partition; None if it is given by name and this one is not named."""
    return position.get(stream) if isinstance(position, dict) else position


def in_order(offsets: Mapping[str, int]) -> Offsets:
    """The same offsets, always with the same JSON text."""
    return {stream: int(offsets[stream]) for stream in sorted(offsets)}


def share(available: Sequence[int], limit: int) -> list[int]:
    """Divide `limit` over partitions that have so much: equal parts, and what one does not need goes to the others.

    A long partition never starves a short one, and nobody is given more than it has. What cannot be divided goes to
    the first ones."""
    shares = [0] * len(available)
    hungry = [index for index, count in enumerate(available) if count > 0]
    while hungry and limit > 0:
        each = max(limit // len(hungry), 1)
        for index in hungry:
            more = min(each, available[index] - shares[index], limit)
            shares[index] += more
            limit -= more
        hungry = [index for index in hungry if shares[index] < available[index]]
    return shares


def admit(
    available: Sequence[int], rows_max: int | None, means: Sequence[float] | None = None, bytes_max: int | None = None
) -> list[int]:
    """How many messages of each partition a batch may take; the mean sizes turn bytes into messages.

    Something is admitted wherever something is there: a message larger than the limit must not stop the query."""
    rows = list(available) if rows_max is None else share(available, rows_max)
    if bytes_max is None or means is None:
        return rows
    sizes = share([int(count * mean) for count, mean in zip(rows, means)], bytes_max)
    fitting = [min(count, int(size / max(mean, 1.0))) for count, size, mean in zip(rows, sizes, means)]
    if any(rows) and not any(fitting):
        fitting[next(index for index, count in enumerate(rows) if count)] = 1
    return fitting


def split(ranges: Sequence[Range], parts_min: int) -> list[Range]:
    """At least `parts_min` ranges where there are as many messages: the longest is halved, thirded, … first.

    The same ranges give the same parts: a replayed batch has the same tasks."""
    pieces = [1] * len(ranges)
    while sum(pieces) < parts_min:
        sizes = [(one.end - one.start) / count for one, count in zip(ranges, pieces)]
        longest = max(range(len(ranges)), key=sizes.__getitem__, default=0)
        if not ranges or sizes[longest] <= 1:
            break
        pieces[longest] += 1
    parts = []
    for one, count in zip(ranges, pieces):
        size = one.end - one.start
        cuts = [one.start + size * index // count for index in range(count + 1)]
        parts += [one._replace(start=start, end=end) for start, end in pairwise(cuts)]
    return parts

"""Ranges: sets of positions as sorted lists of (first, end) that neither touch nor overlap. Plain functions, no I/O.

Place in the chain: beside it; recovery.py finds out with them which positions are alive.
Not here: which ranges a queue has (log.py, the queue itself).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.store.record import Range


def union(ranges: Iterable[Range]) -> list[Range]:
    """All of them, which may be in any order and overlap."""
    made: list[Range] = []
    for first, end in sorted(ranges):
        if made and first <= made[-1][1]:
            if end > made[-1][1]:
                made[-1] = made[-1][0], end
        elif first < end:
            made.append((first, end))
    return made


def intersection(left: Sequence[Range], right: Sequence[Range]) -> list[Range]:
    made: list[Range] = []
    at = 0
    for first, end in left:
        while at < len(right) and right[at][1] <= first:
            at += 1
        look = at
        while look < len(right) and right[look][0] < end:
            made.append((max(first, right[look][0]), min(end, right[look][1])))
            look += 1
        at = max(at, look - 1)
    return made


def overlaps(first: int, end: int, ranges: Iterable[Range]) -> list[Range]:
    """The parts of one range that are in these. Stops behind it, so that many ranges cost nothing."""
    parts: list[Range] = []
    for start, stop in ranges:
        if start >= end:
            break
        if stop > first:
            parts.append((max(first, start), min(end, stop)))
    return parts


def difference(left: Sequence[Range], right: Sequence[Range]) -> list[Range]:
    """What is in `left` and not in `right`."""
    made: list[Range] = []
    at = 0
    for first, end in left:
        while at < len(right) and right[at][1] <= first:
            at += 1
        look = at
        while first < end and look < len(right) and right[look][0] < end:
            if first < right[look][0]:
                made.append((first, right[look][0]))
            first = max(first, right[look][1])
            look += 1
        if first < end:
            made.append((first, end))
        at = max(at, look - 1)
    return made


def total(ranges: Iterable[Range]) -> int:
    """How many positions."""
    return sum(end - first for first, end in ranges)

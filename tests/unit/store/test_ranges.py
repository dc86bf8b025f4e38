"""Sets of positions as ranges, against Python's own sets."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from penstock.store.ranges import difference, intersection, total, union
from penstock.store.record import Range

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=12)


def positions(ranges: Iterable[Range]) -> set[int]:
    return {position for first, end in ranges for position in range(first, end)}


def is_canonical(ranges: list[Range]) -> bool:
    return all(first < end for first, end in ranges) and all(
        ranges[at][1] < ranges[at + 1][0] for at in range(len(ranges) - 1)
    )


@given(RANGES, RANGES)
def test_ranges_are_sets_of_positions(left: list[Range], right: list[Range]) -> None:
    one, two = union(left), union(right)
    assert is_canonical(one)
    assert positions(one) == positions(left)
    assert total(one) == len(positions(left))
    assert positions(intersection(one, two)) == positions(left) & positions(right)
    assert positions(difference(one, two)) == positions(left) - positions(right)
    assert is_canonical(intersection(one, two))
    assert is_canonical(difference(one, two))

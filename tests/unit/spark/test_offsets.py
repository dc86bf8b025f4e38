"""Offsets: positions as users write them, JSON that never changes its text, sharing a limit, splitting ranges."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark.offsets import PositionError, Range, admit, in_order, parse_position, position_of, share, split

counts = st.lists(st.integers(0, 1000), max_size=6)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("earliest", "earliest"),
        (" Latest ", "latest"),
        ("17", 17),
        ('{"a-0": 3, "a-1": "earliest"}', {"a-0": 3, "a-1": "earliest"}),
        ('{"a-0": -2, "a-1": -1}', {"a-0": "earliest", "a-1": "latest"}),
    ],
)
def test_a_position_is_read_as_kafkas_users_write_it(text: str, position: object):
    assert parse_position(text) == position


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("first", "earliest, latest, a number or JSON"),
        ("-5", "earliest, latest, a number or JSON"),
        ("{}", "earliest, latest, a number or JSON"),
        ("{oops", "not JSON"),
        ('{"a": true}', "a may be earliest"),
        ('{"a": -3}', "a may be earliest"),
        ('{"a": [1]}', "a may be earliest"),
    ],
)
def test_a_position_that_cannot_be_read_says_what_is_allowed(text: str, said: str):
    with pytest.raises(PositionError, match=said):
        parse_position(text)


def test_a_position_for_all_partitions_holds_for_each():
    assert position_of("latest", "a-0") == "latest"
    assert position_of({"a-0": 4}, "a-0") == 4
    assert position_of({"a-0": 4}, "a-1") is None


def test_the_same_offsets_always_give_the_same_json():
    assert json.dumps(in_order({"b": 1, "a": 2})) == json.dumps(in_order({"a": 2, "b": 1})) == '{"a": 2, "b": 1}'


@given(counts, st.integers(0, 3000))
def test_a_limit_is_used_up_and_nobody_gets_more_than_there_is(available: list[int], limit: int):
    shares = share(available, limit)
    assert sum(shares) == min(limit, sum(available))
    assert all(0 <= mine <= there for mine, there in zip(shares, available))


def test_a_long_partition_does_not_starve_a_short_one():
    assert share([1_000_000, 10, 400], 300) == [145, 10, 145]


@given(counts, st.one_of(st.none(), st.integers(1, 100)), st.integers(1, 100_000))
def test_a_limit_of_bytes_always_admits_something_that_is_there(available: list[int], rows: int | None, size: int):
    means = [700.0] * len(available)
    admitted = admit(available, rows, means, size)
    assert any(admitted) == any(available)
    assert all(0 <= mine <= there for mine, there in zip(admitted, available))
    assert sum(admitted) * 700 <= size or sum(admitted) == 1
    assert rows is None or sum(admitted) <= rows


def test_without_limits_all_that_is_there_is_admitted():
    assert admit([5, 0, 7], None) == [5, 0, 7]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 200)), max_size=4), st.integers(0, 20))
def test_a_split_covers_every_offset_once_and_in_order(sizes: list[tuple[int, int]], parts_min: int):
    ranges = [Range(f"s-{i}", i, start, start + size) for i, (start, size) in enumerate(sizes)]
    parts = split(ranges, parts_min)
    assert [(p.partition, n) for p in parts for n in range(p.start, p.end)] == [
        (r.partition, n) for r in ranges for n in range(r.start, r.end)
    ]
    assert all(part.start < part.end for part in parts)
    assert len(parts) >= min(parts_min, sum(size for _, size in sizes))
    assert parts == split(ranges, parts_min)


def test_the_longest_range_is_split_first():
    assert split([Range("a", 0, 0, 900), Range("b", 1, 0, 100)], 4) == [
        Range("a", 0, 0, 300),
        Range("a", 0, 300, 600),
        Range("a", 0, 600, 900),
        Range("b", 1, 0, 100),
    ]

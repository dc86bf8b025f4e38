"""The identity of a message: Penstock's sequence out of its properties, message ids, ranges of positions."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.amqp.properties import Properties, decode_properties, encode_properties
from penstock.amqp.table import Table
from penstock.spark.identity import NEVER, Identities, Ranges, StampCutter, message_id_of

positions = st.integers(min_value=0, max_value=60)


def encoded(headers: Table | None = None, **more: str) -> bytes:
    return encode_properties(Properties(headers=headers, **more))  # type: ignore[arg-type]


@given(st.lists(st.tuples(positions, st.integers(1, 8))))
def test_ranges_hold_exactly_what_was_added_and_never_touch(parts: list[tuple[int, int]]):
    ranges = Ranges()
    model: set[int] = set()
    for start, count in parts:
        ranges.add(start, start + count)
        model.update(range(start, start + count))
    assert {position for position in range(80) if position in ranges} == model
    pairs = ranges.pairs()
    assert all(start < stop for start, stop in pairs)
    for position in range(80):
        assert ranges.next_from(position) == min((one for one in model if one >= position), default=NEVER)
    assert all(before[1] < after[0] for before, after in pairwise(pairs)), "ranges that touch are one"


def test_a_million_consecutive_positions_are_one_range():
    ranges = Ranges()
    for start in range(0, 1_000_000, 1000):
        ranges.add(start, start + 1000)
    assert ranges.pairs() == [(0, 1_000_000)]


@pytest.mark.parametrize(
    "headers",
    [
        {"x-penstock-sequence": "ab12-7"},
        {"x-penstock-sequence": "ab12-7", "key": "value", "n": 5},
        {"key": "value", "x-penstock-sequence": "ab12-7", "inner": {"x-penstock-sequence": "ff-1"}},
        {"inner": {"x-penstock-sequence": "ff-1"}, "x-penstock-sequence": "ab12-7"},
    ],
)
@pytest.mark.parametrize("more", [{}, {"content_type": "text/plain", "content_encoding": "gzip", "message_id": "m1"}])
def test_the_stamp_is_read_and_cut_out_wherever_it_stands(headers: Table, more: dict[str, str]):
    rest, life, position = StampCutter().cut(encoded(headers, **more))
    assert (life, position) == ("ab12", 7)
    others = {name: value for name, value in headers.items() if name != "x-penstock-sequence"}
    assert decode_properties(rest, 0, len(rest)) == Properties(headers=others or None, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "headers",
    [
        None,
        {},
        {"key": "x-penstock-sequenceS"},
        {"key": "\x13x-penstock-sequenceS"},
        {"key": "\x13x-penstock-sequenceS\0\0\0\4ff-1"},
        {"inner": {"x-penstock-sequence": "ff-1"}},
        {"x-penstock-sequence": 5},
        {"x-penstock-sequence": "no number"},
        {"x-penstock-sequence": "-5"},
    ],
)
def test_what_only_looks_like_a_stamp_is_left_alone(headers: Table | None):
    raw = encoded(headers, message_id="m1")
    assert StampCutter().cut(raw) == (raw, "", 0)


def test_the_message_id_is_found_behind_everything_that_may_stand_before_it():
    properties = Properties(
        content_type="a",
        content_encoding="b",
        headers={"k": "v"},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="d",
        expiration="1",
        message_id="the id",
        timestamp=1,
        type="t",
    )
    assert message_id_of(encode_properties(properties)) == b"the id"
    assert message_id_of(encoded(message_id="m")) == b"m"
    assert message_id_of(encoded(type="t")) == b""


def test_what_is_too_much_is_forgotten_from_the_oldest_on_and_no_gap_is_ever_closed():
    known = Identities()
    for position in range(0, 20, 2):
        known.add("old", position, position + 1)
    for position in range(0, 20, 2):
        known.add("new", position, position + 1)
    known.touch("new")
    assert known.trim(15) == 5
    assert not known.has("old", 8)
    assert known.has("old", 10)
    assert not known.has("old", 11)
    assert known.trim(4) == 11
    assert list(known.lives) == ["new"]
    assert [position for position in range(20) if known.has("new", position)] == [12, 14, 16, 18]


texts = st.sampled_from(["ab12-7", "ab12-8", "ab12-10", "ab12-007", "ff-7", "ab12-7-7", "no number", "", "7"])
tables = st.one_of(
    st.none(),
    st.builds(dict, st.lists(st.tuples(st.sampled_from(["k", "ab12-7", "x-penstock-sequence"]), texts), max_size=3)),
    st.builds(lambda text: {"k": "v", "x-penstock-sequence": text}, texts),
    st.builds(lambda text: {"x-penstock-sequence": text, "inner": {"x-penstock-sequence": text}}, texts),
)


@given(st.lists(st.tuples(tables, st.sampled_from(["m", "ab12-7", "ab12-8", "7", "8"]))))
def test_cutting_many_gives_what_cutting_each_gives(messages: list[tuple[Table | None, str]]):
    cutter = StampCutter()
    for headers, message_id in messages:
        raw = encoded(headers, message_id=message_id)
        assert cutter.cut(raw) == StampCutter().cut(raw)

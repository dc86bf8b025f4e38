"""Table values as JSON: exact both ways, and plain where JSON is exact."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.amqp.table import ByteArray, Table, Timestamp, Value, encode_table
from penstock.broker.plain import plain_table, table_of

keys = st.text(max_size=8) | st.sampled_from(["$timestamp", "$table", "$bytes"])
plain_values = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
) | st.text(max_size=8)
no_utf8 = st.binary(max_size=8).map(lambda raw: b"\xff" + raw)
leaves: st.SearchStrategy[Value] = (
    plain_values
    | no_utf8
    | st.builds(Timestamp, st.integers(0, (1 << 64) - 1))
    | st.builds(ByteArray, st.binary(max_size=8))
    | st.builds(lambda digits, scale: Decimal(f"{digits}E-{scale}"), st.integers(0, (1 << 32) - 1), st.integers(0, 255))
)
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=12
)


def typed(value: Value) -> object:
    """The value with its types, which == passes over."""
    if isinstance(value, dict):
        return {key: typed(one) for key, one in value.items()}
    if isinstance(value, list):
        return [typed(one) for one in value]
    return type(value), repr(value)


@given(st.dictionaries(keys, values, max_size=4))
def test_a_table_comes_back_as_it_was_with_every_type(table: Table) -> None:
    text = json.dumps(plain_table(table))
    back = table_of(json.loads(text))
    assert typed(back) == typed(table)
    assert encode_table(back) == encode_table(table)


@given(st.dictionaries(st.text(max_size=8), plain_values, max_size=4))
def test_what_json_has_is_written_as_it_is(table: Table) -> None:
    assert plain_table(table) == table


def test_what_json_has_not_says_its_type() -> None:
    table: Table = {
        "t": Timestamp(5),
        "d": Decimal("1.25"),
        "x": ByteArray(b"a"),
        "s": b"\xff",
        "f": {"$table": 1},
        "two": {"$table": 1, "$bytes": 2},
    }
    assert plain_table(table) == {
        "t": {"$timestamp": 5},
        "d": {"$decimal": "1.25"},
        "x": {"$binary": "YQ=="},
        "s": {"$bytes": "/w=="},
        "f": {"$table": {"$table": 1}},
        "two": {"$table": 1, "$bytes": 2},
    }


@pytest.mark.parametrize(
    "value",
    [
        {"$timestamp": "x"},
        {"$timestamp": True},
        {"$timestamp": -1},
        {"$decimal": "one"},
        {"$decimal": "-1"},
        {"$bytes": "***"},
        {"$binary": 1},
        {"$table": []},
        1 << 64,
        "\ud800",
        float("inf"),
    ],
)
def test_what_cannot_be_a_table_value_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        table_of({"k": value})  # type: ignore[dict-item]  # what a file may bring

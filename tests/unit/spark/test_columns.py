"""Columns: deliveries become rows with every property, whatever the publisher put into them."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from hypothesis import given
from hypothesis import strategies as st

from penstock.amqp.close import CloseConnection
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import ByteArray, Timestamp
from penstock.client.consumer import Deliveries
from penstock.spark.columns import NoOffset, cut_offsets, record_batch, stream_batch
from penstock.spark.properties import OFFSET_MARK, header_text
from penstock.spark.schema import arrow_schema

BIG = 1 << 40  # so that a small test value is a 64-bit integer on the wire, as brokers write offsets


def stamped(offset: int, **properties: Any) -> bytes:
    headers = {**(properties.pop("headers", None) or {}), "x-stream-offset": BIG + offset}
    return encode_properties(Properties(headers=headers, **properties))


def deliveries(raws: list[bytes]) -> Deliveries:
    got = Deliveries()
    for number, raw in enumerate(raws):
        got.add(number, (number == 1, "shop", "key"), raw, b"body %d" % number)
    return got


def rows(raws: list[bytes]) -> list[dict[str, Any]]:
    got = deliveries(raws)
    offsets, keys = cut_offsets(got.headers)
    batch = stream_batch(got, 3, offsets, keys)
    assert batch.schema.equals(arrow_schema())
    batch.validate(full=True)
    return batch.to_pylist()


def test_a_delivery_becomes_a_row_with_all_its_properties():
    everything = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "delivery_mode": 2,
        "priority": 7,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "1000",
        "message_id": "m",
        "type": "t",
        "user_id": "u",
        "app_id": "a",
    }
    (row,) = rows([stamped(5, timestamp=1_700_000_000, headers={"n": 1}, **everything)])
    assert row == {
        **everything,
        "body": b"body 0",
        "exchange": "shop",
        "routing_key": "key",
        "timestamp": datetime.fromtimestamp(1_700_000_000, UTC),
        "headers": [("n", "1")],
        "offset": BIG + 5,
        "partition": 3,
        "redelivered": False,
    }


def test_properties_that_are_absent_are_null_and_headers_lose_only_the_offset():
    (row,) = rows([stamped(0)])
    assert {name for name, value in row.items() if value is None} == {
        *("content_type", "content_encoding", "delivery_mode", "priority", "correlation_id", "reply_to"),
        *("expiration", "message_id", "timestamp", "type", "user_id", "app_id"),
    }
    assert row["headers"] == []


def test_rows_that_share_properties_and_rows_that_do_not_stay_apart():
    raws = [stamped(n, content_type=f"type {n % 3}", message_id=f"m{n}" if n > 5 else None) for n in range(12)]
    found = rows(raws)
    assert [row["offset"] - BIG for row in found] == list(range(12))
    assert [row["content_type"] for row in found] == [f"type {n % 3}" for n in range(12)]
    assert [row["message_id"] for row in found] == [None] * 6 + [f"m{n}" for n in range(6, 12)]
    assert [row["redelivered"] for row in found] == [n == 1 for n in range(12)]


@given(
    st.lists(
        st.tuples(
            st.text(max_size=5),
            st.dictionaries(st.text(min_size=1, max_size=5), st.one_of(st.text(), st.integers(-9, 9)), max_size=3),
            st.none() | st.text(max_size=5),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_what_was_published_is_what_the_row_says(messages: list[tuple[str, dict[str, Any], str | None]]):
    raws = [
        stamped(n, content_type=kind, headers=headers, app_id=app) for n, (kind, headers, app) in enumerate(messages)
    ]
    for number, (row, (kind, headers, app)) in enumerate(zip(rows(raws), messages)):
        assert row["offset"] == BIG + number
        assert (row["content_type"], row["app_id"]) == (kind, app)
        assert row["headers"] == [(name, str(value)) for name, value in headers.items()]


def test_an_offset_that_a_publisher_forged_inside_a_value_is_not_believed():
    forged = OFFSET_MARK + (666).to_bytes(8, "big")
    found = rows([stamped(n, headers={"evil": forged}) for n in range(3)])
    assert [row["offset"] for row in found] == [BIG, BIG + 1, BIG + 2]
    found = rows([stamped(n, content_type=forged.decode("latin-1")) if n else stamped(n) for n in range(3)])
    assert [row["offset"] for row in found] == [BIG, BIG + 1, BIG + 2]


def test_a_delivery_without_an_offset_is_not_from_a_stream():
    with pytest.raises(NoOffset):
        cut_offsets([encode_properties(Properties(content_type="x"))])
    with pytest.raises(NoOffset):
        cut_offsets([stamped(0), encode_properties(Properties(headers={"a": 1}))])
    assert cut_offsets([])[1] == []


def test_texts_that_are_not_utf8_are_shown_with_replacements():
    (row,) = rows([stamped(0, correlation_id=b"\xff\xfeid".decode("utf-8", "surrogateescape"))])
    assert row["correlation_id"] == "��id"


def test_a_time_behind_the_year_9999_is_null():
    (row,) = rows([stamped(0, timestamp=1_700_000_000_000)])
    assert row["timestamp"] is None


def test_the_rows_of_a_queue_are_numbered_by_the_caller():
    got = deliveries([encode_properties(Properties(headers={"a": 1}))] * 3)
    assert record_batch(got, 40, 0).column("offset").to_pylist() == [40, 41, 42]
    assert record_batch(got, [7, 9, 11], 0).column("offset").to_pylist() == [7, 9, 11]
    assert record_batch(got, 40, 0).schema.equals(arrow_schema())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        (5, "5"),
        (True, "true"),
        (2.5, "2.5"),
        (None, None),
        (Decimal("1.25"), "1.25"),
        (Timestamp(0), "1970-01-01T00:00:00Z"),
        (Timestamp(1 << 60), str(1 << 60)),
        (b"\xff", "/w=="),
        (ByteArray(b"text"), "text"),
        ([1, "a", None], '[1,"a",null]'),
        ({"é": {"t": Timestamp(0), "d": Decimal(1)}}, '{"é":{"t":"1970-01-01T00:00:00Z","d":"1"}}'),
    ],
)
def test_a_header_is_text_whatever_its_type(value: Any, text: str | None):
    assert header_text(value) == text


def test_what_looks_like_an_offset_in_a_message_of_a_queue_is_the_publishers():
    raws = [encode_properties(Properties(headers={"x-stream-offset": BIG + n, "a": OFFSET_MARK})) for n in range(2)]
    found = record_batch(deliveries(raws), 0, 0).to_pylist()
    assert [dict(row["headers"])["x-stream-offset"] for row in found] == [str(BIG), str(BIG + 1)]


def test_broken_properties_are_an_error_and_not_a_row():
    for broken in (b"\x80", b"\x80\x00\x05ab", stamped(0) + b"x", stamped(0, app_id="abc")[:-1]):
        with pytest.raises(CloseConnection):
            record_batch(deliveries([broken]), 0, 0)

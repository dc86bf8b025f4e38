"""Encoder: columns to properties, read back by the broker's own codec."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from penstock.amqp.properties import Properties, decode_properties
from penstock.spark.encoder import (
    BATCHES_MAX,
    PUBLISHING_ID_HEADER,
    ROWS_MAX,
    ColumnError,
    Encoder,
    Plan,
    Stamp,
    make_plan,
)

TYPES: dict[str, DataType] = {
    "binary": BinaryType(),
    "string": StringType(),
    "tinyint": ByteType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "timestamp": TimestampType(),
    "map<string,string>": MapType(StringType(), StringType()),
    "map<string,int>": MapType(StringType(), IntegerType()),
}
STAMP = Stamp("6f1c", 3, 1)
MAP = pa.map_(pa.string(), pa.string())


def encode(columns: dict, stamp: Stamp | None = None, exchange: str = "ex", key: str = "key") -> list[tuple]:
    """(exchange, key, decoded properties, body) of every row."""
    encoder = Encoder(Plan(tuple(columns), exchange, key), stamp)
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    return [(to, by, decoded(raw), body) for _, to, by, raw, body in encoder.encode(batch)]


def decoded(raw: bytes) -> Properties:
    return decode_properties(raw, 0, len(raw))


def strings(*values: str | None):
    return pa.array(values, pa.string())


def plan(*columns: str, exchange: str | None = "ex", key: str | None = None) -> Plan:
    schema = StructType()
    for column in columns:
        name, kind = column.split()
        schema.add(name, TYPES[kind])
    return make_plan(schema, exchange, key)


def test_a_body_alone_is_a_persistent_message_to_where_the_options_say():
    assert encode({"body": pa.array([b"a", b"\xff"], pa.binary())}) == [
        ("ex", "key", Properties(delivery_mode=2), b"a"),
        ("ex", "key", Properties(delivery_mode=2), b"\xff"),
    ]


def test_a_string_body_is_its_utf8():
    assert encode({"value": strings("käse")})[0][3] == "käse".encode()


def test_large_strings_and_binaries_are_taken_too():
    columns = {"body": pa.array([b"a"], pa.large_binary()), "type": pa.array(["t"], pa.large_string())}
    assert encode(columns) == [("ex", "key", Properties(delivery_mode=2, type="t"), b"a")]


def test_every_property_has_its_column():
    one = {
        "content_type": "text/plain",
        "content_encoding": "gzip",
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "m",
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
    }
    columns = {name: strings(value) for name, value in one.items()}
    columns["body"] = pa.array([b"x"])
    columns["delivery_mode"] = pa.array([1], pa.int32())
    columns["priority"] = pa.array([9], pa.int8())
    columns["timestamp"] = pa.array([datetime(2026, 11, 16, 1, 2, 3, 999_999, UTC)], pa.timestamp("us", "UTC"))
    columns["headers"] = pa.array([[("k", "v"), ("none", None)]], MAP)
    seconds = int(datetime(2026, 11, 16, 1, 2, 3, tzinfo=UTC).timestamp())
    expected = Properties(**one, delivery_mode=1, priority=9, timestamp=seconds, headers={"k": "v", "none": None})
    assert encode(columns) == [("ex", "key", expected, b"x")]


def test_null_is_a_property_the_message_does_not_have_and_delivery_mode_stays_persistent():
    columns = {
        "body": pa.array([b"x", b"y", b"z"]),
        "type": strings(None, "t", None),
        "priority": pa.array([None, None, 0], pa.int32()),
        "delivery_mode": pa.array([None, 1, None], pa.int32()),
        "timestamp": pa.array([None, 0, None], pa.timestamp("us", "UTC")),
        "headers": pa.array([None, [], [("k", "")]], MAP),
    }
    assert [properties for _, _, properties, _ in encode(columns)] == [
        Properties(delivery_mode=2),
        Properties(delivery_mode=1, type="t", timestamp=0, headers={}),
        Properties(delivery_mode=2, priority=0, headers={"k": ""}),
    ]


def test_the_columns_exchange_and_routing_key_win_where_they_are_not_null():
    columns = {"body": pa.array([b"x"] * 3), "exchange": strings("a", None, ""), "routing_key": strings(None, "k", "")}
    assert [row[:2] for row in encode(columns)] == [("a", "key"), ("ex", "k"), ("", "")]


def test_a_stamp_gives_every_row_its_ids():
    encoder = Encoder(Plan(("body",), "ex", ""), STAMP)
    found = []
    for count in (8, 5):
        batch = pa.record_batch([pa.array([b"x"] * count)], names=["body"])
        found += [decoded(raw) for _, _, _, raw, _ in encoder.encode(batch)]
    assert [one.message_id for one in found] == [f"6f1c/3/1/{row}" for row in range(13)]
    assert [one.headers for one in found] == [
        {"x-penstock-producer": "6f1c/1", "x-penstock-publishing-id": (3 << 32) + row} for row in range(13)
    ]


def test_the_publishing_id_has_the_letter_l_even_where_it_is_small():
    encoder = Encoder(Plan(("body",), "ex", ""), Stamp("q", 0, 0))
    ((_, _, _, raw, _),) = encoder.encode(pa.record_batch([pa.array([b"x"])], names=["body"]))
    assert PUBLISHING_ID_HEADER.encode() + b"l" + bytes(8) in raw


def test_a_stamp_leaves_the_users_headers_and_message_ids():
    columns = {
        "body": pa.array([b"x"] * 3),
        "headers": pa.array([[("k", "v")], None, []], MAP),
        "message_id": strings("mine", None, ""),
    }
    found = [properties for _, _, properties, _ in encode(columns, STAMP)]
    assert [one.message_id for one in found] == ["mine", "6f1c/3/1/1", ""]
    own = [{"x-penstock-producer": "6f1c/1", "x-penstock-publishing-id": (3 << 32) + row} for row in range(3)]
    assert [one.headers for one in found] == [{"k": "v", **own[0]}, own[1], own[2]]


def test_not_numbered_a_row_has_its_message_id_and_no_headers_of_ours():
    columns = {"body": pa.array([b"x"] * 2), "headers": pa.array([[("k", "v")], None], MAP)}
    for given, headers in ((columns, [{"k": "v"}, None]), ({"body": columns["body"]}, [None, None])):
        encoder = Encoder(Plan(tuple(given), "ex", ""), STAMP, numbered=False)
        rows = encoder.encode(pa.record_batch(list(given.values()), names=list(given)))
        found = [decoded(raw) for _, _, _, raw, _ in rows]
        assert [one.message_id for one in found] == ["6f1c/3/1/0", "6f1c/3/1/1"]
        assert [one.headers for one in found] == headers


def test_headers_that_say_where_a_message_was_read_are_not_sent():
    read = [("x-stream-offset", "7"), ("k", "v"), ("x-penstock-producer", "old"), ("x-penstock-sequence", "1-2")]
    columns = {"body": pa.array([b"x"]), "headers": pa.array([[*read, ("x-penstock-publishing-id", "1")]], MAP)}
    assert encode(columns)[0][2].headers == {"k": "v"}


def test_a_slice_of_a_batch_is_encoded_as_the_slice():
    batch = pa.record_batch(
        [pa.array([b"a", b"b", b"c"]), pa.array([[("k", "1")], [("k", "2"), ("l", "3")], None], MAP)],
        names=["body", "headers"],
    )
    rows = list(Encoder(Plan(("body", "headers"), "ex", "")).encode(batch.slice(1, 2)))
    assert [(decoded(raw).headers, body) for _, _, _, raw, body in rows] == [({"k": "2", "l": "3"}, b"b"), (None, b"c")]


def test_a_row_outside_the_slice_is_not_looked_at():
    headers = pa.array([[("k" * 256, "")], [("k", "1")], None, [("x", "2")], [("l" * 256, None)]], MAP)
    batch = pa.record_batch([pa.array([b"a"] * 5), headers], names=["body", "headers"])
    rows = list(Encoder(Plan(("body", "headers"), "ex", "")).encode(batch.slice(1, 3)))
    assert [decoded(raw).headers for _, _, _, raw, _ in rows] == [{"k": "1"}, None, {"x": "2"}]
    with pytest.raises(ColumnError, match="column headers of row 3 of the partition is a map with a key"):
        Encoder(Plan(("body", "headers"), "ex", "")).encode(batch.slice(1, 4))


def test_an_empty_batch_is_no_message():
    assert encode({"body": pa.array([], pa.binary()), "headers": pa.array([], MAP)}, STAMP) == []


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("body", pa.array([b"x", None], pa.binary()), "column body of row 1 of the partition is null"),
        ("type", strings("t", "ä" * 128), "column type of row 1 of the partition is longer than 255 bytes"),
        ("routing_key", strings("t", "k" * 256), "column routing_key of row 1"),
        ("delivery_mode", pa.array([2, 3], pa.int32()), "column delivery_mode of row 1 of the partition is not from 1"),
        ("priority", pa.array([None, -1], pa.int64()), "column priority of row 1"),
        ("timestamp", pa.array([None, -1], pa.timestamp("us", "UTC")), "row 1 of the partition is before 1970"),
        (
            "headers",
            pa.array([None, [("k" * 256, "")]], MAP),
            "column headers of row 1 of the partition is a map with a key",
        ),
    ],
)
def test_a_value_that_cannot_be_sent_is_told_with_its_column_and_row(name, values, told):
    columns = {"body": pa.array([b"x", b"y"]), name: values}
    with pytest.raises(ColumnError, match=told):
        encode(columns)


def test_rows_are_counted_over_the_batches_of_a_task():
    encoder = Encoder(Plan(("body",), "ex", ""))
    list(encoder.encode(pa.record_batch([pa.array([b"x"] * 10)], names=["body"])))
    with pytest.raises(ColumnError, match="row 10"):
        encoder.encode(pa.record_batch([pa.array([None], pa.binary())], names=["body"]))


def test_ids_that_no_longer_fit_are_refused():
    with pytest.raises(ColumnError, match="start a new checkpoint"):
        Stamp("q", BATCHES_MAX, 0)
    encoder = Encoder(Plan(("body",), "ex", ""), STAMP)
    encoder.rows = ROWS_MAX
    with pytest.raises(ColumnError, match="more partitions"):
        encoder.encode(pa.record_batch([pa.array([b"x"])], names=["body"]))
    assert Stamp("q", BATCHES_MAX - 1, 0).publishing_id(ROWS_MAX - 1) == (1 << 63) - 1


# The plan: what is known before a row is read.


def test_a_plan_takes_every_known_column():
    ddl = ["body binary", "exchange string", "routing_key string", "headers map<string,string>", "timestamp timestamp"]
    ddl += ["delivery_mode tinyint", "priority int", "message_id string"]
    assert plan(*ddl).names[-1] == "message_id"


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (
            ("body binary", "colour int"),
            r"does not know the column colour; it knows body, value, exchange, routing_key",
        ),
        (("body binary", "offset bigint", "partition int"), r"columns offset, partition \(drop offset, partition:"),
        (("body binary", "Exchange string"), "does not know the column Exchange"),
        (("type string",), "needs one column body .*; the columns are type"),
        (("body binary", "value binary"), "needs one column body .*; both are there"),
        (("body int",), "the column body is int, the amqp sink takes binary or string"),
        (("body binary", "priority string"), "the column priority is string, the amqp sink takes int"),
        (("body binary", "timestamp bigint"), "the column timestamp is bigint, the amqp sink takes timestamp"),
        (("body binary", "headers map<string,int>"), r"is map<string,int>, the amqp sink takes map<string,string>"),
    ],
)
def test_a_wrong_column_is_one_error_that_names_it(columns, told):
    with pytest.raises(ColumnError, match=told):
        plan(*columns)


def test_a_plan_needs_somewhere_to_publish_to():
    with pytest.raises(ColumnError, match="option exchange or routingKey"):
        plan("body binary", exchange=None)
    assert plan("body binary", exchange=None, key="queue") == Plan(("body",), "", "queue")
    assert plan("body binary", "routing_key string", exchange=None).exchange == ""


def test_a_name_in_an_option_that_is_too_long_is_refused():
    with pytest.raises(ColumnError, match="option routingKey: 256 bytes"):
        plan("body binary", key="k" * 256)

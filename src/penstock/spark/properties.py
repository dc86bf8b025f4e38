"""Properties: what is in the properties of many deliveries, as lists of values, one list for each column.

Upstream: bytes as the client leaves them.  Downstream: columns.py.
The head (content type and encoding, headers) is the same for thousands of messages, apart from the offset in it; the
tail (ids, time) often is not. So heads are decoded once for each kind, by amqp/properties.py, and tails by a short
loop here: with a message id in every message that is three times as fast as decoding all of it.
Not here: Arrow (columns.py).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

from penstock.amqp.flags import (
    APP_ID,
    CLUSTER_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    USER_ID,
)
from penstock.amqp.properties import decode_properties
from penstock.amqp.table import ByteArray, Table, Timestamp, Value

OFFSET_HEADER: Final = "x-stream-offset"
OFFSET_MARK: Final = b"\x0fx-stream-offsetl"  # key and type in a table; the value's 8 bytes follow
OFFSET_BYTES: Final = 8
SECONDS_MAX: Final = 253_402_300_799  # the last second of the year 9999, where Spark's and Python's calendars end

HEADS: Final = ("content_type", "content_encoding", "headers")
# The properties behind the headers, in the order and with the flags of the wire.
TAILS: Final = (
    ("delivery_mode", DELIVERY_MODE),
    ("priority", PRIORITY),
    ("correlation_id", CORRELATION_ID),
    ("reply_to", REPLY_TO),
    ("expiration", EXPIRATION),
    ("message_id", MESSAGE_ID),
    ("timestamp", TIMESTAMP),
    ("type", TYPE),
    ("user_id", USER_ID),
    ("app_id", APP_ID),
    ("cluster_id", CLUSTER_ID),
)
_OCTETS: Final = frozenset({"delivery_mode", "priority"})
_LONG: Final = Struct(">I")
_LONGLONG: Final = Struct(">Q")
_OCTET, _TIME, _TEXT = range(3)

Steps = list[tuple[int, int]]  # which column, and how its value is written


def split_properties(
    raws: Sequence[bytes], stamped: bool
) -> tuple[dict[str, list[Any]], list[int], dict[str, Sequence[Any]]]:
    """The distinct heads as columns, for each delivery the index of its head, and the tails as columns.

    `stamped`: they come from a stream, and the offset in their headers is not for the column of headers.
    Broken properties are an error of the broker: CloseConnection, as decode_properties says it."""
    heads: dict[bytes, int] = {}
    examples: list[bytes] = []
    codes: list[int] = []
    rows: list[list[Any]] = []
    steps_of: dict[int, Steps] = {}
    empty: list[Any] = [None] * len(TAILS)
    for raw in raws:
        row = empty[:]
        head = b""
        try:
            flags = raw[0] << 8 | raw[1]
            steps = steps_of.get(flags)
            if steps is None:
                steps = steps_of[flags] = _steps(flags)
            pos = _head_end(raw, flags)
            head = raw[:pos]
            if stamped:
                at = head.find(OFFSET_MARK) + len(OFFSET_MARK)
                head = head[:at] + head[at + OFFSET_BYTES :]
            for column, how in steps:
                if how == _TEXT:
                    start = pos + 1
                    pos = start + raw[pos]
                    row[column] = raw[start:pos].decode("utf-8", "surrogateescape")
                elif how == _OCTET:
                    row[column] = raw[pos]
                    pos += 1
                else:
                    row[column] = _micros(_LONGLONG.unpack_from(raw, pos)[0])
                    pos += 8
        except (IndexError, struct_error):
            pos = -1
        if pos != len(raw):
            decode_properties(raw, 0, len(raw))
            raise AssertionError("properties that one decoder takes and the other does not")
        rows.append(row)
        code = heads.get(head)
        if code is None:
            code = heads[head] = len(heads)
            examples.append(raw)
        codes.append(code)
    tails: dict[str, Sequence[Any]] = {name: column for (name, _), column in zip(TAILS, zip(*rows))}
    return _head_columns(examples, OFFSET_HEADER if stamped else ""), codes, tails


def _head_columns(raws: list[bytes], hidden: str) -> dict[str, list[Any]]:
    found = [decode_properties(raw, 0, len(raw)) for raw in raws]
    return {
        "content_type": [one.content_type for one in found],
        "content_encoding": [one.content_encoding for one in found],
        "headers": [_entries(one.headers, hidden) for one in found],
    }


def _steps(flags: int) -> Steps:
    return [
        (column, _OCTET if name in _OCTETS else _TIME if name == "timestamp" else _TEXT)
        for column, (name, flag) in enumerate(TAILS)
        if flags & flag
    ]


def _head_end(raw: bytes, flags: int) -> int:
    pos = 2
    if flags & CONTENT_TYPE:
        pos += 1 + raw[pos]
    if flags & CONTENT_ENCODING:
        pos += 1 + raw[pos]
    if flags & HEADERS:
        pos += 4 + int(_LONG.unpack_from(raw, pos)[0])
    return pos


def _micros(seconds: int) -> int | None:
    """AMQP counts seconds; a time behind the end of Spark's calendar is no time."""
    return None if seconds > SECONDS_MAX else seconds * 1_000_000


def readable(text: str) -> str:
    """Short strings may be any bytes: what is no UTF-8 came as surrogates, which Arrow does not take."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _entries(headers: Table | None, hidden: str) -> list[tuple[str, str | None]] | None:
    """Headers as a map of texts, without the one that is a column of its own."""
    if headers is None:
        return None
    return [(readable(name), header_text(value)) for name, value in headers.items() if name != hidden]


def header_text(value: Value) -> str | None:
    """A header's value as text: numbers in digits, true or false, times in ISO 8601, tables and lists as JSON, bytes
    that are no text in base64; None is null."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))
    plain = _plain(value)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _plain(value: Value) -> Any:
    """A value as JSON can say it."""
    if isinstance(value, Timestamp):  # before int and tuple: it is a tuple
        if value.seconds > SECONDS_MAX:
            return value.seconds
        return datetime.fromtimestamp(value.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if isinstance(value, ByteArray):
        return _bytes_text(value.value)
    if isinstance(value, bytes):
        return _bytes_text(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dict):
        return {readable(name): _plain(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value


def _bytes_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return base64.b64encode(value).decode()

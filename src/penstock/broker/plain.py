"""Plain: AMQP table values as JSON and back, exactly.

What JSON has is written as it is: strings, whole numbers, finite floats, booleans, null, lists and objects. What it has
not is an object with one key that says the type: `$timestamp`, `$decimal`, `$bytes` (a long string that is no UTF-8),
`$binary` (AMQP's byte array). A table that happens to look like that is wrapped in `$table`.
RabbitMQ's own export has no such types: a timestamp becomes a number, bytes become a sentence about bytes.
Not here: what the values mean (arguments.py), the objects they belong to (definitions.py).
"""

from __future__ import annotations

import base64
import binascii
from decimal import Decimal, InvalidOperation
from typing import Final

from penstock.amqp.table import ByteArray, Table, Timestamp, Value, encode_table
from penstock.broker.ledger import Json

TIMESTAMP: Final = "$timestamp"
DECIMAL: Final = "$decimal"
BYTES: Final = "$bytes"
BINARY: Final = "$binary"
TABLE: Final = "$table"
TAGS: Final = frozenset((TIMESTAMP, DECIMAL, BYTES, BINARY, TABLE))


def plain_table(table: Table) -> dict[str, Json]:
    return {key: _plain(value) for key, value in table.items()}


def table_of(values: dict[str, Json]) -> Table:
    """The table; a ValueError in one line if it cannot be one on the wire."""
    table = {key: _value(value) for key, value in values.items()}
    encode_table(table)
    return table


def _plain(value: Value) -> Json:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Timestamp):  # before list: a named tuple is none, but looks like one
        return {TIMESTAMP: value.seconds}
    if isinstance(value, ByteArray):
        return {BINARY: base64.b64encode(value.value).decode()}
    if isinstance(value, bytes):
        return {BYTES: base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return {DECIMAL: str(value)}
    if isinstance(value, dict):
        inner: dict[str, Json] = {key: _plain(one) for key, one in value.items()}
        return {TABLE: inner} if _tag(inner) else inner
    return [_plain(one) for one in value]


def _tag(values: dict[str, Json]) -> str:
    """The tag that this object is, or looks like."""
    if len(values) == 1:
        for key in values:
            return key if key in TAGS else ""
    return ""


def _value(value: Json) -> Value:
    if isinstance(value, dict):
        tag = _tag(value)
        return _tagged(tag, value[tag]) if tag else {key: _value(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_value(one) for one in value]
    return value


def _tagged(tag: str, value: Json) -> Value:
    if tag == TIMESTAMP and isinstance(value, int) and not isinstance(value, bool):
        return Timestamp(value)
    if tag == TABLE and isinstance(value, dict):
        return {key: _value(one) for key, one in value.items()}
    if isinstance(value, str):
        try:
            if tag == DECIMAL:
                return Decimal(value)
            if tag in (BYTES, BINARY):
                raw = base64.b64decode(value, validate=True)
                return ByteArray(raw) if tag == BINARY else raw
        except (InvalidOperation, binascii.Error):
            pass  # told below, like any other wrong value
    raise ValueError(f"{tag} cannot be {value!r}")

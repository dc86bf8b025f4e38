"""Typed: tables and properties with any type letter, to be sent. Penstock's own codec writes only the usual ones.

`T("b", 5)` is 5 as a signed byte; plain Python values get the usual letters: True `t`, 5 `I` (or `l`), 1.5 `d`,
"a" `S`, None `V`, lists `A`, dicts `F`. A table may also be given as bytes, for keys twice and the like.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from penstock.amqp.frame import METHOD, encode_frame
from penstock.amqp.method import Method, encode_method

HEAD_BYTES: Final = 7
_FIXED: Final = {
    "t": ">?",
    "b": ">b",
    "B": ">B",
    "s": ">h",
    "u": ">H",
    "I": ">i",
    "i": ">I",
    "l": ">q",
    "L": ">q",
    "f": ">f",
    "d": ">d",
    "T": ">Q",
}
_PROPERTIES: Final = (
    "content_type",
    "content_encoding",
    "headers",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
    "cluster_id",
)


class T(NamedTuple):
    """A value with its letter."""

    letter: str
    value: object = None


def table_bytes(table: Mapping[str, object] | bytes) -> bytes:
    """With the length in front."""
    if isinstance(table, bytes):
        return _long(table)
    return _long(b"".join(short_bytes(key) + value_bytes(value) for key, value in table.items()))


def value_bytes(value: object) -> bytes:
    """Letter and value."""
    letter, plain = value if isinstance(value, T) else (_usual_letter(value), value)
    head = letter.encode()
    if letter in _FIXED:
        return head + struct.pack(_FIXED[letter], plain)
    if letter == "V":
        return head
    if letter == "D":
        assert isinstance(plain, tuple)
        return head + struct.pack(">BI", *plain)
    if letter == "F":
        assert isinstance(plain, Mapping | bytes)
        return head + table_bytes(plain)
    if letter == "A":
        assert isinstance(plain, list)
        return head + _long(b"".join(map(value_bytes, plain)))
    assert isinstance(plain, str | bytes)
    return head + _long(plain.encode() if isinstance(plain, str) else plain)


def _usual_letter(value: object) -> str:
    if value is None:
        return "V"
    if isinstance(value, bool):
        return "t"
    if isinstance(value, int):
        return "I" if -(1 << 31) <= value < 1 << 31 else "l"
    if isinstance(value, float):
        return "d"
    if isinstance(value, list):
        return "A"
    return "F" if isinstance(value, Mapping) else "S"


def short_bytes(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return bytes((len(raw),)) + raw


def _long(raw: bytes) -> bytes:
    return struct.pack(">I", len(raw)) + raw


def method_bytes(method: Method, channel: int) -> bytes:
    """The whole frame; the method's arguments, if it has any, in letters as given."""
    arguments = getattr(method, "arguments", None)
    if not arguments:
        return encode_method(method, channel)
    # The table is the last argument wherever there is one: an empty one, four bytes of length, gives way to it.
    method.arguments = {}  # type: ignore[attr-defined]  # every method with a table calls it so
    payload = encode_method(method, channel)[HEAD_BYTES:-1]
    method.arguments = arguments  # type: ignore[attr-defined]  # as above
    return encode_frame(METHOD, channel, payload[:-4] + table_bytes(arguments))


def properties_bytes(properties: Mapping[str, object]) -> bytes:
    """Flags and values of these properties, in wire order."""
    assert not set(properties) - set(_PROPERTIES), properties
    flags = 0
    values = b""
    for index, name in enumerate(_PROPERTIES):
        if name not in properties:
            continue
        value = properties[name]
        flags |= 1 << 15 - index
        if isinstance(value, Mapping | bytes) and name == "headers":
            values += table_bytes(value)
        elif isinstance(value, int):
            values += struct.pack(">Q" if name == "timestamp" else ">B", value)
        else:
            values += short_bytes(str(value))
    return struct.pack(">H", flags) + values

"""Table: AMQP's field tables, bytes to dict and back, in RabbitMQ's type letters (its errata to the specification).

Used by argument.py for method arguments and by properties.py for headers; cold, nothing per message needs it.
Letters and widths are those of RabbitMQ's rabbit_binary_parser: `L` is signed like `l`, `D` has an unsigned value, a
float is never NaN or infinite. Of a key given twice, RabbitMQ's lookup finds the first, so the first is kept.
A table that cannot be read closes the connection with 501: RabbitMQ 3.10 drops the socket without a word, a code says
why.
Not here: what an argument means (broker).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from struct import Struct, error
from typing import Final, NamedTuple, NoReturn, TypeAlias

from penstock.amqp.bounds import TABLE_DEPTH_MAX, UNBOUNDED, Bounds
from penstock.amqp.close import FRAME_ERROR, CloseConnection


class Timestamp(NamedTuple):
    """Letter `T`: seconds since 1970, 64 bits unsigned; no datetime, which cannot hold them all."""

    seconds: int


class ByteArray(NamedTuple):
    """Letter `x`: bytes, told apart from the long string `S` that most clients use for bytes."""

    value: bytes


# A long string that is no UTF-8 is `bytes`; it goes back out as a long string.
Value: TypeAlias = (
    "bool | int | float | Decimal | str | bytes | Timestamp | ByteArray | list[Value] | dict[str, Value] | None"
)
Table = dict[str, Value]

SHORT_STRING_BYTES_MAX: Final = 255  # the length is one byte

_INT8: Final = Struct(">b")
_INT16: Final = Struct(">h")
_UINT16: Final = Struct(">H")
_INT32: Final = Struct(">i")
_UINT32: Final = Struct(">I")
_INT64: Final = Struct(">q")
_UINT64: Final = Struct(">Q")
_FLOAT: Final = Struct(">f")
_DOUBLE: Final = Struct(">d")
_DECIMAL: Final = Struct(">BI")


class _TooDeep(Exception):
    """Tables or arrays inside each other beyond the bound."""


def decode_table(buf: bytes, pos: int, bounds: Bounds = UNBOUNDED) -> tuple[Table, int]:
    """Read the table whose length starts at `pos`; return it and the position behind it."""
    try:
        start, stop = _read_extent(buf, pos, len(buf))
        size = stop - start
        if size > bounds.table_bytes:
            _broken(f"its {size} bytes are more than limits.table_bytes, {bounds.table_bytes}")
        table = _read_table(buf, start, stop, bounds.table_depth)
    except (IndexError, error):
        _broken("it ends too early")
    except _TooDeep:
        _broken(f"nested deeper than limits.table_depth, {bounds.table_depth}")
    # No entry is shorter than a byte: most tables need not be counted.
    if size > bounds.table_entries and _count(table) > bounds.table_entries:
        _broken(f"its {_count(table)} entries are more than limits.table_entries, {bounds.table_entries}")
    return table, stop


def encode_table(table: Mapping[str, Value]) -> bytes:
    """The table with its length in front. A value that has no letter, or does not fit one, is a ValueError."""
    out = bytearray()
    _write_table(out, table, 1)
    return bytes(out)


def encode_short_string(text: str) -> bytes:
    """One length byte and the text as UTF-8. Too long is our bug, not the peer's: a ValueError."""
    encoded = text.encode("utf-8", "surrogateescape")
    if len(encoded) > SHORT_STRING_BYTES_MAX:
        raise ValueError(f"short string of {len(encoded)} bytes: {text[:32]!r}...")
    return bytes((len(encoded),)) + encoded


def _broken(why: str) -> NoReturn:
    raise CloseConnection(FRAME_ERROR, f"cannot decode table: {why}")


def _read_extent(buf: bytes, pos: int, end: int) -> tuple[int, int]:
    """Where the content behind a 32-bit length starts and stops, inside `end`: what encloses it."""
    start = pos + 4
    stop: int = start + _UINT32.unpack_from(buf, pos)[0]
    if stop > end:
        _broken("a length runs past its end")
    return start, stop


def _read_table(buf: bytes, pos: int, stop: int, depth: int) -> Table:
    """The entries from `pos` to `stop`; `depth` levels may still be opened, this one included."""
    if not depth:
        raise _TooDeep
    table: Table = {}
    while pos < stop:
        key_stop = pos + 1 + buf[pos]
        if key_stop >= stop:
            _broken("a key runs past its end")
        # Keys are bytes to RabbitMQ; surrogates keep what is not UTF-8 apart and intact.
        key = buf[pos + 1 : key_stop].decode("utf-8", "surrogateescape")
        value, pos = _read_value(buf, key_stop, stop, depth)
        if key not in table:
            table[key] = value
    if pos != stop:
        _broken("a value runs past its end")
    return table


def _read_array(buf: bytes, pos: int, stop: int, depth: int) -> list[Value]:
    if not depth:
        raise _TooDeep
    values: list[Value] = []
    while pos < stop:
        value, pos = _read_value(buf, pos, stop, depth)
        values.append(value)
    if pos != stop:
        _broken("a value runs past its end")
    return values


def _read_value(buf: bytes, pos: int, end: int, depth: int) -> tuple[Value, int]:
    """Read letter and value. A fixed-width value may pass `end`: the enclosing loop sees that from the position."""
    letter = chr(buf[pos])
    pos += 1
    if letter == "S":
        start, stop = _read_extent(buf, pos, end)
        raw = buf[start:stop]
        try:
            return raw.decode("utf-8"), stop
        except UnicodeDecodeError:
            return raw, stop
    if letter == "I":
        return _INT32.unpack_from(buf, pos)[0], pos + 4
    if letter == "t":
        return buf[pos] != 0, pos + 1
    if letter == "F":
        start, stop = _read_extent(buf, pos, end)
        return _read_table(buf, start, stop, depth - 1), stop
    if letter == "A":
        start, stop = _read_extent(buf, pos, end)
        return _read_array(buf, start, stop, depth - 1), stop
    if letter in "lL":
        return _INT64.unpack_from(buf, pos)[0], pos + 8
    if letter == "T":
        return Timestamp(_UINT64.unpack_from(buf, pos)[0]), pos + 8
    if letter == "V":
        return None, pos
    if letter == "d":
        return _finite(_DOUBLE.unpack_from(buf, pos)[0]), pos + 8
    if letter == "f":
        return _finite(_FLOAT.unpack_from(buf, pos)[0]), pos + 4
    if letter == "x":
        start, stop = _read_extent(buf, pos, end)
        return ByteArray(buf[start:stop]), stop
    if letter == "i":
        return _UINT32.unpack_from(buf, pos)[0], pos + 4
    if letter == "s":
        return _INT16.unpack_from(buf, pos)[0], pos + 2
    if letter == "u":
        return _UINT16.unpack_from(buf, pos)[0], pos + 2
    if letter == "b":
        return _INT8.unpack_from(buf, pos)[0], pos + 1
    if letter == "B":
        return buf[pos], pos + 1
    if letter == "D":
        scale, unscaled = _DECIMAL.unpack_from(buf, pos)
        return Decimal(f"{unscaled}E-{scale}"), pos + 5
    _broken(f"unknown type {letter!r}")


def _count(value: Value) -> int:
    """Keys and array elements, on all levels."""
    if isinstance(value, dict):
        return len(value) + sum(map(_count, value.values()))
    return len(value) + sum(map(_count, value)) if isinstance(value, list) else 0


def _finite(number: float) -> float:
    if not math.isfinite(number):
        _broken("a float that is not finite")
    return number


def _write_table(out: bytearray, table: Mapping[str, Value], depth: int) -> None:
    if depth > TABLE_DEPTH_MAX:
        raise ValueError(f"table nested deeper than {TABLE_DEPTH_MAX}")
    start = len(out)
    out += b"\0\0\0\0"
    for key, value in table.items():
        out += encode_short_string(key)
        _write_value(out, value, depth)
    # The length is filled in afterwards: joining each level's own bytes would copy a deep table once per level.
    _UINT32.pack_into(out, start, len(out) - start - 4)


def _write_array(out: bytearray, values: list[Value], depth: int) -> None:
    if depth > TABLE_DEPTH_MAX:
        raise ValueError(f"table nested deeper than {TABLE_DEPTH_MAX}")
    start = len(out)
    out += b"\0\0\0\0"
    for value in values:
        _write_value(out, value, depth)
    _UINT32.pack_into(out, start, len(out) - start - 4)


def _write_value(out: bytearray, value: Value, depth: int) -> None:
    if value is None:
        out += b"V"
    elif isinstance(value, bool):  # before int: a bool is one
        out += b"t\1" if value else b"t\0"
    elif isinstance(value, int):
        _write_int(out, value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"RabbitMQ's tables have no {value}")
        out += b"d" + _DOUBLE.pack(value)
    elif isinstance(value, str):
        _write_bytes(out, b"S", value.encode("utf-8"))
    elif isinstance(value, bytes):
        _write_bytes(out, b"S", value)
    elif isinstance(value, dict):
        out += b"F"
        _write_table(out, value, depth + 1)
    elif isinstance(value, list):
        out += b"A"
        _write_array(out, value, depth + 1)
    elif isinstance(value, Timestamp):
        if not 0 <= value.seconds < 1 << 64:
            raise ValueError(f"timestamp out of range: {value.seconds}")
        out += b"T" + _UINT64.pack(value.seconds)
    elif isinstance(value, ByteArray):
        _write_bytes(out, b"x", value.value)
    else:
        _write_decimal(out, value)


def _write_int(out: bytearray, value: int) -> None:
    # Only `I` and `l`: every client reads them alike, while the other letters differ from client to client.
    if -(1 << 31) <= value < 1 << 31:
        out += b"I" + _INT32.pack(value)
    elif -(1 << 63) <= value < 1 << 63:
        out += b"l" + _INT64.pack(value)
    else:
        raise ValueError(f"integer does not fit 64 bits: {value}")


def _write_bytes(out: bytearray, letter: bytes, value: bytes) -> None:
    out += letter
    out += _UINT32.pack(len(value))
    out += value


def _write_decimal(out: bytearray, value: Decimal) -> None:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueError(f"RabbitMQ's tables have no {value}")
    unscaled = int("".join(map(str, digits)) or "0")
    scale = -exponent
    if scale < 0 and unscaled == 0:
        scale = 0
    elif -10 <= scale < 0:  # ten digits are the most that fit 32 bits
        unscaled *= 10**-scale
        scale = 0
    if not 0 <= scale <= 255 or unscaled >= 1 << 32 or (sign and unscaled):
        raise ValueError(f"decimal does not fit scale and 32 bits unsigned: {value}")
    out += b"D" + _DECIMAL.pack(scale, unscaled)


def table_entries(buf: bytes, pos: int) -> list[tuple[str, int, int]]:
    """Key, start and stop of every entry of the well-formed table at `pos`, duplicates too: to copy them as bytes."""
    pos, stop = _read_extent(buf, pos, len(buf))
    entries: list[tuple[str, int, int]] = []
    while pos < stop:
        start = pos
        key_stop = pos + 1 + buf[pos]
        key = buf[pos + 1 : key_stop].decode("utf-8", "surrogateescape")
        _, pos = _read_value(buf, key_stop, stop, TABLE_DEPTH_MAX)
        entries.append((key, start, pos))
    return entries

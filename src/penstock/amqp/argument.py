"""Argument: the arguments of a method, bytes to values and back, as a string of type codes tells.

    o octet   h short   l long   L longlong   S long string   t table
    s short string, UTF-8   n short string, any bytes   b bit: neighbours share an octet, the lowest bit first

A "-" before a code marks a reserved argument: read and forgotten, written as zero or empty.
`n` stands in methods that carry content: RabbitMQ does not check their strings, so bytes that are no UTF-8 must come
out as they came in. Arguments that cannot be read are 501 with RabbitMQ's words; so are bytes behind the last one.
Used by method.py. Not here: the methods and their codes (session.py, method.py), frames (frame.py), properties of
messages (properties.py).
"""

from __future__ import annotations

from struct import Struct, error
from typing import Final

from penstock.amqp.bounds import UNBOUNDED, Bounds
from penstock.amqp.close import FRAME_ERROR, CloseConnection
from penstock.amqp.table import Table, decode_table, encode_short_string, encode_table

Argument = bool | int | str | bytes | Table

SHOWN_BYTES_MAX: Final = 64  # four characters each in the text, which ends at 255

_SHORT: Final = Struct(">H")
_LONG: Final = Struct(">I")
_LONGLONG: Final = Struct(">Q")


def cannot_decode(buf: bytes, pos: int) -> CloseConnection:
    """What RabbitMQ answers to arguments, from `pos` on, that do not fit their method."""
    shown = ",".join(map(str, buf[pos : pos + SHOWN_BYTES_MAX]))
    rest = ",..." if len(buf) - pos > SHOWN_BYTES_MAX else ""
    return CloseConnection(FRAME_ERROR, f"cannot decode <<{shown}{rest}>>")


class MalformedText(CloseConnection):
    """A name that is not UTF-8. RabbitMQ does not say in which method."""

    __slots__ = ()


def read_arguments(wire: str, buf: bytes, pos: int, bounds: Bounds = UNBOUNDED) -> list[Argument]:
    """The arguments from `pos` to the end of `buf`, without the reserved ones."""
    try:
        return _read(wire, buf, pos, bounds)
    except (IndexError, error):
        raise cannot_decode(buf, pos) from None
    except UnicodeDecodeError:
        raise MalformedText(FRAME_ERROR, "Malformed UTF-8 in shortstr") from None


def _read(wire: str, buf: bytes, start: int, bounds: Bounds) -> list[Argument]:
    pos = start
    values: list[Argument] = []
    value: Argument
    reserved = False
    bit = 0  # of the octet before `pos`, the bit that comes next; 0 when a new octet must be begun
    for code in wire:
        if code == "-":
            reserved = True
            continue
        if code == "b":
            if bit == 0:
                pos += 1
            value = bool(buf[pos - 1] >> bit & 1)
            bit = (bit + 1) % 8
        else:
            bit = 0
            value, pos = _read_one(code, buf, pos, bounds)
        if not reserved:
            values.append(value)
        reserved = False
    if pos != len(buf):
        raise cannot_decode(buf, start)
    return values


def _read_one(code: str, buf: bytes, pos: int, bounds: Bounds) -> tuple[Argument, int]:
    """One argument other than a bit. A string cut short ends behind `buf`, which the caller sees from the position."""
    if code == "s":
        stop = pos + 1 + buf[pos]
        if stop > len(buf):  # or a character cut in two would be the fault
            return "", stop
        return buf[pos + 1 : stop].decode("utf-8"), stop
    if code == "n":
        stop = pos + 1 + buf[pos]
        return buf[pos + 1 : stop].decode("utf-8", "surrogateescape"), stop
    if code == "h":
        return int(_SHORT.unpack_from(buf, pos)[0]), pos + 2
    if code == "t":
        stop = pos + 4 + int(_LONG.unpack_from(buf, pos)[0])
        if stop > len(buf):
            raise IndexError
        return decode_table(buf, pos, bounds)
    if code == "L":
        return int(_LONGLONG.unpack_from(buf, pos)[0]), pos + 8
    if code == "l":
        return int(_LONG.unpack_from(buf, pos)[0]), pos + 4
    if code == "S":
        stop = pos + 4 + int(_LONG.unpack_from(buf, pos)[0])
        return buf[pos + 4 : stop], stop
    assert code == "o", code
    return buf[pos], pos + 1


def write_arguments(wire: str, values: list[Argument]) -> bytes:
    """The bytes of `values`, which are the arguments of `wire` without the reserved ones."""
    out = bytearray()
    taken = 0
    reserved = False
    bit = 0
    for code in wire:
        if code == "-":
            reserved = True
            continue
        value: Argument | None = None
        if not reserved:
            value = values[taken]
            taken += 1
        reserved = False
        if code != "b":
            bit = 0
            _write_one(out, code, value)
            continue
        if bit == 0:
            out.append(0)
        if value:
            out[-1] |= 1 << bit
        bit = (bit + 1) % 8
    return bytes(out)


def _write_one(out: bytearray, code: str, value: Argument | None) -> None:
    """One argument other than a bit; None is a reserved one."""
    if code in "sn":
        if value is None:
            value = ""
        assert isinstance(value, str), value
        out += encode_short_string(value)
    elif code == "S":
        if value is None:
            value = b""
        assert isinstance(value, bytes), value
        out += _LONG.pack(len(value))
        out += value
    elif code == "t":
        assert isinstance(value, dict), value
        out += encode_table(value)
    else:
        if value is None:
            value = 0
        assert isinstance(value, int), value
        out += _pack_int(code, value)


def _pack_int(code: str, value: int) -> bytes:
    if code == "h":
        return _SHORT.pack(value)
    if code == "l":
        return _LONG.pack(value)
    if code == "L":
        return _LONGLONG.pack(value)
    assert code == "o", code
    return bytes((value,))

"""Equivalence: is what a client declares the same as what is there? RabbitMQ's rules and words.

RabbitMQ compares and shows the Erlang terms behind table values: a timestamp is its number, a byte array its bytes, a
decimal a pair, an array a list of pairs. `form` and `term` are these, for comparing and for texts.
Not here: which arguments are compared (vhost.py), which are right (arguments.py).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from penstock.amqp.close import PRECONDITION_FAILED, CloseChannel
from penstock.amqp.table import ByteArray, Table, Timestamp, Value, encode_table

Form = int | float | bytes | tuple[str, int | bytes]

_ESCAPES: Final = {34: '\\"', 92: "\\\\", 8: "\\b", 9: "\\t", 10: "\\n", 11: "\\v", 12: "\\f", 13: "\\r", 27: "\\e"}


def check_flag(name: str, where: str, received: bool | str, current: bool | str) -> None:
    if received != current:
        raise CloseChannel(
            PRECONDITION_FAILED,
            f"inequivalent arg '{name}' for {where}: received '{_word(received)}' but current is '{_word(current)}'",
        )


def check_arguments(names: tuple[str, ...], where: str, received: Table, current: Table) -> None:
    for name in names:
        if name in received and name in current:
            got, had = received[name], current[name]
            if form(got) == form(had) and isinstance(got, float) == isinstance(had, float):
                continue
            words = f"received {_quoted(got)} but current is {_quoted(had)}"
        elif name in received or name in current:
            words = f"received {_described(name, received)} but current is {_described(name, current)}"
        else:
            continue
        raise CloseChannel(PRECONDITION_FAILED, f"inequivalent arg '{name}' for {where}: {words}")


def _word(value: bool | str) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _described(name: str, table: Table) -> str:
    if name not in table:
        return "none"
    return f"the value '{_shown(table[name])}' of type '{type_name(table[name])}'"


def _quoted(value: Value) -> str:
    return "none" if value is None else f"'{_shown(value)}'"


def _shown(value: Value) -> str:
    """Strings as they are, anything else as a term."""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, ByteArray)):
        return _bytes(value).decode("utf-8", "replace")
    return term(value)


def form(value: Value) -> Form:
    """What RabbitMQ's `==` sees of a table value, to compare and to look up: 1 is 1.0 and a timestamp of 1, not true.

    Inside tables and arrays types and order count; an empty table is an empty array."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bool):
        return "bool", int(value)
    if isinstance(value, (int, float, bytes)):
        return value
    if isinstance(value, (ByteArray, Timestamp)):
        return value[0]
    if value is None:
        return "void", 0
    if isinstance(value, Decimal):
        return "decimal", str(value).encode()
    return "list", encode_table({"": value}) if value else 0


def _bytes(value: str | bytes | ByteArray) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    return value.value if isinstance(value, ByteArray) else value


def term(value: Value) -> str:
    """The value as Erlang prints it."""
    if value is None:
        return "undefined"
    if isinstance(value, bool):
        return _word(value)
    if isinstance(value, Timestamp):
        return str(value.seconds)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _float_term(value)
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        return f"{{{-int(exponent)},{int(''.join(map(str, digits)))}}}"
    if isinstance(value, list):
        return "[" + ",".join(f"{{{type_name(one)},{term(one)}}}" for one in value) + "]"
    if isinstance(value, dict):
        return "[" + ",".join(f"{{{term(key)},{type_name(one)},{term(one)}}}" for key, one in value.items()) + "]"
    return _binary_term(_bytes(value))


def _binary_term(raw: bytes) -> str:
    """As text if every byte is a printable character of Latin-1, else as numbers."""
    if not raw:
        return "<<>>"
    if not all(32 <= byte < 127 or byte >= 160 or byte in _ESCAPES for byte in raw):
        return "<<" + ",".join(map(str, raw)) + ">>"
    # The bytes above 127 go out as they are, so that UTF-8 stays readable.
    escaped = b"".join(_ESCAPES[byte].encode() if byte in _ESCAPES else bytes((byte,)) for byte in raw)
    return f'<<"{escaped.decode("utf-8", "replace")}">>'


def _float_term(value: float) -> str:
    """The shortest digits, with an exponent where that is shorter: 100.0, but 1.0e3."""
    sign = "-" if str(value).startswith("-") else ""
    _, digits, exponent = Decimal(repr(abs(value))).normalize().as_tuple()
    text = "".join(map(str, digits))
    if text == "0":
        return sign + "0.0"
    point = len(text) + int(exponent)  # digits before the decimal point
    scientific = f"{text[0]}.{text[1:] or '0'}e{point - 1}"
    if point <= 0:
        plain = "0." + "0" * -point + text
    elif point >= len(text):
        plain = text + "0" * (point - len(text)) + ".0"
    else:
        return f"{sign}{text[:point]}.{text[point:]}"
    return sign + (plain if len(plain) <= len(scientific) else scientific)


def type_name(value: Value) -> str:
    """AMQP's name for the type of a table value, as RabbitMQ's texts have it."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "signedint" if -(1 << 31) <= value < 1 << 31 else "long"
    if isinstance(value, float):
        return "double"
    if isinstance(value, Decimal):
        return "decimal"
    if isinstance(value, Timestamp):
        return "timestamp"
    if isinstance(value, ByteArray):
        return "binary"
    if isinstance(value, dict):
        return "table"
    if isinstance(value, list):
        return "array"
    return "void" if value is None else "longstr"

"""Equivalence: is what a client declares the same as what is there? RabbitMQ's rules and words."""

from __future__ import annotations

from decimal import Decimal

from penstock.amqp.close import PRECONDITION_FAILED, CloseChannel
from penstock.amqp.table import ByteArray, Table, Timestamp, Value


def check_flag(name: str, where: str, received: bool | str, current: bool | str) -> None:
    if received != current:
        raise CloseChannel(
            PRECONDITION_FAILED,
            f"inequivalent arg '{name}' for {where}: received '{_word(received)}' but current is '{_word(current)}'",
        )


def check_arguments(names: tuple[str, ...], where: str, received: Table, current: Table) -> None:
    for name in names:
        got, had = received.get(name), current.get(name)
        if got == had and isinstance(got, bool) == isinstance(had, bool):
            continue
        if got is None or had is None:
            words = f"received {_described(got)} but current is {_described(had)}"
        else:
            words = f"received '{_shown(got)}' but current is '{_shown(had)}'"
        raise CloseChannel(PRECONDITION_FAILED, f"inequivalent arg '{name}' for {where}: {words}")


def _word(value: bool | str) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _described(value: Value) -> str:
    if value is None:
        return "none"
    return f"the value '{_shown(value)}' of type '{type_name(value)}'"


def _shown(value: Value) -> str:
    return _word(value) if isinstance(value, (bool, str)) else repr(value)


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

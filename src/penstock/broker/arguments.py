"""Arguments: the `x-` arguments of queue.declare, checked as RabbitMQ checks them, in its words.

An argument that is not known is accepted and ignored, as in RabbitMQ.
Not here: what an argument does; comparing two declarations (equivalence.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.amqp.close import NOT_IMPLEMENTED, PRECONDITION_FAILED, CloseChannel, CloseConnection
from penstock.amqp.table import Table, Value
from penstock.broker.equivalence import type_name

MILLISECONDS_MAX: Final = (1 << 32) - 1  # RabbitMQ's: what an Erlang timer can wait
PRIORITY_MAX: Final = 255
QUEUE_TYPES_TO_COME: Final = ("quorum", "stream")
OF_OTHER_TYPES: Final = (  # what RabbitMQ refuses for classic queues; x-delivery-limit it refuses too, we have it
    "x-dead-letter-strategy",
    "x-initial-cluster-size",
    "x-max-age",
    "x-max-in-memory-bytes",
    "x-max-in-memory-length",
    "x-queue-leader-locator",
    "x-quorum-initial-group-size",
    "x-stream-max-segment-size-bytes",
)


def _count(value: Value) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return f'"expected integer, got {type_name(value)}"'
    return f"{{value_negative,{value}}}" if value < 0 else ""


def _milliseconds(value: Value) -> str:
    fault = _count(value)
    if not fault and isinstance(value, int) and value > MILLISECONDS_MAX:
        return f"{{value_too_large,{value}}}"
    return fault


def _milliseconds_not_zero(value: Value) -> str:
    return "{value_zero,0}" if value == 0 and type_name(value) == "signedint" else _milliseconds(value)


def _priority(value: Value) -> str:
    fault = _count(value)
    if not fault and isinstance(value, int) and value > PRIORITY_MAX:
        return f"{{max_value_exceeded,{value}}}"
    return fault


def _text(value: Value) -> str:
    return "" if isinstance(value, str) else f"{{unacceptable_type,{type_name(value)}}}"


def _flag(value: Value) -> str:
    return "" if isinstance(value, bool) else f"{{unacceptable_type,{type_name(value)}}}"


def _overflow(value: Value) -> str:
    return _text(value) or (
        "" if value in ("drop-head", "reject-publish", "reject-publish-dlx") else "invalid_overflow"
    )


def _mode(value: Value) -> str:
    return _text(value) or ("" if value in ("default", "lazy") else f"\"unsupported queue mode '{value!s}'\"")


def _version(value: Value) -> str:
    return _count(value) or ("" if value in (1, 2) else f"\"unsupported queue version '{value!s}'\"")


def _type(value: Value) -> str:
    known = value == "classic" or value in QUEUE_TYPES_TO_COME
    return _text(value) or ("" if known else f"\"unsupported queue type '{value!s}'\"")


CHECKS: Final[dict[str, Callable[[Value], str]]] = {
    "x-expires": _milliseconds_not_zero,
    "x-message-ttl": _milliseconds,
    "x-max-length": _count,
    "x-max-length-bytes": _count,
    "x-max-priority": _priority,
    "x-overflow": _overflow,
    "x-queue-mode": _mode,
    "x-delivery-limit": _count,
    "x-queue-version": _version,
    "x-queue-type": _type,
    "x-dead-letter-routing-key": _text,
    "x-single-active-consumer": _flag,
}


def check_queue_arguments(where: str, arguments: Table) -> None:
    for name in OF_OTHER_TYPES:
        if name in arguments:
            raise CloseChannel(
                PRECONDITION_FAILED, f"invalid arg '{name}' for {where} of queue type rabbit_classic_queue"
            )
    for name, check in CHECKS.items():
        if name in arguments:
            fault = check(arguments[name])
            if fault:
                raise CloseChannel(PRECONDITION_FAILED, f"invalid arg '{name}' for {where}: {fault}")
    exchange = arguments.get("x-dead-letter-exchange", "")
    if not isinstance(exchange, (str, bytes)):
        raise CloseChannel(
            PRECONDITION_FAILED, f"invalid type '{type_name(exchange)}' for arg 'x-dead-letter-exchange' in {where}"
        )
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        name = "x-dead-letter-routing-key"
        raise CloseChannel(PRECONDITION_FAILED, f"invalid arg '{name}' for {where}: routing_key_but_no_dlx_defined")
    kind = arguments.get("x-queue-type", "classic")
    if kind in QUEUE_TYPES_TO_COME:
        raise CloseConnection(NOT_IMPLEMENTED, f"x-queue-type '{kind!s}' is not supported yet")

"""Arguments: the `x-` arguments of queue.declare, checked as RabbitMQ checks them, in its words.

An argument that is not known is accepted and ignored, as in RabbitMQ. Watermarks are Qpid's; policies have them too, so
both are checked here.
Not here: what an argument does; comparing two declarations (equivalence.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from penstock.amqp.close import NOT_IMPLEMENTED, PRECONDITION_FAILED, CloseChannel, CloseConnection
from penstock.amqp.table import Table, Value
from penstock.broker.age import age_ms
from penstock.broker.equivalence import type_name
from penstock.credit.watermark import STOP_PERCENT, default_stop

MILLISECONDS_MAX: Final = (1 << 32) - 1  # RabbitMQ's: what an Erlang timer can wait
PRIORITY_MAX: Final = 255
QUEUE_TYPES_TO_COME: Final = ("quorum",)
STREAM: Final = "stream"
SEGMENT_BYTES_MAX: Final = 3_000_000_000  # RabbitMQ's
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
OF_STREAMS: Final = (  # all that has a meaning for one; RabbitMQ refuses the others it knows
    "x-initial-cluster-size",
    "x-max-age",
    "x-max-length-bytes",
    "x-queue-leader-locator",
    "x-queue-type",
    "x-stream-max-segment-size-bytes",
)
OVERFLOWS: Final = ("drop-head", "reject-publish", "reject-publish-dlx", "block-publish")
MARK_SPELLINGS: Final[dict[str, tuple[str, ...]]] = {  # ours, Qpid C++'s, Qpid Java's; the first that is there counts
    "flow-stop-count": ("x-flow-stop-count", "qpid.flow_stop_count"),
    "flow-resume-count": ("x-flow-resume-count", "qpid.flow_resume_count"),
    "flow-stop-bytes": ("x-flow-stop-bytes", "qpid.flow_stop_size", "x-qpid-capacity"),
    "flow-resume-bytes": ("x-flow-resume-bytes", "qpid.flow_resume_size", "x-qpid-flow-resume-capacity"),
}
MARKS: Final = tuple(spelling for spellings in MARK_SPELLINGS.values() for spelling in spellings)


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
    return _text(value) or ("" if value in OVERFLOWS else "invalid_overflow")


def _mode(value: Value) -> str:
    return _text(value) or ("" if value in ("default", "lazy") else f"\"unsupported queue mode '{value!s}'\"")


def _version(value: Value) -> str:
    return _count(value) or ("" if value in (1, 2) else f"\"unsupported queue version '{value!s}'\"")


def _type(value: Value) -> str:
    known = value in ("classic", STREAM) or value in QUEUE_TYPES_TO_COME
    return _text(value) or ("" if known else f"\"unsupported queue type '{value!s}'\"")


def _age(value: Value) -> str:
    is_age = isinstance(value, str) and age_ms(value) >= 0
    return _text(value) or ("" if is_age else f"\"'{value!s}' is no age like 7D\"")


def _segment_bytes(value: Value) -> str:
    fault = _count(value)
    if not fault and isinstance(value, int) and value > SEGMENT_BYTES_MAX:
        return f"{{max_value_exceeded,{value}}}"
    return fault


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
    "x-max-age": _age,
    "x-stream-max-segment-size-bytes": _segment_bytes,
    **dict.fromkeys(MARKS, _count),
}


NOT_OF_STREAMS: Final = tuple(
    name for name in (*CHECKS, *OF_OTHER_TYPES, "x-dead-letter-exchange") if name not in OF_STREAMS
)


def check_queue_arguments(where: str, arguments: Table) -> None:
    if arguments.get("x-queue-type") == STREAM:
        kind, refused = "rabbit_stream_queue", NOT_OF_STREAMS
    else:
        kind, refused = "rabbit_classic_queue", OF_OTHER_TYPES
    for name in refused:
        if name in arguments:
            raise CloseChannel(PRECONDITION_FAILED, f"invalid arg '{name}' for {where} of queue type {kind}")
    for name, check in CHECKS.items():
        if name in arguments:
            fault = check(arguments[name])
            if fault:
                raise CloseChannel(PRECONDITION_FAILED, f"invalid arg '{name}' for {where}: {fault}")
    name, fault = contradiction(arguments, "x-")
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
    wanted = arguments.get("x-queue-type", "classic")
    if wanted in QUEUE_TYPES_TO_COME:
        raise CloseConnection(NOT_IMPLEMENTED, f"x-queue-type '{wanted!s}' is not supported yet")


def check_stream_flags(where: str, durable: bool, exclusive: bool, auto_delete: bool) -> None:
    """A stream outlives everybody who uses it."""
    wrong = (("non-durable", not durable), ("exclusive-owner", exclusive), ("auto-delete", auto_delete))
    for name, is_wrong in wrong:
        if is_wrong:
            raise CloseChannel(PRECONDITION_FAILED, f"invalid property '{name}' for {where}")


def contradiction(given: Mapping[str, object], prefix: str) -> tuple[str, str]:
    """The first mark that contradicts another one or the maximum, and how; ("", "") if none does.

    `given` are arguments or, with an empty prefix, a policy. Types have been checked."""
    for dimension, maximum_name in (("count", "max-length"), ("bytes", "max-length-bytes")):
        stop_name, stop = _mark(given, f"flow-stop-{dimension}", prefix)
        resume_name, resume = _mark(given, f"flow-resume-{dimension}", prefix)
        maximum = given.get(prefix + maximum_name)
        if stop_name and isinstance(maximum, int) and stop > maximum:
            return stop_name, f"{stop} is greater than {prefix}{maximum_name} {maximum}"
        if not resume_name:
            continue
        if stop_name:
            if resume > stop:
                return resume_name, f"{resume} is greater than {stop_name} {stop}"
        elif isinstance(maximum, int):
            if resume > default_stop(maximum):
                share = f"{STOP_PERCENT} % of {prefix}{maximum_name} {maximum}"
                return resume_name, f"{resume} is greater than the stop mark of {default_stop(maximum)}, {share}"
        elif prefix:  # in a policy it may be there for queues that have a stop mark of their own
            return resume_name, f"{resume} without a stop mark or {prefix}{maximum_name}"
    return "", ""


def _mark(given: Mapping[str, object], name: str, prefix: str) -> tuple[str, int]:
    """Under which name it is given, if it is, and the number."""
    for spelling in MARK_SPELLINGS[name] if prefix else (name,):
        value = given.get(spelling)
        if isinstance(value, int):
            return spelling, value
    return "", 0

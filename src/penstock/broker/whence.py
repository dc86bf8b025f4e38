"""Whence: where in a stream a consumer begins, and where it ends, from the arguments of basic.consume.

`x-stream-offset` is RabbitMQ's, in all its forms. `x-stream-stop-offset` and `x-stream-query` are Penstock's: a
consumer that ends by itself, and a question that is answered by one message.
Not here: reading (cursor.py).
"""

from __future__ import annotations

from typing import Final

from penstock.amqp.close import NOT_IMPLEMENTED, PRECONDITION_FAILED, CloseChannel, CloseConnection
from penstock.amqp.table import Table, Timestamp, Value
from penstock.broker.age import age_ms
from penstock.broker.equivalence import term, type_name
from penstock.store.stream import StreamLog

OFFSET_HEADER: Final = "x-stream-offset"  # of a delivery; and the argument
STOP_ARGUMENT: Final = "x-stream-stop-offset"
QUERY_ARGUMENT: Final = "x-stream-query"
ENDLESS: Final = 1 << 62  # the stop of a consumer that has none

MS_PER_S: Final = 1000


class Whence:
    """What a consumer of a stream asked for."""

    __slots__ = ("_offset", "is_query", "stop")

    def __init__(self, offset: Value, stop: int, is_query: bool) -> None:
        self._offset = offset
        self.stop = stop
        self.is_query = is_query

    def resolve(self, log: StreamLog, now_ms: int) -> int:
        """The first offset wanted, as of now."""
        offset = self._offset
        if isinstance(offset, int):
            return max(offset, log.first)
        if isinstance(offset, Timestamp):
            return log.offset_at(offset.seconds * MS_PER_S)
        if offset == "first":
            return log.first
        if offset == "last":
            return log.last_batch()
        if isinstance(offset, str) and offset != "next":
            return log.offset_at(now_ms - age_ms(offset))
        return log.synced


def whence(where: str, arguments: Table, no_ack: bool, prefetch: int) -> Whence:
    """Check what a consumer asks for, in RabbitMQ's words."""
    stop = arguments.get(STOP_ARGUMENT)
    query = arguments.get(QUERY_ARGUMENT)
    if query is not None and not isinstance(query, bool):
        raise _invalid(QUERY_ARGUMENT, where, f'"expected boolean, got {type_name(query)}"')
    if stop is not None and (isinstance(stop, bool) or not isinstance(stop, int)):
        raise _invalid(STOP_ARGUMENT, where, f'"expected integer, got {type_name(stop)}"')
    offset = arguments.get(OFFSET_HEADER, "next")
    _check_offset(where, offset)
    if query is not True:
        if no_ack and stop is None:
            raise CloseConnection(NOT_IMPLEMENTED, f"automatic acknowledgement not supported by stream queues {where}")
        if not no_ack and not prefetch:
            raise CloseChannel(PRECONDITION_FAILED, f"consumer prefetch count is not set for '{where}'")
    return Whence(offset, stop if isinstance(stop, int) else ENDLESS, query is True)


def check_no_stream(where: str, arguments: Table) -> None:
    """A consumer of an ordinary queue takes messages away: it must not believe that it only reads."""
    for name in (OFFSET_HEADER, STOP_ARGUMENT, QUERY_ARGUMENT):
        if name in arguments:
            raise CloseChannel(
                PRECONDITION_FAILED, f"invalid arg '{name}' for {where} of queue type rabbit_classic_queue"
            )


def _check_offset(where: str, offset: Value) -> None:
    if isinstance(offset, Timestamp) or (isinstance(offset, int) and not isinstance(offset, bool)):
        return
    if isinstance(offset, str) and (offset in ("first", "last", "next") or age_ms(offset) >= 0):
        return
    fault = f"{{invalid_stream_offset_arg,{{{type_name(offset)},{term(offset)}}}}}"
    raise _invalid(OFFSET_HEADER, where, fault)


def _invalid(name: str, where: str, fault: str) -> CloseChannel:
    return CloseChannel(PRECONDITION_FAILED, f"invalid arg '{name}' for {where}: {fault}")

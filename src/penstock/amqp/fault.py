"""Fault: what the decoder says to frames that it cannot take, in RabbitMQ's words.

Used by decoder.py, which raises what these functions return.
Not here: arguments that do not fit their method (argument.py), tables and properties (table.py, properties.py).
"""

from __future__ import annotations

from typing import Final

from penstock.amqp.argument import cannot_decode
from penstock.amqp.close import CHANNEL_ERROR, FRAME_ERROR, RESOURCE_ERROR, UNEXPECTED_FRAME, CloseConnection
from penstock.amqp.frame import HEAD_BYTES, OVERHEAD_BYTES

SHOWN_BYTES_MAX: Final = 16  # of a frame's payload, as in RabbitMQ


def bad_frame(buf: bytes, pos: int, stop: int, why: str) -> CloseConnection:
    payload = buf[pos + HEAD_BYTES : stop - 1]
    shown = ",".join(map(str, payload[:SHOWN_BYTES_MAX]))
    which = "all" if len(payload) <= SHOWN_BYTES_MAX else f"first {SHOWN_BYTES_MAX}"
    return CloseConnection(FRAME_ERROR, f"type {buf[pos]}, {which} octets = <<{shown}>>: {why}")


def frame_too_large(kind: int, size: int, frame_max: int) -> CloseConnection:
    why = f"{{frame_too_large,{size},{frame_max - OVERHEAD_BYTES}}}"
    return CloseConnection(FRAME_ERROR, f"type {kind}, all octets = <<>>: {why}")


def bad_publish(payload: bytes) -> CloseConnection:
    error = cannot_decode(payload, 4)
    error.class_id, error.method_id = 60, 40
    return error


def unexpected(begun: bool, headed: bool) -> CloseConnection:
    """A frame that is not what its channel waits for: a method, a content header, or a content body."""
    if not begun:
        return CloseConnection(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
    if headed:
        return CloseConnection(UNEXPECTED_FRAME, "expected content body, got non content body frame instead", 60, 40)
    return CloseConnection(
        UNEXPECTED_FRAME, "expected content header for class 60, got non content header frame instead", 60, 40
    )


def wrong_class(class_id: int) -> CloseConnection:
    return CloseConnection(
        UNEXPECTED_FRAME, f"expected content header for class 60, got one for class {class_id} instead", 60, 40
    )


def not_open() -> CloseConnection:
    """More contents at once than channels can be open; net/reader.py says the same to a publish that is whole."""
    return CloseConnection(CHANNEL_ERROR, "expected 'channel.open'", 60, 40)


def unfinished(most: int) -> CloseConnection:
    text = f"contents still coming hold more than {most} bytes (limits.unfinished_bytes)"
    return CloseConnection(RESOURCE_ERROR, text, 60, 40)

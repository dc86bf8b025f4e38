"""Properties: the properties of a message, from the property flags of its content header on, and back.

The broker forwards them as the bytes they came in; this is for the few places that must look inside: expiration,
priority, headers, a client.
As in RabbitMQ, the two low flag bits mean nothing, so there is never a second flag word; short strings may be any bytes
(ids often are), and surrogates keep what is not UTF-8 intact; bytes behind the last property are an error.
Broken properties are 501. RabbitMQ 3.10 answers 541 without a text, because its channel crashes on them.
Not here: the content header's class and body size (decoder.py, content.py), what a property means (broker).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, error
from typing import Final

from penstock.amqp.bounds import UNBOUNDED, Bounds
from penstock.amqp.close import FRAME_ERROR, CloseConnection
from penstock.amqp.flags import (
    APP_ID,
    CLUSTER_ID,
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    USER_ID,
)
from penstock.amqp.table import Table, decode_table, encode_short_string, encode_table

TRANSIENT: Final = 1
PERSISTENT: Final = 2
SPECIAL: Final = 4  # beside the delivery mode: the broker has rules for some property


_SHORT: Final = Struct(">H")
_LONG: Final = Struct(">I")
_LONGLONG: Final = Struct(">Q")
DIRECT_REPLY_TO: Final = b"amq.rabbitmq.reply-to"
PRODUCER: Final = "x-penstock-producer"  # headers: who numbers its messages,
PUBLISHING_ID: Final = "x-penstock-publishing-id"  # and the number of this one
PRODUCER_BYTES_MAX: Final = 255  # of a producer's name: as all names, and queues keep thousands of them
_LATER_STRINGS: Final = (CORRELATION_ID, REPLY_TO, EXPIRATION, MESSAGE_ID, TYPE, USER_ID, APP_ID, CLUSTER_ID)
_BEHIND_MODE: Final = DELIVERY_MODE - 4  # all flags behind it: the two low bits mean nothing


@dataclass(slots=True)
class Properties:
    """The 14 properties of class basic in wire order; None is absent."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


def decode_properties(buf: bytes, pos: int, end: int) -> Properties:
    """The properties in `buf` from the flags at `pos` to `end`, all of it."""
    try:
        found, stop = _read(buf, pos)
    except (IndexError, error):
        raise _broken("they end too early") from None
    except CloseConnection as close:
        close.class_id, close.method_id = 60, 40
        raise
    if stop != end:
        raise _broken(f"{stop - pos} bytes by their flags, but {end - pos} in the frame")
    return found


def encode_properties(properties: Properties) -> bytes:
    """Flags and values. A value that does not fit is our bug: ValueError or struct.error."""
    flags = 0
    out = bytearray(2)
    if properties.content_type is not None:
        flags |= CONTENT_TYPE
        out += encode_short_string(properties.content_type)
    if properties.content_encoding is not None:
        flags |= CONTENT_ENCODING
        out += encode_short_string(properties.content_encoding)
    if properties.headers is not None:
        flags |= HEADERS
        out += encode_table(properties.headers)
    if properties.delivery_mode is not None:
        flags |= DELIVERY_MODE
        out.append(properties.delivery_mode)
    if properties.priority is not None:
        flags |= PRIORITY
        out.append(properties.priority)
    if properties.correlation_id is not None:
        flags |= CORRELATION_ID
        out += encode_short_string(properties.correlation_id)
    if properties.reply_to is not None:
        flags |= REPLY_TO
        out += encode_short_string(properties.reply_to)
    if properties.expiration is not None:
        flags |= EXPIRATION
        out += encode_short_string(properties.expiration)
    if properties.message_id is not None:
        flags |= MESSAGE_ID
        out += encode_short_string(properties.message_id)
    if properties.timestamp is not None:
        flags |= TIMESTAMP
        out += _LONGLONG.pack(properties.timestamp)
    if properties.type is not None:
        flags |= TYPE
        out += encode_short_string(properties.type)
    if properties.user_id is not None:
        flags |= USER_ID
        out += encode_short_string(properties.user_id)
    if properties.app_id is not None:
        flags |= APP_ID
        out += encode_short_string(properties.app_id)
    if properties.cluster_id is not None:
        flags |= CLUSTER_ID
        out += encode_short_string(properties.cluster_id)
    _SHORT.pack_into(out, 0, flags)
    return bytes(out)


def delivery_mode_of(buf: bytes, pos: int, end: int) -> int:
    """The delivery mode alone, TRANSIENT if there is none; what lies before it is skipped by its length."""
    try:
        flags = buf[pos] << 8 | buf[pos + 1]
        pos += 2
        if not flags & DELIVERY_MODE:
            mode = TRANSIENT
        else:
            if flags & CONTENT_TYPE:
                pos += 1 + buf[pos]
            if flags & CONTENT_ENCODING:
                pos += 1 + buf[pos]
            if flags & HEADERS:
                pos += 4 + int(_LONG.unpack_from(buf, pos)[0])
            mode = buf[pos]
            pos += 1
    except (IndexError, error):
        raise _broken("they end too early") from None
    if pos > end:
        raise _broken("they end too early")
    return mode


def priority_of(buf: bytes, pos: int) -> int:
    """The priority alone, 0 if there is none, of properties that were checked before."""
    flags = buf[pos] << 8 | buf[pos + 1]
    if not flags & PRIORITY:
        return 0
    pos += 2
    if flags & CONTENT_TYPE:
        pos += 1 + buf[pos]
    if flags & CONTENT_ENCODING:
        pos += 1 + buf[pos]
    if flags & HEADERS:
        pos += 4 + int(_LONG.unpack_from(buf, pos)[0])
    if flags & DELIVERY_MODE:
        pos += 1
    return buf[pos]


def check_properties(buf: bytes, pos: int, end: int, bounds: Bounds = UNBOUNDED) -> int:
    """Raise what decode_properties would, without making values of strings: for contents that are only passed on.

    TRANSIENT or PERSISTENT; and SPECIAL if there is a property the broker has rules for (expiration, user id, CC and
    BCC, a producer's number, a direct reply, an unknown delivery mode): the caller must look at their values."""
    start = pos
    plain = True
    mode = TRANSIENT
    try:
        flags = buf[pos] << 8 | buf[pos + 1]
        pos += 2
        if flags & CONTENT_TYPE:
            pos += 1 + buf[pos]
        if flags & CONTENT_ENCODING:
            pos += 1 + buf[pos]
        if flags & HEADERS:
            headers, pos = decode_table(buf, pos, bounds)
            plain = (
                "CC" not in headers
                and "BCC" not in headers
                and PRODUCER not in headers
                and PUBLISHING_ID not in headers
            )
        if flags & DELIVERY_MODE:
            if buf[pos] == PERSISTENT:
                mode = PERSISTENT
            elif buf[pos] != TRANSIENT:
                plain = False
            pos += 1
        if flags & PRIORITY:
            pos += 1
        for string in _LATER_STRINGS:
            if flags & string:
                if string == REPLY_TO and buf.startswith(DIRECT_REPLY_TO, pos + 1):
                    plain = False
                pos += 1 + buf[pos]
            if string == MESSAGE_ID and flags & TIMESTAMP:
                pos += 8
    except IndexError:
        raise _broken("they end too early") from None
    except CloseConnection as close:
        close.class_id, close.method_id = 60, 40
        raise
    if pos != end:
        raise _broken(f"{pos - start} bytes by their flags, but {end - start} in the frame")
    return mode if plain and not flags & (EXPIRATION | USER_ID) else mode | SPECIAL


def headers_at(buf: bytes) -> int:
    """Where the headers begin in checked properties that have some, and are all of the buffer."""
    pos = 2
    for flag in (CONTENT_TYPE, CONTENT_ENCODING):
        if (buf[0] << 8 | buf[1]) & flag:
            pos += 1 + buf[pos]
    return pos


def check_behind_headers(buf: bytes, pos: int, flags: int) -> int:
    """TRANSIENT or PERSISTENT, if the properties from here on to the end of the buffer are right and the broker has no
    rule for any of them; else 0."""
    end = len(buf)
    mode = TRANSIENT
    if flags & DELIVERY_MODE:
        if pos >= end:
            return 0
        mode = buf[pos]
        pos += 1
    if flags & _BEHIND_MODE:
        if flags & (EXPIRATION | USER_ID):
            return 0
        if flags & PRIORITY:
            pos += 1
        for string in _LATER_STRINGS:
            if flags & string:
                if pos >= end or (string == REPLY_TO and buf.startswith(DIRECT_REPLY_TO, pos + 1)):
                    return 0
                pos += 1 + buf[pos]
            if string == MESSAGE_ID and flags & TIMESTAMP:
                pos += 8
    return mode if pos == end and mode in (TRANSIENT, PERSISTENT) else 0


def _broken(why: str) -> CloseConnection:
    return CloseConnection(FRAME_ERROR, f"cannot decode properties: {why}", 60, 40)


def _read_string(buf: bytes, pos: int) -> tuple[str, int]:
    stop = pos + 1 + buf[pos]
    return buf[pos + 1 : stop].decode("utf-8", "surrogateescape"), stop


def _read(buf: bytes, pos: int) -> tuple[Properties, int]:
    """The properties at `pos` and where they stop, which may be behind the frame: the caller compares."""
    found = Properties()
    flags = int(_SHORT.unpack_from(buf, pos)[0])
    pos += 2
    if flags & CONTENT_TYPE:
        found.content_type, pos = _read_string(buf, pos)
    if flags & CONTENT_ENCODING:
        found.content_encoding, pos = _read_string(buf, pos)
    if flags & HEADERS:
        found.headers, pos = decode_table(buf, pos)
    if flags & DELIVERY_MODE:
        found.delivery_mode = buf[pos]
        pos += 1
    if flags & PRIORITY:
        found.priority = buf[pos]
        pos += 1
    if flags & CORRELATION_ID:
        found.correlation_id, pos = _read_string(buf, pos)
    if flags & REPLY_TO:
        found.reply_to, pos = _read_string(buf, pos)
    if flags & EXPIRATION:
        found.expiration, pos = _read_string(buf, pos)
    if flags & MESSAGE_ID:
        found.message_id, pos = _read_string(buf, pos)
    if flags & TIMESTAMP:
        found.timestamp = int(_LONGLONG.unpack_from(buf, pos)[0])
        pos += 8
    if flags & TYPE:
        found.type, pos = _read_string(buf, pos)
    if flags & USER_ID:
        found.user_id, pos = _read_string(buf, pos)
    if flags & APP_ID:
        found.app_id, pos = _read_string(buf, pos)
    if flags & CLUSTER_ID:
        found.cluster_id, pos = _read_string(buf, pos)
    return found, pos

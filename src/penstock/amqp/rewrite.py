"""Rewrite: change a few properties of a content; everything else stays as it is, to the byte.

For what a broker must write into a message that it otherwise only passes on: `x-death`, a direct reply's address, a
header that is for the broker alone. Cold: no plain message comes here.
Not here: which changes are made when (broker/deadletter.py, broker/rules.py).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Final

from penstock.amqp.content import FLAGS_OFFSET, properties_end
from penstock.amqp.frame import END_BYTES, HEAD, HEAD_BYTES, HEADER
from penstock.amqp.table import encode_short_string, table_entries

_HEADERS: Final = 13  # bits of the property flags
_DELIVERY_MODE: Final = 12
_PRIORITY: Final = 11
_REPLY_TO: Final = 9
_EXPIRATION: Final = 8
_TIMESTAMP: Final = 6
_LAST: Final = 2


def rewrite(
    wire: bytes,
    *,
    drop_headers: Container[str] = (),
    set_headers: Mapping[str, bytes] | None = None,
    drop_expiration: bool = False,
    reply_to: str | None = None,
) -> bytes:
    """The content with these changes. A header to be set is given as its bytes, letter and value; setting one sorts
    all headers by key, as RabbitMQ does."""
    flags = int.from_bytes(wire[FLAGS_OFFSET : FLAGS_OFFSET + 2], "big")
    pos = FLAGS_OFFSET + 2
    parts: list[bytes] = []
    for bit in range(15, _LAST - 1, -1):
        start = pos
        if flags >> bit & 1:
            pos = _after(wire, pos, bit)
        if bit == _HEADERS and (flags >> bit & 1 or set_headers):
            table = _headers(wire, start, bool(flags >> bit & 1), drop_headers, set_headers)
            flags |= 1 << bit
            parts.append(len(table).to_bytes(4, "big") + table)
        elif bit == _EXPIRATION and drop_expiration:
            flags &= ~(1 << bit)
        elif bit == _REPLY_TO and reply_to is not None:
            flags |= 1 << bit
            parts.append(encode_short_string(reply_to))
        else:
            parts.append(wire[start:pos])
    properties = b"".join(parts)
    size = FLAGS_OFFSET - HEAD_BYTES + 2 + len(properties)
    channel = int.from_bytes(wire[1:3], "big")
    return b"".join(
        (
            HEAD.pack(HEADER, channel, size),
            wire[HEAD_BYTES:FLAGS_OFFSET],
            flags.to_bytes(2, "big"),
            properties,
            END_BYTES,
            wire[properties_end(wire) + 1 :],
        )
    )


def _after(wire: bytes, pos: int, bit: int) -> int:
    """Where the property of this bit ends that begins here."""
    if bit == _HEADERS:
        return pos + 4 + int.from_bytes(wire[pos : pos + 4], "big")
    if bit in (_DELIVERY_MODE, _PRIORITY):
        return pos + 1
    if bit == _TIMESTAMP:
        return pos + 8
    return pos + 1 + wire[pos]


def _headers(
    wire: bytes, pos: int, present: bool, drop: Container[str], set_headers: Mapping[str, bytes] | None
) -> bytes:
    """The entries of the headers table, without its length."""
    entries = table_entries(wire, pos) if present else []
    kept = [(key, wire[start:stop]) for key, start, stop in entries if key not in drop]
    if set_headers:
        kept = [(key, entry) for key, entry in kept if key not in set_headers]
        kept += [(key, encode_short_string(key) + value) for key, value in set_headers.items()]
        kept.sort(key=_key)
    return b"".join(entry for _, entry in kept)


def _key(entry: tuple[str, bytes]) -> bytes:
    return entry[0].encode("utf-8", "surrogateescape")

"""Message: what the publishers of the crash tests send, so that every copy tells whose it is and if it is whole."""

from __future__ import annotations

import random
import zlib
from typing import Final, NamedTuple

from penstock.amqp.properties import PERSISTENT, TRANSIENT, Properties, decode_properties, encode_properties
from tests.crash.history import Key

LARGE_MAX: Final = 65_536
FILLER: Final = random.Random(0).randbytes(LARGE_MAX + 1024)


class Corrupt(Exception):
    """A message that is not as it was sent."""


class Received(NamedTuple):
    key: Key
    priority: int
    exchange: str  # that it was published to


def body_of(key: Key, size: int, exchange: str) -> bytes:
    """About this many bytes, other ones for every message."""
    start = key[1] % 1024
    filler = FILLER[start : start + size]
    named = b"%d %d %d [%s]" % (*key, size, exchange.encode())
    return b"%s %08x\n%s" % (named, zlib.crc32(filler, zlib.crc32(named)), filler)


def properties_of(key: Key, persistent: bool, priority: int | None, expiration: str | None) -> bytes:
    mode = PERSISTENT if persistent else TRANSIENT
    name = f"{key[0]}-{key[1]}"
    return encode_properties(Properties(delivery_mode=mode, priority=priority, expiration=expiration, message_id=name))


def read_message(header: bytes, body: bytes) -> Received:
    """Corrupt if header or body are not what was sent."""
    line, _, filler = body.partition(b"\n")
    try:
        publisher, number, size, exchange, checksum = line.split(b" ")
        key = int(publisher), int(number)
        expected = int(checksum, 16)
        whole = len(filler) == int(size)
    except ValueError:
        raise Corrupt(f"{line[:40]!r} is no message of ours") from None
    if not whole or zlib.crc32(filler, zlib.crc32(line.rpartition(b" ")[0])) != expected:
        raise Corrupt(f"message {key[0]}-{key[1]} has a damaged body")
    properties = decode_properties(header, 12, len(header))
    if properties.message_id != f"{key[0]}-{key[1]}":
        raise Corrupt(f"message {key[0]}-{key[1]} has the properties of {properties.message_id}")
    return Received(key, properties.priority or 0, exchange[1:-1].decode())

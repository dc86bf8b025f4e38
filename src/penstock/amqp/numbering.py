"""Numbering: the number that a producer gave a message, read out of its properties without decoding them.

Every message of such a producer has another number, so its properties are never the same as those before. But if the
number is the last of the headers, all before it is the same for thousands of messages: that part is decoded once, and
after it only the few bytes behind the headers are walked over.
Place in the chain: inside decoder.py. What it does not know well, it leaves alone: then the properties are checked as
any others (properties.py) and examined by the broker's rules, which say what is wrong with them.
Not here: what becomes of a message that comes again (broker/duplicates.py).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from penstock.amqp.bounds import UNBOUNDED, Bounds
from penstock.amqp.properties import (
    PRODUCER,
    PRODUCER_BYTES_MAX,
    PUBLISHING_ID,
    check_behind_headers,
    check_properties,
    headers_at,
)
from penstock.amqp.publish import Publishing
from penstock.amqp.table import decode_table, table_entries

PREFIXES_MAX: Final = 1024  # then they are forgotten all at once
PREFIX_BYTES_MAX: Final = 1024  # longer ones are not remembered

# The fewest that numbered properties can have: flags, and a table of a producer of one letter and a short number.
NUMBERED_BYTES: Final = 2 + 4 + 1 + len(PRODUCER) + 6 + 1 + len(PUBLISHING_ID) + 5
_ENTRY: Final = bytes((len(PUBLISHING_ID),)) + PUBLISHING_ID.encode()
_HEAD_BYTES: Final = len(_ENTRY) + 1  # the type's letter too
_LONG: Final = ord("l")
_INT: Final = ord("I")  # many clients write small numbers so
_unpack_long = Struct(">q").unpack_from
_unpack_int = Struct(">i").unpack_from

Known = tuple[str, int, int]  # the producer, the property flags, and how many bytes the number has


class Numbering:
    __slots__ = ("_bounds", "_prefixes", "mode", "publishing")

    def __init__(self, bounds: Bounds = UNBOUNDED) -> None:
        self._bounds = bounds
        self._prefixes: dict[bytes, Known] = {}
        self.mode = 0  # of what was read last: TRANSIENT or PERSISTENT
        self.publishing: Publishing = ("", 0)

    def read(self, properties: bytes) -> bool:
        """Whether these are right, numbered, and the broker has no other rule for them. Then `mode` and `publishing`
        say what they are. Raises what `check_properties` does."""
        at = properties.find(_ENTRY) + _HEAD_BYTES
        if at < _HEAD_BYTES:
            return False
        prefix = properties[:at]
        known = self._prefixes.get(prefix)
        if known is None:
            known = self._learn(properties, prefix)
            if known is None:
                return False
        producer, flags, id_bytes = known
        mode = check_behind_headers(properties, at + id_bytes, flags)
        if not mode:
            return False
        id_: int = (_unpack_long if id_bytes == 8 else _unpack_int)(properties, at)[0]
        if id_ < 0:
            return False
        self.mode = mode
        self.publishing = producer, id_
        return True

    def _learn(self, properties: bytes, prefix: bytes) -> Known | None:
        """What the bytes up to the number say, if the number is the last of the headers: then whatever it is, and
        whatever is behind it, they say the same."""
        if len(prefix) > PREFIX_BYTES_MAX:
            return None
        check_properties(properties, 0, len(properties), self._bounds)
        at = headers_at(properties)
        headers, _ = decode_table(properties, at)
        producer = headers.get(PRODUCER)
        if not isinstance(producer, str) or "CC" in headers or "BCC" in headers:
            return None
        if not 1 <= len(producer.encode("utf-8", "surrogateescape")) <= PRODUCER_BYTES_MAX:
            return None
        entries = table_entries(properties, at)
        # Of two entries of one name the first counts; and the bytes that were found may be inside another entry.
        if [key for key, _, _ in entries].count(PUBLISHING_ID) != 1:
            return None
        id_bytes = {_LONG: 8, _INT: 4}.get(prefix[-1], 0)
        if not id_bytes or entries[-1][1:] != (len(prefix) - _HEAD_BYTES, len(prefix) + id_bytes):
            return None
        if len(self._prefixes) >= PREFIXES_MAX:
            self._prefixes.clear()
        known = self._prefixes[prefix] = producer, properties[0] << 8 | properties[1], id_bytes
        return known

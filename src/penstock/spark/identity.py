"""Identity: what tells a message of a queue from all others, also when the broker delivers it again.

Upstream: the properties of a delivery, as bytes.  Downstream: spool.py, which drops what it has already.
Penstock stamps each delivery of a queue with a sequence, "<life of the queue>-<position>", which a redelivered message
keeps and no other message ever has: positions are consecutive, so thousands of them are one range. Other brokers stamp
nothing: there the publisher's message_id is the identity, and a message without one has none.
Not here: what is known already, and how it survives a crash (spool.py); what a duplicate means for acks (intake.py).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import lru_cache
from struct import Struct, error
from typing import Final, NamedTuple

from penstock.amqp.close import CloseConnection
from penstock.amqp.flags import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    CORRELATION_ID,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
)
from penstock.amqp.table import table_entries

SEQUENCE_HEADER: Final = "x-penstock-sequence"  # the consume argument has the same name
SEQUENCE_CAPABILITY: Final = "penstock.sequence"

NEVER: Final = 1 << 63  # above all positions

_KEY: Final = SEQUENCE_HEADER.encode()
_ENTRY: Final = bytes((len(_KEY),)) + _KEY + b"S"  # its entry in a field table, up to the length of the text
_LENGTH: Final = Struct(">I")
THOUSAND: Final = 1000
_DIGITS: Final = tuple(b"%03d" % number for number in range(THOUSAND))  # the last ones of a position


class Ranges:
    """A set of positions, as ranges [start, stop) in order."""

    __slots__ = ("starts", "stops")

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self.starts: list[int] = []
        self.stops: list[int] = []
        for start, stop in pairs:
            self.add(start, stop)

    def __contains__(self, position: int) -> bool:
        if not self.stops or position >= self.stops[-1]:  # the usual case: it is newer than all
            return False
        return self.starts[bisect_right(self.stops, position)] <= position

    def next_from(self, position: int) -> int:
        """The first position in it that is not below this one; NEVER if there is none."""
        index = bisect_right(self.stops, position)
        return max(self.starts[index], position) if index < len(self.starts) else NEVER

    def __len__(self) -> int:
        return len(self.starts)

    def __repr__(self) -> str:
        return f"<Ranges {self.pairs()[:3]}{'…' if len(self) > 3 else ''}>"

    def pairs(self) -> list[tuple[int, int]]:
        return list(zip(self.starts, self.stops))

    def add(self, start: int, stop: int) -> None:
        if not self.stops or start > self.stops[-1]:
            self.starts.append(start)
            self.stops.append(stop)
            return
        if start == self.stops[-1]:  # the usual case: the next one
            self.stops[-1] = stop
            return
        # All ranges that touch [start, stop) become one with it.
        first = bisect_left(self.stops, start)
        last = bisect_right(self.starts, stop)
        if first < last:
            start = min(start, self.starts[first])
            stop = max(stop, self.stops[last - 1])
        self.starts[first:last] = [start]
        self.stops[first:last] = [stop]

    def drop_lowest(self, count: int) -> None:
        del self.starts[:count]
        del self.stops[:count]


class Identities:
    """The identities of some messages: positions by life of the queue, and message ids."""

    __slots__ = ("ids", "lives")

    def __init__(self) -> None:
        self.lives: dict[str, Ranges] = {}
        self.ids: list[bytes] = []

    def __repr__(self) -> str:
        return f"<Identities lives={self.lives} ids={len(self.ids)}>"

    def has(self, life: str, position: int) -> bool:
        ranges = self.lives.get(life)
        return ranges is not None and position in ranges

    def next_from(self, life: str, position: int) -> int:
        ranges = self.lives.get(life)
        return NEVER if ranges is None else ranges.next_from(position)

    def add(self, life: str, start: int, stop: int) -> None:
        ranges = self.lives.get(life)
        if ranges is None:
            ranges = self.lives[life] = Ranges()
        ranges.add(start, stop)

    def add_all(self, other: Identities) -> None:
        """The sequences of `other` too; ids are remembered elsewhere (spool.py, in order of their age)."""
        for life, ranges in other.lives.items():
            for start, stop in ranges.pairs():
                self.add(life, start, stop)

    def count_ranges(self) -> int:
        return sum(map(len, self.lives.values()))

    def trim(self, ranges_max: int) -> int:
        """Keep at most so many ranges; how many were forgotten.

        The lowest go, of the life that was used least lately: the oldest messages, whose acks the broker has had for
        longest. A gap is never closed instead: the message in it may still come, and would be dropped unseen."""
        forgotten = 0
        while (excess := self.count_ranges() - ranges_max) > 0:
            life, ranges = next(iter(self.lives.items()))
            count = min(excess, len(ranges))
            ranges.drop_lowest(count)
            forgotten += count
            if not ranges:
                del self.lives[life]
        return forgotten

    def touch(self, life: str) -> None:
        """This life is in use: it is forgotten last."""
        self.lives[life] = self.lives.pop(life)


class Stamp(NamedTuple):
    """Where Penstock's stamp stands in some properties, and what it says."""

    table: int  # the length of the headers' table
    start: int  # the stamp's entry in it
    digits: int  # the digits of the position
    stop: int
    life: str
    position: int


def find_stamp(properties: bytes) -> Stamp | None:
    flags = properties[0] << 8 | properties[1]
    if not flags & HEADERS:
        return None
    table = 2
    if flags & CONTENT_TYPE:
        table += 1 + properties[table]
    if flags & CONTENT_ENCODING:
        table += 1 + properties[table]
    first = table + 4
    end: int = first + _LENGTH.unpack_from(properties, table)[0]
    start = properties.rfind(_ENTRY, first, end)
    if start < 0:
        return None
    # Penstock puts it last. It must be an entry of the table itself: inside some value it is anybody's.
    if _stop(properties, start) != end or (start != first and not _are_entries(properties[first:start])):
        start = next((begin for key, begin, _ in table_entries(properties, table) if key == SEQUENCE_HEADER), -1)
        if start < 0 or not properties.startswith(_ENTRY, start):
            return None
    stop = _stop(properties, start)
    life, _, digits = properties[start + len(_ENTRY) + 4 : stop].decode("ascii", "replace").rpartition("-")
    if not life or not digits.isdecimal():
        return None
    return Stamp(table, start, stop - len(digits), stop, life, int(digits))


def without_stamp(properties: bytes, stamp: Stamp) -> bytes:
    """The properties as they were published: messages with the same ones have the same bytes again."""
    table, start, stop = stamp.table, stamp.start, stamp.stop
    left = int(_LENGTH.unpack_from(properties, table)[0]) - (stop - start)
    if left:
        return properties[:table] + _LENGTH.pack(left) + properties[table + 4 : start] + properties[stop:]
    flags = (properties[0] << 8 | properties[1]) & ~HEADERS
    return flags.to_bytes(2, "big") + properties[2:table] + properties[stop:]


class StampCutter:
    """Cuts the stamps out of many messages. Most differ from the one before in the digits of the position only."""

    __slots__ = ("_head", "_life", "_rest", "_size", "_tail")

    def __init__(self) -> None:
        self._size = -1  # of the last one's properties
        self._head = b""  # before its digits
        self._tail = b""  # and behind them
        self._rest = b""
        self._life = ""

    def are_following(self, properties: list[bytes], position: int) -> bool:
        """Whether these are messages that follow each other from this position on, and differ from the last one that
        was cut in their position only. False too where it gets one digit more."""
        head, tail = self._head, self._tail
        at = 0
        while at < len(properties):
            high, low = divmod(position + at, THOUSAND)
            if high:
                start = head + b"%d" % high
                expected = [start + digits + tail for digits in _DIGITS[low : low + len(properties) - at]]
            else:
                expected = [head + b"%d" % one + tail for one in range(low, min(THOUSAND, low + len(properties) - at))]
            if properties[at : at + len(expected)] != expected:
                return False
            at += len(expected)
        return True

    def cut(self, properties: bytes) -> tuple[bytes, str, int]:
        """The properties without it, the life of the queue ("" if there is no stamp), and the position in it."""
        head, tail = self._head, self._tail
        if len(properties) == self._size and properties.startswith(head) and properties.endswith(tail):
            digits = properties[len(head) : self._size - len(tail)]
            if digits.isdigit():
                return self._rest, self._life, int(digits)
        stamp = find_stamp(properties)
        if stamp is None:
            return properties, "", 0
        self._size = len(properties)
        self._head, self._tail = properties[: stamp.digits], properties[stamp.stop :]
        self._rest, self._life = without_stamp(properties, stamp), stamp.life
        return self._rest, self._life, stamp.position


def _stop(properties: bytes, start: int) -> int:
    """Where the entry that starts here ends, by its length; -1 if even that is not there."""
    text = start + len(_ENTRY) + 4
    return text + int(_LENGTH.unpack_from(properties, text - 4)[0]) if text <= len(properties) else -1


@lru_cache(maxsize=1024)  # nearly all messages have the same headers, or none
def _are_entries(content: bytes) -> bool:
    """Whether these are whole entries of a table."""
    try:
        table_entries(_LENGTH.pack(len(content)) + content, 0)
    except (CloseConnection, IndexError, error):
        return False
    return True


def message_id_of(properties: bytes) -> bytes:
    """The message id as it was sent, b"" if there is none; what lies before it is skipped by its length."""
    flags = properties[0] << 8 | properties[1]
    if not flags & MESSAGE_ID:
        return b""
    at = 2
    if flags & CONTENT_TYPE:
        at += 1 + properties[at]
    if flags & CONTENT_ENCODING:
        at += 1 + properties[at]
    if flags & HEADERS:
        at += 4 + int(_LENGTH.unpack_from(properties, at)[0])
    if flags & DELIVERY_MODE:
        at += 1
    if flags & PRIORITY:
        at += 1
    if flags & CORRELATION_ID:
        at += 1 + properties[at]
    if flags & REPLY_TO:
        at += 1 + properties[at]
    if flags & EXPIRATION:
        at += 1 + properties[at]
    return properties[at + 1 : at + 1 + properties[at]]

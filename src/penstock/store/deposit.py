"""Deposit and Removal: what queues cast to the store. Plain values; store.py says what each one does.

A deposit is messages of one queue with consecutive positions. Whoever waits for it gives a receipt with it.
Not here: AMQP. A message is an origin (where it was published, as bytes) and a content.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.credit import Link
from penstock.store.log import QueueLog
from penstock.store.record import Marks, Range


class Origin(Protocol):
    """How a message was published."""

    def origin(self) -> bytes:
        """The same bytes for the same object, for ever."""
        ...


Content = tuple[Origin, bytes]


class Receipt(Protocol):
    """Who waits for deposits to be synced."""

    def kept(self) -> None:
        """One more of them is on disk, synced."""
        ...

    def doubted(self) -> None:
        """A sync failed: it may be on disk or not. It will be tried again, and `kept` may still follow."""
        ...


class Deposit:
    """Messages to be kept. `large` has the indexes of those whose content goes to the shared bodies."""

    __slots__ = ("deadlines", "first", "large", "link", "log", "marks", "messages", "receipt", "size")

    def __init__(
        self,
        log: QueueLog,
        link: Link | None,
        first: int,
        messages: Sequence[Content],
        size: int,
        large: Sequence[int] = (),
        deadlines: Sequence[int] | None = None,
        receipt: Receipt | None = None,
        marks: Marks | None = None,
    ) -> None:
        self.log = log
        self.link = link
        self.first = first
        self.messages = messages
        self.size = size  # bytes of the contents
        self.large = large
        self.deadlines = deadlines  # milliseconds since 1970; 0 is never
        self.receipt = receipt
        self.marks = marks  # how far their producers have come with them

    def __repr__(self) -> str:
        return f"<Deposit {self.log.name} first={self.first} count={len(self.messages)}>"


class Removal:
    """Positions of a queue that are gone. More may be added while it waits in the store's mailbox."""

    __slots__ = ("log", "ranges")

    def __init__(self, log: QueueLog) -> None:
        self.log = log
        self.ranges: list[Range] = []

    def add(self, positions: Sequence[int]) -> None:
        ranges = self.ranges
        for first, end in ranges_of(positions):
            if ranges and ranges[-1][1] == first:
                ranges[-1] = ranges[-1][0], end
            else:
                ranges.append((first, end))


class Forget:
    """The queue is gone with all it had."""

    __slots__ = ("log",)

    def __init__(self, log: QueueLog) -> None:
        self.log = log


class Placement:
    """Where a deposit was written."""

    __slots__ = ("bodies", "deposit", "offset", "size")

    def __init__(self, deposit: Deposit, offset: int, size: int, bodies: Sequence[tuple[int, int, int, int]]) -> None:
        self.deposit = deposit
        self.offset = offset
        self.size = size
        self.bodies = bodies  # position, file, offset, size of those that are large


def origins_of(messages: Sequence[Content]) -> list[tuple[int, bytes]]:
    """Of every message, as runs of the same."""
    first = messages[0][0]
    if first is messages[-1][0] and all(message[0] is first for message in messages):
        return [(len(messages), first.origin())]
    runs: list[tuple[int, bytes]] = []
    last: object = None
    count = 0
    origin = b""
    for publish, _ in messages:
        if publish is last:
            count += 1
            continue
        if count:
            runs.append((count, origin))
        last, count, origin = publish, 1, publish.origin()
    runs.append((count, origin))
    return runs


def ranges_of(positions: Sequence[int]) -> list[Range]:
    """Positions, in any order, as ranges."""
    if not positions:
        return []
    first, last = positions[0], positions[-1]
    if last - first + 1 == len(positions) and (
        isinstance(positions, range) or positions == list(range(first, last + 1))
    ):
        return [(first, last + 1)]
    ranges: list[Range] = []
    for position in sorted(positions):
        if ranges and ranges[-1][1] == position:
            ranges[-1] = ranges[-1][0], position + 1
        else:
            ranges.append((position, position + 1))
    return ranges

"""Producers: how far each producer has come in one queue or stream, so that what it sends again is known.

A producer numbers its messages upwards. The highest number that was taken is its mark; whatever comes at or below it
was taken before. Marks are few and small, and bounded: of too many producers, the one that was silent longest is
forgotten, and what it sends again then would be taken again.
Place in the chain: inside a queue, by duplicates.py, and inside a stream. Pure: no I/O, no AMQP.
Not here: which messages of an arrival are dropped (duplicates.py), what of this is on disk (keeping.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from penstock.amqp.publish import Publishing as Publishing

PRODUCERS_MAX: Final = 10_000  # of one queue; about 1.5 MB of RAM with names of 50 bytes
NO_MARK: Final = -1  # publishing ids begin at 0


class Producers:
    __slots__ = ("_marks", "_most")

    def __init__(self, most: int = PRODUCERS_MAX) -> None:
        self._most = most
        self._marks: dict[str, int] = {}  # the one that was silent longest is first

    def is_known(self, producer: str, id_: int) -> bool:
        """Whether this one was taken before."""
        return id_ <= self._marks.get(producer, NO_MARK)

    def mark(self, producer: str) -> int:
        """The highest that was taken; NO_MARK if none was."""
        return self._marks.get(producer, NO_MARK)

    def take(self, producer: str, id_: int) -> None:
        """This one is taken, or has come again: the mark never falls, and the producer was heard of just now."""
        marks = self._marks
        known = marks.pop(producer, NO_MARK)
        marks[producer] = max(known, id_)
        if len(marks) > self._most:
            del marks[next(iter(marks))]

    def restore(self, marks: Mapping[str, int]) -> None:
        """What was known in an earlier life, the one that was silent longest first."""
        for producer, id_ in marks.items():
            self.take(producer, id_)

    def marks(self) -> dict[str, int]:
        """All of them, to be kept: a copy, in an order that `restore` understands."""
        return dict(self._marks)

    def __len__(self) -> int:
        return len(self._marks)

    def __repr__(self) -> str:
        return f"<Producers {len(self._marks)}>"


def highest(publishings: Iterable[Publishing | None]) -> dict[str, int]:
    """The highest id of each producer among these messages."""
    found: dict[str, int] = {}
    for publishing in publishings:
        if publishing is not None:
            producer, id_ = publishing
            found[producer] = max(found.pop(producer, NO_MARK), id_)
    return found

"""Duplicates: what producers send again, told from what is new, in one queue.

Only messages that their producer has numbered come here (headers x-penstock-producer and x-penstock-publishing-id).
One at or below its producer's mark was taken before: it is dropped, and confirmed as if it were taken now. If the first
copy had to be kept on disk, the confirm waits until it is: the second may come while the first is still on its way.

A mark says that all below it was taken, so there must be no gap. A queue that refuses a message (x-overflow) refuses
all that its producer sends behind it on the same channel too, until that message comes again: a producer sends again
in order what was not confirmed. A new channel begins afresh; a publisher without confirms is not told of refusals,
sends nothing again, and so has no gaps.
Place in the chain: in front of queue.py. Dead letters do not come here: they were not published to this queue.
Not here: the marks (producers.py), their way to the disk (keeping.py), reading the headers (rules.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.broker.casts import NO_TTL, Arrival
from penstock.broker.producers import NO_MARK, Producers, Publishing

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.queue import Queue

GAPS_MAX: Final = 256  # fewer are not looked through for channels that are gone


class Duplicates:
    __slots__ = ("_gaps", "_queue", "producers")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._gaps: dict[tuple[Channel, str], int] = {}  # by channel and producer: the first id that was refused
        self.producers = Producers()

    def arrive(self, item: Arrival) -> None:
        """Have the queue take what is new of these messages."""
        queue = self._queue
        if queue.marks is not None:
            queue.marks.expect(item)
        if item.link is not None:
            item.link.handle(len(item.messages), item.bytes)
            item.link = None
        if not self._gaps and not queue.shelves.refuses:
            marks = self._all_new(item.publishings or ())
            if marks is not None:
                queue.arrive(item)
                self.producers.restore(marks)
                return
        numbers = [number for first, last in item.numbers for number in range(first, last + 1)]
        if not queue.shelves.refuses:
            self._arrive(item, numbers, 0, len(item.messages))
            return
        for at in range(len(item.messages)):  # whether the next one may be taken depends on whether this one is
            self._arrive(item, numbers, at, at + 1)

    def _all_new(self, publishings: Sequence[Publishing | None]) -> dict[str, int] | None:
        """The marks that these messages make, if all of them are new, as mostly."""
        marks: dict[str, int] = {}
        for publishing in publishings:
            if publishing is not None:
                producer, id_ = publishing
                mark = marks.get(producer, NO_MARK)
                if id_ <= mark or (mark == NO_MARK and self.producers.is_known(producer, id_)):
                    return None
                marks[producer] = id_
        return marks

    def _arrive(self, item: Arrival, numbers: list[int], start: int, stop: int) -> None:
        publishings = item.publishings
        assert publishings is not None
        producers, channel = self.producers, item.channel
        fresh = Arrival(channel, None, [], 0, [], item.modes)
        known: list[tuple[int, Publishing]] = []
        highest: dict[str, int] = {}
        for at in range(start, stop):
            number = numbers[at] if numbers else 0
            publishing = publishings[at]
            if publishing is not None:
                producer, id_ = publishing
                if producers.is_known(producer, id_) or id_ <= highest.get(producer, NO_MARK):
                    producers.take(producer, NO_MARK)  # it was heard of
                    if number:
                        known.append((number, publishing))
                    continue
                if self._gaps and channel is not None and self._is_behind_gap(channel, producer, id_):
                    if number:
                        channel.refused([(number, number)])
                    continue
                highest[producer] = id_
            fresh.add(item.messages[at], number, item.ttls_ms[at] if item.ttls_ms else NO_TTL, publishing)
        if fresh.messages:
            self._take(fresh)
        if known and channel is not None:
            self._confirm(channel, known)

    def _take(self, fresh: Arrival) -> None:
        taken = self._queue.arrive(fresh)
        for publishing in taken.publishings or ():
            if publishing is not None:
                self.producers.take(*publishing)
        if len(taken.messages) == len(fresh.messages) or fresh.channel is None or not fresh.numbers:
            return
        refused = fresh.publishings[0] if fresh.publishings else None  # they come one by one here
        if refused is not None:
            self._gaps[fresh.channel, refused[0]] = refused[1]
            if len(self._gaps) > GAPS_MAX:
                upstream = self._queue.incoming
                self._gaps = {key: id_ for key, id_ in self._gaps.items() if key[0] in upstream}

    def _is_behind_gap(self, channel: Channel, producer: str, id_: int) -> bool:
        gap = self._gaps.get((channel, producer))
        if gap is None:
            return False
        if id_ > gap:
            return True
        del self._gaps[channel, producer]
        return False

    def _confirm(self, channel: Channel, known: list[tuple[int, Publishing]]) -> None:
        """The queue had these before. Where the disk has to have the first copy, it may not have it yet."""
        keeping = self._queue.keeping
        kept: list[tuple[int, int]] = []
        others: list[tuple[int, int]] = []
        for number, publishing in known:
            is_kept = keeping is not None and keeping.is_known(publishing)
            (kept if is_kept else others).append((number, number))
        if kept and keeping is not None:
            keeping.when_synced(partial(channel.confirmed, kept))
        if others:
            channel.confirmed(others)

    def __repr__(self) -> str:
        return f"<Duplicates {self._queue.queue_name} producers={len(self.producers)} gaps={len(self._gaps)}>"


def arrive_once(queue: Queue, item: Arrival) -> None:
    """Some of these messages are numbered by their producers."""
    if queue.duplicates is None:
        queue.duplicates = Duplicates(queue)
    queue.duplicates.arrive(item)

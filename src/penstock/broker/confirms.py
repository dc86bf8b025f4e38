"""Confirms: which publishes of a channel are confirmed, and which frames say so.

Sequence numbers come in runs, as publishes do: a run waits for every queue it was routed to. Numbers are settled in any
order; one `basic.ack` with multiple=true covers all up to the smallest one still unconfirmed, singles go above it.
A number is acked or nacked exactly once; nacks leave first, or a multiple ack would seem to cover them.
Not here: when a queue may confirm (queue.py), the frames' way out (net/writer.py).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from penstock.amqp.method import BasicAck, BasicNack

_SETTLE: Final = Struct(">BHIIQBB")  # a whole basic.ack or basic.nack frame


class _Run:
    """Consecutive numbers that wait for the same number of queues."""

    __slots__ = ("last", "waiting")

    def __init__(self, last: int, waiting: int) -> None:
        self.last = last
        self.waiting = waiting


class Confirms:
    __slots__ = ("_acked", "_channel", "_nacked", "_runs", "_settled", "_smallest", "next_number", "rejected")

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self.next_number = 1
        self._smallest = 1  # everything below is settled
        self._runs: dict[int, _Run] = {}  # unsettled, by first number
        self._settled: dict[int, int] = {}  # settled above the smallest: first number -> last
        self._acked: list[tuple[int, int]] = []  # since the last flush
        self._nacked: list[tuple[int, int]] = []
        self.rejected = 0  # numbers nacked so far

    def expect(self, count: int, queues: int) -> int:
        """Number the next `count` publishes, which go to this many queues; the first number. With no queue: settled."""
        first = self.next_number
        self.next_number += count
        if queues:
            self._runs[first] = _Run(first + count - 1, queues)
        else:
            self._settle(first, first + count - 1, self._acked)
        return first

    def confirm(self, first: int, last: int) -> None:
        """A queue has taken these numbers."""
        for start, run in self._parts(first, last):
            run.waiting -= 1
            if not run.waiting:
                del self._runs[start]
                self._settle(start, run.last, self._acked)

    def reject(self, first: int, last: int) -> None:
        """A queue refused these numbers: one nack each, whatever the other queues say."""
        for start, run in self._parts(first, last):
            del self._runs[start]
            self.rejected += run.last - start + 1
            self._settle(start, run.last, self._nacked)

    def unconfirmed(self) -> int:
        return self.next_number - 1 - self._settled_count()

    def confirmed(self) -> int:
        """How many were acked so far, counting those that leave with the next flush."""
        return self._settled_count() - self.rejected

    def _settled_count(self) -> int:
        above = sum([last - first + 1 for first, last in self._settled.items()]) if self._settled else 0
        return self._smallest - 1 + above

    def flush(self) -> bytes:
        """The frames for all that was settled since the last flush."""
        if not self._acked and not self._nacked:
            return b""
        frames: list[bytes] = []
        for first, last in self._nacked:
            # RabbitMQ says requeue=true in these too; it means nothing to a publisher.
            frames += (self._frame(BasicNack.ID, number, 2) for number in range(first, last + 1))
        covered = 0
        up_to = 0
        for first, last in self._acked:
            if last < self._smallest:
                covered += last - first + 1
                up_to = max(up_to, last)
            else:
                frames += (self._frame(BasicAck.ID, number, 0) for number in range(first, last + 1))
        if covered:
            frames.append(self._frame(BasicAck.ID, up_to, 1 if covered > 1 else 0))
        self._acked.clear()
        self._nacked.clear()
        return b"".join(frames)

    def _parts(self, first: int, last: int) -> list[tuple[int, _Run]]:
        """The unsettled runs that make up these numbers, cut off where they reach beyond them."""
        run = self._runs.get(first)
        if run is not None and run.last == last:
            return [(first, run)]
        for edge in (first, last + 1):
            self._cut_before(edge)
        return [(start, run) for start, run in sorted(self._runs.items(), key=_start) if first <= start <= last]

    def _cut_before(self, edge: int) -> None:
        for start, run in self._runs.items():
            if start < edge <= run.last:
                self._runs[edge] = _Run(run.last, run.waiting)
                run.last = edge - 1
                return

    def _settle(self, first: int, last: int, settled: list[tuple[int, int]]) -> None:
        settled.append((first, last))
        if first != self._smallest:
            self._settled[first] = last
            return
        self._smallest = last + 1
        while self._settled and self._smallest in self._settled:
            self._smallest = self._settled.pop(self._smallest) + 1

    def _frame(self, method_id: int, number: int, flags: int) -> bytes:
        return _SETTLE.pack(1, self._channel, 13, method_id, number, flags, 0xCE)


def _start(item: tuple[int, _Run]) -> int:
    return item[0]

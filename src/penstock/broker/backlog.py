"""Backlog: the messages of a queue that wait, in order. A priority queue has one per priority.

Every message has a position, counted as it arrives. In order of position a backlog is

    returned | ready | paged | fresh

`returned` came back from consumers, by position. `ready` was never delivered and is in RAM; its positions are
consecutive from `head`, but for `gaps`. `paged` is on disk only: ranges of positions. `fresh` came after it, is in RAM,
and has consecutive positions up to `end`. While nothing is paged out, all that arrives goes to `ready`, and `fresh` is
empty. Invariant: every returned position is below `head`, so what comes back is ahead of all that was never delivered.

Deadlines of messages in RAM are kept as runs of positions, one per batch; of messages that left `ready` and may come
back, by position. Queues without TTL have neither.
Not here: who gets a message, what becomes of an expired one (queue.py), what is paged out and in when (paging.py).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from penstock.amqp.content import body_size
from penstock.amqp.decoder import Message, Publish
from penstock.amqp.method import BasicPublish, encode_method
from penstock.amqp.rewrite import rewrite
from penstock.store.log import LEVEL_SHIFT

# In place of a message whose body is on disk only.
AWAY: Final[Message] = (Publish(0, encode_method(BasicPublish("", ""), 0)[7:-1]), b"")


def is_away(message: Message) -> bool:
    """By its content, which is never empty otherwise: compiled, a tuple has no identity."""
    return not message[1]


Run = tuple[int, int, int]  # first position, end, deadline in ns


class Backlog:
    __slots__ = (
        "body_bytes",
        "deadlines",
        "end",
        "fresh",
        "fresh_bytes",
        "fresh_runs",
        "gaps",
        "guess_bytes",
        "guessed",
        "guessed_bytes",
        "head",
        "measured",
        "odd",
        "paged",
        "paged_bytes",
        "paged_count",
        "ready",
        "ready_bytes",
        "ready_end",
        "returned",
        "runs",
        "stale_end",
    )

    def __init__(self, level: int = 0) -> None:
        self.head = level << LEVEL_SHIFT  # position of ready[0]
        self.ready: deque[Message] = deque()
        self.ready_bytes = 0  # on the wire
        self.ready_end = self.head  # behind the last of ready; kept only while something is paged out
        self.returned: list[tuple[int, Message]] = []  # a heap
        self.runs: deque[Run] = deque()  # of ready
        self.deadlines: dict[int, int] = {}
        self.measured = False  # whether body_bytes is kept: it costs time per message
        self.body_bytes = 0  # of all in RAM
        self.paged_bytes = 0  # the same of what is paged out
        self.guessed = (0, 0)  # positions paged out whose bodies were never measured, and are taken
        self.guess_bytes = 0  # to be so long each,
        self.guessed_bytes = 0  # in all, as a part of paged_bytes
        self.paged: deque[tuple[int, int]] = deque()  # ranges
        self.paged_count = 0
        self.fresh: deque[Message] = deque()
        self.fresh_bytes = 0
        self.fresh_runs: deque[Run] = deque()
        self.gaps: deque[tuple[int, int]] = deque()  # positions between those of ready that are not there
        self.stale_end = 0  # what was ready below this may have been delivered in an earlier life
        self.end = self.head  # the position of the next message that arrives
        self.odd = False  # whether pop must look at runs, gaps, body_bytes or stale_end

    def __len__(self) -> int:
        return len(self.ready) + len(self.returned) + self.paged_count + len(self.fresh)

    def append(self, messages: Sequence[Message], bytes_: int, deadline_ns: int = 0) -> range:
        """Messages that arrive, with a deadline all with the same; their positions."""
        first = self.end
        self.end = first + len(messages)
        if self.paged_count:
            self.fresh.extend(messages)
            self.fresh_bytes += bytes_
        else:
            self.ready.extend(messages)
            self.ready_bytes += bytes_
        if deadline_ns:
            (self.fresh_runs if self.paged_count else self.runs).append((first, self.end, deadline_ns))
            self.odd = True
        if self.measured:
            self.body_bytes += _bodies(messages)
        return range(first, self.end)

    def put_back(self, position: int, message: Message) -> None:
        heapq.heappush(self.returned, (position, message))
        if self.measured:
            self.body_bytes += body_size(message[1]) if not is_away(message) else 0

    def has_next(self) -> bool:
        """Whether the first message is in RAM."""
        if self.returned:
            return not is_away(self.returned[0][1])
        return bool(self.ready)

    def pop(self, limit: int, bytes_max: int) -> tuple[Sequence[int], list[Message], bool]:
        """The first messages, as far as they are in RAM: positions, messages, and whether they were delivered
        before."""
        if not self.returned and not self.odd:
            ready, first = self.ready, self.head
            if self.ready_bytes <= bytes_max and len(ready) <= limit:  # all of it, as mostly: one call less
                messages = list(ready)
                ready.clear()
                self.ready_bytes = 0
                self.head = first + len(messages)
                return range(first, self.head), messages, False
        if self.returned:
            positions, messages = self._pop_returned(limit, bytes_max)
            if self.measured:
                self.body_bytes -= _bodies(messages)
            return positions, messages, True
        return self._pop_oddly(limit, bytes_max) if self.odd else self._pop_plainly(limit, bytes_max)

    def _pop_plainly(self, limit: int, bytes_max: int) -> tuple[Sequence[int], list[Message], bool]:
        first = self.head
        messages = self._pop_ready(limit, bytes_max)
        return range(first, self.head), messages, False

    def _pop_oddly(self, limit: int, bytes_max: int) -> tuple[Sequence[int], list[Message], bool]:
        first = self.head
        stale = first < self.stale_end
        if stale:
            limit = min(limit, self.stale_end - first)
        if self.gaps:
            limit = min(limit, self.gaps[0][0] - first)
        messages = self._pop_ready(limit, bytes_max)
        positions = range(first, self.head)
        if self.runs:
            self._note_deadlines(first)
        if self.measured:
            self.body_bytes -= _bodies(messages)
        if self.gaps and self.gaps[0][0] == self.head:
            self.head = self.gaps.popleft()[1]
        self.odd = bool(self.measured or self.gaps or self.runs or self.head < self.stale_end)
        return positions, messages, stale

    def deadline(self) -> int:
        """When the first message expires; 0 is never, or not known because it is on disk."""
        if self.returned:
            position, message = self.returned[0]
            return self.deadlines.get(position, 0) if not is_away(message) else 0
        runs = self.runs
        while runs and runs[0][1] <= self.head:
            runs.popleft()
        return runs[0][2] if self.ready and runs and runs[0][0] <= self.head else 0

    def stretch(self) -> int:
        """How many of the first messages have the same deadline, or none."""
        runs = self.runs
        if self.returned:
            return 1 if self.deadlines else len(self.returned)
        self.deadline()  # lets go of runs that are over
        if not runs:
            return len(self.ready)
        first, end, _ = runs[0]
        return end - self.head if first <= self.head else first - self.head

    def clear(self) -> None:
        for position, _ in self.returned:
            self.deadlines.pop(position, None)
        self.head = self.end
        self.ready.clear()
        self.ready_bytes = 0
        self.returned.clear()
        self.runs.clear()
        self.paged.clear()
        self.paged_count = 0
        self.fresh.clear()
        self.fresh_bytes = 0
        self.fresh_runs.clear()
        self.gaps.clear()
        self.body_bytes = self.paged_bytes = self.guessed_bytes = 0
        self.odd = self.measured

    def measure(self, measured: bool) -> None:
        """Begin or stop to keep `body_bytes`."""
        if measured and not self.measured:
            self.body_bytes = _bodies(self.ready) + _bodies(self.fresh)
            count = len(self.ready) + len(self.fresh)
            if self.paged:
                self._guess(self.body_bytes // count if count else self.guess_bytes)
            self.body_bytes += _bodies([message for _, message in self.returned])
        self.measured = measured
        self.odd = self.odd or measured

    def _guess(self, each_bytes: int) -> None:
        """All that is paged out now."""
        self.guess_bytes = each_bytes
        self.guessed = self.paged[0][0], self.paged[-1][1]
        self.paged_bytes = self.guessed_bytes = each_bytes * self.paged_count

    def held(self) -> list[tuple[int, int]]:
        """The positions of all messages here, as ranges in order; some positions in them may be long gone."""
        ranges = self.living()
        first, _ = ranges.pop()
        if first < self.end:
            ranges.append((first, self.end))
        return ranges

    def undelivered(self) -> int:
        """The position of the first message that was never delivered, or of the next one that comes."""
        if self.ready:
            first = self.head
        else:
            first = self.paged[0][0] if self.paged else self.end - len(self.fresh)
        return max(first, self.stale_end)

    def living(self) -> list[tuple[int, int]]:
        """The positions of all messages here, as ranges in order; the last one is open, for those to come."""
        ranges = [(position, position + 1) for position, _ in sorted(self.returned, key=_position)]
        begin = self.head if self.ready else self.paged[0][0] if self.paged else self.end - len(self.fresh)
        for first, end in self.gaps:
            ranges.append((begin, first))
            begin = end
        if self.paged:
            if self.ready:
                ranges.append((begin, self.ready_end))
            ranges += self.paged
            begin = self.end - len(self.fresh)
        ranges.append((begin, (self.head >> LEVEL_SHIFT) + 1 << LEVEL_SHIFT))
        return ranges

    # Paging: out at the far end of what is in RAM, in behind what is ready.

    def page_out(self, count: int, below: int) -> tuple[int, list[Message], list[Run]]:
        """Take up to so many of the last of `ready` below this position out of RAM, never the very first: first
        position and messages. Behind what is paged out already, the first of `fresh` can go too: `page_out_fresh`."""
        ready = self.ready
        end = self.ready_end if self.paged_count else self.end
        behind = max(0, end - below)  # these stay, and become fresh
        if behind and self.paged_count:  # fresh is elsewhere already
            return end, [], []
        count = min(count, len(ready) - behind - 1)
        if self.gaps:  # what was paged in with gaps stays
            count = min(count, end - behind - self.gaps[-1][1])
        if count <= 0:
            return end, [], []
        end -= behind
        self._make_fresh(behind)
        taken = [ready.pop() for _ in range(count)]
        taken.reverse()
        self.ready_bytes -= sum(len(wire) for _, wire in taken)
        first = end - count
        runs: list[Run] = []
        while self.runs and self.runs[-1][1] > first:
            run_first, run_end, deadline = self.runs.pop()
            runs.append((max(run_first, first), run_end, deadline))
            if run_first < first:
                self.runs.append((run_first, first, deadline))
                break
        self.ready_end = first
        if self.paged and self.paged[0][0] == end:
            self.paged[0] = first, self.paged[0][1]
        else:
            self.paged.appendleft((first, end))
        self._count_paged(taken)
        return first, taken, runs

    def _make_fresh(self, count: int) -> None:
        """The last of `ready` are the first of `fresh` now."""
        if not count:
            return
        moved = [self.ready.pop() for _ in range(count)]
        self.fresh.extendleft(moved)
        size = sum(len(wire) for _, wire in moved)
        self.ready_bytes -= size
        self.fresh_bytes += size
        first = self.end - len(self.fresh)
        while self.runs and self.runs[-1][1] > first:
            run_first, run_end, deadline = self.runs.pop()
            self.fresh_runs.appendleft((max(run_first, first), run_end, deadline))
            if run_first < first:
                self.runs.append((run_first, first, deadline))
                break

    def page_out_fresh(self, count: int) -> tuple[int, list[Message], list[Run]]:
        """Take up to so many of the first of `fresh` out of RAM."""
        fresh = self.fresh
        first = self.end - len(fresh)
        count = min(count, len(fresh))
        if count <= 0:
            return first, [], []
        taken = [fresh.popleft() for _ in range(count)]
        self.fresh_bytes -= sum(len(wire) for _, wire in taken)
        end = first + count
        runs: list[Run] = []
        while self.fresh_runs and self.fresh_runs[0][0] < end:
            run_first, run_end, deadline = self.fresh_runs.popleft()
            runs.append((run_first, min(run_end, end), deadline))
            if run_end > end:
                self.fresh_runs.appendleft((end, run_end, deadline))
                break
        if self.paged and self.paged[-1][1] == first:
            self.paged[-1] = self.paged[-1][0], end
        else:
            self.paged.append((first, end))
        self._count_paged(taken)
        return first, taken, runs

    def _count_paged(self, messages: list[Message]) -> None:
        self.paged_count += len(messages)
        if self.measured:
            size = _bodies(messages)
            self.body_bytes -= size
            self.paged_bytes += size

    def page_in(self, first: int, messages: Sequence[Message], deadlines_ns: Sequence[int] | None) -> None:
        """Messages that were paged out, the next ones, with consecutive positions from here on."""
        if not self.ready:
            self.head = first
        elif first != self.ready_end:
            self.gaps.append((self.ready_end, first))
        self.ready.extend(messages)
        self.ready_bytes += sum(len(wire) for _, wire in messages)
        self.ready_end = first + len(messages)
        for at, deadline in enumerate(deadlines_ns or ()):
            position = first + at
            if not deadline:
                continue
            if self.runs and self.runs[-1][1] == position and self.runs[-1][2] == deadline:
                self.runs[-1] = self.runs[-1][0], position + 1, deadline
            else:
                self.runs.append((position, position + 1, deadline))
        if self.measured:
            size = _bodies(messages)
            self.body_bytes += size
            known, end = self.guessed
            if known <= first < end:
                self.guessed = self.ready_end, end
                size = self.guess_bytes * len(messages)
                self.guessed_bytes -= size
            self.paged_bytes = max(0, self.paged_bytes - size)
        self.odd = bool(self.measured or self.gaps or self.runs or self.head < self.stale_end)

    def fill(self, found: Mapping[int, Message], lost: Collection[int]) -> None:
        """Messages that came back without their bodies have them again; some are lost."""
        if self.measured:  # not all that was found may still be here
            self.body_bytes += sum(
                body_size(found[position][1])
                for position, message in self.returned
                if is_away(message) and position in found
            )
        self.returned = [
            (position, found.get(position, message)) for position, message in self.returned if position not in lost
        ]
        heapq.heapify(self.returned)

    def paged_in(self, end: int) -> None:
        """All that was paged out below this position is back now, or lost."""
        while self.paged and self.paged[0][0] < end:
            first, stop = self.paged.popleft()
            self.paged_count -= min(stop, end) - first
            if stop > end:
                self.paged.appendleft((end, stop))
        if not self.paged:
            self.paged_bytes = self.guessed_bytes = 0
            self._join_fresh()

    def _join_fresh(self) -> None:
        """Nothing is paged out any more: what came after it is ready too."""
        first = self.end - len(self.fresh)
        if not self.ready:
            self.head = first
        elif first != self.ready_end:
            self.gaps.append((self.ready_end, first))
            self.odd = True
        self.ready.extend(self.fresh)
        self.ready_bytes += self.fresh_bytes
        self.runs.extend(self.fresh_runs)
        self.odd = self.odd or bool(self.runs)
        self.fresh.clear()
        self.fresh_bytes = 0
        self.fresh_runs.clear()

    def restore(self, ranges: Sequence[tuple[int, int]], count: int, bytes_: int, end: int, stale_end: int) -> None:
        """What is on disk at the start: these positions, so many messages, and about so many bytes of bodies."""
        self.paged.extend(ranges)
        self.paged_count = count
        if ranges:
            self._guess(bytes_ // max(1, count))
        self.end = self.ready_end = self.head = end
        self.stale_end = stale_end
        self.odd = stale_end > 0

    def _pop_ready(self, limit: int, bytes_max: int) -> list[Message]:
        ready = self.ready
        if self.ready_bytes <= bytes_max and len(ready) <= limit:
            messages = list(ready)
            ready.clear()
            self.ready_bytes = 0
            self.head += len(messages)
            return messages
        popleft = ready.popleft
        messages = []
        size = 0
        for _ in range(min(limit, len(ready))):
            message = popleft()
            messages.append(message)
            size += len(message[1])
            if size > bytes_max:
                break
        self.ready_bytes -= size
        self.head += len(messages)
        return messages

    def _pop_returned(self, limit: int, bytes_max: int) -> tuple[list[int], list[Message]]:
        positions: list[int] = []
        messages: list[Message] = []
        size = 0
        while self.returned and len(positions) < limit and size <= bytes_max:
            if is_away(self.returned[0][1]):
                break
            position, message = heapq.heappop(self.returned)
            positions.append(position)
            messages.append(message)
            size += len(message[1])
        return positions, messages

    def _note_deadlines(self, first: int) -> None:
        """What was popped from here to the head keeps its deadline until it is settled."""
        runs = self.runs
        while runs and runs[0][0] < self.head:
            start, end, deadline = runs[0]
            for position in range(max(start, first), min(end, self.head)):
                self.deadlines[position] = deadline
            if end > self.head:
                return
            runs.popleft()

    def __repr__(self) -> str:
        return (
            f"<Backlog ready={len(self.ready)} returned={len(self.returned)} paged={self.paged_count} "
            f"fresh={len(self.fresh)} head={self.head}>"
        )


def _bodies(messages: Sequence[Message] | deque[Message]) -> int:
    return sum(body_size(wire) for _, wire in messages if wire)  # AWAY has none


def _position(entry: tuple[int, Message]) -> int:
    return entry[0]


def counted(message: Message, returns: int) -> Message:
    """With the header that says how often it came back; one that is on disk only gets it when it is read."""
    if is_away(message):
        return message
    count = b"l" + returns.to_bytes(8, "big")
    return message[0], rewrite(message[1], set_headers={"x-delivery-count": count})

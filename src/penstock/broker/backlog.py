"""Backlog: the messages of a queue that wait, in order. A priority queue has one per priority.

Every message has a position, counted as it arrives. `ready` holds what was never delivered, so its positions are
consecutive from `head`; whatever comes back goes to `returned`, by position. Invariant: every returned position is
below `head`, so what comes back is ahead of all that was never delivered, in its original order.

Deadlines of ready messages are kept as runs of positions, one per batch; of messages that left `ready` and may come
back, by position. Queues without TTL have neither.
Not here: who gets a message, what becomes of an expired one (queue.py).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import Final

from penstock.amqp.content import body_size
from penstock.amqp.decoder import Message

LEVEL_SHIFT: Final = 48  # a position's high bits are its priority: 2 to the 48 messages are enough for each


class Backlog:
    __slots__ = ("body_bytes", "deadlines", "head", "measured", "ready", "ready_bytes", "returned", "runs")

    def __init__(self, level: int = 0) -> None:
        self.head = level << LEVEL_SHIFT  # position of ready[0]
        self.ready: deque[Message] = deque()
        self.ready_bytes = 0  # on the wire
        self.returned: list[tuple[int, Message]] = []  # a heap
        self.runs: deque[tuple[int, int, int]] = deque()  # first position, end, deadline in ns
        self.deadlines: dict[int, int] = {}
        self.measured = False  # whether body_bytes is kept: it costs time per message
        self.body_bytes = 0  # of ready and returned

    def __len__(self) -> int:
        return len(self.ready) + len(self.returned)

    def append(self, messages: Sequence[Message], bytes_: int, deadline_ns: int = 0) -> None:
        """Messages that arrive; with a deadline, all with the same."""
        if deadline_ns:
            first = self.head + len(self.ready)
            self.runs.append((first, first + len(messages), deadline_ns))
        self.ready.extend(messages)
        self.ready_bytes += bytes_
        if self.measured:
            self.body_bytes += _bodies(messages)

    def put_back(self, position: int, message: Message) -> None:
        heapq.heappush(self.returned, (position, message))
        if self.measured:
            self.body_bytes += body_size(message[1])

    def pop(self, limit: int, bytes_max: int) -> tuple[Sequence[int], list[Message], bool]:
        """The first messages: positions, messages, and whether they were delivered before."""
        if not self.returned and not self.runs and not self.measured:
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
        first = self.head
        messages = self._pop_ready(limit, bytes_max)
        if self.runs:
            self._note_deadlines(first)
        if self.measured:
            self.body_bytes -= _bodies(messages)
        return range(first, self.head), messages, False

    def deadline(self) -> int:
        """When the first message expires; 0 is never."""
        if self.returned:
            return self.deadlines.get(self.returned[0][0], 0)
        runs = self.runs
        while runs and runs[0][1] <= self.head:
            runs.popleft()
        return runs[0][2] if runs and runs[0][0] <= self.head else 0

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
        self.head += len(self.ready)
        self.ready.clear()
        self.ready_bytes = 0
        for position, _ in self.returned:
            self.deadlines.pop(position, None)
        self.returned.clear()
        self.runs.clear()
        self.body_bytes = 0

    def measure(self, measured: bool) -> None:
        """Begin or stop to keep `body_bytes`."""
        if measured and not self.measured:
            self.body_bytes = _bodies(self.ready) + _bodies([message for _, message in self.returned])
        self.measured = measured

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
        return f"<Backlog ready={len(self.ready)} returned={len(self.returned)} head={self.head}>"


def _bodies(messages: Sequence[Message] | deque[Message]) -> int:
    return sum(body_size(wire) for _, wire in messages)

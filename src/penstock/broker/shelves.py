"""Shelves: all messages that wait in a queue: one backlog per priority, with deadlines and limits.

The head is the first message of the highest priority that has one. Messages expire and are dropped at the head only, as
in RabbitMQ: one that is due but not at the head keeps its place until it gets there.
Place: inside queue.py. Here is decided which messages must go; what becomes of them is decided there.
Not here: order within a priority (backlog.py), consumers (subscribers.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.amqp.content import FLAGS_OFFSET, body_size
from penstock.amqp.decoder import Message
from penstock.amqp.properties import priority_of
from penstock.broker.backlog import Backlog
from penstock.broker.casts import NO_TTL
from penstock.broker.options import DROP_HEAD, NONE, Options
from penstock.runtime import Clock
from penstock.store.log import LEVEL_SHIFT
from penstock.store.record import Range

Dead = tuple[list[int], list[Message]]  # positions and messages that were taken from the head for good

NS_PER_MS: Final = 1_000_000
ANY_BYTES: Final = 1 << 62


class Shelves:
    __slots__ = (
        "_arrived_ns",
        "_clock",
        "_options",
        "bounded",
        "levels",
        "lowest",
        "plain",
        "refuses",
        "returns",
        "several",
        "timed",
    )

    def __init__(self, options: Options, clock: Clock) -> None:
        self._clock = clock
        self.levels = [Backlog(level) for level in range(options.max_priority + 1)]
        self.lowest = self.levels[0]
        self.several = len(self.levels) > 1
        self._arrived_ns = 0  # since the last dispatch; 0 if nothing did
        self.timed = False  # some message here has, or had, a deadline
        self.returns: dict[int, int] = {}  # how often a message came back, if that is limited
        self.apply(options)

    def apply(self, options: Options) -> None:
        self._options = options
        limited = options.has_limit()
        self.bounded = limited and options.overflow == DROP_HEAD
        self.refuses = options.refuses()
        self.plain = not self.several and not self.refuses and options.message_ttl_ms == NONE
        for backlog in self.levels:
            backlog.measure(options.counts_bytes())

    def __len__(self) -> int:
        if not self.several:
            return len(self.lowest)
        return sum(len(backlog) for backlog in self.levels)

    def append(self, messages: Sequence[Message], bytes_: int, ttls_ms: Sequence[int] | None) -> Sequence[int]:
        """Messages that arrive, with the time to live of each if any has one; their positions."""
        if not self.several and ttls_ms is None and self._options.message_ttl_ms == NONE:
            return self.lowest.append(messages, bytes_)
        self._arrived_ns = self._clock.now_ns()
        if not self.several and ttls_ms is None:
            return self.lowest.append(messages, bytes_, self._deadline(NO_TTL))
        positions: list[int] = []
        for at, message in enumerate(messages):
            level = 0
            if self.several:
                level = min(priority_of(message[1], FLAGS_OFFSET), len(self.levels) - 1)
            deadline = self._deadline(ttls_ms[at] if ttls_ms is not None else NO_TTL)
            positions += self.levels[level].append((message,), len(message[1]), deadline)
        return positions

    def ttl_ms(self, ttl_ms: int) -> int:
        """The time to live of a message that has this one of its own, by the queue's and its own; NO_TTL is for
        ever."""
        own = self._options.message_ttl_ms
        return own if own != NONE and (ttl_ms == NO_TTL or own < ttl_ms) else ttl_ms

    def put_back(self, position: int, message: Message) -> None:
        self.levels[position >> LEVEL_SHIFT].put_back(position, message)

    def front(self) -> Backlog:
        """Where the next message is, if there is one."""
        if self.several:
            for at in range(len(self.levels) - 1, 0, -1):
                backlog = self.levels[at]
                if backlog.ready or backlog.returned or backlog.paged_count:
                    return backlog
        return self.lowest

    def forget(self, positions: Sequence[int]) -> None:
        """These were popped and will not come back."""
        if self.timed:
            for position in positions:
                self.levels[position >> LEVEL_SHIFT].deadlines.pop(position, None)
        if self.returns:
            for position in positions:
                self.returns.pop(position, None)

    def clear(self) -> None:
        for backlog in self.levels:
            self.forget([position for position, _ in backlog.returned])
            backlog.clear()

    # Time.

    def deadline(self) -> int:
        """When the message at the head expires; 0 is never."""
        return self.front().deadline() if self.timed else 0

    def overdue(self, limit: int) -> Dead:
        """Take what is due from the head, as far as this is before a dispatch."""
        # What has just come with a time to live of 0 must have its chance with a consumer first.
        return self._take_due(self._arrived_ns or self._clock.now_ns() + 1, limit)

    def due(self, limit: int) -> Dead:
        """Take what is due from the head."""
        self._arrived_ns = 0
        return self._take_due(self._clock.now_ns() + 1, limit)

    def _take_due(self, now_ns: int, limit: int) -> Dead:
        dead: Dead = [], []
        while len(dead[0]) < limit:
            backlog = self.front()
            deadline = backlog.deadline()
            if not deadline or deadline >= now_ns or not backlog.has_next():
                break
            self._take(backlog, min(limit - len(dead[0]), backlog.stretch()), dead)
        return dead

    def _deadline(self, ttl_ms: int) -> int:
        """When a message with this time to live that arrives now expires; 0 is never."""
        ttl_ms = self.ttl_ms(ttl_ms)
        if ttl_ms == NO_TTL:
            return 0
        self.timed = True
        return max(1, self._arrived_ns + ttl_ms * NS_PER_MS)

    # Space.

    def has_space(self, message: Message) -> bool:
        options = self._options
        if options.max_length != NONE and len(self) >= options.max_length:
            return False
        if options.max_length_bytes == NONE:
            return True
        return self.body_bytes() + body_size(message[1]) <= options.max_length_bytes

    def excess(self, limit: int) -> Dead:
        """Take what is more than the queue may hold from the head, as far as it is in RAM."""
        dead: Dead = [], []
        options = self._options
        over = len(self) - options.max_length if options.max_length != NONE else 0
        bytes_max = options.max_length_bytes
        # Nothing is dropped on a guess: what it would cost is known when it has been read.
        while len(dead[0]) < limit and (over > 0 or (bytes_max != NONE and self.known_bytes() > bytes_max)):
            backlog = self.front()
            if not backlog.has_next():
                break
            self._take(backlog, 1, dead)
            over -= 1
        return dead

    def body_bytes(self) -> int:
        return sum(backlog.body_bytes + backlog.paged_bytes for backlog in self.levels)

    def known_bytes(self) -> int:
        """Of those bodies that were ever measured."""
        return sum(backlog.body_bytes + backlog.paged_bytes - backlog.guessed_bytes for backlog in self.levels)

    def _take(self, backlog: Backlog, count: int, dead: Dead) -> None:
        positions, messages, _ = backlog.pop(count, ANY_BYTES)
        self.forget(positions)
        dead[0].extend(positions)
        dead[1].extend(messages)

    # The disk.

    def living(self) -> list[Range]:
        """The positions of all that waits here, and of all that is to come, in order."""
        return [ranged for backlog in self.levels for ranged in backlog.living()]

    def paged_count(self) -> int:
        return sum(backlog.paged_count for backlog in self.levels)

    def __repr__(self) -> str:
        return f"<Shelves messages={len(self)} levels={len(self.levels)} timed={self.timed}>"

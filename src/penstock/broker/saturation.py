"""Saturation: the confirms that a queue above its stop mark holds back. Marks: that, and the block at its maximum.

A publisher that waits for confirms has a window; while its confirms are held the window does not move, so it is
throttled by itself, and nobody else is. A message is held by every saturated queue it came to, and its channel waits
for all of them (confirms.py); each hold ends when the queue is released, when the message leaves it, or when it is
deleted.

Which messages: those that take the queue above its mark, and all that come while it is above. That is decided once, at
the end of the turn in which they come, after consumers had their share: what goes straight through saturates nothing.
Until then all that came is held. It does not depend on when a message is on disk: one that may be confirmed only later
is looked up by its position then.

So one number per priority says it all: positions from the floor on are held. It rises when messages leave the queue,
which they do in order of position, and is gone when the queue is released. Requeued messages are below it: they left
once.

Publishers without confirms have no window. With x-overflow=block-publish they are stopped by credit: at its maximum the
queue is blocked, so it grants no more until there is room for a message again. What is in flight still comes.

Place: inside queue.py, between the store and the channel: what is on disk where it must be comes to `hold`. Only queues
with marks or with a maximum that blocks have any of this.
Not here: when a queue is saturated (credit/watermark.py), which marks it has (options.py).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from penstock.amqp.content import body_size
from penstock.amqp.decoder import Message
from penstock.credit import Gauge, Stage, Watermark
from penstock.credit.watermark import OFF
from penstock.store.log import LEVEL_SHIFT

if TYPE_CHECKING:
    from penstock.broker.casts import Arrival
    from penstock.broker.channel import Channel
    from penstock.broker.queue import Queue

Runs = list[tuple[int, int]]  # confirm numbers, first and last

MAXIMUM: Final = "maximum"  # what a queue at its maximum is blocked by
HOLDERS_LOOK_MAX: Final = 1000  # holds of one priority that are looked at for who waits: some 50 us
HOLDS_MIN: Final = 64  # fewer are not looked through for channels that are gone


class _Lane:
    """Of one priority: where held positions begin, and the holds, by position: first, last, first number, whose."""

    __slots__ = ("floor", "holds")

    def __init__(self, floor: int) -> None:
        self.floor = floor
        self.holds: list[tuple[int, int, int, Channel]] = []  # a heap: what is on disk later may have come earlier


class Saturation:
    __slots__ = ("_fresh", "_gauge", "_lanes", "_now_ns", "_prune_at", "held", "since_ns", "times")

    def __init__(self, watermark: Watermark, now_ns: Callable[[], int]) -> None:
        self._gauge = Gauge(watermark)
        self._now_ns = now_ns
        self._lanes: dict[int, _Lane] = {}
        self._fresh: list[tuple[Sequence[int], Sequence[Message]]] = []  # came since the queue was last judged
        self._prune_at = HOLDS_MIN
        self.times = 0  # how often it became saturated
        self.since_ns = 0  # since when it is; 0 if it is not
        self.held = 0  # confirms held back now

    @property
    def saturated(self) -> bool:
        return self._gauge.saturated

    @property
    def watermark(self) -> Watermark:
        return self._gauge.watermark

    def apply(self, watermark: Watermark) -> None:
        """From now on these marks; the queue is to be judged by them next."""
        self._gauge.watermark = watermark

    # In.

    def arrived(self, positions: Sequence[int], messages: Sequence[Message]) -> None:
        """The queue took these messages; what is to be confirmed of them comes to `hold`, now or later."""
        lanes = self._lanes
        if isinstance(positions, range):
            if positions and positions[0] >> LEVEL_SHIFT not in lanes:
                lanes[positions[0] >> LEVEL_SHIFT] = _Lane(positions[0])
        else:
            for position in positions:
                if position >> LEVEL_SHIFT not in lanes:
                    lanes[position >> LEVEL_SHIFT] = _Lane(position)
        if not self._gauge.saturated:
            self._fresh.append((positions, messages))

    def hold(self, channel: Channel, numbers: Runs, positions: Sequence[int]) -> Runs:
        """These numbers, of the messages at these positions, could be confirmed: those that are not held."""
        # A commit holds up its whole channel, acks and all: a queue that waits for those would wait for ever.
        if not self._lanes or channel.transaction is not None:
            return numbers
        free: Runs = []
        for first, last, position in _pieces(numbers, positions):
            lane = self._lanes.get(position >> LEVEL_SHIFT)
            passing = last - first + 1
            if lane is not None:
                passing = min(passing, max(0, lane.floor - position))
                if first + passing <= last:
                    end = position + last - first
                    heapq.heappush(lane.holds, (position + passing, end, first + passing, channel))
                    self.held += last - first + 1 - passing
            if passing:
                free.append((first, first + passing - 1))
        return free

    # The end of a turn.

    def judge(self, count: int, bytes_: int, heads: Sequence[int], upstream: Container[Stage]) -> None:
        """The queue now has this much. Let go what has left it, or everything if it is not saturated.

        `heads` are the positions, by priority, below which nothing waits that was not delivered before; `upstream` are
        the channels that still live."""
        if not self._lanes and not self._gauge.saturated and not self._gauge.watermark.is_above(count, bytes_):
            return
        for level, lane in self._lanes.items():
            lane.floor = max(lane.floor, heads[level])
        was_saturated = self._gauge.saturated
        if not self._gauge.read(count, bytes_):
            self.since_ns = 0
            self.release()
            return
        if not was_saturated:
            self.times += 1
            self.since_ns = self._now_ns()
            self._draw_line(count, bytes_)
            self._fresh.clear()
        released: dict[Channel, Runs] = {}
        for lane in self._lanes.values():
            while lane.holds and lane.holds[0][0] < lane.floor:
                self._let_go(lane, released)
        _confirm(released)
        self._prune(upstream)

    def held_of(self) -> dict[Channel, int]:
        """Whose confirms are held, and how many."""
        found: dict[Channel, int] = {}
        for lane in self._lanes.values():
            for position, end, _, channel in lane.holds:
                found[channel] = found.get(channel, 0) + end - position + 1
        return found

    def holders(self, upstream: Container[Stage], count: int) -> list[Channel]:
        """Of the channels that live some whose confirms are held, at most so many; not all holds are looked through."""
        found: dict[Channel, None] = {}
        for lane in self._lanes.values():
            for hold in lane.holds[:HOLDERS_LOOK_MAX]:
                if hold[3] in upstream:
                    found[hold[3]] = None
                    if len(found) >= count:
                        return list(found)
        return list(found)

    def release(self) -> None:
        """Let all confirms go: the queue is no longer saturated, or gone, or has no marks any more."""
        released: dict[Channel, Runs] = {}
        for lane in self._lanes.values():
            for position, end, number, channel in lane.holds:
                released.setdefault(channel, []).append((number, number + end - position))
        self._lanes.clear()
        self._fresh.clear()
        self.held = 0
        self._prune_at = HOLDS_MIN
        _confirm(released)

    def _draw_line(self, count: int, bytes_: int) -> None:
        """The queue has just become saturated: of what came this turn, only what is above the mark is held."""
        watermark = self._gauge.watermark
        by_size = watermark.stop_bytes != OFF
        lines: dict[int, int] = {}
        for positions, messages in reversed(self._fresh):
            for at in range(len(positions) - 1, -1, -1):
                position = positions[at]
                level = position >> LEVEL_SHIFT
                if position < self._lanes[level].floor:  # gone already
                    continue
                if watermark.is_above(count, bytes_):
                    lines[level] = position
                    count -= 1
                    if by_size:
                        bytes_ -= body_size(messages[at][1])
                elif level not in lines:
                    lines[level] = position + 1
        for level, line in lines.items():
            self._lanes[level].floor = line

    def _let_go(self, lane: _Lane, released: dict[Channel, Runs]) -> None:
        """Of the first hold, what is below the floor."""
        position, end, number, channel = heapq.heappop(lane.holds)
        passing = min(end + 1, lane.floor) - position
        released.setdefault(channel, []).append((number, number + passing - 1))
        self.held -= passing
        if position + passing <= end:
            heapq.heappush(lane.holds, (position + passing, end, number + passing, channel))

    def _prune(self, upstream: Container[Stage]) -> None:
        """Forget holds of channels that are gone, when there may be many: publishers that give up and come again."""
        if sum(len(lane.holds) for lane in self._lanes.values()) < self._prune_at:
            return
        self.held = kept = 0
        for lane in self._lanes.values():
            lane.holds = [hold for hold in lane.holds if hold[3] in upstream]
            heapq.heapify(lane.holds)
            self.held += sum(end - position + 1 for position, end, _, _ in lane.holds)
            kept += len(lane.holds)
        self._prune_at = max(HOLDS_MIN, 2 * kept)

    def __repr__(self) -> str:
        state = "saturated" if self.saturated else "released"
        return f"<Saturation {state} times={self.times} held={self.held} {self.watermark!r}>"


class Marks:
    """Of a queue that has marks, or a maximum that blocks: both, looked at as it fills and empties."""

    __slots__ = ("_queue", "saturation")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.saturation: Saturation | None = None
        self.apply()

    def apply(self) -> None:
        """The queue's options have changed; it is to be judged by them next."""
        watermark = self._queue.options.watermark
        if watermark is None:
            self._release()
            self.saturation = None
        elif self.saturation is None:
            self.saturation = Saturation(watermark, self._queue.clock)
        else:
            self.saturation.apply(watermark)

    def expect(self, item: Arrival) -> None:
        """The queue is about to take these. Before it grants for them: what fills it is granted when there is room."""
        options, shelves = self._queue.options, self._queue.shelves
        if options.blocks():
            more = sum(body_size(wire) for _, wire in item.messages) if options.counts_bytes() else 0
            if options.is_at_limit(len(shelves) + len(item.messages), shelves.body_bytes() + more):
                self._queue.block(MAXIMUM)

    def arrived(self, item: Arrival, positions: Sequence[int]) -> None:
        if self.saturation is not None:
            self.saturation.arrived(positions, item.messages)

    def hold(self, channel: Channel, numbers: Runs, positions: Sequence[int]) -> Runs:
        """Of these numbers, those that may be confirmed now."""
        return numbers if self.saturation is None else self.saturation.hold(channel, numbers, positions)

    def judge(self) -> None:
        """A turn of the queue ends."""
        queue, shelves = self._queue, self._queue.shelves
        count, bytes_ = len(shelves), shelves.body_bytes()
        saturation = self.saturation
        if saturation is not None:
            was_saturated, held = saturation.saturated, saturation.held
            saturation.judge(count, bytes_, [backlog.head for backlog in shelves.levels], queue.incoming)
            if saturation.saturated != was_saturated and queue.block_log is not None:
                queue.block_log.judged(queue, saturation.saturated, count, bytes_, held)
        if queue.options.blocks() and queue.options.is_at_limit(count, bytes_):
            queue.block(MAXIMUM)
        else:
            queue.unblock(MAXIMUM)

    def end(self) -> None:
        """The queue has no marks any more, or is gone."""
        self._release()
        self._queue.unblock(MAXIMUM)

    def _release(self) -> None:
        """It has no watermark any more, or is gone."""
        queue, saturation = self._queue, self.saturation
        if saturation is None:
            return
        if saturation.saturated and queue.block_log is not None:
            queue.block_log.judged(queue, False, len(queue.shelves), queue.shelves.body_bytes(), saturation.held)
        saturation.release()

    def __repr__(self) -> str:
        return f"<Marks {self.saturation!r}{' at its maximum' if MAXIMUM in self._queue.blocked_by else ''}>"


def renewed(marks: Marks | None, queue: Queue) -> Marks | None:
    """The marks that the queue's options ask for now, with what the old ones hold."""
    if queue.options.watermark is None and not queue.options.blocks():
        if marks is not None:
            marks.end()
        return None
    if marks is None:
        return Marks(queue)
    marks.apply()
    return marks


def _pieces(numbers: Runs, positions: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Numbers, first and last, and the position of the first: both go up by one within a piece."""
    at = 0
    for first, last in numbers:
        if isinstance(positions, range):
            yield first, last, positions[at]
            at += last - first + 1
            continue
        while first <= last:
            start = positions[at]
            length = 1
            while first + length <= last and positions[at + length] == start + length:
                length += 1
            yield first, first + length - 1, start
            first += length
            at += length


def _confirm(released: dict[Channel, Runs]) -> None:
    """One notice per channel, with as few runs as there can be."""
    for channel, runs in released.items():
        runs.sort()
        merged: Runs = []
        for first, last in runs:
            if merged and merged[-1][1] + 1 == first:
                merged[-1] = (merged[-1][0], last)
            else:
                merged.append((first, last))
        channel.confirmed(merged)

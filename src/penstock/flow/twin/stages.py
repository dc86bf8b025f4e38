"""Stages: reader, channel and queue as the broker's, with counts in place of messages.

Each is a Stage of penstock.credit on real links; a turn does what the broker's does in the same order (net/reader.py,
broker/channel.py, broker/handover.py, broker/queue.py, broker/saturation.py), so what credit does here is
what it does there. Messages of one publisher are alike, so a batch is a number.
Upstream: clients.py.  Downstream: disk.py.
Not here: time (machine.py), sockets (clients.py), what is made of it all (simulate.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from penstock.credit import Gauge, Hop, Link, Stage, Watermark
from penstock.flow.twin.machine import Machine

if TYPE_CHECKING:
    from penstock.flow.twin.clients import ConsumerClient, Lane
    from penstock.flow.twin.disk import Store

DISPATCH_BYTES_MAX: Final = 262_144  # broker/dispatch.py
FRAMING_BYTES: Final = 31  # of a content beside its body: what credit and memory count


class Works(Stage):
    """A stage with turns: what all of them share with a mailbox of the broker."""

    __slots__ = ("delay_us", "machine", "scheduled", "slowed", "waiting")

    def __init__(self, machine: Machine, name: str, kind: str, delay_us: float = 0.0) -> None:
        super().__init__(name, machine.clock_ns, None, kind)
        self.machine = machine
        self.scheduled = False
        self.delay_us = delay_us  # faults: so long for each message, while nothing is taken
        self.slowed = False
        self.waiting = 0  # messages in its mailbox

    def wake(self) -> None:
        if not self.scheduled:
            self.machine.schedule(self)

    def run(self, budget: int) -> int:
        raise AssertionError(f"{self.name} has no turns")

    def slow_down(self, taken: int) -> None:
        if self.delay_us and taken:
            self.slowed = True
            self.machine.call_later(taken * self.delay_us, self._go_on)

    def _go_on(self) -> None:
        self.slowed = False
        self.wake()


class Reader(Works):
    """Parks what its channel has no credit for; full above a limit, until half of it is free."""

    __slots__ = ("channel", "is_full", "lane", "link", "parked", "parked_count")

    def __init__(self, machine: Machine, name: str, lane: Lane, channel: Channel, hop: Hop) -> None:
        super().__init__(machine, name, "connection")
        self.lane = lane
        self.channel = channel
        self.link = Link(hop, self, channel)
        channel.upstream = self.link
        self.parked: deque[int] = deque()
        self.parked_count = 0
        self.is_full = False

    def receive(self, count: int) -> None:
        """Publishes that one read brought."""
        link, bytes_ = self.link, count * self.lane.content_bytes
        if self.parked or link.blocking or count > link.room() or bytes_ > link.room_bytes():
            self.parked.append(count)
            self.parked_count += count
            if not link.blocking:
                self._release()
            self._weigh()
        else:
            link.spend(count, bytes_)
            self.channel.cast(count)

    def _release(self) -> None:
        link, size = self.link, self.lane.content_bytes
        while self.parked and not link.blocking:
            count = self.parked.popleft()
            head = within(count, size, link.room(), link.room_bytes())
            if head < count:
                self.parked.appendleft(count - head)
            self.parked_count -= head
            link.spend(head, head * size)
            self.channel.cast(head)

    def _weigh(self) -> None:
        limit = self.machine.plant.parked_bytes_max
        self.is_full = self.parked_count * self.lane.content_bytes > (limit // 2 if self.is_full else limit)

    def unblock(self, reason: Link | str) -> None:
        super().unblock(reason)
        self.wake()

    def run(self, budget: int) -> int:
        self.machine.work(self.machine.plant.reader.turn_us)
        self._release()
        self._weigh()
        return 0


class Channel(Works):
    """Of a publisher: casts to queues, tells of confirms."""

    __slots__ = ("lane", "links", "ordinary", "upstream", "urgent")

    def __init__(self, machine: Machine, name: str, lane: Lane) -> None:
        super().__init__(machine, name, "channel", machine.plant.channel_delay_us)
        self.lane = lane
        self.upstream: Link | None = None
        self.links: list[tuple[Link, Queue]] = []
        self.ordinary: deque[int] = deque()
        self.urgent: deque[int] = deque()

    def cast(self, count: int) -> None:
        self.ordinary.append(count)
        self.waiting += count
        if not self.scheduled:
            self.machine.schedule(self)

    def confirmed(self, count: int) -> None:
        """From a queue."""
        self.urgent.append(count)
        if not self.scheduled:
            self.machine.schedule(self)

    def run(self, budget: int) -> int:
        plant, urgent, ordinary = self.machine.plant, self.urgent, self.ordinary
        told = taken = confirmed = 0
        while told + taken < budget:
            if urgent:
                confirmed += urgent.popleft()
                told += 1
            elif ordinary and not self.slowed:
                count = ordinary.popleft()
                taken += count
                self._publish(count)
            else:
                break
        if taken:
            self.machine.work(plant.channel.of(taken))
        if told:
            self.machine.work(plant.confirm.turn_us + plant.confirm.message_us * told)
            self.lane.confirmed(confirmed)
        self.slow_down(taken)
        if urgent or (ordinary and not self.slowed):
            self.machine.schedule(self)
        return told + taken

    def _publish(self, count: int) -> None:
        """broker/handover.py: spend, and grant those that came before the credit was used up."""
        self.waiting -= count
        size, upstream = self.lane.content_bytes, self.upstream
        was_blocked = bool(self.blocked_by)
        for link, queue in self.links:
            link.spend(count, count * size)
            queue.cast_arrival(count, link, self.lane)
        if upstream is None:
            return
        if was_blocked or not self.blocked_by:
            upstream.handle(count, count * size)
            return
        free = min(
            within(count, size, link.room_before(count), link.room_bytes_before(count * size))
            if link.blocking
            else count
            for link, _ in self.links
        )
        upstream.handle(free, free * size, defer=False)
        upstream.handle(count - free, (count - free) * size)


class Queue(Works):
    """Takes arrivals, gives to consumers, has the store keep what is persistent, holds confirms when saturated."""

    __slots__ = (
        "_end",
        "_gauge",
        "_head",
        "_holds",
        "_line",
        "_turn_at",
        "consumers",
        "given",
        "held",
        "old",
        "ordinary",
        "ready",
        "ready_count",
        "saturated_at_us",
        "saturated_us",
        "store",
        "store_link",
        "taken",
        "unacked",
    )

    def __init__(self, machine: Machine, name: str, watermark: Watermark | None, store: Store | None) -> None:
        super().__init__(machine, name, "queue", machine.plant.queue_delay_us)
        self.ordinary: deque[tuple[int, Link | None, Lane | None]] = deque()  # without a lane: settled
        self.ready: deque[tuple[int, Lane | None]] = deque()
        self.ready_count = 0
        self.old = 0  # messages of the start that no consumer has yet
        self.unacked = 0
        self.taken = 0  # messages, so far
        self.given = 0  # to consumers
        self.consumers: list[ConsumerClient] = []
        self.store = store
        self.store_link: Link | None = None
        self.held = 0  # confirms
        self.saturated_us = 0.0
        self.saturated_at_us = -1.0
        self._gauge = Gauge(watermark) if watermark is not None else None
        self._holds: deque[tuple[int, int, Lane]] = deque()  # first position, count, whose
        self._line: int | None = None  # positions from here on are held; None: none are
        self._head = 0  # position of the first ready message
        self._end = 0  # and of the next that comes
        self._turn_at = 0

    def cast_arrival(self, count: int, link: Link, lane: Lane) -> None:
        self.ordinary.append((count, link, lane))
        self.waiting += count
        if not self.scheduled:
            self.machine.schedule(self)

    def cast_settled(self, count: int) -> None:
        self.ordinary.append((count, None, None))
        if not self.scheduled:
            self.machine.schedule(self)

    def fill(self, count: int) -> None:
        """Messages that are there at the start."""
        self.ready.append((count, None))
        self.ready_count += count
        self.old += count
        self._end += count
        self.wake()

    def run(self, budget: int) -> int:
        plant, ordinary = self.machine.plant, self.ordinary
        taken = arrived = settled = 0
        while taken < budget and ordinary and not self.slowed:
            count, link, lane = ordinary.popleft()
            taken += count
            if lane is None:
                settled += count
                self.unacked -= count
            elif link is not None:
                arrived += count
                self._arrive(count, link, lane)
        if arrived:
            self.machine.work(plant.queue.of(arrived))
        if settled:
            self.machine.work(plant.settle.of(settled))
        given = self._dispatch(budget)
        if self._gauge is not None:
            self._judge(self._gauge)
        self.slow_down(taken)
        if ordinary and not self.slowed:
            self.machine.schedule(self)
        return taken + given

    def _arrive(self, count: int, link: Link, lane: Lane) -> None:
        self.waiting -= count
        link.handle(count, count * lane.content_bytes)
        position = self._end
        self.ready.append((count, lane))
        self.ready_count += count
        self.taken += count
        self._end += count
        if self._gauge is not None and self._line is None:
            self._line = position
        if lane.persistent and self.store is not None:
            if self.store_link is None:
                self.store_link = self.store.link(self)
            self.store.deposit(self, self.store_link, lane, position, count)
        elif lane.wants_confirms:
            self.confirm(lane, position, count)

    def confirm(self, lane: Lane, position: int, count: int) -> None:
        """These are where they must be: confirmed, unless the queue holds them."""
        if self._line is not None:
            passing = min(count, max(0, self._line - position))
            if passing < count:
                self._holds.append((position + passing, count - passing, lane))
                self.held += count - passing
                count = passing
        if count:
            lane.queue_confirmed(count)

    def _dispatch(self, budget: int) -> int:
        given = 0
        consumers = self.consumers
        while self.ready_count and given < budget:
            consumer, room = self._next_consumer()
            if consumer is None:
                break
            share = -(-self.ready_count // len(consumers)) if len(consumers) > 1 else self.ready_count
            count = min(room, share, budget - given, max(1, DISPATCH_BYTES_MAX // consumer.content_bytes))
            self._turn_at += 1
            self._give(consumer, count)
            given += count
        if given:
            self.machine.work(self.machine.plant.deliver.of(given))
            if given >= budget and self.ready_count:
                self.wake()
        return given

    def _next_consumer(self) -> tuple[ConsumerClient | None, int]:
        """The next in turn that may have messages, and how many; None: all are full, or there is none."""
        consumers = self.consumers
        for step in range(len(consumers)):
            one = consumers[(self._turn_at + step) % len(consumers)]
            if (room := one.room()) > 0:
                self._turn_at += step
                return one, room
        return None, 0

    def _give(self, consumer: ConsumerClient, count: int) -> None:
        self.ready_count -= count
        self.given += count
        self._head += count
        if consumer.acks:
            self.unacked += count
        for part, lane in first_of(self.ready, count):
            consumer.deliver(part, lane)

    def _judge(self, gauge: Gauge) -> None:
        """broker/saturation.py, at the end of a turn."""
        was_saturated = gauge.saturated
        line = self._line
        if line is None and not was_saturated and not gauge.watermark.is_above(self.ready_count, 0):
            return
        if not gauge.read(self.ready_count, 0):
            self._line = None
            if was_saturated:
                self.saturated_us += self.machine.now_us - self.saturated_at_us
                self.saturated_at_us = -1.0
        else:
            line = max(line if line is not None else self._head, self._head)
            if not was_saturated:
                self.saturated_at_us = self.machine.now_us
                line = max(line, self._end - max(0, self.ready_count - gauge.watermark.stop_count))
            self._line = line
        while self._holds:
            position, count, lane = self._holds[0]
            passing = count if self._line is None else min(count, self._line - position)
            if passing <= 0:
                break
            self._holds.popleft()
            self.held -= passing
            if passing < count:
                self._holds.appendleft((position + passing, count - passing, lane))
            lane.queue_confirmed(passing)

    def saturated_so_far_us(self) -> float:
        going_on = self.machine.now_us - self.saturated_at_us if self.saturated_at_us >= 0 else 0.0
        return self.saturated_us + going_on


def first_of(batches: deque[tuple[int, Lane | None]], count: int) -> Iterator[tuple[int, Lane | None]]:
    """The first so many messages of these batches, taken away from them."""
    while count:
        batch, lane = batches.popleft()
        part = min(batch, count)
        if part < batch:
            batches.appendleft((batch - part, lane))
        count -= part
        yield part, lane


def within(count: int, size: int, room: int, room_bytes: int) -> int:
    """How many of these messages there is room for; at least one: the one that crosses the line may still go."""
    by_bytes = -(-room_bytes // size) if size else count
    return max(1, min(count, room, by_bytes))

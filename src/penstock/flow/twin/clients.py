"""Clients: publishers and consumers, their sockets, and the lanes that messages go along.

A lane is one publisher's way: it knows when what was sent, so that a confirm or a delivery tells how long it took.
Order is kept on a lane, so counting is enough.
Upstream: nothing.  Downstream: stages.py. Both sides of a socket are here: what the kernel holds, and what the broker
does when it reads and writes.
Not here: the broker's turns (stages.py, machine.py).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock.flow.twin.machine import Machine
from penstock.flow.twin.plant import Consumers, Publishers
from penstock.flow.twin.stages import FRAMING_BYTES, Channel, Queue, Reader, Works, first_of

METHOD_BYTES: Final = 45  # of a publish beside its content: method frame, a key of a usual length
DELIVER_BYTES: Final = 75  # the same of a delivery
BLOCK_BYTES: Final = 65_536  # what a client sends at once
BLOCK_MAX: Final = 500
LEAD_POLL_US: Final = 5000.0  # how often a publisher that is too far ahead looks again
IDLE_US: Final = 100_000.0  # a consumer takes what is there after so long, however little
UNLIMITED: Final = 1 << 30

Born = tuple[int, float]  # up to this message of the lane, sent at this time


class Births:
    """When messages were sent, read in order by one who counts them."""

    __slots__ = ("_at", "_sent", "count", "took")

    def __init__(self, sent: list[Born]) -> None:
        self._sent = sent  # shared: the publisher appends
        self._at = 0
        self.count = 0  # that have come to their end
        self.took: list[tuple[float, int]] = []  # microseconds, and how many messages took that long

    def ended(self, count: int, now_us: float) -> None:
        """So many more have come to their end."""
        sent = self._sent
        while count > 0:
            up_to, born_us = sent[self._at]
            part = min(count, up_to - self.count)
            self.took.append((now_us - born_us, part))
            self.count += part
            count -= part
            if self.count == up_to:
                self._at += 1

    def age_us(self, now_us: float) -> float:
        """Of the oldest that is still on its way."""
        return now_us - self._sent[self._at][1] if self._at < len(self._sent) else 0.0


class Lane:
    """One publisher's messages: how large they are, what they want, and how long they took."""

    __slots__ = (
        "_partly",
        "channel",
        "confirms",
        "content_bytes",
        "delivered",
        "machine",
        "persistent",
        "publisher",
        "queues",
        "sent",
        "wants_confirms",
        "wire_bytes",
    )

    def __init__(self, machine: Machine, load: Publishers, queues: int) -> None:
        self.machine = machine
        self.content_bytes = load.body_bytes + FRAMING_BYTES
        self.wire_bytes = self.content_bytes + METHOD_BYTES
        self.persistent = load.persistent
        self.wants_confirms = load.window > 0
        self.queues = queues  # that each message goes to
        self.channel: Channel | None = None
        self.publisher: PublisherClient | None = None
        self.sent: list[Born] = []
        self.confirms = Births(self.sent)
        self.delivered: dict[Queue, Births] = {}
        self._partly = 0  # confirms that queues told and that are not a whole message yet

    def queue_confirmed(self, count: int) -> None:
        """A queue has these; the channel is told."""
        if self.channel is not None:
            self.channel.confirmed(count)

    def confirmed(self, count: int) -> None:
        """By the channel: as many as all queues have."""
        if self.queues > 1:  # queues take batches at almost the same time: a message is done when its share is
            whole, self._partly = divmod(self._partly + count, self.queues)
            count = whole
        if count and self.publisher is not None:
            self.publisher.outlet_confirms += count
            self.machine.after_turn[self.publisher.flush] = None


class PublisherClient:
    """One publisher and its connection: sends blocks as long as window, lead and the socket allow."""

    __slots__ = (
        "_block",
        "_load",
        "_stuffed",
        "_waits_since_us",
        "buffered",
        "confirmed",
        "lane",
        "machine",
        "outlet_confirms",
        "reader",
        "received",
        "sent",
        "sharing",
        "waiting",
    )

    def __init__(self, machine: Machine, load: Publishers, lane: Lane, reader: Reader, begins_us: float = 0.0) -> None:
        self.machine = machine
        self.lane = lane
        self.reader = reader
        self.sent = 0
        self.confirmed = 0
        self.received = 0  # by the broker
        self.buffered = 0  # messages in the kernel
        self.outlet_confirms = 0
        self.waiting = False  # for confirms
        self._stuffed = False  # it waits for room in its socket
        self.sharing = 1  # publishers to the same queues, it among them
        self._load = load
        self._block = block_of(load, lane.wire_bytes)
        self._waits_since_us = -1.0
        lane.publisher = self
        machine.at(begins_us, self.send)

    # The client's side.

    def send(self, now_us: float) -> None:
        load, block, plant = self._load, self._block, self.machine.plant
        if self._waits_since_us < 0:
            self._waits_since_us = now_us
        if load.window and self.sent + block - self.confirmed > load.window:
            self._waits_since_us = -1.0  # it would not have begun to send
            self.waiting = True
            return
        if load.lead_max and self.lead_now() > load.lead_max:
            self._waits_since_us = -1.0
            self.machine.at(now_us + LEAD_POLL_US, self.send)
            return
        if self.buffered and (self.buffered + block) * self.lane.wire_bytes > plant.socket_bytes:
            self._stuffed = True
            return
        self.sent += block
        if not self.buffered:
            self.machine.came(self)
        self.buffered += block
        self.lane.sent.append((self.sent, self._waits_since_us))
        began_us, self._waits_since_us = self._waits_since_us, -1.0
        after_us = now_us + plant.client * (load.call_us + block * load.send_us)
        if load.rate:
            after_us = max(after_us, began_us + block * 1e6 / load.rate)
        self.machine.at(after_us, self.send)

    def lead_now(self) -> int:
        """How many messages it is ahead of its consumers, those of its slowest queue; of what was in there at the
        start, its share."""
        sent, sharing = self.sent, self.sharing
        ahead = [
            sent - births.count + queue.old // sharing
            for queue, births in self.lane.delivered.items()
            if queue.consumers
        ]
        return max(ahead, default=sent)

    def _drained(self, now_us: float) -> None:
        """The broker has read: a sender that waits for room hears of it when there is enough, not for every byte."""
        plant = self.machine.plant
        if self._stuffed and self.buffered * self.lane.wire_bytes <= plant.socket_bytes * (1 - plant.socket_free):
            self._stuffed = False
            self.machine.at(now_us + self.machine.nap_us(), self.send)

    def _hear(self, count: int, now_us: float) -> None:
        """Confirms arrive."""
        self.confirmed += count
        self.lane.confirms.ended(count, now_us)
        if self.waiting:
            self.waiting = False
            self.send(now_us)

    # The broker's side of the socket.

    def is_readable(self) -> bool:
        return self.buffered > 0 and not self.reader.is_full

    def is_empty(self) -> bool:
        return not self.buffered

    def read(self) -> None:
        machine, plant, wire = self.machine, self.machine.plant, self.lane.wire_bytes
        most = max(1, plant.read_bytes // wire)
        for _ in range(plant.reads_max):
            count = min(self.buffered, most)
            if not count:
                break
            self.buffered -= count
            self.received += count
            machine.work(plant.read.of(count) + count * wire * plant.byte_us)
            self.reader.receive(count)
            self._drained(machine.now_us)
            if count < most or self.reader.is_full:
                break

    def flush(self) -> None:
        """After a turn: confirms go out."""
        count, self.outlet_confirms = self.outlet_confirms, 0
        self.machine.work(self.machine.plant.write.turn_us)
        arrives_us = self.machine.now_us + self.machine.nap_us()
        self.machine.at(arrives_us, lambda when_us: self._hear(count, when_us))


class ConsumerChannel(Works):
    """The broker's channel of a consumer: looks acks up and tells the queue."""

    __slots__ = ("acked", "batch", "consumer")

    def __init__(self, machine: Machine, name: str, consumer: ConsumerClient, batch: int) -> None:
        super().__init__(machine, name, "channel")
        self.consumer = consumer
        self.batch = batch
        self.acked: deque[int] = deque()

    def cast(self, count: int) -> None:
        self.acked.append(count)
        self.machine.schedule(self)

    def run(self, budget: int) -> int:
        cost = 0
        while self.acked and cost < budget:
            count = self.acked.popleft()
            cost += max(1, count // self.batch)
            self.machine.work(self.machine.plant.ack.of(count))
            self.consumer.unacked -= count
            self.consumer.queue.cast_settled(count)
        if self.acked:
            self.machine.schedule(self)
        return cost


class ConsumerClient:
    """One consumer and its connection: takes deliveries as they come, works on them, acks."""

    __slots__ = (
        "_acks_due",
        "_busy",
        "_call_us",
        "_here",
        "_here_count",
        "_idle_at",
        "_inbox",
        "_load",
        "_message_us",
        "_out",
        "_prefetch",
        "acks",
        "channel",
        "content_bytes",
        "machine",
        "queue",
        "received",
        "unacked",
    )

    def __init__(
        self, machine: Machine, load: Consumers, queue: Queue, name: str, prefetch: int, content_bytes: int
    ) -> None:
        self.machine = machine
        self.queue = queue
        self.acks = load.acks
        self.content_bytes = content_bytes
        self.channel = ConsumerChannel(machine, name, self, load.ack_batch)
        self.unacked = 0
        self.received = 0
        self._load = load
        self._prefetch = prefetch
        client = machine.plant.client
        self._call_us = load.call_us * client
        self._message_us = load.message_us * (1.0 if load.chunk else client)
        self._out: list[tuple[int, Lane | None]] = []  # in the outbox
        self._here: deque[tuple[int, Lane | None]] = deque()  # in the kernel, for the client
        self._here_count = 0
        self._busy = False
        self._idle_at = 0  # which sleep it is
        self._acks_due = 0
        self._inbox = 0  # acks in the kernel, for the broker
        queue.consumers.append(self)

    # The broker's side.

    def room(self) -> int:
        plant = self.machine.plant
        unread = self._here_count * (self.content_bytes + DELIVER_BYTES)
        if unread > plant.socket_bytes + plant.write_high_bytes:
            return 0
        if not self.acks or not self._prefetch:
            return UNLIMITED
        return self._prefetch - self.unacked

    def deliver(self, count: int, lane: Lane | None) -> None:
        if not self._out:
            self.machine.after_turn[self.flush] = None
        self._out.append((count, lane))
        if self.acks:
            self.unacked += count

    def flush(self) -> None:
        machine, plant = self.machine, self.machine.plant
        out, self._out = self._out, []
        count = sum(part for part, _ in out)
        bytes_ = count * (self.content_bytes + DELIVER_BYTES)
        machine.work(plant.write.of(count) + bytes_ * plant.write_out_byte_us)
        machine.at(machine.now_us, lambda when_us: self._arrive(out, when_us))

    def is_readable(self) -> bool:
        return self._inbox > 0

    def is_empty(self) -> bool:
        return not self._inbox

    def read(self) -> None:
        count, self._inbox = self._inbox, 0
        self.machine.work(self.machine.plant.read.turn_us)
        self.channel.cast(count)

    # The client's side.

    def _arrive(self, batches: list[tuple[int, Lane | None]], now_us: float) -> None:
        self._here.extend(batches)
        self._here_count += sum(count for count, _ in batches)
        if self._busy:
            return
        if self._here_count >= self._load.wake:
            self._busy = True
            self.machine.at(now_us + self.machine.nap_us(), self._take)
        else:
            self._sleep(now_us)

    def _sleep(self, now_us: float) -> None:
        self._idle_at += 1
        sleep = self._idle_at
        self.machine.at(now_us + IDLE_US, lambda when_us: self._patience_over(sleep, when_us))

    def _patience_over(self, sleep: int, now_us: float) -> None:
        if sleep == self._idle_at and not self._busy and self._here_count:
            self._busy = True
            self._take(now_us)

    def _take(self, now_us: float) -> None:
        """What is here, or a chunk of it."""
        self._idle_at += 1
        count = min(self._here_count, self._load.chunk or self._here_count)
        was_stuffed = self.room() <= 0
        self._here_count -= count
        self.received += count
        for part, lane in first_of(self._here, count):
            if lane is not None:
                lane.delivered[self.queue].ended(part, now_us)
            else:
                self.queue.old -= part
        if was_stuffed and not self.acks:
            self.machine.post(now_us, self.queue.wake)
        took_us = self._call_us + count * self._message_us
        self.machine.at(now_us + took_us, lambda when_us: self._done(count, when_us))

    def _done(self, count: int, now_us: float) -> None:
        if self.acks:
            self._acks_due += count
            whole = self._acks_due - self._acks_due % self._load.ack_batch
            self._acks_due -= whole
            if whole:
                self._inbox += whole
                self.machine.came(self)
        self._busy = False
        if self._here_count >= self._load.wake:
            self._busy = True
            self._take(now_us)
        elif self._here_count:
            self._sleep(now_us)


def block_of(load: Publishers, wire_bytes: int) -> int:
    """How many messages a publisher sends at once."""
    if load.block:
        return min(load.block, load.window or load.block)
    most = max(1, min(BLOCK_MAX, BLOCK_BYTES // wire_bytes))
    return min(most, max(1, load.window // 10)) if load.window else most

"""Consumer: one subscription of a channel to a queue. Puts deliveries on the wire.

Place in the chain: queue.py dispatches to it, it delivers to the connection's outbox. Not a stage: it has no mailbox.
Full: at its prefetch, at its channel's prefetch, or with its outbox full.
Not here: whose turn it is among consumers (queue.py), acks (channel.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from struct import Struct
from typing import TYPE_CHECKING, Final

from penstock.amqp import content
from penstock.amqp.decoder import Message, Publish
from penstock.amqp.frame import HEAD, METHOD
from penstock.amqp.method import BasicDeliver
from penstock.broker.stamped import THOUSAND

if TYPE_CHECKING:
    from penstock.amqp.table import Table
    from penstock.broker.channel import Channel
    from penstock.broker.queue import Queue
    from penstock.broker.stamps import Stamps

UNLIMITED: Final = 1 << 30

_pack_tag = Struct(">Q").pack
_DELIVER_ID: Final = BasicDeliver.ID.to_bytes(4, "big")


class Consumer:
    __slots__ = (
        "_heads",
        "active",
        "arguments",
        "channel",
        "counted",
        "exclusive",
        "no_ack",
        "prefetch",
        "priority",
        "queue",
        "stamps",
        "tag",
        "unacked",
    )

    def __init__(
        self,
        channel: Channel,
        queue: Queue,
        tag: str,
        no_ack: bool,
        exclusive: bool,
        prefetch: int,
        arguments: Table,
        counted: bool = True,
        priority: int = 0,
        stamps: Stamps | None = None,
    ) -> None:
        self.channel = channel
        self.queue = queue
        self.tag = tag
        self.no_ack = no_ack
        self.exclusive = exclusive
        self.prefetch = prefetch  # 0 is no limit
        self.arguments = arguments
        self.priority = priority
        self.stamps = stamps  # it asked for the numbers of messages
        self.unacked = 0
        self.active = True
        self.counted = counted  # in its channel's prefetch
        # basic.deliver up to the delivery tag, by the length of what follows it: at most some 500 of them.
        self._heads: dict[int, bytes] = {}

    def room(self) -> int:
        """How many deliveries it would take now."""
        channel = self.channel
        if not self.active or channel.deliveries_paused:
            return 0
        outbox = channel.outbox
        if outbox.is_full():
            outbox.starve(self.queue)
            return 0
        if self.no_ack:
            return UNLIMITED
        room = self.prefetch - self.unacked if self.prefetch else UNLIMITED
        limiter = channel.limiter
        if limiter.prefetch:
            room = min(room, limiter.prefetch - limiter.unacked)
        return room

    def deliver(self, positions: Sequence[int], messages: Sequence[Message], redelivered: bool) -> None:
        """Put these messages of the queue on the wire, in order."""
        channel = self.channel
        deliveries = channel.deliveries
        first = deliveries.next_tag
        count = len(messages)
        frames = channel.outbox.opened()
        stamps = self.stamps
        if stamps is None:
            size = self._put(frames, first, messages, redelivered)
        elif isinstance(positions, range) and positions.step == 1 and positions.start >= THOUSAND:
            size = stamps.put_run(self, frames, first, positions.start, messages, redelivered)
        else:
            size = self._put(frames, first, stamps.stamped(positions, messages, channel.frame_max), redelivered)
        deliveries.next_tag = first + count
        channel.outbox.gathered(size)
        if self.no_ack:
            channel.tally.deliver_no_ack += count
            return
        if count == 1:
            deliveries.unacked[first] = (self, positions[0])
        else:
            deliveries.unacked.update(
                zip(range(first, first + count), zip(repeat(self), positions, strict=False), strict=False)
            )
        self.unacked += count
        channel.limiter.unacked += count

    def _put(self, frames: list[bytes], tag: int, messages: Sequence[Message], redelivered: bool) -> int:
        """Append deliveries to the frames, with tags from this one on; how many bytes that is."""
        number, frame_max = self.channel.number, self.channel.frame_max
        last: Publish | None = None
        size = overhead = 0
        head = tail = b""
        own_number = False
        for publish, wire in messages:
            if publish is not last:
                last = publish
                own_number = publish.channel == number
                tail = publish.deliver_tail
                if redelivered:
                    tail = b"\x01" + tail[1:]
                head = self._heads.get(len(tail)) or self.head(len(tail))
                overhead = len(head) + 8 + len(tail)
            if not own_number or len(wire) > frame_max:
                wire = _refit(wire, own_number, number, frame_max)
            frames += (head, _pack_tag(tag), tail, wire)
            size += overhead + len(wire)
            tag += 1
        return size

    def settled(self, count: int) -> None:
        """This many of its deliveries were acked, or given back."""
        if self.counted:
            self.unacked -= count
            self.channel.limiter.settled(count)

    def head(self, tail_bytes: int) -> bytes:
        """basic.deliver up to the delivery tag, for a method frame with so many bytes behind that."""
        known = self._heads.get(tail_bytes)
        if known is not None:
            return known
        tag = self.tag.encode("utf-8", "surrogateescape")
        size = 4 + 1 + len(tag) + 8 + tail_bytes - 1  # the tail has the frame's end octet too
        head = HEAD.pack(METHOD, self.channel.number, size) + _DELIVER_ID + bytes((len(tag),)) + tag
        self._heads[tail_bytes] = head
        return head

    def __repr__(self) -> str:
        name = self.queue.queue_name
        return f"<Consumer {self.tag!r} queue={name!r} unacked={self.unacked} prefetch={self.prefetch}>"


def cancel_all(consumers: Sequence[Consumer]) -> None:
    """Their queue is gone."""
    for consumer in consumers:
        consumer.channel.cancelled(consumer)


def _refit(wire: bytes, own_number: bool, number: int, frame_max: int) -> bytes:
    if own_number and content.fits(wire, frame_max):
        return wire
    return content.refit(wire, number, frame_max)

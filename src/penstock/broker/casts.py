"""Casts: what is put into a queue's mailbox. Plain values; queue.py says what each one does.

Those with a channel are calls: the channel's mailbox is held until the queue answers it, as RabbitMQ's channel waits
for the queue process, so that replies keep the order of the requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.amqp.close import NOT_FOUND, CloseChannel
from penstock.amqp.decoder import Message
from penstock.amqp.method import BasicCancelOk, QueueDeleteOk
from penstock.amqp.publish import BOTH
from penstock.broker.producers import Publishing
from penstock.credit import Link

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.consumer import Consumer
    from penstock.broker.keeping import Keeping


NO_TTL: Final = -1

ACKED: Final = 0
REJECTED: Final = 1  # dropped, or sent on as a dead letter
REQUEUED: Final = 2  # put back where it was


class Arrival:
    """Messages for the queue, in order.

    `numbers` are their confirm numbers as runs, first and last, if any; `modes` says whether they are TRANSIENT,
    PERSISTENT or some of both; `ttls_ms`, if there, has the time to live of every message, NO_TTL without one;
    `publishings`, if there, has for every message who numbered it and how, None without. A dead letter comes from no
    channel, is numbered by nobody, and comes over a link only if it is no circle; `burial` is told when it has
    arrived."""

    __slots__ = ("burial", "bytes", "channel", "link", "messages", "modes", "numbers", "publishings", "ttls_ms")

    def __init__(
        self,
        channel: Channel | None,
        link: Link | None,
        messages: list[Message],
        bytes_: int,
        numbers: list[tuple[int, int]],
        modes: int = BOTH,
    ) -> None:
        self.burial: Burial | None = None
        self.channel = channel
        self.link = link
        self.messages = messages
        self.bytes = bytes_
        self.numbers = numbers
        self.modes = modes
        self.ttls_ms: list[int] | None = None
        self.publishings: list[Publishing | None] | None = None

    def add(
        self, message: Message, number: int = 0, ttl_ms: int = NO_TTL, publishing: Publishing | None = None
    ) -> None:
        """One more; number 0 is not to be confirmed."""
        if self.publishings is not None:
            self.publishings.append(publishing)
        elif publishing is not None:
            self.publishings = [None] * len(self.messages)
            self.publishings.append(publishing)
        if self.ttls_ms is not None:
            self.ttls_ms.append(ttl_ms)
        elif ttl_ms != NO_TTL:
            self.ttls_ms = [NO_TTL] * len(self.messages)
            self.ttls_ms.append(ttl_ms)
        self.messages.append(message)
        self.bytes += len(message[1])
        if number:
            self.numbers.append((number, number))


class Burial:
    """Dead letters on their way: the queue they died in still has them on disk until all queues they go to have them
    there, synced where they must be, so that a crash in between loses none."""

    __slots__ = ("keeping", "positions", "waiting")

    def __init__(self, keeping: Keeping | None, positions: Sequence[int]) -> None:
        self.keeping = keeping
        self.positions = positions
        self.waiting = 1  # queues still to take them, and whoever sends them, until all are sent

    def arrived(self) -> None:
        self.waiting -= 1
        if not self.waiting and self.keeping is not None:
            self.keeping.buried(self.positions)


class Settled:
    """Deliveries of a consumer that are over, and how: ACKED, REJECTED or REQUEUED."""

    __slots__ = ("outcome", "positions")

    def __init__(self, positions: list[int], outcome: int) -> None:
        self.positions = positions
        self.outcome = outcome


class Subscribe:
    __slots__ = ("consumer", "nowait")

    def __init__(self, consumer: Consumer, nowait: bool) -> None:
        self.consumer = consumer
        self.nowait = nowait


class Unsubscribe:
    """`answer` says whether the channel waits for it."""

    __slots__ = ("answer", "consumer", "nowait")

    def __init__(self, consumer: Consumer, answer: bool, nowait: bool) -> None:
        self.consumer = consumer
        self.answer = answer
        self.nowait = nowait


class Get:
    __slots__ = ("channel", "no_ack")

    def __init__(self, channel: Channel, no_ack: bool) -> None:
        self.channel = channel
        self.no_ack = no_ack


class Count:
    """The second half of queue.declare: the answer counts messages and consumers."""

    __slots__ = ("channel", "nowait")

    def __init__(self, channel: Channel, nowait: bool) -> None:
        self.channel = channel
        self.nowait = nowait


class Purge:
    __slots__ = ("channel", "nowait")

    def __init__(self, channel: Channel, nowait: bool) -> None:
        self.channel = channel
        self.nowait = nowait


class Delete:
    __slots__ = ("channel", "if_empty", "if_unused", "nowait")

    def __init__(self, channel: Channel, if_unused: bool, if_empty: bool, nowait: bool) -> None:
        self.channel = channel
        self.if_unused = if_unused
        self.if_empty = if_empty
        self.nowait = nowait


Cast = Arrival | Settled | Subscribe | Unsubscribe | Get | Count | Purge | Delete


def answer_as_deleted(queue: str, vhost: str, item: Cast) -> None:
    """What was put into the mailbox of a queue that is gone by now."""
    missing = CloseChannel(NOT_FOUND, f"no queue '{queue}' in vhost '{vhost}'")
    if isinstance(item, Arrival):
        if item.burial is not None:
            item.burial.arrived()
        # A deleted queue counts as confirmed, or its publishers would wait for ever.
        if item.numbers and item.channel is not None:
            item.channel.confirmed(item.numbers)
    elif isinstance(item, Subscribe):
        item.consumer.channel.refuse(item.consumer, missing)
    elif isinstance(item, Unsubscribe):
        if item.answer:
            item.consumer.channel.answer(None if item.nowait else BasicCancelOk(item.consumer.tag))
    elif isinstance(item, Delete):
        item.channel.answer(None if item.nowait else QueueDeleteOk(0))
    elif isinstance(item, (Get, Count, Purge)):
        item.channel.answer_error(missing)

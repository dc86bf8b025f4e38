"""Casts: what is put into a queue's mailbox. Plain values; queue.py says what each one does.

Those with a channel are calls: the channel's mailbox is held until the queue answers it, as RabbitMQ's channel waits
for the queue process, so that replies keep the order of the requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.amqp.decoder import Message
from penstock.credit import Link

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.consumer import Consumer


class Arrival:
    """Messages for the queue, in order; `numbers` are their confirm numbers as runs, first and last, if any."""

    __slots__ = ("bytes", "channel", "link", "messages", "numbers")

    def __init__(
        self, channel: Channel, link: Link, messages: list[Message], bytes_: int, numbers: list[tuple[int, int]]
    ) -> None:
        self.channel = channel
        self.link = link
        self.messages = messages
        self.bytes = bytes_
        self.numbers = numbers


class Settled:
    """Deliveries of a consumer that are over: acked, or dropped, or to be put back where they were."""

    __slots__ = ("positions", "requeue")

    def __init__(self, positions: list[int], requeue: bool) -> None:
        self.positions = positions
        self.requeue = requeue


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

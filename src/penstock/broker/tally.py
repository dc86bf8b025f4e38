"""Tally: how many messages came, went and were acked, for queues, channels, vhosts and the whole broker.

Nothing is counted per message. What is known anyway is not counted at all: a channel's delivery tags say how many
messages it delivered, a queue's positions how many it took; the fields here are the exceptions, counted per batch where
they happen: without ack, by basic.get, given back instead of acked, unroutable.
Place: Channel.tally, Queue.tally; `Past` keeps what channels that are gone had counted, so that no total ever falls.
Not here: rates (management/rates.py), RabbitMQ's JSON (snapshot/), blocks (credit/link.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.queue import Queue

COUNTERS: Final = (  # RabbitMQ's names; `channel_counts` and `queue_counts` have this order
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "deliver_get",
    "redeliver",
    "ack",
)


class Tally:
    """What cannot be told from anything else, of one queue or one channel."""

    __slots__ = (
        "deliver_no_ack",
        "drop_unroutable",
        "get",
        "get_empty",
        "get_no_ack",
        "publish",
        "redeliver",
        "return_unroutable",
        "returned",
    )

    def __init__(self) -> None:
        self.publish = 0  # a channel's; a queue has published_count
        self.return_unroutable = 0
        self.drop_unroutable = 0
        self.deliver_no_ack = 0
        self.get = 0
        self.get_no_ack = 0
        self.get_empty = 0
        self.redeliver = 0
        self.returned = 0  # deliveries that ended otherwise than by an ack: rejected, requeued

    def __repr__(self) -> str:
        return f"<Tally publish={self.publish} no_ack={self.deliver_no_ack} returned={self.returned}>"


def queue_counts(queue: Queue) -> tuple[int, ...]:
    """Of one queue, in the order of COUNTERS; what only channels know is 0."""
    tally = queue.tally
    given = queue.delivered_count
    no_ack = tally.deliver_no_ack + tally.get_no_ack
    return (
        queue.published_count,
        0,
        0,
        0,
        given - no_ack - tally.get,
        tally.deliver_no_ack,
        tally.get,
        tally.get_no_ack,
        tally.get_empty,
        given,
        tally.redeliver,
        queue.acked_count(),
    )


def channel_counts(channel: Channel) -> tuple[int, ...]:
    """Of one channel, in the order of COUNTERS."""
    tally = channel.tally
    deliveries = channel.deliveries
    given = deliveries.next_tag - 1
    no_ack = tally.deliver_no_ack + tally.get_no_ack
    transaction = channel.transaction
    unsettled = len(deliveries.unacked) + (transaction.unsettled() if transaction is not None else 0)
    return (
        tally.publish,
        channel.confirms.confirmed() if channel.confirms is not None else 0,
        tally.return_unroutable,
        tally.drop_unroutable,
        given - no_ack - tally.get,
        tally.deliver_no_ack,
        tally.get,
        tally.get_no_ack,
        tally.get_empty,
        given,
        tally.redeliver,
        given - no_ack - unsettled - tally.returned,
    )


class Past:
    """What the channels of a vhost, or of all of them, had counted when they ended; and what came and went there."""

    __slots__ = ("above", "channels", "counts", "queues_created", "queues_declared", "queues_deleted")

    def __init__(self, above: Past | None = None) -> None:
        """`above` is the broker's, for a vhost's."""
        self.above = above
        self.counts = [0] * len(COUNTERS)
        self.channels = 0  # that ended
        self.queues_declared = 0  # how often, again or not
        self.queues_created = 0
        self.queues_deleted = 0

    def retire(self, channel: Channel) -> None:
        """The channel has ended, with everything it had given back."""
        self._add(channel_counts(channel))

    def _add(self, counts: tuple[int, ...]) -> None:
        self.channels += 1
        own = self.counts
        for at in range(len(counts)):
            own[at] += counts[at]
        if self.above is not None:
            self.above._add(counts)

    def declared(self, is_new: bool) -> None:
        self.queues_declared += 1
        self.queues_created += is_new
        if self.above is not None:
            self.above.declared(is_new)

    def deleted(self) -> None:
        self.queues_deleted += 1
        if self.above is not None:
            self.above.deleted()

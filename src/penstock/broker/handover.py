"""Handover: messages from a channel to its queues, and the credit for them, spent and handled.

The result is what message by message would have, at the cost of a batch.
Place: inside channel.py. Not here: who gets which message (router.py), the law of credit (credit/link.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.amqp.decoder import Publishes, within
from penstock.broker.casts import Arrival
from penstock.credit import Link, Stage

if TYPE_CHECKING:
    from penstock.broker.queue import Queue


def hand_over(stage: Stage, upstream: Link | None, item: Publishes, arrivals: dict[Queue, Arrival]) -> None:
    """Spend on the arrivals and handle the item.

    If this blocks the stage, the messages up to the one that used up the credit are granted, others deferred."""
    was_blocked = bool(stage.blocked_by)
    cast_all(arrivals)
    if upstream is None:
        return
    if was_blocked or not stage.blocked_by:
        upstream.handle(len(item.messages), item.bytes)
        return
    free = item.first(min(_free(item, arrival) for arrival in arrivals.values()))
    upstream.handle(len(free.messages), free.bytes, defer=False)
    upstream.handle(len(item.messages) - len(free.messages), item.bytes - free.bytes)


def cast_all(arrivals: dict[Queue, Arrival]) -> None:
    for queue, arrival in arrivals.items():
        if arrival.link is not None:
            arrival.link.spend(len(arrival.messages), arrival.bytes)
        queue.mailbox.cast(arrival)


def _free(item: Publishes, arrival: Arrival) -> int:
    """How many messages of the item came before the credit for this arrival was used up, the last one included."""
    link = arrival.link
    if link is None or not link.blocking:
        return len(item.messages)
    room = link.room_before(len(arrival.messages))
    count = within(arrival.messages, arrival.bytes, room, link.room_bytes_before(arrival.bytes))
    if arrival.messages is item.messages:
        return count
    last_wire = arrival.messages[count - 1][1]
    # One that was rewritten on its way (rules.py) is not found: then all are free, which is a little too generous.
    return next((at for at, (_, wire) in enumerate(item.messages, 1) if wire is last_wire), len(item.messages))

"""Dispatch: messages of a queue to its consumers, as long as there are both messages and room.

Place in the chain: a part of queue.py's turn. Downstream: consumer.py.
Not here: whose turn it is (subscribers.py), order and deadlines (shelves.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.amqp.decoder import Message
from penstock.broker.consumer import Consumer
from penstock.broker.deadletter import EXPIRED

if TYPE_CHECKING:
    from penstock.broker.queue import Queue

DISPATCH_BYTES_MAX: Final = 262_144  # given to one consumer in one round: about what a socket takes at once


def dispatch(queue: Queue, budget: int) -> int:
    """Give messages to consumers with room, one each in turn; how many it gave, or gave up."""
    given = 0
    subscribers, shelves = queue.subscribers, queue.shelves
    while subscribers.count:
        if shelves.timed:
            given += queue.give_up(shelves.overdue(max(1, budget - given)), EXPIRED)
        backlog = shelves.front() if shelves.several else shelves.lowest
        if not backlog.has_next():
            break
        if given >= budget:
            queue.mailbox.wake()
            break
        group = subscribers.sole
        if group:
            share = group[0].room()
        else:
            group, share = subscribers.with_room(len(backlog))
        if share <= 0 or not group:
            break
        limit = min(share * len(group), budget - given)
        stamps = group[0].stamps if len(group) == 1 else queue.stamps
        if stamps is not None:
            limit = min(limit, stamps.room(backlog))
            if limit <= 0:
                break
        if shelves.timed:
            limit = min(limit, backlog.stretch())
        positions, messages, redelivered = backlog.pop(limit, DISPATCH_BYTES_MAX * len(group))
        if len(group) == 1:
            give(queue, group[0], positions, messages, redelivered)
        else:
            deal(queue, group, positions, messages, redelivered)
        if subscribers.count > 1:
            subscribers.gave(group, len(messages))
        queue.delivered_count += len(messages)
        given += len(messages)
    return given


def deal(
    queue: Queue, group: list[Consumer], positions: Sequence[int], messages: list[Message], redelivered: bool
) -> None:
    """One each in turn."""
    count = len(group)
    if queue.subscribers.shares_channel:
        # In order on the wire of a channel, whichever of its consumers a message is for.
        for i in range(len(messages)):
            give(queue, group[i % count], positions[i : i + 1], messages[i : i + 1], redelivered)
    else:
        # Consumer i gets messages i, i + count, i + 2 * count …: round robin, but a batch for each.
        for i in range(min(count, len(messages))):
            give(queue, group[i], positions[i::count], messages[i::count], redelivered)


def give(
    queue: Queue, consumer: Consumer, positions: Sequence[int], messages: Sequence[Message], redelivered: bool
) -> None:
    consumer.deliver(positions, messages, redelivered)
    if redelivered:
        queue.tally.redeliver += len(messages)
        consumer.channel.tally.redeliver += len(messages)
    if consumer.no_ack:
        queue.tally.deliver_no_ack += len(messages)
        queue.gone(positions)
    elif len(messages) == 1:
        queue.unacked[positions[0]] = messages[0]
    else:
        queue.unacked.update(zip(positions, messages, strict=False))

"""Admission: what a queue takes that refuses messages when it is full, message by message.

Place: a part of queue.py's turn, for the few queues with x-overflow=reject-publish.
Not here: queues that drop their oldest messages, or block their publishers, instead (queue.py, saturation.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.casts import NO_TTL, Arrival
from penstock.broker.deadletter import EXPIRED, MAXLEN
from penstock.broker.dispatch import dispatch
from penstock.broker.options import REJECT_PUBLISH_DLX
from penstock.broker.shelves import Dead

if TYPE_CHECKING:
    from penstock.broker.queue import Queue


def admit(queue: Queue, item: Arrival) -> tuple[Arrival, list[int]]:
    """Message by message, as long as there is space; the rest is refused. What was taken, and its positions."""
    shelves, budget = queue.shelves, queue.mailbox.scheduler.stage_budget
    numbers = [number for first, last in item.numbers for number in range(first, last + 1)]
    taken = Arrival(item.channel, None, [], 0, [], item.modes)
    taken.burial = item.burial
    positions: list[int] = []
    refused: list[tuple[int, int]] = []
    dead: Dead = [], []
    for at, message in enumerate(item.messages):
        fits = shelves.has_space(message)
        while not fits and dispatch(queue, budget):  # budget or not: consumers may make room for it
            fits = shelves.has_space(message)
        if not fits and shelves.timed:
            queue.give_up(shelves.due(budget), EXPIRED)
            fits = shelves.has_space(message)
        number = numbers[at] if numbers else 0
        if fits:
            ttl_ms = item.ttls_ms[at] if item.ttls_ms else NO_TTL
            positions += shelves.append((message,), len(message[1]), (ttl_ms,) if item.ttls_ms else None)
            taken.add(message, number, ttl_ms, item.publishings[at] if item.publishings else None)
        else:
            dead[1].append(message)
            if number:
                refused.append((number, number))
    if queue.options.overflow == REJECT_PUBLISH_DLX:
        queue.give_up(dead, MAXLEN)
    if item.channel is not None and refused:
        item.channel.refused(refused)
    return taken, positions

"""Deliveries: what a channel has handed out and waits to have acked, by delivery tag.

Place in the chain: consumer.py and basic.get enter deliveries here, acks take them out again, and the queue they came
from is told. Not here: what an ack does in a transaction (transaction.py), in a queue (queue.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.amqp.close import PRECONDITION_FAILED, CloseChannel
from penstock.broker.casts import ACKED, Settled

if TYPE_CHECKING:
    from penstock.broker.consumer import Consumer

Delivery = tuple["Consumer", int]  # who got it, position in its queue


class Deliveries:
    __slots__ = ("_oldest", "next_tag", "unacked")

    def __init__(self) -> None:
        self.next_tag = 1
        self.unacked: dict[int, Delivery] = {}  # by delivery tag
        self._oldest = 1  # no unacked tag is below

    def take(self, tag: int, multiple: bool) -> list[tuple[int, Delivery]]:
        """The deliveries this tag means, in order; they are no longer unacked."""
        unacked = self.unacked
        if not multiple:
            delivery = unacked.pop(tag, None)
            if delivery is None:
                raise _unknown(tag)
            if tag == self._oldest:
                self._oldest = tag + 1
            return [(tag, delivery)]
        tag = self._last(tag)
        taken = [(number, unacked.pop(number)) for number in range(self._oldest, tag + 1) if number in unacked]
        self._oldest = tag + 1
        return taken

    def collect(self, tag: int, multiple: bool, settled: dict[Consumer, list[int]]) -> None:
        """The same, as positions by consumer: what a settlement needs."""
        unacked = self.unacked
        if not multiple:
            delivery = unacked.pop(tag, None)
            if delivery is None:
                raise _unknown(tag)
            consumer, position = delivery
            positions = settled.get(consumer)
            if positions is None:
                settled[consumer] = [position]
            else:
                positions.append(position)
            if tag == self._oldest:
                self._oldest = tag + 1
            return
        tag = self._last(tag)
        last: Consumer | None = None
        positions = []
        pop = unacked.pop
        for number in range(self._oldest, tag + 1):
            delivery = pop(number, None)
            if delivery is None:  # acked before, alone
                continue
            consumer, position = delivery
            if consumer is not last:
                last = consumer
                positions = settled.setdefault(consumer, [])
            positions.append(position)
        self._oldest = tag + 1

    def _last(self, tag: int) -> int:
        """With multiple: the tag up to which all are meant; 0 means all there are."""
        if tag == 0:
            return self.next_tag - 1
        if tag not in self.unacked:
            raise _unknown(tag)
        return tag

    def put_back(self, taken: list[tuple[int, Delivery]]) -> None:
        """These are unacked again: their transaction was rolled back."""
        self.unacked.update(taken)
        self.unacked = dict(sorted(self.unacked.items()))
        if taken:
            self._oldest = min(self._oldest, next(iter(self.unacked)))

    def oldest_tag(self) -> int:
        """The smallest unacked tag; 0 if there is none."""
        if not self.unacked:
            self._oldest = self.next_tag
            return 0
        while self._oldest not in self.unacked:
            self._oldest += 1
        return self._oldest


def settle(settled: dict[Consumer, list[int]], outcome: int) -> None:
    """Tell consumers and queues how these deliveries ended."""
    for consumer, positions in settled.items():
        consumer.settled(len(positions))
        if outcome != ACKED:
            consumer.channel.tally.returned += len(positions)
        if not consumer.queue.deleted:
            consumer.queue.mailbox.cast(Settled(positions, outcome))


def _unknown(tag: int) -> CloseChannel:
    return CloseChannel(PRECONDITION_FAILED, f"unknown delivery tag {tag}")

"""Limiter: the prefetch of a whole channel (basic.qos with global=true). It limits consumers, never publishers.

Not here: the prefetch of one consumer (consumer.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.consumer import Consumer


class Limiter:
    __slots__ = ("_consumers", "prefetch", "unacked")

    def __init__(self, consumers: dict[str, Consumer]) -> None:
        self._consumers = consumers
        self.prefetch = 0  # 0 is no limit
        self.unacked = 0  # deliveries of all consumers of the channel; basic.get does not count

    def change(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self._wake()

    def settled(self, count: int) -> None:
        was_full = self.prefetch and self.unacked >= self.prefetch
        self.unacked -= count
        if was_full:
            self._wake()

    def _wake(self) -> None:
        """Any of the channel's consumers may have room now, on whichever queue."""
        for consumer in self._consumers.values():
            consumer.queue.mailbox.wake()

"""Totals: all messages, consumers and message_stats of the broker, without a walk over all of it in one go.

Few queues and channels are counted when somebody asks. With many, a round over them is made in slices (`step`), and
what the last whole round found is the answer until the next one is through. No counter ever falls.
Place: admin has one; management/ steps it between two looks at the event loop.
Not here: the counters of one queue or channel (tally.py), rates (management/rates.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.queue import Queue
from penstock.broker.tally import COUNTERS, Past, channel_counts
from penstock.broker.vhost import VHost

AT_ONCE_MAX: Final = 2000  # queues and channels together, counted in one go: about a millisecond
SLICE: Final = 1000


class Sum:
    """Of one vhost, or of all."""

    __slots__ = ("consumers", "counts", "ready", "unacknowledged")

    def __init__(self, past: Past | None = None) -> None:
        self.ready = 0
        self.unacknowledged = 0
        self.consumers = 0
        self.counts: list[int] = list(past.counts) if past is not None else [0] * len(COUNTERS)  # as in tally.py

    def add(self, counts: Sequence[int]) -> None:
        own = self.counts
        for at, count in enumerate(counts):
            own[at] += count


class Totals:
    __slots__ = ("_broker", "_round", "_vhosts", "all")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._round: _Round | None = None
        self._vhosts: dict[str, Sum] = {}
        self.all = Sum()

    def fresh(self) -> Sum:
        """Of all: counted now if there is little to count; else as of the last round."""
        broker = self._broker
        if sum(len(vhost.queues) for vhost in broker.vhosts.values()) + len(broker.ack_timeout.channels) <= AT_ONCE_MAX:
            self._round = None
            while not self.step(AT_ONCE_MAX):
                pass
        return self.all

    def of_vhost(self, name: str) -> Sum:
        """As of the last round; call `fresh` before."""
        return self._vhosts.get(name) or Sum()

    def step(self, limit: int = SLICE) -> bool:
        """Count so many more; True when a round is through, and its result is the answer from now on."""
        if self._round is None:
            self._round = _Round(self._broker)
        counted = self._round
        if not counted.step(limit):
            return False
        self._round = None
        before, self.all, self._vhosts = self.all, counted.all, counted.vhosts
        self.all.counts = list(map(max, before.counts, self.all.counts))  # whatever happened during the round
        return True


class _Round:
    __slots__ = ("_at", "_channels", "_queues", "all", "vhosts")

    def __init__(self, broker: Broker) -> None:
        self._queues: list[Queue] = []
        self._channels: list[Channel] = list(broker.ack_timeout.channels)
        self._at = 0
        self.all = Sum(broker.past)
        self.vhosts: dict[str, Sum] = {}
        for vhost in broker.vhosts.values():
            self._queues += _own(vhost)
            self.vhosts[vhost.name] = Sum(vhost.past)

    def step(self, limit: int) -> bool:
        queues, channels, vhosts = self._queues, self._channels, self.vhosts
        first, self._at = self._at, self._at + limit
        for queue in queues[first : self._at]:
            ready, unacked = queue.count(), len(queue.unacked)
            for one in (self.all, vhosts[queue.vhost_name]):
                one.ready += ready
                one.unacknowledged += unacked
                one.consumers += queue.subscribers.count
        left = self._at - len(queues)
        if left < 0:
            return False
        for channel in channels[max(0, first - len(queues)) : left]:
            # One that ended meanwhile still knows what it had counted, and what is past was read before it did.
            counts = channel_counts(channel)
            self.all.add(counts)
            of_vhost = vhosts.get(channel.vhost.name)
            if of_vhost is not None:
                of_vhost.add(counts)
        return left >= len(channels)


def _own(vhost: VHost) -> list[Queue]:
    """Its clients' queues: what the broker tells of itself in its own (penstock.events) would look like a backlog."""
    queues = list(vhost.queues.values())
    for name in vhost.protected:
        queue = vhost.queues.get(name)
        if queue is not None:
            queues.remove(queue)
    return queues

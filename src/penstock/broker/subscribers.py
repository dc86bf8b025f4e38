"""Subscribers: the consumers of a queue, and which of them are asked next.

Higher priority goes first and gets everything until it is full; equals take turns, in the order of subscription. With a
single active consumer all others wait until it leaves.
Not here: what a consumer has room for (consumer.py), giving it messages (queue.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.consumer import UNLIMITED, Consumer

if TYPE_CHECKING:
    from penstock.broker.channel import Channel


class _Rank:
    """Consumers of one priority."""

    __slots__ = ("consumers", "priority", "turn")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.consumers: list[Consumer] = []
        self.turn = 0  # index of the one to be asked first


class Subscribers:
    __slots__ = ("_active", "_channels", "_ranks", "count", "shares_channel", "single_active", "sole")

    def __init__(self, single_active: bool = False) -> None:
        self.single_active = single_active
        self.count = 0
        self.shares_channel = False  # two of them are of one channel
        self._channels: dict[Channel, int] = {}  # how many are of this channel
        self._ranks: list[_Rank] = []  # highest priority first
        self._active: list[Consumer] = []  # the single active consumer, if there is one
        self.sole: list[Consumer] = []  # the only consumer, if there is just one: most queues have one

    def add(self, consumer: Consumer) -> None:
        self.count += 1
        self._channels[consumer.channel] = self._channels.get(consumer.channel, 0) + 1
        rank = self._rank(consumer.priority)
        if 0 < rank.turn < len(rank.consumers):
            # Last in turn: just before the one to be asked first.
            rank.consumers.insert(rank.turn, consumer)
            rank.turn += 1
        else:
            rank.turn = 0
            rank.consumers.append(consumer)
        if self.single_active and not self._active:
            self._active.append(consumer)
        self._find_sole()

    def remove(self, consumer: Consumer) -> bool:
        """False if it was not there."""
        for rank in self._ranks:
            if consumer in rank.consumers:
                at = rank.consumers.index(consumer)
                if at < rank.turn:
                    rank.turn -= 1
                del rank.consumers[at]
                if not rank.consumers:
                    self._ranks.remove(rank)
                self.count -= 1
                self._channels[consumer.channel] -= 1
                if not self._channels[consumer.channel]:
                    del self._channels[consumer.channel]
                self._activate_next(consumer)
                self._find_sole()
                return True
        return False

    def refuses(self, consumer: Consumer) -> bool:
        """Whether it cannot be one of them: it wants to be alone and is not, or another one is."""
        return (consumer.exclusive and (self.count > 0 or self.single_active)) or self.has_exclusive()

    def clear(self) -> list[Consumer]:
        """Let all go; who they were."""
        consumers = self.all()
        self._ranks.clear()
        self._active.clear()
        self._channels.clear()
        self.count = 0
        self._find_sole()
        return consumers

    def all(self) -> list[Consumer]:
        return [consumer for rank in self._ranks for consumer in rank.consumers]

    def has_exclusive(self) -> bool:
        return bool(self.sole) and self.sole[0].exclusive

    def is_active(self, consumer: Consumer) -> bool:
        return not self.single_active or consumer in self._active

    def with_room(self, wanted: int) -> tuple[list[Consumer], int]:
        """Who would take a message, in turn, at most `wanted` of them; and how many messages each would take."""
        if self.single_active:
            return (self._active, self._active[0].room()) if self._active else (self._active, 0)
        for rank in self._ranks:
            group, share = _in_turn(rank, wanted)
            if group and share > 0:
                return group, share
        return [], 0

    def gave(self, group: list[Consumer], count: int) -> None:
        """The group, one of several, got this many messages, one each in turn."""
        if self.single_active:
            return
        last = group[(count - 1) % len(group)]
        rank = self._rank(last.priority)
        if len(rank.consumers) > 1:
            rank.turn = rank.consumers.index(last) + 1

    def _rank(self, priority: int) -> _Rank:
        at = 0
        for rank in self._ranks:
            if rank.priority == priority:
                return rank
            if rank.priority < priority:
                break
            at += 1
        created = _Rank(priority)
        self._ranks.insert(at, created)
        return created

    def _find_sole(self) -> None:
        self.sole = self._ranks[0].consumers if self.count == 1 else []
        self.shares_channel = len(self._channels) < self.count

    def _activate_next(self, gone: Consumer) -> None:
        if gone in self._active:
            self._active.clear()
            if self._ranks:
                self._active.append(self._ranks[0].consumers[0])

    def __len__(self) -> int:
        return self.count


def _in_turn(rank: _Rank, wanted: int) -> tuple[list[Consumer], int]:
    consumers = rank.consumers
    count = len(consumers)
    if count == 1:
        return consumers, consumers[0].room()
    group: list[Consumer] = []
    share = UNLIMITED
    shared = False
    for turn in range(rank.turn, rank.turn + count):
        consumer = consumers[turn % count]
        room = consumer.room()
        if room > 0:
            group.append(consumer)
            share = min(share, room)
            shared = shared or consumer.channel.limiter.prefetch > 0
            if len(group) == wanted:
                break
    if shared:
        # Room that is shared on a channel may be lost to a neighbour with every delivery: ask again after each.
        return group[:1], 1
    return group, share

"""Graph: who waits for whom, and what is at the end of the chain: the bottleneck.

The rule: the bottleneck is the first stage downstream of the blocked ones that is not blocked itself. It is the
generalisation of how one reads RabbitMQ's `flow`: a connection in flow and none of its channels: the channel; channels
too and no queue: the queue; queues too: the message store.

Blocks come and go, so "blocked" is a matter of weight (history.py): a stage only passes on what holds it up, if for at
least half of the time that it blocked the other it was blocked itself. Otherwise it is slow by its own doing. Of one
moment alone, blocked is blocked. Where several ways lead to several bottlenecks, the one counts to which
the widest way leads: the way whose narrowest edge has the greatest weight.

Channels and queues share one core and take turns of the same size. So what waits for the core waits before the first of
them, the channel, whoever takes the time: it is its queue that holds all up, if that takes by far the more of it.

A chain also ends at what is no stage: an alarm, or the consumers of a queue that is at its maximum or holds confirms.
Not here: words (verdict.py, words.py).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from typing import Final

from penstock.flow.history import Edge, Shares, is_over
from penstock.flow.state import ALARM, CHANNEL, CONSUMERS, StageState, State

PASSES_ON: Final = 0.5  # of the time it blocks another, a stage must be blocked itself to be no bottleneck
HEAVIER: Final = 2.0  # times the channel's own time, the queue behind it must take to be the bottleneck
EXITS_MAX: Final = 4  # bottlenecks told of one connection


@dataclass(frozen=True, slots=True)
class Way:
    """From a stage to a bottleneck, both included."""

    ids: tuple[str, ...]
    weight: float  # of its narrowest edge
    confirms: bool = False  # the connection waits for confirms, not for credit

    @property
    def bottleneck(self) -> str:
        return self.ids[-1]

    def edges(self) -> list[Edge]:
        return list(zip(self.ids, self.ids[1:]))


class Graph:
    """What blocked what within the last minute."""

    __slots__ = ("_out", "_shares", "_state")

    def __init__(self, state: State, shares: Shares) -> None:
        self._state = state
        self._shares = shares
        self._out: dict[str, list[tuple[str, float]]] = {}
        for (upstream, downstream), weight in sorted(shares.edge_weights.items()):
            if upstream in state.stages and not is_over(state, upstream, downstream):
                self._out.setdefault(upstream, []).append((downstream, weight))

    def passes_on(self, upstream: str, downstream: str) -> bool:
        """Whether the second, when it blocks the first, only passes on what holds it up. What is gone does not."""
        stage = self._state.stages.get(downstream)
        if stage is None:
            return False
        if self._shares.is_moment:
            return stage.blocked
        edge = (upstream, downstream)
        passed = self._shares.passed_weights.get(edge, 0.0)
        return passed > 0 and passed >= PASSES_ON * self._shares.edge_weights.get(edge, 0.0)

    def ways(self, connection: str) -> list[Way]:
        """To all bottlenecks that hold this one back, the widest way first; among equals the shortest.

        Empty: those that block it wait for each other, or nothing is known of what they wait for."""
        alarms = self._alarms(connection)
        if alarms:  # no publish goes anywhere until they are over, whatever was before
            return alarms
        found: list[Way] = []
        seen: set[str] = set()
        waiting: list[tuple[float, int, tuple[str, ...]]] = [(-float("inf"), 1, (connection,))]
        while waiting and len(found) < EXITS_MAX:
            width, _, ids = heapq.heappop(waiting)
            last = ids[-1]
            if last in seen:
                continue
            seen.add(last)
            if len(ids) > 1 and not self.passes_on(ids[-2], last):
                held = len(ids) == 2 and last.startswith(CONSUMERS)
                way = Way(self._whole(*ids) if held else self.heaviest(ids), -width, held)
                if way.bottleneck not in [other.bottleneck for other in found]:
                    found.append(way)
                continue
            for downstream, weight in self._out.get(last, ()):
                if downstream not in seen:
                    further = (*ids, downstream)
                    heapq.heappush(waiting, (max(width, -weight), len(further), further))
        return found

    def heaviest(self, ids: tuple[str, ...]) -> tuple[str, ...]:
        """To the queue behind a channel, if that takes the core for at least half of the time that was waited."""
        *_, upstream, last = ids
        stage = self._state.stages.get(last)
        if stage is None or stage.kind != CHANNEL:
            return ids
        busy = self._shares.busy_weights
        queues = [link.downstream for link in self._state.downstream.get(last, ())]
        queue = max(queues, key=lambda id_: (busy.get(id_, 0.0), id_), default=last)
        least = max(HEAVIER * busy.get(last, 0.0), PASSES_ON * self._shares.edge_weights.get((upstream, last), 0.0))
        return (*ids, queue) if busy.get(queue, 0.0) > least else ids

    def _alarms(self, connection: str) -> list[Way]:
        edges = self._out.get(connection, ())
        ways = [Way((connection, by), weight) for by, weight in edges if by.startswith(ALARM)]
        return sorted(ways, key=lambda way: (-way.weight, way.ids))

    def _whole(self, connection: str, consumers: str) -> tuple[str, ...]:
        """Confirms come by way of the queue and a channel: they are part of the chain, though no credit is out."""
        queue = consumers[len(CONSUMERS) :]
        for channel in self._channels_to(queue):
            if channel.connection == connection or connection in self._upstream(channel.id):
                return (connection, channel.id, queue, consumers)
        return (connection, queue, consumers)

    def _channels_to(self, queue_id: str) -> list[StageState]:
        stages = self._state.stages
        queue = stages.get(queue_id)
        held_from = queue.held_from if queue is not None and queue.held_from is not None else None
        ids = held_from if held_from is not None else self._upstream(queue_id)
        return [stages[id_] for id_ in ids if id_ in stages and stages[id_].kind == CHANNEL]

    def _upstream(self, id_: str) -> list[str]:
        return [link.upstream for link in self._state.links if link.downstream == id_]

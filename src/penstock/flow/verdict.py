"""Verdict: of every connection that is held back, what holds it back, since when, how much, and which knob helps.

`verdicts` is a function of a snapshot and of the minute before it; the same in gives the same out.

| the chain ends at       | cause                                                        | resource  |
| ----------------------- | ------------------------------------------------------------ | --------- |
| a channel               | channel                                                      | CPU       |
| a queue or stream       | queue; behind another queue: dead letters                    | CPU       |
| the store               | store                                                        | disk      |
| an alarm                | memory, disk; of the store that cannot write: store fault    | memory, … |
| the consumers of a queue | saturated: it holds confirms, or is at its maximum          | consumers |
| nothing                 | unknown: stages wait for each other, or what they wait for is gone |     |

Not here: how the chain is found (graph.py), sentences and knobs (words.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from penstock.flow.graph import Graph, Way
from penstock.flow.history import History, Shares
from penstock.flow.state import (
    ALARM,
    CHANNEL,
    CONSUMERS,
    QUEUE,
    STORE,
    STREAM,
    StageState,
    State,
    kind_of,
)
from penstock.flow.words import Case, Knob, knobs, sentence

DEAD_LETTERS: Final = "dead letters"
SATURATED: Final = "saturated"
UNKNOWN: Final = "unknown"
STORE_FAULT: Final = "store fault"
RESOURCES: Final = {
    CHANNEL: "CPU",
    QUEUE: "CPU",
    DEAD_LETTERS: "CPU",
    STORE: "disk",
    "memory": "memory",
    "disk": "disk",
    STORE_FAULT: "disk",
    SATURATED: "consumers",
    UNKNOWN: "",
}
ALSO_SHARE: Final = 0.2  # of the main one's weight: what holds a connection back less than that is not told


@dataclass(frozen=True, slots=True)
class Verdict:
    connection: str  # the stage's name
    id: str  # the stage's id
    name: str  # for people: what the client calls itself, else its address
    user: str
    vhost: str
    cause: str
    bottleneck: str | None
    chain: tuple[str, ...]
    since_s: float
    share_1m: float
    resource: str
    sentence: str
    knobs: tuple[Knob, ...]
    also: tuple[str, ...]  # other bottlenecks of the same connection

    def json(self) -> dict[str, object]:
        return {
            "connection": self.connection,
            "id": self.id,
            "name": self.name,
            "user": self.user,
            "vhost": self.vhost,
            "cause": self.cause,
            "bottleneck": self.bottleneck,
            "chain": list(self.chain),
            "since_s": round(self.since_s, 3),
            "share_1m": round(self.share_1m, 4),
            "resource": self.resource,
            "sentence": self.sentence,
            "knobs": [knob.json() for knob in self.knobs],
            "also": list(self.also),
        }


def verdicts(state: State, shares: Shares | None = None) -> list[Verdict]:
    """One for each connection that is held back, the worst first. Without shares: by this one moment."""
    return worst_first(each_verdict(state, shares if shares is not None else History().shares(state)))


def each_verdict(state: State, shares: Shares) -> Iterator[Verdict]:
    """One by one, for those who have other things to do in between."""
    if not shares.since_s:
        return
    graph = Graph(state, shares)
    for id_ in shares.since_s:
        connection = state.stages[id_]
        ways = graph.ways(id_)
        if ways or connection.blocked:
            yield _verdict(state, shares, connection, ways)


def worst_first(found: Iterable[Verdict]) -> list[Verdict]:
    return sorted(found, key=lambda verdict: (-verdict.share_1m, verdict.id))


def _verdict(state: State, shares: Shares, connection: StageState, ways: list[Way]) -> Verdict:
    way = ways[0] if ways else Way((connection.id,), 0.0)
    cause = cause_of(state, way) if ways else UNKNOWN
    also = tuple(other.bottleneck for other in ways[1:] if other.weight >= ALSO_SHARE * way.weight)
    case = Case(
        state=state,
        name=name_of(connection),
        cause=cause,
        chain=way.ids,
        also=also,
        share_1m=shares.share_1m(connection.id),
        since_s=shares.since_s[connection.id],
        confirms=way.confirms,
        sync_ms=shares.sync_ms,
    )
    return Verdict(
        connection=connection.name,
        id=connection.id,
        name=case.name,
        user=connection.user,
        vhost=connection.vhost,
        cause=cause,
        bottleneck=way.bottleneck if ways else None,
        chain=way.ids,
        since_s=case.since_s,
        share_1m=case.share_1m,
        resource=RESOURCES[cause],
        sentence=sentence(case),
        knobs=knobs(case),
        also=also,
    )


def cause_of(state: State, way: Way) -> str:
    """By what is at the end of it."""
    end = way.bottleneck
    if end.startswith(ALARM):
        source = end[len(ALARM) :]
        return STORE_FAULT if source == STORE else source if source in RESOURCES else UNKNOWN
    if end.startswith(CONSUMERS):
        return SATURATED
    kinds = [_kind(state, id_) for id_ in way.ids]
    if kinds[-1] in (QUEUE, STREAM):
        return DEAD_LETTERS if kinds[-2] in (QUEUE, STREAM) else QUEUE
    return kinds[-1] if kinds[-1] in (CHANNEL, STORE) else UNKNOWN


def _kind(state: State, id_: str) -> str:
    stage = state.stages.get(id_)
    return stage.kind if stage is not None else kind_of(id_)


def name_of(connection: StageState) -> str:
    """What the client calls itself, else its address."""
    if connection.client_name:
        return connection.client_name
    address, _, given = connection.name.partition(" ")
    return given if given and not given.startswith("-> ") else address

"""Window: the verdicts of one window of the past, by the same rule as those of the moment.

Live, weights are the seconds of the last minute, the older the less (history.py); of a window that is over they are its
own seconds. Everything else is graph.py's: the bottleneck is the first stage downstream of the blocked ones that is not
blocked itself.

| live                                        | here                                                           |
| ------------------------------------------- | -------------------------------------------------------------- |
| held back: HELD_SHARE of the last 3 s       | HELD_SHARE of the window                                       |
| an alarm that is on is the bottleneck       | one that was on for half of the time that the connection waited |

Place: spark/tables/verdicts.py calls it, once for each window, with who waited for whom.
Not here: how that is found in events (spark/tables/), sentences and knobs (words.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from penstock.flow.graph import Graph
from penstock.flow.history import HELD_SHARE, Shares
from penstock.flow.state import ALARM, CONSUMERS, State, read_state
from penstock.flow.verdict import RESOURCES, UNKNOWN, cause_of

US: Final = 1_000_000
ALARM_SHARE: Final = 0.5  # of the time that a connection was held back: less is an alarm that is over or just begins


class Wait(NamedTuple):
    """Who waited for what in the window."""

    upstream: str
    downstream: str
    blocked_us: int
    passed_us: int  # of that, how long the second was blocked itself
    via: str = ""  # the channel by which confirms come
    busy_us: int = 0  # of the second, if it is a channel: what its turns took
    heaviest: str = ""  # the queue behind it whose turns took longest
    heaviest_us: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    connection: str
    cause: str
    bottleneck: str | None
    chain: tuple[str, ...]
    share: float
    resource: str


def judge(waits: Sequence[Wait], held_us: Mapping[str, int], window_us: int) -> tuple[list[Finding], list[str | None]]:
    """Of each connection that was held back, by what; and of each wait, the bottleneck behind it.

    `held_us` has the connections: how long they were blocked, or waited for confirms."""
    state = _state(waits)
    shares = _shares(waits)
    roots = _roots(Graph(state, shares), waits)
    least_us = HELD_SHARE * window_us
    held = sorted(id_ for id_, us in held_us.items() if us >= least_us and us > 0)
    graph = Graph(state, _without_short_alarms(shares, held_us))
    return [_finding(state, graph, id_, min(1.0, held_us[id_] / window_us)) for id_ in held], roots


def _finding(state: State, graph: Graph, connection: str, share: float) -> Finding:
    ways = graph.ways(connection)
    if not ways:
        return Finding(connection, UNKNOWN, None, (connection,), share, RESOURCES[UNKNOWN])
    cause = cause_of(state, ways[0])
    return Finding(connection, cause, ways[0].bottleneck, ways[0].ids, share, RESOURCES[cause])


def _roots(graph: Graph, waits: Sequence[Wait]) -> list[str | None]:
    behind: dict[str, str | None] = {}
    roots: list[str | None] = []
    for wait in waits:
        id_ = wait.downstream
        if not graph.passes_on(wait.upstream, id_):
            roots.append(graph.heaviest((wait.upstream, id_))[-1])
            continue
        if id_ not in behind:
            ways = graph.ways(id_)
            behind[id_] = ways[0].bottleneck if ways else None
        roots.append(behind[id_])
    return roots


def _state(waits: Sequence[Wait]) -> State:
    """The stages of the window, as if of one moment: what graph.py asks of them is who they are, and what is on."""
    stages: dict[str, dict[str, Any]] = {}
    alarms: dict[str, dict[str, Any]] = {}
    links: list[dict[str, Any]] = []
    for wait in waits:
        upstream, downstream, via = wait.upstream, wait.downstream, wait.via
        stages.setdefault(upstream, {"id": upstream})
        if downstream.startswith(ALARM):
            alarms[downstream] = {"source": downstream[len(ALARM) :]}
        elif downstream.startswith(CONSUMERS):
            id_ = downstream[len(CONSUMERS) :]
            queue = stages.setdefault(id_, {"id": id_})
            queue["saturated"] = True
            if via:
                queue.setdefault("held_from", {})[via] = 1
                stages.setdefault(via, {"id": via})["connection"] = upstream
        else:
            stages.setdefault(downstream, {"id": downstream})
        if wait.heaviest:
            links.append({"upstream": downstream, "downstream": wait.heaviest})
    return read_state({"stages": list(stages.values()), "links": links, "alarms": list(alarms.values())})


def _shares(waits: Sequence[Wait]) -> Shares:
    busy = {wait.downstream: wait.busy_us / US for wait in waits}
    busy |= {wait.heaviest: wait.heaviest_us / US for wait in waits}
    return Shares(
        stages_s={},
        edges_s={},
        edge_weights={(wait.upstream, wait.downstream): wait.blocked_us / US for wait in waits},
        passed_weights={(wait.upstream, wait.downstream): wait.passed_us / US for wait in waits},
        held_s={},
        since_s={},
        busy_weights=busy,
    )


def _without_short_alarms(shares: Shares, held_us: Mapping[str, int]) -> Shares:
    """Live, an alarm that is over counts no more. Of a window the greater part counts, if there is something else."""
    others = {upstream for upstream, downstream in shares.edge_weights if not downstream.startswith(ALARM)}
    weights = {
        (upstream, downstream): weight
        for (upstream, downstream), weight in shares.edge_weights.items()
        if upstream not in others
        or not downstream.startswith(ALARM)
        or weight * US >= ALARM_SHARE * held_us.get(upstream, 0)
    }
    return replace(shares, edge_weights=weights)

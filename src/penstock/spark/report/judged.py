"""Judged: who was held back, by what, when. From the tables verdicts and blockers.

A row of verdicts is a connection and a window, with its share of it. A client of several connections is held back as
much as the worst of them, window by window: never for longer than has passed.
Place: digest.py.  Not here: how a verdict comes about (flow/window.py), sentences (words.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.flow.state import CONNECTION
from penstock.spark.report.frame import Row, Steps, Tables, each_slice, group, joined, relabelled, uniques
from penstock.spark.report.names import Names, bare, cut

WHO_MAX: Final = 30
BLOCKERS_MAX: Final = 15
GROUPS_MAX: Final = 6  # told in the summary
_BETWEEN: Final = "\x1f"  # of the parts of a chain that is kept as one text
# A client's window, by what held it back: the worst of its connections.
_WINDOW: Final = ["who", "at_ms", "step", "cause", "bottleneck"]
_WORST: Final = [("held_s", "max"), ("chain", "max"), ("user", "max"), ("vhost", "max")]


@dataclass(frozen=True, slots=True)
class Group:
    """Those whom the same thing held back."""

    cause: str
    bottleneck: str
    chain: tuple[str, ...]
    who: tuple[str, ...]  # the longest held back first
    held_s: float  # at least one of them
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Judged:
    who: list[Row]
    groups: list[Group]
    clients: dict[str, str]
    left_out: int


def judged(tables: Tables, steps: Steps) -> Judged:
    parts: list[pa.Table] = []
    clients = _clients(tables, steps)
    for part in each_slice(tables, "verdicts", steps):
        parts.append(_by_window(part, clients, steps))
    windows = joined(parts)
    if windows is None:
        return Judged([], [], clients, 0)
    names = Names(clients)
    windows = relabelled(windows, "bottleneck", names.labels(uniques(windows, "bottleneck")))
    windows = _divided(group(windows, _WINDOW, _WORST))  # again: two channels may be one by their labels
    totals = group(windows, ["who"], [("own_s", "sum")]).sort_by([("own_s", "descending"), ("who", "ascending")])
    chosen = totals["who"].to_pylist()[:WHO_MAX]
    who = [_who(windows.filter(pc.equal(windows["who"], name)), name, steps) for name in chosen]
    return Judged(who, _groups(windows, names, steps), clients, max(0, totals.num_rows - WHO_MAX))


def _clients(tables: Tables, steps: Steps) -> dict[str, str]:
    """What connections call themselves, also those that nothing held back for long."""
    found: dict[str, str] = {}
    for part in each_slice(tables, "samples", steps):
        for row in group(part, ["stage"], [("client", "max")]).to_pylist():
            if row["client"] and (row["stage"] or "").startswith(CONNECTION + " "):
                found[bare(row["stage"])] = cut(row["client"])
    return found


def _by_window(part: pa.Table, clients: dict[str, str], steps: Steps) -> pa.Table:
    """By client, window, cause and bottleneck the worst of its connections; `clients` learns who is who."""
    for row in group(part, ["connection"], [("client", "max")]).to_pylist():
        if row["connection"] and row["client"]:
            clients[bare(row["connection"])] = cut(row["client"])
    own = Names(clients)
    labels = {id_: own.label(f"connection {bare(id_)}") for id_ in uniques(part, "connection")}
    named = relabelled(part, "connection", labels).rename_columns(
        ["who" if name == "connection" else name for name in part.column_names]
    )
    text = {name: pc.fill_null(named[name], "") for name in ("cause", "bottleneck", "user", "vhost")}
    for name, column in text.items():
        named = named.set_column(named.column_names.index(name), name, column)
    chain = pc.fill_null(pc.binary_join(named["chain"], _BETWEEN), "")
    named = named.set_column(named.column_names.index("chain"), "chain", chain)
    held_s = pc.multiply(pc.min_element_wise(pc.fill_null(named["share"], 0.0), 1.0), steps.window_s)
    return group(named.append_column("held_s", held_s), _WINDOW, _WORST)


def _divided(windows: pa.Table) -> pa.Table:
    """`own_s`: the time of a client's window, which is that of its worst connection, among all that held it back."""
    by_client = windows.append_column("all_s", windows["held_s"])
    sums = group(by_client, ["who", "at_ms"], [("held_s", "max"), ("all_s", "sum")])
    sums = sums.rename_columns(["worst_s" if name == "held_s" else name for name in sums.column_names])
    found = windows.join(sums, ["who", "at_ms"], use_threads=False)
    part = pc.if_else(pc.greater(found["all_s"], 0.0), pc.divide(found["worst_s"], found["all_s"]), 0.0)
    return found.append_column("own_s", pc.multiply(found["held_s"], part))


def _who(own: pa.Table, name: str, steps: Steps) -> Row:
    by_cause: dict[str, float] = {}
    held = [0.0] * steps.count
    weights: list[dict[str, float]] = [{} for _ in range(steps.count)]
    for row in group(own, ["step", "cause"], [("own_s", "sum")]).to_pylist():
        by_cause[row["cause"]] = by_cause.get(row["cause"], 0.0) + row["own_s"]
        weights[row["step"]][row["cause"]] = row["own_s"]
        held[row["step"]] += row["own_s"]
    last = own.sort_by([("at_ms", "descending")]).slice(0, 1).to_pylist()[0]
    step_s = steps.step_ms / 1000
    return {
        "name": name,
        "user": last["user"],
        "vhost": last["vhost"],
        "cause": max(by_cause, key=lambda cause: (by_cause[cause], cause)),
        "bottleneck": _heaviest(own),
        "held_s": round(sum(held), 3),
        "by_cause_s": {cause: round(seconds, 3) for cause, seconds in sorted(by_cause.items())},
        "share": [round(min(1.0, seconds / step_s), 3) for seconds in held],
        "causes": [max(one, key=lambda cause: (one[cause], cause)) if one else "" for one in weights],
    }


def _heaviest(own: pa.Table) -> str:
    sums = group(own, ["bottleneck"], [("own_s", "sum")]).sort_by(
        [("own_s", "descending"), ("bottleneck", "ascending")]
    )
    return str(sums["bottleneck"][0].as_py())


def _groups(windows: pa.Table, names: Names, steps: Steps) -> list[Group]:
    # A window counts for a group as much as it does for the worst of those in it.
    by_window = group(windows, ["cause", "bottleneck", "at_ms"], [("held_s", "max")])
    sums = group(
        by_window.append_column("until_ms", by_window["at_ms"]),
        ["cause", "bottleneck"],
        [("held_s", "sum"), ("at_ms", "min"), ("until_ms", "max")],
    ).sort_by([("held_s", "descending"), ("bottleneck", "ascending")])
    found = []
    for row in sums.slice(0, GROUPS_MAX).to_pylist():
        same = pc.and_(pc.equal(windows["cause"], row["cause"]), pc.equal(windows["bottleneck"], row["bottleneck"]))
        own = windows.filter(same)
        who = group(own, ["who"], [("held_s", "sum")]).sort_by([("held_s", "descending"), ("who", "ascending")])
        chains = group(own, ["chain"], [("held_s", "sum")]).sort_by([("held_s", "descending")])
        chain = str(chains["chain"][0].as_py()).split(_BETWEEN)
        found.append(
            Group(
                cause=row["cause"],
                bottleneck=row["bottleneck"],
                chain=tuple(names.label(id_) for id_ in chain if id_),
                who=tuple(who["who"].to_pylist()),
                held_s=row["held_s"],
                began_ms=row["at_ms"],
                ended_ms=row["until_ms"] + steps.window_ms,
            )
        )
    return found


def blockers(tables: Tables, names: Names, steps: Steps) -> list[Row]:
    """The bottlenecks, those first that cost their connections the most time."""
    parts = []
    for part in each_slice(tables, "blockers", steps):
        named = relabelled(part, "bottleneck", names.labels(uniques(part, "bottleneck")))
        # First by window: in one there are as many rows of a label as there are stages that bear it.
        by_window = group(named, ["bottleneck", "cause", "at_ms"], [("blocked_us", "sum"), ("connections", "sum")])
        parts.append(by_window)
    found = joined(parts)
    if found is None:
        return []
    sums = [("blocked_us", "sum"), ("connections", "max"), ("at_ms", "count")]
    ordered = group(found, ["bottleneck", "cause"], sums).sort_by(
        [("blocked_us", "descending"), ("bottleneck", "ascending")]
    )
    return [
        {
            "bottleneck": row["bottleneck"],
            "cause": row["cause"] or "",
            "connections": row["connections"] or 0,
            "blocked_s": round((row["blocked_us"] or 0) / 1e6, 3),
            "present_s": round(row["at_ms"] * steps.window_s, 3),
        }
        for row in ordered.slice(0, BLOCKERS_MAX).to_pylist()
    ]

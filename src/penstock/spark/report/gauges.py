"""Gauges: depth of queues against their limits, sync times, memory and disk, the quality of the tables.

Of a step with several windows: the longest queue, the least free disk, the most memory; of sync times the worst
window's percentiles, and the usual one (p50) by the number of syncs. A step without a window is None.
Place: digest.py.  Not here: when limits will be reached (trend.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.report.frame import Row, Steps, Tables, each_slice, group, joined, relabelled, uniques
from penstock.spark.report.names import Names

QUEUES_MAX: Final = 12
QUALITY_MAX: Final = 120  # more than there are rules: `all hold` is said of all
EXAMPLE_LETTERS_MAX: Final = 200
SPREAD: Final = ("saturated_share", "blocked_share", "received_rate", "sent_rate")  # of a queue, over the stretch

Series = list[float | int | None]


def depth(tables: Tables, names: Names, steps: Steps) -> tuple[list[Row], int]:
    """The queues that are nearest to a limit, then those that were longest; and how many more there are."""
    parts = []
    for part in each_slice(tables, "depth", steps):
        named = relabelled(part, "stage", names.labels(uniques(part, "stage")))
        sums = [("messages_max", "max"), ("limit_share", "max"), *((name, "sum") for name in SPREAD)]
        by_step = group(named, ["stage", "step"], sums)
        last = named.sort_by([("at_ms", "ascending")])
        ends = group(last, ["stage", "step"], [(name, "last") for name in ("messages_last", "consumers", "vhost")])
        limits = group(last, ["stage", "step"], [("limit_messages", "last"), ("limit_bytes", "last")])
        parts.append(by_step.join(ends, ["stage", "step"]).join(limits, ["stage", "step"]))
    found = joined(parts)
    if found is None:
        return [], 0
    totals = group(found, ["stage"], [("limit_share", "max"), ("messages_max", "max")]).sort_by(
        [("limit_share", "descending"), ("messages_max", "descending"), ("stage", "ascending")]
    )
    chosen = [name for name in totals["stage"].to_pylist() if name][:QUEUES_MAX]
    queues = [_queue(found.filter(pc.equal(found["stage"], name)), name, steps) for name in chosen]
    return queues, max(0, totals.num_rows - len(chosen))


def _queue(own: pa.Table, name: str, steps: Steps) -> Row:
    ordered = own.sort_by([("step", "ascending")]).to_pylist()
    names = ("messages_last", "consumers", "vhost", "limit_messages", "limit_bytes")
    known = {column: _known(ordered, column) for column in names}
    near = [row["limit_share"] for row in ordered if row["limit_share"] is not None]
    return {
        "stage": name,
        "vhost": known["vhost"] or "",
        "messages_max": max((row["messages_max"] or 0 for row in ordered), default=0),
        "messages_last": known["messages_last"],
        "consumers": known["consumers"],
        "limit": known["limit_messages"],
        "limit_bytes": known["limit_bytes"],
        "limit_share": _rounded(max(near, default=None)),
        "saturated_share": _share(ordered, "saturated_share", steps),
        "blocked_share": _share(ordered, "blocked_share", steps),
        "received_rate": _rounded(_spread(ordered, "received_rate", steps), 2),
        "sent_rate": _rounded(_spread(ordered, "sent_rate", steps), 2),
        "messages": series(ordered, "messages_max", steps),
    }


def _known(ordered: list[Row], column: str) -> Any:
    """The newest value there is."""
    return next((row[column] for row in reversed(ordered) if row[column] is not None), None)


def _spread(ordered: list[Row], column: str, steps: Steps) -> float | None:
    """Over all that is known of the stretch: where nothing was sampled, nothing happened. None: no window has it."""
    found = [row[column] for row in ordered if row[column] is not None]
    return sum(found) * steps.window_s / steps.known_s if found else None


def _share(ordered: list[Row], column: str, steps: Steps) -> float:
    return round(min(1.0, _spread(ordered, column, steps) or 0.0), 4)


def syncs(tables: Tables, steps: Steps) -> Row:
    parts = []
    for part in each_slice(tables, "syncs", steps):
        weighed = pc.multiply(pc.fill_null(part["p50_us"], 0.0), pc.cast(part["count"], pa.float64()))
        sums = [("count", "sum"), ("weighed", "sum"), *((name, "max") for name in ("p95_us", "p99_us", "longest_us"))]
        parts.append(group(part.append_column("weighed", weighed), ["step"], sums))
    found = joined(parts)
    ordered: list[Row] = [] if found is None else found.to_pylist()
    for row in ordered:
        row["p50_us"] = row["weighed"] / row["count"] if row["count"] else None
        row.update({f"{name}_ms": _ms(row[f"{name}_us"]) for name in ("p50", "p95", "p99", "longest")})
    return {name: series(ordered, name, steps) for name in ("count", "p50_ms", "p95_ms", "p99_ms", "longest_ms")}


def resources(tables: Tables, steps: Steps) -> Row:
    kinds = {
        "memory_used_bytes": "max",
        "memory_limit_bytes": "min",
        "disk_free_bytes": "min",
        "disk_limit_bytes": "max",
        "connections": "max",
        "channels": "max",
        "queues": "max",
    }
    parts = [group(part, ["step"], list(kinds.items())) for part in each_slice(tables, "resources", steps)]
    found = joined(parts)
    ordered: list[Row] = [] if found is None else found.to_pylist()
    return {name: series(ordered, name, steps) for name in kinds}


def first_ms(tables: Tables, steps: Steps) -> int:
    """The first window of the stretch in which the broker was looked at; its begin, if it never was."""
    for part in each_slice(tables, "resources", steps):
        return int(pc.min(part["at_ms"]).as_py())
    return steps.since_ms


def quality(tables: Tables, steps: Steps) -> list[Row]:
    """By table and rule, over the stretch; those that failed first."""
    sums = [("rows", "sum"), ("failures", "sum"), ("example", "max")]
    parts = []
    for part in each_slice(tables, "quality", steps):
        failed = pc.if_else(pc.greater(pc.fill_null(part["failures"], 0), 0), part["example"], None)
        own = part.set_column(part.column_names.index("example"), "example", failed)
        parts.append(group(own, ["table", "rule"], sums))
    found = joined(parts)
    if found is None:
        return []
    checks: list[Row] = [
        {
            "table": row["table"] or "",
            "rule": row["rule"] or "",
            "rows": row["rows"] or 0,
            "failures": row["failures"] or 0,
            "example": (row["example"] or "")[:EXAMPLE_LETTERS_MAX],
        }
        for row in group(found, ["table", "rule"], sums).to_pylist()
    ]
    return sorted(checks, key=lambda one: (-one["failures"], one["table"], one["rule"]))[:QUALITY_MAX]


def series(ordered: Iterable[Row], column: str, steps: Steps) -> Series:
    found: Series = [None] * steps.count
    for row in ordered:
        if 0 <= row["step"] < steps.count:
            found[row["step"]] = row[column]
    return found


def _ms(us: float | None) -> float | None:
    return None if us is None else round(us / 1000, 3)


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(float(value), digits)

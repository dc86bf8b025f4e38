"""Timeline: who was blocked when, who blocked whom, and the longest blocks. From the tables chains, blocks and open.

Place: digest.py.  Not here: what follows from it (judged.py), words (words.py).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.flow.state import CONSUMERS
from penstock.spark.report.frame import Row, Steps, Tables, each_slice, group, joined, ms_of, relabelled, rows, uniques
from penstock.spark.report.names import KINDS, Names, kind_of

STAGES_MAX: Final = 30
HEAT_MAX: Final = 16  # rows, and columns
LONGEST_MAX: Final = 12
OPEN_MAX: Final = 30


def blocked(tables: Tables, names: Names, steps: Steps) -> tuple[list[Row], Row, int]:
    """Blocked share by stage and step; the heat map; how many stages were blocked in all."""
    links: list[pa.Table] = []
    stages: list[pa.Table] = []
    kinds: dict[str, str] = {}
    for part in each_slice(tables, "chains", steps):
        ids = {*uniques(part, "upstream"), *uniques(part, "downstream")}
        labels = names.labels(ids)
        kinds.update({labels[id_]: kind_of(id_) for id_ in ids})
        named = relabelled(relabelled(part, "upstream", labels), "downstream", labels)
        links.append(group(named, ["upstream", "downstream", "step"], [("blocked_us", "sum"), ("blocks", "sum")]))
        stages.append(_by_step(named, steps))
    edges, blocks = joined(links), joined(stages)
    if edges is None or blocks is None:
        return [], {"upstream": [], "downstream": [], "cells": []}, 0
    return _stages(blocks, kinds, steps), _heat(edges, kinds), len(uniques(edges, "upstream"))


def _by_step(named: pa.Table, steps: Steps) -> pa.Table:
    """Several links, or several connections of one name, may block at the same time: in a window it is blocked once."""
    sums = [("blocked_us", "sum"), ("blocks", "sum")]
    windows = group(named, ["upstream", "at_ms", "step"], sums)
    once_us = pc.min_element_wise(pc.fill_null(windows["blocked_us"], 0), pa.scalar(steps.window_ms * 1000, pa.int64()))
    windows = windows.set_column(windows.column_names.index("blocked_us"), "blocked_us", once_us)
    return group(windows, ["upstream", "step"], sums)


def _stages(blocks: pa.Table, kinds: dict[str, str], steps: Steps) -> list[Row]:
    totals = _top(group(blocks, ["upstream"], [("blocked_us", "sum"), ("blocks", "sum")]), "upstream", STAGES_MAX)
    chosen = {row["upstream"]: row for row in totals}
    kept = blocks.filter(pc.is_in(blocks["upstream"], pa.array(list(chosen), pa.string())))
    series = {label: [0.0] * steps.count for label in chosen}
    for row in kept.to_pylist():
        series[row["upstream"]][row["step"]] = round(row["blocked_us"] / (steps.step_ms * 1000), 3)
    found = [
        {
            "label": label,
            "kind": kinds.get(label, "other"),
            "blocked_s": round(sum(series[label]) * steps.step_ms / 1000, 3),
            "blocks": int(row["blocks"] or 0),
            "share": series[label],
        }
        for label, row in chosen.items()
    ]
    return sorted(found, key=lambda one: (KINDS.index(str(one["kind"])), -float(str(one["blocked_s"])), one["label"]))


def _heat(edges: pa.Table, kinds: dict[str, str]) -> Row:
    """Rows are those that wait, columns those they wait for; a cell is seconds and blocks."""
    sums = [("blocked_us", "sum"), ("blocks", "sum")]
    up = [row["upstream"] for row in _top(group(edges, ["upstream"], sums), "upstream", HEAT_MAX)]
    down = [row["downstream"] for row in _top(group(edges, ["downstream"], sums), "downstream", HEAT_MAX)]
    up.sort(key=lambda label: KINDS.index(kinds.get(label, "other")))
    down.sort(key=lambda label: KINDS.index(kinds.get(label, "other")))
    cells = [
        [
            up.index(row["upstream"]),
            down.index(row["downstream"]),
            round((row["blocked_us"] or 0) / 1e6, 3),
            row["blocks"] or 0,
        ]
        for row in group(edges, ["upstream", "downstream"], sums).to_pylist()
        if row["upstream"] in up and row["downstream"] in down
    ]
    return {"upstream": up, "downstream": down, "cells": sorted(cells)}


def longest(tables: Tables, names: Names, steps: Steps) -> list[Row]:
    """The longest blocks; of those that were added up, the longest of them."""
    best: pa.Table | None = None
    for part in each_slice(tables, "blocks", steps):
        lasting = pc.coalesce(part["longest_us"], part["duration_us"])
        ranked = part.append_column("rank_us", pc.fill_null(lasting, 0))
        both = ranked if best is None else pa.concat_tables([best, ranked])
        best = both.sort_by([("rank_us", "descending")]).slice(0, LONGEST_MAX)
    if best is None:
        return []
    return [
        {
            "stage": names.label(row["stage"] or ""),
            "cause": names.label(row["cause"] or ""),
            "root": names.label(row["root"] or ""),
            "began_ms": _ms(row["began"]),
            "ended_ms": _ms(row["ended"]),
            "longest_s": round(row["rank_us"] / 1e6, 6),
            "count": row["count"] or 1,
            "closed_by": row["closed_by"] or "",
        }
        for row in best.to_pylist()
    ]


def still_open(tables: Tables, names: Names, steps: Steps, until_ms: int) -> list[Row]:
    """What was blocked when the window ended that ends at `until_ms`. Where there is none of that, nothing was."""
    last = rows(tables, "open", until_ms - steps.window_ms, until_ms, steps)
    found = [
        {
            "stage": names.label(row["stage"] or ""),
            "cause": names.label(CONSUMERS + row["stage"] if row["cause"] == "saturated" else row["cause"] or ""),
            "began_ms": _ms(row["began"]),
        }
        for row in last.to_pylist()
    ]
    return sorted(found, key=lambda one: (one["began_ms"] or 0, one["stage"]))[:OPEN_MAX]


def _top(totals: pa.Table, key: str, most: int) -> list[dict[str, Any]]:
    """Those with the most blocked time, if they have any."""
    there = totals.filter(pc.and_(pc.greater(totals["blocked_us"], 0), pc.not_equal(totals[key], "")))
    ordered = there.sort_by([("blocked_us", "descending"), (key, "ascending")]).slice(0, most)
    found: list[dict[str, Any]] = ordered.to_pylist()
    return found


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else ms_of(moment)

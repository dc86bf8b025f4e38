"""Trend: when what has a limit will reach it. From the table forecast.

Of the first few there is also what a chart of it needs: the values of the past, step by step, and the two ends of the
straight line, which goes on from the newest value until the limit or the rim of the chart. The future has at most as
much room as the past, and a quarter of that at least.
Place: digest.py.  Not here: how the line is fitted (spark/tables/forecast.py), its sentence (opening.py).
"""

from __future__ import annotations

import math
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.spark.report.contents import FORECASTS_DRAWN
from penstock.spark.report.frame import Row, Steps, Tables, each_slice, group, ms_of, rows
from penstock.spark.report.names import Names

FORECASTS_MAX: Final = 12
FRESH_WINDOWS: Final = 6
BYTES: Final = "bytes"
MESSAGES: Final = "messages"
TITLES: Final = {"disk": "Free space on the disk", "memory": "Memory in use"}
AHEAD_MORE: Final = 1.2  # so that the limit is not reached at the very rim

Key = tuple[str, str]  # subject and unit: a queue may have a limit of messages and one of bytes


def forecasts(tables: Tables, names: Names, steps: Steps) -> list[Row]:
    """The newest of each limit; what comes first is first, then what is nearest to its limit."""
    # What was last foretold longer ago is gone, or has nothing to foretell any more.
    last = rows(tables, "forecast", steps.until_ms - FRESH_WINDOWS * steps.window_ms, steps.until_ms, steps)
    newest: dict[Key, Row] = {}
    for row in last.sort_by([("at_ms", "ascending")]).to_pylist():
        if row["subject"]:
            newest[row["subject"], unit_of(row)] = row
    told = [(key, _told(key, row, names)) for key, row in newest.items()]
    told.sort(key=lambda one: _order(one[1]))
    values = _values(tables, steps, {key[0] for key, _ in told[:FORECASTS_DRAWN]})
    for key, one in told[:FORECASTS_DRAWN]:
        one |= {"values": values.get(key, [None] * steps.count), **_line(one, steps)}
    return [one for _, one in told[:FORECASTS_MAX]]


def unit_of(row: Row) -> str:
    """Tables of before there were limits of bytes do not say it."""
    return row["unit"] or (BYTES if row["subject"] in TITLES else MESSAGES)


def _told(key: Key, row: Row, names: Names) -> Row:
    subject, unit = names.label(key[0]), key[1]
    return {
        "subject": subject,
        "unit": unit,
        "title": TITLES.get(key[0], f"{subject}, {unit}"),
        "value": _rounded(row["value"], 2),
        "limit": _rounded(row["limit"], 2),
        "slope_per_s": _rounded(row["slope_per_s"], 4),
        "r2": _rounded(row["r2"], 4),
        "hits_at_ms": None if row["hits_at"] is None else ms_of(row["hits_at"]),
        "in_s": _rounded(row["in_s"], 1),
        "over_s": _rounded(row["over_s"], 1),
    }


def _order(one: Row) -> tuple[Any, ...]:
    near = float(one["value"] / one["limit"]) if one["value"] is not None and one["limit"] else 0.0
    return one["hits_at_ms"] is None, one["hits_at_ms"] or 0, -near, one["subject"], one["unit"]


def _values(tables: Tables, steps: Steps, subjects: set[str]) -> dict[Key, list[int | None]]:
    """The last value of each step."""
    found: dict[Key, list[int | None]] = {}
    wanted = pa.array(sorted(subjects), pa.string())
    for part in each_slice(tables, "forecast", steps) if subjects else ():
        own = part.filter(pc.is_in(part["subject"], wanted)).sort_by([("at_ms", "ascending")])
        for row in group(own, ["subject", "unit", "step"], [("value", "last")]).to_pylist():
            if row["value"] is not None and math.isfinite(row["value"]):
                known = found.setdefault((row["subject"], unit_of(row)), [None] * steps.count)
                known[row["step"]] = round(row["value"])
    return found


def _line(one: Row, steps: Steps) -> Row:
    """`drawn_until_ms`, and `trend`: two moments, each with its value; None: there is no trend."""
    until_ms, past_ms = steps.until_ms, steps.until_ms - steps.since_ms
    value, slope, in_s = one["value"], one["slope_per_s"], one["in_s"]
    wanted_ms = min(past_ms, max(past_ms / 4, (in_s or 0.0) * 1000 * AHEAD_MORE))
    rim_ms = until_ms + math.ceil(wanted_ms / steps.step_ms) * steps.step_ms
    if value is None or slope is None or not math.isfinite(slope):
        return {"drawn_until_ms": rim_ms, "trend": None}
    begin_ms = max(steps.since_ms, until_ms - round((one["over_s"] or 0.0) * 1000))
    # What is over its limit already has nothing to reach; nothing falls below 0.
    ahead_s = 0.0 if in_s == 0 else (rim_ms - until_ms) / 1000
    if in_s:
        ahead_s = min(ahead_s, in_s)
    if slope < 0:
        ahead_s = min(ahead_s, value / -slope)
    ends = ((begin_ms - until_ms) / 1000, ahead_s)
    trend = [[until_ms + round(at_s * 1000), round(max(0.0, value + slope * at_s), 2)] for at_s in ends]
    return {"drawn_until_ms": rim_ms, "trend": trend}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(float(value), digits)

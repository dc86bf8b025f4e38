"""Digest: what a stretch of the tables says, as one value that JSON can hold, of a bounded size.

`digest(tables, since, until)` reads the ledger's files by pyarrow, no JVM. Every list in it has a limit, and what is
left out is counted. docs/report.md has the fields; the report file and the page's History view show nothing else.
Upstream: the ledger.  Downstream: html.py, page.py.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from penstock.spark.report import gauges, judged, timeline, trend
from penstock.spark.report.contents import parts
from penstock.spark.report.frame import Row, Tables, ms_of, steps_of
from penstock.spark.report.names import Names
from penstock.spark.report.words import advised, advised_for, advised_ms, summary

VERSION: Final = 2  # 1 had no `parts`
STEPS_MAX: Final = 180  # as many as a screen can tell apart
WINDOW_S: Final = 10.0  # where the ledger does not say
BYTES_MAX: Final = 300_000  # three of them and their frame are below 1 MiB
ADVICE: Final = "advice.json"  # in the ledger's directory, by `penstock pipeline advise`
ADVICE_BYTES_MAX: Final = 65_536
UNREADABLE: Final = "unreadable"  # the only field of advice that cannot be shown: why
# What goes first when a digest is too large: it is in the tables.
LISTS: Final = ("longest", "quality", "stages", "verdicts", "depth", "blockers", "open", "summary")


def digest(
    tables: Tables,
    since: datetime,
    until: datetime,
    window_s: float | None = None,
    steps_max: int = STEPS_MAX,
    advice: Row | None = None,
) -> Row:
    """Of the windows from `since` on and before `until`, rounded outwards to whole steps."""
    steps = steps_of(ms_of(since), ms_of(until), window_s or WINDOW_S, steps_max)
    steps = replace(steps, first_ms=gauges.first_ms(tables, steps))
    found = judged.judged(tables, steps)
    names = Names(found.clients)
    stages, heat, blocked = timeline.blocked(tables, names, steps)
    queues, queues_left = gauges.depth(tables, names, steps)
    held = len(found.who) + found.left_out
    value: Row = {
        "version": VERSION,
        "parts": parts(),
        "since_ms": steps.since_ms,
        "until_ms": steps.until_ms,
        "known_s": steps.known_s,
        "step_s": steps.step_ms / 1000,
        "steps": steps.count,
        "window_s": steps.window_s,
        "summary": summary(found.groups, held, steps, ms_of(until)),
        "stages": stages,
        "heat": heat,
        "verdicts": found.who,
        "blockers": judged.blockers(tables, names, steps),
        "longest": timeline.longest(tables, names, steps),
        "open": timeline.still_open(tables, names, steps, ms_of(until)),
        "depth": queues,
        "syncs": gauges.syncs(tables, steps),
        "resources": gauges.resources(tables, steps),
        "forecasts": trend.forecasts(tables, names, steps),
        "quality": gauges.quality(tables, steps),
        "advice": advice,
        "advised": advised(advice or {}),
        "advised_for": advised_for(advice or {}),
        "advised_ms": advised_ms(advice or {}),
        "left_out": {"stages": blocked - len(stages), "verdicts": found.left_out, "depth": queues_left},
    }
    return bounded(clean(value))


def clean(value: Any) -> Any:
    """JSON has no word for what is not a number, or without end."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: clean(one) for name, one in value.items()}
    return [clean(one) for one in value] if isinstance(value, list) else value


def bounded(value: Row, most: int = BYTES_MAX) -> Row:
    """The same, with shorter lists if it is too large."""
    while len(encoded(value)) > most:
        longest = max(LISTS, key=lambda name: len(encoded(value[name])))
        count = len(value[longest])
        if count > 1:
            value[longest] = value[longest][: count // 2]
            if longest in value["left_out"]:
                value["left_out"][longest] += count - count // 2
        elif value["advice"] is not None and UNREADABLE not in value["advice"]:
            value["advice"] = {UNREADABLE: f"{ADVICE} is too large to be shown beside all this."}
            value["advised"], value["advised_for"], value["advised_ms"] = "", "", None
        else:
            return value  # names of some hundred letters cannot make it so
    return value


def encoded(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def read_advice(root: Path) -> Row | None:
    """What the advisor has written last; None: nothing. Of what cannot be shown, why: that is not the same."""
    path = root / ADVICE
    try:
        size = path.stat().st_size
        if size > ADVICE_BYTES_MAX:
            return {UNREADABLE: f"{ADVICE} is too large to be shown: {size:,} bytes, at most {ADVICE_BYTES_MAX:,}."}
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        return {UNREADABLE: f"{ADVICE} cannot be read: {error.strerror}."}
    except (ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {UNREADABLE: f"{ADVICE} is broken: it is no JSON object."}

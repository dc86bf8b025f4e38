"""`penstock pipeline report`: the tables as one HTML file that needs nothing else. No Spark runs for it.

Upstream: command.py.  Downstream: spark/report/.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from penstock.pipeline.common import DEFAULT_TABLES, SPAN_S_MAX, fail, one_line, span_s

DEFAULT_FILE = Path("report.html")
DEFAULT_SINCE = "1h"


def report(
    tables: Annotated[Path, typer.Option(help="The directory of the tables.")] = DEFAULT_TABLES,
    to: Annotated[Path, typer.Option(help="The file to write.")] = DEFAULT_FILE,
    since: Annotated[
        str, typer.Option(help="From when: 30s, 15m, 1h, 7d before the end, or 2026-03-04T14:00 (UTC).")
    ] = DEFAULT_SINCE,
    until: Annotated[str, typer.Option(help="Until when: a time as above, or 10m ago; else the newest there is.")] = "",
) -> None:
    """Write one HTML file: what held whom back, for how long, what to do; with charts of the tables."""
    with one_line():
        from penstock.spark.ledger import Ledger
        from penstock.spark.report.digest import WINDOW_S, digest, read_advice
        from penstock.spark.report.frame import when
        from penstock.spark.report.html import page
        from penstock.spark.tables.schema import DERIVED

        ledger = Ledger(tables)
        newest = ledger.newest()
        if newest is None:
            fail(f"there is nothing in {tables} yet: penstock pipeline flow fills it")
        window_s = ledger.window_s or WINDOW_S
        first = when(min(part.first for name in DERIVED for part in ledger.parts(name)) // 1000)
        last = newest + timedelta(seconds=window_s)
        end = min(moment(until, last, "--until"), last)  # there is nothing later
        # Of what the tables do not know, nothing must be said: that nothing was held back would be no answer.
        if end <= first:
            fail(f"--until {until}: the tables know {first:%Y-%m-%dT%H:%M} to {last:%Y-%m-%dT%H:%M} UTC only")
        begin = moment(since, end, "--since")
        if begin >= end:
            fail(f"--since {since}: that is not before the end, {end:%Y-%m-%dT%H:%M} UTC")
        begin = max(begin, first, end - timedelta(seconds=SPAN_S_MAX))
        advice = read_advice(tables)
        found = digest(ledger, begin, end, window_s, advice=advice)
        if found["known_s"] < (end - begin).total_seconds():  # the tables are younger than that
            begin = end - timedelta(seconds=found["known_s"])
            found = digest(ledger, begin, end, window_s, advice=advice)
        to.write_text(page(found, int(time.time() * 1000)), encoding="utf-8", errors="replace")
        print(f"{to}: {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC. {found['summary'][0]['text']}")


def moment(text: str, end: datetime, option: str) -> datetime:
    """A time as such, or so long before `end`; empty is `end`."""
    if not text:
        return end
    back_s = span_s(option, text)
    if back_s is not None:
        return end - timedelta(seconds=back_s)
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo is not None else at.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        fail(f"{option} {text}: not a time; as in 30s, 15m, 1h, 7d or 2026-03-04T14:00")

"""Recent: the newest rows of a few tables, in memory, as the ledger has them.

A micro-batch needs the last seconds of events and the last minutes of some derived tables. From disk that would be a
hundred small files each time. What is asked for and is older than what is held comes from the ledger, and is rare: an
event came late, or the job has just begun.
Upstream: batch.py.  Downstream: ledger.py:arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.spark.ledger import Ledger
from penstock.spark.tables.schema import FORECAST_S, LOOKBACK_S, WATERMARK_S, schema

BODY = "body"  # derives nothing, and is most of an event's bytes
MARGIN_S = 30  # beyond what an ordinary batch asks for
# How much of each table is held, in seconds before its newest window.
HELD_S = {
    "events": LOOKBACK_S + WATERMARK_S + MARGIN_S,
    "open": WATERMARK_S + MARGIN_S,
    "depth": FORECAST_S + WATERMARK_S + MARGIN_S,
    "resources": FORECAST_S + WATERMARK_S + MARGIN_S,
    "quality": WATERMARK_S + MARGIN_S,
}


@dataclass(slots=True)
class Held:
    """All rows of a table from `since` on."""

    since: datetime
    rows: pa.Table


class Recent:
    """Of one ledger, by the process that writes it."""

    __slots__ = ("_held", "_ledger")

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._held: dict[str, Held] = {}

    def forget(self) -> None:
        """A batch failed: what is held may not be what was committed."""
        self._held.clear()

    def rows(self, table: str, since: datetime, until: datetime | None = None) -> pa.Table:
        """The rows of windows in [since, until), in the shape of the table."""
        held = self._held.get(table)
        if held is None or since < held.since:
            rows = shaped(self._ledger.arrow(table, since), table)
            held = self._held[table] = Held(since, rows)
        return between(held.rows, since, until)

    def committed(self, table: str, rows: pa.Table, since: datetime | None, newest: datetime) -> None:
        """These rows were added; or with `since`, took the place of those from there on."""
        held = self._held.get(table)
        if held is None:
            return
        kept = held.rows if since is None else between(held.rows, None, since)
        oldest = max(held.since, newest - timedelta(seconds=HELD_S[table]))
        both = pa.concat_tables([kept, shaped(rows, table)])
        self._held[table] = Held(oldest, between(both, oldest, None).combine_chunks())


def between(rows: pa.Table, since: datetime | None, until: datetime | None) -> pa.Table:
    window = rows["window"]
    if since is not None:
        rows = rows.filter(pc.greater_equal(window, pa.scalar(since, window.type)))
    if until is not None:
        window = rows["window"]
        rows = rows.filter(pc.less(window, pa.scalar(until, window.type)))
    return rows


def shaped(rows: pa.Table, table: str) -> pa.Table:
    """In the table's columns and types; events without their bodies."""
    target = to_arrow_schema(schema(table), timezone="UTC")
    columns = []
    for field in target:
        if field.name in rows.column_names and not (table == "events" and field.name == BODY):
            columns.append(rows[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(rows.num_rows, field.type))
    return pa.table(columns, schema=target)

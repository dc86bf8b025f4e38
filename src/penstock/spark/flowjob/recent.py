"""Recent: the newest rows of a few tables, in memory, as the ledger has them.

A micro-batch needs the last seconds of events and the last minutes of some derived tables. From disk that would be a
hundred small files each time. What is asked for and is older than what is held comes from the ledger, and is rare: an
event came late, or the job has just begun.
Upstream: batch.py; of the functions pieces.py too.  Downstream: ledger.py:arrow.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.spark.ledger import Ledger
from penstock.spark.tables.schema import LOOKBACK_S, REACH_S, WATERMARK_S, schema, trend_s
from penstock.spark.tables.windows import window_start

BODY = "body"  # derives nothing, and is most of an event's bytes
MARGIN_S = 30  # beyond what an ordinary batch asks for


@dataclass(slots=True)
class Held:
    """All rows of a table from `since` on; with `until`, of windows before that: the ledger has later ones then."""

    since: datetime
    until: datetime | None
    rows: pa.Table

    def has(self, since: datetime, until: datetime | None) -> bool:
        return self.since <= since and (self.until is None or (until is not None and until <= self.until))


class Recent:
    """Of one ledger, by the process that writes it."""

    __slots__ = ("_held", "_held_s", "_ledger")

    def __init__(self, ledger: Ledger, window_s: int) -> None:
        self._ledger = ledger
        self._held: dict[str, Held] = {}
        # How much of each table is held, in seconds before its newest window.
        signs_s = WATERMARK_S + 2 * window_s + MARGIN_S
        self._held_s = {
            "events": LOOKBACK_S + signs_s,
            "open": signs_s,
            "depth": trend_s(window_s) + signs_s,
            "resources": trend_s(window_s) + signs_s,
            "quality": signs_s,
        }

    def forget(self) -> None:
        """A batch failed: what is held may not be what was committed."""
        self._held.clear()

    def rows(self, table: str, since: datetime, until: datetime | None = None) -> pa.Table:
        """The rows of windows in [since, until), in the shape of the table."""
        held = self._held.get(table)
        if held is None or not held.has(since, until):
            held = self._held[table] = self._read(table, since, until)
        return between(held.rows, since, until)

    def _read(self, table: str, since: datetime, until: datetime | None) -> Held:
        # What is later than all that is asked for is from before a clock was set back: it may be days.
        if until is not None and not self._ledger.parts(table, until):
            until = None
        columns = [name for name in schema(table).names if not (table == "events" and name == BODY)]
        return Held(since, until, shaped(self._ledger.arrow(table, since, until, columns), table))

    def committed(self, table: str, rows: pa.Table, since: datetime | None, newest: datetime) -> None:
        """These rows were added; or with `since`, took the place of those from there on."""
        held = self._held.get(table)
        if held is None:
            return
        kept = held.rows if since is None else between(held.rows, None, since)
        oldest = max(held.since, newest - timedelta(seconds=self._held_s[table]))
        both = pa.concat_tables([kept, shaped(rows, table)])
        until = held.until
        if since is not None and until is not None and since <= until:
            until = None  # there is nothing else any more
        self._held[table] = Held(oldest, until, between(both, oldest, None).combine_chunks())


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


def first_window(oldest: datetime, newest: datetime | None, seen: datetime | None, window_s: int) -> datetime:
    """The first window that events from `oldest` on can change.

    newest: of the events before them; older ones come late. seen: the first of the last signs of what is open there."""
    begin = oldest - timedelta(seconds=REACH_S)
    if newest is not None and oldest < newest:
        # A late sign may be of a block that silence or a restart has ended: not longer than this before it. A broker
        # writes its events in order, so this is rare.
        begin = oldest - timedelta(seconds=WATERMARK_S)
    if seen is not None:
        # A block that is open ends when its stage is silent for too long: then, not now.
        begin = min(begin, seen)
    return window_start(begin, window_s)

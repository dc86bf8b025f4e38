"""Pieces: all events derived piece by piece, so that memory is that of a piece and time grows with the events only.

A piece is derived as a micro-batch is: from the blocks that were open before it, a few seconds of the events before it
and some minutes of depth and resources. The last windows of a piece are not final: a block that is open there may turn
out to have been over. So the next piece begins at the first window that it can change, and the rows of this one end
there.
Upstream: rebuild.py.  Downstream: tables/derive.py.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark.flowjob.recent import between, first_window, shaped
from penstock.spark.ledger import Change, append, replace
from penstock.spark.tables.derive import Inputs, derive
from penstock.spark.tables.schema import LOOKBACK_S, schema, trend_s
from penstock.spark.tables.windows import window_start

PIECE_EVENTS = 1_000_000
CARRIED = ("open", "depth", "resources")

log = logging.getLogger("penstock.spark")


def pieces(spark: SparkSession, events: DataFrame, window_s: int, piece_events: int = PIECE_EVENTS) -> Iterator[Change]:
    """The changes that put all derived tables in the place of what was there; each is done before the next is made."""
    carried = {name: shaped(pa.table({}), name) for name in CARRIED}
    start: datetime | None = None
    ends = _ends(events, window_s, piece_events)
    for number, end in enumerate(ends, 1):
        shared: list[DataFrame] = []

        def keep(frame: DataFrame, shared: list[DataFrame] = shared) -> DataFrame:
            shared.append(frame.persist(StorageLevel.DISK_ONLY))
            return frame

        try:
            tables = derive(_inputs(spark, events, carried, window_s, start, end), window_s, start, keep)
            until = None
            if end is not None:
                tables["open"] = keep(tables["open"])
                until = _next_start(tables["open"], end, window_s)
                if start is not None and until <= start:
                    continue  # so much happened at once that the next piece begins where this one did
            for name, frame in tables.items():
                rows = frame if until is None else frame.filter(F.col("window") < F.lit(until))
                yield replace(name, rows) if start is None else append(name, rows)
            if until is not None:
                carried = _carried(tables, carried, until, window_s)
                start = until
            log.info("rebuild: piece %d of %d is derived", number, len(ends))
        finally:
            for frame in shared:
                _let_go(frame)


def _let_go(frame: DataFrame) -> None:
    """Where its JVM is gone, so is the frame; and this may come when nobody is there any more to be told of it."""
    with suppress(PySparkException, Py4JError, ConnectionError):
        frame.unpersist()


def _ends(events: DataFrame, window_s: int, piece_events: int) -> list[datetime | None]:
    """Where pieces end, by the window behind each of them; None: with the last event."""
    counts = events.filter("not late").groupBy("window").count().orderBy("window").toArrow()
    ends: list[datetime | None] = []
    total = 0
    for window, count in zip(counts["window"].to_pylist(), counts["count"].to_pylist(), strict=True):
        total += count
        if total >= piece_events:
            ends.append(window + timedelta(seconds=window_s))
            total = 0
    if total or not ends:
        return [*ends, None]
    return [*ends[:-1], None]


def _inputs(
    spark: SparkSession,
    events: DataFrame,
    carried: dict[str, pa.Table],
    window_s: int,
    start: datetime | None,
    end: datetime | None,
) -> Inputs:
    rows = events if end is None else events.filter(F.col("window") < F.lit(end))
    if start is not None:
        before = window_start(start - timedelta(seconds=LOOKBACK_S), window_s)
        rows = rows.filter(F.col("window") >= F.lit(before))
    known = {
        name: spark.createDataFrame(table if table.num_rows else [], schema(name)) for name, table in carried.items()
    }
    return Inputs(rows, **known)


def _next_start(open_: DataFrame, end: datetime, window_s: int) -> datetime:
    """The first window that events from `end` on can change."""
    last = end - timedelta(seconds=window_s)
    seen = open_.filter(F.col("window") == F.lit(last)).agg(F.min("seen_at")).toArrow()[0][0].as_py()
    return first_window(end, None, seen, window_s)


def _carried(
    tables: dict[str, DataFrame], before: dict[str, pa.Table], start: datetime, window_s: int
) -> dict[str, pa.Table]:
    """What the piece from `start` on must know of the time before it."""
    found = {}
    for name in CARRIED:
        since = start - timedelta(seconds=window_s if name == "open" else trend_s(window_s))
        rows = tables[name].filter((F.col("window") >= F.lit(since)) & (F.col("window") < F.lit(start))).toArrow()
        found[name] = pa.concat_tables([between(before[name], since, None), shaped(rows, name)])
    return found

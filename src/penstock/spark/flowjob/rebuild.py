"""Rebuild: all tables from all events at once, by the same functions as the stream: tables/derive.py.

The events are those of the ledger; or an archive's, Parquet with `body` and `offset` as `penstock pipeline archive`
writes it, which then take the place of the ledger's events. All tables change in one commit; until then whoever reads
has the old ones. What the rules find in them follows in a second one, from the files of the first. Spark writes the
files, where the rows are: this is the way for ten million events and for clusters. Of what the rules find, this process
sees the failures only: `quality` has a row for each window and rule.
Upstream: pipeline/flow.py.  Downstream: pieces.py, page.py.
"""

from __future__ import annotations

from functools import reduce
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark.complaint import Complaint
from penstock.spark.flowjob.batch import (
    EVENTS_STREAM,
    LAST,
    NEWEST,
    OFFSETS_RULE,
    Clock,
    Done,
    added,
    failures_of,
    fingerprint,
    stamped,
)
from penstock.spark.flowjob.own import large_session
from penstock.spark.flowjob.page import draw
from penstock.spark.flowjob.pieces import PIECE_EVENTS, pieces
from penstock.spark.flowjob.recent import shaped
from penstock.spark.ledger import Change, Ledger, append, disk, replace
from penstock.spark.report.page import PageWriter
from penstock.spark.tables import quality, windows
from penstock.spark.tables.events import parse, unique
from penstock.spark.tables.schema import schema
from penstock.spark.tables.windows import day, floor_us, timestamp

REBUILT = -1  # the number of the batch in `quality`
NEEDED = ("body", "offset")  # of an archive
PARTS = 4  # of a piece, at least: a core for each


def rebuild(
    spark: SparkSession,
    ledger: Ledger,
    window_s: int,
    archive: Path | None = None,
    piece_events: int = PIECE_EVENTS,
) -> Done:
    """All over again; the ledger is open for writing."""
    spark = large_session(spark)
    done = Done(REBUILT)
    clock = Clock(done.took_s)
    changes: list[Change] = []
    staged = ledger.staging / "archive"
    if archive is not None:
        rows = in_order(read_archive(spark, archive), piece_events)
        unique(parse(rows, window_s)).write.mode("overwrite").parquet(str(staged))
        events = spark.read.schema(schema("events")).parquet(str(staged))
        changes.append(replace("events", events))
    else:
        if not ledger.rows("events"):
            raise Complaint(f"there are no events in {ledger.root} to rebuild from; --from names an archive")
        events = sliced(ledger.read(spark, "events"), window_s)
        if window_s != ledger.window_s:
            changes.append(replace("events", events))
    clock.lap("parse")
    found = events.agg(F.count("*"), F.max("offset"), F.unix_micros(F.max(F.when(~F.col("late"), F.col("at"))))).first()
    assert found is not None
    count, offset, newest_us = found
    done.events = count
    if archive is not None and (offset is None or newest_us is None):
        disk.remove_tree(staged)
        raise Complaint(f"the archive in {archive} has no events: it must be one of the stream {EVENTS_STREAM}")
    marks = {} if newest_us is None else {NEWEST: newest_us}
    if archive is not None:
        marks[EVENTS_STREAM] = offset + 1
        last = events.filter(F.col("offset") == offset).select("body").first()
        marks[LAST] = fingerprint(last[0] if last is not None else None)
    unread = never_read(ledger, window_s) if archive is None else shaped(pa.table({}), "quality")
    # With the tables that it is about: what is known of the old ones is not true of the new ones.
    changes.append(replace("quality", unread))
    changes_of = chain(changes, pieces(spark, events, window_s, piece_events))
    ledger.commit(None, changes_of, marks=marks, window_s=window_s)
    disk.remove_tree(staged)
    clock.lap("derive")
    # Now from the files: the tables are not derived a second time for it.
    ledger.commit(None, [append("quality", checked(spark, ledger, window_s))])
    # From here on without Spark: who is told to stop has all that there is.
    told = ledger.arrow("quality", columns=["table", "rule", "failures"], where=pc.field("failures") > 0)
    done.failures = failures_of(told)
    done.rows = sum(ledger.rows(name) for name in ledger.tables() if name not in ("events", "quality"))
    clock.lap("check")
    draw(PageWriter(ledger, ledger.root), whole=True)
    clock.lap("page")
    return done


def checked(spark: SparkSession, ledger: Ledger, window_s: int) -> DataFrame:
    """What the rules find in all tables: rows of `quality`, of which there may be more than this process can hold."""
    names = [name for name in ledger.tables() if name != "quality"]
    found = [quality.checks(name, ledger.read(spark, name), window_s) for name in names]
    rows = reduce(DataFrame.unionByName, found).withColumn("batch", F.lit(REBUILT))
    return windows.shaped(rows, "quality").repartition("day")  # a file for each day, not for each day and table


def never_read(ledger: Ledger, window_s: int) -> pa.Table:
    """What `quality` says of events that were gone before they were read: the events that are there cannot say it."""
    known = shaped(ledger.arrow("quality", where=pc.field("rule") == OFFSETS_RULE), "quality")
    rows = known.to_pylist()
    for row in rows:
        row["window"] = windows.window_start(row["window"], window_s)
        row["day"] = row["window"].date()
    return stamped(added(pa.Table.from_pylist(rows, known.schema)), REBUILT)


def read_archive(spark: SparkSession, directory: Path) -> DataFrame:
    """Rows as the source gives them."""
    if not directory.is_dir():
        raise Complaint(f"there is no archive in {directory}")
    try:
        rows = spark.read.parquet(str(directory))
    except AnalysisException:
        raise Complaint(f"there is no archive in {directory}: no Parquet files") from None
    missing = [name for name in NEEDED if name not in rows.columns]
    if missing:
        raise Complaint(f"the archive in {directory} has no column {missing[0]}: it needs {' and '.join(NEEDED)}")
    return rows


def in_order(rows: DataFrame, piece_events: int) -> DataFrame:
    """In files that follow each other in the stream: then a piece, which is a stretch of time, reads only its own."""
    parts = max(rows.count() * PARTS // piece_events, 1)
    return rows.repartitionByRange(parts, "offset")


def sliced(events: DataFrame, window_s: int) -> DataFrame:
    """The same events, with windows of this length."""
    window = timestamp(floor_us(F.unix_micros("at"), window_s))
    return events.withColumn("window", window).withColumn("day", day(F.col("window")))

"""Rebuild: all tables from all events at once, by the same functions as the stream: tables/derive.py.

The events are those of the ledger; or an archive's, Parquet with `body` and `offset` as `penstock pipeline archive`
writes it, which then take the place of the ledger's events. All tables change in one commit; until then whoever reads
has the old ones. What the rules find in them follows in a second one, from the files of the first. Spark writes the
files, where the rows are: this is the way for ten million events and for clusters.
Upstream: job.py, pipeline/flow.py.  Downstream: pieces.py.
"""

from __future__ import annotations

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
from penstock.spark.flowjob.gathered import gathered
from penstock.spark.flowjob.own import large_session
from penstock.spark.flowjob.pieces import PIECE_EVENTS, pieces
from penstock.spark.flowjob.recent import shaped
from penstock.spark.ledger import Change, Ledger, disk, replace
from penstock.spark.tables import quality
from penstock.spark.tables.events import parse, unique
from penstock.spark.tables.schema import schema
from penstock.spark.tables.windows import day, floor_us, timestamp, window_start

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
    checks = {
        name: quality.checks(name, ledger.read(spark, name), window_s) for name in ledger.tables() if name != "quality"
    }
    rules = [shaped(rows, "quality") for rows in gathered(checks).values()]
    judged = added(pa.concat_tables([*rules, unread]))
    ledger.commit(None, [replace("quality", stamped(judged, REBUILT))])
    done.failures = failures_of(judged)
    done.rows = sum(ledger.rows(name) for name in ledger.tables() if name not in ("events", "quality"))
    clock.lap("check")
    return done


def never_read(ledger: Ledger, window_s: int) -> pa.Table:
    """What `quality` says of events that were gone before they were read: the events that are there cannot say it."""
    known = shaped(ledger.arrow("quality"), "quality")
    rows = known.filter(pc.equal(known["rule"], OFFSETS_RULE)).to_pylist()
    for row in rows:
        row["window"] = window_start(row["window"], window_s)
        row["day"] = row["window"].date()
    return pa.Table.from_pylist(rows, known.schema)


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

"""FlowBatch: one micro-batch of events into all tables, by one commit.

    rows of the source -> events -> what the windows they touch need from before -> derive -> check -> commit

Small by design: the events of a batch (at most job.py:BATCH_EVENTS) and the rows derived from them go through this
process as Arrow; Spark parses, derives and checks (plans.py). A rebuild of everything (rebuild.py) does the same
without that.
Upstream: job.py, by foreachBatch.  Downstream: plans.py, ledger.
Exactly once: the ledger's mark (the offset behind its last event) changes with the tables, in the same commit, and
every query begins at it; a batch that Spark repeats is skipped.
Not here: the query and its restarts (job.py).
"""

from __future__ import annotations

import hashlib
import logging
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.spark.complaint import Complaint
from penstock.spark.flowjob.plans import Anew, Plans, Prepared
from penstock.spark.flowjob.recent import Recent, between, first_window, shaped
from penstock.spark.ledger import Ledger, append, replace
from penstock.spark.ledger.manifest import moment
from penstock.spark.tables.derive import KNOWN
from penstock.spark.tables.schema import LATE_MAX_S, LOOKBACK_S, schema, trend_s
from penstock.spark.tables.windows import US, micros, window_start

EVENTS_STREAM = "penstock.events"
LAST = "last_event"  # a mark: the fingerprint of the event before the mark of the stream
NEWEST = "newest_us"  # a mark: the newest event in the tables; what is much older than it is late
OFFSETS_RULE = "offsets follow each other"  # what retention took before it was read
STRAGGLERS = 1  # late events at the end of a batch that say nothing of the clock

log = logging.getLogger("penstock.spark")


@dataclass(slots=True)
class Done:
    """What a batch was, for the log."""

    batch: int
    events: int = 0
    late: int = 0
    rows: int = 0  # in all derived tables
    newest: datetime | None = None  # event
    failures: dict[str, int] = field(default_factory=dict)  # by table and rule
    took_s: dict[str, float] = field(default_factory=dict)  # by step

    @property
    def total_s(self) -> float:
        return sum(self.took_s.values())


class FlowBatch:
    """The batches of one job, one after the other."""

    def __init__(self, spark: SparkSession, ledger: Ledger, window_s: int) -> None:
        self._spark = spark
        self._ledger = ledger
        self._window_s = window_s
        self._recent = Recent(ledger, window_s)
        self._made: Plans | None = None

    def forget(self) -> None:
        """A query starts: what is known comes from the ledger again."""
        self._recent.forget()

    def process(self, rows: DataFrame, batch: int, query: str) -> Done:
        """The rows of the source; None of them need be new."""
        done = Done(batch)
        if self._ledger.has(query, batch):
            return done
        try:
            self._process(rows, batch, query, done)
        except BaseException:
            self._recent.forget()
            raise
        return done

    def _process(self, rows: DataFrame, batch: int, query: str, done: Done) -> None:
        clock = Clock(done.took_s)
        marks = self._ledger.manifest().marks
        mark = marks.get(EVENTS_STREAM)
        read = self._plans().parse(rows)
        clock.lap("parse")
        if not read.num_rows:
            return
        if mark is not None and pc.min(read["offset"]).as_py() < mark:
            # A query begins at the mark, so below it is what was not there when it began.
            raise Complaint(
                f"the tables in {self._ledger.root} have events up to offset {mark}, and the stream begins anew "
                "below it: it is another broker's, so name another directory with --tables"
            )
        events, newest_us = self._new(read, marks.get(NEWEST))
        done.events = events.num_rows
        offsets = pc.min_max(events["offset"])
        reached = offsets["max"].as_py() + 1
        # What retention took before it was read: before this batch, or from the middle of it.
        gap = reached - (mark if mark is not None else offsets["min"].as_py()) - events.num_rows
        timely = events.filter(pc.invert(events["late"]))
        done.late = events.num_rows - timely.num_rows
        start = self._start(timely)
        changes = [append("events", events)]
        checked = {"events": shaped(events, "events")}
        derived: dict[str, pa.Table] = {}
        if start is not None:
            derived = self._derived(shaped(events, "events"), start, moment(newest_us))
            clock.lap("derive")
            changes += [replace(name, table, start) for name, table in derived.items()]
            checked |= derived
            done.rows = sum(table.num_rows for table in derived.values())
        done.newest = moment(newest_us)
        at = start if start is not None else window_start(done.newest, self._window_s)
        judged, done.failures = self._judged(checked, batch, at, gap, start is not None)
        changes.append(replace("quality", judged, at) if start is not None else append("quality", judged))
        clock.lap("check")
        last = fingerprint(events["body"][-1].as_py())
        marks = {EVENTS_STREAM: reached, NEWEST: newest_us, LAST: last}
        self._ledger.commit(batch, changes, query, marks, self._window_s)
        newest = window_start(done.newest, self._window_s)
        self._recent.committed("events", events, None, newest)
        for name, rows_of in {**derived, "quality": judged}.items():
            self._recent.committed(name, rows_of, start, newest)
        clock.lap("commit")

    def _new(self, read: pa.Table, known_us: int | None) -> tuple[pa.Table, int]:
        """Each event once, in the stream's order, what is too late marked; and when the newest event of all was, us."""
        read = read.sort_by("offset")
        if pc.count_distinct(read["offset"]).as_py() < read.num_rows:
            read = _first_of_each(read)
        timely = read.filter(pc.invert(read["late"]))
        if not timely.num_rows:
            return read, known_us or 0
        at_us = timely["at"].cast(pa.int64()).to_numpy()
        newest_us = int(at_us.max()) if known_us is None else max(known_us, int(at_us.max()))
        back = set_back(at_us, newest_us)
        if back is not None:
            begin = moment(int(at_us[back]))
            log.warning("the broker's clock went back from %s to %s: later windows go", moment(newest_us), begin)
            newest_us = int(at_us[back:].max())
        if known_us is None or back == 0:
            return read, newest_us
        oldest = moment(known_us) - timedelta(seconds=LATE_MAX_S)
        is_late = pc.less(read["at"], pa.scalar(oldest, read["at"].type))
        if back is not None:
            is_late = pc.and_(is_late, pc.less(read["offset"], timely["offset"][back]))
        late = pc.or_(read["late"], is_late)
        return read.set_column(read.column_names.index("late"), "late", late), newest_us

    def _start(self, timely: pa.Table) -> datetime | None:
        """The first window that these events can change; None: they are all too late for any."""
        if not timely.num_rows:
            return None
        newest_us = self._ledger.manifest().marks.get(NEWEST)
        newest = moment(newest_us) if newest_us is not None else None
        seen = None
        if newest is not None:
            seen = pc.min(self._recent.rows("open", window_start(newest, self._window_s))["seen_at"]).as_py()
        return first_window(pc.min(timely["at"]).as_py(), newest, seen, self._window_s)

    def _derived(self, events: pa.Table, start: datetime, newest: datetime) -> dict[str, pa.Table]:
        """All derived tables, from window `start` on."""
        before = window_start(start - timedelta(seconds=LOOKBACK_S), self._window_s)
        # What is later than the newest is from before the clock was set back, here or in this batch.
        until = window_start(newest, self._window_s) + timedelta(seconds=self._window_s)
        there = self._recent.rows("events", before, until)
        both = pa.concat_tables([there, between(events, before, until)])
        last = start - timedelta(seconds=self._window_s)
        newest_us = self._ledger.manifest().marks.get(NEWEST)
        if newest_us is not None:
            last = min(last, window_start(moment(newest_us), self._window_s))
        trend = start - timedelta(seconds=trend_s(self._window_s))
        beside = known(both, start)
        inputs = {
            "events": with_known(both, beside),
            "open": with_known(self._recent.rows("open", last, last + timedelta(seconds=self._window_s)), beside),
            "depth": self._recent.rows("depth", trend, start),
            "resources": self._recent.rows("resources", trend, start),
        }
        return self._plans().derive(inputs)

    def _plans(self) -> Plans:
        if self._made is None:
            self._made = self._prepared() or Anew(self._spark, self._window_s)
        return self._made

    def _prepared(self) -> Prepared | None:
        """None: this Spark cannot run a plan again with other rows, or tasks run where files may come late."""
        if not (self._spark.sparkContext.master or "").startswith("local"):
            return None
        prepared = Prepared(self._spark, self._ledger.staging / "slots", self._window_s)
        if prepared.is_repeatable():
            return prepared
        log.warning("this Spark keeps rows in its plans: they are made anew for each batch, which costs seconds")
        return None

    def _judged(
        self, tables: dict[str, pa.Table], batch: int, start: datetime, gap: int, replaces: bool
    ) -> tuple[pa.Table, dict[str, int]]:
        """The rows of `quality` from window `start` on; and what failed in this batch.

        The derived tables are there from `start` on, so their rows of quality are new too. Of the events only the new
        ones are: theirs are added to what the batches before found in the same windows.
        """
        found = self._plans().check(tables)
        fresh = pa.concat_tables(shaped(rows, "quality") for rows in found.values())
        if gap:
            fresh = pa.concat_tables([fresh, gap_row(gap, start)])
        before = self._recent.rows("quality", start)
        # Where nothing is derived again, nothing is replaced either.
        before = before.filter(pc.equal(before["table"], "events")) if replaces else before.slice(0, 0)
        return stamped(added(pa.concat_tables([before, fresh])), batch), failures_of(fresh)


class Clock:
    """What each step took."""

    __slots__ = ("_began", "_laps")

    def __init__(self, laps: dict[str, float]) -> None:
        self._laps = laps
        self._began = time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self._laps[name] = self._laps.get(name, 0.0) + now - self._began
        self._began = now


def set_back(at_us: NDArray[np.int64], newest_us: int) -> int | None:
    """Of a batch's events in the stream's order: from which one on the clock was set back. None: it was not.

    One broker writes the stream, in order: behind such an event all are too late beside the newest. One alone, at the
    end of others, may be a straggler; if it is none, the next batch shows it."""
    in_time = np.flatnonzero(at_us >= newest_us - LATE_MAX_S * US)
    begin = int(in_time[-1]) + 1 if in_time.size else 0
    late = at_us.size - begin
    return begin if late > (STRAGGLERS if begin else 0) else None


def known(events: pa.Table, start: datetime) -> pa.Table:
    """tables/derive.py:known, of rows that are here."""
    timely = events.filter(pc.invert(events["late"]))
    at_us = timely["at"].cast(pa.int64())
    restarts = at_us.filter(pc.equal(timely["type"], "recovery")).unique().sort()
    row = {"start_us": micros(start), "newest_us": pc.max(at_us).as_py() or 0, "restarts": restarts.to_pylist()}
    return pa.Table.from_pylist([row], to_arrow_schema(KNOWN))


def with_known(rows: pa.Table, beside: pa.Table) -> pa.Table:
    """Each row with this one beside it."""
    repeated = beside.take(pa.array([0] * rows.num_rows, pa.int64()))
    for name in repeated.column_names:
        rows = rows.append_column(repeated.schema.field(name), repeated[name])
    return rows


def fingerprint(body: str | None) -> int:
    """Of an event, to know its stream by."""
    return int.from_bytes(hashlib.sha256((body or "").encode()).digest()[:6], "big")


def gap_row(gap: int, window: datetime) -> pa.Table:
    """So many events are missing: retention removed them before they were read."""
    row = {
        "window": window,
        "day": window.date(),
        "table": "events",
        "rule": OFFSETS_RULE,
        "rows": gap,
        "failures": gap,
    }
    target = to_arrow_schema(schema("quality"), timezone="UTC")
    return pa.table([pa.array([row.get(one.name)], one.type) for one in target], schema=target)


def added(rows: pa.Table) -> pa.Table:
    """Rows of quality, one for each window, table and rule."""
    keys = ["window", "day", "table", "rule"]
    summed = rows.group_by(keys).aggregate([("rows", "sum"), ("failures", "sum"), ("example", "max")])
    return summed.rename_columns({"rows_sum": "rows", "failures_sum": "failures", "example_max": "example"})


def stamped(rows: pa.Table, batch: int) -> pa.Table:
    """Rows of quality that say which batch they are of."""
    return shaped(rows.append_column("batch", pa.array([batch] * rows.num_rows, pa.int64())), "quality")


def failures_of(judged: pa.Table) -> dict[str, int]:
    """Where there are any: how many in all windows, by `table: rule`."""
    failed = judged.filter(pc.greater(judged["failures"], 0)).group_by(["table", "rule"])
    summed = failed.aggregate([("failures", "sum")])
    return {f"{row['table']}: {row['rule']}": row["failures_sum"] for row in summed.to_pylist()}


def _first_of_each(rows: pa.Table) -> pa.Table:
    """One row per offset."""
    numbered = rows.append_column("_row", pa.array(range(rows.num_rows)))
    first = numbered.group_by("offset").aggregate([("_row", "min")])["_row_min"]
    return rows.take(first.sort())

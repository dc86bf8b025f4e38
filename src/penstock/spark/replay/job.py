"""Replay: `penstock pipeline replay`: a table back to an exchange, each key in order, paced by the broker.

Upstream: pipeline/replay.py.  Downstream: table.py (rows), plan.py (lanes), lane.py (publishing).
One job of Spark: shuffle by key, sort, publish; a task for each lane. Nothing is collected. The driver only looks at
the checkpoint's marks and tells how it gets on. A job that fails after it got on, or while the broker is away, is
started again: its lanes go on behind their marks, as they do in a new process after kill -9.
Not here: confirms, blocks and lost connections (outlet.py), what is sent twice and dropped (encoder.py:Stamp).
"""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from penstock.client.uri import parse_uri
from penstock.spark.archive.wait import Say, await_broker, check_name, is_away, look_for_exchange
from penstock.spark.complaint import Complaint, first_line
from penstock.spark.encoder import ColumnError, Plan, make_plan
from penstock.spark.jvm import JVM_GONE, ended_by, is_cut_off
from penstock.spark.patience import START_S
from penstock.spark.replay.lane import RESULT, Lane
from penstock.spark.replay.plan import DUE, LANE, TIME, Route, check_route, column, default_order, laned, time_us
from penstock.spark.replay.state import Begun, ReplayState, Terms
from penstock.spark.replay.table import Table, find_table, pinned, read_pinned, read_table, was_merged
from penstock.spark.session import fresh
from penstock.spark.sidejob import LOOK_S, SideJob

NAME: Final = "penstock replay"
TELL_S: Final = 1.0  # between two lines of progress
TELL_IDLE_S: Final = 30.0  # while nothing gets on: Spark sorts, the broker blocks, or no row is due
STOP_S: Final = 10.0  # how long lanes may take to end by themselves: a blocked one does not
LANES_MAX: Final = 1000
SPEED_MAX: Final = 1e9  # at which thirty years take a second; faster is full speed, which is to leave it out
# Of Arrow batches on their way to a lane: what a task holds of rows that are not sent yet.
BATCH_ROWS: Final = 5_000
BATCH_BYTES: Final = 16 * 1024 * 1024
SHOWN: Final = 10

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says."""

    uri: str
    table: str
    exchange: str
    routing_key: str | None = None
    key: str = "routing_key"
    order_by: str | None = None
    where: str | None = None
    body: str = "body"
    speed: float | None = None  # None: full
    time: str | None = None
    checkpoint: Path | None = None
    lanes: int | None = None
    window: int = 1000
    mandatory: bool = False
    deduplicate: bool = True


class Replay:
    """One run. `prepare` needs no Spark; `run` or `show` do the work; `close` lets the checkpoint go.

    `left`: how many rows are not confirmed; None: nobody knows yet."""

    def __init__(self, wanted: Wanted, stop: threading.Event, say: Say, warn: Say) -> None:
        if wanted.speed is not None and not 0 < wanted.speed <= SPEED_MAX:  # nan is outside too
            raise Complaint(
                f"--speed is above 0 and up to {SPEED_MAX:g}: 1 is as recorded, 2 twice as fast; not {wanted.speed:g}"
            )
        if wanted.window < 1:
            raise Complaint(f"--window is 1 or more, not {wanted.window}")
        if wanted.lanes is not None and not 1 <= wanted.lanes <= LANES_MAX:
            raise Complaint(f"--lanes is 1 to {LANES_MAX}, not {wanted.lanes}")
        if wanted.time is not None and wanted.speed is None:
            raise Complaint("--time means nothing without --speed: all is sent as fast as the broker takes it")
        check_name("--exchange", wanted.exchange)
        check_name("--routing-key", wanted.routing_key)
        self._wanted = wanted
        self._uri = parse_uri(wanted.uri)
        self._stop = stop
        self._say = say
        self._warn = warn
        self._look = partial(look_for_exchange, exchange=wanted.exchange)
        self._table: Table | None = None
        self._state: ReplayState | None = None
        self._own: Path | None = None  # without --checkpoint, until the end of this run
        self._time = wanted.time or TIME if wanted.speed is not None else None
        self._began_at = time.monotonic()
        self.left: int | None = None

    def __repr__(self) -> str:
        return f"<Replay of {self._wanted.table} to exchange {self._wanted.exchange!r}>"

    def prepare(self, connect: bool = True) -> bool:
        """Look at table, checkpoint and broker. False: the job is to stop."""
        self._table = find_table(self._wanted.table)
        if not connect:
            return True
        if self._wanted.checkpoint is None:
            self._own = Path(tempfile.mkdtemp(prefix="penstock-replay-"))
        state = ReplayState((self._wanted.checkpoint or self._own or Path()).resolve())
        begun = state.has_begun()
        if not begun and not self._await(0):
            return False  # before the directory is made: a mistyped name leaves none
        self._state = state
        state.hold()
        return not begun or self._await(START_S)

    def close(self) -> None:
        if self._state is not None:
            self._state.release()
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)

    def run(self, spark: SparkSession) -> int:
        """Publish what is left. The number of rows that were confirmed in this run."""
        table, state = self._table, self._state
        assert table is not None
        assert state is not None, "prepare comes first"
        already = state.confirmed()
        with ended_by(self._stop):
            if not self._stop.is_set():
                self._run(fresh(spark), table, state)
        sent, took_s = state.confirmed() - already, time.monotonic() - self._began_at
        self._say(
            f"{'done' if self.left == 0 else 'stopped'}: {sent} rows to exchange {self._wanted.exchange!r} in "
            f"{took_s:.1f} s" + (f", {self.left} left" if self.left else "")
        )
        return sent

    def _run(self, spark: SparkSession, table: Table, state: ReplayState) -> None:
        if spark.conf.get("spark.speculation", "false") == "true":
            raise Complaint("a replay needs spark.speculation=false: two attempts of a lane would publish twice")
        terms = self._steady(lambda found: self._terms(found, self._order(read_table(spark, found))))
        begun = state.begun(terms)
        if begun is None:
            begun = self._steady(lambda found: self._begin(spark, found, read_table(spark, found), terms))
            state.begin(terms, begun)
        self.left = begun.rows - state.confirmed()
        try:
            self._go_on(spark, terms, begun, state)
        finally:
            self.left = begun.rows - state.confirmed()
        if self.left and not self._stop.is_set():
            raise Complaint(f"{self.left} rows did not come: {table.name} has changed since the replay began")

    def _go_on(self, spark: SparkSession, terms: Terms, begun: Begun, state: ReplayState) -> None:
        already = state.confirmed()
        if already:
            moved = begun.broker is not None and begun.broker != self._uri.address
            at = f" by the broker at {begun.broker}" if moved else ""
            self._warn(f"going on: {already} of {begun.rows} rows are confirmed{at}")
        if 0 < already < begun.rows:
            self._check_rows(spark, begun)
        self._check_slots(spark, begun)
        self._began_at = time.monotonic()
        while state.confirmed() < begun.rows and not self._stop.is_set():
            before = state.confirmed()
            table, messages = self._steady(lambda found: (found, self._pinned_messages(spark, found, terms, begun)))
            failure = self._publish(spark, messages, begun)
            if failure is None or self._stop.is_set():
                break
            self._again_or_fail(failure, was_merged(table) or state.confirmed() > before)

    def _pinned_messages(self, spark: SparkSession, table: Table, terms: Terms, begun: Begun) -> DataFrame:
        rows = self._filtered(read_pinned(spark, table, begun.files, begun.last))
        return laned(rows, self._route(table, terms.order, begun), begun.first_us)

    def show(self, spark: SparkSession) -> None:
        """What would be sent, and nothing of it."""
        assert self._table is not None, "prepare comes first"
        with ended_by(self._stop):
            if not self._stop.is_set():
                own = fresh(spark)
                for line in self._steady(lambda found: self._shown(own, found)):
                    self._say(line)

    def _shown(self, spark: SparkSession, table: Table) -> list[str]:
        rows = read_table(spark, table)
        order = self._order(rows)
        begun = self._begin(spark, table, rows, self._terms(table, order))
        rows = self._filtered(rows)
        self._plan(laned(rows, self._route(table, order, begun), begun.first_us))
        ((keys,),) = self._collected(spark, rows.select(F.count_distinct(column(self._wanted.key))))
        told = (
            f"{begun.rows} rows of {table.name} ({len(table.files)} files) would go to exchange "
            f"{self._wanted.exchange!r} at {self._uri}, {keys} keys in {begun.lanes} lanes, "
            f"by {','.join(order)}, {self._told_span(begun)}"
        )
        shown = rows.orderBy(*map(column, order)).limit(SHOWN)
        one = laned(shown, self._route(table, order, begun, lanes=1), begun.first_us)
        key = F.col("routing_key") if self._wanted.routing_key is None else F.lit(self._wanted.routing_key)
        found = one.select(key, F.length("body"), F.substring(F.col("body").cast("string"), 1, 60))
        lines = [f"  {row[0]!r} {row[1]} bytes {row[2]!r}" for row in self._collected(spark, found)]
        more = [f"  and {begun.rows - SHOWN} more"] if begun.rows > SHOWN else []
        return [told, *lines, *more]

    # Before it runs.

    def _await(self, most_s: float | None) -> bool:
        return await_broker(self._uri, self._look, self._stop, self._warn, most_s)

    def _order(self, rows: DataFrame) -> tuple[str, ...]:
        if self._wanted.order_by is None:
            return default_order(rows.schema)
        order = tuple(one.strip() for one in self._wanted.order_by.split(",") if one.strip())
        if not order:
            raise Complaint("--order-by names nothing")
        return order

    def _terms(self, table: Table, order: tuple[str, ...]) -> Terms:
        wanted = self._wanted
        return Terms(
            table.name,
            wanted.where,
            wanted.exchange,
            wanted.routing_key,
            wanted.key,
            order,
            wanted.body,
            wanted.deduplicate,
            self._time,
            self._uri.vhost,
        )

    def _filtered(self, rows: DataFrame) -> DataFrame:
        if self._wanted.where is None:
            return rows
        try:
            return rows.where(self._wanted.where)
        except AnalysisException as error:
            raise Complaint(f"--where: {first_line(str(error))}") from None

    def _begin(self, spark: SparkSession, table: Table, rows: DataFrame, terms: Terms) -> Begun:
        """Look at the table once: how many rows, and from when to when."""
        collected = partial(self._collected, spark)
        files, ends = pinned(table, rows, collected)
        begun = Begun(uuid.uuid4().hex, self._wanted.lanes or 1, 0, files, ends, None, None, self._uri.address)
        check_route(rows.schema, self._route(table, terms.order, begun))
        wanted = [F.count(F.lit(1))]
        if terms.time is not None:
            wanted += [F.min(time_us(terms.time)), F.max(time_us(terms.time))]
        found = collected(self._filtered(rows).agg(*wanted))[0]
        first, last = (found[1], found[2]) if terms.time is not None else (None, None)
        if terms.time is not None and first is None and found[0]:
            raise Complaint(f"--speed: no row has a time in the column {terms.time!r}; name another with --time")
        # Asked for last: a cluster knows its cores when a job has run.
        lanes = self._wanted.lanes or max(spark.sparkContext.defaultParallelism, 1)
        return replace(begun, lanes=lanes, rows=found[0], first_us=first, last_us=last)

    def _route(self, table: Table, order: tuple[str, ...], begun: Begun, lanes: int | None = None) -> Route:
        wanted = self._wanted
        exact = table.exact and order == ("offset", "partition")
        return Route(
            wanted.key,
            order,
            wanted.body,
            wanted.routing_key,
            self._uri.user,
            self._time,
            lanes or begun.lanes,
            table.names,
            exact,
        )

    def _check_rows(self, spark: SparkSession, begun: Begun) -> None:
        """What a lane has confirmed is a number of rows: with rows that came or went it would mean others."""
        count = F.count(F.lit(1))
        (found,) = self._steady(
            lambda table: self._collected(
                spark, self._filtered(read_pinned(spark, table, begun.files, begun.last)).agg(count)
            )
        )
        there = found[0]
        if there != begun.rows:
            raise Complaint(
                f"{self._wanted.table} has {there} of the {begun.rows} rows that it had when the replay began, so "
                "nobody can say what is left of it"
            )

    def _collected(self, spark: SparkSession, found: DataFrame) -> list[Row]:
        """What Spark finds, unless the job is told to stop meanwhile: all of the table may have to be read for it."""
        if self._stop.is_set():
            raise InterruptedError("the replay is being stopped")
        job = SideJob(spark, NAME, found.collect)
        while not job.done.wait(LOOK_S):
            if self._stop.is_set():
                job.cancel()
                raise InterruptedError("the replay is being stopped")
        return job.result

    def _steady(self, ask: Callable[[Table], T]) -> T:
        """What is found in the table; asked again where an archive's files were merged meanwhile."""
        while True:
            table = find_table(self._wanted.table)
            try:
                return ask(table)
            except (PySparkException, Py4JError) as error:
                if is_cut_off(error) or not was_merged(table):
                    raise

    def _check_slots(self, spark: SparkSession, begun: Begun) -> None:
        context = spark.sparkContext
        slots = context.defaultParallelism
        if self._wanted.speed is None or begun.lanes <= slots:
            return
        text = f"at recorded speed all {begun.lanes} lanes must run at once, and Spark has {slots} cores"
        if not (context.master or "").startswith("local"):  # its executors may still be coming
            self._warn(f"{text} now; lanes that wait for one are late")
            return
        raise Complaint(f"{text} here; give it more (--master), or begin anew with fewer --lanes")

    def _told_span(self, begun: Begun) -> str:
        if self._wanted.speed is None or begun.first_us is None or begun.last_us is None:
            return "at full speed"
        return f"within {(begun.last_us - begun.first_us) / 1e6 / self._wanted.speed:.1f} s"

    def _plan(self, messages: DataFrame) -> Plan:
        try:
            return make_plan(messages.drop(LANE, DUE).schema, self._wanted.exchange, self._wanted.routing_key)
        except ColumnError as error:
            raise Complaint(str(error)) from None

    # While it runs.

    def _publish(self, spark: SparkSession, messages: DataFrame, begun: Begun) -> Exception | None:
        """Run the job, tell how it gets on, and end it if it is to end. The error it failed with."""
        assert self._state is not None
        wanted, state = self._wanted, self._state
        # On the clock of the first run: what is late there is sent at once, what is to come keeps its distance.
        marks = [mark.due_us for mark in state.marks() if mark.due_us is not None]
        lane = Lane(
            self._plan(messages),
            self._uri,
            wanted.window,
            wanted.mandatory,
            state.root,
            begun.id,
            uuid.uuid4().hex,
            wanted.deduplicate,
            wanted.speed,
            max(marks, default=begun.first_us or 0),
        )
        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", str(BATCH_ROWS))
        spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(BATCH_BYTES))
        job = SideJob(spark, NAME, messages.mapInArrow(lane, RESULT).collect)
        told_at, told = time.monotonic(), state.confirmed()
        while not job.done.wait(LOOK_S) and not self._stop.is_set():
            now = time.monotonic()
            if now - told_at >= TELL_S:
                confirmed = state.confirmed()
                if confirmed > told or now - told_at >= TELL_IDLE_S:
                    self._tell(confirmed, (confirmed - told) / (now - told_at), begun)
                    told_at, told = now, confirmed
        if not job.done.is_set():
            state.ask_to_stop()
            if not job.done.wait(STOP_S):
                job.cancel()
            return None
        return job.error

    def _tell(self, confirmed: int, rate: float, begun: Begun) -> None:
        left = begun.rows - confirmed
        self._say(f"{confirmed} of {begun.rows} rows, {rate:.0f} rows/s, {left} left")

    def _again_or_fail(self, failure: Exception, got_on: bool) -> None:
        if is_cut_off(failure):
            raise Complaint(JVM_GONE) from None
        text = first_line(str(failure))
        if not got_on and not is_away(self._uri):
            raise Complaint(text) from None
        self._warn(f"{text}; starting again")
        self._await(None)

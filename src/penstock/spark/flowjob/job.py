"""FlowJob: the events stream of a broker into the tables of the flow, for as long as it is let.

    penstock.events -> source "amqp" -> foreachBatch -> batch.py -> one commit of the ledger per micro-batch

Upstream: pipeline/flow.py.  Downstream: batch.py, page.py, ledger (compaction, retention).
A query that fails is started again: Spark never does that by itself. When the broker is away it is waited for; only a
job that has never run fails at once, because then its user has probably mistyped the address, and one that runs once
waits for no longer than patience.py:START_S.
Not here: what a batch does (batch.py), options of the command (pipeline/flow.py).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client.connection import Connection
from penstock.client.error import ClientError
from penstock.client.stream import Offsets, offsets
from penstock.client.uri import Uri, parse_uri
from penstock.spark.complaint import Complaint, first_line
from penstock.spark.flowjob.batch import EVENTS_STREAM, LAST, NEWEST, FlowBatch, fingerprint
from penstock.spark.flowjob.own import small_session
from penstock.spark.flowjob.page import draw
from penstock.spark.flowjob.progress import EVERY_S, Progress
from penstock.spark.jvm import JVM_GONE, is_jvm_gone
from penstock.spark.ledger import Ledger, disk
from penstock.spark.ledger.compact import compact
from penstock.spark.ledger.manifest import moment
from penstock.spark.ledger.retain import retain
from penstock.spark.patience import START_S, is_passing
from penstock.spark.reading import Reading
from penstock.spark.report.page import PageWriter
from penstock.spark.runner import await_start
from penstock.spark.session import LONG_LIVED, UNIX_SOCKETS, is_local
from penstock.spark.tables.schema import LATE_MAX_S, WINDOW_S

BATCH_EVENTS = 50_000  # at most in one micro-batch: what goes through this process at a time
PAGE_EVERY_S = 5.0
COMPACT_EVERY = 60  # batches: five minutes of them; and at the end of a run with `once`, which has few
SETTLED_S = 60  # windows this much older than the newest are merged; later events rewrite what they touch
RETAIN_EVERY_S = 3600.0
LOOK_S = 0.2  # how often the query is looked at
STOP_WAIT_S = 6.0  # for the batch at work, before it is cut short: it is repeated at the next start
AWAY_LOOK_S = (1.0, 5.0)  # between two tries while the broker is away: at first, and at most
TRIES = 5  # failures in a row without a batch between them
CONFIG = {
    **LONG_LIVED,
    "spark.log.level": "OFF",  # a query that fails would print pages; this job says in one line what is wrong
    "spark.python.sql.dataFrameDebugging.enabled": "false",  # a look at Python's stack for every column of a plan
    "spark.sql.maxPlanStringLength": "2000",
}
REST = 2.0  # times what a batch took: so long nothing is done after it, and two thirds of a core are left to others
REST_S_MAX = 3.0  # what comes meanwhile waits
TRIGGER_S_MAX = 86_400.0  # a day; who wants a batch more seldom has --once
PROGRESS_S_MAX = 86_400.0
KEEP_DAYS_MAX = 36_500  # a hundred years: dates before the year 1 cannot be reckoned with

log = logging.getLogger("penstock.spark")


def config(master: str) -> dict[str, str]:
    """Of a session for this job."""
    return {**CONFIG, **UNIX_SOCKETS} if is_local(master) else CONFIG


@dataclass(frozen=True, slots=True)
class FlowSettings:
    uri: str
    tables: Path
    window_s: int = WINDOW_S
    trigger_s: float = 5.0  # a batch costs a second of CPU however few events it has
    keep_days: int = 30
    keep_event_days: int = 7
    batch_events: int = BATCH_EVENTS
    progress_s: float = EVERY_S

    def check(self) -> None:
        """A Complaint where a value makes no sense; of the address, an UriError."""
        parse_uri(self.uri)
        if not 1 <= self.window_s <= LATE_MAX_S:
            raise Complaint(f"--window is 1 to {LATE_MAX_S} seconds, not {self.window_s}")
        # So written that what is no number (nan) is outside too.
        if not 0 <= self.trigger_s <= TRIGGER_S_MAX:
            raise Complaint(f"--trigger is 0 to {TRIGGER_S_MAX:.0f} seconds, not {self.trigger_s:g}")
        if not 0 < self.progress_s <= PROGRESS_S_MAX:
            raise Complaint(f"--progress is above 0 and up to {PROGRESS_S_MAX:.0f} seconds, not {self.progress_s:g}")
        for name, days in (("--keep-days", self.keep_days), ("--keep-event-days", self.keep_event_days)):
            if not 1 <= days <= KEEP_DAYS_MAX:
                raise Complaint(f"{name} is 1 to {KEEP_DAYS_MAX} days, not {days}")


class FlowJob:
    """One job on one directory of tables; the ledger is open for writing."""

    def __init__(
        self, spark: SparkSession, ledger: Ledger, settings: FlowSettings, stopping: threading.Event | None = None
    ) -> None:
        settings.check()
        self.settings = settings
        self.stopping = stopping if stopping is not None else threading.Event()
        self.finished = False  # with `once`: all that was there when it began is in the tables
        self._spark = small_session(spark)
        self._ledger = ledger
        self._uri: Uri = parse_uri(settings.uri)
        self._batch = FlowBatch(self._spark, ledger, settings.window_s)
        self._progress = Progress(settings.progress_s)
        self._pages = PageWriter(ledger, ledger.root)
        self._page_due_s = 0.0
        self._retain_due_s = 0.0
        self._batches = 0  # since the start
        self._damaged: set[Path] = set()  # files that compaction found so
        self._working = threading.Lock()  # a batch is at work
        self._checkpoint = ledger.root / "_ledger" / "checkpoint"
        self._query: StreamingQuery | None = None
        self._once = False

    # Running.

    def run(self, once: bool = False, ready: Callable[[], None] = lambda: None) -> None:
        """Until it is stopped; `once`: until all that was there when it began is in the tables."""
        self._once = once
        self._check_window()
        self._check_first()
        failed = 0
        while not self.stopping.is_set():
            before = self._batches
            try:
                query = self._query = self._start(once)
                ready()
                ready = _nothing
                self._watch(query)
                if once or self.stopping.is_set():
                    break
            except ConnectionError:  # of py4j: a signal to all of a process group reaches the JVM too
                if self.stopping.is_set():
                    break
                raise Complaint(JVM_GONE) from None
            except (PySparkException, Py4JError, ClientError) as error:
                if self.stopping.is_set():
                    break
                failed = 0 if self._batches > before else failed
                failed = self._after(error, failed)
        self._halt()
        if self.finished and not self.stopping.is_set():
            self._compact()
            self.write_page(whole=True)

    def _watch(self, query: StreamingQuery) -> None:
        """Until it ends or is told to; its error, if it has one."""
        while (is_active := query.isActive) and not self.stopping.wait(LOOK_S):
            self._say()
        if not is_active:
            query.awaitTermination()
            self.finished = self._once
        self._say(now=True)

    def _after(self, error: Exception, failed: int) -> int:
        """The query failed: wait until it makes sense to start it again, or give up; how often in a row it failed."""
        if is_jvm_gone():
            raise Complaint(JVM_GONE) from None
        line = first_line(str(error))
        if not self._is_there():
            log.warning("the broker is away; waiting for it: %s", line)
            self._wait_for_broker(line)
            return 0
        failed += 1
        if failed >= TRIES:
            raise Complaint(f"the query failed {failed} times in a row: {line}") from None
        log.warning("the query failed and is started again: %s", line)
        self.stopping.wait(AWAY_LOOK_S[0])
        return failed

    def _wait_for_broker(self, line: str) -> None:
        """Until it is there. A job that runs once gives up with this line: the next one of cron goes on."""
        wait_s, most_s = AWAY_LOOK_S
        began = time.monotonic()
        while not self.stopping.wait(wait_s):
            if self._is_there():
                log.warning("the broker is back after %.0f s", time.monotonic() - began)
                return
            if self._once and time.monotonic() - began >= START_S:
                raise Complaint(f"{line}; waited {START_S:.0f} s for the broker (uri {self._uri})")
            wait_s = min(wait_s * 2, most_s)

    def stop(self) -> None:
        """From any thread. A handler of signals tells the event instead: pipeline/stopping.py:Told."""
        self.stopping.set()

    def _halt(self) -> None:
        """The query ends between two batches where that does not take long."""
        query = self._query
        if query is None:
            return
        idle = self._working.acquire(timeout=STOP_WAIT_S)
        try:
            await_start(query)
            query.stop()
        except (PySparkException, Py4JError, OSError) as error:
            # The JVM may have got the same signal, and be gone. All that was committed is in the tables.
            log.info("while stopping: %s", first_line(str(error)))
        finally:
            if idle:
                self._working.release()

    # The query.

    def _start(self, once: bool) -> StreamingQuery:
        self._batch.forget()
        self._check_stream()
        # The ledger's mark is the only truth: Spark does not sync its checkpoint, so after a loss of power it may be
        # behind. Every query is a new one, from the mark on.
        disk.remove_tree(self._checkpoint)
        options = {
            "uri": self.settings.uri,
            "stream": EVENTS_STREAM,
            "startingOffsets": self._starting(),
            "maxRecordsPerTrigger": str(self.settings.batch_events),
            "consumerName": "penstock flow",
            "failOnDataLoss": "false",  # what retention took is counted in quality; the rest must not wait for a person
        }
        rows = self._spark.readStream.format("amqp").options(**options).load()
        writer = rows.writeStream.foreachBatch(self._work).option("checkpointLocation", str(self._checkpoint))
        writer = writer.queryName("penstock flow")
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(self.settings.trigger_s * 1000)} milliseconds").start()

    def _starting(self) -> str:
        """Where a query without a checkpoint begins: behind what is in the tables."""
        mark = self._ledger.manifest().marks.get(EVENTS_STREAM)
        return "earliest" if mark is None else json.dumps({EVENTS_STREAM: mark})

    def _query_id(self) -> str:
        """The same for all queries from this checkpoint; Spark writes it before the first batch."""
        document = json.loads((self._checkpoint / "metadata").read_text("utf-8"))
        return str(document["id"])

    def _work(self, rows: DataFrame, batch: int) -> None:
        # Only who stops the job ever has it too, and then waits for this thread to end.
        if not self._working.acquire(blocking=False):
            raise InterruptedError("the job is being stopped")
        try:
            if self.stopping.is_set():
                raise InterruptedError("the job is being stopped")  # the batch is repeated at the next start
            done = self._batch.process(rows, batch, self._query_id())
            self._batches += 1
            if done.events:
                self._progress.add(done)
                log.debug("batch %d: %s", batch, done)
                self._tidy()
        except (PySparkException, Py4JError):
            if self.stopping.is_set():
                # Cut short. Not with the pages of what Spark says: it searches them for the reason, in vain and so deep
                # that Java's stack overflows.
                raise InterruptedError("the job is being stopped") from None
            raise
        finally:
            self._working.release()
        # All of it is committed. Now, and not before the next batch: that begins when Spark has asked what there is.
        if not self._once and done.events < self.settings.batch_events:
            self.stopping.wait(min(done.total_s * REST, REST_S_MAX))

    def _tidy(self) -> None:
        """After a commit: what need not be done each time."""
        now = time.monotonic()
        if self._batches % COMPACT_EVERY == 0:
            self._compact()
        if now >= self._retain_due_s:
            self._retain_due_s = now + RETAIN_EVERY_S
            retain(self._ledger, {"events": self.settings.keep_event_days}, self.settings.keep_days)
        if now >= self._page_due_s:
            self._page_due_s = now + PAGE_EVERY_S
            self.write_page()

    def _compact(self) -> None:
        newest_us = self._ledger.manifest().marks.get(NEWEST)
        if newest_us is not None:
            compact(self._ledger, moment(newest_us) - timedelta(seconds=SETTLED_S), self._damaged)

    def write_page(self, whole: bool = False) -> None:
        draw(self._pages, whole)

    def _say(self, now: bool = False) -> None:
        # To ask Spark for its progress costs more than all else here, and this is called five times a second.
        if self._progress.is_due(now):
            log.info("%s", self._progress.line(self._lag(), now))

    def _lag(self) -> int | None:
        """Events that the stream has and the tables have not, as of the last batch."""
        last = self._query.lastProgress if self._query is not None else None
        if last is None or not last.sources:
            return None
        source = last.sources[0]
        try:
            ends = [json.loads(text)[EVENTS_STREAM] for text in (source.latestOffset, source.endOffset)]
        except (KeyError, TypeError, ValueError):
            return None  # no batch has been planned yet
        return max(int(ends[0]) - int(ends[1]), 0)

    # Before it begins.

    def _check_window(self) -> None:
        made = self._ledger.window_s
        if made is not None and made != self.settings.window_s:
            raise Complaint(
                f"the tables in {self._ledger.root} have windows of {made:g} s: say --window {made:g}, "
                f"or --rebuild --window {self.settings.window_s} once"
            )

    def _check_first(self) -> None:
        """A job that has never run needs a broker now; one that has may wait for it."""
        if EVENTS_STREAM not in self._ledger.manifest().marks:
            self._ask()

    def _check_stream(self) -> None:
        """That it is the one that the tables are from."""
        marks = self._ledger.manifest().marks
        mark = marks.get(EVENTS_STREAM)
        if mark is None:
            return
        found = self._ask()
        wrong = f"ends at {found.next}" if found.next < mark else ""
        if not wrong and LAST in marks and found.first < mark <= found.next:
            other = self._fingerprint_at(mark - 1)
            wrong = "has another event there" if other is not None and other != marks[LAST] else ""
        if wrong:
            raise Complaint(
                f"the tables in {self._ledger.root} have events up to offset {mark}, but {EVENTS_STREAM} at "
                f"{self._uri} {wrong}: it is another broker's, so name another directory with --tables"
            )

    def _ask(self) -> Offsets:
        with Connection.connect(self._uri, name="penstock flow") as connection:
            return offsets(connection.open_channel(), EVENTS_STREAM)

    def _fingerprint_at(self, offset: int) -> int | None:
        """Of the event there; None: retention has just taken it."""
        with Connection.connect(self._uri, name="penstock flow") as connection:
            reading = Reading(connection.open_channel(), EVENTS_STREAM, offset, offset + 1, None)
            got = reading.gather(1, 1)
            return fingerprint(got.bodies[0].decode("utf-8", "replace")) if got else None

    def _is_there(self) -> bool:
        try:
            self._ask()
        except ClientError as error:
            return not is_passing(error)
        return True


def _nothing() -> None:
    """Only the first start is told."""

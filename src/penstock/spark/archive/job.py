"""Archive: `penstock pipeline archive`: a stream or a queue to Parquet, every message one row, whatever is killed.

Upstream: pipeline/archive.py.  Downstream: the source "amqp", rows.py (rows), files.py (files).
Exactly once: Spark's checkpoint, in the directory itself, says which messages are in which batch; the directory says
which batch it has. What is acked in a queue, or passed over in a stream, is in synced files that the directory names.
A broker that is away is waited for, but not by an archive that never had one; a query that fails after it got on is
started again from its checkpoint.
Not here: how files get into the table (files.py), merging small ones (compact.py).
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from penstock.client.connection import Connection
from penstock.client.uri import parse_uri
from penstock.spark import register
from penstock.spark.archive.compact import compact
from penstock.spark.archive.files import CHECKPOINT, SPOOL, ArchiveFiles, Label
from penstock.spark.archive.origin import contradiction, last_seen, seen_of
from penstock.spark.archive.rows import (
    UNPARSED,
    Shape,
    check_places,
    chosen_columns,
    chosen_places,
    parse_fields,
    parsed,
    shaped,
)
from penstock.spark.archive.wait import Say, await_broker, check_name, is_away, look_for_queue, look_for_stream
from penstock.spark.complaint import Complaint, first_line, line_of
from penstock.spark.jvm import ended_by
from penstock.spark.offsets import PositionError, parse_position
from penstock.spark.options import parse_options
from penstock.spark.patience import START_S
from penstock.spark.runner import await_start
from penstock.spark.session import fresh
from penstock.spark.streamview import StreamView

INFER: Final = "infer"
EARLIEST: Final = "earliest"
SAMPLE_ROWS: Final = 1_000  # that a schema is inferred from
SAMPLE_BYTES: Final = 16 * 1024 * 1024  # of them, of a queue
SAMPLE_BODY_BYTES: Final = 256 * 1024  # longer ones are not looked at: the sample is in the driver's memory
STREAM_ROWS: Final = 1_000_000  # of a batch: a file of some ten to hundred megabytes
LOOK_S: Final = 0.2
LAST_STEP_S: Final = 15.0  # for a batch whose query has ended: without Spark it has a few files to move
EVERY_S: Final = 10.0
EVERY_S_MAX: Final = 86_400.0  # a day; who wants a batch more seldom starts it by cron
OF_QUERY: Final = re.compile(r"^Query \[id = .*?\] terminated with exception:| SQLSTATE: \w+")
# What the source says that helps names its own option, which nobody can give here.
OF_OPTION: Final = (
    (re.compile(r"\. Set the option failOnDataLoss to false to go on without them$"), "; --allow-gaps goes on"),
    (re.compile(r"; failOnDataLoss=false [a-z ]+$"), "; name a new directory (--to)"),
)
NO_WORDS: Final = "(no cause message)"
COMPACT_BATCHES: Final = 50  # how often a run that follows merges small files


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says."""

    uri: str
    to: Path
    stream: str | None = None
    queue: str | None = None
    columns: str | None = None
    partition_by: str | None = None
    json: str | None = None
    keep_body: bool = False
    follow: bool = False
    every_s: float | None = None
    rows_max: int | None = None
    start: str = EARLIEST  # or latest, or an offset
    allow_gaps: bool = False
    compact: bool = True


class Archive:
    """One run. `prepare` needs no Spark and finds most mistakes; `run` does the work; `close` lets the directory go.

    `finished`: all that was there when it began is archived."""

    def __init__(self, wanted: Wanted, stop: threading.Event, say: Say, warn: Say) -> None:
        if (wanted.stream is None) == (wanted.queue is None):
            raise Complaint("name what to archive: --stream or --queue, one of them")
        check_name("--stream", wanted.stream)
        check_name("--queue", wanted.queue)
        if wanted.every_s is not None and not 0 < wanted.every_s <= EVERY_S_MAX:  # nan is outside too
            raise Complaint(f"--every is above 0 and up to {EVERY_S_MAX:.0f} seconds, not {wanted.every_s:g}")
        if wanted.every_s is not None and not wanted.follow:
            raise Complaint("--every means nothing without --follow: all that is there is archived at once")
        if wanted.rows_max is not None and wanted.rows_max < 1:
            raise Complaint(f"--max-rows-per-trigger is 1 or more, not {wanted.rows_max}")
        if wanted.queue is not None and wanted.start != EARLIEST:
            raise Complaint("--start is for streams: a queue has no place but its head")
        if wanted.queue is not None and wanted.allow_gaps:
            raise Complaint(
                "--allow-gaps is for streams: where spool or checkpoint of a queue's archive are lost, its offsets "
                "would be given twice; name a new directory (--to)"
            )
        try:
            parse_position(wanted.start)
        except PositionError as error:
            raise Complaint(f"--start is {error}") from None
        if wanted.keep_body and wanted.json is None:
            raise Complaint("--keep-body means nothing without --json: bodies are kept")
        self._wanted = wanted
        self._uri = parse_uri(wanted.uri)
        self._stop = stop
        self._say = say  # progress
        self._warn = warn  # what a person should see
        self._files: ArchiveFiles | None = None
        self._shape: Shape | None = None
        self._turn = threading.Lock()  # a batch of a query that was stopped may still be at its last step
        self._fault: Exception | None = None  # of ours, in a batch: Spark tells pages about it
        self._before = 0  # rows that were there when this run began
        self._begun_at = time.monotonic()
        self.finished = False

    def __repr__(self) -> str:
        return f"<Archive of {self.source} in {self._wanted.to}>"

    @property
    def source(self) -> str:
        wanted = self._wanted
        return f"stream {wanted.stream}" if wanted.stream is not None else f"queue {wanted.queue}"

    def prepare(self) -> bool:
        """Look at directory and broker. False: the job is to stop. Complaint for whatever is wrong."""
        label = self._label()
        if label.json is None:
            self._take_shape(None)
        if not self._wanted.to.exists():
            return self._await(0)  # `run` makes it: what is mistyped leaves none
        files = self._open()
        if files.label is None:
            return self._await(0)
        return self._await(None if self._wanted.follow else START_S)

    def run(self, spark: SparkSession) -> int:
        """Archive until all is there, or until told to stop. The number of rows this run has archived."""
        with ended_by(self._stop):
            if not self._stop.is_set():
                self._run(fresh(spark))
        files = self._files
        if files is None:
            return 0  # told to stop before there was a directory
        self._await_last_step()
        took_s = time.monotonic() - self._begun_at
        rows = files.commit.rows - self._before
        self._say(
            f"{'done' if self.finished else 'stopped'}: {rows} rows of {self.source} in {took_s:.1f} s"
            f"{self._told_unparsed()}; {files.commit.rows} rows in {files.root}"
        )
        return rows

    def _run(self, spark: SparkSession) -> None:
        if self._shape is None:
            text = self._label().json
            assert text is not None
            self._take_shape(self._infer(spark) if text == INFER else parse_fields(text))
        files = self._files or self._open()
        if files.label is None:
            assert self._shape is not None
            files.write_label(self._whole_label(self._shape))
        if self._wanted.compact:
            compact(files, self._stop, self._warn)
        # A batch that fails is told in one line by us; without this py4j puts its traceback in front of it.
        logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
        # Spark's default is an old form without a time zone, which other readers of Parquet take for another type.
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        self._begun_at = time.monotonic()
        while not self._stop.is_set():
            batch = files.commit.batch
            failure = self._watch(self._start(spark))
            if failure is None or self._stop.is_set():
                break
            self._again_or_fail(failure, files.commit.batch > batch)

    def close(self) -> None:
        if self._files is not None:
            self._await_last_step()
            self._files.close()

    def _await_last_step(self) -> None:
        """A batch whose query has ended may still move its files: it counts, and the next run must not meet it."""
        if self._turn.acquire(timeout=LAST_STEP_S):
            self._turn.release()

    # Before it runs.

    def _await(self, most_s: float | None) -> bool:
        return await_broker(self._uri, self._look, self._stop, self._warn, most_s)

    def _open(self) -> ArchiveFiles:
        """The directory, locked, and made if need be."""
        files = self._files = ArchiveFiles(self._wanted.to)
        files.check(self._label())
        files.recover()
        self._before = files.commit.rows
        if files.label is not None:
            self._take_shape(files.label.body_fields())
        return files

    def _take_shape(self, fields: StructType | None) -> None:
        self._shape = Shape(*self._label_places(), fields, self._wanted.keep_body)
        check_places(self._shape)

    def _label_places(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        wanted = self._wanted
        return chosen_columns(wanted.columns, wanted.json is not None), chosen_places(wanted.partition_by)

    def _label(self) -> Label:
        """Without the schema, which may have to be found out."""
        wanted = self._wanted
        kind = "stream" if wanted.stream is not None else "queue"
        given = wanted.json.strip() if wanted.json is not None else None
        if given is not None and given.lower() == INFER:
            given = INFER
        columns, places = self._label_places()
        return Label(
            kind, wanted.stream or wanted.queue or "", self._uri.vhost, columns, places, given, wanted.keep_body
        )

    def _whole_label(self, shape: Shape) -> Label:
        fields = json.dumps(shape.fields.jsonValue()) if shape.fields is not None else None
        return replace(self._label(), fields=fields, schema=json.dumps(shape.schema().jsonValue()), names=shape.names)

    def _look(self, connection: Connection) -> None:
        if self._wanted.stream is None:
            look_for_queue(connection, self._wanted.queue or "")
            return
        look_for_stream(connection, self._wanted.stream)
        seen = self._files.commit.seen if self._files is not None else None
        other = contradiction(connection, self._wanted.stream, seen) if seen is not None else None
        if seen is not None and other is not None:
            raise Complaint(
                f"{self._wanted.to} has {self.source} up to offset {seen.offset}, but the one at {self._uri} {other}: "
                "it is another broker's, or was made anew; name another directory"
            )

    def _infer(self, spark: SparkSession) -> StructType:
        """The schema of the first bodies that are there."""
        reader = spark.read.format("amqp").option("uri", self._wanted.uri)
        if self._wanted.stream is not None:
            given = {"uri": self._wanted.uri, "stream": self._wanted.stream}
            view = StreamView(parse_options(given))
            ends = view.ends()
            view.close()
            # Ends that are given, not a limit: tasks that are cut off in the middle complain.
            rows = max(SAMPLE_ROWS // len(ends), 1)
            until = {name: min(one.first + rows, one.next) for name, one in ends.items()}
            reader = reader.option("stream", self._wanted.stream).option("endingOffsets", json.dumps(until))
        else:
            reader = reader.option("queue", self._wanted.queue or "")
            reader = reader.option("maxRecordsPerTrigger", SAMPLE_ROWS).option("maxBytesPerTrigger", SAMPLE_BYTES)
        looked, wrong = parsed(reader.load().where(F.length("body") <= SAMPLE_BODY_BYTES), StructType([]))
        found = looked.select(F.col("body").cast("string"), wrong).collect()
        bodies = [str(row[0]) for row in found if not row[1]]
        if not found:
            raise Complaint(f"--json infer: {self.source} is empty, so there is nothing to infer from; give a schema")
        corrupt = "_penstock_corrupt"
        lines = spark.sparkContext.parallelize(bodies, 1)
        read = spark.read.option("columnNameOfCorruptRecord", corrupt).json(lines).schema
        fields = StructType([one for one in read.fields if one.name != corrupt])
        if not len(fields):
            raise Complaint(f"--json infer: none of the first {len(found)} messages of {self.source} is a JSON object")
        self._warn(f"inferred from {len(found)} messages: {fields.simpleString()[7:-1]}")
        return fields

    # While it runs.

    def _start(self, spark: SparkSession) -> StreamingQuery:
        wanted, files = self._wanted, self._files
        assert files is not None
        register(spark)  # for each query: docs/spark.md, what is known to be weak
        reader = spark.readStream.format("amqp").option("uri", wanted.uri)
        reader = reader.option("failOnDataLoss", str(not wanted.allow_gaps).lower())
        if wanted.stream is not None:
            reader = reader.option("stream", wanted.stream).option("startingOffsets", wanted.start)
            reader = reader.option("maxRecordsPerTrigger", wanted.rows_max or STREAM_ROWS)
            if not wanted.follow:  # a backlog: all cores read
                reader = reader.option("minPartitions", max(spark.sparkContext.defaultParallelism, 1))
        else:
            reader = reader.option("queue", wanted.queue or "").option("spoolDir", str(files.root.resolve() / SPOOL))
            if wanted.rows_max is not None:
                reader = reader.option("maxRecordsPerTrigger", wanted.rows_max)
        writer = reader.load().writeStream.foreachBatch(self._put).queryName(f"archive of {self.source}")
        writer = writer.option("checkpointLocation", str(files.root.resolve() / CHECKPOINT))
        if wanted.follow:
            return writer.trigger(processingTime=f"{round((wanted.every_s or EVERY_S) * 1000)} milliseconds").start()
        return writer.trigger(availableNow=True).start()

    def _put(self, rows: DataFrame, batch: int) -> None:
        """A batch to the directory; Spark calls it again with one that it does not know to be done."""
        with self._turn:
            try:
                self._put_once(rows, batch)
            except Exception as error:
                self._fault = error
                raise

    def _put_once(self, rows: DataFrame, batch: int) -> None:
        files, shape = self._files, self._shape
        assert files is not None
        assert shape is not None
        if files.has(batch):
            files.settle()
            return
        read, made = Observation(), Observation()
        wrong = F.coalesce(F.sum(F.col(UNPARSED).cast("long")), F.lit(0)).alias("unparsed")
        if self._wanted.stream is not None:
            rows = rows.observe(read, last_seen().alias("last"))
        ready = shaped(rows, shape, datetime.now(UTC)).observe(made, wrong).drop(UNPARSED)
        staged = files.staged(f"batch-{batch:010d}")
        writer = ready.write.mode("overwrite").option("compression", "zstd")
        if shape.partition_by:
            writer = writer.partitionBy(*shape.partition_by)
        writer.parquet(str(staged.resolve()))
        seen = seen_of(read.get["last"]) if self._wanted.stream is not None else None
        files.put(batch, staged, int(made.get["unparsed"]) if shape.fields is not None else 0, seen)
        if self._wanted.compact and self._wanted.follow and batch % COMPACT_BATCHES == COMPACT_BATCHES - 1:
            compact(files, self._stop, self._warn)

    def _watch(self, query: StreamingQuery) -> StreamingQueryException | None:
        """Tell how it gets on until it ends, or is to end; then why it failed, if it did."""
        told = -1
        while query.isActive and not self._stop.wait(LOOK_S):
            told = self._tell(query, told)
        stopped = self._stop.is_set()
        if query.isActive:
            await_start(query)
            query.stop()
        self._tell(query, told)
        failure = None if stopped else query.exception()
        self.finished = not stopped and failure is None
        return failure

    def _tell(self, query: StreamingQuery, told: int) -> int:
        """A line for each batch; of several at once, for the last. The number of the batch that was told."""
        last = query.lastProgress
        if last is None or last["batchId"] <= told or not last["numInputRows"]:
            return told
        assert self._files is not None
        rows, rate = self._files.commit.rows - self._before, last["processedRowsPerSecond"] or 0.0
        self._say(f"{rows} rows, {rate:.0f} rows/s, {_behind(last['sources'][0])}{self._told_unparsed()}")
        return int(last["batchId"])

    def _told_unparsed(self) -> str:
        unparsed = self._files.commit.unparsed if self._files is not None else 0
        return f", {unparsed} in all not parsed" if unparsed else ""

    def _again_or_fail(self, failure: StreamingQueryException, got_on: bool) -> None:
        """After a failed query: wait for a broker that is away; what fails twice at the same batch is an error."""
        fault, self._fault = self._fault, None
        text = _in_own_words(line_of(fault) or f"{fault}") if fault is not None else _line(str(failure))
        if not got_on and not is_away(self._uri):
            if fault is not None and line_of(fault) is None:
                raise fault  # a bug of ours, or the disk's own words
            raise Complaint(text) from None
        self._warn(f"{text}; starting again")
        self._await(None)


def _line(text: str) -> str:
    """What a failed query says, without its ids; one whose source was killed says nothing."""
    line = OF_QUERY.sub("", first_line(text)).strip()
    return "the query's source has ended" if line in ("", NO_WORDS) else _in_own_words(line)


def _in_own_words(line: str) -> str:
    for pattern, ours in OF_OPTION:
        line = pattern.sub(ours, line)
    return line


def _behind(source: dict[str, object]) -> str:
    """How far the newest message is away, of Spark's progress."""
    latest, end = _place(source.get("latestOffset")), _place(source.get("endOffset"))
    return "lag unknown" if latest is None or end is None else f"{max(latest - end, 0)} behind"


def _place(offset: object) -> int | None:
    """The sum of a stream's offsets, or a queue's number of rows."""
    try:
        found = json.loads(offset) if isinstance(offset, str) else offset
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    return sum(value for value in found.values() if isinstance(value, int))

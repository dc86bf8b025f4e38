"""Ways of a row into Spark and out of it, each measured by itself. bench/spark.py plays them in turns.

Every way writes the same rows: the columns of the naive way, with a body of 200 bytes that begins with the row's
number. A way into Spark is a query from
a source to Parquet files, and counts only if the files then hold each number once. Its time is that of its batches,
from the beginning of the first to the end of the last as Spark's progress has them.
Not here: the naive way itself (sparknaive.py), latency (sparklatency.py), memory (sparkmemory.py), tables (spark.py).
"""

import itertools
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import sparknaive
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from penstock.amqp.method import QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk
from penstock.amqp.properties import PERSISTENT, Properties, encode_properties
from penstock.client.connection import Channel, Connection
from penstock.client.publisher import Publisher
from penstock.client.uri import parse_uri

BODY_BYTES = 200
DIGITS = 20
TAIL = ("the rest of a message that a shop would send for an order: item, price, address; " * 3)[: BODY_BYTES - DIGITS]
WINDOW = 10_000
WAIT_S = 600.0
LOOK_S = 0.05
TASKS = "2"
COLUMNS = [one.split()[0] for one in sparknaive.SCHEMA.split(", ")]

# Spark's workers have no path to this directory: what they need of it goes with the query.
cloudpickle.register_pickle_by_value(sparknaive)


class WrongRows(Exception):
    """A way that lost rows, or has them twice: no figure."""


@dataclass(frozen=True, slots=True)
class Bed:
    """Where ways are measured: a session, a broker, and a directory for what they write."""

    spark: SparkSession
    uri: str
    scratch: Path
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def new_path(self, what: str) -> Path:
        return self.scratch / f"{what}-{next(self.numbers)}"

    @contextmanager
    def channel(self) -> Iterator[Channel]:
        with Connection.connect(parse_uri(self.uri), notices=True) as connection:
            yield connection.open_channel()

    def declare(self, name: str, kind: str) -> None:
        with self.channel() as channel:
            channel.call(QueueDeclare(name, durable=True, arguments={"x-queue-type": kind}), QueueDeclareOk)

    def delete(self, name: str) -> None:
        with self.channel() as channel:
            channel.call(QueueDelete(name), QueueDeleteOk)

    def count(self, name: str) -> int:
        with self.channel() as channel:
            return channel.call(QueueDeclare(name, passive=True), QueueDeclareOk).message_count

    def fill(self, name: str, rows: int) -> float:
        """Persistent messages, confirmed; how long it took."""
        begun_s = time.perf_counter()
        properties = encode_properties(Properties(delivery_mode=PERSISTENT))
        with self.channel() as channel:
            publisher = Publisher(channel, WINDOW)
            for number in range(rows):
                publisher.publish("", name, properties, body_of(number))
            publisher.flush()
        return time.perf_counter() - begun_s


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of a way."""

    rows: int
    seconds: float  # of the batches
    whole_s: float  # from `start` to the end of the query, or of the write
    batches: int
    phases_s: dict[str, float]  # what Spark says the batches' time went into

    @property
    def rate(self) -> float:
        return self.rows / self.seconds


class Way:
    """One way; `make_ready` and `clear` are not measured."""

    def __init__(self, bed: Bed, name: str, what: str, rows: int) -> None:
        self.bed = bed
        self.name = name
        self.what = what
        self.rows = rows

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} rows={self.rows}>"

    def make_ready(self, rows: int) -> None: ...

    def run(self, rows: int) -> Turn:
        raise NotImplementedError

    def clear(self) -> None: ...

    def turn(self, rows: int) -> Turn:
        self.make_ready(rows)
        try:
            return self.run(rows)
        finally:
            self.clear()


class IntoParquet(Way):
    """A source, written to Parquet files until all rows are there."""

    ends_itself = True  # it knows AvailableNow

    def source(self, rows: int) -> DataFrame:
        raise NotImplementedError

    def run(self, rows: int) -> Turn:
        out, checkpoint = self.bed.new_path("parquet"), self.bed.new_path("checkpoint")
        begun_s = time.perf_counter()
        writer = (
            self.source(rows)
            .select(*COLUMNS)
            .writeStream.format("parquet")
            .option("path", str(out))
            .option("checkpointLocation", str(checkpoint))
        )
        query = (writer.trigger(availableNow=True) if self.ends_itself else writer).start()
        try:
            progress = self._watch(query, rows)
        finally:
            query.stop()
        whole_s = time.perf_counter() - begun_s
        check_parquet(self.bed.spark, out, rows)
        shutil.rmtree(out)
        shutil.rmtree(checkpoint)
        return Turn(rows, span_s(progress), whole_s, len(progress), phases_s(progress))

    def _watch(self, query: StreamingQuery, rows: int) -> list[Any]:
        """The progress of all batches with rows. Spark keeps the last hundred, so it is looked at often."""
        seen: dict[int, Any] = {}
        deadline = time.monotonic() + WAIT_S
        while True:
            ended = query.awaitTermination(LOOK_S)
            for one in query.recentProgress:
                if one["numInputRows"]:
                    seen[one["batchId"]] = one
            done = sum(one["numInputRows"] for one in seen.values())
            if ended or done >= rows:
                return [seen[number] for number in sorted(seen)]
            if time.monotonic() > deadline:
                raise WrongRows(f"{self.name}: {done} of {rows} rows within {WAIT_S:.0f} s")


class FromStream(IntoParquet):
    """A stream that is filled once and read from its beginning in every turn."""

    def __init__(self, bed: Bed, name: str, what: str, rows: int, tasks: str) -> None:
        super().__init__(bed, name, what, rows)
        self.tasks = tasks
        self.stream = f"bench.stream.{rows}"

    def source(self, rows: int) -> DataFrame:
        options = {"stream": self.stream, "startingOffsets": "earliest", "minPartitions": self.tasks}
        return self.bed.spark.readStream.format("amqp").options(uri=self.bed.uri, **options).load()

    def make_ready(self, rows: int) -> None:
        self.stream = f"bench.stream.{rows}"
        self.bed.declare(self.stream, "stream")
        missing = rows - self.bed.count(self.stream)
        if missing == rows:
            self.bed.fill(self.stream, rows)
        elif missing:
            raise WrongRows(f"stream {self.stream} holds {rows - missing} messages")


class FromQueue(IntoParquet):
    """A queue, filled anew for every turn."""

    queue = "bench.queue"
    tasks = "1"

    def source(self, rows: int) -> DataFrame:
        spool = str(self.bed.new_path("spool"))
        options = {"queue": self.queue, "spoolDir": spool, "minPartitions": self.tasks}
        return self.bed.spark.readStream.format("amqp").options(uri=self.bed.uri, **options).load()

    def make_ready(self, rows: int) -> None:
        self.bed.declare(self.queue, "classic")
        self.bed.fill(self.queue, rows)

    def clear(self) -> None:
        self.bed.delete(self.queue)


class FromQueueInTwo(FromQueue):
    tasks = TASKS


class Naively(FromQueue):
    """pika in a SimpleDataSourceStreamReader."""

    ends_itself = False  # AvailableNow would make one batch of everything: Spark gives this kind of reader no limit
    get = "false"

    def source(self, rows: int) -> DataFrame:
        options = {"uri": self.bed.uri, "queue": self.queue, "get": self.get}
        return self.bed.spark.readStream.format("naive").options(**options).load()


class NaivelyByGet(Naively):
    get = "true"


class FromRate(IntoParquet):
    """Spark's own source, which makes rows of numbers: what Parquet alone costs."""

    def source(self, rows: int) -> DataFrame:
        rate = self.bed.spark.readStream.format("rate-micro-batch")
        made = rate.options(rowsPerBatch=str(rows), numPartitions=TASKS).load()
        return made.select(
            body_column(made.value).alias("body"),
            F.lit("").alias("exchange"),
            F.lit("bench.stream").alias("routing_key"),
            F.lit(PERSISTENT).alias("delivery_mode"),
            made.value.alias("offset"),
            F.lit(False).alias("redelivered"),
        )


class OutOfSpark(Way):
    """`df.write` to a durable queue: persistent, each row confirmed."""

    queue = "bench.sink"

    def make_ready(self, rows: int) -> None:
        self.bed.declare(self.queue, "classic")

    def clear(self) -> None:
        self.bed.delete(self.queue)

    def run(self, rows: int) -> Turn:
        numbers = self.bed.spark.range(0, rows, 1, int(TASKS))
        frame = numbers.select(body_column(numbers.id).alias("body"))
        begun_s = time.perf_counter()
        self.write(frame)
        taken_s = time.perf_counter() - begun_s
        if (count := self.bed.count(self.queue)) != rows:
            raise WrongRows(f"{self.name}: {count} messages in the queue, {rows} were written")
        return Turn(rows, taken_s, taken_s, 1, {})

    def write(self, frame: DataFrame) -> None:
        options = {"uri": self.bed.uri, "exchange": "", "routingKey": self.queue}
        frame.write.format("amqp").options(**options).mode("append").save()


class OutNaively(OutOfSpark):
    """foreachPartition with pika's confirms."""

    def write(self, frame: DataFrame) -> None:
        frame.foreachPartition(sparknaive.NaivePublish(self.bed.uri, self.queue))


def body_of(number: int) -> bytes:
    return b"%020d" % number + TAIL.encode()


def body_column(number: Any) -> Any:
    """The same bytes as body_of, made by Spark."""
    return F.concat(F.lpad(number.cast("string"), DIGITS, "0"), F.lit(TAIL)).cast("binary")


def check_parquet(spark: SparkSession, path: Path, rows: int) -> None:
    """WrongRows unless each number is there once, with a whole body."""
    number = F.substring("body", 1, DIGITS).cast("string").cast("bigint")
    found = (
        spark.read.parquet(str(path))
        .agg(F.count("body"), F.count_distinct(number), F.min(number), F.max(number), F.sum(F.length("body")))
        .collect()[0]
    )
    expected = (rows, rows, 0, rows - 1, rows * BODY_BYTES)
    if tuple(found) != expected:
        raise WrongRows(f"{path}: rows, different numbers, lowest, highest, bytes are {tuple(found)}, not {expected}")


def span_s(progress: Sequence[Any]) -> float:
    """From the beginning of the first batch to the end of the last."""
    if not progress:
        raise WrongRows("no batch had rows")
    last = progress[-1]
    end_s = _begun_s(last) + last["durationMs"]["triggerExecution"] / 1000
    return end_s - _begun_s(progress[0])


def phases_s(progress: Sequence[Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for one in progress:
        for phase, ms in one["durationMs"].items():
            found[phase] = found.get(phase, 0.0) + ms / 1000
    return {phase: round(taken_s, 3) for phase, taken_s in sorted(found.items(), key=lambda pair: -pair[1])}


def _begun_s(one: Any) -> float:
    return datetime.fromisoformat(one["timestamp"]).timestamp()

"""Queues in Spark: readStream takes, read looks. What may go wrong in between is in test_queue_crash.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from tests.spark.queuework import declare, publish, ready
from tests.wire.live import ServeProcess, free_port
from tests.wire.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def source(spark: SparkSession, uri: str, queue: str, spool: Path, **options: str) -> DataFrame:
    reader = spark.readStream.format("amqp").option("uri", uri).option("queue", queue).option("spoolDir", str(spool))
    return reader.options(**options).load()


def to_parquet(frame: DataFrame, directory: Path) -> DataStreamWriter:
    """Into Spark's own file sink: a batch that is written twice is there once."""
    numbers = frame.selectExpr("cast(cast(body as string) as int) as number", "offset", "redelivered")
    checkpoint = str(directory / "checkpoint")
    return (
        numbers.writeStream.format("parquet")
        .option("path", str(directory / "rows"))
        .option("checkpointLocation", checkpoint)
    )


def numbers(spark: SparkSession, directory: Path) -> list[int]:
    return sorted(row.number for row in spark.read.parquet(str(directory / "rows")).collect())


def run_available(spark: SparkSession, uri: str, queue: str, directory: Path, **options: str) -> StreamingQuery:
    frame = source(spark, uri, queue, directory / "spool", **options)
    query = to_parquet(frame, directory).trigger(availableNow=True).start()
    assert query.awaitTermination(200)
    return query


def test_available_now_takes_the_queue_exactly_once_run_by_run(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    declare(uri, name)
    publish(uri, name, range(1000))
    query = run_available(spark, uri, name, tmp_path, maxRecordsPerTrigger="400")
    rows_of_batches = [progress.numInputRows for progress in query.recentProgress]
    assert max(rows_of_batches) <= 400  # fewer, where they come slowly
    assert sum(rows_of_batches) == 1000
    assert ready(uri, name) == 0, "the last batch is acked too"
    publish(uri, name, range(1000, 1500))
    run_available(spark, uri, name, tmp_path, minPartitions="3")
    assert numbers(spark, tmp_path) == list(range(1500))
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert all(row.offset == row.number for row in rows), "numbered over all runs"
    assert not any(row.redelivered for row in rows)
    assert ready(uri, name) == 0
    assert not list((tmp_path / "spool").glob("*.arrow"))


def runner() -> psutil.Process:
    """The process in which Spark keeps the driver side of a source."""

    def is_runner(process: psutil.Process) -> bool:
        try:
            return any("python_streaming_source_runner" in word for word in process.cmdline())
        except psutil.Error:  # it has just ended
            return False

    children = psutil.Process().children(recursive=True)
    return max(filter(is_runner, children), key=lambda process: process.create_time())


def taken(query: StreamingQuery) -> int:
    """Rows so far, of a query that goes on."""
    assert query.isActive, f"the query has ended: {query.exception()}"
    return sum(progress.numInputRows for progress in query.recentProgress)


def test_a_query_whose_source_or_broker_is_killed_goes_on_from_its_checkpoint_and_has_every_row_once(
    spark: SparkSession, serve_process: Callable[..., ServeProcess], tmp_path: Path
):
    broker = serve_process("--listen", f"127.0.0.1:{free_port()}")
    declare(broker.uri, "orders")
    publish(broker.uri, "orders", range(3000))
    frame = source(spark, broker.uri, "orders", tmp_path / "spool", maxRecordsPerTrigger="500")
    query = to_parquet(frame, tmp_path).start()
    wait_until(lambda: taken(query) >= 500, 200)
    runner().kill()
    wait_until(lambda: not query.isActive, 200)

    query = to_parquet(frame, tmp_path).start()
    wait_until(lambda: taken(query) >= 500, 200)
    broker.kill()
    again = serve_process("--listen", f"127.0.0.1:{broker.port}", "--data", str(broker.data))
    publish(again.uri, "orders", range(3000, 4000))

    def all_is_there() -> bool:
        assert query.isActive, f"the query has ended: {query.exception()}"
        return numbers(spark, tmp_path)[-1:] == [3999] and ready(again.uri, "orders") == 0

    def told() -> str:
        missing = set(range(4000)) - set(numbers(spark, tmp_path))
        waiting = ready(again.uri, "orders")
        spool = sorted(path.name for path in (tmp_path / "spool").iterdir())
        return f"{len(missing)} rows missing, {waiting} ready, spool {spool}, {query.status}, {query.lastProgress}"

    wait_until(all_is_there, 200, told)
    query.processAllAvailable()
    query.stop()
    assert query.exception() is None, "the broker came back: the query has gone on by itself"
    assert numbers(spark, tmp_path) == list(range(4000))
    wait_until(lambda: ready(again.uri, "orders") == 0, what="what was prefetched has come back: nothing")


def test_a_batch_read_looks_at_the_queue_and_leaves_it_as_it_was(spark: SparkSession, uri: str, name: str):
    declare(uri, name)
    publish(uri, name, range(500), ids=True)
    frame = spark.read.format("amqp").option("uri", uri).option("queue", name).load()
    for _ in range(2):
        rows = frame.selectExpr("cast(body as string) as body", "offset", "message_id", "headers").collect()
        assert [(row.body, row.offset, row.message_id) for row in rows] == [(f"{n}", n, f"id {n}") for n in range(500)]
        assert rows[5].headers == {"n": "2"}
        wait_until(lambda: ready(uri, name) == 500, what="all messages back in the queue")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "nowhere"}, ["404", "no queue 'nowhere'"]),
        ({"queue": "q", "password": "secret-word"}, ["refused the login", "guest"]),
        ({"queue": "q", "uri": "amqp://guest:secret-word@127.0.0.1:1"}, ["no broker at 127.0.0.1:1", "refused"]),
    ],
)
def test_what_is_wrong_is_said_in_one_line_without_a_password(
    spark: SparkSession, uri: str, tmp_path: Path, options: dict[str, str], words: list[str]
):
    given = {"uri": uri, "spoolDir": str(tmp_path / "spool"), **options}
    frame = spark.readStream.format("amqp").options(**given).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    wait_until(lambda: not query.isActive, 200)
    told = str(query.exception())
    for word in words:
        assert word in told
    assert "secret-word" not in told

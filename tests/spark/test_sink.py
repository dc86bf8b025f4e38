"""The sink in a real Spark session: tables and streams to a broker, and what becomes of them when something fails."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from penstock.amqp.properties import Properties
from tests.spark.flaky import read_lines, register
from tests.spark.readback import Message, count, declare, drain
from tests.wire.live import serve_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS = 3000
TIMEOUT_S = 200


@pytest.fixture
def flags(spark: SparkSession, tmp_path: Path) -> Path:
    """The directory for flags, and the format `flaky`."""
    register(spark)
    directory = tmp_path / "flags"
    directory.mkdir()
    return directory


def write_lines(directory: Path) -> None:
    """3000 lines in three files, each a batch of its own."""
    directory.mkdir()
    for start in range(0, ROWS, ROWS // 3):
        file = directory / f"{start}.txt"
        file.write_text("".join(f"{row}\n" for row in range(start, start + ROWS // 3)))
        os.utime(file, (start, start))  # Spark reads them in this order


@pytest.fixture
def lines(spark: SparkSession, tmp_path: Path) -> DataFrame:
    write_lines(tmp_path / "lines")
    return read_lines(spark, tmp_path / "lines")


def start(
    stream: DataFrame, uri: str, queue: str, checkpoint: str, form: str = "amqp", **options: str
) -> StreamingQuery:
    writer = stream.writeStream.format(form).option("uri", uri).option("routingKey", queue)
    return writer.options(**options).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()


def run(stream: DataFrame, uri: str, queue: str, checkpoint: str, form: str = "amqp", **options: str) -> None:
    query = start(stream, uri, queue, checkpoint, form, **options)
    try:
        assert query.awaitTermination(TIMEOUT_S), "the query takes too long"
    finally:
        query.stop()


def numbers(messages: list[Message]) -> list[int]:
    return [int(message.body) for message in messages]


def test_a_table_goes_to_an_exchange_with_all_its_columns(spark: SparkSession, uri: str, name: str):
    declare(uri, name, exchange=name, key="orders.*")
    when = datetime(2026, 11, 16, 1, 2, 3, tzinfo=UTC)
    table = spark.sql(
        """SELECT cast(id AS string) AS body, concat('orders.', id % 2) AS routing_key,
        map('n', cast(id AS string)) AS headers, 'text/plain' AS content_type, 5 AS priority,
        if(id % 2 = 0, 'even', null) AS type,
        timestamp'2026-11-16 01:02:03 UTC' AS timestamp FROM range(0, 1000, 1, 3)"""
    )
    table.write.format("amqp").option("uri", uri).option("exchange", name).mode("append").save()
    found = sorted(drain(uri, name), key=lambda message: int(message.body))
    assert found == [
        Message(
            name,
            f"orders.{row % 2}",
            Properties(
                content_type="text/plain",
                headers={"n": str(row)},
                delivery_mode=2,
                priority=5,
                timestamp=int(when.timestamp()),
                type=None if row % 2 else "even",
            ),
            b"%d" % row,
        )
        for row in range(1000)
    ]


def test_a_stream_goes_to_a_queue_and_every_row_has_its_ids(lines: DataFrame, uri: str, name: str, checkpoint: str):
    declare(uri, name)
    query = start(lines, uri, name, checkpoint)
    assert query.awaitTermination(TIMEOUT_S)
    found = drain(uri, name)
    assert numbers(found) == list(range(ROWS))
    for row, message in enumerate(found):
        batch, within = divmod(row, ROWS // 3)
        assert message.properties.message_id == f"{query.id}/{batch}/0/{within}"
        assert message.properties.headers == {
            "x-penstock-producer": f"{query.id}/0",
            "x-penstock-publishing-id": (batch << 32) + within,
        }


def test_without_deduplication_there_are_no_ids(lines: DataFrame, uri: str, name: str, checkpoint: str):
    declare(uri, name)
    run(lines, uri, name, checkpoint, deduplicate="false")
    assert {repr(message.properties) for message in drain(uri, name)} == {repr(Properties(delivery_mode=2))}


def test_a_row_that_was_returned_is_not_lost_when_it_has_a_queue_at_last(
    lines: DataFrame, uri: str, name: str, checkpoint: str
):
    declare(uri, name, name, "eu")
    rows = lines.selectExpr("value", "if(value = 5, 'us', 'eu') AS routing_key")
    with pytest.raises(
        StreamingQueryException, match=r"row 5 of the partition: .* with routing key 'us': .*312 NO_ROUTE"
    ):
        run(rows, uri, "", checkpoint, exchange=name, mandatory="true")
    declare(uri, name, name, "us")
    run(rows, uri, "", checkpoint, exchange=name, mandatory="true")
    found = drain(uri, name)
    assert set(numbers(found)) == set(range(ROWS))
    assert len({message.properties.message_id for message in found}) == ROWS, "those that came twice have the same id"


def test_a_task_that_failed_half_way_does_not_double_rows_after_a_restart(
    spark: SparkSession, lines: DataFrame, uri: str, name: str, checkpoint: str, flags: Path
):
    declare(uri, name)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        (flags / "task").touch()
        with pytest.raises(StreamingQueryException, match="this task fails half way"):
            run(lines, uri, name, checkpoint, "flaky", flags=str(flags), window="10")
        assert 0 < count(uri, name) < ROWS // 3, "some rows are out, and not all"
        run(lines, uri, name, checkpoint, "flaky", flags=str(flags))
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert numbers(drain(uri, name)) == list(range(ROWS))


def test_a_task_that_failed_half_way_and_is_tried_again_does_not_double_rows(uri: str, name: str, tmp_path: Path):
    declare(uri, name)
    write_lines(tmp_path / "lines")
    (tmp_path / "flags").mkdir()
    (tmp_path / "flags" / "task").touch()
    command = [sys.executable, "-m", "tests.spark.flaky", uri, name, str(tmp_path)]
    done = subprocess.run(command, env=serve_environment(), capture_output=True, text=True, timeout=280, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "flags" / "task").exists(), "a task has failed"
    assert numbers(drain(uri, name)) == list(range(ROWS))


def test_a_batch_whose_commit_failed_does_not_double_rows_after_a_restart(
    lines: DataFrame, uri: str, name: str, checkpoint: str, flags: Path
):
    declare(uri, name)
    (flags / "commit").touch()
    with pytest.raises(StreamingQueryException, match="this commit fails"):
        run(lines, uri, name, checkpoint, "flaky", flags=str(flags))
    assert count(uri, name) == ROWS // 3
    run(lines, uri, name, checkpoint, "flaky", flags=str(flags))
    assert numbers(drain(uri, name)) == list(range(ROWS))


def test_rabbitmq_gets_the_rows_of_a_failed_batch_again_with_the_same_ids(
    lines: DataFrame, rabbitmq: str, name: str, checkpoint: str, flags: Path
):
    declare(rabbitmq, name)
    (flags / "commit").touch()
    with pytest.raises(StreamingQueryException, match="this commit fails"):
        run(lines, rabbitmq, name, checkpoint, "flaky", flags=str(flags))
    run(lines, rabbitmq, name, checkpoint, "flaky", flags=str(flags))
    found = drain(rabbitmq, name)
    assert numbers(found) == [*range(ROWS // 3), *range(ROWS)]
    once = {message.properties.message_id: int(message.body) for message in found}
    assert list(once.values()) == list(range(ROWS))


def test_columns_the_sink_does_not_know_are_one_error_before_anything_runs(spark: SparkSession, uri: str):
    table = spark.sql("SELECT 'x' AS body, 1 AS colour, 2 AS offset")
    with pytest.raises(PySparkException, match=r"does not know the columns colour, offset .*; it knows body, value"):
        table.write.format("amqp").option("uri", uri).option("exchange", "e").mode("append").save()


def test_a_stream_with_wrong_columns_ends_with_the_same_error(lines: DataFrame, uri: str, checkpoint: str):
    with pytest.raises(StreamingQueryException, match=r"does not know the column colour; it knows body, value"):
        run(lines.selectExpr("value", "1 AS colour"), uri, "q", checkpoint)


def test_overwriting_is_refused(spark: SparkSession, uri: str):
    table = spark.sql("SELECT 'x' AS body")
    with pytest.raises(PySparkException, match='takes only the mode "append"'):
        table.write.format("amqp").option("uri", uri).option("exchange", "e").mode("overwrite").save()


def test_an_exchange_that_does_not_exist_is_named(spark: SparkSession, uri: str):
    table = spark.sql("SELECT 'x' AS body")
    with pytest.raises(PySparkException, match="no exchange 'nowhere' in vhost '/'"):
        table.write.format("amqp").option("uri", uri).option("exchange", "nowhere").mode("append").save()


def test_speculation_is_refused(spark: SparkSession, uri: str):
    spark.sparkContext.setLocalProperty("spark.speculation", "true")  # where tasks find the session's settings
    try:
        table = spark.sql("SELECT 'x' AS body")
        with pytest.raises(PySparkException, match=r"needs spark.speculation=false"):
            table.write.format("amqp").option("uri", uri).option("exchange", "e").mode("append").save()
    finally:
        spark.sparkContext.setLocalProperty("spark.speculation", None)  # type: ignore[arg-type]

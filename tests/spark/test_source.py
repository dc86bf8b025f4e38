"""The format `amqp` on streams, on a real Spark and a real broker: exactly once over restarts, bounds, clear errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import BarrierTaskContext
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession

from penstock.spark import register
from penstock.spark.runner import STARTING, await_start
from tests.spark.streams import Feeder
from tests.wire.live import LiveBroker

RUN_S = 200


@pytest.fixture
def feeder(uri: str) -> Iterator[Feeder]:
    with Feeder(uri) as feeder:
        yield feeder


def run(frame: DataFrame, out: Path, checkpoint: str) -> None:
    """Read what is there now into Parquet files."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(out))
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(RUN_S)


def offsets(spark: SparkSession, out: Path) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in spark.read.parquet(str(out)).collect())


def test_a_query_that_is_restarted_from_its_checkpoint_has_every_row_once(
    spark: SparkSession, feeder: Feeder, uri: str, name: str, tmp_path: Path, checkpoint: str
):
    streams = [f"{name}-{number}" for number in range(2)]
    for stream in streams:
        feeder.declare(stream)
        feeder.publish(stream, 100)
    out = tmp_path / "out"

    def frame() -> DataFrame:
        options = {"stream": name, "startingOffsets": "earliest", "maxRecordsPerTrigger": "120", "minPartitions": "3"}
        return spark.readStream.format("amqp").options(uri=uri, **options).load()

    run(frame(), out, checkpoint)
    assert offsets(spark, out) == [(part, n) for part in range(2) for n in range(100)]
    feeder.publish(streams[1], 50)
    run(frame(), out, checkpoint)
    run(frame(), out, checkpoint)
    assert offsets(spark, out) == [(0, n) for n in range(100)] + [(1, n) for n in range(150)]
    row = spark.read.parquet(str(out)).where("partition = 1 and offset = 7").collect()[0]
    assert (bytes(row.body), row.routing_key, row.headers) == (b"7", streams[1], {"number": "7"})


def test_latest_is_where_the_first_run_began_also_if_that_run_read_nothing(
    spark: SparkSession, feeder: Feeder, uri: str, name: str, tmp_path: Path, checkpoint: str
):
    feeder.declare(name)
    feeder.publish(name, 10)
    frame = spark.readStream.format("amqp").options(uri=uri, stream=name).load()
    run(frame, tmp_path / "out", checkpoint)
    feeder.publish(name, 5)
    run(frame, tmp_path / "out", checkpoint)
    assert offsets(spark, tmp_path / "out") == [(0, n) for n in range(10, 15)]


def test_who_stops_a_query_can_wait_until_its_source_is_there(
    spark: SparkSession, feeder: Feeder, uri: str, name: str, tmp_path: Path, checkpoint: str
):
    feeder.declare(name)
    rows = spark.readStream.format("amqp").options(uri=uri, stream=name).load()
    writer = rows.writeStream.format("parquet").option("path", str(tmp_path)).option("checkpointLocation", checkpoint)
    query = writer.start()
    await_start(query)
    said = query.status["message"]
    query.stop()
    assert not said.startswith(STARTING)


def test_a_batch_reads_the_range_it_was_asked_for(spark: SparkSession, feeder: Feeder, uri: str, name: str):
    feeder.declare(name)
    feeder.publish(name, 100)

    def read(**options: Any) -> DataFrame:
        return spark.read.format("amqp").options(uri=uri, stream=name, **options).load()

    assert read().count() == 100
    part = read(startingOffsets=20, endingOffsets=f'{{"{name}": 50}}', minPartitions=4)
    assert part.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in part.collect()) == list(range(20, 50))
    assert read(startingOffsets=100).count() == 0
    # A limit stops the tasks in the middle: the next read must not see what was on its way to them.
    assert read().limit(3).count() == 3
    assert read().count() == 100


def test_retention_that_overtook_a_query_fails_it_or_is_passed_over_as_the_option_says(
    spark: SparkSession, feeder: Feeder, uri: str, name: str, tmp_path: Path, checkpoint: str
):
    feeder.declare(name, {"x-max-length-bytes": 20_000, "x-stream-max-segment-size-bytes": 5_000})
    feeder.publish(name, 10, size=100)

    def frame(fail: str) -> DataFrame:
        options = {"stream": name, "startingOffsets": "earliest", "failOnDataLoss": fail}
        return spark.readStream.format("amqp").options(uri=uri, **options).load()

    run(frame("true"), tmp_path / "out", checkpoint)
    feeder.publish(name, 1000, size=100)
    first = feeder.first_after(name, 10)
    with pytest.raises(StreamingQueryException) as caught:
        run(frame("true"), tmp_path / "out", checkpoint)
    told = str(caught.value)
    assert f"stream {name}: the query goes on at offset 10, but the first one that is left is " in told
    assert "failOnDataLoss" in told
    run(frame("false"), tmp_path / "out", checkpoint)
    found = [offset for _, offset in offsets(spark, tmp_path / "out")]
    assert found[:10] == list(range(10))
    assert found[10] >= first
    # Retention may go on while the query reads: then there is a hole behind what was read before it.
    assert found == sorted(set(found))
    assert found[-1] == 1009


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"strem": "s"}, "OptionError: unknown option strem (did you mean stream?); allowed are: uri,"),
        ({}, "OptionError: one of the options stream and queue says what to read: neither is given"),
        ({"stream": "s", "prefetch": "x"}, "OptionError: option prefetch: a whole number above 0, not 'x'"),
        ({"stream": "s", "mandatory": "true"}, "OptionError: option mandatory means nothing in readStream on a stream"),
    ],
)
def test_a_wrong_option_is_an_error_of_load_that_names_it(
    spark: SparkSession, uri: str, options: dict[str, str], said: str
):
    with pytest.raises(AnalysisException) as caught:
        spark.readStream.format("amqp").options(uri=uri, **options).load()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("address", "options", "said"),
    [
        ("{uri}", {"endingOffsets": "9"}, "OptionError: option endingOffsets means nothing in readStream on a stream"),
        ("{uri}", {}, "SourceError: there is no stream missing and no partitioned stream missing-0"),
        (
            "amqp://guest:sesame@127.0.0.1:1",
            {},
            "BrokerAway: no broker at 127.0.0.1:1: connection refused (uri amqp://",
        ),
    ],
)
def test_what_only_the_running_query_can_know_ends_it_with_one_line(
    spark: SparkSession, uri: str, checkpoint: str, address: str, options: dict[str, str], said: str
):
    frame = spark.readStream.format("amqp").options(uri=address.format(uri=uri), stream="missing", **options).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(RUN_S)
    assert said in str(caught.value)
    assert "sesame" not in str(caught.value)


def test_no_password_is_in_a_plan_or_in_progress(
    spark: SparkSession,
    feeder: Feeder,
    uri: str,
    name: str,
    checkpoint: str,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
):
    secret = uri.replace("guest:guest", "ann:sesame")
    for frame in (
        spark.readStream.format("amqp").options(uri=secret, stream="s").load(),
        spark.readStream.format("amqp").options(uri=uri, stream="s", username="ann", password="sesame").load(),
    ):
        frame.explain(True)
        shown = capfd.readouterr().out + repr(frame) + frame._jdf.queryExecution().analyzed().toString()
        assert "amqp" in shown
        assert "sesame" not in shown
    # The right password, spelled so that it is found again: a query that runs, its progress, and all that is logged.
    feeder.declare(name)
    feeder.publish(name, 10)
    options = {"uri": uri.replace("guest:guest", "guest:%67u%65st"), "stream": name, "startingOffsets": "earliest"}
    caplog.set_level("DEBUG", "penstock")  # not py4j, which shows on DEBUG all that is said to the JVM
    writer = spark.readStream.format("amqp").options(**options).load().writeStream.format("noop")
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(RUN_S)
    query.explain(True)
    assert query.lastProgress is not None
    assert query.lastProgress["numInputRows"] == 10
    logged = capfd.readouterr()
    shown = f"{query.recentProgress} {query.status} {caplog.text} {logged.out} {logged.err}"
    assert name in shown
    assert "%67" not in shown
    assert "guest:guest" not in shown


def test_partitions_are_read_side_by_side_each_over_a_connection_of_its_own(
    spark: SparkSession, name: str, tmp_path: Path
):
    with LiveBroker(data=tmp_path / "data") as live, Feeder(live.uri) as feeder:
        for number in range(2):
            feeder.declare(f"{name}-{number}")
            feeder.publish(f"{name}-{number}", 20_000, size=200)
        read = spark.read.format("amqp").options(uri=live.uri, stream=name, consumerName=name).load()

        def after_the_others(rows: Iterable[Row]) -> Iterable[tuple[int, int]]:
            coming = iter(rows)
            first = next(coming)  # neither task goes on before the other has its own
            BarrierTaskContext.get().barrier()
            yield first.partition, 1 + sum(1 for _ in coming)

        rows = read.select("partition").rdd.barrier().mapPartitions(after_the_others).collect()
        assert sorted(rows) == [(0, 20_000), (1, 20_000)]
        names = live.call(lambda: [one.client_properties.get("connection_name") for one in live.connections()])
        assert names.count(f"spark task, {name}") == 2


def test_registering_again_does_no_harm(spark: SparkSession):
    register(spark)
    hidden = spark.conf.get("spark.sql.redaction.options.regex")
    register(spark)
    assert spark.conf.get("spark.sql.redaction.options.regex") == hidden
    assert "url" in str(hidden)


def test_spark_finds_the_format_by_itself(spark: SparkSession, feeder: Feeder, uri: str, name: str):
    feeder.declare(name)
    feeder.publish(name, 10)
    # What was registered belongs to a session; a new one knows only what Spark has found in pyspark_* modules.
    fresh = spark.newSession()
    assert fresh.read.format("amqp").options(uri=uri, stream=name).load().count() == 10

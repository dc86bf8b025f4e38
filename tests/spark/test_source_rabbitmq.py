"""The stream source on RabbitMQ's streams: no query for offsets, acks, ends found by reading. Still exactly once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.spark.fault import SourceError
from penstock.spark.options import parse_options
from penstock.spark.streamreader import StreamReader
from tests.spark.streams import Feeder


@pytest.fixture
def feeder(rabbitmq: str) -> Iterator[Feeder]:
    with Feeder(rabbitmq) as feeder:
        yield feeder


def test_ranges_of_a_stream_of_rabbitmq_hold_every_message_once(feeder: Feeder, rabbitmq: str, name: str):
    feeder.declare(name)
    feeder.publish(name, 2000, size=100)
    options = {"uri": rabbitmq, "stream": name, "startingOffsets": "earliest", "maxRecordsPerTrigger": "1500"}
    reader = StreamReader(parse_options({**options, "minPartitions": "3", "prefetch": "200"}))
    start = reader.initialOffset()
    found = []
    for end in ({name: 1500}, {name: 2000}):
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == end
        parts = reader.partitions(start, end)
        assert len(parts) == 3
        rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
        found += [(row["offset"], int(row["body"])) for row in rows]
        start = end
    reader.stop()
    assert found == [(number, number) for number in range(2000)]


def test_a_query_on_rabbitmq_goes_on_from_its_checkpoint(
    spark: SparkSession, feeder: Feeder, rabbitmq: str, name: str, tmp_path: Path, checkpoint: str
):
    feeder.declare(name)
    options = {"uri": rabbitmq, "stream": name, "startingOffsets": "earliest"}
    frame = spark.readStream.format("amqp").options(**options).load()
    for count in (30, 20):
        feeder.publish(name, count)
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(tmp_path / "out"))
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(200)
    assert sorted(row.offset for row in spark.read.parquet(str(tmp_path / "out")).collect()) == list(range(50))


def test_a_queue_of_rabbitmq_is_refused_as_a_stream_and_keeps_its_messages(feeder: Feeder, rabbitmq: str, name: str):
    feeder.declare(name, kind="classic")
    feeder.publish(name, 10)
    with pytest.raises(SourceError, match="invalid arg 'x-stream-offset'"):
        StreamReader(parse_options({"uri": rabbitmq, "stream": name})).initialOffset()
    assert feeder.count(name) == 10

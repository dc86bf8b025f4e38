"""Back-pressure from Spark to a producer: what a slow query does not take stays in the broker, what the broker may not
hold stops the producer. Nothing grows on the way.

SPARK_BATCHES=500 measures for minutes, and SPARK_CHAIN=FILE writes down what was measured.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import psutil
import pytest

from penstock.amqp.table import Table
from penstock.client.uri import parse_uri
from penstock.spark.gauge import Gauge
from tests.spark.producer import Producer
from tests.spark.queuework import declare
from tests.spark.rounds import RUNNER, says
from tests.wire.live import ServeProcess
from tests.wire.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ROWS: Final = 100  # of a batch
TRIGGER: Final = "500 milliseconds"
LIMIT: Final = 1000  # messages of the queue, whose marks are then at 800 and 700
ARGUMENTS: Final[Table] = {"x-max-length": LIMIT, "x-overflow": "block-publish"}
BURST: Final = 100  # the producer's window
SIZE: Final = 10_000  # bytes of a body
UNDER_WAY: Final = 500  # so many more or less may be in the queue, in a burst, in a batch or ahead of it
BATCHES: Final = int(os.environ.get("SPARK_BATCHES", "20"))  # measured: many times what lies between the marks
FLAT_BYTES: Final = 16 * 1024 * 1024  # so much memory may come and go; the producer alone could fill it in a second


class Sample(NamedTuple):
    """What there was at one moment."""

    at: float
    batches: int
    rows: int  # that Spark has
    confirmed: int  # that the producer knows of
    depth: int  # ready messages of the queue
    spool_bytes: int
    broker_bytes: int
    source_bytes: int


class Chain:
    """Producer, queue and query, and how to look at them."""

    def __init__(
        self, producer: Producer, broker: ServeProcess, queue: str, query: StreamingQuery, spool: Path
    ) -> None:
        self._producer = producer
        self._broker = psutil.Process(broker.process.pid)
        self._gauge = Gauge(parse_uri(broker.uri), queue)
        self._query = query
        self._spool = spool
        self._source = newest_source()

    def sample(self) -> Sample:
        self._producer.check()
        while True:
            assert self._query.isActive, self._query.exception()
            progress = self._query.lastProgress
            assert progress is not None
            found = Sample(
                time.monotonic(),
                progress["batchId"],
                json.loads(progress["sources"][0]["endOffset"])["n"],
                self._producer.confirmed,
                self._gauge.count_ready(),
                sum(size_of(path) for path in self._spool.glob("*.arrow")),
                self._broker.memory_info().rss,
                self._source.memory_info().rss,
            )
            after = self._query.lastProgress
            if after is not None and after["batchId"] == found.batches:  # else these are numbers of two moments
                return found

    def watch(self, batches: int) -> list[Sample]:
        """What there is, until so many more batches are done."""
        samples = [self.sample()]

        def is_over() -> bool:
            samples.append(self.sample())
            return samples[-1].batches >= samples[0].batches + batches

        wait_until(is_over, timeout_s=120 + batches * 10, what=f"{batches} batches")
        return samples

    def close(self) -> None:
        self._gauge.close()


def newest_source() -> psutil.Process:
    """The process of the query that was started last."""
    found = [one for one in psutil.Process().children(recursive=True) if says(one, RUNNER)]
    return max(found, key=lambda one: one.create_time())


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@pytest.mark.timeout(300 + BATCHES * 10)
def test_a_slow_query_slows_its_producer_down_and_nothing_grows(
    spark: SparkSession, serve_process: Callable[..., ServeProcess], name: str, checkpoint: str, tmp_path: Path
):
    broker = serve_process()
    declare(broker.uri, name, ARGUMENTS)
    producer = Producer(broker.uri, name, key=name, burst=BURST, size=SIZE)
    began = time.monotonic()
    producer.start()
    # Without a consumer the producer stops by itself, and it was fast until then.
    wait_until(lambda: producer.confirmed >= LIMIT // 2, what="the queue is half full")
    free_rate = producer.confirmed / (time.monotonic() - began)

    spool = tmp_path / "spool"
    reader = spark.readStream.format("amqp").option("uri", broker.uri).option("queue", name)
    reader = reader.option("spoolDir", str(spool)).option("maxRecordsPerTrigger", ROWS)
    writer = reader.load().writeStream.format("memory").queryName(name).option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime=TRIGGER).start()
    wait_until(lambda: (query.lastProgress or {"batchId": 0})["batchId"] >= 3, timeout_s=200, what="the query runs")
    chain = Chain(producer, broker, name, query, spool)
    samples = chain.watch(BATCHES)
    chain.close()

    first, last = samples[0], samples[-1]
    rate = (last.confirmed - first.confirmed) / (last.at - first.at)
    spark_rate = (last.rows - first.rows) / (last.at - first.at)
    tell(samples, free_rate, rate, spark_rate)
    # It could have sent more at any time, or the queue would have run empty; and it sent no more than Spark took.
    assert min(one.depth for one in samples) > 0
    between = [one.confirmed - one.rows for one in samples]
    assert max(between) - min(between) <= UNDER_WAY, f"{rate:.0f} of the producer, {spark_rate:.0f} of Spark"
    assert max(one.depth for one in samples) <= LIMIT + BURST
    assert max(one.spool_bytes for one in samples) < 2.5 * ROWS * SIZE, "more than two batches"
    assert max(one.broker_bytes for one in samples) - first.broker_bytes < FLAT_BYTES
    assert max(one.source_bytes for one in samples) - first.source_bytes < FLAT_BYTES

    count = producer.finish()
    query.processAllAvailable()
    query.stop()
    found = spark.sql(f"SELECT count(*) AS rows, count(DISTINCT trim(cast(body AS string))) AS numbers FROM {name}")
    assert found.collect()[0].asDict() == {"rows": count, "numbers": count}


def tell(samples: list[Sample], free_rate: float, rate: float, spark_rate: float) -> None:
    """What was measured, for the documents."""
    first, last = samples[0], samples[-1]
    told = {
        "seconds": round(last.at - first.at, 1),
        "batches": last.batches - first.batches,
        "producer alone, per second": round(free_rate),
        "producer, per second": round(rate, 1),
        "Spark, per second": round(spark_rate, 1),
        "ratio": round(rate / spark_rate, 3),
        "most ready": max(one.depth for one in samples),
        "least ready": min(one.depth for one in samples),
        "spool bytes, most": max(one.spool_bytes for one in samples),
        "broker MB, first, most, last": megabytes([one.broker_bytes for one in samples]),
        "source MB, first, most, last": megabytes([one.source_bytes for one in samples]),
    }
    if "SPARK_CHAIN" in os.environ:
        Path(os.environ["SPARK_CHAIN"]).write_text(json.dumps(told, indent=1) + "\n")


def megabytes(sizes: list[int]) -> list[float]:
    return [round(size / 1e6, 1) for size in (sizes[0], max(sizes), sizes[-1])]

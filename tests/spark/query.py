"""The driver that the crash rounds kill: python -m tests.spark.query URI STREAM QUEUE DIRECTORY.

Two queries, from the stream and from the queue, each to Parquet files in DIRECTORY. One that fails is started again
from its checkpoint, as whoever runs queries in earnest does. A task is tried four times.
The line "drain" on its input ends them, or keeps them from being started: a run of AvailableNow takes what is left, and
what Spark then reads in its own files is written to NAME.found. When its input ends, the process ends.
"""

from __future__ import annotations

import os
import select
import sys
import time
from pathlib import Path
from typing import Final

import pyarrow.parquet
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark import register
from penstock.spark.session import local_session

ROWS: Final = 4_000  # of a batch: in the backlog after an outage batches are full, and the next is read ahead
LOOK_S: Final = 0.05  # how often the queries are looked at
AGAIN_S: Final = 0.2  # before a query that failed is started again
DRAIN_S: Final = 300.0
CONFIG: Final = {
    "spark.master": "local[2,4]",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}


class Archive:
    """A query from a stream or a queue to Parquet files."""

    def __init__(self, spark: SparkSession, name: str, options: dict[str, str], directory: Path) -> None:
        self.name = name
        self._spark = spark
        self._options = options
        self._directory = directory
        self._query: StreamingQuery | None = None

    def start(self, **trigger: bool) -> StreamingQuery:
        # Anew for each query: Spark 4.3 lets all queries on one registration write to one map without a lock when they
        # start. Two at once spoil it, and no task of that session can be read any more (OptionalDataException).
        register(self._spark)
        reader = self._spark.readStream.format("amqp").option("maxRecordsPerTrigger", ROWS)
        for key, value in self._options.items():
            reader = reader.option(key, value)
        writer = (
            reader.load().writeStream.format("parquet").option("path", str(self._directory / f"{self.name}.parquet"))
        )
        writer = writer.option("checkpointLocation", str(self._directory / f"{self.name}.checkpoint"))
        if trigger:
            writer = writer.trigger(**trigger)
        self._query = writer.start()
        return self._query

    def keep_running(self) -> None:
        """Start it, if it does not run."""
        if self._query is not None and self._query.isActive:
            return
        if self._query is not None:
            say(f"{self.name} failed: {self._query.exception()}".splitlines()[0])
            time.sleep(AGAIN_S)
        self.start()

    def drain(self) -> None:
        """Stop if it runs, and take all that is left."""
        if self._query is not None:
            self._query.stop()
        last = self.start(availableNow=True)
        if not last.awaitTermination(int(DRAIN_S)):
            raise TimeoutError(f"{self.name}: {last.lastProgress}")

    def write_found(self) -> None:
        rows: DataFrame = self._spark.read.parquet(str(self._directory / f"{self.name}.parquet"))
        rows = rows.selectExpr("cast(trim(cast(body AS string)) AS bigint) AS number", "partition", "offset")
        pyarrow.parquet.write_table(rows.toArrow(), self._directory / f"{self.name}.found")


def say(line: str) -> None:
    print(time.strftime("%H:%M:%S"), "query:", line, flush=True)


def supervise(archives: list[Archive]) -> None:
    """Keep the queries running until there is something to read on the standard input."""
    while not select.select([sys.stdin], [], [], LOOK_S)[0]:
        for archive in archives:
            archive.keep_running()


def main(uri: str, stream: str, queue: str, directory: Path) -> None:
    spark = local_session("crash rounds", 2, "768m", **CONFIG)
    spark.sparkContext.setLogLevel("WARN")  # "Lost task" is one
    archives = [
        Archive(spark, "stream", {"uri": uri, "stream": stream, "startingOffsets": "earliest"}, directory),
        Archive(spark, "queue", {"uri": uri, "queue": queue, "spoolDir": str(directory / "spool")}, directory),
    ]
    supervise(archives)
    if sys.stdin.readline() != "drain\n":
        os._exit(1)  # whoever started this is gone
    for archive in archives:
        archive.drain()
        archive.write_found()
        say(f"{archive.name} drained")
    spark.stop()


if __name__ == "__main__":
    try:
        main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    except StreamingQueryException as error:
        sys.exit(str(error))

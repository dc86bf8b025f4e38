"""The format `flaky`: the format amqp with a sink that fails once, where a test has put a flag.

`python -m tests.spark.flaky URI QUEUE DIRECTORY` runs a query with it in a Spark that tries a task three times: the
stream of text files in DIRECTORY/lines goes to the queue.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import DataSourceStreamWriter

from penstock.spark.session import local_session
from penstock.spark.sink import StreamSink
from penstock.spark.source import PenstockDataSource
from tests.spark.conftest import QUICK

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class FlakySource(PenstockDataSource):
    """The format amqp, whose sink fails once in a task and in a commit, if there are files `task` and `commit`."""

    @classmethod
    def name(cls) -> str:
        return "flaky"

    def __init__(self, options: dict[str, str]) -> None:
        self._flags = Path(options["flags"])
        super().__init__({name: value for name, value in options.items() if name.lower() != "flags"})

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return FlakySink(self._flags, self._checked, schema, overwrite)


class FlakySink(StreamSink):
    def __init__(self, flags: Path, *arguments) -> None:
        super().__init__(*arguments)
        self._flags = flags

    def write(self, iterator: Iterator[pa.RecordBatch]):
        return super().write(self._cut(iterator))

    def _cut(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        for number, batch in enumerate(batches):
            yield batch
            if number == 2 and context.partitionId() == 0 and take(self._flags / "task"):
                raise OSError("this task fails half way")

    def commit(self, messages, batchId: int) -> None:
        if take(self._flags / "commit"):
            raise OSError("this commit fails")
        super().commit(messages, batchId)


def take(flag: Path) -> bool:
    """True once for each flag."""
    try:
        flag.unlink()
    except FileNotFoundError:
        return False
    return True


def register(spark: SparkSession) -> None:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # Spark's workers cannot import a test
    spark.dataSource.register(FlakySource)


def read_lines(spark: SparkSession, directory: Path) -> DataFrame:
    """The stream of text files in a directory, a batch for each."""
    return spark.readStream.option("maxFilesPerTrigger", 1).text(str(directory))


def main(uri: str, queue: str, directory: Path) -> None:
    retries = {"spark.master": "local[2,3]", "spark.sql.execution.arrow.maxRecordsPerBatch": "100"}
    spark = local_session("retries", 2, "512m", **QUICK, **retries)
    register(spark)
    writer = (
        read_lines(spark, directory / "lines").writeStream.format("flaky").option("flags", str(directory / "flags"))
    )
    writer = writer.option("uri", uri).option("routingKey", queue).option("window", "10")
    writer = writer.option("checkpointLocation", str(directory / "checkpoint")).trigger(availableNow=True)
    writer.start().awaitTermination(200)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))

"""PenstockDataSource: the format `amqp` of Spark. Hands out the readers and writers; nothing happens here.

Upstream: Spark's planner, which makes one of these for every query, in a short-lived process.
Downstream: streamreader.py and batchreader.py (streams), queuereader.py and browse.py (queues), sink.py.
Options are checked here, so that a wrong one is an error of `load()` or `start()` and not of a task.
Not here: connections. The object is pickled, and so are the readers: they open theirs when they are first used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from penstock.spark.daemon import quiet
from penstock.spark.options import OptionError, Options, Use, parse_options
from penstock.spark.runner import leave_in_order
from penstock.spark.schema import message_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter

NAME = "amqp"


class PenstockDataSource(DataSource):
    """Each method imports what it needs: a task that writes does not load the readers, and the other way round."""

    def __init__(self, options: Mapping[str, str]) -> None:
        # Spark keeps `options`; ours are the checked ones, whose repr shows no password.
        super().__init__(cast("dict[str, str]", options))
        self._checked: Options = parse_options(options)
        quiet()

    def __setstate__(self, state: dict[str, object]) -> None:
        """Spark plans each step in a process that gets the object, and is left alone then."""
        self.__dict__.update(state)
        quiet()
        leave_in_order()

    def __repr__(self) -> str:
        return f"<PenstockDataSource {self._checked!r}>"

    @classmethod
    def name(cls) -> str:
        quiet()  # the process that looks for formats asks for nothing else
        return NAME

    def schema(self) -> StructType:
        # Asked by `load()`, which does not say whether for a stream or a batch: what is wrong in both is refused there.
        self._checked.check_source()
        return message_schema()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        queue = self._checked.queue is not None
        try:
            _check_schema(schema)
            self._checked.check(Use.QUEUE if queue else Use.STREAM)
        except OptionError as error:
            return _Refusal(error)
        if queue:
            from penstock.spark.queuereader import QueueStreamReader

            return QueueStreamReader(self._checked)
        from penstock.spark.streamreader import StreamReader

        return StreamReader(self._checked)

    def reader(self, schema: StructType) -> DataSourceReader:
        queue = self._checked.queue is not None
        _check_schema(schema)
        self._checked.check(Use.QUEUE_BATCH if queue else Use.STREAM_BATCH)
        if queue:
            from penstock.spark.browse import QueueBrowser

            return QueueBrowser(self._checked)
        from penstock.spark.batchreader import StreamBatchReader

        return StreamBatchReader(self._checked)

    # Spark calls the next two by keyword: the names of their parameters are fixed.

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.spark.sink import BatchSink

        self._checked.check(Use.SINK_BATCH)
        return BatchSink(self._checked, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.spark.sink import StreamSink

        self._checked.check(Use.SINK)
        return StreamSink(self._checked, schema, overwrite)


class _Refusal(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises at the first question. Spark 4.3 covers an error of `streamReader` itself with one of its own
    (UnboundLocalError: reader), so that the user would read the wrong last line."""

    def __init__(self, error: OptionError) -> None:
        self._error = error

    def prepareForTriggerAvailableNow(self) -> None:
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:
        raise self._error

    def initialOffset(self) -> dict[str, int]:
        raise self._error

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        raise self._error

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        raise self._error


def _check_schema(schema: StructType) -> None:
    """A schema given by the user can only be ours: what a column cannot be is decided before the first task."""
    ours = message_schema()
    if schema != ours:
        raise OptionError(f"the columns of the format amqp are fixed, leave .schema() out: {ours.simpleString()}")

"""Sink: what `df.writeStream.format("amqp")` and `df.write.format("amqp")` do.

Upstream: Spark, which pickles a writer, and calls `write` with Arrow batches in a task for each partition.
Downstream: encoder.py makes messages of the rows, outlet.py publishes them.
`write` returns only when the broker has confirmed every row. So there is nothing left for `commit` to do, and nothing
that `abort` could undo: what a failed batch has published stays, and the batch comes again.

That it does not double: a streaming query knows of every row its query, batch, partition and number in the partition,
and they are the same when Spark tries the task or the batch again. They are the message id; and two headers, a producer
(query/partition) and a publishing id (batch << 32 | row). A queue of Penstock drops what is not above the highest
publishing id it has from that producer, and confirms it. This holds while a batch that is tried again has the same rows
in the same order in each partition: so for source -> map, filter -> sink; not behind a shuffle, whose order may change,
and not when the number of partitions was changed in between. There a row could be dropped that never came: that is what
the option deduplicate=false is for, at least once. With mandatory there is only the message id: at least once.
`df.write` knows no such ids: at least once.
Not here: the options' names (options.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.spark.daemon import quiet
from penstock.spark.encoder import Encoder, Plan, Stamp, make_plan
from penstock.spark.options import OptionError, Options
from penstock.spark.outlet import Outlet

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

QUERY_ID: Final = "sql.streaming.queryId"  # the same for all runs from one checkpoint
BATCH_ID: Final = "streaming.sql.batchId"
SPECULATION: Final = "spark.speculation"

log: Final = logging.getLogger("penstock.spark")


@dataclass(frozen=True, slots=True)
class Published(WriterCommitMessage):
    """What a task says when all its rows are confirmed."""

    rows: int


class BatchSink(DataSourceArrowWriter):
    """`df.write`: every row at least once."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._plan = _plan(options, schema, overwrite)

    def __repr__(self) -> str:
        return f"<BatchSink {self._options!r} {self._plan}>"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        task = _this_task()
        name = f"amqp sink, partition {task.partitionId()}"
        outlet = Outlet(self._options.uri, self._options.window, self._options.mandatory, name)
        return _publish(outlet, Encoder(self._plan), iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Everything is confirmed already."""
        quiet()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        quiet()
        log.warning("amqp sink: the write failed; %s stay published", _told(messages))


class StreamSink(DataSourceStreamArrowWriter):
    """`df.writeStream`: every row at least once, and with the same ids however often it is sent."""

    def __init__(self, options: Options, schema: StructType, overwrite: bool) -> None:
        self._options = options
        self._plan = _plan(options, schema, overwrite)

    def __repr__(self) -> str:
        return f"<StreamSink {self._options!r} {self._plan}>"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Published:
        task = _this_task()
        stamp = make_stamp(task)
        name = f"amqp sink, query {stamp.query}, batch {stamp.batch}, partition {stamp.partition}"
        options = self._options
        # Not numbered with mandatory: behind a row that is returned others are taken, with higher numbers. When it
        # comes again, and has a queue at last, that queue would take it for one it has.
        encoder = Encoder(self._plan, stamp if options.deduplicate else None, numbered=not options.mandatory)
        # A later batch: the query has published before.
        outlet = Outlet(options.uri, options.window, options.mandatory, name, known=stamp.batch > 0)
        return _publish(outlet, encoder, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Everything is confirmed already."""

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        log.warning("amqp sink: batch %d failed; %s stay published", batchId, _told(messages))


def make_stamp(task: TaskContext) -> Stamp:
    """Who this task is, in words that a second attempt finds again."""
    query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        raise RuntimeError(f"Spark did not tell this task its {QUERY_ID} and {BATCH_ID}")
    return Stamp(query, int(batch), task.partitionId())


def _plan(options: Options, schema: StructType, overwrite: bool) -> Plan:
    if overwrite:
        raise OptionError('what was published stays: the amqp sink takes only the mode "append"')
    return make_plan(schema, options.exchange, options.routing_key)


def _this_task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("the amqp sink publishes inside Spark's tasks only")
    if (task.getLocalProperty(SPECULATION) or "").lower() == "true":
        # Two attempts at once would both publish, and only one of them could be told apart by its ids.
        raise OptionError("the amqp sink needs spark.speculation=false: two attempts of a task would publish twice")
    return task


def _publish(outlet: Outlet, encoder: Encoder, batches: Iterator[pa.RecordBatch]) -> Published:
    try:
        for batch in batches:
            if batch.num_rows:  # Spark hands out empty partitions too; they need no connection
                outlet.publish(encoder.encode(batch))
        outlet.flush()
    finally:
        outlet.drop()  # nothing, if all went well: the connection is kept for the next task
    return Published(encoder.rows)


def _told(messages: Sequence[WriterCommitMessage | None]) -> str:
    done = [one for one in messages if isinstance(one, Published)]
    return f"{sum(one.rows for one in done)} rows of the {len(done)} of {len(messages)} partitions that were done"

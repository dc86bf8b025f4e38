"""QueueBrowser: a batch read of a queue. It looks and takes nothing.

Upstream: the broker.  Downstream: one task of a batch query.
A batch read has no end that a source hears of: Spark may read twice, or half, and nobody says when the rows are safe.
So nothing is acked: the task reads as many messages as were ready when the query was planned, and then gives all back.
They stand in the queue where they stood, marked as redelivered. To take messages out of a queue: `readStream` with
`trigger(availableNow=True)`.
While a read runs, other consumers do not get what it holds. Where a queue counts deliveries (x-delivery-limit), each
read counts as one.
Not here: taking (queuereader.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.client.connection import Connection
from penstock.client.consumer import Consumer
from penstock.spark.columns import record_batch
from penstock.spark.gauge import CONNECT_TIMEOUT_S, Gauge
from penstock.spark.options import OptionError, Options

BATCH_ROWS: Final = 10_000  # of an Arrow batch
BATCH_BYTES: Final = 16 * 1024 * 1024
# A broker that counts messages as ready and does not deliver them: another consumer was quicker.
STALL_S: Final = 2.0

log = logging.getLogger(__name__)


class BrowsePart(InputPartition):
    """All that was ready: a queue has one end, so one task reads it."""

    def __init__(self, count: int) -> None:
        super().__init__(None)
        self.count = count

    def __repr__(self) -> str:
        return f"<BrowsePart count={self.count}>"


class QueueBrowser(DataSourceReader):
    def __init__(self, options: Options) -> None:
        if options.queue is None:
            raise OptionError("option queue is missing")
        self._options = options
        self._queue = options.queue

    def __repr__(self) -> str:
        return f"<QueueBrowser {self._queue}>"

    def partitions(self) -> list[InputPartition]:
        gauge = Gauge(self._options.uri, self._queue)
        count = gauge.count_ready()
        gauge.close()
        if self._options.max_records is not None:
            count = min(count, self._options.max_records)
        return [BrowsePart(count)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, BrowsePart)
        wanted = partition.count
        if not wanted:
            return
        options = self._options
        bytes_left = options.max_bytes
        connection = Connection.connect(options.uri, CONNECT_TIMEOUT_S, name=f"spark browse {self._queue}")
        try:
            # No prefetch limit: nothing is acked. What is not read yet waits in the socket, and so in the broker.
            consumer = Consumer(connection.open_channel(), self._queue, tag=options.consumer_name or "")
            row = 0
            heard = time.monotonic()
            while row < wanted and (bytes_left is None or bytes_left > 0):
                size = BATCH_BYTES if bytes_left is None else min(BATCH_BYTES, bytes_left)
                got = consumer.read(min(BATCH_ROWS, wanted - row), STALL_S, size)
                if got:
                    yield record_batch(got, row, 0)
                    row += len(got)
                    bytes_left = None if bytes_left is None else bytes_left - got.bytes
                    heard = time.monotonic()
                elif time.monotonic() - heard >= STALL_S or consumer.ended:
                    log.warning("queue %s: %d of %d messages came, others took the rest", self._queue, row, wanted)
                    return
        finally:
            connection.socket.close()  # all of it goes back to the queue

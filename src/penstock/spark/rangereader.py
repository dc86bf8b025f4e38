"""Range reader: one range of a stream as Arrow batches. What a task of Spark does, in streaming and in batch.

Upstream: a range planned by streamreader.py or batchreader.py.  Downstream: Spark, one bounded batch at a time.
The channel is kept in this process and used again for the next range: Spark keeps its Python workers over batches.
A broker that goes away in the middle is waited for, and reading goes on at the next offset: rows are yielded once.
Not here: which ranges (offsets.py), the consumer itself (reading.py).
"""

from __future__ import annotations

import logging
import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa

from penstock.client.connection import Channel, Connection
from penstock.client.error import ClientError, Closed
from penstock.client.stream import Offsets as Ends
from penstock.client.stream import offsets as query_offsets
from penstock.client.uri import Uri
from penstock.spark.columns import NoOffset, cut_offsets, stream_batch
from penstock.spark.fault import broker_fault, not_a_stream, report_hole, report_loss, report_rewind
from penstock.spark.offsets import Range
from penstock.spark.options import Options
from penstock.spark.patience import Patience, is_passing
from penstock.spark.reading import Reading

# A batch for Spark: large enough that its fixed cost is nothing, small enough that a task's memory stays flat.
BATCH_ROWS: Final = 8_192
BATCH_BYTES: Final = 8 * 1024 * 1024

log = logging.getLogger("penstock.spark")

# One channel for each broker, of this process: Spark forks workers, and a child must not use its parent's socket.
_kept: dict[tuple[int, Uri], Channel] = {}


def read_range(wanted: Range, options: Options) -> Iterator[pa.RecordBatch]:
    """The messages of the range, each once and in order."""
    position = wanted.start
    patience = Patience(f"stream {wanted.stream} at offset {position}")
    while position < wanted.end:
        channel = None
        clean = False
        try:
            channel = _open(options)
            reading = Reading(
                channel, wanted.stream, position, wanted.end, options.prefetch, options.consumer_name or ""
            )
            before = position
            while not reading.done and position < wanted.end:
                deliveries = reading.gather(BATCH_ROWS, BATCH_BYTES)
                if not deliveries:
                    break
                offsets, keys = cut_offsets(deliveries.headers)
                _check_gaps(wanted, position, offsets, reading.dense, position == before, options)
                batch = stream_batch(deliveries, wanted.partition, offsets, keys)
                low, high = bisect_left(offsets, position), bisect_left(offsets, wanted.end)
                position = min(offsets[-1] + 1, wanted.end)
                patience.over()
                patience.what = f"stream {wanted.stream} at offset {position}"
                if high > low:
                    yield batch.slice(low, high - low) if high - low < len(offsets) else batch
            reading.finish()
            clean = True
            if position < wanted.end and position == before:
                position = _behind_nothing(wanted, position, reading.dense, options)
        except NoOffset:
            raise not_a_stream(wanted.stream, options.uri) from None
        except ClientError as error:
            if not is_passing(error):
                raise broker_fault(error, options.uri) from None
            try:
                patience.wait(error)
            except ClientError as last:
                raise broker_fault(last, options.uri) from None
        finally:
            # Also when Spark has enough (a LIMIT): deliveries that nobody reads are on their way on this channel.
            if channel is not None and not clean:
                _drop(options)


def _open(options: Options) -> Channel:
    key = (os.getpid(), options.uri)
    channel = _kept.get(key)
    if channel is None:
        name = f"spark task, {options.consumer_name or options.stream}"
        channel = _kept[key] = Connection.connect(options.uri, name=name).open_channel()
    return channel


def _drop(options: Options) -> None:
    channel = _kept.pop((os.getpid(), options.uri), None)
    if channel is not None:
        channel.connection.abort()


def _ends(stream: str, options: Options) -> Ends:
    """First and next offset, asked on a connection of its own: the kept one is in the middle of a range."""
    with Connection.connect(options.uri) as connection:
        return query_offsets(connection.open_channel(), stream)


def _check_gaps(
    wanted: Range, position: int, offsets: Sequence[int], dense: bool, begins: bool, options: Options
) -> None:
    """Offsets that did not come. On Penstock each is a message. RabbitMQ uses some for notes of its own, so there only
    the first message tells, if the stream begins behind the place that was asked for."""
    if dense and offsets[-1] - position != len(offsets) - 1:
        for offset in offsets:
            if offset > position:
                _report_gap(wanted.stream, position, offset, dense, options)
            position = offset + 1
    elif begins and offsets[0] > position:
        _report_gap(wanted.stream, position, offsets[0], dense, options)


def _report_gap(stream: str, wanted: int, following: int, dense: bool, options: Options) -> None:
    first = _ends(stream, options).first
    if first > wanted:
        report_loss(stream, wanted, first, options.fail_on_data_loss)
    elif dense:
        report_hole(stream, wanted, following, options.fail_on_data_loss)


def _behind_nothing(wanted: Range, position: int, dense: bool, options: Options) -> int:
    """The consumer ended without a row: why, and where to go on."""
    ends = _ends(wanted.stream, options)
    if ends.first > position:
        report_loss(wanted.stream, position, ends.first, options.fail_on_data_loss)
        return min(ends.first, wanted.end)
    if not dense:
        raise Closed(f"the broker ended reading stream {wanted.stream} at offset {position}")
    if ends.next < wanted.end:
        report_rewind(wanted.stream, wanted.end, ends.next, options.fail_on_data_loss)
    else:
        report_hole(wanted.stream, position, wanted.end, options.fail_on_data_loss)
    return wanted.end

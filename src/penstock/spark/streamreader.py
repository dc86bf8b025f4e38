"""StreamReader: `readStream` on a stream. Plans batches in the driver, reads their ranges in tasks.

Upstream: Spark's micro-batch engine.  Downstream: streamview.py (driver), rangereader.py (tasks).
Offsets in Spark's checkpoint are the only truth: nothing is kept here or in the broker, so a batch that is run again
reads exactly the same range, in this process or another. That, and a sink that is idempotent, is exactly once.
All methods but `read` run in one process for the whole query; `read` runs in tasks, on a copy.
Not here: connections, the meaning of retention for a range that was planned (rangereader.py looks again).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.client.stream import Offsets as Ends
from penstock.spark.fault import BrokerAway, SourceError, report_gone, report_loss, report_rewind
from penstock.spark.offsets import (
    EARLIEST,
    LATEST,
    UNSETTLED,
    Offsets,
    Position,
    Range,
    admit,
    in_order,
    position_of,
    split,
)
from penstock.spark.options import Options
from penstock.spark.rangereader import read_range
from penstock.spark.streamview import StreamView


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Options) -> None:
        self._options = options
        self._view: StreamView | None = None
        self._initial: Offsets | None = None
        self._target: Offsets | None = None  # where AvailableNow ends
        self._target_missing = False  # the broker was away when it was asked for

    def __repr__(self) -> str:
        return f"<StreamReader {self._options!r}>"

    def __getstate__(self) -> dict[str, Any]:
        # Tasks get a copy, made by pickle: a socket cannot go with it, and they need only the options.
        return {**self.__dict__, "_view": None}

    # The driver's side.

    def initialOffset(self) -> Offsets:
        # Spark asks twice, and both answers must be the same.
        if self._initial is None:
            ends = self._look().ends(fresh=True)
            check_names("startingOffsets", self._options.starting_offsets, ends)
            self._initial = in_order({name: self._start_of(name, one) for name, one in ends.items()})
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_records is not None:
            return ReadMaxRows(self._options.max_records)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        view = self._look_again()
        ends = view.ends()
        starts: Offsets = {}
        settled: Offsets = {}
        for name, one in ends.items():
            at = start.get(name)
            if at == UNSETTLED:
                settled[name] = self._settle(name, one)
            else:
                starts[name] = self._begin(name, at, one)
        vanished = {name: at for name, at in start.items() if name not in ends}
        for name, at in vanished.items():
            report_gone(name, at, self._options.fail_on_data_loss)
        admitted = self._admit(starts, ends, limit)
        return in_order({**vanished, **settled, **admitted})

    def reportLatestOffset(self) -> Offsets:
        return in_order({name: one.next for name, one in self._look().ends().items()})

    def prepareForTriggerAvailableNow(self) -> None:
        """Comes before all else, so nothing tells whether the query is new: the next call does, and asks again."""
        try:
            self._find_target()
        except BrokerAway:
            self._target_missing = True

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """The ranges between two offsets. After a restart this may be the first call of all."""
        view = self._look_again()
        ends = view.ends()
        index = {name: number for number, name in enumerate(view.names())}
        ranges = []
        for name in sorted(end, key=lambda name: index.get(name, -1)):
            at, to = start.get(name), end[name]
            if at == UNSETTLED or name not in index:
                continue
            first = self._begin(name, at, ends[name])
            if first < to:
                ranges.append(Range(name, index[name], first, to))
        return [InputPartition(one) for one in split(ranges, self._options.min_partitions or 0)]

    def commit(self, end: Offsets) -> None:
        """Nothing to do: reading removes nothing, and Spark's own log says where the query is."""

    def stop(self) -> None:
        if self._view is not None:
            self._view.close()

    # The tasks' side.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range(partition.value, self._options)

    def _look(self) -> StreamView:
        if self._view is None:
            self._view = StreamView(self._options)
        return self._view

    def _look_again(self) -> StreamView:
        """For calls that come first only when the query has run before: then the broker may be away for a while."""
        view = self._look()
        if self._initial is None:
            view.patient = True
        if self._target_missing:
            self._find_target()
            self._target_missing = False
        return view

    def _find_target(self) -> None:
        self._target = {name: one.next for name, one in self._look().ends(fresh=True).items()}

    def _start_of(self, name: str, ends: Ends) -> int:
        return start_of(name, ends, self._options, LATEST)

    def _settle(self, name: str, ends: Ends) -> int:
        """ "latest", or a time, becomes an offset: from now on it is in Spark's log."""
        if self._options.starting_timestamp_ms is not None:
            return self._look().offset_at(name, self._options.starting_timestamp_ms)
        return ends.next if self._target is None else self._target.get(name, ends.next)

    def _begin(self, name: str, at: int | None, ends: Ends) -> int:
        """Where reading goes on: `at`, unless retention overtook it; a partition that is new begins at its start."""
        if at is None:
            return ends.first
        if at > ends.next:
            if not self._look().exact:
                return at  # an end that was found by reading may be found too early
            report_rewind(name, at, ends.next, self._options.fail_on_data_loss)
            return ends.next
        if at < ends.first:
            report_loss(name, at, ends.first, self._options.fail_on_data_loss)
            return ends.first
        return at

    def _admit(self, starts: Offsets, ends: dict[str, Ends], limit: ReadLimit) -> Offsets:
        """The end of a batch that begins at `starts`."""
        targets = {
            name: ends[name].next if self._target is None else self._target.get(name, at) for name, at in starts.items()
        }
        names = list(starts)
        available = [max(targets[name] - starts[name], 0) for name in names]
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if not isinstance(limit, ReadAllAvailable):
            # Spark passes one limit; where both are set, the other one counts too.
            rows_max = rows_max or self._options.max_records
            bytes_max = bytes_max or self._options.max_bytes
        means = None
        if bytes_max is not None:
            view = self._look()
            means = [
                view.mean_size(name, starts[name], targets[name]) if count else 1.0
                for name, count in zip(names, available)
            ]
        counts = admit(available, rows_max, means, bytes_max)
        return {name: starts[name] + count for name, count in zip(names, counts)}


def check_names(option: str, position: Position | None, ends: Mapping[str, Ends]) -> None:
    """A position by name must name partitions of this stream, and all of them."""
    if not isinstance(position, dict):
        return
    for name in sorted(position.keys() ^ ends.keys()):
        if name in ends:
            raise SourceError(f"option {option} says nothing about {name}, a partition of the stream")
        raise SourceError(f"option {option} names {name}, but the partitions are {', '.join(ends)}")


def start_of(name: str, ends: Ends, options: Options, default: str) -> int:
    """Where a query begins in this partition, by its options; UNSETTLED for "latest" and for a time."""
    if options.starting_timestamp_ms is not None:
        return UNSETTLED
    at = position_of(options.starting_offsets if options.starting_offsets is not None else default, name)
    assert at is not None  # check_names
    if at == EARLIEST:
        return ends.first
    if at == LATEST:
        return UNSETTLED
    assert isinstance(at, int)
    if at > ends.next:
        raise SourceError(f"option startingOffsets: {at} is behind the end of stream {name}, which is {ends.next}")
    if at < ends.first:
        report_loss(name, at, ends.first, options.fail_on_data_loss)
        return ends.first
    return at

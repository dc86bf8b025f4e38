"""StreamBatchReader: `read` on a stream: a bounded range of every partition, read in parallel.

Upstream: Spark's planner, in a process of its own.  Downstream: streamview.py (planning), rangereader.py (tasks).
Where the range ends is fixed when it is planned: what is published later is not in it.
Not here: reading without an end (streamreader.py), queues (browse.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.client.stream import Offsets as Ends
from penstock.spark.fault import SourceError
from penstock.spark.offsets import EARLIEST, LATEST, UNSETTLED, Range, position_of, split
from penstock.spark.options import Options
from penstock.spark.rangereader import read_range
from penstock.spark.streamreader import check_names, start_of
from penstock.spark.streamview import StreamView


class StreamBatchReader(DataSourceReader):
    def __init__(self, options: Options) -> None:
        self._options = options

    def __repr__(self) -> str:
        return f"<StreamBatchReader {self._options!r}>"

    def partitions(self) -> Sequence[InputPartition]:
        view = StreamView(self._options)
        try:
            found = view.ends()
            check_names("startingOffsets", self._options.starting_offsets, found)
            check_names("endingOffsets", self._options.ending_offsets, found)
            ranges = [
                Range(name, number, self._start(view, name, ends), self._end(name, ends))
                for number, (name, ends) in enumerate(found.items())
            ]
        finally:
            view.close()
        ranges = [one for one in ranges if one.start < one.end]
        return [InputPartition(one) for one in split(ranges, self._options.min_partitions or 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's own, where there is nothing to read
            return iter(())
        return read_range(partition.value, self._options)

    def _start(self, view: StreamView, name: str, ends: Ends) -> int:
        at = start_of(name, ends, self._options, EARLIEST)
        if at != UNSETTLED:
            return at
        if self._options.starting_timestamp_ms is not None:
            return view.offset_at(name, self._options.starting_timestamp_ms)
        return ends.next

    def _end(self, name: str, ends: Ends) -> int:
        wanted = self._options.ending_offsets
        at = LATEST if wanted is None else position_of(wanted, name)
        assert at is not None  # check_names
        if at == LATEST:
            return ends.next
        if at == EARLIEST:
            return ends.first
        assert isinstance(at, int)
        if at > ends.next:
            raise SourceError(f"option endingOffsets: {at} is behind the end of stream {name}, which is {ends.next}")
        return at

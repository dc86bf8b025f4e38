"""Parts: rows to Parquet files of one day each and back, and what the manifest must know of them.

Small results are written here, by pyarrow: a Spark job for a file of ten rows takes a tenth of a second. Large ones are
written by Spark into a staging directory, and moved.
Upstream: ledger.py, compact.py.  Downstream: disk.py.
Not here: which parts count (manifest.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.spark.complaint import Complaint
from penstock.spark.ledger import disk
from penstock.spark.ledger.manifest import Part
from penstock.spark.tables.windows import micros

COMPRESSION = "zstd"
WINDOW = "window"
DAY = "day"
STAGED_DAY = "_staged_day"  # Spark leaves the column it partitions by out of the files: so it gets a copy
# The default is a form of 96 bits, which has no statistics.
WRITING = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}


class Names:
    """Names of parts that no other commit uses: a reader may still have the last commit's open."""

    __slots__ = ("_next", "_root", "_version")

    def __init__(self, root: Path, version: int) -> None:
        self._root = root
        self._version = version
        self._next = 0

    def new(self, table: str, day: str) -> tuple[str, Path]:
        """Below the root, and in full; its directory is there."""
        directory = self._root / table / f"day={day}"
        if not directory.is_dir():
            disk.make_directory(directory)
            disk.sync(directory.parent)
            disk.sync(self._root)
        name = f"{self._version:012d}-{self._next}.parquet"
        self._next += 1
        return f"{table}/day={day}/{name}", directory / name


def write_rows(rows: pa.Table, table: str, names: Names) -> list[Part]:
    """One part for each day in the rows."""
    parts = []
    for day, slice_ in by_day(rows):
        sink = pa.BufferOutputStream()
        pq.write_table(slice_, sink, compression=COMPRESSION)
        content = sink.getvalue()
        relative, path = names.new(table, day)
        disk.write(path, memoryview(content))
        bounds = pc.min_max(slice_[WINDOW])
        first, last = _micros(bounds["min"]), _micros(bounds["max"])
        parts.append(Part(relative, first, last, slice_.num_rows, content.size))
    return parts


class Damaged(Complaint):
    """A part that cannot be read."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} is damaged: {why}")
        self.path = path


def read_schema(path: Path) -> pa.Schema:
    with _readable(path):
        return pq.read_schema(path)


def read_part(path: Path, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
    """Its rows, or those of them of which `where` is true; of these columns those that it has."""
    with _readable(path), pq.ParquetFile(path) as file:
        there = set(file.schema_arrow.names)
        named = None if columns is None else [name for name in columns if name in there]
        if where is None:
            return file.read(named)
        return pq.read_table(path, columns=named, filters=where, partitioning=None)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's word, or that there is no such file; Arrow's own has no number
        raise Damaged(path, (str(error).splitlines() or ["?"])[0]) from None


def by_day(rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    if not rows.num_rows:
        return
    assert not rows[WINDOW].null_count, "every row of a table belongs to a window"
    days = rows[DAY].unique().to_pylist()
    for day in sorted(days):
        yield str(day), rows if len(days) == 1 else rows.filter(pc.equal(rows[DAY], pa.scalar(day)))


def write_frame(frame: DataFrame, table: str, staging: Path, names: Names) -> list[Part]:
    """The same by Spark: where the rows are, in parallel. Its session has the settings of WRITING."""
    conf = frame.sparkSession.conf
    assert all(conf.get(name) == value for name, value in WRITING.items()), "no session for writing"
    staged = frame.withColumn(STAGED_DAY, F.col(DAY))
    staged.write.mode("overwrite").option("compression", COMPRESSION).partitionBy(STAGED_DAY).parquet(str(staging))
    parts = []
    for found in sorted(staging.glob(f"{STAGED_DAY}=*/*.parquet")):
        day = found.parent.name.partition("=")[2]
        disk.sync(found)
        relative, path = names.new(table, day)
        disk.rename(found, path)
        parts.append(described(relative, path))
    disk.remove_tree(staging)
    return parts


def described(relative: str, path: Path) -> Part:
    """What the file says of itself."""
    metadata = pq.read_metadata(path)
    column = next(i for i in range(metadata.num_columns) if metadata.schema.column(i).path == WINDOW)
    groups = [metadata.row_group(i).column(column).statistics for i in range(metadata.num_row_groups)]
    return Part(
        relative,
        min(_micros(one.min) for one in groups),
        max(_micros(one.max) for one in groups),
        metadata.num_rows,
        path.stat().st_size,
    )


def _micros(value: pa.Scalar | datetime) -> int:
    found = value.as_py() if isinstance(value, pa.Scalar) else value
    assert isinstance(found, datetime)
    return micros(found if found.tzinfo is not None else found.replace(tzinfo=UTC))

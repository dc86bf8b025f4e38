"""Replay table: where a replay's rows come from: a directory of Parquet, an archive, a table of the flow, of a catalog.

A replay that goes on must read what it began with, also while an archive job adds to the directory: `pinned` says what
is there now, in words that `read_pinned` understands later.
Upstream: job.py.  Not here: what becomes of the rows (plan.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from penstock.spark.archive.files import read_label, table_files
from penstock.spark.complaint import Complaint
from penstock.spark.ledger import Ledger

LEDGER: Final = "_ledger"
INFER_TYPES: Final = "spark.sql.sources.partitionColumnTypeInference.enabled"
PATTERN: Final = re.compile(r"[][{}*?\\]")  # what Spark, given a path to read, takes for a pattern of paths


@dataclass(frozen=True, slots=True)
class Table:
    """A table to replay."""

    name: str  # as it was given; a directory as an absolute path
    root: Path | None  # None: of Spark's catalog
    files: tuple[str, ...]  # below the root
    schema: StructType | None  # None: the files say it
    names: tuple[tuple[str, str], ...] = ()  # JSON fields and their columns, of an archive with --json
    exact: bool = False  # offset and partition tell all rows apart


def find_table(given: str) -> Table:
    """The table of this name; Complaint if it is none. What is no directory is left to Spark's catalog."""
    path = Path(given)
    if not path.exists():
        if "/" in given or given.startswith("."):
            raise Complaint(f"{given}: there is no such directory")
        return Table(given, None, (), None)
    if not path.is_dir():
        raise Complaint(f"{given} is a file; a table is a directory of Parquet files")
    root = path.resolve()
    if (root.parent / LEDGER).is_dir():
        parts = Ledger(root.parent).files(root.name)
        files = tuple(sorted(part.relative_to(root).as_posix() for part in parts))
        return _filled(Table(str(root), root, files, None))
    label = read_label(root)
    if label is None:
        return _filled(Table(str(root), root, tuple(table_files(root)), None))
    exact = {"offset", "partition"} <= set(label.columns)
    files = tuple(table_files(root))
    return _filled(Table(str(root), root, files, label.table_schema(), label.names, exact))


def read_table(spark: SparkSession, table: Table) -> DataFrame:
    """All of its files; of a catalog, the table."""
    if table.root is None:
        try:
            return spark.table(table.name)
        except AnalysisException:
            raise Complaint(f"{table.name}: there is neither a directory nor a table of this name") from None
    # A routing key that looks like a number, as the name of a directory, is a text all the same.
    spark.conf.set(INFER_TYPES, "false")
    reader = spark.read.option("basePath", str(table.root))
    if table.schema is not None:
        reader = reader.schema(table.schema)
    return reader.parquet(*(_literal(table.root / name) for name in table.files))


def pinned(
    table: Table, rows: DataFrame, collected: Callable[[DataFrame], list[Row]]
) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    """By what a later run knows which rows are in it now: files, or an archive's last offsets by partition."""
    if table.exact:
        found = collected(rows.groupBy("partition").agg(F.max("offset")))
        return (), tuple(sorted((int(one[0]), int(one[1])) for one in found))
    return tuple(sorted(rows.inputFiles())) if table.root is None else table.files, ()


def read_pinned(
    spark: SparkSession, table: Table, files: tuple[str, ...], last: tuple[tuple[int, int], ...]
) -> DataFrame:
    """The rows that were in the table when it was pinned; Complaint if some are gone."""
    if table.exact:
        rows = read_table(spark, table)
        ends = F.create_map(*(F.lit(value) for pair in last for value in pair))
        return rows.where(F.col("offset") <= F.element_at(ends, F.col("partition"))) if last else rows.limit(0)
    if table.root is None:
        rows = read_table(spark, table)
        if tuple(sorted(rows.inputFiles())) != files:
            raise Complaint(f"{table.name} has changed since the replay began, so nobody can say what is left of it")
        return rows
    gone = next((name for name in files if not (table.root / name).exists()), None)
    if gone is not None:
        raise Complaint(f"{table.root}: {gone} is gone since the replay began, so nobody can say what is left of it")
    return read_table(spark, replace(table, files=files))


def was_merged(table: Table) -> bool:
    """Whether files of an archive have gone since it was looked at: their rows are in others now."""
    return table.exact and table.root is not None and not all((table.root / name).exists() for name in table.files)


def _literal(path: Path) -> str:
    """For Spark, which then reads this file and no other."""
    return PATTERN.sub(r"\\\g<0>", str(path))


def _filled(table: Table) -> Table:
    if not table.files:
        raise Complaint(f"{table.name} has no Parquet files in it")
    return table

"""Change: what a commit does to one table.

Upstream: the flow job.  Downstream: ledger.py:commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True)
class Change:
    """Rows for a table. An Arrow table is written by this process; a DataFrame by Spark, where its rows are."""

    table: str
    rows: pa.Table | DataFrame
    replaces: bool = False  # what was there from `since` on goes; else the rows are added
    since: datetime | None = None  # a window; None: all


def append(table: str, rows: pa.Table | DataFrame) -> Change:
    return Change(table, rows)


def replace(table: str, rows: pa.Table | DataFrame, since: datetime | None = None) -> Change:
    """These rows take the place of all rows of windows from `since` on; all rows have such windows."""
    return Change(table, rows, True, since)

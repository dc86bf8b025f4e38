"""Plans: the functions of spark/tables/ for rows that this process has, as Arrow in and Arrow out.

    Prepared    makes the plans once, over slots (slots.py), and runs them for every batch: on one machine
    Anew        makes the plans of each batch anew, from its rows: on a cluster

To Spark a plan of a dozen tables is seconds of work, and some hundred rows are next to none. A plan that is there runs
again in a hundredth of a second for each of its jobs.
Upstream: batch.py.  Downstream: tables/derive.py, tables/quality.py, tables/events.py.
Not here: which rows (batch.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from penstock.spark.flowjob.gathered import gathered, parted, united
from penstock.spark.flowjob.slots import Slot, is_repeatable
from penstock.spark.schema import message_schema
from penstock.spark.tables import quality
from penstock.spark.tables.derive import KNOWN, Inputs, derive_known
from penstock.spark.tables.events import parse
from penstock.spark.tables.schema import DERIVED, schema

Rows = Mapping[str, pa.Table]
READ = StructType([message_schema()[name] for name in ("offset", "timestamp", "body")])  # of the source's columns
INPUTS = {
    "events": StructType([*schema("events"), *KNOWN]),
    "open": StructType([*schema("open"), *KNOWN]),
    "depth": schema("depth"),
    "resources": schema("resources"),
}
CHECKED = ("events", *DERIVED)


class Plans(Protocol):
    def parse(self, rows: DataFrame) -> pa.Table:
        """Rows of the source as events."""
        ...

    def derive(self, inputs: Rows) -> dict[str, pa.Table]:
        """INPUTS to all derived tables."""
        ...

    def check(self, tables: Rows) -> dict[str, pa.Table]:
        """What tables/quality.py finds in each of them."""
        ...


class Anew:
    """Nothing is kept from one batch to the next."""

    def __init__(self, spark: SparkSession, window_s: int) -> None:
        self._spark = spark
        self._window_s = window_s

    def parse(self, rows: DataFrame) -> pa.Table:
        return parse(rows, self._window_s).toArrow()

    def derive(self, inputs: Rows) -> dict[str, pa.Table]:
        frames = {name: self._single(inputs[name], type_) for name, type_ in INPUTS.items()}
        return gathered(derive_known(Inputs(**frames), self._window_s, self._keep))

    def check(self, tables: Rows) -> dict[str, pa.Table]:
        frames = {name: self._single(rows, schema(name)) for name, rows in tables.items() if rows.num_rows}
        return gathered({name: quality.checks(name, frame, self._window_s) for name, frame in frames.items()})

    def _keep(self, frame: DataFrame) -> DataFrame:
        """What several tables are made of, as rows: Spark's plans stay short, and it knows how few the rows are."""
        return self._single(frame.toArrow(), frame.schema)

    def _single(self, rows: pa.Table, type_: StructType) -> DataFrame:
        """In one partition: then there is nothing to shuffle in all that is made of it."""
        return self._spark.createDataFrame(rows if rows.num_rows else [], type_).coalesce(1)


class Prepared:
    """All plans, made once."""

    def __init__(self, spark: SparkSession, directory: Path, window_s: int) -> None:
        self._spark = spark
        self._directory = directory
        self._read = self._slot("read", READ)
        self._parsed = parse(self._read.frame, window_s)
        self._inputs = {name: self._slot(name, type_) for name, type_ in INPUTS.items()}
        self._steps: list[tuple[DataFrame, Slot]] = []  # in this order: each reads what those before it have given
        inputs = Inputs(**{name: slot.frame for name, slot in self._inputs.items()})
        self._derived = united(derive_known(inputs, window_s, self._keep))
        self._tables = {name: self._slot(f"table-{name}", schema(name)) for name in CHECKED}
        self._checked = united(
            {name: quality.checks(name, slot.frame, window_s) for name, slot in self._tables.items()}
        )

    def is_repeatable(self) -> bool:
        """Whether all of them read their slots again in each run."""
        frames = [self._parsed, self._derived, self._checked, *(frame for frame, _ in self._steps)]
        return all(is_repeatable(frame) for frame in frames)

    def parse(self, rows: DataFrame) -> pa.Table:
        self._read.put(rows.select(*READ.names).toArrow())
        return self._parsed.toArrow()

    def derive(self, inputs: Rows) -> dict[str, pa.Table]:
        for name, slot in self._inputs.items():
            slot.put(inputs[name])
        for frame, slot in self._steps:
            slot.put(frame.toArrow())
        return parted(self._derived.toArrow(), DERIVED)

    def check(self, tables: Rows) -> dict[str, pa.Table]:
        for name, slot in self._tables.items():
            slot.put(tables.get(name))
        return parted(self._checked.toArrow(), CHECKED)

    def _keep(self, frame: DataFrame) -> DataFrame:
        slot = self._slot(f"step-{len(self._steps)}", frame.schema)
        self._steps.append((frame, slot))
        return slot.frame

    def _slot(self, name: str, type_: StructType) -> Slot:
        return Slot(self._spark, self._directory / f"{name}.arrow", type_)

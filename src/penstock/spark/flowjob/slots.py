"""Slots: files of Arrow rows that a plan of Spark reads whenever it runs.

A DataFrame of given rows has them in its plan; one over a slot has only the slot's name there, so the same plan serves
other rows. A task reads the file, in a Python worker: that is why it must be on the machine of the tasks.
Spark runs a plan again as it is, but for what it has computed once and keeps: rows that were shuffled or broadcast, and
subqueries. A plan that has none of these is repeatable; with one partition everywhere there is nothing to shuffle.
Upstream: plans.py.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

KEEPING = ("Exchange", "Broadcast", "Subquery", "InMemory", "Reused")  # in the names of nodes that keep rows

Batches = Iterator[pa.RecordBatch]


class Slot:
    """Rows of one type; those of the last `put`."""

    __slots__ = ("_path", "_schema", "frame")

    def __init__(self, spark: SparkSession, path: Path, type_: StructType) -> None:
        self._path = path
        self._schema = to_arrow_schema(type_, timezone="UTC")
        self.frame = spark.range(0, 1, 1, 1).mapInArrow(_reading(str(path)), type_)

    def put(self, rows: pa.Table | None) -> None:
        """None: there are none."""
        beside = self._path.with_suffix(".new")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with pa.OSFile(str(beside), "wb") as sink, pa.ipc.new_file(sink, self._schema) as writer:
            if rows is not None and rows.num_rows:
                writer.write_table(rows.select(self._schema.names).cast(self._schema).combine_chunks())
        os.replace(beside, self._path)


def _reading(path: str) -> Callable[[Batches], Batches]:
    def read(ticks: Batches) -> Batches:
        # A worker looks for garbage after every task, among all that Spark, pandas and Arrow have loaded: that takes
        # longer than all the rest. What is there now stays anyway.
        if not gc.get_freeze_count():
            gc.freeze()
        # One row comes in. It is taken: a worker that leaves something is not used again.
        for _ in ticks:
            with pa.memory_map(path) as source:
                file = pa.ipc.open_file(source)
                for number in range(file.num_record_batches):
                    yield file.get_batch(number)

    return read


def is_repeatable(frame: DataFrame) -> bool:
    """Whether its plan keeps no rows from one run to the next."""
    todo: list[Any] = [frame._jdf.queryExecution().executedPlan()]
    while todo:
        plan = todo.pop()
        name = plan.nodeName()
        if any(word in name for word in KEEPING) or plan.subqueries().size():
            return False
        children = plan.children()
        todo += [children.apply(number) for number in range(children.size())]
    return True

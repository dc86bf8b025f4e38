"""Gathered: several small DataFrames as Arrow tables by one job of Spark.

A job costs a tenth of a second before its first row; ten tables of ten rows each by ten jobs would take a second. So
their rows come as one union: each row says which table it is of, and has that table's columns in a struct of its name.
Upstream: plans.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

OF = "_of"  # the column that says which table a row is of


def gathered(frames: Mapping[str, DataFrame]) -> dict[str, pa.Table]:
    """All their rows, by name."""
    return parted(united(frames).toArrow(), frames)


def united(frames: Mapping[str, DataFrame]) -> DataFrame:
    # As text: a Column is several calls into the JVM. All columns may be null: that one never is, is true of its own
    # rows only.
    types = {name: frame.schema.simpleString() for name, frame in frames.items()}
    branches = []
    for name, frame in frames.items():
        rows_of = {other: "struct(*)" if other == name else "null" for other in types}
        columns = [f"cast({rows_of[other]} as {type_}) as `{other}`" for other, type_ in types.items()]
        branches.append(frame.selectExpr(f"'{name}' as {OF}", *columns))
    return reduce(DataFrame.unionByName, branches)


def parted(rows: pa.Table, names: Iterable[str]) -> dict[str, pa.Table]:
    return {name: _columns(rows.filter(pc.equal(rows[OF], name))[name]) for name in names}


def _columns(structs: pa.ChunkedArray) -> pa.Table:
    type_ = structs.type
    chunk = pa.concat_arrays(structs.chunks) if structs.num_chunks else pa.array([], type_)
    return pa.Table.from_arrays(chunk.flatten(), names=[field.name for field in type_])

"""Derivation: events in, all tables out as plain rows, the way the job does it: as few jobs of Spark as possible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.flowjob.gathered import gathered
from penstock.spark.tables.derive import Inputs, derive, window_start
from penstock.spark.tables.events import parse
from penstock.spark.tables.schema import FORECAST_S, LOOKBACK_S, REACH_S, schema

Row = dict[str, Any]
Tables = dict[str, list[Row]]

# What a few rows do not need: plans made anew, and code compiled for each of them.
SMALL = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def small(spark: SparkSession) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in SMALL}
    for name, value in SMALL.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def frame(spark: SparkSession, rows: list[Row] | pa.Table, table: str) -> DataFrame:
    """In one partition: nothing has to be shuffled."""
    return spark.createDataFrame(rows if len(rows) else [], schema(table)).coalesce(1)


def parsed(spark: SparkSession, rows: list[tuple[int, bytearray]], window_s: int) -> pa.Table:
    return parse(spark.createDataFrame(rows, "offset bigint, body binary"), window_s).toArrow()


def derived(spark: SparkSession, inputs: Inputs, window_s: int, start: datetime | None = None) -> Tables:
    def keep(one: DataFrame) -> DataFrame:
        rows = one.toArrow()
        return spark.createDataFrame(rows if rows.num_rows else [], one.schema).coalesce(1)

    tables = gathered(derive(inputs, window_s, start, keep))
    return {name: table.to_pylist() for name, table in tables.items()}


def everything(spark: SparkSession, events: pa.Table, window_s: int) -> Tables:
    """In one go."""
    nothing = {name: frame(spark, [], name) for name in ("open", "depth", "resources")}
    return derived(spark, Inputs(frame(spark, events, "events"), **nothing), window_s)


class Slices:
    """What the job does: of each batch, derive the windows that it may change; their rows replace the old ones."""

    def __init__(self, spark: SparkSession, window_s: int) -> None:
        self.spark = spark
        self.window_s = window_s
        self.tables: Tables = {}
        self.events: pa.Table | None = None

    def add(self, batch: pa.Table) -> None:
        newest = window_start(pc.max(self.events["at"]).as_py(), self.window_s) if self.events is not None else None
        open_now = [row for row in self.tables.get("open", []) if row["window"] == newest]
        first = pc.min(batch.filter(pc.invert(batch["late"]))["at"]).as_py() - timedelta(seconds=REACH_S)
        start = window_start(min([first, *(row["seen_at"] for row in open_now)]), self.window_s)
        self.events = pa.concat_tables([self.events, batch]) if self.events is not None else batch
        fresh = derived(self.spark, self.inputs(start, newest), self.window_s, start)
        for name, rows in fresh.items():
            assert all(row["window"] >= start for row in rows)
            self.tables[name] = [row for row in self.tables.get(name, []) if row["window"] < start] + rows

    def inputs(self, start: datetime, newest: datetime | None) -> Inputs:
        last = start - timedelta(seconds=self.window_s)
        last = min(last, newest) if newest is not None else last
        assert self.events is not None
        since = pa.scalar(start - timedelta(seconds=LOOKBACK_S), self.events["at"].type)
        trend = start - timedelta(seconds=FORECAST_S)
        return Inputs(
            events=frame(self.spark, self.events.filter(pc.greater_equal(self.events["at"], since)), "events"),
            open=frame(self.spark, [row for row in self.tables.get("open", []) if row["window"] == last], "open"),
            depth=self.lately("depth", trend, start),
            resources=self.lately("resources", trend, start),
        )

    def lately(self, table: str, since: datetime, until: datetime) -> DataFrame:
        rows = [row for row in self.tables.get(table, []) if since <= row["window"] < until]
        return frame(self.spark, rows, table)

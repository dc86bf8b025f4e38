"""Derivation: events in, all tables out as plain rows, the way the job does it: as few jobs of Spark as possible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from penstock.spark.flowjob.batch import known, with_known
from penstock.spark.flowjob.gathered import gathered
from penstock.spark.flowjob.plans import Plans
from penstock.spark.flowjob.recent import between, first_window, shaped
from penstock.spark.tables.derive import Inputs, derive
from penstock.spark.tables.events import parse
from penstock.spark.tables.schema import DERIVED, LOOKBACK_S, schema, trend_s
from penstock.spark.tables.windows import window_start

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)

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


def at_once(plans: Plans, events: pa.Table) -> dict[str, pa.Table]:
    """In one go, with plans as the job has them."""
    events = shaped(events, "events")
    beside = known(events, BEGINNING)
    nothing = {name: shaped(pa.table({}), name) for name in ("open", "depth", "resources")}
    inputs = nothing | {"events": with_known(events, beside), "open": with_known(nothing["open"], beside)}
    return {name: shaped(rows, name) for name, rows in plans.derive(inputs).items()}


class Slices:
    """What the job does, with plans as it has them: of each batch, derive the windows that it may change; their rows
    replace the old ones."""

    def __init__(self, plans: Plans, window_s: int) -> None:
        self.plans = plans
        self.window_s = window_s
        self.made = {name: shaped(pa.table({}), name) for name in DERIVED}
        self.events: pa.Table | None = None

    @property
    def tables(self) -> Tables:
        return {name: rows.to_pylist() for name, rows in self.made.items()}

    def add(self, batch: pa.Table) -> None:
        latest = pc.max(self.events["at"]).as_py() if self.events is not None else None
        newest = window_start(latest, self.window_s) if latest is not None else None
        oldest = pc.min(batch.filter(pc.invert(batch["late"]))["at"]).as_py()
        seen = pc.min(between(self.made["open"], newest, None)["seen_at"]).as_py() if newest is not None else None
        start = first_window(oldest, latest, seen, self.window_s)
        self.events = pa.concat_tables([self.events, batch]) if self.events is not None else batch
        fresh = self.plans.derive(self.inputs(start, newest))
        for name, rows in fresh.items():
            assert pc.all(pc.greater_equal(rows["window"], pa.scalar(start, rows["window"].type))).as_py() is not False
            self.made[name] = pa.concat_tables([between(self.made[name], None, start), shaped(rows, name)])

    def inputs(self, start: datetime, newest: datetime | None) -> dict[str, pa.Table]:
        last = start - timedelta(seconds=self.window_s)
        last = min(last, newest) if newest is not None else last
        assert self.events is not None
        since = pa.scalar(start - timedelta(seconds=LOOKBACK_S), self.events["at"].type)
        events = self.events.filter(pc.greater_equal(self.events["at"], since))
        beside = known(events, start)
        open_ = between(self.made["open"], last, last + timedelta(seconds=self.window_s))
        trend = start - timedelta(seconds=trend_s(self.window_s))
        return {
            "events": with_known(shaped(events, "events"), beside),
            "open": with_known(open_, beside),
            "depth": between(self.made["depth"], trend, start),
            "resources": between(self.made["resources"], trend, start),
        }

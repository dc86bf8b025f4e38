"""Windows: times as microseconds, the window a time belongs to, and rows in the shape of their table.

Used by all the modules beside it. Times are added and compared as integers: a timestamp is only what people see.
Not here: what a table has in it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.spark.tables.schema import schema

US: Final = 1_000_000  # in a second
DAY_S: Final = 86_400
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def micros(moment: datetime) -> int:
    """Exactly, which a float is not."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def window_start(moment: datetime, window_s: int) -> datetime:
    """The start of the window in which this is."""
    us = micros(moment)
    return EPOCH + timedelta(microseconds=us - us % (window_s * US))


def floor_us(us: Column, step_s: int) -> Column:
    """The start of the step in which this is."""
    return us - F.pmod(us, F.lit(step_s * US))


def timestamp(us: Column) -> Column:
    return F.timestamp_micros(us)


def day(window: Column) -> Column:
    """The date in UTC, whatever the session thinks where it is."""
    return F.date_from_unix_date(F.floor(F.unix_seconds(window) / DAY_S).cast("int"))


def shaped(frame: DataFrame, table: str) -> DataFrame:
    """The columns of the table in their order and types; `day` is made here, from `window`."""
    return _select(frame, table, "window")


def windowed(frame: DataFrame, table: str) -> DataFrame:
    """The same of rows that have `window_us`."""
    return _select(frame, table, "timestamp_micros(window_us)")


def _select(frame: DataFrame, table: str, window: str) -> DataFrame:
    """As text: each column of Python's costs several calls to the JVM, and a small batch is little else than these."""
    made = {"window": window, "day": f"date_from_unix_date(int(floor(unix_seconds({window}) / {DAY_S})))"}  # as `day`
    return frame.selectExpr(
        *[
            f"cast({made.get(field.name, f'`{field.name}`')} as {field.dataType.simpleString()}) as `{field.name}`"
            for field in schema(table)
        ]
    )

"""Forecast: when a queue, the disk or the memory will be at its limit, if it goes on as in the last minutes.

Upstream: depth.py, resources.py.  Downstream: the report, the History page.
The trend is the straight line with the least squares through the last value of each window of schema.py:trend_s. It
needs three windows. Only what has a limit has a forecast; a queue that has two, of messages and of bytes, has two:
`unit`.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.spark.tables.schema import POINTS_MIN, trend_s
from penstock.spark.tables.windows import shaped

HORIZON_S: Final = 30 * 86_400  # what is further away than a month is no forecast


def forecast(depth: DataFrame, resources: DataFrame, window_s: int) -> DataFrame:
    """Of the windows of both that have `is_asked`; the others are only there for the trend."""
    queues = _queues(depth, "messages", "ready_last", "limit_messages").unionByName(
        _queues(depth, "bytes", "ready_bytes_last", "limit_bytes")
    )
    values = queues.unionByName(_disk(resources)).unionByName(_memory(resources))
    second = F.unix_seconds("window")
    of_one = Window.partitionBy("subject", "unit").orderBy(second)
    lately = of_one.rangeBetween(window_s - trend_s(window_s), Window.currentRow)
    trend = values.filter("value is not null").withColumns(
        {
            "slope_per_s": F.regr_slope("value", second.cast("double")).over(lately),
            "r2": F.regr_r2("value", second.cast("double")).over(lately),
            "moves": F.min("value").over(lately) < F.max("value").over(lately),
            "points": F.count("value").over(lately),
            "over_s": (second - F.min(second).over(lately) + window_s).cast("double"),
        }
    )
    # Up to the limit, or down to it.
    left = F.when(F.col("falls"), F.col("value") - F.col("limit")).otherwise(F.col("limit") - F.col("value"))
    speed = F.when(F.col("falls"), -F.col("slope_per_s")).otherwise(F.col("slope_per_s"))
    in_s = F.when(left <= 0, 0.0).when(speed > 0, left / speed)
    end_us = F.unix_micros("window") + window_s * 1_000_000
    return shaped(
        trend.filter(F.col("is_asked") & (F.col("points") >= POINTS_MIN) & F.col("limit").isNotNull())
        .withColumn("in_s", F.when(in_s <= HORIZON_S, in_s))
        .withColumns(
            {
                "hits_at": F.timestamp_micros(end_us + F.round(F.col("in_s") * 1_000_000).cast("bigint")),
                "r2": F.when(F.col("moves"), _clean(F.col("r2"))),  # else any line fits, which Spark calls 1
            }
        ),
        "forecast",
    )


def _queues(depth: DataFrame, unit: str, value: str, limit: str) -> DataFrame:
    return depth.select(
        "window",
        F.col("stage").alias("subject"),
        F.lit(unit).alias("unit"),
        F.col(value).cast("double").alias("value"),
        F.col(limit).cast("double").alias("limit"),
        F.lit(False).alias("falls"),
        "is_asked",
    )


def _disk(resources: DataFrame) -> DataFrame:
    """A limit of 0 is none."""
    return resources.select(
        "window",
        F.lit("disk").alias("subject"),
        F.lit("bytes").alias("unit"),
        F.col("disk_free_bytes").cast("double").alias("value"),
        F.when(F.col("disk_limit_bytes") > 0, F.col("disk_limit_bytes")).cast("double").alias("limit"),
        F.lit(True).alias("falls"),
        "is_asked",
    )


def _memory(resources: DataFrame) -> DataFrame:
    return resources.select(
        "window",
        F.lit("memory").alias("subject"),
        F.lit("bytes").alias("unit"),
        F.col("memory_used_bytes").cast("double").alias("value"),
        F.col("memory_limit_bytes").cast("double").alias("limit"),
        F.lit(False).alias("falls"),
        "is_asked",
    )


def _clean(r2: Column) -> Column:
    """What rounding leaves outside of 0 to 1."""
    return F.when(~F.isnan(r2), F.greatest(F.lit(0.0), F.least(F.lit(1.0), r2)))

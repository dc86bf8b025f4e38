"""Depth: a queue or stream in a window: how long, how fast, how near its limit, how long saturated or blocked.

Upstream: samples.py, slices.py.  Downstream: forecast.py, the report.
A queue that does nothing has no samples, and no row: it is as long as it was.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.spark.tables.windows import US, floor_us, windowed


def depth(measures: DataFrame, stages: DataFrame, window_s: int) -> DataFrame:
    at = F.struct("us", "offset")
    by_window = (
        measures.filter("kind in ('queue', 'stream') and messages is not null and us >= start_us")
        .groupBy("stage", "window_us")
        .agg(
            F.max("vhost").alias("vhost"),
            F.min("messages").alias("messages_min"),
            F.max("messages").alias("messages_max"),
            F.max_by("messages", at).alias("messages_last"),
            _rate("received_rate"),
            _rate("sent_rate"),
            F.max_by("consumers", at).alias("consumers"),
            F.max_by(F.coalesce("ready", "messages"), at).alias("ready_last"),
            F.max_by("limit_messages", at).alias("limit_messages"),
            F.max_by("ready_bytes", at).alias("ready_bytes_last"),
            F.max_by("limit_bytes", at).alias("limit_bytes"),
        )
    )
    shares = stages.groupBy("stage", floor_us(F.col("slice_us"), window_s).alias("window_us")).agg(
        _share("saturated_us", window_s).alias("saturated_share"), _share("blocked_us", window_s).alias("blocked_share")
    )
    joined = by_window.join(shares, ["stage", "window_us"], "left").withColumns(
        {
            "saturated_share": F.coalesce("saturated_share", F.lit(0.0)),
            "blocked_share": F.coalesce("blocked_share", F.lit(0.0)),
            # Of two limits the one that comes first: the greatest of a value and a null is the value.
            "limit_share": F.greatest(_of("ready_last", "limit_messages"), _of("ready_bytes_last", "limit_bytes")),
        }
    )
    return windowed(joined, "depth")


def _rate(name: str) -> Column:
    """Of all intervals whose sample is in the window, the longer the more."""
    return (F.sum(F.col(name) * F.col("interval_s")) / F.sum("interval_s")).alias(name)


def _of(value: str, limit: str) -> Column:
    return F.when(F.col(limit) > 0, F.col(value) / F.col(limit))


def _share(name: str, window_s: int) -> Column:
    return F.least(F.lit(1.0), F.sum(name) / (window_s * US))

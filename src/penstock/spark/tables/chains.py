"""Chains: who waited for whom in a window, how long, and how long the second was blocked itself meanwhile.

Upstream: slices.py, work.py.  Downstream: verdicts.py, which adds the root of each: the bottleneck behind it.
Not here: what it means (flow/window.py).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.spark.tables.slices import SLICE_S
from penstock.spark.tables.windows import US, floor_us, windowed


def waits(edges: DataFrame, stages: DataFrame, held: DataFrame, work: DataFrame, window_s: int) -> DataFrame:
    """window_us, upstream, downstream, blocked_us, passed_us, blocks, via, busy_us, heaviest, heaviest_us."""
    by_second = stages.select(
        F.col("stage").alias("downstream"), "slice_us", F.col("blocked_us").alias("downstream_us")
    )
    passed = edges.join(by_second, ["downstream", "slice_us"], "left").select(
        "upstream",
        "downstream",
        "slice_us",
        "us",
        F.least(F.col("us"), F.coalesce("downstream_us", F.lit(0.0))).alias("passed"),
        "blocks",
        F.lit(None).cast("string").alias("via"),
    )
    confirms = held.select("upstream", "downstream", "slice_us", "us", F.lit(0.0).alias("passed"), "blocks", "via")
    return (
        passed.unionByName(confirms)
        .groupBy(floor_us(F.col("slice_us"), window_s).alias("window_us"), "upstream", "downstream")
        .agg(
            F.round(F.sum("us")).cast("bigint").alias("blocked_us"),
            F.round(F.sum("passed")).cast("bigint").alias("passed_us"),
            F.sum("blocks").alias("blocks"),
            F.min("via").alias("via"),
        )
        .join(work, ["window_us", "downstream"], "left")
    )


def held_back(stages: DataFrame, held: DataFrame, window_s: int) -> DataFrame:
    """window_us, upstream, blocked_us: how long each connection was blocked or waited for confirms."""
    blocked = stages.filter(F.col("stage").startswith("connection ")).select(
        F.col("stage").alias("upstream"), "slice_us", F.col("blocked_us").alias("us")
    )
    confirms = held.groupBy("upstream", "slice_us").agg(F.least(F.sum("us"), F.lit(float(SLICE_S * US))).alias("us"))
    return (
        blocked.unionByName(confirms)
        .groupBy("upstream", "slice_us")
        .agg(F.max("us").alias("us"))
        .groupBy(floor_us(F.col("slice_us"), window_s).alias("window_us"), "upstream")
        .agg(F.round(F.sum("us")).cast("bigint").alias("blocked_us"))
    )


def chains(judged: DataFrame) -> DataFrame:
    return windowed(judged.filter("role = 'wait'"), "chains")

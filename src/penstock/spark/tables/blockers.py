"""Blockers: what held connections back in a window, the worst first.

Upstream: verdicts.py.  Downstream: the report, the History page.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from penstock.spark.tables.windows import US, windowed


def blockers(judged_: DataFrame, window_s: int) -> DataFrame:
    """What held back most, first. What nobody knows has no name to be ranked by."""
    found = (
        judged_.filter("role = 'verdict' and root is not null")
        .groupBy("window_us", F.col("root").alias("bottleneck"), "cause")
        .agg(
            F.count("*").alias("connections"),
            F.round(F.sum("share") * (window_s * US)).cast("bigint").alias("blocked_us"),
        )
    )
    worst = Window.partitionBy("window_us").orderBy(F.desc("blocked_us"), "bottleneck", "cause")
    return windowed(found.withColumn("rank", F.row_number().over(worst)), "blockers")

"""Work: how long the turns of channels and queues took in a window, and which queue behind a channel took longest.

Upstream: samples.py.  Downstream: chains.py, for the waits of connections for their channels.
Channels and queues share one core and take turns of the same size, so publishers wait before the channel, whoever of
them takes the time. Blocks alone cannot tell the two apart; what turns took can (flow/graph.py has the rule).
Not here: who waited (chains.py).
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.spark.tables.slices import by_second, overlap
from penstock.spark.tables.windows import floor_us

WORKERS = "kind in ('channel', 'queue', 'stream')"


def work(measures: DataFrame, window_s: int) -> DataFrame:
    """window_us, downstream (a channel), busy_us, heaviest (the queue behind it that took longest), heaviest_us."""
    window_us = floor_us(F.col("slice_us"), window_s).alias("window_us")
    seconds = by_second(measures.filter(WORKERS), "busy_rate", "sends_to")
    busy = seconds.groupBy(window_us, "stage").agg(
        F.round(F.sum(overlap() * F.col("busy_rate"))).cast("bigint").alias("busy_us")
    )
    behind = seconds.select(window_us, "stage", F.explode("sends_to").alias("heaviest")).distinct()
    queues = busy.select("window_us", F.col("stage").alias("heaviest"), F.col("busy_us").alias("heaviest_us"))
    took = behind.join(queues, ["window_us", "heaviest"], "left").fillna(0, ["heaviest_us"])
    longest = F.max_by(F.struct("heaviest", "heaviest_us"), F.struct("heaviest_us", "heaviest")).alias("longest")
    return (
        took.groupBy("window_us", "stage")
        .agg(longest)
        .join(busy, ["window_us", "stage"], "left")  # all are there; what an inner join gives, Spark shuffles again
        .select("window_us", F.col("stage").alias("downstream"), "busy_us", "longest.heaviest", "longest.heaviest_us")
    )

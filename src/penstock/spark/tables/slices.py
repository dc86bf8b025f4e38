"""Slices: blocked time by the second, the common ground of chains, verdicts and depth.

Upstream: blocks.py, samples.py.  Downstream: chains.py, depth.py, work.py.
Who waited for whom is compared second by second, as the broker does live: a queue that blocks its channels in one
second and waits for the disk in the next does not pass the one on to the other. Of a block that is longer than the
slice that is derived, only the seconds from `start_us` on are made: every row has it (derive.py:KNOWN).
Not here: sums by window (chains.py).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.spark.tables.blocks import SATURATED
from penstock.spark.tables.windows import US, floor_us

SLICE_S: Final = 1
SAMPLE_GAP_S: Final = 2.5  # a stage is sampled every second, on a busy machine later; no longer than REACH_S


def slices(found: DataFrame, window_s: int) -> DataFrame:
    """stage, cause, slice_us, us (of that second), blocks (that ended in it, or were open at the end of the window)."""
    from_us, to_us = F.col("from_us"), F.col("to_us")
    low = F.col("low")
    cut = (
        found.filter("role <> 'state'")
        .withColumn("low", F.greatest(from_us, F.col("start_us")))
        .withColumn("slice_us", _each_slice(low, to_us))
    )
    share = F.when(to_us > from_us, F.col("weight_us") / (to_us - from_us)).otherwise(0.0)
    slice_us = F.col("slice_us")
    is_end = slice_us == _last(low, to_us)
    goes_on = (F.col("role") == "begin") | (F.col("count") == 1)
    leaves = floor_us(slice_us + SLICE_S * US, window_s) == slice_us + SLICE_S * US
    return cut.select(
        "stage",
        "cause",
        "slice_us",
        (_overlap(low, to_us) * share).alias("us"),
        F.when(is_end, F.col("count")).when(goes_on & leaves, 1).otherwise(0).alias("blocks"),
    )


def edges(cut: DataFrame) -> DataFrame:
    """upstream, downstream, slice_us, us, blocks: names as in the flow snapshot."""
    return (
        cut.filter(F.col("cause") != SATURATED)
        .groupBy("stage", "cause", "slice_us")
        .agg(_capped("us"), F.sum("blocks").alias("blocks"))
        .select(F.col("stage").alias("upstream"), _downstream().alias("downstream"), "slice_us", "us", "blocks")
    )


def stages(cut: DataFrame) -> DataFrame:
    """stage, slice_us, blocked_us, saturated_us: whatever blocked it."""
    is_saturated = F.col("cause") == SATURATED
    return cut.groupBy("stage", "slice_us").agg(
        _capped(F.when(~is_saturated, F.col("us")).otherwise(0.0), "blocked_us"),
        _capped(F.when(is_saturated, F.col("us")).otherwise(0.0), "saturated_us"),
    )


def held(measures: DataFrame) -> DataFrame:
    """Connections that wait for confirms, as edges to the consumers of the queue that holds them; `via` the channel."""
    waiting = by_second(measures.filter("held > 0 and size(held_from) > 0"), "held_from")
    return (
        waiting.withColumn("via", F.explode("held_from"))
        .groupBy(
            _connection(F.col("via")).alias("upstream"),
            F.concat(F.lit("consumers of "), F.col("stage")).alias("downstream"),
            "slice_us",
        )
        .agg(_capped(overlap().cast("double")), F.min("via").alias("via"), F.lit(0).alias("blocks"))
    )


def by_second(measures: DataFrame, *columns: str) -> DataFrame:
    """stage, low, to_us, slice_us, and these: a sample stands for the time since the one before, second by second."""
    us, gap_us = F.col("us"), F.col("us") - F.col("_us")
    is_near = (gap_us > 0) & (gap_us <= int(SAMPLE_GAP_S * US))
    from_us = us - F.when(is_near, gap_us).otherwise(F.lit(SLICE_S * US))
    low = F.greatest(from_us, F.col("start_us")).alias("low")
    spans = measures.filter("us > start_us").select("stage", low, us.alias("to_us"), *columns)
    return spans.withColumn("slice_us", _each_slice(F.col("low"), F.col("to_us")))


def overlap() -> Column:
    """Of rows of `by_second`, how much of it is in their second."""
    return _overlap(F.col("low"), F.col("to_us"))


def _each_slice(low: Column, high: Column) -> Column:
    return F.explode(F.sequence(floor_us(low, SLICE_S), _last(low, high), F.lit(SLICE_S * US)))


def _last(low: Column, high: Column) -> Column:
    """The last second that it touches."""
    return F.greatest(floor_us(low, SLICE_S), floor_us(high - 1, SLICE_S))


def _overlap(low: Column, high: Column) -> Column:
    slice_us = F.col("slice_us")
    return F.greatest(F.lit(0), F.least(high, slice_us + SLICE_S * US) - F.greatest(low, slice_us))


def _capped(us: Column | str, name: str = "us") -> Column:
    """Blocks that overlap, or were spread over their second, do not make it longer."""
    return F.least(F.sum(us), F.lit(float(SLICE_S * US))).alias(name)


def _downstream() -> Column:
    """As flow/state.py names what is no stage."""
    cause = F.col("cause")
    return (
        F.when(cause.rlike("^(memory|disk|store) alarm$"), F.concat(F.lit("alarm "), F.substring_index(cause, " ", 1)))
        .when(cause == "maximum", F.concat(F.lit("consumers of "), F.col("stage")))
        .otherwise(cause)
    )


def _connection(channel: Column) -> Column:
    """A channel's name is its connection's and a number."""
    return F.regexp_replace(F.regexp_replace(channel, r"^channel ", "connection "), r" \(\d+\)$", "")

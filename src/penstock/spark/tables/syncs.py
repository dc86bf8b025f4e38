"""Syncs: what the store's syncs took in a window.

Upstream: events.py.  Downstream: the twin, the report.
Percentiles come from the classes that each `sync` event counts its syncs in, as if those of one class were spread
evenly over it, or over as much of its upper or lower end as makes the mean right. Where a broker does not tell classes,
from the mean and the longest: half of them below the mean, and evenly from there to the longest. That is a guess.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from penstock.spark.tables.windows import floor_us, windowed

# Upper bounds of the classes, in us: those of the store's histogram. Only classes that are not empty are told, so where
# one begins must be known.
BOUNDS_US: Final = (500, 1000, 2500, 5000, 10000, 25000, 50000, 100000, 250000, 500000, 1000000, 2500000)


def syncs(events: DataFrame, window_s: int) -> DataFrame:
    told = events.filter("type = 'sync' and count > 0 and unix_micros(at) >= start_us").dropDuplicates(["offset"])
    by_window = told.groupBy(floor_us(F.unix_micros("at"), window_s).alias("window_us")).agg(
        F.sum("count").alias("count"),
        (F.sum("duration_us") / F.sum("count")).alias("mean_us"),
        F.max("longest_us").alias("longest_us"),
        F.max("pending_messages").alias("pending_messages"),
        F.max("pending_bytes").alias("pending_bytes"),
        F.flatten(F.collect_list(F.map_entries("histogram"))).alias("entries"),
    )
    told_classes = by_window.withColumn("told", F.transform("entries", _class))
    classed = told_classes.withColumn("classes", _merged()).withColumn(
        "classed", F.aggregate("classes", F.lit(0).cast("bigint"), lambda sum_, one: sum_ + one["n"])
    )
    classed = classed.withColumn("part", _part()).withColumn("classes", F.transform("classes", _squeezed))
    percentiles = {f"p{part}_us": _percentile(part / 100) for part in (50, 95, 99)}
    return windowed(classed.withColumns(percentiles), "syncs")


def _class(entry: Column) -> Column:
    """Where it begins and ends, and how many are in it; the last one ends with the longest sync."""
    longest = F.col("longest_us").cast("double")
    upper = F.coalesce(F.try_to_number(entry["key"], F.lit("999999999999")).cast("double"), longest)
    is_last = entry["key"] == "inf"
    bounds = F.array(F.lit(0.0), *[F.lit(float(bound)) for bound in BOUNDS_US])
    below = F.array_max(F.filter(bounds, lambda bound: is_last | (bound < upper)))
    return F.struct(
        below.alias("lower"), F.greatest(below, F.least(upper, longest)).alias("upper"), entry["value"].alias("n")
    )


def _merged() -> Column:
    """Each class once, the lowest first."""

    def whole(lower: Column) -> Column:
        same = F.filter("told", lambda one: one["lower"] == lower)
        n = F.aggregate(same, F.lit(0).cast("bigint"), lambda sum_, one: sum_ + one["n"])
        return F.struct(
            lower.alias("lower"), F.array_max(F.transform(same, lambda one: one["upper"])).alias("upper"), n.alias("n")
        )

    return F.transform(F.array_sort(F.array_distinct(F.transform("told", lambda one: one["lower"]))), whole)


def _part() -> Column:
    """How much of each class to leave out so that the mean is that of all syncs: above 0 of its lower end."""
    nothing = F.lit(0.0)
    middle = F.aggregate("classes", nothing, lambda sum_, one: sum_ + one["n"] * (one["lower"] + one["upper"]) / 2)
    spread = F.aggregate("classes", nothing, lambda sum_, one: sum_ + one["n"] * (one["upper"] - one["lower"]) / 2)
    missing = F.col("mean_us") * F.col("classed") - middle
    return F.when(spread > 0, F.greatest(F.lit(-1.0), F.least(F.lit(1.0), missing / spread))).otherwise(nothing)


def _squeezed(one: Column) -> Column:
    width, part, nothing = one["upper"] - one["lower"], F.col("part"), F.lit(0.0)
    return F.struct(
        (one["lower"] + F.greatest(part, nothing) * width).alias("lower"),
        (one["upper"] + F.least(part, nothing) * width).alias("upper"),
        one["n"].alias("n"),
    )


def _percentile(part: float) -> Column:
    """The value below which this part of all syncs is."""
    wanted = F.col("classed") * part
    start = F.struct(F.lit(0).cast("bigint").alias("seen"), F.lit(0.0).alias("us"))

    def step(so_far: Column, one: Column) -> Column:
        seen = so_far["seen"] + one["n"]
        inside = one["lower"] + (one["upper"] - one["lower"]) * (wanted - so_far["seen"]) / one["n"]
        is_here = (so_far["seen"] < wanted) & (one["n"] > 0)
        return F.struct(
            seen.alias("seen"), F.when(is_here, F.least(inside, one["upper"])).otherwise(so_far["us"]).alias("us")
        )

    by_class = F.aggregate("classes", start, step)["us"]
    mean = F.least(F.col("mean_us"), F.col("longest_us"))
    guess = mean + (F.col("longest_us") - mean) * (2 * part - 1)
    return F.when(F.col("classed") > 0, by_class).otherwise(guess)

"""Blocks: from `blocked` and `unblocked` to intervals: who waited for what, from when to when; and what is open.

Upstream: events.py, and the blocks that were open before (the table `open`).  Downstream: slices.py.
The same is done for queues: `saturated` and `released` are a block with the cause `saturated`, which is in `open`, but
not in `blocks`.

An `unblocked` event says how long the block took, so it is an interval by itself. A `blocked` event is only needed
while its end is not there: it tells the chain, and that the block is open. What ends it, whatever comes first:

| what comes                                        | closed_by | it ended                       |
| ------------------------------------------------- | --------- | ------------------------------ |
| its `unblocked`                                   | unblocked | then                           |
| a sample of the stage that says it is free        | lost      | then: the event was dropped    |
| another `blocked` of the same stage and cause     | lost      | then                           |
| a sum of ends only; it began REACH_S before that  | lost      | a second before the sum        |
| the broker starts again                           | restart   | with the last sign of the stage |
| no sign of the stage for WATERMARK_S              | watermark | with the last sign of the stage |

A sign is any of these events and any sample; a blocked stage has one every second. What is open lasts until the last
sign. Of events of one instant only the sum counts: a second's blocks beyond the first five are told as one `blocked`
and one `unblocked` event at its end, in this order. What has been open since before that second ended first in it, so
its end is none of the sum: it was dropped.
Not here: time per second and window (slices.py).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from penstock.spark.tables.schema import REACH_S, WATERMARK_S
from penstock.spark.tables.windows import US, floor_us, timestamp, windowed

SATURATED: Final = "saturated"
BEGINS: Final = ("blocked", SATURATED)
ENDS: Final = ("unblocked", "released")
SECOND_US: Final = US  # what was summed up was within the last second
NEVER: Final = 2**62
ABOUT: Final = ("messages", "bytes", "chain")  # what is known of a block from its begin
BESIDE: Final = ("start_us", "newest_us")  # the same in all rows: derive.py:KNOWN
SIGN: Final = (
    *("stage", "kind", "cause", "us", "began_us", "offset", "change", "duration_us", "longest_us"),
    *ABOUT,
    *BESIDE,
)


def signs(events: DataFrame, open_: DataFrame) -> DataFrame:
    """Everything that says something of a stage's blocks, from `start_us` on; and what was open then, as begins."""
    fresh = events.withColumn("us", F.unix_micros("at")).filter("stage is not null and us >= start_us")
    type_ = F.col("type")
    told = fresh.filter(type_.isin(*BEGINS, *ENDS, "sample")).select(
        "stage",
        F.coalesce("kind", F.substring_index("stage", " ", 1)).alias("kind"),
        F.when(type_.isin(SATURATED, "released"), F.lit(SATURATED))
        .when(type_ != "sample", F.col("cause"))
        .alias("cause"),
        "us",
        F.col("us").alias("began_us"),
        "offset",
        F.when(type_.isin(*BEGINS), F.coalesce("count", F.lit(1)))
        .when(type_.isin(*ENDS), -F.coalesce("count", F.lit(1)))
        .alias("change"),
        F.coalesce("duration_us", F.lit(0)).alias("duration_us"),
        F.coalesce("longest_us", "duration_us", F.lit(0)).alias("longest_us"),
        *ABOUT,
        *BESIDE,
        "restarts",
        F.when(type_ == "sample", ~F.col("blocked")).alias("is_free"),
        F.when(type_ == "sample", ~F.col("saturated")).alias("is_released"),
    )
    carried = open_.select(
        "stage",
        "kind",
        "cause",
        F.unix_micros("seen_at").alias("us"),
        F.unix_micros("began").alias("began_us"),
        "offset",
        F.lit(1).cast("bigint").alias("change"),
        F.lit(0).cast("bigint").alias("duration_us"),
        F.lit(0).cast("bigint").alias("longest_us"),
        *ABOUT,
        *BESIDE,
        "restarts",
        F.lit(None).cast("boolean").alias("is_free"),
        F.lit(None).cast("boolean").alias("is_released"),
    )
    return told.unionByName(carried)


def states(told: DataFrame) -> DataFrame:
    """Begins and ends of blocks in their order, each with what is open before and behind it, and what may end it."""
    return _states(_bounded(told))


def intervals(keyed: DataFrame) -> DataFrame:
    """What is known of blocks.

    role       `end`: told by its end; `begin`: known by its begin only, closed_by is null if it is open; `state`: by
               its begin, and its end is told in another row: only what was open when comes from it
    from_us, to_us, weight_us    for windows: that time counts with weight_us in all. It never reaches further back than
               what was known when earlier windows were made
    known_us   the sign by which it was known"""
    return _ended(keyed).unionByName(_begun(keyed))


def _bounded(told: DataFrame) -> DataFrame:
    """Each sign once, with what is next in its stage: where it falls silent, and the next sample that tells it free."""
    later = Window.partitionBy("stage").orderBy(F.desc("us"), F.desc("offset"))  # running frames only look back
    so_far = later.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    # A sample of the same instant does not end it, and must not hide the next one.
    behind = Window.partitionBy("stage").orderBy(F.desc("us")).rangeBetween(Window.unboundedPreceding, -1)
    us, next_us = F.col("us"), F.col("_next_us")
    lined = told.withColumns({"_next_us": F.lag("us").over(later), "_next_offset": F.lag("offset").over(later)})
    silent_us = us + WATERMARK_S * US  # from then on it is over, whatever comes later
    until = F.least(F.coalesce(next_us, silent_us), silent_us)
    restarted = F.exists("restarts", lambda at: (at > us) & (at <= until))
    silent = F.coalesce(next_us, F.col("newest_us")) > silent_us
    stop = F.when(restarted, F.lit("restart")).when(silent, F.lit("watermark"))
    is_saturated = F.col("cause") == SATURATED
    free_us = F.when(is_saturated, F.col("_released_us")).otherwise(F.col("_free_us"))
    return (
        lined.withColumns(
            {
                "stop": _next(F.when(stop.isNotNull(), F.struct(us.alias("us"), stop.alias("by")))).over(so_far),
                "_free_us": _next(F.when(F.col("is_free"), us)).over(behind),
                "_released_us": _next(F.when(F.col("is_released"), us)).over(behind),
                "seen_us": F.first("us").over(so_far),
            }
        )
        # What came twice is next to itself.
        .filter("cause is not null and not (_next_us <=> us and _next_offset <=> offset)")
        .select(*SIGN, "stop", free_us.alias("free_us"), "seen_us")
    )


def _next(column: Column) -> Column:
    """In a window that goes from the latest to the first: the nearest one in the frame."""
    return F.last(column, ignorenulls=True)


def _states(keyed: DataFrame) -> DataFrame:
    """Whether a stage waits for this cause behind each event (`turn`: 1 from here on, -1 no more), and before it."""
    instant = Window.partitionBy("stage", "cause", "us")
    order = Window.partitionBy("stage", "cause").orderBy("us", "offset")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    before = order.rowsBetween(Window.unboundedPreceding, -1)
    begin = F.struct("us", "began_us", "offset", "stop", "free_us", "seen_us", *ABOUT)
    is_last = F.coalesce(F.lead("us").over(order) != F.col("us"), F.lit(True))
    return (
        keyed.withColumns(
            {
                "net": F.signum(F.sum("change").over(instant)).cast("int"),
                "is_single": F.bool_or(F.col("change") == -1).over(instant),
                "first_end": F.min(F.when(F.col("change") < 0, F.col("offset"))).over(instant),
            }
        )
        .withColumns(
            {
                "turn": F.when(is_last & (F.col("net") != 0), F.col("net")),
                "begin": F.last(F.when(F.col("change") > 0, begin), ignorenulls=True).over(so_far),
            }
        )
        .withColumns(
            {
                "was": F.last("turn", ignorenulls=True).over(before),
                "opened": F.last(F.when(F.col("turn") == 1, F.col("begin")), ignorenulls=True).over(before),
            }
        )
    )


def _ended(keyed: DataFrame) -> DataFrame:
    """Those that are told by their end."""
    us, duration_us, count, opened = F.col("us"), F.col("duration_us"), -F.col("change"), F.col("opened")
    stopped_us = F.least(opened["stop"]["us"], opened["free_us"])  # of those that are
    reach_us = F.lit(REACH_S * US)
    is_summed = (count > 1) | (F.col("net") >= 0)
    is_other = is_summed & (opened["began_us"] < us - reach_us)
    is_open = _true((F.col("was") == 1) & F.coalesce(stopped_us >= us, F.lit(True)) & ~is_other)
    span_us = F.greatest(F.lit(SECOND_US), F.least(duration_us, reach_us))
    from_us = (
        F.when(is_summed, us - span_us)
        # One block has one end: what is told again may come in a later batch, which changes no windows so far back.
        .when(is_open & (F.col("offset") == F.col("first_end")), opened["began_us"])
        .otherwise(us - F.least(duration_us, reach_us))
    )  # fmt: skip
    now = F.when(F.col("begin")["us"] == us, F.col("begin")["chain"])
    return keyed.filter("change < 0").select(
        "stage",
        "kind",
        "cause",
        F.when(is_summed, us - span_us).otherwise(us - duration_us).alias("began_us"),
        us.alias("ended_us"),
        duration_us.alias("duration_us"),
        F.col("longest_us"),
        count.alias("count"),
        "messages",
        "bytes",
        _chain(now, F.when(is_open, opened["chain"])).alias("chain"),
        F.lit("unblocked").alias("closed_by"),
        "offset",
        F.lit("end").alias("role"),
        from_us.alias("from_us"),
        us.alias("to_us"),
        F.when(is_summed, F.least(duration_us, span_us)).otherwise(us - from_us).alias("weight_us"),
        us.alias("known_us"),
        *BESIDE,
    )


def _begun(keyed: DataFrame) -> DataFrame:
    """Those that are known by their begin, with what ended them first; or nothing yet."""
    order = Window.partitionBy("stage", "cause").orderBy("us", "offset")
    turns = keyed.filter("turn is not null").withColumns(
        {f"next_{name}": F.lead(name).over(order) for name in ("us", "turn", "is_single")}
    )
    begin = F.col("begin")
    began_us = begin["began_us"]
    is_end = _true(F.col("next_turn") == -1)
    is_missed = _true(is_end & ~F.col("next_is_single") & (began_us < F.col("next_us") - REACH_S * US))
    stop_us = F.coalesce(begin["stop"]["us"], F.lit(NEVER))
    free_us = F.coalesce(begin["free_us"], F.lit(NEVER))
    next_us = F.coalesce(F.col("next_us") - F.when(is_missed, SECOND_US).otherwise(0), F.lit(NEVER))
    first_us = F.least(stop_us, free_us, next_us)
    is_told = (next_us == first_us) & is_end & ~is_missed
    closed_by = (
        F.when(first_us == NEVER, F.lit(None))
        .when(is_told, F.lit("unblocked"))
        .when((free_us == first_us) | (next_us == first_us), F.lit("lost"))
        .otherwise(begin["stop"]["by"])
    )
    ended_us = F.when(first_us != NEVER, first_us)
    to_us = F.coalesce(ended_us, begin["seen_us"])
    return turns.filter("turn = 1").select(
        "stage",
        "kind",
        "cause",
        began_us.alias("began_us"),
        ended_us.alias("ended_us"),
        (to_us - began_us).alias("duration_us"),
        (to_us - began_us).alias("longest_us"),
        F.lit(1).cast("bigint").alias("count"),
        begin["messages"].alias("messages"),
        begin["bytes"].alias("bytes"),
        _chain(begin["chain"]).alias("chain"),
        closed_by.alias("closed_by"),
        begin["offset"].alias("offset"),
        F.when(is_told, F.lit("state")).otherwise(F.lit("begin")).alias("role"),
        began_us.alias("from_us"),
        to_us.alias("to_us"),
        (to_us - began_us).alias("weight_us"),
        begin["us"].alias("known_us"),
        *BESIDE,
    )


def _true(condition: Column) -> Column:
    return F.coalesce(condition, F.lit(False))


def _chain(*told: Column) -> Column:
    """Of a chain with nobody in it the last one would be an error."""
    return F.coalesce(*(F.when(F.size(one) > 0, one) for one in told), F.array("stage", "cause"))


def blocks(found: DataFrame, window_s: int) -> DataFrame:
    """Those that are over."""
    over = found.filter("role <> 'state' and closed_by is not null and ended_us >= start_us").filter(
        F.col("cause") != SATURATED
    )
    return windowed(
        over.withColumns(
            {
                "window_us": floor_us(F.col("ended_us"), window_s),
                "began": timestamp(F.col("began_us")),
                "ended": timestamp(F.col("ended_us")),
                "root": F.element_at("chain", -1),
            }
        ),
        "blocks",
    )


def open_blocks(found: DataFrame, told: DataFrame, window_s: int) -> DataFrame:
    """Those that are open at the end of a window, once for each such window, up to that of the newest event."""
    step_us = window_s * US
    first = floor_us(F.greatest("began_us", "start_us"), window_s)
    # It is not open any more at the end of the window in which it ended.
    last = F.coalesce(floor_us(F.col("ended_us"), window_s) - step_us, floor_us(F.col("newest_us"), window_s))
    held = found.filter("role <> 'end'").withColumn(
        "window_us", F.explode(F.when(first <= last, F.sequence(first, last, F.lit(step_us))))
    )
    seen = told.groupBy("stage", floor_us(F.col("us"), window_s).alias("window_us")).agg(F.max("us").alias("seen_us"))
    order = Window.partitionBy("stage", "cause", "offset").orderBy("window_us")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    last_seen = F.coalesce(F.last("seen_us", ignorenulls=True).over(so_far), "known_us")
    return windowed(
        held.join(seen, ["stage", "window_us"], "left").withColumns(
            {
                "seen_at": timestamp(last_seen),
                "began": timestamp(F.col("began_us")),
                "root": F.element_at("chain", -1),
            }
        ),
        "open",
    )

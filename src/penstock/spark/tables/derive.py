"""Derive: all tables but events and quality, of a slice of time or of everything.

Upstream: the job, which knows what was there before.  Downstream: the ledger.
Same in, same out: the rows of a slice are those that a derivation of all events at once would have, because what a
slice needs of the time before it is in `Inputs`: the blocks that were open, a few seconds of events, five minutes of
depth and resources for the trend. A test compares both.
Lazy: nothing runs until the caller asks for rows. What several tables are made of can be kept meanwhile (`keep`).
Not here: reading and writing (spark/ledger/), which events are too late (spark/flowjob.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.spark.tables import blocks as blocks_
from penstock.spark.tables import chains as chains_
from penstock.spark.tables import slices as slices_
from penstock.spark.tables import verdicts as verdicts_
from penstock.spark.tables.depth import depth
from penstock.spark.tables.forecast import forecast
from penstock.spark.tables.resources import resources
from penstock.spark.tables.samples import measured, samples
from penstock.spark.tables.schema import DERIVED, REACH_S
from penstock.spark.tables.syncs import syncs
from penstock.spark.tables.windows import micros, window_start

__all__ = ["Inputs", "Keep", "derive", "reach", "window_start"]


Keep = Callable[[DataFrame], DataFrame]


def as_it_is(frame: DataFrame) -> DataFrame:
    return frame


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything, or what a slice from `start` on needs."""

    events: DataFrame  # from start - LOOKBACK_S on
    open: DataFrame  # the table's rows of the last window before start
    depth: DataFrame  # the table's rows of the FORECAST_S before start
    resources: DataFrame  # the same


def derive(inputs: Inputs, window_s: int, start: datetime | None = None, keep: Keep = as_it_is) -> dict[str, DataFrame]:
    """Tables by name, with the rows of all windows from `start` on; None: of everything.

    `keep` is called with each frame that several tables are made of, and gives the same rows back: what it does is the
    caller's, who knows how many they are (`persist`, or `DataFrame.localCheckpoint`, which also keeps plans short)."""
    start_us = micros(start) if start is not None else None
    events = inputs.events.filter("not late")
    about = keep(facts(events))
    measures = keep(measured(events, window_s))
    signs = blocks_.signs(events, inputs.open, start_us)
    found = keep(blocks_.intervals(keep(blocks_.states(signs, about))))
    cut = slices_.slices(found, window_s, start_us)
    stages = keep(slices_.stages(cut))
    held = slices_.held(measures, start_us)
    judged = keep(
        verdicts_.judged(
            chains_.waits(slices_.edges(cut), stages, held, window_s),
            chains_.held_back(stages, held, window_s),
            window_s,
        )
    )
    depth_ = keep(_since(depth(measures, stages, window_s), start))
    resources_ = keep(_since(resources(events, window_s), start))
    tables = {
        "samples": samples(measures),
        "blocks": blocks_.blocks(found, window_s),
        "open": blocks_.open_blocks(found, signs, about, window_s, start_us),
        "chains": chains_.chains(judged),
        "verdicts": verdicts_.verdicts(judged, verdicts_.clients(measures, window_s)),
        "blockers": verdicts_.blockers(judged, window_s),
        "depth": depth_,
        "syncs": syncs(events, window_s),
        "resources": resources_,
        "forecast": forecast(inputs.depth.unionByName(depth_), inputs.resources.unionByName(resources_), window_s),
    }
    return {name: _since(tables[name], start) for name in DERIVED}


def _since(frame: DataFrame, start: datetime | None) -> DataFrame:
    return frame if start is None else frame.filter(F.col("window") >= F.lit(start))


def facts(events: DataFrame) -> DataFrame:
    """One row of what all blocks depend on: when the newest event was, and when the broker was started."""
    us = F.unix_micros("at")
    return events.agg(
        F.coalesce(F.max(us), F.lit(0)).alias("newest_us"),
        F.sort_array(F.collect_set(F.when(F.col("type") == "recovery", us))).alias("restarts"),
    )


def reach(batch: DataFrame, open_now: DataFrame) -> DataFrame:
    """One row: `oldest`, from which on windows must be derived again for these events; `newest`; and how many they are.

    `open_now` is what is open after all that was derived before: a block may get its end, or turn out to have been over
    since the last sign of its stage."""
    at = F.when(~F.col("late"), F.unix_micros("at"))
    of_events = batch.agg(
        (F.min(at) - REACH_S * 1_000_000).alias("first_us"), F.max(at).alias("newest_us"), F.count("*").alias("events")
    )
    of_open = open_now.agg(F.min(F.unix_micros("seen_at")).alias("seen_us"))
    return of_events.crossJoin(of_open).select(
        F.timestamp_micros(F.least("first_us", "seen_us")).alias("oldest"),
        F.timestamp_micros("newest_us").alias("newest"),
        "events",
    )

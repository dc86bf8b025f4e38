"""Derive: all tables but events and quality, of a slice of time or of everything.

Upstream: the job, which knows what was there before.  Downstream: the ledger.
Same in, same out: the rows of a slice are those that a derivation of all events at once would have, because what a
slice needs of the time before it is in `Inputs`: the blocks that were open, a few seconds of events, some minutes of
depth and resources for the trend. A test compares both.
Lazy: nothing runs until the caller asks for rows. What several tables are made of can be kept meanwhile (`keep`).
What differs from slice to slice is in the rows, never in the plan (`known`): so one plan serves every slice, and who
derives often makes it once (spark/flowjob/plans.py).
Not here: reading and writing (spark/ledger/), which events are too late (spark/flowjob/batch.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from penstock.spark.tables import blocks as blocks_
from penstock.spark.tables import chains as chains_
from penstock.spark.tables import slices as slices_
from penstock.spark.tables import verdicts as verdicts_
from penstock.spark.tables.blockers import blockers
from penstock.spark.tables.depth import depth
from penstock.spark.tables.forecast import forecast
from penstock.spark.tables.resources import resources
from penstock.spark.tables.samples import measured, samples
from penstock.spark.tables.schema import DERIVED
from penstock.spark.tables.syncs import syncs
from penstock.spark.tables.windows import micros
from penstock.spark.tables.work import work

Keep = Callable[[DataFrame], DataFrame]
# What every row of events and open has beside it, the same in all: where the slice begins (0: at the beginning), when
# the newest event was, and when the broker was started.
KNOWN: Final = StructType(
    [
        StructField("start_us", LongType()),
        StructField("newest_us", LongType()),
        StructField("restarts", ArrayType(LongType())),
    ]
)


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything, or what a slice from `start` on needs."""

    events: DataFrame  # from start - LOOKBACK_S on
    open: DataFrame  # the table's rows of the last window before start
    depth: DataFrame  # the table's rows of the trend_s before start
    resources: DataFrame  # the same


def derive(inputs: Inputs, window_s: int, start: datetime | None, keep: Keep) -> dict[str, DataFrame]:
    """Tables by name, with the rows of all windows from `start` on; None: of everything.

    `keep` is called with each frame that several tables are made of, and gives the same rows back: what it does is the
    caller's, who knows how many they are (`persist`, or `DataFrame.localCheckpoint`, which also keeps plans short)."""
    beside = F.broadcast(keep(known(inputs.events, start)))
    inputs = replace(inputs, events=inputs.events.crossJoin(beside), open=inputs.open.crossJoin(beside))
    return derive_known(inputs, window_s, keep)


def known(events: DataFrame, start: datetime | None) -> DataFrame:
    """The one row of KNOWN."""
    us = F.unix_micros("at")
    return events.filter("not late").agg(
        F.lit(micros(start) if start is not None else 0).cast("bigint").alias("start_us"),
        F.coalesce(F.max(us), F.lit(0)).alias("newest_us"),
        F.sort_array(F.collect_set(F.when(F.col("type") == "recovery", us))).alias("restarts"),
    )


def derive_known(inputs: Inputs, window_s: int, keep: Keep) -> dict[str, DataFrame]:
    """The same, where the rows of events and open have the columns of KNOWN."""
    events = inputs.events.filter("not late")
    measures = keep(measured(events, window_s))
    signs = blocks_.signs(events, inputs.open)
    found = keep(blocks_.intervals(keep(blocks_.states(signs))))
    cut = slices_.slices(found, window_s)
    stages = keep(slices_.stages(cut))
    held = slices_.held(measures)
    judged = keep(
        verdicts_.judged(
            chains_.waits(slices_.edges(cut), stages, held, work(measures, window_s), window_s),
            chains_.held_back(stages, held, window_s),
            window_s,
        )
    )
    depth_ = keep(depth(measures, stages, window_s))
    resources_ = keep(resources(events, window_s))
    tables = {
        "samples": samples(measures),
        "blocks": blocks_.blocks(found, window_s),
        "open": blocks_.open_blocks(found, signs, window_s),
        "chains": chains_.chains(judged),
        "verdicts": verdicts_.verdicts(judged, verdicts_.clients(measures, window_s)),
        "blockers": blockers(judged, window_s),
        "depth": depth_,
        "syncs": syncs(events, window_s),
        "resources": resources_,
        "forecast": forecast(_lately(inputs.depth, depth_), _lately(inputs.resources, resources_), window_s),
    }
    return {name: tables[name] for name in DERIVED}


def _lately(before: DataFrame, now: DataFrame) -> DataFrame:
    return before.withColumn("is_asked", F.lit(False)).unionByName(now.withColumn("is_asked", F.lit(True)))

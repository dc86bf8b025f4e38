"""Random histories, batch by batch as the job takes them: the tables are those that all their events at once make.

Events come late and twice, are dropped, stages vanish, the broker is killed (histories.py); what the job holds in
memory is forgotten now and then, and small files are merged. One history in a usual run; SLICES_ROUNDS=300 is the long
proof, `make random` has another one each time. SLICES_SEED repeats one: a failure says its number.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from penstock.spark.flowjob.batch import FlowBatch
from penstock.spark.flowjob.own import small_session
from penstock.spark.flowjob.plans import Prepared
from penstock.spark.flowjob.recent import shaped
from penstock.spark.ledger import Ledger
from penstock.spark.ledger.compact import compact
from penstock.spark.tables.schema import LATE_MAX_S, WATERMARK_S
from tests.chance import seed_of
from tests.spark.pipeline.derivation import at_once
from tests.spark.pipeline.flowsite import derived_rows, differences, rows_of
from tests.spark.pipeline.histories import EPOCH_US, SECOND, History

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS: Final = int(os.environ.get("SLICES_ROUNDS", "1"))
SEED: Final = seed_of("SLICES_SEED")
SECONDS: Final = (20, 150)  # of a history
WINDOWS_S: Final = (1, 10, 60)
BATCHES_MAX: Final = 6


class Given:
    """Plans for batches whose rows are events already. What rules find in them is for other tests."""

    def __init__(self, plans: Prepared) -> None:
        self.derive = plans.derive

    def parse(self, rows: pa.Table) -> pa.Table:
        return rows

    def check(self, tables: object) -> dict[str, pa.Table]:
        return {"events": shaped(pa.table({}), "quality")}


class Rounds:
    """One after the other, in one session."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.spark = small_session(spark)
        self.directory = directory
        self.plans: dict[int, Prepared] = {}  # by the length of windows

    def play(self, seed: int) -> str:
        """What is different; empty: nothing."""
        dice = Random(seed)
        window_s = dice.choice(WINDOWS_S)
        if window_s not in self.plans:
            self.plans[window_s] = Prepared(self.spark, self.directory / f"slots{window_s}", window_s)
        plans = self.plans[window_s]
        bodies = [(offset, None, body) for offset, body in enumerate(bodies_of(seed, dice))]
        source = self.spark.createDataFrame(bodies, "offset bigint, timestamp timestamp, body binary")
        with Ledger(self.directory / str(seed)).writing() as ledger:
            batch = FlowBatch(self.spark, ledger, window_s)
            batch._made = Given(plans)
            for number, part in enumerate(cut(plans.parse(source), dice)):
                done = batch.process(part, number, "query")
                if dice.random() < 0.3:
                    batch.forget()
                if dice.random() < 0.3 and done.newest is not None:
                    compact(ledger, done.newest - timedelta(seconds=WATERMARK_S), set(), files_min=2)
            whole = {name: rows_of(rows) for name, rows in at_once(plans, ledger.arrow("events")).items()}
        assert whole["samples"]
        return differences(whole, derived_rows(self.directory / str(seed)))


def bodies_of(seed: int, dice: Random) -> list[bytearray]:
    """As they are published. All within what may come late: beyond that, the stream and a rebuild differ."""
    history = History(seed, dice.randrange(*SECONDS))
    last_us = EPOCH_US + (LATE_MAX_S - 1) * SECOND
    history.events = [event for event in history.events if event["at_us"] < last_us]
    return [body for _, body in history.muddled()]


def cut(events: pa.Table, dice: Random) -> list[pa.Table]:
    """In batches; some are of a few events."""
    ends = sorted(dice.sample(range(1, events.num_rows), dice.randrange(1, BATCHES_MAX)))
    return [events.slice(begin, end - begin) for begin, end in zip([0, *ends], [*ends, events.num_rows], strict=True)]


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_random_histories_batch_by_batch_make_the_tables_that_all_events_at_once_make(
    spark: SparkSession, tmp_path: Path
):
    rounds = Rounds(spark, tmp_path)
    for seed in range(SEED, SEED + ROUNDS):
        assert not rounds.play(seed), f"SLICES_SEED={seed}"

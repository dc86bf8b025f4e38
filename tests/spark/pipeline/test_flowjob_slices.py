"""Random histories, batch by batch as the job takes them: the tables are those that all their events at once make.

Events come late and twice, are dropped, stages vanish, the broker is killed (histories.py); what the job holds in
memory is forgotten now and then, and small files are merged. One history in a usual run; SLICES_ROUNDS=300 is the long
proof, `make random` has another one each time. SLICES_SEED repeats one: a failure says its number.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pytest

from penstock.spark.flowjob.batch import NEWEST, FlowBatch
from penstock.spark.flowjob.own import small_session
from penstock.spark.flowjob.plans import Prepared
from penstock.spark.flowjob.recent import between, shaped
from penstock.spark.ledger import Ledger
from penstock.spark.ledger.compact import compact
from penstock.spark.ledger.manifest import moment
from penstock.spark.tables.schema import LATE_MAX_S, WATERMARK_S
from penstock.spark.tables.windows import window_start
from tests.chance import seed_of
from tests.spark.pipeline.derivation import at_once
from tests.spark.pipeline.flowsite import derived_rows, differences, rows_of
from tests.spark.pipeline.histories import EPOCH_US, SECOND, Event, History, channel, connection, encode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS: Final = int(os.environ.get("SLICES_ROUNDS", "1"))
SEED: Final = seed_of("SLICES_SEED")
SECONDS: Final = (20, 150)  # of a history
WINDOWS_S: Final = (1, 10, 60)
BATCHES_MAX: Final = 6
STORY_WINDOW_S: Final = 10


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

    def plans_of(self, window_s: int) -> Prepared:
        if window_s not in self.plans:
            self.plans[window_s] = Prepared(self.spark, self.directory / f"slots{window_s}", window_s)
        return self.plans[window_s]

    def parsed(self, bodies: Sequence[bytearray], window_s: int) -> pa.Table:
        rows = [(offset, None, body) for offset, body in enumerate(bodies)]
        source = self.spark.createDataFrame(rows, "offset bigint, timestamp timestamp, body binary")
        return self.plans_of(window_s).parse(source)

    def play(self, seed: int) -> str:
        """What is different; empty: nothing."""
        dice = Random(seed)
        window_s = dice.choice(WINDOWS_S)
        plans = self.plans_of(window_s)
        events = self.parsed(bodies_of(seed, dice), window_s)
        with Ledger(self.directory / str(seed)).writing() as ledger:
            batch = FlowBatch(self.spark, ledger, window_s)
            batch._made = Given(plans)
            for number, part in enumerate(cut(events, dice)):
                done = batch.process(part, number, "query")
                if dice.random() < 0.3:
                    batch.forget()
                if dice.random() < 0.3 and done.newest is not None:
                    compact(ledger, done.newest - timedelta(seconds=WATERMARK_S), set(), files_min=2)
            whole = {name: rows_of(rows) for name, rows in at_once(plans, ledger.arrow("events")).items()}
        assert whole["samples"]
        return differences(whole, derived_rows(self.directory / str(seed)))

    def tell(self, name: str, *batches: list[Event]) -> tuple[Ledger, dict[str, pa.Table]]:
        """The tables of a story in these batches; and those that all its events at once make."""
        plans = self.plans_of(STORY_WINDOW_S)
        events = self.parsed([encode(event) for batch in batches for event in batch], STORY_WINDOW_S)
        with Ledger(self.directory / name).writing() as ledger:
            batch = FlowBatch(self.spark, ledger, STORY_WINDOW_S)
            batch._made = Given(plans)
            begin = 0
            for number, told in enumerate(batches):
                batch.process(events.slice(begin, len(told)), number, "query")
                begin += len(told)
        return ledger, at_once(plans, ledger.arrow("events"))


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


@pytest.fixture(scope="module")
def rounds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Rounds:
    return Rounds(spark, tmp_path_factory.mktemp("rounds"))


@pytest.mark.timeout(300 + 60 * ROUNDS)
def test_random_histories_batch_by_batch_make_the_tables_that_all_events_at_once_make(rounds: Rounds):
    for seed in range(SEED, SEED + ROUNDS):
        assert not rounds.play(seed), f"SLICES_SEED={seed}"


def event(type_: str, second: float, **fields: object) -> Event:
    return {"v": 1, "type": type_, "at_us": EPOCH_US + round(second * SECOND), **fields}


def resources(*seconds: float) -> list[Event]:
    return [event("resources", second, connections=1, channels=1, queues=1) for second in seconds]


def blocked_until(second: int) -> list[Event]:
    """One that is blocked from the beginning on, and its samples: the last is of then."""
    about = {"stage": connection(1), "kind": "connection"}
    begin = event("blocked", 0, **about, cause=channel(1), chain=[connection(1), channel(1)], count=1)
    return [begin, *[event("sample", one, **about, blocked=True, blocks=1) for one in range(1, second + 1)]]


@pytest.mark.parametrize(
    ("ending", "closed_by"),
    [(resources(*range(11, 130)), "watermark"), ([event("recovery", 45), *resources(46, 50)], "restart")],
    ids=["silence", "restart"],
)
@pytest.mark.parametrize("late_s", [15, 40, 59])
def test_a_late_sign_of_a_stage_whose_block_was_over_keeps_it_open_as_all_events_at_once_do(
    rounds: Rounds, ending: list[Event], closed_by: str, late_s: int
):
    *before, late = blocked_until(11)
    late["at_us"] = EPOCH_US + late_s * SECOND
    ledger, whole = rounds.tell(f"{closed_by}-{late_s}", before + ending, [late, *resources(131)])
    made = derived_rows(ledger.root)
    assert not differences({name: rows_of(rows) for name, rows in whole.items()}, made)
    (block,) = ledger.arrow("blocks").to_pylist()
    # A sign behind the restart is of another life.
    ended_s = late_s if late_s < 45 or closed_by == "watermark" else 10
    assert (block["closed_by"], block["duration_us"]) == (closed_by, ended_s * SECOND)


def test_a_clock_that_goes_back_in_the_middle_of_a_batch_makes_nothing_late_and_a_rebuild_has_both_times(
    rounds: Rounds,
):
    back_s = -1800
    after = resources(*range(back_s, back_s + 25))
    across = [*resources(*range(20, 26)), *after]
    ledger, whole = rounds.tell("back", resources(*range(20)), across, resources(back_s + 25))
    assert not any(ledger.arrow("events")["late"].to_pylist())
    assert ledger.manifest().marks[NEWEST] == EPOCH_US + (back_s + 25) * SECOND
    windows = ledger.arrow("resources")["window"].to_pylist()
    assert max(windows) == window_start(moment(EPOCH_US + (back_s + 25) * SECOND), STORY_WINDOW_S), "later ones go"
    of_new_time = between(whole["resources"], None, max(windows) + timedelta(seconds=1))
    assert rows_of(of_new_time) == rows_of(ledger.arrow("resources"))
    assert len(set(whole["resources"]["window"].to_pylist()) - set(windows)) == 3, "those before the clock went back"

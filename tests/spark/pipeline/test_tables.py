"""What the tables say of events with known truth: every way a block ends, shares of windows, verdicts, trends.

All cases are in one history, each with stages of its own; it is derived once. Before them is a history that is made up
by a seed (histories.py): blocks that flap and that last, events that are dropped, come twice or late, stages that
vanish, a broker that is killed. Of that only is known that slice by slice it must give the same as in one go.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.spark.flowjob.own import small_session
from penstock.spark.flowjob.plans import Prepared
from tests.chance import seed_of
from tests.spark.pipeline.derivation import Row, Slices, Tables, everything, frame, parsed, small
from tests.spark.pipeline.histories import EPOCH_US, SECOND, Event, History, channel, connection, encode, kind
from tests.unit.test_documents import section, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = section((Path(__file__).parents[3] / "docs" / "spark.md").read_text("utf-8"), "The flow pipeline")
T0 = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=EPOCH_US)
SEED = seed_of("SLICES_SEED")
SCRIPT = 5_000  # the offset of the first event that is written by hand
MANY = 300
LATE = 10_000  # the offset of an event that came too late


def at(second: float) -> datetime:
    return T0 + timedelta(seconds=second)


class Script:
    """A history written by hand; times are seconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def put(self, type_: str, second: float, **fields: Any) -> None:
        self.events.append({"v": 1, "type": type_, "at_us": EPOCH_US + round(second * SECOND), **fields})

    def blocked(self, second: float, stage: str, cause: str, count: int = 1, chain: tuple[str, ...] = ()) -> None:
        whole = [stage, *(chain or (cause,))]
        self.put(
            "blocked", second, stage=stage, kind=kind(stage), cause=cause, chain=whole, messages=4, bytes=40,
            count=count,
        )  # fmt: skip

    def unblocked(self, second: float, stage: str, cause: str, took: float, count: int = 1) -> None:
        us = round(took * SECOND)
        self.put(
            "unblocked", second, stage=stage, kind=kind(stage), cause=cause, messages=4, bytes=40, count=count,
            duration_us=us, longest_us=us // count,
        )  # fmt: skip

    def sample(self, second: float, stage: str, blocked: bool, **fields: Any) -> None:
        counts = {"mailbox": 0, "blocks": 0, "blocked_us": 0, "received": 0, "sent": 0}
        self.put("sample", second, stage=stage, kind=kind(stage), blocked=blocked, **{**counts, **fields})

    def span(self, began: float, ended: float, stage: str, cause: str) -> None:
        """A block with both its ends."""
        self.blocked(began, stage, cause)
        self.unblocked(ended, stage, cause, ended - began)


def missed() -> list[Event]:
    """The end of a long block is dropped, and later there are so many that they are summed up."""
    it = Script()
    it.blocked(105, "queue missed", "store")
    it.sample(119, "queue missed", blocked=True)
    it.unblocked(131, "queue missed", "store", 0.5, 25)
    return it.events


def crowd() -> list[Event]:
    """More stages are blocked than there is room for samples of: each has its turn, here every 30 seconds."""
    it = Script()
    stages = [f"queue many {number}" for number in range(MANY)]
    for stage in stages:
        it.blocked(205, stage, "store")
    for number in range(8 * MANY // 3):
        it.sample(206 + number * 30 / MANY, stages[number % MANY], blocked=True)
    for stage in stages:
        it.unblocked(290, stage, "store", 85)
    return it.events


def script() -> list[Event]:
    it = Script()
    it.span(1, 3.5, "queue told", "store")
    it.blocked(2, "queue summed", "store", 30, ("store",))
    it.unblocked(2, "queue summed", "store", 0.4, 30)
    nobody = {"stage": "queue alone", "kind": "queue", "cause": "store", "chain": [], "messages": 4, "bytes": 40}
    it.put("blocked", 3, **nobody, count=1)
    it.unblocked(4, "queue alone", "store", 1)
    it.blocked(5, "queue dropped", "store")
    it.sample(6, "queue dropped", blocked=True)
    it.sample(8, "queue dropped", blocked=False)
    it.blocked(5, "queue sampled", "store")
    it.sample(5, "queue sampled", blocked=False)
    it.sample(7, "queue sampled", blocked=False)
    it.blocked(5, "queue again", "store")
    it.span(9, 10, "queue again", "store")
    it.events += missed()
    it.blocked(20, "queue silent", "store")
    it.sample(25, "queue silent", blocked=True)
    it.unblocked(31, "queue shuffled", "store", 1)  # the later one came first
    it.blocked(30, "queue shuffled", "store", 1, ("queue dead", "store"))
    it.unblocked(50, "queue endless", "store", 30)  # its begin was dropped
    it.span(105, 127, "queue long", "store")
    # A restart: whatever is open is over with the last sign of it.
    it.blocked(195, "queue killed", "store")
    it.sample(199, "queue killed", blocked=True)
    it.put("recovery", 200, clean=False, queues=1, messages=0, scanned_bytes=0, damages=0, cut=True, duration_us=9)
    it.unblocked(203, "queue killed", "store", 1)
    for second, received in ((198, 10), (199, 20), (202, 500), (203, 600)):  # soon more than before
        it.sample(second, "queue reborn", blocked=False, received=received)
    it.events += crowd()
    # Verdicts: one window each.
    for number, (length, stages) in enumerate(
        [
            (8.0, (connection(1), channel(1))),
            (8.0, (connection(1), channel(1), "queue orders")),
            (8.0, (connection(1), channel(1), "queue orders", "store")),
            (8.0, (connection(1), "memory alarm")),
            (0.4, (connection(1), channel(1))),
        ]
    ):
        begin = 300 + 10 * number + 1
        for stage, cause in pairwise(stages):
            it.span(begin, begin + length, stage, cause)
    # Two bottlenecks in one window: the one that holds back most does it for two connections.
    for number, length, stages in (
        (2, 5.0, (channel(2), "queue mail")),
        (3, 6.0, (channel(3), "queue mail")),
        (4, 8.0, (channel(4),)),
    ):
        for stage, cause in pairwise((connection(number), *stages)):
            it.span(351, 351 + length, stage, cause)
    it.sample(302, connection(1), blocked=True, client="shop", user="guest", vhost="/")
    it.put("saturated", 361, stage="queue orders", messages=900, bytes=0)
    for second in range(362, 369):
        number = second - 361
        it.sample(
            second, "queue orders", blocked=False, received=100 * number, sent=50 * number, turns=number,
            busy_us=1000 * number, messages=100 * number, ready=100 * number, limit=1000, consumers=2,
            vhost="/", saturated=True, held=4, held_from=[channel(1)],
        )  # fmt: skip
    it.put("released", 369, stage="queue orders", messages=90, bytes=0, held=4, duration_us=8 * SECOND)
    it.sample(375, "queue orders", blocked=False, received=10, sent=10, messages=10, consumers=1)  # counted anew
    it.put("sync", 380, count=10, duration_us=40_000, longest_us=9_000, pending_messages=3, pending_bytes=30,
           histogram={"2500": 5, "10000": 5})  # fmt: skip
    it.put("sync", 390, count=4, duration_us=4_000, longest_us=3_000, pending_messages=3, pending_bytes=30)
    for window in range(0, 60, 10):
        it.put("resources", window + 5, memory_used_bytes=1000 + 10 * window, memory_limit_bytes=2000,
               disk_free_bytes=500, disk_limit_bytes=600, connections=1, channels=1, queues=1,
               cpu_us=window)  # fmt: skip
    for window, ready, free in ((370, 400, 1000), (380, 450, 900), (390, 650, 800)):
        it.sample(window + 5, "queue filling", blocked=False, messages=ready, ready=ready, limit=1000, consumers=0)
        sizes = {"ready_bytes": 1000 * ready, "limit_bytes": 1_000_000}
        it.sample(window + 5, "queue heavy", blocked=False, messages=ready // 100, consumers=0, **sizes)
        both = {"ready": ready // 100, "limit": 10, **sizes}
        it.sample(window + 5, "queue both", blocked=False, messages=ready // 100, consumers=0, **both)
        it.put("resources", window + 5, memory_used_bytes=1500, memory_limit_bytes=2000, disk_free_bytes=free,
               disk_limit_bytes=600, connections=1, channels=1, queues=1, cpu_us=window)  # fmt: skip
    it.blocked(395, "queue now", "store")
    for second in range(396, 402):
        it.sample(second, "queue now", blocked=True, client=None)
    return it.events


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> pa.Table:
    told = script()
    rows = [(SCRIPT + offset, encode(event)) for offset, event in enumerate(told)]
    rows += [rows[1], rows[-1], rows[len(rows) // 2]]  # twice
    twice = [row for row, event in zip(rows, told, strict=False) if event["type"] in ("sync", "sample", "released")]
    late = [{**event, "stage": "queue late"} for event in told[:2]]
    rows += [*twice, *[(LATE + number, encode(event)) for number, event in enumerate(late)]]
    rows += [(20_000, bytearray(b"no JSON")), (20_001, bytearray(b'{"v":2,"type":"news","at_us":1794835366187086}'))]
    before = History(SEED, 200, begin_us=EPOCH_US - 1000 * SECOND).muddled()  # over before its blocks or trends matter
    with small(spark):
        table = parsed(spark, before + rows, 10)
    is_late = pc.or_(table["late"], pc.is_in(table["offset"], pa.array([LATE, LATE + 1])))
    return table.set_column(table.column_names.index("late"), "late", is_late)


@pytest.fixture(scope="module")
def whole(spark: SparkSession, events: pa.Table) -> Tables:
    with small(spark):
        return everything(spark, events, 10)


@pytest.fixture(scope="module")
def plans(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    return Prepared(small_session(spark), tmp_path_factory.mktemp("slots"), 10)


@pytest.fixture
def tables(whole: Tables) -> Tables:
    """Of what is written by hand."""
    return {name: [row for row in rows if row["window"] >= T0] for name, rows in whole.items()}


def of(rows: list[Row], **wanted: Any) -> list[Row]:
    found = [row for row in rows if all(row[name] == value for name, value in wanted.items())]
    return sorted(found, key=lambda row: str(row.get("window")))


def ends(tables: Tables, stage: str) -> list[tuple[Any, ...]]:
    rows = sorted(of(tables["blocks"], stage=stage), key=lambda row: row["ended"])
    return [(row["began"], row["ended"], row["duration_us"], row["count"], row["closed_by"]) for row in rows]


# Blocks.


def test_a_block_ends_with_its_unblocked_event_which_says_how_long_it_was(tables: Tables):
    assert ends(tables, "queue told") == [(at(1), at(3.5), 2_500_000, 1, "unblocked")]
    (row,) = of(tables["blocks"], stage="queue told")
    assert (row["window"], row["kind"], row["chain"], row["root"]) == (at(0), "queue", ["queue told", "store"], "store")


def test_blocks_that_were_summed_up_are_one_row_of_the_second_before(tables: Tables):
    assert ends(tables, "queue summed") == [(at(1), at(2), 400_000, 30, "unblocked")]
    (chain,) = of(tables["chains"], upstream="queue summed")
    assert (chain["blocked_us"], chain["blocks"]) == (400_000, 30)


def test_a_block_whose_end_was_dropped_is_over_with_the_first_sample_that_says_so(tables: Tables):
    assert ends(tables, "queue dropped") == [(at(5), at(8), 3_000_000, 1, "lost")]
    # One of the same instant does not say it.
    assert ends(tables, "queue sampled") == [(at(5), at(7), 2_000_000, 1, "lost")]


def test_a_block_whose_end_was_dropped_is_over_when_the_stage_is_blocked_again(tables: Tables):
    assert ends(tables, "queue again") == [
        (at(5), at(9), 4_000_000, 1, "lost"),
        (at(9), at(10), 1_000_000, 1, "unblocked"),
    ]


def test_a_block_whose_end_was_dropped_is_over_before_others_that_are_told_as_a_sum(tables: Tables):
    assert ends(tables, "queue missed") == [
        (at(105), at(130), 25_000_000, 1, "lost"),
        (at(130), at(131), 500_000, 25, "unblocked"),
    ]
    waits = of(tables["chains"], upstream="queue missed")
    assert [(row["window"], row["blocked_us"]) for row in waits] == [
        (at(100), 5_000_000),
        (at(110), 10_000_000),
        (at(120), 10_000_000),
        (at(130), 500_000),
    ]
    assert [row["window"] for row in of(tables["open"], stage="queue missed")] == [at(100), at(110), at(120)]


def test_a_chain_with_nobody_in_it_is_that_of_the_stage_and_what_blocked_it(tables: Tables):
    (row,) = of(tables["blocks"], stage="queue alone")
    assert (row["chain"], row["root"]) == (["queue alone", "store"], "store")


def test_a_stage_that_is_silent_for_a_minute_was_free_since_the_last_sign_of_it(tables: Tables):
    assert ends(tables, "queue silent") == [(at(20), at(25), 5_000_000, 1, "watermark")]


def test_a_stage_that_is_seldom_sampled_because_many_are_blocked_stays_blocked(tables: Tables):
    for number in range(MANY):
        assert ends(tables, f"queue many {number}") == [(at(205), at(290), 85_000_000, 1, "unblocked")]
    rows = of(tables["open"], cause="store")
    assert len([row for row in rows if row["stage"].startswith("queue many ")]) == MANY * 9


def test_an_end_that_is_told_again_later_does_not_make_the_block_longer(spark: SparkSession, plans: Prepared):
    it = Script()
    it.span(1.5, 19.5, "queue again", "store")
    it.events += [it.events[1], it.events[1] | {"at_us": EPOCH_US + 30 * SECOND, "stage": "queue other"}]
    whole, slices = Slices(plans, 10), Slices(plans, 10)
    with small(spark):
        events = parsed(spark, [(offset, encode(event)) for offset, event in enumerate(it.events)], 10)
    whole.add(events)
    for number in range(len(it.events)):
        slices.add(events.slice(number, 1))
    same(whole.tables, slices.tables)
    first, _ = of(whole.tables["chains"], upstream="queue again")
    assert first["blocked_us"] == 8_500_000


def test_a_restart_ends_what_is_open_with_the_last_sign_before_it(tables: Tables):
    assert ends(tables, "queue killed") == [
        (at(195), at(199), 4_000_000, 1, "restart"),
        (at(202), at(203), 1_000_000, 1, "unblocked"),
    ]


def test_events_that_come_in_another_order_are_matched_by_their_time(tables: Tables):
    assert ends(tables, "queue shuffled") == [(at(30), at(31), 1_000_000, 1, "unblocked")]
    (row,) = of(tables["blocks"], stage="queue shuffled")
    assert row["chain"] == ["queue shuffled", "queue dead", "store"]


def test_an_event_that_comes_too_late_is_in_no_other_table(tables: Tables):
    assert not [row for rows in tables.values() for row in rows if "queue late" in str(row)]


def test_an_event_that_comes_twice_counts_once(tables: Tables):
    rows = [(row["stage"], row["cause"], row["ended"], row["offset"]) for row in tables["blocks"]]
    assert len(rows) == len(set(rows))
    keys = [(row["stage"], row["at"]) for row in tables["samples"]]
    assert len(keys) == len(set(keys))
    assert [row["count"] for row in sorted(tables["syncs"], key=lambda row: row["window"])] == [10, 4]


def test_a_block_without_a_begin_is_a_row_but_does_not_change_windows_of_long_ago(tables: Tables):
    assert ends(tables, "queue endless") == [(at(20), at(50), 30_000_000, 1, "unblocked")]
    waits = of(tables["chains"], upstream="queue endless")
    assert [(row["window"], row["blocked_us"]) for row in waits] == [(at(40), 3_000_000)]


def test_a_long_block_is_in_every_window_that_it_spans_with_its_part_of_it(tables: Tables):
    waits = of(tables["chains"], upstream="queue long")
    assert [(row["window"], row["blocked_us"], row["blocks"]) for row in waits] == [
        (at(100), 5_000_000, 1),
        (at(110), 10_000_000, 1),
        (at(120), 7_000_000, 1),
    ]
    assert [row["window"] for row in of(tables["open"], stage="queue long")] == [at(100), at(110)]


def test_what_is_open_is_known_at_the_end_of_each_window_with_the_last_sign_of_it(tables: Tables):
    rows = of(tables["open"], stage="queue now")
    assert [(row["window"], row["began"], row["seen_at"]) for row in rows] == [
        (at(390), at(395), at(399)),
        (at(400), at(395), at(401)),
    ]
    assert not of(tables["blocks"], stage="queue now")
    assert [row["blocked_us"] for row in of(tables["chains"], upstream="queue now")] == [5_000_000, 1_000_000]


# Verdicts.


def test_the_verdict_of_a_window_is_the_bottleneck_that_was_at_the_end_of_the_chain(tables: Tables):
    rows = {row["window"]: row for row in of(tables["verdicts"], connection=connection(1))}
    assert [(window, row["cause"], row["bottleneck"]) for window, row in sorted(rows.items())] == [
        (at(300), "channel", channel(1)),
        (at(310), "queue", "queue orders"),
        (at(320), "store", "store"),
        (at(330), "memory", "alarm memory"),
        (at(360), "saturated", "consumers of queue orders"),
    ]
    assert rows[at(320)]["chain"] == [connection(1), channel(1), "queue orders", "store"]
    assert rows[at(320)]["share"] == pytest.approx(0.8)
    assert (rows[at(300)]["client"], rows[at(300)]["user"], rows[at(310)]["client"]) == ("shop", "guest", "shop")
    assert rows[at(330)]["client"] is None  # no sample told it for 10 s
    assert [row["resource"] for _, row in sorted(rows.items())] == ["CPU", "CPU", "disk", "memory", "consumers"]


def test_who_waits_for_confirms_of_a_saturated_queue_waits_for_its_consumers(tables: Tables):
    (row,) = of(tables["chains"], upstream=connection(1), window=at(360))
    assert (row["downstream"], row["root"]) == ("consumers of queue orders", "consumers of queue orders")
    (verdict,) = of(tables["verdicts"], window=at(360))
    assert verdict["chain"] == [connection(1), channel(1), "queue orders", "consumers of queue orders"]
    assert verdict["share"] == pytest.approx(0.7)  # from a second before the first sample on


def test_every_wait_knows_the_bottleneck_behind_it(tables: Tables):
    rows = {row["upstream"]: row for row in of(tables["chains"], window=at(320))}
    assert {row["root"] for row in rows.values()} == {"store"}
    assert rows[connection(1)]["passed_us"] == 8_000_000
    assert rows["queue orders"]["passed_us"] == 0


def test_what_held_back_most_is_ranked_first(tables: Tables):
    rows = sorted(of(tables["blockers"], window=at(350)), key=lambda row: row["rank"])
    assert [(row["rank"], row["bottleneck"], row["connections"], row["blocked_us"]) for row in rows] == [
        (1, "queue mail", 2, 11_000_000),
        (2, channel(4), 1, 8_000_000),
    ]
    (row,) = of(tables["blockers"], window=at(330))
    assert (row["bottleneck"], row["connections"], row["blocked_us"], row["rank"]) == ("alarm memory", 1, 8_000_000, 1)


# Samples, depth, syncs, resources, forecasts.


def test_rates_are_between_two_samples_unless_counters_went_back(tables: Tables):
    rows = sorted(of(tables["samples"], stage="queue orders"), key=lambda row: row["at"])
    assert rows[0]["received_rate"] is None
    assert [row["received_rate"] for row in rows[1:7]] == [100.0] * 6
    assert (rows[1]["service_us"], rows[1]["batch"], rows[1]["interval_s"]) == (10.0, 100.0, 1.0)
    assert rows[7]["interval_s"] is None
    assert rows[7]["received_rate"] is None


def test_there_is_no_rate_over_a_restart_though_counters_went_up(tables: Tables):
    rows = sorted(of(tables["samples"], stage="queue reborn"), key=lambda row: row["at"])
    assert [row["interval_s"] for row in rows] == [None, 1.0, None, 1.0]
    assert [row["received_rate"] for row in rows] == [None, 10.0, None, 100.0]


def test_a_queues_window_has_its_length_its_rates_and_how_near_its_limit_it_is(tables: Tables):
    row = of(tables["depth"], stage="queue orders", window=at(360))[0]
    assert (row["messages_min"], row["messages_max"], row["messages_last"]) == (100, 700, 700)
    assert (row["received_rate"], row["sent_rate"], row["consumers"]) == (100.0, 50.0, 2)
    assert (row["limit_messages"], row["ready_last"], row["limit_share"]) == (1000, 700, 0.7)
    assert row["saturated_share"] == pytest.approx(0.8)
    assert row["blocked_share"] == 0.0


def test_percentiles_of_syncs_are_interpolated_within_their_classes_or_guessed_without(tables: Tables):
    classed, guessed = sorted(tables["syncs"], key=lambda row: row["window"])
    # Spread over their classes they would have a mean of 4375: 3/11 of each class, at its upper end, stays empty.
    found = (classed["mean_us"], classed["p50_us"], classed["p95_us"])
    assert found == pytest.approx((4000, 2500 - 1500 * 3 / 11, 5000 + 0.9 * 4000 * 8 / 11))
    assert classed["p99_us"] <= classed["longest_us"] == 9000
    assert (guessed["mean_us"], guessed["p50_us"], guessed["p95_us"]) == (1000.0, 1000.0, pytest.approx(2800))


def test_a_straight_trend_says_when_the_limit_is_hit(tables: Tables):
    rows = [row for row in of(tables["forecast"], subject="memory") if row["window"] < at(100)]
    assert [row["window"] for row in rows] == [at(20), at(30), at(40), at(50)]
    last = rows[-1]
    assert (last["value"], last["limit"], last["slope_per_s"]) == (1500.0, 2000.0, pytest.approx(10.0))
    assert last["r2"] == pytest.approx(1.0)
    assert last["in_s"] == pytest.approx(50.0)
    assert last["hits_at"] == at(60 + 50)
    assert last["over_s"] == 60.0
    (disk,) = of(tables["forecast"], subject="disk", window=at(50))
    assert (disk["in_s"], disk["hits_at"], disk["slope_per_s"]) == (0.0, at(60), 0.0)  # it is below already


def test_a_queue_that_grows_is_at_its_limit_when_the_line_through_its_windows_is(tables: Tables):
    (row,) = of(tables["forecast"], subject="queue filling")  # two windows are no trend
    # 400, 450 and 650 at 0, 10 and 20 s: (100 * 10 + 150 * 10) / (10 * 10 + 10 * 10) = 12.5 a second.
    assert (row["window"], row["value"], row["limit"], row["over_s"]) == (at(390), 650.0, 1000.0, 30.0)
    assert row["slope_per_s"] == pytest.approx(12.5)
    assert row["r2"] == pytest.approx(2500**2 / (200 * 35_000))
    assert row["in_s"] == pytest.approx(28.0)
    assert row["hits_at"] == at(400 + 28)


def test_a_queue_that_is_limited_by_bytes_is_at_its_limit_when_these_are(tables: Tables):
    (row,) = of(tables["forecast"], subject="queue heavy")
    assert (row["unit"], row["window"], row["value"], row["limit"]) == ("bytes", at(390), 650_000.0, 1_000_000.0)
    assert (row["slope_per_s"], row["in_s"]) == (pytest.approx(12_500.0), pytest.approx(28.0))
    assert row["hits_at"] == at(400 + 28)
    last = of(tables["depth"], stage="queue heavy")[-1]
    assert (last["ready_bytes_last"], last["limit_bytes"], last["limit_share"]) == (650_000, 1_000_000, 0.65)
    assert last["limit_messages"] is None


def test_a_queue_with_two_limits_has_a_forecast_for_each_and_is_as_near_as_to_the_nearer(tables: Tables):
    rows = {row["unit"]: row for row in of(tables["forecast"], subject="queue both")}
    found = {unit: (row["value"], row["limit"], row["slope_per_s"]) for unit, row in rows.items()}
    assert found == {
        "messages": (6.0, 10.0, pytest.approx(0.1)),
        "bytes": (650_000.0, 1_000_000.0, pytest.approx(12_500.0)),
    }
    assert of(tables["depth"], stage="queue both")[-1]["limit_share"] == 0.65
    units = {row["subject"]: row["unit"] for row in tables["forecast"] if row["subject"] != "queue both"}
    assert units == {"queue filling": "messages", "queue heavy": "bytes", "disk": "bytes", "memory": "bytes"}


def test_a_disk_that_fills_is_at_its_limit_when_the_line_through_its_windows_is(tables: Tables):
    (row,) = of(tables["forecast"], subject="disk", window=at(390))
    assert (row["value"], row["limit"], row["slope_per_s"]) == (800.0, 600.0, pytest.approx(-10.0))
    assert row["in_s"] == pytest.approx(20.0)
    assert row["hits_at"] == at(400 + 20)
    (memory,) = of(tables["forecast"], subject="memory", window=at(390))
    # It does not grow, and no line fits better than another.
    found = (memory["slope_per_s"], memory["in_s"], memory["hits_at"], memory["r2"])
    assert found == (0.0, None, None, None)


def test_windows_of_ten_minutes_have_forecasts_too_slice_by_slice(spark: SparkSession, tmp_path: Path):
    it = Script()
    for number in range(6):
        it.put("resources", 600 * number + 300, memory_used_bytes=1000 + 600 * number, memory_limit_bytes=10_000,
               connections=1, channels=1, queues=1)  # fmt: skip
    rows = [(offset, encode(event)) for offset, event in enumerate(it.events)]
    plans = Prepared(small_session(spark), tmp_path, 600)
    whole, slices = Slices(plans, 600), Slices(plans, 600)
    with small(spark):
        events = parsed(spark, rows, 600)
    whole.add(events)
    for number in range(6):
        slices.add(events.slice(number, 1))
    same(whole.tables, slices.tables)
    found = sorted(whole.tables["forecast"], key=lambda row: row["window"])
    told = plans.check(whole.made)
    assert [(row["slope_per_s"], row["over_s"]) for row in found] == [(pytest.approx(1.0), 1800.0)] * 4
    assert found[-1]["in_s"] == pytest.approx(6000.0)
    assert {row["failures"] for row in told["forecast"].to_pylist()} == {0}


def test_a_window_has_the_last_of_what_the_broker_used(tables: Tables):
    row = of(tables["resources"], window=at(20))[0]
    assert (row["at"], row["memory_used_bytes"], row["cpu_us"]) == (at(25), 1200, 20)


# Events and quality.


def test_every_field_of_an_event_is_a_column_and_what_is_no_event_is_kept(events: pa.Table):
    rows = {row["offset"]: row for row in events.to_pylist() if row["offset"] >= SCRIPT}
    first = rows[SCRIPT]
    assert (first["type"], first["at"], first["chain"]) == ("blocked", at(1), ["queue told", "store"])
    assert (first["window"], first["day"]) == (at(0), T0.date())
    broken = rows[20_000]
    assert (broken["body"], broken["type"], broken["late"]) == ("no JSON", None, True)
    sync = next(row for row in rows.values() if row["type"] == "sync")
    assert dict(sync["histogram"]) == {"2500": 5, "10000": 5}
    limited = next(row for row in rows.values() if row["limit_messages"] is not None)
    assert (limited["limit_messages"], limited["held_from"]) == (1000, [channel(1)])


def test_failures_of_quality_are_counted_by_rule_with_an_example(spark: SparkSession, events: pa.Table, tables: Tables):
    from penstock.spark.flowjob.gathered import gathered
    from penstock.spark.tables.quality import RULES, checks

    bad = {**of(tables["blocks"], stage="queue told")[0], "ended": at(-5), "closed_by": "lost"}
    twice = of(tables["verdicts"], window=at(300))[0]
    with small(spark):
        told = frame(spark, events.filter(pc.greater_equal(events["offset"], SCRIPT)), "events")
        found = gathered(
            {
                "events": checks("events", told, 10),
                "blocks": checks("blocks", frame(spark, [*tables["blocks"], bad], "blocks"), 10),
                "verdicts": checks("verdicts", frame(spark, [*tables["verdicts"], twice], "verdicts"), 10),
                **{
                    name: checks(name, frame(spark, rows, name), 10)
                    for name, rows in tables.items()
                    if name not in ("blocks", "verdicts")
                },
            }
        )
    rows = [row for table in found.values() for row in table.to_pylist()]
    failed: dict[tuple[str, str], int] = {}
    for row in rows:
        key = row["table"], row["rule"]
        failed[key] = failed.get(key, 0) + row["failures"]
        assert (row["failures"] > 0) == (row["example"] is not None), row
    assert {table for table, _ in failed} == set(RULES)
    assert failed["events", "it is an event: JSON with a type and a time"] == 1
    assert failed["events", "its version is 1"] == 2
    assert failed["events", "it is not late"] == 3
    again = events["offset"].to_pylist()
    again = [offset for offset in again if offset >= SCRIPT]
    assert failed["events", "its offset is there once"] == len(again) - len(set(again)) > 0
    assert failed["blocks", "it ends when it began or later"] == 1
    assert failed["blocks", "its end was told"] == 7
    others = {key: count for key, count in failed.items() if count and key[0] not in ("events", "blocks")}
    assert others == {
        ("verdicts", "client is known"): 6,
        ("verdicts", "a connection has one in a window"): 1,
    }
    (doubled,) = [
        row
        for row in found["verdicts"].to_pylist()
        if row["rule"] == "a connection has one in a window" and row["failures"]
    ]
    assert json.loads(doubled["example"]) == {"connection": connection(1)}


# Slices.


def plain(row: Row) -> tuple[Any, ...]:
    """Comparable: numbers may differ by what adding them in another order makes of them."""
    return tuple(
        (name, f"{value:.6g}" if isinstance(value, float) else str(value)) for name, value in sorted(row.items())
    )


def same(whole: Tables, slices: Tables) -> None:
    for name, rows in whole.items():
        in_one = {plain(row) for row in rows}
        in_slices = {plain(row) for row in slices[name]}
        assert (len(rows), len(slices[name])) == (len(in_one), len(in_slices)), name
        missing, extra = sorted(in_one - in_slices), sorted(in_slices - in_one)
        assert (missing[:3], extra[:3]) == ([], []), (name, len(missing), len(extra))


def test_slice_by_slice_gives_the_same_rows_as_everything_at_once(plans: Prepared, events: pa.Table, whole: Tables):
    slices = Slices(plans, 10)
    print(f"SLICES_SEED={SEED}")
    cut = Random(SEED).randrange(events.num_rows // 3, 2 * events.num_rows // 3)
    slices.add(events.slice(0, cut))
    slices.add(events.slice(cut))
    assert {row["closed_by"] for row in whole["blocks"]} == {"unblocked", "lost", "restart", "watermark"}
    assert all(whole.values())
    same(whole, slices.tables)


def test_a_block_that_was_open_when_a_slice_ended_counts_though_its_end_was_dropped(
    spark: SparkSession, plans: Prepared
):
    whole, slices = Slices(plans, 10), Slices(plans, 10)
    with small(spark):
        events = parsed(spark, [(offset, encode(event)) for offset, event in enumerate(missed())], 10)
    whole.add(events)
    slices.add(events.slice(0, 2))
    slices.add(events.slice(2))
    same(whole.tables, slices.tables)


# The document.


def parts() -> dict[str, str]:
    """What docs/spark.md says of each table."""
    return dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^### |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def test_every_table_is_documented_with_all_its_columns_their_types_and_what_they_say():
    from penstock.spark.tables.schema import TABLES

    assert list(parts()) == list(TABLES)
    for name, text in parts().items():
        told = [(column, type_, words.strip("`")) for column, type_, words in TABLES[name].rows]
        found = [
            tuple(cell.replace("[events.md](events.md)", "docs/events.md") for cell in row) for row in table_rows(text)
        ]
        assert found[2:] == told, name
        assert TABLES[name].text in text


def test_every_example_query_of_the_document_runs_and_finds_something(
    spark: SparkSession, events: pa.Table, tables: Tables
):
    rule = {"window": at(0), "day": T0.date(), "batch": 1, "table": "blocks", "rule": "…", "rows": 9, "failures": 1}
    with small(spark):
        frame(spark, events, "events").createOrReplaceTempView("events")
        frame(spark, [{**rule, "example": "{}"}], "quality").createOrReplaceTempView("quality")
        for name, rows in tables.items():
            frame(spark, rows, name).createOrReplaceTempView(name)
        for name, text in parts().items():
            (query,) = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
            assert spark.sql(query).toArrow().num_rows, name


def test_every_field_that_events_have_is_read():
    from penstock.spark.tables.events import body_schema

    page = (Path(__file__).parents[3] / "docs" / "events.md").read_text("utf-8")
    fields = {row[0] for row in table_rows(section(page, "The schema")) if len(row) == 4} - {"field", "---"}
    assert fields == set(body_schema().names)


def test_the_classes_of_syncs_are_those_of_the_store():
    from penstock.spark.tables.syncs import BOUNDS_US
    from penstock.store.journal import SYNC_BOUNDS_S

    assert tuple(round(bound_s * 1e6) for bound_s in SYNC_BOUNDS_S) == BOUNDS_US

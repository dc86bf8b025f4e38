"""Advice without Spark and without a broker: which settings are tried, which are shown, and in what words."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from penstock.flow.twin import Consumers, Load, Outcome, Plant, Publishers, Settings
from penstock.spark.advice import observed as observed_
from penstock.spark.advice import words
from penstock.spark.advice.adviser import LONG, SEEDS
from penstock.spark.advice.clients import Clients, Consuming, Publishing
from penstock.spark.advice.grid import changed, distance, grid, knobs_of, numbers
from penstock.spark.advice.load import Model, check_given, load_of, message_room, settings_of, short_s, tuned
from penstock.spark.advice.observed import Held, observe
from penstock.spark.advice.rank import (
    LATENCY_GRAIN_MS,
    Candidate,
    allowed,
    best,
    doublings,
    front,
    gain,
    is_better,
    mean,
)
from penstock.spark.advice.sweep import Trial, without_growth
from penstock.spark.complaint import Complaint

START = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)
PERSISTENT = Load(Publishers(window=1000, persistent=True), Consumers(count=0))
CONNECTION = "connection 10.0.0.5:50112 -> 10.0.0.1:5672"


def outcome(throughput: float = 1000.0, p99_ms: float = 40.0, memory_bytes: int = 10_000_000, **more: Any) -> Outcome:
    fields: dict[str, Any] = {
        "throughput": throughput,
        "delivered": 0.0,
        "p50_ms": p99_ms / 2,
        "p99_ms": p99_ms,
        "memory_bytes": memory_bytes,
        "in_flight": 10.0,
        "blocked": {"connection": 0.9},
        "saturated": 0.0,
        "bottleneck": "store",
        "cpu": 0.5,
        "syncs": 1.0,
        "seconds": 1.0,
        "steps": 10,
    }
    return Outcome(**fields | more)


def candidate(store: str, **more: Any) -> Candidate:
    return Candidate(Settings(queue_store=store), outcome(**more))


# The grid.


def test_the_current_setting_is_tried_first_and_none_twice():
    current = Settings(reader_channel="20,10", queue_store="77,7")
    found = grid(PERSISTENT, current, 1500)
    assert found[0] == current
    assert len(found) == len(set(found)) == 1500


def test_the_same_load_and_setting_are_tried_with_the_same_settings():
    assert grid(PERSISTENT, Settings(), 700) == grid(PERSISTENT, Settings(), 700)


def test_every_setting_that_is_tried_is_one_that_the_broker_takes():
    load = Load(Publishers(window=100, persistent=True, body_bytes=100_000), Consumers(prefetch=300))
    for current in (
        Settings(stop=1000, resume=700, prefetch=300),
        Settings(reader_channel="0,0"),
        Settings(queue_store="2,1"),
    ):
        for settings in grid(load, current, 2000):
            for hop in ("reader_channel", "channel_queue", "queue_store"):
                settings.hop(hop)  # a ValueError, as a user gets it
            assert settings.watermark() is None or settings.resume <= settings.stop


def test_no_mark_is_tried_that_a_queue_s_arguments_or_its_maximum_would_cut_down():
    current = Settings(stop=1000, resume=500)
    marks = {(one.stop, one.resume) for one in grid(PERSISTENT, current, 3000, (4500, 600))}
    assert {stop for stop, _ in marks} >= {100, 300, 1000, 3000, 4500}
    assert all(stop <= 4500 and resume <= min(stop, 600) for stop, resume in marks)
    free = {(one.stop, one.resume) for one in grid(PERSISTENT, current, 3000)}
    assert max(stop for stop, _ in free) >= 30_000


def test_a_knob_that_cannot_matter_is_left_alone():
    transient = Load(Publishers(), Consumers(acks=False))
    knobs = knobs_of(transient, Settings())
    assert (knobs.hops, knobs.byte_hops, knobs.prefetch, knobs.marks) == (
        ("reader_channel", "channel_queue"),
        (),
        False,
        False,
    )
    touched = {name for settings in grid(transient, Settings(), 1000) for name in changed(settings, Settings())}
    assert touched == {"reader_channel", "channel_queue"}
    large = Load(Publishers(persistent=True, body_bytes=1_000_000), Consumers())
    assert knobs_of(large, Settings()).byte_hops == ("reader_channel_bytes", "channel_queue_bytes", "queue_store_bytes")


def test_no_credit_of_a_few_messages_is_tried_that_is_not_there_already():
    for settings in grid(PERSISTENT, Settings(reader_channel="20,10"), 1000):
        for hop in ("reader_channel", "channel_queue", "queue_store"):
            value = getattr(settings, hop)
            assert numbers(value)[0] >= 100 or value == "20,10"


def test_credit_in_bytes_is_tried_in_bytes():
    large = Load(Publishers(body_bytes=1_000_000), Consumers(count=0))
    for current in (Settings(), Settings(reader_channel_bytes="0,0")):  # 0,0: no bound
        tried = {numbers(one.reader_channel_bytes)[0] for one in grid(large, current, 100)}
        assert {1_000_000, 4_200_000, 67_000_000} <= tried
        assert min(tried - {0}) >= 1_000_000


def test_one_knob_alone_comes_before_several_at_once():
    few = grid(PERSISTENT, Settings(), 90)
    assert all(len(changed(settings, Settings())) <= 1 for settings in few)


def test_distance_counts_settings_and_doublings():
    assert distance(Settings(), Settings()) == 0
    assert distance(Settings(queue_store="4000,1000"), Settings()) == pytest.approx(3.0)  # one setting, two doublings
    assert numbers("400,200") == (400, 200)


# The front.


def test_what_another_beats_in_all_three_is_not_on_the_front():
    good, worse = candidate("4000,1000", throughput=2000), candidate("100,50", throughput=1000, p99_ms=80)
    frugal = candidate("10,5", throughput=500, memory_bytes=2_000_000)
    kept = front([worse, good, frugal], Settings())
    assert kept == [good, frugal]


def test_of_two_that_are_as_good_the_nearer_one_is_on_the_front():
    near, far = candidate("2100,500", throughput=1001), candidate("12800,6400", throughput=1000)
    assert front([far, near], Settings()) == [near]


def test_nothing_on_the_front_beats_anything_on_it():
    tried = [
        candidate(
            f"{2 + at},1",
            throughput=1000 + 37 * at % 900,
            p99_ms=10 + 53 * at % 70,
            memory_bytes=10**6 * (1 + 29 * at % 40),
        )
        for at in range(400)
    ]
    kept = front(tried, Settings())
    assert 1 < len(kept) < 100
    for one in kept:
        for other in tried:
            better = doublings(other.outcome, one.outcome)
            assert not all(part > 0.1 for part in better)  # a box is smaller than that


def test_a_goal_chooses_along_the_front():
    current = Candidate(Settings(), outcome())
    fast = candidate("8000,2000", throughput=1800, p99_ms=70, memory_bytes=30_000_000)
    quick = candidate("500,100", throughput=1000, p99_ms=15)
    small = candidate("50,10", throughput=990, memory_bytes=2_000_000)
    choices = [current, fast, quick, small]
    assert best("throughput", choices, current, 1e9) is fast
    assert best("latency", choices, current, 1e9) is quick
    assert best("memory", choices, current, 1e9) is small
    assert best("throughput", choices, current, 1e6) is quick  # the fast one does not fit below the alarm
    assert best("throughput", [current], current, 1e9) is current


def test_what_little_is_left_to_gain_is_not_worth_the_smallest_credit():
    current = Candidate(Settings(reader_channel="50000,25000"), outcome(p99_ms=2700))
    large, usual, least = (
        Candidate(Settings(reader_channel=one), outcome(p99_ms=p99_ms))
        for one, p99_ms in (("6400,3200", 1080), ("1600,800", 900), ("100,50", 826))
    )
    assert best("latency", [current, large, usual, least], current, 1e9) is usual


def test_what_python_takes_for_each_message_counts_as_memory_too():
    room = message_room(1_000_000_000, 100)
    many = outcome(memory_bytes=10_000_000 + 4_600_000 * 131)  # so many small ones take 1.15 GB of the process
    assert room == pytest.approx(1_000_000_000 * 131 / 251)
    assert not allowed("throughput", many, outcome(), room)
    assert allowed("throughput", many, outcome(), 1_000_000_000)
    assert message_room(1_000_000_000, 1_000_000) > 990_000_000
    assert message_room(float("inf"), 100) == float("inf")


def test_who_asks_for_latency_does_not_pay_with_throughput():
    assert not allowed("latency", outcome(throughput=900), outcome(), 1e9)
    assert allowed("throughput", outcome(throughput=900), outcome(), 1e9)


def test_better_means_by_more_than_the_error_and_in_what_was_asked_for():
    assert not is_better("throughput", outcome(throughput=1040), outcome(), 0.05)
    assert is_better("throughput", outcome(throughput=1080), outcome(), 0.05)
    assert not is_better("throughput", outcome(throughput=1080), outcome(), 0.20)
    assert not is_better("memory", outcome(throughput=5000), outcome(), 0.05)
    assert not is_better("memory", outcome(memory_bytes=10_000), outcome(memory_bytes=40_000), 0.05)  # nobody notices
    assert gain("balanced", outcome(), outcome()) == 0


def test_several_runs_of_one_setting_become_one():
    both = mean([outcome(throughput=1000, bottleneck="store"), outcome(throughput=2000, bottleneck="store")])
    assert (both.throughput, both.bottleneck, both.seconds) == (1500, "store", 2.0)


def test_what_piles_up_in_a_queue_without_consumers_is_not_laid_at_a_settings_door():
    grown = outcome(throughput=1000, p99_ms=10, memory_bytes=round(1000 * 131 / 0.75) + 5000)
    assert without_growth(grown, PERSISTENT).memory_bytes == pytest.approx(5000, abs=2)


def test_a_queue_at_its_marks_would_be_at_other_marks_if_they_were_other():
    load = Load(Publishers(window=500), Consumers(message_us=50.0, prefetch=100, wake=10), backlog=40_000)
    high, low = Settings(stop=40_000, resume=35_000), Settings(stop=1000, resume=875)
    model = Model(Plant(), load, high, 0.0, ())
    assert model.full
    assert not replace(model, load=replace(load, backlog=100)).full
    trial = Trial(Plant(), load, 0.2, pace=19_000.0)
    before, after = trial.outcome(high), trial.outcome(low)
    assert after.memory_bytes < before.memory_bytes / 5
    assert after.throughput > before.throughput * 0.9
    few = trial.outcome(replace(low, prefetch=8))  # with fewer messages than it acks at once, nothing would ever go on
    assert few.throughput > before.throughput * 0.5


def test_a_trial_travels_to_executors_and_says_there_what_it_says_here():
    trial = Trial(Plant(), PERSISTENT, 0.05)
    there = pickle.loads(pickle.dumps(trial))
    assert there.outcome(Settings()) == trial.outcome(Settings())
    batch = pa.RecordBatch.from_pylist([{"number": 7, "settings": '{"queue_store": "100,50"}'}])
    (answer,) = there(iter([batch]))
    assert answer.to_pylist()[0]["number"] == 7


# The tables.


class Fixed:
    """Tables of plain rows."""

    def __init__(self, **tables: list[dict[str, Any]]) -> None:
        self.tables = tables

    def newest(self) -> datetime | None:
        return max((row["window"] for rows in self.tables.values() for row in rows), default=None)

    def arrow(
        self,
        table: str,
        since: datetime | None = None,
        until: datetime | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        rows = [row for row in self.tables.get(table, []) if since is None or row["window"] >= since]
        return pa.Table.from_pylist(rows)


def sample(stage: str, second: int, received: float, blocked: float = 0.0, **more: Any) -> dict[str, Any]:
    at = START + timedelta(seconds=second)
    row = {
        "window": at.replace(second=at.second // 10 * 10),
        "at": at,
        "stage": stage,
        "kind": stage.partition(" ")[0],
        "client": None,
        "messages": 0,
        "consumers": 0,
        "busy_us": None,
        "turns": None,
        "write_us": None,
        "writes": None,
        "received": None,
        "sent": None,
        "interval_s": 1.0 if second else None,
        "received_rate": received,
        "sent_rate": received,
        "blocked_share": blocked,
    }
    return row | more


def loaded(blocked: float = 0.93, seconds: int = 20, **more: Any) -> Fixed:
    """A publisher of 1000 persistent messages a second, held back by the disk so much of the time."""
    samples = [
        row
        for second in range(seconds)
        for row in (
            sample(CONNECTION, second, 1000.0, blocked, client="orders-api"),
            sample("queue orders", second, 1000.0, blocked, sent_rate=0.0, messages=1000 * second, **more),
            sample("store", second, 1000.0),
        )
    ]
    windows = sorted({row["window"] for row in samples})
    verdicts = [
        {
            "window": window,
            "connection": CONNECTION,
            "cause": "store",
            "bottleneck": "store",
            "resource": "disk",
            "share": blocked,
            "chain": [CONNECTION, "channel", "queue orders", "store"],
        }
        for window in windows
        if blocked
    ]
    times = {"mean_us": 41_000.0, "p50_us": 40_000.0, "p95_us": 50_000.0, "p99_us": 60_000.0, "longest_us": 70_000}
    pending = {"pending_messages": 2000, "pending_bytes": 262_000}
    syncs = [{"window": window, "count": 100, **times, **pending} for window in windows]
    resources = [
        {"window": window, "at": window, "memory_used_bytes": 10**8, "memory_limit_bytes": 10**9} for window in windows
    ]
    return Fixed(samples=samples, verdicts=verdicts, syncs=syncs, resources=resources)


def test_tables_tell_who_published_how_fast_and_what_held_it_back():
    observed = observe(loaded(), 600)
    assert observed.throughput == pytest.approx(1000)
    assert observed.publishing == pytest.approx(1)
    assert observed.stored == pytest.approx(1000)
    assert observed.blocked == pytest.approx(0.93)
    assert observed.content_bytes == 131
    assert observed.memory_room == 450_000_000
    assert replace(observed.held[0], share=0.0) == Held("store", "store", "disk", 0.0, 1, "queue orders")
    assert observed.held[0].share == pytest.approx(0.93)


def test_seconds_are_those_in_which_something_went_on_whether_samples_are_late_or_rare():
    tables = loaded(0.5)
    for row in tables.tables["samples"]:  # every 1.5 s
        row["at"] = START + (row["at"] - START) * 1.5
        row["interval_s"] = row["interval_s"] and 1.5
    late = observe(tables, 600)
    assert late.throughput == pytest.approx(1000)
    assert late.publishing == pytest.approx(1)
    for row in tables.tables["samples"]:  # 1500 messages in a second, eight seconds of nothing
        row["at"] = START + (row["at"] - START) * 6
        row["interval_s"] = row["interval_s"] and 9.0
        row["received_rate"] /= 6
    rare = observe(tables, 600)
    assert rare.throughput == pytest.approx(1500)
    assert rare.publishing == pytest.approx(1)


def test_a_queue_that_is_sampled_no_more_has_stayed_as_it_was():
    tables = loaded(seconds=21)
    tables.tables["samples"] += [sample("queue burst", second, 900.0, messages=1000 * second) for second in range(2)]
    (burst,) = [one for one in observe(tables, 600).queues if one.stage == "queue burst"]
    assert burst.growth == pytest.approx(1000 / 20)


def test_of_more_rows_than_fit_the_newest_count(monkeypatch: pytest.MonkeyPatch):
    tables = loaded()
    tables.tables["samples"].reverse()
    monkeypatch.setattr(observed_, "ROWS_MAX", 30)
    samples = observe(tables, 600).samples
    assert len(samples) == 30
    assert {row["window"] for row in samples} == {tables.newest()}


def test_only_a_connection_or_a_queue_can_be_looked_at():
    for subject in ("orders-api", "10.0.0.5:50112 -> 10.0.0.1:5672", "orders", "queue orders"):
        assert observe(loaded(), 600, subject).throughput == pytest.approx(1000)
    with pytest.raises(
        Complaint, match=r"no connection and no queue 'mail' in the tables; there are: orders-api, orders"
    ):
        observe(loaded(), 600, "mail")


def test_without_samples_or_load_there_is_one_clear_line():
    with pytest.raises(Complaint, match="the tables are empty"):
        observe(Fixed(), 600)
    with pytest.raises(Complaint, match="no samples"):
        observe(Fixed(resources=[{"window": START}]), 600)
    idle = Fixed(samples=[sample("queue orders", second, 5.0) for second in range(5)])
    with pytest.raises(Complaint, match="nothing was published"):
        observe(idle, 600)
    with pytest.raises(Complaint, match="no samples yet since the settings were changed"):
        observe(loaded(), 600, "", START + timedelta(hours=1))


def test_a_publisher_that_is_blocked_pushes_and_one_that_is_not_has_its_own_pace():
    pushing, _ = load_of(observe(loaded(0.93), 600), None)
    assert (pushing.publishers.rate, pushing.publishers.persistent, pushing.publishers.body_bytes) == (0.0, True, 100)
    paced, notes = load_of(observe(loaded(0.0), 600), None)
    assert paced.publishers.rate == pytest.approx(1000)
    assert any("HTTP API was not asked" in note for note in notes)


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("rate", [0.5, 3.0, 100.0, 300.0, 20_000.0])
def test_however_few_messages_come_the_twin_sees_as_many(rate: float, count: int):
    observed = replace(observe(loaded(0.0), 600), throughput=rate, delivered=rate, publishing=float(count), stored=0.0)
    load, _ = load_of(observed, None)
    assert load.publishers.rate == pytest.approx(rate / count)
    trial = Trial(Plant(), load, LONG * short_s(Plant(), load), SEEDS)
    assert trial.outcome(Settings()).throughput == pytest.approx(rate, rel=0.05)


def test_a_prefetch_does_nothing_for_consumers_that_take_what_comes_when_it_comes():
    tables = loaded(0.0, consumers=1)
    for row in tables.tables["samples"]:
        if row["kind"] == "queue":
            row |= {"messages": 1, "sent_rate": 1000.0}
    load, _ = load_of(observe(tables, 600), Clients(consuming=(Consuming("queue orders", True, 0),)))
    assert load.consumers.count == 1
    trial = Trial(Plant(), load, short_s(Plant(), load))
    p99_ms = {prefetch: trial.outcome(Settings(prefetch=prefetch)).p99_ms for prefetch in (None, 100, 1000)}
    assert max(p99_ms.values()) - min(p99_ms.values()) < LATENCY_GRAIN_MS, p99_ms
    assert max(p99_ms.values()) < 10 * LATENCY_GRAIN_MS


def test_a_window_is_what_was_seen_unconfirmed_and_parked():
    seen = Publishing(CONNECTION, True, 120, 120.0, parked_max_bytes=880 * 131)
    load, _ = load_of(observe(loaded(), 600), Clients(publishing=(seen,)))
    assert load.publishers.window == 1000
    again, _ = load_of(observe(loaded(), 600), Clients(publishing=(replace(seen, connection="connection of later"),)))
    assert again.publishers.window == 1000
    gone, notes = load_of(observe(loaded(), 600), Clients())
    assert gone.publishers.window == 0
    assert any("nobody publishes at the moment" in note for note in notes)


def test_consumers_that_always_found_something_are_as_slow_as_they_were():
    tables = loaded(0.0, consumers=4)
    for row in tables.tables["samples"]:
        if row["kind"] == "queue":
            row |= {"messages": 50_000, "sent_rate": 800.0}
    known = Clients(consuming=(Consuming("queue orders", True, 10),))
    load, _ = load_of(observe(tables, 600), known)
    assert (load.consumers.count, load.consumers.prefetch, load.consumers.ack_batch) == (4, 10, 2)
    assert (load.consumers.chunk, load.consumers.wake) == (2, 1)
    assert load.consumers.message_us == pytest.approx(5000)
    for row in tables.tables["samples"]:
        row["messages"] = 81_000
    many, _ = load_of(observe(tables, 600), Clients(consuming=(Consuming("queue orders", True, 20_000),)))
    assert (many.consumers.message_us, many.backlog) == (load.consumers.message_us, 1000)
    (said,) = words.small_prefetch(Model(Plant(), load, Settings(), 0.0, ()))
    assert "with a prefetch of 10" in said


def test_of_the_time_that_a_message_takes_a_consumer_the_way_to_the_broker_is_not_its_own():
    rate = 20_000.0
    slow = Consumers(message_us=1e6 / rate, prefetch=4, ack_batch=1, wake=2)
    load = Load(Publishers(lead_max=20_000), slow, backlog=10_000)
    observed = replace(observe(loaded(0.0), 600), throughput=rate, delivered=rate, cpu_us=0.0)
    model = tuned(Plant(), load, Settings(prefetch=4), observed)
    assert model.error < 0.1
    assert model.load.consumers.message_us < slow.message_us * 0.8


def test_the_own_time_of_publishers_that_seldom_send_is_told_in_whole_microseconds():
    observed = replace(observe(loaded(0.0), 600), throughput=200.0, delivered=200.0, cpu_us=0.0)
    (note,) = tuned(Plant(), Load(Publishers(block=1), Consumers(wake=1)), Settings(), observed).notes
    assert re.fullmatch(r"the publishers themselves seem to take [45],\d{3} us for each message", note)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("credit.prefetch", "5", "credit.prefetch is no setting that advice knows: there are credit.reader_channel, "),
        ("faults.queue_delay_us", "soon", "faults.queue_delay_us: 'soon' is no number from 0 on"),
        ("limits.parked_bytes", "-1", "limits.parked_bytes: '-1' is no number from 0 on"),
        ("limits.parked_bytes", "inf", "limits.parked_bytes: 'inf' is no number from 0 on"),
        ("faults.channel_delay_us", "nan", "faults.channel_delay_us: 'nan' is no number from 0 on"),
        ("credit.queue_store_bytes", "much", "credit.queue_store"),
    ],
)
def test_what_a_user_says_is_set_must_be_a_setting(name: str, value: str, said: str):
    with pytest.raises(Complaint, match="^" + re.escape(said)):
        check_given({name: value})


def test_a_credit_that_the_broker_would_refuse_is_one_line():
    assert settings_of({"credit.queue_store": "10,5", "log.level": "info"}) == Settings(queue_store="10,5")
    with pytest.raises(Complaint, match=r"credit\.queue_store: .*more_after"):
        settings_of({"credit.queue_store": "5,10"})


# The words.


def test_a_reason_names_the_bottleneck_the_change_and_the_effect():
    observed = observe(loaded(), 600)
    now = Candidate(Settings(), outcome(throughput=2000, p99_ms=41, memory_bytes=10_000_000, syncs=1.0))
    then = Candidate(
        Settings(queue_store="4000,1000"), outcome(throughput=3200, p99_ms=48, memory_bytes=22_000_000, syncs=0.8)
    )
    assert words.why(then, now, observed) == (
        "Queue orders waits for the disk 93 % of the time; twice the store credit lets one sync carry 4,000 messages "
        "instead of 2,000: 1.6 times the throughput, p99 from 41 to 48 ms, 12 MB more of messages held."
    )
    assert words.change("throughput", then.outcome, now.outcome) == "+60 %"


def test_larger_batches_are_told_by_what_a_message_costs():
    now = Candidate(Settings(reader_channel="20,10"), outcome(throughput=1000, cpu=0.9, syncs=0.0))
    then = Candidate(Settings(), outcome(throughput=2000, cpu=0.9, p99_ms=20, syncs=0.0))
    calm = observe(loaded(0.0), 600)
    assert words.why(then, now, calm) == (
        "20 times the credit from reader to channel makes batches larger: a message takes 450 us of the broker's core "
        "instead of 900: twice the throughput, p99 from 40 to 20 ms, no more messages held."
    )


@pytest.mark.parametrize("resume", [500, 950])
def test_a_resume_mark_alone_is_told_by_its_numbers(resume: int):
    now = Candidate(Settings(stop=1000, resume=900), outcome())
    then = Candidate(Settings(stop=1000, resume=resume), outcome(p99_ms=20))
    assert words.why(then, now, observe(loaded(0.0), 600)).startswith(f"A resume mark of {resume} instead of 900: ")


def test_what_differs_is_named_as_people_set_it():
    then = replace(Settings(), queue_store="10,5", prefetch=30, stop=800, resume=700)
    assert words.named(then, Settings()) == {
        "credit.queue_store": "10,5",
        "prefetch": "30",
        "flow-stop-count": "800",
        "flow-resume-count": "700",
    }


@pytest.mark.parametrize(
    ("cause", "bottleneck", "said"),
    [
        ("memory", "alarm memory", "memory_bytes_high"),
        ("disk", "alarm disk", "disk_free_bytes_low"),
        ("store fault", "alarm store", "repair the disk"),
        (
            "saturated",
            "consumers of queue orders",
            "Queue orders held confirms back 60 % of the time: more or faster consumers",
        ),
        ("store", "store", "A sync takes 41 ms"),
    ],
)
def test_what_credit_cannot_cure_is_said(cause: str, bottleneck: str, said: str):
    observed = replace(observe(loaded(), 600), held=(Held(cause, bottleneck, "", 0.6, 1),))
    assert any(said in line for line in words.cures(observed, None, {}))


def test_slow_consumers_are_told_how_many_more_it_takes():
    tables = loaded(0.0, consumers=2)
    for row in tables.tables["samples"]:
        if row["kind"] == "queue":
            row["sent_rate"] = 500.0
            row["messages"] = row["messages"] // 2
    lines = words.cures(observe(tables, 600), None, {})
    assert any("2 consumers more at this pace would" in line for line in lines), lines
    nobody = words.cures(
        observe(loaded(0.0), 600), None, {"faults.queue_delay_us": "100", "faults.channel_delay_us": "0"}
    )
    assert "Nobody consumes queue orders, which grows by 1,000 messages a second." in nobody
    assert "faults.queue_delay_us is 100: a stage is slowed down on purpose; end that first." in nobody
    assert any("holds nobody back" in line for line in nobody)


def test_of_many_queues_that_grow_the_worst_are_named_and_the_others_counted():
    observed = observe(loaded(0.0), 600)
    (queue,) = observed.queues
    queues = tuple(replace(queue, stage=f"queue q{at}", growth=100.0 + at) for at in range(800))
    held = tuple(Held("saturated", f"consumers of queue q{at}", "", 0.6, 1) for at in range(11))
    lines = words.cures(replace(observed, queues=queues, held=held), None, {})
    assert lines[9].startswith("Queue q9 held confirms back")
    assert lines[10] == "And 1 more holds publishers back."
    assert lines[11] == "Nobody consumes queue q799, which grows by 899 messages a second."
    assert lines[20].startswith("Nobody consumes queue q790")
    assert lines[21:] == ["And 790 more queues grow."]


def test_when_nothing_helps_that_is_said():
    assert words.nothing("throughput", 0.05, 2000) == (
        "Nothing to change: of 2,000 settings none promises more throughput by more than 5 %, which is how far the "
        "twin may be wrong."
    )

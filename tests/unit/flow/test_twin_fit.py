"""Fitting the twin: from rows of the tables to what the broker's work costs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from penstock.flow.twin import Load, Plant, Publishers, fit, simulate, tune
from penstock.flow.twin.disk import RECORD_BYTES
from penstock.flow.twin.fit import SYNC_BOUNDS_US, _points, intervals, solve, sync_times
from penstock.flow.twin.machine import LONG_WAITS
from penstock.flow.twin.plant import Consumers, Settings
from penstock.flow.twin.stages import FRAMING_BYTES
from penstock.flow.twin.tune import NAP_MAX_US, hurried

START = datetime(2026, 11, 16, tzinfo=UTC)
PLANT = Plant()

Row = dict[str, object]


def rows(
    kind: str,
    seconds: Iterable[tuple[int, int, int, float]],
    stage: str = "stage",
    step_s: float = 1.0,
) -> list[Row]:
    """Samples of a stage that did so many turns, messages in and messages out in each second, for so many us."""
    turns = received = sent = 0
    busy = 0.0
    found: list[Row] = []
    for at, (more_turns, more_in, more_out, more_us) in enumerate([(0, 0, 0, 0.0), *seconds]):
        turns, received, sent, busy = turns + more_turns, received + more_in, sent + more_out, busy + more_us
        found.append(
            {
                "at": START + timedelta(seconds=at * step_s),
                "stage": stage,
                "kind": kind,
                "turns": turns,
                "received": received,
                "sent": sent,
                "busy_us": round(busy),
            }
        )
    return found


def worked(turn_us: float, message_us: float, batches: Sequence[tuple[int, int]]) -> list[tuple[int, int, int, float]]:
    return [(turns, count, count, turns * turn_us + count * message_us) for turns, count in batches]


def test_seconds_with_different_batches_tell_turns_from_messages() -> None:
    batches = [(100, 40_000), (2000, 40_000), (500, 90_000), (5000, 50_000)] * 10
    plant = fit(rows("channel", worked(21.0, 0.33, batches)))
    assert plant.channel.turn_us == pytest.approx(21.0, rel=0.1)
    assert plant.channel.message_us == pytest.approx(0.33, rel=0.1)


def test_with_batches_all_alike_the_sum_is_kept_and_the_prior_splits_it() -> None:
    plant = fit(rows("channel", worked(0.0, 1.0, [(1000, 100_000)] * 4)))
    cost = plant.channel
    assert cost.turn_us * 1000 + cost.message_us * 100_000 == pytest.approx(100_000, rel=0.05)
    assert cost.turn_us / cost.message_us == pytest.approx(PLANT.channel.turn_us / PLANT.channel.message_us, rel=0.05)


def test_a_queue_has_costs_for_messages_in_and_for_messages_out() -> None:
    seconds = [
        (turns, arrived, given, turns * 30.0 + arrived * 0.1 + given * 0.8)
        for turns, arrived, given in [(100, 90_000, 0), (200, 10_000, 90_000), (3000, 50_000, 50_000), (900, 0, 70_000)]
    ]
    plant = fit(rows("queue", seconds))
    assert plant.queue.message_us == pytest.approx(0.1, rel=0.15)
    assert plant.deliver.message_us + plant.settle.message_us == pytest.approx(0.8, rel=0.1)
    assert plant.queue.turn_us + plant.deliver.turn_us == pytest.approx(30.0, rel=0.2)


def test_nothing_measured_is_the_prior() -> None:
    assert fit([]) == PLANT
    assert fit([], [], [], prior=Plant(loop_us=99.0)) == Plant(loop_us=99.0)


def test_counters_that_went_back_and_gaps_are_no_intervals() -> None:
    before = rows("channel", worked(10.0, 1.0, [(10, 1000)] * 2))
    later = START + timedelta(seconds=100)
    again = [row | {"at": later + timedelta(seconds=at)} for at, row in enumerate(before)]
    assert len(intervals(before + again)) == 4  # two each; not the hundred seconds between, nor the restart
    restarted = [row | {"at": START + timedelta(seconds=3 + at)} for at, row in enumerate(before)]
    assert len(intervals(before + restarted)) == 4


def test_samples_of_brokers_that_do_not_time_their_turns_are_left_out() -> None:
    old = [row | {"busy_us": None, "turns": None} for row in rows("channel", worked(10.0, 1.0, [(10, 1000)]))]
    assert fit(old) == PLANT


def test_a_delay_on_purpose_is_no_work() -> None:
    seconds = [
        (turns, count, 0, us + count * 50.0) for turns, count, _, us in worked(20.0, 0.5, [(90, 9000), (20, 9000)])
    ]
    plant = fit(rows("channel", seconds), settings={"faults.channel_delay_us": "50"})
    assert plant.channel_delay_us == 50
    assert plant.channel.message_us < 2


def test_what_samples_do_not_tell_is_the_rest_of_the_cpu_time() -> None:
    seconds = worked(20.0, 0.2, [(1000, 100_000), (3000, 120_000)])
    samples = rows("queue", seconds)
    sampled_us = sum(us for *_, us in seconds)

    def rest(more_us: float) -> Plant:
        resources: list[Row] = [
            {"at": START, "cpu_us": 0},
            {"at": START + timedelta(seconds=2), "cpu_us": sampled_us + more_us},
        ]
        return fit(samples, resources=resources)

    little, much = rest(150_000), rest(225_000)
    assert much.loop_us == pytest.approx(1.5 * little.loop_us, rel=0.1)
    assert much.write.turn_us == pytest.approx(1.5 * little.write.turn_us, rel=0.1)
    assert much.queue == little.queue


def test_time_without_a_core_is_not_work_but_is_known() -> None:
    samples = rows("channel", worked(40.0, 2.0, [(100, 10_000), (900, 10_000)] * 10))
    resources: list[Row] = [
        {"at": START + timedelta(seconds=2 * at), "cpu_us": at * 500_000, "wait_us": at * 500_000, "waits": at * 250}
        for at in range(11)
    ]
    plant = fit(samples, resources=resources)
    assert 1.0 <= plant.channel.message_us < 2.0  # a part of what the clock on the wall says
    assert plant.stolen == pytest.approx(1.0)
    assert plant.steal_us == pytest.approx(2000.0 / LONG_WAITS)


def test_waits_as_short_as_a_switch_between_threads_have_no_long_ones_among_them() -> None:
    resources: list[Row] = [
        {"at": START, "cpu_us": 0, "wait_us": 0, "waits": 0},
        {"at": START + timedelta(seconds=2), "cpu_us": 60_000, "wait_us": 15_000, "waits": 1500},
    ]
    assert fit([], resources=resources).steal_us == pytest.approx(10.0)


def test_what_the_journal_is_busy_with_beside_syncs_is_writing() -> None:
    count, messages, bytes_ = 50, 400_000, 100 + FRAMING_BYTES + RECORD_BYTES
    busy_us = count * 10_000 + messages * bytes_ * 0.004
    syncs: list[Row] = [
        {"count": count, "duration_us": count * 10_000, "longest_us": 11_000, "histogram": {"25000": 50}}
    ]
    samples = rows("store", [(count, messages, messages, busy_us)])
    assert fit(samples, syncs).write_byte_us == pytest.approx(0.004, rel=0.01)
    windows: list[Row] = [{"count": count, "mean_us": 10_000, "p50_us": 10_000, "longest_us": 11_000}]
    assert fit(samples, windows).write_byte_us == pytest.approx(0.004, rel=0.01)
    assert fit(samples).write_byte_us == PLANT.write_byte_us


def test_sync_times_come_from_percentiles() -> None:
    row: Row = {"count": 100, "mean_us": 580, "p50_us": 400, "p95_us": 1000, "p99_us": 2000, "longest_us": 9000}
    times = sync_times([row])
    assert times == tuple(sorted(times))
    assert times[len(times) // 2] == pytest.approx(400, rel=0.05)
    assert times[-1] == pytest.approx(9000, rel=0.05)
    assert sum(times) / len(times) == pytest.approx(580, rel=0.01)


def test_sync_times_come_from_histograms_and_keep_their_mean() -> None:
    row: Row = {"count": 10, "duration_us": 7000, "longest_us": 2000, "histogram": {"1000": 9, "2500": 1}}
    times = sync_times([row])
    assert sum(times) / len(times) == pytest.approx(700, rel=0.001)
    # All alike, near the upper end of a class: none of them is above the longest.
    alike: Row = {"count": 40, "duration_us": 40 * 20_900, "longest_us": 21_100, "histogram": {"25000": 40}}
    times = sync_times([alike])
    assert times[0] == pytest.approx(20_700, rel=0.01)
    assert times[-1] == pytest.approx(21_100, rel=0.0001)
    assert sync_times([]) == ()
    assert sync_times([{"count": 0}]) == ()


@pytest.mark.parametrize("longest_us", [5_000, 13_000, 200_000])
def test_one_long_sync_in_thousands_counts_for_no_more_than_itself(longest_us: float) -> None:
    usual: Row = {"count": 999, "duration_us": 999 * 300, "longest_us": 450, "histogram": {"500": 999}}
    name = next(str(bound) for bound in SYNC_BOUNDS_US if bound >= longest_us)
    once: Row = {"count": 1, "duration_us": longest_us, "longest_us": longest_us, "histogram": {name: 1}}
    times = sync_times([usual] * 8 + [once])
    assert sum(times) / len(times) == pytest.approx((7992 * 300 + longest_us) / 7993)
    assert sum(one > 450 for one in times) <= 1
    # The same as the table has it: percentiles of each window.
    window: Row = {"count": 8000, "mean_us": 300, "p50_us": 290, "p95_us": 440, "p99_us": 450, "longest_us": longest_us}
    assert sum(one > longest_us / 2 for one in sync_times([window])) <= 0.002 * len(times)


def test_at_each_edge_as_many_syncs_are_below_as_all_pieces_together_say() -> None:
    chance = random.Random(7)
    pieces = [(float(low := chance.randrange(50)), float(low + chance.randrange(9)), 1.0 + at) for at in range(40)]
    points = _points(pieces)
    for edge, upto in points[1::2]:
        inside = sum(many * (edge - low) / (high - low) for low, high, many in pieces if low < edge < high)
        assert upto == pytest.approx(sum(many for _, high, many in pieces if high <= edge) + inside)
    assert points == sorted(points)


def test_sync_times_of_a_day_are_found_in_one_sweep() -> None:
    """Looking at all windows for each of their edges, as it did once, took half an hour."""
    chance = random.Random(7)
    typical = [chance.uniform(200, 400) for _ in range(8640)]
    times = sync_times(
        {
            "count": 5000,
            "mean_us": 1.2 * one,
            "p50_us": one,
            "p95_us": 2 * one,
            "p99_us": 3 * one,
            "longest_us": 9 * one,
        }
        for one in typical
    )
    assert times == tuple(sorted(times))
    assert times[len(times) // 2] == pytest.approx(300, rel=0.05)
    assert sum(times) / len(times) == pytest.approx(360, rel=0.05)


def test_more_rows_never_make_a_cost_negative() -> None:
    odd = [(100, 1000, 0, 50_000.0), (1000, 100_000, 0, 50_000.0), (10, 200_000, 0, 60_000.0)]
    plant = fit(rows("channel", odd))
    assert plant.channel.turn_us >= 0
    assert plant.channel.message_us >= 0


def test_solving_finds_the_factors_of_exact_rows() -> None:
    wanted = (3.0, 0.5)
    found = [(10.0, 100.0), (100.0, 20.0), (40.0, 40.0)] * 20
    goals = [sum(x * w for x, w in zip(row, wanted, strict=True)) for row in found]
    assert solve(found, goals, (1.0, 1.0)) == pytest.approx(wanted, rel=0.05)


def test_a_second_in_which_no_turn_was_timed_does_not_decide() -> None:
    turn_us, in_us, out_us = solve([(24, 10, 0), (13, 500, 0)], [0.0, 81.1], (18.0, 0.05, 0.4))
    assert 0 < turn_us < 20
    assert min(in_us, out_us) >= 0


def test_a_fitted_plant_predicts() -> None:
    plant = fit(rows("channel", worked(100.0, 5.0, [(100, 40_000), (2000, 40_000)])))
    load = Load(Publishers(window=1000), Consumers(acks=False))
    slow, usual = (simulate(one, load, Settings(), 0.2).throughput for one in (plant, PLANT))
    assert slow < 0.5 * usual


# Tuning: what the whole load was seen to do.

LOAD = Load(Publishers(window=1000), Consumers(acks=False))


def test_tuned_costs_give_the_cpu_time_that_was_measured() -> None:
    usual = simulate(PLANT, LOAD, Settings(), 0.3)
    cpu_us = 1.5 * usual.cpu * 1e6 / usual.throughput
    seen = simulate(tune(PLANT, LOAD, Settings(), usual.throughput, cpu_us), LOAD, Settings(), 0.3)
    assert seen.cpu * 1e6 / seen.throughput == pytest.approx(cpu_us, rel=0.1)


def test_a_load_slower_than_its_cpu_time_explains_has_clients_that_wake_later() -> None:
    usual = simulate(PLANT, LOAD, Settings(), 0.3)
    plant = tune(PLANT, LOAD, Settings(), usual.throughput / 3)
    assert plant.wake_us > 2 * PLANT.wake_us
    assert simulate(plant, LOAD, Settings(), 0.6).throughput == pytest.approx(usual.throughput / 3, rel=0.1)


def test_nothing_is_tuned_to_a_load_that_did_nothing() -> None:
    assert tune(PLANT, LOAD, Settings(), 0.0, 1.0) == PLANT


def test_a_publisher_that_sends_less_than_it_is_said_to_is_not_explained_by_waiting() -> None:
    assert (
        tune(PLANT, Load(Publishers(rate=10_000, block=10), Consumers(wake=1)), Settings(), 1.0).wake_us
        == PLANT.wake_us
    )


def test_latencies_that_are_more_uneven_than_the_broker_makes_them_are_clients_that_wait_for_a_core() -> None:
    usual = simulate(PLANT, LOAD, Settings(), 0.6)
    plant = tune(PLANT, LOAD, Settings(), usual.throughput, p99_ms=1.4 * usual.p99_ms)
    seen = simulate(plant, LOAD, Settings(), 0.6)
    assert seen.p99_ms == pytest.approx(1.4 * usual.p99_ms, rel=0.15)
    assert seen.throughput == pytest.approx(usual.throughput, rel=0.1)
    assert 0 < plant.nap_us <= NAP_MAX_US


def test_what_no_wait_for_a_core_explains_is_not_put_down_to_one() -> None:
    usual = simulate(PLANT, LOAD, Settings(), 0.6)
    assert tune(PLANT, LOAD, Settings(), usual.throughput, p99_ms=1e6) == PLANT
    # With a backlog the age of a message is that of the backlog, however late a client wakes now and then.
    behind = Load(
        Publishers(lead_max=20_000), Consumers(message_us=20.0, chunk=10, wake=10, ack_batch=10, prefetch=100)
    )
    late = simulate(PLANT, behind, Settings(), 0.6)
    assert tune(PLANT, behind, Settings(), late.throughput, p99_ms=1.2 * late.p99_ms).nap_us == 0


def test_a_load_faster_than_the_twin_has_clients_that_work_and_wake_sooner() -> None:
    load = Load(Publishers(lead_max=50_000), Consumers(message_us=1.0, prefetch=1000))
    quick = simulate(hurried(PLANT, 0.3), load, Settings(), 0.6)
    assert quick.throughput > 1.1 * simulate(PLANT, load, Settings(), 0.6).throughput
    plant = tune(PLANT, load, Settings(), quick.throughput)
    assert 0.2 < plant.client < 0.4
    assert plant.wake_us == pytest.approx(PLANT.wake_us * plant.client)
    assert simulate(plant, load, Settings(), 0.6).throughput == pytest.approx(quick.throughput, rel=0.05)


def test_latencies_shorter_than_the_twins_are_those_of_clients_that_wake_sooner() -> None:
    calm = Load(Publishers(rate=2000, block=10), Consumers(message_us=100.0, chunk=10, wake=10, ack_batch=10))
    usual, quick = (simulate(one, calm, Settings(), 2.0) for one in (PLANT, hurried(PLANT, 0.3)))
    assert quick.p99_ms < 0.9 * usual.p99_ms
    plant = tune(PLANT, calm, Settings(), 2000, seconds=2.0, p99_ms=quick.p99_ms)
    assert simulate(plant, calm, Settings(), 2.0).p99_ms == pytest.approx(quick.p99_ms, rel=0.05)
    assert plant.wake_us < 0.5 * PLANT.wake_us


def test_a_p99_shorter_than_uneven_syncs_make_it_is_that_of_syncs_more_alike() -> None:
    kept = Load(Publishers(window=1000, persistent=True), Consumers(acks=False))
    uneven = replace(PLANT, sync_us=tuple(100.0 + 4.0 * at for at in range(97)) + (2500.0,) * 3)
    usual = simulate(uneven, kept, Settings(), 2.0)
    plant = tune(uneven, kept, Settings(), usual.throughput, seconds=2.0, p99_ms=0.8 * usual.p99_ms)
    seen = simulate(plant, kept, Settings(), 2.0)
    assert seen.p99_ms == pytest.approx(0.8 * usual.p99_ms, rel=0.05)
    assert seen.throughput == pytest.approx(usual.throughput, rel=0.05)
    assert sum(plant.sync_us) == pytest.approx(sum(uneven.sync_us))
    assert max(plant.sync_us) < max(uneven.sync_us)


def test_messages_of_a_flood_that_are_older_than_the_twins_wait_in_the_kernel() -> None:
    flood, slow = Load(Publishers(), Consumers(acks=False)), replace(PLANT, channel_delay_us=20.0)
    usual = simulate(slow, flood, Settings(), 2.0)
    for part in (1.15, 0.9):
        plant = tune(slow, flood, Settings(), usual.throughput, seconds=2.0, p99_ms=part * usual.p99_ms)
        assert simulate(plant, flood, Settings(), 2.0).p99_ms == pytest.approx(part * usual.p99_ms, rel=0.03)
        assert (plant.socket_bytes > slow.socket_bytes) == (part > 1)
    for p99_ms in (1e-3, 1e6):
        found = tune(slow, flood, Settings(), usual.throughput, seconds=0.6, p99_ms=p99_ms).socket_bytes
        assert 1 / 1.31 < found / slow.socket_bytes < 1.31


def test_what_a_sleeping_consumer_takes_is_not_hurried() -> None:
    asleep = Load(Publishers(lead_max=5000), Consumers(message_us=100.0, chunk=10, wake=10, ack_batch=10, prefetch=100))
    usual, quick = (simulate(one, asleep, Settings(), 1.0) for one in (PLANT, hurried(PLANT, 0.1)))
    assert quick.throughput == pytest.approx(usual.throughput, rel=0.1)


def test_clients_are_not_tuned_to_a_p99_that_the_twin_has_without_them() -> None:
    usual = simulate(PLANT, LOAD, Settings(), 0.6)
    plant = tune(PLANT, LOAD, Settings(), usual.throughput)
    assert tune(PLANT, LOAD, Settings(), usual.throughput, p99_ms=0.5 * usual.p99_ms) == plant

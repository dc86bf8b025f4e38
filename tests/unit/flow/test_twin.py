"""The twin: what a load would see with other settings. Nothing here takes time: all of it is simulated."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from penstock.flow.twin import Consumers, Load, Outcome, Plant, Publishers, Settings, simulate

PLANT = Plant()
SHORT_S = 0.5
LAZY = Consumers(message_us=100.0, chunk=10, wake=1, ack_batch=10)


def seen(load: Load, settings: Settings | None = None, plant: Plant = PLANT, seed: int = 0) -> Outcome:
    return simulate(plant, load, settings or Settings(), SHORT_S, seed)


FLOOD = Load(Publishers(), Consumers())
CONFIRMS = Load(Publishers(window=1000), Consumers(acks=False, wake=500))
DURABLE = Load(Publishers(window=1000, persistent=True), Consumers(count=0))


def test_the_same_seed_gives_the_same_outcome() -> None:
    plant = replace(PLANT, sync_us=(200.0, 400.0, 3000.0), stolen=0.3)
    assert seen(DURABLE, plant=plant, seed=7) == seen(DURABLE, plant=plant, seed=7)
    assert seen(DURABLE, plant=plant, seed=7) != seen(DURABLE, plant=plant, seed=8)


@pytest.mark.parametrize("load", [Load(), CONFIRMS, replace(DURABLE, consumers=CONFIRMS.consumers)])
def test_two_settings_differ_by_what_they_do_and_not_by_their_luck(load: Load) -> None:
    quiet = replace(PLANT, sync_us=tuple(200.0 + step for step in range(800)))
    for plant, most in ((quiet, 0.01), (replace(quiet, stolen=0.67), 0.12)):
        found = [seen(load, plant=plant, seed=seed).throughput for seed in range(8)]
        assert max(found) <= min(found) * (1 + most)


def test_all_it_is_told_and_tells_can_travel_to_a_worker() -> None:
    for value in (PLANT, FLOOD, Settings(), seen(CONFIRMS)):
        assert pickle.loads(pickle.dumps(value)) == value


def test_a_slow_channel_is_the_bottleneck_and_its_delay_is_the_throughput() -> None:
    outcome = seen(FLOOD, plant=replace(PLANT, channel_delay_us=100.0))
    assert outcome.bottleneck == "channel"
    assert outcome.throughput == pytest.approx(10_000, rel=0.1)
    assert outcome.blocked["connection"] > 0.9
    assert outcome.cpu < 0.2


def test_a_slow_queue_blocks_channel_and_connection() -> None:
    outcome = seen(Load(Publishers(), Consumers(acks=False)), plant=replace(PLANT, queue_delay_us=100.0))
    assert outcome.bottleneck == "queue"
    assert outcome.throughput == pytest.approx(10_000, rel=0.2)
    assert min(outcome.blocked["connection"], outcome.blocked["channel"]) > 0.9
    assert outcome.blocked["queue"] == 0


def test_a_slow_store_blocks_the_whole_chain() -> None:
    load = Load(Publishers(persistent=True), Consumers(count=0))
    outcome = seen(load, plant=replace(PLANT, sync_us=(50_000.0,)))
    assert outcome.bottleneck == "store"
    assert outcome.blocked["queue"] > 0.5
    assert outcome.syncs < 20


def test_more_credit_lets_more_messages_share_a_slow_sync() -> None:
    load = Load(Publishers(persistent=True), Consumers(count=0))
    plant = replace(PLANT, sync_us=(50_000.0,))
    few = seen(load, Settings(queue_store="500,250"), plant)
    many = seen(load, Settings(queue_store="20000,5000"), plant)
    assert many.throughput > 1.5 * few.throughput


def test_a_confirm_window_bounds_what_one_sync_carries() -> None:
    outcome = seen(DURABLE, plant=replace(PLANT, sync_us=(20_000.0,)))
    assert outcome.throughput <= 1000 / 0.020
    assert outcome.p50_ms >= 20
    assert outcome.bottleneck == ""  # nothing is blocked: the publisher waits for its confirms


def test_larger_batches_cost_less_per_message() -> None:
    small = seen(CONFIRMS, Settings(reader_channel="20,10", channel_queue="20,10"))
    large = seen(CONFIRMS, Settings(reader_channel="2000,1000", channel_queue="2000,1000"))
    assert large.throughput > 1.3 * small.throughput
    assert small.p99_ms > large.p99_ms


def test_a_publisher_with_a_rate_is_not_held_back() -> None:
    outcome = seen(Load(Publishers(rate=20_000, block=100), Consumers(wake=1)))
    assert outcome.throughput == pytest.approx(20_000, rel=0.05)
    assert outcome.bottleneck == ""
    assert outcome.p99_ms < 10
    assert outcome.cpu < 0.5


def test_a_delay_shorter_than_a_timer_is_no_shorter_for_it() -> None:
    plant = replace(PLANT, channel_delay_us=20.0)
    few = seen(Load(Publishers(), Consumers(wake=1)), Settings(reader_channel="25,12"), plant)
    assert few.throughput <= 1e6 / 20


def test_between_two_bursts_nothing_is_held() -> None:
    outcome = seen(Load(Publishers(rate=2000, block=10), Consumers(wake=1, acks=False)))
    assert outcome.in_flight < 1  # ten at a time, for some tenths of a millisecond, every five
    assert outcome.memory_bytes >= 10 * 131


def test_a_slow_consumer_fills_the_queue() -> None:
    outcome = seen(
        Load(Publishers(rate=20_000, block=100), Consumers(message_us=100.0, wake=1, chunk=10, ack_batch=10))
    )
    assert outcome.delivered == pytest.approx(10_000, rel=0.15)
    assert outcome.memory_bytes > 131 * 1000


def test_a_small_prefetch_makes_a_consumer_wait() -> None:
    load = Load(Publishers(lead_max=20_000), Consumers(wake=1, ack_batch=1))
    assert seen(load, Settings(prefetch=1)).throughput < 0.1 * seen(load, Settings(prefetch=500)).throughput


def test_a_saturated_queue_holds_confirms_and_so_its_publisher() -> None:
    slow = Consumers(message_us=100.0, wake=1, chunk=10, ack_batch=10)
    free = seen(Load(Publishers(window=20_000), slow))
    held = seen(Load(Publishers(window=20_000), slow), Settings(stop=1000))
    assert free.saturated == 0
    assert held.saturated > 0.5
    assert held.bottleneck == "saturated"
    assert held.throughput == pytest.approx(10_000, rel=0.2)
    assert held.memory_bytes <= 131 * (20_000 + 1000)  # the window, and what the consumer has not acked


def test_parking_bounds_what_a_flood_leaves_in_the_broker() -> None:
    plant = replace(PLANT, queue_delay_us=100.0, parked_bytes_max=262_144)
    outcome = seen(Load(Publishers(), Consumers(acks=False)), plant=plant)
    read_ahead = plant.read_bytes + 3 * 400 * 131  # one read more than is parked, and the credit of two hops
    assert 262_144 / 2 < outcome.memory_bytes < 262_144 + 2 * read_ahead


def test_a_message_to_many_queues_is_confirmed_once() -> None:
    load = Load(Publishers(window=1000), Consumers(count=4, acks=False), queues=4, fanout=True)
    outcome = seen(load)
    assert outcome.delivered == pytest.approx(4 * outcome.throughput, rel=0.05)


def test_cores_that_others_use_make_it_slower_and_less_even() -> None:
    quiet, crowded = seen(CONFIRMS), seen(CONFIRMS, plant=replace(PLANT, stolen=1.0, steal_us=2000.0))
    assert crowded.throughput < 0.7 * quiet.throughput
    assert crowded.p99_ms > 2 * quiet.p99_ms


def test_wrong_settings_are_refused_in_the_words_of_the_broker() -> None:
    with pytest.raises(ValueError, match="more_after above initial"):
        seen(FLOOD, Settings(reader_channel="100,200"))


def test_no_publisher_and_no_consumer_is_no_error() -> None:
    assert seen(Load(Publishers(count=0), Consumers(count=0))).throughput == 0


def test_a_backlog_is_drained() -> None:
    load = Load(Publishers(count=0), Consumers(), backlog=1_000_000)
    assert seen(load).throughput > 100_000


@pytest.mark.parametrize("seconds", [0.5, 4.0])
@pytest.mark.parametrize(
    ("load", "ahead"),
    [
        (Load(Publishers(count=4, lead_max=5000), LAZY), 20_000),
        (Load(Publishers(count=4, lead_max=5000), LAZY, queues=2), 20_000),
        (Load(Publishers(lead_max=20_000), LAZY, backlog=15_000), 20_000),
        (Load(Publishers(count=2, lead_max=10_000), LAZY, backlog=15_000), 20_000),
        (Load(Publishers(lead_max=5000), replace(LAZY, count=2), queues=2, fanout=True), 10_000),
    ],
)
def test_publishers_are_no_further_ahead_than_they_go_however_long_one_looks(
    load: Load, ahead: int, seconds: float
) -> None:
    """Of several at one queue, each counts its own, and its share of what was there before."""
    load = replace(load, consumers=replace(load.consumers, count=max(load.consumers.count, load.queues)))
    assert simulate(PLANT, load, Settings(), seconds).in_flight == pytest.approx(ahead, rel=0.15)


@pytest.mark.parametrize("socket_bytes", [100_000, 1_000_000, 10_000_000])
def test_a_sender_that_found_the_kernel_full_goes_on_however_little_that_holds(socket_bytes: int) -> None:
    load = Load(Publishers(body_bytes=1024, lead_max=100_000), Consumers(wake=200))
    assert seen(load, plant=replace(PLANT, socket_bytes=socket_bytes)).throughput > 50_000


def test_publishers_that_get_ahead_slowly_are_told_where_they_end() -> None:
    """Consumers are a little slower: most of a lead comes about after what used to be taken for the warm-up."""
    load = Load(Publishers(rate=105_000, block=500, lead_max=20_000), Consumers(message_us=10.0, chunk=100, wake=1))
    outcome = seen(load)
    assert outcome.throughput == pytest.approx(100_000, rel=0.1)
    assert outcome.in_flight == pytest.approx(20_000, rel=0.1)

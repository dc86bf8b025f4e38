"""Sampling: what events say of a stage, of those who wait for confirms, of syncs and of what the broker uses."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.amqp.method import ConfirmSelect
from penstock.broker.activity import TEXT_MAX
from penstock.broker.alarms import Alarms, Thresholds, Watch
from penstock.broker.events import RESOURCES, SAMPLE, VERSION
from penstock.broker.sampling import (
    HELD_FROM_MAX,
    SENDS_TO_MAX,
    SYNC_CLASSES,
    histogram,
    resources,
    sample,
    waiting,
)
from penstock.credit import Stage
from penstock.store.journal import SYNC_BOUNDS_S, sync_class
from tests.events import check_event
from tests.unit.fakes import FakePeer, House


def sampled(stage: Stage, house: House) -> dict[str, Any]:
    """The sample of a stage, which is what docs/events.md says."""
    fields: dict[str, Any] = sample(stage, house.clock.now_ns())
    check_event({"v": VERSION, "type": SAMPLE, "at_us": 0, **fields})
    return fields


def publisher(house: House, key: str, *bodies: bytes, name: str = "peer", confirms: bool = False) -> FakePeer:
    peer = house.peer(name)
    peer.open(1)
    if confirms:
        peer.ask(1, ConfirmSelect())
    peer.publish(1, key, *bodies)
    house.run_until_idle()
    return peer


def test_a_channel_names_its_connection_and_a_connection_its_user_and_client(monkeypatch: pytest.MonkeyPatch) -> None:
    house = House()
    house.queue("q")
    peer = publisher(house, "q", b"x")
    monkeypatch.setattr(peer, "client_name", lambda: "n" * 10 * TEXT_MAX)
    connection = sampled(peer.reader, house)
    (channel,) = peer.reader.outgoing
    assert sampled(channel, house)["connection"] == connection["stage"] == peer.reader.name
    assert (connection["user"], connection["vhost"], connection["client"]) == (peer.user, "/", "n" * TEXT_MAX)
    assert (connection["received"], connection["sent"]) == (1, 1)


def test_a_connection_that_has_no_channel_any_more_is_sampled_all_the_same() -> None:
    house = House()
    peer = house.peer()
    assert "client" not in sampled(peer.reader, house)


def test_turns_and_the_time_they_took_are_told_of_channels_and_queues() -> None:
    house = House()
    queue = house.queue("q")
    peer = publisher(house, "q", b"x")
    queue.mailbox.busy_ns = 5_500
    (channel,) = peer.reader.outgoing
    assert sampled(queue, house)["turns"] == queue.mailbox.turns > 0
    assert sampled(queue, house)["busy_us"] == 5
    assert sampled(channel, house)["turns"] > 0


def test_a_channel_names_the_queues_it_sends_to_and_of_many_those_that_took_longest() -> None:
    house = House()
    queues = [house.queue(f"q{number}") for number in range(SENDS_TO_MAX + 2)]
    peer = publisher(house, "q0", b"x")
    (channel,) = peer.reader.outgoing
    assert sampled(channel, house)["sends_to"] == ["queue q0"]
    for queue in queues[1:]:
        peer.publish(1, queue.queue_name, b"x")
    house.run_until_idle()
    for took, queue in enumerate(queues):
        queue.mailbox.busy_ns = 1_000_000 * took
    assert set(sampled(channel, house)["sends_to"]) == {queue.name for queue in queues[2:]}
    consumer = house.peer("consumer")
    consumer.open(1)
    (idle,) = consumer.reader.outgoing
    assert "sends_to" not in sampled(idle, house)


@pytest.mark.parametrize(
    ("arguments", "limits"),
    [
        ({}, {}),
        ({"x-max-length": 7}, {"limit": 7, "ready": 2}),
        ({"x-max-length": 7, "x-flow-stop-count": 5}, {"limit": 5, "ready": 2}),
        ({"x-flow-stop-bytes": 50, "x-max-length-bytes": 90}, {"limit_bytes": 50, "ready_bytes": 4}),
        ({"x-max-length-bytes": 90, "x-flow-stop-count": 5}, {"limit": 5, "limit_bytes": 90}),
    ],
)
def test_a_queue_says_at_what_it_will_stop(arguments: dict[str, Any], limits: dict[str, int]) -> None:
    house = House()
    queue = house.queue("q", arguments=arguments)
    publisher(house, "q", b"xx", b"xx")
    fields = sampled(queue, house)
    assert {name: fields[name] for name in limits} == limits
    assert ("limit" in fields, "limit_bytes" in fields) == ("limit" in limits, "limit_bytes" in limits)
    assert (fields["vhost"], fields["messages"], fields["saturated"]) == ("/", 2, False)
    assert "held" not in fields


def test_a_saturated_queue_names_those_it_keeps_waiting_but_not_too_many() -> None:
    house = House()
    queue = house.queue("q", arguments={"x-flow-stop-count": 1})
    peers = [
        publisher(house, "q", b"x", b"x", name=f"peer{number}", confirms=True) for number in range(HELD_FROM_MAX + 5)
    ]
    fields = sampled(queue, house)
    assert fields["saturated"]
    assert fields["held"] == 2 * len(peers) - 1, "of the first two messages one is below the mark"
    channels = [channel.name for peer in peers for channel in peer.reader.outgoing]
    assert len(fields["held_from"]) == HELD_FROM_MAX
    assert set(fields["held_from"]) < set(channels)
    found = waiting(house.broker.activity.saturated, 1000)
    assert {stage.name for stage in found if stage.kind == "channel"} == set(fields["held_from"])
    assert sum(stage.kind == "connection" for stage in found) == HELD_FROM_MAX
    assert queue in found


def test_who_is_gone_waits_no_more() -> None:
    house = House()
    queue = house.queue("q", arguments={"x-flow-stop-count": 1})
    gone = publisher(house, "q", b"x", b"x", name="gone", confirms=True)
    stays = publisher(house, "q", b"x", name="stays", confirms=True)
    gone.reader.shut_down()
    house.run_until_idle()
    assert sampled(queue, house)["held_from"] == [channel.name for channel in stays.reader.outgoing]


def test_a_saturated_queue_that_nobody_waits_for_is_looked_at_only_if_asked_for() -> None:
    house = House()
    queue = house.queue("q", arguments={"x-flow-stop-count": 1})
    gone = publisher(house, "q", b"x", b"x", confirms=True)
    gone.reader.shut_down()
    house.run_until_idle()
    assert waiting(house.broker.activity.saturated, 100) == {}
    assert waiting(house.broker.activity.saturated, 100, deserted=True) == {queue: None}


def test_the_search_for_those_who_wait_ends_when_there_are_enough() -> None:
    house = House()
    for number in range(10):
        house.queue(f"q{number}", arguments={"x-flow-stop-count": 1})
        publisher(house, f"q{number}", b"x", b"x", name=f"peer{number}", confirms=True)
    assert len(house.broker.activity.saturated) == 10
    assert len(waiting(house.broker.activity.saturated, 5)) == 6, "two queues, with a channel and a connection each"


def test_syncs_are_counted_in_the_classes_of_the_prometheus_histogram() -> None:
    assert len(SYNC_CLASSES) == len(SYNC_BOUNDS_S) + 1
    assert [int(name) / 1e6 for name in SYNC_CLASSES[:-1]] == list(SYNC_BOUNDS_S)
    durations_ns = [1, 500_000, 500_001, 30_000_000, 40_000_000, 2_500_000_000, 2_500_000_001]
    assert histogram(durations_ns) == {"500": 2, "1000": 1, "50000": 2, "2500000": 1, "inf": 1}
    assert [sync_class(took_ns) for took_ns in durations_ns] == [0, 0, 1, 6, 6, 11, 12]
    assert histogram([]) == {}


class Machine:
    """Vitals of a machine that shows nothing, or these."""

    def __init__(self, memory_used: int = 0, memory: int = 0, disk_free: int | None = None) -> None:
        self._memory_used = memory_used
        self._memory = memory
        self._disk_free = disk_free

    def memory_used_bytes(self) -> int:
        return self._memory_used

    def memory_bytes(self) -> int:
        return self._memory

    def disk_free_bytes(self) -> int | None:
        return self._disk_free

    def core_wait(self) -> tuple[int, int]:
        return 7000, 3

    def give_back(self) -> None:
        return


def used(house: House, watch: Watch | None) -> dict[str, Any]:
    fields: dict[str, Any] = resources(house.broker, watch, 3)
    check_event({"v": VERSION, "type": RESOURCES, "at_us": 0, **fields})
    return fields


def test_resources_are_what_the_alarms_see() -> None:
    house = House()
    house.queue("q")
    publisher(house, "q", b"x")
    thresholds = Thresholds(memory_relative_high=0.5, disk_free_bytes_low=70)
    watch = Watch(house.clock, Alarms(thresholds), Machine(40, 200, 900))
    watch.look()
    fields = used(house, watch)
    assert (fields["memory_used_bytes"], fields["memory_limit_bytes"]) == (40, 100)
    assert (fields["disk_free_bytes"], fields["disk_limit_bytes"]) == (900, 70)
    assert (fields["wait_us"], fields["waits"]) == (7, 3)
    assert (fields["channels"], fields["queues"], fields["events_dropped"]) == (1, 1, 3)


def test_what_the_machine_does_not_show_is_not_told() -> None:
    house = House()
    watch = Watch(house.clock, Alarms(), Machine())
    watch.look()
    for fields in (used(house, watch), used(house, None)):
        assert not [name for name in fields if name.endswith("_bytes")]

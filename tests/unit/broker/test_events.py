"""Events: what is gathered, what is added up, what is dropped and counted. And docs/events.md says all of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.amqp.method import ConfirmSelect, QueueDelete, QueuePurge
from penstock.broker.activity import TEXT_MAX, Activity
from penstock.broker.events import (
    ALARM,
    ALARM_OVER,
    BLOCKED,
    DROPPED,
    EACH_MAX,
    LOGIN_FAILED,
    RELEASED,
    SAMPLE,
    SATURATED,
    TYPES,
    UNBLOCKED,
    Events,
)
from penstock.credit import Hop, Link, Spec, Stage
from penstock.runtime import FakeClock
from tests.events import check_event, documented
from tests.unit.fakes import House

NS_PER_S = 10**9


def taken(events: Events, now_ns: int = 0, wall_us: int = 0) -> list[dict[str, Any]]:
    events.gather(now_ns)
    found = [json.loads(body) for _, body in events.take(now_ns, wall_us)]
    for event in found:
        check_event(event)
    return found


class Chain:
    def __init__(self, per_second: int = 1000) -> None:
        self.events = Events(per_second)
        self.clock = FakeClock()
        hop = Hop("hop", Spec(2, 1), Spec(0, 0))
        log = Activity(self.clock)
        log.events = self.events
        self.channel, self.queue, self.store = (
            Stage(name, self.clock.now_ns, log, name) for name in ("channel", "queue", "store")
        )
        self.first = Link(hop, self.channel, self.queue)
        self.second = Link(hop, self.queue, self.store)


def test_a_block_says_who_by_whom_with_how_much_and_where_the_chain_ends() -> None:
    chain = Chain()
    chain.second.spend(2, 20)
    chain.first.spend(3, 30)
    chain.clock.advance(2)
    chain.queue.block("maximum")
    chain.first.handle(3, 30, defer=False)
    found = taken(chain.events, chain.clock.now_ns(), 5_000_000)
    assert [(event["type"], event["stage"], event["cause"], event["at_us"]) for event in found] == [
        ("blocked", "queue", "store", 3_000_000),
        ("blocked", "channel", "queue", 3_000_000),
        ("blocked", "queue", "maximum", 5_000_000),
        ("unblocked", "channel", "queue", 5_000_000),
    ]
    assert [event["chain"] for event in found[:3]] == [
        ["queue", "store"],
        ["channel", "queue", "store"],
        ["queue", "maximum"],
    ]
    assert (found[1]["messages"], found[1]["bytes"], found[1]["count"]) == (3, 30, 1)
    assert (found[3]["messages"], found[3]["duration_us"], found[3]["longest_us"]) == (3, 2_000_000, 2_000_000)


def test_many_blocks_of_one_link_in_a_second_are_added_up_and_it_says_so() -> None:
    chain = Chain()
    for took_s in range(1, 11):
        chain.first.spend(2, 0)
        chain.clock.advance(took_s)
        chain.first.handle(2, 0)
    found = taken(chain.events, chain.clock.now_ns())
    blocked = [event for event in found if event["type"] == BLOCKED]
    unblocked = [event for event in found if event["type"] == UNBLOCKED]
    assert [event["count"] for event in blocked] == [1] * EACH_MAX + [10 - EACH_MAX]
    assert [event["count"] for event in unblocked] == [1] * EACH_MAX + [10 - EACH_MAX]
    assert sum(event["duration_us"] for event in unblocked) == sum(range(1, 11)) * 1_000_000
    assert (unblocked[-1]["duration_us"], unblocked[-1]["longest_us"]) == (40_000_000, 10_000_000)
    chain.first.spend(2, 0)
    assert [event["count"] for event in taken(chain.events)] == [1], "the next second begins anew"


def test_the_end_of_a_block_of_the_second_before_says_what_was_in_flight_although_it_is_added_up() -> None:
    chain = Chain()
    chain.first.spend(3, 30)
    taken(chain.events)
    chain.first.handle(3, 30)
    for count in range(2, EACH_MAX + 2):
        chain.first.spend(count, 10 * count)
        chain.first.handle(count, 10 * count)
    found = taken(chain.events)
    unblocked = [(one["messages"], one["bytes"], one["count"]) for one in found if one["type"] == UNBLOCKED]
    assert unblocked == [(3, 30, 1), (2, 20, 1), (3, 30, 1), (4, 40, 1), (5, 50, 1), (6, 60, 1)]
    assert sum(one["count"] for one in found if one["type"] == BLOCKED) == EACH_MAX


def test_added_up_blocks_have_the_last_one_s_messages_and_the_first_one_s_chain() -> None:
    chain = Chain()
    for number in range(1, EACH_MAX + 4):
        if number == EACH_MAX + 1:
            chain.second.spend(2, 0)  # from now on the queue is not where it ends
        if number == EACH_MAX + 3:
            chain.second.handle(2, 0)
        chain.first.spend(2 * number, 20 * number)
        chain.first.handle(2 * number, 20 * number, defer=False)
    found = [event for event in taken(chain.events) if event["stage"] == "channel"]
    blocked = [event for event in found if event["type"] == BLOCKED]
    unblocked = [event for event in found if event["type"] == UNBLOCKED]
    assert [event["chain"] for event in blocked[:-1]] == [["channel", "queue"]] * EACH_MAX
    assert (blocked[-1]["count"], blocked[-1]["chain"]) == (3, ["channel", "queue", "store"])
    for last in (blocked[-1], unblocked[-1]):
        assert (last["messages"], last["bytes"]) == (2 * EACH_MAX + 6, 20 * EACH_MAX + 60)


@pytest.mark.parametrize("way", [QueuePurge("q"), QueueDelete("q")], ids=["purged", "deleted"])
def test_a_released_queue_says_how_many_confirms_it_held_and_how_long_it_was_saturated(
    way: QueuePurge | QueueDelete,
) -> None:
    house = House()
    house.broker.activity.events = events = Events()
    house.queue("q", arguments={"x-flow-stop-count": 5})
    peer = house.peer()
    peer.open(1)
    peer.ask(1, ConfirmSelect())
    peer.publish(1, "q", *[b"xy"] * 12)
    house.run_until_idle()
    house.clock.advance(1.5)
    peer.publish(1, "q", b"xy")
    house.run_until_idle()
    house.clock.advance(2)
    peer.ask(1, way)
    house.run_until_idle()
    saturated, released = (one for one in taken(events) if one["type"] in (SATURATED, RELEASED))
    assert (saturated["stage"], saturated["messages"]) == ("queue q", 12)
    assert (released["stage"], released["held"], released["duration_us"]) == ("queue q", 8, 3_500_000)
    assert released["at_us"] - saturated["at_us"] == 3_500_000


def test_an_alarm_that_is_over_says_how_long_it_was_on_with_whatever_reasons() -> None:
    house = House()
    house.broker.activity.events = events = Events()
    alarms = house.broker.alarms
    for reason in ("low", "lower"):
        alarms.raise_alarm("memory", reason)
        house.clock.advance(1.25)
    alarms.raise_alarm("disk", "low")
    house.clock.advance(0.5)
    alarms.clear("memory")
    alarms.clear("disk")
    alarms.raise_alarm("memory", "again")
    house.clock.advance(0.125)
    alarms.clear("memory")
    found = taken(events)
    assert [one["reason"] for one in found if one["type"] == ALARM] == ["low", "lower", "low", "again"]
    over = [(one["source"], one["duration_us"]) for one in found if one["type"] == ALARM_OVER]
    assert over == [("memory", 3_000_000), ("disk", 500_000), ("memory", 125_000)]


def test_a_stage_that_is_blocked_is_told_of_every_second() -> None:
    house = House("2,1")
    told: list[tuple[int, set[str]]] = []
    house.broker.activity.told = lambda stages, now_ns: told.append((now_ns, {stage.name for stage in stages}))
    house.broker.activity.start()
    house.queue("q").mailbox.hold()
    peer = house.peer()
    peer.open(1)
    peer.publish_singly(1, "q", 10)
    house.run_until_idle()
    house.clock.advance(4.5)
    assert [now_ns for now_ns, _ in told] == [NS_PER_S * second for second in range(1, 5)]
    assert all(peer.reader.name in names for _, names in told)


def test_dropped_events_are_counted_by_type_and_told_once() -> None:
    events = Events(per_second=20)
    for number in range(30):
        events.put(SAMPLE, 0, {"stage": f"queue {number}"})
    events.put(ALARM, 0, {"source": "memory", "reason": "low"})
    found = [json.loads(body) for _, body in events.take(0, 0)]
    assert [event["type"] for event in found] == [SAMPLE] * 10 + [ALARM, DROPPED]
    assert found[-1]["counts"] == {SAMPLE: 20}
    assert (found[-1]["total"], events.dropped, events.written) == (20, 20, 12)
    assert events.take(0, 0) == []


def test_whoever_is_not_let_in_cannot_fill_the_stream_with_an_endless_name() -> None:
    activity = Activity(FakeClock())
    activity.events = Events()
    activity.login_failed("é" * 50_000, "http 127.0.0.1", "user '" + "é" * 50_000)
    (event,) = taken(activity.events)
    assert len(event["user"]) == len(event["reason"]) == TEXT_MAX


def test_rare_events_are_not_dropped_for_many_others() -> None:
    events = Events(per_second=1000)
    for number in range(5000):
        events.put(SAMPLE, 0, {"stage": f"queue {number}"})
        if number < 50:
            events.put(LOGIN_FAILED, 0, {"user": "x", "peer": "y", "reason": "z"})
    types = [type_ for type_, _ in events.take(0, 0)]
    assert types.count(LOGIN_FAILED) == 50


@given(st.integers(0, 50), st.lists(st.tuples(st.sampled_from(TYPES), st.integers(1, 9)), max_size=300))
def test_the_buffer_is_bounded_and_what_is_told_and_dropped_is_all_there_was(
    per_second: int, puts: list[tuple[str, int]]
) -> None:
    events = Events(per_second)
    for type_, count in puts:
        events.put(type_, 0, {"count": count}, count)
        assert len(events) <= sum(events.bound(one) for one in TYPES)
    found = [json.loads(body) for _, body in events.take(0, 0)]
    seen = dict.fromkeys(TYPES, 0)
    for event in found:
        if "counts" in event:
            for type_, count in event["counts"].items():
                seen[type_] += count
        else:
            seen[event["type"]] += event["count"]
    expected = dict.fromkeys(TYPES, 0)
    for type_, count in puts:
        expected[type_] += count
    assert seen == expected


@given(st.lists(st.tuples(st.sampled_from(["first", "second"]), st.integers(1, 3)), max_size=100), st.integers(0, 40))
def test_no_block_is_lost_whether_told_added_up_or_dropped(steps: list[tuple[str, int]], per_second: int) -> None:
    chain = Chain(per_second)
    for which, count in steps:
        link = chain.first if which == "first" else chain.second
        link.spend(count, 0)
        link.handle(count, 0, defer=False)
    begun = chain.channel.blocks + chain.queue.blocks
    found = taken(chain.events)
    dropped = found[-1]["counts"] if found and found[-1]["type"] == DROPPED else {}
    for type_ in (BLOCKED, UNBLOCKED):
        told = sum(event["count"] for event in found if event["type"] == type_)
        assert told + dropped.get(type_, 0) == begun


def test_a_broker_without_an_event_stream_gathers_nothing() -> None:
    house = House("2,1")
    house.broker.activity.start()
    house.queue("q").mailbox.hold()
    peer = house.peer()
    peer.open(1)
    peer.publish(1, "q", *[b"x"] * 10)
    house.run_until_idle()
    house.clock.advance(5)
    assert house.broker.activity.events is None
    assert "penstock.events" not in house.vhost.queues


def test_every_type_is_documented_and_nothing_else() -> None:
    assert list(documented()) == list(TYPES)


@pytest.mark.parametrize("type_", TYPES)
def test_the_example_in_the_documents_is_an_event_of_its_type(type_: str) -> None:
    fields, example = documented()[type_]
    assert example["type"] == type_
    check_event(example)
    assert fields

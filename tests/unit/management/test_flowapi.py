"""The watch beside the API: it looks once a second, and hardly at all while nothing is blocked."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.management.flowapi import FlowWatch
from tests.unit.flow.snapshots import API, CHAIN, ORDERS, Picture


class FakeAdmin:
    """A broker that a test draws; it counts how often a snapshot is asked for."""

    def __init__(self) -> None:
        self.picture = Picture()
        self.blocks = 0
        self.asked = 0

    def flow(self) -> dict[str, Any]:
        self.asked += 1
        return self.picture.json()

    def flow_pulse(self) -> tuple[int, int, int]:
        saturated = sum(bool(stage.get("saturated")) for stage in self.picture.stages.values())
        return self.blocks, len(self.picture.blocks), saturated


def look(watch: FlowWatch) -> None:
    asyncio.run(watch.look())


def entries(watch: FlowWatch) -> list[dict[str, Any]]:
    told: Any = asyncio.run(watch.past(60))
    return list(told["verdicts"])


def test_while_nothing_is_blocked_no_snapshot_is_taken():
    admin = FakeAdmin()
    watch = FlowWatch(admin)
    for _ in range(5):
        look(watch)
    assert admin.asked == 1  # the first, for what was before


def test_one_is_taken_when_something_is_blocked_or_was_since_the_last_look_or_a_queue_is_saturated():
    admin = FakeAdmin()
    watch = FlowWatch(admin)
    look(watch)
    admin.blocks = 1
    look(watch)
    assert admin.asked == 2
    look(watch)
    assert admin.asked == 2
    admin.picture.stage(ORDERS, saturated=True, saturated_for_s=1.0)
    look(watch)
    assert admin.asked == 3


def test_it_goes_on_looking_until_the_last_verdict_is_over():
    admin = FakeAdmin()
    watch = FlowWatch(admin)
    admin.picture.block(*CHAIN)
    look(watch)
    admin.picture.free(*CHAIN).passes(1.0)
    look(watch)
    assert admin.asked == 2
    assert [entry["ended_ms"] is None for entry in entries(watch)] == [True]
    admin.picture.passes(4.0)
    look(watch)
    assert [entry["ended_ms"] is None for entry in entries(watch)] == [False]
    look(watch)
    assert admin.asked == 3


def test_the_answer_is_the_snapshot_with_shares_and_verdicts_in_it():
    admin = FakeAdmin()
    admin.picture.block(*CHAIN, for_s=30.0)
    told: Any = asyncio.run(FlowWatch(admin).now())
    assert told["blocked"] is True
    assert [verdict["cause"] for verdict in told["verdicts"]] == ["store"]
    assert {stage["id"]: stage["share_1m"] for stage in told["stages"]}[API] == 0.5
    assert [link["share_1m"] for link in told["links"]] == [0.5, 0.5, 0.5]


def test_of_a_broker_at_rest_the_answer_says_that_nothing_is_blocked():
    told: Any = asyncio.run(FlowWatch(FakeAdmin()).now())
    assert told["blocked"] is False
    assert told["verdicts"] == []

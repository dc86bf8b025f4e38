"""History, of a broker that is only numbers."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.management.history import RINGS, History
from penstock.management.samples import ask


class FakeAdmin:
    def __init__(self) -> None:
        self.published = 0
        self.ready = 0
        self.syncs = 0
        self.sync_seconds = 0.0
        self.blocked = 0

    def overview(self) -> dict[str, Any]:
        return {
            "message_stats": {"publish": self.published},
            "queue_totals": {"messages_ready": self.ready, "messages_unacknowledged": 0},
            "object_totals": {"connections": 2, "queues": 3},
        }

    def node(self) -> dict[str, Any]:
        return {
            "mem_used": 100,
            "mem_limit": 1000,
            "disk_free": 5,
            "disk_free_limit": 1,
            "store": {"syncs": self.syncs, "sync_seconds": self.sync_seconds},
        }

    def flow_totals(self, hops: bool = True) -> dict[str, Any]:
        return {"stages": {"connection": {"blocked": self.blocked}}}


class Observer:
    """A history and its clock."""

    def __init__(self) -> None:
        self.admin = FakeAdmin()
        self.history = History(self.admin)
        self.now_s = 1_000_000.0

    def pass_s(self, seconds: int, publish: int = 0) -> None:
        """So many looks; `publish` messages are published before each."""
        for _ in range(seconds):
            self.now_s += 1.0
            self.admin.published += publish
            self.history.tick(lambda: self.now_s)

    def series(self, age_s: int) -> dict[str, Any]:
        answer: dict[str, Any] = self.history.series(age_s)
        return answer


@pytest.fixture
def observer() -> Observer:
    return Observer()


def test_a_minute_is_told_by_the_second(observer: Observer) -> None:
    observer.pass_s(200, publish=7)
    answer = observer.series(60)
    assert answer["step_s"] == 1
    assert answer["series"]["publish"] == [7.0] * 60
    assert len(answer["at_ms"]) == 60
    assert answer["at_ms"][-1] == 1_000_200_000


def test_an_hour_is_told_in_steps_of_ten_seconds(observer: Observer) -> None:
    observer.pass_s(100)
    observer.pass_s(100, publish=30)
    answer = observer.series(3600)
    assert answer["step_s"] == 10
    assert answer["series"]["publish"][:9] == [0.0] * 9
    assert answer["series"]["publish"][-9:] == [30.0] * 9


def test_ten_minutes_are_cut_out_of_the_hour(observer: Observer) -> None:
    observer.pass_s(1000, publish=1)
    assert len(observer.series(600)["at_ms"]) == 60


def test_a_day_is_told_in_steps_of_five_minutes(observer: Observer) -> None:
    observer.pass_s(1200, publish=2)
    answer = observer.series(86_400)
    assert answer["step_s"] == 300
    assert answer["series"]["publish"] == [2.0] * 3


def test_the_rings_are_bounded(observer: Observer) -> None:
    observer.pass_s(4000)
    assert [len(ring.rows) for ring in observer.history.rings][:2] == [61, 361]
    assert all(ring.rows.maxlen == age_s // step_s + 1 for ring, (step_s, age_s) in zip(observer.history.rings, RINGS))


def test_every_series_is_as_long_as_its_times(observer: Observer) -> None:
    observer.pass_s(5)
    answer = observer.series(60)
    assert {len(values) for values in answer["series"].values()} == {len(answer["at_ms"])} == {4}


def test_a_broker_that_has_just_started_has_no_history(observer: Observer) -> None:
    assert observer.series(60)["at_ms"] == []
    observer.pass_s(1)
    assert observer.series(60)["at_ms"] == []


def test_the_time_of_a_sync_is_the_mean_of_its_step(observer: Observer) -> None:
    observer.pass_s(1)
    observer.admin.syncs, observer.admin.sync_seconds = 4, 0.2
    observer.pass_s(2)
    assert observer.series(60)["series"]["sync_ms"] == [50.0, None]


def test_a_short_block_is_still_seen_in_the_hour(observer: Observer) -> None:
    observer.pass_s(12)
    observer.admin.blocked = 3
    observer.pass_s(1)
    observer.admin.blocked = 0
    observer.pass_s(10)
    assert observer.series(3600)["series"]["blocked_connections"] == [3.0, 0.0]


def test_a_look_that_came_late_does_not_make_the_rate_wrong(observer: Observer) -> None:
    observer.pass_s(1)
    observer.now_s += 3.0
    observer.pass_s(1, publish=400)
    assert observer.series(60)["series"]["publish"] == [100.0]


def test_the_overview_has_rabbitmqs_samples(observer: Observer) -> None:
    observer.pass_s(30, publish=10)
    overview: dict[str, Any] = {
        "message_stats": {"publish": 300, "publish_details": {"rate": 10.0}},
        "queue_totals": {"messages": 0, "messages_details": {"rate": 0.0}},
    }
    observer.history.add_samples(overview, ask({"msg_rates_age": "20", "msg_rates_incr": "5"}))
    details = overview["message_stats"]["publish_details"]
    assert [one["sample"] for one in details["samples"]] == [300, 250, 200, 150, 100]
    assert details["avg_rate"] == 10.0
    assert "samples" not in overview["queue_totals"]["messages_details"], "nobody asked for lengths"

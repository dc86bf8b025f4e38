"""Rates, on a broker of which only the counters are there, with a clock that the test turns."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.management import rates as module
from penstock.management.answer import Slices
from penstock.management.rates import Rates
from penstock.management.samples import ask

COUNTERS = ("publish", "ack", "messages_ready", "messages_unacknowledged")


class FakeListing:
    COUNTERS = COUNTERS

    def __init__(self, objects: dict[tuple[str, str], tuple[int, ...]]) -> None:
        self.objects = objects
        self.keys = list(objects)

    def __len__(self) -> int:
        return len(self.keys)

    def name(self, at: int, /) -> str:
        return self.keys[at][1]

    def vhost(self, at: int, /) -> str:
        return self.keys[at][0]

    def counters(self, at: int, /) -> tuple[int, ...]:
        return self.objects.get(self.keys[at], ())


class FakeAdmin:
    def __init__(self) -> None:
        self.now_s = 100.0
        self.queues: dict[tuple[str, str], tuple[int, ...]] = {}
        self.channels: dict[tuple[str, str], tuple[int, ...]] = {}
        self.published = 0

    def listing(self, kind: str, /) -> FakeListing:
        return FakeListing({"queues": self.queues, "channels": self.channels}.get(kind, {}))

    def overview(self) -> dict[str, Any]:
        return {
            "message_stats": {"publish": self.published} if self.published else {},
            "queue_totals": {"messages": self.published},
            "churn_rates": {"queue_declared": 0},
        }


@pytest.fixture
def admin() -> FakeAdmin:
    return FakeAdmin()


@pytest.fixture
def rates(admin: FakeAdmin) -> Rates:
    return Rates(admin, lambda: admin.now_s)


def look(admin: FakeAdmin, rates: Rates, **queues: tuple[int, ...]) -> None:
    """Five seconds later these are the counters."""
    admin.now_s += 5.0
    admin.queues = {("/", name): counters for name, counters in queues.items()}
    asyncio.run(rates.tick())


def view(name: str = "q", publish: int = 0) -> dict[str, Any]:
    return {
        "name": name,
        "vhost": "/",
        "messages": 0,
        "messages_ready": 0,
        "messages_unacknowledged": 0,
        "message_stats": {"publish": publish, "ack": 0},
    }


def test_a_rate_is_the_difference_of_the_last_two_looks(admin: FakeAdmin, rates: Rates) -> None:
    look(admin, rates, q=(10, 0, 10, 0))
    look(admin, rates, q=(60, 20, 30, 10))
    shown = view()
    rates.add("queues", shown)
    assert shown["message_stats"]["publish_details"] == {"rate": 10.0}
    assert shown["message_stats"]["ack_details"] == {"rate": 4.0}
    assert shown["messages_ready_details"] == {"rate": 4.0}
    assert shown["messages_details"] == {"rate": 6.0}


def test_one_rate_can_be_asked_for_without_a_view(admin: FakeAdmin, rates: Rates) -> None:
    look(admin, rates, q=(10, 0, 10, 0))
    look(admin, rates, q=(60, 20, 30, 10))
    assert rates.rate("queues", "/", "q", "publish") == 10.0
    assert rates.rate("queues", "/", "q", "messages") == 6.0
    for kind, name, counter in (("queues", "q", "none"), ("queues", "other", "publish"), ("users", "q", "publish")):
        assert rates.rate(kind, "/", name, counter) == 0.0


def test_a_vhost_has_the_sums_of_what_is_in_it(admin: FakeAdmin, rates: Rates) -> None:
    admin.channels = {("/", "a"): (0, 0, 0, 0), ("/", "b"): (0, 0, 0, 0), ("shop", "c"): (0, 0, 0, 0)}
    look(admin, rates, q=(0, 0, 0, 0), r=(0, 0, 0, 0))
    admin.channels = {("/", "a"): (50, 0, 0, 0), ("/", "b"): (10, 0, 0, 0), ("shop", "c"): (99, 0, 0, 0)}
    look(admin, rates, q=(0, 0, 20, 5), r=(0, 0, 5, 0))
    shown = view("/", publish=60)
    del shown["vhost"]
    rates.add("vhosts", shown)
    assert shown["message_stats"]["publish_details"] == {"rate": 12.0}
    assert shown["messages_ready_details"] == {"rate": 5.0}
    assert shown["messages_details"] == {"rate": 6.0}


def test_lengths_may_fall(admin: FakeAdmin, rates: Rates) -> None:
    look(admin, rates, q=(10, 0, 10, 0))
    look(admin, rates, q=(10, 10, 0, 0))
    shown = view()
    rates.add("queues", shown)
    assert shown["messages_details"] == {"rate": -2.0}


def test_a_queue_that_is_new_has_a_rate_with_the_first_look_at_it(admin: FakeAdmin, rates: Rates) -> None:
    look(admin, rates)
    look(admin, rates, q=(50, 0, 0, 0))
    assert rates.rate("queues", "/", "q", "publish") == 10.0


def test_at_the_first_look_of_all_the_rate_is_0(admin: FakeAdmin, rates: Rates) -> None:
    look(admin, rates, q=(10, 0, 10, 0))
    shown = view()
    rates.add("queues", shown)
    assert shown["message_stats"]["publish_details"] == {"rate": 0.0}


def test_a_queue_that_nobody_has_seen_has_the_rate_0(rates: Rates) -> None:
    shown = view("never")
    rates.add("queues", shown)
    assert shown["message_stats"]["publish_details"] == {"rate": 0.0}
    assert shown["messages_details"] == {"rate": 0.0}


def test_an_idle_queue_falls_to_0_with_the_next_look(admin: FakeAdmin, rates: Rates) -> None:
    for published in (0, 50, 50):
        look(admin, rates, q=(published, 0, 0, 0))
    assert rates.rate("queues", "/", "q", "publish") == 0.0


def test_a_queue_deleted_and_declared_again_is_not_shown_as_running_backwards(admin: FakeAdmin, rates: Rates) -> None:
    look(admin, rates, q=(1000, 0, 0, 0))
    look(admin, rates, q=(5, 0, 0, 0))
    shown = view()
    rates.add("queues", shown)
    assert shown["message_stats"]["publish_details"] == {"rate": 0.0}


def test_what_is_gone_is_forgotten(admin: FakeAdmin, rates: Rates) -> None:
    look(admin, rates, **{f"q{at}": (1, 0, 0, 0) for at in range(50)})
    look(admin, rates, q1=(2, 0, 0, 0))
    assert list(rates._tracks["queues"]) == [("/", "q1")]


def test_others_have_their_turn_between_two_slices(
    admin: FakeAdmin, rates: Rates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slices, "over", lambda self: True)
    admin.queues = {("/", f"q{at}"): (1, 0, 0, 0) for at in range(100)}
    turns = 0

    async def others(done: asyncio.Event) -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    async def both() -> None:
        done = asyncio.Event()
        task = asyncio.create_task(others(done))
        await rates.tick()
        done.set()
        await task

    asyncio.run(both())
    assert turns >= 100


def test_a_queue_that_goes_away_during_the_walk_is_left_out(admin: FakeAdmin, rates: Rates) -> None:
    look(admin, rates, q=(1, 0, 0, 0), gone=())
    assert list(rates._tracks["queues"]) == [("/", "q")]


def test_the_whole_broker_has_rates_too(admin: FakeAdmin, rates: Rates) -> None:
    look(admin, rates)
    admin.published = 500
    look(admin, rates)
    shown = admin.overview()
    rates.add_overview(shown)
    assert shown["message_stats"] == {"publish": 500, "publish_details": {"rate": 100.0}}
    assert shown["queue_totals"]["messages_details"] == {"rate": 100.0}
    assert shown["churn_rates"]["queue_declared_details"] == {"rate": 0.0}


def test_the_first_message_of_all_has_a_rate(admin: FakeAdmin, rates: Rates) -> None:
    look(admin, rates)  # message_stats is empty until something happens
    admin.published = 5
    look(admin, rates)
    shown = admin.overview()
    rates.add_overview(shown)
    assert shown["message_stats"]["publish_details"] == {"rate": 1.0}


def test_a_queue_has_a_minute_of_samples_without_being_asked_before(admin: FakeAdmin, rates: Rates) -> None:
    for published in range(20):
        look(admin, rates, q=(published, 0, 7, 0))
    past = rates._tracks["queues"][("/", "q")].past
    assert past is not None
    assert [counters[0] for _, counters in past] == list(range(7, 20))


def test_samples_of_many_queues_are_kept_only_of_those_that_are_watched(
    admin: FakeAdmin, rates: Rates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RECORDED_MAX", 2)
    queues = {f"q{at}": (1, 0, 0, 0) for at in range(5)}
    rates.add_samples(view("q4"), ask({"lengths_age": "60", "lengths_incr": "5"}))
    look(admin, rates, **queues)
    kept = [name for (_, name), track in rates._tracks["queues"].items() if track.past]
    assert kept == ["q0", "q1", "q4"]
    admin.now_s += module.WATCHED_S
    look(admin, rates, **queues)
    kept = [name for (_, name), track in rates._tracks["queues"].items() if track.past]
    assert kept == ["q0", "q1"], "nobody asked for it any more"


def test_only_so_many_queues_are_watched(admin: FakeAdmin, rates: Rates) -> None:
    for at in range(module.WATCHED_MAX + 10):
        rates.add_samples(view(f"q{at}"), ask({"lengths_age": "60", "lengths_incr": "5"}))
    assert len(rates._watched) == module.WATCHED_MAX


def test_samples_are_beside_the_rate(admin: FakeAdmin, rates: Rates) -> None:
    look(admin, rates, q=(3, 0, 2, 1))
    shown = view()
    rates.add("queues", shown)
    names = ("lengths_age", "lengths_incr", "msg_rates_age", "msg_rates_incr")
    rates.add_samples(shown, ask(dict.fromkeys(names, "5")))
    details = shown["message_stats"]["publish_details"]
    assert set(details) == {"rate", "samples", "avg", "avg_rate"}
    assert {sample["sample"] for sample in shown["messages_details"]["samples"]} <= {0, 3}

"""The flow snapshot: stages, links, reasons and sums as JSON, and which stages are in it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.amqp.method import ConfirmSelect
from penstock.broker.activity import stage_name
from penstock.broker.admin import Admin
from penstock.broker.snapshot import flow
from tests.unit.fakes import House

WATERMARKS = {"x-flow-stop-count": 2, "x-flow-resume-count": 1}


def seen(house: House) -> dict[str, Any]:
    """As a client of the API gets it."""
    view = json.loads(json.dumps(Admin(house.broker).flow()))
    assert isinstance(view, dict)
    return view


def sums(house: House) -> dict[str, Any]:
    totals = json.loads(json.dumps(Admin(house.broker).flow_totals()))
    assert isinstance(totals, dict)
    return totals


def by_id(view: dict[str, Any]) -> dict[str, Any]:
    stages = {stage["id"]: stage for stage in view["stages"]}
    assert len(stages) == len(view["stages"]), "two stages have the same id"
    return stages


def overloaded(house: House, count: int = 2000) -> None:
    """A publisher whose queue takes nothing."""
    house.queue("orders").mailbox.hold()
    peer = house.peer("shop")
    peer.open(1)
    peer.publish_singly(1, "orders", count)
    house.run_until_idle()


def test_it_says_who_is_blocked_by_whom_since_when_and_with_how_much() -> None:
    house = House("400,200")
    overloaded(house)
    house.clock.advance(3)
    house.vhost.queues["orders"].mailbox.busy_ns = 2_500_000_000
    view = seen(house)
    stages = by_id(view)
    connection, channel, queue = stages["connection shop"], stages["channel shop (1)"], stages["queue orders"]
    assert (connection["kind"], connection["user"], connection["vhost"]) == ("connection", "guest", "/")
    assert connection["blocked_by"][0]["stage"] == "channel shop (1)"
    assert channel["blocked_by"][0]["stage"] == "queue orders"
    assert (connection["blocked"], channel["blocked"], queue["blocked"]) == (True, True, False)
    assert (channel["blocked_for_s"], channel["blocked_s"], channel["blocks"]) == (3.0, 3.0, 1)
    assert (connection["parked_bytes"] > 0, connection["state"]) == (True, "flow")
    assert (channel["connection"], channel["number"]) == ("connection shop", 1)
    assert (queue["mailbox"], queue["messages"], queue["received"]) == (800, 0, 0)
    assert (channel["received"], channel["sent"]) == (800, 800)
    assert (channel["busy_s"], queue["busy_s"]) == (0.0, 2.5)
    links = {(link["upstream"], link["downstream"]): link for link in view["links"]}
    inner = links["channel shop (1)", "queue orders"]
    assert (inner["hop"], inner["blocking"], inner["credit"], inner["in_flight"]) == ("channel_queue", True, -400, 800)
    assert links["connection shop", "channel shop (1)"]["deferred"] == 400
    assert (view["version"], view["left_out"], view["alarms"]) == (1, 0, [])


def test_sums_only_grow_and_remember_stages_that_are_gone() -> None:
    house = House("2,1")
    overloaded(house, 10)
    house.clock.advance(2)
    assert sums(house)["stages"]["channel"] == {"blocks": 1, "blocked_s": 2.0, "blocked": 1}
    house.vhost.queues["orders"].delete()
    house.run_until_idle()
    house.clock.advance(5)
    assert sums(house)["stages"]["channel"] == {"blocks": 1, "blocked_s": 2.0, "blocked": 0}
    assert sums(house)["hops"]["channel_queue"]["links"] == 0


def test_the_sums_of_a_hop_are_those_of_its_links() -> None:
    house = House("400,200", "100000,50000")
    overloaded(house)
    view = seen(house)
    for name, hop in sums(house)["hops"].items():
        links = [link for link in view["links"] if link["hop"] == name]
        for key in ("credit", "in_flight", "in_flight_bytes", "deferred", "blocking"):
            assert hop[key] == sum(link[key] for link in links), (name, key)


def test_idle_stages_are_not_in_it_and_busy_ones_leave_it_after_a_minute() -> None:
    house = House()
    for number in range(50):
        house.queue(f"idle {number}")
    house.queue("orders")
    peer = house.peer("shop")
    peer.open(1)
    assert by_id(seen(house)) == {}
    peer.publish(1, "orders", b"x")
    house.run_until_idle()
    assert by_id(seen(house)).keys() == {"connection shop", "channel shop (1)", "queue orders"}
    house.clock.advance(59)
    assert by_id(seen(house)).keys() == {"connection shop", "channel shop (1)", "queue orders"}
    house.clock.advance(2)
    assert by_id(seen(house)) == {}


def test_a_blocked_stage_stays_in_it_for_as_long_as_it_is_blocked_and_a_minute_more() -> None:
    house = House("2,1")
    house.broker.activity.start()  # else it looks only when it is asked
    overloaded(house, 10)
    house.clock.advance(600)
    assert "channel shop (1)" in by_id(seen(house))
    house.vhost.queues["orders"].mailbox.release()
    house.run_until_idle()
    house.clock.advance(30)
    assert by_id(seen(house))["channel shop (1)"]["blocked_s"] == 600.0
    house.clock.advance(32)
    assert by_id(seen(house)) == {}


def test_it_is_bounded_keeps_what_is_blocked_and_counts_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow, "STAGES_MAX", 10)
    house = House("2,1")
    peer = house.peer("many")
    peer.open(1)
    for number in range(30):
        house.queue(f"q{number}")
        peer.publish(1, f"q{number}", b"x")
    overloaded(house, 10)
    view = seen(house)
    assert len(view["stages"]) == 10
    assert view["left_out"] > 20
    assert {"connection shop", "channel shop (1)", "queue orders"} <= by_id(view).keys()


def test_what_is_remembered_is_bounded_too() -> None:
    house = House()
    house.broker.activity.stages_max = 5
    peer = house.peer("many")
    peer.open(1)
    for number in range(30):
        house.queue(f"q{number}")
        peer.publish(1, f"q{number}", b"x")
    house.run_until_idle()
    house.broker.activity.look()
    assert len(house.broker.activity.recent) == 5


def test_what_ended_leaves_nothing_behind() -> None:
    house = House("2,1")
    overloaded(house, 10)
    house.broker.activity.look()
    peer = house.peer("other")
    peer.open(1)
    house.broker.alarms.raise_alarm("memory", "low on memory")
    peer.publish(1, "orders", b"x")
    house.run_until_idle()
    assert house.broker.activity.blocking
    for one in [*house.broker.activity.blocking]:
        one.down()
    for one in [*house.broker.activity.recent]:
        one.down()
    assert not house.broker.activity.blocking
    assert not house.broker.activity.recent
    assert not house.broker.reader_channel.active
    assert not house.broker.channel_queue.active


def test_an_alarm_is_a_reason_without_a_stage() -> None:
    house = House()
    house.queue("orders")
    peer = house.peer("shop")
    peer.open(1)
    house.broker.alarms.raise_alarm("memory", "low on memory: 2 of 1")
    house.clock.advance(5)
    peer.publish(1, "orders", b"x")
    house.clock.advance(2)
    view = seen(house)
    assert view["alarms"] == [{"source": "memory", "reason": "low on memory: 2 of 1", "for_s": 7.0}]
    (reason,) = by_id(view)["connection shop"]["blocked_by"]
    assert reason == {
        "stage": None,
        "alarm": "memory",
        "reason": "memory alarm",
        "for_s": 2.0,
        "messages": 0,
        "bytes": 0,
    }
    assert by_id(view)["connection shop"]["state"] == "blocked"
    house.broker.alarms.clear("memory")
    assert seen(house)["alarms"] == []


def test_a_saturated_queue_says_whose_confirms_it_holds_until_it_is_released() -> None:
    house = House()
    queue = house.queue("orders", arguments=WATERMARKS)
    peer = house.peer("shop")
    peer.open(1)
    peer.ask(1, ConfirmSelect())
    peer.publish(1, "orders", *[b"x"] * 5)
    house.run_until_idle()
    house.clock.advance(90)  # longer than anything else is remembered
    view = seen(house)
    stage = by_id(view)["queue orders"]
    assert (stage["saturated"], stage["saturated_for_s"], stage["held"]) == (True, 90.0, 3)
    assert stage["held_from"] == {"channel shop (1)": 3}
    assert by_id(view)["channel shop (1)"]["unconfirmed"] == 3
    assert "connection shop" in by_id(view)
    assert (view["totals"]["held_confirms"], view["totals"]["saturated_queues"]) == (3, 1)
    queue.purge()
    house.run_until_idle()
    assert seen(house)["totals"]["saturated_queues"] == 0


def test_a_queue_at_its_maximum_is_blocked_by_it() -> None:
    house = House()
    house.queue("orders", arguments={"x-max-length": 2, "x-overflow": "block-publish"})
    peer = house.peer("shop")
    peer.open(1)
    peer.publish(1, "orders", b"x", b"x", b"x")
    house.run_until_idle()
    (reason,) = by_id(seen(house))["queue orders"]["blocked_by"]
    assert (reason["stage"], reason["alarm"], reason["reason"]) == (None, None, "maximum")


def test_settings_that_flow_depends_on_are_in_it() -> None:
    house = House()
    view = flow.flow(
        house.broker, [{"name": "credit.channel_queue", "value": "400,200"}, {"name": "log.level", "value": ""}]
    )
    assert view["settings"] == {"credit.channel_queue": "400,200"}


@pytest.mark.parametrize(
    ("vhost", "queue", "expected"),
    [
        ("/", "orders", "queue orders"),
        ("shop", "orders", "queue shop/orders"),
        ("/", "shop/orders", "queue %2F/shop/orders"),
        ("a/b", "c", "queue a%2Fb/c"),
        ("a", "b/c", "queue a/b/c"),
    ],
)
def test_queues_of_all_vhosts_have_names_of_their_own(vhost: str, queue: str, expected: str) -> None:
    assert stage_name(vhost, queue) == expected

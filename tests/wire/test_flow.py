"""What blocks what, on a real broker with a real client: GET /api/flow names the true cause of five overloads.

Each overload holds the publisher `orders-api` back in its own way (overloads.py). The verdict must be the true one and
stay so as long as it lasts; when its cause is lifted and the publisher goes on, there must be none.
Not here: stages that are slow by themselves, without faults (test_slow_stages.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from tests.wire.live import LiveBroker
from tests.wire.overloads import KINDS, STOP_COUNT, Overload, overload
from tests.wire.raw import RawClient, publish_bytes
from tests.wire.test_management import Http
from tests.wire.waiting import LIMIT_S, wait_until

LOOKS = 20  # at a verdict that must not change


class Verdicts:
    """What the API of a broker says."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = Http(url)

    def flow(self) -> dict[str, Any]:
        return dict(self.http.get("flow"))

    def verdicts(self) -> list[dict[str, Any]]:
        return list(self.flow()["verdicts"])

    def wait_for(self, cause: str) -> dict[str, Any]:
        """Until there is one verdict, of this cause."""
        return wait_until(
            lambda: [one for one in self.verdicts() if one["cause"] == cause],
            LIMIT_S,
            f"a verdict of cause {cause}",
        )[0]

    def wait_for_entry(self, cause: str, is_over: bool) -> dict[str, Any]:
        """Until the history has a verdict of this cause, that goes on or is over."""
        return wait_until(
            lambda: [one for one in self.past(cause) if is_over == (one["ended_ms"] is not None)],
            LIMIT_S,
            f"cause {cause} in the history",
        )[0]

    def past(self, cause: str) -> list[dict[str, Any]]:
        return [one for one in self.http.get("flow/history")["verdicts"] if one["cause"] == cause]

    def wait_for_none(self) -> None:
        wait_until(lambda: not self.verdicts(), LIMIT_S, "no verdict any more")


class Site(Verdicts):
    """A broker that keeps messages on disk, and its API."""

    def __init__(self, broker: LiveBroker) -> None:
        super().__init__(f"http://127.0.0.1:{broker.manage()}/")
        self.broker = broker


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with LiveBroker(data=tmp_path / "data") as broker:
        yield Site(broker)


BOTTLENECKS = {
    "store": lambda one: "store",
    "queue": lambda one: f"queue {one.queue}",
    "channel": lambda one: None,  # its name has the client's port in it
    "memory": lambda one: "alarm memory",
    "saturated": lambda one: f"consumers of queue {one.queue}",
}
KNOBS = {
    "store": "faults.store_sync_delay_ms",
    "queue": "faults.queue_delay_us",
    "channel": "faults.channel_delay_us",
    "memory": "alarms.memory_bytes_high",
    "saturated": "flow-stop-count",
}


def check(verdict: dict[str, Any], one: Overload) -> None:
    assert verdict["cause"] == one.cause, verdict["sentence"]
    assert verdict["name"] == one.connection
    assert (verdict["user"], verdict["vhost"]) == ("guest", "/")
    assert verdict["resource"] == one.what.resource
    assert verdict["sentence"].startswith(f"{one.connection} ")
    assert " of the last minute, for " in verdict["sentence"]
    assert verdict["chain"][0] == verdict["id"] == f"connection {verdict['connection']}"
    assert verdict["chain"][-1] == verdict["bottleneck"]
    expected = BOTTLENECKS[one.kind](one)
    assert verdict["bottleneck"] == expected or (expected is None and verdict["bottleneck"].startswith("channel "))
    values = {knob["setting"]: knob["value"] for knob in verdict["knobs"]}
    assert values[KNOBS[one.kind]] == str(one.what.value or STOP_COUNT)


@pytest.mark.timeout(200)
@pytest.mark.parametrize("kind", KINDS)
def test_the_verdict_names_what_truly_holds_the_publisher_back_and_goes_when_it_is_over(site: Site, kind: str) -> None:
    assert site.flow()["blocked"] is False
    with overload(kind, site.broker.port, site.url) as one:
        site.wait_for(one.cause)
        for _ in range(LOOKS):
            (verdict,) = site.verdicts()
            check(verdict, one)
        flow = site.flow()
        assert flow["blocked"] is True
        (verdict,) = flow["verdicts"]
        assert 0 < verdict["share_1m"] <= 1
        assert verdict["since_s"] > 0
        (stage,) = [stage for stage in flow["stages"] if stage["id"] == verdict["id"]]
        assert stage["client_name"] == one.connection
        site.wait_for_entry(one.cause, is_over=False)  # it is noted once a second
        one.lift()
        site.wait_for_none()
        past = site.wait_for_entry(one.cause, is_over=True)
        assert past["name"] == one.connection
        assert past["began_ms"] <= past["ended_ms"]


def test_the_history_has_the_blocked_share_of_every_second(site: Site) -> None:
    with overload("queue", site.broker.port, site.url) as one:
        verdict = site.wait_for(one.cause)
        history = wait_until(
            lambda: [one for one in [site.http.get("flow/history?age=60")] if verdict["id"] in one["stages"]],
            LIMIT_S,
            "the first second in which the connection was blocked",
        )[0]
        assert history["step_s"] == 1
        for shares in history["stages"].values():
            assert len(shares) == len(history["at_ms"])
            assert all(0 <= share <= 1 for share in shares)
    status, told = site.http.ask("GET", "flow/history?age=61")
    assert status == 400
    assert "'age'" in told["reason"]


def test_a_setting_of_the_verdict_s_knobs_can_be_turned_as_it_is_named(site: Site) -> None:
    with overload("channel", site.broker.port, site.url) as one:
        (knob, *_) = site.wait_for(one.cause)["knobs"]
        assert (knob["kind"], knob["value"]) == ("setting", str(one.what.value))
        assert site.http.put(f"settings/{knob['setting']}", {"value": "0"}) == 204
        site.wait_for_none()


# What the five do not have: chains of another shape.


def published(port: int, queues: dict[str, dict[str, Any]], count: int) -> RawClient:
    """A client that has declared these queues and published so much to the first of them."""
    client = RawClient(port).handshake(name="orders-api").open()
    for name, arguments in queues.items():
        client.ask(QueueDeclare(name, arguments=arguments), QueueDeclareOk)
    client.send_bytes(publish_bytes(next(iter(queues)), b"x") * count)
    return client


def test_a_dead_letter_queue_that_stands_still_holds_back_whoever_publishes_to_the_first_queue(site: Site) -> None:
    dying = {"x-max-length": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    with published(site.broker.port, {"dead": {}, "orders": dying}, 0) as client:
        site.broker.suspend("dead")
        client.send_bytes(publish_bytes("orders", b"x") * 3000)
        verdict = site.wait_for("dead letters")
        assert verdict["bottleneck"] == "queue dead"
        assert verdict["chain"][2:] == ["queue orders", "queue dead"]
        site.broker.release("dead")
        site.wait_for_none()


def test_a_queue_at_its_maximum_that_blocks_publishers_is_held_back_by_its_consumers(site: Site) -> None:
    with published(site.broker.port, {"full": {"x-max-length": 10, "x-overflow": "block-publish"}}, 3000):
        verdict = site.wait_for("saturated")
        assert verdict["bottleneck"] == "consumers of queue full"
        assert "at its maximum" in verdict["sentence"]
        assert {"vhost": "/", "queue": "full", "key": "max-length"} in [knob.get("policy") for knob in verdict["knobs"]]
        assert site.http.ask("DELETE", "queues/%2F/full/contents")[0] == 204


def test_two_channels_of_one_connection_are_held_back_by_a_queue_each_and_both_are_named(site: Site) -> None:
    with published(site.broker.port, {"one": {}, "two": {}}, 0) as client:
        client.open(2)
        for number, name in ((1, "one"), (2, "two")):
            site.broker.suspend(name)
            client.send_bytes(publish_bytes(name, b"x", channel=number) * 1500)
        verdict = wait_until(
            lambda: [one for one in site.verdicts() if one["also"]], LIMIT_S, "a verdict with another bottleneck"
        )[0]
        assert {verdict["bottleneck"], *verdict["also"]} == {"queue one", "queue two"}
        assert "holds it back too" in verdict["sentence"]
        for name in ("one", "two"):
            site.broker.release(name)
        site.wait_for_none()


def test_a_queue_that_is_deleted_while_it_holds_a_publisher_back_is_not_named_any_more(site: Site) -> None:
    with published(site.broker.port, {"orders": {}}, 0) as client:
        site.broker.suspend("orders")
        client.send_bytes(publish_bytes("orders", b"x") * 1500)
        site.wait_for("queue")
        site.broker.call(lambda: site.broker.queue("orders").delete())
        site.wait_for_none()

"""Advice put to use: what is asked of a running broker, settings that are set, measured, and set back. It is played."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.spark.advice import change as change_
from penstock.spark.advice.adviser import FILE, last_change, write
from penstock.spark.advice.change import apply, measure
from penstock.spark.advice.clients import Consuming, Json, Publishing, ask
from penstock.spark.complaint import Complaint

CONNECTION = "connection 10.0.0.5:50112 -> 10.0.0.1:5672"


class Clock:
    """Goes on when somebody sleeps, and only then: what is measured does not depend on how busy this machine is."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.001)  # what is left may be too little to be added


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(change_, "time", found)
    return found


class Played:
    """An HTTP API of a broker whose throughput depends on one setting."""

    def __init__(self, rates: dict[str, float], refuses: str = "") -> None:
        self.rates = rates
        self.refuses = refuses
        self.stuck = ""  # cannot be set at all
        self.settings = {"credit.queue_store": "10,5", "credit.channel_queue": "400,200"}
        self.put_values: list[tuple[str, str]] = []
        self.published = 0.0

    def get(self, *path: str, **query: str) -> Json:
        if path == ("overview",):
            self.published += self.rates.get(self.settings["credit.queue_store"], 0.0)
            stats: Json = {"publish": self.published, "confirm": self.published, "deliver_get": 0}
            return {"message_stats": stats, "queue_totals": {"messages": 5}}
        if path == ("flow",):
            connection: Json = {
                "id": CONNECTION,
                "kind": "connection",
                "sent": self.published,
                "blocked_s": 0.0,
                "parked_bytes": 161,
            }
            channel: Json = {"id": "channel x", "kind": "channel", "connection": CONNECTION, "unconfirmed": 50}
            link: Json = {"in_flight": 10, "in_flight_bytes": 1310}
            return {"stages": [connection, channel], "links": [link], "store": {"pending_messages": 0}}
        if path == ("nodes",):
            return [{"mem_used": 1000}]
        if path == ("settings",):
            return [{"name": name, "value": value} for name, value in self.settings.items()]
        if path[0] == "settings":
            return {"name": path[1], "value": self.settings[path[1]]}
        if path == ("channels",):
            name = CONNECTION.partition(" ")[2] + " (1)"
            return [
                {
                    "name": name,
                    "confirm": True,
                    "messages_unconfirmed": 9,
                    "message_stats": {"publish_details": {"rate": 5.0}},
                }
            ]
        if path == ("queues",):
            marked: Json = {"x-flow-stop-count": 800, "x-flow-resume-count": 600}
            blocking: Json = {"x-max-length": 1000, "x-overflow": "block-publish"}
            return [
                {"name": "a", "vhost": "/", "durable": True, "arguments": marked},
                {"name": "b", "vhost": "shop", "arguments": {"x-max-length": 5}},
                {"name": "c", "vhost": "shop", "arguments": {}, "effective_policy_definition": blocking},
            ]
        assert path == ("consumers",)
        return [{"queue": {"name": "a", "vhost": "/"}, "ack_required": True, "prefetch_count": 20}]

    def put(self, *path: str, body: Json = None) -> Json:
        assert isinstance(body, dict)
        if path[1] == self.stuck:
            raise Complaint("stuck")
        if path[1] == self.refuses and body["value"] != self.settings[path[1]]:
            raise Complaint("refused")
        self.put_values.append((path[1], str(body["value"])))
        self.settings[path[1]] = str(body["value"])
        return None


def test_the_running_broker_is_asked_for_windows_prefetches_and_marks():
    clients = ask(Played({}), looks=2, pause_s=0.0)
    assert clients.publishing == (Publishing(CONNECTION, True, 9, 9.0, 161),)
    assert clients.consuming == (Consuming("queue a", True, 20),)
    assert clients.marks == {"queue a": (800, 600), "queue shop/c": (800, 700)}
    assert clients.durable == {"queue a"}
    assert clients.settings["credit.queue_store"] == "10,5"


def test_a_change_that_helps_stays_and_is_told():
    api = Played({"10,5": 1000.0, "2000,500": 6000.0})
    change = apply(api, {"credit.queue_store": "2000,500"}, measure_s=0.01, settle_s=0.0)
    assert api.settings["credit.queue_store"] == "2000,500"
    assert not change.rolled_back
    assert change.after.throughput > change.before.throughput
    assert change.sentence.startswith("Measured: ")
    applied = change.document()["applied"]
    assert isinstance(applied, dict)
    assert applied["settings"] == {"credit.queue_store": "2000,500"}


def test_what_is_parked_waits_for_its_confirm_too():
    api = Played({"10,5": 1000.0})
    measured = measure(api, 0.01)
    waiting = 50 + 161 / 131
    assert measured.confirm_ms == pytest.approx(1000 * waiting / measured.confirmed)


def test_a_change_that_makes_it_worse_is_taken_back_unless_told_otherwise():
    api = Played({"10,5": 100_000.0, "2000,500": 500.0})
    change = apply(api, {"credit.queue_store": "2000,500"}, measure_s=0.01, settle_s=0.0)
    assert change.rolled_back
    assert api.settings["credit.queue_store"] == "10,5"
    assert "the old values are set again: credit.queue_store = 10,5" in change.sentence
    api = Played({"10,5": 100_000.0, "2000,500": 500.0})
    assert not apply(api, {"credit.queue_store": "2000,500"}, 0.01, rollback=False, settle_s=0.0).rolled_back
    assert api.settings["credit.queue_store"] == "2000,500"


def test_what_was_set_before_a_refusal_or_an_interruption_is_set_back():
    api = Played({"10,5": 100_000.0, "2000,500": 100_000.0}, refuses="credit.channel_queue")
    with pytest.raises(Complaint, match="refused"):
        apply(api, {"credit.queue_store": "2000,500", "credit.channel_queue": "9,9"}, 0.01, settle_s=0.0)
    assert api.settings == {"credit.queue_store": "10,5", "credit.channel_queue": "400,200"}

    def interrupt(what: str, done: float, whole: float) -> None:
        if what == "after":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(api, {"credit.queue_store": "2000,500"}, 0.01, watch=interrupt, settle_s=0.0)
    assert api.settings["credit.queue_store"] == "10,5"


def test_what_cannot_be_set_back_is_named_and_the_others_are_set_back():
    wanted = {"credit.queue_store": "2000,500", "credit.channel_queue": "9,9"}
    api = Played({"10,5": 100_000.0, "2000,500": 500.0})

    def stick(what: str, done: float, whole: float) -> None:
        api.stuck = "credit.queue_store" if what == "after" else ""

    with pytest.raises(Complaint, match=r"not set back, so set them yourself: credit.queue_store = 10,5 \(stuck\)"):
        apply(api, wanted, 0.01, watch=stick, settle_s=0.0)
    assert api.settings == {"credit.queue_store": "2000,500", "credit.channel_queue": "400,200"}


def test_without_load_nothing_is_set():
    api = Played({})
    with pytest.raises(Complaint, match="nothing is published at the moment"):
        apply(api, {"credit.queue_store": "2000,500"}, measure_s=0.01, settle_s=0.0)
    assert api.put_values == []


def test_samples_from_before_a_change_do_not_count_and_a_file_that_is_not_ours_says_nothing(tmp_path: Path):
    assert last_change(tmp_path) is None
    write(tmp_path, {"applied": {"at_ms": 1_794_835_366_000}})
    assert last_change(tmp_path) == datetime.fromtimestamp(1_794_835_366, UTC)
    for text in ("", "[]", "{}", '{"applied": {}}', '{"applied": {"at_ms": "soon"}}'):
        (tmp_path / FILE).write_text(text)
        assert last_change(tmp_path) is None

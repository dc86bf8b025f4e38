"""Advice put to use: what is asked of a running broker, settings that are set, measured, and set back. It is played."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.broker.activity import stage_name
from penstock.flow.twin import Load, Plant, Settings
from penstock.spark.advice import applied as applied_
from penstock.spark.advice import change as change_
from penstock.spark.advice.adviser import Advice, ceiling_of, marked, study
from penstock.spark.advice.applied import BEGUN, FILE, KEPT, TAKEN_BACK, Diary
from penstock.spark.advice.change import Measurement, apply, is_better, measure, worse
from penstock.spark.advice.clients import NO_CEILING, Clients, Consuming, Json, Publishing, ask, rows_of, stage_of
from penstock.spark.advice.knob import AS_DECLARED, marks_of, put, queue_of, value_of
from penstock.spark.advice.load import Model
from penstock.spark.advice.observed import Observed, observe
from penstock.spark.advice.rank import Candidate
from penstock.spark.complaint import Complaint
from tests.spark.pipeline.test_advise_words import loaded, outcome

ORDERS = "marks of queue orders"
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


class Refusal(Exception):
    """As console/site.py has it: a line, and HTTP's status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Played:
    """An HTTP API of a broker whose throughput depends on one setting, and with a queue whose marks policies set."""

    def __init__(self, rates: dict[str, float], refuses: str = "") -> None:
        self.rates = rates
        self.refuses = refuses
        self.stuck = ""  # cannot be set at all
        self.settings = {"credit.queue_store": "10,5", "credit.channel_queue": "400,200"}
        self.put_values: list[tuple[str, str]] = []
        self.published = 0.0
        self.taken = 0.0  # by the queue; 0: no queue takes anything
        self.policies: dict[str, dict[str, Json]] = {}
        self.arguments = (10**9, 10**9)  # the queue's own marks
        self.ready = 0
        self.brief = False  # releases are too short to be seen
        self.times = 0  # that it was saturated
        self.queues = {"orders"}
        self.given: dict[str, Json] = {}  # the queue's arguments
        self.stalls = ""  # with this credit queues take nothing

    def get(self, *path: str, **query: str) -> Json:
        if path == ("overview",):
            self.published += self.rates.get(self.settings["credit.queue_store"], 0.0)
            if self.settings["credit.queue_store"] != self.stalls:
                self.taken += self.rates.get(str(self.counting().get("name")), 0.0)
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
            marked: Json = {"stop_count": 800, "resume_count": 600, "stop_bytes": None, "resume_bytes": None}
            a: Json = {"id": "queue a", "kind": "queue", "name": "a", "vhost": "/", "messages": 30, "consumers": 1}
            assert isinstance(a, dict)
            queues: list[Json] = [
                a | {"watermark": marked},
                {"id": "queue b", "kind": "queue", "name": "b", "messages": 10_000, "consumers": 0},
                {"id": "queue c", "kind": "queue", "name": "c", "watermark": {"stop_count": None, "stop_bytes": 10**6}},
                self.orders(),
            ]
            link: Json = {"in_flight": 10, "in_flight_bytes": 1310}
            stages: list[Json] = [connection, channel, *queues]
            totals: Json = {"parked_bytes": 161}
            return {"stages": stages, "links": [link], "store": {"pending_messages": 0}, "totals": totals}
        if path == ("nodes",):
            return [{"mem_used": 1000}]
        if path == ("settings",):
            return [{"name": name, "value": value} for name, value in self.settings.items()]
        if path[0] == "policies":
            return dict(self.policies[path[2]])
        if path == ("queues",):
            definition = self.counting().get("definition", {})
            named: Json = {"vhost": "/", "name": "orders", "arguments": self.given}
            assert isinstance(named, dict)
            return [named | {"effective_policy_definition": definition}]
        if path[0] == "queues":
            if path[2] not in self.queues:
                raise Refusal("there is no such queue", 404)
            now = self.counting()
            orders = self.orders()
            assert isinstance(orders, dict)
            self.times += not orders["saturated"]
            saturation: Json = {"saturated": orders["saturated"] or self.brief, "times": self.times}
            policy: Json = {"policy": now.get("name"), "effective_policy_definition": now.get("definition", {})}
            assert isinstance(policy, dict)
            return policy | {"saturation": saturation}
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
        assert path == ("consumers",)
        return [{"queue": {"name": "a", "vhost": "/"}, "ack_required": True, "prefetch_count": 20}]

    def counting(self) -> dict[str, Json]:
        """The policy that counts for queue orders."""
        return max(self.policies.values(), key=lambda one: int(str(one["priority"])), default={})

    def orders(self) -> Json:
        definition = self.counting().get("definition", {})
        assert isinstance(definition, dict)
        stop, resume = (
            min(own, int(str(definition.get(key, own))))
            for own, key in zip(self.arguments, ("flow-stop-count", "flow-resume-count"), strict=True)
        )
        saturated = self.ready > stop
        if saturated:
            self.ready -= 500  # its consumers work on; nothing new comes
        mark: Json = {"stop_count": stop, "resume_count": resume}
        named: Json = {"id": "queue orders", "kind": "queue", "name": "orders", "vhost": "/", "received": self.taken}
        assert isinstance(named, dict)
        return named | {"watermark": mark, "saturated": saturated, "messages": self.ready}

    def delete(self, *path: str, **query: str) -> Json:
        if self.policies.pop(path[2], None) is None:
            raise Refusal("there is no such policy", 404)
        return None

    def put(self, *path: str, body: Json = None) -> Json:
        assert isinstance(body, dict)
        if path[0] == "policies":
            if self.refuses == "policies":
                raise Refusal("user 'eve' needs the tag administrator or policymaker", 403)
            assert re.compile(str(body["pattern"])).search("orders.eu") is None
            self.policies[path[2]] = {"name": path[2], **body}
            return None
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
    assert clients.marks["queue a"] == (800, 600)
    assert clients.marked["queue a"] == ("/", "a")
    assert clients.in_bytes == ("queue c",)
    assert clients.settings["credit.queue_store"] == "10,5"


@pytest.mark.parametrize(
    ("vhost", "name"), [("/", "orders"), ("/", "a/b"), ("/prod", "orders"), ("eu prod", "orders"), ("eu%2F", "a/b")]
)
def test_a_consumer_s_queue_is_called_what_events_call_it(vhost: str, name: str):
    assert stage_of({"vhost": vhost, "name": name}) == stage_name(vhost, name)


BLOCKS: dict[str, Json] = {"x-overflow": "block-publish"}
LENGTHS: dict[str, Json] = {"x-max-length": 4000}


@pytest.mark.parametrize(
    ("arguments", "policy", "now", "ceiling"),
    [
        ({}, {}, 1000, (NO_CEILING, NO_CEILING)),
        ({"x-flow-stop-count": 900}, {}, 900, (900, NO_CEILING)),
        ({"qpid.flow_stop_count": 900, "qpid.flow_resume_count": 500}, {}, 900, (900, 500)),
        ({"x-flow-stop-count": 0, **BLOCKS, **LENGTHS}, {"max-length": 5000}, 1000, (3200, NO_CEILING)),
        ({**BLOCKS, **LENGTHS}, {"max-length": 3000, "flow-stop-count": 10}, 10, (2400, NO_CEILING)),
        ({"x-flow-stop-count": 3900, **BLOCKS, **LENGTHS}, {}, 3900, (3900, NO_CEILING)),
        (LENGTHS, {"overflow": "block-publish"}, 1000, (3200, NO_CEILING)),
        # What drops or refuses at its maximum, in messages or in bytes, gets no nearer to it.
        (LENGTHS, {"flow-stop-count": 100}, 100, (100, NO_CEILING)),
        ({}, {"max-length": 5000, "flow-stop-count": 100}, 100, (100, NO_CEILING)),
        ({"x-max-length-bytes": 10**6}, {"flow-stop-count": 100}, 100, (100, NO_CEILING)),
        ({}, {"max-length-bytes": 10**6, "flow-stop-count": 100}, 100, (100, NO_CEILING)),
        ({**LENGTHS, "x-overflow": "reject-publish"}, {"flow-stop-count": 100}, 100, (100, NO_CEILING)),
    ],
)
def test_the_largest_marks_that_count_are_those_of_a_queue_s_arguments_and_what_its_maximum_allows(
    arguments: dict[str, Json], policy: dict[str, Json], now: int, ceiling: tuple[int, int]
):
    api = Played({})
    api.given = arguments
    api.arguments = (now, now)
    if policy:
        api.policies["base"] = base(**policy)
    clients = ask(api, looks=1)
    assert clients.ceilings == {"queue orders": ceiling}
    other = replace(clients, ceilings={**clients.ceilings, "queue other": (2000, 1000)})
    both = ceiling_of(["queue orders", "queue other"], other)
    assert both == (min(2000, ceiling[0]), min(1000, ceiling[1]))


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
    assert measured.held == pytest.approx(30 + 10 + 161 / 131)  # not what nobody consumes


class Crowded(Played):
    """With more stages than a flow shows: no queue at first, and one at the second look."""

    looks = 0

    def get(self, *path: str, **query: str) -> Json:
        found = super().get(*path, **query)
        if path == ("flow",):
            assert isinstance(found, dict)
            self.looks += 1
            shown = [one for one in rows_of(found["stages"]) if one["kind"] != "queue" or self.looks > 1]
            return found | {"stages": [*shown[:3]], "left_out": 200}
        if path == ("queues",):
            names: dict[str, tuple[int, int]] = {"a": (30, 1), "b": (70, 2), "c": (1000, 0), "penstock.events": (5, 1)}
            return [
                {
                    "vhost": "/",
                    "name": name,
                    "messages": messages,
                    "consumers": consumers,
                    "message_stats": {"publish": self.published},
                }
                for name, (messages, consumers) in names.items()
            ]
        if path == ("channels",):
            return [{"messages_unconfirmed": 30}, {"messages_unconfirmed": 25}]
        return found


def test_where_the_flow_leaves_stages_out_all_queues_and_channels_are_asked_for():
    measured = measure(Crowded({"10,5": 1000.0}), 0.01)
    assert measured.throughput == pytest.approx(3 * measured.published)
    assert measured.held == pytest.approx(30 + 70 + 10 + 161 / 131)
    assert measured.confirm_ms == pytest.approx(1000 * (55 + 161 / 131) / measured.confirmed)


def test_a_change_that_makes_it_worse_is_taken_back_unless_told_otherwise():
    api = Played({"10,5": 100_000.0, "2000,500": 500.0})
    change = apply(api, {"credit.queue_store": "2000,500"}, measure_s=0.01, settle_s=0.0)
    assert change.rolled_back
    assert api.settings["credit.queue_store"] == "10,5"
    assert "the old values are set again: credit.queue_store = 10,5" in change.sentence
    api = Played({"10,5": 100_000.0, "2000,500": 500.0})
    kept = apply(api, {"credit.queue_store": "2000,500"}, measure_s=0.01, rollback=False, settle_s=0.0)
    assert not kept.rolled_back
    assert "That is worse (less throughput), and kept as you said" in kept.sentence
    assert api.settings["credit.queue_store"] == "2000,500"


def test_a_change_is_not_blamed_for_a_machine_that_became_busier(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(applied_, "time", clock)
    diary, began_s = Diary(tmp_path), clock.time()
    api = Played({"10,5": 100_000.0, "2000,500": 100_000.0})

    def busier(what: str, done: float, whole: float) -> None:
        api.rates = dict.fromkeys(api.rates, 100_000.0 if what == "before" else 5000.0)

    change = apply(api, {"credit.queue_store": "2000,500"}, measure_s=1.0, watch=busier, settle_s=0.0, diary=diary)
    assert not change.rolled_back
    # Some of what went on meanwhile went on with the old values: advice must not take it for what the new ones do.
    assert change.at_ms >= 1000 * (began_s + 3.0)
    assert diary.last_touch() == datetime.fromtimestamp(change.at_ms / 1000, UTC)
    assert "it was not the settings, which are set again" in change.sentence
    assert change.worse == ""
    assert [value for _, value in api.put_values] == ["2000,500", "10,5", "2000,500"]


def test_worse_and_better_are_told_by_what_was_asked_for():
    before = Measurement(10.0, 1000.0, 1000.0, 0.0, 50.0, 0.0, 20_000.0, 0.0, 10**8, 0)
    slower, fuller = replace(before, confirm_ms=80.0), replace(before, held=40_000.0)
    assert worse("latency", before, slower) == "messages take longer"
    assert worse("memory", before, fuller) == "more messages held"
    assert worse("throughput", before, slower) == worse("latency", before, fuller) == ""
    assert worse("memory", before, replace(before, throughput=900.0)) == "less throughput"
    assert is_better("latency", slower, before)
    assert is_better("memory", fuller, before)
    assert not is_better("throughput", slower, before)
    assert not is_better("latency", before, before)
    assert is_better("balanced", before, replace(before, throughput=1500.0))


def test_what_was_set_before_a_refusal_or_an_interruption_is_set_back():
    api = Played({"10,5": 100_000.0, "2000,500": 100_000.0}, refuses="credit.channel_queue")
    with pytest.raises(Complaint, match="refused"):
        apply(api, {"credit.queue_store": "2000,500", "credit.channel_queue": "9,9"}, measure_s=0.01, settle_s=0.0)
    assert api.settings == {"credit.queue_store": "10,5", "credit.channel_queue": "400,200"}

    def interrupt(what: str, done: float, whole: float) -> None:
        if what == "after":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply(api, {"credit.queue_store": "2000,500"}, measure_s=0.01, watch=interrupt, settle_s=0.0)
    assert api.settings["credit.queue_store"] == "10,5"


def test_what_cannot_be_set_back_is_named_and_undone_later_by_one_command(tmp_path: Path):
    wanted = {"credit.queue_store": "2000,500", "credit.channel_queue": "9,9"}
    api = Played({"10,5": 100_000.0, "2000,500": 500.0})
    diary = Diary(tmp_path)

    def stick(what: str, done: float, whole: float) -> None:
        assert (
            diary.changes()[-1].state == BEGUN if what == "after" else diary.changes() == []
        )  # noted before it is set
        api.stuck = "credit.queue_store" if what == "after" else ""

    with pytest.raises(Complaint, match=r"stuck; not set back: credit.queue_store = 10,5\. .* advise --undo"):
        apply(api, wanted, measure_s=0.01, watch=stick, settle_s=0.0, diary=diary)
    assert api.settings == {"credit.queue_store": "2000,500", "credit.channel_queue": "400,200"}
    assert any("was never measured to its end" in note for note in diary.notes({}))
    api.stuck = ""
    said = diary.undo(api)
    assert "credit.queue_store = 10,5 again, instead of 2000,500; credit.channel_queue is 400,200 already" in said
    assert api.settings["credit.queue_store"] == "10,5"
    with pytest.raises(Complaint, match="nothing to undo"):
        diary.undo(api)


def test_changes_are_undone_one_by_one_and_what_somebody_else_set_is_left_alone(tmp_path: Path):
    api = Played({"10,5": 1000.0, "20,10": 2000.0, "40,20": 100.0, "2000,500": 3000.0})
    diary = Diary(tmp_path)
    for value in ("20,10", "40,20", "2000,500"):
        apply(api, {"credit.queue_store": value}, measure_s=0.01, settle_s=0.0, diary=diary)
    assert [one.state for one in diary.changes()] == [KEPT, TAKEN_BACK, KEPT]
    (note,) = diary.notes({"credit.queue_store": "40,20"})
    assert "were tried" in note
    assert "That is worse" in note
    assert "credit.queue_store = 20,10 again" in diary.undo(api)
    api.settings["credit.queue_store"] = "7,7"
    assert "credit.queue_store is 7,7, which is not from here: left alone" in diary.undo(api)
    assert api.settings["credit.queue_store"] == "7,7"


def test_a_change_is_not_undone_on_another_broker_than_the_one_that_has_it(tmp_path: Path):
    api, other = Played({"10,5": 1000.0, "20,10": 2000.0}), Played({})
    here, there = Diary(tmp_path, "http://10.0.0.1:15672"), Diary(tmp_path, "http://10.0.0.2:15672")
    apply(api, {"credit.queue_store": "20,10"}, measure_s=0.01, settle_s=0.0, diary=here)
    other.settings["credit.queue_store"] = "20,10"
    with pytest.raises(Complaint, match=r"was set at http://10\.0\.0\.1:15672, not at http://10\.0\.0\.2:15672: .*$"):
        there.undo(other)
    assert other.put_values == []
    assert "credit.queue_store = 10,5 again" in here.undo(api)
    old = {"at_ms": 1, "settings": {"credit.queue_store": "10,5"}, "old": {"credit.queue_store": "9,9"}, "state": KEPT}
    (tmp_path / FILE).write_text(json.dumps({"changes": [old]}))  # as it was before addresses were noted
    assert "credit.queue_store = 9,9 again" in there.undo(api)


def base(**definition: Json) -> dict[str, Json]:
    return {"name": "base", "pattern": ".*", "apply-to": "all", "priority": 7, "definition": definition}


def marked_well(then: float) -> Played:
    """A queue whose marks are by a policy for all queues, and do badly; `then`: what it takes with others."""
    api = Played({"10,5": 1000.0, "base": 1000.0, "penstock-advice-orders": then})
    own: Json = {"flow-stop-count": 50_000, "flow-resume-count": 43_750, "message-ttl": 60_000}
    assert isinstance(own, dict)
    api.policies["base"] = base(**own)
    return api


def test_marks_are_set_by_a_policy_of_the_queue_s_own_and_undone_by_deleting_it(tmp_path: Path):
    api, diary = marked_well(2000.0), Diary(tmp_path)
    change = apply(api, {ORDERS: "8400,7350"}, measure_s=0.01, settle_s=0.0, diary=diary)
    assert (change.old, change.rolled_back) == ({ORDERS: "50000,43750"}, False)
    assert api.policies["penstock-advice-orders"] == {
        "name": "penstock-advice-orders",
        "pattern": "^orders$",
        "apply-to": "queues",
        "priority": 8,
        "definition": {"message-ttl": 60_000, "flow-stop-count": 8400, "flow-resume-count": 7350},
    }
    assert [(one.state, one.settings) for one in diary.changes()] == [(KEPT, {ORDERS: "8400,7350"})]
    apply(api, {ORDERS: "900,700"}, measure_s=0.01, settle_s=0.0, diary=diary)
    assert api.policies["penstock-advice-orders"]["priority"] == 8
    assert "marks of queue orders = 8400,7350 again, instead of 900,700" in diary.undo(api)
    assert value_of(api, ORDERS) == "8400,7350"
    assert "marks of queue orders = 50000,43750 again, instead of 8400,7350" in diary.undo(api)
    assert list(api.policies) == ["base"]


def test_marks_that_make_it_worse_are_taken_back_and_so_are_credit_and_marks_together():
    api = marked_well(500.0)
    change = apply(api, {ORDERS: "8400,7350"}, measure_s=0.01, settle_s=0.0)
    assert "That is worse (less throughput), so the old values are set again: marks of queue orders = 50000,43750" in (
        change.sentence
    )
    assert list(api.policies) == ["base"]
    api.refuses = "credit.channel_queue"
    with pytest.raises(Complaint, match="refused"):
        apply(api, {ORDERS: "8400,7350", "credit.channel_queue": "9,9"}, measure_s=0.01, settle_s=0.0)
    assert list(api.policies) == ["base"]


def test_marks_that_somebody_may_not_set_or_that_would_not_count_are_refused_in_a_line():
    api = marked_well(2000.0)
    api.refuses = "policies"
    with pytest.raises(Complaint, match=r"^marks of queue orders cannot be set by a policy: user 'eve' needs the tag"):
        apply(api, {ORDERS: "8400,7350"}, measure_s=0.01, settle_s=0.0)
    api.refuses, api.arguments = "", (1000, 875)
    with pytest.raises(Complaint, match=r"cannot be 8400,7350, they are 1000,875: of a queue's own arguments and"):
        apply(api, {ORDERS: "8400,7350"}, measure_s=0.01, settle_s=0.0)
    assert list(api.policies) == ["base"]


@pytest.mark.parametrize("brief", [False, True])
def test_a_queue_above_its_new_mark_is_measured_when_that_is_consumed(clock: Clock, brief: bool):
    api = marked_well(2000.0)
    api.ready, api.brief = 50_000, brief
    began, seen = clock.now, []

    def watch(what: str, done: float, whole: float) -> None:
        if what == "after" and not done:
            seen.append(api.ready)

    apply(api, {ORDERS: "8400,7350"}, measure_s=1.0, watch=watch, settle_s=0.0)
    assert seen[0] <= 8400
    assert 20 < clock.now - began < change_.SETTLE_MAX_S  # a few hundred messages with each look


def test_a_queue_that_is_gone_has_no_policy_left_behind(tmp_path: Path):
    api, diary = marked_well(2000.0), Diary(tmp_path)
    api.policies.clear()
    apply(api, {ORDERS: "8400,7350"}, measure_s=0.01, settle_s=0.0, diary=diary)
    assert diary.changes()[0].old == {ORDERS: AS_DECLARED}
    api.queues.clear()
    assert "marks of queue orders: the queue is gone" in diary.undo(api)
    assert api.policies == {}
    with pytest.raises(Complaint, match="cannot be set: the queue is gone"):
        put(api, ORDERS, "8400,7350")


@pytest.mark.parametrize(
    "place", [("/", "orders"), ("shop", "a b"), ("a in vhost b", "50 % off in vhost c"), ("a", "b/c")]
)
def test_the_name_of_a_queue_s_marks_says_which_queue_it_is(place: tuple[str, str]):
    assert queue_of(marks_of(*place)) == place


def untuned(plant: Plant, load: Load, settings: Settings, observed: Observed) -> Model:
    return Model(plant, load, settings, 0.0, ())


def test_of_what_is_advised_credit_and_marks_are_applied_and_marks_to_the_queues_that_have_those_of_now(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("penstock.spark.advice.adviser.tuned", untuned)  # simulations take seconds
    observed = observe(loaded(), 600)
    queues = tuple(replace(observed.queues[0], stage=f"queue {name}") for name in ("orders", "same", "other", "none"))
    marks = {"queue orders": (1000, 875), "queue same": (1000, 875), "queue other": (50, 40)}
    clients = Clients(marks=marks, marked={stage: ("/", stage.removeprefix("queue ")) for stage in marks})
    found = study(loaded(), clients=replace(clients, marks={"queue orders": (1000, 875)}))
    assert (found.model.settings.stop, found.model.settings.resume, found.marked) == (1000, 875, (ORDERS,))
    stages, (note,) = marked(replace(observed, queues=queues), clients)
    assert stages == ["queue orders", "queue same"]
    assert note.startswith("of queues with marks, 1 with others than queue orders are simulated as if")
    of_bytes = marked(replace(observed, queues=queues), Clients(in_bytes=("queue same", "queue none", "queue gone")))[1]
    assert [note.partition(",")[0] for note in of_bytes] == ["queue same (and 1 more) has marks in bytes"]
    now, then = Settings(stop=1000, resume=875), Settings(stop=300, resume=210, reader_channel="100,50")
    advice = Advice(
        made_ms=0,
        goal="memory",
        subject="",
        observed=observed,
        model=found.model,
        current=Candidate(now, outcome()),
        options=(),
        applies=Candidate(then, outcome()),
        sentence="",
        cures=(),
        tried=2,
        seconds=0.0,
        marked=(ORDERS, "marks of queue same"),
    )
    assert advice.to_apply == {
        "credit.reader_channel": "100,50",
        ORDERS: "300,210",
        "marks of queue same": "300,210",
    }
    applies = advice.document()["applies"]
    assert isinstance(applies, dict)
    assert applies["settings"] == {
        "credit.reader_channel": "100,50",
        "flow-stop-count": "300",
        "flow-resume-count": "210",
    }


def test_throughput_is_what_queues_take_as_channels_publish_in_bursts():
    api = Played({"10,5": 1000.0, "2000,500": 10.0, "base": 5000.0})
    api.policies["base"] = base()
    change = apply(api, {"credit.queue_store": "2000,500"}, measure_s=0.01, settle_s=0.0)
    assert change.after.published < change.before.published / 50
    assert change.after.throughput == pytest.approx(change.before.throughput)
    assert not change.rolled_back


def test_queues_that_take_nothing_any_more_are_no_throughput_whatever_is_published():
    api = Played({"10,5": 1000.0, "2000,500": 9000.0, "base": 5000.0})
    api.policies["base"], api.stalls = base(), "2000,500"
    change = apply(api, {"credit.queue_store": "2000,500"}, measure_s=0.01, settle_s=0.0)
    assert change.after.published > change.before.throughput
    assert change.after.throughput == 0
    assert (change.rolled_back, change.worse) == (True, "less throughput")
    api = Played({"10,5": 1000.0, "2000,500": 9000.0})  # all goes to no queue
    change = apply(api, {"credit.queue_store": "2000,500"}, measure_s=0.01, settle_s=0.0)
    assert change.after.throughput == change.after.published > change.before.throughput == change.before.published


def test_without_load_nothing_is_set():
    api = Played({})
    with pytest.raises(Complaint, match="nothing is published at the moment"):
        apply(api, {"credit.queue_store": "2000,500"}, measure_s=0.01, settle_s=0.0)
    assert api.put_values == []


def test_when_settings_were_changed_is_known_and_a_file_that_is_not_ours_says_nothing(tmp_path: Path):
    diary = Diary(tmp_path)
    assert diary.last_touch() is None
    diary.begin({"credit.queue_store": "2000,500"}, {"credit.queue_store": "10,5"})
    first = diary.last_touch()
    assert first is not None
    diary.end(KEPT, round(first.timestamp() * 1000) + 20_000)
    assert diary.last_touch() == first + timedelta(seconds=20)
    for text in ("", "[]", "{}", '{"changes": [{}]}', '{"changes": [{"at_ms": "soon"}]}'):
        (tmp_path / FILE).write_text(text)
        assert diary.last_touch() is None

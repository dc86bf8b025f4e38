"""Admin's verbs: an operator declares, binds, publishes and gets, with the checks and the words that a client gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

import pytest

from penstock.amqp.close import CONNECTION_FORCED
from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from penstock.broker.admin import Admin, AdminError
from penstock.broker.admin.errand import CONFIRM_WAIT_S, GET_BYTES_MAX
from penstock.broker.password import NO_PASSWORD
from tests.unit.fakes import House, StoreHouse


class Desk:
    def __init__(self, house: House | None = None) -> None:
        self.house = house or House()
        self.broker = self.house.broker
        self.admin = Admin(self.broker)
        self.broker.users.put_user("guest", NO_PASSWORD, ["administrator"])
        self.broker.users.set_permission("guest", "/", ".*", ".*", ".*")

    def user(self, name: str, configure: str = "", write: str = "", read: str = "") -> str:
        self.broker.users.put_user(name, NO_PASSWORD, ["management"])
        self.broker.users.set_permission(name, "/", configure, write, read)
        return name

    def publish(self, key: str, body: bytes = b"x", exchange: str = "", user: str = "guest", **properties: Any) -> bool:
        answers: list[bool] = []
        self.admin.publish("/", exchange, key, properties, body, answers.append, user=user)
        self.house.run_until_idle()
        (routed,) = answers
        return routed

    def get(self, queue: str, count: int = 100, ackmode: str = "ack_requeue_false", **options: Any) -> list[Any]:
        answers: list[list[dict[str, Any]]] = []
        truncate = options.pop("truncate", None)
        options.setdefault("user", "guest")
        self.admin.get("/", queue, count, ackmode, truncate, answers.append, **options)
        self.house.run_until_idle()
        (got,) = answers
        return got

    def payloads(self, queue: str, count: int = 100, ackmode: str = "ack_requeue_false") -> list[str]:
        return [got["payload"] for got in self.get(queue, count, ackmode)]


@pytest.fixture
def desk() -> Desk:
    return Desk()


# Queues and exchanges.


def test_a_queue_is_declared_once_and_the_same_again_is_fine(desk: Desk) -> None:
    assert desk.admin.declare_queue("/", "q", arguments={"x-max-length": 5}) is True
    assert desk.admin.declare_queue("/", "q", arguments={"x-max-length": 5}) is False
    assert desk.admin.queue("/", "q")["arguments"] == {"x-max-length": 5}
    with pytest.raises(AdminError, match=r"^inequivalent arg 'durable' for queue 'q' in vhost '/': received 'false'"):
        desk.admin.declare_queue("/", "q", durable=False)


def test_a_wrong_argument_is_told_in_the_words_of_amqp(desk: Desk) -> None:
    with pytest.raises(AdminError, match=r"^invalid arg 'x-max-length' for queue 'q' in vhost '/': .*value_negative"):
        desk.admin.declare_queue("/", "q", arguments={"x-max-length": -1})
    with pytest.raises(AdminError, match="a queue needs a name"):
        desk.admin.declare_queue("/", "")
    with pytest.raises(AdminError, match="reserved prefix") as refused:
        desk.admin.declare_queue("/", "amq.mine")
    assert refused.value.refused


def test_a_queue_is_deleted_unless_it_must_be_empty_or_unused_first(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    desk.publish("q")
    with pytest.raises(AdminError, match=r"^queue 'q' in vhost '/' not empty$"):
        desk.admin.delete_queue("/", "q", if_empty=True)
    peer = desk.house.peer()
    peer.open()
    peer.consume(1)
    peer.said()
    with pytest.raises(AdminError, match=r"^queue 'q' in vhost '/' in use$"):
        desk.admin.delete_queue("/", "q", if_unused=True)
    desk.admin.delete_queue("/", "q")
    with pytest.raises(AdminError) as missing:
        desk.admin.delete_queue("/", "q")
    assert missing.value.missing


def test_a_purge_says_how_many_there_were(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    for _ in range(3):
        desk.publish("q")
    assert desk.admin.purge_queue("/", "q") == 3
    assert desk.admin.purge_queue("/", "q") == 0
    with pytest.raises(AdminError) as missing:
        desk.admin.purge_queue("/", "none")
    assert missing.value.missing


def test_a_queue_that_belongs_to_a_connection_is_locked_for_operators_too(desk: Desk) -> None:
    peer = desk.house.peer()
    peer.open()
    peer.ask(1, QueueDeclare("mine", exclusive=True))
    for verb in (desk.admin.delete_queue, desk.admin.purge_queue):
        with pytest.raises(AdminError, match="cannot obtain exclusive access to locked queue 'mine'"):
            verb("/", "mine")
    with pytest.raises(AdminError, match="405 RESOURCE_LOCKED"):
        desk.get("mine")


def test_an_exchange_is_declared_and_deleted_with_amqp_s_checks(desk: Desk) -> None:
    assert desk.admin.declare_exchange("/", "x", "topic") is True
    assert desk.admin.declare_exchange("/", "x", "topic") is False
    with pytest.raises(AdminError, match="unknown exchange type 'nonsense'"):
        desk.admin.declare_exchange("/", "y", "nonsense")
    with pytest.raises(AdminError, match="inequivalent arg 'type' for exchange 'x'"):
        desk.admin.declare_exchange("/", "x", "fanout")
    desk.admin.declare_queue("/", "q")
    desk.admin.bind("/", "x", "q", "queue", "k")
    with pytest.raises(AdminError, match="exchange 'x' in vhost '/' in use"):
        desk.admin.delete_exchange("/", "x", if_unused=True)
    desk.admin.delete_exchange("/", "x")
    with pytest.raises(AdminError) as missing:
        desk.admin.delete_exchange("/", "x")
    assert missing.value.missing
    with pytest.raises(AdminError) as refused:
        desk.admin.delete_exchange("/", "amq.direct")
    assert refused.value.refused


# Bindings.


@pytest.mark.parametrize(
    ("key", "arguments", "shown"),
    [("", {}, "~"), ("a.*", {}, "a.%2A"), ("sp ace/%", {}, "sp+ace%2F%25"), ("k", {"a": 1}, None), ("~", {}, "%7E")],
)
def test_a_binding_is_found_and_taken_away_by_its_properties_key(
    desk: Desk, key: str, arguments: dict[str, Any], shown: str | None
) -> None:
    desk.admin.declare_queue("/", "q")
    props_key = desk.admin.bind("/", "amq.topic", "q", "queue", key, arguments)
    assert shown is None or props_key == shown
    found = desk.admin.binding("/", "amq.topic", "q", "queue", props_key)
    assert (found["routing_key"], found["arguments"]) == (key, arguments)
    # As it comes out of a path that a client has put it into as it stands.
    assert desk.admin.binding("/", "amq.topic", "q", "queue", unquote_plus(props_key)) == found
    desk.admin.unbind("/", "amq.topic", "q", "queue", props_key)
    with pytest.raises(AdminError) as missing:
        desk.admin.unbind("/", "amq.topic", "q", "queue", props_key)
    assert missing.value.missing


def test_bindings_with_other_arguments_have_other_keys(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    keys = {desk.admin.bind("/", "amq.headers", "q", "queue", "k", {"a": number}) for number in range(5)}
    assert len(keys) == 5
    assert all(key.startswith("k~") for key in keys)


def test_bindings_are_shown_by_source_by_destination_and_with_the_default_exchange(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    desk.admin.declare_exchange("/", "x", "fanout")
    desk.admin.bind("/", "amq.topic", "q", "queue", "a")
    desk.admin.bind("/", "amq.topic", "x", "exchange", "b")
    assert [one["destination"] for one in desk.admin.bindings("/", "amq.topic")] == ["q", "x"]
    assert [one["source"] for one in desk.admin.bindings("/", None, "queue", "q")] == ["", "amq.topic"]
    assert [one["source"] for one in desk.admin.bindings("/", None, "exchange", "x")] == ["amq.topic"]
    assert [one["routing_key"] for one in desk.admin.bindings("/", "", "queue", "q")] == ["q"]
    with pytest.raises(AdminError, match="no queue 'none' in vhost '/'") as missing:
        desk.admin.bind("/", "amq.topic", "none", "queue", "a")
    assert missing.value.missing
    with pytest.raises(AdminError, match="operation not permitted on the default exchange"):
        desk.admin.bind("/", "", "q", "queue", "a")


# What a user may.


def test_a_user_is_refused_what_a_client_of_that_name_would_be(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    alice = desk.user("alice", configure="^mine", write="^mine", read="^mine")
    desk.admin.declare_queue("/", "mine", user=alice)
    for verb in (
        lambda: desk.admin.declare_queue("/", "other", user=alice),
        lambda: desk.admin.delete_queue("/", "q", user=alice),
        lambda: desk.admin.purge_queue("/", "q", user=alice),
        lambda: desk.admin.declare_exchange("/", "x", user=alice),
        lambda: desk.admin.bind("/", "amq.topic", "mine", "queue", "k", user=alice),
        lambda: desk.publish("mine", user=alice),
        lambda: desk.get("q", user=alice),
    ):
        with pytest.raises(AdminError, match="refused for user 'alice'") as refused:
            verb()
        assert refused.value.refused
    assert desk.admin.purge_queue("/", "mine", user=alice) == 0


def test_nobody_publishes_in_another_s_name(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    with pytest.raises(AdminError, match=r"^406 PRECONDITION_FAILED - user_id property set to 'bob'"):
        desk.publish("q", user_id="bob")


# Publish.


def test_a_publish_is_answered_with_whether_it_is_in_a_queue(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    assert desk.publish("q", b"hello")
    assert not desk.publish("nowhere")
    with pytest.raises(AdminError, match=r"^404 NOT_FOUND - no exchange 'none' in vhost '/'$") as missing:
        desk.publish("q", exchange="none")
    assert missing.value.missing
    assert desk.payloads("q") == ["hello"]
    assert desk.admin.channels() == [], "no errand is left"
    assert list(desk.broker.ack_timeout.channels) == []


def test_properties_come_back_as_they_were_given(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    properties: dict[str, Any] = {
        "content_type": "text/plain",
        "content_encoding": "utf-8",
        "headers": {"n": 1, "deep": {"list": [True, None, "x"]}},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "reply_to": "r",
        "expiration": "60000",
        "message_id": "m",
        "timestamp": 5,
        "type": "t",
        "user_id": "guest",
        "app_id": "a",
        "cluster_id": "cl",
    }
    assert desk.publish("q", b"x", **properties, unknown="left out")
    (got,) = desk.get("q")
    assert got["properties"] == properties


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"delivery_mode": "two"}, "'delivery_mode' is not an integer from 0 to 255"),
        ({"priority": 256}, "'priority' is not an integer from 0 to 255"),
        ({"content_type": 5}, "'content_type' is not a string"),
        ({"headers": []}, "'headers' is not an object"),
        ({"content_type": "x" * 256}, "properties: "),
        ({"expiration": "abc"}, "406 PRECONDITION_FAILED - invalid expiration 'abc': no_integer"),
    ],
)
def test_a_wrong_property_is_told(desk: Desk, properties: dict[str, Any], text: str) -> None:
    desk.admin.declare_queue("/", "q")
    with pytest.raises(AdminError, match=text):
        desk.publish("q", **properties)
    assert desk.admin.queue("/", "q")["messages"] == 0


def test_a_queue_that_takes_no_more_has_not_got_it(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    assert desk.publish("q")
    assert not desk.publish("q")


def test_a_saturated_queue_holds_the_confirm_but_not_the_answer_for_ever(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q", arguments={"x-flow-stop-count": 1, "x-flow-resume-count": 0})
    assert desk.publish("q")
    answers: list[bool] = []
    desk.admin.publish("/", "", "q", {}, b"x", answers.append, user="guest")
    desk.house.run_until_idle()
    assert answers == []
    desk.house.clock.advance(CONFIRM_WAIT_S)
    desk.house.run_until_idle()
    assert answers == [True]
    desk.admin.purge_queue("/", "q")
    desk.house.run_until_idle()
    assert answers == [True], "said once"


def test_nothing_is_published_while_an_alarm_blocks_publishers(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    desk.broker.alarms.raise_alarm("memory", "low on memory")
    with pytest.raises(AdminError, match="publishers are blocked: low on memory"):
        desk.publish("q")


def test_a_persistent_message_is_answered_when_it_is_on_disk(tmp_path: Path) -> None:
    with StoreHouse(tmp_path) as house:
        desk = Desk(house)
        desk.admin.declare_queue("/", "q")
        house.run_until_idle()
        house.disk.stop("sync", "journal")
        answers: list[bool] = []
        desk.admin.publish("/", "", "q", {"delivery_mode": 2}, b"x", answers.append, user="guest")
        house.run_turns()
        assert answers == []
        house.disk.go_on()
        house.run_until_idle()
        assert answers == [True]


# Get.


def test_messages_are_acked_dropped_or_put_back_as_the_ackmode_says(desk: Desk) -> None:
    desk.admin.declare_queue("/", "dead")
    desk.admin.declare_queue("/", "q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    for at in range(4):
        desk.publish("q", b"%d" % at)
    assert desk.payloads("q", 100, "ack_requeue_true") == ["0", "1", "2", "3"]
    got = desk.get("q", 2, "reject_requeue_true")
    assert [(one["payload"], one["redelivered"], one["message_count"]) for one in got] == [
        ("0", True, 3),
        ("1", True, 2),
    ]
    assert desk.payloads("q", 1, "ack_requeue_false") == ["0"]
    assert desk.payloads("q", 1, "reject_requeue_false") == ["1"]
    assert desk.payloads("q") == ["2", "3"]
    assert desk.payloads("q") == []
    assert desk.payloads("dead") == ["1"]


def test_a_payload_is_text_if_it_can_be_and_base64_if_not_or_if_asked_for(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    for body in ("grüße".encode(), b"\x00\xff", b""):
        desk.publish("q", body)
    auto = desk.get("q", ackmode="ack_requeue_true")
    assert [(one["payload"], one["payload_encoding"], one["payload_bytes"]) for one in auto] == [
        ("grüße", "string", 7),
        ("AP8=", "base64", 2),
        ("", "string", 0),
    ]
    cut = desk.get("q", truncate=2, encoding="base64")
    assert [(one["payload"], one["payload_bytes"]) for one in cut] == [("Z3I=", 7), ("AP8=", 2), ("", 0)]


def test_one_answer_has_no_more_than_can_be_told_at_once(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    body = b"x" * (GET_BYTES_MAX // 4)
    for _ in range(8):
        desk.publish("q", body)
    assert len(desk.get("q", 8, truncate=1)) == 4
    assert desk.admin.queue("/", "q")["messages"] == 4


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ackmode": "zzz"}, "'ackmode' is none of"),
        ({"encoding": "zzz"}, "'encoding' is none of"),
    ],
)
def test_a_wrong_way_to_get_is_told(desk: Desk, options: dict[str, Any], text: str) -> None:
    desk.admin.declare_queue("/", "q")
    with pytest.raises(AdminError, match=text):
        desk.get("q", **options)


def test_what_nobody_waits_for_any_more_stays_in_the_queue(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    for body in (b"1", b"2"):
        desk.publish("q", body)
    answers: list[list[dict[str, Any]]] = []
    abandon = desk.admin.get("/", "q", 2, "ack_requeue_false", None, answers.append, user="guest")
    abandon()
    desk.house.run_until_idle()
    assert answers == []
    assert desk.payloads("q") == ["1", "2"]
    abandon()  # once more does no harm


def test_what_is_not_there_cannot_be_got_from(desk: Desk) -> None:
    with pytest.raises(AdminError, match=r"^404 NOT_FOUND - no queue 'none' in vhost '/'$") as missing:
        desk.get("none")
    assert missing.value.missing
    with pytest.raises(AdminError, match="there is no vhost 'none'"):
        desk.admin.get("none", "q", 1, "ack_requeue_true", None, lambda got: None, user="guest")


def test_what_one_operator_publishes_keeps_its_order(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q")
    answers: list[bool] = []
    for at in range(5):
        desk.admin.publish("/", "", "q", {}, b"%d" % at, answers.append, user="guest")
    desk.house.run_until_idle()
    assert answers == [True] * 5
    assert desk.payloads("q") == ["0", "1", "2", "3", "4"]


# Connections, parameters.


def test_a_connection_is_closed_by_its_name_with_the_reason(desk: Desk) -> None:
    peer = desk.house.peer("10.0.0.1:5000 -> 10.0.0.2:5672")
    desk.broker.peers.add(peer)
    desk.admin.close_connection(peer.name, "go away")
    (error,) = peer.errors
    assert (error.code, error.text) == (CONNECTION_FORCED, "CONNECTION_FORCED - go away")
    with pytest.raises(AdminError) as missing:
        desk.admin.close_connection("nobody")
    assert missing.value.missing


def test_parameters_are_kept_and_taken_away(desk: Desk) -> None:
    assert desk.admin.put_parameter("shovel", "/", "s", {"a": 1}) is True
    assert desk.admin.put_parameter("shovel", "/", "s", {"a": 2}) is False
    assert [one["value"] for one in desk.admin.parameters()] == [{"a": 2}]
    desk.admin.delete_parameter("shovel", "/", "s")
    assert desk.admin.put_global_parameter("g", 1) is True
    assert desk.admin.global_parameters() == [{"name": "g", "value": 1}]
    desk.admin.delete_global_parameter("g")
    for again in (
        lambda: desk.admin.delete_parameter("shovel", "/", "s"),
        lambda: desk.admin.delete_global_parameter("g"),
    ):
        with pytest.raises(AdminError) as missing:
            again()
        assert missing.value.missing


def test_a_declaration_is_the_same_as_a_client_s(desk: Desk) -> None:
    desk.admin.declare_queue("/", "q", durable=True, auto_delete=False, arguments={"x-message-ttl": 1000})
    peer = desk.house.peer()
    peer.open()
    (ok,) = peer.ask(1, QueueDeclare("q", durable=True, arguments={"x-message-ttl": 1000}))
    assert ok == QueueDeclareOk("q", 0, 0)

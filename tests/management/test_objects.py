"""Queues, exchanges, bindings and messages over HTTP: RabbitMQ's shapes, codes and reasons."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

import pytest

from tests.management.web import Web
from tests.wire.live import LiveBroker

MESSAGE = {"properties": {}, "routing_key": "q", "payload": "hello", "payload_encoding": "string"}
GET = {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}


def test_a_queue_is_declared_looked_at_and_deleted(web: Web, vhost: str) -> None:
    path = f"queues/{vhost}/orders"
    assert web.put(path, {"durable": True, "arguments": {"x-max-length": 10}}) == 201
    assert web.put(path, {"durable": "true", "auto_delete": "false", "arguments": {"x-max-length": 10}}) == 204
    view = web.get(path)
    assert (view["name"], view["vhost"], view["durable"], view["type"]) == ("orders", unquote(vhost), True, "classic")
    assert view["arguments"] == {"x-max-length": 10}
    assert {"messages", "messages_ready", "messages_unacknowledged", "consumers", "state"} <= set(view)
    assert [queue["name"] for queue in web.get(f"queues/{vhost}")] == ["orders"]
    assert "orders" in [queue["name"] for queue in web.get("queues")]
    web.delete(path)
    gone = web.ask("DELETE", path)
    assert (gone.status, gone.json["error"]) == (404, "Object Not Found")
    assert web.ask("GET", path).status == 404


def test_without_a_body_a_queue_is_transient_as_in_rabbitmq(web: Web, vhost: str) -> None:
    assert web.put(f"queues/{vhost}/plain") == 201
    assert web.get(f"queues/{vhost}/plain")["durable"] is False


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"durable": False}, "inequivalent arg 'durable' for queue 'there' in vhost"),
        ({"durable": "maybe"}, "'durable'"),
        ({"durable": 1}, "'durable'"),
        ({"arguments": 5}, "'arguments'"),
        ({"durable": True, "arguments": {"x-max-length": "five"}}, "x-max-length"),
        ({"durable": True, "arguments": {"x-queue-type": "unheard-of"}}, "x-queue-type"),
        (b"{", "not JSON"),
        (b"[1]", "not a JSON object"),
        (b"\xff\xfe", "not JSON"),
        (b'{"arguments":' + b"[" * 100_000, "not JSON"),
    ],
)
def test_a_queue_that_cannot_be_is_400_with_the_reason(web: Web, vhost: str, body: Any, reason: str) -> None:
    web.put(f"queues/{vhost}/there", {"durable": True})
    answer = web.ask("PUT", f"queues/{vhost}/there", body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert reason in answer.reason


def test_names_may_be_anything_that_utf_8_can_say(web: Web, vhost: str) -> None:
    for name in ("a b/c%d?e#f&g=h+i", "ключ", "..", "~", "x" * 255):
        path = f"queues/{vhost}/{quote(name, safe='')}"
        assert web.put(path) == 201, name
        assert web.get(path)["name"] == name
    assert web.ask("PUT", f"queues/{vhost}/{'x' * 256}").status == 400
    assert web.ask("PUT", f"queues/{vhost}/%ff").status == 400
    assert web.ask("PUT", f"queues/{vhost}/amq.mine").status == 403


def test_a_body_that_is_too_large_is_413(web: Web, vhost: str) -> None:
    answer = web.ask("PUT", f"queues/{vhost}/large", b" " * 2_000_000)
    assert (answer.status, answer.json["error"]) == (413, "payload_too_large")


def test_a_queue_goes_only_if_it_is_empty_and_unused_when_that_is_asked(web: Web, vhost: str) -> None:
    web.put(f"queues/{vhost}/q", {})
    assert web.post(f"exchanges/{vhost}/amq.default/publish", MESSAGE) == {"routed": True}
    answer = web.ask("DELETE", f"queues/{vhost}/q?if-empty=true")
    assert (answer.status, answer.reason) == (400, f"queue 'q' in vhost '{unquote(vhost)}' not empty")
    assert web.ask("DELETE", f"queues/{vhost}/q?if-empty=perhaps").status == 400
    assert web.ask("DELETE", f"queues/{vhost}/q?if-empty=false&if-unused=true").status == 204


def test_a_queue_is_purged(web: Web, vhost: str) -> None:
    web.put(f"queues/{vhost}/q", {})
    web.post(f"exchanges/{vhost}/amq.default/publish", MESSAGE)
    assert web.get(f"queues/{vhost}/q")["messages"] == 1
    web.delete(f"queues/{vhost}/q/contents")
    assert web.get(f"queues/{vhost}/q")["messages"] == 0
    assert web.ask("DELETE", f"queues/{vhost}/none/contents").status == 404


def test_actions_for_mirrors_have_nothing_to_do(web: Web, vhost: str) -> None:
    web.put(f"queues/{vhost}/q", {})
    assert web.ask("POST", f"queues/{vhost}/q/actions", {"action": "sync"}).status == 204
    assert web.ask("POST", f"queues/{vhost}/q/actions", {"action": "dance"}).status == 400


def test_an_exchange_is_declared_looked_at_and_deleted(web: Web, vhost: str) -> None:
    path = f"exchanges/{vhost}/events"
    assert web.put(path, {"type": "topic", "durable": True}) == 201
    assert web.put(path, {"type": "topic", "durable": "true"}) == 204
    view = web.get(path)
    assert (view["type"], view["durable"], view["internal"], view["auto_delete"]) == ("topic", True, False, False)
    answer = web.ask("PUT", path, {"type": "fanout", "durable": True})
    assert (answer.status, "inequivalent arg 'type'" in answer.reason) == (400, True)
    assert web.ask("PUT", f"exchanges/{vhost}/odd", {"type": "odd"}).status == 400
    names = {exchange["name"] for exchange in web.get(f"exchanges/{vhost}")}
    assert {"", "amq.direct", "amq.topic", "events"} <= names
    assert web.get(f"exchanges/{vhost}/amq.default")["name"] == ""
    assert web.ask("DELETE", f"exchanges/{vhost}/amq.direct").status == 403
    web.put(f"queues/{vhost}/q", {})
    web.post(f"bindings/{vhost}/e/events/q/q", {"routing_key": "a.#"})
    assert web.ask("DELETE", path + "?if-unused=true").status == 400
    web.delete(path)
    assert web.ask("GET", path).status == 404


def test_a_binding_is_named_by_its_key_and_arguments(web: Web, vhost: str) -> None:
    web.put(f"exchanges/{vhost}/ex", {"type": "topic"})
    web.put(f"queues/{vhost}/q", {})
    between = f"bindings/{vhost}/e/ex/q/q"
    plain = web.ask("POST", between)
    assert (plain.status, plain.headers["location"]) == (201, "q/~")
    rich = web.ask("POST", between, {"routing_key": "a b", "arguments": {"x": 1}})
    assert rich.headers["location"].startswith("q/a%2Bb~")
    key = unquote(rich.headers["location"].partition("/")[2])
    found = {one["properties_key"]: one for one in web.get(between)}
    assert set(found) == {"~", key}
    assert found[key]["arguments"] == {"x": 1}
    assert found[key]["destination_type"] == "queue"
    assert web.get(f"{between}/{quote(key, safe='')}") == found[key]
    web.delete(f"{between}/~")
    assert web.ask("DELETE", f"{between}/~").status == 404
    web.delete(f"{between}/{quote(key, safe='')}")
    assert web.get(between) == []


def test_bindings_are_found_from_both_ends(web: Web, vhost: str) -> None:
    for name in ("one", "two"):
        web.put(f"exchanges/{vhost}/{name}", {"type": "direct"})
    web.put(f"queues/{vhost}/q", {})
    web.ask("POST", f"bindings/{vhost}/e/one/e/two", {"routing_key": "k"})
    web.ask("POST", f"bindings/{vhost}/e/two/q/q", {"routing_key": "k"})

    def ends(path: str) -> set[tuple[str, str]]:
        return {(one["source"], one["destination"]) for one in web.get(path)}

    assert ends(f"bindings/{vhost}") == {("", "q"), ("one", "two"), ("two", "q")}
    assert ends(f"queues/{vhost}/q/bindings") == {("", "q"), ("two", "q")}
    assert ends(f"exchanges/{vhost}/two/bindings/source") == {("two", "q")}
    assert ends(f"exchanges/{vhost}/two/bindings/destination") == {("one", "two")}
    assert ends(f"bindings/{vhost}/e/one/e/two") == {("one", "two")}
    assert web.ask("GET", f"bindings/{vhost}/e/none/q/q").status == 404
    missing = web.ask("POST", f"bindings/{vhost}/e/one/q/none", {"routing_key": "k"})
    assert (missing.status, "no queue 'none'" in missing.reason) == (404, True)
    web.delete(f"bindings/{vhost}/e/one/e/two/k")


def test_a_message_goes_in_and_comes_out_whole(web: Web, vhost: str) -> None:
    web.put(f"queues/{vhost}/q", {})
    properties = {"delivery_mode": 2, "headers": {"a": 1, "b": "x"}, "content_type": "text/plain", "priority": 3}
    publish = f"exchanges/{vhost}/amq.default/publish"
    assert web.post(publish, {**MESSAGE, "properties": properties}) == {"routed": True}
    raw = base64.b64encode(b"\xff\x00").decode()
    assert web.post(publish, {**MESSAGE, "payload": raw, "payload_encoding": "base64"}) == {"routed": True}
    assert web.post(publish, {**MESSAGE, "routing_key": "nowhere"}) == {"routed": False}
    first, second = web.post(f"queues/{vhost}/q/get", GET)
    assert (first["payload"], first["payload_encoding"], first["payload_bytes"]) == ("hello", "string", 5)
    assert (first["exchange"], first["routing_key"], first["message_count"]) == ("", "q", 1)
    assert first["properties"] == properties
    assert (second["payload"], second["payload_encoding"]) == (raw, "base64")
    (short,) = web.post(f"queues/{vhost}/q/get", {**GET, "count": "1", "truncate": 2})
    assert (short["payload"], short["payload_bytes"], short["redelivered"]) == ("he", 5, True)
    assert len(web.post(f"queues/{vhost}/q/get", {**GET, "ackmode": "ack_requeue_false"})) == 2
    assert web.post(f"queues/{vhost}/q/get", GET) == []


@pytest.mark.parametrize(
    ("change", "status", "reason"),
    [
        ({"payload_encoding": "morse"}, 400, "payload_encoding"),
        ({"payload": "_w==", "payload_encoding": "base64"}, 400, "base64"),
        ({"payload": 5}, 400, "'payload'"),
        ({"properties": {"delivery_mode": "a"}}, 400, "delivery_mode"),
        ({"properties": {"headers": 5}}, 400, "headers"),
        ({"properties": 5}, 400, "'properties'"),
        ({"routing_key": "k" * 256}, 400, "255"),
    ],
)
def test_a_message_that_cannot_be_published_is_told_why(
    web: Web, vhost: str, change: dict[str, Any], status: int, reason: str
) -> None:
    answer = web.ask("POST", f"exchanges/{vhost}/amq.default/publish", {**MESSAGE, **change})
    assert answer.status == status, answer.raw
    assert reason in answer.reason


def test_publishing_and_getting_need_all_their_fields_and_a_place(web: Web, vhost: str) -> None:
    answer = web.ask("POST", f"exchanges/{vhost}/amq.default/publish", {"routing_key": "q", "payload": "x"})
    assert (answer.status, answer.reason) == (400, "'properties' and 'payload_encoding' are missing")
    assert web.ask("POST", f"exchanges/{vhost}/none/publish", MESSAGE).status == 404
    assert web.ask("POST", f"queues/{vhost}/none/get", GET).status == 404
    web.put(f"queues/{vhost}/q", {})
    for wrong in ({"ackmode": "perhaps"}, {"encoding": "morse"}, {"count": -1}, {"count": "many"}, {"truncate": -1}):
        assert web.ask("POST", f"queues/{vhost}/q/get", {**GET, **wrong}).status == 400, wrong


def test_permissions_count_as_for_amqp(web: Web, vhost: str, user: Callable[..., Web]) -> None:
    """The tag lets a user in; what they may do in a vhost, their permissions there say."""
    web.put(f"queues/{vhost}/theirs", {})
    someone = user("management", vhost, name="bounded")
    web.put(f"permissions/{vhost}/bounded", {"configure": "^mine", "write": "^$", "read": "^mine"})
    assert someone.put(f"queues/{vhost}/mine") == 201
    refused = someone.ask("PUT", f"queues/{vhost}/another")
    assert (refused.status, "refused for user 'bounded'" in refused.reason) == (403, True)
    assert someone.ask("DELETE", f"queues/{vhost}/theirs").status == 403
    assert someone.ask("DELETE", f"queues/{vhost}/theirs/contents").status == 403
    assert someone.ask("POST", f"queues/{vhost}/theirs/get", GET).status == 403
    assert someone.ask("POST", f"exchanges/{vhost}/amq.fanout/publish", MESSAGE).status == 403
    assert someone.ask("PUT", f"exchanges/{vhost}/other", {"type": "direct"}).status == 403
    assert someone.ask("POST", f"bindings/{vhost}/e/amq.direct/q/theirs", {}).status == 403


def test_a_management_user_sees_the_vhosts_with_permissions_only(
    broker: LiveBroker, web: Web, vhost: str, user: Callable[..., Web]
) -> None:
    web.put("queues/%2F/unseen", {})
    web.put(f"queues/{vhost}/seen", {})
    web.put(f"policies/{vhost}/p", {"pattern": "^none$", "definition": {"max-length": 1}})
    web.put("policies/%2F/p", {"pattern": "^none$", "definition": {"max-length": 1}})
    someone, watcher = user("management", vhost), user("monitoring")
    assert [one["name"] for one in someone.get("vhosts")] == [unquote(vhost)]
    assert {one["name"] for one in someone.get("queues")} == {"seen"}
    assert {one["vhost"] for kind in ("exchanges", "bindings", "policies") for one in someone.get(kind)} == {
        unquote(vhost)
    }
    for path in ("queues/%2F", "queues/%2F/unseen", "vhosts/%2F", "exchanges/%2F", "policies/%2F", "queues/nowhere"):
        assert someone.ask("GET", path).status == 403, path
    assert someone.get("queues?page=1")["total_count"] == 1
    assert {"seen", "unseen"} <= {one["name"] for one in watcher.get("queues")}
    assert watcher.ask("GET", "queues/nowhere").status == 404


def test_head_is_get_without_the_body(web: Web, vhost: str) -> None:
    web.put(f"queues/{vhost}/q", {})
    for path in (f"queues/{vhost}/q", "overview", "queues"):
        answer = web.ask("HEAD", path)
        assert (answer.status, answer.raw) == (200, b"")
        assert answer.headers["content-type"] == "application/json"
    assert web.ask("HEAD", f"queues/{vhost}/none").status == 404


def test_the_stream_of_events_is_read_and_not_touched(web: Web) -> None:
    """Nobody but the broker writes to it, whoever they are."""
    events = "queues/%2F/penstock.events"
    assert web.get(events)["type"] == "stream"
    for method, path, body in (
        ("DELETE", events, None),
        ("DELETE", events + "/contents", None),
        ("PUT", events, {"durable": True, "arguments": {"x-queue-type": "stream", "x-max-length-bytes": 1}}),
        ("POST", "bindings/%2F/e/amq.fanout/q/penstock.events", {}),
        ("POST", "exchanges/%2F/amq.default/publish", {**MESSAGE, "routing_key": "penstock.events"}),
    ):
        answer = web.ask(method, path, body)
        assert 400 <= answer.status < 500, (method, path, answer.raw)
    assert web.get(events)["type"] == "stream"
    assert "penstock.events" not in [queue["name"] for queue in web.get("definitions")["queues"]]

"""The broker as a whole, its vhosts, users and parameters, and its connections, over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

import pika
import pika.exceptions
import pytest

from tests.management.web import Web
from tests.wire.live import LiveBroker
from tests.wire.waiting import wait_until


@pytest.fixture
def connection(broker: LiveBroker, web: Web) -> Iterator[pika.BlockingConnection]:
    """The only one."""
    wait_until(lambda: web.get("connections") == [], what="no connections")
    parameters = pika.URLParameters(broker.uri)
    parameters.client_properties = {"connection_name": "tester"}
    made = pika.BlockingConnection(parameters)
    yield made
    if made.is_open:
        made.close()


def name_of(web: Web) -> str:
    """Of the one connection that there is."""
    (found,) = wait_until(lambda: web.get("connections"), what="a connection")
    return str(found["name"])


def test_the_overview_counts_what_is_there(web: Web, vhost: str) -> None:
    web.put(f"queues/{vhost}/counted", {})
    before = web.get("overview")
    message = {"properties": {}, "routing_key": "counted", "payload": "x", "payload_encoding": "string"}
    web.post(f"exchanges/{vhost}/amq.default/publish", message)
    after = web.get("overview")
    assert {"exchange_types", "listeners", "contexts", "churn_rates", "statistics_db_event_queue"} <= set(after)
    assert (after["rabbitmq_version"], after["product_name"]) == ("3.10.8", "Penstock")
    assert set(after["object_totals"]) == {"channels", "connections", "consumers", "exchanges", "queues"}
    assert after["queue_totals"]["messages"] == before["queue_totals"]["messages"] + 1
    assert after["message_stats"]["publish"] == before["message_stats"].get("publish", 0) + 1
    assert "rate" in after["message_stats"]["publish_details"]
    past = web.get("overview?msg_rates_age=60&msg_rates_incr=5&lengths_age=60&lengths_incr=5")
    assert past["queue_totals"]["messages"] == after["queue_totals"]["messages"]
    for wrong in ("msg_rates_age=x", "msg_rates_age=0&msg_rates_incr=1", "lengths_age=60&lengths_incr=-5"):
        assert web.ask("GET", f"overview?{wrong}").status == 400, wrong


def test_the_overview_tells_of_other_vhosts_to_nobody_who_does_not_see_them(
    web: Web, vhost: str, user: Callable[..., Web]
) -> None:
    web.put(f"queues/{vhost}/mine", {})
    web.put("queues/%2F/of-others", {})
    message = {"properties": {}, "payload": "x", "payload_encoding": "string"}
    for where, key in ((vhost, "mine"), ("%2F", "of-others")):
        web.post(f"exchanges/{where}/amq.default/publish", {**message, "routing_key": key})
    seen = user("management", vhost).get("overview")
    assert (seen["object_totals"]["queues"], seen["queue_totals"]["messages"]) == (1, 1)
    assert (seen["message_stats"]["publish"], seen["object_totals"]["connections"]) == (1, 0)
    assert not {"listeners", "contexts", "churn_rates"} & seen.keys()
    assert seen["rabbitmq_version"]
    nothing = user("policymaker").get("overview")
    assert (nothing["object_totals"]["queues"], nothing["queue_totals"], nothing["message_stats"]) == (0, {}, {})
    assert user("monitoring").get("overview")["object_totals"]["queues"] >= 2
    web.delete("queues/%2F/of-others")


@pytest.mark.parametrize("age", ["0", "", "-1", "86401", "1.5", "9" * 5000])
def test_a_history_of_no_age_that_there_is_is_400(web: Web, age: str) -> None:
    assert web.ask("GET", f"history?age={age}").status == 400
    assert web.ask("GET", f"flow/history?age={age}").status == 400


def test_there_is_one_node_and_it_has_a_name(web: Web) -> None:
    (node,) = web.get("nodes")
    assert web.get(f"nodes/{node['name']}")["name"] == node["name"] == web.get("overview")["node"]
    assert {"mem_used", "mem_limit", "mem_alarm", "disk_free", "disk_free_alarm", "fd_used", "uptime"} <= set(node)
    assert node["running"] is True
    assert web.get(f"nodes/{node['name']}/memory")["memory"]["total"]["rss"] > 0
    assert web.ask("GET", "nodes/another").status == 404
    assert web.get("nodes?columns=name") == [{"name": node["name"]}]


def test_the_broker_can_be_named(web: Web) -> None:
    before = web.get("cluster-name")["name"]
    web.put("cluster-name", {"name": "harbour"})
    assert web.get("cluster-name") == {"name": "harbour"}
    assert web.get("overview")["cluster_name"] == "harbour"
    for wrong in ({}, {"name": ""}, {"name": 5}, {"name": "x" * 256}):
        assert web.ask("PUT", "cluster-name", wrong).status == 400
    web.put("cluster-name", {"name": before})


def test_what_one_node_cannot_do_is_refused_or_nothing(web: Web) -> None:
    refused = web.ask("POST", "rebalance/queues", {})
    assert (refused.status, "there is one node" in refused.reason) == (400, True)
    assert web.ask("DELETE", "reset").status == 204
    assert web.ask("DELETE", "reset/another").status == 404
    assert web.get("extensions") == []
    assert web.get("feature-flags") == []


def test_logins_are_counted_by_protocol(web: Web, broker: LiveBroker) -> None:
    node = web.get("overview")["node"]
    assert web.ask("DELETE", f"auth/attempts/{node}").status == 204
    pika.BlockingConnection(pika.URLParameters(broker.uri)).close()
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(pika.URLParameters(broker.uri.replace("guest:guest", "guest:wrong")))
    found = {one["protocol"]: one for one in web.get(f"auth/attempts/{node}")}
    assert found["amqp091"]["auth_attempts_succeeded"] == 1
    assert (found["amqp091"]["auth_attempts_failed"], found["amqp091"]["auth_attempts"]) == (1, 2)
    assert found["http"]["auth_attempts_succeeded"] >= 1
    assert web.ask("GET", "auth/attempts/another").status == 404


# Vhosts.


def test_who_makes_a_vhost_may_use_it(web: Web, user: Callable[..., Web]) -> None:
    someone = user("administrator", name="founder")
    assert someone.put("vhosts/found%2Fed", {"description": "theirs", "tags": "a, b"}) == 201
    assert someone.put("vhosts/found%2Fed", {"description": "ours", "tags": ["c"]}) == 204
    view = web.get("vhosts/found%2Fed")
    assert (view["name"], view["description"], view["tags"]) == ("found/ed", "ours", ["c"])
    assert [one["user"] for one in web.get("vhosts/found%2Fed/permissions")] == ["founder"]
    assert web.get("vhosts/found%2Fed/topic-permissions") == []
    assert someone.put("queues/found%2Fed/q") == 201
    assert web.ask("PUT", "queues/found%2Fed/q").status == 403
    node = web.get("overview")["node"]
    assert web.ask("POST", f"vhosts/found%2Fed/start/{node}").status == 204
    assert web.ask("POST", "vhosts/found%2Fed/start/another").status == 400
    for wrong in ({"tags": 5}, {"description": 5}, {"tracing": "perhaps"}):
        assert web.ask("PUT", "vhosts/found%2Fed", wrong).status == 400, wrong
    web.delete("vhosts/found%2Fed")
    for path in ("vhosts/found%2Fed", "vhosts/found%2Fed/permissions", "vhosts/found%2Fed/connections"):
        assert web.ask("GET", path).status == 404, path


# Users.


@pytest.mark.parametrize("body", [b'{"tags": "\xff", "password": "p"}', b'{"tags": "", "password": "\\ud800"}', b"{"])
def test_a_body_that_is_no_json_is_400_with_the_reason(web: Web, body: bytes) -> None:
    answer = web.ask("PUT", "users/nobody", body)
    assert answer.status == 400
    assert "not JSON" in answer.reason


def test_users_are_deleted_together_or_not_at_all(web: Web) -> None:
    for name in ("bulk-1", "bulk-2"):
        assert web.put(f"users/{name}", {"password_hash": "", "tags": ["monitoring", "x"]}) == 201
    assert {"bulk-1", "bulk-2"} <= {one["name"] for one in web.get("users/without-permissions")}
    assert web.get("users/bulk-1")["tags"] == ["monitoring", "x"]
    assert web.get("users/bulk-1/permissions") == []
    answer = web.ask("POST", "users/bulk-delete", {"users": ["bulk-1", "nobody"]})
    assert (answer.status, answer.reason) == (400, "there is no user 'nobody'")
    assert web.ask("GET", "users/bulk-1").status == 200
    for wrong in ({}, {"users": "bulk-1"}, {"users": [1]}):
        assert web.ask("POST", "users/bulk-delete", wrong).status == 400
    assert web.ask("POST", "users/bulk-delete", {"users": ["bulk-1", "bulk-2", "bulk-1"]}).status == 204
    assert web.ask("GET", "users/bulk-1").status == 404
    assert web.ask("GET", "users/bulk-1/permissions").status == 404


def test_topic_permissions_are_set_and_taken_away(web: Web, vhost: str) -> None:
    path = f"topic-permissions/{vhost}/guest"
    assert web.ask("GET", path).status == 404
    assert web.put(path, {"exchange": "amq.topic", "write": "^a", "read": ".*"}) == 201
    (found,) = web.get(path)
    assert (found["exchange"], found["write"]) == ("amq.topic", "^a")
    assert found in web.get("users/guest/topic-permissions")
    assert found in web.get(f"vhosts/{vhost}/topic-permissions")
    web.delete(path)
    assert web.ask("GET", path).status == 404


def test_limits_are_listed_for_a_vhost_and_a_user(web: Web, vhost: str, user: Callable[..., Web]) -> None:
    someone = user("management", vhost, name="limited")
    web.put(f"vhost-limits/{vhost}/max-queues", {"value": 5})
    web.put("user-limits/limited/max-channels", {"value": 7})
    expected = [{"vhost": unquote(vhost), "value": {"max-queues": 5}}]
    assert web.get(f"vhost-limits/{vhost}") == expected == someone.get("vhost-limits")
    mine = [{"user": "limited", "value": {"max-channels": 7}}]
    assert web.get("user-limits/limited") == mine == someone.get("user-limits")
    assert someone.get("user-limits/guest") == []  # others' are not theirs to see
    assert web.ask("GET", "user-limits/nobody").status == 404
    assert web.ask("GET", "vhost-limits/nowhere").status == 404


# Parameters.


def test_global_parameters_are_kept(web: Web) -> None:
    assert web.put("global-parameters/note", {"value": {"a": 1}}) == 201
    assert web.put("global-parameters/note", {"value": {"a": 2}}) == 204
    assert web.get("global-parameters/note") == {"name": "note", "value": {"a": 2}}
    assert "note" in [one["name"] for one in web.get("global-parameters")]
    assert web.ask("PUT", "global-parameters/note", {}).status == 400
    web.delete("global-parameters/note")
    assert web.ask("DELETE", "global-parameters/note").status == 404
    assert web.ask("GET", "global-parameters/note").status == 404


def test_parameters_are_listed_by_component_and_vhost(web: Web, vhost: str) -> None:
    assert web.get("parameters/unknown") == []
    assert web.get(f"parameters/unknown/{vhost}") == []
    assert web.ask("GET", "parameters/unknown/nowhere").status == 404
    assert web.ask("GET", f"parameters/unknown/{vhost}/name").status == 404
    assert web.ask("DELETE", f"parameters/unknown/{vhost}/name").status == 404
    web.put(f"vhost-limits/{vhost}/max-queues", {"value": 5})
    (found,) = web.get(f"parameters/vhost-limits/{vhost}")
    assert found["value"] == {"max-queues": 5}
    assert web.get(f"parameters/vhost-limits/{vhost}/{found['name']}") == found


def test_a_policymaker_cannot_set_limits_and_operator_policies_as_parameters(
    web: Web, vhost: str, user: Callable[..., Web]
) -> None:
    someone = user("policymaker", vhost)
    assert someone.put(f"parameters/plugin/{vhost}/kept", {"value": 1}) == 201
    assert someone.get(f"parameters/plugin/{vhost}/kept")["value"] == 1
    someone.delete(f"parameters/plugin/{vhost}/kept")
    for component in ("vhost-limits", "user-limits", "operator_policy", "policy"):
        answer = someone.ask("PUT", f"parameters/{component}/{vhost}/limits", {"value": {"max-queues": 1}})
        assert (answer.status, "is set at /api/" in answer.reason) == (400, True), component


# Connections.


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "(a|aa)*b", "a.*b.*c", "(a+)(?#)+$", "(?x)(a+)#\n+$", r"(a)\1", "a?" * 30 + "b", "(?:a+){9}"]
)
def test_a_policymaker_cannot_hold_up_the_broker_by_a_pattern(
    web: Web, vhost: str, user: Callable[..., Web], pattern: str
) -> None:
    policy = {"pattern": pattern, "definition": {"max-length": 1}}
    answer = user("policymaker", vhost).ask("PUT", f"policies/{vhost}/p", policy)
    assert answer.status == 400
    assert "may hold up the broker" in answer.reason
    assert web.put(f"policies/{vhost}/p", policy) == 201  # an administrator knows


@pytest.mark.parametrize("pattern", ["", ".*", "^orders", r"^(?!amq\.).*", r"^(a|b|c)\.", "^a.*b.*$", r"(eu)?\.jobs$"])
def test_a_policymaker_makes_ordinary_policies(vhost: str, user: Callable[..., Web], pattern: str) -> None:
    policymaker = user("policymaker", vhost)
    policymaker.put(f"policies/{vhost}/p", {"pattern": pattern, "definition": {"max-length": 1}})
    assert policymaker.get(f"policies/{vhost}/p")["pattern"] == pattern


def test_a_connection_is_shown_with_its_channels_and_consumers(
    web: Web, connection: pika.BlockingConnection, vhost: str
) -> None:
    channel = connection.channel()
    channel.queue_declare("shown", auto_delete=True)
    channel.basic_consume("shown", lambda *_: None, consumer_tag="tag")
    name = name_of(web)
    path = quote(name, safe="")
    view = web.get(f"connections/{path}")
    assert (view["user"], view["vhost"], view["user_provided_name"]) == ("guest", "/", "tester")
    (shown,) = web.get(f"connections/{path}/channels")
    assert shown["name"] == f"{name} (1)"
    whole = web.get(f"channels/{quote(shown['name'], safe='')}")
    assert whole["consumer_details"][0]["consumer_tag"] == "tag"
    for path in ("connections", "channels"):
        assert len(web.get(f"vhosts/%2F/{path}")) == 1
        assert web.get(f"vhosts/{vhost}/{path}") == []
    assert [one["consumer_tag"] for one in web.get("consumers/%2F")] == ["tag"]
    assert web.get(f"consumers/{vhost}") == []
    assert [one["name"] for one in web.get("connections/username/guest")] == [name]
    assert web.get("connections/username/nobody") == []
    for missing in ("connections/none", "connections/none/channels", "channels/none"):
        assert web.ask("GET", missing).status == 404


def test_a_connection_is_closed_with_the_operators_reason(web: Web, connection: pika.BlockingConnection) -> None:
    path = f"connections/{quote(name_of(web), safe='')}"
    assert web.ask("DELETE", path, X_Reason="moving house").status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(10)
    assert (closed.value.reply_code, "moving house" in closed.value.reply_text) == (320, True)
    wait_until(lambda: web.ask("GET", path).status == 404, what="the connection is gone")
    assert web.ask("DELETE", path).status == 404


def test_all_connections_of_a_user_are_closed_at_once(web: Web, connection: pika.BlockingConnection) -> None:
    name_of(web)
    assert web.ask("DELETE", "connections/username/nobody").status == 204
    connection.process_data_events(0)
    assert web.ask("DELETE", "connections/username/guest").status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        connection.process_data_events(10)


def test_others_connections_are_not_theirs_to_see_or_close(
    web: Web, connection: pika.BlockingConnection, user: Callable[..., Web]
) -> None:
    name = quote(name_of(web), safe="")
    connection.channel()
    someone = user("management", "%2F")
    assert someone.get("connections") == []
    assert someone.get("channels") == []
    for method, path in (
        ("GET", f"connections/{name}"),
        ("DELETE", f"connections/{name}"),
        ("GET", f"connections/{name}/channels"),
        ("GET", "connections/username/guest"),
        ("DELETE", "connections/username/guest"),
    ):
        assert someone.ask(method, path).status == 403, path
    watcher = user("monitoring")
    assert len(watcher.get("connections")) == 1
    assert watcher.ask("DELETE", f"connections/{name}").status == 403

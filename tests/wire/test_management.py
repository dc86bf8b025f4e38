"""The HTTP API for operators, on a real broker: what it changes counts at once, and for clients that are connected.

Requests are made with urllib, as any script would.
"""

from __future__ import annotations

import base64
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pika.exceptions
import pytest

from penstock.amqp.method import BasicGet, BasicGetEmpty, ChannelClose, QueueDeclare, QueueDeclareOk
from tests.wire.live import LiveBroker, ServeProcess
from tests.wire.raw import RawClient
from tests.wire.waiting import LIMIT_S, wait_until


class Http:
    """A client of the API."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(
        self, method: str, path: str, body: Any = None, user: str = "guest", password: str = "guest"
    ) -> tuple[int, Any]:
        """Status and decoded body."""
        request = urllib.request.Request(f"{self.url}api/{path}", method=method)
        request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
        if body is not None:
            request.data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.status, _decoded(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, _decoded(error.read())

    def get(self, path: str) -> Any:
        status, body = self.ask("GET", path)
        assert status == 200, body
        return body

    def put(self, path: str, body: Any) -> int:
        status, answer = self.ask("PUT", path, body)
        assert status in (201, 204), answer
        return status


def _decoded(raw: bytes) -> Any:
    return json.loads(raw) if raw else None


@pytest.fixture
def http(broker: LiveBroker) -> Http:
    port = broker.manage()
    return Http(f"http://127.0.0.1:{port}/")


@pytest.fixture
def client(broker: LiveBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client.handshake().open()


def test_a_policy_counts_at_once_for_a_queue_that_is_there(broker: LiveBroker, http: Http, client: RawClient) -> None:
    client.ask(QueueDeclare("short"), QueueDeclareOk)
    client.publish("short", b"x")
    wait_until(lambda: broker.count("short") == 1)
    assert http.put("policies/%2F/none", {"pattern": "^short$", "definition": {"max-length": 0}}) == 201
    wait_until(lambda: broker.count("short") == 0, what="the policy drops what is there")
    assert http.put("policies/%2F/none", {"pattern": "^short$", "definition": {"max-length": 2}}) == 204
    for _ in range(5):
        client.publish("short", b"x")
    client.ask(QueueDeclare("short", passive=True), QueueDeclareOk)
    assert broker.count("short") == 2
    assert http.ask("DELETE", "policies/%2F/none") == (204, None)
    for _ in range(5):
        client.publish("short", b"x")
    wait_until(lambda: broker.count("short") == 7)


def test_an_operator_policy_bounds_what_a_queue_asks_for(broker: LiveBroker, http: Http, client: RawClient) -> None:
    http.put("operator-policies/%2F/bound", {"pattern": ".*", "definition": {"max-length": 3}})
    client.ask(QueueDeclare("greedy", arguments={"x-max-length": 100}), QueueDeclareOk)
    for _ in range(10):
        client.publish("greedy", b"x")
    client.ask(QueueDeclare("greedy", passive=True), QueueDeclareOk)
    assert broker.count("greedy") == 3


def test_a_permission_that_is_taken_away_counts_from_the_next_method_on(
    broker: LiveBroker, http: Http, client: RawClient
) -> None:
    client.ask(QueueDeclare("mine"), QueueDeclareOk)
    http.put("permissions/%2F/guest", {"configure": ".*", "write": ".*", "read": "^$"})
    client.send(BasicGet("mine"))
    close = client.expect_channel_close()
    assert close.reply_text == "ACCESS_REFUSED - read access to queue 'mine' in vhost '/' refused for user 'guest'"
    http.put("permissions/%2F/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    client.open().ask(BasicGet("mine"), BasicGetEmpty)


def test_a_new_user_can_log_in_and_a_deleted_one_is_put_out(broker: LiveBroker, http: Http) -> None:
    assert http.put("users/alice", {"password": "secret", "tags": "monitoring"}) == 201
    assert http.put("permissions/%2F/alice", {"configure": ".*", "write": ".*", "read": ".*"}) == 201
    parameters = pika.ConnectionParameters(
        "127.0.0.1", broker.port, credentials=pika.PlainCredentials("alice", "secret")
    )
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    assert http.ask("DELETE", "users/alice") == (204, None)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        channel.queue_declare("q")
    assert closed.value.reply_code == 320
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(parameters)


def test_a_vhost_comes_and_goes_with_its_connections(broker: LiveBroker, http: Http) -> None:
    assert http.put("vhosts/team%2Fone", {"description": "theirs"}) == 201
    http.put("permissions/team%2Fone/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    assert {vhost["name"] for vhost in http.get("vhosts")} == {"/", "team/one"}
    with RawClient(broker.port) as client:
        client.handshake(vhost="team/one").open().ask(QueueDeclare("q"), QueueDeclareOk)
        assert http.ask("DELETE", "vhosts/team%2Fone")[0] == 204
        close = client.expect_connection_close()
        assert (close.reply_code, close.reply_text) == (320, "CONNECTION_FORCED - vhost 'team/one' is deleted")
    assert [vhost["name"] for vhost in http.get("vhosts")] == ["/"]


def test_limits_hold_and_can_be_taken_away(broker: LiveBroker, http: Http, client: RawClient) -> None:
    http.put("vhost-limits/%2F/max-queues", {"value": 1})
    client.ask(QueueDeclare("first"), QueueDeclareOk)
    client.send(QueueDeclare("second"))
    assert client.expect_channel_close().reply_code == 406
    assert http.get("vhost-limits") == [{"vhost": "/", "value": {"max-queues": 1}}]
    assert http.ask("DELETE", "vhost-limits/%2F/max-queues")[0] == 204
    client.open().ask(QueueDeclare("second"), QueueDeclareOk)


def test_definitions_go_out_and_come_back(broker: LiveBroker, http: Http, client: RawClient) -> None:
    client.ask(QueueDeclare("kept", durable=True, arguments={"x-max-length": 5}), QueueDeclareOk)
    document = http.get("definitions")
    assert [queue["name"] for queue in document["queues"]] == ["kept"]
    document["queues"].append({**document["queues"][0], "name": "another"})
    status, answer = http.ask("POST", "definitions", document)
    assert status == 200, answer
    assert broker.count("another") == 0
    document["queues"].append({**document["queues"][0], "name": "bad", "arguments": {"x-max-length": "five"}})
    document["queues"].append({**document["queues"][0], "name": "late"})
    status, answer = http.ask("POST", "definitions", document)
    assert status == 400
    assert "bad" in answer["reason"]
    assert broker.count("late") == -1


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "reason"),
    [
        ("PUT", "policies/%2F/p", {"pattern": "(", "definition": {"max-length": 1}}, 400, "pattern '('"),
        ("PUT", "policies/%2F/p", {"pattern": "a", "definition": {"max-lengths": 1}}, 400, "'max-lengths'"),
        ("PUT", "policies/%2F/p", {"pattern": "a", "definition": {"max-length": -1}}, 400, "'max-length'"),
        ("PUT", "policies/%2F/p", {"pattern": "a"}, 400, "'definition'"),
        ("PUT", "policies/%2F/p", {"definition": {"max-length": 1}}, 400, "'pattern' is missing"),
        ("PUT", "policies/nowhere/p", {"pattern": "a", "definition": {"max-length": 1}}, 404, "vhost 'nowhere'"),
        ("PUT", "policies/%2F/p", b"{", 400, "not JSON"),
        ("PUT", "policies/%2F/p", b"[]", 400, "not a JSON object"),
        ("DELETE", "policies/%2F/p", None, 404, "policy 'p'"),
        ("PUT", "operator-policies/%2F/p", {"pattern": "a", "definition": {"overflow": "drop-head"}}, 400, "overflow"),
        ("PUT", "users/bob", {"tags": ""}, 400, "'password'"),
        ("PUT", "users/bob", {"password_hash": "short", "tags": ""}, 400, "bob"),
        ("PUT", "users/bob", {"password": "p"}, 400, "'tags' is missing"),
        ("PUT", "permissions/%2F/nobody", {"configure": "", "write": "", "read": ""}, 404, "user 'nobody'"),
        ("PUT", "permissions/%2F/guest", {"configure": "(", "write": "", "read": ""}, 400, "'('"),
        ("PUT", "vhost-limits/%2F/max-lunches", {"value": 1}, 400, "max-lunches"),
        ("PUT", "vhost-limits/%2F/max-queues", {"value": "1"}, 400, "'value'"),
        ("GET", "users/nobody", None, 404, "user 'nobody'"),
        ("POST", "definitions", {"queues": 5}, 400, "queues"),
    ],
)
def test_a_wrong_request_gets_a_reason(http: Http, method: str, path: str, body: Any, status: int, reason: str) -> None:
    got, answer = http.ask(method, path, body)
    assert got == status, answer
    assert reason in answer["reason"]


def test_who_may_do_what_is_decided_by_tags(http: Http) -> None:
    for name in ("administrator", "policymaker", "monitoring", "management", ""):
        http.put(f"users/u-{name}", {"password": "p", "tags": name})
    http.put("permissions/%2F/u-policymaker", {"configure": "^$", "write": "^$", "read": "^$"})
    policy = {"pattern": "^none$", "definition": {"max-length": 1}}

    def status(name: str, method: str, path: str, body: Any = None) -> int:
        return http.ask(method, path, body, f"u-{name}", "p")[0]

    assert status("", "GET", "whoami") == 401
    assert status("monitoring", "GET", "whoami") == 200
    assert status("monitoring", "PUT", "policies/%2F/p", policy) == 403
    assert status("policymaker", "PUT", "policies/%2F/p", policy) == 201
    assert status("policymaker", "PUT", "operator-policies/%2F/p", policy) == 403
    assert status("management", "GET", "users") == 403
    assert status("administrator", "GET", "users") == 200
    assert http.ask("GET", "whoami", None, "guest", "wrong")[0] == 401


def test_what_was_answered_is_there_after_kill_9(serve_process: Callable[..., ServeProcess]) -> None:
    first = serve_process("--management", "127.0.0.1:0")
    http = Http(first.ready_line.rpartition("management ")[2].strip())
    http.put("users/alice", {"password": "secret", "tags": "administrator"})
    http.put("policies/%2F/p", {"pattern": "^a", "definition": {"message-ttl": 5}})
    first.kill()
    second = serve_process("--management", "127.0.0.1:0", "--data", str(first.data))
    again = Http(second.ready_line.rpartition("management ")[2].strip())
    assert again.ask("GET", "whoami", None, "alice", "secret") == (200, {"name": "alice", "tags": ["administrator"]})
    assert [policy["name"] for policy in again.get("policies")] == ["p"]


def test_channel_close_is_the_only_answer_to_a_refused_method(http: Http, client: RawClient) -> None:
    http.put("permissions/%2F/guest", {"configure": "^$", "write": ".*", "read": ".*"})
    client.send(QueueDeclare("q"))
    assert isinstance(client.read_method()[1], ChannelClose)


def test_what_is_no_http_is_answered_400_and_logged_in_one_line(broker: LiveBroker, http: Http) -> None:
    with socket.create_connection(("127.0.0.1", broker.manage()), LIMIT_S) as peer:
        peer.sendall(b"\x00\x01\x02\r\n\r\n")
        assert peer.recv(100).startswith(b"HTTP/1.1 400")
    wait_until(lambda: 'management text="Invalid HTTP request received."' in broker.log, what="a log line")


def test_a_path_or_method_that_does_not_exist_is_404_or_405(http: Http) -> None:
    assert http.ask("GET", "nothing") == (404, {"error": "Object Not Found", "reason": "Not Found"})
    assert http.ask("DELETE", "whoami")[0] == 405

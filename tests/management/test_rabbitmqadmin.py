"""rabbitmqadmin, the script of RabbitMQ's management plugin, as Debian's rabbitmq-server has it, works unchanged."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pika
import pika.exceptions
import pytest

from tests.management.web import Web
from tests.wire.live import LiveBroker
from tests.wire.waiting import wait_until

PLUGINS = Path("/usr/lib/rabbitmq/lib")
SCRIPT = "priv/www/cli/rabbitmqadmin"


def script_of_rabbitmq() -> bytes | None:
    """From the plugin's folder or its archive; None where RabbitMQ is not installed."""
    for path in sorted(PLUGINS.glob("*/plugins/rabbitmq_management-*")):
        if path.is_dir() and (path / SCRIPT).exists():
            return (path / SCRIPT).read_bytes()
        if path.suffix == ".ez":
            with zipfile.ZipFile(path) as archive:
                for name in archive.namelist():
                    if name.endswith(SCRIPT):
                        return archive.read(name)
    return None


FOUND = script_of_rabbitmq()
pytestmark = pytest.mark.skipif(FOUND is None, reason="no rabbitmqadmin: rabbitmq-server is not installed")

Run = Callable[..., str]


# Python starts once and runs the script for every line: [argument, …] -> [exit code, what it said].
RUNNER = """
import contextlib, io, json, runpy, sys
script = sys.argv[1]
for line in sys.stdin:
    sys.argv = [script, *json.loads(line)]
    said, code = io.StringIO(), 0
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as exit:
            code = exit.code or 0
    print(json.dumps([code, said.getvalue()]), flush=True)
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    path = tmp_path_factory.mktemp("rabbitmqadmin") / "rabbitmqadmin"
    path.write_bytes(FOUND or b"")
    # -W ignore: the script is older than this Python, and would say so.
    command = [sys.executable, "-W", "ignore", "-c", RUNNER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.fixture
def admin(script: subprocess.Popen[str], url: str) -> Run:
    port = urlsplit(url).port

    def run(*arguments: str, fails: bool = False, user: str = "guest", password: str = "guest") -> str:
        assert script.stdin is not None
        assert script.stdout is not None
        login = ["-H", "127.0.0.1", "-P", str(port), "-u", user, "-p", password]
        script.stdin.write(json.dumps([*login, *arguments]) + "\n")
        script.stdin.flush()
        code, said = json.loads(script.stdout.readline())
        assert bool(code) == fails, (arguments, code, said)
        return str(said)

    return run


def listed(admin: Run, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(admin("-f", "raw_json", *arguments))
    return found


def test_queues_exchanges_and_bindings_are_declared_listed_and_deleted(admin: Run) -> None:
    assert "queue declared" in admin("declare", "queue", "name=jobs", "durable=true", 'arguments={"x-max-length": 9}')
    assert "exchange declared" in admin("declare", "exchange", "name=work", "type=topic")
    assert "binding declared" in admin("declare", "binding", "source=work", "destination=jobs", "routing_key=a.#")
    table = admin("list", "queues", "name", "durable", "messages")
    assert "| jobs " in table
    assert {one["name"]: one["arguments"] for one in listed(admin, "list", "queues")}["jobs"] == {"x-max-length": 9}
    assert "work" in admin("list", "exchanges")
    assert "a.#" in admin("list", "bindings")
    assert "jobs" in admin("--vhost=/", "--sort=name", "--sort-reverse", "list", "queues")
    (bound,) = [one for one in listed(admin, "list", "bindings") if one["source"] == "work"]
    key = f"properties_key={bound['properties_key']}"
    admin("delete", "binding", "source=work", "destination_type=queue", "destination=jobs", key)
    assert not [one for one in listed(admin, "list", "bindings") if one["source"] == "work"]
    assert "exchange deleted" in admin("delete", "exchange", "name=work")
    assert "queue deleted" in admin("delete", "queue", "name=jobs")
    assert "Not found" in admin("delete", "queue", "name=jobs", fails=True)


def test_messages_are_published_got_and_purged(admin: Run, tmp_path: Path) -> None:
    admin("declare", "queue", "name=mail", "durable=false")
    assert "Message published" in admin("publish", "routing_key=mail", "payload=hello, world")
    properties = 'properties={"delivery_mode": 2, "headers": {"a": "b"}}'
    admin("publish", "exchange=amq.default", "routing_key=mail", "payload=another", properties)
    assert "NOT routed" in admin("publish", "routing_key=nowhere", "payload=x")
    assert "hello, world" in admin("get", "queue=mail", "count=1", "ackmode=ack_requeue_true")
    target = tmp_path / "payload"
    admin("get", "queue=mail", "ackmode=ack_requeue_false", f"payload_file={target}")
    assert target.read_text() == "hello, world"
    assert "queue purged" in admin("purge", "queue", "name=mail")
    assert listed(admin, "get", "queue=mail") == []
    admin("delete", "queue", "name=mail")


def test_vhosts_users_permissions_policies_and_limits_are_managed(admin: Run) -> None:
    admin("declare", "vhost", "name=shop")
    admin("declare", "user", "name=alice", "password=secret", "tags=management")
    admin("declare", "permission", "vhost=shop", "user=alice", "configure=.*", "write=.*", "read=.*")
    admin("--vhost=shop", "declare", "queue", "name=orders", "durable=true")
    admin("--vhost=shop", "declare", "policy", "name=p", "pattern=^o", 'definition={"max-length": 5}', "priority=1")
    operator = ("name=o", "pattern=^o", 'definition={"max-length": 4}', "apply-to=queues")
    admin("--vhost=shop", "declare", "operator_policy", *operator)
    admin("declare", "vhost_limit", "vhost=shop", "name=max-queues", "value=10")
    assert "shop" in admin("list", "vhosts")
    assert "alice" in admin("list", "users")
    assert "alice" in admin("list", "permissions")
    assert '"max-length": 5' in admin("list", "policies")
    assert '"max-length": 4' in admin("list", "operator_policies")
    assert "max-queues" in admin("list", "vhost_limits")
    assert "orders" in admin("list", "queues", user="alice", password="secret")
    admin("list", "parameters")
    admin("--vhost=shop", "delete", "policy", "name=p")
    admin("--vhost=shop", "delete", "operator_policy", "name=o")
    admin("delete", "vhost_limit", "vhost=shop", "name=max-queues")
    admin("delete", "permission", "vhost=shop", "user=alice")
    admin("delete", "user", "name=alice")
    admin("delete", "vhost", "name=shop")
    assert "shop" not in admin("list", "vhosts", "name")


def test_definitions_are_exported_and_imported(admin: Run, web: Web, tmp_path: Path) -> None:
    admin("declare", "queue", "name=kept", "durable=true")
    target = tmp_path / "definitions.json"
    admin("export", str(target))
    assert "kept" in [queue["name"] for queue in json.loads(target.read_text())["queues"]]
    admin("delete", "queue", "name=kept")
    admin("import", str(target))
    assert web.get("queues/%2F/kept")["durable"] is True
    admin("delete", "queue", "name=kept")


def test_connections_channels_consumers_and_nodes_are_shown_and_a_connection_is_closed(
    admin: Run, broker: LiveBroker, web: Web
) -> None:
    web.put("queues/%2F/consumed", {})
    connection = pika.BlockingConnection(pika.URLParameters(broker.uri))
    channel = connection.channel()
    channel.basic_consume("consumed", lambda *_: None, consumer_tag="my-tag")
    (name,) = [one["name"] for one in listed(admin, "list", "connections")]
    assert name in admin("list", "connections")
    assert f"{name} (1)" in admin("list", "channels")
    assert "my-tag" in admin("-f", "long", "list", "consumers")
    assert "mem_used" in admin("-f", "long", "list", "nodes")
    assert "| cluster_name " in admin("show", "overview")
    assert "object_totals.queues" in admin("show", "overview")
    assert "connection closed" in admin("close", "connection", f"name={name}")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(10)
    assert closed.value.reply_code == 320
    wait_until(lambda: web.get("connections") == [], what="the connection is gone")


def test_a_mistake_is_told_with_its_reason(admin: Run) -> None:
    admin("declare", "queue", "name=firm", "durable=true")
    assert "inequivalent arg 'durable'" in admin("declare", "queue", "name=firm", "durable=false", fails=True)
    assert "Access refused" in admin("list", "queues", user="guest", password="wrong", fails=True)
    admin("delete", "queue", "name=firm")

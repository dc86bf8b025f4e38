"""Nagios' plugins for RabbitMQ, as Debian's nagios-plugins-rabbitmq has them, check a broker unchanged.

They are in Perl and old, and so a client unlike all others here: they log in only when they are asked to, by the name
of the realm, and call the node by RabbitMQ's name. Not here: check_rabbitmq_shovels, as there are no shovels.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from tests.management.web import Web
from tests.wire.live import LiveBroker
from tests.wire.raw import RawClient
from tests.wire.waiting import LIMIT_S, wait_until

nagios = pytest.mark.skipif(
    shutil.which("check_rabbitmq_overview") is None,
    reason="no Nagios plugins (Debian: nagios-plugins-rabbitmq)",
)

OK, WARNING, CRITICAL, UNKNOWN = range(4)
NODE = os.uname().nodename.partition(".")[0]

Check = Callable[..., tuple[int, str]]


@pytest.fixture
def check(url: str) -> Check:
    """Exit code and what was said."""
    where = ["-H", "127.0.0.1", "--port", str(urlsplit(url).port)]

    def run(name: str, *arguments: str, password: str = "guest") -> tuple[int, str]:
        command = [f"check_rabbitmq_{name}", *where, "-u", "guest", "-p", password, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        assert not done.stderr, done.stderr
        return done.returncode, done.stdout

    return run


@pytest.fixture(scope="module")
def client(broker: LiveBroker) -> Iterator[RawClient]:
    """One that is connected and has put three messages into a queue."""
    with RawClient(broker.port).handshake().open() as one:
        one.ask(QueueDeclare("orders", exclusive=True), QueueDeclareOk)
        for _ in range(3):
            one.publish("orders", b"x")
        wait_until(lambda: broker.count("orders") == 3)
        yield one


@nagios
def test_a_broker_is_alive_and_its_node_well(check: Check, client: RawClient) -> None:
    assert check("aliveness") == (OK, "RABBITMQ_ALIVENESS OK - vhost: /\n")
    assert check("watermark", "-n", NODE) == (OK, "RABBITMQ_WATERMARK OK - mem_alarm disk_free_alarm\n")
    assert check("partition", "-n", NODE)[0] == OK
    code, said = check("server", "-n", NODE, "-w", "101,101,101,101", "-c", "102,102,102,102")
    assert code == OK, said
    for label in ("Memory", "Process", "FD", "Sockets"):
        assert f"{label} OK (" in said
    assert check("server", "-n", "elsewhere")[0] == UNKNOWN


@nagios
def test_messages_and_connections_are_counted_and_too_many_are_told(check: Check, client: RawClient, web: Web) -> None:
    code, said = check("queue", "--queue", "orders", "-w", "10", "-c", "20")
    assert (code, "messages_ready OK (3)" in said) == (OK, True), said
    assert check("queue", "--queue", "orders", "-w", "1", "-c", "20")[0] == WARNING
    assert check("queue", "--queue", "orders", "-w", "1", "-c", "2")[0] == CRITICAL
    assert check("queue", "--queue", "not there")[0] == CRITICAL
    wait_until(lambda: web.get("overview")["queue_totals"].get("messages_ready") == 3, what="the sum of all queues")
    code, said = check("overview")
    assert (code, "messages OK (3)" in said) == (OK, True), said
    code, said = check("connections")
    assert (code, "connections OK (1)" in said) == (OK, True), said
    code, said = check("objects")
    assert code == OK, said
    assert "Gathered Object Counts" in said


@nagios
def test_a_wrong_password_is_told_as_one(check: Check) -> None:
    code, said = check("overview", password="wrong")
    assert (code, "Access Refused" in said) == (CRITICAL, True), said


def test_what_such_tools_go_by_is_there_for_any_client(url: str, web: Web) -> None:
    nobody = Web(url, None)
    assert nobody.ask("GET", "overview").headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'
    nobody.close()
    node = web.get(f"nodes/rabbit@{NODE}")
    assert node["name"] == f"penstock@{NODE}"
    assert node["proc_used"] > 0
    assert web.ask("GET", "nodes/rabbit@elsewhere").status == 404

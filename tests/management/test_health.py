"""Health tells the truth: not ready while an alarm blocks publishers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.management.web import Web
from tests.wire.certificates import Authority, needs_openssl
from tests.wire.live import LiveBroker
from tests.wire.waiting import wait_until

CHECKS = "health/checks/"


@pytest.fixture
def alarm(web: Web) -> Iterator[None]:
    """The memory alarm is on."""
    web.put("settings/alarms.memory_bytes_high", {"value": 1})
    wait_until(lambda: web.get("alarms"), what="an alarm")
    yield
    web.put("settings/alarms.memory_bytes_high", {"value": 0})
    wait_until(lambda: not web.get("alarms"), what="no alarm")


def test_without_an_alarm_all_is_well(web: Web) -> None:
    for path in ("alarms", "local-alarms", "virtual-hosts", "node-is-quorum-critical", "node-is-mirror-sync-critical"):
        assert web.get(CHECKS + path)["status"] == "ok"
    assert web.get("/health/ready") == {"status": "ok"}
    assert web.get("healthchecks/node") == {"status": "ok"}
    assert web.ask("GET", "healthchecks/node/rabbit@elsewhere").status == 404
    assert web.get("aliveness-test/%2F") == {"status": "ok"}


def test_liveness_is_for_everybody(url: str) -> None:
    nobody = Web(url, None)
    assert nobody.get("/health/live") == {"status": "ok"}
    assert nobody.ask("GET", "/health/ready").status == 401
    nobody.close()


@pytest.mark.usefixtures("alarm")
def test_an_alarm_that_blocks_publishers_is_told_by_every_check_that_is_about_it(web: Web) -> None:
    for path in ("alarms", "local-alarms"):
        answer = web.ask("GET", CHECKS + path)
        assert (answer.status, answer.json["status"]) == (503, "failed")
        assert answer.reason.startswith("There are alarms in effect")
        assert [one["resource"] for one in answer.json["alarms"]] == ["memory"]
    ready = web.ask("GET", "/health/ready")
    assert (ready.status, ready.json["status"]) == (503, "failed")
    assert ready.reason.startswith("publishers are blocked: ")
    assert web.get("healthchecks/node")["status"] == "failed"
    assert web.ask("GET", "aliveness-test/%2F").status == 503
    assert web.get(CHECKS + "virtual-hosts") == {"status": "ok"}
    assert web.get("/health/live") == {"status": "ok"}


@pytest.mark.usefixtures("alarm")
def test_while_publishers_are_blocked_the_api_publishes_nothing(web: Web) -> None:
    message = {"properties": {}, "routing_key": "q", "payload": "x", "payload_encoding": "string"}
    answer = web.ask("POST", "exchanges/%2F/amq.default/publish", message)
    assert (answer.status, "publishers are blocked" in answer.reason) == (400, True)


def test_listeners_are_found_by_port_and_protocol(broker: LiveBroker, web: Web) -> None:
    assert web.get(f"{CHECKS}port-listener/{broker.port}") == {"status": "ok", "port": broker.port}
    assert web.get(f"{CHECKS}port-listener/{broker.manage()}")["status"] == "ok"
    answer = web.ask("GET", CHECKS + "port-listener/1")
    assert (answer.status, answer.reason, answer.json["missing"]) == (503, "No active listener", 1)
    assert broker.port in answer.json["ports"]
    assert web.ask("GET", CHECKS + "port-listener/x").status == 400
    for name in ("amqp", "amqp091", "http"):
        assert web.get(f"{CHECKS}protocol-listener/{name}")["status"] == "ok"
    answer = web.ask("GET", CHECKS + "protocol-listener/mqtt")
    assert (answer.status, answer.json["missing"]) == (503, "mqtt")


def test_certificates_are_asked_about_in_known_units(web: Web) -> None:
    assert web.get(CHECKS + "certificate-expiration/1/weeks") == {"status": "ok"}
    for wrong in ("1/fortnights", "x/days", "-1/days"):
        assert web.ask("GET", f"{CHECKS}certificate-expiration/{wrong}").status == 400


@needs_openssl
def test_a_certificate_that_ends_soon_is_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    pair = authority.sign("server")  # for two days
    settings = {"tls.certificate": str(pair.certificate), "tls.key": str(pair.key)}
    with LiveBroker(settings, tls_port=0) as live:
        web = Web(f"http://127.0.0.1:{live.manage()}")
        assert web.get(CHECKS + "certificate-expiration/1/days") == {"status": "ok"}
        answer = web.ask("GET", CHECKS + "certificate-expiration/1/weeks")
        assert (answer.status, answer.reason) == (503, "Certificates expiring")
        assert [one["certificate"] for one in answer.json["expired"]] == [str(pair.certificate)]
        assert web.get(CHECKS + "protocol-listener/amqps")["status"] == "ok"
        web.close()


def test_the_aliveness_test_is_made_as_the_caller(web: Web, vhost: str, user: Callable[..., Web]) -> None:
    someone = user("management", vhost)
    assert someone.get(f"aliveness-test/{vhost}") == {"status": "ok"}
    assert someone.ask("GET", "aliveness-test/%2F").status == 403
    web.put(f"permissions/{vhost}/guest", {"configure": "^$", "write": "^$", "read": "^$"})
    assert web.ask("GET", f"aliveness-test/{vhost}").status == 403

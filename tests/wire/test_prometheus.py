"""A real Prometheus, Debian's, scrapes a real broker: with a login, all it is shown, and its alerts fire."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from penstock.amqp.table import Table
from penstock.broker.admin import Admin, new_secret
from tests.wire.live import ROOT, LiveBroker
from tests.wire.raw import RawClient
from tests.wire.waiting import LIMIT_S, wait_until

pytestmark = [
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is not installed (Debian: prometheus)"),
]

PASSWORD = "secret"
LISTENING = re.compile(r'msg="Listening on" address=([\d.]+:\d+)')

CONFIGURATION = """
global: {{scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: penstock
    basic_auth: {{username: prometheus, password: {password}}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
  - job_name: penstock-objects
    metrics_path: /metrics/per-object
    basic_auth: {{username: prometheus, password: {password}}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
  - job_name: stranger
    scrape_interval: 5s  # a refusal takes longer each time, up to 3 s
    scrape_timeout: 5s
    basic_auth: {{username: prometheus, password: wrong}}
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Prometheus:
    """Debian's Prometheus on a free port. Three jobs: the whole broker, each object, one with a wrong password."""

    def __init__(self, directory: Path, management_port: int) -> None:
        configuration = directory / "prometheus.yml"
        rules = ROOT / "dashboards" / "alerts.yml"
        configuration.write_text(CONFIGURATION.format(port=management_port, password=PASSWORD, rules=rules))
        self._log = directory / "log"
        command = ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={directory / 'tsdb'}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen([*command, "--web.listen-address=127.0.0.1:0"], stdout=log, stderr=log)
        self.url = ""

    def wait(self) -> None:
        found = wait_until(lambda: LISTENING.search(self._log.read_text()), what="Prometheus listens")
        assert found is not None
        self.url = f"http://{found[1]}/api/v1/"
        wait_until(lambda: _is_ready(f"http://{found[1]}/-/ready"), what="Prometheus is ready")
        wait_until(self.targets, what="Prometheus has targets")

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=LIMIT_S) as answer:
            return json.loads(answer.read())["data"]

    def targets(self) -> dict[str, dict[str, Any]]:
        """By their jobs; empty until all were scraped."""
        found = {one["labels"]["job"]: one for one in self.ask("targets")["activeTargets"]}
        return found if len(found) == 3 and all(one["health"] != "unknown" for one in found.values()) else {}

    def health(self, job: str) -> str:
        return str(self.targets()[job]["health"])

    def query(self, text: str) -> dict[tuple[str, ...], float]:
        """The labels' values, sorted by label, without job, instance and name; and the number."""
        result = self.ask(f"query?{urllib.parse.urlencode({'query': text})}")["result"]
        return {_labels(one["metric"]): float(one["value"][1]) for one in result}

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def _is_ready(url: str) -> bool:
    """It listens before it has read its own files: 503 until then."""
    try:
        with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False


def _labels(metric: dict[str, str]) -> tuple[str, ...]:
    return tuple(value for name, value in sorted(metric.items()) if name not in ("__name__", "instance", "job"))


@pytest.fixture(scope="module")
def broker() -> Iterator[LiveBroker]:
    with LiveBroker() as live:
        live.manage()
        secret = new_secret(PASSWORD)
        live.call(lambda: Admin(live.inside).put_user("prometheus", secret, ["monitoring"]))
        yield live


@pytest.fixture(scope="module")
def prometheus(broker: LiveBroker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    found = Prometheus(tmp_path_factory.mktemp("prometheus"), broker.manage())
    try:
        found.wait()
        yield found
    finally:
        found.close()


def test_prometheus_scrapes_the_broker_with_a_login_and_its_numbers_are_right(
    broker: LiveBroker, prometheus: Prometheus
) -> None:
    wait_until(
        lambda: prometheus.health("penstock") == prometheus.health("penstock-objects") == "up", what="both are up"
    )
    with RawClient(broker.port) as client:
        client.handshake().open()
        for name, count in (("orders", 3), ("invoices", 4)):
            client.ask(QueueDeclare(name, exclusive=True), QueueDeclareOk)
            for _ in range(count):
                client.publish(name, b"x")
        wait_until(lambda: broker.count("orders") + broker.count("invoices") == 7)
        whole = 'rabbitmq_queue_messages_ready{job="penstock"}'
        wait_until(lambda: prometheus.query(whole) == {(): 7.0}, what=whole)
        each = 'rabbitmq_queue_messages_ready{job="penstock-objects"}'
        expected = {("orders", "/"): 3.0, ("invoices", "/"): 4.0}
        wait_until(lambda: prometheus.query(each) == expected, what=each)
        received = 'rabbitmq_global_messages_received_total{job="penstock"}'
        assert prometheus.query(received)[("amqp091",)] >= 7.0
        # What the dashboard asks: a broker that is scraped twice counts once.
        assert prometheus.query("sum (max by (instance) (rabbitmq_connections))") == {(): 1.0}
        assert prometheus.query('sum (max by (instance) (rabbitmq_queue_messages_ready{queue=""}))') == {(): 7.0}


def test_prometheus_evaluates_the_alerts_and_a_saturated_queue_is_one(
    broker: LiveBroker, prometheus: Prometheus
) -> None:
    groups = prometheus.ask("rules")["groups"]
    rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
    assert "PenstockQueueSaturated" in rules
    with RawClient(broker.port) as client:
        client.handshake().open()
        marks: Table = {"x-flow-stop-count": 2, "x-flow-resume-count": 1}
        client.ask(QueueDeclare("narrow", exclusive=True, arguments=marks), QueueDeclareOk)
        for _ in range(5):
            client.publish("narrow", b"x")
        wait_until(lambda: "PenstockQueueSaturated" in _alerts(prometheus), what="the alert is pending")
    wrong = {name: rule["lastError"] for name, rule in rules.items() if rule.get("lastError")}
    assert wrong == {}


def _alerts(prometheus: Prometheus) -> set[str]:
    return {alert["labels"]["alertname"] for alert in prometheus.ask("alerts")["alerts"]}


def test_every_question_of_the_dashboard_is_one_that_prometheus_understands(prometheus: Prometheus) -> None:
    dashboard = json.loads((ROOT / "dashboards" / "grafana.json").read_text("utf-8"))
    questions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", [])]
    assert len(questions) > 40
    for question in questions:
        prometheus.query(question.replace("$instance", ".*").replace("$__rate_interval", "1m"))


def test_prometheus_with_a_wrong_password_is_told_401(prometheus: Prometheus) -> None:
    assert prometheus.health("stranger") == "down"
    assert "401" in prometheus.targets()["stranger"]["lastError"]

"""/metrics and /metrics/per-object of a real broker, read back with prometheus_client; all that the documents and
dashboards name is there."""

from __future__ import annotations

import base64
import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from penstock.amqp.method import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicGet,
    BasicGetEmpty,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
)
from penstock.amqp.properties import PERSISTENT, Properties
from penstock.amqp.table import Table
from penstock.broker.admin import Admin
from penstock.management import families, rates
from penstock.management.exposition import Family
from penstock.management.metrics import LISTED
from tests.wire.live import ROOT, LiveBroker
from tests.wire.raw import RawClient
from tests.wire.waiting import LIMIT_S, wait_until

OPEN = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
DASHBOARDS = ROOT / "dashboards"
# As prometheus_client has it: a counter's name is without _total.
SUFFIXES = ("_total", "_bucket", "_sum", "_count")


class Scraper:
    """Asks as Prometheus does."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, user: str = "guest:guest", accept: str = "*/*") -> tuple[int, str, str]:
        """Status, content type and text."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers={"Accept": accept})
        if user:
            request.add_header("Authorization", "Basic " + base64.b64encode(user.encode()).decode())
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                return answer.status, answer.headers["content-type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["content-type"], error.read().decode()

    def begin(self, path: str) -> socket.socket:
        """Asks, and does not read the answer."""
        sock = socket.create_connection(("127.0.0.1", self.port), LIMIT_S)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        login = base64.b64encode(b"guest:guest").decode()
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: broker\r\nAuthorization: Basic {login}\r\n\r\n".encode())
        return sock

    def families(self, path: str = "/metrics") -> dict[str, Metric]:
        status, _, text = self.ask(path)
        assert status == 200, text
        found = list(parse_plain(text))
        assert len({family.name for family in found}) == len(found), "a family stands in two places"
        return {family.name: family for family in found}

    def value(self, name: str, path: str = "/metrics", **labels: str) -> float:
        """Of the sample with this name that has these labels, and others maybe."""
        found = [
            sample.value
            for family in self.families(path).values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) == 1, f"{name} {labels}: {found}"
        return float(found[0])

    def json(self, path: str) -> Any:
        status, _, text = self.ask(path)
        assert status == 200, text
        return json.loads(text)


@pytest.fixture
def scraper(broker: LiveBroker) -> Scraper:
    return Scraper(broker.manage())


@pytest.fixture
def client(broker: LiveBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client.handshake().open()


@pytest.fixture
def scraper_on_disk(tmp_path: Path) -> Iterator[tuple[LiveBroker, Scraper]]:
    with LiveBroker(data=tmp_path / "data") as live:
        yield live, Scraper(live.manage())


def all_names(scraper: Scraper) -> set[str]:
    """Of all samples, on both pages."""
    pages = (scraper.families("/metrics"), scraper.families("/metrics/per-object"))
    return {sample.name for page in pages for family in page.values() for sample in family.samples}


# What is there.


def test_prometheus_reads_what_the_broker_counts(scraper: Scraper, client: RawClient) -> None:
    client.ask(QueueDeclare("orders"), QueueDeclareOk)
    client.ask(QueueDeclare("empty"), QueueDeclareOk)
    client.ask(BasicGet("empty"), BasicGetEmpty)
    client.ask(ConfirmSelect(), ConfirmSelectOk)
    for _ in range(5):
        client.publish("orders", b"x")
    client.publish("nowhere", b"x")
    wait_until(lambda: scraper.value("rabbitmq_queue_messages_ready") == 5)
    wait_until(lambda: scraper.value("rabbitmq_global_messages_confirmed_total") == 6)
    for name, value in {
        "rabbitmq_connections": 1,
        "rabbitmq_channels": 1,
        "rabbitmq_queues": 2,
        "rabbitmq_consumers": 0,
        "rabbitmq_queue_messages": 5,
        "rabbitmq_queue_messages_unacked": 0,
        "rabbitmq_queue_messages_published_total": 6,
        "rabbitmq_channel_messages_published_total": 6,
        "rabbitmq_global_messages_received_total": 6,
        "rabbitmq_global_messages_unroutable_dropped_total": 1,
        "rabbitmq_global_messages_get_empty_total": 1,
        "rabbitmq_connections_opened_total": 1,
        "rabbitmq_connections_closed_total": 0,
        "rabbitmq_queues_created_total": 2,
        "rabbitmq_alarms_memory_used_watermark": 0,
        "rabbitmq_alarms_free_disk_space_watermark": 0,
    }.items():
        assert scraper.value(name) == value, name
    assert scraper.value("rabbitmq_process_resident_memory_bytes") > 1e6
    assert scraper.value("rabbitmq_resident_memory_limit_bytes") > 1e6
    assert scraper.value("rabbitmq_process_open_fds") > 3
    assert scraper.value("process_cpu_seconds_total") > 0


def test_counters_do_not_fall_when_a_connection_ends(broker: LiveBroker, scraper: Scraper) -> None:
    with RawClient(broker.port) as client:
        client.handshake().open().ask(QueueDeclare("orders"), QueueDeclareOk)
        client.publish("orders", b"x")
        client.ask(BasicConsume("orders", "me"), BasicConsumeOk)
        client.send(BasicAck(1))
        wait_until(lambda: scraper.value("rabbitmq_global_messages_acknowledged_total") == 1)
    wait_until(lambda: scraper.value("rabbitmq_connections") == 0)
    assert scraper.value("rabbitmq_connections_closed_total") == 1
    assert scraper.value("rabbitmq_channels_closed_total") == 1
    for name in ("received", "delivered", "acknowledged"):
        assert scraper.value(f"rabbitmq_global_messages_{name}_total") == 1, name


def test_every_queue_channel_and_connection_has_numbers_of_its_own(scraper: Scraper, client: RawClient) -> None:
    for name, count in (("one", 1), ("two", 2), ('an "odd" \\ name', 3)):
        client.ask(QueueDeclare(name), QueueDeclareOk)
        for _ in range(count):
            client.publish(name, b"x")
    wait_until(lambda: scraper.value("rabbitmq_queue_messages_ready") == 6)
    page = scraper.families("/metrics/per-object")
    ready = {sample.labels["queue"]: sample.value for sample in page["rabbitmq_queue_messages_ready"].samples}
    assert ready == {"one": 1, "two": 2, 'an "odd" \\ name': 3}
    assert {sample.labels["vhost"] for sample in page["rabbitmq_queue_messages_ready"].samples} == {"/"}
    published = {sample.labels["queue"]: sample.value for sample in page["rabbitmq_queue_messages_published"].samples}
    assert published == ready
    (channel,) = page["rabbitmq_channel_messages_published"].samples
    assert channel.value == 6
    (connection,) = page["rabbitmq_connection_channels"].samples
    assert connection.value == 1
    assert channel.labels["channel"] == f"{connection.labels['connection']} (1)"
    assert page["rabbitmq_connections"].samples[0].value == 1, "what is not per object is there too"
    links = [sample.labels["hop"] for sample in page["penstock_link_credit_messages"].samples]
    assert sorted(links) == ["channel_queue"] * 3 + ["reader_channel"]


def test_a_blocked_publisher_is_seen_with_all_that_it_waits_for(
    broker: LiveBroker, scraper: Scraper, client: RawClient
) -> None:
    client.ask(QueueDeclare("slow"), QueueDeclareOk)
    broker.suspend("slow")
    for _ in range(1000):
        client.publish("slow", b"x" * 100)
    blocked = "penstock_stages_blocked"
    wait_until(lambda: scraper.value(blocked, stage="connection") == scraper.value(blocked, stage="channel") == 1)
    assert scraper.value(blocked, stage="queue") == 0, "the queue is the bottleneck"
    # Twice the initial credit is in the mailbox: docs/credit.md.
    wait_until(lambda: scraper.value("penstock_mailbox_messages", stage="queue") == 800)
    assert scraper.value("penstock_hop_in_flight_messages", hop="channel_queue") == 800
    assert scraper.value("penstock_hop_credit_messages", hop="channel_queue") == -400
    assert scraper.value("penstock_hop_deferred_messages", hop="reader_channel") == 400
    assert scraper.value("penstock_hop_links_blocking", hop="reader_channel") == 1
    wait_until(lambda: scraper.value("penstock_parked_bytes") > 0)
    assert scraper.value("penstock_connection_blocked", "/metrics/per-object") == 1
    assert scraper.value("penstock_connection_parked_bytes", "/metrics/per-object") > 0
    assert scraper.value("penstock_queue_blocked", "/metrics/per-object", queue="slow") == 0
    seconds = scraper.value("penstock_stage_blocked_seconds_total", stage="connection")
    assert seconds > 0, "a block that is not over counts"
    assert scraper.value("penstock_connection_blocked_seconds_total", "/metrics/per-object") > 0
    broker.release("slow")
    wait_until(lambda: scraper.value(blocked, stage="connection") == 0)
    wait_until(lambda: scraper.value("rabbitmq_queue_messages") == 1000)
    assert scraper.value("penstock_stage_blocked_seconds_total", stage="connection") >= seconds
    assert scraper.value("penstock_stage_blocks_total", stage="connection") >= 1
    assert scraper.value("penstock_parked_bytes") == 0


def test_a_saturated_queue_and_its_held_confirms_are_seen(scraper: Scraper, client: RawClient) -> None:
    marks: Table = {"x-flow-stop-count": 2, "x-flow-resume-count": 1}
    client.ask(QueueDeclare("narrow", arguments=marks), QueueDeclareOk)
    client.ask(ConfirmSelect(), ConfirmSelectOk)
    for _ in range(5):
        client.publish("narrow", b"x")
    wait_until(lambda: scraper.value("penstock_saturated_queues") == 1)
    wait_until(lambda: scraper.value("penstock_held_confirms") > 0)
    assert scraper.value("penstock_queue_saturated", "/metrics/per-object", queue="narrow") == 1
    assert scraper.value("penstock_queue_held_confirms", "/metrics/per-object", queue="narrow") > 0


def test_syncs_are_counted_by_how_long_they_took(scraper_on_disk: tuple[LiveBroker, Scraper]) -> None:
    live, scraper = scraper_on_disk
    with RawClient(live.port) as client:
        client.handshake().open().ask(QueueDeclare("kept", durable=True), QueueDeclareOk)
        client.ask(ConfirmSelect(), ConfirmSelectOk)
        client.publish("kept", b"x", properties=Properties(delivery_mode=PERSISTENT))
        wait_until(lambda: scraper.value("rabbitmq_global_messages_confirmed_total") == 1)
    syncs = scraper.families()["penstock_store_sync_seconds"]
    counts = [sample.value for sample in syncs.samples if sample.name.endswith("_bucket")]
    assert counts == sorted(counts)
    assert counts[-1] >= 1
    assert scraper.value("penstock_store_sync_seconds_sum") > 0
    assert scraper.value("rabbitmq_io_sync_ops_total") >= 1
    assert scraper.value("rabbitmq_io_write_bytes_total") > 0


def test_an_alarm_is_1_while_it_is_on(start_broker: Callable[..., LiveBroker]) -> None:
    scraper = Scraper(start_broker({"alarms.memory_bytes_high": "1000"}).manage())
    wait_until(lambda: scraper.value("penstock_alarm", source="memory") == 1)
    assert scraper.value("rabbitmq_alarms_memory_used_watermark") == 1
    assert scraper.value("penstock_alarm", source="disk") == 0


# Who may ask, and how it looks.


def test_metrics_need_a_login_with_the_tag_monitoring(scraper: Scraper) -> None:
    for user, tags in (("prometheus", "monitoring"), ("page", "management")):
        body = json.dumps({"password": "secret", "tags": tags}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{scraper.port}/api/users/{user}", body, method="PUT")
        request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            assert answer.status == 201
    for path in ("/metrics", "/metrics/per-object"):
        assert scraper.ask(path, "")[0] == 401
        assert scraper.ask(path, "guest:wrong")[0] == 401
        assert scraper.ask(path, "page:secret")[0] == 403
        assert scraper.ask(path, "prometheus:secret")[0] == 200


@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-object"])
def test_whoever_accepts_openmetrics_gets_it(scraper: Scraper, client: RawClient, path: str) -> None:
    client.ask(QueueDeclare("orders"), QueueDeclareOk)
    plain_type, plain = scraper.ask(path)[1:]
    open_type, text = scraper.ask(path, accept=OPEN)[1:]
    assert plain_type == "text/plain; version=0.0.4; charset=utf-8"
    assert open_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert text.endswith("# EOF\n")
    assert {family.name for family in parse_open(text)} == {family.name for family in parse_plain(plain)}


def test_a_thousand_queues_are_told_whole(broker: LiveBroker, scraper: Scraper) -> None:
    admin = broker.inside.vhosts["/"]
    before = len(admin.queues)
    with RawClient(broker.port) as client:
        client.handshake().open()
        for at in range(1000):
            client.ask(QueueDeclare(f"q{at}"), QueueDeclareOk)
        page = scraper.families("/metrics/per-object")
    for one in families.QUEUE:
        name = one.family.name.removesuffix("_total")
        assert len(page[name].samples) == before + 1000, name


def test_only_two_long_answers_are_made_at_a_time(broker: LiveBroker, scraper: Scraper) -> None:
    admin = Admin(broker.inside)
    for at in range(10):  # their names make the answer far longer than sockets hold
        names = [f"{at}-{more}-{'x' * 230}" for more in range(250)]
        broker.call(partial(declare, admin, names))
    slow = [scraper.begin("/metrics/per-object") for _ in range(2)]
    assert [status_of(one) for one in slow] == [200, 200]
    wait_until(lambda: scraper.ask("/metrics/per-object")[0] == 503, what="there is room for two only")
    assert scraper.ask("/metrics")[0] == 200
    for one in slow:
        one.close()
    wait_until(lambda: scraper.ask("/metrics/per-object")[0] == 200, what="those who left make room")


def declare(admin: Admin, names: list[str]) -> None:
    for name in names:
        admin.declare_queue("/", name, durable=False)


def status_of(sock: socket.socket) -> int:
    return int(sock.recv(12).split()[1])


def test_no_number_of_an_object_costs_a_whole_view_of_it(broker: LiveBroker) -> None:
    admin = Admin(broker.inside)
    for kind, wanted, _ in LISTED:
        listing: Any = admin.listing(kind)
        cheap = listing.columns()
        assert [one.column for one in wanted if one.column not in cheap] == [], kind


# Names: RabbitMQ's, the document's, the dashboards'.


def test_what_has_a_name_of_rabbitmqs_is_what_rabbitmq_has(scraper: Scraper, client: RawClient) -> None:
    lines = (Path(__file__).parent / "rabbitmq_metrics.txt").read_text("utf-8").splitlines()[1:]
    theirs = dict(line.split() for line in lines)
    ours = {family.name: family.kind for family in every_family() if family.name.startswith("rabbitmq_")}
    assert len(ours) > 60
    for name, kind in ours.items():
        assert name in theirs, f"RabbitMQ has no {name}"
        assert theirs[name] in (kind, "untyped"), name


def every_family() -> list[Family]:
    table = [families.BUILD, families.IDENTITY, families.VERSION, families.MAILBOX, families.ALARM, families.SYNC]
    table += [plain.family for plain in families.PLAIN + families.GLOBAL]
    table += [family for family, _ in families.STAGES + families.HOPS]
    each = families.QUEUE + families.CHANNEL + families.CONNECTION + families.LINK
    return table + [one.family for one in each]


def test_the_document_lists_every_metric_with_its_type_and_meaning(scraper: Scraper, client: RawClient) -> None:
    client.ask(QueueDeclare("orders"), QueueDeclareOk)
    client.publish("orders", b"x")
    wait_until(lambda: scraper.value("rabbitmq_queue_messages_ready") == 1)
    text = (ROOT / "docs" / "metrics.md").read_text("utf-8")
    rows = {(name, kind, about) for name, kind, about in re.findall(r"^\| `(\w+)` \| (\w+) \| (.+) \|$", text, re.M)}
    shown = {
        (family.name + ("_total" if family.type == "counter" else ""), family.type, family.documentation)
        for path in ("/metrics", "/metrics/per-object")
        for family in scraper.families(path).values()
    }
    assert rows - shown == set(), "in the document, but not there"
    assert shown - rows == set(), "there, but not in the document"


@pytest.mark.parametrize("file", ["grafana.json", "alerts.yml"])
def test_every_metric_in_dashboard_and_alerts_is_there(scraper: Scraper, client: RawClient, file: str) -> None:
    client.ask(QueueDeclare("orders"), QueueDeclareOk)
    client.publish("orders", b"x")
    wait_until(lambda: scraper.value("rabbitmq_queue_messages_ready") == 1)
    text = (DASHBOARDS / file).read_text("utf-8")
    if file.endswith(".json"):
        text = "\n".join(_expressions(json.loads(text)))
    named = set(re.findall(r"\b((?:rabbitmq|penstock|process)_[a-z0-9_]+)\b", text))
    assert len(named) > 15
    assert named - all_names(scraper) == set()


def _expressions(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (text for key, text in value.items() if key in ("expr", "definition") and isinstance(text, str))
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _expressions(part)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize(
    "command",
    [
        ["check", "rules", str(DASHBOARDS / "alerts.yml")],
        ["test", "rules", str(Path(__file__).parent / "alerts.test.yml")],
    ],
)
def test_the_alerts_are_raised_when_they_should_be(command: list[str]) -> None:
    checked = subprocess.run(["promtool", *command], capture_output=True, text=True, timeout=LIMIT_S)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_every_alert_has_a_case_in_which_it_is_raised_and_one_in_which_it_is_not() -> None:
    alerts = re.findall(r"^ +- alert: (\w+)$", (DASHBOARDS / "alerts.yml").read_text("utf-8"), re.MULTILINE)
    cases = (Path(__file__).parent / "alerts.test.yml").read_text("utf-8")
    assert len(alerts) > 10
    raised = re.findall(r"alertname: (\w+)\n +exp_alerts:\n", cases)
    quiet = re.findall(r"alertname: (\w+), exp_alerts: \[\]", cases)
    assert sorted(set(raised)) == sorted(set(quiet)) == sorted(alerts)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
@pytest.mark.parametrize("path", ["/metrics", "/metrics/per-object"])
def test_promtool_can_read_the_metrics(scraper: Scraper, client: RawClient, path: str) -> None:
    client.ask(QueueDeclare("orders"), QueueDeclareOk)
    text = scraper.ask(path)[2]
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert "error while linting" not in checked.stderr, checked.stderr


# Rates and history.


def test_what_goes_on_has_a_rate_everywhere(
    monkeypatch: pytest.MonkeyPatch, start_broker: Callable[..., LiveBroker]
) -> None:
    monkeypatch.setattr(rates, "PERIOD_S", 1.0)  # a busy machine publishes and asks everywhere in less
    live = start_broker({})
    scraper = Scraper(live.manage())
    with RawClient(live.port) as client:
        client.handshake().open().ask(QueueDeclare("orders"), QueueDeclareOk)

        def rates_seen() -> bool:
            client.publish("orders", b"x")
            (queue,) = scraper.json("/api/queues")
            (channel,) = scraper.json("/api/channels")
            (connection,) = scraper.json("/api/connections")
            shown = [
                scraper.json("/api/overview")["message_stats"].get("publish_details", {}),
                queue["message_stats"].get("publish_details", {}),
                queue["messages_details"],
                channel["message_stats"].get("publish_details", {}),
                connection["recv_oct_details"],
            ]
            return all(details.get("rate", 0) > 0 for details in shown)

        wait_until(rates_seen)


def test_events_are_counted(scraper_on_disk: tuple[LiveBroker, Scraper]) -> None:
    _, scraper = scraper_on_disk
    wait_until(lambda: scraper.value("penstock_events_written_total") > 0)
    assert scraper.value("penstock_events_dropped_total") == 0


def test_the_overview_and_a_queue_have_rabbitmqs_samples(scraper: Scraper, client: RawClient) -> None:
    client.ask(QueueDeclare("orders"), QueueDeclareOk)
    client.publish("orders", b"x")
    wait_until(lambda: scraper.value("rabbitmq_queue_messages_ready") == 1)
    query = "msg_rates_age=60&msg_rates_incr=5&lengths_age=60&lengths_incr=5"
    wait_until(lambda: scraper.json(f"/api/overview?{query}")["queue_totals"]["messages_details"].get("samples"))
    overview = scraper.json(f"/api/overview?{query}")
    assert len(overview["message_stats"]["publish_details"]["samples"]) == 13
    assert set(overview["message_stats"]["publish_details"]) == {"rate", "samples", "avg", "avg_rate"}
    queue = scraper.json(f"/api/queues/%2F/orders?{query}")
    assert set(queue["messages_details"]) == {"rate", "samples", "avg", "avg_rate"}
    assert set(scraper.json("/api/queues/%2F/orders")["messages_details"]) == {"rate"}
    assert scraper.ask("/api/overview?msg_rates_age=x&msg_rates_incr=5")[0] == 400


def test_history_shows_what_was_published(scraper: Scraper, client: RawClient) -> None:
    client.ask(QueueDeclare("orders"), QueueDeclareOk)
    wait_until(lambda: scraper.json("/api/history?age=60")["at_ms"])
    for _ in range(10):
        client.publish("orders", b"x")
    answer = wait_until(lambda: _published(scraper.json("/api/history?age=60")))
    assert answer["step_s"] == 1
    assert answer["series"]["connections"][-1] == 1
    assert answer["series"]["memory_used"][-1] > 0
    assert {len(values) for values in answer["series"].values()} == {len(answer["at_ms"])}
    for wrong in ("0", "x", "86401", "-1"):
        assert scraper.ask(f"/api/history?age={wrong}")[0] == 400


def _published(answer: Any) -> Any:
    """The answer, when a look has seen all ten."""
    series = answer["series"]
    return answer if any(series["publish"]) and series["messages_ready"][-1] == 10 else None

"""The table and the choice of scenarios: every figure in a row, a failure where there is none, names that differ."""

import io
import json

import pytest
from rich.console import Console

from penstock.client.uri import parse_uri
from penstock.perf.figure import MESSAGES_PER_S, MICROSECONDS, Summary
from penstock.perf.run import Broker, Report, Row, UnknownScenario, choose, runs
from penstock.perf.scenario import SCENARIOS
from penstock.perf.table import table, titles


def broker(product, port=5672):
    return Broker(parse_uri(f"amqp://127.0.0.1:{port}"), None, product)


def summary(value, cpu=None):
    return Summary(value, (value,), cpu, 0.3)


def drawn(report):
    text = io.StringIO()
    Console(file=text, width=120).print(table(report))
    return text.getvalue()


def pair():
    rows = [
        Row("acks", "", MESSAGES_PER_S, (summary(200_000.0, 4.0), summary(100_000.0, 20.0))),
        Row("latency", "p50", MICROSECONDS, (summary(80.0), summary(60.0))),
        Row("large", "", "MB/s", (None, summary(900.0))),
    ]
    return Report([broker("Penstock 0.1.0"), broker("RabbitMQ 3.10.8", 5673)], 2.0, 3, rows)


def line(text, name):
    return next(line for line in text.splitlines() if name in line)


def test_a_comparison_shows_both_medians_the_ratio_and_cpu():
    acks = line(drawn(pair()), "acks")
    assert [word for word in ("200,000 msg/s", "100,000 msg/s", "2.00", "4.0 / 20.0") if word in acks] == [
        "200,000 msg/s",
        "100,000 msg/s",
        "2.00",
        "4.0 / 20.0",
    ]


def test_a_slower_first_broker_is_below_one_in_times_too():
    assert "0.75" in line(drawn(pair()), "latency p50")


def test_a_scenario_that_failed_has_no_number_and_no_ratio():
    large = line(drawn(pair()), "large")
    assert "failed" in large
    assert pair().rows[2].ratio is None


def test_one_broker_alone_has_no_ratio():
    report = Report([broker("Penstock 0.1.0")], 2.0, 1, [Row("acks", "", MESSAGES_PER_S, (summary(5.0),))])
    assert "ratio" not in drawn(report)


def test_brokers_of_one_product_are_told_apart_by_address():
    names = titles(Report([broker("RabbitMQ 3.10.8"), broker("RabbitMQ 3.10.8", 5673)], 2.0, 1))
    assert names == ["RabbitMQ 3.10.8\n127.0.0.1:5672", "RabbitMQ 3.10.8\n127.0.0.1:5673"]


def test_a_report_is_json_with_ratio_and_load_cost():
    found = json.loads(json.dumps(pair().as_json()))
    assert found["results"][0]["ratio"] == 2.0
    assert found["results"][0]["brokers"][1]["load_cpu_us"] == 0.3
    assert found["results"][2]["brokers"][0] is None


def test_all_is_every_scenario_once_and_a_choice_keeps_the_order():
    assert choose(["all", "acks"]) == list(SCENARIOS)
    assert [scenario.name for scenario in choose(["noack", "acks"])] == ["acks", "noack"]
    assert runs(["acks", "noack"], brokers=2, rounds=3) == 12


def test_a_pattern_is_every_scenario_it_fits():
    expected = [f"persist-{window}-{size}" for window in (1, 100, 1000) for size in ("100b", "4k", "64k")]
    assert [scenario.name for scenario in choose(["persist-*"])] == expected
    assert [scenario.body_bytes for scenario in choose(["persist-1-*"])] == [100, 4096, 65_536]
    with pytest.raises(UnknownScenario, match=r"'nothing-\*'"):
        choose(["nothing-*"])


def test_an_unknown_scenario_is_named_with_those_there_are():
    with pytest.raises(UnknownScenario, match=r"'speed'.*acks.*all"):
        choose(["acks", "speed"])

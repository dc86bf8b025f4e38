"""`penstock perf` against a real broker: every scenario makes a figure, and mistakes are one line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.perf.scenario import SCENARIOS
from tests.wire.live import LiveBroker, ServeProcess, serve_environment


def perf(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", "perf", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, env=serve_environment())


BENCH = Path(__file__).resolve().parents[2] / "bench"


def bench(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, env=serve_environment())


@pytest.fixture
def uri(serve_process: Callable[..., ServeProcess]) -> str:
    return serve_process("--set", "log.level=warning").uri


def test_every_scenario_makes_figures_and_leaves_nothing_behind(broker: LiveBroker) -> None:
    done = perf("all", "--uri", broker.uri, "--seconds", "0.2", "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)["results"]
    assert {result["scenario"] for result in results} == {scenario.name for scenario in SCENARIOS}
    assert all(result["brokers"][0]["median"] > 0 for result in results)
    vhost = broker.inside.vhosts["/"]
    assert broker.call(lambda: list(vhost.queues)) == []
    assert broker.call(lambda: [name for name in vhost.exchanges if not name.startswith("amq.")]) == [""]


def test_two_brokers_are_compared_by_their_ratio(uri: str) -> None:
    done = perf("acks", "--uri", uri, "--compare", uri, "--seconds", "0.1", "--rounds", "1")
    assert done.returncode == 0, done.stderr
    assert "ratio" in done.stdout
    assert "Penstock" in done.stdout  # not the product it is compatible with


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["acks", "--uri", "amqp://127.0.0.1:1"], "127.0.0.1:1"),
        (["nonsense", "--uri", "amqp://127.0.0.1:1"], "no scenario 'nonsense'"),
        (["acks", "--uri", "http://127.0.0.1"], "amqp://"),
    ],
)
def test_a_mistake_is_one_line_and_an_error(arguments: list[str], expected: str) -> None:
    done = perf(*arguments)
    assert done.returncode in (1, 2)
    assert expected in done.stderr
    assert done.stderr.count("\n") == 1
    assert not done.stdout


def test_a_login_that_is_refused_is_one_line_and_an_error(uri: str) -> None:
    done = perf("acks", "--uri", uri.replace("guest:guest", "guest:wrong"))
    assert done.returncode == 1
    assert "refused" in done.stderr.lower()
    assert "wrong" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("queues", [1, 3])
def test_a_backlog_is_filled_and_drained_in_order(queues: int) -> None:
    done = bench("backlog.py", "--messages", "5000", "--queues", str(queues))
    assert done.returncode == 0, done.stderr
    fill, drain = done.stdout.splitlines()[1:]
    assert re.match(rf"fill: [45],\d+ messages, {queues} queues, .* resident at most \d+ MB", fill)
    assert re.match(rf"drain: [45],\d+ messages, {queues} queues, .* resident at most \d+ MB", drain)


def test_an_overload_is_a_table_with_a_value_for_every_question(tmp_path: Path) -> None:
    results = tmp_path / "overload.json"
    options = ["--alone", "--seconds", "0.2", "--rounds", "1", "--results", str(results)]
    done = bench("overload.py", "memory", "flow", *options)
    assert done.returncode == 0, done.stderr
    head, _, *rows = done.stdout.splitlines()
    assert head.startswith("| ratio | what | Penstock ")
    assert len(rows) == len(json.loads(results.read_text())["values"]["penstock"]) == 7


def test_a_slow_disk_is_told_with_memory_and_with_the_bystander() -> None:
    done = bench("slowdisk.py", "--seconds", "0.3", "--sync-ms", "20")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^flood over: all [\d,]+ in the queue", done.stdout, re.MULTILINE)
    assert re.search(r"^memory: at most \d+ MB", done.stdout, re.MULTILINE)
    assert done.stdout.count("bystander") == 3

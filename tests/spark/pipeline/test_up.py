"""`penstock up` with its pipeline: events become rows, each once, whatever is stopped or killed; nobody is left."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.complaint import Complaint
from penstock.spark.ledger import Ledger
from penstock.spark.tables.schema import LATE_MAX_S
from penstock.up.check import WINDOW_S_MAX
from penstock.up.demo.scenery import ORDERS, SCENES
from tests.spark.pipeline.flowsite import fail_login
from tests.wire.upprocess import UpProcess
from tests.wire.waiting import wait_until

SPARK_S = 200.0  # for Spark to start, or for a batch, on a machine that is busy with something else
Up = Callable[..., UpProcess]
# Of the demo: confirms are held back from who publishes in bursts, credit from who fills a queue.
HELD_BACK = {("orders-api", "saturated"), ("telemetry", "saturated")}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Starts `penstock up` on the test's one data directory; with all that belongs to it, it ends with the test."""
    started: list[UpProcess] = []

    def start(*arguments: str) -> UpProcess:
        words = ("--window", "1", "--master", "local[2]", "--memory", "512m")
        started.append(UpProcess(tmp_path, *words, *arguments))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def users(tables: Path) -> list[str]:
    """Whose logins have failed, as the table has it, in this order."""
    try:
        found = Ledger(tables).arrow("events", columns=["offset", "type", "user"]).to_pylist()
    except Complaint:  # there is no table yet
        return []
    failed = [(row["offset"], row["user"]) for row in found if row["type"] == "login_failed"]
    return [user for _, user in sorted(failed)]


def verdicts(tables: Path) -> set[tuple[str, str]]:
    """Who was held back, by which cause, as the table has it."""
    found = Ledger(tables).arrow("verdicts", columns=["client", "cause"]).to_pylist()
    return {(row["client"], row["cause"]) for row in found}


def wait_for_users(tables: Path, *expected: str) -> None:
    wait_for_rows(tables, lambda: users(tables) == list(expected), f"rows of {expected}")


def wait_for_rows(tables: Path, there: Callable[[], bool], what: str) -> None:
    """Looks at the tables only when they have changed: the machine has a Spark to run."""
    seen: set[int] = set()

    def is_there() -> bool:
        try:
            changed = (tables / "_ledger").stat().st_mtime_ns
        except FileNotFoundError:
            return False
        if changed in seen:
            return False
        seen.add(changed)
        return there()

    wait_until(is_there, SPARK_S, what)


def answer(url: str) -> Any:
    """What the API says to guest."""
    passwords = urllib.request.HTTPPasswordMgrWithDefaultRealm()
    passwords.add_password(None, url, "guest", "guest")
    opener = urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords))
    with opener.open(url, timeout=SPARK_S) as found:
        return json.load(found)


def held_back(started: UpProcess) -> set[tuple[str, str]]:
    """Who has a verdict now, by the names that clients give themselves, and its cause."""
    return {(one["name"], one["cause"]) for one in answer(f"{started.page}api/flow")["verdicts"]}


def outsiders(started: UpProcess) -> list[int]:
    """Its processes that are in another process group."""
    found = []
    for process in started.processes():
        try:
            found += [process.pid] if os.getpgid(process.pid) != started.process.pid else []
        except ProcessLookupError:
            continue
    return found


def in_the_middle_of_a_batch(tables: Path) -> bool:
    """Spark has planned the first one, and it is in the tables not yet."""
    return (tables / "_ledger/checkpoint/offsets/0").exists() and not (tables / "_ledger/manifest.json").exists()


def pages(lines: list[str]) -> list[str]:
    """What nobody should have to read: traces of Python and Java."""
    return [line for line in lines if re.search(r"Traceback|Exception|Error\b|py4j|\|\s+at ", line)]


@pytest.mark.timeout(900)
def test_every_event_is_a_row_once_whoever_is_stopped_or_killed_and_nobody_is_left(up: Up) -> None:
    # Stopped in the middle of a batch, by a signal to `penstock up` alone; Spark's workers are in a group of their own.
    started = up()
    assert started.wait_for_out("").startswith("ready: amqp ")
    tables = started.data / "pipeline"
    fail_login(started.uri, "adam")
    wait_until(lambda: in_the_middle_of_a_batch(tables), SPARK_S, "the first batch")
    outside = set(outsiders(started))
    assert outside
    assert not outside & {one.pid for one in started.processes("org.apache.spark.deploy.SparkSubmit")}
    started.process.send_signal(signal.SIGTERM)
    assert started.wait(SPARK_S) == 0
    started.wait_until_nobody_is_left()
    assert not pages(started.log), started.log
    assert not any("does not stop" in line for line in started.log), started.log

    # The tables are gone on with, and what was in that batch is in them. The demo has its first burst meanwhile.
    started = up("--demo")
    ready = started.wait_for_out("pipeline ready: ", timeout_s=SPARK_S)
    assert str(tables) in ready
    wait_for_users(tables, "adam")

    # The page has it too.
    wait_until((tables / "page.json").exists, SPARK_S)
    assert answer(f"{started.page}api/flow/tables")["digest"]

    # Each queue of the demo gets messages; the slow consumer's was saturated, which takes a burst: between them it is
    # fast enough; and those are held back of whom the document says so.
    queues = {one["name"]: one for one in answer(f"{started.page}api/queues")}
    for scene in SCENES:
        assert queues[scene.queue]["message_stats"]["publish"] > 0, scene
    seen: set[tuple[str, str]] = set()

    def have_been_seen() -> bool:
        seen.update(held_back(started))
        return seen >= HELD_BACK

    wait_until(have_been_seen, SPARK_S, f"verdicts for {HELD_BACK}")
    assert answer(f"{started.page}api/queues/%2F/{ORDERS}")["saturation"]["times"] > 0

    # The pipeline is killed: another takes over, the broker is not touched.
    broker = started.process_of("serve").pid
    assert started.processes("org.apache.spark.deploy.SparkSubmit")
    started.process_of("pipeline").kill()
    fail_login(started.uri, "bert")
    started.wait_for_line("the pipeline was killed by SIGKILL; it is started again in 1 s", timeout_s=SPARK_S)
    started.wait_for_out("pipeline ready: ", count=2, timeout_s=SPARK_S)
    wait_for_users(tables, "adam", "bert")
    wait_for_rows(tables, lambda: verdicts(tables) >= HELD_BACK, f"verdicts for {HELD_BACK}")
    assert started.process_of("serve").pid == broker

    # All of it is killed but for those who must notice.
    started.process.kill()
    started.wait()
    started.wait_until_nobody_is_left()

    offsets = Ledger(tables).arrow("events", columns=["offset"])["offset"].to_pylist()
    assert sorted(offsets) == list(range(len(offsets)))


@pytest.mark.timeout(600)
def test_a_stop_while_spark_starts_leaves_nobody(up: Up) -> None:
    started = up()
    wait_until(lambda: started.processes("org.apache.spark.deploy.SparkSubmit"), SPARK_S)
    started.signal_group(signal.SIGINT)
    assert started.wait(SPARK_S) == 0
    started.wait_until_nobody_is_left()
    assert not pages(started.log), started.log


def test_the_longest_window_that_up_takes_is_the_longest_that_the_pipeline_takes() -> None:
    assert WINDOW_S_MAX == LATE_MAX_S

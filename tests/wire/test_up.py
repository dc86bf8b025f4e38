"""`penstock up` without its pipeline: the ready line, who speaks, signals, the end of one part.

With the pipeline: tests/spark/pipeline/test_up.py.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.client.connection import Connection
from penstock.client.uri import parse_uri
from tests.wire.live import serve_environment
from tests.wire.upprocess import UpProcess
from tests.wire.waiting import LIMIT_S, wait_until

Up = Callable[..., UpProcess]
NO_PIPELINE = ("--set", "events.enabled=false")  # a pipeline is seconds of Spark, and nothing here is about it


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """Starts `penstock up` with these words; with all that belongs to it, it ends with the test."""
    started: list[UpProcess] = []

    def start(*arguments: str, environment: dict[str, str] | None = None) -> UpProcess:
        directory = tmp_path / f"up{len(started)}"
        directory.mkdir()
        started.append(UpProcess(directory, *arguments, environment=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()


def refused(directory: Path, command: str, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """What this command says on stderr before it ends with an error."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", command, *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
        env=serve_environment(environment),
    )
    assert done.returncode == 1, done
    assert done.stdout == ""
    return done.stderr


def test_the_first_line_is_the_broker_s_and_settings_reach_it(up: Up, tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text("[limits]\nchannel_max = 7\n")
    started = up(*NO_PIPELINE, "--config", str(file), "--set", "limits.frame_max_bytes=8192")
    line = started.wait_for_out("")
    assert re.fullmatch(r"ready: amqp 127\.0\.0\.1:\d+, management http://127\.0\.0\.1:\d+/", line)
    with Connection.connect(parse_uri(started.uri)) as connection:
        assert (connection.channel_max, connection.frame_max) == (7, 8192)
    with urllib.request.urlopen(started.page, timeout=LIMIT_S) as answer:
        assert answer.status == 200


def test_without_spark_the_broker_runs_and_one_line_says_what_to_install(up: Up, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['pyspark'] = None\n")
    path = os.pathsep.join((str(tmp_path), serve_environment()["PYTHONPATH"]))
    started = up(environment={"PYTHONPATH": path})
    assert 'pip install "penstock[spark]"' in started.wait_for_line("the flow pipeline is off")
    Connection.connect(parse_uri(started.uri)).close()
    assert not started.processes("pipeline")


def test_with_a_json_log_every_line_is_json_and_tells_who_speaks(up: Up) -> None:
    started = up(*NO_PIPELINE, "--set", "log.format=json")
    started.wait_for_line("listening")
    started.wait_for_line("the flow pipeline is off")
    parts = {json.loads(line)["part"] for line in started.log}
    assert parts == {"broker", "up"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_ends_the_demo_before_the_broker_and_leaves_nobody(up: Up, number: signal.Signals) -> None:
    started = up("--demo", *NO_PIPELINE)
    started.wait_for_out("demo ready: ")
    assert not any("guest" in word for one in started.processes() for word in one.cmdline()), "a password is seen"
    if number == signal.SIGTERM:
        started.process.send_signal(number)
    else:
        started.signal_group(number)  # as a terminal does: to all of us
    assert started.wait() == 0
    started.wait_until_nobody_is_left()
    assert not any("does not stop" in line or "hurry" in line for line in started.log), started.log
    assert all(re.match(r"(broker|demo|up) +\| \S", line) for line in started.log), started.log
    # It was there to delete its queues.
    words = [sys.executable, "-m", "penstock", "definitions", "export", "--data", str(started.data)]
    kept = subprocess.run(words, capture_output=True, text=True, check=True, env=serve_environment()).stdout
    assert "demo." not in kept


def hurry(started: UpProcess, end: str) -> None:
    """Signals until the log has a line that ends so: those that are too close are one."""

    def hurried() -> bool:
        if any(line.endswith(end) for line in started.log):
            return True
        started.process.send_signal(signal.SIGINT)
        return False

    wait_until(hurried)


def test_a_second_signal_does_not_wait_for_who_does_not_stop(up: Up) -> None:
    started = up("--demo", *NO_PIPELINE)
    started.wait_for_out("demo ready: ")
    started.process_of("penstock.up.demo").suspend()
    started.process.send_signal(signal.SIGINT)
    started.wait_for_line("stopping: SIGINT")
    hurry(started, "in a hurry: killing all but the broker")
    started.wait()
    started.wait_until_nobody_is_left()
    assert not any("does not stop" in line for line in started.log), started.log


def test_a_third_signal_kills_a_broker_that_does_not_stop(up: Up) -> None:
    started = up("--demo", *NO_PIPELINE)
    started.wait_for_out("demo ready: ")
    for part in ("penstock.up.demo", "serve"):
        started.process_of(part).suspend()
    started.process.send_signal(signal.SIGTERM)
    started.wait_for_line("stopping: SIGTERM")
    hurry(started, "in a hurry: killing all but the broker")
    hurry(started, "in a hurry: killing all")
    assert started.wait() == 1
    started.wait_until_nobody_is_left()
    started.wait_for_line("the broker was killed by SIGKILL while it was stopped")
    assert not any("does not stop" in line for line in started.log), started.log


def test_nobody_outlives_a_killed_up(up: Up) -> None:
    started = up("--demo", *NO_PIPELINE)
    started.wait_for_out("demo ready: ")
    assert len(started.processes()) == 3
    started.process.kill()
    started.wait_until_nobody_is_left()


def test_the_end_of_the_broker_is_the_end_of_all(up: Up) -> None:
    started = up("--demo", *NO_PIPELINE)
    started.wait_for_out("demo ready: ")
    started.process_of("serve").kill()
    assert started.wait() == 1
    started.wait_until_nobody_is_left()
    assert len([line for line in started.log if "the broker was killed by SIGKILL: stopping" in line]) == 1


def test_a_demo_that_dies_is_started_again_and_the_broker_is_not_touched(up: Up) -> None:
    started = up("--demo", *NO_PIPELINE)
    started.wait_for_out("demo ready: ")
    broker = started.process_of("serve")
    started.process_of("penstock.up.demo").kill()
    started.wait_for_line("the demo was killed by SIGKILL; it is started again in 1 s")
    started.wait_for_out("demo ready: ", count=2)
    assert started.process_of("serve").pid == broker.pid


def test_a_part_that_cannot_start_is_tried_less_and_less_often_and_the_log_says_why(up: Up) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        dead = f"127.0.0.1:{taken.getsockname()[1]}"
        started = up("--demo", *NO_PIPELINE, environment={"PENSTOCK_URI": f"amqp://me:secret@{dead}"})
        why = f"the demo ended with exit code 1: the demo: no broker at {dead}"
        for count, pause_s in enumerate((1, 2, 4), 1):
            line = started.wait_for_line(why, count)
            assert line.endswith(f"; it is started again in {pause_s} s")
            assert "secret" not in line
        Connection.connect(parse_uri(started.uri)).close()
        started.process.send_signal(signal.SIGTERM)  # in the middle of a pause
        assert started.wait() == 0
        started.wait_until_nobody_is_left()
        assert len([line for line in started.log if why in line]) == 3


def test_a_port_in_use_is_the_line_that_serve_has_for_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = ("--listen", f"127.0.0.1:{taken.getsockname()[1]}", "--management", "127.0.0.1:0")
        told = refused(tmp_path, "up", *words)
        assert told == refused(tmp_path, "serve", *words)
        assert told.count("\n") == 1


def test_a_data_directory_that_another_broker_has_is_one_line(up: Up, tmp_path: Path) -> None:
    started = up(*NO_PIPELINE)
    broker = started.process_of("serve")
    started.wait_for_out("ready: ")
    words = ("--listen", "127.0.0.1:0", "--management", "127.0.0.1:0", "--data", str(started.data))
    told = refused(tmp_path, "up", *words)
    assert told == f"penstock: data directory {started.data} is in use by process {broker.pid}\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--set", "credit.nothing=1"), "credit.nothing"),
        (("--uri", "http://example.org"), "an address looks like amqp://"),
        (("--config", "missing.toml"), "missing.toml"),
        (("--master", "banana"), "--master 'banana' is no master of Spark"),
        (("--memory", "lots"), "--memory 'lots' is no size of a heap"),
        (("--memory", "64m"), "--memory '64m' is too little"),
        (("--window", "0"), "--window is 1 to 600 seconds, not 0"),
        (("--window", "601"), "--window is 1 to 600 seconds, not 601"),
        (("--tables", "file"), "file is not a directory"),
        (("--tables", "file/below"), "file is not a directory"),
        (("--tables", "/proc/none"), "the tables in /proc/none cannot be written: "),
        (("--set", "management.tables=file"), "file is not a directory"),
        (("--tables", "made"), "made have windows of 30 s: say --window 30, or once penstock pipeline flow --tables"),
        (("--tables", "damaged"), "damaged/_ledger/manifest.json is damaged: "),
    ],
    ids=" ".join,
)
def test_a_mistake_on_the_command_line_is_one_line_and_starts_nothing(
    tmp_path: Path, words: tuple[str, str], line: str
) -> None:
    (tmp_path / "file").touch()
    for name, manifest in (("made", '{"format": 1, "window_s": 30.0}'), ("damaged", "{")):
        (tmp_path / name / "_ledger").mkdir(parents=True)
        (tmp_path / name / "_ledger" / "manifest.json").write_text(manifest)
    before = sorted(tmp_path.rglob("*"))
    told = refused(tmp_path, "up", *words)
    assert told.startswith("penstock: ")
    assert told.count("\n") == 1
    assert line in told
    assert sorted(tmp_path.rglob("*")) == before


def test_tables_whose_windows_are_as_long_as_asked_for_are_gone_on_with(up: Up, tmp_path: Path) -> None:
    own = tmp_path / "tables" / "_ledger"
    own.mkdir(parents=True)
    (own / "manifest.json").write_text('{"format": 1, "window_s": 30.0}')
    with (own / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # so that no Spark starts: this is about the checks before it
        started = up("--tables", str(own.parent), "--window", "30")
        started.wait_for_out("ready: ")
        started.wait_for_line(f"penstock: the tables in {own.parent} are being written by ")


def test_the_address_may_be_in_the_environment_where_no_list_of_processes_shows_it(tmp_path: Path) -> None:
    told = refused(tmp_path, "up", environment={"PENSTOCK_URI": "http://me:secret@example.org"})
    assert told.startswith("penstock: an address looks like amqp://")
    assert "secret" not in told


def test_a_stop_before_the_broker_can_hear_it_is_a_stop_in_order(up: Up) -> None:
    started = up(*NO_PIPELINE)
    started.process_of("serve")
    started.process.send_signal(signal.SIGTERM)
    assert started.wait() == 0, started.log
    started.wait_until_nobody_is_left()

"""The command line against a running broker, as an operator types it; the broker is a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import pytest
from typer.testing import CliRunner, Result

from penstock.cli import commands
from tests.wire.live import ServeProcess
from tests.wire.waiting import wait_until

Command = Callable[..., Result]


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    started = ServeProcess(tmp_path_factory.mktemp("console"), "--management", "127.0.0.1:0")
    yield started
    started.kill()


@pytest.fixture(scope="module")
def url(process: ServeProcess) -> str:
    found = re.search(r"management http://(\S+)/", process.ready_line)
    assert found is not None, process.ready_line
    return f"http://guest:guest@{found[1]}"


@pytest.fixture(scope="module")
def run(url: str) -> Command:
    runner, app = CliRunner(), commands()

    def penstock(*words: str, at: str = url, given: str = "") -> Result:
        return runner.invoke(
            app, words, input=given, env={"PENSTOCK_URL": at, "COLUMNS": "160"}, catch_exceptions=False
        )

    return penstock


def done(command: Result) -> str:
    """What it printed; it ended well and had nothing to complain of."""
    assert (command.exit_code, command.stderr) == (0, ""), command.output
    return command.stdout


def refused(command: Result, code: int = 1) -> str:
    """The one line it complained with."""
    assert (command.exit_code, command.stdout) == (code, ""), command.output
    assert command.stderr.count("\n") == 1, command.stderr
    return command.stderr


def test_users_and_permissions_are_made_changed_and_taken_away(run: Command, process: ServeProcess):
    assert done(run("user", "add", "ann", "--password", "one", "--tag", "monitoring")) == "added: user ann\n"
    assert "there is a user ann already" in refused(run("user", "add", "ann", "--password", "one"))
    assert "a password is needed" in refused(run("user", "add", "bob"))
    done(run("user", "password", "ann", given="two\n"))
    done(run("user", "tags", "ann", "--tag", "policymaker", "--tag", "management"))
    assert re.search(r"^ann +policymaker,management$", done(run("user", "list")), re.MULTILINE)
    done(run("vhost", "add", "shop", "--description", "orders"))
    done(run("permission", "set", "ann", "--vhost", "shop", "--read", "^a"))
    assert re.search(r"^ann +shop +\.\* +\.\* +\^a$", done(run("permission", "list")), re.MULTILINE)
    uri = f"amqp://ann:two@127.0.0.1:{process.port}/shop"
    pika.BlockingConnection(pika.URLParameters(uri)).close()  # the second password, with other tags since
    done(run("permission", "clear", "ann", "--vhost", "shop"))
    assert "has no permissions" in refused(run("permission", "clear", "ann", "--vhost", "shop"))
    done(run("user", "delete", "ann"))
    done(run("vhost", "delete", "shop"))
    assert "there is no user 'ann'" in refused(run("user", "delete", "ann"))


def test_queues_exchanges_and_bindings_are_made_listed_and_taken_away(run: Command):
    assert (
        done(run("queue", "declare", "orders", "--argument", "x-max-length=10"))
        == "declared: queue orders in vhost /\n"
    )
    assert "inequivalent arg" in refused(run("queue", "declare", "orders"))
    done(run("exchange", "declare", "shop", "--type", "topic"))
    done(run("binding", "add", "shop", "orders", "--key", "eu.#"))
    assert re.search(r"shop +orders +queue +eu\.#", done(run("binding", "list")))
    assert re.search(r"^/ +shop +topic +yes", done(run("exchange", "list")), re.MULTILINE)
    shown = json.loads(done(run("queue", "show", "orders")))
    assert (shown["name"], shown["arguments"]) == ("orders", {"x-max-length": 10})
    (listed,) = [one for one in json.loads(done(run("queue", "list", "--json"))) if one["name"] == "orders"]
    assert listed["messages_ready"] == 0
    done(run("queue", "purge", "orders"))
    done(run("binding", "delete", "shop", "orders", "--key", "eu.#"))
    assert "no binding of shop to orders" in refused(run("binding", "delete", "shop", "orders", "--key", "eu.#"))
    done(run("queue", "delete", "orders", "--if-empty", "--if-unused"))
    done(run("exchange", "delete", "shop"))
    assert "no queue 'orders'" in refused(run("queue", "delete", "orders"))


def test_policies_and_settings_count_at_once(run: Command):
    done(run("policy", "set", "short", "^tmp", '{"max-length": 5}', "--priority", "3"))
    assert re.search(r'^/ +short +\^tmp +all +3 +\{"max-length": 5\}$', done(run("policy", "list")), re.MULTILINE)
    assert "the definition is not JSON" in refused(run("policy", "set", "short", "^tmp", "{"))
    done(run("policy", "set", "cap", "^tmp", '{"max-length": 9}', "--operator"))
    assert "cap" in done(run("policy", "list", "--operator"))
    done(run("policy", "delete", "cap", "--operator"))
    done(run("policy", "delete", "short"))
    done(run("setting", "set", "credit.channel_queue", "300,100"))
    assert done(run("setting", "get", "credit.channel_queue")) == "300,100\n"
    assert re.search(
        r"^credit.channel_queue +300,100 +400,200 +yes$", done(run("setting", "list", "credit")), re.MULTILINE
    )
    assert "credit.channel_queue" in refused(run("setting", "set", "credit.channel_queue", "100,300"))
    assert "there is no setting" in refused(run("setting", "get", "credit.nothing"))


def test_definitions_go_out_of_a_running_broker_and_into_it(run: Command, url: str, tmp_path: Path):
    done(run("queue", "declare", "kept"))
    file = tmp_path / "definitions.json"
    exported = run("definitions", "export", "--url", url, "--output", str(file))
    assert exported.exit_code == 0
    assert "queues" in exported.stderr
    assert [one["name"] for one in json.loads(file.read_text())["queues"]] == ["kept"]
    done(run("queue", "delete", "kept"))
    assert done(run("definitions", "import", str(file), "--url", url)).startswith("imported: ")
    assert "kept" in done(run("queue", "list"))
    done(run("queue", "delete", "kept"))
    assert "where to" in refused(run("definitions", "import", str(file)))


def test_a_connection_is_seen_and_closed(run: Command, process: ServeProcess):
    client = pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{process.port}/"))
    channel = client.channel()
    channel.queue_declare("seen", exclusive=True)
    channel.basic_consume("seen", lambda *_: None)
    (found,) = json.loads(done(run("connection", "list", "--json")))
    assert found["user"] == "guest"
    assert re.search(r"running +1 ", done(run("connection", "channels")))
    assert "seen" in done(run("queue", "consumers"))
    done(run("connection", "close", found["name"]))
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="320"):
        client.process_data_events(60)
    assert done(run("connection", "list")) == "nobody is connected\n"
    assert "no connection" in refused(run("connection", "close", found["name"]))


def test_a_broker_at_rest_is_told_by_status_why_and_top(run: Command):
    said = done(run("status"))
    assert "no alarms" in said
    assert "memory: " in said
    assert done(run("why")) == "Nothing is held back.\n"
    assert json.loads(done(run("why", "--json"))) == {"blocked": False, "verdicts": []}
    assert "0 blocked, 0 connections held back" in done(run("top", "--once", "--interval", "0.2"))


def test_an_alarm_is_the_exit_code_of_status_and_the_verdict_of_why(run: Command, process: ServeProcess):
    done(run("setting", "set", "alarms.memory_bytes_high", "1000000"))
    client = pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{process.port}/"))
    try:
        channel = client.channel()
        channel.basic_publish("", "nowhere", b"blocked")
        status = run("status")
        assert status.exit_code == 1
        assert "alarm: memory: low on memory" in status.stdout
        client.process_data_events(0)
        wait_until(lambda: run("why").exit_code == 1, what="the publish to come through the socket")
        why = run("why")
        assert "1 connection is held back." in why.stdout
        assert "memory" in why.stdout
        told = run("why", "--json")
        assert told.exit_code == 1
        assert [one["cause"] for one in json.loads(told.stdout)["verdicts"]] == ["memory"]
    finally:
        done(run("setting", "set", "alarms.memory_bytes_high", "0"))
        client.close()


def test_a_wrong_password_or_a_user_without_a_tag_is_one_line(run: Command, url: str):
    wrong = url.replace("guest:guest", "guest:wrong")
    assert "does not let this user in" in refused(run("user", "list", at=wrong))
    assert "wrong" not in refused(run("user", "list", at=wrong)).partition("does not")[0]
    assert "does not let this user in" in refused(run("why", at=wrong), code=2)
    assert "no answer" in refused(run("why", at="http://127.0.0.1:1"), code=2)


def test_top_runs_in_a_terminal_and_ends_by_a_key(run: Command, url: str):
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not here: penstock top is not seen in a terminal")
    session = f"penstock-top-{os.getpid()}"
    command = f"PENSTOCK_URL={url} {sys.executable} -m penstock top --interval 0.2; echo ended"
    subprocess.run(["tmux", "new-session", "-d", "-s", session, "-x", "140", "-y", "30", command + "; cat"], check=True)
    try:
        _seen(session, "connections held back")
        subprocess.run(["tmux", "send-keys", "-t", session, "q"], check=True)
        _seen(session, "ended")
    finally:
        subprocess.run(["tmux", "kill-session", "-t", session], check=False)


def _seen(session: str, text: str) -> None:
    def screen() -> bool:
        shown = subprocess.run(
            ["tmux", "capture-pane", "-p", "-t", session], capture_output=True, text=True, check=True
        )
        return text in shown.stdout

    wait_until(screen, what=f"{text!r} on the screen")

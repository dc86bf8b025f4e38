"""The command line against a running broker, as an operator types it; the broker is a process of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from pathlib import Path

import pika
import pytest
from typer.testing import CliRunner, Result

from penstock.cli import commands
from penstock.console.site import Site, row
from penstock.console.top import number
from tests.wire.live import ServeProcess
from tests.wire.overloads import CONNECTION, QUEUE, Overload, bystander, overload
from tests.wire.raw import RawClient
from tests.wire.waiting import wait_until

Command = Callable[..., Result]

CALM = "calm"


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


# From here on one publisher is held back and another is not.


@pytest.fixture(scope="module")
def overloaded(process: ServeProcess, url: str) -> Iterator[Overload]:
    management = url.replace("guest:guest@", "")
    with bystander(process.port, CALM, CALM), overload("queue", process.port, management) as one:
        yield one


def test_why_tells_who_is_held_back_from_who_is_not_and_from_who_is_not_there(
    run: Command, process: ServeProcess, overloaded: Overload
):
    wait_until(lambda: run("why", CONNECTION).exit_code == 1, what=f"a verdict on {CONNECTION}")
    held = run("why", CONNECTION)
    assert (held.exit_code, held.stderr) == (1, "")
    assert re.search(
        rf"^{CONNECTION} is held back by queue `{QUEUE}`, .* of the last minute", held.stdout, re.MULTILINE
    )
    assert f"chain: connection {CONNECTION} waits for channel {CONNECTION} (1) waits for queue {QUEUE}\n" in held.stdout
    assert run("why").exit_code == run("why", "guest").exit_code == run("why", f"queue {QUEUE}").exit_code == 1
    assert done(run("why", CALM)) == f"Nothing with '{CALM}' in it is held back.\n"
    assert json.loads(done(run("why", CALM, "--json"))) == {"blocked": False, "verdicts": []}
    with RawClient(process.port).handshake(name="silent"):
        assert done(run("why", "silent")) == "Nothing with 'silent' in it is held back.\n"
    for unknown in (("why", "ordres-api"), ("why", "ordres-api", "--json")):
        assert "no connection, user or queue has 'ordres-api' in its name" in refused(run(*unknown), code=2)


def test_top_has_those_that_were_blocked_most_first_with_their_share(run: Command, overloaded: Overload):
    def blocked_first() -> list[Cells]:
        found = table(done(run("top", "--once", "--interval", "0.2")))
        return found if found and share(found[0]) > 0 and found[0]["now"] else []

    found = wait_until(blocked_first, what="a stage that is blocked, and was so for a hundredth of a minute")
    waits = {f"connection {CONNECTION}": f"channel {CONNECTION} (1)", f"channel {CONNECTION} (1)": f"queue {QUEUE}"}
    assert found[0]["waits for"] == waits[found[0]["stage"]]
    assert sorted(map(share, found), reverse=True) == list(map(share, found))
    assert {f"connection {CALM}", f"queue {QUEUE}"} <= {one["stage"] for one in found[2:]}


def test_top_in_a_terminal_sorts_stops_goes_on_and_ends_by_its_keys(run: Command, url: str, overloaded: Overload):
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not here: penstock top is not seen in a terminal")
    with Terminal(f"PENSTOCK_URL={url} {sys.executable} -m penstock top --interval 0.2; echo ended") as terminal:
        terminal.wait(lambda shown: is_sorted(shown, "1m") and share(table(shown)[0]) > 0, "the most blocked first")
        for key, column in (("m", "mailbox"), ("r", "rate/s"), ("b", "1m")):
            terminal.press("n")
            terminal.wait(lambda shown: names(shown) == sorted(names(shown)), "sorted by name")
            terminal.press(key)
            terminal.wait(partial(is_sorted, column=column), f"sorted by {column}")
        terminal.press("Space")
        terminal.wait(lambda shown: "[stopped]" in shown, "that it has stopped")
        let_go_on(url, 0.3)  # until all of it is drawn
        stopped = terminal.shown()
        let_go_on(url, 1.5)
        assert terminal.shown() == stopped, "although blocks got older"
        terminal.press("Space")
        terminal.wait(lambda shown: "[stopped]" not in shown and table(shown) != table(stopped), "another picture")
        terminal.press("q")
        terminal.wait(lambda shown: "ended" in shown, "the end")


Cells = dict[str, str]


def table(shown: str) -> list[Cells]:
    """The rows of top, by the heads of their columns; empty if there are none on the screen, or half of them."""
    lines = shown.splitlines()
    starts = [at for at, line in enumerate(lines) if line.startswith("stage ")]
    if not starts:
        return []
    head, *rest = lines[starts[0] :]
    ends = [(one[0], one.end()) for one in re.finditer(r"\S+", head.partition("waits for")[0])]  # flush right
    found = []
    for line in takewhile(str.strip, rest):
        cells = {"waits for": line[head.index("waits for") :].strip()}
        cells["stage"], _, numbers = line.partition("   ")
        begin = len(line) - len(numbers)
        for name, end in ends[1:]:
            cells[name] = line[begin:end].strip()
            begin = end
        found.append(cells)
    return found if all(re.fullmatch(r"\d+%", one["1m"]) for one in found) else []


def share(cells: Cells) -> int:
    return int(cells["1m"].removesuffix("%"))


def names(shown: str) -> list[str]:
    return [one["stage"] for one in table(shown)]


def is_sorted(shown: str, column: str) -> bool:
    """By this column, the greatest first, and not by name."""
    values = [int("0" + re.sub(r"\D", "", one[column])) for one in table(shown)]
    return values == sorted(values, reverse=True) and names(shown) != sorted(names(shown))


def let_go_on(url: str, seconds: float) -> None:
    """Until so much later by the broker's own clock."""

    def now_s() -> float:
        return number(row(Site(url).get("flow")).get("at_ns")) / 1e9

    until_s = now_s() + seconds
    wait_until(lambda: now_s() > until_s, what="the broker to go on")


class Terminal:
    """A command in tmux, as on a screen of 140 by 30."""

    def __init__(self, command: str) -> None:
        self._session = f"penstock-top-{os.getpid()}"
        self._command = command

    def __enter__(self) -> Terminal:
        # Some shells inherit the size of no terminal at all, and programs believe them more than the terminal.
        command = f"unset COLUMNS LINES; {self._command}; cat"
        self._tmux("new-session", "-d", "-s", self._session, "-x", "140", "-y", "30", command)
        return self

    def __exit__(self, *error: object) -> None:
        subprocess.run(["tmux", "kill-session", "-t", self._session], check=False)

    def press(self, key: str) -> None:
        self._tmux("send-keys", "-t", self._session, key)

    def shown(self) -> str:
        return self._tmux("capture-pane", "-p", "-t", self._session)

    def wait(self, is_right: Callable[[str], bool], what: str) -> str:
        """Until the screen is so; the screen."""

        def screen() -> str:
            shown = self.shown()
            return shown if is_right(shown) else ""

        return wait_until(screen, what=f"on the screen: {what}")

    def _tmux(self, *words: str) -> str:
        return subprocess.run(["tmux", *words], capture_output=True, text=True, check=True).stdout

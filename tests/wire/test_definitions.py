"""Definitions as people use them: they survive restarts, move to and from a real RabbitMQ; mistakes are one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import psutil
import pytest

from penstock.broker.password import SCRYPT, known_secret
from penstock.perf.rabbitmq import NotInstalled, RabbitMQ, find_script, running_rabbitmq
from penstock.store.definitions import FILE_NAME
from tests.wire.live import ServeProcess, serve_environment
from tests.wire.waiting import LIMIT_S, wait_until

CTL = "/usr/lib/rabbitmq/bin/rabbitmqctl"
DATA = "data"  # where ServeProcess keeps it, below its directory


def penstock(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`penstock …` as a user calls it; never a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
        env=serve_environment(),
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def refusal(directory: Path, *arguments: str) -> str:
    done = penstock(directory, *arguments)
    assert done.returncode == 1, done
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.removeprefix("penstock: ").rstrip()


def exported(directory: Path) -> dict[str, Any]:
    done = penstock(directory, "definitions", "export", "--data", DATA)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document))
    return path


def login(port: int, user: str, password: str, vhost: str = "/") -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1", port, virtual_host=vhost, credentials=pika.PlainCredentials(user, password)
        )
    )


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Any]:
    """Starts `penstock serve` on the same data directory, as often as called."""
    started: list[ServeProcess] = []

    def start(*arguments: str) -> ServeProcess:
        started.append(ServeProcess(tmp_path, *arguments))
        assert started[-1].port, started[-1].log
        return started[-1]

    yield start
    for process in started:
        process.kill()


# Restarts.


@pytest.mark.parametrize("stop", ["terminate", "kill"])
def test_durable_definitions_survive_a_restart(serve: Any, stop: str) -> None:
    first = serve()
    with login(first.port, "guest", "guest") as connection:
        channel = connection.channel()
        channel.exchange_declare("orders", "topic", durable=True)
        channel.queue_declare("kept", durable=True, arguments={"x-max-priority": 3})
        channel.queue_declare("transient")
        channel.queue_bind("kept", "orders", "new.#")
        channel.queue_declare("deleted", durable=True)
        channel.queue_delete("deleted")
    getattr(first, stop)()
    second = serve()
    with login(second.port, "guest", "guest") as connection:
        channel = connection.channel()
        channel.queue_declare("kept", durable=True, arguments={"x-max-priority": 3})  # equivalent, or 406
        channel.exchange_declare("orders", "topic", durable=True)
        channel.confirm_delivery()
        channel.basic_publish("orders", "new.one", b"routed", mandatory=True)
        for gone in ("transient", "deleted"):
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue"):
                connection.channel().queue_declare(gone, passive=True)


def test_the_password_of_guest_is_not_changed_back_by_a_restart(serve: Any, tmp_path: Path) -> None:
    serve().terminate()
    secret = known_secret("changed")
    user = {"name": "guest", "password_hash": secret.password_hash, "tags": ["administrator"]}
    file = write(tmp_path / "guest.json", {"users": [user]})
    assert penstock(tmp_path, "definitions", "import", str(file), "--data", DATA).returncode == 0
    process = serve()
    login(process.port, "guest", "changed").close()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        login(process.port, "guest", "guest")


# Loading at the start.


def test_a_definitions_file_is_loaded_at_the_start_and_there_is_no_guest_then(serve: Any, tmp_path: Path) -> None:
    secret = known_secret("secret")
    document = {
        "users": [{"name": "bob", "password_hash": secret.password_hash, "tags": []}],
        "vhosts": [{"name": "/app"}],
        "permissions": [{"user": "bob", "vhost": "/app", "configure": ".*", "write": ".*", "read": ".*"}],
        "queues": [
            {"name": "q", "vhost": "/app", "durable": True, "arguments": {}},
            {"name": "qq", "vhost": "/app", "durable": True, "type": "quorum", "arguments": {}},
        ],
    }
    file = write(tmp_path / "definitions.json", document)
    for _ in range(2):  # the second time all of it is there already
        process = serve("--set", f"definitions.file={file}")
        assert "queue 'qq' in vhost '/app' is left out: quorum queues are not supported" in process.log
        with login(process.port, "bob", "secret", "/app") as connection:
            connection.channel().queue_declare("q", passive=True)
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            login(process.port, "guest", "guest")
        process.terminate()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "it is no JSON"),
        ("[]", "the document is no JSON object"),
        (
            '{"queues": [{"name": "q", "vhost": "nowhere"}]}',
            "queue 'q' in vhost 'nowhere': there is no such vhost",
        ),
    ],
)
def test_a_wrong_definitions_file_is_one_line_and_an_error(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "definitions.json"
    file.write_text(content)
    listen = ("serve", "--listen", "127.0.0.1:0", "--data", DATA)
    assert words in refusal(tmp_path, *listen, "--set", f"definitions.file={file}")
    assert words in refusal(tmp_path, "definitions", "import", str(file), "--data", DATA)
    assert "No such file" in refusal(tmp_path, *listen, "--set", "definitions.file=none")


# The data directory.


def test_a_data_directory_has_one_broker(serve: Any, tmp_path: Path) -> None:
    process = serve()
    text = f"data directory {DATA} is in use by process {process.process.pid}"
    assert refusal(tmp_path, "serve", "--listen", "127.0.0.1:0", "--data", DATA) == text
    file = write(tmp_path / "definitions.json", {})
    told = refusal(tmp_path, "definitions", "import", str(file), "--data", DATA)
    assert told == f"{text}; ask the running broker instead, or stop it first"
    process.terminate()
    assert penstock(tmp_path, "definitions", "import", str(file), "--data", DATA).returncode == 0


def test_a_damaged_file_is_one_line_and_an_error(serve: Any, tmp_path: Path) -> None:
    serve().terminate()
    (tmp_path / DATA / FILE_NAME).write_bytes(b"\x07" * 20_000)
    for command in (("serve", "--listen", "127.0.0.1:0"), ("definitions", "export")):
        told = refusal(tmp_path, *command, "--data", DATA)
        assert told == f"{DATA}/{FILE_NAME}: file is not a database"


# The command line.


def test_definitions_are_exported_while_the_broker_runs(serve: Any, tmp_path: Path) -> None:
    process = serve()
    with login(process.port, "guest", "guest") as connection:
        connection.channel().queue_declare("q", durable=True)  # answered, so it is on disk
        assert [queue["name"] for queue in exported(tmp_path)["queues"]] == ["q"]
    done = penstock(tmp_path, "definitions", "export", "--data", DATA, "--output", "out.json")
    assert done.stderr.startswith("exported: 1 users, 1 vhosts, 1 permissions, ")
    assert json.loads((tmp_path / "out.json").read_text()) == exported(tmp_path)
    assert (tmp_path / "out.json").stat().st_mode & 0o077 == 0  # hashes of passwords are in it


def test_an_import_says_what_it_did(tmp_path: Path) -> None:
    queues = [
        {"name": "a", "vhost": "/", "durable": True},
        {"name": "b", "vhost": "/", "durable": False},
        {"name": "c", "vhost": "/", "durable": True, "arguments": {"x-queue-type": "quorum"}},
        {"name": "d", "vhost": "/", "durable": True, "arguments": {"x-queue-type": "stream"}},
    ]
    file = write(tmp_path / "definitions.json", {"queues": queues, "users": [{"name": "u", "password": "secret"}]})
    done = penstock(tmp_path, "definitions", "import", str(file), "--data", DATA)
    assert done.stdout == "imported: 1 users, 3 queues added\n"
    assert done.stderr.splitlines() == [
        "warning: queue 'c' in vhost '/' is left out: quorum queues are not supported",
        "warning: queue 'b' in vhost '/' is not durable: it is not kept until a broker starts",
    ]
    document = exported(tmp_path)
    assert [queue["name"] for queue in document["queues"]] == ["a", "d"]
    assert [user["hashing_algorithm"] == SCRYPT for user in document["users"]] == [False, True]
    done = penstock(tmp_path, "definitions", "export", "--data", DATA)
    assert done.stderr.splitlines()[1] == "warning: RabbitMQ cannot check the passwords of u: set new ones there"


def test_an_import_for_one_vhost_goes_there(tmp_path: Path) -> None:
    file = write(tmp_path / "definitions.json", {"queues": [{"name": "q", "durable": True}]})
    told = refusal(tmp_path, "definitions", "import", str(file), "--data", DATA, "--vhost", "nowhere")
    assert told == "there is no vhost 'nowhere'"
    assert penstock(tmp_path, "definitions", "import", str(file), "--data", DATA, "--vhost", "/").returncode == 0
    assert exported(tmp_path)["queues"][0]["vhost"] == "/"


def test_nothing_to_export_is_one_line_and_an_error(tmp_path: Path) -> None:
    told = refusal(tmp_path, "definitions", "export", "--data", DATA)
    assert told == f"data directory {DATA} holds no definitions: no broker has run in it"


# RabbitMQ.


@pytest.fixture(scope="module")
def rabbitmq() -> Iterator[RabbitMQ]:
    try:
        find_script()
    except NotInstalled as error:
        pytest.skip(str(error))
    with running_rabbitmq() as running:
        yield running


def ctl(rabbitmq: RabbitMQ, *arguments: str) -> None:
    environment = psutil.Process(rabbitmq.pid).environ()
    command = [CTL, "-n", environment["RABBITMQ_NODENAME"], *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=4 * LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def port_of(rabbitmq: RabbitMQ) -> int:
    return int(pika.URLParameters(rabbitmq.uri).port)


def rabbitmq_exported(rabbitmq: RabbitMQ) -> dict[str, Any]:
    file = rabbitmq.directory / "exported.json"
    ctl(rabbitmq, "export_definitions", str(file))
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def comparable(document: dict[str, Any], vhosts: set[str], users: set[str]) -> dict[str, list[str]]:
    """What both brokers must say alike, whatever its order; RabbitMQ's tool leaves internal exchanges out."""
    found: dict[str, list[str]] = {}
    for section in ("users", "vhosts", "permissions", "topic_permissions", "policies", "parameters"):
        found[section] = sorted(json.dumps(_plain(section, entry), sort_keys=True) for entry in document[section])
    for section in ("queues", "exchanges", "bindings"):
        found[section] = sorted(
            json.dumps(_plain(section, entry), sort_keys=True)
            for entry in document[section]
            if not entry.get("internal") and entry.get("durable", True)
        )
    for section, entries in found.items():
        kept = [json.loads(entry) for entry in entries]
        found[section] = [
            json.dumps(entry, sort_keys=True)
            for entry in kept
            if (entry["name"] in users if section == "users" else entry.get("vhost", entry.get("name")) in vhosts)
        ]
    return found


def _plain(section: str, entry: dict[str, Any]) -> dict[str, Any]:
    """Without what only one of them says, and with objects where rabbitmqctl writes pairs."""
    plain = {key: value for key, value in entry.items() if key not in ("type", "internal", "limits")}
    if section == "exchanges":
        plain["type"] = entry["type"]
    if section == "users":
        plain["limits"] = dict(entry["limits"])
    if section == "parameters" and entry["component"] == "operator_policy":
        plain["value"] = {**entry["value"], "definition": dict(entry["value"]["definition"])}
    return plain


@pytest.mark.timeout(900)
def test_rabbitmqs_definitions_move_to_penstock(rabbitmq: RabbitMQ, serve: Any, tmp_path: Path) -> None:
    ctl(rabbitmq, "add_user", "bob", "bob's secret")
    ctl(rabbitmq, "add_vhost", "/from", "--description", "moves", "--tags", "a")
    ctl(rabbitmq, "set_permissions", "-p", "/from", "bob", ".*", ".*", ".*")
    ctl(rabbitmq, "set_topic_permissions", "-p", "/from", "bob", "topic", "^w", "^r")
    ctl(rabbitmq, "set_policy", "-p", "/from", "ttl", "^q", '{"message-ttl":1000}', "--priority", "5")
    ctl(rabbitmq, "set_operator_policy", "-p", "/from", "bound", "^q", '{"max-length":9}', "--apply-to", "queues")
    ctl(rabbitmq, "set_vhost_limits", "-p", "/from", '{"max-connections":64}')
    ctl(rabbitmq, "set_user_limits", "bob", '{"max-channels":4}')
    with login(port_of(rabbitmq), "bob", "bob's secret", "/from") as connection:
        declare_all(connection.channel())
        connection.channel().queue_declare("quorum", durable=True, arguments={"x-queue-type": "quorum"})
    document = rabbitmq_exported(rabbitmq)
    file = write(tmp_path / "rabbitmq.json", document)
    done = penstock(tmp_path, "definitions", "import", str(file), "--data", DATA)
    assert done.returncode == 0, done.stderr
    assert "warning: queue 'quorum' in vhost '/from' is left out: quorum queues are not supported" in done.stderr

    document["queues"] = [queue for queue in document["queues"] if queue["name"] != "quorum"]
    mine = comparable(exported(tmp_path), {"/from"}, {"bob"})
    assert mine == comparable(document, {"/from"}, {"bob"})
    assert [len(mine[section]) for section in ("queues", "exchanges", "bindings")] == [2, 2, 4]
    process = serve()
    with login(process.port, "bob", "bob's secret", "/from") as connection:
        declare_all(connection.channel())  # equivalent to what is there, or 406


@pytest.mark.timeout(900)
def test_penstocks_definitions_move_to_rabbitmq(rabbitmq: RabbitMQ, serve: Any, tmp_path: Path) -> None:
    secret = known_secret("carol's secret", b"1234")
    user = {"name": "carol", "password_hash": secret.password_hash, "hashing_algorithm": secret.algorithm}
    policy = {"name": "ttl", "pattern": "^q", "apply-to": "queues", "definition": {"message-ttl": 1000}, "priority": 5}
    operator = {"pattern": "^q", "apply-to": "queues", "definition": {"max-length": 9}, "priority": 0}
    limits = {"max-connections": 64}
    document = {
        "users": [user | {"tags": ["monitoring"], "limits": {"max-channels": 4}}],
        "vhosts": [{"name": "/to", "metadata": {"description": "moves", "tags": []}}],
        "permissions": [{"user": "carol", "vhost": "/to", "configure": ".*", "write": ".*", "read": ".*"}],
        "topic_permissions": [{"user": "carol", "vhost": "/to", "exchange": "topic", "write": "^w", "read": "^r"}],
        "policies": [policy | {"vhost": "/to"}],
        "parameters": [
            {"vhost": "/to", "component": "operator_policy", "name": "bound", "value": operator},
            {"vhost": "/to", "component": "vhost-limits", "name": "limits", "value": limits},
        ],
    }
    file = write(tmp_path / "first.json", document)
    assert penstock(tmp_path, "definitions", "import", str(file), "--data", DATA).returncode == 0
    process = serve()
    with login(process.port, "carol", "carol's secret", "/to") as connection:
        declare_all(connection.channel())
    mine = exported(tmp_path)
    ctl(rabbitmq, "import_definitions", str(write(tmp_path / "penstock.json", mine)))
    wanted = comparable(mine, {"/to"}, {"carol"})
    assert [len(wanted[section]) for section in ("queues", "exchanges", "bindings")] == [2, 2, 4]
    wait_until(  # the import goes on when the command has ended
        lambda: comparable(rabbitmq_exported(rabbitmq), {"/to"}, {"carol"}) == wanted, 240, "the same definitions"
    )
    with login(port_of(rabbitmq), "carol", "carol's secret", "/to") as connection:
        declare_all(connection.channel())


def declare_all(channel: Any) -> None:
    """The same on both; the arguments are such as JSON has."""
    channel.exchange_declare("topic", "topic", durable=True, arguments={"alternate-exchange": "spare"})
    channel.exchange_declare("heads", "headers", durable=True)
    arguments = {"x-message-ttl": 60_000, "x-overflow": "reject-publish", "x-max-length": 10, "mine": [1, {"a": True}]}
    channel.queue_declare("q", durable=True, arguments=arguments)
    channel.queue_declare("q2", durable=True, arguments={"x-queue-type": "classic"})
    channel.queue_bind("q", "topic", "r.#")
    channel.queue_bind("q", "topic", "r.#", arguments={"z": 1, "a": "ü"})
    channel.queue_bind("q2", "heads", "", arguments={"x-match": "any", "flag": True, "number": 5})
    channel.exchange_bind("heads", "topic", "r")

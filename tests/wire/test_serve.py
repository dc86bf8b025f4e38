"""`penstock serve` as a user meets it: the ready line, signals, and mistakes answered in one line."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from tests.wire.live import ServeProcess, free_port, serve_environment
from tests.wire.raw import RawClient
from tests.wire.waiting import LIMIT_S, wait_until

Serve = Callable[..., ServeProcess]
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warning|error) +\S")


def refused(directory: Path, *arguments: str, environment: dict[str, str] | None = None) -> str:
    """What `penstock serve` says on stderr before it ends with an error."""
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "serve", *arguments],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
        env=serve_environment(environment),
    )
    assert done.returncode not in (0, -signal.SIGKILL, -signal.SIGSEGV), done
    assert "ready" not in done.stdout
    assert "Traceback" not in done.stderr, done.stderr
    return done.stderr


def one_line(text: str) -> str:
    assert text.count("\n") == 1, text
    assert text.startswith("penstock: "), text
    return text


# Running.


def test_the_ready_line_names_the_port_it_got(serve_process: Serve) -> None:
    serve = serve_process()
    assert re.fullmatch(r"ready: amqp 127\.0\.0\.1:[1-9]\d*(, management \S+)?\n", serve.ready_line)
    with RawClient(serve.port).handshake().open() as client:
        client.ask(QueueDeclare("q"), QueueDeclareOk)


def test_two_brokers_on_port_0_get_two_ports(serve_process: Serve) -> None:
    assert serve_process().port != serve_process().port


def test_the_data_directory_is_made(serve_process: Serve, tmp_path: Path) -> None:
    serve_process()
    assert (tmp_path / "serve0" / "data").is_dir()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_tells_the_clients_with_320_and_ends_with_0(serve_process: Serve, number: signal.Signals) -> None:
    serve = serve_process()
    with RawClient(serve.port).handshake().open() as idle, RawClient(serve.port).handshake() as bare:
        serve.process.send_signal(number)
        for client in (idle, bare):
            close = client.expect_connection_close()
            assert close.reply_code == 320
            assert close.reply_text == "CONNECTION_FORCED - broker forced connection closure with reason 'shutdown'"
        assert serve.process.wait(LIMIT_S) == 0
    assert "Traceback" not in serve.log


def test_pika_is_told_of_a_stop(serve_process: Serve) -> None:
    serve = serve_process()
    connection = pika.BlockingConnection(pika.URLParameters(serve.uri))
    serve.process.send_signal(signal.SIGTERM)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.sleep(LIMIT_S)
    assert closed.value.reply_code == 320
    assert serve.process.wait(LIMIT_S) == 0


def test_a_stop_does_not_wait_for_ever_for_a_client_that_says_nothing(serve_process: Serve) -> None:
    serve = serve_process()
    with RawClient(serve.port).handshake() as silent, RawClient(serve.port) as halfway:
        halfway.send_bytes(b"AMQP")
        assert serve.terminate() == 0
        silent.expect_gone()
        halfway.expect_gone()
    assert "clients did not answer connection.close" in serve.log


def test_a_stopped_broker_frees_its_port(serve_process: Serve) -> None:
    first = serve_process("--listen", f"127.0.0.1:{free_port()}")
    with RawClient(first.port).handshake() as client:
        first.process.send_signal(signal.SIGTERM)
        client.expect_connection_close()
        first.process.wait(LIMIT_S)
    second = serve_process("--listen", f"127.0.0.1:{first.port}")
    assert second.port == first.port


# Settings.


def tuned_channel_max(serve: ServeProcess) -> int:
    """What the broker offers in connection.tune."""
    connection = pika.BlockingConnection(pika.URLParameters(serve.uri))
    try:
        return connection._impl.params.channel_max
    finally:
        connection.close()


def test_settings_come_from_the_command_line_the_environment_and_a_file_in_this_order(
    serve_process: Serve, tmp_path: Path
) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[limits]\nchannel_max = 11\n[credit]\nreader_channel = [200, 50]\n[log]\nformat = "json"\n')
    environment = {"PENSTOCK_LIMITS_CHANNEL_MAX": "22"}
    assert tuned_channel_max(serve_process("--config", str(file))) == 11
    assert tuned_channel_max(serve_process("--config", str(file), environment=environment)) == 22
    both = serve_process("--config", str(file), "--set", "limits.channel_max=33", environment=environment)
    assert tuned_channel_max(both) == 33


# Log lines.


def test_log_lines_tell_who_came_and_went(serve_process: Serve) -> None:
    serve = serve_process()
    RawClient(serve.port).handshake(name="orders-api").close()
    opened = serve.wait_for_log("connection open")
    assert "user=guest" in opened
    assert "orders-api" in opened
    assert "vhost=/" in opened
    serve.wait_for_log("connection closed")
    with RawClient(serve.port).handshake():
        pass
    serve.wait_for_log("connection lost")
    assert serve.terminate() == 0
    assert all(LINE.match(line) for line in serve.log.splitlines()), serve.log


def test_a_client_cannot_forge_a_log_line(serve_process: Serve) -> None:
    serve = serve_process()
    RawClient(serve.port).handshake(name="x\n2026-01-01T00:00:00.000Z error crash").close()
    serve.wait_for_log("connection closed")
    assert all(LINE.match(line) for line in serve.log.splitlines()), serve.log
    assert not any(line.startswith("2026-01-01T00:00:00.000Z") for line in serve.log.splitlines())


def test_a_failed_login_is_logged_without_the_password(serve_process: Serve) -> None:
    serve = serve_process()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", serve.port, credentials=pika.PlainCredentials("guest", "very secret")
            )
        )
    serve.wait_for_log("login failed")
    assert "very secret" not in serve.log


def test_log_lines_are_json_if_one_wants_so(serve_process: Serve) -> None:
    serve = serve_process("--set", "log.format=json")
    RawClient(serve.port).handshake().close()
    serve.wait_for_log("connection closed")
    lines = [json.loads(line) for line in serve.log.splitlines()]
    assert all({"time", "level", "event"} <= line.keys() for line in lines)
    (opened,) = [line for line in lines if line["event"] == "connection open"]
    assert (opened["user"], opened["vhost"]) == ("guest", "/")


def test_the_log_level_hides_what_is_below_it(serve_process: Serve) -> None:
    serve = serve_process("--set", "log.level=error")
    RawClient(serve.port).handshake().close()
    assert serve.terminate() == 0
    assert serve.log == ""


# Mistakes.


def test_a_port_in_use_is_one_line_and_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = one_line(refused(tmp_path, "--listen", f"127.0.0.1:{port}"))
    assert f"127.0.0.1:{port}" in text
    assert "in use" in text


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("nonsense", "section.key=value"),
        ("no.such=1", "no setting 'no.such'"),
        ("limits.channel_max=many", "limits.channel_max"),
        ("credit.reader_channel=100,0", "more_after"),
    ],
)
def test_a_wrong_setting_is_one_line_and_an_error(tmp_path: Path, setting: str, expected: str) -> None:
    text = one_line(refused(tmp_path, "--listen", "127.0.0.1:0", "--set", setting))
    assert expected in text


def test_a_wrong_setting_in_the_environment_is_one_line_and_an_error(tmp_path: Path) -> None:
    environment = {"PENSTOCK_LIMITS_CHANNEL_MAX": "many"}
    assert "limits.channel_max" in one_line(refused(tmp_path, "--listen", "127.0.0.1:0", environment=environment))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "No such file"),
        (b"[limits\n", "configuration file"),
        (b"\xff\xfe", "configuration file"),
        (b"[limits.channel_max]\nx = 1\n", "limits.channel_max"),
    ],
)
def test_a_wrong_configuration_file_is_one_line_and_an_error(
    tmp_path: Path, content: bytes | None, expected: str
) -> None:
    file = tmp_path / "penstock.toml"
    if content is not None:
        file.write_bytes(content)
    assert expected in one_line(refused(tmp_path, "--listen", "127.0.0.1:0", "--config", str(file)))


def test_a_configuration_file_that_is_a_directory_is_one_line_and_an_error(tmp_path: Path) -> None:
    assert "directory" in one_line(refused(tmp_path, "--listen", "127.0.0.1:0", "--config", str(tmp_path)))


@pytest.mark.parametrize("listen", ["nonsense", "127.0.0.1:70000"])
def test_a_wrong_address_is_an_error_that_names_it(tmp_path: Path, listen: str) -> None:
    text = one_line(refused(tmp_path, "--listen", listen))
    assert listen in text
    assert "host:port" in text


@pytest.mark.parametrize("listen", ["no-such-host.invalid:0", "203.0.113.1:0"])
def test_an_address_that_is_not_ours_is_one_line_and_an_error(tmp_path: Path, listen: str) -> None:
    assert listen in one_line(refused(tmp_path, "--listen", listen))


def test_a_data_directory_that_is_a_file_is_one_line_and_an_error(tmp_path: Path) -> None:
    file = tmp_path / "data"
    file.touch()
    for path in (file, file / "below"):
        text = one_line(refused(tmp_path, "--listen", "127.0.0.1:0", "--data", str(path)))
        assert str(path) in text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_data_directory_that_cannot_be_written_is_one_line_and_an_error(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir(mode=0o500)
    text = one_line(refused(tmp_path, "--listen", "127.0.0.1:0", "--data", str(directory)))
    assert "Permission denied" in text


def test_an_ipv6_address_is_in_brackets(serve_process: Serve) -> None:
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    serve = serve_process("--listen", "[::1]:0")
    if not serve.ready_line:
        pytest.skip(f"no IPv6 here: {serve.log}")
    assert serve.ready_line.startswith("ready: amqp [::1]:")


def test_memory_stays_when_a_thousand_connections_come_and_go(serve_process: Serve) -> None:
    serve = serve_process("--set", "log.level=error")

    def come_and_go(count: int) -> None:
        clients = [RawClient(serve.port).handshake().open() for _ in range(count)]
        for client in clients:
            client.close()

    come_and_go(100)
    before = resident_bytes(serve.process.pid)
    for _ in range(9):
        come_and_go(100)
    wait_until(lambda: resident_bytes(serve.process.pid) < before + 4_000_000)


def resident_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise AssertionError(f"process {pid} is gone")


def test_without_uvloop_the_broker_runs_on_the_loop_of_asyncio(serve_process: Serve, tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text("raise ImportError('does not build here')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    process = serve_process(environment={"PYTHONPATH": path})
    assert "loop=asyncio" in process.wait_for_log("listening")
    with RawClient(process.port).handshake() as client:
        client.open()
        client.ask(QueueDeclare("q"), QueueDeclareOk)
        for number in range(1000):
            client.publish("q", b"%d" % number)
        wait_until(lambda: client.ask(QueueDeclare("q", passive=True), QueueDeclareOk).message_count == 1000)
        client.close()
    assert process.terminate() == 0


def test_the_ready_line_says_where_the_management_is_and_a_taken_port_is_one_line(serve_process: Serve) -> None:
    process = serve_process("--management", "127.0.0.1:0")
    found = re.fullmatch(
        rf"ready: amqp 127.0.0.1:{process.port}, management (http://127.0.0.1:\d+/)\n", process.ready_line
    )
    assert found is not None
    taken = found[1].removeprefix("http://").strip("/")
    second = serve_process("--management", taken)
    assert second.process.wait(LIMIT_S) == 1
    assert second.log.splitlines()[-1] == f"penstock: cannot listen on {taken}: Address already in use"

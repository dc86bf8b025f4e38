"""RabbitMQ as the other side of a comparison: Debian's package, started for one run and gone after it.

Everything it needs lives in one temporary directory: HOME with the cookie, database, logs, configuration. Ports are
free ones, epmd is ours too, so nothing touches a RabbitMQ that runs on the machine already. No plugins, otherwise
RabbitMQ's own defaults.
Not here: load (load.py), what is compared (bench/compare.py).
"""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# /usr/sbin/rabbitmq-server is Debian's wrapper: it changes user and directory. The script below it does neither.
SCRIPT_PATHS = ("/usr/lib/rabbitmq/bin/rabbitmq-server",)
START_TIMEOUT_S = 90  # 5 to 10 s on a quiet machine; two busy cores take several times that
STOP_TIMEOUT_S = 20
LOG_LINES_SHOWN = 3
AMQP_GREETING = b"AMQP\x00\x00\x09\x01"


class NotInstalled(Exception):
    """There is no rabbitmq-server on this machine."""


class NotStarted(Exception):
    """RabbitMQ is there but did not come up; the text says why."""


@dataclass(frozen=True, slots=True)
class RabbitMQ:
    uri: str
    pid: int  # of beam.smp, where all of RabbitMQ's work is done
    directory: Path


def find_script() -> str:
    """The path of the server's start script; NotInstalled if there is none."""
    for path in SCRIPT_PATHS:
        if os.access(path, os.X_OK) and shutil.which("erl") and shutil.which("epmd"):
            return path
    raise NotInstalled("rabbitmq-server is not installed (apt-get install rabbitmq-server)")


@contextmanager
def running_rabbitmq(
    settings: Mapping[str, str] | None = None, variables: Mapping[str, str] | None = None
) -> Iterator[RabbitMQ]:
    """Start RabbitMQ, wait until it greets, yield it, and leave no process or file behind.

    `settings` are lines of rabbitmq.conf, `variables` are added to the environment of the server.
    """
    script = find_script()
    with tempfile.TemporaryDirectory(prefix="penstock-rabbitmq-") as name:
        directory = Path(name)
        amqp_port, dist_port, epmd_port = _free_ports(3)
        environment = _environment(directory, amqp_port, dist_port, epmd_port, settings or {})
        processes: list[subprocess.Popen[bytes]] = []
        with open(directory / "console.log", "wb") as console:
            try:
                # In the foreground and before the server: a server that finds no epmd starts a daemon that nobody ends.
                epmd = ["epmd", "-port", str(epmd_port), "-address", "127.0.0.1"]
                processes.append(_spawn(epmd, environment, directory, console.fileno()))
                server = _spawn([script], environment | dict(variables or {}), directory, console.fileno())
                processes.append(server)
                _wait_for_greeting(server, amqp_port, directory)
                yield RabbitMQ(f"amqp://guest:guest@127.0.0.1:{amqp_port}/%2f", server.pid, directory)
            finally:
                for process in reversed(processes):
                    _end(process)


def _environment(
    directory: Path, amqp_port: int, dist_port: int, epmd_port: int, settings: Mapping[str, str]
) -> dict[str, str]:
    for folder in ("home", "mnesia", "log"):
        (directory / folder).mkdir()
    (directory / "plugins").write_text("[].\n")
    (directory / "rabbitmq.conf").write_text(
        f"listeners.tcp.1 = 127.0.0.1:{amqp_port}\nlog.console = false\nlog.file.level = warning\n"
        + "".join(f"{name} = {value}\n" for name, value in settings.items())
    )
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RABBITMQ_", "ERL_"))}
    return kept | {
        "HOME": str(directory / "home"),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_CONF_ENV_FILE": str(directory / "none"),
        "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq.conf"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(directory / "none.config"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "plugins"),
        "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
        "RABBITMQ_LOG_BASE": str(directory / "log"),
        "RABBITMQ_NODENAME": f"perf{amqp_port}@localhost",
        "RABBITMQ_NODE_PORT": str(amqp_port),
        "RABBITMQ_DIST_PORT": str(dist_port),
        # With input allowed the script execs Erlang in its own place: our child's pid is beam's.
        # -noinput keeps Erlang's shell away; without the interface, the distribution port is open to the network.
        "RABBITMQ_ALLOW_INPUT": "1",
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-noinput -kernel inet_dist_use_interface {127,0,0,1}",
    }


def _spawn(command: list[str], environment: dict[str, str], directory: Path, console: int) -> subprocess.Popen[bytes]:
    # Its own session: Ctrl-C is for us, and we end the children in order.
    return subprocess.Popen(
        command,
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=console,
        stderr=console,
        start_new_session=True,
    )


def _wait_for_greeting(server: subprocess.Popen[bytes], port: int, directory: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise NotStarted(f"rabbitmq-server ended with code {server.returncode}: {_last_words(directory)}")
        if _greets(port):
            return
        time.sleep(0.1)
    raise NotStarted(f"rabbitmq-server did not answer within {START_TIMEOUT_S} s: {_last_words(directory)}")


def _greets(port: int) -> bool:
    """True when connection.start comes back: the listener opens a moment before the broker serves it."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2) as sock:
            sock.sendall(AMQP_GREETING)
            return sock.recv(1) == b"\x01"
    except OSError:
        return False


def _last_words(directory: Path) -> str:
    lines = (directory / "console.log").read_text(errors="replace").split("\n")
    told = [line.strip() for line in lines if line.strip()]
    return " / ".join(told[-LOG_LINES_SHOWN:]) or "it said nothing"


def _end(process: subprocess.Popen[bytes]) -> None:
    """SIGTERM, then SIGKILL to the whole session: Erlang's small port programs must go with it."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _free_ports(count: int) -> list[int]:
    """Ports nobody listens on now. All are held until the last is known, so they differ."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()

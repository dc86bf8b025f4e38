"""The two brokers every test here runs against: Penstock as a process, and Debian's RabbitMQ.

Both can be killed, stopped and started again on the same port with the same data, which is all that the tests need to
know of them. Everything else goes over the wire.
Not here: what cuts a connection while the broker lives (cable.py), the somebody else of a test (conftest.py).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Protocol

from penstock.perf import rabbitmq
from tests.wire.live import free_port, serve_environment

WANTED = os.environ.get("EVERYDAY", "penstock")  # or: rabbitmq, both
STOP_TIMEOUT_S = 60
CRASH = re.compile(r" crash |Traceback")


class Target(Protocol):
    """A broker that a test may end and start again."""

    name: str
    port: int

    def start(self) -> None:
        """Start it, after the end of the one before, and wait until it greets. Nothing happens while it runs."""

    def kill(self) -> None:
        """kill -9; it is gone on return."""

    def stop(self) -> None:
        """SIGTERM: it closes its connections with 320 and ends. Does not wait: the clients may have to answer first."""

    def end(self) -> None:
        """After the last test."""

    def complaint(self) -> str:
        """What the broker logged about a fault of its own since the last call; empty if nothing."""


class Penstock:
    """`python -m penstock serve`, as a user starts it."""

    name = "penstock"

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="penstock-everyday-")
        self._log = Path(self._directory.name) / "log"
        self._log.touch()
        self._read = 0
        self._process: subprocess.Popen[str] | None = None
        self._stopping = False
        self.port = free_port()

    def start(self) -> None:
        if self._process is not None:
            if self._process.poll() is None and not self._stopping:
                return
            self._finish()
        data = str(Path(self._directory.name) / "data")
        command = [sys.executable, "-m", "penstock", "serve", "--listen", f"127.0.0.1:{self.port}", "--data", data]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=serve_environment()
            )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        assert ready.startswith("ready: amqp"), self._log.read_text("utf-8")

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._finish()

    def stop(self) -> None:
        if self._process is not None:
            self._stopping = True
            self._process.terminate()

    def end(self) -> None:
        self.kill()
        self._directory.cleanup()

    def _finish(self) -> None:
        assert self._process is not None
        self._process.wait(STOP_TIMEOUT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._process = None
        self._stopping = False

    def complaint(self) -> str:
        with self._log.open("rb") as log:
            log.seek(self._read)
            news = log.read()
        self._read += len(news)
        text = news.decode("utf-8", "replace")
        return text if CRASH.search(text) else ""


class RabbitMQ:
    """Debian's RabbitMQ with its own directory and ports. perf/rabbitmq.py knows how to start it; restarts are here."""

    name = "rabbitmq"

    def __init__(self) -> None:
        self._script = rabbitmq.find_script()
        self._temporary = tempfile.TemporaryDirectory(prefix="penstock-everyday-", ignore_cleanup_errors=True)
        self._directory = Path(self._temporary.name)
        self.port, dist_port, epmd_port = rabbitmq._free_ports(3)
        self._environment = rabbitmq._environment(self._directory, self.port, dist_port, epmd_port, {})
        self._epmd = self._spawn(["epmd", "-port", str(epmd_port), "-address", "127.0.0.1"])
        self._server: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._directory / "console.log").open("ab") as console:
            return rabbitmq._spawn(command, self._environment, self._directory, console.fileno())

    def start(self) -> None:
        if self._server is not None:
            if self._server.poll() is None and not self._stopping:
                return
            self._finish()
        self._server = self._spawn([self._script])
        rabbitmq._wait_for_greeting(self._server, self.port, self._directory)

    def kill(self) -> None:
        if self._server is not None:
            self._server.kill()
            self._finish()

    def stop(self) -> None:
        if self._server is not None:
            self._stopping = True
            self._server.terminate()

    def _finish(self) -> None:
        assert self._server is not None
        self._server.wait(STOP_TIMEOUT_S)
        try:
            # The whole session: Erlang's small port programs must go with it.
            os.killpg(self._server.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._server = None
        self._stopping = False

    def end(self) -> None:
        self.kill()
        rabbitmq._end(self._epmd)
        self._temporary.cleanup()

    def complaint(self) -> str:
        return ""


def why_not_rabbitmq() -> str:
    """Why RabbitMQ's half does not run; empty if it does."""
    if WANTED not in ("rabbitmq", "both"):
        return "against Penstock only: EVERYDAY=both runs all of tests/everyday against RabbitMQ as well"
    try:
        rabbitmq.find_script()
    except rabbitmq.NotInstalled as reason:
        return str(reason)
    return ""


def chosen_targets() -> list[str]:
    penstock = [] if WANTED == "rabbitmq" else ["penstock"]
    return penstock if why_not_rabbitmq() else [*penstock, "rabbitmq"]

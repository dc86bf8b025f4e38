"""LiveBroker: a real broker on a free port, in a thread of the test's process, so that a test can look inside.

ServeProcess: the same as a process of its own, as a user starts it.
"""

from __future__ import annotations

import io
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

import psutil

from penstock.broker.broker import Broker
from penstock.broker.queue import Queue
from penstock.embed import BrokerThread
from penstock.net.connection import Connection
from penstock.server import Server
from tests.wire.waiting import LIMIT_S, wait_until

Result = TypeVar("Result")

ROOT: Final = Path(__file__).parents[2]
# A test's JVM lives for minutes: to compile thoroughly costs more than it saves. Without that it has 48 MB of code,
# which are not enough for all tests. It shares Spark's classes where `make test` has made the file; one that does not
# fit is no error.
CLASSES: Final = ROOT / ".venv/spark-classes.jsa"
SHARED: Final = f" -XX:SharedArchiveFile={CLASSES} -Xlog:disable" if CLASSES.exists() else ""
QUICK_JAVA: Final = f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m{SHARED}"
PORTS: Final = range(20_000, 30_000)  # not those that the system gives to others while a broker is away
READY: Final = re.compile(r"ready: amqp (?P<host>[^\s,]+):(?P<port>\d+)")


class LiveBroker:
    """A penstock.BrokerThread with windows. Left as a context, it fails the test if the broker logged a crash."""

    def __init__(
        self, settings: Mapping[str, str] | None = None, tls_port: int | None = None, data: Path | None = None
    ) -> None:
        self._log = io.StringIO()
        # At info whatever the settings say: the crash check needs the lines, and the terminal does not.
        # A handshake may take its time, unless it is what is tested: a busy machine says nothing about a broker.
        patient = {"limits.handshake_timeout_s": "60"}
        given = {**patient, **(settings or {}), "log.level": "info", "log.format": "text"}
        self._thread = BrokerThread(given, tls_port=tls_port, data=data, log=self._log)

    def __enter__(self) -> LiveBroker:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.close()
        if kind is None:
            assert " crash " not in self.log, self.log

    def cut_all(self) -> None:
        """Cut every connection off, as a failing network does."""
        self._thread.cut_connections()

    def manage(self) -> int:
        """Open the HTTP API; its port."""
        if not self.server.management_port:
            self._thread._wait_for(self.server.manage("127.0.0.1", 0))
        return self.server.management_port

    # Looking inside. All of it runs on the broker's own thread.

    def call(self, function: Callable[[], Result], timeout_s: float = LIMIT_S) -> Result:
        """Run this on the broker's thread, between its turns; its result."""
        return self._thread.call(function, timeout_s)

    @property
    def server(self) -> Server:
        return self._thread.broker.server

    @property
    def port(self) -> int:
        return self._thread.port

    @property
    def tls_port(self) -> int:
        assert self._thread.tls_port is not None
        return self._thread.tls_port

    @property
    def uri(self) -> str:
        return self._thread.uri

    @property
    def log(self) -> str:
        return self._log.getvalue()

    @property
    def inside(self) -> Broker:
        return self._thread.broker.core

    def connections(self) -> list[Connection]:
        listener = self.server.listener
        assert listener is not None
        return list(listener.connections)

    def connection(self, name: str) -> Connection:
        """The connection whose client gave this connection_name."""
        (found,) = [one for one in self.connections() if one.client_properties.get("connection_name") == name]
        return found

    def queue(self, name: str) -> Queue:
        return self.inside.vhosts["/"].queues[name]

    def count(self, name: str) -> int:
        """Ready messages of a queue; -1 if there is none of this name."""
        return self.call(lambda: self.queue(name).count() if name in self.inside.vhosts["/"].queues else -1)

    def suspend(self, name: str) -> None:
        """From now on the queue takes nothing from its mailbox."""
        self.call(lambda: self.queue(name).mailbox.hold())

    def release(self, name: str) -> None:
        self.call(lambda: self.queue(name).mailbox.release())


class ServeProcess:
    """`python -m penstock serve` on a free port. stderr goes to a file, so that no pipe can fill up."""

    def __init__(self, directory: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self._stderr = directory / "stderr"
        self.data = directory / "data"
        command = [sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0", "--data", str(self.data)]
        with self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*command, *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=directory,
                text=True,
                env=serve_environment(environment),
            )
        assert self.process.stdout is not None
        self.ready_line = self.process.stdout.readline()  # an exit ends it too
        found = READY.match(self.ready_line)
        self.port = int(found["port"]) if found else 0

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    @property
    def log(self) -> str:
        return self._stderr.read_text("utf-8")

    def wait_for_log(self, text: str) -> str:
        """The first line of the log with this text in it."""
        return (
            wait_until(
                lambda: next((line for line in self.log.splitlines() if text in line), None),
                what=f"{text!r} in the log",
            )
            or ""
        )

    def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(LIMIT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()


def serve_environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without its own settings of Penstock."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    path = os.pathsep.join(filter(None, (str(ROOT / "src"), str(ROOT), own.get("PYTHONPATH", ""))))
    return {**own, "PYTHONPATH": path, "JDK_JAVA_OPTIONS": QUICK_JAVA, **(more or {})}


def free_port() -> int:
    """One that nobody listens on, for a broker that comes back to it. No seed: another run beside this one, with the
    same dice, must not come to the same port while its broker is away."""
    taken = {one.laddr.port for one in psutil.net_connections("tcp")}
    return random.SystemRandom().choice([port for port in PORTS if port not in taken])

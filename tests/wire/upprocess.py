"""UpProcess: `penstock up` as a user starts it, on free ports, with all that it has started.

Its processes, and theirs, carry a mark in their environment, which every child inherits: so a test finds each of them,
also when the one that started it is gone.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from tests.wire.live import serve_environment
from tests.wire.waiting import LIMIT_S, wait_until

MARK: Final = "PENSTOCK_TEST_MARK"
READY: Final = re.compile(r"ready: amqp 127\.0\.0\.1:(?P<port>\d+), management (?P<page>http://127\.0\.0\.1:\d+/)")

numbers = itertools.count(1)


class UpProcess:
    """In a process group of its own, as a shell would start it."""

    def __init__(self, directory: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.mark = f"{os.getpid()}.{next(numbers)}"
        self.data = directory / "data"
        self._stdout, self._stderr = directory / "stdout", directory / "stderr"
        command = [sys.executable, "-m", "penstock", "up", "--data", str(self.data)]
        command += ["--listen", "127.0.0.1:0", "--management", "127.0.0.1:0", *arguments]
        with self._stdout.open("wb") as stdout, self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                command,
                stdout=stdout,
                stderr=stderr,
                cwd=directory,
                start_new_session=True,
                env=serve_environment({**(environment or {}), MARK: self.mark}),
            )

    @property
    def out(self) -> list[str]:
        return self._stdout.read_text("utf-8").splitlines()

    @property
    def log(self) -> list[str]:
        return self._stderr.read_text("utf-8").splitlines()

    def wait_for_line(self, text: str, count: int = 1, timeout_s: float = LIMIT_S) -> str:
        """The line of the log with this text, if there are so many of them the last."""

        def found() -> list[str]:
            lines = [line for line in self.log if text in line]
            return lines if len(lines) >= count else []

        return wait_until(found, timeout_s, f"{text!r} in {self.log[-20:]}")[count - 1]

    def wait_for_out(self, text: str, count: int = 1, timeout_s: float = LIMIT_S) -> str:
        """The same on standard output."""

        def found() -> list[str]:
            lines = [line for line in self.out if line.startswith(text)]
            return lines if len(lines) >= count or self.process.poll() is not None else []

        lines = wait_until(found, timeout_s, f"{text!r} in {self.out}, {self.log[-20:]}")
        assert len(lines) >= count, self.log[-20:]
        return lines[count - 1]

    @property
    def port(self) -> int:
        return int(self._ready()["port"])

    @property
    def page(self) -> str:
        return self._ready()["page"]

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def _ready(self) -> re.Match[str]:
        found = READY.match(self.wait_for_out("ready: "))
        assert found is not None, self.out
        return found

    # Its processes.

    def processes(self, *words: str) -> list[psutil.Process]:
        """All that live, with these words in their command line, the youngest last."""
        found = []
        for process in psutil.process_iter():
            try:
                ours = process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE
                if ours and all(word in process.cmdline() for word in words):
                    found.append(process)
            except psutil.Error:
                continue  # somebody else's, or gone meanwhile
        return sorted(found, key=lambda one: one.create_time())

    def process_of(self, *words: str) -> psutil.Process:
        """The one with these words, once it is there."""
        return wait_until(lambda: self.processes("penstock.up.leash", *words), what=f"a process {words}")[-1]

    def signal_group(self, number: int) -> None:
        """As a terminal does."""
        os.killpg(self.process.pid, number)

    def wait(self, timeout_s: float = LIMIT_S) -> int:
        """The exit code."""
        return self.process.wait(timeout_s)

    def wait_until_nobody_is_left(self) -> None:
        # Most are in one session, which is cheap to ask for; the mark, which is not, finds those that left it.
        wait_until(lambda: not self._session(), what=f"the end of {self._session()}")
        wait_until(lambda: not self.processes(), what=f"the end of {self.processes()}")

    def _session(self) -> list[int]:
        return [pid for pid in psutil.pids() if _session_of(pid) == self.process.pid]

    def kill(self) -> None:
        """Whatever the test has left."""
        self.process.kill()
        self.process.wait(LIMIT_S)
        for process in self.processes():
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                pass


def _session_of(pid: int) -> int:
    try:
        return os.getsid(pid) if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE else 0
    except (psutil.Error, OSError):
        return 0

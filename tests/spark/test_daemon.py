"""The daemon of Python workers: one that Spark hangs up on ends without a word."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType

import psutil
import pytest

from penstock.spark.daemon import HUNG_UP, quiet
from tests.wire.waiting import wait_until


def take(source: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += source.recv(count - len(found))
    return found


@pytest.fixture
def short_path() -> Iterator[str]:
    """The name of a Unix socket has a hundred letters at most."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield name


def test_a_worker_that_is_hung_up_on_ends_without_a_word(short_path: str):
    """As Spark does it: a connection is a worker, which says its number first."""
    environment = {
        **os.environ,
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": short_path,
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "true",
        "SPARK_REUSE_WORKER": "1",
    }
    command = [sys.executable, "-m", "penstock.spark.daemon", "pyspark.worker"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as daemon:
        assert daemon.stdout is not None
        (length,) = struct.unpack("!i", daemon.stdout.read(4))
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(daemon.stdout.read(length).decode())
            (number,) = struct.unpack("!i", take(connection, 4))
            assert number != daemon.pid
            assert psutil.pid_exists(number)
        wait_until(lambda: not psutil.pid_exists(number))
        _, errors = daemon.communicate(timeout=60)  # the end of its stdin is the daemon's
    assert errors == b""


def test_a_fork_of_spark_s_own_daemon_is_made_quiet_and_no_other_process(monkeypatch: pytest.MonkeyPatch):
    def worker(sock: object, authenticated: bool) -> int:
        raise BrokenPipeError

    main = ModuleType("__main__")
    main.__dict__["worker"] = worker
    monkeypatch.setitem(sys.modules, "__main__", main)
    for name in (None, "pytest"):
        main.__spec__ = ModuleSpec(name, None) if name is not None else None
        quiet()
        assert main.worker is worker
    main.__spec__ = ModuleSpec("pyspark.daemon", None)
    quiet()
    quiet()
    assert main.worker(None, True) == HUNG_UP

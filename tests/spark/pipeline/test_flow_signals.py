"""`penstock pipeline flow` and signals, while Spark starts and in a rebuild: its exit code says if the work is done.

Later signals: test_flowjob.py, test_up.py.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from penstock.pipeline.flow import INTERRUPTED, UNCHECKED
from penstock.spark.jvm import JVM_GONE
from penstock.spark.ledger import Ledger, append
from tests.spark.pipeline.flowsite import event_rows
from tests.spark.pipeline.histories import History
from tests.wire.live import serve_environment
from tests.wire.waiting import wait_until

SPARK_S = 200.0  # for a JVM to start, on a machine that is busy with something else
JAVA = "NOTE: Picked up JDK_JAVA_OPTIONS: "  # of the tests' own environment
NOISE = (JAVA, "WARNING: Using incubator modules: ")  # of Java itself, before Spark is there
LOGGED = re.compile(r"\d\d:\d\d:\d\d flow: ")
WINDOW_S = 10
SECONDS = 300  # of the history that is rebuilt

Process = subprocess.Popen[str]


def descendants(process: Process) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def jvm_of(process: Process) -> psutil.Process | None:
    return next((one for one in descendants(process) if is_jvm(one)), None)


def is_jvm(process: psutil.Process) -> bool:
    """Not the script that starts it."""
    try:
        command = process.cmdline()
    except psutil.Error:  # it is gone meanwhile, as what a JVM starts for a moment
        return False
    return bool(command) and Path(command[0]).name == "java" and "org.apache.spark.deploy.SparkSubmit" in command


@contextmanager
def flow(directory: Path, *words: str) -> Iterator[Process]:
    """`penstock pipeline flow` on tables in this directory, in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "pipeline", "flow", "--master", "local[2]", "--tables", "tables", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=directory,
        start_new_session=True,
        env=serve_environment({"PENSTOCK_URI": "amqp://127.0.0.1:1"}),  # nobody is there: it does not come so far
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def ended(process: Process, family: list[psutil.Process]) -> tuple[int, str, str]:
    """Exit code, what it printed and what it said beside its log; nobody of its family is left."""
    out, err = process.communicate(timeout=SPARK_S)
    said = [one for one in err.splitlines(keepends=True) if not one.startswith(NOISE) and not LOGGED.match(one)]
    _, left = psutil.wait_procs(family, SPARK_S)
    assert not left
    return process.returncode, out, "".join(said)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        ((), 0, ""),
        (("--once",), 1, "penstock: interrupted: the tables are as they were\n"),
    ],
    ids=["for ever", "once"],
)
def test_ctrl_c_while_spark_starts_is_an_end_in_order_unless_somebody_waits_for_the_work(
    tmp_path: Path, words: tuple[str, ...], code: int, line: str
) -> None:
    with flow(tmp_path, *words) as process:
        wait_until(lambda: jvm_of(process), SPARK_S, "Spark's JVM")
        started = descendants(process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert ended(process, started) == (code, "", line)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    """Tables that have events only, by one commit."""
    with Ledger(tmp_path / "tables").writing() as ledger:
        events = event_rows(History(1, SECONDS).events, WINDOW_S)
        ledger.commit(None, [append("events", events)], window_s=WINDOW_S)
    return tmp_path / "tables"


def is_writing(tables: Path) -> bool:
    """Spark, one of the tables."""
    return any((tables / "_ledger" / "staging").glob("*/_temporary"))


def is_checking(tables: Path) -> bool:
    """The new tables are there, and what the rules find in them is not."""
    return Ledger(tables).manifest().version > 1


def to_process(process: Process) -> None:
    process.send_signal(signal.SIGTERM)


def to_group(process: Process) -> None:
    """As systemd does: the JVM gets it too."""
    os.killpg(process.pid, signal.SIGTERM)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("is_there", "tell", "line", "version"),
    [
        (is_writing, to_process, INTERRUPTED, 1),
        (is_writing, to_group, INTERRUPTED, 1),
        (is_checking, to_process, UNCHECKED, 2),
    ],
    ids=["in a write", "its group in a write", "in the checks"],
)
def test_a_rebuild_that_is_told_to_stop_ends_at_once_with_one_line_that_is_true(
    tables: Path,
    is_there: Callable[[Path], bool],
    tell: Callable[[Process], None],
    line: str,
    version: int,
) -> None:
    with flow(tables.parent, "--rebuild") as process:
        wait_until(lambda: is_there(tables) or process.poll() is not None, SPARK_S, is_there.__name__)
        started = descendants(process)
        tell(process)
        assert ended(process, started) == (1, "", f"penstock: {line}\n")
    ledger = Ledger(tables)
    assert ledger.manifest().version == version
    assert not ledger.rows("quality")
    assert bool(ledger.rows("samples")) == (version == 2)


@pytest.mark.timeout(300)
def test_a_rebuild_whose_jvm_is_killed_says_so_and_what_may_help(tables: Path) -> None:
    with flow(tables.parent, "--rebuild") as process:
        wait_until(lambda: is_writing(tables) or process.poll() is not None, SPARK_S, "a write")
        jvm = jvm_of(process)
        assert jvm is not None
        started = descendants(process)
        jvm.kill()
        assert ended(process, started) == (1, "", f"penstock: {JVM_GONE}\n")
    assert Ledger(tables).manifest().version == 1

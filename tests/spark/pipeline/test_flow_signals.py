"""`penstock pipeline flow` and Ctrl-C while Spark starts: its exit code says whether the work is done.

Later signals: test_flowjob.py, test_up.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.wire.live import serve_environment
from tests.wire.waiting import wait_until

SPARK_S = 200.0  # for a JVM to start, on a machine that is busy with something else
JAVA = "NOTE: Picked up JDK_JAVA_OPTIONS: "  # of the tests' own environment


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def has_java(process: subprocess.Popen[str]) -> bool:
    try:
        return any("org.apache.spark.deploy.SparkSubmit" in one.cmdline() for one in descendants(process))
    except psutil.Error:  # somebody is gone meanwhile
        return False


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
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock", "pipeline", "flow", "--master", "local[1]", "--tables", "tables", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        start_new_session=True,
        env=serve_environment({"PENSTOCK_URI": "amqp://127.0.0.1:1"}),  # nobody is there: it does not come so far
    )
    try:
        wait_until(lambda: has_java(process), SPARK_S, "Spark's JVM")
        started = descendants(process)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=SPARK_S)
        said = "".join(one for one in err.splitlines(keepends=True) if not one.startswith(JAVA))
        assert (process.returncode, out, said) == (code, "", line)
        _, left = psutil.wait_procs(started, SPARK_S)
        assert not left
    finally:
        process.kill()
        process.wait(60)

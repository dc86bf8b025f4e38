"""The flow job on a cluster: Spark's standalone master and two workers as processes of this machine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.spark.ledger import Ledger
from penstock.spark.session import prepare
from tests.spark.pipeline.archiving import JobProcess
from tests.spark.pipeline.flowsite import (
    SILENT,
    declare_events,
    derived_rows,
    differences,
    next_offset,
    offsets_of,
    publish_events,
    take_all,
)
from tests.spark.pipeline.histories import History
from tests.wire.live import ServeProcess, serve_environment
from tests.wire.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 12
WINDOW_S = 5
START_S = 120.0
JOB_S = 600.0
STARTED = re.compile(r"Starting Spark master at (spark://\S+)")


@contextmanager
def cluster(directory: Path) -> Iterator[str]:
    """A master and two workers of one core each; its address. All of it is gone at the end."""
    import pyspark

    home = Path(pyspark.__file__).parent
    prepare()
    environment = {
        **serve_environment(),
        "SPARK_HOME": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "PYSPARK_PYTHON": sys.executable,
    }
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> Path:
        log = directory / f"{name}.log"
        with log.open("wb") as out:
            command = [str(home / "bin" / "spark-class"), *words]
            # A group of its own: what it starts ends with it.
            processes.append(
                subprocess.Popen(
                    command, stdout=out, stderr=out, env=environment, cwd=directory, start_new_session=True
                )
            )
        return log

    try:
        master = "org.apache.spark.deploy.master.Master"
        log = start("master", master, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        found = wait_until(lambda: STARTED.search(log.read_text()), START_S, "the master's address")
        assert found is not None
        uri = found[1]
        for number in (1, 2):
            worker = "org.apache.spark.deploy.worker.Worker"
            words = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", "1", "--memory", "700m")
            one = start(f"worker{number}", worker, *words, "--work-dir", str(directory / f"work{number}"), uri)
            wait_until(partial(says, one, "registered with master"), START_S, "a worker is registered")
        yield uri
    finally:
        for process in processes:
            try:
                os.killpg(process.pid, 9)
            except ProcessLookupError:
                continue
        for process in processes:
            process.wait(60)


def judged(tables: Path) -> set[tuple[Any, ...]]:
    """What `quality` says, but for the numbers of batches."""
    rows = Ledger(tables).arrow("quality").select(["window", "table", "rule", "rows", "failures"]).to_pylist()
    return {tuple(row.values()) for row in rows}


def says(log: Path, text: str) -> bool:
    return text in log.read_text()


def flow(directory: Path, uri: str, tables: Path, master: str, *more: str) -> JobProcess:
    words = ("--uri", uri, "--tables", str(tables), "--master", master, "--window", str(WINDOW_S), "--memory", "600m")
    return JobProcess(directory, "penstock", "pipeline", "flow", *words, *more)


def has_taken(tables: Path, until: int, job: JobProcess) -> bool:
    """All below this offset; or it never will."""
    begun = (tables / "_ledger" / "manifest.json").exists()
    return (begun and offsets_of(tables) == list(range(until))) or not job.running()


@pytest.mark.timeout(1500)
def test_a_cluster_makes_the_same_tables_as_one_machine(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    broker = ServeProcess(tmp_path, *SILENT)
    assert broker.port, broker.log
    try:
        declare_events(broker.uri)
        bodies = [json.dumps(event) for event in History(3, SECONDS).events]
        half = len(bodies) // 2
        streamed, rebuilt = tmp_path / "cluster", tmp_path / "rebuilt"
        with cluster(tmp_path) as master:
            with flow(tmp_path, broker.uri, streamed, master) as job:
                for part in (bodies[:half], bodies[half:]):
                    publish_events(broker.uri, part)
                    taken = partial(has_taken, streamed, next_offset(broker.uri), job)
                    wait_until(taken, JOB_S, "a batch of them")
                assert job.terminate() == 0, job.log
            shutil.copytree(streamed, rebuilt)
            with flow(tmp_path, broker.uri, rebuilt, master, "--rebuild") as job:
                assert job.process.wait(JOB_S) == 0, job.log
        for number in (1, 2):
            logs = [path.read_text() for path in (tmp_path / f"work{number}").glob("app-*/*/stderr")]
            assert any("Finished task" in log for log in logs), logs
        take_all(spark, broker.uri, tmp_path / "local", WINDOW_S)
    finally:
        broker.kill()
    assert offsets_of(streamed) == list(range(len(bodies)))
    wanted = derived_rows(tmp_path / "local")
    assert all(wanted[name] for name in ("samples", "blocks", "chains", "verdicts", "depth", "syncs", "resources"))
    for tables in (streamed, rebuilt):
        assert not differences(wanted, derived_rows(tables))
        assert judged(tables) == judged(tmp_path / "local")

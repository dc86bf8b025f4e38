"""What tests of archives and replays do: fill a stream or a queue, run a job in the shared session, or as a process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow.dataset
from pyspark.sql import SparkSession

from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from penstock.amqp.properties import Properties, encode_properties
from penstock.client.connection import Connection
from penstock.client.publisher import Publisher
from penstock.client.uri import parse_uri
from penstock.spark.archive.job import Archive
from penstock.spark.archive.job import Wanted as ArchiveWanted
from penstock.spark.replay.job import Replay
from penstock.spark.replay.job import Wanted as ReplayWanted
from tests.wire.live import serve_environment
from tests.wire.waiting import LIMIT_S

START_S = 1_700_000_000  # the recorded time of the first message: 2023-11-14 22:13:20 UTC


def fill(uri: str, name: str, bodies: Iterable[bytes], kind: str = "classic", per_s: int = 1000) -> None:
    """Declare, and publish these with properties; `per_s` of them have the same recorded second."""
    with Connection.connect(parse_uri(uri)) as connection:
        declared = QueueDeclare(name, durable=True, arguments={"x-queue-type": kind})
        connection.open_channel().call(declared, QueueDeclareOk)
        publisher = Publisher(connection.open_channel())
        for number, body in enumerate(bodies):
            publisher.publish("", name, encode_properties(properties_of(number, per_s)), body)
        publisher.flush()


def properties_of(number: int, per_s: int = 1000) -> Properties:
    return Properties(
        content_type="application/json",
        headers={"n": str(number), "kind": "test"},
        delivery_mode=2,
        priority=number % 5,
        correlation_id=f"c{number}",
        message_id=f"m{number}",
        timestamp=START_S + number // per_s,
        type="order",
        app_id="tests",
    )


class Lines(list[str]):
    """What a job said."""

    def __call__(self, line: str) -> None:
        self.append(line)


def archive(spark: SparkSession, uri: str, to: Path, **wanted: Any) -> Lines:
    """A whole run in this process; what it said."""
    lines = Lines()
    return run(spark, Archive(ArchiveWanted(uri=uri, to=to, **wanted), threading.Event(), lines, lines), lines)


def replay(spark: SparkSession, uri: str, table: Path, exchange: str, **wanted: Any) -> Lines:
    """The same for a replay."""
    lines = Lines()
    asked = ReplayWanted(uri=uri, table=str(table), exchange=exchange, **wanted)
    return run(spark, Replay(asked, threading.Event(), lines, lines), lines)


def run(spark: SparkSession, job: Archive | Replay, lines: Lines) -> Lines:
    try:
        assert job.prepare()
        job.run(spark)
    finally:
        job.close()
    return lines


def rows(directory: Path) -> list[dict[str, Any]]:
    """The table as any reader of Parquet finds it."""
    found: list[dict[str, Any]] = pyarrow.dataset.dataset(directory, format="parquet").to_table().to_pylist()
    return found


class JobProcess:
    """`python -m …`, as `penstock pipeline …`. Left as a context, it is ended."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._log = directory / "job.log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdout=log,
                stderr=log,
                cwd=directory,
                env=serve_environment(),
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8", "replace")

    def running(self) -> bool:
        return self.process.poll() is None

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)

    def kill(self) -> None:
        """Driver and JVM at once; what they have started ends by itself."""
        if self.running():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(LIMIT_S)

    def kill_driver(self) -> None:
        """The driver alone: its JVM and tasks live on until they find out."""
        self.process.kill()
        self.process.wait(LIMIT_S)

    def __enter__(self) -> JobProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

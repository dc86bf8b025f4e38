"""The flow job and its broker, killed at random: every event of the stream is in the tables once.

One round kills the broker, and then the driver, each at a random moment. FLOW_ROUNDS=20 is the long proof, which kills
both at once too, and parts of the job: its JVM alone, or one of the Python workers.
FLOW_SEED repeats one. What was done is in rounds.log.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil
import pytest

from penstock.client.error import ClientError
from penstock.spark.ledger import Ledger, append
from tests.chance import seed_of
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
from tests.wire.live import ROOT, ServeProcess, serve_environment
from tests.wire.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS: Final = int(os.environ.get("FLOW_ROUNDS", "1"))
SEED: Final = seed_of("FLOW_SEED")
WINDOW_S: Final = 5
GO_ON_S: Final = 600.0  # for a commit, on a machine that others use
MOMENT_S: Final = (0.0, 2.0)  # until the next kill
FEED_S: Final = 0.2  # between two of the history's seconds
SECONDS: Final = 2000 + 1000 * ROUNDS  # of the history: more than is ever used
WHOLE: Final = ("broker", "driver", "both")
PARTS: Final = ("jvm", "worker")  # of the driver's family


class Feed(threading.Thread):
    """Publishes a history second by second, also to a broker that comes back. What is unsure is sent again: it counts
    as another event, because it is one to the stream."""

    def __init__(self, uri: str) -> None:
        super().__init__(daemon=True)
        self.halt = threading.Event()
        self._uri = uri
        self._seconds: dict[int, list[str]] = {}
        for event in History(SEED, SECONDS).events:
            self._seconds.setdefault(event["at_us"] // 1_000_000, []).append(json.dumps(event))

    def run(self) -> None:
        for bodies in self._seconds.values():
            while not self.halt.wait(FEED_S):
                try:
                    publish_events(self._uri, bodies)
                except ClientError:
                    continue
                break
            if self.halt.is_set():
                return


class Life:
    """One driver: `penstock pipeline flow`, its JVM and its workers."""

    def __init__(self, uri: str, tables: Path, log: Path) -> None:
        command = [sys.executable, "-m", "penstock", "pipeline", "flow", "--uri", uri, "--tables", str(tables)]
        command += ["--master", "local[2]", "--window", str(WINDOW_S), "--trigger", "0.5"]
        with log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=serve_environment(), cwd=ROOT)

    def kill(self) -> None:
        """All of it, at once."""
        end(self.family())
        self.process.wait(60)

    def kill_part(self, part: str, dice: random.Random) -> None:
        """The JVM, or one of the Python workers."""
        below = self.family()[1:]
        is_jvm = {one: name_of(one) == "java" for one in below}
        parts = [one for one in below if is_jvm[one] == (part == "jvm") and name_of(one)]
        end([dice.choice(sorted(parts, key=lambda one: one.pid))] if parts else [])

    def family(self) -> list[psutil.Process]:
        try:
            top = psutil.Process(self.process.pid)
            return [top, *top.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []


def end(processes: list[psutil.Process]) -> None:
    for one in processes:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue


def name_of(process: psutil.Process) -> str:
    """Empty: it is gone."""
    try:
        return Path((process.cmdline() or [""])[0]).name
    except psutil.NoSuchProcess:
        return ""


def version(tables: Path) -> int:
    """Of the tables; 0 before the first commit."""
    try:
        return int(json.loads((tables / "_ledger" / "manifest.json").read_text())["version"])
    except FileNotFoundError:
        return 0


def has_gone_on(tables: Path, before: int, life: Life) -> bool:
    """Or has ended, which is for the caller to see."""
    return version(tables) > before or life.process.poll() is not None


def note(directory: Path, number: int, victim: str) -> None:
    with (directory / "rounds.log").open("a") as notes:
        notes.write(f"round {number}: killed {victim}\n")


@pytest.mark.timeout(1200 + 1200 * ROUNDS)
def test_whatever_is_killed_every_event_is_in_the_tables_once_and_they_are_those_of_a_rebuild(
    spark: SparkSession, tmp_path: Path
):
    from penstock.spark.flowjob import rebuild

    dice = random.Random(SEED)
    tables, log = tmp_path / "tables", tmp_path / "driver.log"
    broker = ServeProcess(tmp_path, *SILENT)
    assert broker.port, broker.log
    listen = ("--listen", f"127.0.0.1:{broker.port}")
    uri = broker.uri
    declare_events(uri)
    feed = Feed(uri)
    life: Life | None = None
    try:
        feed.start()
        wait_until(lambda: next_offset(uri) > 0, what="the first events")
        for number in range(ROUNDS):
            before = version(tables)
            life = Life(uri, tables, log)
            wait_until(partial(has_gone_on, tables, before, life), GO_ON_S, "a commit")
            assert life.process.poll() is None, log.read_text()[-3000:]
            # Of one round: the broker, and when the job has gone on, the driver (below).
            for victim in dice.sample(WHOLE + PARTS, 2) if ROUNDS > 1 else ("broker",):
                time.sleep(dice.uniform(*MOMENT_S))
                if victim in ("broker", "both"):
                    broker.kill()
                if victim in PARTS and life is not None:
                    life.kill_part(victim, dice)
                if victim == "jvm" and life is not None:
                    # Without it there is nothing to be done but to say so.
                    assert life.process.wait(120) == 1, log.read_text()[-3000:]
                    life = None
                if victim in ("driver", "both") and life is not None:
                    life.kill()
                    life = None
                if victim in ("broker", "both"):
                    broker = ServeProcess(tmp_path, *SILENT, *listen)
                    assert broker.port, broker.log
                note(tmp_path, number, victim)
            if life is not None:
                # It outlives its broker.
                after = version(tables)
                wait_until(partial(has_gone_on, tables, after, life), GO_ON_S, "a commit after the broker is back")
                assert life.process.poll() is None, log.read_text()[-3000:]
                time.sleep(dice.uniform(*MOMENT_S))
                life.kill()
                life = None
                note(tmp_path, number, "driver")
        feed.halt.set()
        feed.join(60)
        take_all(spark, uri, tables, WINDOW_S)
        assert offsets_of(tables) == list(range(next_offset(uri)))
        assert "Traceback" not in log.read_text(), log.read_text()[-3000:]
    finally:
        feed.halt.set()
        if life is not None:
            life.kill()
        broker.kill()
    with Ledger(tmp_path / "again").writing() as ledger:
        ledger.commit(None, [append("events", Ledger(tables).arrow("events"))], window_s=WINDOW_S)
        rebuild(spark, ledger, WINDOW_S)
    assert not differences(derived_rows(tmp_path / "again"), derived_rows(tables))

"""Rounds: Spark and the broker at work on one directory, killed at random, again and again; then what Spark has.

A life is one driver: a JVM with two queries (query.py), from a stream and from a queue to Parquet. Two producers
publish numbers all the time. In each life some of a driver's Python workers, the process of a source, or the broker are
killed with -9; the driver's own death ends it, and the next life begins with the same checkpoints, spool and data.
In the end all is drained, and every number must be there once.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.client.connection import Connection
from penstock.client.stream import offsets
from penstock.client.uri import parse_uri
from penstock.streamcommand import declare as declare_stream
from tests.chance import seed_of
from tests.spark.producer import Producer
from tests.spark.queuework import declare, ready
from tests.wire.live import ROOT, ServeProcess, free_port, serve_environment
from tests.wire.waiting import wait_until

ROUNDS: Final = int(os.environ.get("SPARK_ROUNDS", "1"))
SEED: Final = seed_of("SPARK_SEED")
RATE: Final = float(os.environ.get("SPARK_RATE", "1000"))  # messages a second of each producer

STREAM: Final = "numbers"
PARTITIONS: Final = 2
QUEUE: Final = "tasks"
KINDS: Final = ("stream", "queue")
MOMENT_S: Final = (0.0, 1.5)  # until the next kill
TRAPS: Final = 0.5  # of all kills come just when a certain file has been written, the others at any time
TRAP_S: Final = 3.0  # for such a file to appear
TRAP_POLL_S: Final = 0.001
HASTE: Final = 0.25  # of all kills do not wait until the last one is overcome
MORE: Final = (0, 2 if ROUNDS > 1 else 0)  # kills in a driver's life, besides one of each kind and its own end
DOWN_S: Final = (0.0, 2.0)  # how long a broker that was killed is away
GO_ON_S: Final = 300.0  # from a driver's start, or a kill, to the next batch: a loaded machine gets its time
HUNT_S: Final = 0.5  # for a worker that is just at work
DAEMON: Final = "pyspark.daemon"
WORKER: Final = "pyspark.worker"  # a daemon's argument: what it forks are executors' workers
RUNNER: Final = "python_streaming_source_runner"


class Driver:
    """One life of Spark: a process, its JVM, and all their Python processes."""

    def __init__(self, directory: Path, uri: str, log: Path) -> None:
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.query", uri, STREAM, QUEUE, str(directory)],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                cwd=ROOT,
                env=serve_environment(),
            )

    def drain(self) -> int:
        """Its exit code, when it has taken all that was left."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"drain\n")
        self.process.stdin.close()
        return self.process.wait(600)

    def tree(self) -> list[psutil.Process]:
        """Itself and all below it."""
        try:
            top = psutil.Process(self.process.pid)
            return [top, *top.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def runners(self) -> list[psutil.Process]:
        """The driver sides of the sources."""
        return [one for one in self.tree() if says(one, RUNNER)]

    def workers(self) -> list[psutil.Process]:
        """The processes that tasks run in: what Spark's daemons have forked."""
        daemons = [one for one in self.tree() if says(one, DAEMON) and says(one, WORKER)]
        pids = {one.pid for one in daemons}
        return [one for one in daemons if _parent(one) in pids]

    def java(self) -> list[psutil.Process]:
        return [one for one in self.tree() if says(one, "org.apache.spark.deploy.SparkSubmit")]

    def kill(self) -> None:
        """All of it, at once."""
        family = self.tree()
        while family:
            for one in family:
                kill(one)
            family = [one for one in self.tree() if _lives(one)]
        self.bury()

    def bury(self) -> None:
        self.process.wait(60)
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()


def kill(process: psutil.Process) -> bool:
    """Whether it was there."""
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return False
    return True


def says(process: psutil.Process, word: str) -> bool:
    try:
        return any(word in part for part in process.cmdline())
    except psutil.Error:
        return False


def _parent(process: psutil.Process) -> int:
    try:
        return process.ppid()
    except psutil.NoSuchProcess:
        return 0


class Site:
    """A directory with the broker's data, the queries' checkpoints, files and spool, and a log of what was done."""

    def __init__(self, directory: Path, seed: int, rate: float = RATE) -> None:
        self.directory = directory
        self.counts: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._port = free_port()
        self._log = directory / "rounds.log"
        self._drivers_log = directory / "driver.log"
        self._orphans: list[psutil.Process] = []
        self._traps = [directory / "spool"]  # where files appear in the course of a batch
        for kind in KINDS:
            checkpoint, files = directory / f"{kind}.checkpoint", directory / f"{kind}.parquet"
            self._traps += [checkpoint / "offsets", checkpoint / "commits", files / "_spark_metadata"]
        self._note(f"SPARK_SEED={seed}")
        self.broker = self._serve()
        self.uri = self.broker.uri
        declare_stream(STREAM, self.uri, PARTITIONS)
        declare(self.uri, QUEUE)
        self.producers = {
            "stream": Producer(self.uri, "to the stream", exchange=STREAM, rate=rate),
            "queue": Producer(self.uri, "to the queue", key=QUEUE, rate=rate),
        }
        self._driver: Driver | None = None

    def run(self, rounds: int) -> None:
        try:
            for producer in self.producers.values():
                producer.start()
            for number in range(rounds):
                self._note(f"round {number + 1} of {rounds}")
                self._live()
            self._drain()
            self.check()
            self._bury_broker()
        finally:
            for producer in self.producers.values():
                producer.abandon()  # or they would go on with whatever broker comes to this port
            if self._driver is not None:
                self._driver.kill()
            self.broker.kill()
            self._note(f"{dict(self.counts)}")

    # Killing.

    def _live(self) -> None:
        """A driver's life, with what is killed in it."""
        driver = self._driver = Driver(self.directory, self.uri, self._drivers_log)
        self._wait_for_batches()
        kinds = [self._kill_worker, self._kill_source, self._kill_broker]
        kills = kinds + [self._dice.choice(kinds) for _ in range(self._dice.randint(*MORE))]
        self._dice.shuffle(kills)
        for strike in kills:
            strike(driver)
            if self._dice.random() > HASTE:
                self._wait_for_batches()
        self._kill_driver(driver)
        for producer in self.producers.values():
            producer.check()

    def _kill_driver(self, driver: Driver) -> None:
        way = self._dice.choice(("all", "all", "Java", "Python", "broker too"))
        family, java = driver.tree(), driver.java()
        where = self._wait_for_moment()
        if way == "broker too":
            self.broker.process.kill()
        if way == "Python":
            # The JVM ends because its input does. Nobody starts a second one before it is gone.
            driver.process.kill()
            driver.bury()
            wait_until(lambda: not any(map(_lives, java)), GO_ON_S, "the JVM ends with its program")
        else:
            # Without Java, its workers and sources find out by themselves, and may still be there in the next life.
            for one in java if way == "Java" else [*java, *family]:
                kill(one)
            if way != "Java":
                driver.kill()
            driver.bury()
        self._count(f"driver, {way}", where)
        self._driver = None
        self._orphans += family
        if way == "broker too":
            self._restart_broker()

    def _kill_worker(self, driver: Driver) -> None:
        """One that is just at work, if there is one."""
        self._wait_for_moment()
        deadline = time.monotonic() + HUNT_S
        found = None
        while found is None and time.monotonic() < deadline:
            found = next((one for one in self._shuffled(driver.workers()) if _is_busy(one)), None)
        where = "at work" if found is not None else "idle"
        if found is None:
            found = next(iter(self._shuffled(driver.workers())), None)
        if found is not None and kill(found):
            self._count("worker", where)

    def _kill_source(self, driver: Driver) -> None:
        """The process in which a query asks the broker."""
        victim = next(iter(self._shuffled(driver.runners())), None)
        where = self._wait_for_moment()
        if victim is not None and kill(victim):
            self._count("source", where)

    def _kill_broker(self, driver: Driver) -> None:
        where = self._wait_for_moment()
        self.broker.process.kill()
        self._count("broker", where)
        self._restart_broker()

    def _restart_broker(self) -> None:
        self._bury_broker()
        time.sleep(self._dice.uniform(*DOWN_S))
        self.broker = self._serve()

    def _bury_broker(self) -> None:
        self.broker.kill()
        for word in (" crash ", "Traceback"):
            assert word not in self.broker.log, self.broker.log

    def _wait_for_moment(self) -> str:
        """Any, or just when Spark or a source has written something; what that was."""
        if self._dice.random() > TRAPS:
            time.sleep(self._dice.uniform(*MOMENT_S))
            return "at any time"
        trap = self._dice.choice(self._traps)
        before = _names(trap)
        deadline = time.monotonic() + TRAP_S
        while time.monotonic() < deadline:
            if _names(trap) - before:
                return f"at a file in {trap.relative_to(self.directory)}"
            time.sleep(TRAP_POLL_S)
        return "at any time"

    def _shuffled(self, processes: list[psutil.Process]) -> list[psutil.Process]:
        return self._dice.sample(processes, len(processes))

    def _serve(self) -> ServeProcess:
        broker = ServeProcess(self.directory, "--listen", f"127.0.0.1:{self._port}")
        assert broker.port, broker.log
        return broker

    # Looking.

    def batches(self) -> dict[str, int]:
        """How many batches of each query are committed."""
        return {kind: _last_batch(self.directory / f"{kind}.checkpoint" / "commits") + 1 for kind in KINDS}

    def _wait_for_batches(self) -> None:
        """Until both queries have committed more than they have now."""
        before = self.batches()
        assert self._driver is not None
        process = self._driver.process

        def have_gone_on() -> bool:
            assert process.poll() is None, "the driver ended by itself"
            now = self.batches()
            return all(now[kind] > before[kind] for kind in KINDS)

        try:
            wait_until(have_gone_on, GO_ON_S, f"both queries go on from {before}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._tail()}") from None

    def _drain(self) -> None:
        """No more messages, no more kills: what is left is taken, and Spark's files are read."""
        for producer in self.producers.values():
            producer.finish()
        self._note(f"sent {self._sent()}")
        self._driver = Driver(self.directory, self.uri, self._drivers_log)
        code = self._driver.drain()
        self._driver = None
        assert code == 0, self._tail()
        wait_until(lambda: not any(map(_lives, self._orphans)), what="all processes of dead drivers are gone")

    def check(self) -> None:
        """Every number is there, once, and in the order in which it was published."""
        log = self._drivers_log.read_text("utf-8", "replace")
        self.counts["tasks lost"] = len(re.findall(r"Lost task", log))
        self.counts["queries failed"] = len(re.findall(r"query: \w+ failed", log))
        self.counts["sent again"] = sum(one.resent for one in self.producers.values())
        faults: list[str] = []
        for kind, producer in self.producers.items():
            table = pq.read_table(self.directory / f"{kind}.found")
            self.counts[f"{kind} rows"] = table.num_rows
            self.counts[f"{kind} batches"] = self.batches()[kind]
            faults += faults_of(kind, table, producer.count)
        with Connection.connect(parse_uri(self.uri)) as connection:
            channel = connection.open_channel()
            held = sum(offsets(channel, f"{STREAM}-{number}").next for number in range(PARTITIONS))
        if held != self.producers["stream"].count:
            faults.append(f"the stream has {held} messages of {self.producers['stream'].count}")
        if left := ready(self.uri, QUEUE):
            faults.append(f"{left} messages are still in the queue")
        if spooled := list((self.directory / "spool").glob("*.arrow")):
            faults.append(f"{len(spooled)} files are still in the spool")
        self._note(f"faults: {faults}")
        assert not faults, "\n".join([*faults, f"see {self._log}", self._log.read_text()])

    # Telling.

    def _count(self, what: str, where: str) -> None:
        self.counts[what] += 1
        self._note(f"kills {what} {where}; sent {self._sent()}, batches {self.batches()}")

    def _sent(self) -> dict[str, int]:
        return {kind: one.count for kind, one in self.producers.items()}

    def _note(self, line: str) -> None:
        with self._log.open("a") as out:
            print(time.strftime("%H:%M:%S"), line, file=out)

    def _tail(self) -> str:
        return self._drivers_log.read_text("utf-8", "replace")[-5000:] if self._drivers_log.exists() else ""


def faults_of(kind: str, table: pa.Table, count: int) -> list[str]:
    """What is wrong with these rows, if every number below `count` should be in one of them."""
    found: list[str] = []
    numbers = table["number"]
    once = pc.count_distinct(numbers).as_py()
    if table.num_rows != once:
        found.append(f"{kind}: {table.num_rows - once} of {table.num_rows} rows are double")
    if once != count or pc.min_max(numbers).as_py() != {"min": 0, "max": count - 1}:
        found.append(f"{kind}: {count - once} of {count} numbers are missing")
    for partition in pc.unique(table["partition"]).to_pylist():
        part = table.filter(pc.equal(table["partition"], partition)).sort_by("offset")
        if part["offset"].to_pylist() != list(range(part.num_rows)):
            found.append(f"{kind}: the offsets of partition {partition} are not 0 to {part.num_rows - 1}")
        steps = pc.pairwise_diff(part["number"].combine_chunks())
        if part.num_rows > 1 and pc.min(steps).as_py() <= 0:
            found.append(f"{kind}: partition {partition} is not in order")
    return found


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _is_busy(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_RUNNING
    except psutil.NoSuchProcess:
        return False


def _names(directory: Path) -> set[str]:
    try:
        return set(os.listdir(directory))
    except FileNotFoundError:
        return set()


def _last_batch(commits: Path) -> int:
    """The highest number among a checkpoint's commits; -1 if there are none."""
    return max((int(name) for name in _names(commits) if name.isdigit()), default=-1)

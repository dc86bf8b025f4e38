"""Thirty million rows through one query: does the memory of driver and workers stay where it is?

Looks at all processes of the session while a query runs, in four groups: the JVM, the process that plans the batches
(Spark's runner of Python sources), the Python workers that read them, and the broker. A JVM takes memory up to its
limit before it looks for what it no longer needs, so that its size says little: every few seconds it is told to look,
and what is left then is a group of its own. Flat is a second half whose highest is not above the first half's by more
than a tenth.
Not here: the query (sparkways.py).
"""

import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import TracebackType
from typing import Self

from pyspark.sql import DataFrame, SparkSession
from sparkways import Bed, FromQueue, FromStream, Turn

from penstock.perf.cpu import PROC, family

SAMPLE_S = 0.5
STREAM_BATCH_ROWS = "500000"
JVM = "JVM"
RUNNER = "runner"
WORKERS = "workers"
BROKER = "broker"
HEAP = "JVM's heap after a collection"
GROUPS = (JVM, HEAP, RUNNER, WORKERS, BROKER)
HEAP_EVERY = 8  # samples: a collection is a pause of its own
BARS = "▁▂▃▄▅▆▇█"
LINE_BARS = 40
MEGABYTE = 1e6
ROOM = 1.1
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Course:
    """Resident megabytes of one group over a run."""

    values: list[float] = field(default_factory=list)

    @property
    def first_half(self) -> float:
        return max(self.values[: max(1, len(self.values) // 2)], default=0.0)

    @property
    def second_half(self) -> float:
        return max(self.values[len(self.values) // 2 :], default=0.0)

    @property
    def flat(self) -> bool:
        return self.second_half <= ROOM * self.first_half

    @property
    def line(self) -> str:
        """A bar for each fortieth of the run, from 0 to the highest."""
        count = min(LINE_BARS, len(self.values))
        cuts = [len(self.values) * index // count for index in range(count + 1)] if count else []
        tops = [max(self.values[low:high]) for low, high in pairwise(cuts)]
        highest = max(tops, default=0.0) or 1.0
        return "".join(BARS[min(len(BARS) - 1, int(top / highest * len(BARS)))] for top in tops)


class Watch:
    """Samples the groups from the with-statement's begin to its end."""

    def __init__(self, broker_pid: int, spark: SparkSession) -> None:
        self.courses = {group: Course() for group in GROUPS}
        self.processes = dict.fromkeys(GROUPS, 0)  # at most at a time
        self._broker_pid = broker_pid
        self._spark = spark
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        samples = 0
        while not self._ended.wait(SAMPLE_S):
            samples += 1
            found: dict[str, list[float]] = {group: [] for group in GROUPS}
            for pid in family(os.getpid()):
                group = self._group_of(pid)
                if group:
                    found[group].append(_resident_bytes(pid) / MEGABYTE)
            if found[RUNNER]:  # from the query's first call to its end
                # The JVM starts small programs by a fork, which for a moment looks like a second one.
                found[JVM] = [max(found[JVM], default=0.0)]
                del found[HEAP]
                if samples % HEAP_EVERY == 0:
                    found[HEAP] = [self._heap_bytes() / MEGABYTE]
                for group, sizes in found.items():
                    self.courses[group].values.append(sum(sizes))
                    self.processes[group] = max(self.processes[group], len(sizes))

    def _heap_bytes(self) -> int:
        """What the JVM still needs."""
        runtime = self._spark._jvm.java.lang.Runtime.getRuntime()
        runtime.gc()
        return int(runtime.totalMemory() - runtime.freeMemory())

    def _group_of(self, pid: int) -> str:
        if pid == self._broker_pid:
            return BROKER
        if pid == os.getpid():
            return ""
        command = _command(pid)
        if "java" in command.split(" ")[0]:
            return JVM
        if "python_streaming_source_runner" in command:
            return RUNNER
        return WORKERS if "pyspark" in command else ""


class LongStream(FromStream):
    """In batches, as a query that goes on for ever has them."""

    def source(self, rows: int) -> DataFrame:
        options = {"stream": self.stream, "startingOffsets": "earliest", "minPartitions": self.tasks}
        options["maxRecordsPerTrigger"] = STREAM_BATCH_ROWS
        return self.bed.spark.readStream.format("amqp").options(uri=self.bed.uri, **options).load()

    def clear(self) -> None:
        self.bed.delete(self.stream)


@dataclass(frozen=True, slots=True)
class Passage:
    """What came of one long query."""

    source: str
    turn: Turn
    courses: Mapping[str, Course]
    processes: Mapping[str, int]
    fill_s: float


def long_query(bed: Bed, broker_pid: int, kind: str, rows: int) -> Passage:
    way = LongStream(bed, kind, "", rows, "2") if kind == "stream" else FromQueue(bed, kind, "", rows)
    begun_s = time.perf_counter()
    way.make_ready(rows)
    fill_s = time.perf_counter() - begun_s
    try:
        with Watch(broker_pid, bed.spark) as watch:
            turn = way.run(rows)
    finally:
        way.clear()
    return Passage(kind, turn, watch.courses, watch.processes, fill_s)


def _command(pid: int) -> str:
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""  # it ended meanwhile


def _resident_bytes(pid: int) -> int:
    try:
        return int((PROC / str(pid) / "statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0

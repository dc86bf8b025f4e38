"""SideJob: a job of Spark in a thread of its own, so that signals and progress have the main one.

The thread that waits looks at `done`, asks for `finished_tasks`, and may `cancel`.
Upstream: replay/job.py and advice/sweep.py.  Not here: streaming queries, which Spark runs in threads of its own.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import InheritableThread
from pyspark.sql import SparkSession

LOOK_S: Final = 0.1
CANCEL_S: Final = 10.0  # for a job that is cancelled to end; the JVM ends soon after

T = TypeVar("T")


class SideJob(Generic[T]):
    """One run of `work`, whose jobs Spark's page shows as `name`. It begins at once; `done` is set at its end."""

    def __init__(self, spark: SparkSession, name: str, work: Callable[[], T]) -> None:
        self.done = threading.Event()
        self.error: Exception | None = None
        self._context = spark.sparkContext
        self._name = name
        self._work = work
        self._group = f"penstock-{uuid.uuid4().hex}"
        self._found: list[T] = []
        InheritableThread(target=self._run, name=name, daemon=True).start()

    def __repr__(self) -> str:
        return f"<SideJob {self._name}: {'done' if self.done.is_set() else 'running'}>"

    @property
    def result(self) -> T:
        """Once it is done; raises what it failed with."""
        if self.error is not None:
            raise self.error
        return self._found[0]

    def cancel(self) -> None:
        """Until it has ended: to cancel what Spark has not been given yet does nothing, and it would keep its cores."""
        until_s = time.monotonic() + CANCEL_S
        with suppress(Py4JError, OSError):  # a JVM that is gone runs nothing
            while True:
                self._context.cancelJobGroup(self._group)
                if self.done.wait(LOOK_S) or time.monotonic() >= until_s:
                    return

    def finished_tasks(self) -> int:
        """Of the stage with the most of them: one that only hands out rows has few, and says nothing."""
        tracker = self._context.statusTracker()
        most, finished = 0, 0
        for job in tracker.getJobIdsForGroup(self._group):
            about = tracker.getJobInfo(job)
            for stage in about.stageIds if about is not None else []:
                told = tracker.getStageInfo(stage)
                if told is not None and told.numTasks >= most:
                    most, finished = told.numTasks, told.numCompletedTasks
        return finished

    def _run(self) -> None:
        try:
            self._context.setJobGroup(self._group, self._name, interruptOnCancel=True)
            self._found.append(self._work())
        except Exception as error:  # told by the thread that waits
            self.error = error
        finally:
            self.done.set()

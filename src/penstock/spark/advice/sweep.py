"""Sweep: many settings through the twin at once, on Spark.

Rows of (number, settings as JSON) in many small partitions; each task simulates its few; rows of (number, outcome as
JSON) come back. The plant and the load travel with the function. Finished tasks are the progress while the job runs.
Upstream: adviser.py.  Downstream: penstock.flow.twin, on the executors. Not here: which settings (grid.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.flow.twin import Load, Outcome, Plant, Settings, simulate
from penstock.flow.twin.stages import FRAMING_BYTES
from penstock.spark.advice.load import cycles_s, within_prefetch
from penstock.spark.advice.rank import Candidate, mean
from penstock.spark.sidejob import SideJob

TASK: Final = 8  # settings of a task: enough to be worth one, few enough to see progress and to end together
WARM_UP: Final = 0.25  # of a simulation's time, which its `seconds` are without
POLL_S: Final = 0.2
RESULT: Final = "number long, outcome string"

Progress = Callable[[int, int], None]  # done, all


@dataclass(frozen=True, slots=True)
class Trial:
    """How each setting is tried: this plant and load, so long, once with each seed."""

    plant: Plant
    load: Load
    seconds: float
    seeds: tuple[int, ...] = (0,)
    pace: float = 0.0  # queues are at their marks, and so many messages a second leave them; 0: they are not

    def outcome(self, settings: Settings) -> Outcome:
        mark = settings.watermark()
        load = replace(self.load, consumers=within_prefetch(self.load.consumers, settings.prefetch))
        if mark is None or not self.pace:
            runs = [simulate(self.plant, load, settings, self.seconds, seed) for seed in self.seeds]
            return mean([without_growth(one, load) for one in runs])
        # With other marks, that is where they would be.
        load = replace(load, backlog=mark.resume_count)
        seconds = max(self.seconds, cycles_s(settings, self.pace))
        runs = [simulate(self.plant, load, settings, seconds, seed) for seed in self.seeds]
        # Confirms come in bursts, one for each time that the queue is released; in the long run they are as many.
        return mean([replace(one, throughput=one.delivered) for one in runs])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """On an executor, for one partition."""
        for batch in batches:
            numbers, outcomes = [], []
            for row in batch.to_pylist():
                outcome = self.outcome(Settings(**json.loads(row["settings"])))
                numbers.append(row["number"])
                outcomes.append(json.dumps(asdict(outcome)))
            yield pa.RecordBatch.from_pydict({"number": pa.array(numbers, pa.int64()), "outcome": pa.array(outcomes)})


def without_growth(outcome: Outcome, load: Load) -> Outcome:
    """Without what piled up in queues that nobody empties: it depends on how long was simulated, not on settings."""
    if not load.publishers.window and load.consumers.count:
        return outcome  # its throughput is what was delivered
    goals = load.queues if load.fanout else 1
    piled_up = max(0.0, outcome.throughput * goals - outcome.delivered) * outcome.seconds / (1.0 - WARM_UP)
    under_way = outcome.throughput * outcome.p50_ms / 1000  # Little's law: so many are between publish and confirm
    size = load.publishers.body_bytes + FRAMING_BYTES
    rest = outcome.memory_bytes - (piled_up + load.backlog * load.queues) * size
    return replace(outcome, memory_bytes=round(max(rest, under_way * size)))


def sweep(
    spark: SparkSession, trial: Trial, settings: Sequence[Settings], progress: Progress | None = None
) -> list[Candidate]:
    """Each setting with its outcome, in their order. Interrupted (Ctrl-C), the job is cancelled first."""
    if not settings:
        return []
    rows = [{"number": number, "settings": json.dumps(asdict(one))} for number, one in enumerate(settings)]
    tasks = max(1, -(-len(rows) // TASK))
    frame = spark.createDataFrame(pa.Table.from_pylist(rows)).repartition(tasks).mapInArrow(trial, RESULT)
    job = SideJob(spark, f"{len(rows)} settings through the twin", frame.toArrow)
    try:
        while not job.done.wait(POLL_S):
            if progress is not None:
                progress(min(len(rows), job.finished_tasks() * TASK), len(rows))
    except BaseException:
        job.cancel()
        raise
    found = job.result
    if progress is not None:
        progress(len(rows), len(rows))
    outcomes = {row["number"]: Outcome(**json.loads(row["outcome"])) for row in found.to_pylist()}
    return [Candidate(one, outcomes[number]) for number, one in enumerate(settings)]

"""Replay lane: publishes one lane of a replay, in order, a window at a time, and writes down what is confirmed.

Runs in a task of Spark, on the rows of plan.py; encoder.py and outlet.py do the rest. A window is published,
then all of it is awaited, then the mark is written: whatever dies, at most that window is sent twice, and with the same
producer and publishing ids, by which Penstock drops it. A lane has a lock: a task that outlived its driver is awaited.
Blocked: a broker that blocks, or is away, is waited for inside the outlet; nothing is read meanwhile.
Pace: at recorded speed a row goes out when its time has come on a clock that all lanes share; a lane that is late, as
after a block, sends what is due at once until it is in time again.
Not here: the order (plan.py), starting again (job.py).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.client.uri import Uri
from penstock.spark.encoder import Encoder, Plan, Stamp
from penstock.spark.lock import Lock
from penstock.spark.outlet import Outlet
from penstock.spark.replay.plan import DUE, LANE
from penstock.spark.replay.state import Mark, ReplayState

TICK_S: Final = 0.01  # rows that are due so close together go out together
NAP_S: Final = 0.2  # how often a waiting lane looks whether it is to stop
LOCK_WAIT_S: Final = 120.0  # for a task of an earlier run; Spark ends it when its JVM is gone
DUE_US_MAX: Final = (1 << 63) - 1  # what a column of times can hold; a clock at a high speed gets beyond it
RESULT: Final = "lane int, confirmed long"

log: Final = logging.getLogger("penstock.spark")


@dataclass(frozen=True, slots=True)
class Lane:
    """What every lane's task gets; Spark pickles it, and calls it with the lane's rows."""

    plan: Plan
    uri: Uri
    window: int
    mandatory: bool
    state: Path
    replay: str  # the id
    run: str
    deduplicate: bool
    speed: float | None  # None: full
    first_us: int  # the recorded time at which this run begins

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        course: Course | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if course is None:
                    course = Course(self, _lane_of(batch))
                assert _lane_of(batch) == course.number, "two lanes in one partition"
                if not course.take(batch):
                    break
        finally:
            if course is not None:
                course.close()
        if course is not None:
            yield pa.RecordBatch.from_arrays(
                [pa.array([course.number], pa.int32()), pa.array([course.confirmed], pa.int64())], ["lane", "confirmed"]
            )


class Course:
    """One lane on its way."""

    __slots__ = ("_began_at", "_encoder", "_lane", "_lock", "_outlet", "_seen", "_state", "confirmed", "number")

    def __init__(self, lane: Lane, number: int) -> None:
        self._lane = lane
        self.number = number
        self._state = ReplayState(lane.state)
        self._lock = Lock(self._state.lane_lock(number), LOCK_WAIT_S, self._tell_waiting)
        self.confirmed = self._state.mark(number).confirmed
        self._seen = 0  # rows that came by, sent or passed over
        stamp = Stamp(lane.replay, 0, number) if lane.deduplicate else None
        # As in the sink: with mandatory only the message ids, for behind a row that is returned others are taken.
        self._encoder = Encoder(lane.plan, stamp, numbered=not lane.mandatory)
        self._encoder.rows = self.confirmed
        self._outlet = Outlet(lane.uri, lane.window, lane.mandatory, f"replay, lane {number}", known=True)
        # When the run began, on this machine's clock that nobody sets: the shared one is only looked at here.
        began_at = self._state.start_clock(lane.run) if lane.speed is not None else 0.0
        self._began_at = time.monotonic() - (time.time() - began_at)

    def __repr__(self) -> str:
        return f"<Course lane={self.number} confirmed={self.confirmed}>"

    def take(self, batch: pa.RecordBatch) -> bool:
        """Publish what of this batch is not confirmed yet. False: the replay is to stop."""
        start = max(self.confirmed - self._seen, 0)
        self._seen += batch.num_rows
        dues = batch.column(batch.schema.get_field_index(DUE))
        rows = batch.select(list(self._lane.plan.names))
        while start < batch.num_rows:
            stop = min(start + self._lane.window, batch.num_rows)
            if self._lane.speed is not None:
                if not self._await(dues[start].as_py()):
                    return False
                stop = start + self._due_now(dues.slice(start, stop - start))
            self._outlet.publish(self._encoder.encode(rows.slice(start, stop - start)))
            self._outlet.flush()
            self.confirmed += stop - start
            self._state.put_mark(self.number, Mark(self.confirmed, dues[stop - 1].as_py()))
            start = stop
            if self._state.should_stop():
                return False
        return True

    def close(self) -> None:
        self._outlet.drop()
        self._lock.release()

    def _await(self, due_us: int) -> bool:
        """Wait until a row's time has come. False: the replay is to stop."""
        while True:
            left_s = self._at(due_us) - time.monotonic()
            if left_s <= 0:
                return True
            time.sleep(min(left_s, NAP_S))
            if self._state.should_stop():
                return False

    def _due_now(self, dues: pa.Array) -> int:
        """How many of these are due; the first is."""
        assert self._lane.speed is not None
        passed_us = (time.monotonic() + TICK_S - self._began_at) * 1e6 * self._lane.speed
        until_us = min(self._lane.first_us + int(passed_us), DUE_US_MAX)
        later = pc.index(pc.greater(dues, until_us), True).as_py()
        return len(dues) if later < 0 else max(int(later), 1)

    def _at(self, due_us: int) -> float:
        assert self._lane.speed is not None
        return self._began_at + (due_us - self._lane.first_us) / 1e6 / self._lane.speed

    def _tell_waiting(self) -> None:
        log.warning("replay, lane %d: a task of an earlier run still publishes; waiting for its end", self.number)


def _lane_of(batch: pa.RecordBatch) -> int:
    """All rows of a batch are of one lane: the first and the last tell."""
    lanes = batch.column(batch.schema.get_field_index(LANE))
    first, last = lanes[0].as_py(), lanes[-1].as_py()
    assert first == last, f"lanes {first} and {last} in one partition"
    return int(first)

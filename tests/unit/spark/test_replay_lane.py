"""Lane: the pace of a replay at recorded speed, by clocks that a test sets."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.client.uri import parse_uri
from penstock.spark.encoder import Outgoing, Plan
from penstock.spark.replay import lane as laning
from penstock.spark.replay.lane import TICK_S, Course, Lane
from penstock.spark.replay.plan import DUE, LANE

HOUR_S = 3600.0


class Clock:
    """What the lane knows of time; who sleeps is there at once."""

    def __init__(self) -> None:
        self.wall_s = time.time()
        self.now_s = 1000.0

    def time(self) -> float:
        return self.wall_s

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.wall_s += seconds
        self.now_s += seconds


class Sent:
    """In place of an outlet: when each body came, in seconds of the clock that nobody sets."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.at: dict[bytes, float] = {}

    def __call__(self, *_: Any, **__: Any) -> Sent:
        return self

    def publish(self, messages: Iterable[Outgoing]) -> None:
        self.at |= dict.fromkeys((one[4] for one in messages), self.clock.now_s)

    def flush(self) -> None: ...

    def drop(self) -> None: ...


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S], ids=["back", "forward"])
def test_a_clock_that_is_set_while_a_lane_waits_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_s: float
) -> None:
    clock = Clock()
    sent = Sent(clock)
    monkeypatch.setattr(laning, "time", clock)
    monkeypatch.setattr(laning, "Outlet", sent)
    (tmp_path / "clock-run.json").write_text(repr(clock.wall_s - 1.0))  # another lane began a second ago
    plan = Plan(("body",), "e", "k")
    course = Course(Lane(plan, parse_uri("amqp://h"), 100, False, tmp_path, "id", "run", False, 2.0, 0), 0)
    clock.wall_s += step_s
    bodies = [b"%d" % number for number in range(5)]
    dues = [number * 2_000_000 for number in range(5)]  # at double speed, one a second
    columns = [pa.array(bodies), pa.array(dues, pa.int64()), pa.array([0] * 5, pa.int32())]
    assert course.take(pa.RecordBatch.from_arrays(columns, ["body", DUE, LANE]))
    course.close()
    assert list(sent.at) == bodies
    assert list(sent.at.values()) == pytest.approx([1000.0, 1000.0, 1001.0, 1002.0, 1003.0], abs=TICK_S)

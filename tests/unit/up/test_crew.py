"""The crew of `penstock up`, told what happens: who is started again when, and what is said about it."""

from __future__ import annotations

import errno
import signal
from pathlib import Path

import pytest

from penstock.up import descent
from penstock.up.crew import Crew
from penstock.up.part import Ended, Line, Part
from penstock.up.plan import STEADY_S, Plan
from penstock.up.printer import Printer


class Said(Printer):
    """Keeps the lines, and has no thread."""

    def __init__(self) -> None:
        self.as_json = False
        self.lines: list[str] = []

    def exact(self, text: str, is_trouble: bool = False) -> None:
        self.lines.append(text)


class Rehearsal:
    """A crew whose parts are no processes, and whose time is told."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.said = Said()
        plan = Plan("127.0.0.1:0", None, "127.0.0.1:0", Path("data"), Path("tables"))
        self.crew = Crew(plan, self.said, lambda: self.now_s)
        self.pipeline = self.crew.aides[0].part
        self.hears(self.crew.broker, "ready: amqp 127.0.0.1:5672")

    def hears(self, part: Part, text: str, descriptor: int = 1) -> None:
        self.crew._take(Line(part, descriptor, text))

    def ends(self, code: int) -> str:
        """What the crew says of the pipeline's end; it waits until the next has been started."""
        self.crew._take(Ended(self.pipeline, code))
        due_s = self.crew.aides[0].due_s
        assert due_s is not None
        self.now_s = due_s
        self.crew._take(None)
        assert self.crew.aides[0].due_s is None
        return self.said.lines[-1].partition(" warning ")[2]


@pytest.fixture
def rehearsal(monkeypatch: pytest.MonkeyPatch) -> Rehearsal:
    monkeypatch.setattr(Part, "start", lambda part, *words: setattr(part, "is_ready", False))
    return Rehearsal()


def test_a_pipeline_that_is_never_ready_is_tried_less_and_less_often_though_each_try_takes_long(
    rehearsal: Rehearsal,
) -> None:
    said = []
    for _ in range(12):
        rehearsal.now_s += 2 * STEADY_S
        rehearsal.hears(rehearsal.pipeline, "penstock: Java has no memory", 2)
        said.append(rehearsal.ends(1))
    pauses = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600, 600]
    line = "the pipeline ended with exit code 1: Java has no memory; it is started again in {} s"
    assert said == [line.format(pause) for pause in pauses]


def test_a_pipeline_that_was_ready_for_a_minute_is_started_again_after_a_second(rehearsal: Rehearsal) -> None:
    rehearsal.ends(1)
    rehearsal.ends(1)
    rehearsal.hears(rehearsal.pipeline, "pipeline ready: tables …")
    rehearsal.now_s += STEADY_S
    assert rehearsal.ends(1) == "the pipeline ended with exit code 1; it is started again in 1 s"


def test_a_reason_is_not_told_of_another_start_or_of_who_was_killed(rehearsal: Rehearsal) -> None:
    rehearsal.hears(rehearsal.pipeline, "penstock: one reason", 2)
    rehearsal.hears(rehearsal.pipeline, "penstock: a better reason", 2)
    rehearsal.hears(rehearsal.pipeline, "another line", 2)
    assert rehearsal.ends(1) == "the pipeline ended with exit code 1: a better reason; it is started again in 1 s"
    assert rehearsal.ends(1) == "the pipeline ended with exit code 1; it is started again in 2 s"
    rehearsal.hears(rehearsal.pipeline, "penstock: a warning", 2)
    assert rehearsal.ends(-9) == "the pipeline was killed by SIGKILL; it is started again in 4 s"


def test_a_machine_without_room_for_another_process_does_not_end_the_broker(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(part: Part, *words: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    rehearsal.ends(1)
    monkeypatch.setattr(Part, "start", refused)
    rehearsal.crew._take(Ended(rehearsal.pipeline, 1))
    for pause in (4, 8):
        rehearsal.now_s = rehearsal.crew.aides[0].due_s or 0.0
        rehearsal.crew._take(None)
        why = "could not be started: Resource temporarily unavailable"
        assert rehearsal.said.lines[-1].endswith(f"the pipeline {why}; it is started again in {pause} s")


def test_a_machine_without_room_for_the_broker_itself_is_one_line(
    rehearsal: Rehearsal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(part: Part, *words: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(Part, "start", refused)
    monkeypatch.setattr(descent, "adopt", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda number, handler: None)
    rehearsal.said.lines.clear()
    assert rehearsal.crew.run() == 1
    assert rehearsal.said.lines == ["penstock: the broker could not be started: Resource temporarily unavailable"]

"""Crew: starts the parts of `penstock up`, looks after them, and stops them in order.

Upstream: command.py.  Downstream: the parts (part.py), what they say (printer.py).
All decisions are made here, by one thread, from one list of happenings: a line, an end, a signal, a time that has
come.
The broker is first up and last down. Its end is the end of all. The pipeline and the demo are started again when they
end, after pauses that grow, longest for what was not even ready; the broker is not touched by that.
Stopping: demo, pipeline, broker, each with its time limit. A second signal hurries: the demo and the pipeline are
killed and the broker is told at once. A third one kills the broker too; what it has confirmed is on disk.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from queue import Empty
from types import FrameType
from typing import Final

from penstock.client.uri import parse_uri
from penstock.up import descent
from penstock.up.part import STOPS, Ended, Family, Happenings, Line, Part, Stop
from penstock.up.plan import HOPELESS_PAUSE_MAX_S, PAUSE_MAX_S, READY, STEADY_S, URI_VARIABLE, Plan, pause_s
from penstock.up.printer import STDOUT, Printer

# Until a part that was told to stop is killed. The pipeline may be in the middle of a batch; the broker says goodbye to
# its clients and syncs.
DEMO_STOP_S: Final = 30.0
PIPELINE_STOP_S: Final = 60.0
BROKER_STOP_S: Final = 60.0
LOOK_S: Final = 60.0  # between two looks when no time is due
AGAIN_S: Final = 1.0  # signals so close are one wish: `timeout` and shells send to a process and to its group
FAILED: Final = 1
COMPLAINT: Final = "penstock: "  # how the line begins with which a part says why it cannot go on
NOISE: Final = ("WARNING: Using incubator modules: ",)  # what Java says at every start of Spark, which told it to


class Aide:
    """A part that is started again when it ends."""

    __slots__ = ("complaint", "due_s", "failures", "part", "ready_s", "stop_s", "words")

    def __init__(self, part: Part, words: list[str], stop_s: float) -> None:
        self.part = part
        self.words = words
        self.stop_s = stop_s
        self.failures = 0
        self.ready_s: float | None = None  # since when; None: it is not
        self.complaint = ""  # the last since it was started
        self.due_s: float | None = None  # when it is to be started; None: it runs, or is not to run

    def began(self) -> None:
        self.due_s = self.ready_s = None
        self.complaint = ""

    def ended(self, now_s: float) -> float:
        """It has ended; in how many seconds it is due again."""
        if self.ready_s is not None and now_s - self.ready_s >= STEADY_S:
            self.failures = 0
        pause = pause_s(self.failures, HOPELESS_PAUSE_MAX_S if self.ready_s is None else PAUSE_MAX_S)
        self.failures += 1
        self.due_s = now_s + pause
        return pause


class Crew:
    def __init__(self, plan: Plan, printer: Printer, clock: Callable[[], float] = time.monotonic) -> None:
        self.plan = plan
        self._printer = printer
        self._clock = clock
        self._happenings: Happenings = Happenings()
        self._family = Family()
        self.broker = self._part("broker")
        self.aides: list[Aide] = []  # in the order in which they are stopped
        if plan.with_demo:
            self.aides.append(Aide(self._part("demo"), plan.demo(), DEMO_STOP_S))
        if not plan.pipeline_off:
            self.aides.append(Aide(self._part("pipeline"), plan.pipeline(), PIPELINE_STOP_S))
        self._address = ""  # of the broker, once it is ready
        self._complained = False  # the broker has said why it cannot start
        self._code = 0
        self._to_stop: list[Part] | None = None  # None: nobody wants us to stop
        self._kill_s: float | None = None  # when the part that is being stopped is killed
        self._hurries = 0
        self._stop_s = 0.0  # when we were told to stop the last time

    def _part(self, name: str) -> Part:
        return Part(name, self._happenings, self._family)

    def run(self) -> int:
        """Until all have stopped; the exit code."""
        descent.adopt()
        for number in STOPS:
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:  # that is what nohup does
                signal.signal(number, self._heard_signal)
        try:
            self.broker.start(self.plan.broker())
        except OSError as error:
            why = error.strerror or error
            self._printer.exact(f"{COMPLAINT}the broker could not be started: {why}", is_trouble=True)
            return FAILED
        while self._to_stop is None or self.broker.process is not None or self._running():
            self._take(self._next())
        return self._code

    # What happens.

    def _heard_signal(self, number: int, frame: FrameType | None) -> None:
        self._happenings.put(Stop(number))

    def _next(self) -> Line | Ended | Stop | None:
        """The next happening; None if a time has come before it."""
        due = [aide.due_s for aide in self.aides if aide.due_s is not None]
        due += [self._kill_s] if self._kill_s is not None else []
        wait_s = min(due) - self._clock() if due else LOOK_S
        try:
            return self._happenings.get(timeout=max(0.0, min(wait_s, LOOK_S)))
        except Empty:
            return None

    def _take(self, happening: Line | Ended | Stop | None) -> None:
        if isinstance(happening, Line):
            self._heard(happening)
        elif isinstance(happening, Ended):
            self._ended(happening)
        elif isinstance(happening, Stop):
            self._told_to_stop(happening.number)
        now_s = self._clock()
        if self._kill_s is not None and now_s >= self._kill_s:
            self._kill_next()
        for aide in self.aides:
            if aide.due_s is not None and now_s >= aide.due_s:
                self._start(aide)

    def _heard(self, line: Line) -> None:
        part, text = line.part, line.text
        if line.descriptor == STDOUT and not part.is_ready and READY.match(text):
            part.is_ready = True
            self._is_ready(part, text)
        elif part is self.broker and not self._address and text.startswith(COMPLAINT):
            # Why it cannot start: the same line as `penstock serve` has for it.
            self._complained = True
            self._printer.exact(text, is_trouble=True)
        elif text.strip() and not text.startswith(NOISE):
            self._printer.line(part.name, text)
            if part is not self.broker and text.startswith(COMPLAINT):
                self._aide(part).complaint = text.removeprefix(COMPLAINT)

    def _is_ready(self, part: Part, text: str) -> None:
        self._printer.exact(text)
        if part is not self.broker:
            self._aide(part).ready_s = self._clock()
            return
        self._address = self.plan.address(text)
        if self.plan.pipeline_off:
            self._printer.say("warning", self.plan.pipeline_off)
        if self.plan.uri is not None and self.aides:
            # It may be of another broker, left over in the environment.
            who = " and ".join(aide.part.name for aide in self.aides)
            self._printer.say("info", f"{who} connect to {parse_uri(self.plan.uri)}")
        for aide in self.aides if self._to_stop is None else []:
            self._start(aide)

    def _ended(self, end: Ended) -> None:
        part, how = end.part, _how(end.code)
        part.process = None
        if self._to_stop is not None:
            in_order = (0,) if self._address else (0, -signal.SIGTERM)  # before it is ready it may not hear it yet
            if part is self.broker and end.code not in in_order:
                self._code = FAILED
                self._printer.say("error", f"the broker {how} while it was stopped")
            self._stop_next()
        elif part is self.broker:
            self._code = end.code if end.code > 0 else FAILED
            if not self._complained:
                self._printer.say("error", f"the broker {how}: stopping")
            self._stop_all()
        else:
            aide = self._aide(part)
            # The reason again: what a part says is far above by then, or in the log of yesterday.
            self._again(aide, f"{how}: {aide.complaint}" if aide.complaint and end.code > 0 else how)

    # Starting and stopping.

    def _start(self, aide: Aide) -> None:
        aide.began()
        try:
            aide.part.start(aide.words, {URI_VARIABLE: self._address})
        except (
            OSError
        ) as error:  # no memory for another process, or too many of them: that passes, and the broker lives
            self._again(aide, f"could not be started: {error.strerror or error}")

    def _again(self, aide: Aide, how: str) -> None:
        pause = aide.ended(self._clock())
        self._printer.say("warning", f"the {aide.part.name} {how}; it is started again in {pause:.0f} s")

    def _aide(self, part: Part) -> Aide:
        return next(one for one in self.aides if one.part is part)

    def _running(self) -> bool:
        return any(aide.part.process is not None for aide in self.aides)

    def _told_to_stop(self, number: int) -> None:
        now_s = self._clock()
        if self._to_stop is None:
            self._stop_s = now_s
            self._printer.say("info", f"stopping: {signal.Signals(number).name}")
            self._stop_all()
            return
        if now_s - self._stop_s < AGAIN_S:
            return
        self._stop_s = now_s
        self._hurries += 1
        self._family.grace_s = 0.0
        self._printer.say("warning", "in a hurry: killing " + ("all" if self._hurries > 1 else "all but the broker"))
        for aide in self.aides:
            aide.part.send(signal.SIGKILL)
        self.broker.send(signal.SIGKILL if self._hurries > 1 else signal.SIGTERM)

    def _stop_all(self) -> None:
        for aide in self.aides:
            aide.due_s = None
        self._to_stop = [*(aide.part for aide in self.aides), self.broker]
        self._stop_next()

    def _stop_next(self) -> None:
        """Tell the next part to stop, when the one before is gone."""
        assert self._to_stop is not None
        while self._to_stop and self._to_stop[0].process is None:
            del self._to_stop[0]
        self._kill_s = None
        if self._to_stop:
            part = self._to_stop[0]
            part.send(signal.SIGTERM)
            limits = {aide.part: aide.stop_s for aide in self.aides}
            self._kill_s = self._clock() + limits.get(part, BROKER_STOP_S)

    def _kill_next(self) -> None:
        self._kill_s = None
        part = self._to_stop[0] if self._to_stop else self.broker
        self._printer.say("warning", f"the {part.name} does not stop: it is killed")
        part.send(signal.SIGKILL)


def _how(code: int) -> str:
    """How a process has ended, for people."""
    return f"ended with exit code {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"

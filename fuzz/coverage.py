"""Coverage: which steps from line to line, or branches, of penstock's own code were ever taken. Python 3.11 to 3.14.

From 3.12 on by sys.monitoring, where a branch that went both ways is no longer watched and costs nothing; before by
sys.settrace, which costs about tenfold. Only what is new matters to the fuzzer: `taken` grows, or the input was dull.
Modules that mypyc compiled show nothing: fuzz the interpreted ones (make interpreted).
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import penstock

WATCHED: Final = ("amqp", "net", "broker")
TOOL: Final = 4  # one of sys.monitoring's free numbers


class Coverage:
    """Watching between `start` and `stop`; `taken` are the steps seen since the beginning."""

    def __init__(self) -> None:
        self.taken: set[tuple[object, int, int]] = set()
        self._roots = tuple(f"{Path(penstock.__file__).parent / part}/" for part in WATCHED)
        self._watches: dict[CodeType, bool] = {}
        self._lines: dict[FrameType, int] = {}
        self._monitoring = False

    def start(self) -> None:
        """Before each input."""
        if sys.version_info < (3, 12):
            sys.settrace(self._enter)
        elif not self._monitoring:
            self._monitoring = True
            self._monitor()

    def stop(self) -> None:
        """After each input. Monitoring goes on: switching it costs more than what it sees of the fuzzer itself."""
        if sys.version_info < (3, 12):
            sys.settrace(None)
            self._lines.clear()

    def _is_watched(self, code: CodeType) -> bool:
        watched = self._watches.get(code)
        if watched is None:
            watched = self._watches[code] = code.co_filename.startswith(self._roots)
        return watched

    # Python 3.11.

    def _enter(self, frame: FrameType, event: str, value: object) -> Any:
        if not self._is_watched(frame.f_code):
            return None
        self._lines[frame] = 0
        return self._step

    def _step(self, frame: FrameType, event: str, value: object) -> Any:
        if event == "line":
            line = frame.f_lineno
            self.taken.add((frame.f_code, self._lines[frame], line))
            self._lines[frame] = line
        elif event == "return":
            self._lines.pop(frame, None)
        return self._step

    # Python 3.12 and later.

    if sys.version_info >= (3, 12):

        def _monitor(self) -> None:
            monitoring = sys.monitoring
            events = monitoring.events
            monitoring.use_tool_id(TOOL, "penstock fuzz")
            monitoring.register_callback(TOOL, events.LINE, self._line)
            branches = events.LINE
            self._one_way = hasattr(events, "BRANCH_LEFT")  # 3.14: each way is an event of its own
            self._ways: dict[tuple[CodeType, int], set[int]] = {}
            for name in ("BRANCH_LEFT", "BRANCH_RIGHT") if self._one_way else ("BRANCH",):
                event = getattr(events, name)
                monitoring.register_callback(TOOL, event, self._branch)
                branches |= event
            monitoring.set_events(TOOL, branches)

        def _line(self, code: CodeType, line: int) -> Any:
            if self._is_watched(code):
                self.taken.add((code, 0, line))
            return sys.monitoring.DISABLE

        def _branch(self, code: CodeType, start: int, stop: int) -> Any:
            if not self._is_watched(code):
                return sys.monitoring.DISABLE
            self.taken.add((code, start, -1 - stop))
            ways = self._ways.setdefault((code, start), set())
            ways.add(stop)
            return sys.monitoring.DISABLE if len(ways) > 1 or self._one_way else None


class NoCoverage(Coverage):
    """Watches nothing: for replays, and for the second run of an input."""

    def start(self) -> None:
        return

    def stop(self) -> None:
        return


NO_COVERAGE: Final = NoCoverage()

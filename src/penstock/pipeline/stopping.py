"""Stopping: SIGTERM and Ctrl-C as an event that a job looks at, so that it ends in its own time; Cut ends that time.

Upstream: the verbs beside it.  Not here: what a job does when it is told to stop.
"""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
CUT_S: Final = 15.0  # after a signal, for a batch and for Spark to end; `penstock up` waits for a minute
AT_ONCE_S: Final = 0.0  # the same where nothing counts before all of the work is done
AGAIN_S: Final = 1.0  # signals so close are one wish: a shell may send to a process and to its group

Handler = Callable[[int, FrameType | None], None]


def listen(handler: Handler | signal.Handlers) -> None:
    """From now on this is called. To be said again after Spark has started: it takes SIGINT for itself."""
    for number in SIGNALS:
        signal.signal(number, handler)


class Told(threading.Event):
    """An event for handlers of signals. To set one takes its lock, which the thread that a signal interrupts may have:
    it would wait for itself, for ever."""

    def __init__(self) -> None:
        super().__init__()
        self._is_told = False

    def tell(self) -> None:
        """Seen at once; whoever waits is woken by a thread, which may wait for the lock."""
        if not self._is_told:
            self._is_told = True
            threading.Thread(target=self.set, daemon=True).start()

    def is_set(self) -> bool:
        return self._is_told or super().is_set()


class Stopping:
    """`event` is set by the first of SIGNALS. `listen` again after Spark has started."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event = Told()
        self.listen()

    def listen(self) -> None:
        listen(self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.event.tell()


class Cut:
    """The first of SIGNALS tells a job to stop. After `after_s`, or at the next signal, Spark's JVM ends.

    For jobs whose tables are whole at any moment. Without its JVM all that waits for Spark fails at once, and the job
    ends as it does when somebody else has killed the JVM.
    """

    __slots__ = ("_after_s", "_jvm", "_told", "_told_s")

    def __init__(self, told: Told, jvm: subprocess.Popen[bytes] | None, after_s: float = CUT_S) -> None:
        self._told = told
        self._jvm = jvm  # None: somebody else's
        self._after_s = after_s
        self._told_s: float | None = None

    def hear(self, number: int, frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self._told_s is None:
            self._told_s = now_s
            timer = threading.Timer(self._after_s, self._cut)
            timer.daemon = True
            timer.start()
            self._told.tell()
        elif now_s - self._told_s >= AGAIN_S:
            self._cut()

    def _cut(self) -> None:
        if self._jvm is not None:
            self._jvm.terminate()

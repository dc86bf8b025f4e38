"""Stopping: SIGTERM and Ctrl-C as an event that a job looks at, so that it ends in its own time.

Upstream: the verbs archive and replay.  Not here: what a job does then.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


class Stopping:
    """`event` is set by the first of SIGNALS. `listen` again after Spark has started: it takes SIGINT for itself."""

    __slots__ = ("event",)

    def __init__(self) -> None:
        self.event = threading.Event()
        self.listen()

    def listen(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._hear)

    def _hear(self, number: int, frame: FrameType | None) -> None:
        self.event.set()

"""Runner: what a reader's driver side needs of the process it lives in.

Spark runs the driver side of a stream source in one Python process for the whole query, and ends it with SIGTERM
without calling `stop()`. With a handler that raises SystemExit, its loop unwinds and `stop()` is called: consumers are
cancelled and connections closed, instead of being found dead by the broker.
Used by streamreader.py and queuereader.py. Not here: tasks, whose processes Spark may end at any time.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Final

RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"  # Spark starts it with `python -m`


def stop_on_sigterm() -> None:
    """From now on SIGTERM unwinds this process, if it is Spark's runner: in any other it is not ours to decide."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if getattr(spec, "name", "") != RUNNER or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)

"""Runner: what a reader's driver side needs of the process it lives in.

Spark runs the driver side of a stream source in one Python process for the whole query, and ends it with SIGTERM
without calling `stop()`. With a handler that raises SystemExit, its loop unwinds and `stop()` is called: consumers are
cancelled and connections closed, instead of being found dead by the broker.
Or Spark just hangs up, and the process tries to tell it of that: a Unix socket (session.py:UNIX_SOCKETS) refuses what
one of TCP would have taken in silence, and pages of traceback would say that all is well.
`leave_in_order` is called by source.py, the first of ours that the process gets: it may end before it has a reader.
One that finds Spark gone before that can only be waited for: `await_start`, for who stops a query.
Not here: tasks (daemon.py), whose processes Spark may end at any time.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

RUNNER: Final = "pyspark.sql.streaming.python_streaming_source_runner"  # Spark starts it with `python -m`
STARTING: Final = "Initializing"  # sources, and what comes before; Spark says so in a query's status
STARTS_S: Final = 6.0
LOOK_S: Final = 0.05


def leave_in_order() -> None:
    """From now on this process, if it is Spark's runner, ends without loss or noise; others are not ours."""
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    if getattr(spec, "name", "") != RUNNER or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _leave)
    sys.excepthook = _show


def await_start(query: StreamingQuery) -> None:
    """Until Spark and the processes of its sources have found each other; a query is stopped after that."""
    until_s = time.monotonic() + STARTS_S
    while query.isActive and query.status["message"].startswith(STARTING) and time.monotonic() < until_s:
        time.sleep(LOOK_S)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not _is_hang_up(error):
        sys.__excepthook__(kind, error, trace)


def _is_hang_up(error: BaseException) -> bool:
    """Whether Spark could not be told of an end that it had made itself; what else went wrong is shown."""
    if not isinstance(error, BrokenPipeError):
        return False
    first: BaseException = error
    while first.__context__ is not None:
        first = first.__context__
    return isinstance(first, EOFError | SystemExit | BrokenPipeError)

"""Daemon: Spark's own daemon of Python workers, which forks one for each task, without tracebacks that mean nothing.

A worker that Spark hangs up on, as it does with all that were idle for a minute, tries to say that it heard. A socket
of TCP takes that in silence; a Unix one (session.py:UNIX_SOCKETS) refuses it, and the worker prints a page.
Spark starts this module with `python -m` for its tasks. Those that plan for data sources are forks of pyspark's own
daemon whatever is set; source.py and sink.py, which they call, call `quiet`.
Imports nothing but pyspark: no thread of pandas or Arrow may run before a fork.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pyspark import daemon

HUNG_UP = 1  # any code but 0: the worker waits for the end of its socket, and ends


def quiet() -> None:
    """If this process is a fork of Spark's daemon, it ends without a word; in any other nothing happens."""
    main = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    if main is not None and getattr(spec, "name", "") == daemon.__name__:
        _replace_worker(main)


def _replace_worker(module: ModuleType) -> None:
    """The daemon's loop looks it up for every task; what is replaced from within one counts from the next one on."""
    if not isinstance(module.worker, _Worker):
        module.__dict__["worker"] = _Worker(module.worker)


class _Worker:
    """One task after the other, and an end in silence."""

    def __init__(self, work: Callable[..., int]) -> None:
        self._work = work

    def __call__(self, *given: Any) -> int:
        try:
            return self._work(*given)
        except BrokenPipeError:
            return HUNG_UP


if __name__ == "__main__":
    _replace_worker(daemon)
    daemon.manager()

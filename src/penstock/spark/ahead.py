"""Ahead: work for the next batch, done in a thread while Spark runs this one.

Used by queuereader.py, whose process does nothing while tasks run: what it would do before the next batch it does then.
There are never two at the same data: whoever wants to touch what the work touches calls `wait` first.
Not here: the work.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Ahead:
    """One piece of work at a time."""

    __slots__ = ("_error", "_thread")

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def __repr__(self) -> str:
        return f"<Ahead busy={self.busy}>"

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, work: Callable[[], None]) -> None:
        """Start it, and return. What the one before raised is raised here."""
        self.wait()
        # A daemon: a process that is told to end does not wait for it. What it leaves half done, the spool mends.
        self._thread = threading.Thread(target=self._run, args=(work,), name="ahead", daemon=True)
        self._thread.start()

    def wait(self, most_s: float | None = None) -> bool:
        """Until it is done; raises what it raised. False if it took longer than `most_s`."""
        thread = self._thread
        if thread is None:
            return True
        thread.join(most_s)
        if thread.is_alive():
            return False
        self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return True

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error

"""Interrupt: a stretch of code that Ctrl-C does not cut, only follow.

Declaring and deleting must be whole: a second Ctrl-C in the middle of deleting would leave objects on someone's broker,
and a declare that is cut off may reach the broker after the delete that was to undo it.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C inside is kept until the end, then raised. Only for work that is bounded by time-outs of its own."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python raises KeyboardInterrupt in the main thread only
        return
    kept = False

    def keep(number: int, frame: FrameType | None) -> None:
        nonlocal kept
        kept = True

    before = signal.signal(signal.SIGINT, keep)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if kept:
        raise KeyboardInterrupt

"""Waiting: for a condition, never for seconds. The limit only ends a test that would hang: no machine is that slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

Result = TypeVar("Result")

POLL_S: Final = 0.005  # how often the condition is looked at
LIMIT_S: Final = 60.0  # for whatever a test waits for: an answer, a delivery, the end of a process


def wait_until(
    condition: Callable[[], Result], timeout_s: float = LIMIT_S, what: str | Callable[[], str] = ""
) -> Result:
    """The condition's first true value; an assertion error after `timeout_s`, which says `what` was waited for."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            told = what() if callable(what) else what
            raise AssertionError(f"not within {timeout_s} s: {told or condition}")
        time.sleep(POLL_S)

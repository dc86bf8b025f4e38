"""Printer: what all parts say, on this process's stdout and stderr, in whole lines that tell who speaks.

Upstream: crew.py and the threads of part.py.  Downstream: two descriptors, written by a thread of its own.
A terminal that does not take lines (Ctrl-S, a pager) stops nobody: lines wait up to LINES_MAX, then they are left out,
and how many were is told. Where nobody reads any more (a closed pipe, a terminal that is gone) lines are dropped.
Not here: what is said (crew.py).
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections import deque
from typing import Final

LINES_MAX: Final = 10_000  # waiting for a terminal: a few MB
NAME_WIDTH: Final = 8  # of the longest name, pipeline
RETRY_S: Final = 0.01
STDOUT: Final = 1
STDERR: Final = 2


class Printer:
    """Takes lines from any thread."""

    def __init__(self, as_json: bool = False, stdout: int = STDOUT, stderr: int = STDERR) -> None:
        self.as_json = as_json
        self._stdout = stdout
        self._stderr = stderr
        self._waiting: deque[tuple[int, str]] = deque()
        self._left_out = 0
        self._deaf: set[int] = set()  # descriptors that nobody reads any more
        self._closing = False
        self._turn = threading.Condition()
        self._thread = threading.Thread(target=self._write_all, name="printer", daemon=True)
        self._thread.start()

    def exact(self, text: str, is_trouble: bool = False) -> None:
        """This line as it is; what is trouble, on stderr."""
        descriptor = self._stderr if is_trouble else self._stdout
        with self._turn:
            if len(self._waiting) >= LINES_MAX:
                self._left_out += 1
                return
            self._waiting.append((descriptor, text))
            self._turn.notify()

    def line(self, name: str, text: str) -> None:
        """A line that a part has written, on stderr."""
        self.exact(self._signed(name, text), is_trouble=True)

    def say(self, level: str, text: str) -> None:
        """A line of our own: what happened to a part. Looks like the broker's log."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        if self.as_json:
            self.line("up", json.dumps({"time": stamp, "level": level, "event": text}))
        else:
            self.line("up", f"{stamp} {level:<7} {text}")

    def close(self, timeout_s: float) -> None:
        """Write what waits, for so long at most."""
        with self._turn:
            self._closing = True
            self._turn.notify()
        self._thread.join(timeout_s)

    def _signed(self, name: str, text: str) -> str:
        """With who says it."""
        return tagged(name, text) if self.as_json else f"{name:<{NAME_WIDTH}} | {text}"

    def _write_all(self) -> None:
        while True:
            with self._turn:
                while not self._waiting and not self._closing:
                    self._turn.wait()
                lines = list(self._waiting)
                self._waiting.clear()
                left_out, self._left_out = self._left_out, 0
                closing = self._closing
            for descriptor, text in lines:
                self._write(descriptor, text)
            if left_out:
                self._write(self._stderr, self._signed("up", f"{left_out} lines are left out: nobody took them"))
            if closing:
                return

    def _write(self, descriptor: int, text: str) -> None:
        rest = memoryview((text + "\n").encode("utf-8", "replace"))
        while rest and descriptor not in self._deaf:
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:  # somebody who shares the terminal has made it so
                time.sleep(RETRY_S)
            except OSError:
                self._deaf.add(descriptor)


def tagged(name: str, text: str) -> str:
    """A line of a part as JSON: its own fields, if it is JSON, with who wrote it in front."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return json.dumps({"part": name, **(found if isinstance(found, dict) else {"text": text})})

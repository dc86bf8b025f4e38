"""Log: one line per event on stderr, `time level event key=value …`, or the same as JSON.

A line is for operators: connections opened, lost or refused, failed logins, bugs with their traceback.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from typing import Final, TextIO

LEVELS: Final = ("debug", "info", "warning", "error")


class Log:
    __slots__ = ("_as_json", "_least", "_stream")

    def __init__(self, level: str = "info", as_json: bool = False, stream: TextIO | None = None) -> None:
        self._least = LEVELS.index(level)
        self._as_json = as_json
        self._stream = stream if stream is not None else sys.stderr

    def info(self, event: str, **fields: object) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write("error", event, fields)

    def crash(self, where: str, error: BaseException) -> None:
        """A bug of ours: the traceback goes to the log, the broker goes on."""
        trace = "".join(traceback.format_exception(error))
        self._write("error", "crash", {"where": where, "error": repr(error), "trace": trace})

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        if LEVELS.index(level) < self._least:
            return
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        if self._as_json:
            line = json.dumps({"time": stamp, "level": level, "event": event, **fields}, default=str)
        else:
            pairs = "".join(f" {name}={_quoted(value)}" for name, value in fields.items())
            line = f"{stamp} {level:<7} {event}{pairs}"
        print(line, file=self._stream, flush=True)


def _quoted(value: object) -> str:
    """Bare if it is one plain word; otherwise in quotes with escapes, so that no peer can forge a log line."""
    text = str(value)
    if text and text.isprintable() and not any(letter in ' "=' for letter in text):
        return text
    return json.dumps(text)

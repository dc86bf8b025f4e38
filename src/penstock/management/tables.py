"""Tables: GET /api/flow/tables, what the flow pipeline has made of the events. Hours and days; flow/ has a minute.

Place: the pipeline writes one file, page.json, in its directory, a new one every few seconds and always as a whole; the
setting management.tables says which directory. A thread reads it, and only when it has changed; of what is in it only
the range that was asked for is sent, as it stands in the file. Where there is nothing to send, that is no error: the
digest is null, and a reason says what to do. A page that asks every few seconds must not fill a console with 404.
Not here: the tables, and what is summed up of them (spark/); the page's History view, which shows it.
"""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.management import schema
from penstock.management.answer import json_answer
from penstock.management.login import Caller
from penstock.management.route import MONITORING, Api, BadRequest, Query, Route

FILE: Final = "page.json"
FILE_BYTES_MAX: Final = 4 << 20  # the pipeline writes 1 MiB at most; what is larger is not its file
RANGES: Final = ("15m", "1h", "24h")
RANGE: Final = "1h"  # where none is asked for
VERSION: Final = 1  # of an answer without a file

NO_PIPELINE: Final = (
    "no flow pipeline: `penstock up` starts one with the broker; "
    "or run `penstock pipeline flow --tables DIR` and start the broker with `--set management.tables=DIR`"
)
NOTHING_YET: Final = "the flow pipeline has written nothing yet: it takes a moment to start, if it was started"


class Sheet(msgspec.Struct):
    """The file, of which only the outermost names are read."""

    version: int
    ranges: dict[str, msgspec.Raw]


class Tables:
    __slots__ = ("_path", "_seen", "_sheet")

    def __init__(self, directory: str) -> None:
        """Empty: there is no pipeline."""
        self._path = Path(directory) / FILE if directory else None
        self._seen = (0, 0, 0)  # of the file that was read last: inode, size, time
        self._sheet: Sheet | None = None

    async def read(self) -> Sheet | str:
        """The file as it is now; if there is none, why; BadRequest if it is not what it should be."""
        if self._path is None:
            return NO_PIPELINE
        return await asyncio.to_thread(self._read, self._path)

    def _read(self, path: Path) -> Sheet | str:
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size > FILE_BYTES_MAX:
                raise _unreadable(f"not a file of {FILE_BYTES_MAX} bytes at most")
            seen = (found.st_ino, found.st_size, found.st_mtime_ns)
            if self._sheet is not None and seen == self._seen:
                return self._sheet
            with path.open("rb") as file:
                text = file.read(FILE_BYTES_MAX)
        except FileNotFoundError:
            return NOTHING_YET
        except OSError as error:
            raise _unreadable(error.strerror or "it cannot be read") from None
        try:
            sheet = msgspec.json.decode(text, type=Sheet)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise _unreadable("not what the pipeline writes") from None
        self._sheet, self._seen = sheet, seen
        return sheet


def _unreadable(why: str) -> BadRequest:
    return BadRequest(f"the flow pipeline's {FILE}: {why}", "unavailable", 503)


async def get_tables(api: Api, request: Request, caller: Caller) -> Response:
    wanted = request.query_params.get("range", RANGE)
    if wanted not in RANGES:
        raise BadRequest(f"'range' is one of {', '.join(RANGES)}")
    assert api.tables is not None
    found = await api.tables.read()
    if isinstance(found, str):
        return json_answer({"version": VERSION, "range": wanted, "digest": None, "reason": found})
    if wanted not in found.ranges:
        return json_answer({"version": found.version, "range": wanted, "digest": None, "reason": NOTHING_YET})
    return json_answer({"version": found.version, "range": wanted, "digest": found.ranges[wanted]})


ROUTES: Final = (
    Route(
        "GET",
        "/api/flow/tables",
        get_tables,
        MONITORING,
        "What the flow pipeline has found: blocks, verdicts, depth, syncs and forecasts of the last hours",
        query=(Query("range", schema.one_of(*RANGES), f"how far back, {RANGE} by default"),),
        answer=schema.obj(
            {
                "version": schema.INTEGER,
                "range": schema.one_of(*RANGES),
                "digest": schema.either(schema.OBJECT, {"type": "null"}),
            },
            {"reason": schema.STRING},
        ),
        statuses=(503,),
    ),
)

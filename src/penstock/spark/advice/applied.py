"""Applied: what advice has set on the broker, noted on the disk before it is set, so that one command takes it back.

TABLES/applied.json has the last changes, each with the broker's address: another broker is not undone by mistake. One
that was begun and never ended (kill -9, the broker away) is there too.
Upstream: change.py notes, pipeline/advise.py undoes.  Downstream: a file, and the broker's HTTP API.
Not here: what is set and why (adviser.py), whether it helped (change.py).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from penstock.spark.advice.clients import Api
from penstock.spark.advice.knob import put_back, value_of
from penstock.spark.complaint import Complaint

FILE: Final = "applied.json"
KEPT_MAX: Final = 50  # changes that are remembered

BEGUN, KEPT, TAKEN_BACK = "begun", "kept", "taken back"


@dataclass(frozen=True, slots=True)
class Applied:
    """One change of settings."""

    at_ms: int  # when settings were last touched
    settings: dict[str, str]
    old: dict[str, str]
    state: str  # begun, kept or taken back
    sentence: str = ""  # what came of it
    address: str = ""  # of the broker's HTTP API; older changes have none

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.at_ms / 1000, UTC)


class Diary:
    """The file of a directory of tables. `address`: of the broker that is changed or undone."""

    def __init__(self, root: Path, address: str = "") -> None:
        self._root = root
        self._address = address

    def changes(self) -> list[Applied]:
        """The oldest first; none where there is no such file, or one that is not ours."""
        try:
            found = json.loads((self._root / FILE).read_bytes())
            return [Applied(**one) for one in found["changes"] if isinstance(one["at_ms"], int)]
        except (OSError, ValueError, KeyError, TypeError):
            return []

    def last_touch(self) -> datetime | None:
        """When settings were last changed from here: what was measured before that was measured with others."""
        return max((one.at for one in self.changes()), default=None)

    def notes(self, wanted: Mapping[str, str]) -> list[str]:
        """What is known already of settings that somebody may want to apply."""
        changes, said = self.changes(), []
        if changes and changes[-1].state == BEGUN:
            one = changes[-1]
            said.append(
                f"what was set at {one.at:%H:%M:%S} UTC ({shown(one.settings)}) was never measured to its end: "
                "--undo sets the old values again"
            )
        worse = [one for one in changes if wanted and one.settings == wanted and one.state == TAKEN_BACK]
        if worse and worse[-1].sentence:
            one = worse[-1]
            said.append(f"these settings were tried until {one.at:%Y-%m-%d %H:%M} UTC and taken back: {one.sentence}")
        return [one.rstrip(".") for one in said]

    def begin(self, settings: Mapping[str, str], old: Mapping[str, str]) -> None:
        """Before anything is set."""
        self._write([*self.changes(), Applied(now_ms(), dict(settings), dict(old), BEGUN, "", self._address)])

    def end(self, state: str, at_ms: int, sentence: str = "") -> None:
        """Of the last one that was begun; settings were last touched then."""
        changes = self.changes()
        if changes:  # else somebody has removed the file meanwhile
            self._write([*changes[:-1], replace(changes[-1], state=state, sentence=sentence, at_ms=at_ms)])

    def undo(self, api: Api) -> str:
        """Set the old values of the last change again, as far as they are still what it made them; what was done."""
        changes = self.changes()
        at = next((at for at in reversed(range(len(changes))) if changes[at].state != TAKEN_BACK), None)
        if at is None:
            raise Complaint(f"nothing to undo: {self._root / FILE} has no change that still counts")
        change = changes[at]
        if change.address and self._address not in ("", change.address):
            raise Complaint(
                f"what was set at {change.at:%Y-%m-%d %H:%M:%S} UTC was set at {change.address}, not at "
                f"{self._address}: --management says which is asked"
            )
        said = []
        for name, value in change.settings.items():
            old, now = change.old[name], value_of(api, name)
            if not now:
                put_back(api, name, old)  # a policy may be there still
                said.append(f"{name}: the queue is gone")
            elif now == old:
                said.append(f"{name} is {old} already")
            elif now != value:
                said.append(f"{name} is {now}, which is not from here: left alone")
            else:
                put_back(api, name, old)
                said.append(f"{name} = {old} again, instead of {value}")
        changes[at] = replace(change, state=TAKEN_BACK, at_ms=now_ms())
        self._write(changes)
        return f"Undone what was set at {change.at:%Y-%m-%d %H:%M:%S} UTC: {'; '.join(said)}."

    def kept_since(self, at_ms: int) -> Applied | None:
        """The change that was made since then and stays, if there is one."""
        return next((one for one in self.changes()[-1:] if one.state == KEPT and one.at_ms >= at_ms), None)

    def _write(self, changes: list[Applied]) -> None:
        write_json(self._root / FILE, {"changes": [asdict(one) for one in changes[-KEPT_MAX:]]})


def write_json(path: Path, document: Mapping[str, object]) -> None:
    """Whole or not at all: others read it at any moment."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("w", encoding="utf-8") as file:
            json.dump(document, file, ensure_ascii=False, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def shown(settings: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in settings.items())


def now_ms() -> int:
    return round(time.time() * 1000)

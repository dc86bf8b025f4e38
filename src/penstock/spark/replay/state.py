"""Replay state: the directory of a replay's checkpoint: what is replayed, and how far each lane is confirmed.

    DIR/replay.json          which table, which of its files, with which options: the same in all runs
    DIR/lane-00003.json      how many rows of lane 3 the broker has confirmed, and the time of the last of them
    DIR/lane-00003.lock      held by the one task that publishes lane 3
    DIR/clock-RUN.json       when a run at recorded speed began: the lanes' common clock
    DIR/stop                 the lanes are to end after their next confirm

A lane's rows have one order, the same in every run; so a number says which of them are confirmed. It is written, and
synced, when they are: what was sent and is not in it is sent again, and is never more than a window.
The driver and all executors must see the directory under the same path.
Upstream: job.py (driver), lane.py (tasks).  Not here: what the order is (plan.py).
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from penstock.spark.archive.terms import difference
from penstock.spark.complaint import Complaint
from penstock.spark.ledger import disk
from penstock.spark.lock import Lock, Taken

PLAN: Final = "replay.json"
STOP: Final = "stop"
LOCK: Final = "lock"
VERSION: Final = 1
LOCK_WAIT_S: Final = 15.0  # a run that was killed may leave a process that is just ending

# How the options are called in a complaint.
WORDS: Final = {
    "table": "--from",
    "where": "--where",
    "exchange": "--exchange",
    "routing_key": "--routing-key",
    "key": "--key",
    "order": "--order-by",
    "body": "--body",
    "deduplicate": "--deduplicate",
    "time": "recorded time by",
    "vhost": "vhost",
}


@dataclass(frozen=True, slots=True)
class Terms:
    """What a replay is, so that a number of rows means the same in every run."""

    table: str
    where: str | None
    exchange: str
    routing_key: str | None
    key: str
    order: tuple[str, ...]
    body: str
    deduplicate: bool
    time: str | None  # the column of recorded times; None: full speed. It is a part of the order
    vhost: str | None = None  # None: of a checkpoint that was made before it was written down

    def differs(self, other: Terms) -> str | None:
        return difference(self, other, WORDS, {"": "''"})


@dataclass(frozen=True, slots=True)
class Begun:
    """What the first run has found out."""

    id: str  # the producer's name, by which Penstock drops what comes twice
    lanes: int
    rows: int
    # What was in the table then, since what was added later is not replayed: its files, or of an archive, whose files
    # may be merged meanwhile, the last offset of each partition.
    files: tuple[str, ...]
    last: tuple[tuple[int, int], ...]
    first_us: int | None  # the first and the last recorded time
    last_us: int | None
    broker: str | None = None  # its address then; it may change, but the messages must be at the new one


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a lane is."""

    confirmed: int = 0
    due_us: int | None = None  # the recorded time of the last row


class ReplayState:
    """The directory. Only the driver makes one with `held`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock: Lock | None = None

    def __repr__(self) -> str:
        return f"<ReplayState {self.root} confirmed={self.confirmed()}>"

    def hold(self) -> None:
        """For this job alone, from now until `release`."""
        self.root.mkdir(parents=True, exist_ok=True)
        if not self.has_begun():
            # A run that was killed while it wrote the plan may have left it under another name.
            own = (LOCK, f"{PLAN}{disk.UNFINISHED}")
            strange = next((one.name for one in sorted(self.root.iterdir()) if one.name not in own), None)
            if strange is not None:
                raise Complaint(f"{self.root} is no checkpoint of a replay, but has {strange} in it; name another")
        try:
            self._lock = Lock(self.root / LOCK, LOCK_WAIT_S)
        except Taken as error:
            raise Complaint(f"{self.root} is in use by {error.holder}: another replay goes on there") from None
        disk.remove(self.root / STOP)
        for old in self.root.glob("clock-*.json"):
            disk.remove(old)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def has_begun(self) -> bool:
        """Whether an earlier run has been at a broker."""
        return (self.root / PLAN).exists()

    def begun(self, terms: Terms) -> Begun | None:
        """What an earlier run has found out; None: there was none. Complaint if it was another replay."""
        path = self.root / PLAN
        try:
            found: dict[str, Any] = json.loads(path.read_text("utf-8"))
            if found["version"] != VERSION:
                raise Complaint(f"{path} was written by a newer version")
            theirs = Terms(**{**found["terms"], "order": tuple(found["terms"]["order"])})
            raw = found["begun"]
            last = tuple((one, other) for one, other in raw["last"])
            begun = Begun(**{**raw, "files": tuple(raw["files"]), "last": last})
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise Complaint(f"{path} cannot be read: {error}") from None
        if theirs.vhost is None:
            theirs = replace(theirs, vhost=terms.vhost)
        other = theirs.differs(terms)
        if other is not None:
            raise Complaint(f"{self.root} belongs to another replay: {other}; name another checkpoint")
        return begun

    def begin(self, terms: Terms, begun: Begun) -> None:
        text = json.dumps({"version": VERSION, "terms": asdict(terms), "begun": asdict(begun)}, indent=1)
        disk.put(self.root / PLAN, f"{text}\n".encode())

    # Lanes.

    def lane_lock(self, lane: int) -> Path:
        return self.root / f"lane-{lane:05d}.lock"

    def mark(self, lane: int) -> Mark:
        path = self._lane(lane)
        try:
            return Mark(**json.loads(path.read_text("utf-8")))
        except FileNotFoundError:
            return Mark()
        except (ValueError, TypeError) as error:
            raise Complaint(f"{path} cannot be read: {error}") from None

    def put_mark(self, lane: int, mark: Mark) -> None:
        """Synced, but for the name: after a loss of power it may be the mark before, and a window is sent again."""
        path = self._lane(lane)
        beside = path.with_suffix(".new")
        disk.write(beside, json.dumps(asdict(mark)).encode())
        disk.rename(beside, path)

    def marks(self) -> list[Mark]:
        lanes = [int(path.stem.partition("-")[2]) for path in sorted(self.root.glob("lane-*.json"))]
        return [self.mark(lane) for lane in lanes]

    def confirmed(self) -> int:
        return sum(mark.confirmed for mark in self.marks())

    def ask_to_stop(self) -> None:
        (self.root / STOP).touch()

    def should_stop(self) -> bool:
        return (self.root / STOP).exists()

    def start_clock(self, run: str) -> float:
        """When this run began, in seconds since 1970: now, for the first lane that asks; for all others the same."""
        path = self.root / f"clock-{run}.json"
        own = self.root / f"clock-{run}.{os.getpid()}.new"
        own.write_text(repr(time.time()))
        try:
            os.link(own, path)  # of several at once one succeeds
        except FileExistsError:
            pass  # another lane was first: its time counts
        finally:
            disk.remove(own)
        return float(path.read_text())

    def _lane(self, lane: int) -> Path:
        return self.root / f"lane-{lane:05d}.json"

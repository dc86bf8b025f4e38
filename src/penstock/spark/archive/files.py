"""Archive files: the directory of an archive. Plain Parquet for all readers, and each batch in it once.

    DIR/day=2026-11-16/batch-0000000012-00000.parquet     the table; any reader of Parquet reads it
    DIR/_archive.json        whose messages these are, with which options, and the schema
    DIR/_commit.json         the last change: which batch, and which files go where
    DIR/_staging, _checkpoint, _spool, _lock              readers pass over names that begin with _

A batch is written below _staging and synced; then _commit.json names its files and their places; then they are moved.
A crash before the second step leaves nothing, and Spark brings the batch again; a crash behind it leaves moves to be
made, which is the first thing the next run does. A batch at or below the one in _commit.json is not written again.
Compaction is a change of the same kind: a file comes, and those it was made of go.
Upstream: job.py.  Used by replay/ to read.  Not here: rows (rows.py), merging (compact.py).
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet
from pyspark.sql.types import StructType

from penstock.spark.archive.origin import Seen
from penstock.spark.archive.rows import SOURCE_COLUMNS
from penstock.spark.archive.terms import difference
from penstock.spark.complaint import Complaint
from penstock.spark.ledger import disk
from penstock.spark.lock import Lock, Taken

LABEL: Final = "_archive.json"
COMMIT: Final = "_commit.json"
STAGING: Final = "_staging"
CHECKPOINT: Final = "_checkpoint"
SPOOL: Final = "_spool"
LOCK: Final = "_lock"
VERSION: Final = 1
SUFFIX: Final = ".parquet"
DONE: Final = b'v1\n{"nextBatchWatermarkMs":0}'  # what Spark writes for a batch without watermarks that is done
LOCK_WAIT_S: Final = 15.0  # a run that was killed may leave a process that is just ending

# How the options are called in a complaint.
WORDS: Final = {
    "kind": "kind of source",
    "name": "source",
    "vhost": "vhost",
    "columns": "--columns",
    "partition_by": "--partition-by",
    "json": "--json",
    "keep_body": "--keep-body",
}


@dataclass(frozen=True, slots=True)
class Label:
    """Whose messages an archive holds, and with which options: all runs must have the same."""

    kind: str  # stream or queue
    name: str
    vhost: str
    columns: tuple[str, ...]
    partition_by: tuple[str, ...]
    json: str | None  # as it was given: "infer", or names and types
    keep_body: bool
    fields: str | None = None  # the schema of bodies, as Spark writes one; None: not parsed
    schema: str = ""  # of the table
    names: tuple[tuple[str, str], ...] = ()  # JSON fields and their columns

    def differs(self, other: Label) -> str | None:
        """The first thing in which a run with `other` would be another archive, as a clause."""
        return difference(self, other, WORDS, {SOURCE_COLUMNS: "all"})

    def table_schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.schema))

    def body_fields(self) -> StructType | None:
        return StructType.fromJson(json.loads(self.fields)) if self.fields is not None else None


@dataclass(slots=True)
class Commit:
    """The last change of the directory, and the sums so far."""

    batch: int = -1
    query: str = ""  # whose batch that is: Spark's id of the checkpoint
    rows: int = 0  # in all
    unparsed: int = 0  # in all
    adds: list[tuple[str, str]] = field(default_factory=list)  # below _staging, below DIR
    removes: list[str] = field(default_factory=list)
    seen: Seen | None = None  # of a stream: the message by which it is known again


class ArchiveFiles:
    """The directory of one archive, for the job that writes it; locked from its making until `close`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        if not (root / LABEL).exists():
            strange = next((one.name for one in sorted(root.iterdir()) if not one.name.startswith("_")), None)
            if strange is not None:
                raise Complaint(f"{root} is no archive, but has {strange} in it; name an empty or a new directory")
        try:
            self._lock = Lock(root / LOCK, LOCK_WAIT_S)
        except Taken as error:
            raise Complaint(f"{root} is in use by {error.holder}: another archive job writes there") from None
        self._run = uuid.uuid4().hex
        self._stagings = 0
        self._settled = False  # all moves of the last change are made
        try:
            self.label = read_label(root)
            self.commit = _read_commit(root)
        except BaseException:
            self._lock.release()
            raise

    def __repr__(self) -> str:
        return f"<ArchiveFiles {self.root} batch={self.commit.batch} rows={self.commit.rows}>"

    def close(self) -> None:
        self._lock.release()

    def check(self, wanted: Label) -> None:
        """Complaint if the directory belongs to another archive, or its checkpoint is not its own."""
        if self.label is not None:
            other = self.label.differs(wanted)
            if other is not None:
                raise Complaint(f"{self.root} belongs to another archive: {other}; name another directory")
        found = checkpoint_id(self.root)
        if self.commit.batch >= 0 and found != self.commit.query:
            lost = "is gone" if not found else "is another query's"
            raise Complaint(
                f"{self.root}/{CHECKPOINT} {lost}: nobody can say what is archived already; name a new directory"
            )

    def write_label(self, label: Label) -> None:
        self.label = label
        disk.put(self.root / LABEL, f"{json.dumps({'version': VERSION, **asdict(label)}, indent=1)}\n".encode())

    def recover(self) -> None:
        """Finish the last change, and forget what was never committed."""
        self._apply()
        disk.remove_tree(self.root / STAGING)
        # Of what Spark writes and does not sync, a loss of power may leave the name alone, and Spark would not start
        # again. Nothing is lost with it: what the last batch of the table needs is synced (_sync_checkpoint).
        checkpoint = self.root / CHECKPOINT
        for path in (checkpoint / "metadata", *checkpoint.glob("*/[0-9]*")):
            if path.is_file() and not path.stat().st_size:
                disk.remove(path)
        self._finish_batch()

    def _finish_batch(self) -> None:
        """The batch of the table is done for Spark too. Else it would be planned again, and a queue's messages may be
        acked by then, and gone from the spool: a crash, or a loss of power, may have come before Spark had it on disk.
        """
        name, own = str(self.commit.batch), self.root / CHECKPOINT
        done = own / "commits" / name
        if (own / "offsets" / name).exists() and not done.exists():
            disk.make_directory(done.parent)
            disk.remove(done.with_name(f".{name}.crc"))  # of what was there; Hadoop compares it
            disk.put(done, DONE)
            disk.sync(own)

    def has(self, batch: int) -> bool:
        return batch <= self.commit.batch

    def staged(self, name: str) -> Path:
        """Where something is written before it counts. Never the same twice: a move that _commit.json names counts as
        made when its source is gone, so nothing else may come to stand there. And of this run alone: a JVM that
        outlives a driver that was killed may write on for a moment, and that must not get among this run's files."""
        self._stagings += 1
        return self.root / STAGING / f"{name}-{self._run}-{self._stagings}"

    def put(self, batch: int, staged: Path, unparsed: int, seen: Seen | None = None) -> int:
        """This batch's files are part of the table from now on. The number of their rows."""
        adds: list[tuple[str, str]] = []
        rows = 0
        for number, path in enumerate(sorted(staged.rglob(f"*{SUFFIX}"))):
            count = pyarrow.parquet.read_metadata(path).num_rows
            if not count:
                continue  # Spark writes an empty file for an empty batch
            rows += count
            disk.sync(path)
            place = path.parent.relative_to(staged) / f"batch-{batch:010d}-{number:05d}{SUFFIX}"
            adds.append((path.relative_to(self.root / STAGING).as_posix(), place.as_posix()))
        self._sync_staged(adds)
        old = self.commit
        query = checkpoint_id(self.root)
        self._sync_checkpoint(batch)
        self._change(Commit(batch, query, old.rows + rows, old.unparsed + unparsed, adds, seen=seen or old.seen))
        disk.remove_tree(staged)
        return rows

    def replace(self, merged: Path, place: str, removes: list[str]) -> None:
        """Instead of these files there is one from now on, with the same rows."""
        disk.sync(merged)
        adds = [(merged.relative_to(self.root / STAGING).as_posix(), place)]
        self._sync_staged(adds)
        self._change(replace(self.commit, adds=adds, removes=removes))

    def _sync_staged(self, adds: list[tuple[str, str]]) -> None:
        """That the files can be found there, up to the root: what is committed and is not there counts as moved."""
        staging = self.root / STAGING
        places = {one for staged, _ in adds for one in (staging / staged).parents if one.is_relative_to(self.root)}
        for one in sorted(places):
            disk.sync(one)

    def _sync_checkpoint(self, batch: int) -> None:
        """Which messages a batch has, Spark wrote down and did not sync. It must outlive a loss of power if the batch
        does: planned anew the same number could have more messages, and would be taken for done."""
        own = self.root / CHECKPOINT
        for path in (own / "metadata", own / "offsets" / str(batch), own / "offsets", own):
            if path.exists():
                disk.sync(path)

    def settle(self) -> None:
        """Finish the last change, should its moves have failed half way."""
        if not self._settled:
            self._apply()

    def _change(self, commit: Commit) -> None:
        self.settle()  # first: once the last change is overwritten nobody knows what is left of it
        disk.put(self.root / COMMIT, f"{json.dumps(asdict(commit))}\n".encode())
        self.commit = commit
        self._settled = False
        self._apply()

    def _apply(self) -> None:
        """Make the moves that are not made yet. Once more changes nothing."""
        for staged, place in self.commit.adds:
            source, target = self.root / STAGING / staged, self.root / place
            if source.exists():
                disk.make_directory(target.parent)
                disk.rename(source, target)
        # Also of what was moved before: who did it may have died before this. Before anything is removed.
        self._sync_above([place for _, place in self.commit.adds])
        for place in self.commit.removes:
            disk.remove(self.root / place)
        # Before the next change: with that nobody knows any more that these are to go.
        self._sync_above(self.commit.removes)
        self._settled = True

    def _sync_above(self, places: list[str]) -> None:
        """The directories of these, up to the root: one that was just made must be found in its own."""
        above = {one for place in places for one in (self.root / place).parents if one.is_relative_to(self.root)}
        for one in above:
            if one.exists():  # a person may have removed a day that is old
                disk.sync(one)


def read_label(root: Path) -> Label | None:
    """None: this is no archive."""
    path = root / LABEL
    try:
        found: dict[str, Any] = json.loads(path.read_text("utf-8"))
        if found.pop("version") != VERSION:
            raise Complaint(f"{path} was written by a newer version")
        return Label(
            **{
                **found,
                "columns": tuple(found["columns"]),
                "partition_by": tuple(found["partition_by"]),
                "names": tuple((one, other) for one, other in found["names"]),
            }
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise Complaint(f"{path} cannot be read: {error}") from None


def table_files(root: Path) -> list[str]:
    """The table's files below `root`, in order, as they were before the last change, or as they are behind it: never
    something between, though a job may be in the middle of a change, or have died there."""
    while True:
        commit = _read_commit(root)
        waiting = _waiting(root, commit)
        found = set(_parquet(root))
        if commit == _read_commit(root) and waiting == _waiting(root, commit):
            break
    gone = {place for _, place in commit.adds if place not in waiting} if waiting else set(commit.removes)
    return sorted(found - gone)


def _parquet(root: Path) -> Iterator[str]:
    """All files of a table below `root`; what is hidden from Spark is not even looked into: it comes and goes."""
    for path, directories, files in os.walk(root, onerror=_unless_gone):
        directories[:] = [name for name in directories if not _is_hidden(name)]
        for name in files:
            if name.endswith(SUFFIX) and not _is_hidden(name):
                yield (Path(path) / name).relative_to(root).as_posix()


def _is_hidden(name: str) -> bool:
    """As Spark has it: a directory _x=1 is a value of the column _x."""
    return name.startswith(("_", ".")) and "=" not in name


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):
        raise error  # a directory that cannot be read has rows that would be missed


def _waiting(root: Path, commit: Commit) -> set[str]:
    """Places of the last change to which nothing has been moved yet."""
    return {place for staged, place in commit.adds if (root / STAGING / staged).exists()}


def checkpoint_id(root: Path) -> str:
    """Spark's id of the query whose checkpoint is there; empty if there is none."""
    try:
        return str(json.loads((root / CHECKPOINT / "metadata").read_text("utf-8"))["id"])
    except (OSError, ValueError, KeyError):
        return ""


def _read_commit(root: Path) -> Commit:
    path = root / COMMIT
    try:
        found = json.loads(path.read_text("utf-8"))
        seen = found.get("seen")
        adds = [(one, other) for one, other in found["adds"]]
        return Commit(**{**found, "adds": adds, "seen": Seen(**seen) if seen is not None else None})
    except FileNotFoundError:
        return Commit()
    except (ValueError, KeyError, TypeError) as error:
        raise Complaint(f"{path} cannot be read: {error}") from None

"""Ledger: read the tables as of one commit; commit changes of any number of tables in one atomic step.

Upstream: the flow job (commits); report, advice, twin, archive and anybody's own queries (read).
Downstream: parts.py for files, manifest.py for what counts, disk.py for each step on the disk.

A commit, in this order: parts written and synced; their directories synced; the new manifest written beside the old
one, synced, renamed over it, its directory synced; parts that went out of use a grace period ago removed. A crash
before the rename leaves the last commit, and orphans that the next writer removes; after it, the new one.
A batch of a query that is in the tables already changes nothing: Spark repeats the last batch after a crash.

Reading needs no lock. A part stays for GRACE_S after it went out of use; whoever reads longer gets an error, not rows
of two commits.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.spark.complaint import Complaint
from penstock.spark.ledger import disk
from penstock.spark.ledger.change import Change
from penstock.spark.ledger.manifest import Manifest, Part, decoded, moment
from penstock.spark.ledger.parts import WINDOW, Names, read_part, write_frame, write_rows
from penstock.spark.lock import Lock, Taken
from penstock.spark.tables.schema import TABLES, schema
from penstock.spark.tables.windows import micros

GRACE_S = 300.0  # how long a part that no longer counts is there for those who still read it
READ_TRIES = 3  # a reader that was overtaken all the same begins again with the newest manifest
PART = re.compile(r"\d{12}-\d+\.parquet")
APART = frozenset({"events", "quality"})  # not derived from windows


class Ledger:
    """A directory of tables. To write: `with Ledger(root).writing() as ledger`."""

    def __init__(self, root: Path | str, grace_s: float = GRACE_S) -> None:
        self.root = Path(root)
        self._own = self.root / "_ledger"
        self._file = self._own / "manifest.json"
        self.staging = self._own / "staging"
        self._grace_s = grace_s
        self._lock: Lock | None = None
        self._held = Manifest()  # what a writer knows: nobody else changes it

    # Reading.

    def manifest(self) -> Manifest:
        """As of the last commit. A Complaint where there are no tables."""
        if self._lock is not None:
            return self._held
        if not self._file.exists():
            raise Complaint(f"there are no tables in {self.root}: penstock pipeline flow makes them")
        return self._on_disk()

    def _on_disk(self) -> Manifest:
        try:
            return decoded(self._file.read_bytes())
        except FileNotFoundError:
            return Manifest()
        except (ValueError, KeyError, TypeError) as error:
            raise Complaint(f"{self._file} is damaged: {error}") from None

    def tables(self) -> list[str]:
        """Those that have rows."""
        return sorted(name for name, parts in self.manifest().tables.items() if parts)

    def parts(self, table: str, since: datetime | None = None, until: datetime | None = None) -> list[Part]:
        return _between(self.manifest(), table, since, until)

    def files(self, table: str, since: datetime | None = None, until: datetime | None = None) -> list[Path]:
        """Those in which rows of windows in [since, until) can be."""
        return [self.root / part.path for part in self.parts(table, since, until)]

    def rows(self, table: str) -> int:
        return sum(part.rows for part in self.parts(table))

    def newest(self) -> datetime | None:
        """The start of the newest window of any derived table; None while there is none."""
        tables = self.manifest().tables
        lasts = [part.last for name, parts in tables.items() if name not in APART for part in parts]
        return moment(max(lasts)) if lasts else None

    @property
    def window_s(self) -> float | None:
        """What the derived tables are sliced by; None while there are none."""
        return self.manifest().window_s

    def arrow(
        self,
        table: str,
        since: datetime | None = None,
        until: datetime | None = None,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
    ) -> pa.Table:
        """The rows of windows in [since, until), without a JVM; a table that has no rows may have no columns either.

        where: only rows of which this is true. No others are in memory, however many the table has.
        """
        for left in reversed(range(READ_TRIES)):
            try:
                return self._arrow(table, since, until, columns, where)
            except FileNotFoundError:
                if not left:
                    raise
        raise AssertionError  # the loop returns or raises

    def _arrow(
        self,
        table: str,
        since: datetime | None,
        until: datetime | None,
        columns: Sequence[str] | None,
        where: pc.Expression | None,
    ) -> pa.Table:
        named = None if columns is None else list(columns)
        if named is not None and (since or until) and WINDOW not in named:
            named.append(WINDOW)
        read = [read_part(path, named, where) for path in self.files(table, since, until)]
        if not read:
            return pa.table({})
        rows = pa.concat_tables(read, promote_options="default")
        if since is not None:
            rows = rows.filter(pc.greater_equal(rows[WINDOW], pa.scalar(since, rows[WINDOW].type)))
        if until is not None:
            rows = rows.filter(pc.less(rows[WINDOW], pa.scalar(until, rows[WINDOW].type)))
        return rows if columns is None else rows.select([name for name in columns if name in rows.column_names])

    def read(
        self, spark: SparkSession, table: str, since: datetime | None = None, until: datetime | None = None
    ) -> DataFrame:
        """The rows of windows in [since, until), by Spark; of a table that has none, its columns."""
        files = [str(path) for path in self.files(table, since, until)]
        known = schema(table) if table in TABLES else None
        if known is None and not files:
            raise Complaint(f"there is no table {table!r} in {self.root}: it has {', '.join(self.tables()) or 'none'}")
        if not files:
            return spark.createDataFrame([], known)
        reader = spark.read if known is None else spark.read.schema(known)
        frame = reader.parquet(*files)
        if since is not None:
            frame = frame.filter(F.col(WINDOW) >= F.lit(since))
        return frame if until is None else frame.filter(F.col(WINDOW) < F.lit(until))

    # Writing.

    @contextmanager
    def writing(self) -> Iterator[Ledger]:
        """Only one process at a time; another one gets a Complaint."""
        self.open()
        try:
            yield self
        finally:
            self.close()

    def open(self) -> None:
        """Take the lock, and clear away what a crash left behind."""
        assert self._lock is None, "open already"
        if not self._own.is_dir():
            disk.make_directory(self._own)
            disk.sync(self.root)
            disk.sync(self.root.parent)
        try:
            self._lock = Lock(self._own / "lock")
        except Taken as error:
            raise Complaint(f"the tables in {self.root} are being written by {error.holder}") from None
        try:
            self._held = self._on_disk()
            self.clear()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def has(self, query: str, batch: int) -> bool:
        """Whether this batch is in the tables."""
        return batch <= self._held.batches.get(query, -1)

    def commit(
        self,
        batch: int | None,
        changes: Iterable[Change],
        query: str = "",
        marks: Mapping[str, int] | None = None,
        window_s: float | None = None,
    ) -> bool:
        """All changes in one step; False, and nothing is done, if this batch of the query was committed before. Each
        change is written before the next is asked for.

        marks: by stream, the offset behind the last event that is in the tables with this commit.
        """
        assert self._lock is not None, "only who holds the lock commits"
        if batch is not None and self.has(query, batch):
            return False
        now = time.time()
        after = self._held
        names = Names(self.root, after.version + 1)
        for change in changes:
            after = self._changed(after, change, names, now)
        after = replace(after, marks={**after.marks, **(marks or {})})
        if batch is not None:
            after = replace(after, batches={query: batch})  # of another query nothing will come any more
        if window_s is not None:
            after = replace(after, window_s=window_s)
        self.put(after)
        return True

    def _changed(self, manifest: Manifest, change: Change, names: Names, now: float) -> Manifest:
        if isinstance(change.rows, pa.Table):
            new = write_rows(change.rows, change.table, names)
        else:
            new = write_frame(change.rows, change.table, self.staging / change.table, names)
        if not change.replaces:
            return manifest.without(change.table, frozenset(), now, tuple(new))
        since = micros(change.since) if change.since is not None else None
        gone = []
        for part in manifest.tables.get(change.table, ()):
            if since is not None and part.last < since:
                continue
            gone.append(part.path)
            if since is not None and part.first < since:
                # Some of its windows stay: they move to a part of their own.
                assert change.since is not None
                rows = read_part(self.root / part.path)
                rows = rows.filter(pc.less(rows[WINDOW], pa.scalar(change.since, rows[WINDOW].type)))
                new += write_rows(rows, change.table, names)
        return manifest.without(change.table, frozenset(gone), now, tuple(new))

    def put(self, after: Manifest) -> None:
        """Make this what counts. Its parts are written and synced; their names in their directories are not yet."""
        assert self._lock is not None
        now = time.time()
        known = {part.path for parts in self._held.tables.values() for part in parts}
        new = [part.path for parts in after.tables.values() for part in parts if part.path not in known]
        for directory in sorted({(self.root / path).parent for path in new}):
            disk.sync(directory)
        # A time that is to come is one of a clock that was set back.
        kept = tuple(one for one in after.dropped if 0 <= now - one[1] < self._grace_s)
        late = [path for path, _ in set(after.dropped) - set(kept)]
        after = replace(after, version=self._held.version + 1, dropped=kept)
        try:
            disk.put(self._file, after.encoded())
        except OSError:
            # Whether it counts is for the disk to say: a second try must not begin from what no longer is.
            self._held = self._on_disk()
            raise
        self._held = after
        # Last: a part that this manifest no longer names may go. After a crash before this, they are orphans.
        for path in late:
            self._discard(self.root / path)

    def clear(self) -> None:
        """Remove what no manifest names: left by a crash. What went out of use a moment ago keeps its grace."""
        disk.remove_tree(self.staging)
        disk.remove(self._file.with_name(f"{self._file.name}{disk.UNFINISHED}"))
        named = {part.path for parts in self._held.tables.values() for part in parts}
        named |= {path for path, _ in self._held.dropped}
        for path in sorted(self.root.glob("*/day=*/*.parquet")):
            relative = path.relative_to(self.root).as_posix()
            if PART.fullmatch(path.name) and relative not in named:
                self._discard(path)

    def _discard(self, path: Path) -> None:
        disk.remove(path)
        disk.remove_empty(path.parent)

    def __repr__(self) -> str:
        return f"<Ledger {self.root} version={self._held.version} {'writing' if self._lock else 'reading'}>"


def _between(manifest: Manifest, table: str, since: datetime | None, until: datetime | None) -> list[Part]:
    low = micros(since) if since is not None else None
    high = micros(until) if until is not None else None
    return [
        part
        for part in manifest.tables.get(table, ())
        if (low is None or part.last >= low) and (high is None or part.first < high)
    ]

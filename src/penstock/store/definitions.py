"""DefinitionStore: durable definitions in SQLite, written by a thread of its own. The real broker/ledger.py:Ledger.

Place in the chain: beside it. The broker's thread puts and drops; when its call is over, all that waits is handed to
the write thread as one batch, which is one transaction; when that is on disk, the callbacks of `after_commit` run on
the broker's thread again. While one batch is written the next one gathers, so under load many changes share one sync.

The order that makes a change whole: `put` and `drop` only gather. The batch is closed by a call that `post` runs after
the broker's present call has ended, so what one call changes is never split over two transactions.

WAL, synchronous=FULL: one sync per commit where a rollback journal needs three, and a reader (`definitions export`
beside a running broker) never stands in the writer's way.

Not here: what a definition means (broker/definitions.py), one process per directory (lock.py), the event loop (`post`).
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

FILE_NAME: Final = "definitions.sqlite"
FORMAT: Final = 1  # of the tables below; a file with a higher one was written by a newer Penstock
RETRY_S: Final = 1.0  # until a failed write is tried again: soon for a person, seldom for a full disk
BUSY_S: Final = 0.25  # nobody else writes to this file; somebody who looks inside by hand may hold it for a moment

SCHEMA: Final = (
    "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    # An ordinary rowid keeps the order in which things were made, across updates too.
    "CREATE TABLE definitions (kind TEXT NOT NULL, key TEXT NOT NULL, body TEXT NOT NULL, UNIQUE (kind, key))",
    f"INSERT INTO meta VALUES ('format', '{FORMAT}')",
)
PUT: Final = (
    "INSERT INTO definitions (kind, key, body) VALUES (?, ?, ?) "
    "ON CONFLICT (kind, key) DO UPDATE SET body = excluded.body"
)
DROP: Final = "DELETE FROM definitions WHERE kind = ? AND key = ?"


class DefinitionError(Exception):
    """The file cannot be used; one line with its path and the reason."""


class Definition(NamedTuple):
    kind: str
    key: tuple[str, ...]
    body: dict[str, Json]


class Batch:
    """Changes of one transaction: the last one per definition counts; None is a drop."""

    __slots__ = ("callbacks", "changes")

    def __init__(self) -> None:
        self.changes: dict[tuple[str, str], str | None] = {}
        self.callbacks: list[Callable[[], None]] = []


class DefinitionStore:
    """All methods are for the broker's thread."""

    __slots__ = (
        "_awake",
        "_closing",
        "_database",
        "_failed",
        "_flush_posted",
        "_handed",
        "_in_flight",
        "_inode",
        "_news",
        "_post",
        "_retry_s",
        "_thread",
        "_waiting",
        "commits",
        "error",
        "path",
    )

    def __init__(
        self,
        directory: Path,
        post: Callable[[Callable[[], None]], object],
        failed: Callable[[str], None],
        retry_s: float = RETRY_S,
    ) -> None:
        """`post` has a function called on the broker's thread, after its present call, from whatever thread.

        `failed` is told why nothing can be written, once per reason, and gets an empty text when it can be again.
        """
        self.path = directory / FILE_NAME
        self.error = ""  # why the last try failed; empty if it did not
        self.commits = 0
        self._post = post
        self._failed = failed
        self._retry_s = retry_s
        self._waiting = Batch()
        self._in_flight: Batch | None = None
        self._flush_posted = False
        self._awake = threading.Condition()  # guards the next three, which both threads touch
        self._handed: Batch | None = None
        self._closing = False
        self._news: deque[str] = deque()  # outcome of every try: empty, or why it failed
        self._database = _open(self.path)
        self._inode = self.path.stat().st_ino
        self._thread = threading.Thread(target=self._write_loop, name="definitions", daemon=True)
        self._thread.start()

    # Reading, at the start.

    def load(self) -> list[Definition]:
        """Everything, in the order it was made. Before the first put: the connection has one user at a time."""
        assert self._in_flight is None, "load comes first"
        return _read(self._database, self.path)

    # The ledger.

    def put(self, kind: str, key: tuple[str, ...], body: dict[str, Json]) -> None:
        self._change(kind, key, json.dumps(body, separators=(",", ":")))

    def drop(self, kind: str, key: tuple[str, ...]) -> None:
        self._change(kind, key, None)

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call this when all that was put or dropped until now is on disk; at once if nothing waits.

        While writing fails it is not called: what is not on disk is not answered. See `error`.
        """
        if self._waiting.changes:
            self._waiting.callbacks.append(callback)
        elif self._in_flight is not None:
            self._in_flight.callbacks.append(callback)
        else:
            callback()

    def _change(self, kind: str, key: tuple[str, ...], body: str | None) -> None:
        self._waiting.changes[kind, json.dumps(key)] = body
        if self._in_flight is None and not self._flush_posted:
            self._flush_posted = True
            self._post(self._flush)

    def _flush(self) -> None:
        """Hand over what waits, if the write thread is free. The broker's call that put it is over."""
        self._flush_posted = False
        if self._in_flight is not None or not self._waiting.changes or self._closing:
            return
        self._in_flight, self._waiting = self._waiting, Batch()
        with self._awake:
            self._handed = self._in_flight
            self._awake.notify()

    def _hear(self) -> None:
        """The write thread has news. Callbacks run here, so they may put and wait again."""
        while self._news:
            text = self._news.popleft()
            if text != self.error:
                self.error = text
                self._failed(text)
            if text:
                continue
            batch = self._in_flight
            assert batch is not None, "written, but by whom"
            self._in_flight = None
            self.commits += 1
            self._flush()
            for callback in batch.callbacks:
                callback()

    # The end.

    def close(self) -> None:
        """Write what waits and close the file. What cannot be written now is lost, and `failed` is told so."""
        with self._awake:
            self._closing = True
            self._awake.notify()
        self._thread.join()  # it tries what it has in hand once more
        self._hear()
        while self._waiting.changes and self._in_flight is None:
            self._in_flight, self._waiting = self._waiting, Batch()
            self._news.append(self._write(self._in_flight))
            self._hear()
        lost = len(self._waiting.changes) + (len(self._in_flight.changes) if self._in_flight is not None else 0)
        if lost:
            self._failed(f"{self.path}: {lost} changes of definitions are lost")
        self._database.close()

    # The write thread.

    def _write_loop(self) -> None:
        while True:
            with self._awake:
                while self._handed is None and not self._closing:
                    self._awake.wait()
                batch = self._handed
            if batch is None:
                return
            text = self._write(batch)
            with self._awake:
                if not text:
                    self._handed = None
                self._news.append(text)
                if text and self._closing:
                    return
            self._post(self._hear)
            if text:
                with self._awake:
                    self._awake.wait_for(self._is_closing, self._retry_s)

    def _is_closing(self) -> bool:
        return self._closing

    def _write(self, batch: Batch) -> str:
        """One transaction. Why it failed, or an empty text."""
        puts = [(kind, key, body) for (kind, key), body in batch.changes.items() if body is not None]
        drops = [name for name, body in batch.changes.items() if body is None]
        try:
            # A file that was moved away would take all writes, and lose them.
            if os.stat(self.path).st_ino != self._inode:
                return f"{self.path}: another file is in its place"
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(PUT, puts)
            self._database.executemany(DROP, drops)
            self._database.execute("COMMIT")
        except OSError as error:
            return f"{self.path}: {error.strerror}"
        except sqlite3.Error as error:
            self._roll_back()
            return f"{self.path}: {error}"
        return ""

    def _roll_back(self) -> None:
        try:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the error that led here is the one that is told; a transaction left open fails the next BEGIN

    def __repr__(self) -> str:
        state = f"failing={self.error!r}" if self.error else "ok"
        return f"<DefinitionStore {self.path} waiting={len(self._waiting.changes)} {state}>"


def read_definitions(directory: Path) -> list[Definition]:
    """What is on disk now; a broker may be writing to it. No file is no definitions."""
    path = directory / FILE_NAME
    if not path.exists():
        return []
    try:
        database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    except sqlite3.Error as error:
        raise DefinitionError(f"{path}: {error}") from None
    try:
        database.execute("PRAGMA query_only = ON")
        _check_format(database, path)
        return _read(database, path)
    except sqlite3.Error as error:
        raise DefinitionError(f"{path}: {error}") from None
    finally:
        database.close()


def _open(path: Path) -> sqlite3.Connection:
    try:
        database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise DefinitionError(f"{path}: {error}") from None
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        if not database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            database.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA:
                database.execute(statement)
            database.execute("COMMIT")
        _check_format(database, path)
        told = str(database.execute("PRAGMA quick_check(1)").fetchone()[0])
        if told != "ok":
            raise DefinitionError(f"{path}: it is damaged: {' '.join(told.split())}")
    except sqlite3.Error as error:
        database.close()
        raise DefinitionError(f"{path}: {error}") from None
    except DefinitionError:
        database.close()
        raise
    return database


def _check_format(database: sqlite3.Connection, path: Path) -> None:
    if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone() is None:
        raise DefinitionError(f"{path}: it is a database, but not one of Penstock's definitions")
    row = database.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
    found = str(row[0]) if row is not None else ""
    if not found.isdecimal():
        raise DefinitionError(f"{path}: it does not say its format")
    if int(found) > FORMAT:
        raise DefinitionError(
            f"{path}: it has format {found}, written by a newer Penstock; this one knows format {FORMAT}"
        )


def _read(database: sqlite3.Connection, path: Path) -> list[Definition]:
    found: list[Definition] = []
    try:
        for kind, key, body in database.execute("SELECT kind, key, body FROM definitions ORDER BY rowid"):
            found.append(_definition(path, str(kind), str(key), str(body)))
    except sqlite3.Error as error:
        raise DefinitionError(f"{path}: {error}") from None
    return found


def _definition(path: Path, kind: str, key: str, body: str) -> Definition:
    try:
        names, values = json.loads(key), json.loads(body)
    except ValueError:
        raise DefinitionError(f"{path}: it is damaged: {kind} {key} cannot be read") from None
    if not isinstance(names, list) or not isinstance(values, dict):
        raise DefinitionError(f"{path}: it is damaged: {kind} {key} has the wrong shape")
    return Definition(kind, tuple(map(str, names)), values)

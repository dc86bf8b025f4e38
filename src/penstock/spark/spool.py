"""Spool: what was taken from a queue and is not yet safe in Spark, in files that a restarted query finds again.

Upstream: queuereader.py, in the driver.  Downstream: its tasks, which read the files.
A queue gives a message once, and Spark may ask for a batch twice. So each batch is written here before Spark hears of
it: `<first row>-<end>.arrow`, synced and renamed, there as a whole or not at all. Rows are numbered for ever, by the
spool. What is committed, that is in Spark's own log, goes in three steps: the state is written (its rows, and the
identities of its messages), the messages are acked (intake.py), the files are removed. A crash between any two of them
is mended by the next start. Identities are kept after the ack too: a broker that is killed may forget an ack, and
deliver again.

    lock             held by the process whose query uses the spool
    state.json       the spool's own id, the first row that is not committed, sequences of committed messages as ranges
    ids              message ids of committed messages, where the broker stamps no sequence: the last IDS_KEPT of them
    <a>-<b>.arrow    rows a to b - 1; their sequences as ranges in the schema's metadata, their ids as a last column

Bounds: files hold at most one batch that runs and one that nobody knows of yet; RANGES_MAX and IDS_KEPT bound the rest.
Not here: connections and acks (intake.py), offsets and Spark (queuereader.py).
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa

from penstock.spark.identity import Identities, Ranges
from penstock.spark.lock import Lock, Taken

# 100,000 gaps between what this query took and what others took, at 40 bytes each in the state that every batch writes.
RANGES_MAX: Final = 100_000
# More than a broker can forget acks of in one crash: several times the largest prefetch. About 10 MB of memory.
IDS_KEPT: Final = 200_000
VERSION: Final = 1
LOCK_FILE: Final = "lock"
STATE_FILE: Final = "state.json"
IDS_FILE: Final = "ids"
ID_COLUMN: Final = "identity"
METADATA_KEY: Final = b"penstock.sequences"
_NAME: Final = re.compile(r"(\d{20})-(\d{20})\.arrow")
_UNFINISHED: Final = ".tmp"
_UNFINISHED_NAME: Final = re.compile(r"(\d{20}-\d{20}|state|ids)\.tmp")


class SpoolError(Exception):
    """The spool cannot be used; one line for the user."""


class SpoolInUse(Exception):
    """Another query has this spool; one line for the user."""


class SpoolFile:
    """Rows `start` to `end` - 1, and who they are."""

    __slots__ = ("end", "identities", "path", "start")

    def __init__(self, path: Path, start: int, end: int, identities: Identities) -> None:
        self.path = path
        self.start = start
        self.end = end
        self.identities = identities

    def __repr__(self) -> str:
        return f"<SpoolFile {self.start}-{self.end}>"


class Spool:
    """An open spool directory. Its lock is held until `close`, or the end of the process."""

    __slots__ = ("_ids", "_ids_order", "_known", "_lock", "committed", "directory", "files", "id")

    def __init__(self, directory: Path, lock_wait_s: float = 0.0) -> None:
        """Open or make it. SpoolInUse if another query has it for longer than `lock_wait_s`."""
        self.directory = directory
        try:
            make_directory(directory)
        except OSError as error:
            raise SpoolError(f"spool {directory}: cannot make it: {error.strerror}") from None
        self._lock = _locked(directory, lock_wait_s)
        self.id = ""
        self.committed = 0  # the first row that may not be in Spark's log
        self.files: list[SpoolFile] = []  # not committed, in order, without a gap
        self._known = Identities()  # sequences of what is committed
        self._ids: dict[bytes, int] = {}  # message id -> the end of its file, while that is not committed; else 0
        self._ids_order: list[bytes] = []  # what the file of ids holds
        try:
            self._load()
        except BaseException:
            self._lock.release()
            raise

    def __repr__(self) -> str:
        return f"<Spool {self.directory} committed={self.committed} end={self.end} files={len(self.files)}>"

    @property
    def end(self) -> int:
        """The number of the next row."""
        return self.files[-1].end if self.files else self.committed

    def close(self) -> None:
        self._lock.release()

    def need_of_sequence(self, life: str, position: int) -> int | None:
        """Up to which row must be committed before this message may be acked; 0 if it may now, None if it is new."""
        if self._known.has(life, position):
            return 0
        for file in self.files:
            if file.identities.has(life, position):
                return file.end
        return None

    def free_until(self, life: str, position: int) -> int:
        """The first position from this one on that is not new."""
        known = self._known.next_from(life, position)
        return min([known, *(file.identities.next_from(life, position) for file in self.files)])

    def need_of_id(self, message_id: bytes) -> int | None:
        """The same for a message that is known by its message id only."""
        return self._ids.get(message_id)

    def write(self, batches: Sequence[pa.RecordBatch], identities: Identities) -> SpoolFile:
        """Append rows. On return they are on disk, and a restart finds them.

        `identities.ids` has one id per row, b"" for none; or it is empty, if no row is known by its id."""
        start = self.end
        end = start + sum(batch.num_rows for batch in batches)
        path = self.directory / f"{start:020}-{end:020}.arrow"
        if any(identities.ids):
            batches = _with_ids(batches, identities.ids)
        schema = batches[0].schema.with_metadata({METADATA_KEY: _dump_lives(identities).encode()})
        unfinished = path.with_suffix(_UNFINISHED)
        with pa.OSFile(str(unfinished), "wb") as out, pa.ipc.new_file(out, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        _finish(unfinished, path)
        file = SpoolFile(path, start, end, identities)
        self._add(file)
        return file

    def after(self, row: int) -> SpoolFile | None:
        """The file that begins with this row; None if none does."""
        return next((file for file in self.files if file.start == row), None)

    def between(self, start: int, end: int) -> list[SpoolFile]:
        """The files with rows `start` to `end` - 1. SpoolError if they are not all here."""
        found = [file for file in self.files if start <= file.start and file.end <= end]
        if start < end and (not found or found[0].start != start or found[-1].end != end):
            raise SpoolError(f"spool {self.directory} does not have rows {start} to {end}: it has {self._told()}")
        return found

    def commit(self, row: int) -> None:
        """All rows below this one are in Spark's log. On return that is on disk; `sweep` removes the files.

        SpoolError if no file ends there: the offset is another spool's, and acking by it would lose messages."""
        if row == self.committed:
            return
        done = [file for file in self.files if file.end <= row]
        if not done or done[-1].end != row:
            raise SpoolError(f"spool {self.directory}: row {row} is not the end of a batch: it has {self._told()}")
        self._remember_ids(done)
        for file in done:
            self._known.add_all(file.identities)
            for life in file.identities.lives:
                self._known.touch(life)
        self._known.trim(RANGES_MAX)
        self.committed = row
        self._write_state()

    def skip_to(self, row: int) -> None:
        """Go on at this row, where files are missing: their messages were not acked, and come again as later rows."""
        if row <= self.end:
            raise SpoolError(f"spool {self.directory}: row {row} is not the end of a batch: it has {self._told()}")
        self.commit(self.end)
        self.committed = row
        self._write_state()

    def sweep(self) -> None:
        """Remove the files of what is committed. After the acks: without a file, only the state knows its messages."""
        while self.files and self.files[0].end <= self.committed:
            self.files.pop(0).path.unlink(missing_ok=True)

    # Loading

    def _load(self) -> None:
        found = sorted(self.directory.iterdir())
        for path in found:
            # Only what this module has made: a user may name a directory that is not empty.
            if _UNFINISHED_NAME.fullmatch(path.name):
                path.unlink()
        names = [path for path in found if _NAME.fullmatch(path.name)]
        if not self._read_state():
            if names:
                raise SpoolError(f"spool {self.directory} has files but no {STATE_FILE}: it is damaged, or no spool")
            self.id = secrets.token_hex(8)
            self._write_state()
        self._load_ids()
        for path in names:
            match = _NAME.fullmatch(path.name)
            assert match is not None
            start, end = int(match[1]), int(match[2])
            if end <= self.committed:
                path.unlink()  # a crash came before `sweep`
                continue
            if start != self.end:
                raise SpoolError(f"spool {self.directory}: rows {self.end} to {start} are missing: it is damaged")
            self._add(SpoolFile(path, start, end, _read_identities(path)))

    def _add(self, file: SpoolFile) -> None:
        for message_id in file.identities.ids:
            if message_id:
                self._ids[message_id] = file.end
        self.files.append(file)

    def _told(self) -> str:
        return f"rows {self.committed} to {self.end}" if self.files else f"none, and {self.committed} is the next"

    def _read_state(self) -> bool:
        try:
            text = (self.directory / STATE_FILE).read_text("utf-8")
        except FileNotFoundError:
            return False
        try:
            state = json.loads(text)
            version, self.id, self.committed = state["version"], str(state["spool"]), int(state["committed"])
            self._known = _parse_lives(state["lives"])
        except (ValueError, KeyError, TypeError) as error:
            raise SpoolError(f"spool {self.directory}: {STATE_FILE} cannot be read: {error!r}") from None
        if version != VERSION:
            raise SpoolError(f"spool {self.directory} is of version {version}, this is a program for {VERSION}")
        return True

    def _write_state(self) -> None:
        state = {
            "version": VERSION,
            "spool": self.id,
            "committed": self.committed,
            "lives": {life: ranges.pairs() for life, ranges in self._known.lives.items()},
        }
        _write_file(self.directory / STATE_FILE, json.dumps(state, separators=(",", ":")).encode())

    # Message ids: a file of length byte and id, appended to; its end may be torn by a crash.

    def _load_ids(self) -> None:
        path = self.directory / IDS_FILE
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return
        at = 0
        while at < len(content) and at + 1 + content[at] <= len(content):
            self._ids_order.append(content[at + 1 : at + 1 + content[at]])
            at += 1 + content[at]
        if at < len(content):
            os.truncate(path, at)  # what is torn was not committed: its file of rows is still here
        del self._ids_order[:-IDS_KEPT]
        self._ids = dict.fromkeys(self._ids_order, 0)

    def _remember_ids(self, done: Sequence[SpoolFile]) -> None:
        new = [message_id for file in done for message_id in file.identities.ids if message_id]
        if not new:
            return
        ends = {file.end for file in done}
        for message_id in new:
            if self._ids.get(message_id) in ends:  # else a file that is not committed has it too
                self._ids[message_id] = 0
        self._ids_order += new
        path = self.directory / IDS_FILE
        if len(self._ids_order) < 2 * IDS_KEPT:
            with path.open("ab") as out:
                out.write(_pack_ids(new))
                out.flush()
                os.fsync(out.fileno())
            return
        forgotten = self._ids_order[:-IDS_KEPT]
        del self._ids_order[:-IDS_KEPT]
        kept = set(self._ids_order)
        for message_id in forgotten:
            if message_id not in kept and self._ids.get(message_id) == 0:
                del self._ids[message_id]
        _write_file(path, _pack_ids(self._ids_order))


def _locked(directory: Path, wait_s: float) -> Lock:
    try:
        return Lock(directory / LOCK_FILE, wait_s)
    except Taken as error:
        raise SpoolInUse(
            f"spool {directory} is in use by {error.holder}: each query on a queue needs a spool of its own; "
            "give this one another consumerName or spoolDir"
        ) from None
    except OSError as error:
        raise SpoolInUse(f"spool {directory}: cannot lock it: {error.strerror}") from None


def make_directory(directory: Path) -> None:
    """Make it, and all above it that are missing, so that a power loss does not take it away. For its owner only."""
    if directory.is_dir():
        return
    make_directory(directory.parent)
    directory.mkdir(mode=0o700, exist_ok=True)
    _sync(directory.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _finish(unfinished: Path, path: Path) -> None:
    """Synced before it has its name, and the name synced too: what is there is whole, also after a power loss."""
    _sync(unfinished)
    unfinished.rename(path)
    _sync(path.parent)


def _write_file(path: Path, content: bytes) -> None:
    unfinished = path.with_suffix(_UNFINISHED)
    unfinished.write_bytes(content)
    _finish(unfinished, path)


def _pack_ids(ids: Sequence[bytes]) -> bytes:
    return b"".join(bytes((len(one),)) + one for one in ids)


def _with_ids(batches: Sequence[pa.RecordBatch], ids: Sequence[bytes]) -> list[pa.RecordBatch]:
    """The batches with a last column for the ids, null where there is none."""
    found = []
    at = 0
    for batch in batches:
        part = [one or None for one in ids[at : at + batch.num_rows]]
        at += batch.num_rows
        found.append(batch.append_column(ID_COLUMN, pa.array(part, pa.binary())))
    return found


def _dump_lives(identities: Identities) -> str:
    return json.dumps({life: ranges.pairs() for life, ranges in identities.lives.items()}, separators=(",", ":"))


def _parse_lives(lives: dict[str, list[tuple[int, int]]]) -> Identities:
    identities = Identities()
    for life, pairs in lives.items():
        identities.lives[life] = Ranges((int(start), int(stop)) for start, stop in pairs)
    return identities


def _read_identities(path: Path) -> Identities:
    """The identities of a file's messages, out of the file itself."""
    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_file(source) as reader:
            identities = _parse_lives(json.loads(reader.schema.metadata[METADATA_KEY]))
            column = reader.schema.get_field_index(ID_COLUMN)
            if column >= 0:
                for index in range(reader.num_record_batches):
                    values = reader.get_batch(index).column(column).to_pylist()
                    identities.ids += [value or b"" for value in values]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpoolError(f"spool file {path} cannot be read: {error}") from None
    return identities

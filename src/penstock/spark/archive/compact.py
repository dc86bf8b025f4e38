"""Archive compaction: many small files of one directory of an archive become one.

A batch adds a file to each directory it has rows for; a run that follows a slow stream, or one started by cron every
minute, makes thousands. Files are merged in the driver, row group by row group, so that memory is that of one of them.
The change goes by _commit.json as a batch does: a crash in the middle is finished, or forgotten, by the next run.
A reader that lists the directory in the moment between the two steps sees rows twice; replay reads _commit.json and
does not. A merged file has a name that none had before: who has listed another one never finds its rows under it.
What cannot be read is left as it is, with a line; files of different schemas are not merged with each other.
Upstream: job.py.  Downstream: files.py.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.archive.files import SUFFIX, ArchiveFiles, table_files
from penstock.spark.ledger import disk

SMALL_BYTES: Final = 32 * 1024 * 1024  # a file of this size or more is left alone
MERGED_BYTES: Final = 128 * 1024 * 1024  # about what a merged file has at most, if it is made of more than FILES_MIN
FILES_MIN: Final = 10  # fewer small files in one directory do no harm
GROUP_ROWS: Final = 100_000  # of a row group in a merged file
GROUP_BYTES: Final = 64 * 1024 * 1024  # in memory: bodies may be large
READ_ROWS: Final = 10_000  # at a time
MERGED: Final = "merged"
MERGED_STEM: Final = re.compile(rf"(.+)-{MERGED}(?:-(\d+))?")

Warn = Callable[[str], None]


class Unreadable(Exception):
    """A file that is no Parquet, or damaged."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"{name} cannot be read, and is not merged: {str(error).partition(chr(10))[0]}")
        self.name = name


def compact(files: ArchiveFiles, stop: threading.Event, warn: Warn) -> int:
    """Merge what is small; how many files there are less."""
    files.settle()  # first: what is listed here must not change any more
    fewer = 0
    for _, names in groupby(table_files(files.root), lambda name: PurePosixPath(name).parent):
        for alike in _alike(files.root, list(names), warn):
            for group in _groups(files.root, alike):
                if stop.is_set():
                    return fewer
                fewer += _merge(files, group, warn)
    return fewer


def _alike(root: Path, names: list[str], warn: Warn) -> list[list[str]]:
    """The small ones, those together that have one schema; none, where there are too few of them."""
    small = [name for name in names if (root / name).stat().st_size < SMALL_BYTES]
    if len(small) < FILES_MIN:
        return []
    kinds: list[tuple[pa.Schema, list[str]]] = []
    for name in small:
        try:
            schema = _schema(root, name)
        except Unreadable as error:
            warn(f"{root}: {error}")
            continue
        same = next((found for one, found in kinds if one == schema), None)
        if same is None:
            kinds.append((schema, [name]))
        else:
            same.append(name)
    return [found for _, found in kinds]


def _groups(root: Path, names: list[str]) -> Iterator[list[str]]:
    """Files that stand together, each group at least FILES_MIN and about MERGED_BYTES, or what so many have."""
    group: list[str] = []
    size = 0
    for name in names:
        bytes_ = (root / name).stat().st_size
        if size + bytes_ > MERGED_BYTES and len(group) >= FILES_MIN:
            yield group
            group, size = [], 0
        group.append(name)
        size += bytes_
    if len(group) >= FILES_MIN:
        yield group


def _merge(files: ArchiveFiles, group: list[str], warn: Warn) -> int:
    """One file instead of these; how many there are less."""
    while len(group) >= FILES_MIN:
        staged = files.staged(MERGED) / f"{MERGED}{SUFFIX}"
        disk.make_directory(staged.parent)
        try:
            _write(files.root, group, staged)
        except Unreadable as error:  # behind its schema, which could be read
            warn(f"{files.root}: {error}")
            group = [name for name in group if name != error.name]
            disk.remove_tree(staged.parent)
            continue
        files.replace(staged, _place(files.root, group[0]), group)
        # Only here: what is committed and could not be moved must stay where it is.
        disk.remove_tree(staged.parent)
        return len(group) - 1
    return 0


def _write(root: Path, group: list[str], staged: Path) -> None:
    """All rows of these files into one."""
    schema = _schema(root, group[0])
    pending: list[pa.RecordBatch] = []
    with pq.ParquetWriter(staged, schema, compression="zstd", store_schema=False) as writer:
        for name in group:
            for batch in _batches(root, name):
                pending.append(batch)
                rows, size = sum(one.num_rows for one in pending), sum(one.nbytes for one in pending)
                if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                    writer.write_table(pa.Table.from_batches(pending, schema))
                    pending = []
        if pending:
            writer.write_table(pa.Table.from_batches(pending, schema))


def _place(root: Path, first: str) -> str:
    """Beside the first of the files it is made of, with `merged` behind that one's name; a name that is new."""
    path = PurePosixPath(first)
    found = MERGED_STEM.fullmatch(path.stem)
    stem, count = (found[1], int(found[2] or 1) + 1) if found else (path.stem, 1)
    while True:
        place = path.with_name(f"{stem}-{MERGED}{f'-{count}' if count > 1 else ''}{SUFFIX}")
        if not (root / place).exists():
            return place.as_posix()
        count += 1


def _schema(root: Path, name: str) -> pa.Schema:
    try:
        with pq.ParquetFile(root / name) as file:
            return file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise _of_file(name, error) from None


def _batches(root: Path, name: str) -> Iterator[pa.RecordBatch]:
    try:
        with pq.ParquetFile(root / name) as file:
            yield from file.iter_batches(READ_ROWS)
    except (pa.ArrowException, OSError) as error:
        raise _of_file(name, error) from None


def _of_file(name: str, error: Exception) -> Exception:
    """What Arrow says of a file's content has no errno; what has one is the disk's."""
    return error if isinstance(error, OSError) and error.errno is not None else Unreadable(name, error)

"""Archive compaction: many small files of one directory of an archive become one.

A batch adds a file to each directory it has rows for; a run that follows a slow stream, or one started by cron every
minute, makes thousands. Files are merged in the driver, row group by row group, so that memory is that of one of them.
The change goes by _commit.json as a batch does: a crash in the middle is finished, or forgotten, by the next run.
A reader that lists the directory in the moment between the two steps sees rows twice; replay reads _commit.json and
does not.
Upstream: job.py.  Downstream: files.py.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.archive.files import SUFFIX, ArchiveFiles, table_files
from penstock.spark.ledger import disk

SMALL_BYTES: Final = 32 * 1024 * 1024  # a file of this size or more is left alone
MERGED_BYTES: Final = 128 * 1024 * 1024  # about what a merged file has at most
FILES_MIN: Final = 10  # fewer small files in one directory do no harm
GROUP_ROWS: Final = 100_000  # of a row group in a merged file
GROUP_BYTES: Final = 64 * 1024 * 1024  # in memory: bodies may be large
READ_ROWS: Final = 10_000  # at a time
MERGED: Final = "merged"


def compact(files: ArchiveFiles, stop: threading.Event) -> int:
    """Merge what is small; how many files there are less."""
    fewer = 0
    for _, names in groupby(table_files(files.root), lambda name: PurePosixPath(name).parent):
        for group in _groups(files.root, list(names)):
            if stop.is_set():
                return fewer
            if _merge(files, group):
                fewer += len(group) - 1
    return fewer


def _groups(root: Path, names: list[str]) -> Iterator[list[str]]:
    """Small files that stand together, each group at least FILES_MIN and about MERGED_BYTES at most."""
    group: list[str] = []
    size = 0
    for name in names:
        bytes_ = (root / name).stat().st_size
        if bytes_ >= SMALL_BYTES:
            continue
        if size + bytes_ > MERGED_BYTES and len(group) >= FILES_MIN:
            yield group
            group, size = [], 0
        group.append(name)
        size += bytes_
    if len(group) >= FILES_MIN:
        yield group


def _merge(files: ArchiveFiles, group: list[str]) -> bool:
    """One file instead of these, at the place of the first one's name with `merged` behind it."""
    staged = files.staged(MERGED) / f"merged{SUFFIX}"
    disk.make_directory(staged.parent)
    with pq.ParquetFile(files.root / group[0]) as first:
        schema = first.schema_arrow
    pending: list[pa.RecordBatch] = []
    with pq.ParquetWriter(staged, schema, compression="zstd", store_schema=False) as writer:
        for name in group:
            with pq.ParquetFile(files.root / name) as file:
                if file.schema_arrow != schema:
                    return False  # not ours, or of a later version: left as it is
                for batch in file.iter_batches(READ_ROWS):
                    pending.append(batch)
                    rows, size = sum(one.num_rows for one in pending), sum(one.nbytes for one in pending)
                    if rows >= GROUP_ROWS or size >= GROUP_BYTES:
                        writer.write_table(pa.Table.from_batches(pending, schema))
                        pending = []
        if pending:
            writer.write_table(pa.Table.from_batches(pending, schema))
    first_name = PurePosixPath(group[0])
    stem = first_name.stem.removesuffix(f"-{MERGED}")
    place = first_name.with_name(f"{stem}-{MERGED}{SUFFIX}").as_posix()
    files.replace(staged, place, [name for name in group if name != place])
    disk.remove_tree(staged.parent)
    return True

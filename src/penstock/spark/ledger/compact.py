"""Compact: many small parts of a table and day become one. The rows stay as they are, in the order of the parts.

A micro-batch leaves a part of a few rows in each table; a query over a week would open a hundred thousand of them.
Windows that may still be replaced are left alone for a while: to replace one of a larger part means to write the part
again. Events are never replaced, so theirs need not wait. A part that is damaged is left alone.
Upstream: the flow job, now and then.  Downstream: ledger.py:put.
"""

from __future__ import annotations

import logging
import time
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.spark.ledger import disk
from penstock.spark.ledger.ledger import Ledger
from penstock.spark.ledger.manifest import Manifest, Part, moment
from penstock.spark.ledger.parts import COMPRESSION, Damaged, Names, read_part, read_schema
from penstock.spark.tables.windows import micros

SMALL_BYTES = 4 << 20  # a part below this is worth merging
TARGET_BYTES = 16 << 20  # of a merged part: some hundred thousand rows, a second's work for one core
FILES_MIN = 16  # small parts of a table and day before something is done
GROUP_ROWS = 128 << 10  # of a row group: what is in memory at a time
EVER = "events"  # added to, never replaced

log = logging.getLogger("penstock.spark")


def compact(ledger: Ledger, settled: datetime, damaged: set[Path], files_min: int = FILES_MIN) -> int:
    """Merge where there is enough to merge, in one commit; how many parts that took away.

    settled: windows before it are not expected to change.
    damaged: files that are left alone. Others that are found to be damaged are told of, and added.
    """
    manifest = ledger.manifest()
    names = Names(ledger.root, manifest.version + 1)
    now = time.time()
    after = manifest
    for table in manifest.tables:
        parts = [part for part in manifest.tables[table] if ledger.root / part.path not in damaged]
        for group in _groups(parts, table, micros(settled), files_min):
            merged = None
            while merged is None and len(group) > 1:
                relative, path = names.new(table, group[0].day)
                try:
                    merged = _merged(ledger.root, group, relative, path)
                except Damaged as error:
                    disk.remove(path)
                    damaged.add(error.path)
                    log.error("%s; small files are merged without it", error)
                    group = [part for part in group if ledger.root / part.path != error.path]
            if merged is None:
                continue
            after = after.without(table, frozenset(part.path for part in group), now, (merged,))
    if after is manifest:
        return 0
    before_count, after_count = _count(manifest), _count(after)
    ledger.put(after)
    return before_count - after_count


def _count(manifest: Manifest) -> int:
    return sum(len(parts) for parts in manifest.tables.values())


def _groups(candidates: list[Part], table: str, settled: int, files_min: int) -> list[list[Part]]:
    """What becomes one part each."""
    days: dict[str, list[Part]] = {}
    for part in candidates:
        if part.bytes < SMALL_BYTES and (table == EVER or part.last < settled):
            days.setdefault(part.day, []).append(part)
    groups = []
    today = str(moment(settled).date())
    for day, parts in days.items():
        # A day that is over gets no more parts: what is left of it is merged.
        if len(parts) < (2 if day < today else files_min):
            continue
        group: list[Part] = []
        for part in parts:
            if group and sum(one.bytes for one in group) + part.bytes > TARGET_BYTES:
                groups.append(group)
                group = []
            group.append(part)
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def _merged(root: Path, group: list[Part], relative: str, path: Path) -> Part:
    """One part with the rows of all of these; what is in memory is a row group and the largest of them."""
    for part in group:
        if not (root / part.path).exists():
            raise Damaged(root / part.path, "it is not there")
    schema = pa.unify_schemas([read_schema(root / part.path) for part in group])
    with pq.ParquetWriter(path, schema, compression=COMPRESSION) as writer:
        waiting: list[pa.Table] = []
        for part in group:
            rows = pa.concat_tables([schema.empty_table(), read_part(root / part.path)], promote_options="default")
            waiting.append(rows.select(schema.names))
            if sum(one.num_rows for one in waiting) >= GROUP_ROWS:
                writer.write_table(pa.concat_tables(waiting).combine_chunks(), row_group_size=GROUP_ROWS)
                waiting = []
        if waiting:
            writer.write_table(pa.concat_tables(waiting).combine_chunks(), row_group_size=GROUP_ROWS)
    disk.sync(path)
    return Part(
        relative,
        min(part.first for part in group),
        max(part.last for part in group),
        sum(part.rows for part in group),
        path.stat().st_size,
    )

"""Manifest: what the tables are, as of one commit. A frozen value; as JSON it is the file that makes a commit count.

Upstream: ledger.py.  Not here: reading and writing the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from penstock.spark.tables.windows import EPOCH

FORMAT = 1  # of the file
MICROSECOND = timedelta(microseconds=1)


def moment(us: int) -> datetime:
    return EPOCH + us * MICROSECOND


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a table: rows of one day."""

    path: str  # below the root
    first: int  # the earliest window in it, us since 1970
    last: int  # the latest
    rows: int
    bytes: int

    @property
    def day(self) -> str:
        return self.path.split("/")[1].removeprefix("day=")


@dataclass(frozen=True, slots=True)
class Manifest:
    """All that counts."""

    version: int = 0  # of the tables: one more with each commit
    window_s: float | None = None  # what the derived tables are sliced by
    batches: Mapping[str, int] = field(default_factory=dict)  # by query: its last batch that is in here
    marks: Mapping[str, int] = field(default_factory=dict)  # by stream: the offset behind the last event in here
    tables: Mapping[str, tuple[Part, ...]] = field(default_factory=dict)
    # Parts that no longer count, and since when (s since 1970). They go after a grace period, for those still reading.
    dropped: tuple[tuple[str, float], ...] = ()

    def encoded(self) -> bytes:
        document = {
            "format": FORMAT,
            "version": self.version,
            "window_s": self.window_s,
            "batches": dict(self.batches),
            "marks": dict(self.marks),
            "tables": {
                name: [[part.path, part.first, part.last, part.rows, part.bytes] for part in parts]
                for name, parts in self.tables.items()
            },
            "dropped": [list(one) for one in self.dropped],
        }
        return json.dumps(document, separators=(",", ":")).encode()

    def without(self, table: str, gone: frozenset[str], at: float, more: tuple[Part, ...] = ()) -> Manifest:
        """The same, but in this table these paths no longer count, and these parts do."""
        kept = tuple(part for part in self.tables.get(table, ()) if part.path not in gone)
        dropped = (*self.dropped, *((path, at) for path in sorted(gone)))
        return replace(self, tables={**self.tables, table: kept + more}, dropped=dropped)


def decoded(content: bytes) -> Manifest:
    """ValueError or KeyError where it is none."""
    document = json.loads(content)
    if document["format"] != FORMAT:
        raise ValueError(f"format {document['format']}")
    return Manifest(
        version=document["version"],
        window_s=document["window_s"],
        batches=document["batches"],
        marks=document["marks"],
        tables={name: tuple(Part(*one) for one in parts) for name, parts in document["tables"].items()},
        dropped=tuple((path, at) for path, at in document["dropped"]),
    )

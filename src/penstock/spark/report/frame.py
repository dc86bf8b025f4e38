"""Frame: a stretch of time cut into steps, and the rows of a table added up by step.

A digest has a bounded number of steps, whatever the stretch; a step is some whole windows. Tables are read some hours
at a time and only what is added up is kept, so that weeks of a busy broker cost the memory of some hours.
Place: digest.py and the parts beside it ask; the ledger has the files.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

SLICE_MS: Final = 21_600_000  # of a table in memory at a time; shorter ones read files of a whole day more often
STEPS_S: Final = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21_600, 43_200, 86_400)

Row = dict[str, Any]

_TEXT: Final = pa.string()
_WHOLE: Final = pa.int64()
_REAL: Final = pa.float64()
_TEXTS: Final = pa.list_(pa.string())
_TIME: Final = pa.timestamp("us", "UTC")

# The columns that are read, of each table. One that a table does not have is read as unknown in every row.
COLUMNS: Final[dict[str, dict[str, pa.DataType]]] = {
    "samples": {"stage": _TEXT, "client": _TEXT},
    "chains": {"upstream": _TEXT, "downstream": _TEXT, "blocked_us": _WHOLE, "blocks": _WHOLE},
    "blocks": {
        "stage": _TEXT,
        "cause": _TEXT,
        "began": _TIME,
        "ended": _TIME,
        "duration_us": _WHOLE,
        "longest_us": _WHOLE,
        "count": _WHOLE,
        "root": _TEXT,
        "closed_by": _TEXT,
    },
    "open": {"stage": _TEXT, "cause": _TEXT, "began": _TIME},
    "verdicts": {
        "connection": _TEXT,
        "client": _TEXT,
        "user": _TEXT,
        "vhost": _TEXT,
        "cause": _TEXT,
        "bottleneck": _TEXT,
        "chain": _TEXTS,
        "share": _REAL,
        "resource": _TEXT,
    },
    "blockers": {"bottleneck": _TEXT, "cause": _TEXT, "connections": _WHOLE, "blocked_us": _WHOLE},
    "depth": {
        "stage": _TEXT,
        "vhost": _TEXT,
        "messages_max": _WHOLE,
        "messages_last": _WHOLE,
        "received_rate": _REAL,
        "sent_rate": _REAL,
        "consumers": _WHOLE,
        "saturated_share": _REAL,
        "blocked_share": _REAL,
        "limit_messages": _WHOLE,
        "limit_bytes": _WHOLE,
        "limit_share": _REAL,
    },
    "syncs": {"count": _WHOLE, "p50_us": _REAL, "p95_us": _REAL, "p99_us": _REAL, "longest_us": _REAL},
    "resources": {
        "memory_used_bytes": _WHOLE,
        "memory_limit_bytes": _WHOLE,
        "disk_free_bytes": _WHOLE,
        "disk_limit_bytes": _WHOLE,
        "connections": _WHOLE,
        "channels": _WHOLE,
        "queues": _WHOLE,
    },
    "forecast": {
        "subject": _TEXT,
        "unit": _TEXT,
        "value": _REAL,
        "limit": _REAL,
        "slope_per_s": _REAL,
        "r2": _REAL,
        "hits_at": _TIME,
        "in_s": _REAL,
        "over_s": _REAL,
    },
    "quality": {"table": _TEXT, "rule": _TEXT, "rows": _WHOLE, "failures": _WHOLE, "example": _TEXT},
}


class Tables(Protocol):
    """What is asked of the ledger."""

    def arrow(
        self, table: str, since: datetime | None = None, until: datetime | None = None, columns: list[str] | None = None
    ) -> pa.Table:
        """Rows whose window is not before `since` and before `until`; of no file, a table without columns."""
        ...


def when(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def ms_of(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class Steps:
    """`count` steps of `step_ms` each, from `since_ms` on; the last one ends at `until_ms`."""

    since_ms: int
    step_ms: int
    count: int
    window_ms: int
    first_ms: int = 0  # the first window that is in the tables, if that is later than `since_ms`

    @property
    def until_ms(self) -> int:
        return self.since_ms + self.step_ms * self.count

    @property
    def known_s(self) -> float:
        """How much of the stretch the tables have: a share is of that."""
        return (self.until_ms - max(self.since_ms, self.first_ms)) / 1000

    @property
    def window_s(self) -> float:
        return self.window_ms / 1000

    def slices(self) -> Iterator[tuple[int, int]]:
        """Stretches of whole steps, each of about SLICE_MS."""
        size = max(1, SLICE_MS // self.step_ms) * self.step_ms
        for begin in range(self.since_ms, self.until_ms, size):
            yield begin, min(begin + size, self.until_ms)


def steps_of(since_ms: int, until_ms: int, window_s: float, steps_max: int) -> Steps:
    """Steps that hold all of this stretch: as fine as the windows allow, `steps_max` at most.

    The last one ends where the stretch does: half of a step would look like half as much of everything.
    """
    window_ms = max(1, round(window_s * 1000))
    least_ms = max(window_ms, (until_ms - since_ms) / steps_max)
    nice_ms = next((s * 1000 for s in STEPS_S if s * 1000 >= least_ms), math.ceil(least_ms / 86_400_000) * 86_400_000)
    step_ms = math.ceil(nice_ms / window_ms) * window_ms
    end_ms = math.ceil(until_ms / window_ms) * window_ms
    count = max(1, min(steps_max, math.ceil((end_ms - since_ms) / step_ms)))
    return Steps(end_ms - count * step_ms, step_ms, count, window_ms)


def rows(tables: Tables, name: str, begin_ms: int, end_ms: int, steps: Steps) -> pa.Table:
    """The columns of COLUMNS, with `at_ms` (the window's start) and `step` beside them."""
    wanted = COLUMNS[name]
    found = tables.arrow(name, when(begin_ms), when(end_ms), ["window", *wanted])
    if "window" not in found.column_names or not found.num_rows:
        empty = {"at_ms": pa.array([], _WHOLE), "step": pa.array([], _WHOLE)}
        return pa.table({**empty, **{column: pa.array([], kind) for column, kind in wanted.items()}})
    at_ms = pc.cast(pc.cast(found["window"], pa.timestamp("ms", "UTC"), safe=False), _WHOLE)
    step = pc.divide(pc.subtract(at_ms, steps.since_ms), steps.step_ms)
    columns = {"at_ms": at_ms, "step": step}
    for column, kind in wanted.items():
        if column in found.column_names:
            columns[column] = pc.cast(found[column], kind, safe=False)
        else:
            columns[column] = pa.nulls(found.num_rows, kind)
    whole = pa.table(columns)
    within = pc.and_(pc.greater_equal(at_ms, begin_ms), pc.less(at_ms, end_ms))
    return whole.filter(within)


def each_slice(tables: Tables, name: str, steps: Steps) -> Iterator[pa.Table]:
    for begin_ms, end_ms in steps.slices():
        part = rows(tables, name, begin_ms, end_ms, steps)
        if part.num_rows:
            yield part


def group(table: pa.Table, keys: list[str], sums: list[tuple[str, str]]) -> pa.Table:
    """`sums`: column and how it is added up; the result keeps the column's name, once per column."""
    result = table.group_by(keys, use_threads=False).aggregate(sums)
    return result.rename_columns([_plain(name, sums) for name in result.column_names])


def _plain(name: str, sums: list[tuple[str, str]]) -> str:
    return next((column for column, how in sums if name == f"{column}_{how}"), name)


def joined(parts: list[pa.Table]) -> pa.Table | None:
    return pa.concat_tables(parts) if parts else None


def relabelled(table: pa.Table, column: str, labels: dict[str, str]) -> pa.Table:
    """The column with other words in it; those without another stay."""
    coded = pc.dictionary_encode(pc.fill_null(table[column], "")).combine_chunks()
    coded = coded if isinstance(coded, pa.DictionaryArray) else coded.chunk(0)
    words = pa.array([labels.get(word, word) for word in coded.dictionary.to_pylist()], _TEXT)
    return table.set_column(table.column_names.index(column), column, words.take(coded.indices))


def uniques(table: pa.Table, column: str) -> list[str]:
    return [value for value in pc.unique(table[column]).to_pylist() if value]

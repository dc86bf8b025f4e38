"""Bounds: what the codec takes from a peer before it says no. The body has a bound of its own (decoder.py).

Given by net/limits.py, which has them from the settings; each text that refuses something names the setting.
Without bounds given, only those hold that the interpreter itself sets: values that were checked on their way in are
decoded again elsewhere, and must not be refused there.
Not here: the defaults and their reasons (config.py), frame sizes and channels (net/limits.py).
"""

from __future__ import annotations

from typing import Final

# Two Python frames are used per level and the interpreter allows 1000 in all; clients nest to 3 (x-death and the like).
TABLE_DEPTH_MAX: Final = 128
NAME_BYTES_MAX: Final = 255  # a short string's length is one byte
NO_BOUND: Final = 1 << 62


class Bounds:
    __slots__ = ("name_bytes", "table_bytes", "table_depth", "table_entries", "unfinished_bytes")

    def __init__(
        self,
        table_depth: int = TABLE_DEPTH_MAX,
        table_bytes: int = NO_BOUND,
        table_entries: int = NO_BOUND,
        name_bytes: int = NAME_BYTES_MAX,
        unfinished_bytes: int = NO_BOUND,
    ) -> None:
        assert 0 < table_depth <= TABLE_DEPTH_MAX, table_depth
        self.table_depth = table_depth  # tables and arrays inside each other, the outermost included
        self.table_bytes = table_bytes  # behind its length, all that is nested included
        self.table_entries = table_entries  # keys and array elements, on all levels together
        self.name_bytes = name_bytes  # names, keys and tags in methods of exchanges, queues and consumers
        self.unfinished_bytes = unfinished_bytes  # contents still coming, of all channels of a connection

    def __repr__(self) -> str:
        return (
            f"<Bounds table_depth={self.table_depth} table_bytes={self.table_bytes} "
            f"table_entries={self.table_entries} name_bytes={self.name_bytes} "
            f"unfinished_bytes={self.unfinished_bytes}>"
        )


UNBOUNDED: Final = Bounds()

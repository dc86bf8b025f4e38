"""Retain: days that are older than they are kept go. Whole days, so that no file is written for it.

Age counts from the newest window, not from the clock: tables that nobody writes to do not vanish, and a rebuild of an
old archive keeps what the archive has last; but a window in the future makes nothing older.
Upstream: the flow job, now and then.  Downstream: ledger.py:put.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from penstock.spark.ledger.ledger import Ledger
from penstock.spark.ledger.manifest import moment


def retain(ledger: Ledger, keep_days: Mapping[str, int], others: int) -> int:
    """Drop days, in one commit; how many parts that were. keep_days: by table; `others`: all that are not in it."""
    manifest = ledger.manifest()
    lasts = [part.last for parts in manifest.tables.values() for part in parts]
    if not lasts:
        return 0
    now = time.time()
    # A clock that was wrong once must not cost all that there is.
    today = min(moment(max(lasts)), datetime.fromtimestamp(now, UTC)).date()
    after = manifest
    count = 0
    for table, parts in manifest.tables.items():
        # Today is the first of the days that are kept.
        oldest = str(today - timedelta(days=keep_days.get(table, others) - 1))
        gone = frozenset(part.path for part in parts if part.day < oldest)
        if gone:
            after = after.without(table, gone, now)
            count += len(gone)
    if count:
        ledger.put(after)
    return count

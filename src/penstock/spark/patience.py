"""Patience: how long a broker may be away before a query gives up, and how often it is tried meanwhile.

A broker that restarts is back within seconds, and Spark never starts a failed source again by itself: so readers wait
here, inside, and only then fail. Used by streamview.py (driver) and rangereader.py (tasks).
Not here: which errors are worth a second try (`is_passing` says it of the client's).
"""

from __future__ import annotations

import logging
import time
from typing import Final

from penstock.client.error import PASSING_CODES, ClientError, Closed, Unreachable

OUTAGE_S: Final = 60.0  # a restart with recovery takes seconds; a minute is an outage that someone must see
# Of a run that ends by itself, as one from cron: for so long a broker may be away at its start. Then someone must see
# it: the address may be wrong, and runs that wait for ever only get more.
START_S: Final = 300.0
FIRST_WAIT_S: Final = 0.1
WAIT_S_MAX: Final = 3.0

log = logging.getLogger("penstock.spark")


def is_passing(error: ClientError) -> bool:
    """Whether the same may work in a moment: the connection is gone, not the permission or the stream."""
    return isinstance(error, Unreachable) or (isinstance(error, Closed) and error.code in PASSING_CODES)


class Patience:
    """Counts one outage: from the first failure to the next success."""

    __slots__ = ("_since", "_wait_s", "outage_s", "what")

    def __init__(self, what: str, outage_s: float | None = None) -> None:
        self.what = what  # for the log: what is being done
        self.outage_s = OUTAGE_S if outage_s is None else outage_s
        self._since = 0.0
        self._wait_s = 0.0

    def over(self) -> None:
        """It worked."""
        if self._wait_s > 0:
            log.warning("%s: the broker is back after %.1f s", self.what, time.monotonic() - self._since)
        self._since = self._wait_s = 0.0

    def wait(self, error: ClientError) -> None:
        """It failed: wait before the next try, longer each time; the error itself if it has failed for too long.

        The first time there is no wait: a kept connection that died while nobody looked is simply made again."""
        now = time.monotonic()
        if not self._since:
            self._since = now
            self._wait_s = 0.0
            log.info("%s: %s; connecting again", self.what, error)
            return
        if now - self._since + self._wait_s > self.outage_s:
            raise error
        if not self._wait_s:
            log.warning("%s: %s; trying again for up to %.0f s", self.what, error, self.outage_s)
        self._wait_s = min(max(self._wait_s * 2, FIRST_WAIT_S), WAIT_S_MAX)
        time.sleep(self._wait_s)

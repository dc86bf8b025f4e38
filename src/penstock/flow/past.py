"""Past: the verdicts of the last hour or so, each with its begin and its end.

Place: management/flowapi.py notes once a second what verdicts there are; GET /api/flow/history shows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from penstock.flow.verdict import Verdict

PAST_MAX: Final = 200  # verdicts kept that are over


@dataclass(slots=True)
class Entry:
    """One cause that held one connection back, from begin to end."""

    verdict: Verdict  # the last one
    began_ms: int
    ended_ms: int | None = None  # None: it goes on
    share_1m_max: float = 0.0

    def json(self) -> dict[str, object]:
        verdict = self.verdict
        return {
            "connection": verdict.connection,
            "id": verdict.id,
            "name": verdict.name,
            "user": verdict.user,
            "vhost": verdict.vhost,
            "cause": verdict.cause,
            "bottleneck": verdict.bottleneck,
            "resource": verdict.resource,
            "sentence": verdict.sentence,
            "began_ms": self.began_ms,
            "ended_ms": self.ended_ms,
            "share_1m_max": round(self.share_1m_max, 4),
        }


class Past:
    __slots__ = ("_over", "_running")

    def __init__(self) -> None:
        self._running: dict[tuple[str, str, str | None], Entry] = {}
        self._over: deque[Entry] = deque(maxlen=PAST_MAX)

    def note(self, found: Sequence[Verdict], at_ms: int) -> None:
        """These are the verdicts of this moment: what is not among them any more is over."""
        now = {(one.id, one.cause, one.bottleneck): one for one in found}
        for key in [key for key in self._running if key not in now]:
            entry = self._running.pop(key)
            entry.ended_ms = at_ms
            self._over.append(entry)
        for key, verdict in now.items():
            entry = self._running.get(key) or self._begun(verdict, at_ms)
            entry.verdict = verdict
            entry.share_1m_max = max(entry.share_1m_max, verdict.share_1m)
            self._running[key] = entry

    def _begun(self, verdict: Verdict, at_ms: int) -> Entry:
        """The episode may be older than its present cause: this one began when the one before it ended."""
        ends = [entry.ended_ms or 0 for entry in self._over if entry.verdict.id == verdict.id]
        return Entry(verdict, max([at_ms - int(verdict.since_s * 1000), *ends]))

    def running(self) -> bool:
        return bool(self._running)

    def entries(self) -> list[Entry]:
        """The oldest first; those that go on last."""
        return [*self._over, *self._running.values()]

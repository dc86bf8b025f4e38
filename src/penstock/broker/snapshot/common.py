"""Common: pieces that several views have: a stage's state and reasons, message_stats.

Place: inside snapshot/. Not here: whole views.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from typing import Final

from penstock.broker.ledger import Json
from penstock.broker.tally import COUNTERS
from penstock.credit import Stage

NS_PER_S: Final = 1e9
INTERNAL_USER: Final = "rmq-internal"  # RabbitMQ's word for who did it if it was no user
OF_QUEUES: Final = frozenset(("confirm", "return_unroutable", "drop_unroutable"))  # which no queue has


@cache
def node_name() -> str:
    return f"penstock@{os.uname().nodename.partition('.')[0]}"


def state(stage: Stage) -> str:
    return "flow" if stage.in_flow() else "running"


def reasons(stage: Stage) -> list[Json]:
    return [str(reason) for reason in stage.blocked_by]


def blocked_seconds(stage: Stage) -> float:
    """All time, the block that lasts included."""
    blocked_ns = stage.blocked_ns + (stage.clock() - stage.blocked_at_ns if stage.blocked_by else 0)
    return round(blocked_ns / NS_PER_S, 6)


def message_stats(counts: Sequence[int]) -> dict[str, Json]:
    """RabbitMQ's, cumulative; empty as long as nothing happened, as there."""
    return dict(zip(COUNTERS, counts, strict=True)) if any(counts) else {}

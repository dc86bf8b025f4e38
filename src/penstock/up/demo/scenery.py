"""Scenery: the queues of the demo, with their limits.

Upstream: play.py declares and deletes them.  Downstream: the broker.
All are durable, so that persistent messages in them are really kept, and all are small: together they never hold more
than about 25 MB. One that nobody uses any more, because the demo was killed, expires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.amqp.table import Table

ORDERS: Final = "demo.orders"
BILLS: Final = "demo.bills"
METRICS: Final = "demo.metrics"
AUDIT: Final = "demo.audit"
IMPORTS: Final = "demo.imports"

EXPIRES_MS: Final = 600_000


@dataclass(frozen=True, slots=True)
class Scene:
    """A queue, and what it is there to show."""

    queue: str
    limits: Table
    shows: str

    def arguments(self) -> Table:
        return {**self.limits, "x-expires": EXPIRES_MS}


SCENES: Final = (
    Scene(
        ORDERS,
        {"x-max-length": 10_000, "x-flow-stop-count": 500, "x-flow-resume-count": 250},
        "a watermark and a slow consumer: a burst saturates the queue, and the publisher's confirms wait",
    ),
    Scene(BILLS, {"x-max-length": 10_000}, "persistent messages with confirms, a consumer that keeps up: nobody waits"),
    Scene(
        METRICS,
        {"x-max-length": 2_000, "x-overflow": "block-publish"},
        "transient messages without confirms and a consumer that pauses: the queue is full, credit stops the publisher",
    ),
    Scene(
        IMPORTS,
        {"x-max-length": 6_000},
        "a batch of persistent messages as fast as they go: the store is what the others wait for, for milliseconds",
    ),
    Scene(AUDIT, {"x-max-length": 3_000}, "a queue that grows and is emptied every few minutes: a forecast"),
)

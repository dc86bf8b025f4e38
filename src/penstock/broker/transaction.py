"""Transaction: what a channel in tx mode has published and acked since the last commit.

Publishes are routed when they come (a missing exchange is an error at once) and cast to their queues at commit; acks
take effect at commit. commit-ok is sent when every queue has taken its messages, as a confirm would be.
Place: inside channel.py. Not here: checks of tags and routes (deliveries.py, router.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.amqp.close import PRECONDITION_FAILED, CloseChannel
from penstock.amqp.decoder import Message
from penstock.broker.confirms import Confirms
from penstock.broker.deliveries import Delivery, settle
from penstock.broker.producers import Publishing

if TYPE_CHECKING:
    from penstock.broker.consumer import Consumer
    from penstock.broker.queue import Queue

# Uncommitted publishes are handled, so credit does not bound them; without this one client could fill the memory.
TRANSACTION_BYTES_MAX: Final = 134_217_728
POSTED_BYTES: Final = 256  # about what an empty message costs while it waits


class Posted:
    """One publish, routed; in a transaction it waits for the commit."""

    __slots__ = ("message", "publishing", "queues", "ttl_ms")

    def __init__(self, message: Message, queues: tuple[Queue, ...], ttl_ms: int, publishing: Publishing | None) -> None:
        self.message = message
        self.publishing = publishing
        self.queues = queues
        self.ttl_ms = ttl_ms


class Transaction:
    __slots__ = ("_bytes", "_confirms", "_posted", "_settled", "failed", "is_committing")

    def __init__(self, channel: int) -> None:
        self._confirms = Confirms(channel)
        self._posted: list[Posted] = []
        self._settled: list[tuple[int, list[tuple[int, Delivery]]]] = []  # outcome, deliveries
        self._bytes = 0
        self.is_committing = False
        self.failed = False

    def post(self, posted: Posted) -> None:
        self._bytes += len(posted.message[1]) + POSTED_BYTES
        if self._bytes > TRANSACTION_BYTES_MAX:
            raise CloseChannel(
                PRECONDITION_FAILED, f"transaction larger than {TRANSACTION_BYTES_MAX} bytes; commit more often"
            )
        self._posted.append(posted)

    def settle(self, taken: list[tuple[int, Delivery]], outcome: int) -> None:
        self._settled.append((outcome, taken))

    def begin_commit(self) -> list[Posted]:
        """Acks take effect; the publishes are to be cast now."""
        for outcome, taken in self._settled:
            settled: dict[Consumer, list[int]] = {}
            for _, (consumer, position) in taken:
                settled.setdefault(consumer, []).append(position)
            settle(settled, outcome)
        posted = self._posted
        self._forget()
        self.is_committing = True
        self.failed = False
        return posted

    def expect(self, queues: int) -> int:
        """The number under which these queues confirm the next publish."""
        return self._confirms.expect(1, queues)

    def confirm(self, first: int, last: int) -> None:
        self._confirms.confirm(first, last)

    def reject(self, first: int, last: int) -> None:
        self._confirms.reject(first, last)
        self.failed = True

    def unsettled(self) -> int:
        """Deliveries whose acks wait for the commit."""
        return sum(len(taken) for _, taken in self._settled)

    def unpublished(self) -> int:
        """Publishes that wait for the commit."""
        return len(self._posted)

    def is_complete(self) -> bool:
        """Every queue has answered."""
        return self.is_committing and not self._confirms.unconfirmed()

    def end_commit(self) -> None:
        self._confirms.flush()
        self.is_committing = False

    def roll_back(self) -> list[tuple[int, Delivery]]:
        """Forget the publishes; the deliveries that are unacked again."""
        taken = [delivery for _, some in self._settled for delivery in some]
        self._forget()
        return taken

    def _forget(self) -> None:
        self._posted = []
        self._settled = []
        self._bytes = 0

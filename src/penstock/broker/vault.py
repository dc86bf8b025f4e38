"""Vault: the message store of a broker, and which queue has which part of it.

A queue that outlives the broker has a number, kept beside its definition, under which the store knows its messages. A
queue that is deleted and declared again is another one, with another number, so old messages cannot come back to it.
Place in the chain: beside it. vhost.py has every new queue equipped here.
Not here: the store (store/), what a queue does with it (keeping.py, paging.py).
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from penstock.broker.keeping import Keeping
from penstock.broker.ledger import Json, Ledger
from penstock.broker.memory import Memory
from penstock.broker.paging import Paging
from penstock.broker.records import QUEUE_LOG, queue_is_kept
from penstock.store.recovery import Recovered, RecoveredLog
from penstock.store.store import MessageStore

if TYPE_CHECKING:
    from penstock.broker.queue import Queue

Record = tuple[str, tuple[str, ...], dict[str, Json]]


class Vault:
    __slots__ = ("_ledger", "_numbers", "_recovered", "memory", "store")

    def __init__(
        self, store: MessageStore, memory: Memory, ledger: Ledger, records: list[Record], recovered: Recovered
    ) -> None:
        """`records` are all definitions there are, `recovered` is what the disk has."""
        self.store = store
        self.memory = memory
        self._ledger = ledger
        self._numbers: dict[tuple[str, ...], int] = {}
        for kind, key, body in records:
            number = body.get("id")
            if kind == QUEUE_LOG and isinstance(number, int):
                self._numbers[key] = number
        self._recovered: dict[int, RecoveredLog] = dict(recovered.logs)

    def equip(self, vhost_name: str, queue: Queue) -> None:
        """Give the queue what it needs to keep messages and to page them out, and what the disk has of it already."""
        queue.paging = Paging(queue, self.memory)
        if not queue_is_kept(queue):
            return
        key = (vhost_name, queue.queue_name)
        number = self._numbers.pop(key, 0)
        if not number:
            number = secrets.randbits(62) + 1
            self._ledger.put(QUEUE_LOG, key, {"id": number})
        recovered = self._recovered.pop(number, None)
        log = self.store.log(number, f"queue '{queue.queue_name}' in vhost '{vhost_name}'", recovered)
        queue.keeping = Keeping(queue, self.store, log)
        if recovered is not None:
            queue.keeping.restore(recovered)

    def begin(self) -> int:
        """All queues that were kept are there. Logs that none of them claims were of queues deleted just before the
        broker was killed: they are forgotten; how many."""
        strangers = list(self._recovered.values())
        self._recovered.clear()
        self._numbers.clear()
        for recovered in strangers:
            self.store.forget(self.store.log(recovered.log.id, "a deleted queue", recovered))
        self.store.checkpoints.begin()
        return len(strangers)

"""Vault: the message store of a broker, and which queue has which part of it.

A queue that outlives the broker has a number, kept beside its definition, under which the store knows its messages. A
queue that is deleted and declared again is another one, with another number, so old messages cannot come back to it.
Beside the number is how many of its positions are reserved, if consumers are told positions (stamps.py).
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
from penstock.broker.records import QUEUE_LOG, queue_is_kept, record_log
from penstock.store.recovery import Recovered, RecoveredLog
from penstock.store.store import MessageStore
from penstock.store.stream import StreamLog

if TYPE_CHECKING:
    from penstock.broker.queue import Queue

Record = tuple[str, tuple[str, ...], dict[str, Json]]


class Vault:
    __slots__ = ("_ledger", "_numbers", "_recovered", "memory", "recovery", "store")

    def __init__(
        self, store: MessageStore, memory: Memory, ledger: Ledger, records: list[Record], recovered: Recovered
    ) -> None:
        """`records` are all definitions there are, `recovered` is what the disk has."""
        self.store = store
        self.memory = memory
        self.recovery: dict[str, Json] = {}  # what the start found, for the event of it
        self._ledger = ledger
        self._numbers: dict[tuple[str, ...], tuple[int, int]] = {}  # and what is reserved
        for kind, key, body in records:
            number, reserved = body.get("id"), body.get("reserved", 0)
            if kind == QUEUE_LOG and isinstance(number, int) and isinstance(reserved, int):
                self._numbers[key] = number, reserved
        self._recovered: dict[int, RecoveredLog] = dict(recovered.logs)

    def equip(self, vhost_name: str, queue: Queue) -> None:
        """Give the queue what it needs to keep messages and to page them out, and what the disk has of it already."""
        queue.paging = Paging(queue, self.memory)
        if not queue_is_kept(queue):
            return
        number, reserved = self._number(vhost_name, queue.queue_name)
        recovered = self._recovered.pop(number, None)
        log = self.store.log(number, f"queue '{queue.queue_name}' in vhost '{vhost_name}'", recovered)
        queue.keeping = Keeping(queue, self.store, log)
        if recovered is not None or reserved:
            queue.keeping.restore(recovered or RecoveredLog(log), reserved)

    def stream_log(self, vhost_name: str, name: str) -> StreamLog:
        """What the disk has of this stream, or a new one."""
        number, _ = self._number(vhost_name, name)
        return self.store.streams.open(number, f"queue '{name}' in vhost '{vhost_name}'")

    def _number(self, vhost_name: str, name: str) -> tuple[int, int]:
        """The number that a queue of this name has, or gets now; and how many of its positions are reserved."""
        number, reserved = self._numbers.pop((vhost_name, name), (0, 0))
        if not number:
            number = secrets.randbits(62) + 1
            record_log(self._ledger, vhost_name, name, number)
        return number, reserved

    def begin(self) -> int:
        """All queues that were kept are there. Logs that none of them claims were of queues deleted just before the
        broker was killed: they are forgotten; how many."""
        strangers = list(self._recovered.values())
        self._recovered.clear()
        self._numbers.clear()
        for recovered in strangers:
            self.store.forget(self.store.log(recovered.log.id, "a deleted queue", recovered))
        self.store.checkpoints.begin()
        return len(strangers) + self.store.streams.remove_strangers()

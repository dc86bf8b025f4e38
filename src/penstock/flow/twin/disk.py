"""Disk: the store as the broker's (store/store.py), and the journal's thread behind it.

Upstream: queues (stages.py).  Downstream: nothing: how long a sync takes is the plant's.
A turn takes what waits and gathers it; then it is handed over, at once if somebody waits for it, else a little later.
While the thread writes and syncs, the store takes nothing, so what comes meanwhile shares the next sync.
Not here: what is only removed, checkpoints, bodies in files of their own: their cost is in what was measured.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.credit import Hop, Link
from penstock.flow.twin.machine import Machine, Round
from penstock.flow.twin.stages import Works

if TYPE_CHECKING:
    from penstock.flow.twin.clients import Lane
    from penstock.flow.twin.stages import Queue

RECORD_BYTES: Final = 8  # of a message in the journal beside its content: store/log.py


class Deposit:
    """Some messages of one publisher on their way to the disk."""

    __slots__ = ("count", "lane", "link", "position", "queue")

    def __init__(self, queue: Queue, link: Link, lane: Lane, position: int, count: int) -> None:
        self.queue = queue
        self.link = link
        self.lane = lane
        self.position = position
        self.count = count

    @property
    def bytes(self) -> int:
        """As credit counts them."""
        return self.count * self.lane.content_bytes

    @property
    def disk_bytes(self) -> int:
        return self.count * (self.lane.content_bytes + RECORD_BYTES)


class Store(Works):
    """Gathers deposits and hands them to the journal's thread, which writes and syncs all that waits at once."""

    __slots__ = (
        "_awaited",
        "_gathered",
        "_held",
        "_inbox",
        "_journal_busy",
        "_sync_times",
        "_timed",
        "_work",
        "_writing",
        "hop",
        "ordinary",
        "syncs",
    )

    def __init__(self, machine: Machine, hop: Hop) -> None:
        super().__init__(machine, "store", "store")
        self.hop = hop
        self.ordinary: deque[Deposit] = deque()
        self.syncs = 0
        self._sync_times = Round(machine.plant.sync_us, machine.chance)
        self._work: list[Deposit] = []
        self._gathered = 0  # bytes
        self._awaited = False
        self._timed = False
        self._held = False
        self._writing = 0
        self._inbox: list[tuple[list[Deposit], int]] = []  # what waits for the journal's thread
        self._journal_busy = False

    def link(self, queue: Queue) -> Link:
        return Link(self.hop, queue, self)

    def deposit(self, queue: Queue, link: Link, lane: Lane, position: int, count: int) -> None:
        deposit = Deposit(queue, link, lane, position, count)
        link.spend(count, deposit.bytes)
        self.ordinary.append(deposit)
        self.waiting += deposit.count
        if not self.scheduled and not self._held:
            self.machine.schedule(self)

    def run(self, budget: int) -> int:
        plant, ordinary = self.machine.plant, self.ordinary
        taken = batches = 0
        while taken < budget and ordinary and not self._held:
            deposit = ordinary.popleft()
            taken += deposit.count
            batches += 1
            self.waiting -= deposit.count
            deposit.link.handle(deposit.count, deposit.bytes)
            self._work.append(deposit)
            self._gathered += deposit.disk_bytes
            self._awaited = self._awaited or deposit.lane.wants_confirms
        if taken:
            self.machine.work(plant.store.of(taken) + plant.deposit_us * batches)
        if self._gathered and not self._held:
            if self._gathered >= plant.gather_bytes_max or (self._awaited and not ordinary):
                self._submit()
            elif not self._awaited and not self._timed:
                self._timed = True
                self.machine.call_later(plant.gather_us, self._gathered_enough)
        if ordinary and not self._held:
            self.machine.schedule(self)
        return taken

    def _gathered_enough(self) -> None:
        self._timed = False
        if self._gathered and not self._held:
            self._submit()

    def _submit(self) -> None:
        work, bytes_ = self._work, self._gathered
        self._work, self._gathered, self._awaited = [], 0, False
        self._writing += 1
        if bytes_ < self.machine.plant.heavy_bytes or self._writing > 1:
            self._held = True
        self._inbox.append((work, bytes_))
        if not self._journal_busy:
            self._begin(self.machine.now_us + self.machine.plant.wake_us)

    def _begin(self, now_us: float) -> None:
        """The journal's thread: all that waits shares one sync."""
        plant = self.machine.plant
        works, self._inbox = self._inbox, []
        self._journal_busy = True
        self.syncs += 1
        took_us = (
            sum(bytes_ for _, bytes_ in works) * plant.write_byte_us + self._sync_times.draw() + plant.sync_delay_us
        )
        self.machine.at(now_us + took_us, lambda when_us: self._done(works, when_us))

    def _done(self, works: list[tuple[list[Deposit], int]], when_us: float) -> None:
        self._journal_busy = False
        self.machine.post(when_us + self.machine.plant.wake_us, lambda: self._told(works))
        if self._inbox:
            self._begin(when_us)

    def _told(self, works: list[tuple[list[Deposit], int]]) -> None:
        """On the broker's thread: what is synced may be confirmed, and the mailbox is free again."""
        count = sum(deposit.count for work, _ in works for deposit in work)
        self.machine.work(self.machine.plant.synced.of(count))
        for work, _ in works:
            for deposit in work:
                self.sent += deposit.count
                if deposit.lane.wants_confirms:
                    deposit.queue.confirm(deposit.lane, deposit.position, deposit.count)
        self._writing -= len(works)
        if self._held:
            self._held = False
            self.wake()

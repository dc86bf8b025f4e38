"""MessageStore: messages that survive. The last stage of the chain.

Upstream: broker/queue.py, by broker/keeping.py.  Downstream: the disk.
Blocked: never by credit; while the journal's thread writes, the mailbox is held, so that what comes in the meantime is
written together, and credit bounds how much that can be.

A turn takes what waits, encodes it, and hands it to the journal's thread as one piece of work. Only when that is synced
does a deposit hear that it is kept. What nobody waits for (removals, publishes without confirms) is gathered a little
longer. When the journal's file is full it is sealed, and the keeper makes a checkpoint of what is still alive in it.
Appends to streams come the same way, and are encoded and entered by streams.py.
Not here: bytes (record.py), files (files.py), the threads (journal.py, pager.py, keeper.py), paging (broker/paging.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from penstock.credit import BlockLog, Hop, Link, Stage
from penstock.runtime import Mailbox, Scheduler, Timer
from penstock.store.bodies import Bodies
from penstock.store.checkpoints import Checkpoints
from penstock.store.deposit import Deposit, Forget, Placement, Removal, origins_of
from penstock.store.files import Files
from penstock.store.journal import Journal, Target, Told, Work, Write
from penstock.store.keeper import BodyFile
from penstock.store.log import JOURNAL_NAME, QueueLog, StoredFile
from penstock.store.pager import Pager
from penstock.store.record import (
    BODIES,
    FILE_HEAD_BYTES,
    JOURNAL,
    NOTHING_RECORD,
    STREAM,
    SYNCED_RECORD,
    Range,
    encode_batch,
    encode_file_head,
    encode_forgotten,
    encode_removed,
)
from penstock.store.recovery import Recovered, RecoveredLog
from penstock.store.stream import Append
from penstock.store.streams import Index, Roll, StreamItem, Streams

JOURNAL_BYTES: Final = 67_108_864  # store.journal_bytes; a checkpoint of it takes about a second
EMBED_BELOW_BYTES: Final = 4096  # store.embed_below_bytes: RabbitMQ's queue_index_embed_msgs_below
BODY_FACTOR: Final = 4  # so many times the journal's size in bodies make a checkpoint too
GATHER_BYTES_MAX: Final = 4_194_304  # in one piece of work: some milliseconds of a disk
HEAVY_BYTES: Final = 1_048_576  # a piece of work that keeps the disk busy: the next one is prepared meanwhile
GATHER_S: Final = 0.01  # for what nobody waits for: ten milliseconds of acks may be delivered again after kill -9


class Barrier:
    """Something to be done when all that was cast before it is synced."""

    __slots__ = ("then",)

    def __init__(self, then: Callable[[], None]) -> None:
        self.then = then


Item = Deposit | Removal | Forget | Barrier | StreamItem


class MessageStore(Stage):
    __slots__ = (
        "_directory",
        "_files",
        "_gathered",
        "_held",
        "_next_number",
        "_post",
        "_scheduler",
        "_submitted",
        "_target",
        "_timer",
        "_told_trouble",
        "_work",
        "_write",
        "_writing",
        "bodies",
        "checkpoints",
        "embed_below",
        "hop",
        "journal",
        "journal_bytes",
        "logs",
        "mailbox",
        "pager",
        "pending_bytes",
        "pending_messages",
        "streams",
        "trouble",
        "written_bytes",
    )

    def __init__(
        self,
        directory: Path,
        scheduler: Scheduler,
        hop: Hop,
        post: Callable[[Callable[[], None]], object],
        told_trouble: Callable[[str], None],
        report: Callable[[str], None],
        files: Files,
        recovered: Recovered,
        block_log: BlockLog | None = None,
    ) -> None:
        """`post` has a function called on the broker's thread, from whatever thread; `told_trouble` gets a line when
        the disk does not do what it should, and an empty one when it does again; `report` gets lines for the log."""
        super().__init__("store", scheduler.clock.now_ns, block_log, "store")
        self._directory = directory
        self._scheduler = scheduler
        self.hop = hop
        self._post = post
        self._told_trouble = told_trouble
        self._files = files
        self.mailbox: Mailbox[Item] = Mailbox(scheduler, self)
        self.journal = Journal(directory, files, post, self._told)
        self.bodies = Bodies(directory)
        self.logs: dict[int, QueueLog] = {}
        self.journal_bytes = JOURNAL_BYTES
        self.embed_below = EMBED_BELOW_BYTES
        self.trouble = ""
        self.pending_messages = 0  # cast to it, and not synced yet
        self.pending_bytes = 0
        self.written_bytes = 0  # and synced, so far; about
        for body in recovered.bodies:
            if body.number not in recovered.moved:
                self.bodies.files[body.number] = StoredFile(BODIES, body.number, body.path)
        self.bodies.moved.update(recovered.moved)
        self.pager = Pager(directory / "pages", files, self.bodies, post, report)
        self.checkpoints = Checkpoints(self, directory, files, scheduler.clock, post, report, recovered)
        self.streams = Streams(self, directory, files, scheduler.clock, post, report)
        self._next_number = recovered.next_number
        self._target: Target | None = None  # the journal's file
        self._work = Work()
        self._write: Write | None = None  # the journal's part of the work
        self._gathered = 0  # bytes
        self._submitted: deque[Work] = deque()  # not synced yet
        self._writing = 0  # pieces of work that the journal's thread has
        self._held = False
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Before anything is delivered: a new journal file tells the next start that there was a life after the last
        stop in order."""
        self._append(SYNCED_RECORD)
        self._work.to_sync = True
        self._submit()
        while self._writing and not self.trouble:
            self.journal.wait()

    # Queues.

    def link(self, queue: Stage) -> Link:
        link = queue.outgoing.get(self)
        return link if link is not None else Link(self.hop, queue, self)

    def log(self, id_: int, name: str, recovered: RecoveredLog | None = None) -> QueueLog:
        """Of the queue with this id: what the disk has of it, or a new one."""
        log = recovered.log if recovered is not None else QueueLog(id_, name)
        log.name = name
        self.logs[id_] = log
        return log

    def take_number(self) -> int:
        """For a new file."""
        self._next_number += 1
        return self._next_number - 1

    def is_synced(self) -> bool:
        """Whether all that was handed to the journal's thread is."""
        return not self._submitted

    def when_synced(self, then: Callable[[], None]) -> None:
        """Call this when all that was cast until now is synced."""
        self.mailbox.cast(Barrier(then))

    def deposit(self, deposit: Deposit) -> None:
        deposit.log.removal = None  # what is removed from now on comes behind it
        if deposit.link is not None:
            deposit.link.spend(len(deposit.messages), deposit.size)
        self.expect(len(deposit.messages), deposit.size)
        self.mailbox.cast(deposit)

    def expect(self, messages: int, bytes_: int) -> None:
        """This much is cast to it."""
        self.pending_messages += messages
        self.pending_bytes += bytes_

    def remove(self, log: QueueLog, positions: Sequence[int]) -> None:
        """These messages are gone; some of them may never have been here."""
        removal = log.removal
        if removal is None:
            removal = log.removal = Removal(log)
            self.mailbox.cast(removal)
        removal.add(positions)

    def remove_ranges(self, log: QueueLog, ranges: Sequence[Range]) -> None:
        for first, end in ranges:
            self.remove(log, range(first, end))

    def forget(self, log: QueueLog) -> None:
        """The queue is gone."""
        log.forgotten = True
        log.extents.clear()
        self.logs.pop(log.id, None)
        self.mailbox.cast(Forget(log))

    # The stage.

    def take(self, item: Item) -> int:
        if isinstance(item, Deposit):
            self._deposit(item)
            return len(item.messages)
        if isinstance(item, (Append, Roll, Index)):
            self._gathered += self.streams.take(item, self._work)
            return len(item.messages) if isinstance(item, Append) else 1
        if isinstance(item, Barrier):
            self._work.barriers.append(item.then)
            self._work.to_sync = self._work.awaited = True
            self._append(NOTHING_RECORD)  # so that there is something to sync
            return 1
        log = item.log
        if isinstance(item, Forget):
            self._append(encode_forgotten(log.id))
        else:
            if log.removal is item:
                log.removal = None
            if not log.forgotten:
                self._append(encode_removed(log.id, item.ranges))
        return 1

    def take_urgent(self, item: Item) -> None:
        raise AssertionError(f"nothing is urgent to the store, but it got {item!r}")

    def finish(self, budget: int) -> int:
        if self._held or not self._gathered:
            return 0
        full = self._gathered >= GATHER_BYTES_MAX
        if full or (self._work.awaited and not self.mailbox.ordinary):
            self._submit()
        elif not self._work.awaited and self._timer is None:
            self._timer = self._scheduler.clock.call_later(GATHER_S, self._gathered_enough)
        return 0

    def _gathered_enough(self) -> None:
        self._timer = None
        if self._gathered and not self._held:
            self._submit()

    # Encoding.

    def _deposit(self, deposit: Deposit) -> None:
        count = len(deposit.messages)
        if deposit.link is not None:
            deposit.link.handle(count, deposit.size)
        log = deposit.log
        if log.forgotten:
            self.expect(-count, -deposit.size)
            if deposit.receipt is not None:
                deposit.receipt.kept()  # a deleted queue counts as confirmed
            return
        contents = [content for _, content in deposit.messages]
        bodies: list[tuple[int, int, int, int]] = []
        for at in deposit.large:
            size = len(contents[at])
            if self.bodies.target is None:
                self.bodies.begin(self.take_number())
            reference, file, offset = self.bodies.place(contents[at])
            contents[at] = reference
            bodies.append((deposit.first + at, file, offset, size))
        record = encode_batch(
            log.id,
            deposit.first,
            origins_of(deposit.messages),
            contents,
            deposit.large,
            deposit.deadlines,
            marks=deposit.marks,
        )
        offset = self._append(record)
        self._work.placements.append(Placement(deposit, offset, len(record), bodies))
        self._work.messages += count
        self._work.bytes += deposit.size
        self._work.to_sync = True
        if deposit.receipt is not None:
            self._work.awaited = True
        if deposit.large:
            self._gathered += deposit.size

    def _append(self, record: bytes) -> int:
        """To the journal; the offset in its file."""
        target = self._target
        if target is None:
            number = self.take_number()
            file = StoredFile(JOURNAL, number, self._directory / JOURNAL_NAME.format(number))
            target = self._target = Target(file)
            self._write = Write(target, 0, [encode_file_head(JOURNAL, number)])
            target.size = FILE_HEAD_BYTES
        if self._write is None:
            self._write = Write(target, target.size, [])
            if not self._submitted:  # so all before it is synced, which recovery wants to know
                self._write.buffers.append(SYNCED_RECORD)
                target.size += len(SYNCED_RECORD)
        offset = target.size
        self._write.buffers.append(record)
        target.size += len(record)
        self._gathered += len(record)
        return offset

    # The journal's thread.

    def _submit(self) -> None:
        work, self._work = self._work, Work()
        work.writes = self.bodies.writes()
        if self._write is not None:
            work.writes.append(self._write)
            work.file = self._write.target.file
        self._write = None
        work.writes += self.streams.writes(work)
        work.size = self._gathered
        is_heavy = self._gathered >= HEAVY_BYTES
        self._gathered = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        target = self._target
        if target is not None and (
            target.size >= self.journal_bytes or self.bodies.written_bytes >= BODY_FACTOR * self.journal_bytes
        ):
            self._seal(work, target)
        self._writing += 1
        if not is_heavy or self._writing > 1:
            self._held = True
            self.mailbox.hold()
        self._submitted.append(work)
        self.journal.submit(work)

    def _seal(self, work: Work, target: Target) -> None:
        """What follows goes to a new journal file, and to a new file of bodies: then both can be judged as a whole."""
        work.seals.append(target)
        self._target = None
        bodies = self.bodies.seal()
        if bodies is not None:
            work.seals.append(bodies)

    def _sealed(self, target: Target) -> None:
        file = target.file
        if file.kind == JOURNAL:
            self.checkpoints.sealed(file)
        elif file.kind != STREAM:
            self.checkpoints.sealed_bodies(BodyFile(file.number, file.path, target.size))

    def _told(self, told: Told) -> None:
        """From the journal's thread."""
        if told.trouble:
            if told.sync_failed:
                for work in self._submitted:
                    for placement in work.placements:
                        if placement.deposit.receipt is not None:
                            placement.deposit.receipt.doubted()
                    self.streams.doubt(work.stretches)
            if told.trouble != self.trouble:
                self.trouble = told.trouble
                self._told_trouble(told.trouble)
            return
        for work in told.synced:
            self._submitted.popleft()
            self._enter(work)
        if told.synced and self.trouble:
            self.trouble = ""
            self._told_trouble("")
        self._writing -= len(told.written)
        if told.written and self._held:
            self._held = False
            self.mailbox.release()

    def _enter(self, work: Work) -> None:
        """It is synced: from now on it can be read, paged out, and confirmed."""
        file = work.file
        self.expect(-work.messages, -work.bytes)
        self.written_bytes += work.size
        for placement in work.placements:
            deposit = placement.deposit
            log = deposit.log
            if file is not None and not log.forgotten:
                extent = log.append(file, deposit.first, len(deposit.messages), placement.offset, placement.size)
                for position, number, offset, size in placement.bodies:
                    extent.append_large(position, number, offset, size)
            if deposit.receipt is not None:
                deposit.receipt.kept()
        self.streams.enter(work.stretches)
        for target in work.seals:
            self._sealed(target)
        for barrier in work.barriers:
            barrier()
        self.checkpoints.look()

    # The end.

    def close(self) -> bool:
        """Write and sync what was cast, then make the next start quick; False if the disk does not let us."""
        self._write_all()
        if self.streams.logs:
            while self._submitted and not self.trouble:
                self.journal.wait()
            if not self.trouble:
                self._gathered += self.streams.index_all(self._work)
                self._write_all()
        written = self.journal.close()
        self.bodies.close()
        for target in (self._target, self.bodies.target):
            if target is not None and target.descriptor >= 0:
                self._files.close(target.descriptor)
                target.descriptor = -1
        bodies = self.bodies.seal()
        if bodies is not None:
            self._sealed(bodies)
        self.checkpoints.close(self._target.file if self._target is not None else None, written)
        self.pager.close()
        self.streams.close()
        self.mailbox.close()
        return written

    def _write_all(self) -> None:
        """What waits, without gathering more."""
        while self._writing and not self.trouble:
            self.journal.wait()
        while self.mailbox.ordinary:
            self.take(self.mailbox.ordinary.popleft())
        if self._gathered:
            self._work.to_sync = True
            self._submit()

    def __repr__(self) -> str:
        return f"<MessageStore logs={len(self.logs)} waiting={len(self.mailbox)} trouble={self.trouble!r}>"

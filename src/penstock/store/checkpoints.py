"""Checkpoints: when the keeper has something to do, what exactly, and what is different when it is done.

A journal file that is full is sealed; when it is synced, all that is still alive in it is to be written to a segment.
With it go those segments of which little is alive. The task is made on the broker's thread, from what the queues say is
alive, and given to the keeper only when everything that was written before is synced: a message that moved from one
queue to another must not be gone from the first before it is safe in the second.
Place in the chain: beside store.py. Not here: doing it (keeper.py).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.runtime import Clock, Timer
from penstock.store.files import Files
from penstock.store.keeper import (
    BodyFile,
    Keeper,
    Result,
    Root,
    SegmentUse,
    Shelf,
    State,
    Task,
    run,
    worth_rewriting,
)
from penstock.store.log import QueueLog, StoredFile
from penstock.store.record import Range
from penstock.store.recovery import Recovered

if TYPE_CHECKING:
    from penstock.store.store import MessageStore

RETRY_S: Final = 5.0  # until a checkpoint that failed is tried again: the journal grows meanwhile, nothing else


class Segment:
    __slots__ = ("bytes", "file", "messages")

    def __init__(self, file: StoredFile, bytes_: int, messages: int) -> None:
        self.file = file
        self.bytes = bytes_
        self.messages = messages


class Checkpoints:
    __slots__ = (
        "_bodies",
        "_clock",
        "_directory",
        "_files",
        "_keeper",
        "_report",
        "_store",
        "_timer",
        "busy",
        "count",
        "journals",
        "segments",
    )

    def __init__(
        self,
        store: MessageStore,
        directory: Path,
        files: Files,
        clock: Clock,
        post: Callable[[Callable[[], None]], object],
        report: Callable[[str], None],
        recovered: Recovered,
    ) -> None:
        self._store = store
        self._directory = directory
        self._files = files
        self._clock = clock
        self._report = report
        self._keeper = Keeper(files, post, self._done)
        self._timer: Timer | None = None
        self._bodies = {body.number: body for body in recovered.bodies}
        self.segments = {one.file.number: Segment(one.file, one.bytes, one.messages) for one in recovered.segments}
        self.journals: list[StoredFile] = [one.file for one in recovered.journals]  # full, synced, to be covered
        self.busy = True  # until all queues are there: what nobody claims would be dropped
        self.count = 0

    def begin(self) -> None:
        """Every queue has its log by now."""
        self.busy = False
        self.look()

    def sealed(self, file: StoredFile) -> None:
        """A journal file is full, and all of it is synced."""
        self.journals.append(file)

    def sealed_bodies(self, body: BodyFile) -> None:
        self._bodies[body.number] = body

    def look(self) -> None:
        """Begin a checkpoint if one is due and none is being made."""
        if not self.busy and self._timer is None and self.journals:
            self.busy = True
            self._store.when_synced(self._task(clean=False), self._keeper.submit)

    def _task(self, clean: bool) -> Task:
        logs = [log for log in self._store.logs.values() if not log.is_empty()]
        living: dict[int, list[Range]] = {}
        for log in logs:
            assert log.owner is not None, "a log without a queue"
            living[log.id] = log.owner.living()
        covers = max((file.number for file in self.journals), default=0)
        rewritten = self._rewritten(logs, living)
        sources = rewritten | {file.number for file in self.journals}
        shelves: list[Shelf] = []
        roots: list[Root] = []
        states: list[State] = []
        for log in logs:
            extents = [extent for level in sorted(log.extents) for extent in log.extents[level]]
            moving = [extent for extent in extents if extent.file.number in sources]
            if moving:
                shelves.append(Shelf(log.id, log.name, living[log.id], moving))
            referring = [
                extent.copy() if extent.file is self._store.journal_file() else extent
                for extent in extents
                if extent.large_positions
            ]
            if referring:
                roots.append(Root(living[log.id], referring))
            owner = log.owner
            if owner is not None:
                states.append(State(log.id, living[log.id], owner.ends(), owner.redelivered_below()))
        return Task(
            self._directory,
            self._store.take_number(),
            covers,
            clean=clean,
            journals=[file.path for file in self.journals],
            segments=[self.segments[number].file for number in rewritten],
            shelves=shelves,
            states=states,
            roots=roots,
            body_files=list(self._bodies.values()),
            moved=dict(self._store.bodies.moved),
            compact_number=self._store.take_number(),
        )

    def _rewritten(self, logs: list[QueueLog], living: dict[int, list[Range]]) -> set[int]:
        """The segments of which so little is alive that it is written anew."""
        alive = dict.fromkeys(self.segments, 0)
        for log in logs:
            for extents in log.extents.values():
                for extent in extents:
                    if extent.file.number in alive:
                        alive[extent.file.number] += extent.count(living[log.id])
        uses = [
            SegmentUse(number, segment.bytes, segment.messages, alive[number])
            for number, segment in self.segments.items()
        ]
        return set(worth_rewriting(uses))

    def _done(self, result: Result) -> None:
        """From the keeper."""
        self.busy = False
        for damage in result.damages:
            self._report(f"damaged: {damage}")
        if result.bodies_error:
            self._report(f"large messages cannot be compacted: {result.bodies_error}")
        if result.error:
            self._report(f"checkpoint failed: {result.error}; it is tried again")
            self._timer = self._clock.call_later(RETRY_S, self._again)
            return
        self._apply(result)
        self._store.pager.remove(result.removable)
        self.look()

    def _again(self) -> None:
        self._timer = None
        self.look()

    def _apply(self, result: Result) -> None:
        store, task = self._store, result.task
        self.count += 1
        gone = result.gone()
        for log in store.logs.values():
            if log.id in result.extents or not log.is_empty():
                log.replace(gone, result.extents.get(log.id, ()))
        self.journals = [file for file in self.journals if file.number > task.covers]
        for file in task.segments:
            self.segments.pop(file.number, None)
        if result.file is not None:
            self.segments[result.file.number] = Segment(result.file, result.bytes, result.messages)
        for number in result.bodies_gone:
            self._bodies.pop(number, None)
            store.bodies.forget(number)
        if result.bodies is not None and result.moved is not None:
            self._bodies[result.bodies.number] = result.bodies
            store.bodies.moved[result.bodies.number] = result.moved

    def close(self, journal: StoredFile | None, clean: bool) -> None:
        """The store stops: everything is synced and nothing comes any more. What is alive goes to one last segment, so
        that the next start has no journal to read."""
        self._keeper.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if journal is not None:
            self.journals.append(journal)
        if not clean or not (self.journals or self.segments):
            return
        result = run(self._task(clean=True), self._files)
        if result.error:
            self._report(f"last checkpoint failed: {result.error}; the next start reads the journal instead")
            return
        for path in result.removable:
            self._files.remove(path)

"""Checkpoints: when the keeper has something to do, what exactly, and what is different when it is done.

A journal file that is full is sealed; when it is synced, all that is still alive in it is to be written to a segment.
With it go those segments of which little is alive. The task is made on the broker's thread, from what the queues say is
alive, and given to the keeper only when everything that was written before is synced: a message that moved from one
queue to another must not be gone from the first before it is safe in the second.
Place in the chain: beside store.py. Not here: doing it (keeper.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
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
from penstock.store.log import Extent, QueueLog, StoredFile
from penstock.store.record import JOURNAL, Range
from penstock.store.recovery import Recovered

if TYPE_CHECKING:
    from penstock.store.store import MessageStore

SLICE: Final = 200  # queues looked at before the loop has its turn: about a millisecond
RETRY_S: Final = 5.0  # until a checkpoint that failed is tried again: the journal grows meanwhile, nothing else


DONE: Final = object()


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
        "_steps",
        "_store",
        "_timer",
        "busy",
        "count",
        "is_closed",
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
        self.is_closed = False
        self._steps: Iterator[None] = iter(())  # what is left to do on the broker's thread
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
            self._steps = self._prepare()
            self._step()

    def _step(self) -> None:
        """A slice of what is to be done on the broker's thread; with thousands of queues the loop needs its turn."""
        self._timer = None
        if next(self._steps, DONE) is not DONE:
            self._timer = self._clock.call_later(0.0, self._step)

    def _prepare(self) -> Iterator[None]:
        made: list[Task] = []
        yield from self._make(made, clean=False)
        self._store.when_synced(partial(self._keeper.submit, made[0]))

    def _make(self, made: list[Task], clean: bool) -> Iterator[None]:
        """The task, from what is alive now. Not all of it at one moment: what is removed or arrives meanwhile is in
        journals that are newer than those covered."""
        journals = list(self.journals)
        bodies = list(self._bodies.values())  # now: all that refers to them is known; of later ones it may not be yet
        # A queue that is empty may have marks of producers to be kept, which are nowhere else when the journals go.
        logs = [log for log in self._store.logs.values() if not log.is_empty() or (log.owner and log.owner.marks())]
        living: dict[int, list[Range]] = {}
        alive = dict.fromkeys(self.segments, 0)
        for at, log in enumerate(logs):
            if at % SLICE == SLICE - 1:
                yield
            if log.forgotten:
                continue
            assert log.owner is not None, "a log without a queue"
            living[log.id] = log.owner.living()
            for extent in _extents(log):
                if extent.file.number in alive:
                    alive[extent.file.number] += extent.count(living[log.id])
        uses = [
            SegmentUse(number, segment.bytes, segment.messages, alive[number])
            for number, segment in self.segments.items()
        ]
        rewritten = set(worth_rewriting(uses))
        sources = rewritten | {file.number for file in journals}
        shelves: list[Shelf] = []
        roots: list[Root] = []
        states: list[State] = []
        for at, log in enumerate(logs):
            if at % SLICE == SLICE - 1:
                yield
            if not log.forgotten and log.owner is not None:
                shelves += self._shelf(log, living[log.id], sources)
                roots += self._root(log, living[log.id], sources)
                owner = log.owner
                states.append(State(log.id, living[log.id], owner.ends(), owner.redelivered_below(), owner.marks()))
        made.append(
            Task(
                self._directory,
                self._store.take_number(),
                max((file.number for file in journals), default=0),
                clean=clean,
                journals=[file.path for file in journals],
                segments=[self.segments[number].file for number in rewritten],
                shelves=shelves,
                states=states,
                roots=roots,
                body_files=bodies,
                moved=dict(self._store.bodies.moved),
                compact_number=self._store.take_number(),
            )
        )

    def _shelf(self, log: QueueLog, living: list[Range], sources: set[int]) -> list[Shelf]:
        moving = [extent for extent in _extents(log) if extent.file.number in sources]
        return [Shelf(log.id, log.name, living, moving)] if moving else []

    def _root(self, log: QueueLog, living: list[Range], sources: set[int]) -> list[Root]:
        # Extents of newer journals still grow while the keeper reads.
        referring = [
            extent.copy() if extent.file.kind == JOURNAL and extent.file.number not in sources else extent
            for extent in _extents(log)
            if extent.large_positions
        ]
        return [Root(living, referring)] if referring else []

    def _done(self, result: Result) -> None:
        """From the keeper."""
        for damage in result.damages:
            self._report(f"damaged: {damage}")
        if self.is_closed:
            return  # it was given up, or is not needed any more: `close` made one of its own
        if result.bodies_error:
            self._report(f"large messages cannot be compacted: {result.bodies_error}")
        if result.error:
            self.busy = False
            self._report(f"checkpoint failed: {result.error}; it is tried again")
            self._timer = self._clock.call_later(RETRY_S, self._again)
            return
        self._steps = self._apply(result)
        self._step()

    def _again(self) -> None:
        self._timer = None
        self.look()

    def _apply(self, result: Result) -> Iterator[None]:
        """What is different now; then the files that were replaced can go."""
        store, task = self._store, result.task
        gone = result.gone()
        for at, shelf in enumerate(task.shelves):
            if at % SLICE == SLICE - 1:
                yield
            log = store.logs.get(shelf.log_id)
            if log is not None:
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
        store.pager.remove(result.removable)
        self.count += 1
        self.busy = False
        self.look()

    def close(self, journal: StoredFile | None, clean: bool) -> None:
        """The store stops: everything is synced and nothing comes any more. What is alive goes to one last segment, so
        that the next start has no journal to read."""
        self.is_closed = True
        self._keeper.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if journal is not None:
            self.journals.append(journal)
        if not clean or not (self.journals or self.segments):
            return
        made: list[Task] = []
        for _ in self._make(made, clean=True):
            pass
        result = run(made[0], self._files)
        if result.error:
            self._report(f"last checkpoint failed: {result.error}; the next start reads the journal instead")
            return
        for path in result.removable:
            self._files.remove(path)


def _extents(log: QueueLog) -> list[Extent]:
    """In order of position."""
    return [extent for level in sorted(log.extents) for extent in log.extents[level]]

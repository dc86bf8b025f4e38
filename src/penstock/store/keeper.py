"""Keeper: the thread that makes checkpoints. What is still alive in the journals is written to one segment file, queue
by queue, and the journals are not needed any more.

Place in the chain: beside it. store.py makes a Task on the broker's thread, with everything in it; `run` does it on the
keeper's thread, and the Result is told on the broker's thread again. Nothing is removed here: when the result is told,
all that was made is durable, and store.py removes `Result.removable` when nobody reads there any more.

The order that keeps the promise: the segment is written as `.new`, synced, renamed, its directory synced; only then is
anything removable. If that fails, nothing has changed, and the same task may be tried again.
While it works it gives the interpreter back every few milliseconds (sealed.py:Pace), because the broker's loop runs in
the same process.
Not here: how batches are copied (segment.py), large contents (compact.py), when a checkpoint is due (store.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple

from penstock.store.bodies import Moved
from penstock.store.compact import FILE_BYTES_MIN, BodyFile, Compaction, Root, tidy
from penstock.store.files import Files
from penstock.store.index import Seal, encode_index, encode_producers, encode_states
from penstock.store.log import BODIES_NAME, SEGMENT_NAME, DamagedBytes, Extent, StoredFile
from penstock.store.record import SEGMENT, Marks, Range
from penstock.store.sealed import Pace, SealedWriter, Stopped
from penstock.store.segment import SegmentCopy, Sources

__all__ = [
    "BodyFile",
    "Keeper",
    "Result",
    "Root",
    "SegmentUse",
    "Shelf",
    "State",
    "Task",
    "run",
    "worth_rewriting",
]

LIVING_MIN: Final = 2  # a segment is rewritten when less than one in so many of its messages is alive
SMALL_BYTES: Final = 1_048_576  # a segment below this is small,
SMALL_MAX: Final = (
    64  # and so many of them are few enough to leave alone: each is an open file and a few reads at a start
)


class Shelf(NamedTuple):
    """One queue's messages that are to be rewritten."""

    log_id: int
    name: str  # for reports of damage
    living: Sequence[Range]  # sorted; the last range of a priority may be open
    sources: Sequence[Extent]  # in order of position; none of them is written to any more


class State(NamedTuple):
    """What is known of a queue when the task is made."""

    log_id: int
    living: Sequence[Range]
    heads: Mapping[int, int]  # by priority: the position of the next message that arrives
    redelivered_below: Mapping[int, int]  # by priority: what is below this position may have been delivered once
    marks: Marks | None = None  # how far its producers have come


class SegmentUse(NamedTuple):
    """What a segment has and what of it is still wanted."""

    number: int
    bytes: int  # of the file
    messages: int  # in it
    living: int  # of these


class Task:
    __slots__ = (
        "body_files",
        "clean",
        "compact_least_bytes",
        "compact_number",
        "covers",
        "directory",
        "journals",
        "moved",
        "number",
        "roots",
        "segments",
        "shelves",
        "states",
    )

    def __init__(
        self,
        directory: Path,
        number: int,
        covers: int,
        *,
        clean: bool = False,
        journals: Sequence[Path] = (),
        segments: Sequence[StoredFile] = (),
        shelves: Sequence[Shelf] = (),
        states: Sequence[State] = (),
        roots: Sequence[Root] = (),
        body_files: Sequence[BodyFile] = (),
        moved: Mapping[int, Moved] | None = None,
        compact_number: int = 0,
        compact_least_bytes: int = FILE_BYTES_MIN,
    ) -> None:
        self.directory = directory
        self.number = number  # of the new segment
        self.covers = covers  # all journals up to this number are not needed any more
        self.clean = clean  # written by a stop in order: nothing comes behind it, and nobody else works meanwhile
        self.journals = journals  # covered
        self.segments = segments  # replaced: all that is alive in them is in `shelves`
        self.shelves = shelves
        self.states = states  # of all queues that have anything on disk
        self.roots = roots  # of all queues that refer to large contents
        self.body_files = body_files  # that may be removed or compacted
        self.moved = moved or {}  # by the number of the file that bodies were moved to
        self.compact_least_bytes = compact_least_bytes  # a smaller file of bodies is left alone
        self.compact_number = compact_number  # for a new file of bodies; 0: do not compact


class Result:
    """What became of a task. If `error` is not empty, nothing has changed."""

    __slots__ = (
        "bodies",
        "bodies_error",
        "bodies_gone",
        "bytes",
        "damages",
        "error",
        "extents",
        "file",
        "messages",
        "moved",
        "removable",
        "task",
    )

    def __init__(self, task: Task) -> None:
        self.task = task
        self.error = ""  # why there is no segment
        self.file: StoredFile | None = None  # the new segment
        self.bytes = 0  # of it
        self.messages = 0  # in it
        self.extents: dict[int, list[Extent]] = {}  # by log id: for QueueLog.replace(numbers that are gone, extents)
        self.removable: list[Path] = []  # journals, segments and files of bodies
        self.bodies_gone: list[int] = []  # numbers of files of bodies that are removable
        self.bodies: BodyFile | None = None  # the compacted file, if one was made
        self.moved: Moved | None = None  # what is in it
        self.bodies_error = ""  # why bodies were not compacted; the rest of the result stands
        self.damages: list[DamagedBytes] = []

    def gone(self) -> set[int]:
        """The numbers of journals and segments whose extents have moved: those of the task's sources."""
        return {extent.file.number for shelf in self.task.shelves for extent in shelf.sources}


def run(task: Task, files: Files, pace: Pace | None = None) -> Result:
    """Do it. What the disk refuses is the result's error, not an exception."""
    pace = pace or Pace()
    pace.hurry = pace.hurry or task.clean
    result = Result(task)
    try:
        _checkpoint(task, files, pace, result)
    except (OSError, Stopped) as error:
        result = Result(task)
        result.error = f"{task.directory / SEGMENT_NAME.format(task.number)}: {_reason(error)}"
        return result
    result.removable += task.journals
    result.removable += [file.path for file in task.segments]
    compaction = Compaction()
    try:
        tidy(
            task.body_files,
            task.roots,
            task.moved,
            task.directory,
            task.compact_number,
            task.compact_least_bytes,
            files,
            pace,
            compaction,
        )
    except (OSError, Stopped) as error:
        result.bodies_error = f"{task.directory / BODIES_NAME.format(task.compact_number)}: {_reason(error)}"
    result.removable += [file.path for file in compaction.gone]
    result.bodies_gone = [file.number for file in compaction.gone]
    result.bodies = compaction.file
    result.moved = compaction.moved
    result.damages += compaction.damages
    return result


def _reason(error: OSError | Stopped) -> str:
    return "given up" if isinstance(error, Stopped) else error.strerror or str(error)


def _checkpoint(task: Task, files: Files, pace: Pace, result: Result) -> None:
    path = task.directory / SEGMENT_NAME.format(task.number)
    file = result.file = StoredFile(SEGMENT, task.number, path)
    seal = Seal(task.covers, task.clean, [replaced.number for replaced in task.segments])
    sources = Sources(files)
    writer = SealedWriter(files, path, SEGMENT, task.number, seal, pace)
    try:
        for shelf in task.shelves:
            copy = SegmentCopy(file, writer, sources, result.damages)
            copy.copy(*shelf)
            if copy.extents:
                result.extents[shelf.log_id] = copy.extents
            result.messages += copy.messages
            pace.breathe()
        pairs = ((id_, extent) for id_, extents in result.extents.items() for extent in extents)
        states = ((state.log_id, state.living, state.heads, state.redelivered_below) for state in task.states)
        marks = ((state.log_id, state.marks) for state in task.states if state.marks)
        index = chain(encode_index(pairs), encode_states(states), encode_producers(marks))
        result.bytes = writer.finish(index, result.messages)
    except BaseException:
        writer.abandon()
        raise
    finally:
        sources.close()


class Keeper:
    """All methods are for the broker's thread."""

    __slots__ = ("_done", "_files", "_inbox", "_pace", "_post", "_thread")

    def __init__(
        self,
        files: Files,
        post: Callable[[Callable[[], None]], object],
        done: Callable[[Result], None],
    ) -> None:
        """`post` has a function called on the broker's thread; `done` is called there with every result."""
        self._files = files
        self._post = post
        self._done = done
        self._pace = Pace()
        self._inbox: SimpleQueue[Task | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="keeper", daemon=True)
        self._thread.start()

    def submit(self, task: Task) -> None:
        """One after the other."""
        self._inbox.put(task)

    def hurry(self) -> None:
        """The broker's loop has stopped or waits for the keeper: work without pauses from now on."""
        self._pace.hurry = True

    def close(self, give_up: bool = True) -> None:
        """End the thread: now, with what it was doing failed, or when all that was submitted is done. The results are
        posted as ever."""
        if give_up:
            self._pace.stopped = True
        self.hurry()
        self._inbox.put(None)
        self._thread.join()

    def _work(self) -> None:
        while True:
            task = self._inbox.get()
            if task is None:
                return
            try:
                result = run(task, self._files, self._pace)
            except Exception as error:  # a defect of ours: the journals are still there, and the broker is told
                result = Result(task)
                result.error = f"{task.directory}: the checkpoint failed: {error!r}"
            self._post(partial(self._done, result))


def worth_rewriting(segments: Sequence[SegmentUse]) -> list[int]:
    """The numbers of those segments whose living messages a checkpoint should write anew, so that the files can go."""
    chosen = [use.number for use in segments if use.living * LIVING_MIN < use.messages or not use.living]
    small = [use.number for use in segments if use.bytes < SMALL_BYTES]
    if len(small) > SMALL_MAX:
        chosen += small
    return sorted(set(chosen))

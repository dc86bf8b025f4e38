"""Journal: the thread that writes and syncs, for all queues at once.

Place in the chain: behind store.py, which gathers; the disk is next. One piece of work is one sequential write to each
file it touches and, if there are messages in it, one sync of these, all at the same time. While it is written the next
one gathers in the store's mailbox, so under load many publishes share one sync, and on an idle disk nobody waits for
company.

The order that keeps the promise: all bytes of a piece of work are written, then synced, and only then is the broker's
thread told. Work with removals alone is told when it is written, and again when it is synced, at most SYNC_WAIT_S
later.

Trouble: a write that fails is tried again until it succeeds; nothing is lost meanwhile, and nothing confirmed. After a
sync that failed nobody knows which pages reached the disk, and the kernel may have thrown them away: everything since
the last good sync is written again before the next sync, and whoever waited is told that his message is doubtful.
Not here: what is written (store.py, record.py).
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from penstock.store.files import Files
from penstock.store.log import StoredFile

if TYPE_CHECKING:
    from penstock.store.deposit import Placement
    from penstock.store.stream import Stretch

SYNC_WAIT_S: Final = 0.2  # RabbitMQ's interval: the longest that a write nobody waits for stays unsynced
AIDES_MAX: Final = 4  # threads that sync beside the journal's own: what a disk commits together anyway
DURATIONS_MAX: Final = 10_000  # of syncs, remembered: more than any disk does in the second until they are taken
RETRY_S: Final = 0.5  # until a failed write is tried again: soon for a person, seldom for a full disk
# The classes in which syncs are counted by how long they took, in seconds: from a fast SSD to a disk that fails.
SYNC_BOUNDS_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class Target:
    """A file that is being written to its end."""

    __slots__ = ("descriptor", "file", "sealed", "size")

    def __init__(self, file: StoredFile) -> None:
        self.file = file
        self.descriptor = -1  # the journal's thread opens it
        self.size = 0  # bytes handed out so far
        self.sealed = False  # nothing more will come

    def __repr__(self) -> str:
        return f"<Target {self.file.path.name} size={self.size}{' sealed' if self.sealed else ''}>"


class Write:
    __slots__ = ("buffers", "offset", "target")

    def __init__(self, target: Target, offset: int, buffers: list[bytes]) -> None:
        self.target = target
        self.offset = offset
        self.buffers = buffers

    def put(self, files: Files) -> None:
        """Write all of it; on the journal's thread, and again after a failure."""
        files.write(self.target.descriptor, self.buffers, self.offset)


class Work:
    """What is written in one go. `placements` and `stretches` say what it means, to whoever is told when it is done."""

    __slots__ = (
        "awaited",
        "barriers",
        "bytes",
        "file",
        "messages",
        "placements",
        "seals",
        "size",
        "stretches",
        "to_sync",
        "writes",
    )

    def __init__(self) -> None:
        self.writes: list[Write] = []
        self.file: StoredFile | None = None  # of the journal, where the placements are
        self.placements: list[Placement] = []
        self.stretches: list[Stretch] = []  # what it adds to streams
        self.barriers: list[Callable[[], None]] = []  # to be called when it is synced
        self.awaited = False  # somebody waits for the sync: it is not gathered any longer
        self.to_sync = False  # there are messages in it; what is only removed may be synced later
        self.seals: list[Target] = []  # to be closed when all of them is on disk
        self.messages = 0  # in it, and their bytes
        self.bytes = 0
        self.size = 0  # bytes to be written, about


class Told:
    """What the thread reports: pieces of work that are written, those that are synced, or why neither can be."""

    __slots__ = ("sync_failed", "synced", "trouble", "written")

    def __init__(self, trouble: str = "", sync_failed: bool = False) -> None:
        self.written: list[Work] = []
        self.synced: list[Work] = []
        self.trouble = trouble
        self.sync_failed = sync_failed


class Journal:
    __slots__ = (
        "_aides",
        "_closing",
        "_directory",
        "_failed",
        "_files",
        "_inbox",
        "_new_names",
        "_news",
        "_post",
        "_thread",
        "_told",
        "_told_something",
        "_unsynced",
        "_unsynced_since",
        "retry_s",
        "sync_counts",
        "sync_delay_s",
        "sync_durations",
        "sync_last_ns",
        "sync_max_ns",
        "sync_ns",
        "syncs",
        "write_ns",
    )

    def __init__(
        self,
        directory: Path,
        files: Files,
        post: Callable[[Callable[[], None]], object],
        told: Callable[[Told], None],
    ) -> None:
        """`post` has a function called on the broker's thread; `told` is called there with every report."""
        self._directory = directory
        self._files = files
        self._post = post
        self._told = told
        self._inbox: SimpleQueue[Work | None] = SimpleQueue()
        self._news: deque[Told] = deque()
        self._closing = threading.Event()
        self._told_something = threading.Event()
        self._unsynced: list[Work] = []
        self._unsynced_since = 0.0
        self._aides: list[Aide] = []  # made when they are needed first
        self._failed = False  # something of it may not be in its place
        self._new_names: dict[Path, None] = {}  # directories to be synced
        self.retry_s = RETRY_S
        self.sync_delay_s = 0.0  # faults.store_sync_delay_ms
        self.syncs = 0
        self.sync_ns = 0  # spent in syncs so far
        self.write_ns = 0  # and in writes
        self.sync_last_ns = 0  # how long the last one took
        self.sync_max_ns = 0
        self.sync_durations: deque[int] = deque(maxlen=DURATIONS_MAX)  # in ns, until somebody takes them
        self.sync_counts = [0] * (len(SYNC_BOUNDS_S) + 1)  # syncs up to each bound, and in the end those above all
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
        self._thread.start()

    # The broker's thread.

    def submit(self, work: Work) -> None:
        self._inbox.put(work)

    def close(self) -> bool:
        """Write and sync what was submitted; False if that cannot be done now."""
        self._closing.set()
        self._inbox.put(None)
        self._thread.join()
        for aide in self._aides:
            aide.close()
        self._hear()
        return not self._unsynced

    def take_syncs(self) -> list[int]:
        """How long syncs took since the last time, in nanoseconds."""
        return [self.sync_durations.popleft() for _ in range(len(self.sync_durations))]

    def wait(self) -> None:
        """Until there is a report, and hear it: for a broker that stops and has nothing else to do."""
        while not self._news:
            self._told_something.wait()
        self._hear()

    def _hear(self) -> None:
        self._told_something.clear()
        while self._news:
            self._told(self._news.popleft())

    # The journal's thread.

    def _run(self) -> None:
        while True:
            try:
                left = self._unsynced_since + SYNC_WAIT_S - time.monotonic() if self._unsynced else None
                works = self._all(self._inbox.get(timeout=None if left is None else max(0.0, left)))
            except Empty:
                self._persist([], to_sync=True)
                continue
            if works and not self._unsynced:
                self._unsynced_since = time.monotonic()
            self._unsynced += works
            is_last = self._closing.is_set() and self._inbox.empty()
            late = time.monotonic() - self._unsynced_since >= SYNC_WAIT_S
            self._persist(works, is_last or late or any(work.to_sync for work in works))
            if is_last:
                return

    def _all(self, first: Work | None) -> list[Work]:
        """All that waits: it shares one sync."""
        works = [first]
        while not self._inbox.empty():
            works.append(self._inbox.get())
        return [work for work in works if work is not None]

    def _persist(self, works: list[Work], to_sync: bool) -> None:
        """Write these and, if told so, sync everything; until it succeeds."""
        while True:
            try:
                # Whatever of it reached the disk: all of it again, to the same places, and then a sync.
                self._write(self._unsynced if self._failed else works)
                told = Told()
                told.written = works
                if to_sync or self._failed:
                    told.synced = self._sync()
                self._tell(told)
                return
            except OSError as error:
                self._failed = True
                self._tell(Told(_reason(error), isinstance(error, SyncError)))
                if self._closing.wait(self.retry_s):
                    return

    def _write(self, works: list[Work]) -> None:
        files = self._files
        began = time.monotonic_ns()
        for work in works:
            for write in work.writes:
                target = write.target
                if target.descriptor < 0:
                    self._create(target)
                write.put(files)
        self.write_ns += time.monotonic_ns() - began

    def _create(self, target: Target) -> None:
        directory = target.file.path.parent
        if directory != self._directory:
            self._files.make_directory(directory)
        target.descriptor = self._files.create(target.file.path)
        while directory != self._directory:  # each of these may be new too
            self._new_names[directory] = None
            directory = directory.parent
        self._new_names[directory] = None

    def _sync(self) -> list[Work]:
        if not self._unsynced:
            return []
        began = time.monotonic_ns()
        targets = {write.target: None for work in self._unsynced for write in work.writes}
        try:
            if self.sync_delay_s:
                self._closing.wait(self.sync_delay_s)
            self._sync_all([target.descriptor for target in targets])
            for directory in self._new_names:
                self._files.sync_directory(directory)
            self._new_names.clear()
        except OSError as error:
            raise SyncError(error.errno, os.strerror(error.errno or 0)) from None
        self._count(time.monotonic_ns() - began)
        done, self._unsynced = self._unsynced, []
        self._failed = False
        for work in done:
            for target in work.seals:
                self._files.close(target.descriptor)
                target.descriptor = -1
        return done

    def _count(self, took_ns: int) -> None:
        self.syncs += 1
        self.sync_ns += took_ns
        self.sync_last_ns = took_ns
        self.sync_durations.append(took_ns)
        self.sync_max_ns = max(self.sync_max_ns, took_ns)
        self.sync_counts[sync_class(took_ns)] += 1

    def _sync_all(self, descriptors: list[int]) -> None:
        """The journal, the bodies and streams at the same time: the disk commits all in little more than one."""
        helpers = min(len(descriptors) - 1, AIDES_MAX)
        while len(self._aides) < helpers:
            self._aides.append(Aide(self._files))
        aides = self._aides[:helpers]
        for at, aide in enumerate(aides, 1):
            aide.begin(descriptors[at :: helpers + 1])
        errors: list[OSError | None] = []
        try:
            for descriptor in descriptors[:: helpers + 1]:
                self._files.sync(descriptor)
        finally:
            errors += [aide.end() for aide in aides]
        for error in errors:
            if error is not None:
                raise error

    def _tell(self, told: Told) -> None:
        self._news.append(told)
        self._told_something.set()
        self._post(self._hear)


class Aide:
    """A second thread, for syncs that can go on at the same time as the journal's own."""

    __slots__ = ("_answers", "_files", "_inbox", "_thread")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._inbox: SimpleQueue[list[int] | None] = SimpleQueue()
        self._answers: SimpleQueue[OSError | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="journal-aide", daemon=True)
        self._thread.start()

    def begin(self, descriptors: list[int]) -> None:
        self._inbox.put(descriptors)

    def end(self) -> OSError | None:
        """Wait for what was begun; what went wrong with it."""
        return self._answers.get()

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            descriptors = self._inbox.get()
            if descriptors is None:
                return
            failed: OSError | None = None
            for descriptor in descriptors:
                try:
                    self._files.sync(descriptor)
                except OSError as error:
                    failed = error
            self._answers.put(failed)


class SyncError(OSError):
    """It was the sync that failed: what was written before it may be anywhere."""


def sync_class(took_ns: int) -> int:
    """Which of the classes of SYNC_BOUNDS_S it is, or the one above them all."""
    return bisect_left(SYNC_BOUNDS_S, took_ns / 1e9)


def _reason(error: OSError) -> str:
    text = error.strerror or str(error)
    return f"sync failed: {text}" if isinstance(error, SyncError) else f"write failed: {text}"

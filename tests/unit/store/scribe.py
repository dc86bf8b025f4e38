"""Scribe: writes journals, bodies and checkpoints with the store's real code, and remembers what must be there.

Beside it, `read_back`: what a start finds, read from the files message by message, as the pager would.
"""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

from penstock.store.bodies import Moved
from penstock.store.files import Files
from penstock.store.keeper import BodyFile, Result, Root, Shelf, State, Task, run
from penstock.store.log import BODIES_NAME, JOURNAL_NAME, LEVEL_SHIFT, SEGMENT_NAME, Extent, QueueLog, StoredFile
from penstock.store.ranges import union
from penstock.store.record import (
    BODIES,
    FILE_HEAD_BYTES,
    JOURNAL,
    REFERENCE,
    REFERENCE_BYTES,
    SYNCED_RECORD,
    Batch,
    Damage,
    Range,
    Record,
    decode_body,
    encode_batch,
    encode_body_head,
    encode_file_head,
    encode_forgotten,
    encode_removed,
    raise_marks,
    read_record,
)
from penstock.store.recovery import Recovered, recover
from penstock.store.sealed import Pace

Kept = tuple[bytes, bytes, int]  # content, origin, deadline


class Queue:
    def __init__(self, id_: int) -> None:
        self.log = QueueLog(id_, f"q{id_}")
        self.living: dict[int, Kept] = {}
        self.ends: dict[int, int] = {}
        self.marks: dict[str, int] = {}

    def ranges(self) -> list[Range]:
        return union((position, position + 1) for position in self.living)


class Scribe:
    def __init__(self, directory: Path, files: Files | None = None) -> None:
        self.directory = directory
        self.files = files or Files()
        self.queues: dict[int, Queue] = {}
        self.forgotten: set[int] = set()
        self.sealed: list[StoredFile] = []  # journals
        self.segments: list[StoredFile] = []
        self.bodies: list[BodyFile] = []
        self.moved: dict[int, Moved] = {}
        self.damages: list[str] = []
        self.number = 0
        self.compact_least_bytes = 0
        self._journal: StoredFile | None = None
        self._size = 0
        self._bodies: StoredFile | None = None
        self._bodies_size = 0
        directory.mkdir(parents=True, exist_ok=True)

    # Writing.

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def _append_to(self, path: Path, data: bytes, offset: int) -> None:
        descriptor = self.files.create(path)
        self.files.write(descriptor, [data], offset)
        self.files.sync(descriptor)
        self.files.close(descriptor)

    def write(self, record: bytes) -> int:
        """To the journal; the offset of it."""
        if self._journal is None:
            number = self.next_number()
            path = self.directory / JOURNAL_NAME.format(number)
            self._journal = StoredFile(JOURNAL, number, path)
            head = encode_file_head(JOURNAL, number)
            self._append_to(path, head, 0)
            self._size = len(head)
        offset = self._size
        self._append_to(self._journal.path, record, offset)
        self._size += len(record)
        return offset

    @property
    def journal(self) -> Path:
        assert self._journal is not None
        return self._journal.path

    def body(self, content: bytes) -> tuple[int, int]:
        """Written to the file of bodies: the name of it."""
        if self._bodies is None:
            number = self.next_number()
            path = self.directory / BODIES_NAME.format(number)
            self._bodies = StoredFile(BODIES, number, path)
            head = encode_file_head(BODIES, number)
            self._append_to(path, head, 0)
            self._bodies_size = len(head)
        number, offset = self._bodies.number, self._bodies_size
        record = encode_body_head(crc32(content), len(content), number, offset) + content
        self._append_to(self._bodies.path, record, offset)
        self._bodies_size += len(record)
        return number, offset

    def batch(
        self,
        id_: int,
        contents: list[bytes],
        *,
        level: int = 0,
        origins: list[tuple[int, bytes]] | None = None,
        deadlines: list[int] | None = None,
        large: tuple[int, ...] = (),
        names: dict[int, tuple[int, int]] | None = None,
        skip: int = 0,
        marks: dict[str, int] | None = None,
    ) -> int:
        """The first position. `names` has bodies that are there already; `skip` positions are left out before it."""
        queue = self.queues.setdefault(id_, Queue(id_))
        first = queue.ends.get(level, level << LEVEL_SHIFT) + skip
        origins = origins or [(len(contents), b"origin")]
        written = list(contents)
        known = dict(names or {})
        for at in large:
            if at not in known:
                known[at] = self.body(contents[at])
            written[at] = REFERENCE.pack(*known[at], len(contents[at]), crc32(contents[at]))
        record = encode_batch(id_, first, origins, written, large, deadlines, marks=marks)
        raise_marks(queue.marks, marks or {})
        offset = self.write(record)
        assert self._journal is not None
        extent = queue.log.append(self._journal, first, len(contents), offset, len(record))
        for at in large:
            extent.append_large(first + at, *known[at], len(contents[at]))
        each = [origin for count, origin in origins for _ in range(count)]
        for at, content in enumerate(contents):
            queue.living[first + at] = content, each[at], deadlines[at] if deadlines else 0
        queue.ends[level] = first + len(contents)
        return first

    def remove(self, id_: int, *ranges: Range, record: bool = True) -> None:
        if record:
            self.write(encode_removed(id_, ranges))
        for first, end in ranges:
            for position in range(first, end):
                self.queues[id_].living.pop(position, None)

    def forget(self, id_: int) -> None:
        self.write(encode_forgotten(id_))
        self.queues.pop(id_, None)
        self.forgotten.add(id_)

    def synced(self) -> None:
        self.write(SYNCED_RECORD)

    def seal(self) -> None:
        """The next record begins a new journal, the next body a new file."""
        if self._journal is not None:
            self.sealed.append(self._journal)
            self._journal = None
        if self._bodies is not None:
            self.bodies.append(BodyFile(self._bodies.number, self._bodies.path, self._bodies_size))
            self._bodies = None

    # Checkpoints.

    def task(self, rewrite: set[int] | None = None, clean: bool = False) -> Task:
        """Of all sealed journals, and these segments (None: all of them)."""
        segments = [file for file in self.segments if rewrite is None or file.number in rewrite]
        gone = {file.number for file in self.sealed + segments}
        shelves, states, roots = [], [], []
        for id_, queue in sorted(self.queues.items()):
            extents = [extent for level in sorted(queue.log.extents) for extent in queue.log.extents[level]]
            sources = [extent for extent in extents if extent.file.number in gone]
            living = queue.ranges()
            if sources:
                shelves.append(Shelf(id_, queue.log.name, living, sources))
            states.append(State(id_, living, dict(queue.ends), {0: 7}, dict(queue.marks)))
            roots.append(Root(living, [extent.copy() for extent in extents]))
        covers = max((file.number for file in self.sealed), default=0)
        return Task(
            self.directory,
            self.next_number(),
            covers,
            clean=clean,
            journals=[file.path for file in self.sealed],
            segments=segments,
            shelves=shelves,
            states=states,
            roots=roots,
            body_files=list(self.bodies),
            moved=dict(self.moved),
            compact_number=self.next_number(),
            compact_least_bytes=self.compact_least_bytes,
        )

    def apply(self, result: Result, remove: bool = True) -> None:
        """As the store does it on the broker's thread."""
        assert not result.error, result.error
        assert result.file is not None
        gone = result.gone()
        for id_, queue in self.queues.items():
            queue.log.replace(gone, result.extents.get(id_, []))
        task = result.task
        self.sealed = [file for file in self.sealed if file.path not in task.journals]
        self.segments = [file for file in self.segments if file not in task.segments] + [result.file]
        self.bodies = [file for file in self.bodies if file.number not in result.bodies_gone]
        self.moved = {number: one for number, one in self.moved.items() if number not in result.bodies_gone}
        if result.bodies is not None and result.moved is not None:
            self.bodies.append(result.bodies)
            self.moved[result.bodies.number] = result.moved
        if remove:
            for path in result.removable:
                self.files.remove(path)

    def checkpoint(self, rewrite: set[int] | None = None, clean: bool = False) -> Result:
        self.seal()
        result = run(self.task(rewrite, clean), self.files, Pace(hurry=True))
        self.apply(result)
        return result

    # What must be there.

    def expected(self) -> dict[int, list[tuple[int, Kept]]]:
        return {id_: sorted(queue.living.items()) for id_, queue in self.queues.items() if queue.living}

    def segment(self, number: int) -> Path:
        return self.directory / SEGMENT_NAME.format(number)

    def resume(self, recovered: Recovered) -> None:
        """Go on with what a start has found, as a new life of the store would."""
        self._journal = self._bodies = None
        self.number = recovered.next_number - 1
        self.sealed = [file.file for file in recovered.journals]
        self.segments = [file.file for file in recovered.segments]
        self.bodies = list(recovered.bodies)
        self.moved = dict(recovered.moved)
        for id_, queue in self.queues.items():
            log = recovered.logs.get(id_)
            queue.log = log.log if log is not None else QueueLog(id_, f"q{id_}")


class Unsynced(Files):
    """The real disk without its syncs: for tests that start again thousands of times."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_directory(self, path: Path) -> None:
        pass


def records(raw: bytes, offset: int = FILE_HEAD_BYTES) -> list[Record]:
    """Of an undamaged file."""
    found: list[Record] = []
    while offset < len(raw):
        found.append(read_record(raw, offset))
        offset = found[-1].end()
    return found


def start(directory: Path, files: Files | None = None) -> Recovered:
    return recover(directory, files or Files(), lambda line: None)


def read_back(recovered: Recovered) -> dict[int, list[tuple[int, Kept]]]:
    """All living messages, in order of position. A damaged one is left out."""
    found: dict[int, list[tuple[int, Kept]]] = {}
    moved = {number: one for one in recovered.moved.values() for number in one.files}
    paths = {body.number: body.path for body in recovered.bodies}
    for id_, log in recovered.logs.items():
        messages = [
            (position, kept)
            for first, end in log.living
            for position, kept in _messages(log.log, first, end, paths, moved)
        ]
        if messages:
            found[id_] = messages
    return found


def read_log(log: QueueLog, living: list[Range]) -> list[tuple[int, Kept]]:
    return [message for first, end in living for message in _messages(log, first, end, {}, {})]


def _messages(
    log: QueueLog, first: int, end: int, paths: dict[int, Path], moved: dict[int, Moved]
) -> list[tuple[int, Kept]]:
    made: list[tuple[int, Kept]] = []
    for spot in log.spots(first, end):
        raw = spot.file.path.read_bytes()[spot.offset : spot.offset + spot.size]
        try:
            batch = Batch(raw, read_record(raw, 0))
        except Damage:
            continue
        assert (batch.queue, batch.first, batch.count) == (log.id, spot.first, spot.count)
        origins = [origin for messages, origin in batch.origins for _ in range(messages)]
        for index, content in enumerate(batch.contents(raw)):
            position = batch.first + index
            if not first <= position < end or content is None:
                continue
            body: bytes | None = content
            if batch.is_reference(index):
                body = _body(content, paths, moved)
            if body is not None:
                made.append((position, (body, origins[index], batch.deadlines[index] if batch.deadlines else 0)))
    return made


def _body(reference: bytes, paths: dict[int, Path], moved: dict[int, Moved]) -> bytes | None:
    assert len(reference) == REFERENCE_BYTES
    number, offset, size, checksum = REFERENCE.unpack(reference)
    path = paths.get(number)
    if path is None and number in moved:
        path, offset = moved[number].file.path, moved[number].find(number, offset)
    if path is None or not offset:
        return None
    raw = path.read_bytes()
    try:
        record = read_record(raw, offset)
    except Damage:
        return None
    assert decode_body(raw, record)[0] == checksum
    content = raw[record.data_at : record.end()]
    return content if len(content) == size and crc32(content) == checksum else None


def bounds(extents: list[Extent]) -> list[Range]:
    return [(extent.first(), extent.end()) for extent in extents]

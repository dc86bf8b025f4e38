"""Pager: the thread that reads messages back into RAM, and writes those out that are on no disk yet.

Place in the chain: beside it. broker/paging.py asks; the answer comes back on the broker's thread. Reading has a thread
of its own because the journal's may sit in a sync, and a consumer must not wait for that. Pages are files for transient
messages that had to leave RAM: never synced, gone at the next start, removed as soon as nothing in them is wanted.
Not here: what is paged out and when (broker/paging.py), the durable files (store.py).
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Protocol
from zlib import crc32

from penstock.store.bodies import Bodies
from penstock.store.files import Files
from penstock.store.log import PAGES_NAME, Spot, StoredFile
from penstock.store.record import (
    BATCH,
    BODY_HEAD_BYTES,
    FILE_HEAD_BYTES,
    PAGES,
    REFERENCE,
    Batch,
    Damage,
    Range,
    decode_body,
    encode_file_head,
    read_record,
)

PAGES_BYTES: Final = 67_108_864  # a file of pages; then the next one begins
FETCH_BODIES_BYTES_MAX: Final = 4_194_304  # of large contents read in one go


class Reader(Protocol):
    """Who asked for messages."""

    def fetched(self, fetch: Fetch) -> None: ...


class Writer(Protocol):
    """Who had messages paged out."""

    def paged_out(self, page: Page) -> None: ...


class Found:
    """Messages of one batch, in order of position; a content is None where it is damaged or was not wanted."""

    __slots__ = ("contents", "deadlines", "first", "origins")

    def __init__(
        self,
        first: int,
        origins: list[tuple[int, bytes]],
        contents: list[bytes | None],
        deadlines: tuple[int, ...] | None,
    ) -> None:
        self.first = first
        self.origins = origins  # runs
        self.contents = contents
        self.deadlines = deadlines


class Fetch:
    """Batches to be read, in order of position. `end` is the position up to which everything wanted was read, or found
    damaged; `found` has one entry for each batch up to there, None where it is damaged."""

    __slots__ = ("damages", "end", "found", "positions", "reader", "spots", "stale", "trouble", "wanted")

    def __init__(self, reader: Reader, spots: list[Spot], wanted: list[Range], positions: Sequence[int] = ()) -> None:
        self.reader = reader
        self.spots = spots
        self.positions = positions  # if single messages are wanted: which
        self.wanted = wanted  # large contents outside of these positions are not read
        self.found: list[Found | None] = []
        self.damages: list[str] = []  # what is wrong, by file and offset
        self.stale = False  # a file was not there: it has just been replaced by another
        self.trouble = ""  # why the disk cannot be read
        self.end = 0


class Page:
    """A batch to be written to the pages."""

    __slots__ = ("count", "file", "first", "offset", "record", "size", "spent_bytes", "writer")

    def __init__(self, writer: Writer, first: int, count: int, record: bytes, spent_bytes: int) -> None:
        self.writer = writer
        self.first = first
        self.count = count
        self.record = record
        self.size = len(record)
        self.spent_bytes = spent_bytes  # if store credit was spent on it, for so many bytes
        self.file: PageFile | None = None  # None: it could not be written
        self.offset = 0


class PageFile(StoredFile):
    __slots__ = ("descriptor", "messages", "released", "written")

    def __init__(self, number: int, path: Path) -> None:
        super().__init__(PAGES, number, path)
        self.messages = 0  # in it; the pager's thread counts
        self.released = 0  # of these, not wanted any more; the broker's thread counts
        self.descriptor = -1
        self.written = 0

    def is_dead(self) -> bool:
        return self.released == self.messages


class Pager:
    __slots__ = (
        "_bodies",
        "_directory",
        "_done",
        "_file",
        "_files",
        "_inbox",
        "_number",
        "_opened",
        "_post",
        "_report",
        "_thread",
        "_trouble",
        "file_bytes",
    )

    def __init__(
        self,
        directory: Path,
        files: Files,
        bodies: Bodies,
        post: Callable[[Callable[[], None]], object],
        report: Callable[[str], None],
    ) -> None:
        """The pages are in this directory, which is emptied; `report` gets lines for the log."""
        self._directory = directory
        self._files = files
        self._bodies = bodies
        self._post = post
        self._report = report
        self._inbox: SimpleQueue[Fetch | Page | PageFile | list[Path] | None] = SimpleQueue()
        self._done: deque[Fetch | Page] = deque()
        self._file: PageFile | None = None
        self._number = 1
        self._opened: dict[Path, int] = {}  # files of bodies, for the fetch at hand; so the kernel reads ahead in them
        self._trouble = ""  # what went wrong last
        self.file_bytes = PAGES_BYTES
        files.make_directory(directory)
        for name in files.names(directory):
            files.remove(directory / name)
        self._thread = threading.Thread(target=self._run, name="pager", daemon=True)
        self._thread.start()

    # The broker's thread.

    def fetch(self, fetch: Fetch) -> None:
        self._inbox.put(fetch)

    def page_out(self, page: Page) -> None:
        self._inbox.put(page)

    def release(self, file: StoredFile, count: int) -> None:
        """So many messages in this file of pages are not wanted any more."""
        if isinstance(file, PageFile):
            file.released += count
            if file.is_dead():
                self._inbox.put(file)

    def remove(self, paths: list[Path]) -> None:
        """Files that nobody asks for any more. In line, so behind whoever has asked already."""
        if paths:
            self._inbox.put(paths)

    def close(self) -> None:
        self._inbox.put(None)
        self._thread.join()
        if self._file is not None and self._file.descriptor >= 0:
            self._files.close(self._file.descriptor)
        for name in self._files.names(self._directory):
            self._files.remove(self._directory / name)

    def _hear(self) -> None:
        while self._done:
            done = self._done.popleft()
            if isinstance(done, Fetch):
                done.reader.fetched(done)
            else:
                done.writer.paged_out(done)

    # The pager's thread.

    def _run(self) -> None:
        while True:
            item = self._inbox.get()
            if item is None:
                return
            if isinstance(item, PageFile):
                self._drop(item)
                continue
            if isinstance(item, list):
                self._remove(item)
                continue
            if isinstance(item, Fetch):
                self._fetch(item)
            else:
                self._write(item)
            self._done.append(item)
            self._post(self._hear)

    def _remove(self, paths: list[Path]) -> None:
        for path in paths:
            try:
                self._files.remove(path)
            except OSError as error:
                self._tell(f"{path.name} cannot be removed: {error.strerror}")

    def _tell(self, trouble: str) -> None:
        """For the log, once as long as it stays the same."""
        if trouble and trouble != self._trouble:
            self._post(partial(self._report, trouble))
        self._trouble = trouble

    def _drop(self, file: PageFile) -> None:
        if file is self._file or not file.is_dead():
            return  # it is still written to, or was, when its last message was taken; see _open
        self._files.remove(file.path)

    def _write(self, page: Page) -> None:
        try:
            file = self._file
            if file is None or file.written >= self.file_bytes:
                file = self._open()
            self._files.write(file.descriptor, [page.record], file.written)
            page.file = file
            page.offset = file.written
            file.written += page.size
            file.messages += page.count
            self._tell("")
        except OSError as error:
            self._tell(f"pages cannot be written: {error.strerror}")

    def _open(self) -> PageFile:
        last, self._file = self._file, None
        if last is not None:
            self._files.close(last.descriptor)
            if last.is_dead():
                self._files.remove(last.path)
        file = PageFile(self._number, self._directory / PAGES_NAME.format(self._number))
        self._number += 1
        file.descriptor = self._files.create(file.path)
        self._files.write(file.descriptor, [encode_file_head(PAGES, file.number)], 0)
        file.written = FILE_HEAD_BYTES
        self._file = file
        return file

    def _fetch(self, fetch: Fetch) -> None:
        descriptor = -1
        path: Path | None = None
        room = FETCH_BODIES_BYTES_MAX
        try:
            for spot in fetch.spots:
                if spot.file.path != path:
                    if descriptor >= 0:
                        self._files.close(descriptor)
                        descriptor = -1
                    path = spot.file.path
                    descriptor = self._files.open(path)
                buf = self._files.read(descriptor, spot.size, spot.offset)
                room = self._decode(fetch, spot, buf, room)
                if room <= 0:
                    break
        except FileNotFoundError:
            fetch.stale = True
        except OSError as error:
            # Not lost yet: it is tried again as long as somebody asks, and said again.
            fetch.trouble = f"{path}: {error.strerror}"
        finally:
            if descriptor >= 0:
                self._files.close(descriptor)
            while self._opened:
                self._files.close(self._opened.popitem()[1])

    def _decode(self, fetch: Fetch, spot: Spot, buf: bytes, room: int) -> int:
        """Add what the batch holds; how many bytes of large contents may still be read, not more than 0 if no more."""
        fetch.end = spot.first + spot.count
        try:
            record = read_record(buf, 0)
            if record.kind != BATCH:
                raise Damage("another record is in its place")
            batch = Batch(buf, record)
            if batch.first != spot.first or batch.count != spot.count:
                raise Damage("another batch is in its place")
        except Damage as damage:
            fetch.damages.append(f"{spot.file.path.name} at {spot.offset}: {damage}")
            fetch.found.append(None)
            return room
        contents = batch.contents(buf)
        at = record.data_at
        for index, content in enumerate(contents):
            position = batch.first + index
            if content is None and _within(position, fetch.wanted):
                fetch.damages.append(f"{spot.file.path.name} at {spot.offset + at}: a message's checksum is wrong")
            at += batch.sizes[index] & 0x7FFFFFFF
            if content is None or not batch.is_reference(index):
                continue
            if room <= 0:
                # The rest of this batch is for the next time.
                fetch.end = position
                del contents[index:]
                break
            contents[index] = None
            if _within(position, fetch.wanted):
                contents[index] = self._body(fetch, content)
                room -= REFERENCE.unpack(content)[2]
        fetch.found.append(Found(batch.first, batch.origins, contents, batch.deadlines))
        return room

    def _body(self, fetch: Fetch, reference: bytes) -> bytes | None:
        file, name, size, _ = REFERENCE.unpack(reference)
        path, offset = self._bodies.locate(file, name)
        try:
            descriptor = self._opened.get(path, -1)
            if descriptor < 0:
                descriptor = self._opened[path] = self._files.open(path)
            buf = self._files.read(descriptor, BODY_HEAD_BYTES + size, offset)
        except FileNotFoundError:
            # Compaction has moved it since it was located; if not, it is really gone.
            if self._bodies.locate(file, name)[0] != path:
                return self._body(fetch, reference)
            fetch.damages.append(f"{path.name}: the file is missing")
            return None
        try:
            record = read_record(buf, 0)
            checksum, its_file, its_name = decode_body(buf, record)
            content = buf[record.data_at : record.end()]
            if (its_file, its_name, record.data_bytes) != (file, name, size):
                raise Damage("another body is in its place")
            if crc32(content) != checksum:
                raise Damage("a body's checksum is wrong")
        except Damage as damage:
            fetch.damages.append(f"{path.name} at {offset}: {damage}")
            return None
        return content


def _within(position: int, ranges: list[Range]) -> bool:
    """Whether a range has this position; they are in order."""
    at = bisect_right(ranges, (position, 1 << 64)) - 1
    return at >= 0 and position < ranges[at][1]

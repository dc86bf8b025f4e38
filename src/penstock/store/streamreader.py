"""StreamReading: the thread that reads streams for consumers, and removes files of streams.

Place in the chain: beside it. streams.py says which file and where; the answer is decoded here, checksums and all, and
comes back on the broker's thread. Removals wait in the same line, so a file is there until all reads that were asked
before are answered. A few files are kept open: most readers are at the same end of the same streams.
Not here: which offset is where (stream.py), pages and queues (pager.py).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from penstock.store.files import Files
from penstock.store.record import (
    BATCH,
    MESSAGE_BYTES_MAX,
    Batch,
    Damage,
    Record,
    Short,
    read_record,
)
from penstock.store.scan import FileScan
from penstock.store.stream import INDEX_BYTES, Read, StreamFound, StreamSegment

DESCRIPTORS_MAX: Final = 32  # files that are kept open for reading
READ_BYTES_MIN: Final = 4096  # of a file, in one go

NOWHERE: Final = 1 << 63  # an offset above all


class Removal:
    """Files to be removed and, if one is given, the directory they were in; descriptors to be closed first."""

    __slots__ = ("descriptors", "directory", "paths")

    def __init__(self, paths: list[Path], directory: Path | None = None, descriptors: list[int] | None = None) -> None:
        self.paths = paths
        self.directory = directory
        self.descriptors = descriptors or []


class StreamReading:
    __slots__ = ("_descriptors", "_done", "_files", "_inbox", "_post", "_report", "_thread", "asked")

    def __init__(
        self, files: Files, post: Callable[[Callable[[], None]], object], report: Callable[[str], None]
    ) -> None:
        """`report` gets lines for the log."""
        self._files = files
        self._post = post
        self._report = report
        self._inbox: SimpleQueue[Read | Removal | None] = SimpleQueue()
        self._done: deque[Read] = deque()
        self._descriptors: dict[Path, int] = {}  # the one used last is the last
        self._thread: threading.Thread | None = None  # made when it is needed first
        self.asked = 0  # reads that are not answered yet

    # The broker's thread.

    def read(self, read: Read) -> None:
        self.asked += 1
        self._put(read)

    def remove(self, removal: Removal) -> None:
        self._put(removal)

    def close(self) -> None:
        """When all that was asked is done."""
        if self._thread is not None:
            self._inbox.put(None)
            self._thread.join()
            self._thread = None
        for descriptor in self._descriptors.values():
            self._files.close(descriptor)
        self._descriptors.clear()

    def _put(self, item: Read | Removal) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="stream-reading", daemon=True)
            self._thread.start()
        self._inbox.put(item)

    def _hear(self) -> None:
        while self._done:
            read = self._done.popleft()
            self.asked -= 1
            if read.log.forgotten:
                read.stale = True
            elif not read.trouble and not read.stale:
                read.log.remember(read)
            read.reader.fetched_stream(read)

    # The reading thread.

    def _run(self) -> None:
        while True:
            item = self._inbox.get()
            if item is None:
                return
            if isinstance(item, Removal):
                self._remove(item)
                continue
            try:
                if item.segment is not None:
                    self._read(item, item.segment)
            except FileNotFoundError:
                item.stale = True
            except OSError as error:
                # Not lost yet: it may be asked for again.
                item.trouble = f"{_name(item)}: {error.strerror}"
            self._done.append(item)
            self._post(self._hear)

    def _remove(self, removal: Removal) -> None:
        for descriptor in removal.descriptors:
            self._files.close(descriptor)
        directory = removal.directory
        try:
            if directory is not None:
                removal.paths += [directory / name for name in self._files.names(directory)]
        except FileNotFoundError:
            return  # nothing was ever written to it
        except OSError as error:
            self._tell(directory, error)
            return
        for path in removal.paths:
            opened = self._descriptors.pop(path, None)
            if opened is not None:
                self._files.close(opened)
            try:
                self._files.remove(path)
            except OSError as error:
                self._tell(path, error)
        try:
            if directory is not None:
                self._files.remove_directory(directory)
        except OSError as error:
            self._tell(directory, error)

    def _tell(self, path: Path | None, error: OSError) -> None:
        self._post(partial(self._report, f"{path} cannot be removed: {error.strerror}"))

    def _open(self, path: Path) -> int:
        descriptor = self._descriptors.pop(path, -1)
        if descriptor < 0:
            if len(self._descriptors) >= DESCRIPTORS_MAX:
                oldest = next(iter(self._descriptors))
                self._files.close(self._descriptors.pop(oldest))
            descriptor = self._files.open(path)
        self._descriptors[path] = descriptor
        return descriptor

    def _read(self, read: Read, segment: StreamSegment) -> None:
        descriptor = self._open(segment.path)
        base = position = read.position
        # A quarter more, so that the batch that makes it enough is mostly in it.
        size = max(read.bytes_max + read.bytes_max // 4, READ_BYTES_MIN) + read.seek_bytes
        buf = self._files.read(descriptor, min(size, read.size - base), base)
        begin = position
        record: Record | None
        while position < read.size and read.next < read.until:
            try:
                record = read_record(buf, position - base)
            except Short as short:
                if position + short.needs <= read.size and base + len(buf) < read.size:
                    if read.found:
                        break  # enough for this time
                    base = position
                    buf = self._files.read(descriptor, min(max(size, short.needs), read.size - base), base)
                    if len(buf) >= min(short.needs, read.size - base):
                        continue
                record, base, buf = self._behind(read, descriptor, position)
            except Damage:
                record, base, buf = self._behind(read, descriptor, position)
            if record is None:
                position = read.size
                break
            position = base + record.end()
            if record.kind == BATCH:
                self._decode(read, buf, record, base)
                if not read.found:
                    begin = position  # it was before the offset
                elif position - begin >= read.bytes_max:
                    break
        if position >= read.size:
            read.next = read.until  # whatever is missing is lost: nobody asks for it again
        read.position = position

    def _behind(self, read: Read, descriptor: int, position: int) -> tuple[Record | None, int, bytes]:
        """The first whole record behind damage at this position; with the buffer it is in and where that begins."""
        scan = FileScan(self._files, descriptor, read.size, position, INDEX_BYTES)
        for record in scan:
            for offset, size, why in scan.damaged:
                read.damages.append(f"{_name(read)}: {size} bytes at {offset}: {why}")
            return record, scan.base, scan.buf
        read.damages.append(f"{_name(read)}: {read.size - position} bytes at {position}: no record to the end")
        return None, 0, b""

    def _decode(self, read: Read, buf: bytes, record: Record, base: int) -> None:
        try:
            batch = Batch(buf, record)
            if batch.queue != read.log.id:
                raise Damage("a batch of another stream")
            if batch.end() <= read.next or batch.first >= read.until:
                return
        except Damage as damage:
            position = base + record.offset
            size = record.end() - record.offset
            read.damages.append(f"{_name(read)}: {size} bytes at {position}: {damage}")
            return
        contents = batch.contents(buf)
        if None in contents:
            at = base + record.data_at
            for content, size in zip(contents, batch.sizes, strict=True):
                size &= MESSAGE_BYTES_MAX
                if content is None:
                    read.damages.append(f"{_name(read)}: {size} bytes at {at}: a message's checksum is wrong")
                at += size
        read.found.append(StreamFound(batch.first, batch.origins, contents, batch.stamp_ms))
        read.next = batch.end()


def _name(read: Read) -> str:
    return str(read.segment.path) if read.segment is not None else str(read.log.directory)


def find_stamp(files: Files, segment: StreamSegment, position: int, offset: int, stamp_ms: int) -> int:
    """The first offset, from the batch with this offset and position on, that is stamped with this time or a later one;
    NOWHERE if none up to the next entry of the index is. Where that cannot be read, an offset that is too early."""
    try:
        descriptor = files.open(segment.path)
    except OSError:
        return offset
    try:
        buf, base = b"", position
        end = min(position + INDEX_BYTES, segment.size)  # all batches of one entry begin before it
        while position < end:
            try:
                record = read_record(buf, position - base)
            except Short as short:
                if position + short.needs > segment.size:
                    return offset
                base = position
                buf = files.read(descriptor, max(short.needs, end - position), position)
                if len(buf) < short.needs:
                    return offset
                continue
            if record.kind == BATCH:
                batch = Batch(buf, record)
                if batch.stamp_ms >= stamp_ms:
                    return batch.first
                offset = batch.end()
            position = base + record.end()
        return NOWHERE
    except (OSError, Damage):
        return offset
    finally:
        files.close(descriptor)

"""Compaction: the room of large contents that nobody refers to any more.

Place in the chain: the keeper's work (keeper.py), after the segment of a checkpoint is durable.

A file of bodies that no living message refers to can go. One of which less than a third is alive is compacted: its
living bodies are copied, records and all, into a new file, and the old one can go. A body keeps the name of its first
place for ever (file and offset; its record's table has it), so no batch is changed; the new file's MOVED records say
where each one is. A compacted file may be compacted again.
Not here: who refers to what (the extents of all queues' logs, handed in as roots), finding a body (bodies.py).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Final, NamedTuple

from penstock.store.bodies import Moved
from penstock.store.files import Files
from penstock.store.index import Seal, encode_moved
from penstock.store.log import BODIES_NAME, DamagedBytes, Extent, StoredFile
from penstock.store.record import BODIES, BODY, BODY_HEAD_BYTES, COMPACTED, Damage, Range, Short, read_record
from penstock.store.sealed import Pace, SealedWriter

LIVING_MIN: Final = 3  # a file is compacted when less than one in so many of its bytes is alive
FILE_BYTES_MIN: Final = 1_048_576  # what a smaller one would give back is not worth a file
COPY_BYTES_MAX: Final = 268_435_456  # in one go; the rest has its turn at the next checkpoint
PIECE_BYTES: Final = 1_048_576  # of a body larger than this, so much is in memory at once

Name = tuple[int, int]  # the file and offset a body was first written to


class Root(NamedTuple):
    """One queue's references to large contents, in all its files. Extents that are written to are copies."""

    living: Sequence[Range]
    extents: Sequence[Extent]


class BodyFile(NamedTuple):
    """A file of bodies that is not written to any more."""

    number: int
    path: Path
    bytes: int


class Compaction:
    """What can go, and what was made for it."""

    __slots__ = ("damages", "file", "gone", "moved")

    def __init__(self) -> None:
        self.gone: list[BodyFile] = []
        self.file: BodyFile | None = None
        self.moved: Moved | None = None
        self.damages: list[DamagedBytes] = []


class _Use:
    """The living references to one file: slices of extents' large messages."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[tuple[Extent, int, int]] = []

    def bytes(self) -> int:
        """How many bytes of the file are alive; a body that several queues share counts once."""
        if len(self.runs) == 1:
            extent, low, high = self.runs[0]
            return sum(extent.large_sizes[low:high]) + BODY_HEAD_BYTES * (high - low)
        bodies = self.bodies()
        return sum(bodies.values()) + BODY_HEAD_BYTES * len(bodies)

    def bodies(self) -> dict[Name, int]:
        """Sizes of contents, by name."""
        found: dict[Name, int] = {}
        for extent, low, high in self.runs:
            names = zip(extent.large_files[low:high], extent.large_offsets[low:high], strict=True)
            found.update(zip(names, extent.large_sizes[low:high], strict=True))
        return found


def tidy(
    body_files: Sequence[BodyFile],
    roots: Iterable[Root],
    moved: Mapping[int, Moved],
    directory: Path,
    number: int,
    least_bytes: int,
    files: Files,
    pace: Pace,
    compaction: Compaction,
) -> None:
    """Find what can go, and compact what is worth it, of files with so many bytes at least, into the file of this
    number, unless that is 0. What was found before an OSError stands."""
    if not body_files:
        return
    uses = _uses(body_files, roots, moved, pace)
    sparse: list[tuple[int, BodyFile]] = []
    for file in body_files:
        use = uses.get(file.number)
        if use is None:
            compaction.gone.append(file)
        elif file.bytes >= least_bytes:
            living = use.bytes()
            if living * LIVING_MIN < file.bytes:
                sparse.append((living, file))
        pace.breathe()
    chosen: list[BodyFile] = []
    left = COPY_BYTES_MAX
    for living, file in sorted(sparse):
        if living <= left or not chosen:
            chosen.append(file)
            left -= living
    if number and chosen:
        _compact(chosen, uses, moved, directory, number, files, pace, compaction)


def _uses(
    body_files: Sequence[BodyFile], roots: Iterable[Root], moved: Mapping[int, Moved], pace: Pace
) -> dict[int, _Use]:
    """The living references, by the file that the bodies are in now."""
    places = {number: at for at, one in moved.items() for number in set(one.files)}
    # A file that is still there has its own bodies, as for whoever reads them (bodies.py).
    places.update((file.number, file.number) for file in body_files)
    uses: dict[int, _Use] = {}
    for living, extents in roots:
        for extent in extents:
            if extent.large_positions:
                for number, low, high in _runs(extent, living):
                    use = uses.setdefault(places.get(number, number), _Use())
                    use.runs.append((extent, low, high))
            pace.breathe()
    return uses


def _runs(extent: Extent, living: Sequence[Range]) -> Iterator[tuple[int, int, int]]:
    """Living references of consecutive large messages to one file: its number, and the indexes from and to."""
    first, last = extent.large_positions[0], extent.large_positions[-1]
    index = max(0, bisect_right(living, (first, first)) - 1)
    while index < len(living) and living[index][0] <= last:
        low, high = extent.larges(*living[index])
        index += 1
        if low == high:
            continue
        numbers = extent.large_files[low:high]
        if numbers.count(numbers[0]) == high - low:
            yield numbers[0], low, high
            continue
        for number, group in groupby(numbers):
            count = sum(1 for _ in group)
            yield number, low, low + count
            low += count


def _compact(
    chosen: list[BodyFile],
    uses: dict[int, _Use],
    moved: Mapping[int, Moved],
    directory: Path,
    number: int,
    files: Files,
    pace: Pace,
    compaction: Compaction,
) -> None:
    path = directory / BODIES_NAME.format(number)
    writer = SealedWriter(files, path, COMPACTED, number, Seal(replaces=[file.number for file in chosen]), pace)
    places: list[tuple[int, int, int]] = []  # name, and offset in the new file
    damages: list[DamagedBytes] = []
    try:
        for file in chosen:
            _copy(file, uses[file.number].bodies(), moved.get(file.number), files, writer, places, damages)
        places.sort()
        numbers = array("I", [place[0] for place in places])
        names = array("Q", [place[1] for place in places])
        offsets = array("Q", [place[2] for place in places])
        size = writer.finish(encode_moved(numbers, names, offsets))
    except BaseException:
        writer.abandon()
        raise
    compaction.gone += chosen
    compaction.file = BodyFile(number, path, size)
    compaction.moved = Moved(StoredFile(BODIES, number, path), numbers, names, offsets)
    compaction.damages += damages


def _copy(
    file: BodyFile,
    bodies: dict[Name, int],
    moved: Moved | None,
    files: Files,
    writer: SealedWriter,
    places: list[tuple[int, int, int]],
    damages: list[DamagedBytes],
) -> None:
    """The records of these bodies, as they are, in the order they lie there. Whether a content is as it was is seen
    when it is read; one whose head is wrong cannot be read, and is left out."""
    found = sorted((moved.find(*name) if moved is not None else name[1], name) for name in bodies)
    descriptor = files.open(file.path)
    try:
        for offset, name in found:
            size = BODY_HEAD_BYTES + bodies[name]
            piece = files.read(descriptor, min(size, PIECE_BYTES), offset)
            why = _wrong(piece, size)
            if not why and offset + size > file.bytes:
                why = "it ends within a body"
            if why:
                damages.append(DamagedBytes(file.path, offset, size, why))
                continue
            places.append((*name, writer.size()))
            while True:
                writer.write(piece)
                offset += len(piece)
                size -= len(piece)
                if not size:
                    break
                piece = files.read(descriptor, min(size, PIECE_BYTES), offset)
                if not piece:
                    raise OSError(None, f"{file.path} is shorter than it was")
    finally:
        files.close(descriptor)


def _wrong(piece: bytes, size: int) -> str:
    """Why this is not the beginning of a body's record of this size; empty if it is."""
    try:
        record = read_record(piece, 0)
    except Short as short:
        return "" if short.needs == size else str(short)
    except Damage as damage:
        return str(damage)
    return "" if record.kind == BODY and record.end() == size else "another record is in its place"

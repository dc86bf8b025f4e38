"""QueueLog: where the messages of one queue are on disk.

A queue's messages have positions; batches of consecutive positions lie in journal and segment files. An Extent has the
batches of one queue and one priority in one file, a few bytes for each batch, whatever its number of messages.
Priorities are told apart by the high bits of a position, so that within an extent positions only grow. A checkpoint may
move the older and the newer messages of a queue into one file and leave those between where they are; so one file may
have several extents of a queue, and `replace` keeps all of them in order of position.
Place in the chain: beside it. store.py enters what was written, pager.py asks where to read, keeper.py moves it.
Not here: which positions are alive (the queue knows: `Owner.living`), the bytes (record.py).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from penstock.store.record import Marks, Range

if TYPE_CHECKING:
    from penstock.store.deposit import Removal

LEVEL_SHIFT: Final = 48  # a position's high bits are its priority: 2 to the 48 messages are enough for each
LEVEL_END: Final = 1 << LEVEL_SHIFT

BATCH_BYTES: Final = 60  # of a batch's record beside its messages, about
MESSAGE_BYTES: Final = 8  # of a message in a batch's table

JOURNAL_NAME: Final = "journal-{:010d}"
SEGMENT_NAME: Final = "segment-{:010d}"
BODIES_NAME: Final = "bodies-{:010d}"
PAGES_NAME: Final = "pages-{:010d}"


class Owner(Protocol):
    """A queue, as the store sees it."""

    def living(self) -> list[Range]:
        """The positions that may still be wanted, in ascending order; the last range of a priority may be open."""
        ...

    def ends(self) -> dict[int, int]:
        """By priority: the position of the next message that arrives."""
        ...

    def redelivered_below(self) -> dict[int, int]:
        """By priority: what is below this position may have been delivered once."""
        ...

    def marks(self) -> Marks:
        """How far the producers of its messages have come, as far as that is kept: a copy, or nothing."""
        ...


class DamagedBytes(NamedTuple):
    """Bytes of a file that are not what was written, or a message whose bytes are lost."""

    path: Path
    offset: int
    bytes: int
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.bytes} bytes at {self.offset}: {self.why}"


class StoredFile:
    """A file of batches."""

    __slots__ = ("kind", "number", "path")

    def __init__(self, kind: int, number: int, path: Path) -> None:
        self.kind = kind
        self.number = number
        self.path = path

    def __repr__(self) -> str:
        return f"<StoredFile {self.path.name}>"


class Spot:
    """One batch: where it is and what it has."""

    __slots__ = ("count", "file", "first", "offset", "size")

    def __init__(self, file: StoredFile, first: int, count: int, offset: int, size: int) -> None:
        self.file = file
        self.first = first
        self.count = count
        self.offset = offset
        self.size = size

    def __repr__(self) -> str:
        return f"<Spot {self.file.path.name}+{self.offset} first={self.first} count={self.count}>"


class Extent:
    """The batches of one queue and one priority in one file, in order of position."""

    __slots__ = (
        "counts",
        "file",
        "large_files",
        "large_offsets",
        "large_positions",
        "large_sizes",
        "offsets",
        "sizes",
        "starts",
    )

    def __init__(self, file: StoredFile) -> None:
        self.file = file
        self.starts = array("Q")  # first position of each batch
        self.counts = array("I")
        self.offsets = array("Q")
        self.sizes = array("I")  # of the whole record
        self.large_positions = array("Q")  # messages whose content is a body of its own
        self.large_files = array("I")
        self.large_offsets = array("Q")
        self.large_sizes = array("I")  # of the content

    def append(self, first: int, count: int, offset: int, size: int) -> None:
        self.starts.append(first)
        self.counts.append(count)
        self.offsets.append(offset)
        self.sizes.append(size)

    def append_large(self, position: int, file: int, offset: int, size: int) -> None:
        self.large_positions.append(position)
        self.large_files.append(file)
        self.large_offsets.append(offset)
        self.large_sizes.append(size)

    def first(self) -> int:
        return self.starts[0]

    def end(self) -> int:
        return self.starts[-1] + self.counts[-1]

    def level(self) -> int:
        return self.starts[0] >> LEVEL_SHIFT

    def messages(self) -> int:
        return sum(self.counts)

    def part(self, first: int, end: int) -> Extent:
        """A copy of the batches with these indexes."""
        made = Extent(self.file)
        made.starts = self.starts[first:end]
        made.counts = self.counts[first:end]
        made.offsets = self.offsets[first:end]
        made.sizes = self.sizes[first:end]
        if self.large_positions and first < end:
            made.extend_large(self, self.starts[first], self.starts[end - 1] + self.counts[end - 1])
        return made

    def copy(self) -> Extent:
        return self.part(0, len(self.starts))

    def extend(self, other: Extent) -> None:
        """All that the other one has; its positions come behind."""
        self.starts += other.starts
        self.counts += other.counts
        self.offsets += other.offsets
        self.sizes += other.sizes
        self.large_positions += other.large_positions
        self.large_files += other.large_files
        self.large_offsets += other.large_offsets
        self.large_sizes += other.large_sizes

    def extend_large(self, source: Extent, first: int, end: int) -> None:
        """The large messages of the source with positions in this range."""
        low, high = source.larges(first, end)
        if low < high:
            self.large_positions += source.large_positions[low:high]
            self.large_files += source.large_files[low:high]
            self.large_offsets += source.large_offsets[low:high]
            self.large_sizes += source.large_sizes[low:high]

    def larges(self, first: int, end: int) -> tuple[int, int]:
        """The indexes of the large messages with positions in this range."""
        low = bisect_left(self.large_positions, first)
        return low, bisect_left(self.large_positions, end, low)

    def count(self, ranges: Sequence[Range]) -> int:
        """How many messages have a position in these ranges, which are sorted. No work per message."""
        starts, counts = self.starts, self.counts
        mine, total = self.end(), 0
        at = max(0, bisect_right(ranges, (starts[0], starts[0])) - 1)
        for index in range(at, len(ranges)):
            first, end = ranges[index]
            if first >= mine:
                break
            low = max(0, bisect_right(starts, first) - 1)
            high = bisect_left(starts, end, low)
            if low == high:
                continue
            total += sum(counts[low:high])
            if first > starts[low]:
                total -= min(first - starts[low], counts[low])
            last = starts[high - 1] + counts[high - 1]
            if end < last:
                total -= last - end
        return total

    def __len__(self) -> int:
        """How many batches."""
        return len(self.starts)

    def __repr__(self) -> str:
        if not self.starts:
            return f"<Extent {self.file.path.name} empty>"
        return f"<Extent {self.file.path.name} batches={len(self)} from {self.first()} to {self.end()}>"


class QueueLog:
    __slots__ = ("extents", "forgotten", "id", "name", "owner", "removal")

    def __init__(self, id_: int, name: str) -> None:
        self.id = id_
        self.name = name  # for people: what reports of damage say
        self.owner: Owner | None = None
        self.extents: dict[int, list[Extent]] = {}  # by priority, in order of position
        self.removal: Removal | None = None  # the last thing of this queue in the store's mailbox, if it is one
        self.forgotten = False

    def append(self, file: StoredFile, first: int, count: int, offset: int, size: int) -> Extent:
        """A batch was written."""
        extents = self.extents.setdefault(first >> LEVEL_SHIFT, [])
        if not extents or extents[-1].file is not file:
            extents.append(Extent(file))
        extents[-1].append(first, count, offset, size)
        return extents[-1]

    def replace(self, gone: Collection[int], fresh: Sequence[Extent]) -> None:
        """These files, by number, are gone; what was alive in them has moved to these extents."""
        by_level: dict[int, list[Extent]] = {}
        for extents in self.extents.values():
            for extent in extents:
                if extent.file.number not in gone:
                    by_level.setdefault(extent.level(), []).append(extent)
        for extent in fresh:
            by_level.setdefault(extent.level(), []).append(extent)
        self.extents = {level: arrange(extents) for level, extents in sorted(by_level.items())}

    def end(self, level: int) -> int:
        """The position behind the last one on disk."""
        extents = self.extents.get(level)
        return extents[-1].end() if extents else level << LEVEL_SHIFT

    def spots(self, first: int, end: int) -> Iterator[Spot]:
        """The batches that have positions of this range, in order. They may have others too."""
        extents = self.extents.get(first >> LEVEL_SHIFT, ())
        for extent in extents:
            if extent.end() <= first:
                continue
            if extent.first() >= end:
                return
            at = max(0, bisect_right(extent.starts, first) - 1)
            while at < len(extent) and extent.starts[at] < end:
                start, count = extent.starts[at], extent.counts[at]
                if start + count > first:
                    yield Spot(extent.file, start, count, extent.offsets[at], extent.sizes[at])
                at += 1

    def count(self, ranges: list[Range]) -> int:
        """How many messages on disk have a position in these ranges."""
        return sum(
            min(end, spot.first + spot.count) - max(first, spot.first)
            for first, end in ranges
            for spot in self.spots(first, end)
        )

    def content_bytes(self, level: int, ranges: Sequence[Range]) -> int:
        """About how many bytes the contents of these positions have."""
        total = 0
        for extent in self.extents.get(level, ()):
            alive, messages = extent.count(ranges), extent.messages()
            if messages:
                overhead = BATCH_BYTES * len(extent) + MESSAGE_BYTES * messages
                size = sum(extent.sizes) - overhead + sum(extent.large_sizes)
                total += max(0, size) * alive // messages
        return total

    def is_empty(self) -> bool:
        return not self.extents

    def __repr__(self) -> str:
        batches = sum(len(extent) for extents in self.extents.values() for extent in extents)
        return f"<QueueLog {self.name} id={self.id:x} batches={batches}>"


def first_of(spots: Iterable[Spot], bytes_max: int) -> list[Spot]:
    """The first of them, at least one, of about so many bytes in all."""
    found: list[Spot] = []
    size = 0
    for spot in spots:
        found.append(spot)
        size += spot.size
        if size >= bytes_max:
            break
    return found


def adjoining(spots: Sequence[Spot], at: int) -> Iterator[Spot]:
    """This one, and those behind it with no position between."""
    yield spots[at]
    while at + 1 < len(spots) and spots[at + 1].first == spots[at].first + spots[at].count:
        at += 1
        yield spots[at]


def arrange(extents: list[Extent]) -> list[Extent]:
    """The same batches in order of position; an extent is cut where others lie between its batches."""
    extents = sorted(extents, key=Extent.first)
    if all(extents[at].end() <= extents[at + 1].first() for at in range(len(extents) - 1)):
        return extents
    spots = sorted((start, which, at) for which, extent in enumerate(extents) for at, start in enumerate(extent.starts))
    arranged: list[Extent] = []
    begin = 0
    for index in range(1, len(spots) + 1):
        _, which, at = spots[begin]
        if index < len(spots) and spots[index][1] == which:
            continue
        arranged.append(extents[which].part(at, at + index - begin))
        begin = index
    return arranged

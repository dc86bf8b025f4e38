"""Recovery, for all damage and all histories: the store's files written by its real code, then cut or flipped at every
byte; and random lives of a store, with crashes and checkpoints, against a model that only remembers."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.store.keeper import run
from penstock.store.record import FILE_HEAD_BYTES
from penstock.store.recovery import Recovered
from penstock.store.sealed import Pace
from tests.unit.store.scribe import Kept, Scribe, Unsynced, read_back, records, start

Position = tuple[int, int]  # queue and position
World = dict[Position, Kept]


class Archive:
    """A small store on disk: its files, what was ever written, and what must be alive."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.files = Unsynced()
        self.ever: World = {}
        self.large: set[Position] = set()
        scribe = self.scribe = Scribe(directory / "written", self.files)
        self.batch(1, [b"one", b"two", b"three" * 9])
        self.batch(2, [b"L" * 60, b"small", b"M" * 50], large=(0, 2))
        self.batch(4, [b"X" * 900, b"K" * 70, b"Y" * 500], large=(0, 1, 2))
        self.batch(1, [b"high"], level=5, deadlines=[77])
        self.remove(1, (1, 2))
        scribe.checkpoint()
        self.remove(4, (0, 1), (2, 3))
        self.batch(1, [b"before"], marks={"p": 3})
        scribe.checkpoint(rewrite=set())  # bodies are compacted, and there are two segments now
        self.batch(1, [b"four", b"five"], origins=[(1, b"here"), (1, b"there")], marks={"p": 5})
        scribe.synced()
        self.batch(3, [b"gone", b"soon"])
        self.batch(2, [b"N" * 40, b"six"], large=(0,))
        self.remove(1, (0, 1))
        scribe.synced()
        self.batch(1, [b"seven", b"eight"], marks={"p": 8})
        scribe.forget(3)
        self.batch(2, [b"nine"])
        self.remove(2, (4, 5))
        assert scribe.moved
        self.written = {path.name: path.read_bytes() for path in sorted((directory / "written").iterdir())}
        self.living = flat(scribe.expected())

    def batch(self, queue: int, contents: list[bytes], **options: object) -> None:
        first = self.scribe.batch(queue, contents, **options)  # type: ignore[arg-type]  # passed on as they are
        self.ever |= {(queue, position): kept for position, kept in self.scribe.queues[queue].living.items()}
        large = options.get("large", ())
        assert isinstance(large, tuple)
        self.large |= {(queue, first + at) for at in large}

    def remove(self, queue: int, *ranges: tuple[int, int]) -> None:
        self.scribe.remove(queue, *ranges)

    def start(self, name: str, content: bytes) -> Recovered:
        """With this in place of one of the files."""
        place = self.directory / "damaged"
        if place.exists():
            shutil.rmtree(place)
        place.mkdir()
        for known, written in self.written.items():
            (place / known).write_bytes(content if known == name else written)
        return start(place, self.files)

    def near(self, name: str, offset: int) -> set[Position]:
        """The messages that damage at this byte may cost, at most: of the record it is in, or the one message."""
        if name.startswith("bodies"):
            return self.large
        return {
            (queue, position)
            for queue, known in self.scribe.queues.items()
            for extents in known.log.extents.values()
            for extent in extents
            if extent.file.path.name == name
            for start, count, begin, size in zip(
                extent.starts, extent.counts, extent.offsets, extent.sizes, strict=True
            )
            if begin <= offset < begin + size
            for position in range(start, start + count)
        }


def flat(found: dict[int, list[tuple[int, Kept]]]) -> World:
    return {(queue, position): kept for queue, messages in found.items() for position, kept in messages}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return Archive(tmp_path_factory.mktemp("archive"))


NAMES = ["journal 0", "segment 0", "segment 1", "bodies 0", "bodies 1"]


def file_name(archive: Archive, kind: str) -> str:
    kind, which = kind.split()
    return [name for name in sorted(archive.written) if name.startswith(kind)][int(which)]


def test_the_undamaged_files_are_found_whole(archive: Archive) -> None:
    name = file_name(archive, "journal 0")
    recovered = archive.start(name, archive.written[name])
    assert flat(read_back(recovered)) == archive.living
    assert not recovered.damages
    assert recovered.cut is None


def check(archive: Archive, recovered: Recovered, may_lose: set[Position], what: str) -> World:
    found = flat(read_back(recovered))
    for position, kept in found.items():
        assert archive.ever[position] == kept, f"{what}: {position} is not what was written"
    lost = archive.living.keys() - found.keys() - may_lose
    assert not lost, f"{what}: lost {sorted(lost)}"
    for queue, log in recovered.logs.items():
        for producer, mark in log.marks.items():
            assert mark <= archive.scribe.queues[queue].marks[producer], f"{what}: a mark that was never made"
    for messages in read_back(recovered).values():
        positions = [position for position, _ in messages]
        assert positions == sorted(set(positions)), f"{what}: out of order"
    return found


@pytest.mark.parametrize("kind", NAMES)
def test_a_flip_of_any_byte_costs_only_what_it_hit(archive: Archive, kind: str) -> None:
    name = file_name(archive, kind)
    written = archive.written[name]
    for offset in range(len(written)):
        for flip in (1 << (offset % 8), 0xFF):
            damaged = bytearray(written)
            damaged[offset] ^= flip
            recovered = archive.start(name, bytes(damaged))
            what = f"{name} flipped by {flip:x} at {offset}"
            found = check(archive, recovered, archive.near(name, offset), what)
            lost = archive.living.keys() - found.keys()
            assert not kind.startswith("bodies") or len(lost) <= 1, f"{what}: lost {sorted(lost)}"
            if kind == "journal 0" and lost:
                told = [one for one in [*recovered.damages, recovered.cut] if one is not None and one.path.name == name]
                assert any(one.offset <= offset < one.offset + one.bytes for one in told), f"{what}: told {told}"


def test_a_flip_of_any_byte_in_the_journal_is_told_by_file_and_offset(archive: Archive) -> None:
    name = file_name(archive, "journal 0")
    written = archive.written[name]
    for offset in range(len(written)):
        damaged = bytearray(written)
        damaged[offset] ^= 0x10
        recovered = archive.start(name, bytes(damaged))
        told = [one for one in [*recovered.damages, recovered.cut] if one is not None]
        assert told, f"nothing told of a flip at {offset}"
        assert any(one.path.name == name and one.offset <= offset < one.offset + one.bytes for one in told), (
            f"flip at {offset}, told {told}"
        )


def test_a_journal_cut_at_any_byte_keeps_all_that_was_whole_before(archive: Archive) -> None:
    name = file_name(archive, "journal 0")
    written = archive.written[name]
    ends = [FILE_HEAD_BYTES] + [record.end() for record in records(written)]
    for length in range(len(written)):
        recovered = archive.start(name, written[:length])
        whole = max([end for end in ends if end <= length], default=0)
        behind = {place for offset in range(whole, len(written)) for place in archive.near(name, offset)}
        check(archive, recovered, behind, f"{name} cut at {length}")
        torn = 0 if recovered.cut is None else recovered.cut.bytes
        assert torn == length - whole
        assert not recovered.damages, f"{name} cut at {length}: a torn end is no damage"
        again = start(archive.directory / "damaged", archive.files)
        assert again.cut is None, "it was cut off"
        assert read_back(again) == read_back(recovered)


@pytest.mark.parametrize("kind", NAMES[1:])
def test_another_file_cut_at_any_byte_costs_only_what_is_behind(archive: Archive, kind: str) -> None:
    name = file_name(archive, kind)
    written = archive.written[name]
    for length in range(len(written)):
        recovered = archive.start(name, written[:length])
        behind = {place for offset in range(length, len(written)) for place in archive.near(name, offset)}
        check(archive, recovered, behind, f"{name} cut at {length}")


# Random lives.

QUEUES = st.integers(1, 3)
OPERATIONS = st.one_of(
    st.tuples(
        st.just("batch"),
        QUEUES,
        st.integers(1, 6),  # messages
        st.sampled_from([0, 0, 5]),  # priority
        st.booleans(),  # deadlines
        st.sampled_from([(), (), (0,), (0, 2)]),  # large
        st.sampled_from([0, 0, 0, 3]),  # transient ones before it
    ),
    st.tuples(st.just("remove"), QUEUES, st.lists(st.integers(0, 40), min_size=1, max_size=6)),
    st.tuples(st.just("forget"), QUEUES),
    st.tuples(st.just("checkpoint"), st.sampled_from(["all", "none", "first"]), st.booleans()),
    st.tuples(st.just("synced")),
    st.tuples(st.just("restart")),
)


class Life:
    def __init__(self, directory: Path) -> None:
        self.scribe = Scribe(directory, Unsynced())
        self.ids = {1: 1, 2: 2, 3: 3}  # a queue that is declared again has a new id
        self.count = 0

    def batch(self, queue: int, count: int, level: int, deadlines: bool, large: tuple[int, ...], skip: int) -> None:
        contents = []
        for _ in range(count):
            self.count += 1
            contents.append(b"%d " % self.count * (1 + self.count % 7))
        self.scribe.batch(
            self.ids[queue],
            contents,
            level=level,
            deadlines=list(range(count)) if deadlines else None,
            large=tuple(at for at in large if at < count),
            skip=skip,
            marks={f"producer {self.count % 3}": self.count} if self.count % 2 else None,
        )

    def remove(self, queue: int, picks: list[int]) -> None:
        id_ = self.ids[queue]
        known = self.scribe.queues.get(id_)
        if known is None or not known.living:
            return
        living = sorted(known.living)
        for position in sorted({living[pick % len(living)] for pick in picks}):
            self.scribe.remove(id_, (position, position + 1))

    def forget(self, queue: int) -> None:
        if self.ids[queue] in self.scribe.queues:
            self.scribe.forget(self.ids[queue])
            self.ids[queue] += 3

    def checkpoint(self, which: str, crash: bool) -> None:
        scribe = self.scribe
        first = {file.number for file in scribe.segments[:1]}
        rewrite = {"all": None, "none": set[int](), "first": first}[which]
        if not crash:
            scribe.checkpoint(rewrite)
            return
        # The segment is durable, and the process dies before anything is removed.
        scribe.seal()
        result = run(scribe.task(rewrite), scribe.files, Pace(hurry=True))
        assert not result.error
        self.restart()

    def restart(self) -> None:
        scribe = self.scribe
        recovered = start(scribe.directory, scribe.files)
        assert read_back(recovered) == scribe.expected()
        assert not recovered.damages
        assert recovered.cut is None
        assert recovered.messages == sum(len(queue.living) for queue in scribe.queues.values())
        for id_, queue in scribe.queues.items():
            assert recovered.logs[id_].ends == queue.ends
            assert recovered.logs[id_].living == queue.ranges()
            assert list(recovered.logs[id_].marks.items()) == list(queue.marks.items())
        scribe.resume(recovered)


@settings(max_examples=200, deadline=None)
@given(st.lists(OPERATIONS, max_size=30))
def test_whatever_happened_a_start_finds_what_is_alive(operations: list[tuple]) -> None:
    with TemporaryDirectory() as directory:
        life = Life(Path(directory))
        for name, *arguments in operations:
            if name == "synced":
                life.scribe.synced()
            else:
                getattr(life, name)(*arguments)
        life.restart()

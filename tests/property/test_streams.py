"""Laws of streams on disk: every cut and every flipped byte of a small stream, and random lives against a model.

Whatever is damaged: never a crash, never a content that was not appended, nothing lost but what the damage is in, every
offset unchanged. Whatever crashes: all that was synced is there, and no producer has a mark for what is lost.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import SimpleNamespace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.store.stream import Read, StreamLog
from penstock.store.streamfile import StreamRecovery
from penstock.store.streamreader import StreamReading, find_stamp
from tests.unit.fakes import FakeReceipt, FakeStream, StoreHouse
from tests.unit.store.scribe import Unsynced

ID = 7


class Opened:
    """A stream as the next start finds it, without a store: quick enough for thousands of them."""

    def __init__(self, directory: Path) -> None:
        self.reports: list[str] = []
        self.damages: list[str] = []
        files = Unsynced()
        home = SimpleNamespace(offset_within=lambda *place: find_stamp(files, *place))
        self.log = StreamLog(ID, "stream", directory, home)
        StreamRecovery(files, self.log, self.reports.append).run()
        reading = StreamReading(files, lambda _: None, self.reports.append)
        self.found: dict[int, bytes] = {}
        offset = 0
        try:
            while offset < self.log.synced:
                read = Read(SimpleNamespace(), self.log, offset, 100)
                self.log.locate(read)
                if read.segment is not None:
                    reading._read(read, read.segment)
                assert read.next > offset
                offset = read.next
                self.damages += read.damages
                for one in read.found:
                    for at, content in enumerate(one.contents, one.first):
                        if content is not None:
                            assert at not in self.found
                            self.found[at] = content
        finally:
            reading.close()


class Written:
    """A small stream: three batches in each of three segments, as a kill or a stop in order leaves it."""

    def __init__(self, directory: Path, in_order: bool) -> None:
        self.batches: list[list[int]] = []
        self.contents: dict[int, bytes] = {}
        with StoreHouse(directory / "store") as house:
            stream = FakeStream(house, ID, segment_bytes=330)
            for at in range(9):
                contents = [b"%d-%d." % (at, index) for index in range(1 + at % 3)]
                first = stream.append(*contents, stamp_ms=100 * at, receipt=FakeReceipt(), marks={"p": at})
                if at % 3 != 1:  # some share a sync
                    house.run_until_idle()
                self.batches.append(list(range(first, first + len(contents))))
                self.contents.update(enumerate(contents, first))
            house.clock.advance(1)
            house.run_until_idle()
            if in_order:
                house.stop()
        self.directory = directory / "stream"
        shutil.copytree(stream.log.directory, self.directory)
        self.paths = sorted(self.directory.iterdir())
        assert len(self.paths) == 3

    @contextmanager
    def damaged(self, path: Path, raw: bytes) -> Iterator[None]:
        before = path.read_bytes()
        path.write_bytes(raw)
        try:
            yield
        finally:
            path.write_bytes(before)

    def check(self, opened: Opened, what: str) -> set[int]:
        """Nothing that was found is wrong; the batches that are not whole."""
        for offset, content in opened.found.items():
            assert self.contents.get(offset) == content, f"{what}: offset {offset} has {content!r}"
        lost = self.contents.keys() - opened.found.keys()
        for ms in (0, 350, 10_000):
            assert 0 <= opened.log.offset_at(ms) <= opened.log.synced
        assert 0 <= opened.log.last_batch() <= opened.log.synced
        return lost


def test_a_flipped_byte_anywhere_costs_at_most_what_it_is_in_and_is_told(tmp_path: Path) -> None:
    for in_order in (False, True):
        written = Written(tmp_path / str(in_order), in_order)
        whole = Opened(written.directory)
        assert written.check(whole, "whole") == set()
        assert not whole.reports + whole.damages
        for path in written.paths[2 if in_order else 0 :]:  # only the last one is another after a stop in order
            raw = path.read_bytes()
            for at in range(len(raw)):
                flipped = bytearray(raw)
                flipped[at] ^= 1 << at % 8
                what = f"{path.name} at {at}"
                with written.damaged(path, bytes(flipped)):
                    opened = Opened(written.directory)
                    lost = written.check(opened, what)
                    assert not lost or opened.damages + opened.reports, f"{what}: {lost} are lost and nobody is told"
                    if opened.log.end < len(written.contents):
                        # In what was written last, damage cannot be told from a torn write: it is cut there.
                        assert path == written.paths[-1], what
                        assert lost == set(range(opened.log.end, len(written.contents))), what
                        assert any(opened.log.end == batch[0] for batch in written.batches), what
                    else:
                        single = ({offset} for offset in written.contents)
                        assert lost in [set(), *single, *map(set, written.batches)], what
                    assert set(opened.log.producers) <= {"p"}
                    known = opened.log.producers.get("p", -1)
                    assert known == 8 or not in_order or path == written.paths[-1], what


def test_a_cut_anywhere_loses_nothing_before_it_and_the_next_offset_is_right(tmp_path: Path) -> None:
    for in_order in (False, True):
        written = Written(tmp_path / str(in_order), in_order)
        path = written.paths[-1]
        raw = path.read_bytes()
        first = int(path.stem)
        for size in range(len(raw)):
            with written.damaged(path, raw[:size]):
                opened = Opened(written.directory)
                lost = written.check(opened, f"cut at {size}")
                end = opened.log.end
                assert first <= end == opened.log.synced
                assert lost == set(range(end, len(written.contents)))
                assert [batch for batch in written.batches if end in batch[1:]] == [], "half of a batch"
                for batch in written.batches:
                    ends_at = raw.rfind(written.contents[batch[-1]])
                    if ends_at >= 0 and ends_at + len(written.contents[batch[-1]]) <= size:
                        assert end > batch[-1], f"cut at {size}"
                # It was cut for good: the next start has nothing to tell.
                again = Opened(written.directory)
                assert (again.log.end, again.reports) == (end, [])
                # No mark without its message.
                whole_batches = sum(batch[-1] < end for batch in written.batches)
                assert opened.log.producers.get("p", -1) <= whole_batches - 1


def test_a_cut_of_a_sealed_segment_loses_only_what_is_behind_it_there(tmp_path: Path) -> None:
    written = Written(tmp_path, in_order=True)
    path = written.paths[1]
    raw = path.read_bytes()
    first, behind = int(path.stem), int(written.paths[2].stem)
    for size in range(len(raw)):
        with written.damaged(path, raw[:size]):
            opened = Opened(written.directory)
            lost = written.check(opened, f"cut at {size}")
            assert opened.log.end == len(written.contents)
            assert lost <= set(range(first, behind))
            assert lost == set() or lost == set(range(min(lost), behind))
            assert opened.reports or not lost  # a missing index alone is what a kill may leave
            assert opened.log.producers == {"p": 8}


def test_any_segment_may_be_missing_or_garbage(tmp_path: Path) -> None:
    written = Written(tmp_path, in_order=False)
    random = Random(3)
    for path in written.paths:
        for raw in (b"", bytes(1000), random.randbytes(500), b"\x9cPnR" * 50):
            with written.damaged(path, raw):
                opened = Opened(written.directory)
                lost = written.check(opened, path.name)
                behind = [int(other.stem) for other in written.paths if other > path]
                assert lost == set(range(int(path.stem), behind[0] if behind else len(written.contents)))
                assert opened.log.end == (len(written.contents) if behind else int(path.stem))


# Random lives.


class Life:
    """A store with one stream, and a model of what it must have."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = Random(seed)
        self.model: dict[int, bytes] = {}  # all that is there
        self.sent: dict[bytes, tuple[str, int]] = {}  # producer and publishing id by content
        self.marks: dict[str, int] = {}
        self.is_whole = True
        self.now_ms = 0
        self.stamps: dict[int, int] = {}  # by the first offset of an append
        self.house = StoreHouse(directory)
        self.stream = self.open()

    def open(self) -> FakeStream:
        stream = FakeStream(self.house, ID, segment_bytes=self.random.choice((400, 1500, 1 << 26)))
        self.house.store.streams.now_ms = lambda: 1
        return stream

    def append(self, awaited: bool = True) -> None:
        marks: dict[str, int] = {}
        contents = []
        for _ in range(self.random.choice((1, 1, 2, 7))):
            producer = self.random.choice("abc")
            self.marks[producer] = marks[producer] = self.marks.get(producer, 0) + 1
            content = b"%s %d " % (producer.encode(), marks[producer]) + bytes(self.random.choice((0, 10, 200)))
            contents.append(content)
            self.sent[content] = producer, marks[producer]
        self.now_ms += self.random.choice((0, 5, 50))
        receipt = FakeReceipt() if awaited else None
        first = self.stream.append(*contents, stamp_ms=self.now_ms, receipt=receipt, marks=marks)
        self.stamps[first] = self.now_ms
        self.model.update(enumerate(contents, first))

    def settle(self) -> None:
        for _ in range(self.random.choice((2, 5))):
            self.house.run_until_idle()
            self.house.clock.advance(1)
        self.house.run_until_idle()

    def check(self) -> None:
        """All that is synced is there, and nothing else."""
        self.settle()
        log = self.stream.log
        expected = {offset: content for offset, content in self.model.items() if log.first <= offset < log.synced}
        assert self.stream.read_all(0, self.random.choice((1, 300, 10_000))) == expected
        for first, stamp_ms in self.stamps.items():
            if log.first <= first < log.synced:
                assert log.offset_at(stamp_ms) <= first, "a reader from this time on would miss it"
                if self.is_whole and self.now_ms >= stamp_ms + 50:  # behind damage it may be too early
                    assert log.offset_at(stamp_ms + 50) > first
        if expected:
            offset = self.random.choice(sorted(expected))
            found = self.stream.read_all(offset, 500)
            assert found == {at: content for at, content in expected.items() if at >= offset}

    def check_marks(self) -> None:
        """No producer has a mark for what is lost."""
        there = {self.sent[content] for content in self.model.values()}
        for producer, mark in self.stream.log.producers.items():
            for id_ in range(1, mark + 1):
                assert (producer, id_) in there, f"{producer} {id_} was lost and would be dropped"

    def retain(self) -> None:
        log = self.stream.log
        log.max_bytes = self.random.choice((0, 500, 2000, 100_000))
        log.retain(1)
        log.max_bytes = -1
        assert log.segments or not log.synced
        assert log.first == (log.segments[0].first if log.segments else 0)
        assert log.bytes == sum(segment.size for segment in log.segments)

    def restart(self, in_order: bool) -> None:
        self.settle()
        end, first, marks = self.stream.log.end, self.stream.log.first, dict(self.stream.log.producers)
        self.house = self.house.reborn(in_order)
        self.stream = self.open()
        log = self.stream.log
        assert not self.is_whole or not self.house.reports
        assert (log.synced, log.end, log.producers) == (end, end, marks)
        assert log.first == first

    def lose_power(self) -> None:
        """In the middle of a sync: what was written since the last one may be on disk in parts, in any order."""
        self.settle()
        self.is_whole = False
        log = self.stream.log
        synced, marks = log.synced, dict(log.producers)
        safe = {segment.path: segment.size for segment in log.segments}
        self.house.disk.stop("sync", "stream")
        for _ in range(self.random.randrange(6)):
            self.append()
            if self.random.random() < 0.5:
                self.house.run_turns()
        self.house.run_turns()
        self.house.kill()
        for path in sorted(log.directory.iterdir()) if log.directory.exists() else ():
            self._tear(path, safe.get(path, 0))
        self.house = self.house.reborn()
        self.stream = self.open()
        log = self.stream.log
        assert log.end == log.synced >= synced
        found = self.stream.read_all(log.first, 1000)
        assert all(found[offset] == self.model[offset] for offset in self.model if log.first <= offset < synced)
        assert all(self.model[offset] == content for offset, content in found.items())
        for producer, mark in marks.items():
            assert log.producers[producer] >= mark
        self.model = {offset: self.model[offset] for offset in self.model if offset < log.first or offset in found}
        self.stamps = {first: stamp_ms for first, stamp_ms in self.stamps.items() if first in found}
        self.check_marks()
        self.marks = {producer: log.producers.get(producer, 0) for producer in "abc"}  # they send again from there

    def _tear(self, path: Path, safe: int) -> None:
        raw = bytearray(path.read_bytes())
        kind = self.random.choice(("whole", "cut", "zeros", "flip", "gone"))
        if kind == "gone" and not safe:
            path.unlink()
        elif len(raw) > safe:
            at = self.random.randrange(safe, len(raw))
            if kind == "cut":
                del raw[at:]
            elif kind == "zeros":
                end = min(len(raw), at + self.random.choice((1, 50, 1000)))
                raw[at:end] = bytes(end - at)
            elif kind == "flip":
                raw[at] ^= 0x10
            path.write_bytes(raw)


STEPS = st.lists(
    st.sampled_from(["append", "append", "append", "quiet", "settle", "check", "retain", "kill", "stop", "power"]),
    max_size=25,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS, st.integers(0, 1 << 32))
def test_random_lives_of_a_stream_are_as_the_model_says(steps: list[str], seed: int) -> None:
    with TemporaryDirectory() as directory:
        life = Life(Path(directory) / "messages", seed)
        try:
            for step in [*steps, "settle", "check"]:
                if step == "append":
                    life.append()
                    life.house.run_turns()
                elif step == "quiet":
                    life.append(awaited=False)
                elif step == "settle":
                    life.settle()
                    assert life.stream.log.synced == life.stream.log.end
                elif step == "check":
                    life.check()
                elif step == "retain":
                    life.retain()
                elif step == "power":
                    life.lose_power()
                else:
                    life.restart(in_order=step == "stop")
            life.check_marks()
        finally:
            life.house.__exit__()

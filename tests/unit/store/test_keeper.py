"""The keeper: a checkpoint is there as a whole or not at all, and nothing is removable before it is."""

from __future__ import annotations

import errno
import queue
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.store.compact import PIECE_BYTES
from penstock.store.keeper import SMALL_BYTES, SMALL_MAX, Keeper, Result, SegmentUse, run, worth_rewriting
from penstock.store.sealed import Pace, Stopped
from tests.unit.store.scribe import Scribe, Unsynced, read_back, start

TIMEOUT_S = 60.0


class FailingDisk(Unsynced):
    """Fails the nth operation of a kind."""

    def __init__(self) -> None:
        self.failing = ""
        self.after = 0
        self.done: list[str] = []

    def _act(self, name: str) -> None:
        self.done.append(name)
        if name == self.failing:
            self.after -= 1
            if self.after < 0:
                raise OSError(errno.ENOSPC, "No space left on device")

    def write(self, descriptor: int, buffers: Sequence[bytes | memoryview], offset: int) -> None:
        self._act("write")
        super().write(descriptor, buffers, offset)

    def create(self, path: Path) -> int:
        self._act("create")
        return super().create(path)

    def sync(self, descriptor: int) -> None:
        self._act("sync")

    def rename(self, old: Path, new: Path) -> None:
        self._act("rename")
        super().rename(old, new)

    def sync_directory(self, path: Path) -> None:
        self._act("sync_directory")

    def remove(self, path: Path) -> None:
        self._act("remove")
        super().remove(path)


@pytest.fixture
def scribe(tmp_path: Path) -> Scribe:
    return Scribe(tmp_path / "messages", Unsynced())


def names(scribe: Scribe) -> list[str]:
    return sorted(path.name.rstrip("0123456789") for path in scribe.directory.iterdir())


def test_nothing_is_removed_before_the_store_has_heard(scribe: Scribe) -> None:
    scribe.batch(1, [b"one", b"two"])
    scribe.seal()
    result = run(scribe.task(), scribe.files)
    assert names(scribe) == ["journal-", "segment-"]
    assert [path.name[:7] for path in result.removable] == ["journal"]
    assert not result.error
    assert result.bytes == result.file.path.stat().st_size if result.file else False


def test_a_segment_is_synced_before_it_has_its_name_and_the_name_before_anything_is_removable(tmp_path: Path) -> None:
    disk = FailingDisk()
    scribe = Scribe(tmp_path / "messages", disk)
    scribe.batch(1, [b"one"])
    scribe.seal()
    disk.done.clear()
    run(scribe.task(), disk)
    assert disk.done == ["create", "write", "sync", "rename", "sync_directory"]


@pytest.mark.parametrize("failing", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_disk_that_refuses_changes_nothing_and_the_next_try_succeeds(tmp_path: Path, failing: str) -> None:
    disk = FailingDisk()
    scribe = Scribe(tmp_path / "messages", disk)
    scribe.batch(1, [b"m" * 1000] * 3000)  # more than one piece
    scribe.remove(1, (1, 3))
    scribe.seal()
    disk.failing = failing
    result = run(scribe.task(), disk, Pace(hurry=True))
    assert "No space left on device" in result.error
    assert "segment-" in result.error
    assert not result.removable
    assert not result.extents
    assert names(scribe) == ["journal-"]
    assert read_back(start(scribe.directory)) == scribe.expected()
    disk.failing = ""
    scribe.apply(run(scribe.task(), disk, Pace(hurry=True)))
    assert names(scribe) == ["segment-"]
    assert read_back(start(scribe.directory)) == scribe.expected()


def test_a_source_that_cannot_be_read_fails_the_checkpoint_and_loses_nothing(scribe: Scribe) -> None:
    scribe.batch(1, [b"one"])
    scribe.seal()
    task = scribe.task()
    away = scribe.directory.parent / "away"
    scribe.sealed[0].path.rename(away)
    assert "No such file" in run(task, scribe.files).error
    assert names(scribe) == []
    away.rename(scribe.sealed[0].path)
    assert not run(task, scribe.files).error


def test_a_checkpoint_of_nothing_still_covers_the_journals(scribe: Scribe) -> None:
    scribe.batch(1, [b"one"])
    scribe.remove(1, (0, 1))
    scribe.checkpoint()
    assert names(scribe) == ["segment-"]
    recovered = start(scribe.directory)
    assert recovered.messages == 0
    assert recovered.logs[1].ends == {0: 1}


# Bodies.


def test_a_file_of_bodies_nobody_refers_to_can_go(scribe: Scribe) -> None:
    scribe.batch(1, [b"A" * 5000, b"B" * 5000], large=(0, 1))
    scribe.remove(1, (0, 2))
    result = scribe.checkpoint()
    assert len(result.bodies_gone) == 1
    assert names(scribe) == ["segment-"]


def test_a_body_that_another_queue_still_has_stays(scribe: Scribe) -> None:
    name = scribe.body(b"A" * 5000)
    scribe.batch(1, [b"A" * 5000], large=(0,), names={0: name})
    scribe.batch(2, [b"A" * 5000], large=(0,), names={0: name})
    scribe.remove(1, (0, 1))
    result = scribe.checkpoint()
    assert result.bodies_gone == []
    assert read_back(start(scribe.directory)) == scribe.expected()
    scribe.remove(2, (0, 1))
    assert len(scribe.checkpoint().bodies_gone) == 1


def test_a_body_that_queues_share_counts_once(scribe: Scribe) -> None:
    shared = scribe.body(b"A" * 5000)
    for at in range(1, 5):
        scribe.batch(at, [b"A" * 5000], large=(0,), names={0: shared})
    scribe.batch(1, [b"B" * 20_000], large=(0,))
    scribe.remove(1, (1, 2))
    result = scribe.checkpoint()
    assert result.bodies is not None, "a quarter is alive, four times referred to"
    assert read_back(start(scribe.directory)) == scribe.expected()


def test_a_file_with_little_alive_is_compacted_again_and_again(scribe: Scribe) -> None:
    big = b"Z" * (PIECE_BYTES + 12345)
    scribe.batch(1, [b"%02d" % at * 3000 for at in range(20)], large=tuple(range(20)))
    scribe.batch(2, [big, b"P" * 4 * len(big)], large=(0, 1))
    assert scribe.checkpoint().bodies is None
    scribe.remove(2, (1, 2))
    scribe.remove(1, (3, 20))
    first = scribe.checkpoint()
    assert first.bodies is not None
    assert first.bodies.bytes < 2 * PIECE_BYTES
    assert read_back(start(scribe.directory)) == scribe.expected()
    scribe.remove(2, (0, 1))
    scribe.remove(1, (0, 1))
    second = scribe.checkpoint()
    assert second.bodies_gone == [first.bodies.number]
    assert second.bodies is not None
    assert second.bodies.bytes < 20_000
    recovered = start(scribe.directory)
    assert read_back(recovered) == scribe.expected()
    assert list(recovered.moved) == [second.bodies.number]
    assert names(scribe) == ["bodies-", "segment-"]


def test_small_files_of_bodies_are_left_alone(scribe: Scribe) -> None:
    scribe.batch(1, [b"A" * 5000] * 9, large=tuple(range(9)))
    scribe.remove(1, (1, 9))
    scribe.compact_least_bytes = 100_000
    assert scribe.checkpoint().bodies is None


def test_a_compaction_that_fails_leaves_the_checkpoint_and_the_bodies(tmp_path: Path) -> None:
    disk = FailingDisk()
    scribe = Scribe(tmp_path / "messages", disk)
    scribe.batch(1, [b"A" * 5000] * 9, large=tuple(range(9)))
    scribe.remove(1, (1, 9))
    scribe.seal()
    disk.failing, disk.after = "rename", 1
    result = run(scribe.task(), disk, Pace(hurry=True))
    assert not result.error
    assert "No space left on device" in result.bodies_error
    assert result.bodies_gone == []
    scribe.apply(result)
    assert names(scribe) == ["bodies-", "segment-"]
    assert read_back(start(scribe.directory)) == scribe.expected()
    disk.failing = ""
    assert scribe.checkpoint().bodies is not None
    assert read_back(start(scribe.directory)) == scribe.expected()


def test_a_body_whose_head_is_damaged_is_told_when_it_would_be_moved(scribe: Scribe) -> None:
    scribe.batch(1, [b"A" * 5000] * 9, large=tuple(range(9)))
    scribe.remove(1, (2, 9))
    scribe.seal()
    path = scribe.bodies[0].path
    offset = scribe.queues[1].log.extents[0][0].large_offsets[1]
    raw = bytearray(path.read_bytes())
    raw[offset + 25] ^= 1
    path.write_bytes(bytes(raw))
    result = scribe.checkpoint()
    assert [(damage.path, damage.offset) for damage in result.damages] == [(path, offset)]
    assert [position for position, _ in read_back(start(scribe.directory))[1]] == [0]


# The thread.


class BrokerThread:
    """What `post` is given; run by hand."""

    def __init__(self) -> None:
        self._posted: queue.Queue[Callable[[], None]] = queue.Queue()
        self.results: list[Result] = []

    def post(self, function: Callable[[], None]) -> None:
        self._posted.put(function)

    def wait(self, results: int) -> None:
        while len(self.results) < results:
            self._posted.get(timeout=TIMEOUT_S)()


def test_the_thread_does_one_task_after_the_other_and_tells_the_broker(scribe: Scribe) -> None:
    thread = BrokerThread()
    keeper = Keeper(scribe.files, thread.post, thread.results.append)
    scribe.batch(1, [b"one"])
    scribe.seal()
    keeper.submit(scribe.task())
    thread.wait(1)
    scribe.apply(thread.results[0])
    scribe.batch(1, [b"two"])
    scribe.seal()
    keeper.submit(scribe.task())
    keeper.close(give_up=False)
    thread.wait(2)
    scribe.apply(thread.results[1])
    assert read_back(start(scribe.directory)) == scribe.expected()


def test_a_keeper_that_is_closed_gives_up_and_leaves_nothing_behind(scribe: Scribe) -> None:
    thread = BrokerThread()
    keeper = Keeper(scribe.files, thread.post, thread.results.append)
    scribe.batch(1, [b"one"])
    scribe.seal()
    keeper._pace.stopped = True  # as close() does, while it works
    keeper.submit(scribe.task())
    keeper.close()
    thread.wait(1)
    assert "given up" in thread.results[0].error
    assert names(scribe) == ["journal-"]


def test_a_defect_of_the_keeper_is_told_and_does_not_end_its_thread(scribe: Scribe) -> None:
    thread = BrokerThread()
    keeper = Keeper(scribe.files, thread.post, thread.results.append)
    scribe.batch(1, [b"one"])
    scribe.seal()
    task = scribe.task()
    wrong = scribe.task()
    wrong.states = [None]  # type: ignore[list-item]  # a defect is what this is about
    keeper.submit(wrong)
    keeper.submit(task)
    thread.wait(2)
    keeper.close()
    assert "the checkpoint failed" in thread.results[0].error
    assert not thread.results[1].error
    assert names(scribe) == ["journal-", "segment-"]


def test_a_pace_that_is_stopped_ends_the_work() -> None:
    pace = Pace()
    pace.breathe()
    pace.stopped = True
    with pytest.raises(Stopped):
        pace.breathe()


# Which segments are worth it.


def use(number: int, messages: int, living: int, size: int = 10 * SMALL_BYTES) -> SegmentUse:
    return SegmentUse(number, size, messages, living)


def test_a_segment_is_rewritten_when_less_than_half_of_it_is_alive() -> None:
    assert worth_rewriting([use(1, 100, 50), use(2, 100, 49), use(3, 100, 100), use(4, 100, 0)]) == [2, 4]
    assert worth_rewriting([use(5, 0, 0, 300)]) == [5], "one with states only is replaced by the next"


def test_many_small_segments_become_one() -> None:
    small = [use(number, 10, 10, 5000) for number in range(SMALL_MAX)]
    large = use(1000, 10, 10)
    assert worth_rewriting([*small, large]) == []
    assert worth_rewriting([*small, large, use(1001, 10, 10, 5000)]) == [*range(SMALL_MAX), 1001]

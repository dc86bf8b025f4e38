"""Journal: the thread that writes and syncs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.store.journal import AIDES_MAX, SYNC_BOUNDS_S, Journal, Target, Told, Work, Write
from penstock.store.log import StoredFile
from penstock.store.record import JOURNAL, STREAM
from tests.unit.fakes import FakeDisk, Posts
from tests.wire.waiting import wait_until


class Desk:
    """A journal, and what it reports."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.disk = FakeDisk()
        self.posts = Posts()
        self.told: list[Told] = []
        self.journal = Journal(directory, self.disk, self.posts, self.told.append)
        self.journal.retry_s = 0.001
        self.target = self.new_target(1)

    def new_target(self, number: int) -> Target:
        return Target(StoredFile(JOURNAL, number, self.directory / f"journal-{number}"))

    def submit(self, data: bytes, to_sync: bool = True, target: Target | None = None) -> Work:
        target = target or self.target
        work = Work()
        work.writes.append(Write(target, target.size, [data]))
        work.to_sync = to_sync
        target.size += len(data)
        self.journal.submit(work)
        return work

    def until(self, condition: Callable[[], object]) -> None:
        self.posts.run_until(condition)

    def written(self) -> list[Work]:
        return [work for told in self.told for work in told.written]

    def synced(self) -> list[Work]:
        return [work for told in self.told for work in told.synced]

    def troubles(self) -> list[str]:
        return [told.trouble for told in self.told if told.trouble]

    def content(self) -> bytes:
        return self.target.file.path.read_bytes()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.disk.heal()
    desk.journal.close()
    desk.disk.end()


def test_what_waits_while_the_disk_is_busy_shares_one_sync(desk: Desk) -> None:
    desk.disk.stop("sync", "journal")
    first = desk.submit(b"a")
    wait_until(lambda: desk.disk.is_standing("sync", "journal"))
    others = [desk.submit(b"%d" % number) for number in range(9)]
    desk.disk.go_on()
    desk.until(lambda: len(desk.synced()) == 10)
    assert desk.synced() == [first, *others]
    assert desk.journal.syncs == 2
    assert desk.content() == b"a012345678"


def test_nothing_is_reported_before_it_is_synced(desk: Desk) -> None:
    desk.disk.stop("sync", "journal")
    work = desk.submit(b"a")
    wait_until(lambda: desk.disk.is_standing("sync", "journal"))
    assert desk.content() == b"a"
    assert not desk.posts.run()
    desk.disk.go_on()
    desk.until(lambda: desk.synced() == [work])


def test_a_new_file_has_its_name_synced_before_anything_is_reported(desk: Desk) -> None:
    desk.disk.stop("sync", "directory")
    work = desk.submit(b"a")
    wait_until(lambda: desk.disk.is_standing("sync", "directory"))
    assert not desk.posts.run()
    desk.disk.go_on()
    desk.until(lambda: desk.synced() == [work])
    desk.submit(b"b")
    desk.until(lambda: len(desk.synced()) == 2)
    assert desk.disk.done["sync", "directory"] == 1


def test_a_new_file_in_a_new_directory_has_every_name_synced(desk: Desk) -> None:
    deep = Target(StoredFile(STREAM, 1, desk.directory / "streams" / "1" / "0.seg"))
    work = desk.submit(b"a", target=deep)
    desk.until(lambda: desk.synced() == [work])
    assert deep.file.path.read_bytes() == b"a"
    assert desk.disk.done["sync", "directory"] == 3


def many_files(desk: Desk, count: int) -> Work:
    work = Work()
    work.to_sync = True
    for number in range(1, count + 1):
        work.writes.append(Write(desk.new_target(number), 0, [b"%d" % number]))
    desk.journal.submit(work)
    return work


@pytest.mark.parametrize("count", [1, 2, AIDES_MAX, AIDES_MAX + 1, AIDES_MAX + 2, 5 * AIDES_MAX])
def test_all_files_of_a_piece_of_work_are_synced_once_by_few_threads(desk: Desk, count: int) -> None:
    work = many_files(desk, count)
    desk.until(lambda: desk.synced() == [work])
    assert desk.disk.done["sync", "journal"] == count
    assert sum(thread.name == "journal-aide" for thread in threading.enumerate()) <= AIDES_MAX


@pytest.mark.parametrize("failing", [1, 3])
def test_a_failed_sync_of_one_of_many_files_is_a_failure_of_all(desk: Desk, failing: int) -> None:
    desk.disk.fail("sync", "journal", failing)
    work = many_files(desk, 10)
    desk.until(lambda: desk.synced() == [work])
    assert desk.troubles() == ["sync failed: Input/output error"]
    assert desk.disk.done["write", "journal"] == 20


def test_what_nobody_waits_for_is_reported_when_it_is_written_and_synced_soon_after(desk: Desk) -> None:
    work = desk.submit(b"a", to_sync=False)
    desk.until(lambda: desk.written() == [work])
    assert desk.synced() == []
    assert desk.disk.done["sync", "journal"] == 0
    desk.until(lambda: desk.synced() == [work])
    assert desk.written() == [work]


def test_what_nobody_waits_for_is_synced_with_what_comes_behind_it(desk: Desk) -> None:
    first = desk.submit(b"a", to_sync=False)
    desk.until(lambda: desk.written() == [first])
    second = desk.submit(b"b")
    desk.until(lambda: second in desk.synced())
    assert desk.synced() == [first, second]
    assert desk.journal.syncs == 1


def test_a_write_that_fails_is_tried_again_until_it_succeeds(desk: Desk) -> None:
    desk.disk.fail("write", "journal", times=3, number=28)
    work = desk.submit(b"abc")
    desk.until(lambda: desk.synced() == [work])
    assert desk.troubles() == ["write failed: No space left on device"] * 3
    assert not any(told.sync_failed for told in desk.told)
    assert desk.written() == [work]
    assert desk.content() == b"abc"


def test_after_a_failed_sync_everything_unsynced_is_written_again_before_the_next_sync(desk: Desk) -> None:
    first = desk.submit(b"a", to_sync=False)
    desk.until(lambda: desk.written() == [first])
    desk.disk.fail("sync", "journal")
    second = desk.submit(b"b")
    desk.until(lambda: second in desk.synced())
    assert desk.disk.done["write", "journal"] == 4  # each of both twice
    assert [told.sync_failed for told in desk.told if told.trouble] == [True]
    assert desk.troubles() == ["sync failed: Input/output error"]
    assert desk.synced() == [first, second]


def test_a_directory_that_cannot_be_synced_is_a_failed_sync(desk: Desk) -> None:
    desk.disk.fail("sync", "directory")
    work = desk.submit(b"a")
    desk.until(lambda: desk.synced() == [work])
    assert [told.sync_failed for told in desk.told if told.trouble] == [True]
    assert desk.disk.done["sync", "directory"] == 2


def test_a_file_that_cannot_be_made_is_trouble_and_made_later(desk: Desk) -> None:
    desk.disk.fail("create", "journal", times=2)
    work = desk.submit(b"a")
    desk.until(lambda: desk.synced() == [work])
    assert len(desk.troubles()) == 2
    assert desk.content() == b"a"


def test_a_sealed_file_is_closed_when_all_of_it_is_synced(desk: Desk) -> None:
    work = desk.submit(b"a", to_sync=False)
    work.seals.append(desk.target)
    desk.until(lambda: desk.written() == [work])
    assert desk.target.descriptor >= 0
    desk.submit(b"b", target=desk.new_target(2))
    desk.until(lambda: len(desk.synced()) == 2)
    assert desk.target.descriptor == -1


def test_closed_it_has_written_and_synced_what_was_submitted(desk: Desk) -> None:
    desk.disk.stop("write", "journal")
    works = [desk.submit(b"%d" % number, to_sync=False) for number in range(5)]
    wait_until(lambda: desk.disk.is_standing("write", "journal"))
    desk.disk.go_on()
    assert desk.journal.close()
    assert desk.synced() == works
    assert desk.content() == b"01234"


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_closed_while_the_disk_refuses_it_says_so_and_reports_nothing_as_synced(desk: Desk, operation: str) -> None:
    desk.disk.fail(operation, "journal", times=1_000_000)
    desk.submit(b"abc")
    desk.until(desk.troubles)
    assert not desk.journal.close()
    assert desk.synced() == []


def test_closed_just_when_the_disk_works_again_it_writes_what_failed_before(desk: Desk) -> None:
    desk.journal.retry_s = 60.0
    desk.disk.fail("write", "journal")
    work = desk.submit(b"abc")
    desk.until(desk.troubles)  # it waits to try again
    assert desk.journal.close()
    assert desk.synced() == [work]
    assert desk.content() == b"abc"


def test_a_closed_one_that_only_syncs_what_was_never_written_would_lie(desk: Desk) -> None:
    """Writes fail and syncs do not, as on a full disk."""
    desk.journal.retry_s = 60.0
    desk.disk.fail("write", "journal", times=2)
    desk.submit(b"abc")
    desk.until(desk.troubles)
    assert not desk.journal.close()
    assert desk.synced() == []


def test_waiting_for_a_report_hears_it(desk: Desk) -> None:
    work = desk.submit(b"a")
    while not desk.synced():
        desk.journal.wait()
    assert desk.synced() == [work]


def test_the_time_spent_in_syncs_is_counted(desk: Desk) -> None:
    desk.journal.sync_delay_s = 0.002
    desk.submit(b"a")
    desk.until(desk.synced)
    assert desk.journal.syncs == 1
    assert desk.journal.sync_ns >= 2_000_000


def test_syncs_are_counted_by_how_long_they_took(desk: Desk) -> None:
    desk.journal.sync_delay_s = 0.03
    desk.submit(b"a")
    desk.until(desk.synced)
    counts = desk.journal.sync_counts
    assert len(counts) == len(SYNC_BOUNDS_S) + 1
    assert sum(counts) == desk.journal.syncs == 1
    assert sum(counts[: SYNC_BOUNDS_S.index(0.025) + 1]) == 0, "none was faster than the delay"
    assert desk.journal.sync_max_ns >= desk.journal.sync_last_ns >= 30_000_000

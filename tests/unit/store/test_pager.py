"""Pager: the thread that reads messages back, and writes out those on no disk yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from penstock.store.bodies import Bodies
from penstock.store.files import Files
from penstock.store.journal import Write
from penstock.store.log import Spot, StoredFile
from penstock.store.pager import FETCH_BODIES_BYTES_MAX, Fetch, Page, Pager
from penstock.store.record import JOURNAL, encode_batch, encode_removed
from tests.unit.fakes import FakeDisk, Posts
from tests.wire.waiting import wait_until


class Desk:
    """A pager, a file of batches, and somebody who asks for them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.disk = FakeDisk()
        self.posts = Posts()
        self.reports: list[str] = []
        self.bodies = Bodies(directory)
        self.pager = Pager(directory / "pages", self.disk, self.bodies, self.posts, self.reports.append)
        self.answers: list[Fetch] = []
        self.out: list[Page] = []
        self.file = StoredFile(JOURNAL, 1, directory / "journal-1")
        self.file.path.write_bytes(b"")

    def fetched(self, fetch: Fetch) -> None:
        self.answers.append(fetch)

    def paged_out(self, page: Page) -> None:
        self.out.append(page)

    def write(self, first: int, contents: list[bytes], large: Sequence[int] = ()) -> Spot:
        """A batch, as the journal would write it; those with these indexes are bodies."""
        stored = list(contents)
        for at in large:
            if self.bodies.target is None:
                self.bodies.begin(7)
            stored[at], _, _ = self.bodies.place(contents[at])
        for write in self.bodies.writes():
            self._write_bodies(write)
        record = encode_batch(1, first, [(len(contents), b"origin")], stored, large, None)
        return self.append(record, first, len(contents))

    def _write_bodies(self, write: Write) -> None:
        files = Files()
        write.target.descriptor = files.create(write.target.file.path)
        write.put(files)
        files.close(write.target.descriptor)

    def append(self, record: bytes, first: int, count: int) -> Spot:
        offset = self.file.path.stat().st_size
        with self.file.path.open("ab") as file:
            file.write(record)
        return Spot(self.file, first, count, offset, len(record))

    def damage(self, path: Path, what: bytes) -> None:
        data = path.read_bytes()
        assert data.count(what) == 1
        path.write_bytes(data.replace(what, bytes(byte ^ 1 for byte in what)))

    def fetch(self, *spots: Spot, wanted: list[tuple[int, int]] | None = None) -> Fetch:
        fetch = Fetch(self, list(spots), wanted or [(0, 1000)])
        self.pager.fetch(fetch)
        self.posts.run_until(lambda: fetch in self.answers)
        return fetch

    def page_out(self, first: int, *contents: bytes) -> Page:
        record = encode_batch(0, first, [(len(contents), b"origin")], list(contents), (), None)
        page = Page(self, first, len(contents), record, 0)
        self.pager.page_out(page)
        return page

    def pages(self) -> list[str]:
        return sorted(path.name for path in (self.directory / "pages").iterdir())

    def settle(self) -> None:
        """The thread has done all that was put in line so far."""
        self.fetch()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    desk.disk.heal()
    desk.pager.close()


def contents(fetch: Fetch) -> list[list[bytes | None] | None]:
    return [found.contents if found is not None else None for found in fetch.found]


def spot_of(page: Page) -> Spot:
    assert page.file is not None
    return Spot(page.file, page.first, page.count, page.offset, page.size)


# Reading.


def test_batches_come_back_as_they_were_written(desk: Desk) -> None:
    spots = [desk.write(0, [b"a", b"b"]), desk.write(5, [b"c"])]
    fetch = desk.fetch(*spots)
    assert contents(fetch) == [[b"a", b"b"], [b"c"]]
    assert [found.origins for found in fetch.found if found] == [[(2, b"origin")], [(1, b"origin")]]
    assert (fetch.end, fetch.damages, fetch.stale, fetch.trouble) == (6, [], False, "")


def test_bodies_are_read_where_they_are_wanted_and_only_there(desk: Desk) -> None:
    spot = desk.write(0, [b"first body", b"small", b"second body"], large=(0, 2))
    fetch = desk.fetch(spot, wanted=[(2, 3)])
    assert contents(fetch) == [[None, b"small", b"second body"]]
    assert fetch.damages == []
    assert desk.disk.done["read", "bodies"] == 1


def test_a_damaged_message_is_told_by_file_and_offset_and_the_others_are_there(desk: Desk) -> None:
    spot = desk.write(3, [b"sound", b"flipped", b"sound too"])
    desk.damage(desk.file.path, b"flipped")
    fetch = desk.fetch(spot)
    assert contents(fetch) == [[b"sound", None, b"sound too"]]
    at = desk.file.path.read_bytes().index(bytes(byte ^ 1 for byte in b"flipped"))
    assert fetch.damages == [f"journal-1 at {at}: a message's checksum is wrong"]


def test_a_damaged_message_that_nobody_wants_is_not_told(desk: Desk) -> None:
    spot = desk.write(0, [b"wanted", b"flipped"])
    desk.damage(desk.file.path, b"flipped")
    assert desk.fetch(spot, wanted=[(0, 1)]).damages == []


def test_a_damaged_body_is_told_and_the_others_are_there(desk: Desk) -> None:
    spot = desk.write(0, [b"sound", b"flipped"], large=(0, 1))
    desk.damage(desk.directory / "bodies-0000000007", b"flipped")
    fetch = desk.fetch(spot)
    assert contents(fetch) == [[b"sound", None]]
    (damage,) = fetch.damages
    assert damage.startswith("bodies-0000000007 at ")
    assert "checksum" in damage


def test_a_body_whose_file_is_missing_is_damage(desk: Desk) -> None:
    spot = desk.write(0, [b"body", b"small"], large=(0,))
    (desk.directory / "bodies-0000000007").unlink()
    fetch = desk.fetch(spot)
    assert contents(fetch) == [[None, b"small"]]
    assert fetch.damages == ["bodies-0000000007: the file is missing"]
    assert not fetch.stale


def test_a_batch_that_is_another_or_none_is_left_out_as_a_whole(desk: Desk) -> None:
    good = desk.write(0, [b"a"])
    moved = desk.write(7, [b"b"])
    moved.first = 8
    removal = encode_removed(1, [(0, 5)])
    other = desk.append(removal, 9, 1)
    fetch = desk.fetch(good, moved, other)
    assert contents(fetch) == [[b"a"], None, None]
    assert len(fetch.damages) == 2
    assert fetch.end == 10


def test_a_file_that_was_replaced_is_stale(desk: Desk) -> None:
    spot = desk.write(0, [b"a"])
    desk.file.path.unlink()
    fetch = desk.fetch(spot)
    assert fetch.stale
    assert (fetch.damages, fetch.trouble) == ([], "")


@pytest.mark.parametrize(("operation", "kind"), [("open", "journal"), ("read", "journal"), ("read", "bodies")])
def test_what_the_disk_refuses_now_is_trouble_and_no_damage(desk: Desk, operation: str, kind: str) -> None:
    spot = desk.write(0, [b"body"], large=(0,))
    desk.disk.fail(operation, kind)
    fetch = desk.fetch(spot)
    assert "Input/output error" in fetch.trouble
    assert fetch.damages == []
    assert contents(desk.fetch(spot)) == [[b"body"]]


def test_large_bodies_are_read_up_to_a_limit_and_the_rest_the_next_time(desk: Desk) -> None:
    body = bytes(FETCH_BODIES_BYTES_MAX // 2 + 1)
    spot = desk.write(0, [body + b"%d" % at for at in range(4)] + [b"small"], large=range(4))
    fetch = desk.fetch(spot)
    assert [len(content or b"") for content in contents(fetch)[0] or ()] == [len(body) + 1] * 2
    assert fetch.end == 2
    rest = desk.fetch(spot, wanted=[(2, 5)])
    assert [content is None for content in contents(rest)[0] or ()] == [True, True, False, False, False]
    assert rest.end == 5


def test_a_limit_reached_at_the_end_of_a_batch_leaves_the_next_batch_for_later(desk: Desk) -> None:
    big = desk.write(0, [bytes(FETCH_BODIES_BYTES_MAX)], large=(0,))
    small = desk.write(1, [b"a"])
    fetch = desk.fetch(big, small)
    assert len(fetch.found) == 1
    assert fetch.end == 1


def test_no_descriptor_stays_open(desk: Desk) -> None:
    spot = desk.write(0, [b"body"], large=(0,))
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(3):
        desk.fetch(spot)
    desk.disk.fail("read", "journal")
    desk.fetch(spot)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


# Pages.


def test_pages_are_read_back_as_they_were_written(desk: Desk) -> None:
    pages = [desk.page_out(0, b"a", b"b"), desk.page_out(2, b"c")]
    desk.posts.run_until(lambda: len(desk.out) == 2)
    assert contents(desk.fetch(*map(spot_of, pages))) == [[b"a", b"b"], [b"c"]]
    assert desk.disk.done["sync", "pages"] == 0  # they need not survive anything


def test_what_an_earlier_life_paged_out_is_removed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "pages-0000000001").write_bytes(b"old")
    desk = Desk(tmp_path)
    assert desk.pages() == []
    desk.pager.close()


def test_a_file_of_pages_goes_when_all_in_it_is_released_and_another_is_written_to(desk: Desk) -> None:
    desk.pager.file_bytes = 1
    pages = [desk.page_out(0, b"a", b"b"), desk.page_out(2, b"c")]
    desk.posts.run_until(lambda: len(desk.out) == 2)
    assert len(desk.pages()) == 2
    first, second = map(spot_of, pages)
    desk.pager.release(first.file, 1)
    desk.settle()
    assert len(desk.pages()) == 2
    desk.pager.release(first.file, 1)
    desk.settle()
    assert desk.pages() == [second.file.path.name]
    desk.pager.release(second.file, 1)
    desk.settle()
    assert desk.pages() == [second.file.path.name]  # it is the one being written to
    desk.page_out(3, b"d")
    desk.posts.run_until(lambda: len(desk.out) == 3)
    assert len(desk.pages()) == 1


def test_a_file_that_fills_up_before_anybody_hears_of_it_is_not_taken_for_empty(desk: Desk) -> None:
    """Much is paged out in one turn of the broker's thread, which hears of nothing meanwhile."""
    desk.pager.file_bytes = 1
    pages = [desk.page_out(at, b"%d" % at) for at in range(5)]
    wait_until(lambda: desk.disk.done["write", "pages"] == 10)  # five heads, five batches
    desk.posts.run_until(lambda: len(desk.out) == 5)
    fetch = desk.fetch(*map(spot_of, pages))
    assert not fetch.stale
    assert contents(fetch) == [[b"0"], [b"1"], [b"2"], [b"3"], [b"4"]]


def test_a_page_that_cannot_be_written_is_told_with_no_file_and_reported_once(desk: Desk) -> None:
    desk.disk.fail("write", "pages", times=2, number=28)
    first, second = desk.page_out(0, b"a"), desk.page_out(1, b"b")
    desk.posts.run_until(lambda: len(desk.out) == 2)
    assert (first.file, second.file) == (None, None)
    assert desk.reports == ["pages cannot be written: No space left on device"]
    third = desk.page_out(2, b"c")
    desk.posts.run_until(lambda: len(desk.out) == 3)
    assert contents(desk.fetch(spot_of(third))) == [[b"c"]]


def test_files_are_removed_behind_whoever_has_asked_for_them(desk: Desk) -> None:
    spot = desk.write(0, [b"a"])
    desk.disk.stop("read", "journal")
    fetch = Fetch(desk, [spot], [(0, 1)])
    desk.pager.fetch(fetch)
    desk.pager.remove([desk.file.path])
    assert desk.file.path.exists()
    desk.disk.go_on()
    desk.posts.run_until(lambda: fetch in desk.answers)
    assert contents(fetch) == [[b"a"]]
    desk.settle()
    assert not desk.file.path.exists()


def test_a_file_that_cannot_be_removed_is_reported_and_the_thread_goes_on(desk: Desk) -> None:
    desk.disk.fail("remove", "journal", number=13)
    desk.pager.remove([desk.file.path])
    desk.posts.run_until(lambda: desk.reports)
    assert desk.reports == ["journal-1 cannot be removed: Permission denied"]
    desk.settle()


def test_closed_it_leaves_no_pages_behind(desk: Desk) -> None:
    desk.page_out(0, b"a")
    desk.posts.run_until(lambda: desk.out)
    desk.pager.close()
    assert desk.pages() == []
    desk.pager = Pager(desk.directory / "pages", desk.disk, desk.bodies, desk.posts, desk.reports.append)

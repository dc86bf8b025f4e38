"""Checkpoints: when they are made, of what, and what is different when they are done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.store.checkpoints import RETRY_S, SLICE
from penstock.store.pager import Fetch
from tests.unit.fakes import FakeOwner, FakeReceipt, StoreHouse
from tests.unit.store.scribe import read_back, start
from tests.wire.waiting import wait_until


@pytest.fixture
def house(tmp_path: Path) -> Iterator[StoreHouse]:
    with StoreHouse(tmp_path, journal_bytes=1000) as house:
        yield house


@pytest.fixture
def owner(house: StoreHouse) -> FakeOwner:
    return FakeOwner(house.store, 7)


def keep(house: StoreHouse, owner: FakeOwner, *contents: bytes, large: tuple[int, ...] = ()) -> None:
    owner.deposit(*contents, receipt=FakeReceipt(), large=large)
    house.run_until_idle()


def survivors(house: StoreHouse, id_: int = 7) -> list[bytes]:
    return [content for _, (content, _, _) in read_back(start(house.directory)).get(id_, [])]


class Asker:
    """Reads all that the log has of these positions, as the broker would."""

    def __init__(self, house: StoreHouse, owner: FakeOwner, first: int, end: int) -> None:
        self.answer: Fetch | None = None
        house.store.pager.fetch(Fetch(self, list(owner.log.spots(first, end)), [(first, end)]))
        house.posts.run_until(lambda: self.answer)

    def fetched(self, fetch: Fetch) -> None:
        self.answer = fetch

    def contents(self) -> list[bytes | None]:
        assert self.answer is not None
        assert not self.answer.stale
        assert not self.answer.damages
        ((first, end),) = self.answer.wanted
        return [
            content
            for found in self.answer.found
            if found is not None
            for position, content in enumerate(found.contents, found.first)
            if first <= position < end
        ]


def test_only_what_is_alive_is_written_to_the_segment_and_can_be_read_there(house: StoreHouse) -> None:
    owner = FakeOwner(house.store, 7)
    owner.deposit(*[b"%d" % at * 200 for at in range(4)])
    owner.remove(0, 2)
    keep(house, owner, b"more" * 100)
    checkpoints = house.store.checkpoints
    assert checkpoints.count == 1
    assert checkpoints.journals == []
    (segment,) = checkpoints.segments.values()
    assert segment.messages == 3
    assert {extent.file.path.name for extent in owner.log.extents[0]} == set(house.names("segment"))
    assert Asker(house, owner, 1, 2).contents() == [b"1" * 200]
    assert Asker(house, owner, 3, 5).contents() == [b"3" * 200, b"more" * 100]


def test_a_checkpoint_waits_for_what_was_written_before_it(house: StoreHouse, owner: FakeOwner) -> None:
    """What moved from one queue to another must be safe in the second before it is gone from the first."""
    other = FakeOwner(house.store, 8)
    keep(house, owner, b"letter" * 10)
    house.disk.stop("sync", "journal")
    owner.deposit(bytes(1000), receipt=FakeReceipt())
    house.run_turns()
    wait_until(lambda: house.disk.is_standing("sync", "journal"))
    other.deposit(b"letter" * 10)
    owner.remove(0)
    house.run_turns()
    house.disk.step("sync", "journal")
    wait_until(lambda: (house.run_turns(), house.disk.is_standing("sync", "journal"))[1])
    assert house.store.checkpoints.busy  # it is to have the first journal, and not the letter in it
    assert house.names("segment") == []
    house.disk.go_on()
    house.flush()
    assert house.store.checkpoints.count == 1
    house.kill()
    assert survivors(house, 8) == [b"letter" * 10]
    assert survivors(house) == [bytes(1000)]


def test_one_checkpoint_at_a_time_and_the_next_one_follows(house: StoreHouse, owner: FakeOwner) -> None:
    house.disk.stop("write", "segment")
    owner.deposit(bytes(1000), receipt=FakeReceipt())
    house.run_turns()
    wait_until(lambda: (house.run_turns(), house.disk.is_standing("write", "segment"))[1])
    for _ in range(3):
        receipt = FakeReceipt()
        owner.deposit(bytes(1000), receipt=receipt)
        house.run_turns()
        house.posts.run_until(lambda receipt=receipt: receipt.kept_count)  # type: ignore[misc]  # mypy: lambda default
        house.run_turns()
    assert len(house.store.checkpoints.journals) == 4
    house.disk.go_on()
    house.run_until_idle()
    assert house.store.checkpoints.count == 2  # of the first journal, and of the other three together
    assert house.store.checkpoints.journals == []
    house.kill()
    assert survivors(house) == [bytes(1000)] * 4


def test_a_checkpoint_that_fails_changes_nothing_and_is_tried_again(house: StoreHouse, owner: FakeOwner) -> None:
    house.disk.fail("write", "segment", number=28)
    keep(house, owner, bytes(1000))
    (report,) = house.reports
    assert "checkpoint failed" in report
    assert "No space left on device" in report
    assert house.names("segment") == []
    assert len(house.store.checkpoints.journals) == 1
    assert Asker(house, owner, 0, 1).contents() == [bytes(1000)]
    house.clock.advance(RETRY_S)
    house.run_until_idle()
    assert house.store.checkpoints.count == 1
    assert Asker(house, owner, 0, 1).contents() == [bytes(1000)]
    assert len(house.reports) == 1


def test_a_reader_that_asked_before_the_checkpoint_gets_its_answer(house: StoreHouse, owner: FakeOwner) -> None:
    keep(house, owner, b"small" * 10)
    spots = list(owner.log.spots(0, 1))
    keep(house, owner, bytes(1000))
    assert house.store.checkpoints.count == 1
    answers: list[Fetch] = []

    class Late:
        def fetched(self, fetch: Fetch) -> None:
            answers.append(fetch)

    house.store.pager.fetch(Fetch(Late(), spots, [(0, 1)]))  # of a journal that is gone by now, or just before
    house.posts.run_until(lambda: answers)
    assert answers[0].stale
    assert Asker(house, owner, 0, 1).contents() == [b"small" * 10]


def test_a_segment_of_which_little_is_alive_is_written_anew(house: StoreHouse, owner: FakeOwner) -> None:
    owner.deposit(*[b"%d" % at * 120 for at in range(10)], receipt=FakeReceipt())
    house.run_until_idle()
    (first,) = house.names("segment")
    owner.remove(*range(8))
    keep(house, owner, bytes(1000))
    assert house.store.checkpoints.count == 2
    assert first not in house.names("segment")
    assert len(house.names("segment")) == 1
    assert Asker(house, owner, 8, 11).contents() == [b"8" * 120, b"9" * 120, bytes(1000)]
    house.kill()
    assert survivors(house) == [b"8" * 120, b"9" * 120, bytes(1000)]


def test_a_segment_that_is_mostly_alive_stays(house: StoreHouse, owner: FakeOwner) -> None:
    owner.deposit(*[b"%d" % at * 120 for at in range(10)], receipt=FakeReceipt())
    house.run_until_idle()
    owner.remove(0)
    keep(house, owner, bytes(1000))
    assert len(house.names("segment")) == 2


def test_bodies_that_nobody_refers_to_are_removed_with_their_file(house: StoreHouse, owner: FakeOwner) -> None:
    keep(house, owner, bytes(5000), large=(0,))
    (first,) = house.names("bodies")
    owner.remove(0)
    keep(house, owner, bytes(5001), large=(0,))
    keep(house, owner, bytes(1000))
    wait_until(lambda: first not in house.names("bodies"))
    assert Asker(house, owner, 1, 2).contents() == [bytes(5001)]


def test_a_body_that_another_queue_still_holds_stays(house: StoreHouse, owner: FakeOwner) -> None:
    other = FakeOwner(house.store, 8)
    content = bytes(5000)
    owner.deposit(content, large=(0,))
    keep(house, other, content, large=(0,))
    owner.remove(0)
    for _ in range(3):
        keep(house, owner, bytes(1000))
    assert Asker(house, other, 0, 1).contents() == [content]


def test_before_all_queues_are_there_no_checkpoint_is_made(tmp_path: Path) -> None:
    """What nobody has claimed yet would be dropped as dead."""
    with StoreHouse(tmp_path) as house:
        keep(house, FakeOwner(house.store, 7), bytes(2000))
        house.ledger.put("queue_log", ("/", "q"), {"id": 7})
    with StoreHouse(tmp_path, journal_bytes=1000, ledger=house.ledger) as second:
        assert [file.path.name for file in second.store.checkpoints.journals] == house.names("journal")[:1]
        second.run_until_idle()
        assert second.store.checkpoints.count == 0
        owner = FakeOwner(second.store, 7, second.store.log(7, "q", second.recovered.logs[7]))
        owner.alive, owner.next = {0}, 1
        second.vault._recovered.clear()
        second.begin()
        second.run_until_idle()
        assert second.store.checkpoints.count == 1
        assert Asker(second, owner, 0, 1).contents() == [bytes(2000)]
        second.kill()
        assert survivors(second) == [bytes(2000)]


def test_a_checkpoint_that_nobody_heard_of_before_the_stop_does_no_harm(house: StoreHouse, owner: FakeOwner) -> None:
    """It is done, but its result still waits for the broker's thread when the store is closed."""
    keep(house, owner, b"a" * 100)
    owner.deposit(bytes(1000), receipt=FakeReceipt())
    house.run_turns()
    checkpoints = house.store.checkpoints
    house.posts.run_until(lambda: checkpoints.busy)
    house.disk.stop("write", "segment")
    house.run_turns()
    wait_until(lambda: (house.run_turns(), house.disk.is_standing("write", "segment"))[1])
    house.disk.go_on()
    wait_until(lambda: len(house.posts))
    assert checkpoints.count == 0
    owner.remove(0)
    owner.deposit(b"last")
    house.is_over = True
    assert house.store.close()
    recovered = start(house.directory)
    assert recovered.damages == []
    assert recovered.messages == 2
    assert [content for _, (content, _, _) in read_back(recovered)[7]] == [bytes(1000), b"last"]
    house.posts.run()  # whoever hears of it now does no harm either
    assert survivors(house) == [bytes(1000), b"last"]


def test_a_checkpoint_that_is_given_up_for_the_stop_is_no_failure(house: StoreHouse, owner: FakeOwner) -> None:
    house.disk.stop("write", "segment")
    owner.deposit(bytes(1000), receipt=FakeReceipt())
    house.run_turns()
    wait_until(lambda: (house.run_turns(), house.disk.is_standing("write", "segment"))[1])
    house.is_over = True
    stopping = threading.Thread(target=house.store.close)
    stopping.start()
    wait_until(lambda: house.store.checkpoints.is_closed)
    house.disk.go_on()
    stopping.join()
    house.posts.run()
    assert house.reports == []
    assert survivors(house) == [bytes(1000)]


def test_with_very_many_queues_the_loop_has_its_turns_while_a_checkpoint_is_prepared_and_applied(
    house: StoreHouse,
) -> None:
    owners = [FakeOwner(house.store, id_) for id_ in range(3 * SLICE)]
    house.store.journal_bytes = 1 << 20
    for owner in owners:
        owner.deposit(b"message", b"%d" % owner.log.id)
    house.flush()
    house.store.journal_bytes = 1_000
    owners[0].deposit(bytes(1_000), receipt=FakeReceipt())
    house.run_until_idle()
    turns = 0

    def act() -> None:
        """Between two slices: what happens now is in no journal that this checkpoint covers."""
        nonlocal turns
        house.store.forget(owners[turns].log)
        more = owners[-1 - turns]
        more.remove(0)
        more.deposit(b"more" * 300, receipt=FakeReceipt())
        house.run_turns()
        house.posts.run_until(lambda: not house.store._writing)  # another journal is full now
        turns += 1
        if house.store.checkpoints._timer is not None and turns < 8:
            house.clock.call_later(0, act)

    while house.store.checkpoints.busy:
        if turns < 8:
            house.clock.call_later(0, act)
        house.clock.advance(0)
        house.run_until_idle()
    assert turns == 8
    assert house.store.checkpoints.count > 1
    house.flush()
    house.kill()
    found = read_back(start(house.directory))
    assert len(found) == len(owners) - turns
    for at, owner in enumerate(owners):
        if at >= turns:
            expected = [b"message", b"%d" % owner.log.id]
            if at >= len(owners) - turns:
                expected = [expected[1], b"more" * 300]
            assert [content for _, (content, _, _) in found[owner.log.id]] == expected

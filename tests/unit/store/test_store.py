"""MessageStore: what is kept, when it is said to be, and what becomes of it when the disk refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.credit import Stage
from penstock.store.store import GATHER_BYTES_MAX, GATHER_S, HEAVY_BYTES
from tests.unit.fakes import FakeOwner, FakeReceipt, StoreHouse
from tests.unit.store.scribe import read_back, start
from tests.wire.waiting import wait_until


@pytest.fixture
def house(tmp_path: Path) -> Iterator[StoreHouse]:
    with StoreHouse(tmp_path) as house:
        yield house


@pytest.fixture
def owner(house: StoreHouse) -> FakeOwner:
    return FakeOwner(house.store, 7)


def survivors(house: StoreHouse, id_: int = 7) -> list[bytes]:
    """What another life would find, once this one is killed."""
    house.kill()
    return [content for _, (content, _, _) in read_back(start(house.directory)).get(id_, [])]


def stand_still(house: StoreHouse, operation: str = "sync", kind: str = "journal") -> None:
    """Have the journal's thread stand in this operation, at the next deposit."""
    house.disk.stop(operation, kind)
    FakeOwner(house.store, 99).deposit(b"first", receipt=FakeReceipt())
    house.run_turns()
    wait_until(lambda: house.disk.is_standing(operation, kind))


# Group commit.


def test_deposits_of_many_queues_share_one_sync(house: StoreHouse) -> None:
    before = house.store.journal.syncs
    receipts = [FakeReceipt() for _ in range(50)]
    for id_, receipt in enumerate(receipts):
        FakeOwner(house.store, id_).deposit(b"message", receipt=receipt)
    house.run_until_idle()
    assert [receipt.kept_count for receipt in receipts] == [1] * 50
    assert house.store.journal.syncs == before + 1


def test_what_comes_while_the_disk_is_busy_is_written_together(house: StoreHouse, owner: FakeOwner) -> None:
    before = house.store.journal.syncs
    stand_still(house)
    receipt = FakeReceipt()
    for at in range(30):
        owner.deposit(b"%d" % at, receipt=receipt)
        house.run_turns()
    assert receipt.kept_count == 0
    assert len(house.store.mailbox) == 30  # held, so that credit bounds how much it can be
    house.disk.go_on()
    house.run_until_idle()
    assert receipt.kept_count == 30
    assert house.store.journal.syncs == before + 2


def test_nothing_is_said_to_be_kept_before_the_sync_that_covers_it(house: StoreHouse, owner: FakeOwner) -> None:
    house.disk.stop("sync", "journal")
    receipt = FakeReceipt()
    owner.deposit(b"message", receipt=receipt)
    house.run_turns()
    wait_until(lambda: house.disk.is_standing("sync", "journal"))
    house.run_turns()
    assert receipt.kept_count == 0
    assert owner.log.is_empty()  # so it is neither paged out nor read
    house.disk.go_on()
    house.run_until_idle()
    assert receipt.kept_count == 1
    assert owner.log.count([(0, 1)]) == 1


def test_on_an_idle_disk_a_deposit_that_is_waited_for_is_written_at_once(house: StoreHouse, owner: FakeOwner) -> None:
    receipt = FakeReceipt()
    owner.deposit(b"message", receipt=receipt)
    house.run_until_idle()  # the clock stands still
    assert receipt.kept_count == 1


def test_what_nobody_waits_for_is_gathered_for_a_moment(house: StoreHouse, owner: FakeOwner) -> None:
    written = house.disk.done["write", "journal"]
    owner.deposit(b"a")
    house.run_until_idle()
    owner.deposit(b"b")
    house.run_until_idle()
    assert house.disk.done["write", "journal"] == written
    house.clock.advance(GATHER_S)
    house.run_until_idle()
    assert house.disk.done["write", "journal"] == written + 1
    assert survivors(house) == [b"a", b"b"]


def test_what_is_waited_for_takes_along_what_was_gathered(house: StoreHouse, owner: FakeOwner) -> None:
    owner.deposit(b"a")
    house.run_until_idle()
    owner.deposit(b"b", receipt=FakeReceipt())
    house.run_until_idle()
    assert survivors(house) == [b"a", b"b"]


def test_much_of_it_is_written_without_waiting(house: StoreHouse, owner: FakeOwner) -> None:
    written = house.disk.bytes["journal"]
    owner.deposit(bytes(GATHER_BYTES_MAX))
    house.run_until_idle()
    assert house.disk.bytes["journal"] > written + GATHER_BYTES_MAX


def test_while_a_heavy_piece_is_written_one_more_is_prepared_and_then_it_waits(
    house: StoreHouse, owner: FakeOwner
) -> None:
    house.disk.stop("sync", "journal")
    receipt = FakeReceipt()
    for _ in range(4):
        owner.deposit(bytes(HEAVY_BYTES), receipt=receipt)
        house.run_turns()
    assert len(house.store._submitted) == 2
    assert len(house.store.mailbox) == 2
    house.disk.go_on()
    house.run_until_idle()
    assert receipt.kept_count == 4
    assert not house.store.mailbox.holds


# Credit.


def test_a_deposit_spends_credit_until_it_is_taken(house: StoreHouse, owner: FakeOwner) -> None:
    queue = Stage("queue", house.clock.now_ns)
    link = house.store.link(queue)
    assert house.store.link(queue) is link
    stand_still(house)
    owner.deposit(*[b"m"] * 2000, link=link)
    house.run_turns()
    assert link.credit == 0
    assert queue.blocked_by  # by the disk
    house.disk.go_on()
    house.run_until_idle()
    assert link.credit == 2000
    assert not queue.blocked_by


# What is gone.


def test_removals_that_wait_together_are_one_record(house: StoreHouse, owner: FakeOwner) -> None:
    owner.deposit(*[b"%d" % at for at in range(10)])
    stand_still(house)
    for at in range(8):
        owner.remove(at)
    house.run_turns()
    assert len(house.store.mailbox) == 1
    house.disk.go_on()
    house.flush()
    assert owner.log.removal is None
    assert survivors(house) == [b"8", b"9"]


def test_a_removal_does_not_overtake_a_later_deposit_of_its_queue(house: StoreHouse, owner: FakeOwner) -> None:
    owner.deposit(b"0")
    owner.remove(0)
    owner.deposit(b"1")
    owner.remove(1)
    owner.deposit(b"2", receipt=FakeReceipt())
    house.run_until_idle()
    assert survivors(house) == [b"2"]


def test_ranges_that_are_removed_do_not_come_back(house: StoreHouse, owner: FakeOwner) -> None:
    owner.deposit(*[b"%d" % at for at in range(10)])
    house.store.remove_ranges(owner.log, [(0, 3), (5, 9)])
    house.flush()
    assert survivors(house) == [b"3", b"4", b"9"]


def test_a_queue_that_is_forgotten_leaves_nothing_and_its_deposits_count_as_kept(
    house: StoreHouse, owner: FakeOwner
) -> None:
    before, waiting = FakeReceipt(), FakeReceipt()
    owner.deposit(b"before", receipt=before)
    house.run_until_idle()
    stand_still(house)
    owner.deposit(b"waiting", receipt=waiting)
    house.store.forget(owner.log)
    house.disk.go_on()
    house.flush()
    assert (before.kept_count, waiting.kept_count) == (1, 1)
    assert survivors(house) == []


def test_a_deposit_that_is_being_written_when_its_queue_is_forgotten_is_kept_once(
    house: StoreHouse, owner: FakeOwner
) -> None:
    house.disk.stop("sync", "journal")
    receipt = FakeReceipt()
    owner.deposit(b"message", receipt=receipt)
    house.run_turns()
    wait_until(lambda: house.disk.is_standing("sync", "journal"))
    house.store.forget(owner.log)
    house.disk.go_on()
    house.flush()
    assert receipt.kept_count == 1
    assert owner.log.is_empty()
    assert survivors(house) == []


# Faults.


def test_a_write_that_fails_is_told_and_tried_again_and_nothing_is_lost(house: StoreHouse, owner: FakeOwner) -> None:
    receipt = FakeReceipt()
    house.disk.fail("write", "journal", times=5, number=28)
    owner.deposit(b"a", receipt=receipt)
    house.run_turns()
    house.posts.run_until(lambda: receipt.kept_count)
    assert receipt.doubted_count == 0  # nothing was synced, so nothing is in doubt
    assert house.troubles == ["write failed: No space left on device", ""]
    assert house.store.trouble == ""
    owner.deposit(b"b", receipt=receipt)
    house.run_until_idle()
    assert survivors(house) == [b"a", b"b"]


def test_while_the_disk_refuses_nothing_more_is_taken_than_credit_allows(house: StoreHouse, owner: FakeOwner) -> None:
    house.disk.fail("write", "journal", times=1_000_000)
    receipt = FakeReceipt()
    owner.deposit(b"a", receipt=receipt)
    house.run_turns()
    house.posts.run_until(lambda: house.store.trouble)
    for _ in range(5):
        owner.deposit(b"b", receipt=receipt)
    house.run_turns()
    assert len(house.store.mailbox) == 5
    assert receipt.kept_count == 0
    house.disk.heal()
    house.posts.run_until(lambda: not house.store.trouble)
    house.run_until_idle()
    assert receipt.kept_count == 6
    assert survivors(house) == [b"a", *[b"b"] * 5]


def test_after_a_sync_that_failed_deposits_are_in_doubt_and_kept_when_they_are_written_again(
    house: StoreHouse, owner: FakeOwner
) -> None:
    receipt = FakeReceipt()
    house.disk.fail("sync", "journal")
    owner.deposit(b"a", receipt=receipt)
    house.run_turns()
    house.posts.run_until(lambda: receipt.kept_count)
    assert (receipt.doubted_count, receipt.kept_count) == (1, 1)
    assert house.troubles == ["sync failed: Input/output error", ""]
    assert survivors(house) == [b"a"]


# Files.


def test_a_full_journal_is_sealed_and_a_checkpoint_takes_its_place(tmp_path: Path) -> None:
    with StoreHouse(tmp_path, journal_bytes=2000) as house:
        owner = FakeOwner(house.store, 7)
        first = house.names("journal")
        for at in range(4):
            owner.deposit(b"%d" % at * 1000, receipt=FakeReceipt())
            house.run_until_idle()
        owner.deposit(b"last", receipt=FakeReceipt())
        house.run_until_idle()
        assert house.store.checkpoints.count
        assert not set(first) & set(house.names("journal"))
        assert len(house.names("journal")) == 1
        assert house.names("segment")
        assert [len(one) for one in survivors(house)] == [1000] * 4 + [4]


def test_many_bytes_of_bodies_seal_the_journal_too(tmp_path: Path) -> None:
    with StoreHouse(tmp_path, journal_bytes=1000) as house:
        owner = FakeOwner(house.store, 7)
        owner.deposit(bytes(5000), large=(0,), receipt=FakeReceipt())
        house.run_until_idle()
        assert house.store.checkpoints.count == 1
        assert house.store.bodies.target is None


def test_a_content_that_several_queues_keep_is_written_once(house: StoreHouse) -> None:
    content = bytes(10_000)
    owners = [FakeOwner(house.store, id_) for id_ in range(5)]
    for owner in owners:
        owner.deposit(b"small", content, large=(1,), receipt=FakeReceipt())
        house.run_until_idle()
    assert 10_000 < house.disk.bytes["bodies"] < 10_200
    assert [list(owner.log.extents[0][0].large_sizes) for owner in owners] == [[10_000]] * 5


def test_bodies_are_written_before_the_batches_that_refer_to_them(house: StoreHouse, owner: FakeOwner) -> None:
    house.disk.stop("write", "bodies")
    written = house.disk.done["write", "journal"]
    owner.deposit(bytes(10_000), large=(0,), receipt=FakeReceipt())
    house.run_turns()
    wait_until(lambda: house.disk.is_standing("write", "bodies"))
    assert house.disk.done["write", "journal"] == written
    house.disk.go_on()
    house.run_until_idle()
    assert house.disk.done["sync", "bodies"] == 1


# The end.


def test_closed_it_has_kept_everything_that_was_cast(house: StoreHouse, owner: FakeOwner) -> None:
    stand_still(house)
    receipt = FakeReceipt()
    owner.deposit(b"a", b"b", receipt=receipt)
    owner.deposit(b"c")
    owner.remove(1)
    house.disk.go_on()
    house.is_over = True
    assert house.store.close()
    assert receipt.kept_count == 1
    recovered = start(house.directory)
    assert recovered.clean
    assert [content for _, (content, _, _) in read_back(recovered)[7]] == [b"a", b"c"]
    assert recovered.logs[7].ends == {0: 3}


def test_closed_with_nothing_alive_it_leaves_no_message_and_remembers_positions(
    house: StoreHouse, owner: FakeOwner
) -> None:
    owner.deposit(b"a", b"b")
    owner.remove(0, 1)
    assert house.stop()
    recovered = start(house.directory)
    assert recovered.messages == 0
    assert recovered.logs[7].ends == {0: 2}  # or a position would be given out twice


def test_closed_while_the_disk_refuses_it_says_so_and_says_nothing_is_kept(house: StoreHouse, owner: FakeOwner) -> None:
    receipt = FakeReceipt()
    house.disk.fail("write", "journal", times=1_000_000, number=28)
    owner.deposit(b"a", receipt=receipt)
    house.run_turns()
    house.posts.run_until(lambda: house.store.trouble)
    house.is_over = True
    assert not house.store.close()
    assert receipt.kept_count == 0


def test_closed_while_the_disk_refuses_only_the_last_checkpoint_the_journal_stays(
    house: StoreHouse, owner: FakeOwner
) -> None:
    owner.deposit(b"a", receipt=FakeReceipt())
    house.run_until_idle()
    house.disk.fail("write", "segment", times=1_000_000, number=28)
    house.is_over = True
    assert house.store.close()
    assert any("last checkpoint failed" in report for report in house.reports)
    recovered = start(house.directory)
    assert not recovered.clean
    assert [content for _, (content, _, _) in read_back(recovered)[7]] == [b"a"]


def test_a_life_that_was_killed_is_not_taken_for_one_that_ended_in_order(house: StoreHouse, owner: FakeOwner) -> None:
    owner.deposit(b"a", receipt=FakeReceipt())
    assert house.stop()
    with StoreHouse(house.directory, ledger=house.ledger) as second:
        second.kill()
    assert not start(house.directory).clean

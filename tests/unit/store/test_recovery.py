"""Recovery: what a start finds in the store's files, what it cleans up, and what it tells."""

from __future__ import annotations

import os
from pathlib import Path
from zlib import crc32

import pytest

from penstock.store.keeper import run
from penstock.store.log import JOURNAL_NAME, LEVEL_SHIFT
from penstock.store.record import (
    FILE_HEAD_BYTES,
    JOURNAL,
    NOTHING_RECORD,
    encode_batch,
    encode_file_head,
    encode_removed,
)
from penstock.store.recovery import QUIET_S, StoreError, recover
from penstock.store.replay import RANGES_MERGED
from penstock.store.sealed import Pace
from tests.unit.store.scribe import Scribe, Unsynced, read_back, start

HIGH = 5 << LEVEL_SHIFT


@pytest.fixture
def scribe(tmp_path: Path) -> Scribe:
    return Scribe(tmp_path / "messages", Unsynced())


def flip(path: Path, offset: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[offset] ^= 0x20
    path.write_bytes(bytes(raw))


def names(scribe: Scribe) -> list[str]:
    return sorted(path.name for path in scribe.directory.iterdir())


def positions(scribe: Scribe) -> dict[int, list[int]]:
    return {id_: [position for position, _ in found] for id_, found in read_back(start(scribe.directory)).items()}


# Sound files.


def test_a_first_start_finds_nothing_and_makes_the_directory(tmp_path: Path) -> None:
    recovered = start(tmp_path / "data" / "messages")
    assert (recovered.logs, recovered.next_number, recovered.clean) == ({}, 1, False)
    assert (tmp_path / "data" / "messages").is_dir()


def test_messages_are_found_in_order_with_all_that_belongs_to_them(scribe: Scribe) -> None:
    scribe.batch(1, [b"a", b"b"], origins=[(1, b"x"), (1, b"y")], deadlines=[0, 99])
    scribe.batch(2, [b"L" * 5000, b"c"], large=(0,))
    scribe.batch(1, [b"d"], level=5)
    scribe.remove(1, (0, 1))
    recovered = start(scribe.directory)
    assert read_back(recovered) == scribe.expected()
    assert recovered.logs[1].living == [(1, 2), (HIGH, HIGH + 1)]
    assert recovered.logs[1].ends == {0: 2, 5: HIGH + 1}
    assert recovered.messages == 4
    assert recovered.next_number == 3
    assert [file.messages for file in recovered.journals] == [5]


def test_the_next_position_is_behind_all_that_were_ever_seen(scribe: Scribe) -> None:
    scribe.batch(1, [b"a", b"b"])
    scribe.remove(1, (0, 30))  # transient messages were among them
    scribe.write(encode_removed(2, [(HIGH, HIGH + 3)]))
    recovered = start(scribe.directory)
    assert recovered.logs[1].ends == {0: 30}
    assert recovered.logs[2].ends == {5: HIGH + 3}
    assert recovered.logs[1].log.is_empty()


def test_any_number_of_scattered_removals_is_reckoned(scribe: Scribe) -> None:
    scribe.batch(1, [b"m"] * (3 * RANGES_MERGED))
    even = [(position, position + 1) for position in range(0, 3 * RANGES_MERGED, 2)]
    for at in range(0, len(even), 1000):
        scribe.write(encode_removed(1, even[at : at + 1000]))
    scribe.write(encode_removed(1, [(5, 3 * RANGES_MERGED)]))
    recovered = start(scribe.directory)
    assert recovered.logs[1].living == [(1, 2), (3, 4)]


def test_a_forgotten_queue_does_not_come_back(scribe: Scribe) -> None:
    scribe.batch(1, [b"a"])
    scribe.checkpoint()
    scribe.batch(1, [b"b"])
    scribe.forget(1)
    scribe.write(encode_batch(1, 2, [(1, b"")], [b"late"]))
    assert start(scribe.directory).logs == {}


def test_a_queue_that_the_newest_segment_does_not_name_has_nothing_left(scribe: Scribe) -> None:
    scribe.batch(1, [b"a"])
    scribe.batch(2, [b"b"])
    scribe.checkpoint()
    scribe.forget(1)
    scribe.checkpoint(rewrite=set())  # the first segment stays, with the dead message in it
    assert len(scribe.segments) == 2
    assert positions(scribe) == {2: [0]}


def test_only_the_end_of_a_segment_is_read(scribe: Scribe) -> None:
    scribe.batch(1, [b"m" * 1000] * 500)
    scribe.checkpoint()
    recovered = start(scribe.directory)
    assert recovered.messages == 500
    assert recovered.scanned_bytes < 2000


def test_after_a_stop_in_order_only_what_was_delivered_counts_as_redelivered(scribe: Scribe) -> None:
    scribe.batch(1, [b"m"] * 20)
    scribe.checkpoint(clean=True)
    recovered = start(scribe.directory)
    assert recovered.clean
    assert recovered.logs[1].redelivered_below == {0: 7}


def test_after_a_crash_everything_counts_as_redelivered(scribe: Scribe) -> None:
    scribe.batch(1, [b"m"] * 20)
    scribe.checkpoint(clean=True)
    number = scribe.next_number()
    path = scribe.directory / JOURNAL_NAME.format(number)
    path.write_bytes(encode_file_head(JOURNAL, number))  # the next life began, and wrote nothing
    recovered = start(scribe.directory)
    assert not recovered.clean
    assert recovered.logs[1].redelivered_below == {0: 20}


# What a crash leaves behind.


def test_what_a_crash_left_behind_is_removed(scribe: Scribe) -> None:
    scribe.batch(1, [b"a"])
    for name in ("segment-0000000009.new", "bodies-0000000010.new", "pages-0000000011"):
        (scribe.directory / name).write_bytes(b"half")
    (scribe.directory / "notes.txt").write_text("somebody's own")
    recovered = start(scribe.directory)
    assert names(scribe) == ["journal-0000000001", "notes.txt"]
    assert recovered.next_number == 12


def test_a_crash_before_the_old_files_were_removed_doubles_nothing(scribe: Scribe) -> None:
    scribe.batch(1, [b"a", b"b", b"c"])
    scribe.batch(2, [b"A" * 5000] * 9, large=tuple(range(9)))
    scribe.checkpoint()
    scribe.batch(1, [b"d"])
    scribe.remove(1, (1, 2))
    scribe.remove(2, (1, 9))
    scribe.seal()
    result = run(scribe.task(), scribe.files, Pace(hurry=True))
    assert len(result.removable) == 3, "a journal, a segment, and bodies that were moved"
    recovered = start(scribe.directory)
    assert read_back(recovered) == scribe.expected()
    assert [path.exists() for path in result.removable] == [False, False, False]


def test_a_segment_whose_removal_did_not_last_doubles_nothing(scribe: Scribe) -> None:
    """Its directory's sync had failed, so it was given up and another one written; then the power went."""
    scribe.batch(1, [b"a", b"b", b"c"])
    scribe.seal()
    given_up = run(scribe.task(), scribe.files, Pace(hurry=True))
    assert given_up.file is not None
    scribe.remove(1, (1, 2), record=False)
    scribe.checkpoint()
    assert len(names(scribe)) == 2
    assert read_back(start(scribe.directory)) == scribe.expected()


def test_the_torn_end_of_the_newest_journal_is_cut_and_told(scribe: Scribe) -> None:
    scribe.batch(1, [b"a"])
    size = scribe.journal.stat().st_size
    scribe.write(encode_batch(1, 1, [(1, b"")], [b"torn"])[:-2])
    torn = scribe.journal.stat().st_size - size
    recovered = start(scribe.directory)
    assert recovered.cut is not None
    assert (recovered.cut.path, recovered.cut.offset, recovered.cut.bytes) == (scribe.journal, size, torn)
    assert scribe.journal.stat().st_size == size
    assert recovered.damages == []
    assert positions(scribe) == {1: [0]}


@pytest.mark.parametrize("begun", [b"", b"PENSTO", bytes(16), bytes(5000)])
def test_a_journal_that_was_only_begun_is_removed(scribe: Scribe, begun: bytes) -> None:
    scribe.batch(1, [b"a"])
    path = scribe.directory / JOURNAL_NAME.format(7)
    path.write_bytes(begun)
    recovered = start(scribe.directory)
    assert not path.exists()
    assert (recovered.cut.bytes if recovered.cut else 0) == len(begun)
    assert recovered.damages == []
    assert recovered.messages == 1


# Damage.


def test_a_damaged_message_is_told_by_file_and_offset_and_its_neighbours_are_kept(scribe: Scribe) -> None:
    scribe.batch(1, [b"one", b"two", b"three"])
    at = scribe.journal.read_bytes().index(b"two")
    flip(scribe.journal, at)
    recovered = start(scribe.directory)
    [damage] = recovered.damages
    assert (damage.path, damage.offset, damage.bytes) == (scribe.journal, at, 3)
    assert "message 1 of queue 1" in damage.why
    assert str(damage).startswith(f"{scribe.journal}: 3 bytes at {at}: ")
    assert recovered.logs[1].living == [(0, 1), (2, 3)]
    assert recovered.cut is None


def test_a_damaged_record_in_the_middle_costs_only_itself(scribe: Scribe) -> None:
    scribe.batch(1, [b"one"])
    offset = scribe.batch(1, [b"two", b"three"])
    scribe.batch(1, [b"four"])
    extent = scribe.queues[1].log.extents[0][0]
    flip(scribe.journal, extent.offsets[1] + 6)
    recovered = start(scribe.directory)
    [damage] = recovered.damages
    assert (damage.offset, damage.bytes) == (extent.offsets[1], extent.sizes[1])
    assert offset == 1
    assert positions(scribe) == {1: [0, 3]}


def test_the_damaged_end_of_an_older_journal_is_damage_and_is_not_cut(scribe: Scribe) -> None:
    scribe.batch(1, [b"one"])
    size = scribe.journal.stat().st_size
    scribe.write(b"noise")
    older = scribe.journal
    scribe.seal()
    scribe.batch(1, [b"two"])
    recovered = start(scribe.directory)
    assert [(damage.path, damage.offset, damage.bytes) for damage in recovered.damages] == [(older, size, 5)]
    assert recovered.cut is None
    assert older.stat().st_size == size + 5
    assert positions(scribe) == {1: [0, 1]}


def test_a_removal_behind_a_torn_write_is_not_believed(scribe: Scribe) -> None:
    """A dead letter: added to one queue and removed from another, in one group. Only the group's end is on disk."""
    scribe.batch(1, [b"letter"])
    scribe.synced()
    scribe.batch(2, [b"letter"])
    scribe.remove(1, (0, 1))
    extent = scribe.queues[2].log.extents[0][0]
    flip(scribe.journal, extent.offsets[0] + 3)
    assert positions(scribe) == {1: [0]}


def test_a_removal_behind_a_torn_message_is_not_believed(scribe: Scribe) -> None:
    scribe.batch(1, [b"letter"])
    scribe.batch(2, [b"moved letter"])
    scribe.remove(1, (0, 1))
    flip(scribe.journal, scribe.journal.read_bytes().index(b"moved"))
    assert positions(scribe) == {1: [0]}


def test_a_removal_behind_damage_is_believed_if_it_was_synced(scribe: Scribe) -> None:
    scribe.batch(1, [b"one"])
    scribe.batch(2, [b"damaged"])
    scribe.batch(3, [b"three"])
    scribe.remove(1, (0, 1))
    scribe.forget(3)
    scribe.synced()
    flip(scribe.journal, scribe.queues[2].log.extents[0][0].offsets[0] + 3)
    assert positions(scribe) == {}
    assert 3 not in start(scribe.directory).logs


def test_a_record_without_meaning_settles_no_doubt(scribe: Scribe) -> None:
    scribe.batch(1, [b"letter"])
    scribe.batch(2, [b"moved letter"])
    scribe.remove(1, (0, 1))
    scribe.write(NOTHING_RECORD)
    assert start(scribe.directory).damages == []
    flip(scribe.journal, scribe.journal.read_bytes().index(b"moved"))
    assert positions(scribe) == {1: [0]}


# How far producers have come.


def marks(scribe: Scribe, queue: int = 1) -> dict[str, int]:
    return start(scribe.directory).logs[queue].marks


def test_marks_are_found_in_journals_and_segments_and_the_higher_counts(scribe: Scribe) -> None:
    scribe.batch(1, [b"a"], marks={"p": 3, "q": 1})
    scribe.batch(2, [b"a"], marks={"p": 9})
    scribe.checkpoint()
    scribe.batch(1, [b"b"], marks={"p": 5})
    assert marks(scribe) == {"q": 1, "p": 5}
    assert list(marks(scribe)) == ["q", "p"], "the one that was silent longest is first"
    assert marks(scribe, 2) == {"p": 9}
    scribe.checkpoint(clean=True)
    assert marks(scribe) == {"q": 1, "p": 5}


def test_marks_of_a_queue_that_has_nothing_left_are_kept(scribe: Scribe) -> None:
    scribe.batch(1, [b"a"], marks={"p": 3})
    scribe.remove(1, (0, 1))
    scribe.checkpoint()
    assert positions(scribe) == {}
    assert marks(scribe) == {"p": 3}


def test_a_mark_behind_a_torn_write_is_not_believed(scribe: Scribe) -> None:
    """What is below it may be lost, and was never confirmed then: if it comes again it must be taken."""
    scribe.batch(1, [b"first"], marks={"p": 1})
    scribe.synced()
    scribe.batch(1, [b"second"], marks={"p": 2})
    scribe.batch(1, [b"third"], marks={"p": 3})
    flip(scribe.journal, scribe.journal.read_bytes().index(b"second"))
    assert positions(scribe) == {1: [0, 2]}
    assert marks(scribe) == {"p": 1}
    scribe.synced()  # it was no torn write: all of this was on disk once, and may have been confirmed
    assert marks(scribe) == {"p": 3}


def test_a_mark_in_a_torn_end_is_gone_with_its_message(scribe: Scribe) -> None:
    scribe.batch(1, [b"first"], marks={"p": 1})
    size = scribe.journal.stat().st_size
    scribe.batch(1, [b"second"], marks={"p": 2})
    os.truncate(scribe.journal, size + 40)
    assert marks(scribe) == {"p": 1}
    assert positions(scribe) == {1: [0]}


def test_a_segment_with_a_damaged_end_still_has_its_marks(scribe: Scribe) -> None:
    scribe.batch(1, [b"a"], marks={"p": 3})
    scribe.checkpoint()
    path = scribe.segments[0].path
    flip(path, path.stat().st_size - 1)
    assert marks(scribe) == {"p": 3}


def test_a_batch_that_goes_back_is_damage(scribe: Scribe) -> None:
    scribe.batch(1, [b"one", b"two"])
    scribe.write(encode_batch(1, 1, [(1, b"")], [b"again"]))
    recovered = start(scribe.directory)
    assert "were there before" in recovered.damages[0].why
    assert read_back(recovered) == scribe.expected()


def test_a_message_whose_large_content_is_lost_is_told(scribe: Scribe) -> None:
    scribe.batch(1, [b"A" * 5000, b"small", b"B" * 5000], large=(0, 2))
    scribe.seal()
    os.truncate(scribe.bodies[0].path, 6000)
    recovered = start(scribe.directory)
    assert recovered.logs[1].living == [(0, 2)]
    assert "the large contents of 1 messages, from 2 on" in recovered.damages[0].why
    scribe.bodies[0].path.unlink()
    assert start(scribe.directory).logs[1].living == [(1, 2)]


def test_a_lost_large_content_that_nobody_wants_is_not_told(scribe: Scribe) -> None:
    scribe.batch(1, [b"A" * 5000, b"small"], large=(0,))
    scribe.remove(1, (0, 1))
    scribe.seal()
    scribe.bodies[0].path.unlink()
    assert start(scribe.directory).damages == []


def test_a_segment_with_a_damaged_end_is_read_from_its_beginning(scribe: Scribe) -> None:
    scribe.batch(1, [b"a", b"b", b"c"])
    scribe.batch(2, [b"L" * 5000], large=(0,))
    scribe.remove(1, (0, 1))
    scribe.checkpoint()
    path = scribe.segments[0].path
    flip(path, path.stat().st_size - 1)
    recovered = start(scribe.directory)
    assert read_back(recovered) == scribe.expected()
    assert [(damage.path, damage.offset, damage.bytes) for damage in recovered.damages] == [
        (path, path.stat().st_size - 8, 8)
    ]


def test_a_segment_without_its_states_has_everything_alive(scribe: Scribe) -> None:
    scribe.batch(1, [b"a", b"b", b"c"])
    scribe.checkpoint()
    scribe.batch(1, [b"d"])
    scribe.remove(1, (1, 2))
    scribe.checkpoint(rewrite=set())  # says that 1 is gone; the first segment still has it
    assert positions(scribe) == {1: [0, 2, 3]}
    path = scribe.segments[1].path
    os.truncate(path, path.stat().st_size - 100)
    recovered = start(scribe.directory)
    assert positions(scribe) == {1: [0, 1, 2, 3]}
    assert recovered.damages
    assert recovered.logs[1].redelivered_below == {0: 4}


def test_noise_is_told_but_not_for_ever(scribe: Scribe) -> None:
    scribe.batch(1, [b"x"])
    record = bytearray(encode_batch(1, 5, [(1, b"")], [b"y"]))
    record[-1] ^= 1
    for at in range(5, 3000):
        record[:] = encode_batch(2, at, [(1, b"")], [b"y"])
        record[-1] ^= 1
        scribe.write(bytes(record))
    recovered = start(scribe.directory)
    assert len(recovered.damages) == 2995
    assert recovered.messages == 1


# What refuses a start.


def test_files_of_a_newer_penstock_refuse_the_start(scribe: Scribe) -> None:
    scribe.batch(1, [b"a"])
    raw = bytearray(scribe.journal.read_bytes())
    raw[9] = 2
    raw[10:12] = (crc32(bytes([*raw[:10], 0, 0, *raw[12:FILE_HEAD_BYTES]])) & 0xFFFF).to_bytes(2, "big")
    scribe.journal.write_bytes(bytes(raw))
    with pytest.raises(StoreError, match="journal-0000000001: it has format 2, written by a newer Penstock") as caught:
        start(scribe.directory)
    assert "\n" not in str(caught.value)
    assert scribe.journal.read_bytes() == bytes(raw), "nothing was changed"


def test_a_directory_that_cannot_be_read_refuses_the_start(tmp_path: Path) -> None:
    (tmp_path / "messages").write_text("a file")
    with pytest.raises(StoreError, match="messages: "):
        start(tmp_path / "messages")


def test_a_file_that_cannot_be_read_refuses_the_start(scribe: Scribe) -> None:
    scribe.batch(1, [b"a"])
    (scribe.directory / JOURNAL_NAME.format(9)).mkdir()
    with pytest.raises(StoreError, match="journal-0000000009: "):
        start(scribe.directory)


# Progress.


def test_a_long_recovery_says_how_far_it_is(scribe: Scribe) -> None:
    for _ in range(6):
        scribe.batch(1, [b"m" * 1000] * 1000)
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += QUIET_S / 2
        return now

    lines: list[str] = []
    recover(scribe.directory, Unsynced(), lines.append, clock)
    assert lines
    assert lines[0] == "recovering messages: 3 of 5 MB, 5000 messages so far"


def test_a_short_recovery_says_nothing(scribe: Scribe) -> None:
    for _ in range(6):
        scribe.batch(1, [b"m" * 1000] * 1000)
    lines: list[str] = []
    recover(scribe.directory, Unsynced(), lines.append, lambda: 0.0)
    assert lines == []

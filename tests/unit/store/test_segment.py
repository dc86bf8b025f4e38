"""Segments: what a checkpoint copies, and in what shape it is on disk afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.store.log import LEVEL_SHIFT, Extent, StoredFile
from penstock.store.record import SEGMENT, Batch, Range, read_record
from penstock.store.segment import BATCH_BYTES, BATCH_MESSAGES, wanted
from tests.unit.store.scribe import Scribe, Unsynced, read_log


@pytest.fixture
def scribe(tmp_path: Path) -> Scribe:
    return Scribe(tmp_path / "messages", Unsynced())


def batches(scribe: Scribe, id_: int = 1) -> list[Batch]:
    """As they are on disk, all priorities."""
    made = []
    for level in sorted(scribe.queues[id_].log.extents):
        for spot in scribe.queues[id_].log.spots(level << LEVEL_SHIFT, (level + 1) << LEVEL_SHIFT):
            raw = spot.file.path.read_bytes()[spot.offset : spot.offset + spot.size]
            made.append(Batch(raw, read_record(raw, 0)))
    return made


def kept(scribe: Scribe, id_: int = 1) -> bool:
    """Whether the queue's log finds exactly what must be there."""
    queue = scribe.queues[id_]
    return read_log(queue.log, queue.ranges()) == sorted(queue.living.items())


def test_small_batches_of_a_queue_become_one(scribe: Scribe) -> None:
    for at in range(50):
        scribe.batch(1, [b"m%d" % at], origins=[(1, b"a" if at < 30 else b"b")])
        scribe.batch(2, [b"other"])
    result = scribe.checkpoint()
    [batch] = batches(scribe)
    assert (batch.first, batch.count, batch.origins) == (0, 50, [(30, b"a"), (20, b"b")])
    assert result.messages == 100
    assert kept(scribe)
    assert kept(scribe, 2)


def test_a_batch_has_no_more_than_is_good_to_read_for_one_message(scribe: Scribe) -> None:
    scribe.batch(1, [b"%04d" % at * 500 for at in range(200)])  # 400 KB at once
    for at in range(40):
        scribe.batch(1, [b"%04d" % at * 1000])
    scribe.batch(1, [b""] * (BATCH_MESSAGES + 10))
    scribe.checkpoint()
    found = batches(scribe)
    assert all(batch.record.data_bytes <= BATCH_BYTES for batch in found)
    assert all(batch.count <= BATCH_MESSAGES for batch in found)
    assert len(found) <= 12
    assert kept(scribe)


def test_messages_with_and_without_deadlines_are_not_joined(scribe: Scribe) -> None:
    scribe.batch(1, [b"a", b"b"], deadlines=[1, 2])
    scribe.batch(1, [b"c"], deadlines=[3])
    scribe.batch(1, [b"d"])
    scribe.checkpoint()
    assert [batch.deadlines for batch in batches(scribe)] == [(1, 2, 3), None]
    assert kept(scribe)


def test_what_is_dead_is_not_copied(scribe: Scribe) -> None:
    scribe.batch(1, [b"%d" % at for at in range(10)], origins=[(4, b"a"), (6, b"b")], deadlines=list(range(10)))
    scribe.batch(1, [b"x"] * 5)
    scribe.batch(1, [b"y"], level=3)
    scribe.remove(1, (0, 2), (3, 4), (6, 7), (10, 15))
    result = scribe.checkpoint()
    assert [(batch.first, batch.count) for batch in batches(scribe)] == [(2, 1), (4, 2), (7, 3), (3 << LEVEL_SHIFT, 1)]
    assert [batch.origins for batch in batches(scribe)][:2] == [[(1, b"a")], [(2, b"b")]]
    assert result.messages == 7
    assert kept(scribe)


def test_a_part_of_a_large_batch_is_cut_too(scribe: Scribe) -> None:
    scribe.batch(1, [b"%04d" % at * 500 for at in range(200)])
    scribe.remove(1, (0, 10), (90, 95))
    scribe.checkpoint()
    assert all(batch.record.data_bytes <= BATCH_BYTES for batch in batches(scribe))
    assert kept(scribe)


def test_references_to_large_contents_are_copied_as_they_are(scribe: Scribe) -> None:
    scribe.batch(1, [b"A" * 5000, b"small", b"B" * 5000, b"C" * 6000], large=(0, 2, 3))
    scribe.batch(1, [b"D" * 5000], large=(0,))
    scribe.remove(1, (2, 3))
    old = scribe.queues[1].log.extents[0][0].copy()
    scribe.checkpoint()
    [new] = scribe.queues[1].log.extents[0]
    assert list(new.large_positions) == [0, 3, 4]
    assert list(new.large_sizes) == [5000, 6000, 5000]
    assert list(new.large_offsets) == [old.large_offsets[at] for at in (0, 2, 3)]
    assert list(new.large_files) == [old.large_files[at] for at in (0, 2, 3)]


def test_a_segment_is_written_anew_from_others(scribe: Scribe) -> None:
    for _ in range(4):
        scribe.batch(1, [b"m"] * 10)
        scribe.checkpoint(rewrite=set())
    assert len(scribe.segments) == 4
    scribe.remove(1, (5, 15), (22, 33))
    scribe.checkpoint()
    assert len(scribe.segments) == 1
    assert [(batch.first, batch.count) for batch in batches(scribe)] == [(0, 5), (15, 7), (33, 7)]
    assert kept(scribe)


def test_a_batch_whose_record_is_damaged_is_told_and_left_out(scribe: Scribe) -> None:
    scribe.batch(1, [b"before"])
    scribe.batch(1, [b"damaged", b"too"])
    scribe.batch(1, [b"behind"])
    extent = scribe.queues[1].log.extents[0][0]
    raw = bytearray(scribe.journal.read_bytes())
    raw[extent.offsets[1] + 30] ^= 4
    scribe.journal.write_bytes(bytes(raw))
    journal = scribe.journal
    result = scribe.checkpoint()
    [damage] = result.damages
    assert (damage.path, damage.offset, damage.bytes) == (journal, extent.offsets[1], extent.sizes[1])
    assert "checksum" in damage.why
    assert "q1" in damage.why
    assert [(batch.first, batch.count) for batch in batches(scribe)] == [(0, 1), (3, 1)]


def test_a_damaged_message_of_a_batch_that_is_taken_apart_is_told_and_left_out(scribe: Scribe) -> None:
    scribe.batch(1, [b"dead", b"sound", b"damaged", b"last"])
    scribe.remove(1, (0, 1))
    raw = scribe.journal.read_bytes()
    at = raw.index(b"damaged")
    scribe.journal.write_bytes(raw.replace(b"damaged", b"Damaged"))
    result = scribe.checkpoint()
    [damage] = result.damages
    assert (damage.offset, damage.bytes, damage.why) == (at, 7, "the checksum of message 2 of queue q1 is wrong")
    assert [(batch.first, batch.count) for batch in batches(scribe)] == [(1, 1), (3, 1)]


def test_a_damaged_message_of_a_batch_that_is_all_alive_stays_damaged(scribe: Scribe) -> None:
    scribe.batch(1, [b"sound", b"damaged", b"last"])
    scribe.journal.write_bytes(scribe.journal.read_bytes().replace(b"damaged", b"Damaged"))
    scribe.checkpoint()
    queue = scribe.queues[1]
    assert [content for _, (content, _, _) in read_log(queue.log, queue.ranges())] == [b"sound", b"last"]


def test_a_batch_in_the_place_of_another_is_not_taken_for_it(scribe: Scribe) -> None:
    scribe.batch(1, [b"mine!"])
    scribe.batch(2, [b"yours"])
    scribe.queues[1].log.extents[0][0].offsets[0] = scribe.queues[2].log.extents[0][0].offsets[0]
    result = scribe.checkpoint()
    assert "another batch is in its place" in result.damages[0].why
    assert 1 not in result.extents


@pytest.mark.parametrize(
    ("living", "expected"),
    [
        ([], []),
        ([(0, 100)], [(0, [(0, 5)]), (1, [(5, 10)]), (2, [(20, 30)])]),
        ([(3, 4)], [(0, [(3, 4)])]),
        ([(3, 4), (4, 6)], [(0, [(3, 4), (4, 5)]), (1, [(5, 6)])]),
        ([(10, 20)], []),
        ([(12, 13), (19, 21), (29, 99)], [(2, [(20, 21), (29, 30)])]),
        ([(30, 40)], []),
    ],
)
def test_only_batches_with_living_messages_are_wanted(
    living: list[Range], expected: list[tuple[int, list[Range]]]
) -> None:
    extent = Extent(StoredFile(SEGMENT, 1, Path("segment")))
    for first, end in ((0, 5), (5, 10), (20, 30)):
        extent.append(first, end - first, 0, 0)
    assert list(wanted(extent, living)) == expected

"""QueueLog and its extents: where a queue's messages are, kept in order whatever a checkpoint moves."""

from __future__ import annotations

from pathlib import Path

from penstock.store.log import LEVEL_SHIFT, Extent, QueueLog, StoredFile, arrange
from penstock.store.record import JOURNAL, SEGMENT, Range
from tests.unit.store.scribe import bounds

HIGH = 2 << LEVEL_SHIFT


def stored(number: int, kind: int = JOURNAL) -> StoredFile:
    return StoredFile(kind, number, Path(f"file-{number}"))


def extent(number: int, *batches: Range, large: tuple[int, ...] = ()) -> Extent:
    made = Extent(stored(number, SEGMENT))
    for offset, (first, end) in enumerate(batches):
        made.append(first, end - first, 100 * offset, 90)
    for position in large:
        made.append_large(position, number, position * 10, 5000)
    return made


def test_batches_of_one_file_and_priority_are_one_extent() -> None:
    log = QueueLog(1, "q")
    first, second = stored(1), stored(2)
    for at, file, count in ((0, first, 5), (HIGH, first, 1), (5, first, 5), (10, second, 5)):
        log.append(file, at, count, 0, 0)
    assert bounds(log.extents[0]) == [(0, 10), (10, 15)]
    assert bounds(log.extents[2]) == [(HIGH, HIGH + 1)]
    assert (log.end(0), log.end(2), log.end(1)) == (15, HIGH + 1, 1 << LEVEL_SHIFT)


def test_spots_are_the_batches_that_have_positions_of_a_range() -> None:
    log = QueueLog(1, "q")
    log.extents[0] = [extent(1, (0, 5), (5, 10)), extent(2, (20, 30), (40, 50))]
    assert [(spot.first, spot.count) for spot in log.spots(7, 41)] == [(5, 5), (20, 10), (40, 10)]
    assert [(spot.first, spot.count) for spot in log.spots(10, 20)] == []
    assert [(spot.first, spot.count) for spot in log.spots(30, 40)] == []
    assert [(spot.first, spot.count) for spot in log.spots(49, 99)] == [(40, 10)]


def test_an_extent_counts_what_is_alive_in_it() -> None:
    batches = [(0, 5), (5, 10), (20, 30), (40, 50)]
    one = extent(1, *batches)
    positions = {position for first, end in batches for position in range(first, end)}
    cases: list[list[Range]] = [
        [],
        [(0, 50)],
        [(0, 1000)],
        [(3, 7)],
        [(7, 20)],
        [(10, 20)],
        [(12, 15)],
        [(0, 2), (4, 6), (25, 45)],
        [(49, 50)],
        [(50, 60)],
        [(2, 3), (60, 70)],
        [(first, first + 1) for first in range(0, 60, 3)],
    ]
    for ranges in cases:
        alive = sum(position in positions for first, end in ranges for position in range(first, end))
        assert one.count(ranges) == alive, ranges


def test_a_part_of_an_extent_has_its_large_messages() -> None:
    one = extent(1, (0, 5), (5, 10), (20, 30), large=(4, 5, 9, 20))
    part = one.part(1, 2)
    assert (list(part.starts), list(part.large_positions), list(part.large_offsets)) == ([5], [5, 9], [50, 90])
    assert list(one.copy().large_positions) == [4, 5, 9, 20]
    assert list(one.copy().large_sizes) == [5000] * 4


def test_a_checkpoint_that_leaves_the_middle_where_it_is_keeps_the_order() -> None:
    log = QueueLog(1, "q")
    log.extents[0] = [extent(1, (0, 5)), extent(2, (10, 20)), extent(3, (30, 40)), extent(4, (50, 60))]
    log.extents[2] = [extent(1, (HIGH, HIGH + 5))]
    moved = extent(9, (2, 5), (30, 32), (35, 40), large=(3, 36))
    log.replace({1, 3}, [moved])
    assert [(one.file.number, list(one.starts)) for one in log.extents[0]] == [
        (9, [2]),
        (2, [10]),
        (9, [30, 35]),
        (4, [50]),
    ]
    assert [list(one.large_positions) for one in log.extents[0]] == [[3], [], [36], []]
    assert 2 not in log.extents, "nothing of this priority is left"
    assert [(spot.first, spot.file.number) for spot in log.spots(0, 100)] == [
        (2, 9),
        (10, 2),
        (30, 9),
        (35, 9),
        (50, 4),
    ]


def test_extents_that_follow_each_other_are_left_as_they_are() -> None:
    ones = [extent(2, (10, 20)), extent(1, (0, 5), (5, 10))]
    assert arrange(ones) == [ones[1], ones[0]]

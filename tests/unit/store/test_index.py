"""The tables of sealed files: cut into records, and read back whole; a part that is missing is noticed."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from penstock.store.index import (
    RECORD_BYTES,
    KnownState,
    Seal,
    decode_index,
    decode_moved,
    decode_producers,
    decode_seal,
    decode_states,
    decode_trailer,
    encode_index,
    encode_moved,
    encode_producers,
    encode_seal,
    encode_states,
)
from penstock.store.log import LEVEL_SHIFT, Extent, StoredFile
from penstock.store.record import (
    INDEX,
    MARKS,
    MOVED,
    SEAL,
    STATES,
    Damage,
    Marks,
    Range,
    encode_record,
    read_record,
)

FILE = StoredFile(2, 1, Path("segment"))
MANY: list[Range] = [(at, at + 1) for at in range(0, 30_000, 2)]


def long_extent(batches: int, larges: int) -> Extent:
    extent = Extent(FILE)
    for at in range(batches):
        extent.append(at * 10, 10, at * 1000, 999)
    for position in range(larges):
        extent.append_large(position, 7, position * 5000, 4096 + position)
    return extent


def columns(extent: Extent) -> list[list[int]]:
    return [
        list(extent.starts),
        list(extent.counts),
        list(extent.offsets),
        list(extent.sizes),
        list(extent.large_positions),
        list(extent.large_files),
        list(extent.large_offsets),
        list(extent.large_sizes),
    ]


@pytest.mark.parametrize(("batches", "larges"), [(1, 0), (1, 10), (5000, 50_000), (1, 9000), (9000, 0)])
def test_where_batches_are_is_read_back_in_parts(batches: int, larges: int) -> None:
    extent = long_extent(batches, larges)
    other = long_extent(2, 0)
    records = list(encode_index([(5, extent), (6, other)]))
    found = {5: Extent(FILE), 6: Extent(FILE)}
    for raw in records:
        record = read_record(raw, 0)
        assert record.kind == INDEX
        assert len(raw) < 4 * RECORD_BYTES
        for queue, part in decode_index(raw, record, FILE):
            found[queue].extend(part)
    assert columns(found[5]) == columns(extent)
    assert columns(found[6]) == columns(other)


def states_of(records: list[bytes]) -> dict[int, KnownState]:
    found: dict[int, KnownState] = {}
    for raw in records:
        record = read_record(raw, 0)
        assert record.kind == STATES
        decode_states(raw, record, found)
    return found


def test_what_is_alive_is_read_back_in_parts() -> None:
    high = 3 << LEVEL_SHIFT
    records = list(encode_states([(1, MANY, {0: 30_000, 3: high}, {0: 5}), (2, [], {0: 9}, {})]))
    assert len(records) > 2
    found = states_of(records)
    assert found[1].whole()
    assert (found[1].living, found[1].heads) == (MANY, {0: 30_000, 3: high})
    assert found[1].redelivered_below == {0: 5, 3: 0}
    assert (found[2].whole(), found[2].living, found[2].heads) == (True, [], {0: 9})


@pytest.mark.parametrize("missing", [0, 1, 2, 3])
def test_a_state_with_a_part_missing_is_not_whole(missing: int) -> None:
    records = list(encode_states([(1, MANY, {0: 30_000}, {})]))
    del records[missing]
    assert not states_of(records)[1].whole()


def test_how_far_producers_have_come_is_read_back_in_parts_and_in_order() -> None:
    many = {f"producer {at}" + "x" * 240: at for at in range(3000)}
    few = {"é": 1 << 62, "b": 0}
    records = list(encode_producers([(5, many), (6, few)]))
    assert len(records) > 5
    assert max(map(len, records)) < 2 * RECORD_BYTES + 1000
    found: dict[int, Marks] = {}
    for raw in records:
        record = read_record(raw, 0)
        assert record.kind == MARKS
        decode_producers(raw, record, found)
    assert found == {5: many, 6: few}
    assert list(found[5]) == list(many)


def test_where_bodies_have_gone_is_read_back() -> None:
    files = array("I", [3] * 10_000 + [9] * 5)
    names = array("Q", [*range(0, 50_000, 5), *range(5)])
    offsets = array("Q", [at * 7 for at in range(10_005)])
    found = array("I"), array("Q"), array("Q")
    for raw in encode_moved(files, names, offsets):
        record = read_record(raw, 0)
        assert record.kind == MOVED
        decode_moved(raw, record, *found)
    assert found == (files, names, offsets)


def test_a_seal_says_what_a_file_stands_for_and_the_last_one_where_its_index_is() -> None:
    seal = Seal(17, True, [3, 5], 4711, 99)
    raw = encode_seal(seal, last=True)
    record = read_record(raw, 0)
    found = decode_seal(raw, record)
    assert record.kind == SEAL
    assert (found.covers, found.clean, list(found.replaces), found.index_at, found.messages) == (
        17,
        True,
        [3, 5],
        4711,
        99,
    )
    assert decode_trailer(raw[-8:]) == 4711
    assert record.end() == len(raw)
    first = encode_seal(seal, last=False)
    assert read_record(first, 0).data_bytes == 0


def decode(kind: int, raw: bytes) -> None:
    record = read_record(raw, 0)
    if kind == INDEX:
        list(decode_index(raw, record, FILE))
    elif kind == STATES:
        decode_states(raw, record, {})
    elif kind == MARKS:
        decode_producers(raw, record, {})
    elif kind == MOVED:
        decode_moved(raw, record, array("I"), array("Q"), array("Q"))
    else:
        decode_seal(raw, record)


@pytest.mark.parametrize("kind", [INDEX, STATES, MARKS, MOVED, SEAL])
def test_a_table_that_is_too_short_is_damage(kind: int) -> None:
    with pytest.raises(Damage):
        decode(kind, encode_record(kind, 0, b"\xff" * 40, 0))

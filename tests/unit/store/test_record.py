"""The byte format: what is written is read back, and what is damaged is never taken for what was written."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest

from penstock.store.files import Files
from penstock.store.record import (
    BATCH,
    BODIES,
    DEADLINES,
    FILE_HEAD_BYTES,
    FORGOTTEN,
    HEAD_BYTES,
    JOURNAL,
    MAGIC,
    REFERENCE,
    REMOVED,
    SYNCED,
    SYNCED_RECORD,
    Batch,
    Damage,
    NewerFormat,
    Short,
    check_file_head,
    decode_body,
    decode_forgotten,
    decode_removed,
    decode_slab,
    encode_batch,
    encode_body_head,
    encode_file_head,
    encode_forgotten,
    encode_record,
    encode_removed,
    encode_slabs,
    read_record,
)
from penstock.store.scan import FileScan
from tests.unit.store.scribe import records

CONTENTS = [b"one", b"", b"three" * 100]


def read_batch(raw: bytes, offset: int = 0) -> Batch:
    return Batch(raw, read_record(raw, offset))


def test_a_batch_is_read_back_with_positions_origins_and_deadlines() -> None:
    raw = encode_batch(7, 100, [(2, b"a"), (1, b"bb")], CONTENTS, deadlines=[5, 0, 6])
    batch = read_batch(b"before" + raw, 6)
    assert (batch.queue, batch.first, batch.count, batch.end()) == (7, 100, 3, 103)
    assert batch.contents(b"before" + raw) == CONTENTS
    assert batch.origins == [(2, b"a"), (1, b"bb")]
    assert batch.deadlines == (5, 0, 6)
    assert batch.record.flags == DEADLINES
    assert batch.large == 0


def test_a_reference_is_told_from_a_content() -> None:
    reference = REFERENCE.pack(3, 999, 5000, 1)
    raw = encode_batch(7, 0, [(2, b"")], [reference, b"x" * 20], large=[0])
    batch = read_batch(raw)
    assert [batch.is_reference(0), batch.is_reference(1), batch.large] == [True, False, 1]
    assert batch.contents(raw) == [reference, b"x" * 20]
    assert batch.deadlines is None


def test_one_flipped_byte_of_a_message_costs_that_message_only() -> None:
    raw = bytearray(encode_batch(7, 0, [(3, b"")], [b"one", b"two", b"three"]))
    raw[-6] ^= 1
    assert read_batch(bytes(raw)).contents(bytes(raw)) == [b"one", None, b"three"]


def test_what_is_gone_is_read_back() -> None:
    raw = encode_removed(9, [(1, 5), (8, 9)]) + encode_forgotten(9) + SYNCED_RECORD
    removed, forgotten, synced = records(raw, 0)
    assert (removed.kind, decode_removed(raw, removed)) == (REMOVED, (9, [(1, 5), (8, 9)]))
    assert (forgotten.kind, decode_forgotten(raw, forgotten)) == (FORGOTTEN, 9)
    assert (synced.kind, len(SYNCED_RECORD)) == (SYNCED, HEAD_BYTES)


def test_a_body_is_known_by_the_place_it_was_first_written_to() -> None:
    raw = encode_body_head(crc32(b"content"), 7, 3, 999) + b"content"
    record = read_record(raw, 0)
    assert decode_body(raw, record) == (crc32(b"content"), 3, 999)
    assert raw[record.data_at : record.end()] == b"content"


def test_a_file_says_its_kind_and_number() -> None:
    head = encode_file_head(JOURNAL, 5)
    assert len(head) == FILE_HEAD_BYTES
    check_file_head(head, JOURNAL, 5)
    with pytest.raises(Damage, match="number 5"):
        check_file_head(head, JOURNAL, 6)
    with pytest.raises(Damage, match="kind 1"):
        check_file_head(head, BODIES, 5)
    with pytest.raises(Damage, match="within its head"):
        check_file_head(head[:-1], JOURNAL, 5)
    with pytest.raises(Damage, match="no file of Penstock"):
        check_file_head(b"SQLite format 3\0", JOURNAL, 5)


def test_a_newer_format_is_no_damage_but_a_flipped_bit_in_it_is() -> None:
    flipped = bytearray(encode_file_head(JOURNAL, 5))
    flipped[9] ^= 2
    with pytest.raises(Damage, match="checksum"):
        check_file_head(bytes(flipped), JOURNAL, 5)
    check = crc32(bytes([*flipped[:10], 0, 0, *flipped[12:]])) & 0xFFFF
    flipped[10:12] = check.to_bytes(2, "big")
    with pytest.raises(NewerFormat, match="format 3"):
        check_file_head(bytes(flipped), JOURNAL, 5)


def test_no_flip_in_head_or_table_passes() -> None:
    raw = encode_batch(7, 100, [(2, b"origin")], [b"one", b"two"], deadlines=[1, 2])
    for offset in range(len(raw) - 6):
        for bit in range(8):
            damaged = bytearray(raw)
            damaged[offset] ^= 1 << bit
            with pytest.raises(Damage):
                read_record(bytes(damaged), 0)


def test_a_record_that_ends_too_early_says_how_much_it_needs() -> None:
    raw = encode_batch(7, 100, [(1, b"origin")], [b"content"])
    for length, needs in ((5, HEAD_BYTES), (HEAD_BYTES + 3, len(raw) - 7), (len(raw) - 1, len(raw))):
        with pytest.raises(Short) as caught:
            read_record(raw[:length], 0)
        assert caught.value.needs == needs


@pytest.mark.parametrize(
    "table",
    [
        b"",
        bytes(24),  # no messages
        (7).to_bytes(8, "big") + bytes(8) + (9).to_bytes(4, "big") + bytes(4),  # messages without sizes
        (7).to_bytes(8, "big") + bytes(8) + (1).to_bytes(4, "big") + bytes(4) + bytes(8),  # a message without origin
        (7).to_bytes(8, "big") + bytes(8) + (1).to_bytes(4, "big") + (1).to_bytes(4, "big") + bytes(8) + bytes(6),
    ],
)
def test_a_table_that_contradicts_itself_is_damage_whatever_its_checksum(table: bytes) -> None:
    raw = encode_record(BATCH, 0, table, 3) + b"abc"
    record = read_record(raw, 0)
    with pytest.raises(Damage):
        Batch(raw, record)


def test_slabs_of_batches_that_follow_each_other_become_one_batch() -> None:
    first = encode_batch(7, 10, [(1, b"a"), (1, b"b")], [b"one", b"two"])
    second = encode_batch(7, 12, [(3, b"b")], CONTENTS)
    slabs = [decode_slab(first, read_record(first, 0)), decode_slab(second, read_record(second, 0))]
    raw = b"".join(encode_slabs(slabs))
    assert raw == encode_batch(7, 10, [(1, b"a"), (4, b"b")], [b"one", b"two", *CONTENTS])


def test_slabs_keep_deadlines() -> None:
    first = encode_batch(7, 10, [(1, b"a")], [b"one"], deadlines=[5])
    second = encode_batch(7, 11, [(1, b"a")], [b"two"], deadlines=[6])
    slabs = [decode_slab(first, read_record(first, 0)), decode_slab(second, read_record(second, 0))]
    raw = b"".join(encode_slabs(slabs))
    assert raw == encode_batch(7, 10, [(2, b"a")], [b"one", b"two"], deadlines=[5, 6])


def test_a_batch_may_have_a_stamp_and_the_marks_of_producers() -> None:
    marks = {"spark/1": 7, "müller": -3, "\udcff": 1 << 62}
    raw = encode_batch(7, 100, [(3, b"o")], CONTENTS, deadlines=[5, 0, 6], stamp_ms=99, marks=marks)
    batch = read_batch(raw)
    assert (batch.stamp_ms, batch.marks, batch.deadlines) == (99, marks, (5, 0, 6))
    assert list(batch.marks or ()) == list(marks)
    assert batch.contents(raw) == CONTENTS
    plain = read_batch(encode_batch(7, 100, [(3, b"o")], CONTENTS, marks={}))
    assert (plain.stamp_ms, plain.marks) == (-1, None)


def test_a_stamp_may_be_zero() -> None:
    assert read_batch(encode_batch(7, 0, [(1, b"")], [b"x"], stamp_ms=0)).stamp_ms == 0


def test_slabs_join_their_marks_and_the_highest_counts() -> None:
    first = encode_batch(7, 10, [(1, b"a")], [b"one"], marks={"p": 5, "q": 1})
    second = encode_batch(7, 11, [(1, b"a")], [b"two"])
    third = encode_batch(7, 12, [(1, b"a")], [b"three"], marks={"p": 4, "r": 2})
    raw = b"".join(encode_slabs([decode_slab(one, read_record(one, 0)) for one in (first, second, third)]))
    assert raw == encode_batch(7, 10, [(3, b"a")], [b"one", b"two", b"three"], marks={"q": 1, "p": 5, "r": 2})


def test_a_slab_of_a_stamped_batch_is_read_without_the_stamp() -> None:
    raw = encode_batch(7, 10, [(1, b"a")], [b"one"], stamp_ms=5)
    slab = decode_slab(raw, read_record(raw, 0))
    assert b"".join(encode_slabs([slab])) == encode_batch(7, 10, [(1, b"a")], [b"one"])


def test_marks_that_are_cut_or_too_many_are_damage() -> None:
    raw = encode_batch(7, 100, [(1, b"o")], [b"x"], marks={"producer": 1})
    head = read_record(raw, 0)
    table = raw[head.table_at : head.data_at]
    for broken in (table[:-1], table[:-8], table + b"\0", table[:-22] + b"\xff" + table[-21:]):
        made = encode_record(BATCH, head.flags, broken, 1) + b"x"
        with pytest.raises(Damage):
            read_batch(made)
        with pytest.raises(Damage):
            decode_slab(made, read_record(made, 0))


# Scanning a file, a window at a time.


def scan(path: Path, window: int) -> tuple[list[tuple[int, bytes]], FileScan]:
    """(offset, bytes) of all records."""
    files = Files()
    descriptor = files.open(path)
    try:
        found = FileScan(files, descriptor, files.size(descriptor), 0, window)
        whole = [(found.base + record.offset, found.buf[record.offset : record.end()]) for record in found]
    finally:
        files.close(descriptor)
    return whole, found


RECORDS = [
    encode_batch(7, 0, [(1, b"")], [b"x" * 300]),
    encode_forgotten(3),
    encode_batch(7, 1, [(2, b"origin")], [b"small", MAGIC + bytes(20)]),
    SYNCED_RECORD,
    encode_batch(7, 3, [(1, b"")], [MAGIC * 30]),
]


@pytest.mark.parametrize("window", [1, *range(20, 60), 10_000])
def test_a_scan_finds_the_same_records_whatever_its_window(tmp_path: Path, window: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"".join(RECORDS))
    whole, found = scan(path, window)
    assert [raw for _, raw in whole] == RECORDS
    assert not found.damaged
    assert not found.cut


@pytest.mark.parametrize("window", [1, *range(20, 60), 10_000])
def test_a_scan_goes_on_behind_damage_and_says_where_it_was(tmp_path: Path, window: int) -> None:
    path = tmp_path / "file"
    damaged = bytearray(RECORDS[0])
    damaged[5] ^= 1
    path.write_bytes(bytes(damaged) + b"".join(RECORDS[1:3]) + b"noise" + RECORDS[3] + RECORDS[4][:-1])
    whole, found = scan(path, window)
    assert [raw for _, raw in whole] == RECORDS[1:4]
    noise_at = sum(map(len, RECORDS[:3]))
    assert [(offset, size) for offset, size, _ in found.damaged] == [(0, len(RECORDS[0])), (noise_at, 5)]
    assert found.cut == noise_at + 5 + len(RECORDS[3])


def test_a_length_that_cannot_be_is_not_read(tmp_path: Path) -> None:
    raw = MAGIC + b"\x01\0\0\0" + b"\xff\xff\xff\xff" + bytes(8)
    with pytest.raises(Damage, match="length"):
        read_record(raw + bytes(100), 0)


def test_the_example_of_the_document_is_what_is_written() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "store.md").read_text(encoding="utf-8")
    example = bytes.fromhex(text.partition("```hex\n")[2].partition("```")[0])
    batch = encode_batch(7, 100, [(2, b"o")], [b"one", b"three"])
    assert example == encode_file_head(JOURNAL, 3) + SYNCED_RECORD + batch + encode_removed(7, [(100, 101)])

"""Streams: appended, synced, read, rolled, retained, forgotten, and found again by the next life."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

import pytest

from penstock.credit import Hop, Link, Spec, Stage
from penstock.store.journal import Target
from penstock.store.record import FILE_HEAD, FILE_MAGIC, FORMAT, STREAM, SYNCED_RECORD, encode_batch, encode_file_head
from penstock.store.recovery import StoreError
from penstock.store.stream import INDEX_BYTES, PRODUCERS_MAX, Read, StreamSegment
from penstock.store.streamfile import encode_offsets, encode_segment_head
from penstock.store.streams import BATCH_BYTES, JOIN_MS, RETAIN_S
from tests.unit.fakes import FakeOwner, FakeReceipt, FakeStream, StoreHouse, publish_method


@pytest.fixture
def house(tmp_path: Path) -> Iterator[StoreHouse]:
    with StoreHouse(tmp_path / "messages") as house:
        house.store.streams.now_ms = lambda: house.clock.now_ns() // 1_000_000
        yield house


def target_of(segment: StreamSegment) -> Target:
    assert segment.target is not None
    return segment.target


def settle(house: StoreHouse) -> None:
    """Until all that one thing leads to is written."""
    for _ in range(3):
        house.run_until_idle()
        house.clock.advance(0.01)
    house.run_until_idle()


def fill(stream: FakeStream, count: int, size: int = 100, stamp_ms: int = 0) -> list[bytes]:
    """So many batches of one message."""
    contents = [b"%d " % at + bytes(size) for at in range(count)]
    for content in contents:
        stream.keep(content, stamp_ms=stamp_ms)
    return contents


# Appending.


def test_an_append_is_seen_when_it_is_synced_and_not_before(house: StoreHouse) -> None:
    stream, receipt = FakeStream(house), FakeReceipt()
    house.disk.stop("sync", "stream")
    stream.append(b"one", b"two", receipt=receipt)
    house.run_turns()
    assert (stream.log.end, stream.log.synced, receipt.kept_count, stream.appended_count) == (2, 0, 0, 0)
    house.disk.go_on()
    house.run_until_idle()
    assert (stream.log.end, stream.log.synced, receipt.kept_count, stream.appended_count) == (2, 2, 1, 1)
    assert stream.read_all() == {0: b"one", 1: b"two"}


def test_what_nobody_waits_for_is_gathered_for_a_while(house: StoreHouse) -> None:
    stream = FakeStream(house)
    stream.append(b"one")
    stream.append(b"two")
    house.run_until_idle()
    assert stream.log.synced == 0
    house.clock.advance(0.01)
    house.run_until_idle()
    assert stream.log.synced == 2
    assert house.disk.done["write", "stream"] == 1


def test_streams_share_a_piece_of_work_and_each_file_is_synced_once(house: StoreHouse) -> None:
    streams = [FakeStream(house, id_) for id_ in range(1, 9)]
    receipt = FakeReceipt()
    for stream in streams:
        stream.append(b"x", receipt=receipt)
        stream.append(b"y", receipt=receipt)
    house.run_until_idle()
    assert receipt.kept_count == 16
    assert house.disk.done["sync", "stream"] == 8
    for stream in streams:
        assert stream.read_all() == {0: b"x", 1: b"y"}


def test_streams_alone_write_nothing_to_the_journal(house: StoreHouse) -> None:
    stream = FakeStream(house)
    before = house.disk.done["write", "journal"]
    stream.keep(b"x")
    assert house.disk.done["write", "journal"] == before


def test_the_directories_of_a_new_stream_are_synced_with_its_first_message(house: StoreHouse) -> None:
    before = house.disk.done["sync", "directory"]
    stream = FakeStream(house)
    stream.keep(b"x")
    assert house.disk.done["sync", "directory"] == before + 3  # its own, that of all streams, the store's
    stream.keep(b"y")
    assert house.disk.done["sync", "directory"] == before + 3


def test_an_append_costs_store_credit_until_it_is_taken(house: StoreHouse) -> None:
    stream = FakeStream(house)
    queue = Stage("queue", house.clock.now_ns, None)
    link = Link(Hop("queue_store", Spec.parse("10,5"), Spec.parse("100,50")), queue, house.store)
    stream.append(b"12345", b"67", link=link)
    assert (link.in_flight(), link.in_flight_bytes()) == (2, 7)
    house.run_turns()
    assert link.in_flight() == 0


def test_a_long_append_is_cut_into_batches_with_its_marks_on_the_last(house: StoreHouse) -> None:
    stream = FakeStream(house)
    contents = [bytes([at]) * (BATCH_BYTES // 2 - 10) for at in range(5)]
    stream.keep(*contents, marks={"p": 5})
    assert [one.first for one in stream.read(0, 1 << 24).found] == [0, 2, 4]
    assert stream.log.last_batch() == 4
    assert stream.read_all() == dict(enumerate(contents))
    raw = (stream.log.directory / stream.names()[0]).read_bytes()
    assert raw.count(b"\x00\x01p") == 1


def test_small_appends_that_come_together_are_one_batch_with_the_time_of_the_last(house: StoreHouse) -> None:
    stream, receipt = FakeStream(house), FakeReceipt()
    for at in range(5):
        stream.append(b"%d" % at, stamp_ms=100 + at, receipt=receipt, marks={"p": at})
    stream.append(b"late", stamp_ms=100 + JOIN_MS + 1, receipt=receipt)
    house.run_until_idle()
    assert receipt.kept_count == 6
    found = stream.read(0, 10_000).found
    assert [(one.first, len(one.contents), one.stamp_ms) for one in found] == [(0, 5, 104), (5, 1, 101 + JOIN_MS)]
    assert found[0].origins == [(5, stream.origin.origin())]
    assert stream.log.offset_at(103) == 0, "a message is never later than its batch"
    assert stream.log.producers == {"p": 4}


def test_origins_of_joined_appends_are_runs_of_the_same_bytes(house: StoreHouse) -> None:
    stream = FakeStream(house)
    origins = []
    for key in ("a", "a", "b"):
        stream.origin = publish_method(1, key)
        origins.append(stream.origin.origin())
        stream.append(key.encode(), receipt=FakeReceipt())
    house.run_until_idle()
    assert stream.read(0).found[0].origins == [(2, origins[0]), (1, origins[2])]


def test_a_message_larger_than_a_batch_is_kept(house: StoreHouse) -> None:
    stream = FakeStream(house)
    large = bytes(range(256)) * 4096
    stream.keep(b"a", large, b"b")
    assert stream.read_all() == {0: b"a", 1: large, 2: b"b"}


def test_a_clock_that_is_set_back_does_not_take_time_back(house: StoreHouse) -> None:
    stream = FakeStream(house)
    for stamp in (100, 50, 200):
        stream.keep(b"x", stamp_ms=stamp)
    assert [one.stamp_ms for one in stream.read(0, 10_000).found] == [100, 100, 200]


# A failing disk.


def test_a_failed_write_is_tried_again_and_nobody_is_told_anything(house: StoreHouse) -> None:
    stream, receipt = FakeStream(house), FakeReceipt()
    house.disk.fail("write", "stream", 2, errno.ENOSPC)
    stream.append(b"one", receipt=receipt)
    house.posts.run_until(lambda: (house.run_turns(), receipt.kept_count)[1])
    assert (receipt.kept_count, receipt.doubted_count) == (1, 0)
    assert house.troubles == ["write failed: No space left on device", ""]
    assert stream.read_all() == {0: b"one"}


def test_a_failed_sync_of_a_stream_makes_its_messages_doubtful_and_is_done_again(house: StoreHouse) -> None:
    stream, receipt = FakeStream(house), FakeReceipt()
    other, other_receipt = FakeStream(house, 2), FakeReceipt()
    house.disk.fail("sync", "stream")
    stream.append(b"one", receipt=receipt)
    other.append(b"two", receipt=other_receipt)
    house.posts.run_until(lambda: (house.run_turns(), receipt.kept_count)[1])
    assert (receipt.kept_count, receipt.doubted_count) == (1, 1)
    assert (other_receipt.kept_count, other_receipt.doubted_count) == (1, 1)
    assert house.troubles == ["sync failed: Input/output error", ""]
    assert stream.read_all() == {0: b"one"}


def test_a_disk_that_cannot_be_read_is_told_to_who_asked(house: StoreHouse) -> None:
    stream = FakeStream(house)
    stream.keep(b"one")
    house.disk.fail("read", "stream")
    read = stream.read(0)
    assert (read.found, read.next) == ([], 0)
    assert read.trouble.endswith("00000000000000000000.seg: Input/output error")
    assert stream.read_all() == {0: b"one"}


# Reading.


def test_a_read_begins_with_the_batch_that_has_its_offset(house: StoreHouse) -> None:
    stream = FakeStream(house)
    stream.keep(b"0", b"1", b"2")
    stream.keep(b"3")
    read = stream.read(2, 1000)
    assert [(one.first, one.contents) for one in read.found] == [(0, [b"0", b"1", b"2"]), (3, [b"3"])]
    assert read.next == 4
    assert stream.read(3, 1000).found[0].first == 3


def test_a_read_gives_whole_batches_up_to_its_bytes_and_at_least_one(house: StoreHouse) -> None:
    stream = FakeStream(house)
    fill(stream, 10, 1000)
    assert len(stream.read(0, 1).found) == 1
    assert len(stream.read(1, 3000).found) == 3
    assert len(stream.read(4, 1 << 20).found) == 6


def test_a_reader_goes_on_where_it_was_without_a_seek(house: StoreHouse) -> None:
    stream = FakeStream(house)
    contents = fill(stream, 50)
    before = house.disk.done["read", "stream"]
    assert stream.read_all(0, 10_000) == dict(enumerate(contents))
    assert house.disk.done["read", "stream"] - before <= 2
    stream.keep(b"more")
    read = Read(stream, stream.log, 50, 100)
    stream.log.locate(read)
    assert read.seek_bytes == 0


def test_many_readers_at_many_places_find_their_offsets(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=20_000)
    contents = fill(stream, 300, 200)
    assert len(stream.log.segments) > 3
    for offset in range(0, 300, 7):
        assert stream.read_all(offset, 5000) == dict(list(enumerate(contents))[offset:])


def test_a_read_behind_the_end_or_before_the_beginning_is_answered(house: StoreHouse) -> None:
    stream = FakeStream(house)
    read = stream.read(0)
    assert (read.found, read.next, read.stale) == ([], 0, False)
    stream.keep(b"x")
    assert stream.read(7).next == 7
    assert stream.read(7).found == []


def test_the_sparse_index_costs_little_for_small_batches(house: StoreHouse) -> None:
    stream = FakeStream(house)
    for _ in range(20):
        for _ in range(200):
            stream.append(bytes(100), receipt=FakeReceipt())
        house.run_until_idle()
    (segment,) = stream.log.segments
    assert segment.size > 4000 * 100
    assert len(segment.positions) <= segment.size // INDEX_BYTES + 1
    assert len(stream.read_all(3999)) == 1
    assert stream.read_all(3990, 1000).keys() == set(range(3990, 4000))


# Offsets by time, and the last batch.


def test_an_offset_is_found_by_time_exactly(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=150_000)
    first_of: dict[int, int] = {}
    for stamp in range(0, 3000, 10):
        first_of[stamp] = stream.append(bytes(700), bytes(700), stamp_ms=1000 + stamp, receipt=FakeReceipt())
        house.run_until_idle()
    assert len(stream.log.segments) > 2
    assert len(stream.log.segments[0].stamps) > 2
    for stamp, first in first_of.items():
        assert stream.log.offset_at(1000 + stamp) == first
        assert stream.log.offset_at(1000 + stamp - 3) == first
    assert stream.log.offset_at(0) == 0
    assert stream.log.offset_at(1000 + 2991) == stream.log.synced == stream.log.end


def test_a_time_is_never_answered_with_what_is_not_synced(house: StoreHouse) -> None:
    stream = FakeStream(house)
    stream.keep(b"x", stamp_ms=10)
    stream.append(b"y", stamp_ms=20)
    house.run_turns()
    assert stream.log.offset_at(15) == 1
    assert stream.log.offset_at(5) == 0


def test_an_offset_by_time_is_early_rather_than_lost_if_the_disk_fails(house: StoreHouse) -> None:
    stream = FakeStream(house)
    for stamp in range(5):
        stream.keep(b"x", stamp_ms=stamp)
    house.disk.fail("open", "stream")
    assert stream.log.offset_at(3) == 0
    assert stream.log.offset_at(3) == 3


def test_the_last_batch_is_the_last_one_that_is_synced(house: StoreHouse) -> None:
    stream = FakeStream(house)
    assert stream.log.last_batch() == 0
    stream.keep(b"a", b"b")
    assert stream.log.last_batch() == 0
    stream.keep(b"c", b"d")
    stream.append(b"e")
    house.run_turns()
    assert stream.log.last_batch() == 2


# Segments.


def test_a_full_segment_is_rolled_and_sealed_with_an_index(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=1000)
    contents = fill(stream, 20)
    assert len(stream.names()) == len(stream.log.segments) > 2
    assert all(segment.sealed for segment in stream.log.segments[:-1])
    assert all(target_of(segment).descriptor == -1 for segment in stream.log.segments[:-1])
    assert stream.log.bytes == sum(path.stat().st_size for path in stream.log.directory.iterdir())
    assert stream.read_all() == dict(enumerate(contents))


def test_an_index_is_written_only_when_all_before_it_is_synced(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=300)
    house.disk.stop("sync", "stream")
    for _ in range(3):
        stream.append(bytes(300), receipt=FakeReceipt())
    house.run_turns()
    assert [segment.rolled for segment in stream.log.segments] == [True, True, False]
    sizes = [target_of(segment).size for segment in stream.log.segments]
    assert sizes == sizes[:1] * 3  # a head and one batch each
    house.disk.go_on()
    house.run_until_idle()
    house.clock.advance(0.01)
    house.run_until_idle()
    assert [segment.sealed for segment in stream.log.segments] == [True, True, False]


def test_a_read_crosses_segments_by_going_on(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=1000)
    fill(stream, 20)
    read = stream.read(0, 1 << 20)
    assert 0 < len(read.found) < 20
    assert read.next == stream.log.segments[1].first


# Retention.


def test_retention_by_bytes_drops_old_segments_and_never_the_active_one(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=1000)
    stream.log.max_bytes = 3000
    contents = fill(stream, 60)
    log = stream.log
    assert log.bytes <= 3000 + 1500
    assert log.first == log.segments[0].first > 0
    assert stream.retained_count > 0
    assert len(stream.names()) == len(log.segments)
    assert stream.read_all() == dict(list(enumerate(contents))[log.first :])
    log.max_bytes = 0
    log.retain(0)
    assert len(log.segments) == 1


def test_a_limit_set_at_run_time_is_applied_by_the_timer(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=1000)
    fill(stream, 30)
    assert stream.log.first == 0
    stream.log.max_bytes = 2000
    house.clock.advance(RETAIN_S)
    house.run_until_idle()
    assert stream.log.first > 0


def test_retention_by_age_drops_what_is_too_old_and_at_last_the_active_segment(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=1000)
    house.clock.advance(100)
    stream.log.max_age_ms = 60_000
    for _ in range(10):
        fill(stream, 3, stamp_ms=house.store.streams.now_ms())
        house.clock.advance(10)
        house.run_until_idle()
    assert stream.log.end == 30
    assert 0 < stream.log.first < 24
    house.clock.advance(70)
    house.run_until_idle()
    house.clock.advance(1)
    house.run_until_idle()
    log = stream.log
    assert (log.first, log.synced, log.end, len(log.segments)) == (30, 30, 30, 1)
    assert log.last_batch() == log.offset_at(0) == 30
    assert stream.names() == ["00000000000000000030.seg"]
    for _ in range(3):  # an empty one stays as it is
        house.clock.advance(RETAIN_S)
        house.run_until_idle()
    assert stream.names() == ["00000000000000000030.seg"]
    house.clock.advance(100)
    stream.keep(b"new", stamp_ms=house.store.streams.now_ms())
    assert stream.read_all() == {30: b"new"}


@pytest.mark.parametrize("in_order", [True, False])
def test_an_emptied_stream_knows_its_next_offset_and_its_marks(house: StoreHouse, in_order: bool) -> None:
    stream = FakeStream(house)
    house.clock.advance(10)
    stream.keep(b"x", b"y", stamp_ms=5, marks={"p": 7})
    stream.log.max_age_ms = 1000
    house.clock.advance(RETAIN_S)
    house.run_until_idle()
    house.clock.advance(1)
    house.run_until_idle()
    assert stream.log.first == stream.log.end == 2
    with house.reborn(in_order) as house:
        log = FakeStream(house).log
        assert (log.first, log.synced, log.end, log.producers) == (2, 2, 2, {"p": 7})
        assert log.stamp_ms == 5
        assert house.reports == []


def test_retention_does_not_disturb_a_read_that_was_asked_before(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=1000)
    contents = fill(stream, 20)
    house.disk.stop("read", "stream")
    read = Read(stream, stream.log, 0, 1 << 20)
    house.store.streams.read(read)
    stream.log.max_bytes = 0
    stream.log.retain(0)
    assert stream.log.first > 0
    house.disk.go_on()
    house.posts.run_until(lambda: stream.answered is read)
    assert not read.stale
    assert [one.contents[0] for one in read.found] == contents[: read.next]
    assert stream.read(0).next >= stream.log.first
    assert len(stream.names()) == 1


# Forgotten.


def test_a_forgotten_stream_leaves_no_file_and_no_descriptor(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=1000)
    fill(stream, 20)
    other = FakeStream(house, 2)
    other.keep(b"x")
    opened = set(house.disk._kinds.values())
    assert "stream" in opened
    receipt = FakeReceipt()
    stream.append(b"late", receipt=receipt)
    house.store.streams.forget(stream.log)
    assert stream.read(0).stale
    house.run_until_idle()
    other.read(0)
    assert stream.read(0).stale
    assert receipt.kept_count == 1
    assert not stream.log.directory.exists()
    assert other.read_all() == {0: b"x"}
    assert list(house.disk._kinds.values()).count("stream") == 2  # the other's, for writing and reading


def test_a_stream_that_was_never_written_to_can_be_forgotten(house: StoreHouse) -> None:
    stream, other = FakeStream(house), FakeStream(house, 2)
    house.store.streams.forget(stream.log)
    house.run_until_idle()
    other.read(0)
    assert house.reports == []


def test_streams_that_nobody_opens_are_strangers_and_can_be_removed(house: StoreHouse) -> None:
    for id_ in (1, 2, 3):
        FakeStream(house, id_).keep(b"x")
    with house.reborn() as house:
        assert house.store.streams.strangers == {1, 2, 3}
        stream = FakeStream(house, 2)
        assert house.store.streams.strangers == {1, 3}
        assert house.vault.begin() == 2
        stream.read(0)
        assert [path.name for path in (house.directory / "streams").iterdir()] == [f"{2:016x}"]
        assert house.store.streams.strangers == set()


# The next life.


@pytest.mark.parametrize("in_order", [True, False])
def test_the_next_life_has_everything_and_goes_on_with_the_same_offsets(house: StoreHouse, in_order: bool) -> None:
    stream = FakeStream(house, segment_bytes=1000)
    contents = fill(stream, 25, stamp_ms=3)
    for life in range(3):
        bytes_before = stream.log.bytes
        with house.reborn(in_order) as house:
            stream = FakeStream(house, segment_bytes=1000)
            log = stream.log
            assert (log.first, log.synced, log.end) == (0, len(contents), len(contents))
            assert log.bytes >= bytes_before
            assert log.last_batch() == len(contents) - 1
            assert stream.read_all(0, 5000) == dict(enumerate(contents))
            assert house.reports == []
            contents += [b"life %d" % life]
            assert stream.keep(contents[-1], stamp_ms=3) == len(contents) - 1
            assert stream.read_all(0, 5000) == dict(enumerate(contents))
            if in_order:
                house.stop()


def test_after_a_stop_in_order_only_the_ends_of_segments_are_read(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=100_000)
    fill(stream, 200, 2000)
    with house.reborn(in_order=True) as house:
        stream = FakeStream(house)
        assert len(stream.log.segments) > 3
        assert house.disk.done["read", "stream"] == 3 * len(stream.log.segments)
        assert all(segment.indexed for segment in stream.log.segments)
        assert stream.log.offset_at(0) == 0


def test_after_a_kill_only_the_last_segment_is_read_as_a_whole(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=100_000)
    fill(stream, 200, 2000)
    with house.reborn() as house:
        stream = FakeStream(house)
        assert [segment.indexed for segment in stream.log.segments[:-1]] == [True] * (len(stream.log.segments) - 1)
        assert not stream.log.segments[-1].indexed


def test_a_stop_in_order_without_a_change_writes_nothing_to_streams(house: StoreHouse) -> None:
    FakeStream(house).keep(b"x")
    with house.reborn(in_order=True) as house:
        stream = FakeStream(house)
        size = stream.log.bytes
        with house.reborn(in_order=True) as house:
            stream = FakeStream(house)
            assert stream.log.bytes == size
            assert house.disk.done["write", "stream"] == 0


def test_the_index_in_ram_is_the_same_whether_it_was_read_or_rebuilt(house: StoreHouse) -> None:
    stream = FakeStream(house)
    fill(stream, 100, 5000, stamp_ms=9)
    written = stream.log.segments[0]
    with house.reborn() as house:
        rebuilt = FakeStream(house).log.segments[0]
        with house.reborn(in_order=True) as house:
            read = FakeStream(house).log.segments[0]
    for segment in (rebuilt, read):
        assert segment.offsets == written.offsets
        assert segment.positions == written.positions
        assert segment.stamps == written.stamps
        assert (segment.first, segment.end, segment.last, segment.stamp_ms) == (0, 100, 99, 9)


def test_a_torn_end_is_cut_off_and_reported(house: StoreHouse) -> None:
    stream = FakeStream(house)
    stream.keep(b"one")
    size = stream.log.bytes
    stream.keep(b"two" * 100)
    path = stream.log.directory / stream.names()[0]
    house.kill()
    path.write_bytes(path.read_bytes()[:-1])
    with house.reborn() as house:
        stream = FakeStream(house)
        assert (stream.log.end, stream.log.bytes) == (1, size + 20)  # the SYNCED record before it is whole
        assert path.stat().st_size == stream.log.bytes
        (line,) = house.reports
        assert line.startswith(f"stream 1: the torn end is cut off: {path}: ")
        assert stream.keep(b"again") == 1
        assert stream.read_all() == {0: b"one", 1: b"again"}


def test_a_segment_that_has_only_its_name_gives_the_next_offset(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=500)
    fill(stream, 5, 300)
    last = stream.log.segments[-1]
    house.kill()
    for raw in (b"", b"PENS", encode_file_head(STREAM, 1), encode_file_head(STREAM, 1) + b"\x9cPnR"):
        last.path.write_bytes(raw)
        with house.reborn() as house:
            stream = FakeStream(house)
            assert stream.log.end == last.first
            house.kill()
    with house.reborn() as house:
        stream = FakeStream(house)
        assert stream.keep(b"more") == last.first
        assert stream.read_all(last.first) == {last.first: b"more"}
    with house.reborn() as house:
        assert FakeStream(house).read_all(last.first) == {last.first: b"more"}


def test_a_file_of_a_newer_format_refuses_the_start(house: StoreHouse) -> None:
    stream = FakeStream(house)
    stream.keep(b"x")
    (name,) = stream.names()
    house.kill()
    raw = bytearray((stream.log.directory / name).read_bytes())
    raw[:16] = _head_of_format(FORMAT + 1)
    (stream.log.directory / name).write_bytes(raw)
    with house.reborn() as house, pytest.raises(StoreError, match="a newer Penstock"):
        FakeStream(house)


def _head_of_format(number: int) -> bytes:
    check = crc32(FILE_HEAD.pack(FILE_MAGIC, STREAM, number, 0, 5)) & 0xFFFF
    return FILE_HEAD.pack(FILE_MAGIC, STREAM, number, check, 5)


def test_a_stream_that_cannot_be_read_refuses_the_start(house: StoreHouse) -> None:
    FakeStream(house).keep(b"x")
    with house.reborn() as house:
        house.disk.fail("read", "stream")
        with pytest.raises(StoreError, match="seg: Input/output error"):
            FakeStream(house)


# Marks of producers.


def test_marks_are_those_of_the_synced_end(house: StoreHouse) -> None:
    stream = FakeStream(house)
    stream.keep(b"x", marks={"a": 1, "b": 5})
    stream.append(b"y", marks={"a": 9})
    house.run_turns()
    assert stream.log.producers == {"a": 1, "b": 5}
    house.clock.advance(1)
    house.run_until_idle()
    assert stream.log.producers == {"a": 9, "b": 5}
    assert list(stream.log.producers) == ["b", "a"]


@pytest.mark.parametrize("in_order", [True, False])
def test_marks_outlive_the_broker_and_the_segments_they_came_with(house: StoreHouse, in_order: bool) -> None:
    stream = FakeStream(house, segment_bytes=1000)
    stream.keep(b"x", marks={"old": 3, "both": 4})
    fill(stream, 30)
    stream.log.max_bytes = 0
    stream.log.retain(0)
    assert stream.log.first > 0
    stream.keep(b"y", marks={"both": 6, "new": 1})
    with house.reborn(in_order) as house:
        assert FakeStream(house).log.producers == {"old": 3, "both": 6, "new": 1}


def test_only_the_last_producers_are_remembered(house: StoreHouse) -> None:
    stream = FakeStream(house)
    stream.keep(b"x", marks={f"p{at}": at for at in range(PRODUCERS_MAX)})
    stream.keep(b"y", marks={"p0": 7, "another": 1})
    assert len(stream.log.producers) == PRODUCERS_MAX
    assert "p1" not in stream.log.producers
    assert stream.log.producers["p0"] == 7
    with house.reborn() as house:
        assert FakeStream(house).log.producers == stream.log.producers


@pytest.mark.parametrize("is_synced", [False, True])
def test_what_is_behind_damage_counts_only_if_it_was_once_synced(house: StoreHouse, is_synced: bool) -> None:
    stream = FakeStream(house)
    stream.keep(b"head")
    begin = stream.log.bytes
    for at in range(2):  # two batches, but one piece of work and one sync
        stream.append(b"%d" % at, stamp_ms=100 * at, receipt=FakeReceipt(), marks={"p": at})
    house.run_until_idle()
    if is_synced:
        stream.keep(b"it begins with a SYNCED record")
    (name,) = stream.names()
    path = stream.log.directory / name
    raw = bytearray(path.read_bytes())
    raw[begin + 20] ^= 1  # the first batch of the two, behind the SYNCED record
    with house.reborn() as house:
        path.write_bytes(raw)
        stream = FakeStream(house)
        marks = {"p": 1} if is_synced else {}
        # What nothing proves to be synced is a torn write, and cut off with all that is behind it.
        assert (stream.log.end, stream.log.producers) == (4 if is_synced else 1, marks)
        assert stream.read_all().keys() == ({0, 2, 3} if is_synced else {0})
        for _ in range(2):
            stream.keep(b"more")
        with house.reborn() as house:
            assert FakeStream(house).log.producers == marks, "what a life has made of marks stays"


# Damage.


def test_a_flipped_byte_costs_one_message_and_is_reported_by_file_and_offset(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=500)
    stream.keep(b"one", b"twotwo", b"three")
    fill(stream, 10)
    path = stream.log.directory / stream.names()[0]
    raw = bytearray(path.read_bytes())
    at = raw.index(b"twotwo")
    raw[at + 2] ^= 0x40
    path.write_bytes(raw)
    read = stream.read(0)
    assert read.found[0].contents == [b"one", None, b"three"]
    assert read.damages == [f"{path}: 6 bytes at {at}: a message's checksum is wrong"]
    assert stream.read_all().keys() == set(range(13)) - {1}


def test_a_damaged_table_costs_its_batch_and_nothing_behind_it(house: StoreHouse) -> None:
    stream = FakeStream(house)
    contents = fill(stream, 10)
    path = stream.log.directory / stream.names()[0]
    raw = bytearray(path.read_bytes())
    at = raw.index(contents[4])
    raw[at - 10] ^= 1  # the end of the table
    path.write_bytes(raw)
    damages: list[str] = []
    assert stream.read_all(0, 1, damages).keys() == set(range(10)) - {4}
    assert len(damages) == 1
    assert damages[0].startswith(f"{path}: ")
    assert damages[0].endswith(": a record's checksum is wrong")
    with house.reborn() as house:
        stream = FakeStream(house)
        assert stream.log.end == 10
        assert stream.read_all().keys() == set(range(10)) - {4}
        assert len(house.reports) == 1


def test_a_segment_that_is_gone_from_the_disk_is_stale_and_the_rest_is_read(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=500)
    contents = fill(stream, 20)
    second = stream.log.segments[1]
    house.kill()
    second.path.unlink()
    with house.reborn() as house:
        stream = FakeStream(house)
        lost = range(second.first, second.end)
        assert stream.read_all() == {at: one for at, one in enumerate(contents) if at not in lost}
        assert any(f"the {len(lost)} messages from {lost[0]} on are not there" in line for line in house.reports)
        stream.log.segments[0].path.unlink()
        house.store.streams.reading.close()
        assert stream.read(0).stale


def test_a_damaged_index_is_rebuilt_and_reported(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=500)
    contents = fill(stream, 20)
    path = stream.log.segments[0].path
    raw = bytearray(path.read_bytes())
    raw[-12] ^= 1
    path.write_bytes(raw)
    with house.reborn() as house:
        stream = FakeStream(house)
        assert any(str(path) in line and "all of it was read" in line for line in house.reports)
        assert stream.read_all() == dict(enumerate(contents))
        assert stream.log.first == 0
        settle(house)
        with house.reborn() as house:
            assert FakeStream(house).log.segments[0].indexed, "it has a new one behind the old"
            assert house.reports == []


def test_a_segment_whose_index_was_not_written_yet_gets_it_in_the_next_life(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=500)
    contents = fill(stream, 9, 300)
    house.disk.stop("sync", "stream")
    for _ in range(2):
        contents.append(bytes(300))
        stream.append(contents[-1], receipt=FakeReceipt())
    house.run_turns()
    assert not stream.log.segments[-2].sealed
    with house.reborn() as house:
        stream = FakeStream(house)
        assert [segment.sealed for segment in stream.log.segments[-3:]] == [True, False, False]
        assert house.reports == []
        settle(house)
        assert [segment.sealed for segment in stream.log.segments[-3:]] == [True, True, False]
        assert stream.read_all() == dict(enumerate(contents))
        assert list(house.disk._kinds.values()).count("stream") == len(stream.log.segments) + 1  # to read, and to write


@pytest.mark.parametrize("knows_the_salt", [False, True])
def test_what_a_client_sends_does_not_pass_for_an_index(house: StoreHouse, knows_the_salt: bool) -> None:
    stream = FakeStream(house)
    stream.keep(b"one")
    with house.reborn(in_order=True) as house:
        stream = FakeStream(house)
        (segment,) = stream.log.segments
        raw = segment.path.read_bytes()
        index = bytearray(raw[int.from_bytes(raw[-8:], "big") :])
        if not knows_the_salt:  # only to show that this is what it hangs on
            index[28:32] = bytes(4)
        batch_bytes = 20 + 24 + 8 + 8 + 6 + len(stream.origin.origin())
        begins_at = segment.size + len(SYNCED_RECORD) + batch_bytes
        checksum = crc32(index[4:16] + index[20:-8])
        index[16:20] = checksum.to_bytes(4, "big")
        index[-8:] = begins_at.to_bytes(8, "big")
        stream.keep(bytes(index))
        assert segment.path.read_bytes()[begins_at:] == index
        with house.reborn() as house:
            assert FakeStream(house).log.end == (1 if knows_the_salt else 2)


def test_the_example_of_the_document_is_what_is_written(tmp_path: Path) -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "store.md").read_text(encoding="utf-8")
    example = bytes.fromhex(
        text.partition("### The bytes of a segment")[2].partition("```hex\n")[2].partition("```")[0]
    )
    segment = StreamSegment(tmp_path, 0, 42)
    head = encode_segment_head(42) + encode_offsets(7, segment, {}, 16, settled=True)
    batch = encode_batch(7, 0, [(2, b"o")], [b"one", b"three"], stamp_ms=1000, marks={"p": 5})
    segment.enter(0, len(head), 1000)
    segment.end, segment.stamp_ms = 2, 1000
    before = head + batch + SYNCED_RECORD
    assert example == before + encode_offsets(7, segment, {"p": 5}, len(before), settled=True)


# With queues, and with a disk that fails at the worst time.


def test_a_queue_and_a_stream_share_one_sync(house: StoreHouse) -> None:
    stream, owner, receipt = FakeStream(house), FakeOwner(house.store, 77), FakeReceipt()
    before = house.store.journal.syncs
    owner.deposit(b"queued", receipt=receipt)
    stream.append(b"appended", receipt=receipt)
    house.run_until_idle()
    assert receipt.kept_count == 2
    assert house.store.journal.syncs == before + 1
    with house.reborn() as house:
        assert FakeStream(house).read_all() == {0: b"appended"}
        assert house.recovered.logs[77].living == [(0, 1)]


@pytest.mark.parametrize("operation", ["create", "write", "sync"])
def test_segments_that_are_rolled_while_the_disk_fails_are_whole_in_the_end(house: StoreHouse, operation: str) -> None:
    stream, receipt = FakeStream(house, segment_bytes=500), FakeReceipt()
    contents = fill(stream, 3, 300)
    house.disk.fail(operation, "stream", 5)
    for at in range(6):
        contents.append(b"%d" % at + bytes(300))
        stream.append(contents[-1], receipt=receipt)
        house.run_turns()
    house.posts.run_until(lambda: (house.run_turns(), receipt.kept_count == 6)[1])
    settle(house)
    assert house.troubles[-1] == ""
    assert stream.read_all() == dict(enumerate(contents))
    assert all(segment.sealed for segment in stream.log.segments[:-1])
    with house.reborn() as house:
        assert FakeStream(house).read_all() == dict(enumerate(contents))
        assert house.reports == []


def test_a_stop_on_a_disk_that_fails_says_so_and_keeps_what_was_synced(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=500)
    contents = fill(stream, 4, 300)
    house.disk.fail("write", "stream", 1 << 30)
    stream.append(b"never", receipt=FakeReceipt())
    house.run_turns()
    house.posts.run_until(lambda: house.store.trouble)
    house.is_over = True
    assert not house.store.close()
    with house.reborn() as house:
        assert FakeStream(house).read_all() == dict(enumerate(contents))


def test_files_that_cannot_be_removed_are_reported_and_the_stream_goes_on(house: StoreHouse) -> None:
    stream = FakeStream(house, segment_bytes=500)
    fill(stream, 10, 300)
    house.disk.fail("remove", "stream")
    stream.log.max_bytes = 0
    stream.log.retain(0)
    stream.names()
    house.posts.run()
    assert len(house.reports) == 1
    assert house.reports[0].endswith("seg cannot be removed: Input/output error")
    assert len(list(stream.log.directory.iterdir())) == 2
    assert stream.read_all().keys() == set(range(stream.log.first, 10))

"""StreamReader: what it answers Spark's driver, and that it answers the same again. The broker is a FakeView."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from penstock.client.stream import Offsets as Ends
from penstock.spark.fault import SourceError
from penstock.spark.offsets import Range
from penstock.spark.options import parse_options
from penstock.spark.streamreader import StreamReader


class FakeView:
    """A broker's streams as numbers."""

    def __init__(self, **ends: tuple[int, int]) -> None:
        self.streams = {name.replace("_", "-"): Ends(*both, both[1]) for name, both in ends.items()}
        self.exact = True
        self.closed = False
        self.times = {1000: 4}

    def names(self) -> list[str]:
        return list(self.streams)

    def ends(self, fresh: bool = False) -> dict[str, Ends]:
        return dict(self.streams)

    def offset_at(self, name: str, timestamp_ms: int) -> int:
        return self.times[timestamp_ms]

    def mean_size(self, name: str, start: int, end: int) -> float:
        return 100.0

    def grow(self, name: str, following: int) -> None:
        self.streams[name] = self.streams[name]._replace(next=following)

    def cut(self, name: str, first: int) -> None:
        self.streams[name] = self.streams[name]._replace(first=first)

    def close(self) -> None:
        self.closed = True


def reader(view: FakeView, **options: str) -> StreamReader:
    made = StreamReader(parse_options({"uri": "amqp://ann:sesame@broker", "stream": "s", **options}))
    made._view = view  # type: ignore[assignment]
    return made


def ask(made: StreamReader, start: dict[str, int]) -> dict[str, int]:
    return made.latestOffset(start, made.getDefaultReadLimit())


def ranges(made: StreamReader, start: dict[str, int], end: dict[str, int]) -> list[Range]:
    return [one.value for one in made.partitions(start, end)]


def test_earliest_begins_at_the_first_offset_that_is_left():
    made = reader(FakeView(s=(3, 10)), startingOffsets="earliest")
    assert made.initialOffset() == {"s": 3}
    assert ask(made, {"s": 3}) == {"s": 10}
    assert ranges(made, {"s": 3}, {"s": 10}) == [Range("s", 0, 3, 10)]


@pytest.mark.parametrize(("options", "settled"), [({}, 10), ({"startingTimestamp": "1000"}, 4)])
def test_latest_or_a_time_is_settled_by_a_first_batch_that_reads_nothing(options: dict[str, str], settled: int):
    view = FakeView(s=(0, 10))
    made = reader(view, **options)
    initial = made.initialOffset()
    assert ask(made, initial) == {"s": settled}
    assert ranges(made, initial, {"s": settled}) == []
    view.grow("s", 20)
    # That batch run again, by another process, after more was published: still nothing is read, so nothing is skipped.
    again = reader(view, **options)
    assert again.initialOffset() == initial
    assert ranges(again, initial, {"s": settled}) == []
    assert ranges(again, {"s": settled}, ask(again, {"s": settled})) == [Range("s", 0, settled, 20)]


def test_the_initial_offset_is_the_same_when_asked_twice():
    view = FakeView(s=(0, 10))
    made = reader(view, startingOffsets="earliest")
    first = made.initialOffset()
    view.cut("s", 5)
    assert made.initialOffset() == first


def test_offsets_have_the_same_json_text_whatever_the_order_of_partitions():
    made = reader(FakeView(s_10=(0, 5), s_2=(0, 5)), startingOffsets="earliest")
    assert json.dumps(ask(made, {"s-2": 0, "s-10": 0})) == json.dumps(ask(made, {"s-10": 0, "s-2": 0}))
    assert list(made.initialOffset()) == sorted(made.initialOffset())


def test_a_number_or_json_says_where_each_partition_begins():
    view = FakeView(s_0=(0, 10), s_1=(2, 10))
    assert reader(view, startingOffsets="7").initialOffset() == {"s-0": 7, "s-1": 7}
    json_text = '{"s-0": 5, "s-1": "earliest"}'
    assert reader(view, startingOffsets=json_text).initialOffset() == {"s-0": 5, "s-1": 2}
    with pytest.raises(SourceError, match="startingOffsets says nothing about s-1"):
        reader(view, startingOffsets='{"s-0": 5}').initialOffset()
    with pytest.raises(SourceError, match="startingOffsets names s-7, but the partitions are s-0, s-1"):
        reader(view, startingOffsets='{"s-0": 5, "s-1": 5, "s-7": 5}').initialOffset()
    with pytest.raises(SourceError, match="startingOffsets: 11 is behind the end of stream s-0, which is 10"):
        reader(view, startingOffsets="11").initialOffset()


def test_a_batch_is_limited_and_shared_fairly_by_the_partitions():
    made = reader(FakeView(s_0=(0, 1000), s_1=(0, 10)), maxRecordsPerTrigger="100")
    assert made.getDefaultReadLimit() == ReadMaxRows(100)
    assert ask(made, {"s-0": 0, "s-1": 0}) == {"s-0": 90, "s-1": 10}


def test_a_limit_of_bytes_counts_by_the_mean_size_of_messages():
    made = reader(FakeView(s=(0, 1000)), maxBytesPerTrigger="2500")
    assert made.getDefaultReadLimit() == ReadMaxBytes(2500)
    assert ask(made, {"s": 0}) == {"s": 25}
    both = reader(FakeView(s=(0, 1000)), maxBytesPerTrigger="2500", maxRecordsPerTrigger="10")
    assert ask(both, {"s": 0}) == {"s": 10}
    assert both.latestOffset({"s": 0}, ReadAllAvailable()) == {"s": 1000}


def test_available_now_ends_where_the_stream_ended_when_it_began():
    view = FakeView(s=(0, 10))
    made = reader(view, startingOffsets="earliest", maxRecordsPerTrigger="6")
    made.prepareForTriggerAvailableNow()
    view.grow("s", 1000)
    assert ask(made, {"s": 0}) == {"s": 6}
    assert ask(made, {"s": 6}) == {"s": 10}
    assert ask(made, {"s": 10}) == {"s": 10}
    assert made.reportLatestOffset() == {"s": 1000}


def test_available_now_with_latest_pins_the_end_and_the_next_run_goes_on_there():
    view = FakeView(s=(0, 10))
    made = reader(view)
    made.prepareForTriggerAvailableNow()
    view.grow("s", 15)
    assert ask(made, made.initialOffset()) == {"s": 10}
    assert ask(made, {"s": 10}) == {"s": 10}
    later = reader(view)
    later.prepareForTriggerAvailableNow()
    assert ask(later, {"s": 10}) == {"s": 15}


def test_a_range_is_split_into_min_partitions_and_a_replay_splits_it_alike():
    made = reader(FakeView(s=(0, 100)), minPartitions="3")
    first = ranges(made, {"s": 0}, {"s": 90})
    assert first == [Range("s", 0, 0, 30), Range("s", 0, 30, 60), Range("s", 0, 60, 90)]
    assert ranges(reader(FakeView(s=(0, 500)), minPartitions="3"), {"s": 0}, {"s": 90}) == first


def test_a_partition_that_was_added_begins_at_its_start():
    view = FakeView(s_0=(0, 10), s_1=(2, 5))
    made = reader(view)
    end = ask(made, {"s-0": 10})
    assert end == {"s-0": 10, "s-1": 5}
    assert ranges(made, {"s-0": 10}, end) == [Range("s-1", 1, 2, 5)]


def test_retention_that_overtook_the_query_is_an_error_that_names_stream_offsets_and_option():
    made = reader(FakeView(s=(50, 100)))
    told = (
        "stream s: the query goes on at offset 20, but the first one that is left is 50; retention has removed 30 "
        "messages that were not read. Set the option failOnDataLoss to false to go on without them"
    )
    for call in (lambda: ask(made, {"s": 20}), lambda: made.partitions({"s": 20}, {"s": 60})):
        with pytest.raises(SourceError) as caught:
            call()
        assert str(caught.value) == told


def test_without_fail_on_data_loss_the_query_goes_on_and_logs_what_is_gone(caplog: pytest.LogCaptureFixture):
    made = reader(FakeView(s=(50, 100)), failOnDataLoss="false", maxRecordsPerTrigger="5")
    end = ask(made, {"s": 20})
    assert end == {"s": 55}
    assert ranges(made, {"s": 20}, end) == [Range("s", 0, 50, 55)]
    assert "retention has removed 30 messages" in caplog.text


def test_a_stream_that_was_made_anew_is_told_from_one_that_grew(caplog: pytest.LogCaptureFixture):
    with pytest.raises(SourceError, match="has read to offset 500, but the stream ends at 10: it was made anew"):
        ask(reader(FakeView(s=(0, 10))), {"s": 500})
    made = reader(FakeView(s=(0, 10)), failOnDataLoss="false")
    assert ask(made, {"s": 500}) == {"s": 10}
    assert ranges(made, {"s": 500}, {"s": 10}) == []


def test_an_end_that_a_probe_found_too_early_is_not_taken_for_a_new_stream():
    view = FakeView(s=(0, 10))
    view.exact = False
    assert ask(reader(view), {"s": 500}) == {"s": 500}


def test_a_partition_that_vanished_is_a_loss():
    with pytest.raises(SourceError, match="stream s-1: the query has read to offset 9, but there is no such stream"):
        ask(reader(FakeView(s_0=(0, 10))), {"s-0": 10, "s-1": 9})
    made = reader(FakeView(s_0=(0, 10)), failOnDataLoss="false")
    assert ask(made, {"s-0": 10, "s-1": 9}) == {"s-0": 10, "s-1": 9}
    assert ranges(made, {"s-0": 10, "s-1": 9}, {"s-0": 10, "s-1": 9}) == []


def test_a_reader_goes_to_tasks_without_its_connection():
    made = reader(FakeView(s=(0, 10)))
    copy: Any = pickle.loads(pickle.dumps(made))
    assert copy._view is None


def test_neither_repr_nor_offsets_show_the_password():
    made = reader(FakeView(s=(0, 10)))
    assert "sesame" not in repr(made) + json.dumps(made.initialOffset()) + repr(made.partitions({"s": 0}, {"s": 5}))


def test_stop_closes_the_connection():
    view = FakeView(s=(0, 10))
    made = reader(view)
    made.stop()
    assert view.closed
    StreamReader(parse_options({"uri": "amqp://broker", "stream": "s"})).stop()  # that never asked anything

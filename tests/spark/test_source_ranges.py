"""Reading ranges of a stream as a task does, without a Spark: over restarts of the broker, gaps and early ends."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.spark import rangereader
from penstock.spark.fault import SourceError
from penstock.spark.offsets import Range
from penstock.spark.options import Options, parse_options
from penstock.spark.rangereader import read_range
from penstock.spark.runner import RUNNER
from penstock.spark.schema import message_schema
from penstock.spark.source import PenstockDataSource
from penstock.spark.streamreader import StreamReader
from penstock.spark.streamview import StreamView
from tests.spark.streams import Feeder
from tests.wire.live import ServeProcess, free_port
from tests.wire.waiting import wait_until


@pytest.fixture
def feeder(uri: str) -> Iterator[Feeder]:
    with Feeder(uri) as feeder:
        yield feeder


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches, so that a short stream has many."""
    monkeypatch.setattr(rangereader, "BATCH_ROWS", 100)


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    """Neither of tests before, in whatever file, nor of this one."""
    close_kept()
    yield
    close_kept()


def close_kept() -> None:
    for channel in rangereader._kept.values():
        channel.connection.abort()
    rangereader._kept.clear()


def options_for(uri: str, stream: str, **more: str) -> Options:
    return parse_options({"uri": uri, "stream": stream, "startingOffsets": "earliest", **more})


def offsets_of(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.mark.parametrize("more", [{}, {"prefetch": "30"}])
def test_a_range_comes_whole_in_bounded_batches_and_the_connection_is_kept(
    feeder: Feeder, uri: str, name: str, more: dict[str, str]
):
    feeder.declare(name)
    feeder.publish(name, 1000)
    options = options_for(uri, name, **more)
    batches = list(read_range(Range(name, 2, 150, 900), options))
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == list(range(150, 900))
    assert max(batch.num_rows for batch in batches) <= 100
    assert batches[0].column("partition").to_pylist()[0] == 2
    (kept,) = rangereader._kept.values()
    assert offsets_of(read_range(Range(name, 2, 0, 10), options)) == list(range(10))
    assert list(rangereader._kept.values()) == [kept]


def test_a_reader_that_stops_early_leaves_nothing_for_the_next(feeder: Feeder, uri: str, name: str):
    feeder.declare(name)
    feeder.publish(name, 1000)
    reading = read_range(Range(name, 0, 0, 1000), options_for(uri, name))
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert not rangereader._kept
    assert offsets_of(read_range(Range(name, 0, 500, 510), options_for(uri, name))) == list(range(500, 510))


def start(directory: Path, port: int = 0) -> ServeProcess:
    process = ServeProcess(directory, "--listen", f"127.0.0.1:{port or free_port()}")
    assert process.port, process.log
    return process


def test_a_broker_killed_in_the_middle_of_a_range_costs_no_row_and_doubles_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    process = start(tmp_path)
    with Feeder(process.uri) as feeder:
        feeder.declare("s")
        feeder.publish("s", 20_000, size=500)
    options = options_for(process.uri, "s")
    reading = read_range(Range("s", 0, 0, 20_000), options)
    got = next(reading).column("offset").to_pylist()
    process.kill()
    # The reader finds nobody at first; the broker is started while it waits.
    again: list[ServeProcess] = []

    def come_back() -> None:
        wait_until(lambda: "trying again" in caplog.text, what="the reader finds nobody")
        again.append(start(tmp_path, process.port))

    starter = threading.Thread(target=come_back)
    with caplog.at_level(logging.INFO):
        starter.start()
        try:
            got += offsets_of(reading)
        finally:
            starter.join()
            again[0].kill()
    assert got == list(range(20_000))
    assert "the broker is back after" in caplog.text


def test_a_broker_that_stays_away_fails_the_task_with_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("penstock.spark.patience.OUTAGE_S", 0.3)
    process = start(tmp_path)
    with Feeder(process.uri) as feeder:
        feeder.declare("s")
        feeder.publish("s", 20_000, size=500)
    reading = read_range(Range("s", 0, 0, 20_000), options_for(process.uri, "s"))
    next(reading)
    process.kill()
    with pytest.raises(SourceError, match=rf"no broker at 127.0.0.1:{process.port}: .* \(uri amqp://guest@127"):
        list(reading)


def test_the_driver_goes_on_after_a_restart_and_sees_what_came_since(tmp_path: Path):
    process = start(tmp_path)
    with Feeder(process.uri) as feeder:
        feeder.declare("s")
        feeder.publish("s", 10)
    reader = StreamReader(options_for(process.uri, "s"))
    assert reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()) == {"s": 10}
    process.kill()
    again = start(tmp_path, process.port)
    with Feeder(again.uri) as feeder:
        feeder.publish("s", 5)
    try:
        assert reader.latestOffset({"s": 10}, reader.getDefaultReadLimit()) == {"s": 15}
        reader.stop()
    finally:
        again.kill()


@pytest.mark.parametrize("trigger", ["from a checkpoint", "a planned batch", "available now"])
def test_a_query_that_has_run_before_waits_for_its_broker(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, trigger: str
):
    process = start(tmp_path)
    with Feeder(process.uri) as feeder:
        feeder.declare("s")
        feeder.publish("s", 10)
    process.kill()
    reader = StreamReader(options_for(process.uri, "s"))
    if trigger == "available now":
        reader.prepareForTriggerAvailableNow()
    again: list[ServeProcess] = []

    def bring_back() -> None:
        wait_until(lambda: "trying again for up to" in caplog.text)
        again.append(start(tmp_path, process.port))

    starter = threading.Thread(target=bring_back)
    with caplog.at_level(logging.WARNING):
        starter.start()
        try:
            if trigger == "a planned batch":
                (part,) = reader.partitions({"s": 0}, {"s": 10})
                assert part.value == Range("s", 0, 0, 10)
            else:
                assert reader.latestOffset({"s": 4}, reader.getDefaultReadLimit()) == {"s": 10}
            reader.stop()
        finally:
            starter.join()
            again[0].kill()
    assert "the broker is back after" in caplog.text


@pytest.mark.parametrize("available_now", [False, True])
def test_a_new_query_without_a_broker_fails_at_once_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, available_now: bool
):
    process = start(tmp_path)
    process.kill()
    reader = StreamReader(options_for(process.uri, "s"))
    if available_now:
        reader.prepareForTriggerAvailableNow()
    with pytest.raises(SourceError, match=rf"no broker at 127.0.0.1:{process.port}: .* \(uri amqp://guest@127"):
        reader.initialOffset()
    assert "trying again" not in caplog.text


def test_retention_in_the_middle_of_planning_and_reading_is_seen_by_the_task(
    feeder: Feeder, uri: str, name: str, caplog: pytest.LogCaptureFixture
):
    feeder.declare(name, {"x-max-length-bytes": 20_000, "x-stream-max-segment-size-bytes": 5_000})
    feeder.publish(name, 1000, size=100)
    first = feeder.first_after(name, 10)
    with pytest.raises(SourceError, match=r"goes on at offset 5, but the first .* left is [0-9]{3}; retention"):
        list(read_range(Range(name, 0, 5, 1000), options_for(uri, name)))
    lenient = options_for(uri, name, failOnDataLoss="false")
    found = offsets_of(read_range(Range(name, 0, 5, 1000), lenient))
    # Retention may go on while we read: then there is a hole behind what was read before it.
    assert found == sorted(set(found))
    assert (found[0] >= first, found[-1]) == (True, 999)
    # All of the range is gone.
    assert offsets_of(read_range(Range(name, 0, 5, 10), lenient)) == []
    assert caplog.text.count("failOnDataLoss is false") >= 2


def test_a_queue_is_refused_as_a_stream_and_keeps_its_messages(feeder: Feeder, uri: str, name: str):
    feeder.declare(name, kind="classic")
    feeder.publish(name, 10)
    reader = StreamReader(options_for(uri, name))
    with pytest.raises(SourceError, match=name):
        reader.initialOffset()
    with pytest.raises(SourceError, match=name):
        list(read_range(Range(name, 0, 0, 10), options_for(uri, name)))
    assert feeder.count(name) == 10


def test_partitions_are_found_and_a_later_one_too(feeder: Feeder, uri: str, name: str, monkeypatch: pytest.MonkeyPatch):
    for number in range(3):
        feeder.declare(f"{name}-{number}")
    view = StreamView(options_for(uri, name))
    assert view.names() == [f"{name}-0", f"{name}-1", f"{name}-2"]
    feeder.declare(f"{name}-3")
    assert view.names() == [f"{name}-0", f"{name}-1", f"{name}-2"]
    monkeypatch.setattr("penstock.spark.streamview.PARTITIONS_FRESH_S", 0)
    assert list(view.ends()) == [f"{name}-0", f"{name}-1", f"{name}-2", f"{name}-3"]
    view.close()


def test_bytes_per_batch_follow_the_size_of_messages(feeder: Feeder, uri: str, name: str):
    feeder.declare(name)
    feeder.publish(name, 500, size=1000)
    reader = StreamReader(options_for(uri, name, maxBytesPerTrigger="100k"))
    end = reader.latestOffset({name: 0}, reader.getDefaultReadLimit())
    assert 90 <= end[name] <= 102
    reader.stop()


def test_a_time_says_where_to_begin(feeder: Feeder, uri: str, name: str):
    feeder.declare(name)
    feeder.publish(name, 10)
    for millis, settled in ((0, 0), (4_102_444_800_000, 10)):  # 1970, and 2100
        options = parse_options({"uri": uri, "stream": name, "startingTimestamp": str(millis)})
        reader = StreamReader(options)
        assert reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit()) == {name: settled}
        reader.stop()


def test_sigterm_ends_the_driver_side_politely(feeder: Feeder, uri: str, name: str):
    feeder.declare(name)
    source = pickle.dumps(PenstockDataSource({"uri": uri, "stream": name}))
    pid = os.fork()
    if not pid:
        code = 9
        sys.modules["__main__"].__spec__ = ModuleSpec(RUNNER, None)
        made = pickle.loads(source).streamReader(message_schema())
        try:
            made.initialOffset()
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        except SystemExit:
            made.stop()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

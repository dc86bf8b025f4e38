"""`penstock pipeline replay`: a table back to an exchange: each key in order, nothing lost, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from penstock.client.connection import Connection
from penstock.client.consumer import Consumer
from penstock.client.uri import parse_uri
from penstock.spark.archive import compact as compaction
from penstock.spark.archive.files import ArchiveFiles, Label, table_files
from penstock.spark.archive.rows import Shape
from penstock.spark.complaint import Complaint, line_of
from penstock.spark.replay import job as replaying
from penstock.spark.replay.job import Replay, Wanted
from penstock.spark.replay.lane import TICK_S
from penstock.spark.replay.state import PLAN, Mark, ReplayState
from penstock.spark.replay.table import Table, find_table, read_pinned, was_merged
from tests.spark.conftest import SLEEP
from tests.spark.pipeline.archiving import START_S, JobProcess, Lines, archive, fill, properties_of, replay
from tests.spark.readback import Message, count, declare, drain
from tests.wire.live import LiveBroker
from tests.wire.test_alarms import set_memory
from tests.wire.waiting import LIMIT_S, wait_until

STARTS_S = 400.0  # a JVM on a machine that is very busy
KEYS = 7
FAST = 1e9  # a speed at which any recorded span is over at once
PLENTY = 1 << 40


@pytest.fixture
def live() -> Iterator[LiveBroker]:
    with LiveBroker() as broker:
        yield broker


def make_table(directory: Path, count: int, per_s: int = 1000) -> Path:
    """Rows as an archive has them, in several files, none in order; bodies are numbers, keys take turns."""
    directory.mkdir()
    numbers = sorted(range(count), key=lambda number: number * 7919 % 104729)
    for part in range(3):
        own = numbers[part::3]
        table = pa.table(
            {
                "body": [b"%d" % number for number in own],
                "routing_key": [f"key.{number % KEYS}" for number in own],
                "timestamp": pa.array(
                    [(START_S * 1_000_000 + number * 1_000_000 // per_s) for number in own], pa.timestamp("us", "UTC")
                ),
                "offset": pa.array(own, pa.int64()),
                "partition": pa.array([0] * len(own), pa.int32()),
            }
        )
        pq.write_table(table, directory / f"{part}.parquet")
    return directory


def by_key(found: Iterable[Message]) -> dict[str, list[int]]:
    kept: dict[str, list[int]] = {}
    for message in found:
        kept.setdefault(message.routing_key, []).append(int(message.body))
    return kept


def expected(total: int) -> dict[str, list[int]]:
    return {f"key.{key}": list(range(key, total, KEYS)) for key in range(min(KEYS, total))}


def test_a_replay_that_is_killed_in_the_middle_goes_on_with_every_key_in_order_and_nothing_lost_or_doubled(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    total = 30_000
    table = make_table(tmp_path / "table", total, per_s=10)
    declare(uri, name, name)
    checkpoint = tmp_path / "checkpoint"
    state = ReplayState(checkpoint)
    given = ("--uri", uri, "--from", str(table), "--exchange", name, "--checkpoint", str(checkpoint))
    asked = ("penstock", "pipeline", "replay", *given, "--speed", "20", "--master", "local[2]")
    # At this speed it would take two and a half minutes.
    with JobProcess(tmp_path, *asked) as job:
        wait_until(lambda: state.confirmed() > 500 or not job.running(), STARTS_S, "the first rows")
        assert job.running(), job.log
        job.kill_driver()
        lines = replay(spark, uri, table, name, checkpoint=checkpoint, speed=FAST, lanes=2)
    assert lines[0].startswith("going on: ")
    assert by_key(drain(uri, name)) == expected(total)
    assert replay(spark, uri, table, name, checkpoint=checkpoint, speed=FAST)[-1].startswith("done: 0 rows")


def test_a_replay_that_is_stopped_goes_on_where_it_was(spark: SparkSession, uri: str, name: str, tmp_path: Path):
    table = make_table(tmp_path / "table", 2000, per_s=10)
    declare(uri, name, name)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "replay.json.new").write_text("{")  # of a run that was killed while it wrote its plan
    stop, lines = threading.Event(), Lines()
    asked = Wanted(uri=uri, table=str(table), exchange=name, checkpoint=tmp_path / "c", speed=1.0, window=20)
    job = Replay(asked, stop, lines, lines)
    assert job.prepare()
    runner = threading.Thread(target=job.run, args=(spark,))
    runner.start()
    try:
        wait_until(lambda: count(uri, name) > 0, STARTS_S)
    finally:
        stop.set()
        runner.join()
        job.close()
    assert lines[-1].startswith("stopped: ")
    assert lines[-1].endswith(" left")
    with pytest.raises(Complaint, match="belongs to another replay: recorded time by timestamp, not none"):
        replay(spark, uri, table, name, checkpoint=tmp_path / "c")
    whole = (table / "2.parquet").read_bytes()
    pq.write_table(pq.read_table(table / "2.parquet").slice(1), table / "2.parquet")
    with pytest.raises(Complaint, match="has 1999 of the 2000 rows that it had when the replay began"):
        replay(spark, uri, table, name, checkpoint=tmp_path / "c", speed=FAST)
    (table / "2.parquet").write_bytes(whole)
    replay(spark, uri, table, name, checkpoint=tmp_path / "c", speed=FAST)
    assert by_key(drain(uri, name)) == expected(2000)


@pytest.mark.timeout(600)
def test_a_signal_to_a_whole_group_ends_a_replay_in_order_and_its_code_says_that_rows_are_left(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    table = make_table(tmp_path / "table", 2000, per_s=10)
    declare(uri, name, name)
    state = ReplayState(tmp_path / "c")
    given = ("--uri", uri, "--from", str(table), "--exchange", name, "--checkpoint", "c", "--speed", "2")
    with JobProcess(tmp_path, "penstock", "pipeline", "replay", *given, "--master", "local[2]") as job:
        wait_until(lambda: state.confirmed() or not job.running(), STARTS_S, "the first rows")
        os.killpg(job.process.pid, signal.SIGTERM)
        assert job.process.wait(LIMIT_S) == 1, job.log
    assert "Traceback" not in job.log
    assert job.log.endswith(" rows are left; the same command goes on\n"), job.log
    replay(spark, uri, table, name, checkpoint=tmp_path / "c", speed=FAST, lanes=2)
    assert by_key(drain(uri, name)) == expected(2000)


def test_a_replay_that_is_told_to_stop_before_it_knows_the_table_does_not_read_it(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    table = make_table(tmp_path / "table", 10)
    declare(uri, name, name)
    for number, told_before in enumerate((True, False)):
        stop, lines = threading.Event(), Lines()
        checkpoint = tmp_path / f"c{number}"
        job = Replay(Wanted(uri, str(table), name, where=SLEEP, checkpoint=checkpoint), stop, lines, lines)
        assert job.prepare()
        if told_before:
            stop.set()
        runner = threading.Thread(target=job.run, args=(spark,), daemon=True)
        runner.start()
        try:
            if not told_before:
                wait_until(lambda: spark.sparkContext.statusTracker().getActiveJobsIds(), STARTS_S, "the count")
        finally:
            stop.set()
            runner.join(LIMIT_S)
        assert not runner.is_alive()
        job.close()
        assert (job.left, not ReplayState(checkpoint).has_begun()) == (None, True)
        assert lines[0].startswith("stopped: 0 rows to exchange ")
        wait_until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), STARTS_S, "the end of the job")


@pytest.mark.parametrize("at", range(3))
def test_a_dry_run_that_is_told_to_stop_does_not_read_on(
    spark: SparkSession, uri: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
):
    asked: list[DataFrame] = []
    collected = Replay._collected

    def sleeps(job: Replay, session: SparkSession, found: DataFrame) -> list[Row]:
        asked.append(found)
        return collected(job, session, found.where(SLEEP) if len(asked) > at else found)

    monkeypatch.setattr(Replay, "_collected", sleeps)
    stop, lines = threading.Event(), Lines()
    job = Replay(Wanted(uri, str(make_table(tmp_path / "table", 10)), name), stop, lines, lines)
    assert job.prepare(connect=False)
    runner = threading.Thread(target=job.show, args=(spark,), daemon=True)
    runner.start()
    active = spark.sparkContext.statusTracker().getActiveJobsIds
    try:
        wait_until(lambda: (len(asked) > at and active()) or not runner.is_alive(), STARTS_S, "the question")
    finally:
        stop.set()
        runner.join(LIMIT_S)
    assert not runner.is_alive()
    assert lines == []
    wait_until(lambda: not active(), STARTS_S, "the end of the job")
    job.close()


class Arrivals(threading.Thread):
    """Consumes from a queue, acks nothing, and knows when each number came, in seconds since 1970."""

    def __init__(self, uri: str, queue: str) -> None:
        super().__init__(daemon=True)
        self.halt = threading.Event()
        self.came: dict[int, float] = {}
        self._uri, self._queue = uri, queue

    def run(self) -> None:
        with Connection.connect(parse_uri(self._uri)) as connection:
            consumer = Consumer(connection.open_channel(), self._queue)
            while not self.halt.is_set():
                got = consumer.read(1000, 0.1)
                self.came |= dict.fromkeys(map(int, got.bodies), time.time())


def test_at_recorded_speed_a_replay_takes_as_long_as_the_recording(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    table = make_table(tmp_path / "table", 31, per_s=10)  # three seconds
    declare(uri, name, name)
    arrivals = Arrivals(uri, name)
    arrivals.start()
    began_s = time.time()
    try:
        replay(spark, uri, table, name, speed=2.0, checkpoint=tmp_path / "c")
        wait_until(lambda: len(arrivals.came) == 31, what="all messages at the consumer")
    finally:
        arrivals.halt.set()
        arrivals.join()
    # The clock begins with the first lane, after all that Spark does before; no message comes before its time.
    (clock,) = (tmp_path / "c").glob("clock-*.json")
    started_s = float(clock.read_text())
    assert began_s < started_s <= min(arrivals.came.values())
    early = [number for number, at_s in arrivals.came.items() if at_s < started_s + number / 20 - TICK_S]
    assert not early, (started_s, arrivals.came)
    assert by_key(drain(uri, name)) == expected(31)


def test_at_recorded_speed_a_replay_that_goes_on_counts_from_the_last_row_that_was_sent(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    # What is sent already took twenty hours to record, what is left a second.
    at_us = [
        number * 3_600_000_000 if number < 20 else 19 * 3_600_000_000 + (number - 19) * 100_000 for number in range(30)
    ]
    rows = {
        "body": [b"%d" % number for number in range(30)],
        "routing_key": ["k"] * 30,
        "timestamp": pa.array([START_S * 1_000_000 + us for us in at_us], pa.timestamp("us", "UTC")),
        "offset": pa.array(range(30), pa.int64()),
    }
    table = tmp_path / "table"
    table.mkdir()
    pq.write_table(pa.table(rows), table / "x.parquet")
    declare(uri, name, name)
    wanted = Wanted(uri, str(table), name, checkpoint=tmp_path / "c", speed=FAST, lanes=1, deduplicate=False)
    stop, lines = threading.Event(), Lines()
    job = Replay(wanted, stop, lines, lines)
    assert job.prepare()
    job.run(spark)
    job.close()
    assert len(drain(uri, name)) == 30
    # As if that run had ended in the middle.
    ReplayState(tmp_path / "c").put_mark(0, Mark(20, START_S * 1_000_000 + at_us[19]))
    job = Replay(replace(wanted, speed=1.0), stop, lines, lines)
    assert job.prepare()
    arrivals = Arrivals(uri, name)
    arrivals.start()
    runner = threading.Thread(target=job.run, args=(spark,))
    runner.start()
    try:
        wait_until(lambda: len(arrivals.came) == 10, what="what was left, long before twenty hours are over")
    finally:
        stop.set()
        runner.join()
        job.close()
        arrivals.halt.set()
        arrivals.join()
    (clock,) = (tmp_path / "c").glob("clock-*.json")
    started_s = float(clock.read_text())
    early = [n for n, at_s in arrivals.came.items() if at_s < started_s + (n - 19) / 10 - TICK_S]
    assert sorted(arrivals.came) == list(range(20, 30))
    assert not early, (started_s, arrivals.came)


def test_a_recorded_clock_that_went_back_puts_no_row_in_front_of_an_earlier_one_of_its_key(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    # Of ten rows of a key the last three have times from before the first.
    at_us = [(START_S + number // KEYS - (20 if number // KEYS % 10 > 6 else 0)) * 1_000_000 for number in range(210)]
    rows = {
        "body": [b"%d" % number for number in range(210)],
        "routing_key": [f"key.{number % KEYS}" for number in range(210)],
        "timestamp": pa.array(at_us, pa.timestamp("us", "UTC")),
        "offset": pa.array(range(210), pa.int64()),
    }
    table = tmp_path / "table"
    table.mkdir()
    pq.write_table(pa.table(rows), table / "x.parquet")
    declare(uri, name, name)
    replay(spark, uri, table, name, speed=FAST, lanes=2)
    assert by_key(drain(uri, name)) == expected(210)


def test_a_replay_to_a_broker_under_a_memory_alarm_waits_and_goes_on(
    spark: SparkSession, live: LiveBroker, tmp_path: Path
):
    table = make_table(tmp_path / "table", 3000)
    declare(live.uri, "q", "x")
    set_memory(live, 1)
    asked = Wanted(uri=live.uri, table=str(table), exchange="x", checkpoint=tmp_path / "c", window=100)
    lines = Lines()
    job = Replay(asked, threading.Event(), lines, lines)
    assert job.prepare()
    runner = threading.Thread(target=job.run, args=(spark,))
    runner.start()
    try:
        wait_until(lambda: "blocked" in sink_states(live), STARTS_S)
        assert live.count("q") == 0
    finally:
        set_memory(live, PLENTY)
        runner.join()
        job.close()
    assert lines[-1].startswith("done: 3000 rows")
    assert by_key(drain(live.uri, "q")) == expected(3000)


def sink_states(live: LiveBroker) -> list[str]:
    return live.call(
        lambda: [
            one.flow_state()
            for one in live.connections()
            if one.client_properties.get("connection_name") == "spark sink"  # none before it has said who it is
        ]
    )


def test_what_was_archived_comes_back_with_its_properties_headers_and_body(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    bodies = [json.dumps({"id": n, "type": "t"}, separators=(",", ":")).encode() for n in range(40)]
    fill(uri, name, [*bodies, b"\xffno json"], "stream")
    declare(uri, f"{name}b", f"{name}x")
    archive(spark, uri, tmp_path / "a", stream=name, json="id long, type string", partition_by="day,routing_key")
    replay(spark, uri, tmp_path / "a", f"{name}x", deduplicate=False)
    found = drain(uri, f"{name}b")
    assert [message.body for message in found] == [*bodies, b"\xffno json"]  # made anew of the columns, but the last
    assert [message.properties for message in found] == [properties_of(n) for n in range(41)]
    assert {(message.exchange, message.routing_key) for message in found} == {(f"{name}x", name)}


def test_an_archive_may_grow_and_be_merged_while_it_is_replayed(
    spark: SparkSession, uri: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compaction, "FILES_MIN", 2)
    fill(uri, name, (b"%d" % n for n in range(100)), "stream")
    archive(spark, uri, tmp_path / "a", stream=name)
    before = find_table(str(tmp_path / "a"))
    declare(uri, f"{name}b", f"{name}x")
    replay(spark, uri, tmp_path / "a", f"{name}x", checkpoint=tmp_path / "c", where="offset < 60")
    fill(uri, name, (b"%d" % n for n in range(100, 130)), "stream")
    archive(spark, uri, tmp_path / "a", stream=name)
    assert any("merged" in one for one in table_files(tmp_path / "a"))
    assert was_merged(before)
    assert not was_merged(find_table(str(tmp_path / "a")))
    # As if the first run had ended in the middle.
    state = ReplayState(tmp_path / "c")
    for mark in (tmp_path / "c").glob("lane-*.json"):
        mark.unlink()
    assert not state.confirmed()
    replay(spark, uri, tmp_path / "a", f"{name}x", checkpoint=tmp_path / "c", where="offset < 60")
    # All of it was sent once more, with the same ids: the queue has it once.
    assert [int(message.body) for message in drain(uri, f"{name}b")] == list(range(60))


def make_archive(directory: Path, count: int) -> Path:
    """The same rows in the same files, as an archive."""
    columns = ("body", "routing_key", "timestamp", "offset", "partition")
    files = ArchiveFiles(directory)
    schema = json.dumps(Shape(columns, (), None, False).schema().jsonValue())
    files.write_label(Label("stream", "s", "/", columns, (), None, False, schema=schema))
    staged = files.staged("batch-0")
    staged.parent.mkdir()
    files.put(0, make_table(staged, count), 0)
    files.close()
    return directory


def merge(directory: Path) -> None:
    files = ArchiveFiles(directory)
    assert compaction.compact(files, threading.Event(), Lines()) == 2
    files.close()


@pytest.mark.parametrize("planned", [False, True])
def test_an_archive_may_be_merged_between_a_replay_s_look_and_its_reading(
    spark: SparkSession, uri: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, planned: bool
):
    monkeypatch.setattr(compaction, "FILES_MIN", 2)
    table = make_archive(tmp_path / "a", 100)
    declare(uri, name, name)
    looks = iter(range(1000))

    def merged_before(session: SparkSession, found: Table, *pins: Any) -> DataFrame:
        if planned and not next(looks):
            merge(table)
        return read_pinned(session, found, *pins)

    monkeypatch.setattr(replaying, "read_pinned", merged_before)
    lines = Lines()
    job = Replay(Wanted(uri, str(table), name), threading.Event(), lines, lines)
    assert job.prepare()
    if not planned:
        merge(table)
    job.run(spark)
    job.close()
    assert lines[-1].startswith("done: 100 rows")
    assert by_key(drain(uri, name)) == expected(100)


def test_an_archive_may_be_merged_between_a_dry_run_s_look_and_its_reading(
    spark: SparkSession, uri: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(compaction, "FILES_MIN", 2)
    table = make_archive(tmp_path / "a", 20)
    lines = Lines()
    job = Replay(Wanted(uri, str(table), name), threading.Event(), lines, lines)
    assert job.prepare(connect=False)
    merge(table)
    job.show(spark)
    job.close()
    assert lines[0].startswith(f"20 rows of {table} (1 files) would go to exchange {name!r}")
    assert len(lines) == 12


def test_an_archive_whose_path_looks_like_a_pattern_is_replayed(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    fill(uri, name, (b"%d" % n for n in range(50)), "stream")
    declare(uri, f"{name}b", f"{name}x")
    for path in ("a[1]{2,3}*?", "b]}[{"):
        archive(spark, uri, tmp_path / path, stream=name, partition_by="day")
        replay(spark, uri, tmp_path / path, f"{name}x", deduplicate=False)
        assert [int(message.body) for message in drain(uri, f"{name}b")] == list(range(50)), path


def test_a_dry_run_shows_what_would_be_sent_and_sends_nothing(spark: SparkSession, uri: str, name: str, tmp_path: Path):
    table = make_table(tmp_path / "table", 100, per_s=10)
    declare(uri, name, name)
    lines = Lines()
    job = Replay(Wanted(uri=uri, table=str(table), exchange=name, speed=1.0), threading.Event(), lines, lines)
    assert job.prepare(connect=False)
    job.show(spark)
    job.close()
    assert lines[0].startswith(f"100 rows of {table} (3 files) would go to exchange {name!r}")
    assert ", 7 keys in" in lines[0]
    assert lines[0].endswith("within 9.9 s")
    assert lines[1] == "  'key.0' 1 bytes '0'"
    assert lines[-1] == "  and 90 more"
    assert count(uri, name) == 0


def test_any_table_can_be_replayed_with_its_key_order_and_columns_named(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    numbers = [n * 37 % 101 for n in range(101)]
    table = pa.table({"customer": [f"c{n % 3}" for n in numbers], "at": numbers, "note": ["same"] * 101})
    (tmp_path / "t").mkdir()
    pq.write_table(table, tmp_path / "t" / "x.parquet")
    declare(uri, name, name)
    replay(
        spark, uri, tmp_path / "t", name, key="customer", order_by="at", body="json", routing_key="all", mandatory=True
    )
    kept: dict[str, list[int]] = {}
    for message in drain(uri, name):
        row = json.loads(message.body)
        kept.setdefault(row["customer"], []).append(row["at"])
        assert (message.routing_key, row["note"]) == ("all", "same")
    assert kept == {f"c{key}": list(range(key, 101, 3)) for key in range(3)}


def test_a_table_of_the_catalog_can_be_replayed_and_is_refused_when_it_has_changed(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    table = make_table(tmp_path / "table", 100)
    declare(uri, name, name)
    spark.sql(f"CREATE TABLE catalogued_{name} USING parquet LOCATION '{table}'")
    try:
        given = {"checkpoint": tmp_path / "c", "speed": FAST, "lanes": 2}
        replay(spark, uri, Path(f"catalogued_{name}"), name, **given)
        assert by_key(drain(uri, name)) == expected(100)
        assert replay(spark, uri, Path(f"catalogued_{name}"), name, **given)[-1].startswith("done: 0 rows")
        pq.write_table(pq.read_table(table / "2.parquet"), table / "3.parquet")
        spark.catalog.refreshTable(f"catalogued_{name}")
        ReplayState(tmp_path / "c").put_mark(0, Mark(1, 0))
        with pytest.raises(Complaint, match=f"catalogued_{name} has changed since the replay began"):
            replay(spark, uri, Path(f"catalogued_{name}"), name, **given)
    finally:
        spark.sql(f"DROP TABLE catalogued_{name}")


def test_columns_with_a_dot_in_their_names_are_replayed_too(spark: SparkSession, uri: str, name: str, tmp_path: Path):
    bodies = [json.dumps({"a.b": str(n % 3), "c`d": n}, separators=(",", ":")).encode() for n in range(30)]
    fill(uri, name, bodies, "stream")
    declare(uri, f"{name}b", f"{name}x")
    archive(spark, uri, tmp_path / "a", stream=name, json="infer")
    replay(spark, uri, tmp_path / "a", f"{name}x", key="a.b", order_by="c`d", lanes=2)
    assert sorted(message.body for message in drain(uri, f"{name}b")) == sorted(bodies)
    replay(spark, uri, tmp_path / "a", f"{name}x", body="json", key="a.b")
    found = [json.loads(message.body) for message in drain(uri, f"{name}b")]
    assert sorted(found, key=lambda one: one["c`d"]) == [json.loads(body) for body in bodies]
    lines = Lines()
    asked = Wanted(uri, str(tmp_path / "a"), name, key="a.b", order_by="c`d,a.b", body="a.b")
    job = Replay(asked, threading.Event(), lines, lines)
    assert job.prepare(connect=False)
    job.show(spark)
    assert ", 3 keys in" in lines[0]
    assert lines[2] == f"  {name!r} 1 bytes '1'"


def test_an_empty_routing_key_that_named_a_directory_is_empty_again(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    for number, directory in enumerate(("__HIVE_DEFAULT_PARTITION__", "a%2Fb")):  # as Spark writes them
        path = tmp_path / "t" / f"routing_key={directory}"
        path.mkdir(parents=True)
        pq.write_table(pa.table({"body": [b"%d" % number], "offset": [number]}), path / "x.parquet")
    declare(uri, name, name)
    replay(spark, uri, tmp_path / "t", name)
    assert by_key(drain(uri, name)) == {"": [0], "a/b": [1]}


def test_a_checkpoint_belongs_to_its_vhost_and_an_old_one_that_does_not_say_it_goes_on(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    table = make_table(tmp_path / "table", 10)
    declare(uri, name, name)
    replay(spark, uri, table, name, checkpoint=tmp_path / "c")
    plan = tmp_path / "c" / PLAN
    written = json.loads(plan.read_text())

    def again() -> Lines:
        plan.write_text(json.dumps(written))
        return replay(spark, uri, table, name, checkpoint=tmp_path / "c")

    written["terms"]["vhost"] = "other"
    with pytest.raises(Complaint, match="belongs to another replay: vhost other, not /; name another checkpoint"):
        again()
    del written["terms"]["vhost"]
    written["begun"]["broker"] = "elsewhere:5672"
    assert again()[0] == "going on: 10 of 10 rows are confirmed by the broker at elsewhere:5672"
    del written["begun"]["broker"]
    assert again()[0] == "going on: 10 of 10 rows are confirmed"


def test_rabbitmq_gets_every_key_in_order_too(spark: SparkSession, rabbitmq: str, name: str, tmp_path: Path):
    table = make_table(tmp_path / "table", 3000)
    declare(rabbitmq, name, name)
    replay(spark, rabbitmq, table, name, checkpoint=tmp_path / "c", window=200)
    assert by_key(drain(rabbitmq, name)) == expected(3000)


def test_what_is_wrong_is_one_line(spark: SparkSession, uri: str, name: str, tmp_path: Path):
    table = make_table(tmp_path / "table", 10)
    declare(uri, name, name)
    (tmp_path / "empty").mkdir()
    bare = tmp_path / "bare"
    bare.mkdir()
    pq.write_table(pa.table({"x": [1]}), bare / "x.parquet")
    cases: dict[str, dict[str, Any]] = {
        "there is no such directory": {"table": tmp_path / "nowhere"},
        "has no Parquet files in it": {"table": tmp_path / "empty"},
        "there is neither a directory nor a table": {"table": Path("nowhere")},
        "404 NOT_FOUND - no exchange 'nowhere'": {"exchange": "nowhere"},
        "--speed is above 0": {"speed": 0.0},
        "--window is 1 or more": {"window": 0},
        "--key: the table has no column 'colour'": {"key": "colour"},
        "--time: the column 'offset' is bigint, not a timestamp": {"speed": 1.0, "time": "offset"},
        "--where: ": {"where": "colour = 1"},
        "neither a column offset nor timestamp": {"table": bare},
        "312 NO_ROUTE": {"exchange": "amq.topic", "mandatory": True},
        "all 9 lanes must run at once": {"speed": 1.0, "lanes": 9},
    }
    for told, wanted in cases.items():
        given = {"table": table, "exchange": name, **wanted}
        with pytest.raises(Complaint) as caught:
            replay(spark, uri, **given)
        assert told in str(caught.value)
        assert "\n" not in str(caught.value)
    (table / "1.parquet").write_bytes(b"PAR1 and then nothing PAR1")
    with pytest.raises(Exception, match=r"1\.parquet") as damaged:  # Spark's own, which pipeline/common.py makes a line
        replay(spark, uri, table, name)
    said = line_of(damaged.value)
    assert said is not None
    assert "1.parquet" in said
    assert "\n" not in said
    assert count(uri, name) == 0


def test_a_function_that_spark_does_not_know_is_one_line_and_leaves_nothing_where_the_command_runs(
    uri: str, name: str, tmp_path: Path
):
    table = make_table(tmp_path / "table", 1)
    declare(uri, name, name)
    there = tmp_path / "cwd"
    there.mkdir()
    given = ("--uri", uri, "--from", str(table), "--exchange", name, "--where", "colour(body) = 1")
    with JobProcess(there, "penstock", "pipeline", "replay", *given, "--master", "local[1]") as job:
        assert job.process.wait(LIMIT_S) == 1, job.log
    assert "penstock: --where: " in job.log
    assert "colour" in job.log
    assert "Traceback" not in job.log
    assert [one.name for one in there.iterdir()] == ["job.log"]

"""The flow job: events become tables batch by batch, the same tables that all of them at once would make."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from penstock.spark.complaint import Complaint
from penstock.spark.ledger import Change, Ledger, append, replace
from penstock.spark.ledger.compact import compact
from penstock.spark.ledger.manifest import moment
from penstock.spark.tables.quality import RULES
from penstock.spark.tables.schema import DERIVED, WATERMARK_S, schema
from tests.spark.pipeline.archiving import archive
from tests.spark.pipeline.flowsite import (
    SILENT,
    STREAM,
    declare_events,
    derived_rows,
    differences,
    event_rows,
    fail_login,
    next_offset,
    offsets_of,
    publish_events,
)
from tests.spark.pipeline.histories import EPOCH_US, SECOND, History, channel, connection
from tests.wire.live import ROOT, ServeProcess, serve_environment
from tests.wire.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = 40
WINDOW_S = 5
MOVED = 20  # events that come late, and as many that come twice
SPARSE_EVENTS = 3000  # a window each
SPARSE_S = 10
KEPT = datetime.fromtimestamp(EPOCH_US / 1e6, UTC) - timedelta(days=20)  # days that are over, and are kept
GONE = datetime(2020, 1, 1, tzinfo=UTC)
RESTARTED, SILENT_ONE = connection(7), connection(8)


def bodies_of(seed: int, seconds: int) -> list[str]:
    """A history as it is published: some of it late, by less than its whole length, and some of it twice. At its end
    the broker starts again while one is blocked, and is silent while another is."""
    history = History(seed, seconds)
    bodies = [json.dumps(event) for event in history.events]
    dice = Random(seed)
    for _ in range(MOVED):
        at = dice.randrange(len(bodies) // 2)
        bodies.insert(dice.randrange(at, len(bodies)), bodies.pop(at))
        bodies.insert(dice.randrange(len(bodies)), dice.choice(bodies))
    history.events.clear()
    end_us = history.begin_us + seconds * SECOND
    blocked(history, RESTARTED, end_us + SECOND)
    history.events.append({"v": 1, "type": "recovery", "at_us": end_us + 5 * SECOND, "clean": False})
    blocked(history, SILENT_ONE, end_us + 6 * SECOND)
    history.second(end_us + (6 + WATERMARK_S) * SECOND)
    return bodies + [json.dumps(event) for event in history.events]


def blocked(history: History, stage: str, at_us: int) -> None:
    about = {"stage": stage, "kind": "connection", "cause": channel(1), "chain": [stage, channel(1)], "count": 1}
    history.events.append({"v": 1, "type": "blocked", "at_us": at_us, **about})


def at_us(body: str) -> int:
    return int(json.loads(body)["at_us"])


def of_old(table: str, *windows: datetime) -> Change:
    """A row for each of these windows, as if they had been there for long."""
    known = {"table": "verdicts", "rule": "of old", "rows": 1, "failures": 0, "late": True, "offset": -1, "body": "{}"}
    shape = to_arrow_schema(schema(table), timezone="UTC")
    rows = [{**known, "window": window, "day": window.date(), "at": window} for window in windows]
    return append(table, pa.Table.from_pylist([{one.name: row.get(one.name) for one in shape} for row in rows], shape))


@pytest.fixture(scope="module")
def silent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """A broker whose events stream is this module's to write."""
    process = ServeProcess(tmp_path_factory.mktemp("silent"), *SILENT)
    assert process.port, process.log
    declare_events(process.uri)
    yield process
    process.kill()


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `streamed` leaves a copy of its tables as the first of its jobs made them."""
    return tmp_path_factory.mktemp("half") / "tables"


@pytest.fixture(scope="module")
def streamed(spark: SparkSession, silent: ServeProcess, half: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables made of a history in several batches, by two jobs one after the other. Before the second, there are small
    files of days that are over."""
    from penstock.spark.flowjob import FlowJob, FlowSettings
    from penstock.spark.flowjob.plans import Prepared

    root = tmp_path_factory.mktemp("streamed")
    bodies = bodies_of(7, SECONDS)
    middle = len(bodies) // 2
    first, second = bodies[:middle], bodies[middle:]
    assert min(map(at_us, second)) < max(map(at_us, first)) - 2 * WINDOW_S * 1_000_000, "nothing comes late"
    for part in (first, second):
        publish_events(silent.uri, part)
        with Ledger(root).writing() as ledger:
            job = FlowJob(spark, ledger, FlowSettings(silent.uri, root, WINDOW_S, batch_events=middle - 50))
            job.run(once=True)
            assert isinstance(job._batch._made, Prepared), "plans that cannot be run again"
            if part is first:
                shutil.copytree(root, half)
                for _ in range(2):
                    ledger.commit(None, [of_old("quality", KEPT, GONE), of_old("events", GONE)])
    return root


def test_every_event_is_there_once(streamed: Path, silent: ServeProcess):
    assert offsets_of(streamed) == list(range(next_offset(silent.uri)))


def test_batches_make_the_tables_that_a_rebuild_of_an_archive_in_pieces_makes(
    spark: SparkSession, streamed: Path, silent: ServeProcess, tmp_path: Path
):
    from penstock.spark.flowjob import rebuild

    archive(spark, silent.uri, tmp_path / "archive", stream=STREAM)
    tables = tmp_path / "tables"
    with Ledger(tables).writing() as ledger:
        done = rebuild(spark, ledger, WINDOW_S, tmp_path / "archive", piece_events=len(offsets_of(streamed)) // 3)
    assert done.events == len(offsets_of(streamed))
    assert len(Ledger(tables).parts("samples")) >= 3
    made = derived_rows(tables)
    assert sum(map(len, made.values())) > 100
    assert_page_is_of(Ledger(tables))
    assert not differences(made, derived_rows(streamed))
    # The job goes on behind it.
    assert Ledger(tables).manifest().marks == Ledger(streamed).manifest().marks


def test_a_job_goes_on_behind_a_rebuild_and_small_files_that_were_merged(
    spark: SparkSession, streamed: Path, half: Path, silent: ServeProcess
):
    from penstock.spark.flowjob import FlowJob, FlowSettings, rebuild
    from penstock.spark.flowjob.batch import NEWEST

    def merge() -> int:
        return compact(ledger, moment(ledger.manifest().marks[NEWEST]), set(), files_min=2)

    with Ledger(half).writing() as ledger:
        rebuild(spark, ledger, WINDOW_S, piece_events=len(offsets_of(half)) // 2)
        assert merge() > 0
        FlowJob(spark, ledger, FlowSettings(silent.uri, half, WINDOW_S, batch_events=400)).run(once=True)
        assert merge() > 0
    assert offsets_of(half) == [offset for offset in offsets_of(streamed) if offset >= 0]
    assert not differences(derived_rows(half), derived_rows(streamed))


def test_a_crash_between_the_two_steps_of_a_rebuild_leaves_nothing_that_is_said_of_the_old_tables(
    spark: SparkSession, streamed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from penstock.spark.flowjob import rebuild
    from penstock.spark.flowjob.batch import OFFSETS_RULE, gap_row

    class Crash(BaseException):
        """The process is gone."""

    def crash(*arguments: object) -> None:
        raise Crash

    few = Ledger(streamed).arrow("events").slice(0, 50)
    with Ledger(tmp_path).writing() as ledger:
        gap = gap_row(4, KEPT)
        ledger.commit(None, [append("events", few), of_old("quality", KEPT), append("quality", gap)], window_s=WINDOW_S)
        derived = [of_old("depth", KEPT)]
        monkeypatch.setitem(vars(sys.modules[rebuild.__module__]), "pieces", lambda *pieces: derived)
        monkeypatch.setattr("penstock.spark.tables.quality.checks", crash)
        with pytest.raises(Crash):
            rebuild(spark, ledger, WINDOW_S)
        assert ledger.tables() == ["depth", "events", "quality"]
        (row,) = ledger.arrow("quality").to_pylist()
    assert (row["rule"], row["failures"]) == (OFFSETS_RULE, 4)


def days(ledger: Ledger, table: str) -> list[str]:
    """Of each file."""
    return [part.day for part in ledger.manifest().tables[table]]


def test_small_files_are_one_after_a_run_that_ends(streamed: Path):
    assert days(Ledger(streamed), "quality").count(str(KEPT.date())) == 1
    assert Ledger(streamed).arrow("quality", until=KEPT + timedelta(days=1)).num_rows == 2


def test_a_job_drops_days_that_are_older_than_they_are_kept(streamed: Path):
    for table in ("quality", "events"):
        assert str(GONE.date()) not in days(Ledger(streamed), table)


def test_a_job_that_goes_on_for_ever_merges_and_drops_now_and_then(spark: SparkSession, tmp_path: Path):
    from penstock.spark.flowjob import FlowJob, FlowSettings
    from penstock.spark.flowjob.batch import NEWEST
    from penstock.spark.flowjob.job import COMPACT_EVERY

    with Ledger(tmp_path).writing() as ledger:
        for windows in ((KEPT, GONE), (KEPT,)):
            ledger.commit(None, [of_old("quality", *windows)], marks={NEWEST: EPOCH_US})
        job = FlowJob(spark, ledger, FlowSettings("amqp://127.0.0.1", tmp_path))
        job._batches = 1
        job._tidy()
        assert days(ledger, "quality") == [str(KEPT.date())] * 2
        job._batches = COMPACT_EVERY
        job._tidy()
        assert days(ledger, "quality") == [str(KEPT.date())]


def test_a_rebuild_keeps_what_is_known_of_events_that_were_never_read(tmp_path: Path):
    from penstock.spark.flowjob.batch import OFFSETS_RULE, gap_row
    from penstock.spark.flowjob.rebuild import never_read

    with Ledger(tmp_path).writing() as ledger:
        ledger.commit(None, [of_old("quality", KEPT)])
        assert not never_read(ledger, 20).num_rows
        for gap, second in ((4, 25), (3, 35)):
            ledger.commit(None, [append("quality", gap_row(gap, KEPT + timedelta(seconds=second)))])
        (row,) = never_read(ledger, 20).to_pylist()
    assert (row["rule"], row["failures"], row["batch"]) == (OFFSETS_RULE, 4 + 3, -1)
    assert row["window"] == KEPT + timedelta(seconds=20)


def test_a_rebuild_of_more_windows_than_the_driver_can_hold_rows_of_quality_counts_them_all(tmp_path: Path):
    from penstock.spark.flowjob.batch import OFFSETS_RULE, gap_row

    tables = tmp_path / "tables"
    used = {"memory_used_bytes": 10**6, "memory_limit_bytes": 10**8}
    free = {"disk_free_bytes": 10**9, "disk_limit_bytes": 10**6}
    there = {"type": "resources", "connections": 3, "channels": 3, "queues": 2, **used, **free}
    events = [
        {"v": 1 if number % 10 else 2, "at_us": EPOCH_US + number * SPARSE_S * SECOND, **there}
        for number in range(SPARSE_EVENTS)
    ]
    with Ledger(tables).writing() as ledger:
        changes = [append("events", event_rows(events, SPARSE_S)), append("quality", gap_row(4, KEPT))]
        ledger.commit(None, changes, window_s=SPARSE_S)
    # What one job of Spark may give to the driver: some thousand rows.
    little = {"PYSPARK_SUBMIT_ARGS": "--conf spark.driver.maxResultSize=1m pyspark-shell"}
    run = subprocess.run(
        command("--tables", str(tables), "--rebuild", "--window", str(SPARSE_S)),
        capture_output=True,
        text=True,
        env=serve_environment(little),
        cwd=ROOT,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    ledger = Ledger(tables)
    quality = ledger.arrow("quality")
    failed = {row["rule"]: row["failures_sum"] for row in of_rules(quality, "failures") if row["failures_sum"]}
    assert failed == {"its version is 1": SPARSE_EVENTS // 10, OFFSETS_RULE: 4}
    made = sum(ledger.rows(name) for name in ledger.tables() if name in DERIVED)
    assert made >= SPARSE_EVENTS
    failures = SPARSE_EVENTS // 10 + 4
    assert run.stdout == f"rebuilt: {SPARSE_EVENTS:,} events, {made:,} rows, {failures:,} quality failures\n"
    for row in of_rules(quality, "rows"):
        assert row["rows_sum"] == (4 if row["rule"] == OFFSETS_RULE else ledger.rows(row["table"])), row
    assert set(quality["batch"].to_pylist()) == {-1}
    assert len(ledger.parts("quality")) == len({part.day for part in ledger.parts("quality")}), "a file for each day"
    assert_page_is_of(ledger)


def of_rules(quality: pa.Table, column: str) -> list[dict[str, Any]]:
    """The sum of a column of `quality` in all windows, by table and rule."""
    rows: list[dict[str, Any]] = quality.group_by(["table", "rule"]).aggregate([(column, "sum")]).to_pylist()
    return rows


def test_failures_of_a_rule_are_counted_in_all_windows():
    from penstock.spark.flowjob.batch import failures_of

    judged = {
        "table": ["blocks", "blocks", "blocks", "depth"],
        "rule": ["its end was told", "its end was told", "count is 1 or more", "stage is known"],
        "failures": [2, 3, 0, 1],
    }
    assert failures_of(pa.table(judged)) == {"blocks: its end was told": 5, "depth: stage is known": 1}


def test_quality_counts_each_row_of_a_table_once_for_each_of_its_rules(streamed: Path):
    ledger = Ledger(streamed)
    quality = ledger.arrow("quality")
    assert set(quality["table"].to_pylist()) <= set(ledger.tables())
    for name in ("events", *DERIVED):
        assert ledger.rows(name), name
        of_table = quality.filter(pc.equal(quality["table"], name))
        for rule in RULES[name]:
            counted = pc.sum(of_table.filter(pc.equal(of_table["rule"], rule.name))["rows"]).as_py()
            assert counted == ledger.rows(name), (name, rule)


def test_a_job_closes_blocks_in_each_of_the_ways_there_are(streamed: Path):
    blocks = Ledger(streamed).arrow("blocks")
    assert set(blocks["closed_by"].to_pylist()) == {"unblocked", "lost", "restart", "watermark"}
    ways = dict(zip(blocks["stage"].to_pylist(), blocks["closed_by"].to_pylist(), strict=True))
    assert (ways[RESTARTED], ways[SILENT_ONE]) == ("restart", "watermark")


def test_the_page_is_written_beside_the_tables_and_has_the_last_of_their_windows(streamed: Path):
    assert_page_is_of(Ledger(streamed))


def assert_page_is_of(ledger: Ledger) -> None:
    """It has their last window, in each of its ranges."""
    page = json.loads((ledger.root / "page.json").read_text("utf-8"))
    newest, window_s = ledger.newest(), ledger.window_s
    assert newest is not None
    assert window_s is not None
    assert set(page["ranges"]) == {"15m", "1h", "24h"}
    for name, one in page["ranges"].items():
        assert one["until_ms"] >= (newest.timestamp() + window_s) * 1000, name


def test_a_job_on_tables_that_have_everything_adds_nothing(spark: SparkSession, streamed: Path, silent: ServeProcess):
    from penstock.spark.flowjob import FlowJob, FlowSettings

    before = offsets_of(streamed)
    with Ledger(streamed).writing() as ledger:
        FlowJob(spark, ledger, FlowSettings(silent.uri, streamed, WINDOW_S)).run(once=True)
    assert offsets_of(streamed) == before


def test_a_stop_after_the_last_batch_of_a_run_that_ends_is_no_interruption(
    spark: SparkSession, streamed: Path, silent: ServeProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from penstock.spark.flowjob import FlowJob, FlowSettings

    shutil.copytree(streamed, tmp_path / "tables")
    settings = FlowSettings(silent.uri, tmp_path / "tables", WINDOW_S)
    with Ledger(tmp_path / "tables").writing() as ledger:
        job = FlowJob(spark, ledger, settings)
        monkeypatch.setattr(job, "_compact", job.stop)
        job.run(once=True)
        assert job.stopping.is_set()
        assert job.finished, "all that was there is in the tables"
        job = FlowJob(spark, ledger, settings)
        job.stop()
        job.run(once=True)
        assert not job.finished


def test_what_makes_no_sense_is_one_line(spark: SparkSession, streamed: Path, silent: ServeProcess, tmp_path: Path):
    from penstock.spark.flowjob import FlowJob, FlowSettings, rebuild

    with Ledger(streamed).writing() as ledger:
        with pytest.raises(Complaint, match="have windows of 5 s: say --window 5, or --rebuild --window 7 once"):
            FlowJob(spark, ledger, FlowSettings(silent.uri, streamed, 7)).run(once=True)
        with pytest.raises(Complaint, match="--window is 1 to 600 seconds, not 0"):
            FlowJob(spark, ledger, FlowSettings(silent.uri, streamed, 0))
        with pytest.raises(Complaint, match="--progress is above 0 and up to 86400 seconds, not 0"):
            FlowJob(spark, ledger, FlowSettings(silent.uri, streamed, WINDOW_S, progress_s=0.0))
    with Ledger(tmp_path).writing() as ledger:
        with pytest.raises(Complaint, match=r"there are no events in .* to rebuild from"):
            rebuild(spark, ledger, WINDOW_S)
        with pytest.raises(Complaint, match="there is no archive in"):
            rebuild(spark, ledger, WINDOW_S, tmp_path / "nowhere")
        orders = tmp_path / "orders"
        orders.mkdir()
        pq.write_table(pa.table({"offset": [0, 1], "body": [b"an order", b"another"]}), orders / "part.parquet")
        with pytest.raises(Complaint, match=r"has no events: it must be one of the stream penstock\.events"):
            rebuild(spark, ledger, WINDOW_S, orders)
        assert not (ledger.staging / "archive").exists()
        assert not ledger.tables()


@pytest.mark.parametrize(
    ("ahead", "last", "said"), [(1000, None, r"ends at \d+: it is another broker's"), (0, 1, "has another event there")]
)
def test_tables_of_another_broker_are_refused_also_when_its_stream_is_longer(
    spark: SparkSession, streamed: Path, silent: ServeProcess, tmp_path: Path, ahead: int, last: int | None, said: str
):
    from penstock.spark.flowjob import FlowJob, FlowSettings
    from penstock.spark.flowjob.batch import EVENTS_STREAM, LAST

    shutil.copytree(streamed, tmp_path / "tables")
    with Ledger(tmp_path / "tables").writing() as ledger:
        known = ledger.manifest().marks
        marks = {EVENTS_STREAM: known[EVENTS_STREAM] + ahead, LAST: known[LAST] if last is None else last}
        ledger.commit(None, [], marks=marks)
        with pytest.raises(Complaint, match=said):
            FlowJob(spark, ledger, FlowSettings(silent.uri, tmp_path / "tables", WINDOW_S)).run(once=True)


@pytest.mark.parametrize("once", [True, False])
def test_a_job_with_tables_waits_for_its_broker_and_one_that_runs_once_not_for_ever(
    spark: SparkSession, streamed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: bool
):
    from penstock.spark.flowjob import FlowJob, FlowSettings
    from penstock.spark.flowjob import job as module

    looks = 0

    def is_there(self: FlowJob) -> bool:
        nonlocal looks
        looks += 1
        if looks == 20 and not once:  # so often it was away
            self.stop()
        return False

    monkeypatch.setattr(module, "AWAY_LOOK_S", (0.001, 0.001))
    monkeypatch.setattr(module, "START_S", 0.002)
    monkeypatch.setattr(FlowJob, "_is_there", is_there)
    shutil.copytree(streamed, tmp_path / "tables")
    with Ledger(tmp_path / "tables").writing() as ledger:
        job = FlowJob(spark, ledger, FlowSettings("amqp://127.0.0.1:1", tmp_path / "tables", WINDOW_S))
        if once:
            with pytest.raises(Complaint, match=r"127\.0\.0\.1:1.*; waited 0 s for the broker"):
                job.run(once)
        else:
            job.run(once)
            assert looks == 20


def test_the_line_for_operators_has_what_happened_since_the_last_one():
    from penstock.spark.flowjob.batch import Done
    from penstock.spark.flowjob.progress import Progress

    progress = Progress(60, clock=lambda: 0.0)
    assert progress.line(0, now=True) is None, "nothing happened"
    progress.add(Done(1, 300, 2, 40, None, {"blocks: its end was told": 3}, {"parse": 0.5, "derive": 1.0}))
    assert progress.line(0) is None, "not due yet"
    line = progress.line(7, now=True)
    assert line == (
        "1 batch, 300 events, 40 rows, slowest 1.5 s, behind by 7, 2 late, "
        "3 quality failures (blocks: its end was told: 3)"
    )
    assert progress.line(7, now=True) is None


def test_events_that_retention_took_are_counted_also_from_the_middle_of_a_batch(tmp_path: Path):
    from penstock.spark.flowjob.batch import EVENTS_STREAM, OFFSETS_RULE, FlowBatch
    from penstock.spark.flowjob.recent import shaped
    from penstock.spark.tables.schema import schema

    class Found:
        """Offsets 0 to 2, and 7 to 9; all of them too late for any window."""

        def parse(self, rows: object) -> pa.Table:
            at = datetime(2026, 11, 16, 12, tzinfo=UTC)
            table = {"window": at, "day": at.date(), "at": at, "body": "{}", "late": True}
            return pa.Table.from_pylist(
                [{**table, "offset": offset} for offset in (0, 1, 2, 7, 8, 9)],
                to_arrow_schema(schema("events"), timezone="UTC"),
            )

        def check(self, tables: object) -> dict[str, pa.Table]:
            return {"events": shaped(pa.table({"window": pa.array([], pa.timestamp("us", "UTC"))}), "quality")}

    with Ledger(tmp_path).writing() as ledger:
        ledger.commit(None, [], marks={EVENTS_STREAM: 0})
        batch = FlowBatch(None, ledger, 10)  # type: ignore[arg-type]
        batch._made = Found()  # type: ignore[assignment]
        done = batch.process(None, 0, "query")  # type: ignore[arg-type]
        assert done.events == 6
        (row,) = ledger.arrow("quality").to_pylist()
        assert (row["rule"], row["failures"]) == (OFFSETS_RULE, 4)
        assert ledger.manifest().marks[EVENTS_STREAM] == 10


def test_a_clock_that_was_set_back_does_not_make_everything_late(tmp_path: Path):
    from penstock.spark.flowjob.batch import FlowBatch
    from penstock.spark.tables.windows import micros

    def events(*minutes: int) -> pa.Table:
        at = [datetime(2026, 11, 16, 12, tzinfo=UTC) + timedelta(minutes=one) for one in minutes]
        return pa.table(
            {
                "offset": pa.array(range(len(at)), pa.int64()),
                "at": pa.array(at, pa.timestamp("us", tz="UTC")),
                "late": pa.array([False] * len(at)),
            }
        )

    batch = FlowBatch(None, Ledger(tmp_path), 10)  # type: ignore[arg-type]
    known = micros(datetime(2026, 11, 16, 12, tzinfo=UTC))
    for known_us in (known, None):
        # In the middle of a batch: what comes behind has the new time.
        read, newest = batch._new(events(-30, 1, 2, -40, -39), known_us)
        assert read["late"].to_pylist() == [known_us is not None, False, False, False, False]
        assert newest == known - 39 * 60_000_000
        # One alone is a straggler, and so are those that others follow.
        for late in ((1, 2, -40), (1, -40, -39, 2)):
            read, newest = batch._new(events(*late), known_us)
            assert read["late"].to_pylist() == [known_us is not None and one < -10 for one in late]
            assert newest == known + 2 * 60_000_000
    read, newest = batch._new(events(-30, -5, 1), known)
    assert read["late"].to_pylist() == [True, False, False]
    assert newest == known + 60_000_000
    read, newest = batch._new(events(-30, -29), known)
    assert read["late"].to_pylist() == [False, False]
    assert newest == known - 29 * 60_000_000


def test_what_was_there_before_a_clock_was_set_back_is_not_read_into_memory(tmp_path: Path):
    from penstock.spark.flowjob.recent import Recent

    noon = datetime(2026, 11, 16, 12, tzinfo=UTC)
    window = timedelta(seconds=10)
    with Ledger(tmp_path).writing() as ledger:
        for number in (0, 1, 2, 9000, 9001):
            ledger.commit(None, [of_old("events", noon + number * window)])
        recent = Recent(ledger, 10)
        assert recent.rows("events", noon, noon + 2 * window)["window"].to_pylist() == [noon, noon + window]
        held = recent._held["events"].rows
        assert held.num_rows == 2
        assert held["body"].null_count == 2
        # Whoever asks for more gets it, and what has come meanwhile.
        (fresh,) = (change.rows for change in [of_old("events", noon + window)])
        ledger.commit(None, [append("events", fresh)])
        recent.committed("events", fresh, None, noon + 2 * window)
        assert recent.rows("events", noon, noon + 2 * window).num_rows == 3
        assert recent.rows("events", noon, noon + 3 * window).num_rows == 4
        assert recent.rows("events", noon).num_rows == 6
        # Of a table whose later windows were replaced, there is nothing else any more.
        for number in (0, 9000):
            ledger.commit(None, [of_old("open", noon + number * window)])
        assert recent.rows("open", noon, noon + window).num_rows == 1
        now = of_old("open", noon + window).rows
        ledger.commit(None, [replace("open", now, noon + window)])
        recent.committed("open", now, noon + window, noon + window)
        assert recent._held["open"].until is None
        assert recent.rows("open", noon).num_rows == ledger.rows("open") == 2


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "penstock", "pipeline", "flow", "--master", "local[2]", *words]


def test_a_broker_that_is_not_there_is_one_line_and_exit_1(tmp_path: Path):
    run = subprocess.run(
        command("--uri", "amqp://127.0.0.1:1", "--tables", str(tmp_path / "tables")),
        capture_output=True,
        text=True,
        env=serve_environment(),
        cwd=ROOT,
        check=False,
    )
    lines = [line for line in run.stderr.splitlines() if line.startswith("penstock: ")]
    assert run.returncode == 1
    assert len(lines) == 1, run.stderr
    assert "Traceback" not in run.stderr


def test_the_command_says_when_it_is_ready_and_stops_with_exit_0(broker: ServeProcess, tmp_path: Path):
    """Of a real broker: its own events become rows."""
    tables = tmp_path / "tables"
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            command("--tables", str(tables), "--window", "1", "--trigger", "0.5"),
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=serve_environment({"PENSTOCK_URI": broker.uri}),
            cwd=ROOT,
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("pipeline ready: tables "), (tmp_path / "log").read_text()
        manifest = tables / "_ledger" / "manifest.json"
        wait_until(manifest.exists, 300, "the first commit")
        fail_login(broker.uri, "eve")
        # In the middle of the next batch, of which Spark has noted what it is to have.
        wait_until((tables / "_ledger/checkpoint/offsets/1").exists, 300, "the next batch")
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0, (tmp_path / "log").read_text()
        process.stdout.close()
    finally:
        process.kill()
        process.wait(60)
    found = offsets_of(tables)
    assert found == list(range(len(found)))
    assert "Traceback" not in (tmp_path / "log").read_text()

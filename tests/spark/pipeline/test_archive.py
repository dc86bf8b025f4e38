"""`penstock pipeline archive`: streams and queues to Parquet, every message once, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.cli import commands
from penstock.client.connection import Connection
from penstock.client.consumer import Consumer
from penstock.client.uri import parse_uri
from penstock.pipeline.stopping import Stopping
from penstock.spark.archive.compact import compact
from penstock.spark.archive.files import COMMIT, SPOOL, ArchiveFiles, Label, read_label, table_files
from penstock.spark.archive.job import Archive, Wanted, _line
from penstock.spark.archive.rows import SOURCE_COLUMNS
from penstock.spark.archive.wait import await_broker, look_for_queue, look_for_stream
from penstock.spark.complaint import Complaint
from penstock.spark.fault import SourceError, report_loss
from penstock.spark.jvm import JVM_GONE
from penstock.spark.ledger import disk
from tests.spark.pipeline.archiving import JobProcess, Lines, archive, fill, rows
from tests.spark.queuework import delete, ready
from tests.wire.waiting import LIMIT_S, wait_until

STARTS_S = 400.0  # a JVM on a machine that is very busy


# No JSON object, or one and something else, which must not be lost with the row that Spark makes of the first.
MORE = [
    b'{"id": 1}\n{"id": 2}',
    b'{"id": 1} rubbish',
    b'{"id": 1}]} rubbish',
    b'{"id": 1},"v":{"id": 2}',
    b'{"id": 1},{"id": 2}',
    b'{"id": 1}}',
    b'{"id": 1},',
    b"null",
    b'""',
    '{"id": 1, "type": "größer"}'.encode("latin-1"),
    b'\xef\xbb\xbf{"id": 1}',
]


def numbered(count: int, start: int = 0) -> Iterator[bytes]:
    return (b"%d" % number for number in range(start, start + count))


def orders(count: int, start: int = 0) -> Iterator[bytes]:
    return (json.dumps({"id": n, "amount": n / 2, "type": "t"}).encode() for n in range(start, start + count))


def committed(directory: Path) -> int:
    path = directory / COMMIT
    return int(json.loads(path.read_text())["rows"]) if path.exists() else 0


def await_batch(job: JobProcess, directory: Path) -> None:
    wait_until(lambda: committed(directory) or not job.running(), STARTS_S, f"a batch in {directory}")
    assert job.running(), job.log


def test_archives_of_a_stream_and_of_a_queue_that_are_killed_in_the_middle_have_every_message_once(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    count = 8_000
    fill(uri, f"{name}s", numbered(count), "stream")
    fill(uri, f"{name}q", numbered(count))
    asked = {"stream": f"{name}s", "queue": f"{name}q"}
    tables = {kind: tmp_path / kind for kind in asked}
    with JobProcess(tmp_path, "tests.spark.pipeline.archiver", uri, f"{name}s", f"{name}q", str(tmp_path)) as job:
        for table in tables.values():
            await_batch(job, table)
        job.kill()
    for kind, source in asked.items():
        before = committed(tables[kind])
        assert 0 < before < count
        lines = archive(spark, uri, tables[kind], **{kind: source})
        assert lines[-1].startswith(f"done: {count - before} rows of {kind} {source}")
        assert sorted(int(row["body"]) for row in rows(tables[kind])) == list(range(count))
    assert ready(uri, f"{name}q") == 0


def test_bodies_are_parsed_to_columns_and_those_that_do_not_parse_are_kept_and_counted(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    wrong = [
        b"no json",
        b"[1, 2]",
        b"7",
        b'{"id": "x"}',
        b"",
        b"\xff\xfe",
        b'{"id": 1',
        b'[{"id": 1}, {"id": 2}]',
        *MORE,
    ]
    fill(uri, name, [*orders(7200), *wrong], per_s=1)
    given = {"json": "id long, amount double, type string", "columns": "routing_key,offset"}
    lines = archive(spark, uri, tmp_path / "a", queue=name, partition_by="hour,json_type", **given)
    assert f", {len(wrong)} in all not parsed" in lines[-1]
    found = sorted(rows(tmp_path / "a"), key=lambda row: row["offset"])
    assert set(found[0]) == {"body", "routing_key", "offset", "id", "amount"}
    assert [(row["id"], row["amount"], row["body"]) for row in found[:7200]] == [(n, n / 2, None) for n in range(7200)]
    assert [(row["id"], row["amount"], row["body"]) for row in found[7200:]] == [(None, None, body) for body in wrong]
    # By the hour of the timestamp, which brings its day, and by a field, whose name a property of AMQP has too.
    assert sorted({str(Path(one).parent) for one in table_files(tmp_path / "a")}) == [
        "day=2023-11-14/hour=22/json_type=t",
        "day=2023-11-14/hour=23/json_type=t",
        "day=2023-11-15/hour=0/json_type=__HIVE_DEFAULT_PARTITION__",
        "day=2023-11-15/hour=0/json_type=t",
    ]
    read = spark.read.parquet(str(tmp_path / "a"))
    assert read.where("day = DATE '2023-11-15'").selectExpr("min(id)", "max(id)").collect() == [(6400, 7199)]


def test_an_inferred_schema_is_kept_for_the_runs_that_follow(spark: SparkSession, uri: str, name: str, tmp_path: Path):
    noise = [b"noise", b'{"id": 1, "lost": 2} rubbish', '{"\xe4": 1}'.encode("latin-1")]
    fill(uri, name, [*noise, *orders(50)], "stream")
    lines = archive(spark, uri, tmp_path / "a", stream=name, json="infer", keep_body=True)
    assert lines[0] == "inferred from 53 messages: amount:double,id:bigint,type:string"
    assert ", 3 in all not parsed" in lines[-1]
    label = read_label(tmp_path / "a")
    fill(uri, name, [b'{"id": 50, "colour": "red", "amount": 1.5}'], "stream")
    lines = archive(spark, uri, tmp_path / "a", stream=name, json="infer", keep_body=True)
    assert lines[0].startswith("1 rows, ")
    assert "0 behind" in lines[0]
    assert lines[-1].endswith(f"54 rows in {tmp_path / 'a'}")
    assert read_label(tmp_path / "a") == label
    last = max(rows(tmp_path / "a"), key=lambda row: row["offset"])
    assert (last["id"], last["amount"], last["json_type"]) == (50, 1.5, None)
    assert b"colour" in last["body"]  # kept on request


@pytest.mark.timeout(600)
def test_a_schema_of_the_command_line_holds_in_the_first_run_and_in_one_that_goes_on(
    uri: str, name: str, tmp_path: Path
):
    asked = ("penstock", "pipeline", "archive", "--uri", uri, "--queue", name, "--to", "a", "--master", "local[1]")
    for start in (0, 10):
        fill(uri, name, orders(10, start))
        with JobProcess(tmp_path, *asked, "--json", "id long, amount double") as job:
            assert job.process.wait(STARTS_S) == 0, job.log
        assert f"done: 10 rows of queue {name}" in job.log
    found = rows(tmp_path / "a")
    assert sorted((row["id"], row["amount"], row["body"]) for row in found) == [(n, n / 2, None) for n in range(20)]


def test_a_schema_that_is_none_is_refused_and_leaves_nothing_behind(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    fill(uri, name, orders(1), "stream")
    for given, told in {
        "id lang": "--json: 'id lang' is no list of names and types",
        " ": "--json: '' names no columns",
    }.items():
        with pytest.raises(Complaint, match=told):
            archive(spark, uri, tmp_path / "a", stream=name, json=given)
    assert not (tmp_path / "a").exists()


def follow(uri: str, queue: str, directory: Path) -> JobProcess:
    asked = ("--uri", uri, "--queue", queue, "--to", "a", "--follow", "--every", "0.1", "--master", "local[1]")
    return JobProcess(directory, "penstock", "pipeline", "archive", *asked)


@pytest.mark.timeout(600)
def test_a_signal_to_a_whole_group_ends_a_run_that_follows_in_order(uri: str, name: str, tmp_path: Path):
    fill(uri, name, numbered(10))
    with follow(uri, name, tmp_path) as job:
        await_batch(job, tmp_path / "a")
        fill(uri, name, numbered(2000, 10))
        wait_until(lambda: committed(tmp_path / "a") > 10, STARTS_S)
        os.killpg(job.process.pid, signal.SIGTERM)  # as systemd does: Spark's JVM gets it too
        assert job.process.wait(LIMIT_S) == 0, job.log
    assert "Traceback" not in job.log
    assert f"\nstopped: {committed(tmp_path / 'a')} rows of queue {name}" in job.log
    found = sorted(int(row["body"]) for row in rows(tmp_path / "a"))
    assert found == list(range(committed(tmp_path / "a")))


@pytest.mark.timeout(600)
def test_a_jvm_that_is_killed_is_one_line(uri: str, name: str, tmp_path: Path):
    fill(uri, name, numbered(10))
    with follow(uri, name, tmp_path) as job:
        await_batch(job, tmp_path / "a")
        (jvm,) = [one for one in psutil.Process(job.process.pid).children() if "java" in one.name()]
        jvm.kill()
        assert job.process.wait(LIMIT_S) == 1, job.log
    assert job.log.splitlines()[-1] == f"penstock: {JVM_GONE}"
    assert "Traceback" not in job.log


def test_a_run_that_follows_archives_what_comes_until_it_is_told_to_stop(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    fill(uri, name, numbered(10))
    stop, lines = threading.Event(), Lines()
    wanted = Wanted(uri=uri, to=tmp_path / "a", queue=name, follow=True, every_s=0.1)
    job = Archive(wanted, stop, lines, lines)
    assert job.prepare()
    runner = threading.Thread(target=job.run, args=(spark,))
    runner.start()
    try:
        wait_until(lambda: committed(tmp_path / "a") == 10, STARTS_S)
        fill(uri, name, numbered(10, 10))
        wait_until(lambda: committed(tmp_path / "a") == 20, STARTS_S)
    finally:
        stop.set()
        runner.join()
        job.close()
    assert lines[-1].startswith(f"stopped: 20 rows of queue {name}")
    assert sorted(int(row["body"]) for row in rows(tmp_path / "a")) == list(range(20))


def test_an_archive_that_is_used_again_for_another_stream_of_that_name_is_refused(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    fill(uri, name, numbered(10), "stream")
    wanted = Wanted(uri=uri, to=tmp_path / "a", stream=name, allow_gaps=True)
    # A first batch without rows, which only settles where it begins, leaves nothing to know the stream by.
    assert archive(spark, uri, tmp_path / "a", stream=name, start="latest")[-1].startswith("done: 0 rows")
    fill(uri, name, numbered(10, 10), "stream")
    archive(spark, uri, tmp_path / "a", stream=name)
    assert [int(row["body"]) for row in rows(tmp_path / "a")] == list(range(10, 20))
    prepare(wanted)
    for count, told in ((40, "has another message there"), (15, "ends at 15")):
        delete(uri, name)
        fill(uri, name, numbered(count, 1000), "stream")
        said = f"{tmp_path / 'a'} has stream {name} up to offset 19, but the one at amqp://guest@127"
        found = complaint(wanted)
        assert found.startswith(said)
        assert found.endswith(f" {told}: it is another broker's, or was made anew; name another directory")
    delete(uri, name)
    fill(uri, name, numbered(10), "stream")
    fill(uri, name, numbered(10, 10), "stream")
    prepare(wanted)  # the same again, as from a copy of the data directory


class Crash(Exception):
    pass


def crash(*paths: Path) -> None:
    raise Crash


def crash_at_the_table(source: Path, target: Path) -> None:
    if target.suffix == ".parquet":
        raise Crash
    os.replace(source, target)


def put(files: ArchiveFiles, batch: int, numbers: range) -> None:
    """A batch as Spark would write it."""
    staged = files.staged(f"batch-{batch}")
    (staged / "day=2026-11-16").mkdir(parents=True)
    pq.write_table(pa.table({"body": [b"%d" % n for n in numbers]}), staged / "day=2026-11-16" / "part-0.parquet")
    files.put(batch, staged, 0)


def test_small_files_are_merged_and_a_crash_in_between_loses_and_doubles_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    files = ArchiveFiles(tmp_path)
    for batch in range(12):
        put(files, batch, range(batch * 5, batch * 5 + 5))
    with monkeypatch.context() as patch:
        patch.setattr(disk, "rename", crash_at_the_table)
        with pytest.raises(Crash):
            compact(files, threading.Event(), Lines())
    assert len(table_files(tmp_path)) == 12  # not moved yet: what it was made of counts
    with monkeypatch.context() as patch:
        patch.setattr(disk, "remove", crash)
        with pytest.raises(Crash):
            compact(files, threading.Event(), Lines())
    # The merged file is there, and those it was made of too; whoever reads by _commit.json sees it alone.
    (merged,) = table_files(tmp_path)
    assert merged == "day=2026-11-16/batch-0000000000-00000-merged.parquet"
    files.close()
    files.write_label(Label("stream", "s", "/", ("body",), (), None, False))
    again = ArchiveFiles(tmp_path)
    again.recover()
    assert sorted(int(row["body"]) for row in rows(tmp_path)) == list(range(60))
    for batch in range(12, 24):
        put(again, batch, range(batch * 5, batch * 5 + 5))
    assert compact(again, threading.Event(), Lines()) == 12
    assert len(table_files(tmp_path)) == 1
    assert sorted(int(row["body"]) for row in rows(tmp_path)) == list(range(120))
    again.close()


def test_a_batch_that_was_committed_and_not_moved_is_moved_by_the_next_change_or_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    files = ArchiveFiles(tmp_path)
    files.write_label(Label("stream", "s", "/", ("body",), (), None, False))
    for batch in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(disk, "rename", crash_at_the_table)
            with pytest.raises(Crash):
                put(files, batch, range(batch * 10, batch * 10 + 10))
        assert files.has(batch)
        assert len(table_files(tmp_path)) == batch  # the one before it is settled
        if not batch:
            files.settle()
    files.close()
    again = ArchiveFiles(tmp_path)
    again.recover()
    assert again.has(1)
    assert sorted(int(row["body"]) for row in rows(tmp_path)) == list(range(20))
    again.close()


def test_a_batch_of_which_some_files_are_moved_is_in_the_table_as_a_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    moved = 0

    def crash_at_the_third(source: Path, target: Path) -> None:
        nonlocal moved
        moved += target.suffix == ".parquet"
        if moved == 3:
            raise Crash
        os.replace(source, target)

    files = ArchiveFiles(tmp_path)
    put(files, 0, range(5))
    staged = files.staged("batch-1")
    for hour in range(4):
        (staged / f"hour={hour}").mkdir(parents=True)
        pq.write_table(pa.table({"body": [b"%d" % hour]}), staged / f"hour={hour}" / "part-0.parquet")
    with monkeypatch.context() as patch:
        patch.setattr(disk, "rename", crash_at_the_third)
        with pytest.raises(Crash):
            files.put(1, staged, 0)
    assert table_files(tmp_path) == ["day=2026-11-16/batch-0000000000-00000.parquet"]
    files.settle()
    assert len(table_files(tmp_path)) == 5
    files.close()


def test_a_file_of_the_checkpoint_that_lost_its_content_with_the_power_is_written_anew(tmp_path: Path):
    for name, content in {"offsets/0": "v1", "offsets/1": "", "commits/0": "", "metadata": ""}.items():
        (tmp_path / "_checkpoint" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "_checkpoint" / name).write_text(content)
    files = ArchiveFiles(tmp_path)
    files.recover()
    files.close()
    left = [path for path in (tmp_path / "_checkpoint").rglob("*") if path.is_file()]
    assert left == [tmp_path / "_checkpoint" / "offsets" / "0"]


def test_a_queue_goes_on_where_spark_lost_with_the_power_that_the_last_batch_was_done(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    commits = tmp_path / "a" / "_checkpoint" / "commits"
    for start in (0, 10, 20):
        fill(uri, name, numbered(10, start))
        assert archive(spark, uri, tmp_path / "a", queue=name)[-1].startswith("done: 10 rows")
        last = max((path for path in commits.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
        was = last.read_bytes()
        last.write_bytes(b"")
        last.with_name(f".{last.name}.crc").write_bytes(b"of what was there")
        if start:
            last.unlink()
        files = ArchiveFiles(tmp_path / "a")
        files.recover()
        files.close()
        assert last.read_bytes() == was  # as Spark has written it
        assert not last.with_name(f".{last.name}.crc").exists()
    assert sorted(int(row["body"]) for row in rows(tmp_path / "a")) == list(range(30))


def test_a_batch_counts_when_its_files_and_their_names_are_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    steps: list[Path] = []

    def sync(path: Path) -> None:
        steps.append(path)

    def write(path: Path, content: bytes) -> None:
        steps.append(path)
        path.write_bytes(content)

    of_spark = {tmp_path / "_checkpoint" / name for name in ("metadata", "offsets/0")}
    for path in of_spark:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('{"id": "q"}')
    files = ArchiveFiles(tmp_path)
    monkeypatch.setattr(disk, "sync", sync)
    monkeypatch.setattr(disk, "put", write)
    put(files, 0, range(5))
    files.close()
    synced = steps[: steps.index(tmp_path / COMMIT)]
    assert {*of_spark, tmp_path / "_checkpoint", tmp_path / "_checkpoint" / "offsets"} <= set(synced)
    before = [path.relative_to(tmp_path).as_posix() for path in synced]
    staged = next(name for name in before if name.endswith(".parquet"))
    assert {staged, *(path.as_posix() for path in Path(staged).parents)} <= set(before)


def test_what_is_said_to_help_when_messages_are_lost_is_what_the_command_has(
    spark: SparkSession, uri: str, name: str, tmp_path: Path
):
    fill(uri, name, numbered(10))
    archive(spark, uri, tmp_path / "a", queue=name)
    disk.remove_tree(tmp_path / "a" / SPOOL)
    fill(uri, name, numbered(10, 10))
    with pytest.raises(Complaint, match=r"^the checkpoint belongs to spool .*; name a new directory \(--to\)$") as told:
        archive(spark, uri, tmp_path / "a", queue=name)
    assert "failOnDataLoss" not in str(told.value)
    wait_until(lambda: ready(uri, name) == 10)
    assert archive(spark, uri, tmp_path / "b", queue=name)[-1].startswith("done: 10 rows")
    with pytest.raises(SourceError) as lost:
        report_loss("s", 7, 9, fail=True)
    assert _line(str(lost.value)).endswith("removed 2 messages that were not read; --allow-gaps goes on")


def test_what_is_wrong_is_one_line_before_spark_starts(uri: str, name: str, tmp_path: Path):
    fill(uri, name, numbered(5), "stream")
    fill(uri, f"{name}q", numbered(5))
    mine = tmp_path / "mine"
    files = ArchiveFiles(mine)
    files.write_label(Label("stream", name, "/", SOURCE_COLUMNS, (), None, False))
    files.commit.batch = 0
    put(files, 1, range(5))
    files.close()
    strange = tmp_path / "strange"
    strange.mkdir()
    (strange / "letter.txt").write_text("")
    other = tmp_path / "new"
    for told, wanted in {
        "--stream or --queue, one of them": {"to": other},
        "there is no stream nowhere and no partitioned": {"to": other, "stream": "nowhere"},
        "404 NOT_FOUND - no queue 'nowhere'": {"to": other, "queue": "nowhere"},
        "belongs to another archive: kind of source stream, not queue": {"to": mine, "queue": f"{name}q"},
        "belongs to another archive: --columns all, not body,offset": {
            "to": mine,
            "stream": name,
            "columns": "offset,body",
        },
        "is no archive, but has letter.txt in it": {"to": strange, "stream": name},
        "there is no column 'colour'": {"to": other, "stream": name, "columns": "body,colour"},
        "--partition-by: there is no column 'week'": {"to": other, "stream": name, "partition_by": "week"},
        "'headers' is a map, which makes no": {"to": other, "stream": name, "partition_by": "headers"},
        "there is no column 'color'": {"to": other, "stream": name, "columns": "body,color", "json": "id long"},
        "--start is for streams": {"to": other, "queue": f"{name}q", "start": "17"},
        "--allow-gaps is for streams": {"to": other, "queue": f"{name}q", "allow_gaps": True},
        "--start is earliest, latest, a number or JSON": {"to": other, "stream": name, "start": "17x"},
        f"{name}q at amqp://guest@127.0.0.1": {"to": other, "stream": f"{name}q"},
        "is a queue, not a stream: say --queue": {"to": other, "stream": f"{name}q"},
        "is a stream, not a queue: say --stream": {"to": other, "queue": name},
    }.items():
        assert told in complaint(Wanted(uri=uri, **wanted))  # type: ignore[arg-type]
    assert not other.exists()
    (mine / "_checkpoint").mkdir()
    (mine / "_checkpoint" / "metadata").write_text('{"id": "other"}')
    assert "_checkpoint is another query's" in complaint(Wanted(uri=uri, to=mine, stream=name))


def test_a_stream_and_a_queue_of_rabbitmq_are_told_apart_too_and_no_message_is_taken(rabbitmq: str, name: str):
    fill(rabbitmq, name, numbered(5), "stream")
    fill(rabbitmq, f"{name}q", numbered(5))
    with Connection.connect(parse_uri(rabbitmq)) as connection:
        look_for_stream(connection, name)
        look_for_queue(connection, f"{name}q")
        with pytest.raises(Complaint, match="is a queue, not a stream"):
            look_for_stream(connection, f"{name}q")
        with pytest.raises(Complaint, match="is a stream, not a queue"):
            look_for_queue(connection, name)
    with Connection.connect(parse_uri(rabbitmq)) as connection:
        first = Consumer(connection.open_channel(), f"{name}q").read(1, LIMIT_S)
    assert (first.bodies, first.redelivered) == ([b"0"], [False])


def complaint(wanted: Wanted) -> str:
    """What is said against it, in one line."""
    with pytest.raises(Complaint) as caught:
        prepare(wanted)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def prepare(wanted: Wanted) -> None:
    job = Archive(wanted, threading.Event(), Lines(), Lines())
    try:
        job.prepare()
    finally:
        job.close()


def test_a_broker_that_is_away_is_waited_for_with_a_line():
    stop = threading.Event()
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line)
        stop.set()

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # nobody listens there, and nobody else can
        uri = parse_uri(f"amqp://127.0.0.1:{taken.getsockname()[1]}")
        assert not await_broker(uri, lambda connection: None, stop, say)
    assert len(lines) == 1
    assert lines[0].endswith("waiting for the broker")


@pytest.fixture
def signals() -> Iterator[list[signal.Signals]]:
    """Those a job listens to; as they were, when the test is over."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield list(before)
    for number, handler in before.items():
        signal.signal(number, handler)


def test_sigterm_and_ctrl_c_ask_a_job_to_stop(signals: list[signal.Signals]):
    for number in signals:
        stopping = Stopping()
        signal.raise_signal(number)
        assert stopping.event.is_set()


@pytest.mark.usefixtures("signals")
def test_the_command_says_what_is_wrong_in_one_line_and_leaves_nothing_behind(uri: str, tmp_path: Path):
    asked = ["pipeline", "archive", "--uri", uri, "--stream", "nowhere", "--to", str(tmp_path / "a")]
    found = CliRunner().invoke(commands(), asked)
    assert found.exit_code == 1
    assert found.stderr.startswith("penstock: there is no stream nowhere and no partitioned stream")
    assert found.stderr.count("\n") == 1
    assert not (tmp_path / "a").exists()

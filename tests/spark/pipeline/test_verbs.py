"""`penstock pipeline flow|archive|replay` as commands: what a user mistypes is one line, before Spark starts."""

from __future__ import annotations

import logging
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from penstock.cli import commands
from penstock.spark.archive import job as archiving
from penstock.spark.archive.files import ArchiveFiles, Label
from penstock.spark.archive.job import Archive
from penstock.spark.archive.job import Wanted as ArchiveWanted
from penstock.spark.archive.rows import SOURCE_COLUMNS
from penstock.spark.complaint import Complaint
from penstock.spark.replay import job as replaying
from penstock.spark.replay.job import Replay
from penstock.spark.replay.job import Wanted as ReplayWanted
from penstock.spark.replay.state import Begun, ReplayState, Terms
from tests.spark.pipeline.archiving import Lines

FLOW = ["flow"]
ARCHIVE = ["archive", "--stream", "s", "--to", "to"]
REPLAY = ["replay", "--from", "table", "--exchange", "e"]


@pytest.fixture(autouse=True)
def _as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Commands listen to signals and set loggers up; what they make they make in an empty directory."""
    monkeypatch.chdir(tmp_path)
    heard = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    root, own = logging.getLogger(), logging.getLogger("penstock.spark")
    handlers, filters, level = list(root.handlers), list(root.filters), own.level
    yield
    for number, handler in heard.items():
        signal.signal(number, handler)
    root.handlers[:], root.filters[:] = handlers, filters
    own.setLevel(level)


@pytest.fixture
def dead() -> Iterator[str]:
    """An address where nobody listens, and nobody else can."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"amqp://127.0.0.1:{taken.getsockname()[1]}"


def run(*words: str) -> Result:
    return CliRunner().invoke(commands(), ["pipeline", *words])


def table_at(path: Path) -> Path:
    path.mkdir()
    pq.write_table(pa.table({"body": [b"1"], "routing_key": ["k"], "offset": [0]}), path / "x.parquet")
    return path


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([*FLOW, "--trigger", "nan"], "--trigger is 0 to 86400 seconds, not nan"),
        ([*FLOW, "--trigger", "inf"], "--trigger is 0 to 86400 seconds, not inf"),
        ([*FLOW, "--trigger", "-1"], "--trigger is 0 to 86400 seconds, not -1"),
        ([*FLOW, "--progress", "nan"], "--progress is above 0 and up to 86400 seconds, not nan"),
        ([*FLOW, "--progress", "inf"], "--progress is above 0 and up to 86400 seconds, not inf"),
        ([*FLOW, "--keep-days", "1000000"], "--keep-days is 1 to 36500 days, not 1000000"),
        ([*FLOW, "--keep-event-days", "0"], "--keep-event-days is 1 to 36500 days, not 0"),
        ([*ARCHIVE, "--every", "nan"], "--every is above 0 and up to 86400 seconds, not nan"),
        ([*ARCHIVE, "--every", "inf"], "--every is above 0 and up to 86400 seconds, not inf"),
        ([*ARCHIVE, "--every", "0"], "--every is above 0 and up to 86400 seconds, not 0"),
        ([*ARCHIVE, "--every", "5"], "--every means nothing without --follow: all that is there is archived at once"),
        (["archive", "--stream", "s" * 256, "--to", "to"], "--stream: a name has 255 bytes at most, not 256"),
        (["archive", "--queue", "ü" * 128, "--to", "to"], "--queue: a name has 255 bytes at most, not 256"),
        ([*REPLAY[:-1], "e" * 256], "--exchange: a name has 255 bytes at most, not 256"),
        ([*REPLAY, "--routing-key", "k" * 256], "--routing-key: a name has 255 bytes at most, not 256"),
        (
            [*REPLAY, "--time", "at"],
            "--time means nothing without --speed: all is sent as fast as the broker takes it",
        ),
        (
            [*ARCHIVE, "--start", "17x"],
            """--start is earliest, latest, a number or JSON as {"orders-0": 17}, not '17x'""",
        ),
        (
            [*REPLAY, "--speed", "inf"],
            "--speed is above 0 and up to 1e+09: 1 is as recorded, 2 twice as fast; not inf",
        ),
        (
            [*REPLAY, "--speed", "nan"],
            "--speed is above 0 and up to 1e+09: 1 is as recorded, 2 twice as fast; not nan",
        ),
    ],
)
def test_a_value_that_makes_no_sense_is_one_line_and_nothing_is_made(tmp_path: Path, words: list[str], line: str):
    done = run(*words)
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"penstock: {line}\n")
    assert list(tmp_path.iterdir()) == []


def test_a_first_archive_does_not_wait_for_a_broker_that_was_never_there(tmp_path: Path, dead: str):
    for directory in ("new", "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        done = run("archive", "--uri", dead, "--stream", "s", "--to", directory, "--follow")
        assert done.exit_code == 1
        assert done.stderr.startswith("penstock: no broker at 127.0.0.1:")
        assert done.stderr.endswith(f"(uri {dead.replace('//', '//guest@')}/%2F)\n"), done.stderr
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_first_replay_does_not_wait_for_a_broker_that_was_never_there(tmp_path: Path, dead: str):
    table_at(tmp_path / "table")
    for words in ([], ["--checkpoint", "c"]):
        done = run(*REPLAY, "--uri", dead, *words)
        assert done.exit_code == 1
        assert done.stderr.startswith("penstock: no broker at 127.0.0.1:")
        assert done.stderr.count("\n") == 1
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("words", "code", "line"),
    [
        (ARCHIVE, 1, "penstock: interrupted: not all that was there is archived; the next run goes on\n"),
        ([*ARCHIVE, "--follow"], 0, ""),
        (REPLAY, 1, "penstock: interrupted: without --checkpoint it begins anew\n"),
        ([*REPLAY, "--checkpoint", "c"], 1, "penstock: interrupted: the same command goes on\n"),
        ([*REPLAY, "--checkpoint", "c", "--dry-run"], 1, "penstock: interrupted\n"),
    ],
)
def test_an_interrupted_job_fails_where_somebody_waits_for_its_end(
    monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, line: str
):
    for job in (Archive, Replay):
        monkeypatch.setattr(job, "prepare", lambda self, connect=True: self._stop.set())  # told to while it waits
    done = run(*words)
    assert (done.exit_code, done.stdout, done.stderr) == (code, "", line)


def begun_archive(root: Path) -> Path:
    files = ArchiveFiles(root)
    files.write_label(Label("stream", "s", "/", SOURCE_COLUMNS, (), None, False))
    files.close()
    return root


def test_an_archive_that_goes_on_waits_and_only_one_that_follows_waits_for_ever(
    tmp_path: Path, dead: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(archiving, "START_S", 0.001)
    monkeypatch.setattr("penstock.spark.archive.wait.WAIT_S", 0.01)
    begun_archive(tmp_path / "a")
    lines = Lines()
    job = Archive(ArchiveWanted(dead, tmp_path / "a", stream="s"), threading.Event(), lines, lines)
    with pytest.raises(Complaint, match="; waited 0 s for the broker"):
        job.prepare()
    job.close()
    assert [line.endswith("; waiting for the broker") for line in lines] == [True]
    stop = Stop(tries=20)
    job = Archive(ArchiveWanted(dead, tmp_path / "a", stream="s", follow=True), stop, lines, lines)
    assert not job.prepare()
    job.close()


def test_a_replay_that_goes_on_waits_but_not_for_ever(tmp_path: Path, dead: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(replaying, "START_S", 0.001)
    monkeypatch.setattr("penstock.spark.archive.wait.WAIT_S", 0.01)
    table = table_at(tmp_path / "table")
    (tmp_path / "c").mkdir()
    terms = Terms(str(table), None, "e", None, "routing_key", ("offset",), "body", True, None)
    ReplayState(tmp_path / "c").begin(terms, Begun("id", 1, 1, ("x.parquet",), (), None, None))
    lines = Lines()
    asked = ReplayWanted(dead, str(table), "e", checkpoint=tmp_path / "c")
    job = Replay(asked, threading.Event(), lines, lines)
    with pytest.raises(Complaint, match="; waited 0 s for the broker"):
        job.prepare()
    job.close()
    assert [line.endswith("; waiting for the broker") for line in lines] == [True]


class Stop(threading.Event):
    """Set after so many waits."""

    def __init__(self, tries: int) -> None:
        super().__init__()
        self.tries = tries

    def wait(self, timeout: float | None = None) -> bool:
        self.tries -= 1
        if not self.tries:
            self.set()
        return super().wait(timeout)

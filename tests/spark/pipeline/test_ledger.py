"""The ledger: commits of many tables are whole or not there, whatever ends them; files are merged, old days go."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from penstock.spark.complaint import Complaint
from penstock.spark.ledger import Ledger, append, disk, replace
from penstock.spark.ledger.compact import compact
from penstock.spark.ledger.retain import retain
from tests.wire.live import ROOT, serve_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
WINDOW = timedelta(seconds=10)
STEPS = ("write", "sync", "rename", "make_directory", "remove", "remove_tree", "remove_empty")


def window(number: int) -> datetime:
    return NOON + number * WINDOW


def rows(*numbers: int, word: str = "") -> pa.Table:
    """One row for each of these windows."""
    windows = [window(number) for number in numbers]
    return pa.table(
        {
            "window": pa.array(windows, pa.timestamp("us", tz="UTC")),
            "day": pa.array([one.date() for one in windows], pa.date32()),
            "number": pa.array(numbers, pa.int64()),
            "word": pa.array([word] * len(numbers), pa.string()),
        }
    )


def numbers(ledger: Ledger, table: str, since: int | None = None, until: int | None = None) -> list[int]:
    found = ledger.arrow(
        table, window(since) if since is not None else None, window(until) if until is not None else None
    )
    return sorted(found["number"].to_pylist()) if found.num_columns else []


def parquet_files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*.parquet")}


def named_files(ledger: Ledger) -> set[str]:
    return {part.path for name in ledger.tables() for part in ledger.parts(name)}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "tables", grace_s=0).writing() as ledger:
        yield ledger


def test_a_commit_changes_all_its_tables_and_a_reader_sees_it(ledger: Ledger):
    assert ledger.commit(0, [append("events", rows(0, 1)), replace("depth", rows(0, 1), window(0))], "query")
    reader = Ledger(ledger.root)
    assert reader.tables() == ["depth", "events"]
    assert numbers(reader, "events") == numbers(reader, "depth") == [0, 1]
    assert reader.newest() == window(1)
    assert reader.rows("events") == 2
    assert reader.arrow("nothing").num_columns == 0


def test_a_batch_that_spark_repeats_changes_nothing(ledger: Ledger):
    assert ledger.commit(7, [append("events", rows(0))], "query")
    before = parquet_files(ledger.root)
    assert not ledger.commit(7, [append("events", rows(0))], "query")
    assert not ledger.commit(3, [append("events", rows(3))], "query")
    assert parquet_files(ledger.root) == before
    assert numbers(ledger, "events") == [0]


def test_a_query_that_begins_anew_has_batches_of_its_own(ledger: Ledger):
    ledger.commit(7, [append("events", rows(0))], "one")
    assert ledger.commit(0, [append("events", rows(1))], "another")
    assert numbers(ledger, "events") == [0, 1]


def test_windows_from_a_time_on_are_replaced_and_those_before_stay(ledger: Ledger):
    ledger.commit(0, [replace("depth", rows(0, 1, 2, word="old"))], "query")
    ledger.commit(1, [replace("depth", rows(2, 3, word="new"), window(2))], "query")
    found = ledger.arrow("depth")
    words = dict(zip(found["number"].to_pylist(), found["word"].to_pylist(), strict=True))
    assert words == {0: "old", 1: "old", 2: "new", 3: "new"}
    ledger.commit(2, [replace("depth", rows(9))], "query")
    assert numbers(ledger, "depth") == [9]


def test_files_whose_windows_are_not_asked_for_are_not_read(ledger: Ledger):
    for number in range(10):
        ledger.commit(number, [append("events", rows(number))], "query")
    assert len(ledger.files("events")) == 10
    assert len(ledger.files("events", window(3), window(5))) == 2
    assert numbers(ledger, "events", 3, 5) == [3, 4]
    assert ledger.arrow("events", window(8), columns=["number"]).column_names == ["number"]


def test_only_those_rows_are_read_of_which_something_is_true(ledger: Ledger):
    ledger.commit(0, [append("events", rows(0, 1, word="one")), append("events", rows(2, 12 * 360, word="two"))])
    two = ledger.arrow("events", window(1), columns=["number"], where=pc.field("word") == "two")
    assert two.column_names == ["number"]
    assert sorted(two["number"].to_pylist()) == [2, 12 * 360]
    assert ledger.arrow("events", where=pc.field("number") < 1).to_pylist() == rows(0, word="one").to_pylist()
    (path, *_) = ledger.files("events")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Complaint, match=f"{path.name} is damaged"):
        ledger.arrow("events", where=pc.field("number") < 1)


def test_a_batch_over_midnight_is_two_files_in_two_days(ledger: Ledger):
    midnight = 12 * 360
    ledger.commit(0, [append("events", rows(midnight - 1, midnight))], "query")
    assert [part.day for part in ledger.parts("events")] == ["2026-11-16", "2026-11-17"]
    assert numbers(ledger, "events") == [midnight - 1, midnight]


def test_one_process_writes_and_a_second_is_told_which(ledger: Ledger):
    code = (
        "import sys; from penstock.spark.ledger import Ledger; from penstock.spark.complaint import Complaint\n"
        "try: Ledger(sys.argv[1]).open()\n"
        "except Complaint as error: print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(ledger.root)],
        capture_output=True,
        text=True,
        env=serve_environment(),
        cwd=ROOT,
        check=True,
    )
    assert "are being written by process" in run.stdout
    assert run.stdout.count("\n") == 1


def test_what_is_locked_can_be_waited_for_and_whoever_waits_is_told_once(tmp_path: Path):
    from penstock.spark.lock import Lock, Taken

    first = Lock(tmp_path / "lock")
    with pytest.raises(Taken, match=f"{tmp_path} is in use by process {os.getpid()}"):
        Lock(tmp_path / "lock")
    told: list[str] = []

    def waiting() -> None:
        told.append("waiting")
        first.release()

    second = Lock(tmp_path / "lock", 60, waiting)
    assert told == ["waiting"]
    first.release()  # once more: nothing happens
    with pytest.raises(Taken):
        Lock(tmp_path / "lock")
    second.release()
    assert not (tmp_path / "lock").read_text()


def test_a_ledger_that_cannot_be_opened_is_not_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    ledger = Ledger(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(disk, "remove_tree", refuse)
        with pytest.raises(PermissionError):
            ledger.open()
    with Ledger(tmp_path).writing():
        pass
    ledger.open()
    ledger.close()


def test_where_there_are_no_tables_the_reader_is_told_so_in_one_line(tmp_path: Path):
    with pytest.raises(Complaint, match="there are no tables in"):
        Ledger(tmp_path / "nowhere").tables()
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "_ledger").mkdir()
    (tmp_path / "_ledger" / "manifest.json").write_text("{]")
    with pytest.raises(Complaint, match="is damaged"):
        Ledger(tmp_path).tables()
    with pytest.raises(Complaint, match="is damaged"):
        Ledger(tmp_path).open()


class Crash(BaseException):
    """The process is gone."""


def crashing(monkeypatch: pytest.MonkeyPatch, after: int) -> list[str]:
    """From now on so many steps on the disk are done, and the next one ends the process. The names of those done."""
    done: list[str] = []

    def stepping(name: str, step: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: object) -> None:
            if len(done) >= after:
                raise Crash(name)
            done.append(name)
            step(*arguments)

        return run

    for name in STEPS:
        monkeypatch.setattr(disk, name, stepping(name, getattr(disk, name)))
    return done


def state(ledger: Ledger) -> dict[str, list[tuple[int, str]]]:
    found = {}
    for name in ledger.tables():
        table = ledger.arrow(name)
        found[name] = sorted(zip(table["number"].to_pylist(), table["word"].to_pylist(), strict=True))
    return found


def work_of_a_batch(ledger: Ledger) -> None:
    ledger.commit(
        1,
        [
            append("events", rows(2, 12 * 360, word="new")),
            replace("depth", rows(1, 2, word="new"), window(1)),
            replace("syncs", rows(2, word="new"), window(2)),
        ],
        "query",
        {"stream": 20},
    )


def work_of_compaction(ledger: Ledger) -> None:
    compact(ledger, window(100), set(), files_min=2)


def work_of_retention(ledger: Ledger) -> None:
    retain(ledger, {}, 1)


@pytest.mark.parametrize("work", [work_of_a_batch, work_of_compaction, work_of_retention])
def test_a_crash_between_any_two_steps_leaves_the_old_state_or_the_new_one(
    tmp_path: Path, work: Callable[[Ledger], None]
):
    outcomes = []
    crashed, steps = True, 0
    before: tuple[dict[str, list[tuple[int, str]]], dict[str, int]] = ({}, {})
    while crashed:
        root = tmp_path / str(steps)
        with Ledger(root, grace_s=0).writing() as ledger:
            ledger.commit(
                0,
                [append("events", rows(-5000, -4999)), append("events", rows(0, 1)), replace("depth", rows(0, 1))],
                "query",
                {"stream": 10},
            )
            before = state(ledger), dict(ledger.manifest().marks)
        with pytest.MonkeyPatch.context() as patch:
            done = crashing(patch, steps)
            ledger = Ledger(root, grace_s=0)
            try:
                ledger.open()
                work(ledger)
            except Crash:
                crashed = True
            else:
                crashed = False
            ledger.close()  # the kernel does that
        reader = Ledger(root)
        after = state(reader), dict(reader.manifest().marks)
        outcomes.append((after, done[-1] if done else ""))
        with Ledger(root, grace_s=0).writing() as ledger:
            assert (state(ledger), dict(ledger.manifest().marks)) == after
            # What was dropped without grace goes with the next commit; nothing else is left over.
            ledger.commit(2, [append("events", rows(3))], "query")
            assert parquet_files(root) == named_files(ledger)
        steps += 1
    new = outcomes[-1][0]
    states = [outcome for outcome, _ in outcomes]
    assert all(one in (before, new) for one in states)
    if new != before:
        turn = states.index(new)
        assert states == [before] * turn + [new] * (len(states) - turn)
        assert outcomes[turn][1] == "rename"


def test_a_crashed_batch_is_repeated_and_counts_once(tmp_path: Path):
    for steps in range(1000):
        root = tmp_path / str(steps)
        with pytest.MonkeyPatch.context() as patch:
            crashing(patch, steps)
            ledger = Ledger(root)
            try:
                ledger.open()
                work_of_a_batch(ledger)
            except Crash:
                crashed = True
            else:
                crashed = False
            ledger.close()
        with Ledger(root).writing() as ledger:
            work_of_a_batch(ledger)
            assert numbers(ledger, "events") == [2, 12 * 360]
            assert numbers(ledger, "depth") == [1, 2]
        if not crashed:
            return
    raise AssertionError("the work never ends")


def test_small_files_become_one_and_the_rows_stay(ledger: Ledger):
    for number in range(20):
        ledger.commit(number, [append("events", rows(number)), replace("depth", rows(number), window(number))], "query")
    before = state(ledger)
    assert compact(ledger, window(18), set(), files_min=4) == 19 + 17
    assert state(ledger) == before
    assert len(ledger.files("events")) == 1
    assert len(ledger.files("depth")) == 3  # two windows are not settled yet
    ledger.commit(20, [replace("depth", rows(5), window(5))], "query")
    assert numbers(ledger, "depth") == [0, 1, 2, 3, 4, 5]
    assert compact(ledger, window(18), set(), files_min=4) == 0


def test_a_column_that_came_later_is_null_in_the_rows_before(ledger: Ledger):
    ledger.commit(0, [append("events", rows(0))], "query")
    ledger.commit(1, [append("events", rows(1).append_column("more", pa.array([5])))], "query")
    assert ledger.arrow("events")["more"].to_pylist() == [None, 5]
    compact(ledger, window(9), set(), files_min=2)
    assert ledger.arrow("events")["more"].to_pylist() == [None, 5]


def test_days_are_kept_as_long_as_each_table_says(ledger: Ledger):
    day = 24 * 360
    windows = [-9 * day, -5 * day, -day, 0]
    ledger.commit(0, [append(name, rows(*windows)) for name in ("events", "depth")], "query")
    assert retain(ledger, {"events": 2}, 7) == 3
    assert numbers(ledger, "events") == [-day, 0]
    assert numbers(ledger, "depth") == [-5 * day, -day, 0]
    assert {part.day for part in ledger.parts("events")} == {"2026-11-15", "2026-11-16"}
    assert retain(ledger, {"events": 2}, 7) == 0


def test_a_window_in_the_future_costs_no_day(ledger: Ledger):
    """A clock that was wrong once."""
    now = int((datetime.now(UTC) - NOON) / WINDOW)
    ledger.commit(0, [append("events", rows(now - 10, now, now + 400 * 24 * 360))], "query")
    assert retain(ledger, {}, 3) == 0
    assert len(numbers(ledger, "events")) == 3


def test_what_is_left_of_a_day_that_is_over_is_merged(ledger: Ledger):
    for number in range(3):
        ledger.commit(number, [append("events", rows(number))], "query")
    assert compact(ledger, window(10), set()) == 0
    assert compact(ledger, window(24 * 360), set()) == 2
    assert numbers(ledger, "events") == [0, 1, 2]


def test_a_damaged_file_is_one_line_that_names_it(ledger: Ledger):
    ledger.commit(0, [append("events", rows(0))], "query")
    (path,) = ledger.files("events")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Complaint, match=f"{path.name} is damaged"):
        ledger.arrow("events")


def test_a_damaged_file_is_told_of_once_and_all_others_are_merged(ledger: Ledger, caplog: pytest.LogCaptureFixture):
    for number in range(5):
        ledger.commit(number, [append(name, rows(number)) for name in ("events", "depth")], "query")
    torn, gone = ledger.files("events")[1:3]
    torn.write_bytes(torn.read_bytes()[:-20])
    gone.unlink()
    damaged: set[Path] = set()
    assert compact(ledger, window(9), damaged, files_min=2) == 2 + 4
    assert damaged == {torn, gone}
    assert [gone.name in caplog.messages[0], torn.name in caplog.messages[1]] == [True, True]
    left = [path for path in ledger.files("events") if path not in damaged]
    assert [pq.ParquetFile(path).read(["number"])["number"].to_pylist() for path in left] == [[0, 3, 4]]
    assert parquet_files(ledger.root) == named_files(ledger) - {gone.relative_to(ledger.root).as_posix()}
    ledger.commit(5, [append("events", rows(5))], "query")
    assert compact(ledger, window(9), damaged, files_min=2) == 1
    assert len(caplog.messages) == 2


def test_a_damaged_file_of_which_some_windows_are_to_be_replaced_is_one_line_that_names_it(ledger: Ledger):
    ledger.commit(0, [append("depth", rows(0, 1))], "query")
    (path,) = ledger.files("depth")
    content = bytearray(path.read_bytes())
    content[4:40] = bytes(36)  # of the rows, not of what the file says of itself
    path.write_bytes(content)
    with pytest.raises(Complaint, match=f"{path.name} is damaged"):
        ledger.commit(1, [replace("depth", rows(1), window(1))], "query")
    with pytest.raises(Complaint, match=f"{path.name} is damaged"):
        ledger.arrow("depth")


def test_a_file_that_no_longer_counts_stays_for_those_who_read_it(tmp_path: Path):
    with Ledger(tmp_path, grace_s=1000).writing() as ledger:
        ledger.commit(0, [replace("depth", rows(0))], "query")
        reading = ledger.files("depth")
        ledger.commit(1, [replace("depth", rows(1))], "query")
        assert reading[0].exists()
    with Ledger(tmp_path, grace_s=1000).writing():
        assert reading[0].exists(), "a start is no reason"
    with Ledger(tmp_path, grace_s=0).writing() as ledger:
        ledger.commit(2, [replace("depth", rows(2))], "query")
        assert not reading[0].exists()


def test_what_is_not_the_ledgers_is_left_alone(tmp_path: Path):
    own = tmp_path / "mine" / "day=2026-11-16" / "part-0.parquet"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    with Ledger(tmp_path).writing():
        pass
    assert own.read_text() == "mine"


def test_spark_writes_and_reads_the_same_rows(spark: SparkSession, ledger: Ledger):
    from penstock.spark.flowjob.own import large_session

    frame = large_session(spark).createDataFrame(rows(0, 1, 12 * 360, word="spark"))
    ledger.commit(None, [replace("depths", frame), append("mixed", frame)])
    ledger.commit(0, [append("mixed", rows(7, word="arrow"))], "query")
    assert {part.day for part in ledger.parts("depths")} == {"2026-11-16", "2026-11-17"}
    assert [(part.first, part.rows) for part in ledger.parts("mixed", window(5), window(8))][-1][1] == 1
    found = {row["number"]: row for row in ledger.read(spark, "mixed").collect()}
    assert sorted(found) == [0, 1, 7, 12 * 360]
    assert found[7]["day"] == date(2026, 11, 16)
    assert found[12 * 360]["day"] == date(2026, 11, 17)
    assert ledger.read(spark, "mixed", window(1), window(8)).count() == 2
    assert ledger.arrow("mixed", window(1), window(8)).num_rows == 2
    with pytest.raises(Complaint, match="there is no table 'nonsense'"):
        ledger.read(spark, "nonsense")


def test_the_manifest_can_be_read_by_people(ledger: Ledger):
    ledger.commit(4, [append("events", rows(0))], "query", {"penstock.events": 100}, window_s=10)
    document = json.loads((ledger.root / "_ledger" / "manifest.json").read_text())
    assert document["batches"] == {"query": 4}
    assert document["marks"] == {"penstock.events": 100}
    assert Ledger(ledger.root).window_s == 10

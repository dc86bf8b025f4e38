"""An archive's directory while small files of it are merged, and somebody dies, or looks, in the middle."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.spark.archive import compact as compaction
from penstock.spark.archive.compact import compact
from penstock.spark.archive.files import COMMIT, STAGING, ArchiveFiles, Label, table_files
from penstock.spark.ledger import disk

DAY, NEXT = "day=2026-11-16", "day=2026-11-17"
ROWS = 5  # of a batch


class Crash(Exception):
    pass


@pytest.fixture(autouse=True)
def no_disk_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here loses power: a sync would only cost time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ArchiveFiles]:
    """An archive's, by day."""
    files = ArchiveFiles(tmp_path)
    files.write_label(Label("stream", "s", "/", ("body",), ("day",), None, False))
    yield files
    files.close()


def put(files: ArchiveFiles, day: str, *batches: int) -> None:
    """Batches as Spark would write them."""
    for batch in batches:
        staged = files.staged(f"batch-{batch}")
        (staged / day).mkdir(parents=True)
        numbers = range(batch * ROWS, (batch + 1) * ROWS)
        pq.write_table(pa.table({"body": [b"%d" % number for number in numbers]}), staged / day / "part-0.parquet")
        files.put(batch, staged, 0)


def merge(files: ArchiveFiles) -> tuple[int, list[str]]:
    """How many files there are less, and what was told."""
    told: list[str] = []
    return compact(files, threading.Event(), told.append), told


def bodies(root: Path) -> dict[str, list[int]]:
    """All rows of the table, by the directory they are in."""
    kept: dict[str, list[int]] = {}
    for name in table_files(root):
        found = map(int, pq.ParquetFile(root / name).read()["body"].to_pylist())
        kept.setdefault(PurePosixPath(name).parts[0], []).extend(found)
    return {day: sorted(found) for day, found in kept.items()}


def rows(*batches: int) -> list[int]:
    return [batch * ROWS + number for batch in batches for number in range(ROWS)]


def test_files_of_two_days_are_merged_each_with_the_rows_of_its_own(files: ArchiveFiles):
    put(files, DAY, *range(10))
    put(files, NEXT, *range(10, 20))
    assert merge(files) == (18, [])
    assert bodies(files.root) == {DAY: rows(*range(10)), NEXT: rows(*range(10, 20))}
    assert len(table_files(files.root)) == 2


def test_a_day_of_more_than_one_merged_file_keeps_all_its_rows(files: ArchiveFiles, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compaction, "MERGED_BYTES", 1)
    put(files, DAY, *range(35))
    assert merge(files) == (27, [])
    assert bodies(files.root) == {DAY: rows(*range(35))}
    assert len(table_files(files.root)) == 3 + 5


def test_a_crash_while_a_second_file_is_merged_leaves_the_first_as_it_is(
    files: ArchiveFiles, monkeypatch: pytest.MonkeyPatch
):
    put(files, DAY, *range(10))
    put(files, NEXT, *range(10, 20))
    writer, opens = pq.ParquetWriter, iter(range(2))

    def dies_at_the_second(place: Path, *given: Any, **more: Any) -> pq.ParquetWriter:
        if next(opens):
            Path(place).write_bytes(b"PAR1 and half a ro")
            raise Crash
        return writer(place, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(pq, "ParquetWriter", dies_at_the_second)
        with pytest.raises(Crash):
            merge(files)
    files.close()
    again = ArchiveFiles(files.root)
    again.recover()
    assert bodies(again.root) == {DAY: rows(*range(10)), NEXT: rows(*range(10, 20))}
    assert merge(again) == (9, [])
    assert bodies(again.root) == {DAY: rows(*range(10)), NEXT: rows(*range(10, 20))}
    again.close()


def test_a_merge_whose_moves_failed_is_finished_before_the_next_is_planned(
    files: ArchiveFiles, monkeypatch: pytest.MonkeyPatch
):
    def crash(source: Path, target: Path) -> None:
        if target.suffix == ".parquet":
            raise Crash
        os.replace(source, target)

    put(files, DAY, *range(15))
    with monkeypatch.context() as patch:
        patch.setattr(disk, "rename", crash)
        with pytest.raises(Crash):
            merge(files)
    monkeypatch.setattr(compaction, "MERGED_BYTES", 1)  # it would be other files that are merged now
    merge(files)
    assert bodies(files.root) == {DAY: rows(*range(15))}
    assert len(table_files(files.root)) == 1


def test_a_merged_file_never_has_a_name_that_another_had(files: ArchiveFiles):
    seen: set[str] = set()
    for batch in range(0, 40, 10):
        put(files, DAY, *range(batch, batch + 10))
        merge(files)
        (name,) = table_files(files.root)
        assert name not in seen
        seen.add(name)
    assert bodies(files.root) == {DAY: rows(*range(40))}


def test_merged_files_are_gone_from_the_disk_before_another_change_forgets_them(
    files: ArchiveFiles, monkeypatch: pytest.MonkeyPatch
):
    steps: list[tuple[str, Path]] = []

    def recorded(name: str) -> None:
        real = getattr(disk, name)

        def step(path: Path, *content: bytes) -> None:
            steps.append((name, path))
            real(path, *content)

        monkeypatch.setattr(disk, name, step)

    for name in ("sync", "remove", "put"):
        recorded(name)
    put(files, DAY, *range(10))
    steps.clear()
    merge(files)
    put(files, NEXT, 10)
    removed = [at for at, (name, path) in enumerate(steps) if name == "remove" and path.parent.name == DAY]
    counts = [at for at, one in enumerate(steps) if one == ("put", files.root / COMMIT)]
    assert len(removed) == 10
    assert len(counts) == 2
    assert ("sync", files.root / DAY) in steps[removed[-1] : counts[1]]
    # The moves of a run that died before this was synced are synced by the next one.
    files.close()
    again = ArchiveFiles(files.root)
    steps.clear()
    again.recover()
    again.close()
    assert ("sync", files.root / NEXT) in steps


def test_a_directory_that_vanishes_during_the_look_has_no_rows(files: ArchiveFiles, monkeypatch: pytest.MonkeyPatch):
    put(files, DAY, 0)
    looked, gone = os.scandir, [files.root / STAGING / "batch-1", files.root / NEXT]
    for path in gone:
        path.mkdir(parents=True)

    def vanishes(path: Path) -> Any:
        if Path(path) in gone:
            Path(path).rmdir()
        return looked(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", vanishes)
        assert table_files(files.root) == [f"{DAY}/batch-0000000000-00000.parquet"]
    assert not (files.root / NEXT).exists()


def test_a_directory_that_cannot_be_read_is_an_error(files: ArchiveFiles, monkeypatch: pytest.MonkeyPatch):
    put(files, DAY, 0)
    looked = os.scandir

    def refuses(path: Path) -> Any:
        if Path(path).name == DAY:
            raise PermissionError
        return looked(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", refuses)
        with pytest.raises(PermissionError):
            table_files(files.root)


def test_what_is_hidden_from_spark_is_no_part_of_a_table(tmp_path: Path):
    for name in ("_x=1/a.parquet", "b/c.parquet", "_d/e.parquet", ".f/g.parquet", "b/_h.parquet", "b/i.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert table_files(tmp_path) == ["_x=1/a.parquet", "b/c.parquet"]


def break_footer(path: Path) -> None:
    path.write_bytes(b"PAR1 and then nothing PAR1")


def break_page(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4:24] = b"\xff" * 20
    path.write_bytes(content)


@pytest.mark.parametrize("broken", [break_footer, break_page])
@pytest.mark.parametrize("number", [0, 3])
def test_a_damaged_file_is_left_out_with_a_line_and_the_others_are_merged(
    files: ArchiveFiles, broken: Any, number: int
):
    put(files, DAY, *range(11))
    damaged = f"{DAY}/batch-{number:010d}-00000.parquet"
    broken(files.root / damaged)
    fewer, told = merge(files)
    assert fewer == 9
    assert [line.partition(" cannot be read, and is not merged: ")[0] for line in told] == [f"{files.root}: {damaged}"]
    assert "\n" not in told[0]
    (merged,) = (name for name in table_files(files.root) if name != damaged)
    found = pq.ParquetFile(files.root / merged).read()["body"].to_pylist()
    assert sorted(map(int, found)) == rows(*(batch for batch in range(11) if batch != number))
    assert merge(files) == (0, [])  # too few to look at


def test_a_file_of_another_schema_is_left_as_it_is_and_the_others_are_merged(files: ArchiveFiles):
    put(files, DAY, *range(10))
    for name in ("a", "batch-0000000004-a"):
        pq.write_table(pa.table({"colour": ["red"]}), files.root / DAY / f"{name}.parquet")
    assert merge(files) == (9, [])
    assert table_files(files.root) == [
        f"{DAY}/a.parquet",
        f"{DAY}/batch-0000000000-00000-merged.parquet",
        f"{DAY}/batch-0000000004-a.parquet",
    ]
    assert pq.ParquetFile(files.root / DAY / "a.parquet").read().to_pylist() == [{"colour": "red"}]


def test_a_disk_that_cannot_be_written_is_no_damaged_file(files: ArchiveFiles, monkeypatch: pytest.MonkeyPatch):
    def full(*given: Any, **more: Any) -> None:
        raise OSError(28, "No space left on device")

    put(files, DAY, *range(10))
    monkeypatch.setattr(pq, "ParquetWriter", full)
    with pytest.raises(OSError, match="No space left on device"):
        merge(files)

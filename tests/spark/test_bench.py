"""bench/spark.py with few rows: every way makes a figure and is checked, and the tables can be read."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

BENCH = Path(__file__).resolve().parents[2] / "bench"
ROWS = 200


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("spark")


@pytest.fixture
def bed(bench: Any, spark: SparkSession, uri: str, tmp_path: Path) -> Any:
    spark.dataSource.register(bench.NaiveSource)
    return bench.Bed(spark, uri, tmp_path)


def test_every_way_makes_a_figure_and_the_table_has_its_ratios(
    bench: Any, bed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "SHARES", {})
    ways = bench.ways(bed, ROWS)
    turns = {way.name: [way.turn(ROWS)] for way in ways}
    assert [way.name for way in ways] == list(bench.WAYS)
    assert all(turn.rows == ROWS and 0 < turn.seconds <= turn.whole_s + 1 for (turn,) in turns.values())
    rows = [line.split(" | ") for line in bench.table(ways, turns)][2:]
    assert len(rows) == len(ways)
    assert float(rows[0][0].removeprefix("| ")) > 0  # a stream against the naive way
    assert float(rows[0][1]) > 0  # and against Spark's own source


def test_a_way_that_lost_a_row_makes_no_figure(bed: Any, spark: SparkSession, tmp_path: Path) -> None:
    ways = import_module("sparkways")
    numbers = spark.range(0, 9)
    numbers.select(ways.body_column(numbers.id).alias("body")).write.parquet(str(tmp_path / "rows"))
    ways.check_parquet(spark, tmp_path / "rows", 9)
    with pytest.raises(ways.WrongRows, match="not \\(10, 10, 0, 9, 2000\\)"):
        ways.check_parquet(spark, tmp_path / "rows", 10)


def test_a_course_of_memory_is_flat_or_not_by_its_two_halves(bench: Any) -> None:
    course = import_module("sparkmemory").Course
    assert course([100.0, 200.0, 210.0, 190.0]).flat
    assert not course([100.0, 200.0, 300.0, 190.0]).flat
    assert course([0.0, 50.0, 100.0]).line == "▁▅█"


def test_a_rebuild_whose_further_millions_cost_more_is_no_straight_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    pipeline = import_module("pipeline")
    assert pipeline.is_straight({100_000: 18.2, 1_000_000: 56.3, 10_000_000: 475.7})
    assert not pipeline.is_straight({100_000: 20.0, 1_000_000: 79.0, 10_000_000: 885.0})


def test_verdicts_are_right_if_those_of_each_cause_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    truth = import_module("truth")
    calm = [truth.Score("", 4, matched, ()) for matched in (4, 3)]  # of both brokers: 7 of 8
    assert truth.is_right([truth.Score("store", 20, 19, ())])
    assert not truth.is_right([truth.Score("store", 20, 20, ()), truth.Score("queue", 20, 18, ())])
    assert not truth.is_right([truth.Score("store", 20, 20, ()), *calm])
    assert not truth.is_right([truth.Score("store", 0, 0, ())])

"""`penstock pipeline report` before there is anything to report."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.pipeline.command import pipeline

pytest.importorskip("pyarrow")


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (None, "there are no tables in tables: penstock pipeline flow makes them"),
        ("", "there are no tables in tables: penstock pipeline flow makes them"),
        ("lock", "there are no tables in tables: penstock pipeline flow makes them"),
    ],
    ids=["missing", "empty", "begun"],
)
def test_a_report_of_tables_that_are_not_there_is_one_line_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: str | None, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if made is not None:
        Path("tables").mkdir()
    if made:
        Path("tables/_ledger").mkdir()
        Path("tables/_ledger", made).touch()
    before = sorted(tmp_path.rglob("*"))
    done = CliRunner().invoke(pipeline(), ["report", "--tables", "tables"])
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"penstock: {line}\n")
    assert sorted(tmp_path.rglob("*")) == before

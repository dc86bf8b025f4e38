"""The examples and the README's lines for Spark, run as they are typed, in the session of the tests."""

from __future__ import annotations

import re
import runpy
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.cli import main
from tests.wire.live import ServeProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]

Run = Callable[..., str]


@pytest.fixture
def run(
    spark: SparkSession, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """run(example, *arguments): what it prints. Its files are kept for the next run of the same test."""

    def run_example(name: str, *arguments: str) -> str:
        command = [name, "--uri", uri, "--directory", str(tmp_path / "kept"), *arguments]
        monkeypatch.setattr(sys, "argv", command)
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
        return capsys.readouterr().out

    return run_example


def test_a_stream_goes_to_parquet_and_the_next_run_goes_on_behind_it(run: Run):
    assert "10000 rows with 10000 offsets" in run("stream_to_parquet.py")
    assert "10500 rows with 10500 offsets" in run("stream_to_parquet.py", "--orders", "500")


def test_a_queue_goes_to_a_table_and_is_empty_then(run: Run):
    told = run("queue_to_table.py")
    assert "10000 messages in example.readings" in told
    assert "\n10000 rows in " in told
    assert "\n0 messages in example.readings" in told
    assert "\n10500 rows in " in run("queue_to_table.py", "--readings", "500")


def test_a_table_goes_to_an_exchange_and_the_next_run_publishes_only_what_was_added(run: Run):
    told = run("table_to_exchange.py")
    assert "3000 messages in example.prices.tea" in told
    assert "9000 messages in example.prices.all" in told
    assert re.search(r'the first: \{"id":\d+,"price":\d+\} as application/json, in cents', told)
    again = run("table_to_exchange.py", "--rows", "300")
    assert "3099 messages in example.prices.tea" in again, "one was taken, 100 were added"
    assert "9300 messages in example.prices.all" in again


def test_the_spark_examples_of_the_readme_work_as_typed(
    spark: SparkSession,
    broker: ServeProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    text = (ROOT / "README.md").read_text("utf-8")
    part = re.split(r"^## ", text, flags=re.MULTILINE)
    (section,) = [one for one in part if one.startswith("Spark\n")]
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    shell = "".join(code for language, code in blocks if language == "sh")
    five_lines, program = (code for language, code in blocks if language == "python")
    assert len([line for line in five_lines.splitlines() if line]) == 5
    (declare,) = [line for line in shell.splitlines() if "penstock stream declare" in line]

    monkeypatch.setattr(sys, "argv", [*shlex.split(declare, comments=True), "--uri", broker.uri])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code

    for code, expected in ((program, "1000 rows"), (program, "2000 rows"), (five_lines, "[1-9][0-9]* rows")):
        # The session's JVM was started elsewhere, and names without a path are its own.
        placed = re.sub(r'"((?:orders\.|events"|checkpoint").*?)', rf'"{tmp_path}/\1', code)
        placed = placed.replace("127.0.0.1:5672", f"127.0.0.1:{broker.port}")
        exec(compile(placed, "README.md", "exec"), {})
        assert re.search(rf"^{expected}$", capsys.readouterr().out, re.MULTILINE)

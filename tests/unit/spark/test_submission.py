"""Where Spark is to run and with how much: what makes no sense is one line before any of Spark is there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.pipeline.command import pipeline
from penstock.spark.complaint import Complaint
from penstock.spark.submission import check_master, check_memory

MASTERS = (
    "local",
    "local[1]",
    "local[*]",
    "spark://head:7077",
    "spark://a.b:7077,[::1]:7077",
    "k8s://https://h",
    "yarn",
)
NO_MASTERS = ("", "lokal[2]", "local[0]", "local[-1]", "local[two]", "local[999999]", "spark://head", "mesos://h:5050")
SIZES = ("512m", "1g", "2G", "524288k", "1t")
NO_SIZES = ("", "lots", "1", "g", "1.5g", "-1g", "2gb", "512 m", "0g", "511m", "2t", "9" * 30 + "g")
# The least that each verb wants besides.
VERBS = {
    "flow": [],
    "archive": ["--stream", "s", "--to", "to"],
    "replay": ["--from", "to", "--exchange", "e"],
    "advise": [],
}


@pytest.mark.parametrize("text", MASTERS)
def test_a_master_of_spark_is_taken_as_it_is(text: str):
    assert check_master(text) == text


@pytest.mark.parametrize("text", NO_MASTERS)
def test_what_is_no_master_is_a_complaint_that_names_it(text: str):
    with pytest.raises(Complaint, match=r"^--master .* is no master of Spark") as caught:
        check_master(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("text", SIZES)
def test_a_size_that_java_and_spark_can_work_with_is_taken_as_it_is(text: str):
    assert check_memory(text) == text


@pytest.mark.parametrize("text", NO_SIZES)
def test_what_is_no_size_of_a_heap_is_a_complaint_that_names_it(text: str):
    with pytest.raises(Complaint, match=r"^--memory ") as caught:
        check_memory(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("option", "value", "line"),
    [
        ("--master", "lokal", "--master 'lokal' is no master of Spark: local[*], local[2], spark://host:7077"),
        ("--memory", "lots", "--memory 'lots' is no size of a heap: as 512m or 2g"),
    ],
)
def test_a_verb_refuses_it_in_one_line_before_it_makes_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, option: str, value: str, line: str
):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(pipeline(), [verb, *VERBS[verb], option, value])
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", f"penstock: {line}\n")
    assert list(tmp_path.iterdir()) == []


def test_the_check_does_not_import_spark():
    """A supervisor of the pipeline looks at its words before it starts it."""
    code = "import sys, penstock.spark.submission; print([m for m in sys.modules if m.startswith(('pyspark', 'py4j'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"

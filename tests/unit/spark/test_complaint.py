"""Complaint: of the pages that Spark prints, the line that says what is wrong."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from penstock.spark.complaint import Complaint, first_line, line_of
from penstock.spark.options import OptionError

TASK = "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 in "
TASK += "stage 1.0 (TID 1) (127.0.0.1 executor driver): "


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "Spark failed and did not say why"),
        ("[TABLE_NOT_FOUND] there is none. SQLSTATE: 42P01;\n'Project\n", "there is none. SQLSTATE: 42P01;"),
        (
            '[STREAM_FAILED] Query [id = 1] terminated\nTraceback (most recent call last):\n  File "a.py", line 1\n'
            "    raise\npenstock.spark.fault.SourceError: stream s: it is gone\n\nJVM stacktrace:\n\tat java.A\n",
            "stream s: it is gone",
        ),
        (
            f"An error occurred while calling o1.collectToPython.\n: org.apache.spark.SparkException: {TASK}"
            'org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File "a.py", line 1\n'
            "    open()\nOSError: [Errno 28] No space left on device\n\n\tat org.apache.spark.A\n",
            "OSError: [Errno 28] No space left on device",
        ),
        (
            f"An error occurred while calling o1.parquet.\n: org.apache.spark.SparkException: {TASK}"
            "org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/a.\n"
            "\tat org.apache.spark.A\nCaused by: java.io.IOException: No space left on device\n\tat java.io.B\n",
            "[TASK_WRITE_FAILED] Task failed while writing rows to file:/a.: No space left on device",
        ),
        ("An error occurred while calling o1.parquet", "Spark failed and did not say why"),
    ],
)
def test_one_line_says_what_is_wrong(text: str, line: str):
    assert first_line(text) == line


def test_what_a_user_can_cause_is_a_line_and_a_bug_of_ours_is_not():
    assert line_of(Complaint("no such table")) == "no such table"
    assert line_of(OptionError("option uri is missing")) == "option uri is missing"
    assert line_of(KeyError("a bug")) is None

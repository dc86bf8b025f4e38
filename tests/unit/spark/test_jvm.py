"""What a call to Spark's JVM says when nobody is there any more."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from penstock.spark.complaint import Complaint
from penstock.spark.jvm import JVM_GONE, ended_by


@pytest.fixture
def jvm(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    """What stands for it: a process that lives until its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        monkeypatch.setattr(SparkContext, "_active_spark_context", object())
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
        yield process
        process.kill()


@pytest.mark.parametrize("error", [ConnectionRefusedError(), Py4JNetworkError(), Py4JError("while calling")])
def test_a_call_that_breaks_off_since_the_jvm_ends_is_one_line(jvm: subprocess.Popen[bytes], error: Exception) -> None:
    assert jvm.stdin is not None
    jvm.stdin.close()  # it has not ended yet
    with pytest.raises(Complaint, match="JVM is gone") as caught, ended_by(threading.Event()):
        raise error
    assert str(caught.value) == JVM_GONE


@pytest.mark.parametrize("error", [ConnectionRefusedError(), Py4JError("while calling"), PySparkException("no")])
def test_whatever_spark_says_to_a_job_that_was_told_to_stop_is_its_end(error: Exception) -> None:
    stop = threading.Event()
    stop.set()
    with ended_by(stop):
        raise error


@pytest.mark.usefixtures("jvm")
def test_an_error_of_a_jvm_that_lives_stays_what_it_is() -> None:
    with pytest.raises(PySparkException, match="no such column"), ended_by(threading.Event()):
        raise PySparkException("no such column")

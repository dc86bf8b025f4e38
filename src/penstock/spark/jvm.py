"""Jvm: whether Spark's JVM is still there, and what it means for a job if it is not.

A signal to all of a process group, as systemd and terminals send it, ends the JVM too, in the middle of whatever the
job asks it; then the job ends as it was told to. A JVM that ends by itself is one line.
Upstream: archive/, replay/, flowjob/, and the commands of the first two.  Not here: how it is started (session.py).
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from penstock.spark.complaint import Complaint

JVM_GONE: Final = "Spark's JVM is gone: it was killed, or had too little memory (--memory)"
ENDS_S: Final = 5.0  # a JVM that no longer answers is gone within a moment, on a machine that is busy too


def is_jvm_gone(wait_s: float = 0.0) -> bool:
    """Also when the session was stopped."""
    if SparkContext._active_spark_context is None:
        return True
    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:  # somebody else started it
        return False
    with suppress(subprocess.TimeoutExpired):
        process.wait(wait_s)
    return process.poll() is not None


def is_cut_off(error: Exception) -> bool:
    """Whether a call failed because nobody is at the other end."""
    if isinstance(error, (ConnectionError, Py4JNetworkError)):
        return True
    # One that breaks off in the middle comes without Java's words, and before the JVM has quite ended.
    broken_off = isinstance(error, Py4JError) and not isinstance(error, Py4JJavaError)
    return is_jvm_gone(ENDS_S if broken_off else 0.0)


@contextmanager
def ended_by(stop: threading.Event) -> Iterator[None]:
    """Around what asks Spark: once the job is told to stop, whatever that says is the end of it, and no error."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError, InterruptedError) as error:
        if stop.is_set():
            return
        # Without a context Spark has not started, and its own words say why.
        if SparkContext._active_spark_context is not None and is_cut_off(error):
            raise Complaint(JVM_GONE) from None
        raise

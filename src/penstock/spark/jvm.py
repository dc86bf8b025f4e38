"""Jvm: whether Spark's JVM is still there, and what it means for a job if it is not.

A signal to all of a process group, as systemd and terminals send it, ends the JVM too, in the middle of whatever the
job asks it; then the job ends as it was told to. A JVM that ends by itself is one line.
Upstream: archive/, replay/, flowjob/, and the commands of the first two.  Not here: how it is started (session.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException

from penstock.spark.complaint import Complaint

JVM_GONE: Final = "Spark's JVM is gone: it was killed, or had too little memory (--memory)"


def is_jvm_gone() -> bool:
    """Also when the session was stopped."""
    context = SparkContext._active_spark_context
    process = getattr(SparkContext._gateway, "proc", None)  # none: somebody else started it
    return context is None or (process is not None and process.poll() is not None)


@contextmanager
def ended_by(stop: threading.Event) -> Iterator[None]:
    """Around what asks Spark: once the job is told to stop, whatever that says is the end of it, and no error."""
    try:
        yield
    except (PySparkException, Py4JError, ConnectionError, InterruptedError) as error:
        if stop.is_set():
            return
        # Without a context Spark has not started, and its own words say why.
        cut_off = isinstance(error, (ConnectionError, Py4JNetworkError)) or is_jvm_gone()
        if cut_off and SparkContext._active_spark_context is not None:
            raise Complaint(JVM_GONE) from None
        raise

"""A job of Spark beside the main thread: its result, its error, its progress, its end."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from penstock.spark.sidejob import CANCEL_S, SideJob
from tests.spark.conftest import SLEEP
from tests.wire.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def test_what_the_work_finds_or_fails_with_is_the_job_s(spark: SparkSession):
    found = SideJob(spark, "counts", spark.range(7).count)
    assert found.done.wait(LIMIT_S)
    assert found.result == 7
    failed = SideJob(spark, "fails", lambda: 1 // 0)
    assert failed.done.wait(LIMIT_S)
    with pytest.raises(ZeroDivisionError):
        assert failed.result


def test_finished_tasks_are_those_of_the_largest_stage_of_this_job_alone(spark: SparkSession):
    def work() -> int:
        return spark.range(20).repartition(5).count()

    one, other = SideJob(spark, "five", work), SideJob(spark, "one", spark.range(20).coalesce(1).count)
    assert one.done.wait(LIMIT_S)
    assert other.done.wait(LIMIT_S)
    wait_until(lambda: (one.finished_tasks(), other.finished_tasks()) == (5, 1), what="Spark to count them")


@pytest.mark.parametrize("submitted", [False, True])
def test_a_job_that_is_cancelled_has_ended_whether_or_not_spark_had_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, submitted: bool
):
    cancelled = threading.Event()
    cancel = spark.sparkContext.cancelJobGroup

    def noted(group: str) -> None:
        cancel(group)
        cancelled.set()

    monkeypatch.setattr(spark.sparkContext, "cancelJobGroup", noted)
    active = spark.sparkContext.statusTracker().getActiveJobsIds

    def work() -> list[Row]:
        if not submitted:
            assert cancelled.wait(LIMIT_S)  # the first cancel finds nothing
        return spark.range(2).where(SLEEP).collect()

    job = SideJob(spark, "sleeps", work)
    if submitted:
        wait_until(active, what="Spark to run it")
    began_at = time.monotonic()
    job.cancel()
    assert job.done.is_set()
    assert time.monotonic() - began_at < CANCEL_S
    with pytest.raises(Exception, match="cancelled"):
        assert job.result
    wait_until(lambda: not active(), what="the end of its tasks")

"""Own sessions of the flow job, in the Spark that is running: what they set is nobody else's.

A micro-batch has a few hundred rows and a dozen tables: what it costs is planning, and compiling code for each plan. So
for it Spark is told to plan less and to compile nothing. A rebuild has millions of rows: Spark's defaults are right.
Upstream: job.py, rebuild.py.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from penstock.spark.flowjob.lookups import remember
from penstock.spark.ledger.parts import WRITING
from penstock.spark.session import fresh

ALWAYS = {"spark.sql.caseSensitive": "false"}

# Setting, value, and why.
SMALL: tuple[tuple[str, str, str], ...] = (
    ("spark.sql.adaptive.enabled", "false", "plans again after each stage; there is nothing to learn from a few rows"),
    ("spark.sql.codegen.wholeStage", "false", "each plan has other constants, so its code would be compiled anew"),
    ("spark.sql.codegen.factoryMode", "NO_CODEGEN", "the same for single expressions"),
    (
        "spark.sql.constraintPropagation.enabled",
        "false",
        "saves reading some rows, and takes longer than that",
    ),
    ("spark.sql.lightweightPlanChangeValidation", "false", "checks each step of planning: the tests are for that"),
    ("spark.sql.dataFrameQueryContext.enabled", "false", "looks at Python's stack for each column"),
    ("spark.sql.shuffle.partitions", "1", "a task for some hundred rows is enough"),
    ("spark.sql.autoBroadcastJoinThreshold", "-1", "rows that are in one place already are not sent around"),
    ("spark.sql.streaming.minBatchesToRetain", "10", "the checkpoint is for the last batch; files that nobody reads"),
)


def small_session(spark: SparkSession) -> SparkSession:
    """For micro-batches."""
    return _session(spark, {**ALWAYS, **{name: value for name, value, _ in SMALL}})


def large_session(spark: SparkSession) -> SparkSession:
    """For everything at once, and for files of the ledger that Spark writes."""
    return _session(spark, {**ALWAYS, **WRITING})


def _session(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    remember(spark)
    own = fresh(spark)
    for name, value in settings.items():
        own.conf.set(name, value)
    return own

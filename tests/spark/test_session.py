"""The session that local_session starts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from penstock.spark.session import SETTINGS, fresh, local_session
from tests.spark.conftest import QUICK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_local_session_has_its_settings_and_what_the_caller_adds(spark: SparkSession):
    conf = spark.sparkContext.getConf()
    assert spark.sparkContext.master == "local[2]"
    assert {name: conf.get(name) for name, _, _ in SETTINGS} == {name: value for name, value, _ in SETTINGS}
    assert conf.get("spark.hadoop.fs.file.impl") == QUICK["spark.hadoop.fs.file.impl"]
    options = conf.get("spark.driver.extraJavaOptions")
    assert options is not None
    assert "-XX:+UseSerialGC" in options
    assert options.endswith(QUICK["spark.driver.extraJavaOptions"])


def test_a_session_that_runs_already_is_used(spark: SparkSession):
    assert local_session("another") is spark


def test_a_job_s_own_session_counts_in_utc_and_what_is_set_there_stays_there(spark: SparkSession):
    before = spark.conf.get("spark.sql.session.timeZone")
    own = fresh(spark)
    assert own.conf.get("spark.sql.session.timeZone") == "UTC"
    own.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    assert spark.conf.get("spark.sql.session.timeZone") == before
    assert fresh(own).conf.get("spark.sql.session.timeZone") == "UTC"


def test_workers_run_this_python_with_all_that_is_installed_in_it(spark: SparkSession):
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: sys.prefix).collect() == [sys.prefix]

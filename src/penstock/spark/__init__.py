"""AMQP in and out of Spark: the format `amqp` for readStream, read, writeStream and write.

`register(spark)` makes it known to a session; where the module `pyspark_penstock` can be imported, Spark finds it by
itself. The source is read in source.py, streams in streamreader.py, queues in queuereader.py, the sink in sink.py.
pyspark is imported when one of the names below is asked for: java.py and session.py come before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.source import PenstockDataSource

__all__ = ["PenstockDataSource", "register"]


# Spark shows a query's options in its plans, but for what this setting matches in names or values.
REDACTION = "spark.sql.redaction.options.regex"
PASSWORD_IN_ADDRESS = "amqps?://[^/@]*:[^/@]*@"


def register(spark: SparkSession) -> None:
    """Make the format `amqp` known to this session, and passwords in addresses unknown. Once more does no harm."""
    from penstock.spark.source import PenstockDataSource

    spark.dataSource.register(PenstockDataSource)
    hidden = spark.conf.get(REDACTION)  # no default: given one, Spark answers that and not its own, "(?i)url"
    if PASSWORD_IN_ADDRESS not in (hidden or ""):
        spark.conf.set(REDACTION, "|".join(filter(None, (hidden, PASSWORD_IN_ADDRESS))))


def __getattr__(name: str) -> object:
    if name == "PenstockDataSource":
        from penstock.spark.source import PenstockDataSource

        return PenstockDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

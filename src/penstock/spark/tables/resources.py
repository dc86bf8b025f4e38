"""Resources: memory, disk and how much there is of everything, at the end of each window.

Upstream: events.py.  Downstream: forecast.py, the twin, the report.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock.spark.tables.schema import RESOURCES
from penstock.spark.tables.windows import floor_us, windowed


def resources(events: DataFrame, window_s: int) -> DataFrame:
    """The last event of each window."""
    names = [name for name, *_ in RESOURCES]
    last = (
        events.filter("type = 'resources' and unix_micros(at) >= start_us")
        .groupBy(floor_us(F.unix_micros("at"), window_s).alias("window_us"))
        .agg(F.max_by(F.struct(*names), F.struct("at", "offset")).alias("last"))
    )
    return windowed(last.select("window_us", "last.*"), "resources")

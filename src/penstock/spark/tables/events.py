"""Events: rows of the source, as the stream `penstock.events` gives them, to typed columns.

Upstream: the source "amqp", or an archive of it: `body`, `offset`, perhaps `timestamp`.  Downstream: all other tables.
A field that a broker does not tell is null; one that nobody knows here stays in `body`. What is no event at all is kept
too, as late: it is in this table and in no other.
Not here: which event is too late (spark/flowjob/batch.py, which knows what was there before).
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from penstock.spark.tables.schema import TIMES, schema
from penstock.spark.tables.windows import EPOCH, day, floor_us, timestamp

NO_FIELDS: Final = frozenset({"offset", "at", "body", "late", *(name for name, *_ in TIMES)})
NAMES: Final = {"limit_messages": "limit", "paged_out": "out", "paged_in": "in"}  # words of SQL, or too short to tell


def body_schema() -> StructType:
    """The fields of an event as they are in its JSON."""
    fields = [field for field in schema("events") if field.name not in NO_FIELDS]
    named = [StructField(NAMES.get(field.name, field.name), field.dataType) for field in fields]
    return StructType([StructField("at_us", LongType()), *named])


def parse(rows: DataFrame, window_s: int) -> DataFrame:
    """One event per row. A row that is no event has no type, and the time of its message, or 1970."""
    sent = F.col("timestamp") if "timestamp" in rows.columns else F.lit(None).cast("timestamp")
    text = F.col("body").cast("string")
    parsed = rows.select(
        F.col("offset"), sent.alias("sent"), text.alias("body"), F.from_json(text, body_schema()).alias("event")
    )
    at_us = F.col("event.at_us")
    at = F.coalesce(timestamp(at_us), F.col("sent"), F.lit(EPOCH))
    window = timestamp(floor_us(F.unix_micros(at), window_s))
    is_event = at_us.isNotNull() & F.col("event.type").isNotNull()
    values = {
        "window": window,
        "day": day(window),
        "offset": F.col("offset"),
        "at": at,
        "body": F.col("body"),
        "late": ~is_event,
    }
    return parsed.select(
        *[
            values.get(field.name, F.col(f"event.`{NAMES.get(field.name, field.name)}`")).alias(field.name)
            for field in schema("events")
        ]
    )


def unique(events: DataFrame) -> DataFrame:
    """One row per offset: an offset never means another event."""
    return events.dropDuplicates(["offset"])

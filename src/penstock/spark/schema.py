"""Schema: the columns of a message, the same for streams and queues, in Spark's words and in Arrow's.

Used by source.py (what Spark is told), columns.py (what is built) and sink.py (what may be written).
Spark compares the Arrow schema of what a reader yields with its own, types and nullability exactly: both are made here.
Not here: values (columns.py).
"""

from __future__ import annotations

from functools import cache

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


def message_schema() -> StructType:
    """The columns, all of them nullable: AMQP's properties may each be absent."""
    text = StringType()
    return StructType(
        [
            StructField("body", BinaryType()),
            StructField("exchange", text),
            StructField("routing_key", text),
            StructField("content_type", text),
            StructField("content_encoding", text),
            StructField("delivery_mode", IntegerType()),
            StructField("priority", IntegerType()),
            StructField("correlation_id", text),
            StructField("reply_to", text),
            StructField("expiration", text),
            StructField("message_id", text),
            StructField("timestamp", TimestampType()),  # the property, set by the publisher
            StructField("type", text),
            StructField("user_id", text),
            StructField("app_id", text),
            StructField("headers", MapType(text, text)),
            StructField("offset", LongType()),
            StructField("partition", IntegerType()),
            StructField("redelivered", BooleanType()),
        ]
    )


@cache
def arrow_schema() -> pa.Schema:
    """The same in Arrow, exactly as Spark's reader checks it."""
    return to_arrow_schema(message_schema(), timezone="UTC")

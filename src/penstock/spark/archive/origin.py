"""Archive origin: by which message an archive knows its stream again, since a name and an offset can be another's.

With each batch of a stream the place of its last message is kept, and some marks of it (files.py:Commit). Before a
query starts, the message at that place is read from the broker: another one there is another broker's stream, or one
that was deleted and made anew. A message that retention has removed meanwhile says nothing, and is passed over.
Upstream: job.py.  Not here: a stream that becomes shorter while a query runs (fault.py:report_rewind); queues, whose
messages the spool knows.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, Row
from pyspark.sql import functions as F

from penstock.client.connection import Connection
from penstock.client.stream import QUERY_CAPABILITY, offsets, partitions
from penstock.spark.columns import cut_offsets, stream_batch
from penstock.spark.reading import Reading


@dataclass(frozen=True, slots=True)
class Seen:
    """A message: where it is, and what it is known by."""

    partition: int
    offset: int
    body: int  # its CRC-32, which Spark and Python count alike
    id: int | None  # the same of the message_id
    second: int | None  # the timestamp


def last_seen() -> Column:
    """Of the rows of a batch, the one with the highest offset; an aggregate that carries no bodies."""
    marks = (
        F.col("offset"),  # first: it decides
        F.col("partition"),
        F.crc32("body").alias("body"),
        F.crc32(F.col("message_id").cast("binary")).alias("id"),
        F.unix_seconds("timestamp").alias("second"),
    )
    return F.max(F.struct(*marks))


def seen_of(row: Row | None) -> Seen | None:
    """What `last_seen` has found; None of a batch without rows."""
    return Seen(row.partition, row.offset, row.body, row.id, row.second) if row is not None else None


def contradiction(connection: Connection, stream: str, seen: Seen) -> str | None:
    """What the stream has instead of this message, as a clause; None: the same, or nobody can say."""
    names = partitions(connection, stream)
    if seen.partition >= len(names):
        return f"has {len(names)} partitions"
    name = names[seen.partition]
    ends = offsets(connection.open_channel(), name)
    if seen.offset >= ends.next:
        # Where the end is found by reading it may be found too early.
        return f"ends at {ends.next}" if connection.has(QUERY_CAPABILITY) else None
    found = _message(connection, name, seen) if seen.offset >= ends.first else None
    return None if found is None or found == seen else "has another message there"


def _message(connection: Connection, stream: str, seen: Seen) -> Seen | None:
    """The message that is there now; None if none comes: retention is just removing it."""
    reading = Reading(connection.open_channel(), stream, seen.offset, seen.offset + 1, None)
    while not reading.done:
        got = reading.gather(1, 1)
        places, keys = cut_offsets(got.headers)
        if seen.offset in places:
            row = stream_batch(got, seen.partition, places, keys).to_pylist()[places.index(seen.offset)]
            return Seen(seen.partition, seen.offset, zlib.crc32(row["body"]), _crc(row["message_id"]), _second(row))
    return None


def _crc(text: str | None) -> int | None:
    return zlib.crc32(text.encode()) if text is not None else None


def _second(row: dict[str, object]) -> int | None:
    at = row["timestamp"]
    return int(at.timestamp()) if isinstance(at, datetime) else None

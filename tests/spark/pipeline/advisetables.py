"""For tests of advice: a load on a broker, and the tables of it, by the pipeline's own functions over all its events.

The stream that fills tables in earnest is the flow job's matter; here the tables count, not how they came.
"""

from __future__ import annotations

import threading
from pathlib import Path
from types import TracebackType

import pika
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.amqp.properties import Properties, encode_properties
from penstock.client.connection import Connection
from penstock.client.error import ClientError
from penstock.client.publisher import Publisher
from penstock.client.uri import parse_uri
from penstock.spark.flowjob.gathered import gathered
from penstock.spark.ledger import Ledger, replace
from penstock.spark.tables.derive import known
from penstock.spark.tables.resources import resources
from penstock.spark.tables.samples import measured, samples
from penstock.spark.tables.syncs import syncs
from tests.spark.pipeline.derivation import frame, parsed, small

EVENTS = "penstock.events"
WINDOW_S = 1
BODY = b"x" * 100


class Pushing:
    """A client that publishes persistent messages as fast as its window of confirms allows."""

    def __init__(self, uri: str, queue: str, window: int = 1000, name: str = "orders-api") -> None:
        with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
            # A bound, so that the broker's disk is not: nobody consumes.
            connection.channel().queue_declare(queue, durable=True, arguments={"x-max-length": 5000})
        self._connection = Connection.connect(parse_uri(uri), name=name, notices=True)
        self._publisher = Publisher(self._connection.open_channel(), window)
        self._queue = queue
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Pushing:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._connection.abort()
        self._thread.join(60)

    @property
    def published(self) -> int:
        return self._publisher.published

    def _run(self) -> None:
        properties = encode_properties(Properties(delivery_mode=2))
        while not self._over.is_set():
            try:
                self._publisher.publish("", self._queue, properties, BODY)
            except (ClientError, OSError, ValueError):
                return  # the test cut it off


def tables_of(spark: SparkSession, uri: str, root: Path) -> Ledger:
    """What the broker has told so far, of all tables those that advice cannot do without."""
    with small(spark):
        told = parsed(spark, events_of(uri), WINDOW_S)
        events = frame(spark, told, "events")
        events = events.crossJoin(F.broadcast(known(events, None)))  # of all of them
        found = {
            "samples": samples(measured(events, WINDOW_S)),
            "syncs": syncs(events, WINDOW_S),
            "resources": resources(events, WINDOW_S),
        }
        rows = gathered(found)
    with Ledger(root).writing() as ledger:
        ledger.commit(None, [replace(name, table) for name, table in rows.items()], window_s=WINDOW_S)
    return Ledger(root)


def events_of(uri: str) -> list[tuple[int, bytearray]]:
    """All events that are there now, with their offsets."""
    with pika.BlockingConnection(pika.URLParameters(uri)) as connection:
        channel = connection.channel()
        count = channel.queue_declare(EVENTS, passive=True).method.message_count
        channel.basic_qos(prefetch_count=1000)
        rows: list[tuple[int, bytearray]] = []
        for method, properties, body in channel.consume(EVENTS, arguments={"x-stream-offset": "first"}):
            rows.append((int(properties.headers["x-stream-offset"]), bytearray(body)))
            channel.basic_ack(method.delivery_tag)
            if len(rows) >= count:
                return rows
    raise AssertionError("the stream ended")

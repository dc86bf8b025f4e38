"""The naive way into Spark and out of it: pika, one message at a time, as one writes it in an afternoon.

For bench/spark.py to compare with. It is written in good faith: one connection for
the whole query, a prefetch, batches of thousands, and only a few columns. What it does not have is safety: a message is
acked before Spark has it, so every crash loses a batch, and nothing can be read again.
Not here: measuring (sparkways.py).
"""

from collections.abc import Iterable, Iterator
from typing import Any

import pika
from pyspark.sql import Row
from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader

SCHEMA = "body binary, exchange string, routing_key string, delivery_mode int, offset bigint, redelivered boolean"
BATCH_ROWS = 10_000
QUIET_S = 0.1


class NaiveSource(DataSource):
    """Options: uri, queue, and get=true for basic.get instead of basic.consume."""

    @classmethod
    def name(cls) -> str:
        return "naive"

    def schema(self) -> str:
        return SCHEMA

    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        asked = self.options
        reader = NaiveGetReader if asked.get("get") == "true" else NaiveReader
        return reader(asked["uri"], asked["queue"])


class NaiveReader(SimpleDataSourceStreamReader):
    """basic.consume with a prefetch, an ack for each message."""

    def __init__(self, uri: str, queue: str) -> None:
        self.uri = uri
        self.queue = queue
        self.channel: Any = None

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[Any, ...]], dict[str, int]]:
        if self.channel is None:
            self.channel = pika.BlockingConnection(pika.URLParameters(self.uri)).channel()
            self.channel.basic_qos(prefetch_count=BATCH_ROWS)
        rows = list(self.take(start["n"]))
        return iter(rows), {"n": start["n"] + len(rows)}

    def take(self, number: int) -> Iterator[tuple[Any, ...]]:
        first = number
        for method, properties, body in self.channel.consume(self.queue, inactivity_timeout=QUIET_S):
            if method is None:
                return
            yield (body, method.exchange, method.routing_key, properties.delivery_mode, number, method.redelivered)
            self.channel.basic_ack(method.delivery_tag)
            number += 1
            if number - first == BATCH_ROWS:
                return

    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[Any, ...]]:
        raise NotImplementedError("what was acked is gone")


class NaiveGetReader(NaiveReader):
    """basic.get, a question and an answer for each message."""

    def take(self, number: int) -> Iterator[tuple[Any, ...]]:
        for at in range(number, number + BATCH_ROWS):
            method, properties, body = self.channel.basic_get(self.queue, auto_ack=True)
            if method is None:
                return
            yield (body, method.exchange, method.routing_key, properties.delivery_mode, at, method.redelivered)


class NaivePublish:
    """For foreachPartition: pika with confirms, which it waits for message by message."""

    def __init__(self, uri: str, queue: str) -> None:
        self.uri = uri
        self.queue = queue

    def __call__(self, rows: Iterable[Row]) -> None:
        with pika.BlockingConnection(pika.URLParameters(self.uri)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            persistent = pika.BasicProperties(delivery_mode=2)
            for row in rows:
                channel.basic_publish("", self.queue, bytes(row.body), persistent)

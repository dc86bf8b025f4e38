"""What tests of queues do to a broker, any broker: declare, publish with confirms, count, delete."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.amqp.method import QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk
from penstock.amqp.properties import PERSISTENT, TRANSIENT, Properties, encode_properties
from penstock.amqp.table import Table
from penstock.client.connection import Connection
from penstock.client.publisher import Publisher
from penstock.client.uri import parse_uri
from penstock.spark.gauge import Gauge


def declare(uri: str, queue: str, arguments: Table | None = None) -> None:
    with Connection.connect(parse_uri(uri)) as connection:
        connection.open_channel().call(QueueDeclare(queue, durable=True, arguments=arguments or {}), QueueDeclareOk)


def delete(uri: str, queue: str) -> None:
    with Connection.connect(parse_uri(uri)) as connection:
        connection.open_channel().call(QueueDelete(queue), QueueDeleteOk)


def publish(uri: str, queue: str, numbers: Iterable[int], ids: bool = False, persistent: bool = True) -> None:
    """Messages whose body is a number; all of them are in the queue on return."""
    mode = PERSISTENT if persistent else TRANSIENT
    with Connection.connect(parse_uri(uri)) as connection:
        publisher = Publisher(connection.open_channel())
        for number in numbers:
            message_id = f"id {number}" if ids else None
            properties = Properties(delivery_mode=mode, message_id=message_id, headers={"n": number % 3})
            publisher.publish("", queue, encode_properties(properties), b"%d" % number)
        publisher.flush()


def ready(uri: str, queue: str) -> int:
    gauge = Gauge(parse_uri(uri), queue)
    try:
        return gauge.count_ready()
    finally:
        gauge.close()

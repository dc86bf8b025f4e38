"""Reading back what a sink has published, with our own client."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.amqp.method import (
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
)
from penstock.amqp.properties import Properties, decode_properties
from penstock.amqp.table import Table
from penstock.client.connection import Connection
from penstock.client.consumer import Consumer, Deliveries
from penstock.client.uri import parse_uri

READ_S = 60.0  # only ends a test that would hang


@dataclass(frozen=True)
class Message:
    exchange: str
    routing_key: str
    properties: Properties
    body: bytes


def declare(uri: str, queue: str, exchange: str = "", key: str = "#", arguments: Table | None = None) -> None:
    """A durable queue; bound to a topic exchange, if one is named."""
    with Connection.connect(parse_uri(uri)) as connection:
        channel = connection.open_channel()
        channel.call(QueueDeclare(queue, durable=True, arguments=arguments or {}), QueueDeclareOk)
        if exchange:
            channel.call(ExchangeDeclare(exchange, "topic", durable=True), ExchangeDeclareOk)
            channel.call(QueueBind(queue, exchange, key), QueueBindOk)


def count(uri: str, queue: str) -> int:
    """Ready messages of a queue."""
    with Connection.connect(parse_uri(uri)) as connection:
        return connection.open_channel().call(QueueDeclare(queue, passive=True), QueueDeclareOk).message_count


def read_stream(uri: str, stream: str, until: bytes) -> list[Message]:
    """A stream from its first message to the one with this body."""
    found: list[Message] = []
    with Connection.connect(parse_uri(uri)) as connection:
        consumer = Consumer(connection.open_channel(), stream, prefetch=1000, arguments={"x-stream-offset": "first"})
        while not found or found[-1].body != until:
            got = consumer.read(1000, READ_S)
            assert len(got), f"{len(found)} messages came, and {until!r} was not among them"
            found += messages(got)
            consumer.ack(got.tags[-1])
        consumer.cancel()
    return found


def messages(got: Deliveries) -> list[Message]:
    return [
        Message(exchange, key, decode_properties(raw, 0, len(raw)), body)
        for exchange, key, raw, body in zip(got.exchanges, got.routing_keys, got.headers, got.bodies)
    ]


def drain(uri: str, queue: str) -> list[Message]:
    """All that is in a queue now."""
    left = count(uri, queue)
    found: list[Message] = []
    with Connection.connect(parse_uri(uri)) as connection:
        consumer = Consumer(connection.open_channel(), queue, no_ack=True)
        while len(found) < left:
            got = consumer.read(left - len(found), READ_S)
            assert len(got), f"{len(found)} of {left} messages came"
            found += messages(got)
        consumer.cancel()
    return found

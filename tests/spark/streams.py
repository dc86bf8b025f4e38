"""Feeder: fills streams for the tests of the source, with our own client, so that 100,000 messages take a second."""

from __future__ import annotations

from types import TracebackType

from penstock.amqp.method import QueueDeclare, QueueDeclareOk, QueueDelete, QueueDeleteOk
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import Table
from penstock.client.connection import Connection
from penstock.client.publisher import Publisher
from penstock.client.stream import offsets
from penstock.client.uri import parse_uri
from tests.wire.waiting import wait_until


class Feeder:
    def __init__(self, uri: str) -> None:
        self._uri = parse_uri(uri)
        self._numbers: dict[str, int] = {}

    def __enter__(self) -> Feeder:
        self._connection = Connection.connect(self._uri)
        self._publisher = Publisher(Connection.connect(self._uri, notices=True).open_channel())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.socket.close()
        self._publisher.channel.connection.socket.close()

    def declare(self, stream: str, arguments: Table | None = None, kind: str = "stream") -> None:
        channel = self._connection.open_channel()
        asked: Table = {"x-queue-type": kind, **(arguments or {})}
        channel.call(QueueDeclare(stream, durable=True, arguments=asked), QueueDeclareOk)
        channel.close()

    def delete(self, stream: str) -> None:
        channel = self._connection.open_channel()
        channel.call(QueueDelete(stream), QueueDeleteOk)
        channel.close()
        self._numbers.pop(stream, None)

    def count(self, queue: str) -> int:
        channel = self._connection.open_channel()
        found = channel.call(QueueDeclare(queue, passive=True), QueueDeclareOk).message_count
        channel.close()
        return found

    def publish(self, stream: str, count: int, size: int = 0) -> None:
        """So many more messages, confirmed; their bodies are their numbers, filled up to `size` bytes."""
        first = self._numbers.get(stream, 0)
        for number in range(first, first + count):
            properties = encode_properties(Properties(content_type="text/plain", headers={"number": number}))
            self._publisher.publish("", stream, properties, b"%d" % number + b" " * size)
        self._publisher.flush()
        self._numbers[stream] = first + count

    def first_after(self, stream: str, offset: int) -> int:
        """The stream's first offset, once retention has removed what is before and at `offset`."""
        channel = self._connection.open_channel()

        def first() -> int | None:
            found = offsets(channel, stream).first
            return found if found > offset else None

        found = wait_until(first, what=f"retention of {stream} to pass offset {offset}")
        channel.close()
        return found or 0

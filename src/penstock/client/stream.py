"""Stream: which offsets a stream has, and which queues a partitioned stream is made of.

Upstream: Spark's stream readers and the command line.  Downstream: a channel or connection of this package.
Penstock is asked: a consume with `x-stream-query` is answered by one delivery whose headers say all, and ends.
Other brokers have no such question, so `offsets` looks: a consumer at "first" shows the first offset, one at "last"
reads to the end. That the stream is empty, or its end is reached, shows only by nothing coming for a while, so what
is found may be less than what is there, never more: a caller that asks again keeps the greater `next`.
Not here: reading the messages (consumer.py), declaring streams.
"""

import time
from typing import NamedTuple

from penstock.amqp.bounds import NAME_BYTES_MAX
from penstock.amqp.close import CloseConnection
from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from penstock.amqp.properties import decode_properties
from penstock.amqp.table import Table, Timestamp
from penstock.client.connection import Channel, Connection
from penstock.client.consumer import Consumer, Deliveries
from penstock.client.error import ClientError, Closed

QUERY_CAPABILITY = "penstock.streams"
QUERY_WAIT_S = 30.0  # as a call waits for its reply
PROBE_WAIT_S = 2.0  # for a first message: RabbitMQ needs milliseconds when idle, and far more when it is busy
PROBE_TAIL_S = 0.2  # for one more, while they come
PROBE_MOST_S = 2.0  # a stream that is written to all the time has no end to wait for
PROBE_PREFETCH = 1000
PROBE_READ = 10_000
PARTITIONS_MAX = 10_000  # a bound for the search only
NOT_FOUND = 404
NO_PROPERTIES = b"\0\0"

OffsetSpec = str | int | Timestamp  # first, last, next, an offset, a time, an interval such as "1h"


class Offsets(NamedTuple):
    """`first` is the oldest message's, `next` what the coming message will get; equal in an empty stream.

    `resolved` is where a consumer at the asked place begins."""

    first: int
    next: int
    resolved: int


def offsets(channel: Channel, stream: str, offset: OffsetSpec = "next") -> Offsets:
    """The offsets of a stream now; Closed, with the broker's words, if there is no such stream: then so is the channel.

    The channel may be used again and again, but for nothing else at the same time."""
    if channel.connection.has(QUERY_CAPABILITY):
        return _ask(channel, stream, offset)
    return _probe(channel, stream, offset)


def partitions(connection: Connection, name: str) -> list[str]:
    """The queues of a stream: itself, or NAME-0, NAME-1 … of a partitioned one; empty if there is neither."""
    if _exists(connection, name):
        return [name]
    found: list[str] = []
    while len(found) < PARTITIONS_MAX and _exists(connection, f"{name}-{len(found)}"):
        found.append(f"{name}-{len(found)}")
    return found


def offset_of(properties: bytes) -> int:
    """The x-stream-offset of a delivery with these properties; -1 if it has none."""
    return _header(properties, "x-stream-offset")


def _ask(channel: Channel, stream: str, offset: OffsetSpec) -> Offsets:
    arguments: Table = {"x-stream-query": True, "x-stream-offset": offset}
    consumer = Consumer(channel, stream, no_ack=True, arguments=arguments)
    got = consumer.read(1, QUERY_WAIT_S)
    headers = got.headers[0] if got else NO_PROPERTIES
    names = ("x-stream-first-offset", "x-stream-next-offset", "x-stream-offset")
    first, following, resolved = (_header(headers, name) for name in names)
    if min(first, following) < 0 or consumer.read(1, QUERY_WAIT_S) or not consumer.ended:
        raise ClientError(f"{channel.connection.uri.address} did not say which offsets the stream {stream!r} has")
    return Offsets(first, following, resolved)


def _probe(channel: Channel, stream: str, offset: OffsetSpec) -> Offsets:
    first = _first_from(channel, stream, "first")
    if first is None:
        return Offsets(0, 0, 0)
    following = max(_next(channel, stream), first + 1)
    if offset == "first":
        return Offsets(first, following, first)
    if offset == "next":
        return Offsets(first, following, following)
    if isinstance(offset, int):
        return Offsets(first, following, min(max(offset, first), following))
    resolved = _first_from(channel, stream, offset)
    return Offsets(first, following, following if resolved is None else resolved)


def _first_from(channel: Channel, stream: str, offset: OffsetSpec) -> int | None:
    """The offset of the first message a consumer gets there; None if nothing comes."""
    consumer = _reader(channel, stream, offset, 1)
    got = consumer.read(1, PROBE_WAIT_S)
    if not got:
        _end(consumer, got)
        return None
    found = offset_of(got.headers[0])
    if found < 0:  # a queue, whose message must go back
        consumer.cancel()
        channel.close()
        raise ClientError(f"{stream!r} at {channel.connection.uri.address} is a queue, not a stream")
    _end(consumer, got)
    return found


def _next(channel: Channel, stream: str) -> int:
    """One behind the last message; 0 if none is seen."""
    consumer = _reader(channel, stream, "last", PROBE_PREFETCH)
    following = 0
    deadline = time.monotonic() + PROBE_MOST_S
    got = consumer.read(PROBE_READ, PROBE_WAIT_S)
    while got:
        following = offset_of(got.headers[-1]) + 1
        if time.monotonic() > deadline:
            break
        consumer.ack(got.tags[-1])
        got = consumer.read(PROBE_READ, PROBE_TAIL_S)
    _end(consumer, got)
    return following


def _end(consumer: Consumer, got: Deliveries) -> None:
    """Cancel, and ack what was only looked at: it means nothing to a stream, but the channel must not keep it."""
    tags = [*got.tags, *consumer.cancel().tags]
    if tags:
        consumer.ack(tags[-1])


def _reader(channel: Channel, stream: str, offset: OffsetSpec, prefetch: int) -> Consumer:
    return Consumer(channel, stream, prefetch, arguments={"x-stream-offset": offset})


def _exists(connection: Connection, queue: str) -> bool:
    if len(queue.encode("utf-8", "surrogateescape")) > NAME_BYTES_MAX:
        return False  # nobody could have declared it
    channel = connection.open_channel()
    try:
        channel.call(QueueDeclare(queue, passive=True), QueueDeclareOk)
    except Closed as error:
        if error.code != NOT_FOUND:
            raise
        return False  # and the channel is gone with the answer
    channel.close()
    return True


def _header(properties: bytes, name: str) -> int:
    try:
        headers = decode_properties(properties, 0, len(properties)).headers or {}
    except CloseConnection:
        return -1
    value = headers.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else -1

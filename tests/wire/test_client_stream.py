"""The client and Penstock's streams: asking for offsets, reading a range that ends by itself, partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from penstock.amqp.table import Table, Timestamp
from penstock.client.connection import Channel, Connection
from penstock.client.consumer import Consumer
from penstock.client.error import ClientError, Closed
from penstock.client.publisher import Publisher
from penstock.client.stream import Offsets, offset_of, offsets, partitions
from penstock.client.uri import parse_uri
from tests.wire.live import LiveBroker
from tests.wire.waiting import LIMIT_S

STREAM: Table = {"x-queue-type": "stream"}
NONE = b"\0\0"  # no properties


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveBroker]:
    with LiveBroker(data=tmp_path_factory.mktemp("data")) as live:
        yield live


@pytest.fixture
def channel(broker: LiveBroker) -> Iterator[Channel]:
    with Connection.connect(parse_uri(broker.uri), notices=True) as connection:
        yield connection.open_channel()


@pytest.fixture
def other(broker: LiveBroker) -> Iterator[Channel]:
    with Connection.connect(parse_uri(broker.uri)) as connection:
        yield connection.open_channel()


@pytest.fixture(scope="module")
def full(broker: LiveBroker) -> str:
    """A stream of 10,000 messages."""
    with Connection.connect(parse_uri(broker.uri), notices=True) as connection:
        channel = connection.open_channel()
        declare(channel, "full", STREAM)
        publisher = Publisher(channel)
        for number in range(10_000):
            publisher.publish("", "full", NONE, b"%0200d" % number)
        publisher.flush()
    return "full"


def declare(channel: Channel, queue: str, arguments: Table | None = None) -> None:
    channel.call(QueueDeclare(queue, durable=True, arguments=arguments or {}), QueueDeclareOk)


def test_offsets_are_asked_for_again_and_again_on_one_channel(full: str, other: Channel) -> None:
    assert other.connection.has("penstock.streams")
    for _ in range(100):
        assert offsets(other, full) == Offsets(0, 10_000, 10_000)
    assert offsets(other, full, "first") == Offsets(0, 10_000, 0)
    assert offsets(other, full, 17) == Offsets(0, 10_000, 17)
    assert offsets(other, full, "1h").resolved == 0
    assert offsets(other, full, Timestamp(1)).resolved == 0
    assert offsets(other, full, Timestamp(1 << 33)).resolved == 10_000


def test_an_empty_stream_begins_and_ends_at_0(other: Channel) -> None:
    declare(other, "empty", STREAM)
    assert offsets(other, "empty") == Offsets(0, 0, 0)


def test_a_range_is_read_to_its_end_and_the_consumer_ends(full: str, other: Channel) -> None:
    arguments: Table = {"x-stream-offset": 1234, "x-stream-stop-offset": 8765}
    consumer = Consumer(other, full, no_ack=True, arguments=arguments)
    found: list[int] = []
    bodies: list[int] = []
    while not consumer.ended:
        got = consumer.read(1000, LIMIT_S)
        found += map(offset_of, got.headers)
        bodies += map(int, got.bodies)
    assert found == bodies == list(range(1234, 8765))
    assert offsets(other, full).next == 10_000  # the channel is free again


def test_a_stream_that_is_not_there_is_told_and_a_queue_keeps_its_messages(
    broker: LiveBroker, channel: Channel
) -> None:
    declare(channel, "classic")
    publisher = Publisher(channel)
    publisher.publish("", "classic", NONE, b"kept")
    publisher.flush()
    with pytest.raises(Closed, match="no queue 'missing'") as closed:
        offsets(channel.connection.open_channel(), "missing")
    assert closed.value.code == 404
    with pytest.raises(ClientError):
        offsets(channel.connection.open_channel(), "classic")
    assert broker.count("classic") == 1


def test_the_partitions_of_a_stream_are_found_by_their_names(other: Channel) -> None:
    for name in ("one", "many-0", "many-1", "many-3"):
        declare(other, name, STREAM)
    assert partitions(other.connection, "one") == ["one"]
    assert partitions(other.connection, "many") == ["many-0", "many-1"]
    assert partitions(other.connection, "none") == []
    assert partitions(other.connection, "n" * 255) == []  # of which no partition can have a name

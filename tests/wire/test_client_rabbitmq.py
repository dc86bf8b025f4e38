"""The client against Debian's RabbitMQ: streams, whose offsets it must find by looking, confirms, a blocked broker."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator

import psutil
import pytest

from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import Table, Timestamp
from penstock.client.connection import Channel, Connection
from penstock.client.consumer import Consumer
from penstock.client.error import ClientError, Closed, Refused
from penstock.client.publisher import Publisher
from penstock.client.stream import Offsets, offset_of, offsets, partitions
from penstock.client.uri import Uri, parse_uri
from penstock.perf.rabbitmq import NotInstalled, RabbitMQ, find_script, running_rabbitmq
from tests.wire.waiting import LIMIT_S, wait_until

CTL = "/usr/lib/rabbitmq/bin/rabbitmqctl"
STREAM: Table = {"x-queue-type": "stream"}
NONE = b"\0\0"  # no properties


@pytest.fixture(scope="module")
def rabbitmq() -> Iterator[RabbitMQ]:
    try:
        find_script()
    except NotInstalled as error:
        pytest.skip(str(error))
    with running_rabbitmq() as running:
        yield running


@pytest.fixture(scope="module")
def uri(rabbitmq: RabbitMQ) -> Uri:
    return parse_uri(rabbitmq.uri)


@pytest.fixture
def channel(uri: Uri) -> Iterator[Channel]:
    with Connection.connect(uri, notices=True) as connection:
        yield connection.open_channel()


@pytest.fixture
def other(uri: Uri) -> Iterator[Channel]:
    with Connection.connect(uri) as connection:
        yield connection.open_channel()


def declare(channel: Channel, queue: str, arguments: Table | None = None) -> None:
    channel.call(QueueDeclare(queue, durable=True, arguments=arguments or {}), QueueDeclareOk)


def fill(channel: Channel | Publisher, queue: str, count: int) -> None:
    publisher = channel if isinstance(channel, Publisher) else Publisher(channel)
    for number in range(count):
        publisher.publish("", queue, NONE, b"%d" % number)
    publisher.flush()


def ctl(rabbitmq: RabbitMQ, *arguments: str) -> None:
    environment = psutil.Process(rabbitmq.pid).environ()
    command = [CTL, "-n", environment["RABBITMQ_NODENAME"], *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=4 * LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_offsets_of_a_stream_are_found_from_every_place(channel: Channel, other: Channel) -> None:
    declare(channel, "full", STREAM)
    fill(channel, "full", 5000)
    # A busy machine may make it look before the last has come: then it finds less, and finds it the next time.
    wait_until(lambda: offsets(other, "full") == Offsets(0, 5000, 5000))
    assert offsets(other, "full", "first").resolved == 0
    assert offsets(other, "full", 17).resolved == 17
    wait_until(lambda: offsets(other, "full", 9000) == Offsets(0, 5000, 5000))
    assert offsets(other, "full", "1h").resolved == 0
    assert offsets(other, "full", Timestamp(int(time.time()) - 3600)).resolved == 0
    # The channel was only looked with: it has kept nothing, and consumes as before.
    consumer = Consumer(other, "full", prefetch=100, arguments={"x-stream-offset": 4990})
    got = consumer.read(100, LIMIT_S)
    while len(got.bodies) < 10:
        more = consumer.read(100, LIMIT_S)
        got.bodies += more.bodies
        got.headers += more.headers
    assert [int(body) for body in got.bodies] == list(range(4990, 5000))
    assert [offset_of(properties) for properties in got.headers] == list(range(4990, 5000))


def test_an_empty_stream_begins_and_ends_at_0(other: Channel) -> None:
    declare(other, "empty", STREAM)
    assert offsets(other, "empty") == Offsets(0, 0, 0)


def test_the_end_of_a_stream_that_is_written_to_all_the_time_is_found(channel: Channel, other: Channel) -> None:
    declare(channel, "busy", STREAM)
    publisher = Publisher(channel)
    fill(publisher, "busy", 1000)
    wait_until(lambda: offsets(other, "busy").next >= 1000)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            fill(publisher, "busy", 100)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [offsets(other, "busy").next for _ in range(2)]
    finally:
        stop.set()
        writer.join(LIMIT_S)
    assert all(1000 <= end <= publisher.published for end in found)


def test_a_stream_that_is_not_there_is_told_and_a_queue_keeps_its_messages(channel: Channel, uri: Uri) -> None:
    declare(channel, "classic")
    fill(channel, "classic", 3)
    with Connection.connect(uri) as connection:
        with pytest.raises(Closed, match="no queue 'missing'") as closed:
            offsets(connection.open_channel(), "missing")
        assert closed.value.code == 404
        with pytest.raises(ClientError):
            offsets(connection.open_channel(), "classic")
        again = connection.open_channel()
        assert len(Consumer(again, "classic", prefetch=10).read(3, LIMIT_S)) > 0
    again = channel.connection.open_channel()
    wait_until(lambda: again.call(QueueDeclare("classic", passive=True), QueueDeclareOk).message_count == 3)


def test_the_partitions_of_a_stream_are_found_by_their_names(other: Channel) -> None:
    for name in ("one", "many-0", "many-1", "many-2", "many-4"):
        declare(other, name, STREAM)
    connection = other.connection
    assert partitions(connection, "one") == ["one"]
    assert partitions(connection, "many") == ["many-0", "many-1", "many-2"]
    assert partitions(connection, "none") == []


def test_no_message_is_lost_between_publisher_and_consumer(channel: Channel, other: Channel) -> None:
    declare(channel, "way")
    bodies = [b"x" * size for size in (0, 1, 131_064, 131_065, 1_000_000)] + [b"%d" % n for n in range(10_000)]
    publisher = Publisher(channel, window=500)
    for body in bodies:
        publisher.publish("", "way", NONE, body)
    publisher.flush()
    consumer = Consumer(other, "way", prefetch=500)
    got: list[bytes] = []
    while len(got) < len(bodies):
        some = consumer.read(1000, LIMIT_S)
        assert some
        consumer.ack(some.tags[-1])
        got += some.bodies
    assert got == bodies


def test_what_is_refused_or_returned_is_named(channel: Channel) -> None:
    declare(channel, "short", {"x-max-length": 1, "x-overflow": "reject-publish"})
    publisher = Publisher(channel)
    for number in range(20):
        publisher.publish("", "short", encode_properties(Properties(message_id=f"m{number}")), b"x")
    with pytest.raises(Refused, match=r"message 'm\d+' to exchange '' with routing key 'short': .*nack") as refused:
        publisher.flush()
    assert refused.value.numbers[-1] == 20  # which is the first depends on when the queue finds itself full
    publisher.publish("", "nowhere", encode_properties(Properties(message_id="lost")), b"x" * 300_000, mandatory=True)
    with pytest.raises(Refused, match=r"message 'lost' .* routing key 'nowhere': .*NO_ROUTE") as refused:
        publisher.flush()
    assert refused.value.numbers == [21]


def test_a_blocked_publisher_waits_says_so_and_goes_on(rabbitmq: RabbitMQ, channel: Channel, other: Channel) -> None:
    declare(channel, "blocked")
    said: list[str] = []
    publisher = Publisher(channel, window=100, blocked=said.append)

    def publish() -> None:
        for _ in range(2000):
            publisher.publish("", "blocked", NONE, b"x" * 200)
        publisher.flush()

    ctl(rabbitmq, "set_vm_memory_high_watermark", "absolute", "1MB")
    writer = threading.Thread(target=publish)
    try:
        writer.start()
        wait_until(lambda: said)
        assert writer.is_alive()
    finally:
        ctl(rabbitmq, "set_vm_memory_high_watermark", "0.4")
        writer.join(LIMIT_S)
    assert said == ["low on memory", ""]
    assert other.call(QueueDeclare("blocked", passive=True), QueueDeclareOk).message_count == 2000

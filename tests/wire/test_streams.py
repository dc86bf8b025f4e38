"""Streams as clients see them: offsets, many readers, a reader that ends by itself, retention, restarts, kill -9."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.wire.live import LiveBroker, ServeProcess, serve_environment
from tests.wire.waiting import LIMIT_S, wait_until

STREAM = {"x-queue-type": "stream"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker(data=tmp_path) as live:
        yield live


def connect(uri: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(uri))


def declare(channel: BlockingChannel, name: str = "s", **arguments: Any) -> None:
    named = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
    channel.queue_declare(name, durable=True, arguments=STREAM | named)


def fill(channel: BlockingChannel, first: int, end: int, name: str = "s", size: int = 0) -> None:
    channel.confirm_delivery()
    for number in range(first, end):
        channel.basic_publish("", name, b"%d" % number + b" " * size)


class Reader:
    """Consumes a stream with pika until a condition holds."""

    def __init__(self, uri: str, offset: Any = None, prefetch: int = 100, name: str = "s", **arguments: Any) -> None:
        self.connection = connect(uri)
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=prefetch)
        self.offsets: list[int] = []
        self.bodies: list[bytes] = []
        self.ended = False
        self.acks = True
        self.channel.add_on_cancel_callback(self._cancelled)
        named: dict[str, Any] = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        if offset is not None:
            named["x-stream-offset"] = offset
        self.channel.basic_consume(name, self._got, arguments=named)

    def _got(self, channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        self.offsets.append(properties.headers["x-stream-offset"])
        self.headers = properties.headers
        self.bodies.append(body.strip())
        if self.acks:
            channel.basic_ack(method.delivery_tag)

    def _cancelled(self, _: Any) -> None:
        self.ended = True

    def read(self, count: int = 0) -> list[bytes]:
        """So many messages, or all until the broker ends it."""

        def holds() -> bool:
            self.connection.process_data_events(0.01)
            return len(self.bodies) >= count if count else self.ended

        wait_until(holds)
        return self.bodies

    def close(self) -> None:
        self.connection.close()


def read_from(uri: str, offset: Any, count: int, **options: Any) -> list[int]:
    """The offsets of so many messages from here on."""
    reader = Reader(uri, offset, **options)
    reader.read(count)
    reader.close()
    return reader.offsets


def numbers(first: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, end)]


def test_many_readers_read_the_same_stream_each_from_its_own_place(broker: LiveBroker) -> None:
    with connect(broker.uri) as connection:
        channel = connection.channel()
        declare(channel)
        fill(channel, 0, 50)
        readers = [Reader(broker.uri, "first"), Reader(broker.uri, 20), Reader(broker.uri, "next")]
        fill(channel, 50, 60)
        for reader, first in zip(readers, (0, 20, 50), strict=True):
            assert reader.read(60 - first) == numbers(first, 60)
            assert reader.offsets == list(range(first, 60))
            reader.close()
        tail = Reader(broker.uri, "last")
        assert tail.read(1)
        assert tail.offsets[0] >= 50  # the second lot came in batches of its own
        tail.close()
        assert channel.queue_declare("s", passive=True).method.message_count == 60


def test_a_timestamp_and_an_age_find_what_came_since(broker: LiveBroker) -> None:
    with connect(broker.uri) as connection:
        channel = connection.channel()
        declare(channel)
        fill(channel, 0, 10)
        assert read_from(broker.uri, datetime.now(UTC) - timedelta(hours=1), 10) == list(range(10))
        assert read_from(broker.uri, "1h", 10) == list(range(10))
        later = Reader(broker.uri, datetime.now(UTC) + timedelta(hours=1))
        fill(channel, 10, 11)
        assert later.read(1) == [b"10"]
        later.close()


def test_a_reader_with_a_stop_offset_gets_all_below_it_and_is_ended_by_the_broker(broker: LiveBroker) -> None:
    with connect(broker.uri) as connection:
        channel = connection.channel()
        declare(channel)
        fill(channel, 0, 30)
        reader = Reader(broker.uri, 5, stream_stop_offset=25)
        assert reader.read() == numbers(5, 25)
        ahead = Reader(broker.uri, 28, stream_stop_offset=32)  # two of them are still to come
        assert ahead.read(2) == numbers(28, 30)
        fill(channel, 30, 40)
        assert ahead.read() == numbers(28, 32)
        empty = Reader(broker.uri, 5, stream_stop_offset=5)
        assert empty.read() == []
        for one in (reader, ahead, empty):
            one.close()


def test_a_query_is_answered_by_one_message_with_the_first_the_next_and_the_resolved_offset(broker: LiveBroker) -> None:
    with connect(broker.uri) as connection:
        channel = connection.channel()
        declare(channel)
        fill(channel, 0, 7)
        reader = Reader(broker.uri, datetime(1990, 1, 1, tzinfo=UTC), stream_query=True)
        reader.read()
        assert reader.bodies == [b""]
        assert reader.headers == {"x-stream-first-offset": 0, "x-stream-next-offset": 7, "x-stream-offset": 0}
        reader.close()


def test_a_slow_reader_is_held_by_its_prefetch_and_disturbs_nobody(broker: LiveBroker) -> None:
    with connect(broker.uri) as connection:
        channel = connection.channel()
        declare(channel)
        slow = Reader(broker.uri, "first", prefetch=3)
        slow.acks = False
        quick = Reader(broker.uri, "first")
        fill(channel, 0, 500)
        assert quick.read(500) == numbers(0, 500)
        assert slow.read(3) == numbers(0, 3)
        slow.channel.basic_ack(3, multiple=True)
        slow.acks = True
        assert slow.read(500) == numbers(0, 500)
        slow.close()
        quick.close()


def test_what_retention_drops_is_gone_from_the_front_and_offsets_stay(broker: LiveBroker) -> None:
    with connect(broker.uri) as connection:
        channel = connection.channel()
        declare(channel, max_length_bytes=20_000, stream_max_segment_size_bytes=5_000)
        fill(channel, 0, 300, size=300)
        stream: Any = broker.queue("s")
        # Nothing is published now: below its limit it stays as it is.
        wait_until(lambda: broker.call(lambda: stream.log.bytes <= stream.log.max_bytes))
        first = broker.call(lambda: stream.log.first)
        assert first > 100
        assert read_from(broker.uri, "first", 300 - first) == list(range(first, 300))
        assert read_from(broker.uri, 0, 300 - first) == list(range(first, 300))


def test_offsets_and_messages_are_the_same_after_a_stop_and_after_kill_9(
    serve_process: Callable[..., ServeProcess], tmp_path: Path
) -> None:
    data = ("--data", str(tmp_path / "data"))
    one = serve_process(*data)
    with connect(one.uri) as connection:
        channel = connection.channel()
        declare(channel)
        fill(channel, 0, 100)
    one.terminate()
    two = serve_process(*data)
    assert read_from(two.uri, "first", 100) == list(range(100))
    with connect(two.uri) as connection:
        fill(connection.channel(), 100, 150)
    two.kill()
    three = serve_process(*data)
    reader = Reader(three.uri, 90)
    assert reader.read(60) == numbers(90, 150)
    assert reader.offsets == list(range(90, 150))
    reader.close()
    with connect(three.uri) as connection:
        channel = connection.channel()
        fill(channel, 150, 151)
        assert read_from(three.uri, 149, 2) == [149, 150]


def test_readers_that_come_and_go_while_others_publish_miss_nothing(broker: LiveBroker) -> None:
    with connect(broker.uri) as connection:
        declare(connection.channel())
    done = threading.Event()

    def publish() -> None:
        with connect(broker.uri) as other:
            fill(other.channel(), 0, 3000, size=200)
        done.set()

    thread = threading.Thread(target=publish)
    thread.start()
    seen: list[int] = []
    while len(seen) < 3000:
        reader = Reader(broker.uri, len(seen), prefetch=50)
        reader.read(min(20, 3000 - len(seen)))  # few readers are enough
        reader.connection.close()
        seen += reader.offsets
        assert seen == list(range(len(seen)))
    thread.join()
    assert done.is_set()


def test_a_stream_without_a_data_directory_is_refused_by_name() -> None:
    with (
        LiveBroker() as broker,
        pytest.raises(pika.exceptions.ConnectionClosedByBroker, match=r"queue 's' .* data directory"),
        connect(broker.uri) as connection,
    ):
        declare(connection.channel())


def penstock_stream(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", "stream", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=2 * LIMIT_S, env=serve_environment())


def test_the_command_declares_shows_and_deletes_a_partitioned_stream(broker: LiveBroker) -> None:
    told = penstock_stream("declare", "orders", "--partitions", "3", "--max-age", "7D", "--uri", broker.uri)
    assert told.stdout == "declared: exchange orders and streams orders-0 to orders-2\n", told.stderr
    with connect(broker.uri) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for number in range(60):
            channel.basic_publish("orders", str(number), b"%d" % number)
    told = penstock_stream("show", "orders", "--uri", broker.uri)
    counts = [int(line.split("│")[4]) for line in told.stdout.splitlines() if "orders-" in line]
    assert len(counts) == 3
    assert sum(counts) == 60
    assert all(counts), "the exchange spreads keys"
    told = penstock_stream("delete", "orders", "--uri", broker.uri)
    assert told.stdout == "deleted: orders-0, orders-1, orders-2\n"
    assert broker.call(lambda: list(broker.inside.vhosts["/"].queues)) == ["penstock.events"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["show", "nothing"], "there is no stream 'nothing'"),
        (["declare", "s", "--max-age", "soon"], "'soon' is no age"),
        (["declare", "s", "--partitions", "1001"], "--partitions is 0 to 1000"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(broker: LiveBroker, arguments: list[str], expected: str) -> None:
    told = penstock_stream(*arguments, "--uri", broker.uri)
    assert told.returncode == 1
    assert expected in told.stderr
    assert len(told.stderr.splitlines()) == 1

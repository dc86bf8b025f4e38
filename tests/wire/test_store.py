"""The store as clients see it: a confirm waits for the sync, a slow disk holds back who outruns it and nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest

from penstock.amqp.method import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
)
from penstock.amqp.properties import PERSISTENT, Properties
from penstock.credit import Stage
from penstock.store.files import Files
from tests.wire.live import LiveBroker, ServeProcess
from tests.wire.raw import RawClient, publish_bytes
from tests.wire.test_management import Http
from tests.wire.waiting import wait_until

KEPT = Properties(delivery_mode=PERSISTENT)
STORE_CREDIT = 2000  # the default
HOP_CREDIT = 400  # the default between reader, channel and queue
FLOOD = 30_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LiveBroker]:
    with LiveBroker({"store.cache_bytes": "1000000"}, data=tmp_path) as broker:
        yield broker


def slow_down(broker: LiveBroker, delay_s: float) -> None:
    def change() -> None:
        assert broker.server.vault is not None
        broker.server.vault.store.journal.sync_delay_s = delay_s

    broker.call(change)


class HeldFiles(Files):
    """A disk whose syncs take as long as the test wants: until `go` is set."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def sync(self, descriptor: int) -> None:
        self.go.wait()
        super().sync(descriptor)


@contextmanager
def held_syncs(broker: LiveBroker) -> Iterator[threading.Event]:
    """No sync ends before the event is set; at the end of the block it is."""
    assert broker.server.vault is not None
    journal = broker.server.vault.store.journal
    files = HeldFiles()
    before = journal._files
    journal._files = files
    try:
        yield files.go
    finally:
        files.go.set()
        journal._files = before


def open_client(broker: LiveBroker, confirms: bool = False) -> RawClient:
    client = RawClient(broker.port).handshake()
    client.open()
    if confirms:
        client.ask(ConfirmSelect(), ConfirmSelectOk)
    return client


def stages(broker: LiveBroker, queue: str) -> list[Stage]:
    """The publisher's reader and channel, and the queue: all whom a blocked store should hold back."""
    found: list[Stage] = [broker.queue(queue)]
    for link in broker.queue(queue).incoming.values():
        found.append(link.upstream)
        found += [one.upstream for one in link.upstream.incoming.values()]
    return found


def test_a_publisher_that_outruns_a_slow_disk_is_held_back_and_nobody_else(broker: LiveBroker) -> None:
    with (
        open_client(broker) as publisher,
        open_client(broker, confirms=True) as neighbour,
        held_syncs(broker) as go,
    ):
        go.set()
        publisher.ask(QueueDeclare("flood", durable=True), QueueDeclareOk)
        neighbour.ask(QueueDeclare("calm"), QueueDeclareOk)
        neighbour.ask(BasicConsume("calm", no_ack=True), BasicConsumeOk)
        go.clear()
        flood = publish_bytes("flood", b"x" * 100, properties=KEPT) * FLOOD
        publisher.socket.settimeout(None)  # it is held back as long as the test takes
        sender = threading.Thread(target=publisher.send_bytes, args=(flood,))
        sender.start()

        def all_blocked() -> bool:
            found = stages(broker, "flood")
            return len(found) == 3 and all(stage.blocked_by for stage in found)

        wait_until(lambda: broker.call(all_blocked), what="reader, channel and queue are blocked")
        http = Http(f"http://127.0.0.1:{broker.manage()}/")
        assert {one["state"] for one in http.get("connections")} == {"flow", "running"}
        assert {one["state"] for one in http.get("channels")} == {"flow", "running"}
        shown = http.get("queues/%2F/flood")
        assert (shown["state"], shown["blocked_by"]) == ("flow", ["store"])
        assert http.get("queues/%2F/calm")["blocked_by"] == []
        for number in range(50):  # on another connection, to a queue that needs no disk: nothing waits
            neighbour.publish("calm", b"%d" % number)
            neighbour.expect(BasicDeliver)
            assert neighbour.read_content().body == b"%d" % number
            neighbour.expect(BasicAck)
        waiting = broker.call(lambda: store_waits(broker))
        assert waiting <= STORE_CREDIT + 2 * HOP_CREDIT  # a blocked queue takes what its channel had, and so on
        go.set()
        sender.join()
        wait_until(lambda: broker.count("flood") == FLOOD)
        wait_until(lambda: not any(stage.blocked_by for stage in broker.call(lambda: stages(broker, "flood"))))


def store_waits(broker: LiveBroker) -> int:
    """Messages on their way from the queue to the store."""
    assert broker.server.vault is not None
    store = broker.server.vault.store
    return broker.queue("flood").outgoing[store].in_flight()


def test_a_confirm_waits_for_the_sync(broker: LiveBroker) -> None:
    with open_client(broker, confirms=True) as client, held_syncs(broker) as go:
        go.set()
        client.ask(QueueDeclare("q", durable=True), QueueDeclareOk)
        go.clear()
        client.publish("q", b"kept", properties=KEPT)
        client.publish("q", b"not kept")
        # The transient one needs no disk, so it is confirmed; the one before it is not.
        acked = client.expect(BasicAck)
        assert (acked.delivery_tag, acked.multiple) == (2, False)
        assert broker.count("q") == 2
        go.set()
        assert client.expect(BasicAck).delivery_tag == 1


def test_a_queue_that_is_deleted_while_its_messages_are_synced_counts_as_confirmed(broker: LiveBroker) -> None:
    with open_client(broker, confirms=True) as client, open_client(broker) as other:
        client.ask(QueueDeclare("q", durable=True), QueueDeclareOk)
        slow_down(broker, 0.3)
        client.publish("q", b"kept", properties=KEPT)
        wait_until(lambda: broker.count("q") == 1)
        other.ask(QueueDelete("q"), QueueDeleteOk)
        assert client.expect(BasicAck).delivery_tag == 1


def test_messages_on_disk_are_counted_got_purged_and_delivered_in_order(broker: LiveBroker) -> None:
    with open_client(broker, confirms=True) as client:
        client.ask(QueueDeclare("q", durable=True), QueueDeclareOk)
        count = 20_000  # several times what may stay in RAM
        for start in range(0, count, 1000):
            client.send_bytes(
                b"".join(publish_bytes("q", b"%d" % number, properties=KEPT) for number in range(start, start + 1000))
            )
            acked = 0
            while acked < start + 1000:
                acked = client.expect(BasicAck).delivery_tag
        wait_until(lambda: broker.call(lambda: broker.queue("q").shelves.paged_count()) > count // 4)
        assert client.ask(QueueDeclare("q", passive=True), QueueDeclareOk).message_count == count
        got = client.ask(BasicGet("q", no_ack=True), BasicGetOk)
        assert (client.read_content().body, got.message_count) == (b"0", count - 1)
        client.ask(BasicConsume("q", no_ack=True), BasicConsumeOk)
        for number in range(1, count // 2):
            client.expect(BasicDeliver)
            assert client.read_content().body == b"%d" % number
    wait_until(lambda: broker.call(lambda: broker.queue("q").subscribers.count) == 0)
    with open_client(broker) as client:
        left = client.ask(QueueDeclare("q", passive=True), QueueDeclareOk).message_count
        assert client.ask(QueuePurge("q"), QueuePurgeOk).message_count == left
        client.ask(BasicGet("q"), BasicGetEmpty)


def test_a_clean_stop_marks_nothing_as_redelivered_that_was_never_delivered(
    serve_process: Callable[..., ServeProcess],
) -> None:
    first = serve_process()
    with pika.BlockingConnection(pika.URLParameters(first.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("q", durable=True)
        for number in range(3):
            channel.basic_publish("", "q", b"%d" % number, pika.BasicProperties(delivery_mode=2))
        channel.basic_get("q")  # and not acked
    assert first.terminate() == 0
    second = serve_process("--data", str(first.data))
    with pika.BlockingConnection(pika.URLParameters(second.uri)) as connection:
        channel = connection.channel()
        flags = []
        for _ in range(3):
            method, _, body = channel.basic_get("q", auto_ack=True)
            flags.append((body, method.redelivered))
    assert flags == [(b"0", True), (b"1", False), (b"2", False)]


def test_thousands_of_queues_need_no_file_each(serve_process: Callable[..., ServeProcess]) -> None:
    process = serve_process("--set", "store.journal_bytes=65536", "--set", "log.level=warning")
    files = Path(f"/proc/{process.process.pid}/fd")
    with pika.BlockingConnection(pika.URLParameters(process.uri)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("all", "fanout", durable=True)
        before = len(list(files.iterdir()))
        for number in range(300):
            channel.queue_declare(f"q{number}", durable=True)
            channel.queue_bind(f"q{number}", "all")
        for _ in range(20):  # several journals full: there are checkpoints too
            channel.basic_publish("all", "", b"x" * 100, pika.BasicProperties(delivery_mode=2))
        wait_until(lambda: len(list(files.iterdir())) <= before + 5, what="no files but those of the store")
        assert channel.queue_declare("q299", passive=True).method.message_count == 20

"""Cast: who publishes and who consumes in the demo, and how fast.

Upstream: play.py gives each a connection and a thread.  Downstream: penstock.client.
The rates are for eyes, not for records: all of it is about a thousand messages a second, and a broker that does
a hundred times as much shows every kind of block with them all the same.

    orders-api ──► demo.orders ──► warehouse     slow: a burst every 30 s saturates the queue; confirms are held
    billing ─────► demo.bills ───► ledger        keeps up
    telemetry ───► demo.metrics ─► dashboard     pauses: the queue is at its maximum; credit stops the publisher
    importer ────► demo.imports ─► archive       a batch every 20 s: the store is the bottleneck, briefly
    audit-log ───► demo.audit ───► audit-export  comes when the queue is at 80 %: until then, a forecast

Not here: the queues' limits (scenery.py).
"""

from __future__ import annotations

import json
import time
from typing import Final

from penstock.amqp.content import build_basic
from penstock.amqp.method import BasicPublish, QueueDeclare, QueueDeclareOk, encode_method
from penstock.amqp.properties import PERSISTENT, TRANSIENT, Properties, encode_properties
from penstock.client.connection import Channel, Connection
from penstock.client.consumer import Consumer
from penstock.client.publisher import Publisher
from penstock.up.demo.play import Act, Play
from penstock.up.demo.scenery import AUDIT, BILLS, IMPORTS, METRICS, ORDERS

TICK_S: Final = 0.25
READ_S: Final = 0.5  # how long a consumer waits for the first message: so soon it notices the end

ORDERS_PER_TICK: Final = 8
BURST_ORDERS: Final = 2_000  # many times what the watermark lets through: the publisher is held for 25 s
BURST_EVERY_S: Final = 30.0
WAREHOUSE_BATCH: Final = 10
WAREHOUSE_S: Final = 0.12  # for a batch: 80 orders a second

BILLS_PER_TICK: Final = 5
METRICS_PER_TICK: Final = 200
DASHBOARD_WORKS_S: Final = 9.0
DASHBOARD_PAUSES_S: Final = 9.0  # 7200 metrics would come in that time; the queue takes 2000
IMPORT_MESSAGES: Final = 3_000
IMPORT_BYTES: Final = 1_000
IMPORT_EVERY_S: Final = 20.0
AUDIT_PER_TICK: Final = 3
AUDIT_HIGH: Final = 2_400  # 80 % of the queue's maximum
AUDIT_LOOKS_S: Final = 5.0


def orders_api(play: Play, connection: Connection) -> None:
    publisher = Publisher(connection.open_channel(), window=100)
    properties, body = _message(PERSISTENT, "order", 300)
    burst_at = time.monotonic() + BURST_EVERY_S / 3  # soon after the start: who looks at a demo does not wait
    while not play.wait(TICK_S):
        count = ORDERS_PER_TICK
        if time.monotonic() >= burst_at:
            count, burst_at = BURST_ORDERS, time.monotonic() + BURST_EVERY_S
        for _ in range(count):
            publisher.publish("", ORDERS, properties, body)
        publisher.flush()


def warehouse(play: Play, connection: Connection) -> None:
    consumer = Consumer(connection.open_channel(), ORDERS, prefetch=2 * WAREHOUSE_BATCH, tag="warehouse")
    while not play.over and not consumer.ended:
        got = consumer.read(WAREHOUSE_BATCH, READ_S)
        if got:
            play.wait(WAREHOUSE_S * len(got) / WAREHOUSE_BATCH)
            consumer.ack(got.tags[-1])


def billing(play: Play, connection: Connection) -> None:
    _publish(play, connection.open_channel(), BILLS, "bill", 500, BILLS_PER_TICK)


def ledger(play: Play, connection: Connection) -> None:
    _consume(play, connection.open_channel(), BILLS, "ledger")


def telemetry(play: Play, connection: Connection) -> None:
    channel = connection.open_channel()
    batch = _batch(channel, METRICS, *_message(TRANSIENT, "metric", 100), METRICS_PER_TICK)
    while not play.wait(TICK_S):
        connection.send(batch)


def dashboard(play: Play, connection: Connection) -> None:
    consumer = Consumer(connection.open_channel(), METRICS, prefetch=200, tag="dashboard")
    while not play.over and not consumer.ended:
        pause_at = time.monotonic() + DASHBOARD_WORKS_S
        while not play.over and not consumer.ended and time.monotonic() < pause_at:
            got = consumer.read(200, READ_S)
            if got:
                consumer.ack(got.tags[-1])
        play.wait(DASHBOARD_PAUSES_S)


def importer(play: Play, connection: Connection) -> None:
    batch = _batch(connection.open_channel(), IMPORTS, *_message(PERSISTENT, "import", IMPORT_BYTES), IMPORT_MESSAGES)
    while not play.wait(IMPORT_EVERY_S / 2):
        connection.send(batch)
        play.wait(IMPORT_EVERY_S / 2)


def archive(play: Play, connection: Connection) -> None:
    _consume(play, connection.open_channel(), IMPORTS, "archive")


def audit_log(play: Play, connection: Connection) -> None:
    _publish(play, connection.open_channel(), AUDIT, "audit", 200, AUDIT_PER_TICK)


def audit_export(play: Play, connection: Connection) -> None:
    """Comes when there is much, takes all of it, and goes."""
    channel = connection.open_channel()
    while not play.wait(AUDIT_LOOKS_S):
        if channel.call(QueueDeclare(AUDIT, passive=True), QueueDeclareOk).message_count < AUDIT_HIGH:
            continue
        consumer = Consumer(channel, AUDIT, prefetch=500, tag="audit-export")
        while got := consumer.read(500, READ_S):
            consumer.ack(got.tags[-1])
        consumer.cancel()


CAST: Final[dict[str, Act]] = {
    # Consumers first: their queues are theirs when the first message comes.
    "warehouse": warehouse,
    "ledger": ledger,
    "dashboard": dashboard,
    "archive": archive,
    "audit-export": audit_export,
    "orders-api": orders_api,
    "billing": billing,
    "telemetry": telemetry,
    "importer": importer,
    "audit-log": audit_log,
}


def _publish(play: Play, channel: Channel, queue: str, kind: str, size: int, per_tick: int) -> None:
    """Persistent messages, so many in each tick, and their confirms."""
    publisher = Publisher(channel)
    properties, body = _message(PERSISTENT, kind, size)
    while not play.wait(TICK_S):
        for _ in range(per_tick):
            publisher.publish("", queue, properties, body)
        publisher.flush()


def _consume(play: Play, channel: Channel, queue: str, name: str) -> None:
    """Take what comes, at once."""
    consumer = Consumer(channel, queue, prefetch=500, tag=name)
    while not play.over and not consumer.ended:
        got = consumer.read(500, READ_S)
        if got:
            consumer.ack(got.tags[-1])


def _message(mode: int, kind: str, size: int) -> tuple[bytes, bytes]:
    """Encoded properties, and a body of this size."""
    properties = Properties(content_type="application/json", delivery_mode=mode, type=kind, app_id="penstock demo")
    body = json.dumps({"kind": kind, "note": ""}).encode()
    return encode_properties(properties), body.replace(b'""', b'"' + b"x" * (size - len(body)) + b'"')


def _batch(channel: Channel, queue: str, properties: bytes, body: bytes, count: int) -> bytes:
    """So many publishes without confirms, ready to be sent."""
    method = encode_method(BasicPublish("", queue), channel.number)
    return (method + build_basic(channel.number, properties, body, channel.connection.frame_max)) * count

"""Cases: streams over AMQP 0-9-1: declaring them, where a consumer begins, and what a stream refuses."""

from __future__ import annotations

from typing import Final

from penstock.amqp.method import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicQos,
    BasicReject,
    ConfirmSelect,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from penstock.amqp.table import Table, Value
from tests.differential.player import Area
from tests.differential.script import Channel, Script

area = Area("streams")

STREAM: Final[Table] = {"x-queue-type": "stream"}

DECLARED: Final[dict[str, tuple[str, Value]]] = {
    "x-max-age 1h": ("x-max-age", "1h"),
    "x-max-age number": ("x-max-age", 5),
    "x-max-length-bytes 1000": ("x-max-length-bytes", 1000),
    "x-max-length-bytes negative": ("x-max-length-bytes", -1),
    "x-stream-max-segment-size-bytes 100000": ("x-stream-max-segment-size-bytes", 100_000),
    "x-stream-max-segment-size-bytes negative": ("x-stream-max-segment-size-bytes", -1),
    "x-stream-max-segment-size-bytes text": ("x-stream-max-segment-size-bytes", "a"),
    "x-initial-cluster-size 1": ("x-initial-cluster-size", 1),
    "x-queue-leader-locator client-local": ("x-queue-leader-locator", "client-local"),
    "x-message-ttl 5": ("x-message-ttl", 5),
    "x-expires 5000": ("x-expires", 5000),
    "x-max-length 5": ("x-max-length", 5),
    "x-max-priority 3": ("x-max-priority", 3),
    "x-dead-letter-exchange d": ("x-dead-letter-exchange", "d"),
    "x-overflow drop-head": ("x-overflow", "drop-head"),
    "x-single-active-consumer true": ("x-single-active-consumer", True),
    "x-queue-mode lazy": ("x-queue-mode", "lazy"),
    "x-delivery-limit 4": ("x-delivery-limit", 4),
    "x-unknown 4": ("x-unknown", 4),
}

FIRST: Final[dict[str, tuple[Value, int]]] = {
    "first": ("first", 6),
    "3": (3, 3),
    "below zero": (-1, 6),
    "an hour ago": ("1h", 6),
}
NOTHING_YET: Final[dict[str, tuple[Value, int]]] = {"next": ("next", 1), "beyond the end": (100, 0)}


def filled(s: Script, count: int = 6) -> Channel:
    c = s.channel()
    c.ask(QueueDeclare("s", durable=True, arguments=STREAM))
    c.ask(ConfirmSelect())
    for number in range(count):
        c.publish("s", b"%d" % number)
    c.confirmed()
    c.ask(BasicQos(0, 10))
    return c


def consume(c: Channel, offset: Value, no_ack: bool = False) -> None:
    c.ask(BasicConsume("s", "c", no_ack=no_ack, arguments={"x-stream-offset": offset}))


@area.each(DECLARED)
def declared_with(s: Script, argument: str, value: Value) -> None:
    s.channel().ask(QueueDeclare("s", durable=True, arguments={**STREAM, argument: value}))


@area.each({"not durable": (False, False, False), "exclusive": (True, True, False), "auto-delete": (True, False, True)})
def declared_as(s: Script, durable: bool, exclusive: bool, auto_delete: bool) -> None:
    declare = QueueDeclare("s", durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=STREAM)
    s.channel().ask(declare)


@area.case
def declared_without_a_name(s: Script) -> None:
    s.channel().ask(QueueDeclare("", durable=True, arguments=STREAM))


@area.case
def redeclared_as_a_queue(s: Script) -> None:
    c = s.channel()
    c.ask(QueueDeclare("s", durable=True, arguments=STREAM))
    c.ask(QueueDeclare("s", durable=True))


@area.case
def redeclared_with_an_age(s: Script) -> None:
    c = s.channel()
    c.ask(QueueDeclare("s", durable=True, arguments=STREAM))
    c.ask(QueueDeclare("s", durable=True, arguments={**STREAM, "x-max-age": "1h"}))


@area.each(FIRST)
def read_from(s: Script, offset: Value, count: int) -> None:
    c = filled(s)
    consume(c, offset)
    c.deliveries(count)


@area.each(NOTHING_YET)
def read_what_comes_from(s: Script, offset: Value, count: int) -> None:
    c = filled(s)
    consume(c, offset)
    other = s.channel(2)
    other.ask(ConfirmSelect())
    other.publish("s", b"new")
    other.confirmed()
    c.deliveries(count)


@area.each({"a number as text": ("5",), "a word": ("soon",)})
def read_from_nonsense(s: Script, offset: str) -> None:
    consume(filled(s), offset)


@area.case
def offset_of_a_queue_that_is_no_stream(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(BasicConsume("q", "c", arguments={"x-stream-offset": "first"}))


@area.case
def read_twice(s: Script) -> None:
    c = filled(s)
    consume(c, "first")
    c.deliveries(6)
    c.ask(BasicConsume("s", "again", arguments={"x-stream-offset": 2}))
    c.deliveries(4)


@area.case
def prefetch_holds_a_reader(s: Script) -> None:
    c = filled(s, 5)
    c.ask(BasicQos(0, 2))
    consume(c, "first")
    c.deliveries(2)
    c.send(BasicAck(1))
    c.deliveries(1)
    c.send(BasicAck(3, True))
    c.deliveries(2)


@area.case
def without_prefetch(s: Script) -> None:
    c = filled(s)
    c.ask(BasicQos(0, 0))
    consume(c, "first")


@area.case
def without_acks(s: Script) -> None:
    consume(filled(s), "first", no_ack=True)


@area.case
def basic_get(s: Script) -> None:
    filled(s).ask(BasicGet("s"))


@area.case
def purged(s: Script) -> None:
    filled(s).ask(QueuePurge("s"))


@area.case
def nacked(s: Script) -> None:
    c = filled(s)
    consume(c, "first")
    c.deliveries(6)
    c.send(BasicNack(1))
    c.ask(BasicQos(0, 20))


@area.case
def rejected(s: Script) -> None:
    c = filled(s)
    consume(c, "first")
    c.deliveries(6)
    c.send(BasicReject(1, False))
    c.ask(BasicQos(0, 20))


@area.case
def deleted_under_a_reader(s: Script) -> None:
    c = filled(s)
    consume(c, "first")
    c.deliveries(6)
    s.channel(2).send(QueueDelete("s", nowait=True))  # the answers count differently
    c.until(BasicCancel)

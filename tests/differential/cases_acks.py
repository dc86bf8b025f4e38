"""Cases: ack, nack, reject, basic.get, and unknown delivery tags."""

from __future__ import annotations

from penstock.amqp.method import (
    BasicAck,
    BasicCancel,
    BasicNack,
    BasicQos,
    BasicReject,
    ChannelClose,
    Method,
    QueueDelete,
)
from tests.differential.player import Area
from tests.differential.script import Channel, Script

area = Area("acks")


def taken(s: Script, ready: int, got: int) -> Channel:
    """A queue with messages, of which so many are unacked by basic.get."""
    c = s.channel()
    c.declare("q")
    c.fill("q", *(b"%d" % number for number in range(ready)))
    for _ in range(got):
        c.get("q", no_ack=False)
    return c


TAGS: dict[str, tuple[Method, ...]] = {
    "ack unknown": (BasicAck(9),),
    "nack unknown": (BasicNack(9),),
    "reject unknown": (BasicReject(9),),
    "ack 0": (BasicAck(0),),
    "nack 0": (BasicNack(0),),
    "reject 0": (BasicReject(0),),
    "ack 0 multiple": (BasicAck(0, True),),
    "nack 0 multiple, requeue": (BasicNack(0, True, True),),
    "nack 0 multiple, drop": (BasicNack(0, True, False),),
    "ack 0 multiple twice": (BasicAck(0, True), BasicAck(0, True)),
    "ack one": (BasicAck(2),),
    "ack one twice": (BasicAck(2), BasicAck(2)),
    "nack one twice": (BasicNack(2, False, False), BasicNack(2, False, False)),
    "ack, then reject": (BasicAck(2), BasicReject(2)),
    "ack up to": (BasicAck(2, True),),
    "ack up to all": (BasicAck(3, True),),
    "ack up to beyond": (BasicAck(4, True),),
    "ack up to one already acked": (BasicAck(2), BasicAck(2, True)),
    "ack up to behind one already acked": (BasicAck(2), BasicAck(3, True)),
    "nack up to, requeue": (BasicNack(2, True, True),),
    "nack up to, drop": (BasicNack(2, True, False),),
    "nack one, requeue": (BasicNack(1, False, True),),
    "nack one, drop": (BasicNack(1, False, False),),
    "reject one, requeue": (BasicReject(2, True),),
    "reject one, drop": (BasicReject(2, False),),
    "requeue out of order": (BasicReject(3, True), BasicReject(1, True), BasicReject(2, True)),
    "requeue the middle": (BasicReject(2, True), BasicAck(1), BasicAck(3)),
    "a large tag": (BasicAck((1 << 63) + 5),),
}


@area.each({name: (methods,) for name, methods in TAGS.items()})
def three_of_five_and(s: Script, methods: tuple[Method, ...]) -> None:
    c = taken(s, 5, 3)
    for method in methods:
        c.send(method)
    c.barrier()
    c.drain("q")


@area.case
def ack_0_multiple_with_nothing_outstanding(s: Script) -> None:
    c = taken(s, 0, 0)
    c.send(BasicAck(0, True))
    c.send(BasicNack(0, True, True))
    c.barrier()


@area.case
def ack_of_a_message_got_without_ack(s: Script) -> None:
    c = taken(s, 1, 0)
    c.get("q")
    c.send(BasicAck(1))
    c.barrier()


@area.case
def tags_go_on_over_gets_without_ack(s: Script) -> None:
    c = taken(s, 3, 0)
    c.get("q")
    c.get("q", no_ack=False)
    c.get("q")
    c.get("q")


@area.case
def tags_are_of_one_channel(s: Script) -> None:
    taken(s, 2, 1)
    d = s.channel(2)
    d.get("q", no_ack=False)
    d.send(BasicAck(1))
    d.barrier()
    d.send(BasicAck(1))
    d.barrier()


@area.case
def ack_on_another_channel(s: Script) -> None:
    taken(s, 1, 1)
    d = s.channel(2)
    d.send(BasicAck(1))
    d.barrier()


@area.case
def a_closed_channel_gives_back_in_order(s: Script) -> None:
    c = taken(s, 5, 3)
    c.ask(ChannelClose(200, "bye"))
    d = s.channel(2)
    s.until_count("q", 5)
    d.drain("q")


@area.case
def a_failed_channel_gives_back_in_order(s: Script) -> None:
    c = taken(s, 5, 3)
    c.count("nope")
    s.until_count("q", 5)
    s.channel(2).drain("q")


@area.case
def a_lost_connection_gives_back_in_order(s: Script) -> None:
    taken(s, 5, 3)
    d = s.channel(1, "d")
    s.connections["c"].ended = True
    s.connections["c"].close_socket()
    s.until_count("q", 5, on="d")
    d.drain("q")


@area.case
def ack_after_the_queue_is_deleted(s: Script) -> None:
    c = taken(s, 2, 2)
    c.ask(QueueDelete("q"))
    c.send(BasicAck(1))
    c.send(BasicNack(2, False, True))
    c.barrier()
    c.send(BasicAck(1))
    c.barrier()


@area.case
def get_of_an_empty_queue(s: Script) -> None:
    taken(s, 0, 0).get("q")


@area.case
def get_of_a_missing_queue(s: Script) -> None:
    s.channel().get("nope")


@area.case
def get_counts_what_is_left(s: Script) -> None:
    taken(s, 3, 3).get("q")


@area.case
def get_is_not_limited_by_prefetch(s: Script) -> None:
    s.channel().ask(BasicQos(0, 1, True))
    taken(s, 3, 3)


@area.case
def get_competes_with_a_consumer_in_vain(s: Script) -> None:
    c = taken(s, 2, 0)
    d = s.channel(2)
    d.consume("q")
    d.deliveries(2)
    c.get("q")


@area.case
def redelivered_is_set_even_for_get(s: Script) -> None:
    c = taken(s, 1, 1)
    c.send(BasicReject(1, True))
    c.get("q", no_ack=False)
    c.send(BasicReject(2, True))
    c.get("q")


@area.case
def requeued_and_new_messages(s: Script) -> None:
    c = taken(s, 3, 2)
    c.publish("q", b"new")
    c.send(BasicNack(2, True, True))
    c.drain("q")


@area.case
def rejected_to_the_only_consumer_comes_back_at_once(s: Script) -> None:
    c = taken(s, 2, 0)
    c.consume("q")
    c.deliveries(2)
    c.send(BasicReject(1, True))
    c.deliveries(1)
    c.send(BasicNack(3, True, True))
    c.deliveries(2)


@area.case
def unacked_of_a_cancelled_consumer_stay(s: Script) -> None:
    c = taken(s, 2, 0)
    c.consume("q")
    c.deliveries(2)
    c.ask(BasicCancel("t"))
    s.until_count("q", 0)
    c.send(BasicAck(1))
    c.send(BasicReject(2, True))
    c.drain("q")

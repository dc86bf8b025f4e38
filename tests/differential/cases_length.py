"""Cases: x-max-length, x-max-length-bytes, overflow, and priority queues."""

from __future__ import annotations

from penstock.amqp.method import BasicAck, BasicNack, BasicQos, BasicReject, ConfirmSelect, QueuePurge
from tests.differential.player import Area
from tests.differential.script import Channel, Script

area = Area("length")


def queue(s: Script, **arguments: object) -> Channel:
    c = s.channel()
    c.declare("dead")
    c.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", **arguments)
    return c


def publish(c: Channel, *bodies: bytes, **properties: object) -> None:
    for body in bodies:
        c.publish("q", body, **properties)  # type: ignore[arg-type]  # the rest are properties


@area.case
def the_oldest_is_dropped(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_max_length=2)
    publish(c, b"1", b"2", b"3", b"4")
    c.drain("q")


@area.case
def the_oldest_is_dead_lettered(s: Script) -> None:
    c = queue(s, x_max_length=2)
    publish(c, b"1", b"2", b"3")
    c.get_when_there("dead")
    c.drain("q")


@area.case
def length_0_drops_everything(s: Script) -> None:
    c = queue(s, x_max_length=0)
    publish(c, b"1")
    c.get_when_there("dead")
    c.drain("q")


@area.case
def length_0_delivers_to_a_waiting_consumer(s: Script) -> None:
    c = queue(s, x_max_length=0)
    c.consume("q", no_ack=True)
    publish(c, b"1", b"2")
    c.deliveries(2)
    c.drain("dead")


@area.case
def bytes_count_bodies_only(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_max_length_bytes=10)
    publish(c, b"12345", b"67890", headers={"a long header": "x" * 100})
    publish(c, b"")
    publish(c, b"x")
    c.drain("q")


@area.case
def a_message_larger_than_the_limit_in_bytes(s: Script) -> None:
    c = queue(s, x_max_length_bytes=3)
    publish(c, b"1")
    publish(c, b"12345")
    s.until_count("dead", 2)
    c.drain("dead")
    c.drain("q")


@area.case
def both_limits(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_max_length=3, x_max_length_bytes=4)
    publish(c, b"1", b"2", b"3", b"4")
    c.drain("q")
    publish(c, b"11", b"22", b"33")
    c.drain("q")


@area.case
def unacked_messages_do_not_count(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_max_length=1)
    publish(c, b"1")
    c.get("q", no_ack=False)
    publish(c, b"2")
    c.get("q", no_ack=False)
    c.drain("q")


@area.case
def requeued_messages_push_out_the_head(s: Script) -> None:
    c = queue(s, x_max_length=1)
    publish(c, b"1")
    c.get("q", no_ack=False)
    publish(c, b"2")
    c.send(BasicReject(1, True))
    c.barrier()
    c.drain("q")
    c.drain("dead")


@area.case
def several_requeued_messages_and_the_limit(s: Script) -> None:
    c = queue(s, x_max_length=2)
    publish(c, b"1", b"2")
    c.get("q", no_ack=False)
    c.get("q", no_ack=False)
    publish(c, b"3", b"4")
    c.send(BasicNack(2, True, True))
    c.barrier()
    c.drain("q")
    s.until_count("dead", 2)
    c.drain("dead")


@area.case
def drop_head_is_an_ack(s: Script) -> None:
    c = queue(s, x_max_length=1, x_overflow="drop-head")
    c.ask(ConfirmSelect())
    publish(c, b"1", b"2", b"3")
    c.confirmed()
    c.drain("q")


@area.each({overflow: (overflow,) for overflow in ("drop-head", "reject-publish", "reject-publish-dlx")})
def overflow(s: Script, overflow: str) -> None:
    c = queue(s, x_max_length=2, x_overflow=overflow)
    c.ask(ConfirmSelect())
    for body in (b"1", b"2", b"3", b"4"):
        publish(c, body)
        c.confirmed()
    c.drain("q")
    if overflow != "reject-publish":
        s.until_count("dead", 2)
    c.drain("dead")


@area.each({overflow: (overflow,) for overflow in ("reject-publish", "reject-publish-dlx")})
def overflow_without_confirms(s: Script, overflow: str) -> None:
    c = queue(s, x_max_length=1, x_overflow=overflow)
    publish(c, b"1", b"2")
    c.drain("q")
    if overflow != "reject-publish":
        s.until_count("dead", 1)
    c.drain("dead")


@area.case
def reject_publish_takes_again_when_there_is_room(s: Script) -> None:
    c = queue(s, x_max_length=1, x_overflow="reject-publish")
    c.ask(ConfirmSelect())
    publish(c, b"1")
    c.confirmed()
    publish(c, b"2")
    c.confirmed()
    c.get("q")
    publish(c, b"3")
    c.confirmed()
    c.drain("q")


@area.case
def reject_publish_by_bytes(s: Script) -> None:
    c = queue(s, x_max_length_bytes=5, x_overflow="reject-publish")
    c.ask(ConfirmSelect())
    for body in (b"1234", b"123456", b"1", b""):
        publish(c, body)
        c.confirmed()
    c.drain("q")


@area.case
def reject_publish_with_length_0_and_a_consumer(s: Script) -> None:
    c = queue(s, x_max_length=0, x_overflow="reject-publish")
    c.consume("q", no_ack=True)
    c.ask(ConfirmSelect())
    publish(c, b"1")
    c.confirmed()


@area.case
def reject_publish_and_requeue(s: Script) -> None:
    c = queue(s, x_max_length=1, x_overflow="reject-publish")
    publish(c, b"1")
    c.get("q", no_ack=False)
    publish(c, b"2")
    c.send(BasicReject(1, True))
    c.barrier()
    c.drain("q")
    c.drain("dead")


@area.case
def the_limit_and_expired_messages(s: Script) -> None:
    c = queue(s, x_max_length=2)
    publish(c, b"1", expiration="1")
    s.until_count("dead", 1)
    publish(c, b"2", b"3")
    c.drain("q")
    c.drain("dead")


# Priorities.


@area.case
def higher_priorities_first(s: Script) -> None:
    c = queue(s, x_max_priority=5)
    publish(c, b"none")
    for priority in (0, 3, 9, 5, 1, 255):
        publish(c, b"%d" % priority, priority=priority)
    c.drain("q")


@area.case
def in_order_within_a_priority(s: Script) -> None:
    c = queue(s, x_max_priority=2)
    for number in range(9):
        publish(c, b"%d" % number, priority=number % 3)
    c.drain("q")


@area.case
def priorities_without_x_max_priority(s: Script) -> None:
    c = queue(s)
    publish(c, b"low", priority=1)
    publish(c, b"high", priority=9)
    c.drain("q")


@area.case
def max_priority_0(s: Script) -> None:
    c = queue(s, x_max_priority=0)
    publish(c, b"low", priority=0)
    publish(c, b"high", priority=9)
    c.drain("q")


@area.case
def the_lowest_priority_is_dropped_first(s: Script) -> None:
    c = queue(s, x_max_priority=5, x_max_length=3)
    publish(c, b"high", priority=5)
    publish(c, b"low 1", priority=1)
    publish(c, b"middle", priority=3)
    publish(c, b"low 2", priority=1)
    publish(c, b"high 2", priority=5)
    s.until_count("dead", 2)
    c.drain("dead")
    c.drain("q")


@area.case
def a_new_message_of_the_lowest_priority_drops_itself(s: Script) -> None:
    c = queue(s, x_max_priority=5, x_max_length=1)
    publish(c, b"high", priority=5)
    publish(c, b"low", priority=1)
    s.until_count("dead", 1)
    c.drain("dead")
    c.drain("q")


@area.case
def a_requeued_message_keeps_its_priority_and_place(s: Script) -> None:
    c = queue(s, x_max_priority=5)
    publish(c, b"a3", b"b3", priority=3)
    publish(c, b"a1", priority=1)
    for _ in range(3):
        c.get("q", no_ack=False)
    publish(c, b"c3", priority=3)
    publish(c, b"c5", priority=5)
    c.send(BasicNack(3, True, True))
    c.drain("q")


@area.case
def a_consumer_with_prefetch_gets_the_highest_next(s: Script) -> None:
    c = queue(s, x_max_priority=5)
    c.ask(BasicQos(0, 1))
    c.consume("q")
    publish(c, b"1", priority=1)
    c.deliveries(1)
    publish(c, b"2", priority=2)
    publish(c, b"5", priority=5)
    s.until_count("q", 2)
    c.send(BasicAck(1))
    c.deliveries(1)


@area.case
def purge_of_a_priority_queue(s: Script) -> None:
    c = queue(s, x_max_priority=5)
    for priority in (1, 3, 5):
        publish(c, b"", priority=priority)
    s.until_count("q", 3)
    c.ask(QueuePurge("q"))


@area.case
def the_head_of_a_priority_queue_expires(s: Script) -> None:
    c = queue(s, x_max_priority=5)
    publish(c, b"short", priority=5, expiration="20")
    publish(c, b"long", priority=1)
    c.get_when_there("dead")
    c.drain("q")


@area.case
def behind_a_higher_priority_nothing_expires(s: Script) -> None:
    c = queue(s, x_max_priority=5)
    publish(c, b"high", priority=5)
    publish(c, b"short", priority=1, expiration="1")
    c.fill("dead", b"marker", expiration="1000")
    s.until_count("dead", 0)
    c.get("q")
    c.get_when_there("dead")


@area.case
def a_dead_letter_keeps_its_priority(s: Script) -> None:
    c = queue(s, x_max_priority=5, x_max_length=1)
    publish(c, b"1", priority=4)
    publish(c, b"2", priority=4)
    c.get_when_there("dead")

"""Cases: consume, cancel, exclusive consumers, priorities, single active consumer; auto-delete and exclusive queues."""

from __future__ import annotations

from penstock.amqp.method import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicQos,
    BasicReject,
    ChannelClose,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from tests.differential.player import Area
from tests.differential.script import Channel, Script
from tests.differential.typed import T

area = Area("consumers")


def filled(s: Script, count: int, **arguments: object) -> Channel:
    c = s.channel()
    c.declare("q", **arguments)
    c.fill("q", *(b"%d" % number for number in range(count)))
    return c


# Consume and cancel.


@area.case
def consume_ok_comes_before_deliveries(s: Script) -> None:
    c = filled(s, 2)
    c.consume("q")
    c.deliveries(2)


@area.case
def consume_nowait(s: Script) -> None:
    c = filled(s, 2)
    c.send(BasicConsume("q", "t", nowait=True))
    c.deliveries(2)


@area.case
def a_tag_by_the_server(s: Script) -> None:
    c = filled(s, 1)
    c.ask(BasicConsume("q"))
    c.deliveries(1)
    c.ask(BasicConsume("q"))


@area.case
def a_tag_by_the_server_nowait(s: Script) -> None:
    c = filled(s, 1)
    c.send(BasicConsume("q", nowait=True))
    c.deliveries(1)


@area.each({"utf-8": ("tag ☕",), "255 bytes": ("t" * 255,), "cr and lf": ("a\r\nb",), "reserved": ("amq.ctag-x",)})
def a_tag_of(s: Script, tag: str) -> None:
    c = filled(s, 1)
    c.consume("q", tag)
    c.deliveries(1)
    c.ask(BasicCancel(tag))


@area.case
def a_tag_twice_on_a_channel(s: Script) -> None:
    c = filled(s, 0)
    c.consume("q", "t")
    c.consume("q", "t")


@area.case
def a_tag_on_two_channels(s: Script) -> None:
    filled(s, 0).consume("q", "t")
    s.channel(2).consume("q", "t")


@area.case
def a_tag_used_again_after_cancel(s: Script) -> None:
    c = filled(s, 0)
    c.consume("q", "t")
    c.ask(BasicCancel("t"))
    c.consume("q", "t")


@area.case
def a_missing_queue(s: Script) -> None:
    s.channel().consume("nope")


@area.case
def cancel_of_an_unknown_tag(s: Script) -> None:
    s.channel().ask(BasicCancel("nope"))


@area.case
def cancel_nowait(s: Script) -> None:
    c = filled(s, 0)
    c.consume("q")
    c.send(BasicCancel("t", nowait=True))
    c.publish("q", b"1")
    c.drain("q")


@area.case
def cancel_ok_from_a_client(s: Script) -> None:
    c = filled(s, 0)
    c.send(BasicCancelOk("t"))
    c.barrier()


@area.case
def no_local_is_ignored(s: Script) -> None:
    c = filled(s, 1)
    c.ask(BasicConsume("q", "t", no_local=True))
    c.deliveries(1)


@area.case
def no_ack_deliveries_leave_nothing_unacked(s: Script) -> None:
    c = filled(s, 2)
    c.consume("q", no_ack=True)
    c.deliveries(2)
    c.ask(ChannelClose(200, "bye"))
    s.channel(2).get("q")


@area.each({"x-foo": ({"x-foo": 1},), "x-cancel-on-ha-failover": ({"x-cancel-on-ha-failover": True},)})
def consume_with_argument(s: Script, arguments: dict) -> None:
    filled(s, 0).ask(BasicConsume("q", "t", arguments=arguments))


# Cancel by the server.


@area.case
def a_deleted_queue_cancels_its_consumers(s: Script) -> None:
    filled(s, 0).consume("q")
    d = s.channel(2)
    d.consume("q", "u")
    s.channel(1, "e").ask(QueueDelete("q"))
    s.channel().until(BasicCancel)
    d.until(BasicCancel)


@area.case
def the_deleter_hears_delete_ok_first(s: Script) -> None:
    c = filled(s, 0)
    c.consume("q")
    c.ask(QueueDelete("q"))
    c.until(BasicCancel)


@area.case
def without_the_capability_nothing_is_said(s: Script) -> None:
    s.connect("plain", properties={})
    p = s.channel(1, "plain")
    filled(s, 0)
    p.consume("q")
    s.channel().ask(QueueDelete("q"))
    p.barrier()
    p.ask(BasicCancel("t"))


@area.case
def cancel_of_a_consumer_the_server_has_cancelled(s: Script) -> None:
    c = filled(s, 0)
    c.consume("q")
    c.ask(QueueDelete("q"))
    c.until(BasicCancel)
    c.ask(BasicCancel("t"))


@area.case
def ack_of_a_message_whose_queue_is_deleted(s: Script) -> None:
    c = filled(s, 1)
    c.consume("q")
    c.deliveries(1)
    c.ask(QueueDelete("q"))
    c.until(BasicCancel)
    c.send(BasicAck(1))
    c.barrier()


# Exclusive consumers.


@area.case
def exclusive_consume_when_there_is_another(s: Script) -> None:
    filled(s, 0).consume("q")
    s.channel(2).ask(BasicConsume("q", "u", exclusive=True))


@area.case
def consume_when_there_is_an_exclusive_one(s: Script) -> None:
    filled(s, 0).ask(BasicConsume("q", "t", exclusive=True))
    s.channel(2).consume("q", "u")


@area.case
def a_second_exclusive_one_on_the_same_channel(s: Script) -> None:
    c = filled(s, 0)
    c.ask(BasicConsume("q", "t", exclusive=True))
    c.ask(BasicConsume("q", "u", exclusive=True))


@area.case
def get_and_purge_beside_an_exclusive_consumer(s: Script) -> None:
    filled(s, 0).ask(BasicConsume("q", "t", exclusive=True))
    d = s.channel(2)
    d.get("q")
    d.ask(QueuePurge("q"))


@area.case
def an_exclusive_consumer_leaves_and_another_comes(s: Script) -> None:
    c = filled(s, 0)
    c.ask(BasicConsume("q", "t", exclusive=True))
    c.ask(BasicCancel("t"))
    s.channel(2).consume("q", "u")


# Auto-delete and exclusive queues.


@area.case
def an_auto_delete_queue_goes_with_its_last_consumer(s: Script) -> None:
    c = s.channel()
    c.ask(QueueDeclare("q", auto_delete=True))
    c.consume("q", "a")
    c.consume("q", "b")
    c.ask(BasicCancel("a"))
    c.count("q")
    c.ask(BasicCancel("b"))
    s.until_missing("q")


@area.case
def an_auto_delete_queue_goes_with_its_consumer_s_channel(s: Script) -> None:
    c = s.channel()
    c.ask(QueueDeclare("q", auto_delete=True))
    c.consume("q", "a")
    c.ask(ChannelClose(200, "bye"))
    s.until_missing("q")


@area.case
def an_auto_delete_queue_without_consumers_stays(s: Script) -> None:
    c = s.channel()
    c.ask(QueueDeclare("q", auto_delete=True))
    c.fill("q", b"1")
    c.get("q")
    c.ask(ChannelClose(200, "bye"))
    s.channel(2).count("q")


@area.case
def an_auto_delete_queue_takes_its_messages_along(s: Script) -> None:
    c = s.channel()
    c.ask(QueueDeclare("q", auto_delete=True))
    c.fill("q", b"1", b"2")
    c.ask(BasicQos(0, 1))
    c.consume("q", "a")
    c.deliveries(1)
    c.ask(BasicCancel("a"))
    s.until_missing("q")
    c.send(BasicAck(1))
    c.barrier()


@area.each(
    {
        "declare": (QueueDeclare("q"),),
        "declare exclusive": (QueueDeclare("q", exclusive=True),),
        "declare passive": (QueueDeclare("q", passive=True),),
        "consume": (BasicConsume("q", "t"),),
        "purge": (QueuePurge("q"),),
        "delete": (QueueDelete("q"),),
    }
)
def another_s_exclusive_queue(s: Script, method: QueueDeclare) -> None:
    s.channel().ask(QueueDeclare("q", exclusive=True))
    d = s.channel(1, "d")
    d.ask(method)


@area.case
def publishing_to_another_s_exclusive_queue(s: Script) -> None:
    c = s.channel()
    c.ask(QueueDeclare("q", exclusive=True))
    d = s.channel(1, "d")
    d.publish("q", b"1", mandatory=True)
    c.get_when_there("q")


@area.case
def an_exclusive_queue_survives_its_channel(s: Script) -> None:
    c = s.channel()
    c.ask(QueueDeclare("q", exclusive=True))
    c.ask(ChannelClose(200, "bye"))
    s.channel(2).count("q")


@area.case
def an_exclusive_queue_goes_with_its_connection(s: Script) -> None:
    s.channel().ask(QueueDeclare("q", exclusive=True))
    d = s.channel(1, "d")
    s.connections["c"].bye()
    s.connections["c"].ended = True
    d.count("q")


# Consumer priorities.


@area.each(
    {
        "a": ("a",),
        "1.5": (1.5,),
        "true": (True,),
        "void": (None,),
        "-5": (-5,),
        "2^40": (1 << 40,),
        "as a byte": (T("b", 5),),
        "as a timestamp": (T("T", 5),),
    }
)
def consume_with_priority(s: Script, value: object) -> None:
    filled(s, 0).consume("q", x_priority=value)


@area.case
def the_higher_priority_gets_all_until_it_is_full(s: Script) -> None:
    c = filled(s, 0)
    c.ask(BasicQos(0, 2))
    c.consume("q", "low")
    c.consume("q", "high", x_priority=5)
    for number in range(4):
        c.publish("q", b"%d" % number)
    c.deliveries(4)
    c.send(BasicAck(1))
    c.publish("q", b"4")
    c.deliveries(1)


@area.case
def a_negative_priority_is_below_none(s: Script) -> None:
    c = filled(s, 0)
    c.ask(BasicQos(0, 1))
    c.consume("q", "negative", x_priority=-1)
    c.consume("q", "none")
    c.publish("q", b"1")
    c.publish("q", b"2")
    c.deliveries(2)


@area.case
def equals_take_turns_within_a_priority(s: Script) -> None:
    c = filled(s, 0)
    c.consume("q", "a", x_priority=5)
    c.consume("q", "b", x_priority=5)
    c.consume("q", "c")
    for body in (b"0", b"1", b"2", b"3"):
        c.publish("q", body)
        c.deliveries(1)


@area.case
def a_cancelled_high_priority_leaves_it_to_the_lower(s: Script) -> None:
    c = filled(s, 0)
    c.consume("q", "low")
    c.consume("q", "high", x_priority=5)
    c.publish("q", b"1")
    c.deliveries(1)
    c.ask(BasicCancel("high"))
    c.publish("q", b"2")
    c.deliveries(1)


# Taking turns.


def one_by_one(c: Channel, *bodies: bytes) -> None:
    for body in bodies:
        c.publish("q", body)
        c.deliveries(1)


@area.case
def consumers_take_turns(s: Script) -> None:
    c = filled(s, 0)
    for tag in "abc":
        c.consume("q", tag)
    one_by_one(c, b"0", b"1", b"2", b"3", b"4", b"5", b"6")


@area.case
def turns_go_on_after_a_cancel(s: Script) -> None:
    c = filled(s, 0)
    for tag in "abc":
        c.consume("q", tag)
    one_by_one(c, b"0")
    c.ask(BasicCancel("b"))
    one_by_one(c, b"1", b"2", b"3")


@area.case
def a_new_consumer_is_last_in_turn(s: Script) -> None:
    c = filled(s, 0)
    for tag in "ab":
        c.consume("q", tag)
    one_by_one(c, b"0")
    c.consume("q", "c")
    one_by_one(c, b"1", b"2", b"3", b"4")


@area.case
def one_channel_sees_messages_in_order_whoever_consumes(s: Script) -> None:
    c = filled(s, 0)
    for tag in "abc":
        c.consume("q", tag)
    for number in range(7):
        c.publish("q", b"%d" % number)
    c.deliveries(7)


# Single active consumer.


@area.case
def only_the_first_is_active(s: Script) -> None:
    c = filled(s, 0, x_single_active_consumer=True)
    c.consume("q", "a")
    c.consume("q", "b")
    for number in range(3):
        c.publish("q", b"%d" % number)
    c.deliveries(3)


@area.case
def the_next_becomes_active_when_the_first_is_cancelled(s: Script) -> None:
    c = filled(s, 0, x_single_active_consumer=True)
    c.consume("q", "a")
    c.consume("q", "b")
    c.publish("q", b"0")
    c.deliveries(1)
    c.ask(BasicCancel("a"))
    c.publish("q", b"1")
    c.deliveries(1)
    c.send(BasicReject(1, True))
    c.deliveries(1)


@area.case
def the_next_becomes_active_when_the_first_s_channel_ends(s: Script) -> None:
    c = filled(s, 2, x_single_active_consumer=True)
    c.consume("q", "a")
    c.deliveries(2)
    d = s.channel(2)
    d.consume("q", "b")
    c.ask(ChannelClose(200, "bye"))
    d.deliveries(2)


@area.case
def the_active_one_stays_active_when_full(s: Script) -> None:
    c = filled(s, 3, x_single_active_consumer=True)
    c.ask(BasicQos(0, 1))
    c.consume("q", "a")
    c.consume("q", "b")
    c.deliveries(1)
    c.barrier("q")
    c.send(BasicAck(1))
    c.deliveries(1)


@area.case
def a_higher_priority_does_not_take_over(s: Script) -> None:
    c = filled(s, 0, x_single_active_consumer=True)
    c.consume("q", "a")
    c.consume("q", "b", x_priority=10)
    c.publish("q", b"0")
    c.deliveries(1)


@area.case
def the_highest_priority_is_next(s: Script) -> None:
    c = filled(s, 0, x_single_active_consumer=True)
    c.consume("q", "a")
    c.consume("q", "b")
    c.consume("q", "c", x_priority=10)
    c.ask(BasicCancel("a"))
    c.publish("q", b"0")
    c.deliveries(1)


@area.case
def exclusive_consume_of_a_single_active_queue(s: Script) -> None:
    filled(s, 0, x_single_active_consumer=True).ask(BasicConsume("q", "t", exclusive=True))


@area.case
def single_active_and_get(s: Script) -> None:
    c = filled(s, 2, x_single_active_consumer=True)
    c.get("q")
    c.consume("q", "a")
    c.deliveries(1)


@area.case
def consumer_count_of_a_single_active_queue(s: Script) -> None:
    c = filled(s, 0, x_single_active_consumer=True)
    c.consume("q", "a")
    c.consume("q", "b")
    c.count("q")

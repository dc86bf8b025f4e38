"""Cases: prefetch in both scopes, and channel.flow."""

from __future__ import annotations

from penstock.amqp.method import BasicAck, BasicNack, BasicQos, ChannelFlow
from tests.differential.player import Area
from tests.differential.script import Channel, Script

area = Area("prefetch")


def filled(s: Script, count: int) -> Channel:
    c = s.channel()
    c.declare("q")
    c.fill("q", *(b"%d" % number for number in range(count)))
    return c


@area.case
def prefetch_size(s: Script) -> None:
    s.channel().ask(BasicQos(10, 0))


@area.case
def prefetch_holds_until_acked(s: Script) -> None:
    c = filled(s, 4)
    c.ask(BasicQos(0, 2))
    c.consume("q")
    c.deliveries(2)
    c.barrier("q")
    c.send(BasicAck(1))
    c.deliveries(1)
    c.send(BasicNack(2, False, False))
    c.deliveries(1)


@area.case
def prefetch_is_for_later_consumers(s: Script) -> None:
    c = filled(s, 0)
    c.consume("q", "before")
    c.ask(BasicQos(0, 1))
    for number in range(3):
        c.publish("q", b"%d" % number)
    c.deliveries(3)


@area.case
def prefetch_is_each_consumer_s_own(s: Script) -> None:
    c = filled(s, 4)
    c.ask(BasicQos(0, 1))
    c.consume("q", "a")
    c.deliveries(1)
    c.consume("q", "b")
    c.deliveries(1)
    c.barrier("q")


@area.case
def global_prefetch_is_the_channel_s(s: Script) -> None:
    c = filled(s, 4)
    c.ask(BasicQos(0, 2, True))
    c.consume("q", "a")
    c.deliveries(2)
    c.consume("q", "b")
    c.barrier("q")
    c.send(BasicAck(1))
    c.deliveries(1)


@area.case
def both_limits_hold(s: Script) -> None:
    c = filled(s, 6)
    c.ask(BasicQos(0, 2, False))
    c.ask(BasicQos(0, 3, True))
    c.consume("q", "a")
    c.deliveries(2)
    c.consume("q", "b")
    c.deliveries(1)
    c.barrier("q")


@area.case
def a_later_limit_for_consumers_lifts_the_global_one(s: Script) -> None:
    c = filled(s, 6)
    c.ask(BasicQos(0, 3, True))
    c.ask(BasicQos(0, 2, False))
    c.consume("q", "a")
    c.deliveries(2)
    c.consume("q", "b")
    c.deliveries(2)
    c.barrier("q")


@area.case
def raising_the_global_limit_delivers_more(s: Script) -> None:
    c = filled(s, 4)
    c.ask(BasicQos(0, 1, True))
    c.consume("q")
    c.deliveries(1)
    c.ask(BasicQos(0, 3, True))
    c.deliveries(2)
    c.ask(BasicQos(0, 0, True))
    c.deliveries(1)


@area.case
def lowering_the_global_limit_waits_for_acks(s: Script) -> None:
    c = filled(s, 5)
    c.ask(BasicQos(0, 3, True))
    c.consume("q")
    c.deliveries(3)
    c.ask(BasicQos(0, 1, True))
    c.send(BasicAck(1))
    c.send(BasicAck(2))
    c.barrier("q")
    c.send(BasicAck(3))
    c.deliveries(1)


@area.case
def gets_after_the_global_limit_do_not_count(s: Script) -> None:
    c = filled(s, 4)
    c.ask(BasicQos(0, 1, True))
    c.get("q", no_ack=False)
    c.get("q", no_ack=False)
    c.consume("q")
    c.deliveries(1)
    c.barrier("q")
    c.send(BasicAck(3))
    c.deliveries(1)


@area.case
def no_ack_ignores_prefetch(s: Script) -> None:
    c = filled(s, 3)
    c.ask(BasicQos(0, 1, True))
    c.ask(BasicQos(0, 1, False))
    c.consume("q", no_ack=True)
    c.deliveries(3)


@area.case
def a_requeued_message_comes_back_to_a_full_consumer(s: Script) -> None:
    c = filled(s, 6)
    c.ask(BasicQos(0, 3))
    c.consume("q")
    c.deliveries(3)
    c.send(BasicNack(1, False, True))
    c.deliveries(1)


@area.case
def flow_active(s: Script) -> None:
    s.channel().ask(ChannelFlow(True))


@area.case
def flow_not_active(s: Script) -> None:
    s.channel().ask(ChannelFlow(False))

"""Cases: basic.recover and recover-async."""

from __future__ import annotations

from penstock.amqp.method import BasicAck, BasicQos, BasicRecover, BasicRecoverAsync
from tests.differential.player import Area
from tests.differential.script import Channel, Script

area = Area("recover")


def filled(s: Script, count: int) -> Channel:
    c = s.channel()
    c.declare("q")
    c.fill("q", *(b"%d" % number for number in range(count)))
    return c


@area.case
def recovered_messages_come_back_in_order_behind_recover_ok(s: Script) -> None:
    c = filled(s, 3)
    c.consume("q")
    c.deliveries(3)
    c.ask(BasicRecover(True))
    c.deliveries(3)


@area.case
def recover_async_has_no_reply(s: Script) -> None:
    c = filled(s, 3)
    c.consume("q")
    c.deliveries(3)
    c.send(BasicRecoverAsync(True))
    c.deliveries(3)


@area.case
def recover_gives_back_what_was_got(s: Script) -> None:
    c = filled(s, 3)
    c.get("q", no_ack=False)
    c.get("q", no_ack=False)
    c.ask(BasicRecover(True))
    c.drain("q")


@area.case
def recover_leaves_acked_ones(s: Script) -> None:
    c = filled(s, 3)
    c.consume("q")
    c.deliveries(3)
    c.send(BasicAck(2))
    c.ask(BasicRecover(True))
    c.deliveries(2)


@area.case
def recover_with_nothing_unacked(s: Script) -> None:
    filled(s, 1).ask(BasicRecover(True))


@area.case
def recover_without_requeue(s: Script) -> None:
    filled(s, 1).ask(BasicRecover(False))


@area.case
def recover_async_without_requeue(s: Script) -> None:
    c = filled(s, 1)
    c.send(BasicRecoverAsync(False))
    c.barrier()


@area.case
def old_tags_are_unknown_after_recover(s: Script) -> None:
    c = filled(s, 2)
    c.consume("q")
    c.deliveries(2)
    c.ask(BasicRecover(True))
    c.deliveries(2)
    c.send(BasicAck(1))
    c.barrier()


@area.case
def recover_keeps_to_the_prefetch(s: Script) -> None:
    c = filled(s, 4)
    c.ask(BasicQos(0, 2, False))
    c.consume("q")
    c.deliveries(2)
    c.ask(BasicRecover(True))
    c.deliveries(2)
    c.send(BasicAck(4, True))
    c.deliveries(2)


@area.case
def recover_of_one_channel_leaves_the_other(s: Script) -> None:
    c = filled(s, 2)
    c.get("q", no_ack=False)
    d = s.channel(2)
    d.get("q", no_ack=False)
    c.ask(BasicRecover(True))
    s.until_count("q", 1)
    d.send(BasicAck(1))
    d.drain("q")

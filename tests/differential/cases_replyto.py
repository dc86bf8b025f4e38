"""Cases: direct reply-to."""

from __future__ import annotations

from penstock.amqp.method import (
    BasicCancel,
    BasicConsume,
    BasicGet,
    ChannelClose,
    ConfirmSelect,
    QueueDeclare,
    QueueDelete,
)
from tests.differential.player import Area
from tests.differential.script import Channel, Script

area = Area("replyto")

NAME = "amq.rabbitmq.reply-to"


def asked(s: Script) -> tuple[Channel, Channel, str]:
    """Requester, responder, and the token the responder has received."""
    requester, responder = s.channel(), s.channel(1, "d")
    responder.declare("requests")
    requester.consume(NAME, "replies", no_ack=True)
    requester.publish("requests", b"question", reply_to=NAME, correlation_id="7")
    responder.get_when_there("requests")
    return requester, responder, responder.connection.reply_to


@area.case
def consume(s: Script) -> None:
    s.channel().consume(NAME, no_ack=True)


@area.case
def consume_with_acks(s: Script) -> None:
    s.channel().consume(NAME)


@area.case
def consume_twice(s: Script) -> None:
    c = s.channel()
    c.consume(NAME, "a", no_ack=True)
    c.consume(NAME, "b", no_ack=True)


@area.case
def consume_again_after_cancel(s: Script) -> None:
    c = s.channel()
    c.consume(NAME, "a", no_ack=True)
    c.ask(BasicCancel("a"))
    c.consume(NAME, "b", no_ack=True)


@area.case
def consume_on_two_channels(s: Script) -> None:
    s.channel().consume(NAME, "a", no_ack=True)
    s.channel(2).consume(NAME, "a", no_ack=True)


@area.case
def consume_with_a_tag_in_use(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.consume("q", "a")
    c.consume(NAME, "a", no_ack=True)


@area.case
def consume_exclusive_and_nowait(s: Script) -> None:
    c = s.channel()
    c.send(BasicConsume(NAME, "a", no_ack=True, exclusive=True, nowait=True))
    c.barrier()


@area.case
def consume_with_a_tag_by_the_server(s: Script) -> None:
    s.channel().ask(BasicConsume(NAME, no_ack=True))


@area.case
def publish_without_a_consumer(s: Script) -> None:
    c = s.channel()
    c.declare("requests")
    c.publish("requests", b"question", reply_to=NAME)
    c.barrier()


@area.case
def publish_after_cancel(s: Script) -> None:
    c = s.channel()
    c.declare("requests")
    c.consume(NAME, "a", no_ack=True)
    c.ask(BasicCancel("a"))
    c.publish("requests", b"question", reply_to=NAME)
    c.barrier()


@area.case
def publish_on_another_channel(s: Script) -> None:
    s.channel().consume(NAME, no_ack=True)
    d = s.channel(2)
    d.declare("requests")
    d.publish("requests", b"question", reply_to=NAME)
    d.barrier()


@area.case
def declare_passive(s: Script) -> None:
    c = s.channel()
    c.consume(NAME, no_ack=True)
    c.ask(QueueDeclare(NAME, passive=True))


@area.case
def declare_passive_without_a_consumer(s: Script) -> None:
    s.channel().ask(QueueDeclare(NAME, passive=True))


@area.case
def get(s: Script) -> None:
    c = s.channel()
    c.consume(NAME, no_ack=True)
    c.ask(BasicGet(NAME, True))


@area.case
def delete(s: Script) -> None:
    c = s.channel()
    c.consume(NAME, no_ack=True)
    c.ask(QueueDelete(NAME))


@area.case
def publish_to_the_bare_name(s: Script) -> None:
    c = s.channel()
    c.consume(NAME, no_ack=True)
    c.publish(NAME, b"1", mandatory=True)
    c.barrier()


@area.case
def a_request_carries_a_token_and_a_reply_comes_back(s: Script) -> None:
    requester, responder, token = asked(s)
    responder.publish(token, b"answer", correlation_id="7", mandatory=True)
    requester.deliveries(1)


@area.case
def several_replies_to_one_request(s: Script) -> None:
    requester, responder, token = asked(s)
    for body in (b"1", b"2", b"3"):
        responder.publish(token, body)
    requester.deliveries(3)


@area.case
def a_reply_is_confirmed(s: Script) -> None:
    requester, responder, token = asked(s)
    responder.ask(ConfirmSelect())
    responder.publish(token, b"answer", mandatory=True)
    requester.deliveries(1)
    responder.confirmed()


@area.case
def a_reply_after_the_requester_left(s: Script) -> None:
    requester, responder, token = asked(s)
    requester.ask(ChannelClose(200, "bye"))
    responder.publish(token, b"answer", mandatory=True)
    responder.returns()


@area.case
def a_reply_after_the_requester_cancelled(s: Script) -> None:
    requester, responder, token = asked(s)
    requester.ask(BasicCancel("replies"))
    responder.publish(token, b"answer", mandatory=True)
    responder.barrier()
    requester.barrier()


@area.case
def a_reply_to_a_garbage_token(s: Script) -> None:
    c = s.channel()
    c.publish(f"{NAME}.nobody.nothing", b"answer", mandatory=True)
    c.barrier()


@area.case
def the_token_can_be_looked_up(s: Script) -> None:
    _, responder, token = asked(s)
    responder.ask(QueueDeclare(token, passive=True))


@area.case
def the_token_cannot_be_declared(s: Script) -> None:
    _, responder, token = asked(s)
    responder.ask(QueueDeclare(token))


@area.case
def a_reply_to_through_another_exchange_is_not_delivered(s: Script) -> None:
    _, responder, token = asked(s)
    responder.publish(token, b"answer", "amq.direct", mandatory=True)
    responder.returns()


@area.case
def other_reply_to_names_are_left_alone(s: Script) -> None:
    c = s.channel()
    c.declare("requests")
    c.publish("requests", b"1", reply_to="amq.rabbitmq.reply-tox")
    c.publish("requests", b"2", reply_to="amq.gen-mine")
    c.drain("requests")


@area.case
def tokens_are_the_same_for_one_channel(s: Script) -> None:
    requester, responder, _ = asked(s)
    requester.publish("requests", b"again", reply_to=NAME)
    responder.get_when_there("requests")


@area.case
def a_tag_cancelled_by_cancel(s: Script) -> None:
    c = s.channel()
    c.consume(NAME, "a", no_ack=True)
    c.ask(BasicCancel("a"))
    c.ask(BasicCancel("a"))

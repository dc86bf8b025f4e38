"""Cases: time to live of messages and of queues."""

from __future__ import annotations

from penstock.amqp.method import BasicAck, BasicCancel, BasicNack, BasicQos, QueueDeclare
from tests.differential.player import Area
from tests.differential.script import Channel, Script

area = Area("expiry")

SOON = 30  # ms
IN_TIME = 1000  # late enough that a busy machine sees what is there before it goes
LATE = 100_000


def queue(s: Script, **arguments: object) -> Channel:
    """A queue `q` whose dead letters go to `dead`."""
    c = s.channel()
    c.declare("dead")
    c.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="dead", **arguments)
    return c


@area.case
def a_message_expires_after_the_queue_s_ttl(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_message_ttl=IN_TIME)
    c.fill("q", b"1", b"2")
    s.until_count("q", 0)
    c.get("q")


@area.case
def an_expired_message_is_dead_lettered(s: Script) -> None:
    c = queue(s, x_message_ttl=SOON)
    c.publish("q", b"1", content_type="text/plain")
    c.get_when_there("dead")


@area.case
def a_message_expires_after_its_own_expiration(s: Script) -> None:
    c = queue(s)
    c.publish("q", b"1", expiration=str(SOON))
    c.get_when_there("dead")
    c.get("q")


@area.case
def the_shorter_of_both_counts_the_message_s(s: Script) -> None:
    c = queue(s, x_message_ttl=LATE)
    c.publish("q", b"1", expiration=str(SOON))
    c.get_when_there("dead")


@area.case
def the_shorter_of_both_counts_the_queue_s(s: Script) -> None:
    c = queue(s, x_message_ttl=SOON)
    c.publish("q", b"1", expiration=str(LATE))
    c.get_when_there("dead")


@area.case
def an_expired_message_leaves_only_at_the_head(s: Script) -> None:
    c = queue(s)
    c.publish("q", b"long", expiration=str(LATE))
    c.publish("q", b"short", expiration=str(SOON))
    c.fill("dead", b"marker", expiration=str(IN_TIME))
    s.until_count("dead", 0)
    s.until_count("q", 2)
    c.get("q")
    c.get_when_there("dead")
    c.get("q")


@area.case
def ttl_0_is_for_a_waiting_consumer(s: Script) -> None:
    c = queue(s, x_message_ttl=0)
    c.consume("q", no_ack=True)
    c.publish("q", b"1")
    c.deliveries(1)
    c.get("dead")


@area.case
def ttl_0_without_a_consumer_expires_at_once(s: Script) -> None:
    c = queue(s, x_message_ttl=0)
    c.publish("q", b"1", mandatory=True)
    c.get_when_there("dead")
    c.get("q")


@area.case
def expiration_0_without_a_consumer(s: Script) -> None:
    c = queue(s)
    c.publish("q", b"1", expiration="0")
    c.get_when_there("dead")


@area.case
def expiration_0_with_a_consumer(s: Script) -> None:
    c = queue(s)
    c.consume("q")
    c.publish("q", b"1", expiration="0")
    c.deliveries(1)


@area.case
def ttl_0_with_a_full_consumer(s: Script) -> None:
    c = queue(s, x_message_ttl=0)
    c.ask(BasicQos(0, 1))
    c.consume("q")
    c.publish("q", b"1")
    c.deliveries(1)
    c.publish("q", b"2")
    s.channel(2).get_when_there("dead")


@area.case
def unacked_messages_do_not_expire(s: Script) -> None:
    c = queue(s, x_message_ttl=SOON)
    c.consume("q")
    c.publish("q", b"1")
    c.deliveries(1)
    d = s.channel(2)
    d.fill("dead", b"marker", expiration=str(IN_TIME))
    s.until_count("dead", 0)
    c.send(BasicAck(1))
    c.barrier()
    d.get("dead")


@area.case
def a_requeued_message_keeps_its_time(s: Script) -> None:
    c = queue(s, x_message_ttl=SOON)
    c.consume("q")
    c.publish("q", b"1")
    c.deliveries(1)
    d = s.channel(2)
    d.fill("dead", b"marker", expiration=str(IN_TIME))
    s.until_count("dead", 0)
    c.ask(BasicCancel("t"))
    c.send(BasicNack(1, False, True))
    d.get_when_there("dead")


@area.case
def the_expiration_property_is_kept_for_a_consumer(s: Script) -> None:
    c = queue(s)
    c.publish("q", b"1", expiration=str(LATE))
    c.get("q")


@area.case
def expired_messages_without_dead_letter_exchange_are_dropped(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.publish("q", b"1", expiration=str(SOON))
    c.publish("q", b"2")
    s.until_count("q", 1)
    c.get("q")


@area.case
def several_expire_in_order(s: Script) -> None:
    c = queue(s, x_message_ttl=SOON)
    for number in range(4):
        c.publish("q", b"%d" % number)
    s.until_count("dead", 4)
    c.drain("dead")


@area.case
def a_queue_expires_when_unused(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_expires=SOON)
    until_expired(s)
    c.count("q")


@area.case
def an_expired_queue_drops_its_messages(s: Script) -> None:
    c = queue(s, x_expires=2 * SOON)
    c.publish("q", b"1")
    until_expired(s)
    c.get("dead")


def until_expired(s: Script) -> None:
    """Asked by publishing: a passive declare would count as use."""
    s.poll("queue q is gone", lambda: is_unroutable(s.channel(5)))


def is_unroutable(c: Channel) -> bool:
    c.publish("q", b"", mandatory=True, expiration="1")
    c.barrier()
    return bool(c.script.transcript.pop("c.5", None))


@area.case
def a_queue_with_a_consumer_does_not_expire(s: Script) -> None:
    c = s.channel()
    c.declare("dead")
    c.declare("q", x_expires=IN_TIME)
    c.consume("q")
    s.channel(2).fill("dead", b"marker", expiration=str(2 * IN_TIME))
    s.until_count("dead", 0)
    c.publish("q", b"1")
    c.deliveries(1)


@area.case
def a_queue_expires_after_its_consumer_left(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_expires=IN_TIME)
    c.consume("q")
    c.ask(BasicCancel("t"))
    until_expired(s)


@area.case
def a_redeclare_counts_as_use(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_expires=LATE)
    c.ask(QueueDeclare("q", arguments={"x-expires": LATE}))


@area.case
def a_get_counts_as_use_and_then_it_expires(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_expires=IN_TIME)
    c.get("q")
    until_expired(s)

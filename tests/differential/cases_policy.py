"""Cases: policies and operator policies, as clients see them."""

from __future__ import annotations

from penstock.amqp.method import BasicReject, ConfirmSelect, QueueDeclare
from tests.differential.player import Area
from tests.differential.script import Channel, Script

area = Area("policy")


def publish(c: Channel, *bodies: bytes) -> None:
    for body in bodies:
        c.publish("q", body)


def until_bounded(s: Script, c: Channel, count: int) -> None:
    """Until the policy has reached the queue: publish until the count stays."""
    s.poll(f"queue q keeps {count}", lambda: keeps(s, c, count))


def keeps(s: Script, c: Channel, count: int) -> bool:
    for _ in range(count + 2):
        c.publish("q", b"filler")
    c.barrier("q")
    answer = s.connections["c"].probe("q")
    return answer is not None and answer.message_count == count


@area.case
def a_policy_before_the_queue(s: Script) -> None:
    s.admin.set_policy("/", "p", "^q$", {"max-length": 2}, "queues")
    c = s.channel()
    c.declare("q")
    publish(c, b"1", b"2", b"3")
    c.drain("q")


@area.case
def a_policy_after_the_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.fill("q", b"1", b"2", b"3")
    s.admin.set_policy("/", "p", "^q$", {"max-length": 2}, "queues")
    until_bounded(s, c, 2)


@area.case
def a_policy_taken_away(s: Script) -> None:
    s.admin.set_policy("/", "p", "^q$", {"max-length": 1}, "queues")
    c = s.channel()
    c.declare("q")
    publish(c, b"1", b"2")
    s.until_count("q", 1)
    s.admin.clear_policy("/", "p")
    s.poll("queue q keeps more than 1", lambda: grows(s, c))


def grows(s: Script, c: Channel) -> bool:
    publish(c, b"x", b"y", b"z")
    answer = s.connections["c"].probe("q")
    return answer is not None and answer.message_count > 1


@area.case
def a_pattern_that_does_not_match(s: Script) -> None:
    s.admin.set_policy("/", "p", "^other$", {"max-length": 1}, "queues")
    c = s.channel()
    c.declare("q")
    publish(c, b"1", b"2")
    c.drain("q")


@area.case
def a_policy_for_exchanges_only(s: Script) -> None:
    s.admin.set_policy("/", "p", "^q$", {"alternate-exchange": "amq.fanout"}, "exchanges")
    c = s.channel()
    c.declare("q")
    publish(c, b"1", b"2")
    c.drain("q")


@area.case
def the_higher_priority_wins(s: Script) -> None:
    s.admin.set_policy("/", "low", "^q$", {"max-length": 1}, "queues", 0)
    s.admin.set_policy("/", "high", "^q$", {"max-length": 3}, "queues", 10)
    c = s.channel()
    c.declare("q")
    publish(c, b"1", b"2", b"3", b"4")
    c.drain("q")


@area.case
def policies_are_not_merged(s: Script) -> None:
    s.admin.set_policy("/", "low", "^q$", {"max-length": 1}, "queues", 0)
    s.admin.set_policy("/", "high", "^q$", {"message-ttl": 100000}, "queues", 10)
    c = s.channel()
    c.declare("q")
    publish(c, b"1", b"2")
    c.drain("q")


@area.each({"argument smaller": (1, 2), "policy smaller": (2, 1)})
def an_argument_and_a_policy_the_smaller_counts(s: Script, argument: int, policy: int) -> None:
    s.admin.set_policy("/", "p", "^q$", {"max-length": policy}, "queues")
    c = s.channel()
    c.declare("q", x_max_length=argument)
    publish(c, b"1", b"2", b"3")
    c.drain("q")


@area.case
def an_argument_wins_over_a_policy_for_dead_letters(s: Script) -> None:
    s.admin.set_policy("/", "p", "^q$", {"dead-letter-exchange": "", "dead-letter-routing-key": "by policy"}, "queues")
    c = s.channel()
    c.declare("by policy")
    c.declare("by argument")
    c.declare("q", x_dead_letter_exchange="", x_dead_letter_routing_key="by argument")
    publish(c, b"1")
    c.get("q", no_ack=False)
    c.send(BasicReject(1, False))
    c.get_when_there("by argument")
    c.get("by policy")


@area.case
def dead_letters_by_policy(s: Script) -> None:
    s.admin.set_policy("/", "p", "^q$", {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}, "queues")
    c = s.channel()
    c.declare("dead")
    c.declare("q")
    publish(c, b"1")
    c.get("q", no_ack=False)
    c.send(BasicReject(1, False))
    c.get_when_there("dead")


@area.case
def ttl_by_policy(s: Script) -> None:
    s.admin.set_policy("/", "p", "^q$", {"message-ttl": 20}, "queues")
    c = s.channel()
    c.declare("q")
    publish(c, b"1")
    s.until_count("q", 0)


@area.case
def expiry_of_the_queue_by_policy(s: Script) -> None:
    s.admin.set_policy("/", "p", "^q$", {"expires": 30}, "queues")
    c = s.channel()
    c.declare("q")
    s.poll("queue q is gone", lambda: is_unroutable(s.channel(5)))


def is_unroutable(c: Channel) -> bool:
    """Asked by publishing: a passive declare would count as use."""
    c.publish("q", b"", mandatory=True)
    c.barrier()
    return bool(c.script.transcript.pop("c.5", None))


@area.case
def overflow_by_policy(s: Script) -> None:
    s.admin.set_policy("/", "p", "^q$", {"max-length": 1, "overflow": "reject-publish"}, "queues")
    c = s.channel()
    c.declare("q")
    c.ask(ConfirmSelect())
    for body in (b"1", b"2"):
        c.publish("q", body)
        c.confirmed()
    c.drain("q")


@area.case
def length_in_bytes_by_policy(s: Script) -> None:
    s.admin.set_policy("/", "p", "^q$", {"max-length-bytes": 3}, "queues")
    c = s.channel()
    c.declare("q")
    publish(c, b"12", b"34")
    c.drain("q")


@area.case
def an_alternate_exchange_by_policy(s: Script) -> None:
    s.admin.set_policy("/", "p", "^x$", {"alternate-exchange": "amq.fanout"}, "exchanges")
    c = s.channel()
    c.exchange("x")
    c.declare("q")
    c.bind("q", "amq.fanout")
    c.publish("nobody", b"1", "x", mandatory=True)
    c.get_when_there("q")


@area.case
def a_policy_does_not_make_a_redeclare_differ(s: Script) -> None:
    s.admin.set_policy("/", "p", "^q$", {"max-length": 1}, "queues")
    c = s.channel()
    c.declare("q")
    c.declare("q")
    c.ask(QueueDeclare("q", arguments={"x-max-length": 1}))


@area.case
def an_operator_policy_limits_an_argument(s: Script) -> None:
    s.admin.set_operator_policy("/", "o", "^q$", {"max-length": 1})
    c = s.channel()
    c.declare("q", x_max_length=5)
    publish(c, b"1", b"2", b"3")
    c.drain("q")


@area.case
def an_operator_policy_limits_a_policy(s: Script) -> None:
    s.admin.set_operator_policy("/", "o", "^q$", {"max-length": 2})
    s.admin.set_policy("/", "p", "^q$", {"max-length": 5}, "queues")
    c = s.channel()
    c.declare("q")
    publish(c, b"1", b"2", b"3")
    c.drain("q")


@area.case
def an_operator_policy_does_not_widen_a_policy(s: Script) -> None:
    s.admin.set_operator_policy("/", "o", "^q$", {"max-length": 5})
    s.admin.set_policy("/", "p", "^q$", {"max-length": 1}, "queues")
    c = s.channel()
    c.declare("q")
    publish(c, b"1", b"2", b"3")
    c.drain("q")


@area.case
def an_operator_policy_and_a_policy_are_merged(s: Script) -> None:
    s.admin.set_operator_policy("/", "o", "^q$", {"max-length": 1})
    s.admin.set_policy("/", "p", "^q$", {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}, "queues")
    c = s.channel()
    c.declare("dead")
    c.declare("q")
    publish(c, b"1", b"2")
    c.get_when_there("dead")
    c.drain("q")


@area.case
def an_operator_policy_taken_away(s: Script) -> None:
    s.admin.set_operator_policy("/", "o", "^q$", {"max-length": 1})
    c = s.channel()
    c.declare("q")
    publish(c, b"1", b"2")
    s.until_count("q", 1)
    s.admin.clear_operator_policy("/", "o")
    s.poll("queue q keeps more than 1", lambda: grows(s, c))


@area.case
def a_policy_of_another_vhost(s: Script) -> None:
    s.admin.add_vhost("other")
    s.admin.set_policy("other", "p", "^q$", {"max-length": 1}, "queues")
    c = s.channel()
    c.declare("q")
    publish(c, b"1", b"2")
    c.drain("q")

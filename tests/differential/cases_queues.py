"""Cases: queue.declare, delete and purge; equivalence and arguments."""

from __future__ import annotations

from penstock.amqp.method import (
    BasicConsume,
    Method,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
)
from tests.differential.player import Area
from tests.differential.script import Script
from tests.differential.typed import T

area = Area("queues")


@area.case
def declare_answers_name_and_counts(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.fill("q", b"1", b"2")
    c.consume("q", no_ack=False)
    c.deliveries(2)
    s.until_count("q", 0)
    c.count("q")


@area.case
def declare_twice_is_the_same(s: Script) -> None:
    c = s.channel()
    c.declare("q", x_max_length=5)
    c.declare("q", x_max_length=5)


@area.case
def declare_nowait_says_nothing(s: Script) -> None:
    c = s.channel()
    c.send(QueueDeclare("q", nowait=True))
    c.count("q")


@area.case
def passive_declare_of_a_missing_queue(s: Script) -> None:
    s.channel().ask(QueueDeclare("nope", passive=True))


@area.case
def passive_declare_nowait_of_a_missing_queue(s: Script) -> None:
    s.channel().ask(QueueDeclare("nope", passive=True, nowait=True))


@area.each(
    {
        "durable": (QueueDeclare("q", passive=True, durable=True),),
        "auto_delete": (QueueDeclare("q", passive=True, auto_delete=True),),
        "exclusive": (QueueDeclare("q", passive=True, exclusive=True),),
        "arguments": (QueueDeclare("q", passive=True, arguments={"x-max-length": 5}),),
        "bad arguments": (QueueDeclare("q", passive=True, arguments={"x-max-length": "a"}),),
    }
)
def passive_declare_compares_nothing(s: Script, method: Method) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(method)


FLAGS = {
    "durable": QueueDeclare("q", durable=True),
    "auto_delete": QueueDeclare("q", auto_delete=True),
    "exclusive": QueueDeclare("q", exclusive=True),
    "exclusive and durable": QueueDeclare("q", exclusive=True, durable=True),
    "durable and auto_delete": QueueDeclare("q", durable=True, auto_delete=True),
    "durable and an argument": QueueDeclare("q", durable=True, arguments={"x-max-length": 5}),
}


@area.each({name: (method,) for name, method in FLAGS.items()})
def redeclared_with(s: Script, method: Method) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(method)


@area.each({name: (method,) for name, method in FLAGS.items()})
def redeclared_without(s: Script, method: Method) -> None:
    c = s.channel()
    c.ask(method)
    c.ask(QueueDeclare("q"))


@area.each({name: (method,) for name, method in FLAGS.items()})
def redeclared_the_same(s: Script, method: Method) -> None:
    c = s.channel()
    c.ask(method)
    c.ask(method)


ARGUMENTS: dict[str, tuple[dict, dict]] = {
    "an extra length": ({}, {"x-max-length": 5}),
    "a missing length": ({"x-max-length": 5}, {}),
    "another length": ({"x-max-length": 5}, {"x-max-length": 6}),
    "another length in bytes": ({"x-max-length-bytes": 5}, {"x-max-length-bytes": 6}),
    "another ttl": ({"x-message-ttl": 50000}, {"x-message-ttl": 60000}),
    "a missing ttl": ({"x-message-ttl": 50000}, {}),
    "another expiry": ({"x-expires": 50000}, {"x-expires": 60000}),
    "another dead letter exchange": ({"x-dead-letter-exchange": "a"}, {"x-dead-letter-exchange": "b"}),
    "no dead letter exchange": ({"x-dead-letter-exchange": "a"}, {}),
    "another dead letter key": (
        {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "a"},
        {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "b"},
    ),
    "another priority": ({"x-max-priority": 5}, {"x-max-priority": 6}),
    "no priority": ({"x-max-priority": 5}, {}),
    "another overflow": ({"x-overflow": "drop-head"}, {"x-overflow": "reject-publish"}),
    "a default overflow told": ({}, {"x-overflow": "drop-head"}),
    "another mode": ({"x-queue-mode": "lazy"}, {"x-queue-mode": "default"}),
    "single active consumer": ({}, {"x-single-active-consumer": True}),
    "no single active consumer": ({"x-single-active-consumer": True}, {"x-single-active-consumer": False}),
    "the type classic told": ({}, {"x-queue-type": "classic"}),
    "the type classic not told": ({"x-queue-type": "classic"}, {}),
    "an unknown argument": ({}, {"x-foo": 1}),
    "another unknown argument": ({"x-foo": 1}, {"x-foo": "2"}),
    "two that differ": ({"x-max-length": 5, "x-message-ttl": 50000}, {"x-max-length": 6, "x-message-ttl": 60000}),
    "a byte for an int": ({"x-max-length": 5}, {"x-max-length": T("b", 5)}),
    "a short for an int": ({"x-max-length": 5}, {"x-max-length": T("s", 5)}),
    "a long for an int": ({"x-max-length": 5}, {"x-max-length": T("l", 5)}),
    "an unsigned int for an int": ({"x-max-length": 5}, {"x-max-length": T("i", 5)}),
    "a double for an int": ({"x-max-length": 5}, {"x-max-length": 5.0}),
    "a string for an int": ({"x-max-length": 5}, {"x-max-length": "5"}),
    "a bool for an int": ({"x-max-length": 5}, {"x-max-length": True}),
    "void for an int": ({"x-max-length": 5}, {"x-max-length": None}),
    "the order of arguments": (
        {"x-max-length": 5, "x-message-ttl": 50000},
        {"x-message-ttl": 50000, "x-max-length": 5},
    ),
}


@area.each(ARGUMENTS)
def redeclared_with_other_arguments(s: Script, first: dict, second: dict) -> None:
    c = s.channel()
    c.ask(QueueDeclare("q", arguments=first))
    c.ask(QueueDeclare("q", arguments=second))


VALUES: dict[str, object] = {
    "x-expires -1": -1,
    "x-expires 0": 0,
    "x-expires a": "a",
    "x-expires 2^40": 1 << 40,
    "x-expires true": True,
    "x-expires void": None,
    "x-expires 2^32-1": (1 << 32) - 1,
    "x-message-ttl -1": -1,
    "x-message-ttl 0": 0,
    "x-message-ttl a": "a",
    "x-message-ttl 2^40": 1 << 40,
    "x-message-ttl 5.0": 5.0,
    "x-message-ttl true": True,
    "x-message-ttl as a byte": T("b", 5),
    "x-message-ttl as a timestamp": T("T", 5),
    "x-message-ttl as a table": {},
    "x-message-ttl as an array": [],
    "x-max-length a": "a",
    "x-max-length -1": -1,
    "x-max-length 0": 0,
    "x-max-length 1.5": 1.5,
    "x-max-length 2^40": 1 << 40,
    "x-max-length-bytes a": "a",
    "x-max-length-bytes -1": -1,
    "x-max-length-bytes 0": 0,
    "x-max-priority -1": -1,
    "x-max-priority 0": 0,
    "x-max-priority 255": 255,
    "x-max-priority 256": 256,
    "x-max-priority a": "a",
    "x-overflow bogus": "bogus",
    "x-overflow 1": 1,
    "x-overflow drop-head": "drop-head",
    "x-overflow reject-publish": "reject-publish",
    "x-overflow reject-publish-dlx": "reject-publish-dlx",
    "x-queue-mode bogus": "bogus",
    "x-queue-mode lazy": "lazy",
    "x-queue-mode default": "default",
    "x-queue-mode 5": 5,
    "x-queue-version 1": 1,
    "x-queue-version 2": 2,
    "x-queue-version 3": 3,
    "x-queue-version a": "a",
    "x-dead-letter-exchange 5": 5,
    "x-dead-letter-exchange true": True,
    "x-dead-letter-exchange void": None,
    "x-dead-letter-exchange empty": "",
    "x-dead-letter-routing-key alone": "a",
    "x-dead-letter-routing-key 5": 5,
    "x-dead-letter-strategy at-least-once": "at-least-once",
    "x-dead-letter-strategy bogus": "bogus",
    "x-single-active-consumer a": "a",
    "x-single-active-consumer 1": 1,
    "x-single-active-consumer true": True,
    "x-delivery-limit 5": 5,
    "x-max-in-memory-length 5": 5,
    "x-max-in-memory-bytes 5": 5,
    "x-quorum-initial-group-size 3": 3,
    "x-max-age 1h": "1h",
    "x-queue-type classic": "classic",
    "x-queue-type bogus": "bogus",
    "x-queue-type 5": 5,
    "x-foo 5": 5,
    "empty name": 5,
    "x-queue-master-locator client-local": "client-local",
}


@area.each({name: (name.split(" ")[0] if name != "empty name" else "", value) for name, value in VALUES.items()})
def declared_with(s: Script, argument: str, value: object) -> None:
    c = s.channel()
    c.ask(QueueDeclare("q", arguments={argument: value}))  # type: ignore[dict-item]  # letters as given
    c.count("q")


@area.each(
    {
        "quorum": (QueueDeclare("q", durable=True, arguments={"x-queue-type": "quorum", "x-max-priority": 3}),),
        "two bad ones": (QueueDeclare("q", arguments={"x-max-length": "a", "x-expires": 0}),),
        "two bad ones the other way round": (QueueDeclare("q", arguments={"x-expires": 0, "x-max-length": "a"}),),
        "a bad one and nowait": (QueueDeclare("q", nowait=True, arguments={"x-expires": 0}),),
        "exclusive and x-expires": (QueueDeclare("q", exclusive=True, arguments={"x-expires": 100000}),),
        "a server-named one": (QueueDeclare("", arguments={"x-expires": 0}),),
        "a key without exchange": (QueueDeclare("q", arguments={"x-dead-letter-routing-key": "k"}),),
    }
)
def declared_with_bad_arguments(s: Script, method: QueueDeclare) -> None:
    s.channel().ask(method)


@area.case
def a_bad_argument_of_an_existing_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(QueueDeclare("q", arguments={"x-max-length": "a"}))


# Purge and delete.


@area.case
def purge_counts_ready_messages(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.fill("q", b"1", b"2", b"3")
    c.get("q", no_ack=False)
    c.ask(QueuePurge("q"))
    c.drain("q")


@area.case
def purge_of_an_empty_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(QueuePurge("q"))


@area.case
def purge_of_a_missing_queue(s: Script) -> None:
    s.channel().ask(QueuePurge("nope"))


@area.case
def purge_nowait(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.fill("q", b"1")
    c.send(QueuePurge("q", nowait=True))
    c.get("q")


@area.case
def purge_nowait_of_a_missing_queue(s: Script) -> None:
    s.channel().ask(QueuePurge("nope", nowait=True))


@area.case
def delete_counts_ready_messages(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.fill("q", b"1", b"2", b"3")
    c.get("q", no_ack=False)
    c.ask(QueueDelete("q"))
    c.count("q")


@area.each(
    {
        "plain": (QueueDelete("nope"),),
        "if unused": (QueueDelete("nope", if_unused=True),),
        "if empty": (QueueDelete("nope", if_empty=True),),
    }
)
def delete_of_a_missing_queue(s: Script, method: Method) -> None:
    s.channel().ask(method)


@area.case
def delete_nowait(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.send(QueueDelete("q", nowait=True))
    c.count("q")


@area.case
def delete_if_unused_with_a_consumer(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.consume("q")
    c.ask(QueueDelete("q", if_unused=True))


@area.case
def delete_if_unused_without_a_consumer(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.fill("q", b"1")
    c.ask(QueueDelete("q", if_unused=True))


@area.case
def delete_if_empty_with_a_message(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.fill("q", b"1")
    c.ask(QueueDelete("q", if_empty=True))


@area.case
def delete_if_empty_with_an_unacked_message(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.fill("q", b"1")
    c.get("q", no_ack=False)
    c.ask(QueueDelete("q", if_empty=True))


@area.case
def delete_if_unused_and_empty_when_neither_holds(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.fill("q", b"1", b"2")
    d = s.channel(2)
    d.send(BasicConsume("q", "t"))
    d.deliveries(2)
    c.fill("q")
    c.ask(QueueDelete("q", if_unused=True, if_empty=True))


@area.case
def messages_are_gone_with_a_deleted_and_redeclared_queue(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.fill("q", b"1")
    c.ask(QueueDelete("q"))
    c.declare("q")
    c.get("q")


@area.case
def publish_to_a_queue_that_is_deleted_is_dropped(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(QueueDelete("q"))
    c.publish("q", b"x", mandatory=True)
    c.returns()

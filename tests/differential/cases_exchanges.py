"""Cases: exchange.declare and delete, bindings of queues and of exchanges, auto-delete."""

from __future__ import annotations

from penstock.amqp.method import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    Method,
    QueueBind,
    QueueDelete,
    QueueUnbind,
)
from tests.differential.player import Area
from tests.differential.script import Script

area = Area("exchanges")


@area.each({kind: (kind,) for kind in ("direct", "fanout", "topic", "headers", "x-consistent-hash")})
def declared_of_type(s: Script, kind: str) -> None:
    c = s.channel()
    c.exchange("x", kind)
    c.exchange("x", kind)


@area.each(
    {"unknown": ("bogus",), "empty": ("",), "upper case": ("DIRECT",), "x-delayed-message": ("x-delayed-message",)}
)
def declared_of_wrong_type(s: Script, kind: str) -> None:
    s.channel().exchange("x", kind)


@area.case
def an_existing_exchange_declared_of_an_unknown_type(s: Script) -> None:
    c = s.channel()
    c.exchange("x")
    c.exchange("x", "bogus")


@area.case
def declare_nowait_says_nothing(s: Script) -> None:
    c = s.channel()
    c.send(ExchangeDeclare("x", nowait=True))
    c.ask(ExchangeDeclare("x", passive=True))


@area.case
def declare_nowait_that_differs(s: Script) -> None:
    c = s.channel()
    c.exchange("x")
    c.ask(ExchangeDeclare("x", "fanout", nowait=True))


@area.each(
    {
        "missing": (ExchangeDeclare("nope", passive=True),),
        "missing and of an unknown type": (ExchangeDeclare("nope", "bogus", passive=True),),
        "missing and nowait": (ExchangeDeclare("nope", passive=True, nowait=True),),
        "there but of another type": (ExchangeDeclare("amq.direct", "fanout", passive=True),),
        "there but not durable": (ExchangeDeclare("amq.direct", passive=True),),
        "the default one": (ExchangeDeclare("", passive=True),),
        "a reserved name": (ExchangeDeclare("amq.nope", passive=True),),
    }
)
def passive(s: Script, method: Method) -> None:
    s.channel().ask(method)


@area.each(
    {
        "type": (ExchangeDeclare("x", "fanout"),),
        "durable": (ExchangeDeclare("x", durable=True),),
        "auto_delete": (ExchangeDeclare("x", auto_delete=True),),
        "internal": (ExchangeDeclare("x", internal=True),),
        "type and durable": (ExchangeDeclare("x", "fanout", durable=True),),
        "durable and internal": (ExchangeDeclare("x", durable=True, internal=True),),
        "alternate exchange": (ExchangeDeclare("x", arguments={"alternate-exchange": "ae"}),),
        "an unknown argument": (ExchangeDeclare("x", arguments={"x-foo": 1}),),
    }
)
def redeclared_with_another(s: Script, method: Method) -> None:
    c = s.channel()
    c.exchange("x")
    c.ask(method)


@area.each(
    {
        "another": ({"alternate-exchange": "b"},),
        "none": ({},),
        "the same": ({"alternate-exchange": "a"},),
        "a number": ({"alternate-exchange": 5},),
    }
)
def redeclared_with_alternate_exchange(s: Script, arguments: dict) -> None:
    c = s.channel()
    c.ask(ExchangeDeclare("x", arguments={"alternate-exchange": "a"}))
    c.ask(ExchangeDeclare("x", arguments=arguments))


@area.each({"5": (5,), "true": (True,), "void": (None,), "empty": ("",), "itself": ("x",)})
def declared_with_alternate_exchange(s: Script, value: object) -> None:
    c = s.channel()
    c.exchange("x", alternate_exchange=value)
    c.publish("k", b"x", "x", mandatory=True)
    c.barrier()


@area.each(
    {
        "a reserved name": (ExchangeDeclare("amq.foo"),),
        "the default exchange": (ExchangeDeclare(""),),
        "amq.direct as it is": (ExchangeDeclare("amq.direct", durable=True),),
        "amq.direct not durable": (ExchangeDeclare("amq.direct"),),
        "amq.topic of another type": (ExchangeDeclare("amq.topic", "fanout", durable=True),),
        "amq.match": (ExchangeDeclare("amq.match", "headers", durable=True),),
        "cr and lf": (ExchangeDeclare("a\r\nb"),),
        "utf-8": (ExchangeDeclare("čaj 茶"),),
        "255 bytes": (ExchangeDeclare("n" * 255),),
    }
)
def declared_by_the_name(s: Script, method: Method) -> None:
    s.channel().ask(method)


@area.each(
    {
        "missing": (ExchangeDelete("nope"),),
        "missing if unused": (ExchangeDelete("nope", if_unused=True),),
        "the default exchange": (ExchangeDelete(""),),
        "amq.direct": (ExchangeDelete("amq.direct"),),
        "amq.nope": (ExchangeDelete("amq.nope"),),
    }
)
def deleted(s: Script, method: Method) -> None:
    s.channel().ask(method)


@area.case
def deleted_and_gone(s: Script) -> None:
    c = s.channel()
    c.exchange("x")
    c.ask(ExchangeDelete("x"))
    c.publish("k", b"", "x")
    c.barrier()


@area.case
def deleted_nowait(s: Script) -> None:
    c = s.channel()
    c.exchange("x")
    c.send(ExchangeDelete("x", nowait=True))
    c.ask(ExchangeDeclare("x", passive=True))


@area.case
def deleted_if_unused_with_a_queue_bound(s: Script) -> None:
    c = s.channel()
    c.exchange("x")
    c.declare("q")
    c.bind("q", "x", "k")
    c.ask(ExchangeDelete("x", if_unused=True))


@area.case
def deleted_if_unused_with_an_exchange_bound(s: Script) -> None:
    c = s.channel()
    c.exchange("x")
    c.bind_exchange("amq.fanout", "x", "k")
    c.ask(ExchangeDelete("x", if_unused=True))


@area.case
def deleted_if_unused_when_only_a_destination(s: Script) -> None:
    c = s.channel()
    c.exchange("x")
    c.exchange("y")
    c.bind_exchange("x", "y", "k")
    c.ask(ExchangeDelete("x", if_unused=True))


@area.case
def deleted_takes_its_bindings_along(s: Script) -> None:
    c = s.channel()
    c.exchange("x")
    c.declare("q")
    c.bind("q", "x", "k")
    c.ask(ExchangeDelete("x"))
    c.exchange("x")
    c.publish("k", b"x", "x", mandatory=True)
    c.returns()


# Bindings.

BINDS: dict[str, Method] = {
    "to a missing exchange": QueueBind("q", "nope", "k"),
    "of a missing queue": QueueBind("nope", "amq.direct", "k"),
    "of both missing": QueueBind("nope", "nope", "k"),
    "to the default exchange": QueueBind("q", "", "k"),
    "of a missing queue to the default exchange": QueueBind("nope", "", "k"),
    "nowait to a missing exchange": QueueBind("q", "nope", "k", nowait=True),
    "unbind of a missing binding": QueueUnbind("q", "amq.direct", "k"),
    "unbind of a missing queue": QueueUnbind("nope", "amq.direct", "k"),
    "unbind of a missing exchange": QueueUnbind("q", "nope", "k"),
    "unbind from the default exchange": QueueUnbind("q", "", "k"),
    "to amq.topic by a long key": QueueBind("q", "amq.topic", "a." * 120),
    "x-match bogus": QueueBind("q", "amq.headers", "", arguments={"x-match": "bogus"}),
    "x-match 5": QueueBind("q", "amq.headers", "", arguments={"x-match": 5}),
    "x-match true": QueueBind("q", "amq.headers", "", arguments={"x-match": True}),
    "x-match absent": QueueBind("q", "amq.headers", "", arguments={"a": 1}),
    "x-match all": QueueBind("q", "amq.match", "", arguments={"x-match": "all"}),
    "x-match any-with-x": QueueBind("q", "amq.match", "", arguments={"x-match": "any-with-x"}),
    "x-match bogus to a direct exchange": QueueBind("q", "amq.direct", "", arguments={"x-match": "bogus"}),
    "unknown arguments": QueueBind("q", "amq.direct", "k", arguments={"x-foo": [1, None, {"a": 1.5}]}),
}


@area.each({name: (method,) for name, method in BINDS.items()})
def bind(s: Script, method: Method) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(method)


@area.each(
    {
        "missing source": (ExchangeBind("amq.direct", "nope", "k"),),
        "missing destination": (ExchangeBind("nope", "amq.direct", "k"),),
        "both missing": (ExchangeBind("nope", "nope too", "k"),),
        "default source": (ExchangeBind("amq.direct", "", "k"),),
        "default destination": (ExchangeBind("", "amq.direct", "k"),),
        "both default": (ExchangeBind("", "", "k"),),
        "nowait with a missing source": (ExchangeBind("amq.direct", "nope", "k", nowait=True),),
        "unbind missing": (ExchangeUnbind("amq.direct", "amq.fanout", "k"),),
        "unbind missing exchanges": (ExchangeUnbind("nope", "nope too", "k"),),
        "unbind default source": (ExchangeUnbind("amq.direct", "", "k"),),
        "x-match bogus": (ExchangeBind("amq.direct", "amq.headers", "", arguments={"x-match": "bogus"}),),
        "hash weight 0": (ExchangeBind("amq.direct", "x", "0"),),
        "hash weight a": (ExchangeBind("amq.direct", "x", "a"),),
    }
)
def bind_exchanges(s: Script, method: Method) -> None:
    c = s.channel()
    c.exchange("x", "x-consistent-hash")
    c.ask(method)


@area.case
def bound_twice_delivers_once_and_unbinds_once(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.bind("q", "amq.direct", "k")
    c.bind("q", "amq.direct", "k")
    c.publish("k", b"1", "amq.direct")
    c.drain("q")
    c.ask(QueueUnbind("q", "amq.direct", "k"))
    c.publish("k", b"2", "amq.direct", mandatory=True)
    c.drain("q")


@area.case
def bindings_with_other_arguments_are_other_bindings(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.bind("q", "amq.direct", "k", a=1)
    c.bind("q", "amq.direct", "k", a=2)
    c.ask(QueueUnbind("q", "amq.direct", "k", {"a": 1}))
    c.publish("k", b"1", "amq.direct", mandatory=True)
    c.drain("q")
    c.ask(QueueUnbind("q", "amq.direct", "k", {"a": 2}))
    c.publish("k", b"2", "amq.direct", mandatory=True)
    c.drain("q")


@area.case
def unbind_needs_the_same_arguments(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.bind("q", "amq.direct", "k", a=1)
    c.ask(QueueUnbind("q", "amq.direct", "k"))
    c.publish("k", b"1", "amq.direct", mandatory=True)
    c.drain("q")


@area.case
def unbind_with_arguments_in_another_order(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.bind("q", "amq.direct", "k", a=1, b=2)
    c.ask(QueueUnbind("q", "amq.direct", "k", {"b": 2, "a": 1}))
    c.publish("k", b"1", "amq.direct", mandatory=True)
    c.drain("q")


@area.case
def exchange_bind_and_unbind_nowait(s: Script) -> None:
    c = s.channel()
    c.exchange("x")
    c.declare("q")
    c.bind("q", "amq.fanout")
    c.send(ExchangeBind("amq.fanout", "x", "k", nowait=True))
    c.publish("k", b"1", "x", mandatory=True)
    c.drain("q")
    c.send(ExchangeUnbind("amq.fanout", "x", "k", nowait=True))
    c.publish("k", b"2", "x", mandatory=True)
    c.drain("q")


@area.case
def bind_nowait(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.send(QueueBind("q", "amq.direct", "k", nowait=True))
    c.publish("k", b"1", "amq.direct", mandatory=True)
    c.drain("q")


# Auto-delete.


@area.case
def an_auto_delete_exchange_stays_until_bound(s: Script) -> None:
    c = s.channel()
    c.ask(ExchangeDeclare("x", auto_delete=True))
    c.ask(QueueUnbind("q", "x", "k"))
    c.ask(ExchangeDeclare("x", passive=True))


@area.case
def an_auto_delete_exchange_goes_with_its_last_binding(s: Script) -> None:
    c = s.channel()
    c.ask(ExchangeDeclare("x", auto_delete=True))
    c.declare("q")
    c.bind("q", "x", "a")
    c.bind("q", "x", "b")
    c.ask(QueueUnbind("q", "x", "a"))
    c.ask(ExchangeDeclare("x", passive=True))
    c.ask(QueueUnbind("q", "x", "b"))
    c.ask(ExchangeDeclare("x", passive=True))


@area.case
def an_auto_delete_exchange_goes_with_its_queue(s: Script) -> None:
    c = s.channel()
    c.ask(ExchangeDeclare("x", auto_delete=True))
    c.declare("q")
    c.bind("q", "x", "a")
    c.ask(QueueDelete("q"))
    c.ask(ExchangeDeclare("x", passive=True))


@area.case
def an_auto_delete_exchange_goes_with_its_destination_exchange(s: Script) -> None:
    c = s.channel()
    c.ask(ExchangeDeclare("x", auto_delete=True))
    c.exchange("y")
    c.bind_exchange("y", "x", "k")
    c.ask(ExchangeDelete("y"))
    c.ask(ExchangeDeclare("x", passive=True))


@area.case
def an_auto_delete_exchange_does_not_go_with_its_source(s: Script) -> None:
    c = s.channel()
    c.ask(ExchangeDeclare("x", auto_delete=True))
    c.exchange("y")
    c.bind_exchange("x", "y", "k")
    c.ask(ExchangeDelete("y"))
    c.ask(ExchangeDeclare("x", passive=True))


@area.case
def auto_delete_goes_on_along_a_chain(s: Script) -> None:
    c = s.channel()
    c.ask(ExchangeDeclare("x", auto_delete=True))
    c.ask(ExchangeDeclare("y", auto_delete=True))
    c.declare("q")
    c.bind_exchange("y", "x", "k")
    c.bind("q", "y", "k")
    c.ask(QueueDelete("q"))
    s.channel(2).ask(ExchangeDeclare("y", passive=True))
    s.channel(3).ask(ExchangeDeclare("x", passive=True))


# Consistent hash: only what does not depend on the hash.


@area.each({weight: (weight,) for weight in ("1", "10", "0", "-1", "a", "", "1.5", " 1")})
def hash_binding_weight(s: Script, weight: str) -> None:
    c = s.channel()
    c.exchange("x", "x-consistent-hash")
    c.declare("q")
    c.bind("q", "x", weight)
    c.publish("any key", b"1", "x", mandatory=True)
    c.drain("q")


@area.each(
    {
        "header": ({"hash-header": "h"},),
        "header 5": ({"hash-header": 5},),
        "property message_id": ({"hash-property": "message_id"},),
        "property correlation_id": ({"hash-property": "correlation_id"},),
        "property timestamp": ({"hash-property": "timestamp"},),
        "property bogus": ({"hash-property": "bogus"},),
        "property 5": ({"hash-property": 5},),
        "header and property": ({"hash-header": "h", "hash-property": "message_id"},),
    }
)
def hash_by(s: Script, arguments: dict) -> None:
    c = s.channel()
    c.ask(ExchangeDeclare("x", "x-consistent-hash", arguments=arguments))
    c.declare("q")
    c.bind("q", "x", "1")
    c.publish("k", b"1", "x", mandatory=True)
    c.publish("k", b"2", "x", mandatory=True, headers={"h": "a"}, message_id="m")
    c.drain("q")


@area.case
def a_hash_exchange_gives_each_message_to_one_queue(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "x-consistent-hash")
    c.declare("a")
    c.declare("b")
    c.bind("a", "x", "1")
    c.bind("b", "x", "1")
    for number in range(20):
        c.publish(f"key {number}", b"", "x")
    s.poll("both have 20 together", lambda: ready(s, "a") + ready(s, "b") == 20)


@area.case
def a_hash_exchange_gives_one_key_to_one_queue(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "x-consistent-hash")
    c.declare("a")
    c.declare("b")
    c.bind("a", "x", "5")
    c.bind("b", "x", "5")
    for _ in range(5):
        c.publish("the same", b"", "x")
    s.poll("one has all 5", lambda: {ready(s, "a"), ready(s, "b")} == {0, 5})


@area.case
def a_hash_exchange_without_bindings(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "x-consistent-hash")
    c.publish("k", b"1", "x", mandatory=True)
    c.returns()


@area.case
def a_hash_binding_of_the_same_queue_twice(s: Script) -> None:
    c = s.channel()
    c.exchange("x", "x-consistent-hash")
    c.declare("q")
    c.bind("q", "x", "1")
    c.bind("q", "x", "2")
    c.publish("k", b"1", "x", mandatory=True)
    c.drain("q")
    c.ask(QueueUnbind("q", "x", "1"))
    c.publish("k", b"2", "x", mandatory=True)
    c.drain("q")


def ready(s: Script, queue: str) -> int:
    answer = s.connections["c"].probe(queue)
    return answer.message_count if answer else 0

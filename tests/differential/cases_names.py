"""Cases: names of queues, and the last declared queue, which stands for an empty one."""

from __future__ import annotations

from penstock.amqp.method import (
    BasicConsume,
    BasicGet,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from tests.differential.player import Area
from tests.differential.script import Script

area = Area("names")

NAMES = {
    "255 bytes": "n" * 255,
    "utf-8": "čaj 茶 ☕",
    "blanks": " a b ",
    "a quote": "it's",
    "a double quote": 'say "a"',
    "cr and lf": "a\r\nb",
    "only cr and lf": "\r\n",
    "nul": "a\0b",
    "a percent sign": "100%",
    "slashes": "a/b\\c",
    "a tab": "a\tb",
    "reserved prefix": "amq.foo",
    "reserved prefix alone": "amq.",
    "nearly the reserved prefix": "amq",
    "upper case of the prefix": "AMQ.foo",
    "reply-to": "amq.rabbitmq.reply-to",
}


@area.each({name: (value,) for name, value in NAMES.items()})
def declared_by_the_name(s: Script, name: str) -> None:
    s.channel().declare(name)


@area.each({name: (value,) for name, value in NAMES.items()})
def looked_up_by_the_name(s: Script, name: str) -> None:
    s.channel().count(name)


@area.case
def cr_and_lf_are_stripped_from_names_only(s: Script) -> None:
    c = s.channel()
    c.declare("a\r\nb")
    c.ask(QueueBind("a\nb", "amq.direct", "k\r\ney"))
    c.publish("k\r\ney", b"the key as it was", "amq.direct", mandatory=True)
    c.publish("key", b"the key stripped", "amq.direct", mandatory=True)
    c.publish("a\r\nb", b"by its name", mandatory=True)
    c.drain("ab")


@area.case
def a_long_name_is_cut_in_the_text(s: Script) -> None:
    c = s.channel()
    c.declare("n" * 255)
    c.ask(QueueDeclare("n" * 255, durable=True))


@area.case
def a_long_name_of_two_byte_characters_is_cut_in_the_text(s: Script) -> None:
    s.channel().count("ä" * 127)


@area.case
def a_server_named_queue_has_a_new_name_each_time(s: Script) -> None:
    c = s.channel()
    c.ask(QueueDeclare("", exclusive=True))
    c.ask(QueueDeclare("", exclusive=True))


@area.case
def a_server_named_queue_may_be_redeclared_by_its_name(s: Script) -> None:
    c = s.channel()
    answer = c.ask(QueueDeclare("", exclusive=True))
    c.ask(QueueDeclare(answer.queue, exclusive=True))  # type: ignore[attr-defined]  # a declare-ok


@area.case
def a_server_named_passive_declare(s: Script) -> None:
    s.channel().ask(QueueDeclare("", passive=True))


@area.case
def a_server_named_passive_declare_after_another(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(QueueDeclare("", passive=True))


# The last declared queue.

UNNAMED: dict[str, Method] = {
    "bind": QueueBind("", "amq.direct", "k"),
    "bind without a key": QueueBind("", "amq.direct", ""),
    "unbind": QueueUnbind("", "amq.direct", "k"),
    "consume": BasicConsume("", "t"),
    "get": BasicGet(""),
    "purge": QueuePurge(""),
    "delete": QueueDelete(""),
}


@area.each({name: (method,) for name, method in UNNAMED.items()})
def unnamed_before_any_declare(s: Script, method: Method) -> None:
    s.channel().ask(method)


@area.each({name: (method,) for name, method in UNNAMED.items()})
def unnamed_after_a_declare(s: Script, method: Method) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(method)


@area.each({name: (method,) for name, method in UNNAMED.items()})
def unnamed_after_the_last_declared_is_deleted(s: Script, method: Method) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(QueueDelete("q"))
    c.ask(method)


@area.case
def a_bind_of_the_last_declared_queue_without_a_key_is_by_its_name(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(QueueBind("", "amq.direct", ""))
    c.publish("q", b"by name", "amq.direct", mandatory=True)
    c.publish("", b"by the empty key", "amq.direct", mandatory=True)
    c.drain("q")


@area.case
def a_bind_of_a_named_queue_without_a_key_is_by_the_empty_key(s: Script) -> None:
    c = s.channel()
    c.declare("q")
    c.ask(QueueBind("q", "amq.direct", ""))
    c.publish("q", b"by name", "amq.direct", mandatory=True)
    c.publish("", b"by the empty key", "amq.direct", mandatory=True)
    c.drain("q")


@area.case
def a_passive_declare_counts_as_the_last_declared(s: Script) -> None:
    c = s.channel()
    c.declare("a")
    c.declare("b")
    c.count("a")
    c.publish("a", b"in a")
    c.ask(BasicGet("", True))


@area.case
def the_last_declared_queue_is_of_one_channel(s: Script) -> None:
    s.channel().declare("q")
    s.channel(2).ask(BasicGet("", True))


@area.case
def a_failed_declare_does_not_count_as_the_last_declared(s: Script) -> None:
    s.channel().ask(QueueDeclare("nope", passive=True))
    s.connections["c"].open_channel(1).ask(BasicGet("", True))

"""Cases: permissions, topic permissions, users and vhosts, limits."""

from __future__ import annotations

from penstock.amqp.frame import PROTOCOL_HEADER
from penstock.amqp.method import (
    BasicConsume,
    BasicGet,
    ChannelOpen,
    ConfirmSelect,
    ConnectionClose,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
)
from tests.differential.player import Area
from tests.differential.script import Channel, Connection, Script
from tests.wire.raw import CAPABILITIES

area = Area("access")

ALL = (".*", ".*", ".*")
NONE = ("", "", "")


def alice(s: Script, configure: str, write: str, read: str, vhost: str = "/") -> Channel:
    """A channel of a user with these permissions; guest has made `q` and `x` before."""
    s.admin.put_user("alice", "secret")
    s.admin.set_permissions("alice", vhost, configure, write, read)
    s.connect("a", user=b"alice", password=b"secret", vhost=vhost)
    return s.channel(1, "a")


def house(s: Script) -> Channel:
    g = s.channel(1, "g")
    g.declare("q")
    g.exchange("x", "topic")
    g.exchange("y", "topic")
    return g


METHODS: dict[str, Method] = {
    "queue.declare": QueueDeclare("new"),
    "queue.declare of an existing one": QueueDeclare("q"),
    "queue.declare passive": QueueDeclare("q", passive=True),
    "queue.declare passive of a missing one": QueueDeclare("nope", passive=True),
    "queue.declare server-named": QueueDeclare("", exclusive=True),
    "queue.delete": QueueDelete("q"),
    "queue.delete of a missing one": QueueDelete("nope"),
    "queue.purge": QueuePurge("q"),
    "queue.purge of a missing one": QueuePurge("nope"),
    "queue.bind": QueueBind("q", "x", "k"),
    "queue.bind of a missing one": QueueBind("nope", "x", "k"),
    "queue.bind to a missing exchange": QueueBind("q", "nope", "k"),
    "queue.unbind": QueueUnbind("q", "x", "k"),
    "exchange.declare": ExchangeDeclare("new"),
    "exchange.declare of an existing one": ExchangeDeclare("x", "topic"),
    "exchange.declare passive": ExchangeDeclare("x", passive=True),
    "exchange.declare of an unknown type": ExchangeDeclare("new", "bogus"),
    "exchange.delete": ExchangeDelete("x"),
    "exchange.delete of a missing one": ExchangeDelete("nope"),
    "exchange.bind": ExchangeBind("x", "y", "k"),
    "exchange.unbind": ExchangeUnbind("x", "y", "k"),
    "basic.consume": BasicConsume("q", "t"),
    "basic.consume of a missing queue": BasicConsume("nope", "t"),
    "basic.get": BasicGet("q"),
    "basic.get of a missing queue": BasicGet("nope"),
    "confirm.select": ConfirmSelect(),
}


@area.each({name: (method,) for name, method in METHODS.items()})
def without_any_permission(s: Script, method: Method) -> None:
    house(s)
    c = alice(s, *NONE)
    c.ask(method)


@area.each({name: (method,) for name, method in METHODS.items() if "bind" in name})
def without_read(s: Script, method: Method) -> None:
    house(s)
    alice(s, ".*", ".*", "^nothing$").ask(method)


@area.each({name: (method,) for name, method in METHODS.items() if "bind" in name})
def without_write(s: Script, method: Method) -> None:
    house(s)
    alice(s, ".*", "^nothing$", ".*").ask(method)


@area.each({name: (method,) for name, method in METHODS.items() if name in ("queue.bind", "basic.get", "queue.delete")})
def with_all_permissions(s: Script, method: Method) -> None:
    house(s)
    alice(s, *ALL).ask(method)


@area.each({"the default one": ("",), "another": ("x",), "a missing one": ("nope",), "amq.fanout": ("amq.fanout",)})
def publish_without_permission_to(s: Script, exchange: str) -> None:
    house(s)
    c = alice(s, *NONE)
    c.publish("q", b"1", exchange)
    c.barrier()


@area.case
def the_default_exchange_is_called_amq_default(s: Script) -> None:
    house(s)
    c = alice(s, "", "^amq\\.default$", ".*")
    c.publish("q", b"1")
    c.barrier()
    c.get("q")


@area.case
def patterns_are_searched_not_matched(s: Script) -> None:
    house(s)
    c = alice(s, "ew", "", "")
    c.declare("new")
    c.declare("no")


@area.case
def an_empty_pattern_matches_only_nothing(s: Script) -> None:
    c = alice(s, "", "", "")
    c.declare("new")


@area.each(
    {
        "neither": ("^new$", "", ""),
        "read only": ("^new$", "", "^new$"),
        "write only": ("^new$", "^x$", ""),
        "both": ("^new$", "^x$", "^new$"),
    }
)
def a_queue_with_a_dead_letter_exchange(s: Script, configure: str, write: str, read: str) -> None:
    house(s)
    alice(s, configure, write, read).declare("new", x_dead_letter_exchange="x")


@area.each(
    {
        "neither": ("^new$", "", ""),
        "read only": ("^new$", "", "^new$"),
        "write only": ("^new$", "^x$", ""),
        "both": ("^new$", "^x$", "^new$"),
    }
)
def an_exchange_with_an_alternate_exchange(s: Script, configure: str, write: str, read: str) -> None:
    house(s)
    alice(s, configure, write, read).exchange("new", "direct", alternate_exchange="x")


@area.case
def a_server_named_queue_needs_permission_for_its_name(s: Script) -> None:
    c = alice(s, "^amq\\.gen-", "", "")
    c.ask(QueueDeclare("", exclusive=True))


@area.case
def a_change_of_permissions_counts_for_a_new_channel(s: Script) -> None:
    house(s)
    c = alice(s, *NONE)
    c.get("q")
    s.admin.set_permissions("alice", "/", "", "", "^q$")
    s.channel(2, "a").get("q")


@area.case
def direct_reply_to_needs_no_permission(s: Script) -> None:
    c = alice(s, *NONE)
    c.consume("amq.rabbitmq.reply-to", no_ack=True)


@area.case
def user_id_of_another_user(s: Script) -> None:
    house(s)
    c = alice(s, *ALL)
    c.publish("q", b"1", user_id="alice")
    c.publish("q", b"2", user_id="guest")
    c.barrier()


@area.case
def an_impersonator_may_set_any_user_id(s: Script) -> None:
    house(s)
    s.admin.put_user("alice", "secret", "impersonator")
    s.admin.set_permissions("alice", "/", *ALL)
    s.connect("a", user=b"alice", password=b"secret")
    c = s.channel(1, "a")
    c.publish("q", b"1", user_id="bob")
    c.get("q")


# Topic permissions.


def topical(s: Script, write: str, read: str) -> Channel:
    house(s)
    s.admin.put_user("alice", "secret")
    s.admin.set_permissions("alice", "/", *ALL)
    s.admin.set_topic_permissions("alice", "/", "x", write, read)
    s.connect("a", user=b"alice", password=b"secret")
    return s.channel(1, "a")


@area.each({"allowed": ("a.b",), "refused": ("b.a",), "empty": ("",)})
def a_topic_to_write(s: Script, key: str) -> None:
    c = topical(s, "^a", "^a")
    c.publish(key, b"1", "x")
    c.barrier()


@area.each({"allowed": ("a.*",), "refused": ("#",), "refused too": ("b.a",)})
def a_topic_to_read(s: Script, key: str) -> None:
    c = topical(s, "^a", "^a")
    c.bind("q", "x", key)


@area.each({"refused": ("b.*",), "allowed": ("a.*",)})
def a_topic_to_read_by_an_exchange(s: Script, key: str) -> None:
    c = topical(s, "^a", "^a")
    c.bind_exchange("y", "x", key)


@area.case
def a_topic_to_unbind(s: Script) -> None:
    c = topical(s, "^a", "^a")
    c.ask(QueueUnbind("q", "x", "b.a"))


@area.case
def topic_permissions_are_of_one_exchange(s: Script) -> None:
    c = topical(s, "^a", "^a")
    c.publish("b", b"1", "y")
    c.barrier()


@area.case
def topic_permissions_know_the_user_s_name(s: Script) -> None:
    c = topical(s, "^{username}\\.", ".*")
    c.publish("alice.1", b"1", "x")
    c.barrier()
    c.publish("bob.1", b"1", "x")
    c.barrier()


@area.case
def carbon_copies_are_not_checked_as_topics(s: Script) -> None:
    c = topical(s, "^a", "^a")
    s.channel(1, "g").bind("q", "x", "b")
    c.publish("a", b"1", "x", headers={"CC": ["b"]})
    s.channel(1, "g").get_when_there("q")


# Users and vhosts.


def knock(s: Script, name: str, user: bytes, password: bytes, vhost: str = "/") -> Connection:
    """A handshake whose end is recorded, good or bad."""
    c = s.bare(name)
    c.send_bytes(PROTOCOL_HEADER)
    c.read_method()  # connection.start
    c.tell(ConnectionStartOk(CAPABILITIES, "PLAIN", b"\0" + user + b"\0" + password))
    if isinstance(c.event().method, ConnectionTune):
        c.tell(ConnectionTuneOk(2047, 131072, 0))
        c.tell(ConnectionOpen(vhost))
        c.opened = c.event().method.NAME == "connection.open-ok"
    return c


@area.case
def a_user_without_permissions_for_the_vhost(s: Script) -> None:
    s.admin.put_user("alice", "secret")
    knock(s, "c", b"alice", b"secret")


@area.case
def a_user_with_permissions_for_the_vhost(s: Script) -> None:
    s.admin.put_user("alice", "secret")
    s.admin.set_permissions("alice", "/", *NONE)
    knock(s, "c", b"alice", b"secret")


@area.case
def a_user_of_another_vhost(s: Script) -> None:
    s.admin.add_vhost("other")
    s.admin.put_user("alice", "secret")
    s.admin.set_permissions("alice", "/", *ALL)
    knock(s, "c", b"alice", b"secret", "other")


@area.case
def permissions_taken_away(s: Script) -> None:
    s.admin.put_user("alice", "secret")
    s.admin.set_permissions("alice", "/", *ALL)
    s.admin.clear_permissions("alice", "/")
    knock(s, "c", b"alice", b"secret")


@area.case
def a_user_with_another_s_password(s: Script) -> None:
    s.admin.put_user("alice", "secret")
    s.admin.set_permissions("alice", "/", *ALL)
    knock(s, "c", b"alice", b"guest")


@area.case
def a_changed_password(s: Script) -> None:
    s.admin.put_user("alice", "secret")
    s.admin.put_user("alice", "new secret")
    s.admin.set_permissions("alice", "/", *ALL)
    knock(s, "c", b"alice", b"secret")
    knock(s, "d", b"alice", b"new secret")


@area.case
def a_deleted_user(s: Script) -> None:
    s.admin.put_user("alice", "secret")
    s.admin.delete_user("alice")
    knock(s, "c", b"alice", b"secret")


@area.case
def texts_name_the_vhost(s: Script) -> None:
    s.admin.add_vhost("other")
    s.connect("c", vhost="other")
    s.channel().get("nope")


@area.case
def vhosts_do_not_share_names(s: Script) -> None:
    s.admin.add_vhost("other")
    s.channel(1, "g").declare("q")
    s.connect("c", vhost="other")
    s.channel().get("q")


@area.case
def a_new_vhost_has_the_exchanges(s: Script) -> None:
    s.admin.add_vhost("other")
    s.connect("c", vhost="other")
    c = s.channel()
    for name in ("direct", "fanout", "topic", "headers", "match"):
        c.ask(ExchangeDeclare(f"amq.{name}", passive=True))


@area.case
def a_deleted_vhost_closes_its_connections(s: Script) -> None:
    s.admin.add_vhost("other")
    s.connect("c", vhost="other")
    s.channel().ask(QueueDeclare("q2", exclusive=True))
    s.admin.delete_vhost("other")
    method = s.connections["c"].event(record=False).method
    assert isinstance(method, ConnectionClose)
    s.record("c.0", f"closed with {method.reply_code}")  # RabbitMQ's text is one of two, by luck


# Limits.


@area.case
def max_queues_of_a_vhost(s: Script) -> None:
    s.admin.add_vhost("other")
    s.admin.set_vhost_limits("other", {"max-queues": 1})
    s.connect("c", vhost="other")
    c = s.channel()
    c.ask(QueueDeclare("one", exclusive=True))
    c.ask(QueueDeclare("one", exclusive=True))
    c.ask(QueueDeclare("two", exclusive=True))


@area.case
def max_queues_0_of_a_vhost(s: Script) -> None:
    s.admin.add_vhost("other")
    s.admin.set_vhost_limits("other", {"max-queues": 0})
    s.connect("c", vhost="other")
    s.channel().ask(QueueDeclare("", exclusive=True))


@area.case
def max_connections_of_a_vhost(s: Script) -> None:
    s.admin.add_vhost("other")
    s.admin.set_vhost_limits("other", {"max-connections": 0})
    knock(s, "c", b"guest", b"guest", "other")


@area.case
def max_connections_of_a_user(s: Script) -> None:
    s.admin.put_user("alice", "secret")
    s.admin.set_permissions("alice", "/", *ALL)
    s.admin.set_user_limits("alice", {"max-connections": 0})
    knock(s, "c", b"alice", b"secret")


@area.case
def max_channels_of_a_user(s: Script) -> None:
    s.admin.put_user("alice", "secret")
    s.admin.set_permissions("alice", "/", *ALL)
    s.admin.set_user_limits("alice", {"max-channels": 0})
    c = knock(s, "c", b"alice", b"secret")
    c.tell(ChannelOpen(), 1)
    c.event()


@area.case
def no_limit_is_minus_one(s: Script) -> None:
    s.admin.add_vhost("other")
    s.admin.set_vhost_limits("other", {"max-queues": -1, "max-connections": -1})
    s.connect("c", vhost="other")
    s.channel().ask(QueueDeclare("one", exclusive=True))

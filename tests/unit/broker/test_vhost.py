"""VHost, through a channel: declare, delete, bind, unbind and route, with RabbitMQ's codes and words."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.amqp.method import (
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    ChannelClose,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueueUnbind,
    QueueUnbindOk,
)
from penstock.amqp.properties import Properties, encode_properties
from tests.unit.fakes import FakePeer, House


class Desk:
    """One client with one channel in a house."""

    def __init__(self) -> None:
        self.house = House()
        self.vhost = self.house.vhost
        self.peer: FakePeer = self.house.peer()
        self.channel = self.peer.open(1)

    def do(self, *methods: Method) -> None:
        """Say these; each must be answered ok."""
        for method in methods:
            (reply,) = self.peer.ask(1, method)
            said = reply.NAME
            assert said == f"{method.NAME}-ok", reply

    def refused(self, method: Method) -> tuple[int, str]:
        (reply,) = self.peer.ask(1, method)
        assert isinstance(reply, ChannelClose), reply
        blamed = reply.class_id << 16 | reply.method_id
        assert blamed == method.ID
        return reply.reply_code, reply.reply_text

    def routed(self, exchange: str, key: str, properties: Properties | None = None, **options: Any) -> set[str]:
        """Publish one message; the names of the queues that got it, each once."""
        counts = {name: queue.count() for name, queue in self.vhost.queues.items()}
        raw = encode_properties(properties or Properties())
        self.peer.publish(1, key, b"x", exchange=exchange, properties=raw, **options)
        self.house.run_until_idle()
        more = {name: queue.count() - counts[name] for name, queue in self.vhost.queues.items()}
        assert set(more.values()) <= {0, 1}
        return {name for name, count in more.items() if count}


@pytest.fixture
def desk() -> Desk:
    return Desk()


# Queues.


def test_a_declared_queue_is_counted_and_declared_again_is_the_same(desk: Desk) -> None:
    assert desk.peer.ask(1, QueueDeclare("q")) == [QueueDeclareOk("q", 0, 0)]
    desk.peer.publish(1, "q", b"1", b"2")
    assert desk.peer.ask(1, QueueDeclare("q")) == [QueueDeclareOk("q", 2, 0)]
    assert desk.peer.ask(1, QueueDeclare("q", passive=True)) == [QueueDeclareOk("q", 2, 0)]


def test_a_queue_without_a_name_gets_one(desk: Desk) -> None:
    (reply,) = desk.peer.ask(1, QueueDeclare(""))
    assert isinstance(reply, QueueDeclareOk)
    assert reply.queue.startswith("amq.gen-")
    assert desk.peer.ask(1, QueueDeclare(reply.queue, passive=True)) == [reply]


def test_an_empty_name_means_the_queue_declared_last(desk: Desk) -> None:
    desk.do(QueueDeclare("q"), QueueBind("", "amq.direct", ""))
    assert desk.routed("amq.direct", "q") == {"q"}
    assert desk.peer.ask(1, QueueDelete("")) == [QueueDeleteOk(1)]


def test_an_empty_name_without_a_queue_declared_before_is_404(desk: Desk) -> None:
    code, text = desk.refused(QueueBind("", "amq.direct"))
    assert (code, text) == (404, "NOT_FOUND - no previously declared queue")


def test_a_passive_declare_of_nothing_is_404_and_creates_nothing(desk: Desk) -> None:
    assert desk.refused(QueueDeclare("q", passive=True)) == (404, "NOT_FOUND - no queue 'q' in vhost '/'")
    assert not desk.vhost.queues


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (
            QueueDeclare("q", durable=True),
            "'durable' for queue 'q' in vhost '/': received 'true' but current is 'false'",
        ),
        (QueueDeclare("q", auto_delete=True), "arg 'auto_delete'"),
        (QueueDeclare("q", arguments={"x-max-length": 5}), "arg 'x-max-length'"),
    ],
)
def test_a_queue_declared_otherwise_is_406_with_the_difference(desk: Desk, other: Method, words: str) -> None:
    desk.do(QueueDeclare("q"))
    code, text = desk.refused(other)
    assert code == 406
    assert "inequivalent" in text
    assert words in text


def test_a_reserved_name_is_403(desk: Desk) -> None:
    code, text = desk.refused(QueueDeclare("amq.mine"))
    assert code == 403
    assert "'amq.*'" in text


def test_an_exclusive_queue_is_locked_for_others_and_goes_with_its_connection(desk: Desk) -> None:
    desk.do(QueueDeclare("mine", exclusive=True))
    other = desk.house.peer("other")
    for number, method in enumerate((QueueDeclare("mine"), QueueDeclare("mine", passive=True), BasicGet("mine")), 1):
        other.open(number)
        (reply,) = other.ask(number, method)
        assert isinstance(reply, ChannelClose)
        assert reply.reply_code == 405
    assert list(desk.peer.exclusive_queues) == [desk.vhost.queues["mine"]]
    desk.vhost.queues["mine"].delete()
    assert not desk.peer.exclusive_queues
    assert not desk.vhost.queues


def test_deleting_a_queue_that_is_not_there_is_ok(desk: Desk) -> None:
    assert desk.peer.ask(1, QueueDelete("nothing")) == [QueueDeleteOk(0)]


# Exchanges.


def test_an_exchange_is_declared_found_and_deleted(desk: Desk) -> None:
    desk.do(ExchangeDeclare("x", "topic"), ExchangeDeclare("x", "topic"), ExchangeDeclare("x", passive=True))
    desk.do(ExchangeDelete("x"), ExchangeDelete("x"))
    assert desk.refused(ExchangeDeclare("x", passive=True)) == (404, "NOT_FOUND - no exchange 'x' in vhost '/'")


@pytest.mark.parametrize(
    ("method", "code"),
    [
        (ExchangeDeclare("x", "fanout"), 406),
        (ExchangeDeclare("x", "direct", durable=True), 406),
        (ExchangeDeclare("x", "direct", internal=True), 406),
        (ExchangeDeclare("x", "direct", arguments={"alternate-exchange": "y"}), 406),
        (ExchangeDeclare("amq.mine", "direct"), 403),
        (ExchangeDeclare("", "direct"), 403),
        (ExchangeDelete("amq.direct"), 403),
        (ExchangeDelete(""), 403),
        (QueueBind("q", ""), 403),
        (QueueUnbind("q", ""), 403),
        (ExchangeBind("", "x"), 403),
        (ExchangeBind("x", ""), 403),
        (QueueBind("q", "nowhere"), 404),
        (QueueBind("nowhere", "x"), 404),
        (ExchangeBind("nowhere", "x"), 404),
        (QueueBind("q", "amq.headers", arguments={"x-match": "sometimes"}), 406),
    ],
)
def test_wrong_use_has_its_code(desk: Desk, method: Method, code: int) -> None:
    desk.do(QueueDeclare("q"), ExchangeDeclare("x", "direct"))
    assert desk.refused(method)[0] == code


def test_if_unused_spares_an_exchange_with_bindings(desk: Desk) -> None:
    desk.do(QueueDeclare("q"), ExchangeDeclare("x"), QueueBind("q", "x", "k"))
    code, text = desk.refused(ExchangeDelete("x", if_unused=True))
    assert (code, text) == (406, "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use")
    assert "x" in desk.vhost.exchanges


def test_an_auto_delete_exchange_goes_with_its_last_binding(desk: Desk) -> None:
    desk.do(QueueDeclare("q"), ExchangeDeclare("x", auto_delete=True))
    assert "x" in desk.vhost.exchanges, "it needs a first binding to have been there"
    desk.do(QueueBind("q", "x", "1"), QueueBind("q", "x", "2"), QueueUnbind("q", "x", "1"))
    assert "x" in desk.vhost.exchanges
    desk.do(QueueUnbind("q", "x", "2"))
    assert "x" not in desk.vhost.exchanges


def test_an_auto_delete_exchange_goes_with_the_queue_of_its_last_binding_and_so_on_upstream(desk: Desk) -> None:
    desk.do(QueueDeclare("q"), ExchangeDeclare("x", auto_delete=True), ExchangeDeclare("y", auto_delete=True))
    desk.do(QueueBind("q", "y", "k"), ExchangeBind("y", "x", "k"), QueueDelete("q"))
    assert not {"x", "y"} & desk.vhost.exchanges.keys()


def test_an_auto_delete_exchange_in_a_circle_goes_without_end(desk: Desk) -> None:
    desk.do(ExchangeDeclare("x", auto_delete=True), ExchangeDeclare("y", auto_delete=True))
    desk.do(ExchangeBind("y", "x"), ExchangeBind("x", "y"), ExchangeBind("x", "x"), ExchangeDelete("x"))
    assert not {"x", "y"} & desk.vhost.exchanges.keys()
    assert not desk.vhost._bindings_to


def test_a_deleted_exchange_leaves_no_binding_behind(desk: Desk) -> None:
    desk.do(QueueDeclare("q"), ExchangeDeclare("x"), QueueBind("q", "x", "k"), ExchangeBind("x", "amq.fanout"))
    desk.do(ExchangeDelete("x"), ExchangeDeclare("x"))
    assert desk.routed("x", "k") == set()
    assert desk.routed("amq.fanout", "k") == set()
    assert not desk.vhost._bindings_to


def test_unbinding_what_is_not_bound_is_ok(desk: Desk) -> None:
    desk.do(QueueDeclare("q"), QueueUnbind("q", "amq.direct", "k"), ExchangeUnbind("amq.fanout", "amq.direct", "k"))


def test_binding_methods_are_answered_in_their_own_words(desk: Desk) -> None:
    desk.do(QueueDeclare("q"))
    assert desk.peer.ask(1, QueueBind("q", "amq.direct", "k")) == [QueueBindOk()]
    assert desk.peer.ask(1, QueueUnbind("q", "amq.direct", "k")) == [QueueUnbindOk()]
    assert desk.peer.ask(1, ExchangeBind("amq.fanout", "amq.direct", "k")) == [ExchangeBindOk()]
    assert desk.peer.ask(1, ExchangeUnbind("amq.fanout", "amq.direct", "k")) == [ExchangeUnbindOk()]
    assert desk.peer.ask(1, ExchangeDeclare("x")) == [ExchangeDeclareOk()]
    assert desk.peer.ask(1, ExchangeDelete("x")) == [ExchangeDeleteOk()]


def test_with_nowait_nothing_is_answered_but_done(desk: Desk) -> None:
    for method in (
        QueueDeclare("q", nowait=True),
        QueueBind("q", "amq.direct", "k", nowait=True),
        ExchangeDeclare("x", nowait=True),
        ExchangeBind("x", "amq.direct", "k", nowait=True),
        ExchangeUnbind("x", "amq.direct", "k", nowait=True),
        ExchangeDelete("x", nowait=True),
    ):
        assert desk.peer.ask(1, method) == []
    assert desk.routed("amq.direct", "k") == {"q"}
    assert "x" not in desk.vhost.exchanges
    assert desk.peer.ask(1, QueueDelete("q", nowait=True)) == []
    assert not desk.vhost.queues


# Routing.


def test_the_default_exchange_routes_by_the_queues_name(desk: Desk) -> None:
    desk.do(QueueDeclare("a"), QueueDeclare("b"))
    assert desk.routed("", "a") == {"a"}
    assert desk.routed("", "c") == set()


def test_direct_fanout_and_topic_each_route_in_their_way_and_a_queue_gets_a_message_once(desk: Desk) -> None:
    desk.do(QueueDeclare("a"), QueueDeclare("b"))
    for exchange in ("amq.direct", "amq.fanout", "amq.topic"):
        desk.do(QueueBind("a", exchange, "k.1"), QueueBind("a", exchange, "k.*"), QueueBind("b", exchange, "#"))
    assert desk.routed("amq.direct", "k.1") == {"a"}
    assert desk.routed("amq.direct", "k.2") == set()
    assert desk.routed("amq.fanout", "whatever") == {"a", "b"}
    assert desk.routed("amq.topic", "k.1") == {"a", "b"}
    assert desk.routed("amq.topic", "other") == {"b"}


def test_a_headers_exchange_looks_at_every_message(desk: Desk) -> None:
    desk.do(QueueDeclare("a"), QueueDeclare("b"))
    desk.do(QueueBind("a", "amq.headers", arguments={"x": 1}), QueueBind("b", "amq.headers", arguments={"y": 1}))
    assert desk.routed("amq.headers", "", Properties(headers={"x": 1})) == {"a"}
    assert desk.routed("amq.headers", "", Properties(headers={"y": 1})) == {"b"}
    assert desk.routed("amq.headers", "", Properties(headers={"x": 1, "y": 1})) == {"a", "b"}
    assert desk.routed("amq.headers", "") == set()


def test_a_headers_exchange_behind_another_still_looks_at_every_message(desk: Desk) -> None:
    desk.do(QueueDeclare("a"), ExchangeBind("amq.headers", "amq.direct", "k"))
    desk.do(QueueBind("a", "amq.headers", arguments={"x": 1}))
    assert desk.routed("amq.direct", "k", Properties(headers={"x": 2})) == set()
    assert desk.routed("amq.direct", "k", Properties(headers={"x": 1})) == {"a"}


def test_exchanges_bound_in_a_circle_route_each_message_once(desk: Desk) -> None:
    desk.do(QueueDeclare("a"), QueueDeclare("b"), ExchangeDeclare("x", "fanout"), ExchangeDeclare("y", "fanout"))
    desk.do(ExchangeBind("x", "y"), ExchangeBind("y", "x"))
    desk.do(QueueBind("a", "x"), QueueBind("b", "y"), QueueBind("a", "y"))
    assert desk.routed("x", "") == {"a", "b"}


def test_what_finds_no_queue_goes_to_the_alternate_exchange(desk: Desk) -> None:
    desk.do(QueueDeclare("q"), QueueDeclare("lost"), ExchangeDeclare("other", "fanout"), QueueBind("lost", "other"))
    desk.do(ExchangeDeclare("x", arguments={"alternate-exchange": "other"}), QueueBind("q", "x", "k"))
    assert desk.routed("x", "k") == {"q"}
    assert desk.routed("x", "z") == {"lost"}
    desk.do(ExchangeDelete("other"))
    assert desk.routed("x", "z") == set()


def test_alternates_of_alternates_in_a_circle_end(desk: Desk) -> None:
    desk.do(ExchangeDeclare("x", arguments={"alternate-exchange": "y"}))
    desk.do(ExchangeDeclare("y", arguments={"alternate-exchange": "x"}))
    assert desk.routed("x", "k") == set()


def test_a_changed_topology_changes_the_route_of_the_next_message(desk: Desk) -> None:
    desk.do(QueueDeclare("a"))
    assert desk.routed("amq.direct", "k") == set()
    desk.do(QueueBind("a", "amq.direct", "k"))
    assert desk.routed("amq.direct", "k") == {"a"}
    desk.do(QueueUnbind("a", "amq.direct", "k"))
    assert desk.routed("amq.direct", "k") == set()
    desk.do(QueueBind("a", "amq.direct", "k"), QueueDelete("a"), QueueDeclare("a"))
    assert desk.routed("amq.direct", "k") == set()
    assert desk.routed("", "a") == {"a"}


def test_a_batch_with_many_keys_reaches_each_queue_in_order(desk: Desk) -> None:
    desk.do(QueueDeclare("a"), QueueDeclare("b"))
    desk.peer.publish_mixed(1, *(("ab"[number % 2], b"%d" % number) for number in range(10)))
    for name, expected in (("a", b"02468"), ("b", b"13579")):
        got = b""
        for _ in range(5):
            desk.peer.tell(1, BasicGet(name, True))
            (said,) = desk.peer.said()
            assert isinstance(said.method, BasicGetOk)
            got += said.body or b""
        assert got == expected
        assert desk.peer.ask(1, BasicGet(name)) == [BasicGetEmpty()]

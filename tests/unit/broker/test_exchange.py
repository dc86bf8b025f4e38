"""Exchange: which bindings a message matches, what is refused; through vhosts: alternates, chains, auto-delete."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise

import pytest

from penstock.amqp.close import CloseChannel, CloseConnection
from penstock.amqp.method import (
    ChannelClose,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from penstock.amqp.properties import Properties
from penstock.amqp.table import ByteArray, Table, Timestamp, Value
from penstock.broker.exchange import CONSISTENT_HASH, TYPES, Binding, Exchange
from penstock.broker.vhost import VHost
from tests.unit.fakes import FakePeer, House


@pytest.mark.parametrize(
    ("kind", "text"), [("", "invalid exchange type ''"), ("bogus", "unknown exchange type 'bogus'")]
)
def test_an_unknown_type_is_503(kind: str, text: str) -> None:
    with pytest.raises(CloseConnection) as caught:
        Exchange("x", kind)
    assert caught.value.text == "COMMAND_INVALID - " + text


@pytest.mark.parametrize("kind", TYPES)
def test_a_binding_is_there_once_and_can_be_taken_away(kind: str) -> None:
    source, destination = Exchange("source", kind), Exchange("destination", "fanout")
    headers = Properties(headers={"a": 1, "b": 2})
    binding = Binding(source, destination, "1", {"a": 1, "b": 2})
    assert not source.is_bound
    assert source.bind(binding)
    assert not source.bind(Binding(source, destination, "1", {"b": 2, "a": 1})), "the order of arguments is nothing"
    assert source.bind(Binding(source, destination, "1", {"a": 2, "b": 2}))
    assert source.bind(Binding(source, Exchange("other", "fanout"), "1", {"a": 2, "b": 2}))
    assert len(source.bindings()) == 3
    assert source.matches("1", headers)
    for one in source.bindings():
        assert source.unbind(one.identity) is one
    assert source.unbind(binding.identity) is None
    assert source.matches("1", headers) == {}
    assert source.bindings() == []
    assert not source.is_bound


def test_each_type_matches_in_its_own_way() -> None:
    names = {}
    for kind in TYPES:
        source = Exchange("source", kind)
        for number, key in enumerate(("1", "*", "2") if kind != CONSISTENT_HASH else ("1",)):
            source.bind(Binding(source, Exchange(str(number), "fanout"), key, {"number": number}))
        names[kind] = sorted(found.name for found in source.matches("1", Properties(headers={"number": 2})))
    expected = {"direct": ["0"], "fanout": ["0", "1", "2"], "topic": ["0", "1"], "headers": ["2"]}
    assert names == {**expected, CONSISTENT_HASH: ["0"]}


@pytest.mark.parametrize("kind", TYPES)
def test_further_keys_widen_only_what_goes_by_key(kind: str) -> None:
    source = Exchange("source", kind)
    for number in ("1", "2", "3"):
        source.bind(Binding(source, Exchange(number, "fanout"), number, {"absent": 1}))
    wide = sorted(found.name for found in source.matches("1", None, ("2", "9")))
    expected = {"direct": ["1", "2"], "topic": ["1", "2"], "fanout": ["1", "2", "3"], "headers": []}
    assert wide == (expected[kind] if kind in expected else [found.name for found in source.matches("1")])


# x-consistent-hash.


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("abc", 'The binding key must be an integer: <<"abc">>'),
        ("", "The binding key must be an integer: <<>>"),
        ("1.5", 'The binding key must be an integer: <<"1.5">>'),
        (" 3", 'The binding key must be an integer: <<" 3">>'),
        ("1_0", 'The binding key must be an integer: <<"1_0">>'),
        ("٣", 'The binding key must be an integer: <<"٣">>'),
        ("3\n", 'The binding key must be an integer: <<"3\\n">>'),
        ("0", "The binding key must be greater than 0"),
        ("-1", "The binding key must be greater than 0"),
        ("-0", "The binding key must be greater than 0"),
    ],
)
def test_a_weight_that_is_none_is_refused_in_rabbitmqs_words(key: str, text: str) -> None:
    source = Exchange("source", CONSISTENT_HASH)
    with pytest.raises(CloseChannel) as caught:
        source.bind(Binding(source, Exchange("destination", "fanout"), key, {}))
    assert caught.value.text == "PRECONDITION_FAILED - " + text
    assert not source.is_bound


@pytest.mark.parametrize("key", ["1", "+3", "03", "1" + "0" * 200])
def test_a_weight_is_a_whole_number_above_zero(key: str) -> None:
    source = Exchange("source", CONSISTENT_HASH)
    assert source.bind(Binding(source, Exchange("destination", "fanout"), key, {}))
    assert [found.name for found in source.matches("whatever")] == ["destination"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"hash-property": "app_id"}, "Unsupported property: app_id"),
        ({"hash-property": ""}, "Unsupported property: "),
        ({"hash-header": "a", "hash-property": "x"}, "hash-header and hash-property are mutually exclusive"),
        ({"hash-header": 5}, "invalid type 'signedint' for arg 'hash-header'"),
        ({"hash-property": None}, "invalid type 'void' for arg 'hash-property'"),
    ],
)
def test_what_cannot_be_hashed_is_refused(arguments: Table, text: str) -> None:
    with pytest.raises(CloseChannel) as caught:
        Exchange("x", CONSISTENT_HASH, arguments=arguments)
    assert caught.value.text == "PRECONDITION_FAILED - " + text
    Exchange("x", "direct", arguments=arguments)  # it is no other type's business


def spread(arguments: Table, messages: list[tuple[str, Properties | None]]) -> list[str]:
    """Which of 16 destinations each message went to; exactly one."""
    source = Exchange("source", CONSISTENT_HASH, arguments=arguments)
    for number in range(16):
        source.bind(Binding(source, Exchange(str(number), "fanout"), "1", {}))
    names = []
    for key, properties in messages:
        (destination,) = source.matches(key, properties)
        names.append(destination.name)
    return names


NUMBERS = range(100)
BY_WHAT: dict[str, tuple[Table, list[Properties]]] = {
    "header": ({"hash-header": "h"}, [Properties(headers={"h": f"value {n}"}) for n in NUMBERS]),
    "correlation_id": ({"hash-property": "correlation_id"}, [Properties(correlation_id=str(n)) for n in NUMBERS]),
    "message_id": ({"hash-property": "message_id"}, [Properties(message_id=str(n)) for n in NUMBERS]),
    "timestamp": ({"hash-property": "timestamp"}, [Properties(timestamp=n) for n in NUMBERS]),
}


def test_messages_are_spread_by_routing_key() -> None:
    assert not Exchange("x", CONSISTENT_HASH).by_message
    assert len(set(spread({}, [(f"key {number}", None) for number in NUMBERS]))) > 8
    assert len(set(spread({}, [("key", Properties(message_id=str(number))) for number in NUMBERS]))) == 1


@pytest.mark.parametrize("what", BY_WHAT)
def test_messages_are_spread_by_a_header_or_a_property(what: str) -> None:
    arguments, values = BY_WHAT[what]
    assert Exchange("x", CONSISTENT_HASH, arguments=arguments).by_message
    assert len(set(spread(arguments, [("key", properties) for properties in values]))) > 8
    assert len(set(spread(arguments, [(f"key {number}", values[0]) for number in NUMBERS]))) == 1
    absent: list[tuple[str, Properties | None]] = [("a", Properties()), ("b", None), ("c", Properties(headers={}))]
    assert len(set(spread(arguments, absent))) == 1


def test_the_values_of_a_header_may_have_any_type() -> None:
    values: list[Value] = [1, 1.0, "1", True, None, Timestamp(1), [1, {"a": 2}], {"a": [1]}, ByteArray(b"1")]
    messages: list[tuple[str, Properties | None]] = [("", Properties(headers={"h": value})) for value in values]
    assert len(set(spread({"hash-header": "h"}, messages))) > 3


# In a vhost.


def declare(vhost: VHost, name: str, kind: str = "direct", alternate: str | None = None, **flags: bool) -> Exchange:
    arguments: Table = {} if alternate is None else {"alternate-exchange": alternate}
    return vhost.declare_exchange(ExchangeDeclare(name, kind, arguments=arguments, **flags))


def reached(house: House, exchange: str, key: str, *more_keys: str) -> list[str]:
    route = house.vhost.route(house.vhost.exchange(exchange), key, None, more_keys)
    return sorted(queue.queue_name for queue in route.queues)


def count(peer: FakePeer, queue: str) -> int:
    (reply,) = peer.ask(1, QueueDeclare(queue, passive=True))
    assert isinstance(reply, QueueDeclareOk)
    return reply.message_count


def test_a_consistent_hash_exchange_gives_each_message_to_one_queue_over_the_wire() -> None:
    house = House()
    peer = house.peer()
    peer.open()
    for number in range(4):
        house.queue(f"q{number}")
    peer.ask(1, ExchangeDeclare("by key", CONSISTENT_HASH))
    peer.ask(1, ExchangeDeclare("by id", CONSISTENT_HASH, arguments={"hash-property": "message_id"}))
    for number in range(4):
        assert peer.ask(1, QueueBind(f"q{number}", "by key", "1")) == [QueueBindOk()]
        assert peer.ask(1, QueueBind(f"q{number}", "by id", "1")) == [QueueBindOk()]
    peer.publish_mixed(1, *((f"key {number}", b"m") for number in range(200)), exchange="by key")
    counts = [count(peer, f"q{number}") for number in range(4)]
    assert sum(counts) == 200
    assert min(counts) > 20
    for number in range(200):  # flags of message-id alone, and its short string
        peer.publish(1, "", b"m", exchange="by id", properties=b"\x00\x80\x03%03d" % number)
    counts = [count(peer, f"q{number}") for number in range(4)]
    assert sum(counts) == 400
    assert min(counts) > 60


def test_what_nothing_matches_goes_to_the_alternate_exchange() -> None:
    house = House()
    declare(house.vhost, "first", alternate="second")
    declare(house.vhost, "second", alternate="third")
    declare(house.vhost, "third", "fanout", internal=True)
    assert reached(house, "first", "key") == []
    house.vhost.bind(house.vhost.exchange("third"), house.queue("last"), "", {})
    assert reached(house, "first", "key") == ["last"], "through a chain, and an internal exchange"
    house.vhost.bind(house.vhost.exchange("first"), house.queue("own"), "key", {})
    assert reached(house, "first", "key") == ["own"]
    assert reached(house, "first", "other", "key") == ["own"], "one of several keys is enough"
    house.vhost.delete_exchange("second", False)
    assert reached(house, "first", "other") == []
    declare(house.vhost, "second", "fanout")
    house.vhost.bind(house.vhost.exchange("second"), house.queue("new"), "", {})
    assert reached(house, "first", "other") == ["new"], "an alternate need not be there before"


def test_an_exchange_declared_in_the_middle_of_a_chain_of_alternates_is_noticed() -> None:
    house = House()
    peer = house.peer()
    peer.open()
    house.queue("q")
    declare(house.vhost, "first", alternate="second")
    house.vhost.bind(declare(house.vhost, "last", "fanout"), house.vhost.queues["q"], "", {})
    peer.publish(1, "key", b"lost", exchange="first")
    assert count(peer, "q") == 0
    declare(house.vhost, "second", alternate="last")
    peer.publish(1, "key", b"m", exchange="first")
    assert count(peer, "q") == 1


def test_alternate_exchanges_in_a_circle_end() -> None:
    house = House()
    declare(house.vhost, "a", alternate="b")
    declare(house.vhost, "b", alternate="a")
    declare(house.vhost, "self", alternate="self")
    assert reached(house, "a", "key") == []
    assert reached(house, "self", "key") == []


def test_an_empty_alternate_is_not_the_default_exchange() -> None:
    house = House()
    house.queue("q")
    declare(house.vhost, "x", alternate="")
    assert reached(house, "x", "q") == []


def test_an_alternate_counts_where_the_way_ends_not_where_it_began() -> None:
    house = House()
    declare(house.vhost, "other", "fanout")
    house.vhost.bind(house.vhost.exchange("other"), house.queue("q"), "", {})
    source, middle = declare(house.vhost, "source", "fanout", "other"), declare(house.vhost, "middle")
    house.vhost.bind(source, middle, "", {})
    assert reached(house, "source", "key") == [], "the source found an exchange, though that one finds nothing"
    end = declare(house.vhost, "end", "direct", "other")
    house.vhost.bind(middle, end, "key", {})
    assert reached(house, "source", "key") == ["q"]


def test_a_policys_alternate_is_used_if_no_argument_says_otherwise() -> None:
    exchange = Exchange("x", "direct")
    assert exchange.alternate is None
    exchange.policy_alternate = "by policy"
    assert exchange.alternate == "by policy"
    own = Exchange("x", "direct", arguments={"alternate-exchange": "own"})
    own.policy_alternate = "by policy"
    assert own.alternate == "own"
    empty = Exchange("x", "direct", arguments={"alternate-exchange": ""})
    empty.policy_alternate = "by policy"
    assert empty.alternate == "", "an argument, even an empty one"


def test_exchanges_bound_in_a_circle_end_and_deliver_once() -> None:
    house = House()
    names = ("a", "b", "c")
    exchanges = [declare(house.vhost, name, "fanout") for name in names]
    for at in range(3):
        house.vhost.bind(exchanges[at], exchanges[(at + 1) % 3], "", {})
        house.vhost.bind(exchanges[at], house.queue("q") if at == 0 else house.vhost.queues["q"], "", {})
    house.vhost.bind(exchanges[0], exchanges[0], "", {})
    assert [reached(house, name, "") for name in names] == [["q"]] * 3


def test_an_internal_exchange_can_be_bound_but_not_published_to() -> None:
    house = House()
    peer = house.peer()
    peer.open()
    house.queue("q")
    peer.ask(1, ExchangeDeclare("inner", "fanout", internal=True))
    peer.ask(1, ExchangeDeclare("outer", "fanout"))
    assert peer.ask(1, ExchangeBind("inner", "outer", "")) == [ExchangeBindOk()]
    assert peer.ask(1, QueueBind("q", "inner", "")) == [QueueBindOk()]
    peer.publish(1, "", b"m", exchange="outer")
    assert count(peer, "q") == 1
    peer.publish(1, "", b"m", exchange="inner")
    (close,) = peer.methods()
    assert isinstance(close, ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (403, 60, 40)
    assert close.reply_text == "ACCESS_REFUSED - cannot publish to internal exchange 'inner' in vhost '/'"


def test_an_auto_delete_exchange_goes_with_its_last_binding() -> None:
    house = House()
    vhost = house.vhost
    source = declare(vhost, "source", "fanout", auto_delete=True)
    one, two = house.queue("one"), house.queue("two")
    vhost.bind(source, one, "", {})
    vhost.bind(source, two, "", {})
    vhost.unbind("source", one, "", {})
    assert "source" in vhost.exchanges
    vhost.unbind("source", two, "other key", {})
    assert "source" in vhost.exchanges
    vhost.unbind("source", two, "", {})
    assert "source" not in vhost.exchanges


def test_auto_delete_exchanges_go_one_after_the_other_however_many() -> None:
    house = House()
    vhost = house.vhost
    chain = [declare(vhost, f"x{number}", "fanout", auto_delete=True) for number in range(3000)]
    for source, destination in pairwise(chain):
        vhost.bind(source, destination, "", {})
    vhost.bind(chain[-1], house.queue("q"), "", {})
    kept = declare(vhost, "kept", "fanout")
    vhost.bind(kept, chain[0], "", {})
    vhost.unbind("x2999", vhost.queues["q"], "", {})
    assert not any(name.startswith("x") for name in vhost.exchanges)
    assert not kept.is_bound
    assert not vhost.exchanges["amq.direct"].is_bound


def test_an_auto_delete_exchange_bound_to_itself_goes_too() -> None:
    house = House()
    exchange = declare(house.vhost, "x", "fanout", auto_delete=True)
    house.vhost.bind(exchange, exchange, "", {})
    with pytest.raises(CloseChannel, match="in use"):
        house.vhost.delete_exchange("x", True)
    house.vhost.unbind("x", exchange, "", {})
    assert "x" not in house.vhost.exchanges


@pytest.mark.parametrize("kind", TYPES)
def test_many_bindings_come_and_go_in_linear_time(kind: str) -> None:
    """A hundred thousand would take minutes if each looked at all others; the limit on a test's time holds it."""
    house = House()
    vhost = house.vhost
    source = declare(vhost, "source", kind, auto_delete=True)
    queue, other = house.queue("q"), house.queue("other")
    vhost.bind(source, other, "1", {})
    count = 20_000
    for number in range(count):
        vhost.bind(source, queue, str(number + 1), {"number": number})
    for number in range(0, count, 2):
        vhost.unbind("source", queue, str(number + 1), {"number": number})
    assert len(source.bindings()) == count // 2 + 1
    assert told(house, QueueDelete("q")) == QueueDeleteOk.NAME
    assert [binding.destination for binding in source.bindings()] == [other]


# Declared, and declared again.


def told(house: House, method: Method) -> str:
    """The reply, or the text of the close."""
    peer = house.peer()
    peer.open()
    (reply,) = peer.ask(1, method)
    return reply.reply_text if isinstance(reply, ChannelClose) else reply.NAME


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (5, "signedint"),
        (True, "bool"),
        (None, "void"),
        (1.5, "double"),
        (Decimal("1.5"), "decimal"),
        (Timestamp(5), "timestamp"),
        (ByteArray(b"x"), "binary"),
        ([], "array"),
        ({}, "table"),
        (1 << 40, "long"),
    ],
)
def test_an_alternate_exchange_that_is_no_string_is_refused(value: Value, kind: str) -> None:
    house = House()
    text = told(house, ExchangeDeclare("x", "direct", arguments={"alternate-exchange": value}))
    assert text == (
        f"PRECONDITION_FAILED - invalid type '{kind}' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
    )
    assert "x" not in house.vhost.exchanges


def test_what_is_hashed_is_not_compared_on_redeclare() -> None:
    house = House()
    declare(house.vhost, "x", CONSISTENT_HASH)
    both: Table = {"hash-header": "a", "hash-property": "message_id"}
    assert told(house, ExchangeDeclare("x", CONSISTENT_HASH, arguments=both)) == ExchangeDeclareOk.NAME
    assert not house.vhost.exchange("x").by_message


@pytest.mark.parametrize("name", ["", "amq.new"])
def test_an_unknown_type_is_said_before_anything_else(name: str) -> None:
    house = House()
    with pytest.raises(CloseConnection, match="unknown exchange type 'bogus'"):
        house.vhost.declare_exchange(ExchangeDeclare(name, "bogus"))


def test_a_reserved_name_is_said_before_a_wrong_argument() -> None:
    method = ExchangeDeclare("amq.new", "direct", arguments={"alternate-exchange": 5})
    assert told(House(), method).startswith("ACCESS_REFUSED - exchange name 'amq.new' contains reserved prefix")


def test_line_ends_in_an_exchanges_name_are_taken_out() -> None:
    house = House()
    assert told(house, ExchangeDeclare("cr\r\nlf", "direct")) == ExchangeDeclareOk.NAME
    assert "crlf" in house.vhost.exchanges
    assert told(house, ExchangeDeclare("c\nrlf", "direct", passive=True)) == ExchangeDeclareOk.NAME
    assert told(house, ExchangeDelete("crlf\n")) == ExchangeDeleteOk.NAME
    assert "crlf" not in house.vhost.exchanges
    assert told(house, ExchangeDeclare("\r\n", "direct")) == (
        "ACCESS_REFUSED - operation not permitted on the default exchange"
    )


def test_an_exchange_tells_its_state() -> None:
    assert repr(Exchange("x", "topic")) == "<Exchange 'x' topic bindings=0>"
    source = Exchange("x", "topic")
    assert repr(Binding(source, Exchange("y", "topic"), "k", {})) == "<Binding 'x' -> 'y' key='k'>"

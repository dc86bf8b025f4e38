"""Equivalence: what is the same on redeclare, and RabbitMQ's words where it is not."""

from __future__ import annotations

import pytest

from penstock.amqp.method import ChannelClose, ExchangeDeclare, ExchangeDeclareOk, Method, QueueDeclare, QueueDeclareOk
from penstock.amqp.table import ByteArray, Table, Timestamp, Value
from penstock.broker.equivalence import term
from tests.unit.fakes import House


def told(house: House, method: Method) -> str:
    """The reply, or the text of the close."""
    peer = house.peer()
    peer.open()
    (reply,) = peer.ask(1, method)
    return reply.reply_text if isinstance(reply, ChannelClose) else reply.NAME


def declare(house: House, name: str, alternate: str | None = None) -> None:
    arguments: Table = {} if alternate is None else {"alternate-exchange": alternate}
    house.vhost.declare_exchange(ExchangeDeclare(name, "direct", arguments=arguments))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5, "'5'"),
        (5.0, "'5.0'"),
        (1e10, "'1.0e10'"),
        (True, "'true'"),
        (None, "none"),
        (Timestamp(5), "'5'"),
        (ByteArray(b"x"), "'x'"),
        ([], "'[]'"),
        ({}, "'[]'"),
        (["a", 1], "'[{longstr,<<\"a\">>},{signedint,1}]'"),
        ({"a": "b"}, '\'[{<<"a">>,longstr,<<"b">>}]\''),
        ("bar", "'bar'"),
        ("", "''"),
    ],
)
def test_another_alternate_exchange_on_redeclare_is_refused_in_rabbitmqs_words(value: Value, shown: str) -> None:
    house = House()
    declare(house, "x", alternate="foo")
    text = told(house, ExchangeDeclare("x", "direct", arguments={"alternate-exchange": value}))
    where = "inequivalent arg 'alternate-exchange' for exchange 'x' in vhost '/'"
    assert text == f"PRECONDITION_FAILED - {where}: received {shown} but current is 'foo'"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (5.0, "received '5.0'"),
        (6, "received '6'"),
        (True, "received 'true'"),
        ("5", "received '5'"),
        ([1], "received '[{signedint,1}]'"),
        ({"a": 1}, "received '[{<<\"a\">>,signedint,1}]'"),
        (None, "received none"),
    ],
)
def test_another_argument_of_a_queue_on_redeclare_is_refused_in_rabbitmqs_words(value: Value, shown: str) -> None:
    house = House()
    house.queue("q", arguments={"x-max-length": 5})
    text = told(house, QueueDeclare("q", arguments={"x-max-length": value}))
    where = "inequivalent arg 'x-max-length' for queue 'q' in vhost '/'"
    assert text == f"PRECONDITION_FAILED - {where}: {shown} but current is '5'"


def test_a_timestamp_with_the_same_number_on_redeclare_is_fine() -> None:
    house = House()
    house.queue("q", arguments={"x-max-length": 5})
    assert told(house, QueueDeclare("q", arguments={"x-max-length": Timestamp(5)})) == QueueDeclareOk.NAME


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (-2.5, "-2.5"),
        (100.0, "100.0"),
        (1e3, "1.0e3"),
        (12345.0, "12345.0"),
        (1234500.0, "1.2345e6"),
        (0.0001, "0.0001"),
        (0.00012, "1.2e-4"),
        (0.0123, "0.0123"),
        (1.2e21, "1.2e21"),
    ],
)
def test_floats_are_shown_as_erlang_shows_them(number: float, shown: str) -> None:
    assert term(number) == shown


def test_the_same_alternate_exchange_on_redeclare_is_fine_as_bytes_too() -> None:
    house = House()
    declare(house, "x", alternate="foo")
    for same in ("foo", ByteArray(b"foo")):
        method = ExchangeDeclare("x", "direct", arguments={"alternate-exchange": same, "x-foo": 1})
        assert told(house, method) == ExchangeDeclareOk.NAME


def test_a_missing_or_an_added_alternate_exchange_is_refused_with_its_type() -> None:
    house = House()
    declare(house, "with", alternate="foo")
    declare(house, "without")
    where = "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange"
    assert told(house, ExchangeDeclare("with", "direct")) == (
        f"{where} 'with' in vhost '/': received none but current is the value 'foo' of type 'longstr'"
    )
    added = ExchangeDeclare("without", "direct", arguments={"alternate-exchange": 5})
    assert told(house, added) == (
        f"{where} 'without' in vhost '/': received the value '5' of type 'signedint' but current is none"
    )

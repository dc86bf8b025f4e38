"""Headers: the table of what matches, what values are equal, and the words for a wrong x-match."""

from __future__ import annotations

from decimal import Decimal

import pytest

from penstock.amqp.close import CloseChannel
from penstock.amqp.properties import Properties
from penstock.amqp.table import ByteArray, Table, Timestamp, Value
from penstock.broker.exchange import Binding, Exchange
from penstock.broker.headers import HeadersIndex, check_headers_arguments, headers_match

HEADERS: Table = {"format": "pdf", "pages": 3, "draft": False, "x-trace": "on"}
CASES: dict[str, tuple[Table, Table, bool]] = {
    "no arguments match everything": ({}, HEADERS, True),
    "no arguments match no headers": ({}, {}, True),
    "all is the default": ({"format": "pdf", "pages": 4}, HEADERS, False),
    "all, all there": ({"x-match": "all", "format": "pdf", "pages": 3}, HEADERS, True),
    "all, one missing": ({"x-match": "all", "format": "pdf", "colour": 1}, HEADERS, False),
    "all, no headers": ({"x-match": "all", "format": "pdf"}, {}, False),
    "any, one there": ({"x-match": "any", "format": "pdf", "pages": 99}, HEADERS, True),
    "any, several there": ({"x-match": "any", "format": "pdf", "pages": 3}, HEADERS, True),
    "any, none there": ({"x-match": "any", "format": "txt", "pages": 99}, HEADERS, False),
    "any of nothing": ({"x-match": "any"}, HEADERS, False),
    "any of nothing with x": ({"x-match": "any-with-x"}, HEADERS, False),
    "None means present": ({"format": None}, HEADERS, True),
    "None, but absent": ({"colour": None}, HEADERS, False),
    "x- arguments do not count": ({"format": "pdf", "x-trace": "off"}, HEADERS, True),
    "x- arguments alone match everything": ({"x-trace": "off"}, HEADERS, True),
    "x- arguments alone match nothing with any": ({"x-match": "any", "x-trace": "on"}, HEADERS, False),
    "x- counts with all-with-x": ({"x-match": "all-with-x", "format": "pdf", "x-trace": "off"}, HEADERS, False),
    "x- is enough with any-with-x": ({"x-match": "any-with-x", "format": "no", "x-trace": "on"}, HEADERS, True),
    "x-match itself is never looked for": ({"x-match": "all-with-x", "format": "pdf"}, HEADERS, True),
}
# As RabbitMQ 3.10.8 answered when each of these was bound and each was sent: those in one group match each other.
ALIKE: list[list[Value]] = [
    [1, 1.0, Timestamp(1)],
    [1 << 40],
    [True],
    ["1", ByteArray(b"1")],
    [b"\xff", ByteArray(b"\xff")],
    [Decimal("1")],
    [Decimal("1.0")],
    [[], {}],
    [[1]],
    [[1.0]],
    [[Timestamp(1)]],
    [["1"]],
    [[ByteArray(b"1")]],
    [{"a": 1, "b": 2}],
    [{"b": 2, "a": 1}],
    [{"a": 1.0, "b": 2}],
    ["", ByteArray(b"")],
]


def found(arguments: Table, headers: Table) -> bool:
    """The rule for one binding, and the index: both must say the same."""
    index: HeadersIndex[str] = HeadersIndex()
    index.add(arguments, "value")
    by_index = list(index.match(headers))
    by_rule = headers_match(arguments, headers)
    assert by_index == (["value"] if by_rule else [])
    index.remove(arguments, "value")
    assert not index
    return by_rule


@pytest.mark.parametrize("name", CASES)
def test_headers_match_as_rabbitmq_says(name: str) -> None:
    arguments, headers, matches = CASES[name]
    assert found(arguments, headers) is matches


def test_values_of_headers_are_equal_as_in_rabbitmq() -> None:
    values = [(number, value) for number, group in enumerate(ALIKE) for value in group]
    for bound_group, bound in values:
        for sent_group, sent in values:
            assert found({"h": bound}, {"h": sent}) is (bound_group == sent_group), (bound, sent)
        assert found({"h": None}, {"h": bound})
        assert not found({"h": bound}, {"h": None})
    assert found({"h": None}, {"h": None})


def test_bindings_that_share_a_header_are_not_all_compared() -> None:
    source = Exchange("source", "headers")
    for number in range(1000):
        source.bind(Binding(source, Exchange(str(number), "fanout"), "", {"type": "order", "number": number}))
    matched = source.matches("", Properties(headers={"type": "order", "number": 7}))
    assert [destination.name for destination in matched] == ["7"]


REFUSED: list[tuple[Value, str]] = [
    (5, "field type signedint (value 5); expected longstr"),
    (True, "field type bool (value true); expected longstr"),
    (1.5, "field type double (value 1.5); expected longstr"),
    (None, "field type void (value undefined); expected longstr"),
    (["a"], 'field type array (value [{longstr,<<"a">>}]); expected longstr'),
    ({"a": 1}, 'field type table (value [{<<"a">>,signedint,1}]); expected longstr'),
    (Timestamp(5), "field type timestamp (value 5); expected longstr"),
    (ByteArray(b"all"), 'field type binary (value <<"all">>); expected longstr'),
    (Decimal("1.5"), "field type decimal (value {1,15}); expected longstr"),
    ("é", 'field value <<"é">>; expected all, any, all-with-x, or any-with-x'),
    ('a"b', 'field value <<"a\\"b">>; expected all, any, all-with-x, or any-with-x'),
    ("", "field value <<>>; expected all, any, all-with-x, or any-with-x"),
    (b"\x80\x81", "field value <<128,129>>; expected all, any, all-with-x, or any-with-x"),
]


@pytest.mark.parametrize(("mode", "text"), REFUSED)
def test_an_unknown_x_match_is_refused_in_rabbitmqs_words(mode: Value, text: str) -> None:
    with pytest.raises(CloseChannel) as caught:
        check_headers_arguments({"x-match": mode})
    assert caught.value.code == 406
    assert caught.value.text == "PRECONDITION_FAILED - Invalid x-match " + text

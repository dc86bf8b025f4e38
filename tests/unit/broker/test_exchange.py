"""Exchange: which bindings a message matches; the table of headers."""

from __future__ import annotations

import pytest

from penstock.amqp.close import CloseChannel, CloseConnection
from penstock.amqp.table import Table
from penstock.broker.exchange import TYPES, Binding, Exchange, check_headers_arguments, headers_match

HEADERS: Table = {"format": "pdf", "pages": 3, "draft": False, "x-trace": "on"}
CASES: dict[str, tuple[Table, Table, bool]] = {
    "no arguments match everything": ({}, HEADERS, True),
    "no arguments match no headers": ({}, {}, True),
    "all is the default": ({"format": "pdf", "pages": 4}, HEADERS, False),
    "all, all there": ({"x-match": "all", "format": "pdf", "pages": 3}, HEADERS, True),
    "all, one missing": ({"x-match": "all", "format": "pdf", "colour": 1}, HEADERS, False),
    "any, one there": ({"x-match": "any", "format": "pdf", "pages": 99}, HEADERS, True),
    "any, none there": ({"x-match": "any", "format": "txt", "pages": 99}, HEADERS, False),
    "any of nothing": ({"x-match": "any"}, HEADERS, False),
    "None means present": ({"format": None}, HEADERS, True),
    "None, but absent": ({"colour": None}, HEADERS, False),
    "true is not 1": ({"pages": True}, {"pages": 1}, False),
    "0 is not false": ({"draft": 0}, HEADERS, False),
    "a number is not its text": ({"pages": "3"}, HEADERS, False),
    "x- arguments do not count": ({"format": "pdf", "x-trace": "off"}, HEADERS, True),
    "x- arguments alone match everything": ({"x-trace": "off"}, HEADERS, True),
    "x- arguments alone match nothing with any": ({"x-match": "any", "x-trace": "on"}, HEADERS, False),
    "x- counts with all-with-x": ({"x-match": "all-with-x", "format": "pdf", "x-trace": "off"}, HEADERS, False),
    "x- is enough with any-with-x": ({"x-match": "any-with-x", "format": "no", "x-trace": "on"}, HEADERS, True),
    "x-match itself is never looked for": ({"x-match": "all-with-x", "format": "pdf"}, HEADERS, True),
}


@pytest.mark.parametrize("name", CASES)
def test_headers_match_as_rabbitmq_says(name: str) -> None:
    arguments, headers, matches = CASES[name]
    assert headers_match(arguments, headers) is matches


@pytest.mark.parametrize("mode", ["some", "", 1, True, None])
def test_an_unknown_x_match_is_refused(mode: object) -> None:
    with pytest.raises(CloseChannel) as caught:
        check_headers_arguments({"x-match": mode})  # type: ignore[dict-item]
    assert caught.value.code == 406


def test_an_unknown_type_is_503() -> None:
    with pytest.raises(CloseConnection) as caught:
        Exchange("x", "no-such-type")
    assert caught.value.code == 503
    assert "unknown exchange type 'no-such-type'" in caught.value.text


@pytest.mark.parametrize("kind", TYPES)
def test_a_binding_is_there_once_and_can_be_taken_away(kind: str) -> None:
    source, destination = Exchange("source", kind), Exchange("destination", "fanout")
    binding = Binding(source, destination, "key", {"a": 1, "b": 2})
    assert source.bind(binding)
    assert not source.bind(Binding(source, destination, "key", {"b": 2, "a": 1})), "the order of arguments is nothing"
    assert source.bind(Binding(source, destination, "key", {"a": 2, "b": 2}))
    assert len(source.bindings()) == 2
    assert source.matches("key", {"a": 1, "b": 2})
    for one in source.bindings():
        assert source.unbind(one.identity())
    assert not source.unbind(binding.identity())
    assert source.matches("key", {"a": 1, "b": 2}) == []
    assert source.bindings() == []


def test_each_type_matches_in_its_own_way() -> None:
    found = {}
    for kind in TYPES:
        source = Exchange("source", kind)
        for number, key in enumerate(("a.b", "a.*", "z")):
            source.bind(Binding(source, Exchange(str(number), "fanout"), key, {"number": number}))
        found[kind] = [exchange.name for exchange in source.matches("a.b", {"number": 2})]
    assert found == {"direct": ["0"], "fanout": ["0", "1", "2"], "topic": found["topic"], "headers": ["2"]}
    assert sorted(found["topic"]) == ["0", "1"]


def test_an_exchange_tells_its_state() -> None:
    assert repr(Exchange("x", "topic")) == "<Exchange 'x' topic bindings=0>"

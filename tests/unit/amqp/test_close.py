"""Close: reply texts as RabbitMQ writes them."""

from __future__ import annotations

import pytest

from penstock.amqp import close
from penstock.amqp.close import FRAME_ERROR, INTERNAL_ERROR, NOT_FOUND, REPLY_NAMES, CloseChannel, CloseConnection


def test_the_text_begins_with_the_name_of_the_code() -> None:
    assert CloseChannel(NOT_FOUND, "no queue 'q' in vhost '/'").text == "NOT_FOUND - no queue 'q' in vhost '/'"


def test_without_a_reason_the_text_is_the_name_alone() -> None:
    assert CloseConnection(INTERNAL_ERROR, "").text == "INTERNAL_ERROR"


@pytest.mark.parametrize("kind", [CloseChannel, CloseConnection])
def test_a_close_carries_the_code_and_the_method_at_fault(kind: type[CloseChannel] | type[CloseConnection]) -> None:
    fault = kind(NOT_FOUND, "no exchange 'x'", 50, 20)
    assert (fault.code, fault.class_id, fault.method_id) == (404, 50, 20)
    assert str(fault) == fault.text
    assert repr(fault) == f"<{kind.__name__} 404 NOT_FOUND - no exchange 'x' by 50.20>"


def test_a_text_of_255_bytes_is_left_alone_and_a_longer_one_ends_in_dots() -> None:
    room = 255 - len("NOT_FOUND - ")
    assert CloseChannel(NOT_FOUND, "x" * room).text == "NOT_FOUND - " + "x" * room
    assert CloseChannel(NOT_FOUND, "x" * (room + 1)).text == "NOT_FOUND - " + "x" * (room - 3) + "..."


@pytest.mark.parametrize("character", ["é", "水", "🚰"])
@pytest.mark.parametrize("shift", range(4))
def test_a_long_text_is_never_cut_inside_a_character(character: str, shift: int) -> None:
    text = CloseChannel(NOT_FOUND, "x" * shift + character * 255).text
    assert 252 <= len(text.encode()) <= 255
    assert text.rstrip(".").endswith(character)


def test_a_name_that_is_no_utf8_still_makes_a_text_for_the_wire() -> None:
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    assert CloseChannel(NOT_FOUND, f"no queue '{name}'").text.encode() == rb"NOT_FOUND - no queue 'caf\udce9'"


def test_every_code_has_the_name_of_its_constant() -> None:
    constants = {name: value for name, value in vars(close).items() if name.isupper() and isinstance(value, int)}
    del constants["REPLY_TEXT_BYTES_MAX"]
    assert {name: code for code, name in REPLY_NAMES.items()} == constants
    assert len(constants) == 19


def test_a_code_that_does_not_exist_is_our_bug() -> None:
    with pytest.raises(KeyError):
        CloseConnection(FRAME_ERROR + 98, "no such code")

"""What the crash tests send is read back, and any change to it is noticed."""

from __future__ import annotations

import pytest

from penstock.amqp.content import build_basic, header_payload
from tests.crash.message import Corrupt, body_of, properties_of, read_message


def header_of(properties: bytes, body: bytes) -> bytes:
    return header_payload(build_basic(1, properties, body, 0))


def test_a_message_tells_whose_it_is_its_priority_and_its_exchange() -> None:
    body = body_of((3, 77), 5000, "fan")
    header = header_of(properties_of((3, 77), True, 4, None), body)
    assert read_message(header, body) == ((3, 77), 4, "fan")


def test_every_flipped_byte_of_a_body_is_noticed() -> None:
    body = body_of((3, 77), 50, "")
    header = header_of(properties_of((3, 77), True, None, None), body)
    for at in range(len(body)):
        flipped = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
        with pytest.raises(Corrupt):
            read_message(header, flipped)


def test_a_cut_body_is_noticed() -> None:
    body = body_of((3, 77), 50, "")
    header = header_of(properties_of((3, 77), True, None, None), body)
    for size in range(len(body)):
        with pytest.raises(Corrupt):
            read_message(header, body[:size])


def test_the_properties_of_another_message_are_noticed() -> None:
    body = body_of((3, 77), 50, "")
    header = header_of(properties_of((3, 78), True, None, None), body)
    with pytest.raises(Corrupt, match="has the properties of 3-78"):
        read_message(header, body)

"""Properties: one table of cases for both directions, and what is refused."""

from __future__ import annotations

import pytest

from penstock.amqp.close import CloseConnection
from penstock.amqp.properties import Properties, decode_properties, delivery_mode_of, encode_properties

ALL = Properties(
    content_type="text/plain",
    content_encoding="utf-8",
    headers={"a": 1, "ключ": ["x", b"\xff"]},
    delivery_mode=2,
    priority=9,
    correlation_id="c",
    reply_to="amq.rabbitmq.reply-to",
    expiration="60000",
    message_id="m",
    timestamp=2**64 - 1,
    type="t",
    user_id="guest",
    app_id="a",
    cluster_id="cl",
)

CASES: list[tuple[bytes, Properties]] = [
    (b"\x00\x00", Properties()),
    (b"\x80\x00\x0atext/plain", Properties(content_type="text/plain")),
    (b"\x40\x00\x04gzip", Properties(content_encoding="gzip")),
    (b"\x20\x00\x00\x00\x00\x04\x01kt\x01", Properties(headers={"k": True})),
    (b"\x20\x00\x00\x00\x00\x00", Properties(headers={})),
    (b"\x10\x00\x02", Properties(delivery_mode=2)),
    (b"\x08\x00\xff", Properties(priority=255)),
    (b"\x04\x00\x02\xc3\xa9", Properties(correlation_id="é")),
    (b"\x02\x00\x01q", Properties(reply_to="q")),
    (b"\x01\x00\x0260", Properties(expiration="60")),
    (b"\x00\x80\x01m", Properties(message_id="m")),
    (b"\x00\x40\x00\x00\x00\x00\x00\x00\x00\x01", Properties(timestamp=1)),
    (b"\x00\x20\x01t", Properties(type="t")),
    (b"\x00\x10\x05guest", Properties(user_id="guest")),
    (b"\x00\x08\x01a", Properties(app_id="a")),
    (b"\x00\x04\x00", Properties(cluster_id="")),
    (b"\x18\x00\x02\x05", Properties(delivery_mode=2, priority=5)),
    (encode_properties(ALL), ALL),
]


@pytest.mark.parametrize(("wire", "properties"), CASES)
def test_properties_are_read_and_written_alike(wire: bytes, properties: Properties) -> None:
    assert decode_properties(wire, 0, len(wire)) == properties
    assert encode_properties(properties) == wire


@pytest.mark.parametrize(("wire", "properties"), CASES)
def test_properties_are_read_inside_a_larger_buffer(wire: bytes, properties: Properties) -> None:
    buf = b"\xff" * 19 + wire + b"\xce\x03\x00\x01"
    assert decode_properties(buf, 19, 19 + len(wire)) == properties
    assert delivery_mode_of(buf, 19, 19 + len(wire)) == (properties.delivery_mode or 1)


@pytest.mark.parametrize(("wire", "properties"), CASES)
def test_properties_cut_anywhere_are_refused(wire: bytes, properties: Properties) -> None:
    for cut in range(len(wire)):
        for rest in (b"", b"\0" * 32):
            with pytest.raises(CloseConnection) as close:
                decode_properties(wire[:cut] + rest, 0, cut)
            assert (close.value.code, close.value.class_id, close.value.method_id) == (501, 60, 40)


@pytest.mark.parametrize("rest", [b"", b"\xce\0\0\0\0\0"])
@pytest.mark.parametrize("wire", [b"", b"\x10", b"\x10\x00", b"\xd0\x00\x01a\x05", b"\x30\x00\0\0\0\x09\x02"])
def test_the_delivery_mode_is_not_read_behind_the_end(wire: bytes, rest: bytes) -> None:
    with pytest.raises(CloseConnection) as close:
        delivery_mode_of(wire + rest, 0, len(wire))
    assert close.value.code == 501


def test_the_delivery_mode_is_found_behind_headers_nobody_can_read() -> None:
    wire = b"\xf0\x00\x01a\x01b\x00\x00\x00\x03\x01kZ\x02"
    assert delivery_mode_of(wire, 0, len(wire)) == 2
    with pytest.raises(CloseConnection) as close:
        decode_properties(wire, 0, len(wire))
    assert close.value.text == "FRAME_ERROR - cannot decode table: unknown type 'Z'"
    assert (close.value.class_id, close.value.method_id) == (60, 40)


def test_bytes_behind_the_last_property_are_refused() -> None:
    with pytest.raises(CloseConnection) as close:
        decode_properties(b"\x10\x00\x02zz", 0, 5)
    assert close.value.text == "FRAME_ERROR - cannot decode properties: 3 bytes by their flags, but 5 in the frame"


@pytest.mark.parametrize("low", [1, 2, 3])
def test_the_two_low_flags_mean_nothing_so_no_second_flag_word_is_read(low: int) -> None:
    assert decode_properties(bytes([0x80, low]) + b"\x01a", 0, 4) == Properties(content_type="a")
    with pytest.raises(CloseConnection):
        decode_properties(bytes([0x80, low]) + b"\0\0\x01a", 0, 6)


def test_an_id_that_is_no_utf8_comes_out_as_it_came_in() -> None:
    wire = b"\x04\x00\x10" + bytes(range(240, 256))
    assert encode_properties(decode_properties(wire, 0, len(wire))) == wire


def test_a_property_of_256_bytes_is_our_bug() -> None:
    with pytest.raises(ValueError):
        encode_properties(Properties(correlation_id="x" * 256))

"""The cold codec: whatever can be said survives the wire, and whatever comes in is read or refused, never worse."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.amqp.close import CloseConnection
from penstock.amqp.method import METHODS, Method, decode_method, encode_method
from penstock.amqp.properties import Properties, decode_properties, delivery_mode_of, encode_properties
from penstock.amqp.table import ByteArray, Table, Timestamp, Value, decode_table, encode_table

brief = settings(max_examples=100, deadline=None)

characters = st.characters(codec="utf-8")
short_strings = st.text(characters, max_size=63)  # four bytes a character at most
# Where RabbitMQ takes any bytes, so do we; what is no UTF-8 becomes surrogates.
names = st.binary(max_size=255).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
keys = short_strings | names
decimals = st.builds(
    lambda unscaled, scale: Decimal(f"{unscaled}E-{scale}"), st.integers(0, 2**32 - 1), st.integers(0, 255)
)


def is_no_utf8(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return True
    return False


scalars: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    decimals,
    st.text(characters),
    st.binary().filter(is_no_utf8),  # other bytes are the same long string as their text
    st.integers(0, 2**64 - 1).map(Timestamp),
    st.binary().map(ByteArray),
)
values: st.SearchStrategy[Value] = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(keys, inner, max_size=5)),
    max_leaves=12,
)
tables: st.SearchStrategy[Table] = st.dictionaries(keys, values, max_size=6)

BY_CODE: dict[str, st.SearchStrategy] = {
    "o": st.integers(0, 2**8 - 1),
    "h": st.integers(0, 2**16 - 1),
    "l": st.integers(0, 2**32 - 1),
    "L": st.integers(0, 2**64 - 1),
    "s": short_strings,
    "n": names,
    "S": st.binary(),
    "t": tables,
    "b": st.booleans(),
}


def instances(method: type[Method]) -> st.SearchStrategy[Method]:
    codes = [code for before, code in zip(" " + method.WIRE, method.WIRE) if "-" not in (before, code)]
    return st.builds(method, *(BY_CODE[code] for code in codes))


methods: st.SearchStrategy[Method] = st.sampled_from(METHODS).flatmap(instances)

octets = st.none() | st.integers(0, 255)
strings = st.none() | names
properties = st.builds(
    Properties,
    content_type=strings,
    content_encoding=strings,
    headers=st.none() | tables,
    delivery_mode=octets,
    priority=octets,
    correlation_id=strings,
    reply_to=strings,
    expiration=strings,
    message_id=strings,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    type=strings,
    user_id=strings,
    app_id=strings,
    cluster_id=strings,
)


@st.composite
def mutated(draw: st.DrawFn, valid: st.SearchStrategy[bytes]) -> bytes:
    """Valid bytes after a few flips, cuts and insertions."""
    wire = bytearray(draw(valid))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(wire)))
        damage = draw(st.sampled_from(["flip", "cut", "insert"]))
        if damage == "insert":
            wire[at:at] = draw(st.binary(min_size=1, max_size=4))
        elif damage == "cut":
            del wire[at : at + draw(st.integers(1, 8))]
        elif at < len(wire):
            wire[at] ^= 1 << draw(st.integers(0, 7))
    return bytes(wire)


def method_payload(method: Method) -> bytes:
    return encode_method(method, 1)[7:-1]


def refusal(read: Callable[[bytes], object], wire: bytes) -> CloseConnection | None:
    try:
        read(wire)
    except CloseConnection as close:
        return close
    return None


def check_read_or_refused(read: Callable[[bytes], object], wire: bytes, codes: set[int]) -> None:
    close = refusal(read, wire)
    assert close is None or close.code in codes
    assert close is None or len(close.text.encode()) <= 255


def read_properties(wire: bytes) -> Properties:
    return decode_properties(wire, 0, len(wire))


@brief
@given(tables)
def test_a_table_survives_the_wire_with_its_types(table: Table) -> None:
    wire = encode_table(table)
    read, stop = decode_table(wire, 0)
    assert stop == len(wire)
    assert read == table
    assert repr(read) == repr(table)  # equal alone would let 1 pass for True, and 1.0 for 1
    assert encode_table(read) == wire


@brief
@given(methods, st.integers(0, 65535))
def test_a_method_survives_the_wire(method: Method, channel: int) -> None:
    frame = encode_method(method, channel)
    assert frame[0] == 1
    assert int.from_bytes(frame[1:3], "big") == channel
    assert int.from_bytes(frame[3:7], "big") == len(frame) - 8
    assert frame[-1] == 0xCE
    assert decode_method(frame[7:-1]) == method


@brief
@given(properties, st.binary(max_size=20), st.binary(max_size=20))
def test_properties_survive_the_wire(message: Properties, before: bytes, behind: bytes) -> None:
    wire = encode_properties(message)
    buf, pos = before + wire + behind, len(before)
    assert decode_properties(buf, pos, pos + len(wire)) == message
    expected = 1 if message.delivery_mode is None else message.delivery_mode
    assert delivery_mode_of(buf, pos, pos + len(wire)) == expected


@brief
@given(st.binary(max_size=64) | mutated(tables.map(encode_table)))
def test_any_bytes_are_a_table_or_refused(wire: bytes) -> None:
    check_read_or_refused(lambda buf: decode_table(buf, 0), wire, {501})


@brief
@given(st.binary(max_size=64) | mutated(methods.map(method_payload)))
def test_any_bytes_are_a_method_or_refused(wire: bytes) -> None:
    check_read_or_refused(decode_method, wire, {501, 503})


@brief
@given(st.sampled_from(METHODS), st.binary(max_size=64))
def test_any_bytes_are_the_arguments_of_a_method_or_refused(method: type[Method], wire: bytes) -> None:
    check_read_or_refused(decode_method, method.ID.to_bytes(4, "big") + wire, {501})


@brief
@given(st.binary(max_size=64) | mutated(properties.map(encode_properties)))
def test_any_bytes_are_properties_or_refused(wire: bytes) -> None:
    check_read_or_refused(read_properties, wire, {501})


@brief
@given(st.binary(max_size=64) | mutated(properties.map(encode_properties)))
def test_the_delivery_mode_is_what_the_properties_say_whenever_they_can_be_read(wire: bytes) -> None:
    try:
        message = read_properties(wire)
    except CloseConnection:
        check_read_or_refused(lambda buf: delivery_mode_of(buf, 0, len(buf)), wire, {501})
        return
    expected = 1 if message.delivery_mode is None else message.delivery_mode
    assert delivery_mode_of(wire, 0, len(wire)) == expected

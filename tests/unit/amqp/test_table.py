"""Table: the 17 type letters of RabbitMQ, both ways, and what is refused."""

from __future__ import annotations

import struct
from decimal import Decimal

import pytest

from penstock.amqp.bounds import TABLE_DEPTH_MAX
from penstock.amqp.close import CloseConnection
from penstock.amqp.table import ByteArray, Table, Timestamp, Value, decode_table, encode_table


def sized(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def field(value: bytes, key: bytes = b"k") -> bytes:
    """A table of one field, given its letter and value."""
    return sized(bytes([len(key)]) + key + value)


# The bytes of a value, what it is read as, and whether it is written as the same bytes again.
VALUES: list[tuple[bytes, Value, bool]] = [
    (b"t\x01", True, True),
    (b"t\x00", False, True),
    (b"t\x02", True, False),
    (b"b\xff", -1, False),
    (b"B\xff", 255, False),
    (b"s\xff\xff", -1, False),
    (b"u\xff\xff", 65535, False),
    (b"I\xff\xff\xff\xff", -1, True),
    (b"I\x7f\xff\xff\xff", 2**31 - 1, True),
    (b"I\x80\x00\x00\x00", -(2**31), True),
    (b"i\xff\xff\xff\xff", 2**32 - 1, False),
    (b"l\x00\x00\x00\x00\x80\x00\x00\x00", 2**31, True),
    (b"l\x80\x00\x00\x00\x00\x00\x00\x00", -(2**63), True),
    (b"L\xff\xff\xff\xff\xff\xff\xff\xff", -1, False),
    (b"f\x3f\xc0\x00\x00", 1.5, False),
    (b"d\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5, True),
    (b"D\x02\x00\x00\x01\x3b", Decimal("3.15"), True),
    (b"D\x00\xff\xff\xff\xff", Decimal(2**32 - 1), True),
    (b"D\xff\x00\x00\x00\x01", Decimal("1E-255"), True),
    (b"S\x00\x00\x00\x03\xe6\xb0\xb4", "水", True),
    (b"S\x00\x00\x00\x00", "", True),
    (b"S\x00\x00\x00\x02\xff\x00", b"\xff\x00", True),
    (b"A\x00\x00\x00\x05t\x01Vt\x00", [True, None, False], True),
    (b"A\x00\x00\x00\x00", [], True),
    (b"T\xff\xff\xff\xff\xff\xff\xff\xff", Timestamp(2**64 - 1), True),
    (b"F" + field(b"F" + field(b"V")), {"k": {"k": None}}, True),
    (b"F\x00\x00\x00\x00", {}, True),
    (b"V", None, True),
    (b"x\x00\x00\x00\x02ab", ByteArray(b"ab"), True),
]


@pytest.mark.parametrize(("wire", "value", "same"), VALUES)
def test_a_value_is_read_by_its_letter_and_written_with_the_same_meaning(wire: bytes, value: Value, same: bool) -> None:
    read, stop = decode_table(field(wire), 0)
    assert read == {"k": value}
    assert type(read["k"]) is type(value)
    assert stop == len(field(wire))
    written = encode_table(read)
    assert decode_table(written, 0)[0] == read
    assert (written == field(wire)) == same


@pytest.mark.parametrize(("wire", "value", "same"), VALUES)
def test_a_value_in_an_array_is_read_like_one_in_a_table(wire: bytes, value: Value, same: bool) -> None:
    assert decode_table(field(b"A" + sized(wire + wire)), 0)[0] == {"k": [value, value]}


@pytest.mark.parametrize(("wire", "value", "same"), VALUES)
def test_a_table_cut_anywhere_is_refused(wire: bytes, value: Value, same: bool) -> None:
    whole = field(wire)
    for cut in range(len(whole)):
        with pytest.raises(CloseConnection) as close:
            decode_table(whole[:cut], 0)
        assert close.value.code == 501


@pytest.mark.parametrize(("wire", "value", "same"), VALUES)
def test_a_value_that_leaves_its_table_is_refused_though_bytes_follow(wire: bytes, value: Value, same: bool) -> None:
    for cut in range(1, len(wire) + 1):
        short = b"\x01k" + wire
        with pytest.raises(CloseConnection) as close:
            decode_table(struct.pack(">I", len(short) - cut) + short + b"\0" * 16, 0)
        assert close.value.code == 501


def test_only_the_17_letters_of_rabbitmq_and_its_second_long_are_known() -> None:
    known = {wire[0] for wire, _, _ in VALUES}
    assert known == set(b"tbBsuIilLfdDSATFVx")
    for letter in set(range(256)) - known:
        with pytest.raises(CloseConnection) as close:
            decode_table(field(bytes([letter]) + b"\0" * 8), 0)
        assert close.value.text == f"FRAME_ERROR - cannot decode table: unknown type {chr(letter)!r}"


def test_a_table_is_found_at_its_position_and_what_follows_is_left() -> None:
    table, stop = decode_table(b"abc" + field(b"t\x01") + b"rest", 3)
    assert table == {"k": True}
    assert stop == 3 + len(field(b"t\x01"))


def test_the_first_of_two_equal_keys_wins() -> None:
    assert decode_table(sized(b"\x01kI\0\0\0\x01\x01kI\0\0\0\x02"), 0)[0] == {"k": 1}


def test_keys_may_be_empty_and_outside_ascii_and_fill_255_bytes() -> None:
    table: Table = {"": 1, "é" * 127 + "x": 2}
    assert decode_table(encode_table(table), 0)[0] == table


def test_a_key_that_is_no_utf8_comes_out_as_it_came_in() -> None:
    wire = field(b"t\x01", key=b"\xff\xfe")
    assert encode_table(decode_table(wire, 0)[0]) == wire


@pytest.mark.parametrize(
    "wire", [b"d\x7f\xf8\0\0\0\0\0\0", b"d\x7f\xf0\0\0\0\0\0\0", b"f\xff\x80\0\0", b"f\x7f\xc0\0\0"]
)
def test_a_float_that_is_not_finite_is_refused(wire: bytes) -> None:
    with pytest.raises(CloseConnection) as close:
        decode_table(field(wire), 0)
    assert close.value.text == "FRAME_ERROR - cannot decode table: a float that is not finite"


@pytest.mark.parametrize("letter", [b"F", b"A"])
def test_nesting_is_read_up_to_the_limit_and_refused_beyond(letter: bytes) -> None:
    wire = b"V"
    for _ in range(TABLE_DEPTH_MAX - 1):
        wire = letter + (field(wire) if letter == b"F" else sized(wire))
    table, _ = decode_table(field(wire), 0)
    assert encode_table(table) == field(wire)
    deeper = letter + (field(wire) if letter == b"F" else sized(wire))
    with pytest.raises(CloseConnection) as close:
        decode_table(field(deeper), 0)
    assert close.value.code == 501
    with pytest.raises(ValueError):
        encode_table({"k": table} if letter == b"F" else {"k": [table["k"]]})


def test_a_table_that_contains_itself_is_our_bug_and_ends() -> None:
    table: Table = {}
    table["self"] = table
    with pytest.raises(ValueError):
        encode_table(table)


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("-1"),
        Decimal(2**32),
        Decimal("1E-256"),
        Decimal("1E+999999"),
        Timestamp(-1),
        Timestamp(2**64),
    ],
)
def test_a_value_that_fits_no_letter_is_our_bug(value: Value) -> None:
    with pytest.raises(ValueError):
        encode_table({"k": value})


@pytest.mark.parametrize(("value", "wire"), [("1E+9", 10**9), ("0E+99", 0), ("-0", 0)])
def test_a_decimal_with_no_digits_behind_the_point_is_written_whole(value: str, wire: int) -> None:
    assert encode_table({"k": Decimal(value)}) == field(b"D\0" + struct.pack(">I", wire))


def test_a_key_of_256_bytes_is_our_bug() -> None:
    with pytest.raises(ValueError):
        encode_table({"é" * 128: 1})

"""Numbers of producers, read without decoding: where it says yes, decoding everything says the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.amqp.bounds import Bounds
from penstock.amqp.close import CloseConnection
from penstock.amqp.decoder import Decoder, Publishes
from penstock.amqp.method import BasicPublish, encode_method
from penstock.amqp.numbering import PREFIXES_MAX, Numbering
from penstock.amqp.properties import (
    PRODUCER,
    PUBLISHING_ID,
    SPECIAL,
    Properties,
    check_properties,
    decode_properties,
    encode_properties,
)
from penstock.amqp.table import Table, Value
from tests.unit.fakes import make_wire


def numbered(id_: Value, producer: Value = "p", headers: Table | None = None, **more: object) -> bytes:
    table: Table = {**(headers or {}), PRODUCER: producer, PUBLISHING_ID: id_}
    return encode_properties(Properties(headers=table, **more))  # type: ignore[arg-type]


def read(numbering: Numbering, properties: bytes) -> tuple[int, str, int] | None:
    if not numbering.read(properties):
        return None
    return numbering.mode, *numbering.publishing


@pytest.mark.parametrize("id_", [0, 1, (1 << 31) - 1, 1 << 31, (1 << 63) - 1])
def test_the_producer_and_its_number_are_found(id_: int) -> None:
    numbering = Numbering()
    for _ in range(2):
        assert read(numbering, numbered(id_)) == (1, "p", id_)
        assert read(numbering, numbered(id_, delivery_mode=2)) == (2, "p", id_)
        assert read(numbering, numbered(id_, delivery_mode=2, message_id=f"m{id_}", timestamp=5, app_id="a")) == (
            2,
            "p",
            id_,
        )
        assert read(numbering, numbered(id_, headers={"a": 1}, content_type="text", priority=3)) == (1, "p", id_)


@pytest.mark.parametrize(
    "properties",
    [
        encode_properties(Properties()),
        encode_properties(Properties(headers={"a": PUBLISHING_ID})),
        encode_properties(Properties(headers={PUBLISHING_ID: 1})),
        encode_properties(Properties(headers={PUBLISHING_ID: 1, PRODUCER: "p"})),  # not the last one
        numbered(1, producer=5),
        numbered(1, producer=""),
        numbered(1, producer="p" * 256),
        numbered(1, producer=b"\xff"),
        numbered("1"),
        numbered(True),
        numbered(-1),
        numbered(-(1 << 40)),
        numbered(1, headers={"CC": ["a"]}),
        numbered(1, headers={"BCC": ["a"]}),
        numbered(1, expiration="5"),
        numbered(1, user_id="guest"),
        numbered(1, delivery_mode=3),
        numbered(1, reply_to="amq.rabbitmq.reply-to"),
        encode_properties(Properties(headers={"t": {PRODUCER: "p", PUBLISHING_ID: 1}})),
    ],
)
def test_whatever_is_not_quite_so_is_left_to_others(properties: bytes) -> None:
    numbering = Numbering()
    read(numbering, numbered(1, delivery_mode=2))
    assert read(numbering, properties) is None
    assert read(numbering, properties) is None


def test_of_two_numbers_none_is_chosen_here() -> None:
    raw = numbered(7)
    entry = raw[raw.index(b"\x18" + PUBLISHING_ID.encode()) :]
    size = int.from_bytes(raw[2:6], "big") + len(entry)
    twice = raw[:2] + size.to_bytes(4, "big") + raw[6:] + entry
    assert decode_properties(twice, 0, len(twice)).headers == {PRODUCER: "p", PUBLISHING_ID: 7}
    assert read(Numbering(), twice) is None


def test_the_bounds_of_tables_hold() -> None:
    properties = numbered(1, headers={str(at): at for at in range(20)})
    with pytest.raises(CloseConnection):
        Numbering(Bounds(table_entries=10)).read(properties)


def test_however_many_producers_there_are_few_are_remembered() -> None:
    numbering = Numbering()
    for at in range(PREFIXES_MAX + 10):
        assert read(numbering, numbered(at, producer=f"producer {at}")) == (1, f"producer {at}", at)
    assert len(numbering._prefixes) <= PREFIXES_MAX


NAMES = st.sampled_from([PRODUCER, PUBLISHING_ID, "CC", "a", "x-penstock-publishing-idl"])
VALUES = st.one_of(
    st.integers(-5, 1 << 40),
    st.sampled_from(["p", "", "x" * 300, "\x18x-penstock-publishing-idl12345678", True, None]),
    st.lists(st.just("k"), max_size=1),
)
OTHERS = st.fixed_dictionaries(
    {},
    optional={
        "content_type": st.just("t"),
        "delivery_mode": st.integers(0, 3),
        "priority": st.integers(0, 9),
        "reply_to": st.sampled_from(["r", "amq.rabbitmq.reply-to"]),
        "expiration": st.just("5"),
        "message_id": st.sampled_from(["", "m", "m" * 200]),
        "timestamp": st.just(1),
        "user_id": st.just("u"),
        "cluster_id": st.just("c"),
    },
)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(NAMES, VALUES), max_size=4), OTHERS, st.binary(max_size=12), st.integers(0, 200), st.booleans()
)
def test_a_yes_is_always_what_decoding_would_have_found(
    entries: list[tuple[str, Value]], others: dict[str, object], noise: bytes, at: int, is_last: bool
) -> None:
    numbering = Numbering()
    headers: Table = dict(entries)
    if is_last:
        headers = {**headers, PRODUCER: "p", PUBLISHING_ID: headers.pop(PUBLISHING_ID, 5)}
    good = encode_properties(Properties(headers=headers, **others))  # type: ignore[arg-type]
    at = min(at, len(good))
    for properties in (good, good[:at] + noise + good[at + len(noise) :], good[:at], good + noise, good):
        try:
            found = read(numbering, properties)
        except CloseConnection:
            with pytest.raises(CloseConnection):
                check_properties(properties, 0, len(properties))
            continue
        if found is None:
            continue
        mode, producer, id_ = found
        decoded = decode_properties(properties, 0, len(properties))
        assert decoded.headers is not None
        assert (decoded.headers[PRODUCER], decoded.headers[PUBLISHING_ID]) == (producer, id_)
        assert id_ >= 0
        assert check_properties(properties, 0, len(properties)) == mode | SPECIAL
        assert "CC" not in decoded.headers
        assert decoded.expiration is None
        assert decoded.user_id is None


# In the decoder.


def decode(*contents: tuple[bytes, bytes], pieces: int = 1 << 20) -> list[Publishes]:
    stream = b"".join(encode_method(BasicPublish("", "q"), 1) + make_wire(body, 1, raw) for raw, body in contents)
    decoder = Decoder(body_max=1 << 20)
    decoder.frame_max = 131_072
    items = [item for at in range(0, len(stream), pieces) for item in decoder.feed(stream[at : at + pieces])]
    assert decoder.error is None
    assert all(isinstance(item, Publishes) for item in items)
    return [item for item in items if isinstance(item, Publishes)]


def test_numbered_messages_in_a_row_are_one_item_with_their_numbers() -> None:
    (item,) = decode(*((numbered(at), b"%d" % at) for at in range(5)))
    assert item.plain
    assert item.publishings == [("p", at) for at in range(5)]
    assert len(item.messages) == 5


def test_the_very_same_message_again_has_the_same_number_again() -> None:
    (item,) = decode((numbered(1), b"a"), (numbered(1), b"a"), (numbered(1), b"b"), (numbered(2), b"b"))
    assert item.publishings == [("p", 1), ("p", 1), ("p", 1), ("p", 2)]


def test_messages_without_a_number_between_them_keep_their_order_and_have_none() -> None:
    plain = encode_properties(Properties(delivery_mode=2))
    items = decode((plain, b"0"), (numbered(1), b"1"), (numbered(2), b"2"), (plain, b"3"), (plain, b"4"))
    assert [(len(item.messages), item.publishings) for item in items] == [
        (1, None),
        (2, [("p", 1), ("p", 2)]),
        (2, None),
    ]
    wires = sum(len(wire) for item in items for _, wire in item.messages)
    assert sum(item.bytes for item in items) == wires
    assert [item.modes for item in items] == [2, 1, 2]


def test_one_that_is_cut_by_the_end_of_a_read_is_left_to_the_rules() -> None:
    items = decode(*((numbered(at), b"x" * 50) for at in range(6)), pieces=333)
    assert sum(len(item.messages) for item in items) == 6
    assert any(not item.plain for item in items)
    for item in items:
        assert item.publishings is None or len(item.publishings) == len(item.messages)


def test_an_item_that_is_cut_has_the_right_numbers_in_both_parts() -> None:
    (item,) = decode(*((numbered(at), b"%d" % at) for at in range(5)))
    total = item.bytes
    head = item.cut(2)
    assert head.publishings == [("p", 0), ("p", 1)]
    assert item.publishings == [("p", 2), ("p", 3), ("p", 4)]
    assert head.bytes + item.bytes == total

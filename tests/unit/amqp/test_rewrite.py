"""Rewrite: what is asked for is changed, and every other byte stays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.amqp import content
from penstock.amqp.frame import FRAME_MAX_BYTES
from penstock.amqp.properties import Properties, decode_properties, encode_properties
from penstock.amqp.rewrite import rewrite
from penstock.amqp.table import Value

ALL = Properties(
    content_type="text/plain",
    content_encoding="gzip",
    headers={"z": 1, "a": [True, None, {"deep": b"\xff"}], "m": "text"},
    delivery_mode=2,
    priority=9,
    correlation_id="c",
    reply_to="r",
    expiration="60000",
    message_id="m",
    timestamp=2**64 - 1,
    type="t",
    user_id="guest",
    app_id="a",
    cluster_id="cl",
)


def wire_of(properties: Properties, body: bytes = b"body", channel: int = 7, frame_max: int = FRAME_MAX_BYTES) -> bytes:
    return content.build_basic(channel, encode_properties(properties), body, frame_max)


def read(wire: bytes) -> Properties:
    return decode_properties(wire, content.FLAGS_OFFSET, content.properties_end(wire))


def but(properties: Properties, **changes: Any) -> Properties:
    return replace(properties, **changes)


@pytest.mark.parametrize("properties", [ALL, Properties(), Properties(headers={}), Properties(timestamp=5)])
def test_with_nothing_to_change_not_a_byte_changes(properties: Properties) -> None:
    wire = wire_of(properties)
    assert rewrite(wire) == wire
    assert rewrite(wire, drop_headers=("not there",)) == wire


def test_the_expiration_goes_and_nothing_else() -> None:
    wire = wire_of(ALL)
    assert rewrite(wire, drop_expiration=True) == wire_of(but(ALL, expiration=None))
    plain = wire_of(Properties(priority=1))
    assert rewrite(plain, drop_expiration=True) == plain


@pytest.mark.parametrize("properties", [ALL, Properties(), Properties(expiration="1", correlation_id="c")])
def test_the_reply_address_is_set_or_replaced(properties: Properties) -> None:
    assert rewrite(wire_of(properties), reply_to="other") == wire_of(but(properties, reply_to="other"))


def test_a_header_is_dropped_and_the_others_keep_bytes_and_order() -> None:
    assert rewrite(wire_of(ALL), drop_headers=("a", "x")) == wire_of(but(ALL, headers={"z": 1, "m": "text"}))
    assert rewrite(wire_of(Properties(headers={"a": 1})), drop_headers=("a",)) == wire_of(Properties(headers={}))


def test_setting_a_header_sorts_all_by_key_as_rabbitmq_does() -> None:
    changed = rewrite(wire_of(ALL), set_headers={"b": b"t\x01"})
    headers = read(changed).headers
    assert headers is not None
    assert list(headers) == ["a", "b", "m", "z"]
    assert headers["b"] is True
    assert changed == wire_of(but(ALL, headers={key: headers[key] for key in "abmz"}))


def test_a_header_that_is_set_replaces_the_one_of_that_name() -> None:
    changed = rewrite(wire_of(ALL), set_headers={"z": b"l" + (2).to_bytes(8, "big")}, drop_headers=("a",))
    assert read(changed).headers == {"m": "text", "z": 2}


def test_a_content_without_headers_gets_them() -> None:
    assert read(rewrite(wire_of(Properties(priority=3)), set_headers={"k": b"V"})) == Properties(
        headers={"k": None}, priority=3
    )


def test_values_of_other_types_than_we_would_write_keep_their_bytes() -> None:
    """A short, an unsigned byte and a duplicate key: a decode and encode would lose all three."""
    table = b"\x01ss\x00\x05" + b"\x01ss\x00\x06" + b"\x01uB\xff"
    properties = b"\x20\x00" + len(table).to_bytes(4, "big") + table
    wire = content.build_basic(1, properties, b"x", FRAME_MAX_BYTES)
    assert rewrite(wire, drop_headers=("none",)) == wire
    assert table in rewrite(wire, set_headers={"v": b"V"})


@pytest.mark.parametrize("body", [b"", b"x", b"0123456789" * 10])
def test_a_body_in_any_number_of_frames_stays_as_it_is(body: bytes) -> None:
    wire = wire_of(ALL, body, frame_max=20)
    changed = rewrite(wire, drop_expiration=True)
    assert content.body(changed) == body
    assert content.body_size(changed) == len(body)
    assert changed[content.properties_end(changed) :] == wire[content.properties_end(wire) :]
    assert changed[:3] == wire[:3]  # the channel's number too


def test_unused_flag_bits_are_kept() -> None:
    wire = content.build_basic(1, b"\x01\x02\x015", b"x", FRAME_MAX_BYTES)
    changed = rewrite(wire, drop_expiration=True)
    assert changed[content.FLAGS_OFFSET : content.FLAGS_OFFSET + 2] == b"\x00\x02"


texts = st.none() | st.text(max_size=5)
values: st.SearchStrategy[Value] = st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3) | st.binary()
tables = st.none() | st.dictionaries(st.text(max_size=3), values, max_size=3)


@given(
    st.builds(
        Properties,
        content_type=texts,
        headers=tables,
        delivery_mode=st.none() | st.integers(0, 255),
        correlation_id=texts,
        reply_to=texts,
        expiration=texts,
        timestamp=st.none() | st.integers(0, 2**64 - 1),
        user_id=texts,
        cluster_id=texts,
    ),
    st.booleans(),
    texts,
    st.booleans(),
)
def test_whatever_is_there_only_what_is_asked_for_changes(
    properties: Properties, drop_expiration: bool, reply_to: str | None, mark: bool
) -> None:
    wire = wire_of(properties)
    before = read(wire)
    after = read(
        rewrite(
            wire,
            drop_expiration=drop_expiration,
            reply_to=reply_to,
            set_headers={"mark": b"t\x01"} if mark else None,
        )
    )
    expected = but(
        before,
        expiration=None if drop_expiration else before.expiration,
        reply_to=before.reply_to if reply_to is None else reply_to,
        headers={**(before.headers or {}), "mark": True} if mark else before.headers,
    )
    assert after == expected

"""One header more in a content: whatever properties it has, the first time and every time after."""

from __future__ import annotations

import pytest

from penstock.amqp import content
from penstock.amqp.properties import Properties, decode_properties, encode_properties
from penstock.amqp.stamp import TEMPLATES_MAX, Stamp
from penstock.amqp.table import Table
from tests.unit.fakes import make_wire, publish_method

ALL = Properties(
    content_type="text/plain",
    content_encoding="utf-8",
    headers={"a": 1, "z": "last"},
    delivery_mode=2,
    priority=3,
    correlation_id="c",
    reply_to="r",
    expiration="60000",
    message_id="m",
    timestamp=1,
    type="t",
    user_id="u",
    app_id="a",
    cluster_id="k",
)
CASES = {
    "none": Properties(),
    "no headers": Properties(content_type="x", delivery_mode=2, message_id="m"),
    "an empty table": Properties(headers={}),
    "all": ALL,
    "stamped by the publisher": Properties(headers={"x-stamp": "old", "b": True}),
}


def text(value: bytes) -> bytes:
    return b"S" + len(value).to_bytes(4, "big") + value


def read(wire: bytes) -> Properties:
    return decode_properties(wire, content.FLAGS_OFFSET, content.properties_end(wire))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("body", [b"", b"body", b"long" * 5000])
def test_the_header_is_there_and_nothing_else_is_different(case: str, body: bytes) -> None:
    stamp = Stamp("x-stamp")
    wire = make_wire(body, 7, encode_properties(CASES[case]), frame_max=4096)
    for value in (b"1", b"2", b"33", b"1"):  # made, remembered, another length, remembered
        stamped = stamp.put(wire, text(value))
        expected = read(wire)
        expected.headers = (expected.headers or {}) | {"x-stamp": value.decode()}
        assert read(stamped) == expected
        assert content.body(stamped) == body
        assert content.largest_frame(stamped) <= 4096
        assert stamped[1:3] == wire[1:3]


def test_values_may_have_any_type() -> None:
    headers = read(Stamp("n").put(make_wire(b"x"), b"l" + (5).to_bytes(8, "big"))).headers
    assert headers == {"n": 5}


def test_an_entry_that_only_looks_like_it_inside_another_stays() -> None:
    inner: Table = {"outer": {"x-stamp": "mine"}}
    wire = make_wire(b"x", properties=encode_properties(Properties(headers=inner)))
    assert read(Stamp("x-stamp").put(wire, text(b"1"))).headers == inner | {"x-stamp": "1"}


def test_a_header_frame_that_would_be_too_large_is_left_as_it_is() -> None:
    stamp = Stamp("x-stamp")
    wire = make_wire(b"x", properties=encode_properties(Properties(headers={"large": "L" * 4000})))
    assert stamp.put(wire, text(b"1" * 100), 4096) == wire
    assert content.largest_frame(stamp.put(wire, text(b"1"), 4096)) <= 4096
    assert stamp.put(wire, text(b"1"), 4096) != wire


def test_however_many_properties_there_are_few_are_remembered() -> None:
    stamp = Stamp("x-stamp")
    for at in range(TEMPLATES_MAX + 5):
        wire = make_wire(b"x", properties=encode_properties(Properties(message_id=str(at))))
        assert read(stamp.put(wire, text(b"1"))).message_id == str(at)
    assert sum(map(len, stamp._templates.values())) <= TEMPLATES_MAX


def test_many_at_once_are_stamped_as_one_by_one() -> None:
    large = encode_properties(Properties(headers={"large": "L" * 4000}))
    few, all_ = encode_properties(Properties(delivery_mode=2)), encode_properties(ALL)
    wires = [
        make_wire(b"x" * size, properties=one) for size, one in enumerate((few, few, all_, large, few, all_, all_))
    ]
    wires.append(make_wire(b"x", channel=2, properties=all_))
    values = [text(b"%d" % at) for at in (8, 9, 10, 11, 99, 100, 101, 102)]
    publish = publish_method(1, "q")
    stamped = Stamp("x-stamp").put_each([(publish, wire) for wire in wires], values, 4000)
    assert stamped == [(publish, Stamp("x-stamp").put(wire, value, 4000)) for wire, value in zip(wires, values)]
    assert stamped[3][1] == wires[3], "it would be too large"

"""Sequences: bodies count up block by block, and deliveries in any other order are refused, by name."""

import pytest

from penstock.amqp import content
from penstock.amqp.method import BasicDeliver, encode_method
from penstock.amqp.properties import Properties, encode_properties
from penstock.perf.block import NotADelivery
from penstock.perf.sequence import Blocks, Order

FRAME_MAX = 4096
PERSISTENT = Properties(delivery_mode=2)
PLACES = 5


def body(block, place, size=100):
    return (b"%08d%04d" % (block, place)).ljust(size, b"x")


def delivery(tag, found):
    method = encode_method(BasicDeliver("t", tag, False, "", "orders"), 1)
    return method + content.build_basic(1, encode_properties(PERSISTENT), found, FRAME_MAX)


def delivered(first_block, blocks):
    """The deliveries of these blocks of one queue, one wire for each block."""
    return [
        b"".join(delivery(1 + number * PLACES + place, body(number, place)) for place in range(PLACES))
        for number in range(first_block, first_block + blocks)
    ]


def test_blocks_count_up_and_places_within_them_too():
    blocks = Blocks(["orders"], PLACES, 100, PERSISTENT, FRAME_MAX)
    for number in (0, 1, 12_345_678):
        made = blocks.block(number)
        assert made.messages == PLACES
        assert [made.wire.count(body(number, place)) for place in range(PLACES)] == [1] * PLACES


def test_all_blocks_are_of_one_size():
    blocks = Blocks(["orders"], PLACES, 100, PERSISTENT, FRAME_MAX)
    assert len({len(blocks.block(number).wire) for number in (0, 9, 99_999_999)}) == 1


def test_several_queues_get_the_same_sequence_in_turn():
    made = Blocks(["q1", "q2", "q3"], 2, 100, PERSISTENT, FRAME_MAX).block(7)
    assert made.messages == 6
    assert made.wire.count(body(7, 0)) == made.wire.count(body(7, 1)) == 3
    keys = [made.wire[at : at + 2] for at in range(len(made.wire)) if made.wire[at : at + 2] in (b"q1", b"q2", b"q3")]
    assert keys == [b"q1", b"q2", b"q3"] * 2


def test_a_body_without_room_for_its_number_is_refused():
    with pytest.raises(ValueError, match="12 at least"):
        Blocks(["orders"], PLACES, 11, PERSISTENT, FRAME_MAX)


def test_deliveries_in_order_pass():
    wires = delivered(0, 12)
    order = Order(wires[0], PLACES)
    assert order.block_bytes == len(wires[0])
    for wire in wires:
        order.check(wire)
    assert order.checked == 12


def test_the_first_delivery_may_come_with_more_behind_it():
    wires = delivered(0, 2)
    order = Order(wires[0] + wires[1][:50], PLACES)
    order.check(wires[0])


def swapped(wire, one, other):
    size = len(wire) // PLACES
    parts = [wire[at : at + size] for at in range(0, len(wire), size)]
    parts[one], parts[other] = parts[other], parts[one]
    return b"".join(parts)


@pytest.mark.parametrize(
    ("why", "wrong"),
    [
        ("delivery 8 is message b'000000010003'", swapped(delivered(1, 1)[0], 2, 3)),
        ("delivery 6 is message b'000000020000'", delivered(2, 1)[0]),
        ("delivery 6 is message b'000000000000'", delivered(0, 1)[0]),
        ("delivery 10 is message b'000000010003'", delivered(1, 1)[0].replace(body(1, 4), body(1, 3))),
    ],
    ids=["two changed places", "a block is missing", "a block came twice", "one came twice"],
)
def test_a_delivery_out_of_turn_is_named(why, wrong):
    order = Order(delivered(0, 1)[0], PLACES)
    order.check(delivered(0, 1)[0])
    with pytest.raises(NotADelivery, match=why):
        order.check(wrong)

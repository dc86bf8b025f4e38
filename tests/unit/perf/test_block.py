"""Blocks: what a publisher sends is what penstock.amqp reads, and a delivery that is wrong in any way is refused."""

import pytest

from penstock.amqp import content
from penstock.amqp.frame import HEAD
from penstock.amqp.method import BasicAck, BasicCancel, BasicDeliver, BasicPublish, decode_method, encode_method
from penstock.amqp.properties import Properties, encode_properties
from penstock.perf.block import (
    BLOCK_BYTES,
    BLOCK_MESSAGES_MAX,
    NotADelivery,
    acks,
    block,
    block_messages,
    check_delivery,
    delivery_bytes,
    numbered_body,
    publish,
    read_delivery,
)

FRAME_MAX = 4096


def delivery(tag=1, number=0, body_bytes=100, channel=1):
    method = encode_method(BasicDeliver("0000", tag, False, "", "orders"), channel)
    body = numbered_body(number, body_bytes)
    return method + content.build_basic(channel, encode_properties(Properties(delivery_mode=1)), body, FRAME_MAX)


def frames(wire):
    found = []
    while wire:
        kind, channel, size = HEAD.unpack_from(wire)
        found.append((kind, channel, wire[7 : 7 + size]))
        wire = wire[size + 8 :]
    return found


def test_a_publish_is_method_header_and_body():
    (_, _, method), header, body = frames(publish("stock", "usd", Properties(delivery_mode=1), b"abc", FRAME_MAX))
    assert decode_method(method) == BasicPublish("stock", "usd")
    assert header[:2] == (2, 1)
    assert body == (3, 1, b"abc")


def test_a_publish_goes_on_the_channel_it_is_made_for():
    wire = publish("", "orders", Properties(), b"abc", FRAME_MAX, channel=7)
    assert [channel for _, channel, _ in frames(wire)] == [7, 7, 7]


def test_a_large_body_is_cut_into_frames_of_the_negotiated_size():
    wire = publish("", "orders", Properties(), b"x" * 10_000, FRAME_MAX)
    assert [len(payload) + 8 for _, _, payload in frames(wire)[2:]] == [4096, 4096, 10_000 - 2 * 4088 + 8]


def test_a_block_has_many_small_messages_or_one_large_one():
    assert block_messages(10) == BLOCK_MESSAGES_MAX
    assert block_messages(1000) == BLOCK_BYTES // 1000
    assert block_messages(1_000_000) == 1


def test_a_block_is_its_messages_in_order():
    made = block([b"one", b"two"])
    assert (made.wire, made.messages) == (b"onetwo", 2)


@pytest.mark.parametrize("size", [0, 7, 8, 100])
def test_bodies_of_a_cycle_are_of_one_size(size):
    assert {len(numbered_body(number, size)) for number in (0, 9, 99_999)} == {size}


def test_bodies_of_a_cycle_differ():
    assert len({numbered_body(number, 100) for number in range(1000)}) == 1000


@pytest.mark.parametrize(
    ("acked", "delivered", "tags", "last"),
    [(0, 99, [], 0), (0, 100, [100], 100), (100, 350, [200, 300], 300), (300, 350, [], 300)],
)
def test_every_whole_batch_is_acked_once(acked, delivered, tags, last):
    wire, now = acks(acked, delivered, 100)
    assert [decode_method(payload) for _, _, payload in frames(wire)] == [BasicAck(tag, True) for tag in tags]
    assert now == last


@pytest.mark.parametrize("body_bytes", [0, 100, 10_000])
def test_the_size_of_a_delivery_is_known_when_it_is_whole(body_bytes):
    wire = delivery(body_bytes=body_bytes)
    assert all(delivery_bytes(wire[:size]) == 0 for size in range(len(wire)))
    assert delivery_bytes(wire) == len(wire)
    assert delivery_bytes(wire + b"\x01rest") == len(wire)


def test_a_delivery_tells_tag_key_and_number():
    found = read_delivery(delivery(tag=7, number=42))
    assert (found.tag, found.routing_key, found.body_bytes, found.number) == (7, "orders", 100, b"00000042")


def test_the_right_delivery_passes():
    check_delivery(delivery(tag=503, number=2), 503, 100, cycle=500)


WRONG = [
    ("lost or doubled", delivery(tag=4, number=2)),
    ("order or bodies", delivery(tag=3, number=1)),
    ("body of 99 bytes", delivery(tag=3, number=2, body_bytes=99)),
    ("bytes where", delivery(tag=3, number=2) + b"\x01"),
    ("on channel 2", delivery(tag=3, number=2, channel=2)[:-1] + b"\xce"),
    ("no end", delivery(tag=3, number=2)[:-1] + b"\x00"),
    ("BasicCancel", encode_method(BasicCancel("0000"), 1) + bytes(20)),
]


@pytest.mark.parametrize(("why", "wire"), WRONG, ids=[why for why, _ in WRONG])
def test_a_wrong_delivery_is_refused(why, wire):
    with pytest.raises(NotADelivery) as refused:
        check_delivery(wire, 3, 100, cycle=500)
    if why != "on channel 2":
        assert why in str(refused.value)

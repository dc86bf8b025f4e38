"""put_run: deliveries that follow each other have the same bytes as if each had been stamped by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.amqp.content import build_basic
from penstock.amqp.decoder import Message, Publish
from penstock.amqp.method import BasicPublish, encode_method
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.stamp import Stamp
from penstock.broker.consumer import Consumer
from penstock.broker.stamped import THOUSAND, put_run

FRAME_MAX = 4096
LIFE = b"5f3a-"
PUBLISHES = [
    Publish(channel, encode_method(BasicPublish(exchange, key), channel)[7:-1])
    for channel, exchange, key in ((1, "", "q"), (1, "", "q"), (1, "ex", "a.key"), (3, "", "q"))
]
PROPERTIES = [
    Properties(),
    Properties(delivery_mode=2),
    Properties(delivery_mode=2, message_id="one"),
    Properties(delivery_mode=2, message_id="two"),
    Properties(content_type="text/plain", headers={"n": 1}, user_id="guest"),
    Properties(headers={"x-penstock-sequence": "forged-1"}),
    Properties(headers={"long": "x" * (FRAME_MAX - 60)}),  # fits without a stamp, and with one it does not
]

messages = st.lists(
    st.tuples(
        st.sampled_from(PUBLISHES),
        st.sampled_from(PROPERTIES),
        st.sampled_from([0, 1, 200, 200, 201, FRAME_MAX - 8, FRAME_MAX - 7, 3 * FRAME_MAX]),
        st.integers(1, 300),
    ),
    min_size=1,
    max_size=5,
)


def made(parts: list[tuple[Publish, Properties, int, int]]) -> list[Message]:
    """So many of each; the body tells which it is."""
    found: list[Message] = []
    for publish, properties, size, count in parts:
        body = b"%d" % len(found) * size
        wire = build_basic(publish.channel, encode_properties(properties), body[:size], FRAME_MAX)
        found += [(publish, wire)] * count
    return found


def consumer(number: int = 1) -> Consumer:
    channel: Any = SimpleNamespace(number=number, frame_max=FRAME_MAX)
    queue: Any = None
    return Consumer(channel, queue, "tag", False, False, 0, {})


def one_by_one(to: Consumer, messages: list[Message], tag: int, position: int, redelivered: bool) -> bytes:
    texts = [LIFE + b"%d" % (position + at) for at in range(len(messages))]
    values = [b"S" + len(text).to_bytes(4, "big") + text for text in texts]
    frames: list[bytes] = []
    size = to._put(frames, tag, Stamp("x-penstock-sequence").put_each(messages, values, FRAME_MAX), redelivered)
    assert size == len(b"".join(frames))
    return b"".join(frames)


@given(messages, st.integers(1, 1 << 40), st.integers(THOUSAND, 1 << 48), st.booleans(), st.sampled_from([1, 3]))
def test_a_run_has_the_bytes_of_its_deliveries_one_by_one(
    parts: list[tuple[Publish, Properties, int, int]], tag: int, position: int, redelivered: bool, number: int
) -> None:
    some = made(parts)
    to = consumer(number)
    frames: list[bytes] = []
    size = put_run(to, frames, tag, Stamp("x-penstock-sequence"), LIFE, position, some, redelivered)
    assert size == len(b"".join(frames))
    assert b"".join(frames) == one_by_one(to, some, tag, position, redelivered)


def test_a_position_that_gets_one_digit_more_in_the_middle_of_a_run_is_right() -> None:
    some = made([(PUBLISHES[0], PROPERTIES[1], 200, 3000)])
    frames: list[bytes] = []
    put_run(consumer(), frames, 250, Stamp("x-penstock-sequence"), LIFE, 8999, some, False)
    assert b"".join(frames) == one_by_one(consumer(), some, 250, 8999, False)

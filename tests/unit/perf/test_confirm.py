"""Confirms: counted by what they confirm, one by one or many at once, in any order, cut anywhere."""

import pytest

from penstock.amqp.method import BasicAck, BasicNack, ChannelClose, encode_method
from penstock.perf.confirm import Confirms, NotConfirmed


def wire(*acked):
    return b"".join(encode_method(BasicAck(abs(tag), tag < 0), 1) for tag in acked)  # below zero: multiple


@pytest.mark.parametrize(
    ("acked", "up_to", "confirmed"),
    [
        ((1, 2, 3), 3, 3),
        ((-100,), 100, 100),
        ((-100, 101, -200), 200, 200),
        ((3, 1), 1, 2),
        ((3, 1, 2), 3, 3),
        ((5, 3, -4), 5, 5),
        ((9, -4), 4, 5),
    ],
)
def test_confirms_are_counted_by_what_they_confirm(acked, up_to, confirmed):
    confirms = Confirms()
    confirms.feed(wire(*acked))
    assert (confirms.up_to, confirms.confirmed) == (up_to, confirmed)


def test_a_stream_of_confirms_may_be_cut_anywhere():
    stream = wire(1, -50, 52, 51, -100)
    for size in range(1, len(stream) + 1):
        confirms = Confirms()
        for start in range(0, len(stream), size):
            confirms.feed(stream[start : start + size])
        assert confirms.confirmed == 100


@pytest.mark.parametrize("acked", [(1, 1), (-5, 3), (7, 7)])
def test_a_message_confirmed_twice_is_an_error(acked):
    with pytest.raises(NotConfirmed, match="twice"):
        Confirms().feed(wire(*acked))


def test_a_refused_message_is_an_error():
    with pytest.raises(NotConfirmed, match=r"basic\.nack"):
        Confirms().feed(wire(1) + encode_method(BasicNack(2), 1))


def test_a_closed_channel_is_told_as_such():
    with pytest.raises(NotConfirmed, match="NOT_FOUND"):
        Confirms().feed(encode_method(ChannelClose(404, "NOT_FOUND - no exchange 'gone'", 60, 40), 1))

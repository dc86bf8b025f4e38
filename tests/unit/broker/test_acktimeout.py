"""A delivery that is kept too long costs its channel; one that is acked in time, or not yet too old, does not."""

from __future__ import annotations

import pytest

from penstock.amqp.method import BasicDeliver, ChannelClose
from penstock.broker.acktimeout import AckTimeout
from tests.unit.fakes import FakePeer, House

TIMEOUT_S = 30


@pytest.fixture
def house() -> House:
    house = House()
    house.broker.ack_timeout = AckTimeout(house.scheduler, TIMEOUT_S * 1000)
    return house


def consumer(house: House) -> FakePeer:
    house.queue("q")
    peer = house.peer()
    peer.open(1)
    peer.consume(1)
    peer.said()
    return peer


def test_a_delivery_kept_too_long_closes_the_channel_and_goes_back(house: House) -> None:
    peer = consumer(house)
    peer.publish(1, "q", b"x")
    assert peer.bodies() == [b"x"]
    house.clock.advance(TIMEOUT_S - 1)
    assert peer.methods() == []
    house.clock.advance(TIMEOUT_S)
    (close,) = peer.methods()
    assert isinstance(close, ChannelClose)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 0, 0)
    assert close.reply_text == (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 30000 ms. "
        "This timeout value can be configured, see consumers doc guide to learn more"
    )
    assert house.vhost.queues["q"].count() == 1


def test_it_is_noticed_no_later_than_a_tenth_after_the_timeout(house: House) -> None:
    peer = consumer(house)
    peer.publish(1, "q", b"x")
    peer.said()
    house.clock.advance(TIMEOUT_S * 1.2)
    assert [type(method) for method in peer.methods()] == [ChannelClose]


def test_a_consumer_that_acks_in_time_stays(house: House) -> None:
    peer = consumer(house)
    for tag in range(1, 20):
        peer.publish(1, "q", b"x")
        assert [type(method) for method in peer.methods()] == [BasicDeliver]
        house.clock.advance(TIMEOUT_S * 0.8)
        peer.ack(1, tag)
    assert peer.methods() == []


def test_an_old_delivery_is_found_behind_many_acked_ones(house: House) -> None:
    peer = consumer(house)
    peer.publish(1, "q", b"kept")
    peer.said()
    for tag in range(2, 30):
        peer.publish(1, "q", b"x")
        assert [type(method) for method in peer.methods()] == [BasicDeliver]
        peer.ack(1, tag)
        house.clock.advance(1)
    house.clock.advance(TIMEOUT_S / 5)
    assert [type(method) for method in peer.methods()] == [ChannelClose]


def test_a_consumer_without_acks_has_no_timeout(house: House) -> None:
    house.queue("q")
    peer = house.peer()
    peer.open(1)
    peer.consume(1, no_ack=True)
    peer.publish(1, "q", b"x")
    peer.said()
    house.clock.advance(TIMEOUT_S * 5)
    assert peer.methods() == []


def test_a_closed_channel_is_not_looked_at(house: House) -> None:
    peer = consumer(house)
    assert len(house.broker.ack_timeout.channels) == 1
    peer.tell(1, ChannelClose(200, "bye"))
    peer.said()
    assert not house.broker.ack_timeout.channels


def test_without_a_timeout_there_is_no_timer() -> None:
    house = House()
    peer = consumer(house)
    peer.publish(1, "q", b"x")
    peer.said()
    house.clock.advance(1e6)
    assert peer.methods() == []

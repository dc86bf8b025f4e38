"""Tally: counters that RabbitMQ has, under RabbitMQ's names, exact in every way a message can go."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.amqp.method import BasicGet, ChannelClose, ConfirmSelect, QueueDelete, TxCommit, TxRollback, TxSelect
from penstock.broker.channel import Channel
from penstock.broker.queue import Queue
from penstock.broker.snapshot.totals import AT_ONCE_MAX, Totals
from penstock.broker.tally import COUNTERS, channel_counts, queue_counts
from tests.unit.fakes import FakePeer, House


class Office:
    """One client on one queue."""

    def __init__(self, **options: object) -> None:
        self.house = House()
        self.peer: FakePeer = self.house.peer()
        self.channel: Channel = self.peer.open()
        self.queue: Queue = self.house.queue("q", **options)

    def run(self) -> None:
        self.peer.said()

    def of_channel(self) -> dict[str, int]:
        return _some(channel_counts(self.channel))

    def of_queue(self) -> dict[str, int]:
        return _some(queue_counts(self.queue))

    def of_broker(self) -> dict[str, int]:
        return _some(Totals(self.house.broker).fresh().counts)


def _some(counts: Sequence[int]) -> dict[str, int]:
    """Those that are not 0."""
    return {name: count for name, count in zip(COUNTERS, counts, strict=True) if count}


def test_nothing_is_counted_where_nothing_happens() -> None:
    office = Office()
    assert office.of_channel() == office.of_queue() == office.of_broker() == {}


def test_published_and_delivered_and_acked_are_counted_for_channel_queue_and_broker() -> None:
    office = Office()
    office.peer.publish(1, "q", b"a", b"b", b"c")
    office.peer.consume(1)
    office.run()
    expected = {"publish": 3, "deliver": 3, "deliver_get": 3}
    assert office.of_channel() == office.of_queue() == office.of_broker() == expected
    office.peer.ack(1, 2, multiple=True)
    office.run()
    assert office.of_channel() == office.of_queue() == office.of_broker() == expected | {"ack": 2}


def test_what_is_given_back_is_no_ack_and_its_next_delivery_is_a_redelivery() -> None:
    office = Office()
    office.peer.publish(1, "q", b"a", b"b")
    office.peer.consume(1)
    office.run()
    office.peer.nack(1, 1)
    office.peer.nack(1, 2, requeue=False)
    office.run()
    expected = {"publish": 2, "deliver": 3, "deliver_get": 3, "redeliver": 1}
    assert office.of_channel() == office.of_queue() == expected


def test_a_consumer_without_acks_counts_apart() -> None:
    office = Office()
    office.peer.consume(1, no_ack=True)
    office.peer.publish(1, "q", b"a", b"b")
    office.run()
    expected = {"publish": 2, "deliver_no_ack": 2, "deliver_get": 2}
    assert office.of_channel() == office.of_queue() == expected


def test_a_get_counts_as_one_with_ack_without_or_as_empty() -> None:
    office = Office()
    office.peer.publish(1, "q", b"a", b"b")
    for no_ack in (False, True, True):
        office.peer.ask(1, BasicGet("q", no_ack))
    expected = {"publish": 2, "get": 1, "get_no_ack": 1, "get_empty": 1, "deliver_get": 2}
    assert office.of_channel() == office.of_queue() == expected
    office.peer.ack(1, 1)
    office.run()
    assert office.of_channel() == office.of_queue() == expected | {"ack": 1}


def test_what_leads_nowhere_is_returned_or_dropped() -> None:
    office = Office()
    office.peer.publish(1, "nowhere", b"a", b"b", mandatory=True)
    office.peer.publish(1, "nowhere", b"c", b"d", b"e")
    office.peer.publish_mixed(1, ("nowhere", b"f"), ("q", b"g"))
    office.run()
    expected = {"publish": 7, "return_unroutable": 2, "drop_unroutable": 4}
    assert office.of_channel() == office.of_broker() == expected
    assert office.of_queue() == {"publish": 1}


def test_confirms_are_counted_when_they_are_due_and_nacks_are_none() -> None:
    office = Office(arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    office.peer.ask(1, ConfirmSelect())
    office.peer.publish_singly(1, "q", 5)
    office.run()
    assert office.of_channel() == {"publish": 5, "confirm": 2}
    confirms = office.channel.confirms
    assert confirms is not None
    assert (confirms.confirmed(), confirms.rejected, confirms.unconfirmed()) == (2, 3, 0)


def test_what_is_in_a_transaction_counts_when_it_is_committed() -> None:
    office = Office()
    office.peer.publish(1, "q", b"a", b"b")
    office.peer.consume(1)
    office.run()
    office.peer.ask(1, TxSelect())
    office.peer.publish(1, "q", b"c")
    office.peer.ack(1, 1)
    office.run()
    assert office.of_channel() == {"publish": 2, "deliver": 2, "deliver_get": 2}
    office.peer.ask(1, TxRollback())
    assert office.of_channel() == {"publish": 2, "deliver": 2, "deliver_get": 2}
    office.peer.publish(1, "q", b"d")
    office.peer.ack(1, 1)
    office.peer.ask(1, TxCommit())
    assert office.of_channel() == {"publish": 3, "deliver": 3, "deliver_get": 3, "ack": 1}


def test_an_exchange_counts_what_came_in_and_how_many_queues_got_it() -> None:
    house = House()
    peer = house.peer()
    peer.open()
    topic, default = house.vhost.exchanges["amq.topic"], house.vhost.exchanges[""]
    for name in ("a", "b"):
        house.vhost.bind(topic, house.queue(name), "x.*", {})
    peer.publish(1, "x.y", b"1", b"2", exchange="amq.topic")
    peer.publish_mixed(1, ("x.z", b"3"), ("none", b"4"), ("x.y", b"5"), exchange="amq.topic")
    peer.publish(1, "a", b"6", properties=b"\x01\x00\x041000")  # an expiration: examined by itself
    peer.said()
    assert (topic.publish_in, topic.publish_out) == (5, 8)
    assert (default.publish_in, default.publish_out) == (1, 1)


def test_totals_keep_what_channels_and_queues_had_counted_that_are_gone() -> None:
    office = Office()
    office.peer.publish(1, "q", b"a", b"b")
    office.peer.consume(1)
    office.run()
    office.peer.ack(1, 1)
    office.peer.ask(1, ChannelClose(200, "bye", 0, 0))
    expected = {"publish": 2, "deliver": 2, "deliver_get": 2, "ack": 1}
    assert office.of_broker() == expected
    office.peer.open(2)
    office.peer.ask(2, QueueDelete("q"))
    assert office.of_broker() == expected
    past = office.house.broker.past
    assert (past.channels, past.queues_declared, past.queues_created, past.queues_deleted) == (1, 1, 1, 1)


def test_a_vhost_that_is_deleted_takes_nothing_from_the_total() -> None:
    house = House()
    broker = house.broker
    other = broker.add_vhost("other")
    peer = house.peer()
    peer.vhost = other
    peer.open()
    peer.publish(1, "nowhere", b"a")
    peer.ask(1, ChannelClose(200, "bye", 0, 0))
    assert other.past.counts == broker.past.counts
    broker.delete_vhost("other")
    assert _some(Totals(broker).fresh().counts) == {"publish": 1, "drop_unroutable": 1}


def test_totals_of_a_large_broker_are_counted_in_slices_and_are_those_of_the_last_whole_round() -> None:
    house = House()
    peer = house.peer()
    peer.open()
    for at in range(AT_ONCE_MAX + 1):
        house.vhost.add_queue(f"q{at}", False, False, {})
    totals = Totals(house.broker)
    assert totals.fresh().ready == 0
    peer.publish(1, "q0", b"a")
    peer.publish(1, "q1999", b"b")
    peer.said()
    assert not totals.step(1000)
    assert totals.fresh().ready == 0, "no round is through yet"
    assert not totals.step(1000)
    assert totals.step(1000)
    assert (totals.fresh().ready, _some(totals.all.counts)) == (2, {"publish": 2})


def test_the_broker_s_own_queues_are_in_no_total() -> None:
    office = Office()
    own = office.house.queue("own")
    office.peer.publish(1, "q", b"a")
    office.peer.publish(1, "own", b"b", b"c")
    office.run()
    office.house.vhost.protect("own")
    totals = Totals(office.house.broker)
    assert (totals.fresh().ready, totals.of_vhost("/").ready, own.count()) == (1, 1, 2)


def test_a_total_never_falls_though_a_channel_ended_during_the_round() -> None:
    office = Office()
    office.peer.publish(1, "q", b"a")
    office.run()
    totals = Totals(office.house.broker)
    while not totals.step(1):
        pass
    assert not totals.step(1)  # a new round has read what was counted before; its one queue is counted
    office.peer.ask(1, ChannelClose(200, "bye", 0, 0))
    while not totals.step(1):
        pass
    assert _some(totals.all.counts) == {"publish": 1}


@pytest.mark.parametrize("count", [1, 3, 7])
def test_however_consumers_share_a_queue_the_counts_add_up(count: int) -> None:
    office = Office()
    peers = [office.house.peer(f"peer {at}") for at in range(count)]
    channels = [peer.open() for peer in peers]
    for peer in peers:
        peer.consume(1, no_ack=peer is peers[0])
    office.house.run_until_idle()
    office.peer.publish(1, "q", *(b"%d" % at for at in range(20)))
    office.house.run_until_idle()
    rows = [channel_counts(channel) for channel in channels]
    added = tuple(map(sum, zip(*rows, strict=True)))
    assert _some(added) | {"publish": 20} == office.of_queue()

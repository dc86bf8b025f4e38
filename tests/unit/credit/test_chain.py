"""Credit on the real reader, channel and queue, with the queue's mailbox held: the oracles of the whole chain."""

from __future__ import annotations

import pytest

from penstock.amqp.decoder import Publishes
from penstock.amqp.method import BasicAck, BasicGet, BasicGetOk, ConfirmSelect, QueueBind, QueueDelete, QueueDeleteOk
from penstock.broker.casts import Arrival
from penstock.broker.channel import Channel
from penstock.broker.queue import Queue
from penstock.credit import Spec
from tests.unit.fakes import FakePeer, House, take_by_hand


def messages_waiting(queue: Queue) -> int:
    return sum(len(item.messages) for item in queue.mailbox.ordinary if isinstance(item, Arrival))


class Rig:
    def __init__(self, credit: str, credit_bytes: str = "0,0") -> None:
        self.house = House(credit, credit_bytes)
        self.queue = self.house.queue("q")
        self.queue.mailbox.hold()
        self.peer: FakePeer = self.house.peer()
        self.channel: Channel = self.peer.open(1)
        self.reader = self.peer.reader

    def parked(self) -> int:
        return sum(len(item.messages) for item in self.reader.lanes[1].parked if isinstance(item, Publishes))


@pytest.mark.parametrize(
    ("credit", "published", "oracle"),
    [("2,1", 100, 4), ("400,200", 2000, 800), ("0,0", 100, 100), ("200,50", 900, 400)],
)
@pytest.mark.parametrize("batched", [False, True])
def test_a_suspended_queue_finds_exactly_the_oracle_in_its_mailbox(
    credit: str, published: int, oracle: int, batched: bool
) -> None:
    rig = Rig(credit)
    if batched:
        rig.peer.publish(1, "q", *[b"x"] * published)
    else:
        rig.peer.publish_singly(1, "q", published)
    rig.house.run_until_idle()
    assert messages_waiting(rig.queue) == oracle
    assert rig.parked() == published - oracle
    assert bool(rig.reader.blocked_by) == (oracle < published)


def test_the_queue_must_take_600_before_the_reader_sends_again() -> None:
    rig = Rig("400,200")
    rig.peer.publish_singly(1, "q", 2000)
    rig.house.run_until_idle()
    take_by_hand(rig.queue.mailbox, 599)
    rig.house.run_until_idle()
    assert messages_waiting(rig.queue) == 201
    assert rig.reader.blocked_by
    take_by_hand(rig.queue.mailbox, 1)
    assert not rig.reader.blocked_by
    rig.house.run_until_idle()
    assert messages_waiting(rig.queue) > 200
    assert rig.parked() < 1200


def test_released_the_queue_gets_everything_in_order() -> None:
    rig = Rig("2,1")
    bodies = [b"%d" % number for number in range(100)]
    rig.peer.publish(1, "q", *bodies)
    rig.house.run_until_idle()
    rig.queue.mailbox.release()
    rig.house.run_until_idle()
    assert rig.queue.count() == 100
    assert not rig.reader.blocked_by
    assert not rig.channel.blocked_by
    rig.peer.consume(1, no_ack=True)
    assert rig.peer.bodies() == bodies


def test_only_publishes_spend_credit() -> None:
    rig = Rig("2,1")
    for _ in range(50):
        rig.peer.tell(1, ConfirmSelect(nowait=True))
        rig.peer.ack(1, 0, multiple=True)
    rig.house.run_until_idle()
    assert rig.reader.lanes[1].link.credit == 2
    assert not rig.reader.blocked_by
    assert not rig.channel.outgoing


def test_each_destination_queue_costs_one_credit_of_its_own() -> None:
    rig = Rig("10,5")
    other = rig.house.queue("other")
    for name in ("q", "other"):
        rig.peer.tell(1, QueueBind(name, "amq.fanout"))
    rig.peer.publish(1, "", *[b"x"] * 7, exchange="amq.fanout")
    rig.house.run_until_idle()
    assert rig.channel.outgoing[rig.queue].in_flight() == 7
    assert rig.channel.outgoing[other].in_flight() == 0
    assert rig.channel.outgoing[other].credit == 8


def test_a_deleted_queue_stops_blocking_its_publishers() -> None:
    rig = Rig("2,1")
    rig.peer.publish_singly(1, "q", 100)
    rig.house.run_until_idle()
    assert rig.channel.blocked_by
    rig.queue.delete()
    rig.house.run_until_idle()
    assert not rig.channel.blocked_by
    assert not rig.reader.blocked_by
    assert rig.parked() == 0
    assert not rig.house.broker.channel_queue.links


def test_a_deleted_queue_counts_as_confirmed() -> None:
    rig = Rig("2,1")
    rig.peer.tell(1, ConfirmSelect(nowait=True))
    rig.peer.publish_singly(1, "q", 10)
    assert rig.peer.methods() == []
    rig.queue.delete()
    acked: set[int] = set()
    for method in rig.peer.methods():
        assert isinstance(method, BasicAck)
        acked |= set(range(1 if method.multiple else method.delivery_tag, method.delivery_tag + 1))
    assert acked == set(range(1, 11))
    assert rig.channel.confirms is not None
    assert rig.channel.confirms.unconfirmed() == 0


def test_deletion_by_another_client_is_answered_although_the_publisher_is_blocked() -> None:
    rig = Rig("2,1")
    rig.peer.publish_singly(1, "q", 100)
    other = rig.house.peer("other")
    other.open(1)
    other.tell(1, QueueDelete("q"))
    rig.house.run_until_idle()
    rig.queue.mailbox.release()
    assert other.methods() == [QueueDeleteOk(4)]
    assert not rig.reader.blocked_by


def test_a_consumer_side_of_a_blocked_channel_goes_on() -> None:
    rig = Rig("2,1")
    rig.house.queue("side")
    rig.peer.publish(1, "side", b"for later")
    rig.peer.publish_singly(1, "q", 100)
    rig.house.run_until_idle()
    assert rig.channel.blocked_by
    rig.peer.tell(1, BasicGet("side"))
    (said,) = rig.peer.said()
    assert isinstance(said.method, BasicGetOk)
    assert said.body == b"for later"


def test_settings_changed_while_blocked_let_more_through_at_once() -> None:
    rig = Rig("2,1")
    rig.peer.publish_singly(1, "q", 100)
    rig.house.run_until_idle()
    rig.house.broker.channel_queue.change(Spec(10, 5))
    rig.house.run_until_idle()
    assert 4 < messages_waiting(rig.queue) < 100
    for hop in (rig.house.broker.channel_queue, rig.house.broker.reader_channel):
        hop.change(Spec(0, 0))
    rig.house.run_until_idle()
    assert messages_waiting(rig.queue) == 100
    assert not rig.reader.blocked_by


def test_large_messages_are_held_back_by_their_bytes() -> None:
    rig = Rig("400,200", "100000,50000")
    rig.peer.publish(1, "q", *[b"x" * 30_000] * 50)
    rig.house.run_until_idle()
    waiting = sum(item.bytes for item in rig.queue.mailbox.ordinary if isinstance(item, Arrival))
    assert 200_000 <= waiting <= 300_000
    assert rig.reader.blocked_by
    rig.queue.mailbox.release()
    rig.house.run_until_idle()
    assert rig.queue.count() == 50
    assert not rig.reader.blocked_by


def test_one_message_larger_than_all_byte_credit_still_passes() -> None:
    rig = Rig("400,200", "1000,500")
    rig.queue.mailbox.release()
    for _ in range(3):
        rig.peer.publish(1, "q", b"x" * 50_000)
        rig.house.run_until_idle()
    assert rig.queue.count() == 3
    assert not rig.reader.blocked_by


def test_the_block_log_names_reader_and_channel_and_what_they_waited_for() -> None:
    rig = Rig("2,1")
    rig.peer.publish_singly(1, "q", 100)
    rig.house.run_until_idle()
    rig.house.clock.advance(2)
    rig.queue.delete()
    rig.house.run_until_idle()
    long = {
        (block.stage, block.cause)
        for block in rig.house.broker.activity
        if block.ended_ns - block.started_ns == 2_000_000_000
    }
    assert long == {("channel peer (1)", "queue q"), ("connection peer", "channel peer (1)")}
    assert rig.channel.in_flow()
    rig.house.clock.advance(1)
    assert not rig.channel.in_flow()

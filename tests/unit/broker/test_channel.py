"""Channel: publishing with confirms and returns, delivery tags, faults that close it, and its end."""

from __future__ import annotations

import pytest

from penstock.amqp import content
from penstock.amqp.decoder import Oversize
from penstock.amqp.method import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicQos,
    BasicRecover,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
)
from tests.unit.fakes import FakePeer, House


class Office:
    def __init__(self) -> None:
        self.house = House()
        self.queue = self.house.queue("q")
        self.peer: FakePeer = self.house.peer()
        self.channel = self.peer.open(1)

    def closed(self) -> tuple[int, int, int]:
        """Code, class and method of the channel.close that is the only thing said."""
        (reply,) = self.peer.methods()
        assert isinstance(reply, ChannelClose), reply
        return reply.reply_code, reply.class_id, reply.method_id


@pytest.fixture
def office() -> Office:
    return Office()


# Confirms and returns.


def test_publishes_are_confirmed_when_the_queue_has_them_all_in_one_frame(office: Office) -> None:
    assert office.peer.ask(1, ConfirmSelect()) == [ConfirmSelectOk()]
    office.peer.publish(1, "q", *[b"x"] * 50)
    assert office.peer.methods() == [BasicAck(50, True)]
    office.peer.publish(1, "q", b"x")
    assert office.peer.methods() == [BasicAck(51, False)]


def test_without_confirm_select_nothing_is_confirmed(office: Office) -> None:
    office.peer.publish(1, "q", b"x")
    assert office.peer.methods() == []


def test_a_publish_to_several_queues_is_confirmed_once_when_all_have_it(office: Office) -> None:
    slow = office.house.queue("slow")
    slow.mailbox.hold()
    for name in ("q", "slow"):
        office.peer.ask(1, QueueBind(name, "amq.fanout"))
    office.peer.ask(1, ConfirmSelect())
    office.peer.publish(1, "", b"1", b"2", exchange="amq.fanout")
    assert office.peer.methods() == []
    slow.mailbox.release()
    assert office.peer.methods() == [BasicAck(2, True)]


def test_confirms_of_a_fast_queue_do_not_wait_for_a_slow_one(office: Office) -> None:
    slow = office.house.queue("slow")
    slow.mailbox.hold()
    office.peer.ask(1, ConfirmSelect())
    office.peer.publish_mixed(1, ("slow", b"1"), ("q", b"2"), ("q", b"3"), ("slow", b"4"), ("q", b"5"))
    assert office.peer.methods() == [BasicAck(2), BasicAck(3), BasicAck(5)]
    slow.mailbox.release()
    assert office.peer.methods() == [BasicAck(4, True)]


def test_an_unroutable_message_is_confirmed_at_once(office: Office) -> None:
    office.peer.ask(1, ConfirmSelect())
    office.peer.publish(1, "nowhere", b"x")
    assert office.peer.methods() == [BasicAck(1, False)]


def test_an_unroutable_mandatory_message_is_returned_and_then_confirmed(office: Office) -> None:
    office.peer.ask(1, ConfirmSelect())
    office.peer.publish(1, "nowhere", b"first", b"second", mandatory=True)
    said = office.peer.said()
    assert [one.method for one in said] == [
        BasicReturn(312, "NO_ROUTE", "", "nowhere"),
        BasicReturn(312, "NO_ROUTE", "", "nowhere"),
        BasicAck(2, True),
    ]
    assert [one.body for one in said] == [b"first", b"second", None]


def test_a_routable_mandatory_message_is_not_returned(office: Office) -> None:
    office.peer.publish(1, "q", b"x", mandatory=True)
    assert office.peer.methods() == []
    assert office.queue.count() == 1


def test_in_a_mixed_batch_only_the_unroutable_ones_are_returned(office: Office) -> None:
    office.peer.publish(1, "nowhere", b"lost", mandatory=True)
    office.peer.publish(1, "q", b"found", mandatory=True)
    assert [one.body for one in office.peer.said()] == [b"lost"]
    assert office.queue.count() == 1


def test_a_batch_that_a_turn_has_no_time_for_is_taken_in_parts_in_order_and_lets_others_in_between() -> None:
    house = House(stage_budget=3)
    house.scheduler.batch_max = 3
    house.queue("q")
    heavy, other = house.peer("heavy"), house.peer("other")
    heavy.open(1)
    other.open(1)
    assert heavy.ask(1, ConfirmSelect()) == [ConfirmSelectOk()]
    heavy.publish(1, "q", *[b"%d" % at for at in range(10)])
    heavy.publish(1, "q", b"10")
    other.publish(1, "q", b"between")
    acks = heavy.methods()
    assert isinstance(acks[-1], BasicAck)
    assert acks[-1].delivery_tag == 11
    other.consume(1, no_ack=True)
    bodies = other.bodies()
    assert bodies.index(b"between") == 3
    assert [body for body in bodies if body != b"between"] == [b"%d" % at for at in range(11)]
    assert not heavy.reader.blocked_by


def test_publishing_to_an_exchange_that_is_not_there_closes_the_channel_after_what_was_right(office: Office) -> None:
    office.peer.publish(1, "q", b"right")
    office.peer.publish(1, "q", b"wrong", exchange="nowhere")
    office.peer.publish(1, "q", b"too late")
    assert office.closed() == (404, 60, 40)
    assert office.queue.count() == 1


def test_publishing_to_an_internal_exchange_is_403(office: Office) -> None:
    office.peer.ask(1, ExchangeDeclare("inside", internal=True))
    office.peer.publish(1, "", b"x", exchange="inside")
    assert office.closed() == (403, 60, 40)


def test_a_body_above_the_limit_closes_the_channel_with_406(office: Office) -> None:
    office.peer.reader.receive(Oversize(1, 1000, 10))
    assert office.closed() == (406, 60, 40)


# Tags.


@pytest.mark.parametrize(("tag", "multiple"), [(1, False), (99, False), (99, True), (0, False)])
def test_an_unknown_tag_closes_the_channel_with_406(office: Office, tag: int, multiple: bool) -> None:
    office.peer.ack(1, tag, multiple=multiple)
    assert office.closed() == (406, 60, 80)
    assert not office.peer.errors


def test_a_wrong_tag_in_nack_and_reject_names_the_method(office: Office) -> None:
    office.peer.nack(1, 7)
    assert office.closed() == (406, 60, 120)


def test_a_tag_acked_twice_is_unknown_and_what_was_right_before_stays_acked(office: Office) -> None:
    office.peer.publish(1, "q", b"1", b"2", b"3")
    for _ in range(3):
        office.peer.ask(1, BasicGet("q"))
    office.peer.ack(1, 1, 2, 2)
    assert office.closed() == (406, 60, 80)
    assert office.queue.count() == 1


def test_tag_zero_with_multiple_means_all_even_if_there_is_none(office: Office) -> None:
    office.peer.ack(1, 0, multiple=True)
    assert office.peer.methods() == []
    office.peer.publish(1, "q", b"1", b"2")
    office.peer.consume(1)
    office.peer.said()
    office.peer.ack(1, 0, multiple=True)
    office.house.run_until_idle()
    assert not office.queue.unacked
    assert not office.channel.deliveries.unacked


def test_multiple_takes_all_up_to_the_tag_of_all_consumers(office: Office) -> None:
    office.house.queue("other")
    office.peer.consume(1, "q", "a")
    office.peer.consume(1, "other", "b")
    for number in range(4):
        office.peer.publish(1, "q" if number % 2 else "other", b"%d" % number)
        office.house.run_until_idle()
    office.peer.said()
    office.peer.ack(1, 2)
    office.peer.ack(1, 3, multiple=True)
    office.house.run_until_idle()
    assert list(office.channel.deliveries.unacked) == [4]


# The wire.


def test_deliveries_on_another_channel_number_and_smaller_frames_are_refitted(office: Office) -> None:
    small = office.house.peer("small", frame_max=4096)
    small.open(9)
    small.consume(9, "q", "c")
    body = bytes(range(256)) * 64
    office.peer.publish(1, "q", body)
    said = [one for one in small.said() if isinstance(one.method, BasicDeliver)]
    assert [one.body for one in said] == [body]
    assert content.largest_frame(said[0].wire) <= 4096


def test_get_and_return_refit_too(office: Office) -> None:
    small = office.house.peer("small", frame_max=4096)
    small.open(9)
    office.peer.publish(1, "q", b"y" * 10_000)
    small.tell(9, BasicGet("q"))
    (said,) = small.said()
    assert isinstance(said.method, BasicGetOk)
    assert said.body == b"y" * 10_000
    assert content.largest_frame(said.wire) <= 4096


def test_a_delivery_names_exchange_key_and_tag(office: Office) -> None:
    office.peer.ask(1, QueueBind("q", "amq.topic", "a.#"))
    office.peer.consume(1, "q", "tag")
    office.peer.said()
    office.peer.publish_mixed(1, ("a.b", b"1"), ("a", b"2"), ("a.b.c", b"3"), exchange="amq.topic")
    assert office.peer.methods() == [
        BasicDeliver("tag", 1, False, "amq.topic", "a.b"),
        BasicDeliver("tag", 2, False, "amq.topic", "a"),
        BasicDeliver("tag", 3, False, "amq.topic", "a.b.c"),
    ]


# Wrong use that the connection pays for.


@pytest.mark.parametrize(
    ("method", "code"),
    [
        (BasicQos(prefetch_size=10), 540),
        (BasicRecover(False), 540),
        (ChannelOpen(), 504),
        (QueueDeclareOk("q"), 503),
    ],
)
def test_what_a_connection_is_closed_for_has_its_code_and_method(office: Office, method: Method, code: int) -> None:
    office.peer.tell(1, method)
    office.house.run_until_idle()
    (error,) = office.peer.errors
    assert (error.code, error.class_id, error.method_id) == (code, method.ID >> 16, method.ID & 0xFFFF)


def test_a_consumer_tag_used_twice_is_530(office: Office) -> None:
    office.peer.consume(1, "q", "same")
    office.peer.consume(1, "q", "same")
    office.house.run_until_idle()
    (error,) = office.peer.errors
    assert error.code == 530


def test_an_empty_consumer_tag_gets_a_name_of_its_own(office: Office) -> None:
    office.peer.tell(1, BasicConsume("q"))
    office.peer.tell(1, BasicConsume("q"))
    tags = {getattr(method, "consumer_tag", "") for method in office.peer.methods()}
    assert len(tags) == 2
    assert all(tag.startswith("amq.ctag-") for tag in tags)


# The end.


def test_a_channel_in_error_ignores_everything_until_close_ok_and_then_its_number_is_free(office: Office) -> None:
    office.peer.ack(1, 99)
    assert office.closed()[0] == 406
    office.peer.publish(1, "q", b"x")
    office.peer.ack(1, 1)
    office.peer.nack(1, 1)
    assert office.peer.ask(1, QueueDeclare("never")) == []
    assert "never" not in office.house.vhost.queues
    assert office.queue.count() == 0
    assert office.peer.ask(1, ChannelCloseOk()) == []
    assert office.peer.open(1) is not office.channel


def test_both_sides_closing_at_once_end_well(office: Office) -> None:
    office.peer.ack(1, 99)
    office.closed()
    assert office.peer.ask(1, ChannelClose(200, "bye")) == [ChannelCloseOk()]
    assert 1 in office.peer.reader.lanes, "it still owes us the answer to our own close"
    assert office.peer.ask(1, ChannelCloseOk()) == []
    office.peer.open(1)


def test_a_channel_in_error_gives_its_messages_back_and_other_channels_live_on(office: Office) -> None:
    office.peer.open(2)
    office.peer.publish(1, "q", b"1", b"2")
    office.peer.consume(1)
    office.peer.said()
    office.peer.ack(1, 99)
    assert office.closed()[0] == 406
    office.peer.consume(2, "q", "other", no_ack=True)
    assert office.peer.bodies() == [b"1", b"2"]


def test_confirms_that_are_due_leave_before_the_close(office: Office) -> None:
    office.peer.ask(1, ConfirmSelect())
    office.peer.publish(1, "nowhere", b"x")
    office.peer.ack(1, 99)
    assert [type(method) for method in office.peer.methods()] == [BasicAck, ChannelClose]


def test_a_closed_channel_leaves_nothing_behind(office: Office) -> None:
    office.peer.consume(1)
    office.peer.publish(1, "q", *[b"x"] * 10)
    office.house.run_until_idle()
    assert ChannelCloseOk() in office.peer.ask(1, ChannelClose(200, "bye"))
    assert not office.house.broker.reader_channel.links
    assert not office.house.broker.channel_queue.links
    assert not office.queue.subscribers.count
    assert not office.queue.incoming
    assert not office.peer.reader.lanes
    assert office.queue.count() == 10


def test_a_get_answered_after_the_channel_has_gone_is_not_lost(office: Office) -> None:
    office.peer.publish(1, "q", b"x")
    office.house.run_until_idle()
    office.queue.mailbox.hold()
    office.peer.tell(1, BasicGet("q"))
    office.house.run_until_idle()
    office.peer.reader.shut_down()
    office.queue.mailbox.release()
    office.house.run_until_idle()
    assert office.queue.count() == 1
    assert not office.queue.unacked


def test_a_subscription_that_waits_when_its_channel_goes_never_begins(office: Office) -> None:
    office.queue.mailbox.hold()
    office.peer.consume(1)
    office.house.run_until_idle()
    office.peer.reader.shut_down()
    office.queue.mailbox.release()
    office.house.run_until_idle()
    assert not office.queue.subscribers.count

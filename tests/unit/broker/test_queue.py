"""Queue, through real channels: order, requeue, round robin, prefetch, purge, delete, and calls to what is gone."""

from __future__ import annotations

import pytest

from penstock.amqp.method import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicRecoverOk,
    ChannelClose,
    ChannelFlow,
    ChannelFlowOk,
    ConfirmSelect,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    encode_method,
)
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import Table
from penstock.broker.queue import Queue
from tests.unit.fakes import FakePeer, House, Said, make_wire, publish_method


class Shop:
    """A queue `q`, and a publisher on channel 1 of its own connection."""

    def __init__(self) -> None:
        self.house = House()
        self.queue: Queue = self.house.queue("q")
        self.publisher: FakePeer = self.house.peer("publisher")
        self.publisher.open(1)
        self.peer: FakePeer = self.house.peer("consumer")
        self.peer.open(1)
        self.published = 0

    def publish(self, count: int) -> None:
        """Bodies are numbers, from 0 on."""
        self.publisher.publish(1, "q", *(b"%d" % (self.published + at) for at in range(count)))
        self.published += count
        self.house.run_until_idle()

    def qos(self, count: int, whole_channel: bool = False, number: int = 1) -> None:
        self.peer.ask(number, BasicQos(0, count, whole_channel))

    def subscribe(self, *tags: str, number: int = 1, **options: bool) -> None:
        for tag in tags:
            self.peer.consume(number, "q", tag, **options)
        replies = [said.method for said in self.peer.said() if not isinstance(said.method, BasicDeliver)]
        assert replies == [BasicConsumeOk(tag) for tag in tags]

    def shares(self) -> dict[str, list[int]]:
        shares: dict[str, list[int]] = {}
        for tag, body in self.peer.deliveries():
            shares.setdefault(tag, []).append(int(body))
        return shares

    def numbers(self) -> list[int]:
        return [int(body) for body in self.peer.bodies()]

    def refused(self, method: Method, number: int = 1) -> tuple[int, str]:
        (reply,) = self.peer.ask(number, method)
        assert isinstance(reply, ChannelClose)
        return reply.reply_code, reply.reply_text


@pytest.fixture
def shop() -> Shop:
    return Shop()


def redelivered(said: list[Said]) -> list[tuple[bytes | None, bool]]:
    return [(one.body, one.method.redelivered) for one in said if isinstance(one.method, (BasicDeliver, BasicGetOk))]


# Order.


def test_messages_come_in_the_order_they_were_published(shop: Shop) -> None:
    shop.publish(500)
    shop.peer.consume(1, "q", no_ack=True)
    shop.publish(500)
    assert shop.numbers() == list(range(1000))
    assert shop.queue.count() == 0


def test_delivery_tags_count_from_one_per_channel(shop: Shop) -> None:
    shop.peer.open(2)
    shop.publish(4)
    shop.peer.consume(1, "q", "a")
    shop.peer.consume(2, "q", "b")
    tags: dict[int, list[int]] = {}
    for said in shop.peer.said():
        if isinstance(said.method, BasicDeliver):
            tags.setdefault(said.channel, []).append(said.method.delivery_tag)
    assert all(found == list(range(1, len(found) + 1)) for found in tags.values())
    assert sum(map(len, tags.values())) == 4


def test_a_requeued_message_goes_back_to_its_original_position(shop: Shop) -> None:
    shop.qos(3)
    shop.publish(6)
    shop.subscribe("c")
    shop.peer.nack(1, 2)
    assert redelivered(shop.peer.said()) == [(b"1", True)]
    shop.peer.nack(1, 0, multiple=True)
    assert shop.numbers() == [0, 1, 2]


def test_messages_given_back_out_of_order_come_again_in_order_and_before_the_rest(shop: Shop) -> None:
    shop.publish(6)
    for _ in range(4):
        shop.peer.tell(1, BasicGet("q"))
    shop.peer.said()
    for tag in (3, 1, 4, 2):
        shop.peer.nack(1, tag)
    shop.house.run_until_idle()
    assert shop.queue.count() == 6
    shop.peer.consume(1, "q", no_ack=True)
    assert redelivered(shop.peer.said()) == [
        *[(b"%d" % number, True) for number in range(4)],
        *[(b"%d" % number, False) for number in (4, 5)],
    ]


def test_a_closed_channel_gives_back_all_it_had_in_place(shop: Shop) -> None:
    shop.peer.open(2)
    shop.publish(6)
    shop.peer.consume(2, "q", "going")
    shop.house.run_until_idle()
    shop.peer.tell(2, BasicGet("q"))
    assert shop.queue.count() == 0
    shop.peer.said()
    shop.peer.ack(2, 3)
    shop.peer.tell(2, ChannelClose(200, "bye"))
    shop.house.run_until_idle()
    assert shop.queue.count() == 5
    shop.peer.said()
    shop.peer.consume(1, "q", "staying", no_ack=True)
    assert redelivered(shop.peer.said()) == [(b"%d" % number, True) for number in (0, 1, 3, 4, 5)]
    assert not shop.queue.unacked


def test_rejected_without_requeue_is_gone(shop: Shop) -> None:
    shop.publish(2)
    shop.subscribe("c")
    shop.peer.nack(1, 1, requeue=False)
    shop.house.run_until_idle()
    assert list(shop.queue.unacked) == [1]
    assert shop.numbers() == []


def test_recover_gives_everything_unacked_again(shop: Shop) -> None:
    shop.publish(3)
    shop.subscribe("c")
    shop.peer.ack(1, 2)
    shop.peer.tell(1, BasicRecover(True))
    said = shop.peer.said()
    assert isinstance(said[0].method, BasicRecoverOk)
    assert redelivered(said) == [(b"0", True), (b"2", True)]


# Round robin and prefetch.


def test_equal_consumers_take_turns(shop: Shop) -> None:
    shop.subscribe("a", "b", "c", no_ack=True)
    shop.publish(9)
    assert shop.shares() == {"a": [0, 3, 6], "b": [1, 4, 7], "c": [2, 5, 8]}


def test_turns_go_on_where_they_ended(shop: Shop) -> None:
    shop.subscribe("a", "b", "c", no_ack=True)
    order = []
    for _ in range(7):
        shop.publish(1)
        order += list(shop.shares())
    assert order == ["a", "b", "c", "a", "b", "c", "a"]


def test_turns_go_on_in_order_when_a_consumer_leaves(shop: Shop) -> None:
    shop.subscribe("a", "b", "c", no_ack=True)
    shop.publish(2)
    shop.peer.ask(1, BasicCancel("a"))
    order = []
    for _ in range(4):
        shop.publish(1)
        order += list(shop.shares())
    assert order == ["c", "b", "c", "b"]


def test_consumers_with_other_prefetch_take_turns_while_they_have_room(shop: Shop) -> None:
    for tag, prefetch in (("one", 1), ("three", 3), ("five", 5)):
        shop.qos(prefetch)
        shop.subscribe(tag)
    shop.publish(20)
    assert shop.shares() == {"one": [0], "three": [1, 3, 5], "five": [2, 4, 6, 7, 8]}
    assert shop.queue.count() == 11


def test_consumers_of_other_channels_and_connections_take_turns_too(shop: Shop) -> None:
    shop.peer.open(2)
    shop.subscribe("a", no_ack=True)
    shop.subscribe("b", number=2, no_ack=True)
    other = shop.house.peer("other")
    other.open(1)
    other.consume(1, "q", "c", no_ack=True)
    other.said()
    shop.publish(6)
    assert shop.shares() == {"a": [0, 3], "b": [1, 4]}
    assert other.bodies() == [b"2", b"5"]


def test_prefetch_bounds_each_consumer_and_acks_make_room(shop: Shop) -> None:
    shop.qos(2)
    shop.subscribe("a", "b")
    shop.publish(10)
    assert shop.shares() == {"a": [0, 2], "b": [1, 3]}
    shop.peer.ack(1, 1)
    assert shop.numbers() == [4]
    shop.peer.ack(1, 0, multiple=True)
    assert sorted(shop.numbers()) == [5, 6, 7, 8]


def test_prefetch_is_for_consumers_still_to_come(shop: Shop) -> None:
    shop.qos(1)
    shop.subscribe("a")
    shop.qos(5)
    shop.publish(10)
    assert shop.shares() == {"a": [0]}


def test_prefetch_zero_is_no_limit_and_no_ack_knows_none(shop: Shop) -> None:
    shop.qos(1)
    shop.subscribe("a", no_ack=True)
    shop.publish(50)
    assert shop.shares() == {"a": list(range(50))}


def test_global_prefetch_bounds_all_consumers_of_a_channel_together(shop: Shop) -> None:
    shop.qos(3, whole_channel=True)
    shop.subscribe("a", "b")
    shop.publish(10)
    assert sum(map(len, shop.shares().values())) == 3
    shop.peer.ack(1, 2)
    assert sum(map(len, shop.shares().values())) == 1


def test_consumers_that_share_a_global_prefetch_take_turns(shop: Shop) -> None:
    shop.qos(4, whole_channel=True)
    shop.subscribe("a", "b")
    shop.publish(10)
    assert {tag: len(numbers) for tag, numbers in shop.shares().items()} == {"a": 2, "b": 2}


def test_a_consumer_with_a_global_prefetch_does_not_spoil_the_turns_of_others(shop: Shop) -> None:
    shop.peer.open(2)
    shop.qos(100, whole_channel=True, number=2)
    shop.subscribe("a", no_ack=True)
    shop.subscribe("b", number=2)
    shop.publish(10)
    assert {tag: len(numbers) for tag, numbers in shop.shares().items()} == {"a": 5, "b": 5}


def test_room_made_by_an_ack_on_one_queue_serves_another_under_global_prefetch(shop: Shop) -> None:
    shop.house.queue("other")
    shop.qos(1, whole_channel=True)
    shop.subscribe("a")
    shop.peer.consume(1, "other", "b")
    shop.publish(1)
    assert shop.shares() == {"a": [0]}
    shop.publisher.publish(1, "other", b"99")
    assert shop.shares() == {}
    shop.peer.ack(1, 1)
    assert shop.shares() == {"b": [99]}


def test_global_prefetch_can_be_raised_while_consuming(shop: Shop) -> None:
    shop.qos(1, whole_channel=True)
    shop.subscribe("a")
    shop.publish(10)
    assert shop.shares() == {"a": [0]}
    shop.peer.tell(1, BasicQos(0, 3, True))
    assert shop.shares() == {"a": [1, 2]}
    shop.peer.tell(1, BasicQos(0, 0, True))
    assert shop.shares() == {"a": list(range(3, 10))}


def test_get_is_not_limited_by_prefetch_and_does_not_count_in_it(shop: Shop) -> None:
    shop.qos(1, whole_channel=True)
    shop.publish(5)
    for _ in range(3):
        (reply,) = shop.peer.ask(1, BasicGet("q"))
        assert isinstance(reply, BasicGetOk)
    shop.peer.consume(1, "q", "a")
    assert shop.shares() == {"a": [3]}
    shop.peer.ack(1, 1)
    assert shop.shares() == {}


def test_get_tells_how_many_are_left_and_when_there_is_nothing(shop: Shop) -> None:
    shop.publish(2)
    assert shop.peer.ask(1, BasicGet("q")) == [BasicGetOk(1, False, "", "q", 1)]
    assert shop.peer.ask(1, BasicGet("q", True)) == [BasicGetOk(2, False, "", "q", 0)]
    assert shop.peer.ask(1, BasicGet("q")) == [BasicGetEmpty()]
    assert len(shop.queue.unacked) == 1


def test_channel_flow_pauses_deliveries_of_that_channel_only(shop: Shop) -> None:
    shop.peer.open(2)
    shop.subscribe("a", no_ack=True)
    shop.subscribe("b", number=2, no_ack=True)
    assert shop.peer.ask(1, ChannelFlow(False)) == [ChannelFlowOk(False)]
    shop.publish(3)
    assert shop.shares() == {"b": [0, 1, 2]}
    shop.peer.ask(2, ChannelFlow(False))
    shop.publish(2)
    assert shop.shares() == {}
    shop.peer.tell(1, ChannelFlow(True))
    assert shop.shares() == {"a": [3, 4]}


def test_a_cancelled_consumer_gets_no_more_but_keeps_what_it_has(shop: Shop) -> None:
    shop.publish(2)
    shop.subscribe("c")
    assert shop.peer.ask(1, BasicCancel("c")) == [BasicCancelOk("c")]
    shop.publish(2)
    assert shop.shares() == {}
    assert len(shop.queue.unacked) == 2
    shop.peer.ack(1, 2, multiple=True)
    shop.house.run_until_idle()
    assert not shop.queue.unacked
    assert shop.queue.count() == 2


def test_a_full_outbox_gets_nothing_until_it_is_emptied(shop: Shop) -> None:
    shop.subscribe("c", no_ack=True)
    shop.peer.outbox.socket_full = True
    shop.publish(5)
    assert shop.shares() == {}
    shop.peer.outbox.socket_full = False
    shop.peer.outbox.feed_starving()
    assert shop.shares() == {"c": [0, 1, 2, 3, 4]}


def test_a_consumer_whose_socket_is_full_does_not_hold_up_the_others(shop: Shop) -> None:
    other = shop.house.peer("slow")
    other.open(1)
    other.consume(1, "q", "slow", no_ack=True)
    other.said()
    shop.subscribe("c", no_ack=True)
    other.outbox.socket_full = True
    shop.publish(6)
    assert shop.shares() == {"c": [0, 1, 2, 3, 4, 5]}
    assert other.bodies() == []


def test_large_messages_are_gathered_up_to_a_bound_per_turn(shop: Shop) -> None:
    body = b"x" * 100_000
    shop.queue.shelves.append([(publish_method(1, "q"), make_wire(body))] * 100, 100 * len(make_wire(body)), None)
    shop.peer.consume(1, "q", no_ack=True)
    seen = 0
    while shop.house.awake:
        shop.house.turn()
        size = sum(map(len, shop.peer.frames))
        assert size < 2_000_000
        seen += size
        shop.peer.frames.clear()
    assert seen > 100 * len(body)
    assert shop.queue.shelves.front().ready_bytes == 0


# Exclusive consumers.


def test_an_exclusive_consumer_is_alone(shop: Shop) -> None:
    shop.peer.open(2)
    shop.subscribe("a", exclusive=True)
    code, text = shop.refused(BasicConsume("q", "b"), number=2)
    assert (code, text) == (403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use")
    shop.peer.ask(1, BasicCancel("a"))
    shop.subscribe("c")


def test_an_exclusive_consumer_is_refused_where_another_is(shop: Shop) -> None:
    shop.peer.open(2)
    shop.subscribe("a")
    assert shop.refused(BasicConsume("q", "b", exclusive=True), number=2)[0] == 403
    assert [consumer.tag for consumer in shop.queue.subscribers.all()] == ["a"]


# Purge and delete.


def test_purge_drops_what_is_ready_and_spares_what_is_unacked(shop: Shop) -> None:
    shop.publish(5)
    shop.peer.ask(1, BasicGet("q"))
    shop.peer.ask(1, BasicGet("q"))
    shop.peer.nack(1, 1)
    assert shop.peer.ask(1, QueuePurge("q")) == [QueuePurgeOk(4)]
    assert shop.queue.shelves.front().ready_bytes == 0
    shop.peer.nack(1, 2)
    shop.publish(1)
    shop.peer.consume(1, "q", no_ack=True)
    assert shop.numbers() == [1, 5]


def test_delete_counts_what_was_ready(shop: Shop) -> None:
    shop.publish(3)
    assert shop.peer.ask(1, QueueDelete("q")) == [QueueDeleteOk(3)]
    assert "q" not in shop.house.vhost.queues


def test_if_empty_and_if_unused_spare_the_queue(shop: Shop) -> None:
    shop.peer.open(2)
    shop.publish(1)
    assert shop.refused(QueueDelete("q", if_empty=True))[1] == (
        "PRECONDITION_FAILED - queue 'q' in vhost '/' not empty"
    )
    shop.publisher.consume(1, "q")
    shop.house.run_until_idle()
    assert shop.refused(QueueDelete("q", if_unused=True), number=2)[1] == (
        "PRECONDITION_FAILED - queue 'q' in vhost '/' in use"
    )
    assert shop.house.vhost.queues["q"] is shop.queue


def test_a_deleted_queue_tells_its_consumers_that_understand_it(shop: Shop) -> None:
    deaf = shop.house.peer("deaf", notify_cancel=False)
    deaf.open(1)
    deaf.consume(1, "q", "deaf")
    deaf.said()
    shop.subscribe("c")
    assert shop.publisher.ask(1, QueueDelete("q")) == [QueueDeleteOk(0)]
    assert shop.peer.methods() == [BasicCancel("c", True)]
    assert deaf.methods() == []
    assert not shop.peer.reader.lanes[1].channel.consumers


def test_acks_for_a_deleted_queue_are_still_fine(shop: Shop) -> None:
    shop.publish(3)
    shop.subscribe("c")
    shop.publisher.ask(1, QueueDelete("q"))
    shop.peer.methods()
    shop.peer.ack(1, 1)
    shop.peer.nack(1, 2)
    shop.peer.ack(1, 0, multiple=True)
    assert shop.peer.methods() == []
    assert shop.peer.ask(1, QueueDeclare("q")) == [QueueDeclareOk("q", 0, 0)]


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        (QueueDelete("q"), QueueDeleteOk(0)),
        (QueueDelete("q", nowait=True), None),
        (QueueDeclare("q", passive=True), 404),
        (QueuePurge("q"), 404),
        (BasicGet("q"), 404),
        (BasicConsume("q", "late"), 404),
        (BasicCancel("early"), BasicCancelOk("early")),
    ],
)
def test_a_call_that_waits_in_the_mailbox_of_a_queue_that_is_deleted_is_answered(
    shop: Shop, method: Method, answer: Method | int | None
) -> None:
    shop.subscribe("early")
    shop.queue.mailbox.hold()
    shop.peer.tell(1, method)
    assert shop.peer.methods() == []
    shop.queue.delete()
    replies = shop.peer.methods()
    if isinstance(answer, int):
        assert [reply.reply_code for reply in replies if isinstance(reply, ChannelClose)] == [answer]
        return
    expected = [] if answer is None else [answer]
    assert [reply for reply in replies if not isinstance(reply, BasicCancel)] == expected
    channel = shop.peer.reader.lanes[1].channel
    assert channel.mailbox.holds == 0
    assert shop.peer.ask(1, QueueDeclare("new")) == [QueueDeclareOk("new", 0, 0)]


def test_an_auto_delete_queue_goes_with_its_last_consumer_but_not_before_the_first(shop: Shop) -> None:
    queue = shop.house.queue("fleeting", auto_delete=True)
    shop.peer.open(2)
    shop.house.run_until_idle()
    assert not queue.deleted
    shop.peer.consume(1, "fleeting", "a")
    shop.peer.consume(2, "fleeting", "b")
    shop.house.run_until_idle()
    shop.peer.ask(1, BasicCancel("a"))
    assert not queue.deleted
    shop.peer.ask(2, ChannelClose(200, "bye"))
    assert queue.deleted
    assert "fleeting" not in shop.house.vhost.queues


def test_replies_keep_the_order_of_requests_although_a_queue_answers_late(shop: Shop) -> None:
    shop.queue.mailbox.hold()
    shop.peer.tell(1, QueueDeclare("q", passive=True))
    shop.peer.tell(1, BasicQos(0, 5))
    shop.peer.tell(1, QueueDeclare("other"))
    assert shop.peer.methods() == []
    shop.queue.mailbox.release()
    assert [method.NAME for method in shop.peer.methods()] == ["queue.declare-ok", "basic.qos-ok", "queue.declare-ok"]


def test_a_queue_tells_its_state(shop: Shop) -> None:
    shop.publish(3)
    shop.peer.ask(1, BasicGet("q"))
    assert repr(shop.queue) == "<Queue q ready=2 unacked=1 blocked_by={}>"


# Time, space and rank: what arguments ask for. Histories at random are in tests/property/test_model.py.


def shop_with(arguments: Table) -> Shop:
    shop = Shop()
    shop.queue.delete()
    shop.house.clock.advance(1)
    shop.queue = shop.house.queue("q", arguments=arguments)
    return shop


def advance(shop: Shop, ms: int) -> None:
    shop.house.clock.advance(ms / 1000)
    shop.house.run_until_idle()


def test_a_message_expires_at_the_head_without_anybody_asking() -> None:
    shop = shop_with({"x-message-ttl": 50})
    shop.publish(2)
    advance(shop, 49)
    assert shop.queue.count() == 2
    advance(shop, 1)
    assert shop.queue.count() == 0


def test_a_message_that_overtook_others_by_its_priority_expires_in_its_time() -> None:
    shop = shop_with({"x-max-priority": 5})
    shop.publish(1)
    shop.peer.publish(1, "q", b"urgent", properties=encode_properties(Properties(priority=5, expiration="50")))
    shop.house.run_until_idle()
    advance(shop, 49)
    assert shop.queue.count() == 2
    advance(shop, 1)
    assert shop.queue.count() == 1


def test_an_expired_message_is_not_got() -> None:
    shop = shop_with({"x-message-ttl": 50})
    shop.publish(1)
    shop.house.clock.advance(0.05)
    shop.queue.mailbox.hold()
    shop.peer.tell(1, BasicGet("q"))
    shop.queue.mailbox.release()
    assert shop.peer.methods() == [BasicGetEmpty()]


def test_a_delivered_message_does_not_expire_but_it_does_when_it_comes_back_too_late() -> None:
    shop = shop_with({"x-message-ttl": 50})
    shop.publish(2)
    shop.peer.ask(1, BasicGet("q"))
    shop.peer.ask(1, BasicGet("q"))
    advance(shop, 40)
    shop.peer.nack(1, 1)
    advance(shop, 9)
    assert shop.queue.count() == 1
    advance(shop, 1)
    assert (shop.queue.count(), len(shop.queue.unacked)) == (0, 1)
    shop.peer.nack(1, 2)
    advance(shop, 0)
    assert (shop.queue.count(), len(shop.queue.unacked)) == (0, 0)


def test_a_time_to_live_of_0_means_now_or_never() -> None:
    shop = shop_with({"x-message-ttl": 0})
    shop.publish(1)
    assert shop.queue.count() == 0
    shop.qos(1)
    shop.subscribe("c")
    shop.publish(2)
    assert shop.numbers() == [1]
    assert shop.queue.count() == 0


def test_a_full_queue_drops_its_oldest_message_but_a_consumer_comes_first() -> None:
    shop = shop_with({"x-max-length": 2})
    shop.publish(3)
    assert shop.queue.count() == 2
    shop.peer.consume(1, "q", no_ack=True)
    assert shop.numbers() == [1, 2]
    shop.publish(5)
    assert shop.numbers() == [3, 4, 5, 6, 7]


def test_a_queue_of_length_0_still_serves_consumers_with_room() -> None:
    shop = shop_with({"x-max-length": 0})
    shop.qos(1)
    shop.subscribe("c")
    shop.publish(2)
    assert shop.numbers() == [0]
    assert shop.queue.count() == 0


def test_a_queue_that_refuses_takes_what_its_consumers_make_room_for() -> None:
    shop = shop_with({"x-max-length": 1, "x-overflow": "reject-publish"})
    shop.qos(2)
    shop.subscribe("c")
    shop.publisher.ask(1, ConfirmSelect())
    shop.publish(5)
    *refused, taken = shop.publisher.methods()
    assert shop.numbers() == [0, 1]
    assert shop.queue.count() == 1
    assert [nack.delivery_tag for nack in refused if isinstance(nack, BasicNack)] == [4, 5]
    assert taken == BasicAck(3, True)


def test_a_message_that_comes_back_to_a_full_queue_goes_to_a_consumer_with_room_first() -> None:
    """RabbitMQ drops it, although its consumer waits for it: a deliberate difference."""
    shop = shop_with({"x-max-length": 2})
    shop.qos(1)
    shop.subscribe("c")
    shop.publish(3)
    assert shop.numbers() == [0]
    shop.peer.nack(1, 1)
    assert shop.numbers() == [0]
    assert shop.queue.count() == 2


def test_a_queue_that_nobody_uses_goes_after_its_time() -> None:
    shop = shop_with({"x-expires": 100})
    advance(shop, 60)
    shop.publish(1)  # publishing is no use
    advance(shop, 39)
    assert not shop.queue.deleted
    advance(shop, 1)
    assert shop.queue.deleted


@pytest.mark.parametrize("use", [BasicGet("q"), QueueDeclare("q", passive=True)])
def test_a_get_or_a_declare_is_a_use(use: Method) -> None:
    shop = shop_with({"x-expires": 100})
    advance(shop, 60)
    shop.peer.ask(1, use)
    advance(shop, 99)
    assert not shop.queue.deleted
    advance(shop, 1)
    assert shop.queue.deleted


def test_with_a_consumer_a_queue_never_expires_and_after_it_the_time_begins_anew() -> None:
    shop = shop_with({"x-expires": 100})
    advance(shop, 60)
    shop.subscribe("c")
    advance(shop, 1000)
    assert not shop.queue.deleted
    shop.peer.ask(1, BasicCancel("c"))
    advance(shop, 99)
    assert not shop.queue.deleted
    advance(shop, 1)
    assert shop.queue.deleted


def test_a_single_active_consumer_gets_all_until_it_leaves() -> None:
    shop = shop_with({"x-single-active-consumer": True})
    shop.peer.open(2)
    shop.subscribe("a", number=1)
    shop.subscribe("b", number=2)
    shop.publish(3)
    assert shop.shares() == {"a": [0, 1, 2]}
    shop.peer.tell(1, ChannelClose(200, "bye"))
    assert shop.shares() == {"b": [0, 1, 2]}


def test_nobody_is_exclusive_on_a_queue_with_a_single_active_consumer() -> None:
    shop = shop_with({"x-single-active-consumer": True})
    refusal = "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"
    assert shop.refused(BasicConsume("q", "c", exclusive=True)) == (403, refusal)


def test_a_consumer_of_higher_priority_gets_all_until_it_is_full() -> None:
    shop = Shop()
    shop.subscribe("low")
    shop.qos(2)
    shop.peer.tell(1, BasicConsume("q", "high", arguments={"x-priority": 10}))
    shop.peer.methods()
    shop.publish(5)
    assert shop.shares() == {"high": [0, 1], "low": [2, 3, 4]}


def test_nothing_is_remembered_of_messages_that_came_back_and_went() -> None:
    shop = shop_with({"x-delivery-limit": 5, "x-message-ttl": 50, "x-max-length": 3})
    shop.publish(3)
    for _ in range(3):
        shop.peer.ask(1, BasicGet("q"))
    shop.peer.nack(1, 3, multiple=True)
    shop.publish(1)  # drops one
    assert len(shop.queue.shelves.returns) == 2
    advance(shop, 50)  # and these expire
    assert not shop.queue.shelves.returns
    assert not shop.queue.shelves.front().deadlines


@pytest.mark.parametrize("budget", [1, 2, 3, 400])
def test_a_queue_drops_what_is_too_much_however_little_it_may_do_in_a_turn(budget: int) -> None:
    house = House("400,200", "0,0", stage_budget=budget, turn_budget=3)
    house.clock.advance(1)  # a monotonic clock never says 0
    queue = house.queue("q", arguments={"x-max-length": 1})
    peer = house.peer("p")
    peer.open(1)
    peer.ask(1, BasicQos(0, 1))
    peer.ask(1, BasicConsume("q", "c"))
    # In one item: one for the consumer, one that is due at once, and one too many.
    ttls = {b"given": "60000", b"due": "0", b"too much": "60000", b"last": "60000"}
    method = encode_method(BasicPublish("", "q"), 1)
    peer._receive(
        b"".join(
            method + make_wire(body, 1, encode_properties(Properties(expiration=ttl))) for body, ttl in ttls.items()
        )
    )
    house.run_until_idle()
    assert [one.body for one in peer.said()] == [b"given"]
    assert (queue.count(), len(queue.unacked)) == (1, 1)

"""Watermarks of queues, through real channels: who is confirmed when, and who is blocked at the maximum."""

from __future__ import annotations

import pytest

from penstock.amqp.method import (
    BasicAck,
    BasicGet,
    BasicNack,
    ConfirmSelect,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDelete,
    QueuePurge,
    TxCommit,
    TxCommitOk,
    TxSelect,
)
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import Table
from penstock.broker.policy import Policy
from penstock.broker.queue import Queue
from penstock.broker.saturation import Saturation
from tests.unit.fakes import FakePeer, House


class Mill:
    """A broker, and a publisher with confirms; it keeps which of its numbers were acked and nacked."""

    def __init__(self, credit: str = "400,200") -> None:
        self.house = House(credit)
        self.publisher: FakePeer = self.house.peer("publisher")
        self.publisher.open(1)
        self.publisher.ask(1, ConfirmSelect())
        self.consumer: FakePeer = self.house.peer("consumer")
        self.consumer.open(1)
        self.sent = 0
        self.acked: set[int] = set()
        self.nacked: set[int] = set()

    def queue(self, name: str = "q", **arguments: int | str) -> Queue:
        named: Table = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
        return self.house.queue(name, arguments=named)

    def publish(self, count: int, key: str = "q", exchange: str = "", size: int = 1) -> None:
        self.publisher.publish(1, key, *([b"x" * size] * count), exchange=exchange)
        self.sent += count
        self.listen()

    def take(self, count: int, queue: str = "q") -> None:
        """Take and ack so many."""
        for _ in range(count):
            self.consumer.ask(1, BasicGet(queue, no_ack=True))
        self.listen()

    def listen(self) -> None:
        for method in self.publisher.methods():
            assert isinstance(method, (BasicAck, BasicNack)), method
            first = 1 if method.multiple else method.delivery_tag
            numbers = set(range(first, method.delivery_tag + 1)) - self.acked - self.nacked
            assert numbers, f"{method} says nothing new"
            (self.acked if isinstance(method, BasicAck) else self.nacked).update(numbers)

    def held(self) -> int:
        self.listen()
        return self.sent - len(self.acked) - len(self.nacked)

    def policy(self, **definition: int | str) -> None:
        named = {key.replace("_", "-"): value for key, value in definition.items()}
        self.house.vhost.put_policy(Policy("p", "^q", named))
        self.listen()


@pytest.fixture
def mill() -> Mill:
    return Mill()


def saturation_of(queue: Queue) -> Saturation:
    assert queue.marks is not None
    assert queue.marks.saturation is not None
    return queue.marks.saturation


def test_a_queue_of_1000_is_saturated_at_801_and_released_at_699(mill: Mill) -> None:
    queue = mill.queue(max_length=1000, overflow="block-publish")
    saturation = saturation_of(queue)
    mill.publish(400)
    mill.publish(400)
    assert (queue.count(), mill.held(), saturation.saturated) == (800, 0, False)
    mill.publish(1)
    assert (queue.count(), mill.held(), saturation.saturated) == (801, 1, True)
    mill.publish(50)
    mill.take(151)
    assert (queue.count(), mill.held(), saturation.saturated) == (700, 51, True)
    mill.take(1)
    assert (queue.count(), mill.held(), saturation.saturated) == (699, 0, False)
    assert (saturation.times, saturation.since_ns, saturation.held) == (1, 0, 0)
    mill.publish(101)
    assert (queue.count(), mill.held()) == (800, 0)
    mill.publish(1)
    assert (mill.held(), saturation.times) == (1, 2)


def test_a_plain_queue_has_no_marks_at_all(mill: Mill) -> None:
    assert mill.queue().marks is None
    assert mill.queue("bounded", max_length=10).marks is None


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish", "reject-publish-dlx"])
def test_a_queue_that_drops_or_refuses_answers_at_once_at_its_maximum(mill: Mill, overflow: str) -> None:
    mill.queue(max_length=10, overflow=overflow)
    mill.publish(25)
    assert mill.held() == 0
    assert len(mill.nacked) == (0 if overflow == "drop-head" else 15)


def test_told_a_mark_a_queue_that_drops_holds_confirms_until_it_drops_the_message(mill: Mill) -> None:
    queue = mill.queue(max_length=10, flow_stop_count=8, flow_resume_count=2)
    mill.publish(10)
    assert mill.held() == 2
    mill.publish(5)
    assert queue.count() == 10
    assert mill.held() == 7
    mill.publish(10)
    assert mill.held() == 10, "the first ones of those are dropped"
    assert saturation_of(queue).held == 10


def test_told_a_mark_a_queue_that_refuses_holds_what_it_took_and_nacks_the_rest(mill: Mill) -> None:
    mill.queue(max_length=10, overflow="reject-publish", flow_stop_count=8, flow_resume_count=2)
    mill.publish(15)
    assert (mill.held(), len(mill.nacked)) == (2, 5)
    mill.take(9)
    assert (mill.held(), len(mill.acked)) == (0, 10)


def test_bytes_saturate_too(mill: Mill) -> None:
    queue = mill.queue(qpid_capacity=1000, qpid_flow_resume_capacity=500)
    mill.publish(10, size=100)
    assert mill.held() == 0
    mill.publish(2, size=100)
    assert mill.held() == 2
    mill.take(7)
    assert mill.held() == 2
    mill.take(1)
    assert (mill.held(), queue.count()) == (0, 4)


def test_a_consumer_that_keeps_up_lets_nothing_saturate(mill: Mill) -> None:
    queue = mill.queue(flow_stop_count=5)
    mill.consumer.consume(1, no_ack=True)
    for _ in range(10):
        mill.publish(50)
    assert mill.held() == 0
    assert saturation_of(queue).times == 0


def test_a_held_message_that_a_consumer_gets_is_confirmed_although_the_queue_stays_saturated(mill: Mill) -> None:
    queue = mill.queue(flow_stop_count=4, flow_resume_count=1)
    mill.publish(10)
    assert mill.held() == 6
    mill.take(6)
    assert mill.acked == {1, 2, 3, 4, 5, 6}
    assert saturation_of(queue).saturated
    assert saturation_of(queue).held == mill.held() == 4


def test_a_message_that_comes_back_is_not_held_again(mill: Mill) -> None:
    queue = mill.queue(flow_stop_count=2, flow_resume_count=0)
    mill.publish(5)
    mill.consumer.ask(1, BasicGet("q"))
    mill.consumer.ask(1, BasicGet("q"))
    mill.consumer.ask(1, BasicGet("q"))
    assert mill.held() == 2
    mill.consumer.nack(1, 0, multiple=True)
    assert mill.held() == 2
    assert (queue.count(), saturation_of(queue).held) == (5, 2)


def test_an_expired_message_is_confirmed(mill: Mill) -> None:
    mill.queue(flow_stop_count=2, flow_resume_count=0, message_ttl=1000)
    mill.publish(3)
    assert mill.held() == 1
    mill.house.clock.advance(2)
    assert mill.held() == 0


def test_priorities_are_held_as_they_came(mill: Mill) -> None:
    mill.queue(flow_stop_count=4, flow_resume_count=0, max_priority=1)
    for number in range(1, 9):
        properties = encode_properties(Properties(priority=number % 2))
        mill.publisher.publish(1, "q", b"x", properties=properties)
        mill.sent += 1
    mill.listen()
    assert mill.acked == {1, 2, 3, 4}
    mill.take(4)
    assert mill.acked == {1, 2, 3, 4, 5, 7}, "all odd ones have left"
    mill.take(4)
    assert mill.held() == 0


def end(mill: Mill, method: Method | None) -> None:
    if method is not None:
        mill.consumer.ask(1, method)
    else:
        mill.house.vhost.queues["q"].delete()


@pytest.mark.parametrize("method", [QueueDelete("q"), QueuePurge("q"), None])
def test_a_queue_that_is_deleted_or_purged_releases_all(mill: Mill, method: Method | None) -> None:
    mill.queue(flow_stop_count=4, flow_resume_count=1)
    mill.publish(10)
    assert mill.held() == 6
    end(mill, method)
    assert mill.held() == 0
    assert len(mill.acked) == 10


def test_a_message_that_two_saturated_queues_hold_needs_both(mill: Mill) -> None:
    for name in ("q1", "q2", "q3"):
        mill.queue(name, **({"flow_stop_count": 1, "flow_resume_count": 0} if name != "q3" else {}))
    mill.publisher.ask(1, ExchangeDeclare("fan", "fanout"))
    for name in ("q1", "q2", "q3"):
        mill.publisher.ask(1, QueueBind(name, "fan", ""))
    mill.publish(3, "", "fan")
    assert mill.acked == {1}
    mill.take(3, "q1")
    assert mill.acked == {1}
    mill.take(2, "q2")
    assert mill.acked == {1, 2}
    mill.consumer.ask(1, QueueDelete("q2"))
    assert mill.held() == 0


def test_other_channels_and_queues_are_not_touched(mill: Mill) -> None:
    mill.queue(flow_stop_count=1, flow_resume_count=0)
    mill.queue("other")
    mill.publisher.open(2)
    mill.publisher.ask(2, ConfirmSelect())
    mill.publish(5)
    mill.publish(5, "other")
    assert mill.acked == {1, 6, 7, 8, 9, 10}
    mill.publisher.publish(2, "other", b"x")
    (ack,) = mill.publisher.methods()
    assert isinstance(ack, BasicAck)
    assert ack.delivery_tag == 1
    assert not mill.publisher.reader.blocked_by


def test_a_commit_is_not_held(mill: Mill) -> None:
    queue = mill.queue(flow_stop_count=1, flow_resume_count=0)
    mill.consumer.ask(1, TxSelect())
    mill.consumer.publish(1, "q", *[b"x"] * 5)
    assert [type(method) for method in mill.consumer.ask(1, TxCommit())] == [TxCommitOk]
    assert saturation_of(queue).saturated


# Policies.


def test_marks_come_change_and_go_with_a_policy_at_once(mill: Mill) -> None:
    queue = mill.queue()
    mill.publish(100)
    assert mill.held() == 0
    mill.policy(flow_stop_count=50)
    assert saturation_of(queue).saturated
    mill.publish(10)
    assert mill.held() == 10
    mill.policy(flow_stop_count=200)
    assert mill.held() == 0
    mill.policy(flow_stop_count=20)
    mill.publish(10)
    assert mill.held() == 10
    assert mill.house.vhost.drop_policy("p")
    assert mill.held() == 0
    assert queue.marks is None


def test_a_policy_of_bytes_counts_what_is_there_already(mill: Mill) -> None:
    queue = mill.queue()
    mill.publish(5, size=100)
    mill.policy(flow_stop_bytes=400)
    assert saturation_of(queue).saturated
    mill.take(2)
    assert not saturation_of(queue).saturated


def test_a_policy_that_contradicts_the_queue_still_works(mill: Mill) -> None:
    queue = mill.queue(flow_stop_count=500, overflow="block-publish")
    mill.policy(max_length=10)
    mill.publish(11)
    assert (queue.count(), mill.held()) == (11, 1)
    mill.take(3)
    assert mill.held() == 1
    mill.take(1)
    assert mill.held() == 0


# The hard maximum.


def test_at_its_maximum_a_queue_that_blocks_neither_drops_nor_refuses(mill: Mill) -> None:
    queue = mill.queue(max_length=10, overflow="block-publish")
    mill.publish(100)
    assert queue.count() == 100
    assert (len(mill.acked), len(mill.nacked)) == (8, 0)
    assert "maximum" in queue.blocked_by
    mill.take(94)
    assert (mill.held(), len(mill.nacked)) == (0, 0)
    assert len(mill.acked) == 100
    assert not queue.blocked_by


def test_a_queue_at_its_maximum_is_blocked_and_one_below_is_not(mill: Mill) -> None:
    queue = mill.queue(max_length=10, overflow="block-publish")
    mill.publish(9)
    assert not queue.blocked_by
    mill.publish(1)
    assert list(queue.blocked_by) == ["maximum"]
    mill.take(1)
    assert not queue.blocked_by


def test_the_maximum_in_bytes_blocks_too(mill: Mill) -> None:
    queue = mill.queue(max_length_bytes=1000, overflow="block-publish")
    mill.publish(9, size=100)
    assert not queue.blocked_by
    mill.publish(1, size=100)
    assert queue.blocked_by
    mill.take(1)
    assert not queue.blocked_by


@pytest.mark.parametrize("maximum", [0, 1, 7])
def test_who_does_not_wait_for_confirms_is_blocked_by_credit_at_the_maximum(maximum: int) -> None:
    mill = Mill("2,1")
    queue = mill.queue(max_length=maximum, overflow="block-publish")
    mill.consumer.publish_singly(1, "q", 100)
    mill.house.run_until_idle()
    assert max(1, maximum) <= queue.count() <= max(1, maximum) - 1 + 4, "the credit of both hops on top"
    assert mill.consumer.reader.blocked_by
    stood = queue.count()
    got = 0
    while queue.count():
        mill.take(1)
        got += 1
        assert queue.count() <= stood
    assert got == 100
    assert not queue.blocked_by
    assert not mill.consumer.reader.blocked_by


def test_a_batch_at_the_maximum_overshoots_by_no_more_than_the_credit_in_flight() -> None:
    mill = Mill("400,200")
    queue = mill.queue(max_length=100, overflow="block-publish")
    for _ in range(50):
        mill.consumer.publish(1, "q", *[b"x"] * 100)
    mill.house.run_until_idle()
    assert queue.count() <= 100 - 1 + 800
    assert mill.consumer.reader.blocked_by


def test_a_deleted_queue_at_its_maximum_blocks_nobody() -> None:
    mill = Mill("2,1")
    mill.queue(max_length=1, overflow="block-publish")
    mill.consumer.publish_singly(1, "q", 10)
    mill.house.run_until_idle()
    assert mill.consumer.reader.blocked_by
    mill.house.vhost.queues["q"].delete()
    mill.house.run_until_idle()
    assert not mill.consumer.reader.blocked_by


def test_a_policy_unblocks_what_is_no_longer_at_its_maximum(mill: Mill) -> None:
    queue = mill.queue()
    mill.policy(max_length=5, overflow="block-publish")
    mill.publish(10)
    assert queue.blocked_by
    mill.policy(max_length=50, overflow="block-publish")
    assert not queue.blocked_by
    mill.policy(max_length=5, overflow="block-publish")
    assert queue.blocked_by
    mill.policy(message_ttl=60_000)
    assert not queue.blocked_by
    assert queue.count() == 10


def test_a_stop_mark_of_0_leaves_credit_alone_to_block(mill: Mill) -> None:
    queue = mill.queue(max_length=5, overflow="block-publish", flow_stop_count=0)
    mill.publish(10)
    assert mill.held() == 0
    assert queue.blocked_by
    assert repr(queue.marks) == "<Marks None at its maximum>"


def test_a_purge_from_outside_unblocks_and_releases(mill: Mill) -> None:
    queue = mill.queue(max_length=5, overflow="block-publish")
    mill.publish(10)
    assert queue.purge() == 10
    assert (mill.held(), queue.count()) == (0, 0)
    assert not queue.blocked_by


def test_dead_letters_into_a_queue_at_its_maximum_block_the_queue_they_come_from() -> None:
    mill = Mill("2,1")
    dead = mill.queue("dead", max_length=3, overflow="block-publish")
    first = mill.queue("first", max_length=1, dead_letter_exchange="", dead_letter_routing_key="dead")
    mill.consumer.publish_singly(1, "first", 100)
    mill.house.run_until_idle()
    assert "maximum" in dead.blocked_by
    assert first.blocked_by
    assert dead.count() <= 3 - 1 + 6, "the credit of three hops on top"
    assert mill.consumer.reader.blocked_by
    while dead.count():
        mill.take(1, "dead")
    assert not mill.consumer.reader.blocked_by
    assert first.count() == 1


def test_two_queues_that_block_and_are_each_others_dead_letter_target_do_not_wait_for_ever(mill: Mill) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        mill.queue(
            name,
            max_length=1,
            overflow="block-publish",
            message_ttl=1000,
            dead_letter_exchange="",
            dead_letter_routing_key=other,
        )
    for key in ("a", "b"):
        mill.publish(3, key)
    mill.house.clock.advance(2)
    mill.house.run_until_idle()
    mill.take(10, "a")
    mill.take(10, "b")
    assert mill.held() == 0
    assert not mill.publisher.reader.blocked_by

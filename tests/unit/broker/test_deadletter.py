"""Dead letters: what is written into them, where they go, when a circle ends, and the credit they cost."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.amqp import content
from penstock.amqp.method import (
    BasicConsume,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
    QueueDelete,
    QueueDeleteOk,
)
from penstock.amqp.properties import Properties, decode_properties, encode_properties
from penstock.amqp.table import Table, Timestamp, Value
from penstock.broker.casts import Arrival
from penstock.broker.queue import Queue
from tests.unit.fakes import FakePeer, House, Said, make_wire, publish_method


class Morgue:
    """A queue `q` with dead letters to `dead`, unless told otherwise."""

    def __init__(self, arguments: Table | None = None, credit: str = "400,200", **budgets: int) -> None:
        self.house = House(credit, "0,0", **budgets)
        self.house.clock.advance(1)
        self.vhost = self.house.vhost
        self.dead: Queue = self.house.queue("dead")
        own: Table = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        self.queue: Queue = self.house.queue("q", arguments=own | (arguments or {}))
        self.peer: FakePeer = self.house.peer()
        self.peer.open(1)

    def publish(self, *bodies: bytes, key: str = "q", exchange: str = "", properties: Properties | None = None) -> None:
        encoded = encode_properties(properties or Properties())
        self.peer.publish(1, key, *bodies, exchange=exchange, properties=encoded)
        self.house.run_until_idle()

    def get(self, queue: str = "dead") -> Said | None:
        self.peer.tell(1, BasicGet(queue))
        (said,) = self.peer.said()
        if isinstance(said.method, BasicGetEmpty):
            return None
        assert isinstance(said.method, BasicGetOk)
        return said

    def bodies(self, queue: str = "dead") -> list[bytes]:
        found = []
        while (said := self.get(queue)) is not None:
            found.append(said.body or b"")
        return found

    def reject(self, queue: str = "q") -> None:
        """The first message of the queue."""
        said = self.get(queue)
        assert said is not None
        assert isinstance(said.method, BasicGetOk)
        self.peer.nack(1, said.method.delivery_tag, requeue=False)
        self.house.run_until_idle()

    def advance(self, ms: int) -> None:
        self.house.clock.advance(ms / 1000)
        self.house.run_until_idle()

    def letter(self, queue: str = "dead") -> tuple[str, str, Properties]:
        """Exchange, key and properties of the first message there."""
        said = self.get(queue)
        assert said is not None
        assert isinstance(said.method, BasicGetOk)
        assert not said.method.redelivered
        return said.method.exchange, said.method.routing_key, properties_of(said.wire)

    def deaths(self, queue: str = "dead") -> list[dict[str, Any]]:
        return deaths_in(self.letter(queue)[2])


def properties_of(wire: bytes) -> Properties:
    return decode_properties(wire, content.FLAGS_OFFSET, content.properties_end(wire))


def deaths_in(properties: Properties) -> list[dict[str, Any]]:
    headers = properties.headers or {}
    deaths = headers["x-death"]
    assert isinstance(deaths, list)
    assert all(isinstance(death, dict) for death in deaths)
    return [dict(death) for death in deaths if isinstance(death, dict)]


# What is written.


def test_a_rejected_message_tells_where_when_and_why_it_died() -> None:
    morgue = Morgue()
    exchange = morgue.vhost.declare_exchange(ExchangeDeclare("x", "direct"))
    morgue.vhost.bind(exchange, morgue.queue, "k", {})
    headers: Table = {"z": 1, "CC": ["k2"], "a": 2}
    morgue.publish(b"m", key="k", exchange="x", properties=Properties(headers=headers, expiration="100000", priority=4))
    morgue.reject()
    where, key, properties = morgue.letter()
    assert (where, key) == ("", "dead")
    (death,) = deaths_in(properties)
    assert isinstance(death.pop("time"), Timestamp)
    assert death == {
        "count": 1,
        "reason": "rejected",
        "queue": "q",
        "exchange": "x",
        "routing-keys": ["k", "k2"],
        "original-expiration": "100000",
    }
    assert list(properties.headers or {}) == [
        "a",
        "x-death",
        "x-first-death-exchange",
        "x-first-death-queue",
        "x-first-death-reason",
        "z",
    ]
    assert (properties.expiration, properties.priority) == (None, 4)
    assert (properties.headers or {})["x-first-death-reason"] == "rejected"


def test_the_types_are_rabbitmqs_to_the_letter() -> None:
    morgue = Morgue()
    morgue.publish(b"m")
    morgue.reject()
    said = morgue.get()
    assert said is not None
    for part in (
        b"\x07x-deathA",
        b"\x05countl\x00\x00\x00\x00\x00\x00\x00\x01\x06reasonS\x00\x00\x00\x08rejected\x05queueS\x00\x00\x00\x01q\x04timeT",
        b"\x08exchangeS\x00\x00\x00\x00\x0crouting-keysA\x00\x00\x00\x06S\x00\x00\x00\x01q",
        b"\x14x-first-death-reasonS\x00\x00\x00\x08rejected",
    ):
        assert part in said.wire


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [({"x-message-ttl": 10}, "expired"), ({"x-max-length": 0}, "maxlen"), ({"x-delivery-limit": 0}, "delivery_limit")],
)
def test_the_reason_is_what_the_message_died_of(arguments: Table, reason: str) -> None:
    morgue = Morgue(arguments)
    morgue.publish(b"m")
    morgue.advance(9)
    if reason == "delivery_limit":
        morgue.get("q")
        morgue.peer.nack(1, 1, requeue=True)
        morgue.house.run_until_idle()
    morgue.advance(1)
    assert morgue.deaths()[0]["reason"] == reason


def test_a_message_refused_by_reject_publish_dlx_died_of_maxlen_and_is_nacked() -> None:
    morgue = Morgue({"x-max-length": 1, "x-overflow": "reject-publish-dlx"})
    assert morgue.peer.ask(1, ConfirmSelect()) == [ConfirmSelectOk()]
    morgue.publish(b"kept", b"refused")
    assert sorted(type(method).__name__ for method in morgue.peer.methods()) == ["BasicAck", "BasicNack"]
    assert morgue.queue.count() == 1
    assert morgue.deaths()[0]["reason"] == "maxlen"


def test_a_message_refused_by_reject_publish_is_no_dead_letter() -> None:
    morgue = Morgue({"x-max-length": 1, "x-overflow": "reject-publish"})
    morgue.publish(b"kept", b"refused")
    assert morgue.dead.count() == 0


def test_dying_again_of_the_same_in_the_same_queue_is_counted_not_listed() -> None:
    morgue = Morgue({"x-dead-letter-routing-key": "q"})
    morgue.publish(b"m")
    for _ in range(3):
        morgue.reject()
    (death,) = morgue.deaths("q")
    assert (death["count"], death["queue"], death["reason"]) == (3, "q", "rejected")
    assert list(death) == ["count", "exchange", "queue", "reason", "routing-keys", "time"]  # RabbitMQ sorts them now


def test_the_latest_death_is_the_first_in_the_list() -> None:
    """The circle of RabbitMQ's that was looked at: a expires to b, b rejects to a."""
    morgue = Morgue({"x-dead-letter-routing-key": "b", "x-message-ttl": 50})
    morgue.house.queue("b", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    morgue.publish(b"m")
    morgue.advance(50)
    morgue.reject("b")
    morgue.advance(50)
    first, second = morgue.deaths("b")
    assert (first["queue"], first["reason"], first["count"]) == ("q", "expired", 2)
    assert (second["queue"], second["reason"], second["count"]) == ("b", "rejected", 1)


def test_the_first_death_is_told_for_ever() -> None:
    morgue = Morgue({"x-message-ttl": 5})
    morgue.house.queue("end")
    morgue.dead.apply(type(morgue.dead.options)({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "end"}, {}))
    morgue.publish(b"m")
    morgue.advance(5)
    morgue.reject("dead")
    headers = morgue.letter("end")[2].headers or {}
    assert (headers["x-first-death-queue"], headers["x-first-death-reason"]) == ("q", "expired")
    assert [death["queue"] for death in deaths_in(Properties(headers=headers))] == ["dead", "q"]


@pytest.mark.parametrize("foreign", ["nonsense", 5, [1, "x", None], [{"queue": 7}], [{"count": "many", "queue": "q"}]])
def test_a_clients_own_x_death_does_no_harm(foreign: Value) -> None:
    morgue = Morgue()
    morgue.publish(b"m", properties=Properties(headers={"x-death": foreign}))
    morgue.reject()
    assert morgue.deaths()[0]["reason"] == "rejected"


# Where they go.


def test_without_a_key_of_its_own_the_queue_keeps_the_messages_key_and_copies() -> None:
    morgue = Morgue()
    exchange = morgue.vhost.declare_exchange(ExchangeDeclare("dx", "direct"))
    for key in ("q", "k2", "k3"):
        morgue.vhost.bind(exchange, morgue.house.queue(f"t-{key}"), key, {})
    morgue.queue.apply(type(morgue.queue.options)({"x-dead-letter-exchange": "dx"}, {}))
    morgue.publish(b"m", properties=Properties(headers={"CC": ["k2"], "BCC": ["k3"]}))
    morgue.reject()
    for queue in ("t-q", "t-k2", "t-k3"):
        where, key, properties = morgue.letter(queue)
        assert (where, key) == ("dx", "q")
        assert (properties.headers or {})["CC"] == ["k2"]
        assert deaths_in(properties)[0]["routing-keys"] == ["q", "k2"]


def test_with_a_key_of_its_own_copies_are_over() -> None:
    morgue = Morgue()
    other = morgue.house.queue("other")
    morgue.publish(b"m", properties=Properties(headers={"CC": ["other"]}))
    assert other.count() == 1
    morgue.reject()
    assert other.count() == 1
    assert "CC" not in (morgue.letter()[2].headers or {})


def test_without_its_exchange_a_dead_letter_is_dropped() -> None:
    morgue = Morgue({"x-dead-letter-exchange": "not there"})
    morgue.publish(b"m")
    morgue.reject()
    assert morgue.dead.count() == 0


def test_without_a_dead_letter_exchange_a_queue_just_drops() -> None:
    morgue = Morgue()
    plain = morgue.house.queue("plain", arguments={"x-max-length": 1})
    morgue.publish(b"0", b"1", key="plain")
    assert (plain.count(), morgue.dead.count()) == (1, 0)


def test_dead_letters_keep_their_order() -> None:
    morgue = Morgue({"x-message-ttl": 10})
    morgue.publish(*(b"%d" % number for number in range(50)))
    morgue.advance(10)
    assert morgue.bodies() == [b"%d" % number for number in range(50)]


def test_a_delivery_limit_of_n_allows_n_returns() -> None:
    morgue = Morgue({"x-delivery-limit": 2})
    morgue.publish(b"m")
    counts = []
    for tag in (1, 2, 3):
        said = morgue.get("q")
        assert said is not None
        counts.append((properties_of(said.wire).headers or {}).get("x-delivery-count"))
        morgue.peer.nack(1, tag, requeue=True)
        morgue.house.run_until_idle()
    assert counts == [None, 1, 2]
    assert (morgue.queue.count(), morgue.dead.count()) == (0, 1)
    assert not morgue.queue.shelves.returns


# Circles.


def test_a_message_that_only_expires_goes_round_once_and_no_more() -> None:
    morgue = Morgue({"x-dead-letter-routing-key": "b", "x-message-ttl": 10})
    morgue.house.queue(
        "b", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q", "x-message-ttl": 10}
    )
    morgue.publish(b"m")
    morgue.advance(10)
    assert morgue.vhost.queues["b"].count() == 1
    morgue.advance(10)
    assert (morgue.queue.count(), morgue.vhost.queues["b"].count()) == (0, 0)


def test_a_queue_does_not_feed_itself_with_what_expires() -> None:
    morgue = Morgue({"x-dead-letter-routing-key": "q", "x-message-ttl": 10})
    morgue.publish(b"m")
    morgue.advance(10)
    assert morgue.queue.count() == 0


def test_one_rejection_on_the_way_and_the_circle_goes_on() -> None:
    morgue = Morgue({"x-dead-letter-routing-key": "b", "x-message-ttl": 10})
    morgue.house.queue("b", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    morgue.publish(b"m")
    for _ in range(3):
        morgue.advance(10)
        morgue.reject("b")
    assert morgue.queue.count() == 1


def test_other_targets_of_the_same_exchange_are_not_part_of_the_circle() -> None:
    morgue = Morgue({"x-dead-letter-exchange": "dx", "x-message-ttl": 10})
    exchange = morgue.vhost.declare_exchange(ExchangeDeclare("dx", "fanout"))
    for queue in (morgue.queue, morgue.dead):
        morgue.vhost.bind(exchange, queue, "", {})
    morgue.publish(b"m")
    morgue.advance(10)
    assert (morgue.queue.count(), morgue.dead.count()) == (0, 1)


# Credit.


def test_a_slow_dead_letter_queue_holds_back_who_publishes_to_the_first() -> None:
    morgue = Morgue({"x-max-length": 0}, credit="2,1")
    morgue.dead.mailbox.hold()
    morgue.peer.publish_singly(1, "q", 100)
    morgue.house.run_until_idle()
    # Blocked stages work on with what they have: 2 on each of the hops reader to channel to q to dead.
    waiting = [item for item in morgue.dead.mailbox.ordinary if isinstance(item, Arrival)]
    assert sum(len(item.messages) for item in waiting) == 6
    assert morgue.queue.published_count == 6
    assert morgue.queue.blocked_by
    assert morgue.peer.reader.blocked_by
    morgue.dead.mailbox.release()
    morgue.house.run_until_idle()
    assert morgue.dead.count() == 100
    assert not morgue.queue.blocked_by
    assert not morgue.peer.reader.blocked_by


def test_a_blocked_queue_still_serves_its_consumers() -> None:
    morgue = Morgue({"x-max-length": 1}, credit="2,1")
    morgue.dead.mailbox.hold()
    morgue.peer.publish_singly(1, "q", 5)
    morgue.house.run_until_idle()
    assert morgue.queue.blocked_by
    morgue.peer.tell(1, BasicConsume("q", "c", no_ack=True))
    assert len(morgue.peer.bodies()) == 1


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_circle_of_queues_does_not_wait_for_itself(length: int) -> None:
    """With a link all round, each queue would wait for the next one's grants for ever."""
    house = House("2,1")
    names = [f"q{at}" for at in range(length)]
    for at, name in enumerate(names):
        target = names[(at + 1) % length]
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target, "x-max-length": 1}
        house.queue(name, arguments=arguments)
    peer = house.peer()
    peer.open(1)
    peer.publish_singly(1, "q0", 100)
    house.run_until_idle()
    assert not peer.reader.blocked_by
    assert not any(queue.blocked_by for queue in house.vhost.queues.values())
    assert [house.vhost.queues[name].count() for name in names] == [1] * length


def test_rejections_round_a_circle_do_not_block_it_either() -> None:
    house = House("2,1")
    for name, target in (("a", "b"), ("b", "a")):
        house.queue(name, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": target})
    peer = house.peer()
    peer.open(1)
    peer.open(2)
    peer.tell(1, BasicConsume("a", "a"))
    peer.tell(2, BasicConsume("b", "b"))
    peer.publish_singly(1, "a", 50)
    for _ in range(6):  # all of them three times round
        for said in peer.said():
            if said.body is not None:
                peer.nack(said.channel, getattr(said.method, "delivery_tag", 0), requeue=False)
    peer.said()
    assert len(house.vhost.queues["a"].unacked) + len(house.vhost.queues["b"].unacked) == 50
    assert not any(queue.blocked_by for queue in house.vhost.queues.values())


def test_a_deleted_dead_letter_queue_holds_nobody_back() -> None:
    morgue = Morgue({"x-max-length": 0}, credit="2,1")
    morgue.dead.mailbox.hold()
    morgue.peer.publish_singly(1, "q", 100)
    morgue.house.run_until_idle()
    morgue.dead.delete()
    morgue.house.run_until_idle()
    assert not morgue.queue.blocked_by
    assert morgue.queue.published_count == 100
    assert morgue.peer.ask(1, QueueDelete("dead")) == [QueueDeleteOk(0)]


# Many at once.


def overdue(morgue: Morgue, count: int) -> None:
    morgue.queue.shelves.append([(publish_method(1, "q"), make_wire(b"x"))] * count, 0, None)
    morgue.house.clock.advance(1)


def test_many_overdue_messages_take_several_turns_and_others_have_theirs_between() -> None:
    morgue = Morgue({"x-message-ttl": 10, "x-dead-letter-exchange": "not there"}, stage_budget=100, turn_budget=300)
    other = morgue.house.queue("other")
    overdue(morgue, 20_000)
    morgue.queue.mailbox.wake()
    morgue.peer.publish(1, "other", b"x")
    for _ in range(3):
        morgue.house.turn()
    assert other.count() == 1
    assert morgue.queue.count() > 18_000
    assert morgue.house.run_until_idle() > 50
    assert morgue.queue.count() == 0


def test_a_get_does_not_wait_alone_for_many_overdue_messages() -> None:
    morgue = Morgue({"x-message-ttl": 10, "x-dead-letter-exchange": "not there"}, stage_budget=100, turn_budget=300)
    overdue(morgue, 5_000)
    morgue.peer.tell(1, BasicGet("q"))
    morgue.house.turn()
    assert 4_000 < morgue.queue.count() < 5_000
    assert morgue.peer.methods() == [BasicGetEmpty()]


def test_an_overdue_message_is_never_delivered_however_many_are_before_it() -> None:
    morgue = Morgue({"x-dead-letter-exchange": "not there"}, stage_budget=10)
    morgue.publish(b"for ever")
    morgue.publish(*[b"late"] * 50, properties=Properties(expiration="5"))
    morgue.publish(b"last")
    morgue.advance(5)
    assert morgue.queue.count() == 52  # not at the head
    morgue.peer.tell(1, BasicConsume("q", "c", no_ack=True))
    assert morgue.peer.bodies() == [b"for ever", b"last"]


def test_consumers_with_room_get_all_that_comes_with_a_time_to_live_of_0() -> None:
    morgue = Morgue({"x-message-ttl": 0}, stage_budget=10)
    morgue.peer.tell(1, BasicConsume("q", "c", no_ack=True))
    morgue.publish(*(b"%d" % number for number in range(35)))
    assert len(morgue.peer.bodies()) == 35
    assert morgue.dead.count() == 0


def test_expired_messages_take_no_space_from_what_comes_with_them() -> None:
    """As RabbitMQ has it: three publishes, three acks."""
    morgue = Morgue({"x-max-length": 1, "x-overflow": "reject-publish", "x-message-ttl": 0})
    morgue.publish(b"0", b"1", b"2")
    assert morgue.bodies() == [b"0", b"1", b"2"]


def test_nothing_is_refused_while_consumers_can_make_room_however_small_the_budget() -> None:
    morgue = Morgue({"x-max-length-bytes": 8, "x-overflow": "reject-publish"}, stage_budget=1)
    morgue.peer.tell(1, BasicConsume("q", "c", no_ack=True))
    morgue.publish(b"1234", b"1234", b"12345")
    assert morgue.peer.bodies() == [b"1234", b"1234", b"12345"]

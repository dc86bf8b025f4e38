"""Subscribers: which consumer of a queue is asked next, by priority, in turn, or the single active one."""

from __future__ import annotations

from penstock.broker.channel import Channel
from penstock.broker.consumer import UNLIMITED, Consumer
from penstock.broker.queue import Queue
from penstock.broker.subscribers import Subscribers
from tests.unit.fakes import House


class Crowd:
    def __init__(self, single_active: bool = False) -> None:
        house = House()
        self.queue: Queue = house.queue("q")
        self.channel: Channel = house.peer().open(1)
        self.subscribers = Subscribers(single_active)

    def add(self, tag: str, priority: int = 0, prefetch: int = 0, exclusive: bool = False) -> Consumer:
        consumer = Consumer(self.channel, self.queue, tag, False, exclusive, prefetch, {}, priority=priority)
        self.subscribers.add(consumer)
        return consumer

    def asked(self, wanted: int = 100) -> tuple[str, int]:
        """Tags of who would take messages, in turn, and how many each."""
        group, share = self.subscribers.with_room(wanted)
        return " ".join(consumer.tag for consumer in group), share

    def give(self, count: int) -> None:
        """As the queue does: each of the group gets its part."""
        group, _ = self.subscribers.with_room(count)
        for at in range(count):
            group[at % len(group)].unacked += 1
        self.subscribers.gave(group, count)


def test_nobody_takes_nothing() -> None:
    assert Crowd().asked() == ("", 0)


def test_equals_are_asked_in_the_order_they_came_and_the_turn_moves_on() -> None:
    crowd = Crowd()
    for tag in "abc":
        crowd.add(tag)
    assert crowd.asked() == ("a b c", UNLIMITED)
    crowd.give(2)
    assert crowd.asked() == ("c a b", UNLIMITED)
    crowd.give(3)
    assert crowd.asked() == ("c a b", UNLIMITED)
    assert crowd.asked(wanted=2) == ("c a", UNLIMITED)


def test_the_group_takes_as_many_each_as_the_fullest_of_them_has_room_for() -> None:
    crowd = Crowd()
    crowd.add("a", prefetch=5)
    crowd.add("b", prefetch=2)
    assert crowd.asked() == ("a b", 2)


def test_a_full_consumer_is_passed_over_and_keeps_its_place() -> None:
    crowd = Crowd()
    full = crowd.add("a", prefetch=1)
    crowd.add("b")
    full.unacked = 1
    assert crowd.asked() == ("b", UNLIMITED)
    full.unacked = 0
    assert crowd.asked() == ("a b", 1)


def test_the_higher_priority_gets_everything_until_it_is_full() -> None:
    crowd = Crowd()
    crowd.add("low", priority=-1)
    crowd.add("normal")
    high = crowd.add("high", priority=7, prefetch=3)
    assert crowd.asked() == ("high", 3)
    high.unacked = 3
    assert crowd.asked()[0] == "normal"


def test_each_priority_has_a_turn_of_its_own() -> None:
    crowd = Crowd()
    for tag in ("a", "b"):
        crowd.add(tag)
    crowd.give(1)
    highest = [crowd.add(tag, priority=1, prefetch=1) for tag in ("x", "y")]
    crowd.give(1)
    assert crowd.asked()[0] == "y"
    for consumer in highest:
        consumer.unacked = 1
    assert crowd.asked()[0] == "b a"


def test_who_leaves_does_not_change_whose_turn_it_is() -> None:
    crowd = Crowd()
    a, b, _ = (crowd.add(tag) for tag in "abc")
    crowd.give(1)
    assert crowd.subscribers.remove(a)
    assert crowd.asked()[0] == "b c"
    assert crowd.subscribers.remove(b)
    assert crowd.asked()[0] == "c"
    assert not crowd.subscribers.remove(b)
    assert len(crowd.subscribers) == 1


def test_a_new_consumer_is_the_last_to_be_asked() -> None:
    crowd = Crowd()
    for tag in "ab":
        crowd.add(tag)
    crowd.give(1)
    crowd.add("c")
    assert crowd.asked()[0] == "b a c"
    crowd.give(2)
    crowd.add("d")
    assert crowd.asked()[0] == "c b a d"


def test_room_that_is_shared_on_a_channel_is_given_one_message_at_a_time() -> None:
    crowd = Crowd()
    crowd.add("a")
    crowd.add("b")
    crowd.channel.limiter.prefetch = 5
    assert crowd.asked() == ("a", 1)


def test_a_single_active_consumer_gets_all_and_the_next_only_when_it_leaves() -> None:
    crowd = Crowd(single_active=True)
    first = crowd.add("first", prefetch=1)
    second = crowd.add("second")
    assert crowd.asked() == ("first", 1)
    first.unacked = 1
    assert crowd.asked()[1] == 0  # full, and yet nobody else is asked
    assert crowd.subscribers.is_active(first)
    assert not crowd.subscribers.is_active(second)
    crowd.subscribers.remove(first)
    assert crowd.asked() == ("second", UNLIMITED)
    assert crowd.subscribers.is_active(second)


def test_who_waited_and_leaves_does_not_unseat_the_active_consumer() -> None:
    crowd = Crowd(single_active=True)
    crowd.add("first")
    second = crowd.add("second")
    crowd.add("third")
    crowd.subscribers.remove(second)
    assert crowd.asked()[0] == "first"


def test_a_higher_priority_does_not_unseat_the_active_consumer_but_is_its_heir() -> None:
    crowd = Crowd(single_active=True)
    first = crowd.add("first")
    crowd.add("second")
    crowd.add("high", priority=5)
    assert crowd.asked()[0] == "first"
    crowd.subscribers.remove(first)
    assert crowd.asked()[0] == "high"


def test_without_a_single_active_consumer_everybody_is_active() -> None:
    crowd = Crowd()
    assert all(crowd.subscribers.is_active(crowd.add(tag)) for tag in "ab")


def test_an_exclusive_consumer_is_alone() -> None:
    crowd = Crowd()
    assert not crowd.subscribers.has_exclusive()
    crowd.add("a", exclusive=True)
    assert crowd.subscribers.has_exclusive()


def test_all_leave_at_once_when_the_queue_goes() -> None:
    crowd = Crowd(single_active=True)
    for tag, priority in (("low", 0), ("high", 1)):
        crowd.add(tag, priority)
    assert [consumer.tag for consumer in crowd.subscribers.clear()] == ["high", "low"]
    assert (len(crowd.subscribers), crowd.asked()) == (0, ("", 0))

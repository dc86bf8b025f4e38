"""Shelves: which message is the head, which ones are due, and which are one too many."""

from __future__ import annotations

import pytest

from penstock.amqp import content
from penstock.amqp.decoder import Message
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import Value
from penstock.broker.casts import NO_TTL
from penstock.broker.options import Options
from penstock.broker.shelves import Shelves
from penstock.runtime import FakeClock
from tests.unit.fakes import make_wire, publish_method

PUBLISH = publish_method(1, "q")
ALL = 1000


def message(body: str, priority: int | None = None) -> Message:
    return PUBLISH, make_wire(body.encode(), properties=encode_properties(Properties(priority=priority)))


def texts(messages: list[Message]) -> list[str]:
    return [content.body(wire).decode() for _, wire in messages]


class Cupboard:
    def __init__(self, **arguments: Value) -> None:
        self.clock = FakeClock()
        self.clock.advance(1)
        named: dict[str, Value] = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self.shelves = Shelves(Options(named, {}), self.clock)

    def add(self, body: str, priority: int | None = None, ttl_ms: int = NO_TTL) -> None:
        one = message(body, priority)
        self.shelves.append([one], len(one[1]), None if ttl_ms == NO_TTL else [ttl_ms])

    def pop(self) -> tuple[int, Message]:
        (position,), (one,), _ = self.shelves.front().pop(1, 0)
        return position, one

    def all(self) -> list[str]:
        found = []
        while len(self.shelves):
            found.append(self.pop()[1])
        return texts(found)


# Priorities.


def test_the_highest_priority_is_first_and_equals_keep_their_order() -> None:
    cupboard = Cupboard(max_priority=5)
    for at, priority in enumerate((None, 0, 3, 9, 5, 1, 3)):
        cupboard.add(f"{at}:{priority}", priority)
    assert cupboard.all() == ["3:9", "4:5", "2:3", "6:3", "5:1", "0:None", "1:0"]


def test_without_priorities_of_its_own_a_queue_takes_no_notice_of_a_messages() -> None:
    cupboard = Cupboard()
    cupboard.add("first", 0)
    cupboard.add("second", 9)
    assert cupboard.all() == ["first", "second"]


def test_what_comes_back_comes_back_to_its_own_priority() -> None:
    cupboard = Cupboard(max_priority=2)
    cupboard.add("high 0", 2)
    cupboard.add("high 1", 2)
    cupboard.add("low", 0)
    position, one = cupboard.pop()
    cupboard.shelves.put_back(position, one)
    assert cupboard.all() == ["high 0", "high 1", "low"]


# Time.


def test_nothing_is_timed_until_a_message_has_a_deadline() -> None:
    cupboard = Cupboard()
    cupboard.add("for ever")
    assert not cupboard.shelves.timed
    assert cupboard.shelves.deadline() == 0
    cupboard.add("10 ms", ttl_ms=10)
    assert cupboard.shelves.timed
    assert cupboard.shelves.deadline() == 0  # not at the head


def test_a_message_that_is_due_but_not_at_the_head_keeps_its_place() -> None:
    cupboard = Cupboard()
    cupboard.add("for ever")
    cupboard.add("10 ms", ttl_ms=10)
    cupboard.clock.advance(1)
    assert cupboard.shelves.due(ALL) == ([], [])
    cupboard.pop()
    assert texts(cupboard.shelves.due(ALL)[1]) == ["10 ms"]


def test_of_the_messages_and_the_queues_time_to_live_the_shorter_counts() -> None:
    cupboard = Cupboard(message_ttl=20)
    start_ns = cupboard.clock.now_ns()
    for body, ttl_ms in (("own", 10), ("longer", 30), ("none", NO_TTL)):
        cupboard.add(body, ttl_ms=ttl_ms)
    deadlines = []
    while len(cupboard.shelves):
        deadlines.append((cupboard.shelves.deadline() - start_ns) // 1_000_000)
        cupboard.pop()
    assert deadlines == [10, 20, 20]


def test_a_message_is_due_in_the_moment_of_its_deadline_and_not_before() -> None:
    cupboard = Cupboard(message_ttl=20)
    cupboard.add("x")
    cupboard.clock.advance(0.019999)
    assert cupboard.shelves.due(ALL) == ([], [])
    cupboard.clock.advance(0.000001)
    assert texts(cupboard.shelves.due(ALL)[1]) == ["x"]


def test_a_time_to_live_of_0_is_due_only_after_consumers_had_their_chance() -> None:
    cupboard = Cupboard(message_ttl=0)
    cupboard.add("x")
    assert cupboard.shelves.overdue(ALL) == ([], [])
    assert texts(cupboard.shelves.due(ALL)[1]) == ["x"]


def test_what_was_due_before_the_newest_arrival_gets_no_such_chance() -> None:
    cupboard = Cupboard()
    cupboard.add("old", ttl_ms=0)
    cupboard.clock.advance(0.001)
    cupboard.add("new", ttl_ms=0)
    assert texts(cupboard.shelves.overdue(ALL)[1]) == ["old"]
    assert texts(cupboard.shelves.due(ALL)[1]) == ["new"]


def test_no_more_expire_at_once_than_allowed() -> None:
    cupboard = Cupboard(message_ttl=5)
    one = message("x")
    cupboard.shelves.append([one] * 100, 0, None)
    cupboard.clock.advance(1)
    assert [len(cupboard.shelves.due(40)[1]) for _ in range(4)] == [40, 40, 20, 0]


def test_messages_of_many_deadlines_expire_as_far_as_they_are_due() -> None:
    cupboard = Cupboard()
    for ms in (1, 2, 2, 5, 3):
        cupboard.add(f"{ms}", ttl_ms=ms)
    cupboard.clock.advance(0.003)
    assert texts(cupboard.shelves.due(ALL)[1]) == ["1", "2", "2"]
    cupboard.clock.advance(0.002)
    assert texts(cupboard.shelves.due(ALL)[1]) == ["5", "3"]


def test_a_message_that_comes_back_expires_when_it_would_have_anyway() -> None:
    cupboard = Cupboard(message_ttl=10)
    cupboard.add("x")
    position, one = cupboard.pop()
    cupboard.clock.advance(0.009)
    cupboard.shelves.put_back(position, one)
    assert cupboard.shelves.due(ALL) == ([], [])
    cupboard.clock.advance(0.001)
    assert texts(cupboard.shelves.due(ALL)[1]) == ["x"]


# Space.


@pytest.mark.parametrize("overflow", ["drop-head", "reject-publish", "reject-publish-dlx"])
def test_it_is_bounded_or_refuses_but_never_both(overflow: str) -> None:
    shelves = Cupboard(max_length=1, overflow=overflow).shelves
    assert (shelves.bounded, shelves.refuses) == (overflow == "drop-head", overflow != "drop-head")
    shelves = Cupboard(overflow=overflow).shelves
    assert (shelves.bounded, shelves.refuses) == (False, False)


def test_the_oldest_messages_are_one_too_many() -> None:
    cupboard = Cupboard(max_length=2)
    for at in range(5):
        cupboard.add(f"{at}")
    assert texts(cupboard.shelves.excess(2)[1]) == ["0", "1"]
    assert texts(cupboard.shelves.excess(ALL)[1]) == ["2"]
    assert texts(cupboard.shelves.excess(ALL)[1]) == []


def test_of_several_priorities_the_highest_is_dropped_first_as_in_rabbitmq() -> None:
    cupboard = Cupboard(max_length=1, max_priority=3)
    for body, priority in (("low 0", 0), ("low 1", 0), ("high", 3)):
        cupboard.add(body, priority)
    assert texts(cupboard.shelves.excess(ALL)[1]) == ["high", "low 0"]


def test_bytes_are_those_of_bodies_and_the_limit_itself_is_allowed() -> None:
    cupboard = Cupboard(max_length_bytes=10)
    cupboard.add("12345")
    assert cupboard.shelves.has_space(message("12345"))
    assert not cupboard.shelves.has_space(message("123456"))
    cupboard.add("123456")
    assert texts(cupboard.shelves.excess(ALL)[1]) == ["12345"]


def test_a_message_larger_than_all_space_pushes_out_everything_and_itself() -> None:
    cupboard = Cupboard(max_length_bytes=3)
    cupboard.add("1")
    cupboard.add("1234")
    assert texts(cupboard.shelves.excess(ALL)[1]) == ["1", "1234"]


def test_with_a_length_of_0_there_is_never_space() -> None:
    assert not Cupboard(max_length=0, overflow="reject-publish").shelves.has_space(message(""))


def test_unacked_messages_take_no_space() -> None:
    cupboard = Cupboard(max_length=1, max_length_bytes=1, overflow="reject-publish")
    cupboard.add("1")
    assert not cupboard.shelves.has_space(message("2"))
    cupboard.pop()
    assert cupboard.shelves.has_space(message("2"))


# What is kept about a message is let go with it.


def test_nothing_is_remembered_of_messages_that_are_gone() -> None:
    cupboard = Cupboard(message_ttl=10, max_length=1)
    for body in ("dropped", "expired", "settled"):
        cupboard.add(body)
    popped = [cupboard.pop() for _ in range(3)]
    for position, one in popped[:2]:
        cupboard.shelves.put_back(position, one)
        cupboard.shelves.returns[position] = 1
    cupboard.shelves.excess(ALL)
    cupboard.clock.advance(1)
    cupboard.shelves.due(ALL)
    cupboard.shelves.forget([popped[2][0]])
    assert not cupboard.shelves.returns
    assert not cupboard.shelves.front().deadlines


def test_a_purge_forgets_what_came_back_and_not_what_is_unacked() -> None:
    cupboard = Cupboard(message_ttl=10)
    cupboard.add("back")
    cupboard.add("unacked")
    back, unacked = cupboard.pop(), cupboard.pop()
    cupboard.shelves.returns = {back[0]: 1, unacked[0]: 1}
    cupboard.shelves.put_back(*back)
    cupboard.shelves.clear()
    assert list(cupboard.shelves.returns) == [unacked[0]]
    assert list(cupboard.shelves.front().deadlines) == [unacked[0]]

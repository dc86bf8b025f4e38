"""Backlog: order and positions of messages that wait, and their deadlines."""

from __future__ import annotations

import pytest

from penstock.amqp import content
from penstock.amqp.decoder import Message
from penstock.broker.backlog import LEVEL_SHIFT, Backlog
from tests.unit.fakes import make_wire, publish_method

ANY = 1 << 40
PUBLISH = publish_method(1, "q")


def message(number: int, size: int = 1) -> Message:
    return PUBLISH, make_wire((b"%d" % number).ljust(size, b"."))


def filled(count: int, deadline_ns: int = 0) -> Backlog:
    backlog = Backlog()
    add(backlog, *range(count), deadline_ns=deadline_ns)
    return backlog


def add(backlog: Backlog, *numbers: int, deadline_ns: int = 0) -> None:
    messages = [message(number) for number in numbers]
    backlog.append(messages, sum(len(wire) for _, wire in messages), deadline_ns)


def pop(backlog: Backlog, limit: int = 1) -> tuple[list[int], list[int], bool]:
    positions, messages, redelivered = backlog.pop(limit, ANY)
    return list(positions), [int(content.body(wire)) for _, wire in messages], redelivered


def test_messages_leave_in_the_order_they_came_with_consecutive_positions() -> None:
    backlog = filled(3)
    assert pop(backlog, 2) == ([0, 1], [0, 1], False)
    add(backlog, 3)
    assert pop(backlog, 10) == ([2, 3], [2, 3], False)
    assert len(backlog) == 0
    assert backlog.ready_bytes == 0


def test_a_higher_level_has_positions_of_its_own() -> None:
    backlog = Backlog(3)
    add(backlog, 0)
    (position,), _, _ = pop(backlog)
    assert position >> LEVEL_SHIFT == 3


def test_what_comes_back_is_ahead_of_the_rest_in_its_original_order() -> None:
    backlog = filled(5)
    _, messages, _ = backlog.pop(3, ANY)
    for position in (2, 0):
        backlog.put_back(position, messages[position])
    assert pop(backlog, 10) == ([0, 2], [0, 2], True)
    assert pop(backlog, 10) == ([3, 4], [3, 4], False)


def test_a_pop_stops_behind_the_message_that_crosses_the_bytes() -> None:
    backlog = filled(5)
    size = len(message(0)[1])
    assert len(backlog.pop(10, 2 * size - 1)[1]) == 2
    assert len(backlog.pop(10, 0)[1]) == 1
    assert backlog.ready_bytes == 2 * size


def test_without_a_time_to_live_nothing_has_a_deadline() -> None:
    backlog = filled(3)
    assert (backlog.deadline(), backlog.stretch()) == (0, 3)
    backlog.pop(2, ANY)
    assert not backlog.deadlines


def test_the_deadline_is_that_of_the_first_message_alone() -> None:
    backlog = filled(2)
    add(backlog, 2, 3, deadline_ns=500)
    add(backlog, 4, deadline_ns=100)
    seen = []
    while len(backlog):
        seen.append((backlog.deadline(), backlog.stretch()))
        backlog.pop(1, ANY)
    assert seen == [(0, 2), (0, 1), (500, 2), (500, 1), (100, 1)]


def test_a_message_that_comes_back_still_has_its_deadline() -> None:
    backlog = filled(3, deadline_ns=700)
    _, messages, _ = backlog.pop(2, ANY)
    assert backlog.deadlines == {0: 700, 1: 700}
    backlog.put_back(1, messages[1])
    assert (backlog.deadline(), backlog.stretch()) == (700, 1)
    backlog.pop(1, ANY)
    assert backlog.deadline() == 700  # of the one that was never delivered


def test_a_batch_that_is_popped_in_parts_notes_each_deadline_once() -> None:
    backlog = filled(4, deadline_ns=700)
    backlog.pop(1, ANY)
    del backlog.deadlines[0]  # settled
    backlog.pop(2, ANY)
    assert backlog.deadlines == {1: 700, 2: 700}
    assert list(backlog.runs) == [(0, 4, 700)]
    backlog.pop(1, ANY)
    assert not backlog.runs


def test_messages_without_deadline_between_others_have_none() -> None:
    backlog = filled(1, deadline_ns=5)
    add(backlog, 1)
    add(backlog, 2, deadline_ns=6)
    backlog.pop(3, ANY)
    assert backlog.deadlines == {0: 5, 2: 6}


def test_cleared_it_goes_on_counting_positions_and_keeps_deadlines_of_the_unacked() -> None:
    backlog = filled(4, deadline_ns=9)
    _, messages, _ = backlog.pop(2, ANY)
    backlog.put_back(0, messages[0])
    backlog.clear()
    assert len(backlog) == 0
    assert backlog.deadlines == {1: 9}
    assert (backlog.deadline(), backlog.ready_bytes, backlog.stretch()) == (0, 0, 0)
    backlog.put_back(1, messages[1])
    assert backlog.deadline() == 9
    add(backlog, 4)
    assert pop(backlog) == ([1], [1], True)
    assert pop(backlog) == ([4], [4], False)


def test_bodies_are_measured_only_when_asked_for_and_then_all_of_them() -> None:
    backlog = Backlog()
    sizes = [1, 20, 300]
    messages = [message(0, size) for size in sizes]
    backlog.append(messages, 0)
    assert backlog.body_bytes == 0
    _, (first,), _ = backlog.pop(1, 0)
    backlog.put_back(0, first)
    backlog.measure(True)
    assert backlog.body_bytes == 321
    backlog.pop(1, 0)
    assert backlog.body_bytes == 320
    backlog.append(messages[:1], 0)
    backlog.put_back(0, first)
    assert backlog.body_bytes == 322
    backlog.clear()
    assert backlog.body_bytes == 0


def test_measuring_can_stop_and_begin_again() -> None:
    backlog = filled(3)
    backlog.measure(True)
    backlog.measure(False)
    backlog.pop(1, ANY)
    backlog.measure(True)
    assert backlog.body_bytes == 2


@pytest.mark.parametrize("count", [1, 3])
def test_a_position_never_comes_twice(count: int) -> None:
    backlog = Backlog()
    seen: set[int] = set()
    for _ in range(5):
        add(backlog, *range(count))
        positions, _, _ = pop(backlog, count)
        assert not seen.intersection(positions)
        seen.update(positions)

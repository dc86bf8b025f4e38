"""Backlog: order and positions of messages that wait, and their deadlines."""

from __future__ import annotations

import pytest

from penstock.amqp import content
from penstock.amqp.decoder import Message
from penstock.broker.backlog import AWAY, Backlog
from penstock.store.log import LEVEL_SHIFT
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


# What is on disk.


def paged(count: int = 10, stay: int = 2, deadline_ns: int = 0) -> Backlog:
    """So many messages, of which all but the first few are paged out."""
    backlog = filled(count, deadline_ns)
    backlog.page_out(count - stay, backlog.end)
    return backlog


def back(backlog: Backlog, *numbers: int, deadlines_ns: list[int] | None = None) -> None:
    """These, whose positions are their numbers, are read back."""
    backlog.page_in(numbers[0], [message(number) for number in numbers], deadlines_ns)
    backlog.paged_in(numbers[-1] + 1)


def drained(backlog: Backlog) -> list[int]:
    """All that can be popped."""
    found: list[int] = []
    while backlog.has_next():
        positions, numbers, _ = pop(backlog, 3)
        assert positions == numbers  # each is in its place
        found += numbers
    return found


def test_the_far_end_leaves_ram_first_and_never_the_very_first_message() -> None:
    backlog = filled(10)
    first, messages, runs = backlog.page_out(4, backlog.end)
    assert (first, len(messages), runs) == (6, 4, [])
    assert [int(content.body(wire)) for _, wire in messages] == [6, 7, 8, 9]
    first, messages, _ = backlog.page_out(100, backlog.end)
    assert (first, len(messages)) == (1, 5)
    assert list(backlog.paged) == [(1, 10)]
    assert (len(backlog), len(backlog.ready), backlog.paged_count) == (10, 1, 9)
    assert backlog.ready_bytes == len(message(0)[1])
    assert backlog.page_out(1, backlog.end)[1] == []


def test_what_is_not_on_disk_yet_stays_behind_what_is() -> None:
    backlog = filled(10)
    first, messages, _ = backlog.page_out(100, 6)
    assert (first, len(messages)) == (1, 5)
    assert (list(backlog.paged), len(backlog.fresh)) == ([(1, 6)], 4)
    assert backlog.ready_bytes + backlog.fresh_bytes == 5 * len(message(0)[1])
    back(backlog, 1, 2, 3, 4, 5)
    assert drained(backlog) == list(range(10))


def test_what_is_not_on_disk_yet_does_not_leave_because_others_have() -> None:
    backlog = filled(10)
    backlog.page_out(3, backlog.end)  # to the pages: 7, 8, 9
    assert backlog.page_out(5, 4)[1] == []  # 4, 5 and 6 are neither there nor synced
    assert backlog.page_out(5, 7)[0] == 2


def test_what_comes_behind_the_paged_out_waits_behind_it() -> None:
    backlog = paged()
    add(backlog, 10, 11)
    assert (len(backlog.fresh), len(backlog)) == (2, 12)
    assert drained(backlog) == [0, 1]
    assert not backlog.has_next()
    back(backlog, 2, 3, 4, 5)
    assert drained(backlog) == [2, 3, 4, 5]
    back(backlog, 6, 7, 8, 9)
    assert (len(backlog.fresh), backlog.fresh_bytes) == (0, 0)
    assert drained(backlog) == [6, 7, 8, 9, 10, 11]
    assert (len(backlog), backlog.ready_bytes) == (0, 0)


def test_the_first_of_what_came_behind_can_leave_too() -> None:
    backlog = paged()
    add(backlog, 10, 11, 12)
    first, messages, runs = backlog.page_out_fresh(2)
    assert (first, len(messages), runs) == (10, 2, [])
    assert list(backlog.paged) == [(2, 12)]
    assert (backlog.paged_count, len(backlog.fresh), len(backlog)) == (10, 1, 13)
    assert backlog.page_out_fresh(0)[1] == []
    assert backlog.page_out_fresh(-3)[1] == []
    assert backlog.page_out_fresh(100)[0] == 12
    assert (backlog.fresh_bytes, len(backlog.fresh)) == (0, 0)


def test_deadlines_leave_with_their_messages_and_come_back_with_them() -> None:
    backlog = filled(3, deadline_ns=100)
    add(backlog, 3, 4, 5)
    add(backlog, 6, 7, 8, deadline_ns=200)
    first, _, runs = backlog.page_out(7, backlog.end)
    assert first == 2
    assert sorted(runs) == [(2, 3, 100), (6, 9, 200)]
    assert list(backlog.runs) == [(0, 2, 100)]
    add(backlog, 9, 10, deadline_ns=300)
    assert backlog.page_out_fresh(1)[2] == [(9, 10, 300)]
    assert drained(backlog) == [0, 1]
    assert backlog.deadline() == 0  # it is on disk
    back(backlog, *range(2, 10), deadlines_ns=[100, 0, 0, 0, 200, 200, 200, 300])
    seen = []
    while len(backlog):
        seen.append((backlog.deadline(), backlog.stretch()))
        backlog.pop(1, ANY)
    assert seen[0] == (100, 1)
    assert [deadline for deadline, _ in seen] == [100, 0, 0, 0, 200, 200, 200, 300, 300]
    assert seen[4] == (200, 3)


def test_a_run_of_deadlines_is_cut_where_what_is_not_on_disk_begins() -> None:
    backlog = filled(10, deadline_ns=5)
    _, _, runs = backlog.page_out(100, 6)
    assert runs == [(1, 6, 5)]
    assert list(backlog.fresh_runs) == [(6, 10, 5)]
    assert list(backlog.runs) == [(0, 1, 5)]


def test_messages_that_are_lost_on_disk_leave_gaps_in_the_positions() -> None:
    backlog = paged()
    backlog.page_in(2, [message(2), message(3)], None)
    backlog.page_in(6, [message(6)], None)
    backlog.paged_in(8)
    assert list(backlog.gaps) == [(4, 6)]
    assert (len(backlog), backlog.paged_count) == (7, 2)
    assert backlog.living()[:2] == [(0, 4), (6, 7)]
    backlog.page_in(9, [message(9)], None)
    backlog.paged_in(10)
    assert drained(backlog) == [0, 1, 2, 3, 6, 9]
    assert not backlog.gaps
    add(backlog, 10)
    assert drained(backlog) == [10]


def test_a_gap_at_the_end_is_passed_when_what_came_behind_joins() -> None:
    backlog = paged()
    add(backlog, 10)
    backlog.page_in(2, [message(2)], None)
    backlog.paged_in(10)  # all the rest is lost
    assert list(backlog.gaps) == [(3, 10)]
    assert drained(backlog) == [0, 1, 2, 10]


def test_what_was_paged_in_with_gaps_stays_in_ram_and_the_rest_can_leave_again() -> None:
    backlog = paged()
    backlog.page_in(2, [message(2)], None)
    backlog.page_in(5, [message(5), message(6)], None)
    backlog.paged_in(7)
    first, messages, _ = backlog.page_out(100, backlog.end)
    assert (first, len(messages)) == (5, 2)
    assert list(backlog.paged) == [(5, 10)]
    assert drained(backlog) == [0, 1, 2]
    assert backlog.held() == [(5, 10)]
    back(backlog, 5, 6, 7, 8, 9)
    assert drained(backlog) == [5, 6, 7, 8, 9]


def test_positions_that_were_in_no_file_are_not_counted_any_more() -> None:
    backlog = paged()
    backlog.paged_in(5)
    assert (backlog.paged_count, len(backlog)) == (5, 7)
    backlog.paged_in(10)
    assert (backlog.paged_count, len(backlog)) == (0, 2)


def test_in_another_life_all_is_on_disk_and_what_was_delivered_is_redelivered() -> None:
    backlog = Backlog()
    backlog.restore([(3, 5), (8, 10)], 4, 0, 12, 8)
    assert len(backlog) == 4
    assert not backlog.has_next()
    assert backlog.held() == [(3, 5), (8, 10)]
    assert backlog.undelivered() == 8
    add(backlog, 12)
    assert backlog.held() == [(3, 5), (8, 10), (12, 13)]
    backlog.page_in(3, [message(3), message(4)], None)
    backlog.page_in(8, [message(8), message(9)], None)
    backlog.paged_in(10)
    assert pop(backlog, 10) == ([3, 4], [3, 4], True)
    assert pop(backlog, 10) == ([8, 9], [8, 9], False)
    assert pop(backlog, 10) == ([12], [12], False)


def test_what_was_delivered_and_what_was_not_are_not_popped_together() -> None:
    backlog = Backlog()
    backlog.restore([(0, 6)], 6, 0, 6, 4)
    back(backlog, 0, 1, 2, 3, 4, 5)
    assert pop(backlog, 10) == ([0, 1, 2, 3], [0, 1, 2, 3], True)
    assert pop(backlog, 10) == ([4, 5], [4, 5], False)
    assert not backlog.odd


def test_what_may_still_be_wanted_is_all_that_waits_and_all_that_is_to_come() -> None:
    backlog = paged()
    add(backlog, 10)
    _, messages, _ = backlog.pop(1, ANY)
    backlog.put_back(0, messages[0])
    end = 1 << LEVEL_SHIFT
    assert backlog.living() == [(0, 1), (1, 2), (2, 10), (10, end)]
    assert backlog.held() == [(0, 1), (1, 2), (2, 10), (10, 11)]
    assert Backlog(2).living() == [(2 << LEVEL_SHIFT, 3 << LEVEL_SHIFT)]
    assert Backlog(2).held() == []


def test_the_first_that_was_never_delivered_may_be_anywhere() -> None:
    backlog = paged()
    assert backlog.undelivered() == 0
    _, messages, _ = backlog.pop(2, ANY)
    assert backlog.undelivered() == 2  # on disk
    backlog.put_back(1, messages[1])
    assert backlog.undelivered() == 2
    add(backlog, 10)
    backlog.paged_in(10)
    assert backlog.undelivered() == 10
    backlog.pop(2, ANY)
    backlog.pop(2, ANY)
    assert backlog.undelivered() == 11


def test_cleared_it_has_nothing_on_disk_and_goes_on_behind_it() -> None:
    backlog = paged(deadline_ns=5)
    add(backlog, 10, deadline_ns=6)
    backlog.clear()
    assert (len(backlog), backlog.paged_count, backlog.fresh_bytes, backlog.deadline()) == (0, 0, 0, 0)
    assert backlog.held() == []
    add(backlog, 11)
    assert drained(backlog) == [11]


def test_a_body_that_is_away_holds_up_what_is_behind_it() -> None:
    backlog = filled(4)
    _, messages, _ = backlog.pop(3, ANY)
    for position, one in ((0, messages[0]), (1, AWAY), (2, messages[2])):
        backlog.put_back(position, one)
    assert pop(backlog, 10) == ([0], [0], True)
    assert not backlog.has_next()
    backlog.fill({1: message(1)}, ())
    assert pop(backlog, 10) == ([1, 2], [1, 2], True)


def test_a_body_that_is_lost_holds_up_nothing() -> None:
    backlog = filled(3)
    backlog.pop(2, ANY)
    backlog.put_back(0, AWAY)
    backlog.put_back(1, AWAY)
    backlog.fill({1: message(1)}, {0})
    assert pop(backlog, 10) == ([1], [1], True)


def test_a_deadline_is_not_known_to_pass_while_the_body_is_away() -> None:
    """Or the queue would wake up for it again and again, and could do nothing."""
    backlog = filled(1, deadline_ns=5)
    _, messages, _ = backlog.pop(1, ANY)
    backlog.put_back(0, AWAY)
    assert backlog.deadline() == 0
    backlog.fill({0: messages[0]}, ())
    assert backlog.deadline() == 5


def test_bodies_are_measured_wherever_they_are() -> None:
    backlog = Backlog()
    backlog.measure(True)
    sizes = [1, 20, 300, 4000, 50_000]
    messages = [message(at, size) for at, size in enumerate(sizes)]
    backlog.append(messages[:4], 0)
    backlog.page_out(2, backlog.end)
    assert (backlog.body_bytes, backlog.paged_bytes) == (21, 4300)
    backlog.append(messages[4:], 0)
    assert backlog.body_bytes == 50_021
    backlog.page_out_fresh(1)
    assert (backlog.body_bytes, backlog.paged_bytes) == (21, 54_300)
    backlog.page_in(2, messages[2:3], None)
    backlog.paged_in(3)
    assert (backlog.body_bytes, backlog.paged_bytes) == (321, 54_000)
    backlog.page_in(3, messages[3:], None)
    backlog.paged_in(5)
    assert (backlog.body_bytes, backlog.paged_bytes) == (54_321, 0)
    backlog.pop(10, ANY)
    assert backlog.body_bytes == 0


def test_bodies_that_were_never_measured_are_guessed_until_they_are_read() -> None:
    backlog = Backlog()
    backlog.measure(True)
    backlog.restore([(0, 4)], 4, 400, 4, 0)
    assert (backlog.body_bytes, backlog.paged_bytes) == (0, 400)
    backlog.page_in(0, [message(0, 7)], None)
    backlog.paged_in(1)
    assert (backlog.body_bytes, backlog.paged_bytes) == (7, 300)
    backlog.page_in(1, [message(1, 8), message(2, 9)], None)
    backlog.paged_in(3)
    assert (backlog.body_bytes, backlog.paged_bytes) == (24, 100)
    backlog.page_out(1, backlog.end)  # it is known by now
    assert (backlog.body_bytes, backlog.paged_bytes) == (15, 109)
    backlog.page_in(2, [message(2, 9)], None)
    backlog.page_in(3, [message(3, 5)], None)
    backlog.paged_in(4)
    assert (backlog.body_bytes, backlog.paged_bytes) == (29, 0)


def test_measuring_begun_late_takes_what_is_on_disk_to_be_like_what_is_not() -> None:
    backlog = Backlog()
    backlog.append([message(at, 100) for at in range(10)], 0)
    backlog.page_out(6, backlog.end)
    backlog.measure(True)
    assert (backlog.body_bytes, backlog.paged_bytes) == (400, 600)


def test_bodies_that_come_back_are_measured_once_and_only_those_that_are_still_here() -> None:
    backlog = Backlog()
    backlog.measure(True)
    backlog.append([message(at, 100) for at in range(3)], 0)
    backlog.pop(2, ANY)
    backlog.put_back(0, AWAY)
    assert backlog.body_bytes == 100
    backlog.fill({0: message(0, 100), 1: message(1, 100)}, ())
    assert backlog.body_bytes == 200
    backlog.clear()
    backlog.fill({0: message(0, 100)}, ())
    assert backlog.body_bytes == 0

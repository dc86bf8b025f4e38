"""Confirms: numbers settled in any order, each once, in as few frames as multiple allows."""

from __future__ import annotations

from penstock.amqp.method import BasicAck, BasicNack, Method
from penstock.broker.confirms import Confirms
from tests.unit.fakes import read_said


def flushed(confirms: Confirms) -> list[Method]:
    said = read_said(confirms.flush())
    assert all(one.channel == 3 for one in said)
    return [one.method for one in said]


def test_numbers_begin_at_one_and_go_on() -> None:
    confirms = Confirms(3)
    assert [confirms.expect(2, 1), confirms.expect(5, 1), confirms.expect(1, 1)] == [1, 3, 8]
    assert confirms.unconfirmed() == 8


def test_a_whole_run_is_one_ack_with_multiple() -> None:
    confirms = Confirms(3)
    confirms.expect(100, 1)
    confirms.confirm(1, 100)
    assert flushed(confirms) == [BasicAck(100, True)]
    assert flushed(confirms) == []
    assert confirms.unconfirmed() == 0


def test_one_number_alone_is_acked_without_multiple() -> None:
    confirms = Confirms(3)
    confirms.expect(1, 1)
    confirms.confirm(1, 1)
    assert flushed(confirms) == [BasicAck(1, False)]


def test_several_runs_settled_between_two_flushes_are_one_ack() -> None:
    confirms = Confirms(3)
    for _ in range(3):
        first = confirms.expect(10, 1)
        confirms.confirm(first, first + 9)
    assert flushed(confirms) == [BasicAck(30, True)]


def test_a_number_waits_for_all_its_queues() -> None:
    confirms = Confirms(3)
    confirms.expect(2, 3)
    confirms.confirm(1, 2)
    confirms.confirm(1, 2)
    assert flushed(confirms) == []
    confirms.confirm(1, 2)
    assert flushed(confirms) == [BasicAck(2, True)]


def test_above_the_smallest_unconfirmed_number_acks_are_single() -> None:
    confirms = Confirms(3)
    confirms.expect(2, 1)
    confirms.expect(2, 1)
    confirms.confirm(3, 4)
    assert flushed(confirms) == [BasicAck(3), BasicAck(4)]
    confirms.confirm(1, 2)
    assert flushed(confirms) == [BasicAck(2, True)]


def test_multiple_reaches_up_to_the_smallest_unconfirmed_and_singles_go_above() -> None:
    confirms = Confirms(3)
    for _ in range(4):
        confirms.expect(2, 1)
    confirms.confirm(1, 2)
    confirms.confirm(3, 4)
    confirms.confirm(7, 8)
    assert sorted(map(repr, flushed(confirms))) == sorted(map(repr, [BasicAck(4, True), BasicAck(7), BasicAck(8)]))


def test_settled_out_of_order_within_one_flush_is_still_one_ack() -> None:
    confirms = Confirms(3)
    for _ in range(3):
        confirms.expect(2, 1)
    for first in (5, 1, 3):
        confirms.confirm(first, first + 1)
    assert flushed(confirms) == [BasicAck(6, True)]


def test_unroutable_publishes_are_acked_at_once_but_not_past_an_unconfirmed_one() -> None:
    confirms = Confirms(3)
    confirms.expect(2, 0)
    assert flushed(confirms) == [BasicAck(2, True)]
    confirms.expect(1, 1)
    confirms.expect(1, 0)
    assert flushed(confirms) == [BasicAck(4)]


def test_part_of_a_run_can_be_confirmed() -> None:
    confirms = Confirms(3)
    confirms.expect(10, 1)
    confirms.confirm(4, 6)
    assert flushed(confirms) == [BasicAck(4), BasicAck(5), BasicAck(6)]
    confirms.confirm(1, 3)
    assert flushed(confirms) == [BasicAck(3, True)]
    confirms.confirm(7, 10)
    assert flushed(confirms) == [BasicAck(10, True)]
    assert confirms.unconfirmed() == 0


def test_a_rejected_number_is_one_nack_whatever_the_other_queues_say() -> None:
    confirms = Confirms(3)
    confirms.expect(1, 2)
    confirms.confirm(1, 1)
    confirms.reject(1, 1)
    assert flushed(confirms) == [BasicNack(1, False, True)]
    confirms.confirm(1, 1)
    confirms.reject(1, 1)
    assert flushed(confirms) == []


def test_nacks_leave_first_so_that_no_multiple_ack_covers_them() -> None:
    confirms = Confirms(3)
    confirms.expect(5, 1)
    confirms.confirm(1, 2)
    confirms.reject(3, 3)
    confirms.confirm(4, 5)
    frames = flushed(confirms)
    assert frames == [BasicNack(3, False, True), BasicAck(5, True)]


def test_a_confirm_over_a_run_that_another_queue_split_confirms_each_part() -> None:
    confirms = Confirms(3)
    confirms.expect(10, 2)
    confirms.confirm(1, 5)  # one queue, by halves
    confirms.confirm(1, 10)  # the other, all at once
    assert flushed(confirms) == [BasicAck(5, True)]
    assert confirms.unconfirmed() == 5
    confirms.confirm(6, 10)
    assert flushed(confirms) == [BasicAck(10, True)]
    assert confirms.unconfirmed() == 0


def test_a_confirm_over_a_run_with_a_rejected_hole_leaves_the_hole() -> None:
    confirms = Confirms(3)
    confirms.expect(10, 2)
    confirms.reject(4, 5)
    assert flushed(confirms) == [BasicNack(4, False, True), BasicNack(5, False, True)]
    confirms.confirm(1, 10)
    confirms.confirm(1, 10)
    assert flushed(confirms) == [BasicAck(10, True)]
    assert confirms.unconfirmed() == 0

"""Deliveries: which of them a tag means, and that each ends once."""

from __future__ import annotations

import pytest

from penstock.amqp.close import CloseChannel
from penstock.broker.casts import ACKED, REQUEUED, Settled
from penstock.broker.consumer import Consumer
from penstock.broker.deliveries import Deliveries, settle
from penstock.broker.queue import Queue
from tests.unit.fakes import House


class Desk:
    """Two consumers of one channel; tags 1 to 6 are theirs in turn, at positions 10 to 15."""

    def __init__(self) -> None:
        self.house = House()
        self.queue: Queue = self.house.queue("q")
        channel = self.house.peer().open(1)
        self.a, self.b = (Consumer(channel, self.queue, tag, False, False, 0, {}) for tag in "ab")
        self.deliveries = Deliveries()
        for tag in range(1, 7):
            self.deliveries.unacked[tag] = (self.a if tag % 2 else self.b, 9 + tag)
        self.deliveries.next_tag = 7

    def taken(self, tag: int, multiple: bool = False) -> list[int]:
        return [number for number, _ in self.deliveries.take(tag, multiple)]

    def collected(self, tag: int, multiple: bool = False) -> dict[str, list[int]]:
        settled: dict[Consumer, list[int]] = {}
        self.deliveries.collect(tag, multiple, settled)
        return {consumer.tag: positions for consumer, positions in settled.items()}


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_one_tag_means_one_delivery(desk: Desk) -> None:
    assert desk.taken(3) == [3]
    assert desk.collected(4) == {"b": [13]}
    assert list(desk.deliveries.unacked) == [1, 2, 5, 6]


def test_multiple_means_all_up_to_the_tag_that_are_still_unacked(desk: Desk) -> None:
    desk.taken(2)
    assert desk.taken(4, multiple=True) == [1, 3, 4]
    assert desk.collected(6, multiple=True) == {"a": [14], "b": [15]}


def test_tag_0_with_multiple_means_all_and_nothing_is_no_error(desk: Desk) -> None:
    assert desk.collected(0, multiple=True) == {"a": [10, 12, 14], "b": [11, 13, 15]}
    assert desk.collected(0, multiple=True) == {}
    assert desk.taken(0, multiple=True) == []


@pytest.mark.parametrize(("tag", "multiple"), [(0, False), (7, False), (7, True), (2, False), (2, True)])
def test_a_tag_that_is_not_unacked_is_unknown(desk: Desk, tag: int, multiple: bool) -> None:
    desk.taken(2)
    for method in (desk.taken, desk.collected):
        with pytest.raises(CloseChannel) as raised:
            method(tag, multiple)
        assert (raised.value.code, raised.value.text) == (406, f"PRECONDITION_FAILED - unknown delivery tag {tag}")
    assert list(desk.deliveries.unacked) == [1, 3, 4, 5, 6]


def test_deliveries_put_back_are_unacked_again_in_their_old_order(desk: Desk) -> None:
    later = desk.deliveries.take(5, False)
    earlier = desk.deliveries.take(2, True)
    desk.deliveries.put_back(later + earlier)
    assert list(desk.deliveries.unacked) == [1, 2, 3, 4, 5, 6]
    assert desk.taken(6, multiple=True) == [1, 2, 3, 4, 5, 6]


def test_putting_back_nothing_changes_nothing(desk: Desk) -> None:
    desk.deliveries.put_back([])
    assert desk.taken(0, multiple=True) == [1, 2, 3, 4, 5, 6]
    desk.deliveries.put_back([])
    assert desk.taken(0, multiple=True) == []


def test_deliveries_that_follow_are_found_after_all_were_put_back_and_taken_again(desk: Desk) -> None:
    desk.deliveries.put_back(desk.deliveries.take(0, True))
    desk.taken(0, multiple=True)
    desk.deliveries.unacked[7] = (desk.a, 16)
    desk.deliveries.next_tag = 8
    assert desk.taken(7, multiple=True) == [7]


def test_the_oldest_tag_is_the_smallest_unacked_one(desk: Desk) -> None:
    assert desk.deliveries.oldest_tag() == 1
    desk.taken(1)
    desk.taken(3)
    assert desk.deliveries.oldest_tag() == 2
    desk.taken(2)
    assert desk.deliveries.oldest_tag() == 4
    desk.taken(0, multiple=True)
    assert desk.deliveries.oldest_tag() == 0


def test_consumers_and_queue_are_told_how_deliveries_ended(desk: Desk) -> None:
    desk.a.unacked = desk.b.unacked = 3
    desk.queue.mailbox.hold()
    settle({desk.a: [10, 12], desk.b: [11]}, REQUEUED)
    assert (desk.a.unacked, desk.b.unacked) == (1, 2)
    assert [vars_of(item) for item in desk.queue.mailbox.ordinary] == [([10, 12], REQUEUED), ([11], REQUEUED)]


def test_a_deleted_queue_is_told_nothing_but_its_consumers_have_room_again(desk: Desk) -> None:
    desk.a.unacked = 1
    desk.queue.delete()
    settle({desk.a: [10]}, ACKED)
    assert desk.a.unacked == 0
    assert not desk.queue.mailbox.ordinary


def vars_of(item: object) -> tuple[list[int], int]:
    assert isinstance(item, Settled)
    return item.positions, item.outcome

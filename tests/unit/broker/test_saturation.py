"""Saturation: which confirms a queue above its mark holds back, and when it lets them go. No queue, real channels."""

from __future__ import annotations

import pytest

from penstock.amqp.decoder import Message
from penstock.amqp.method import ConfirmSelect, TxSelect
from penstock.broker.channel import Channel
from penstock.broker.notices import Confirmed
from penstock.broker.saturation import HOLDS_MIN, Saturation
from penstock.credit import Stage, Watermark
from penstock.store.log import LEVEL_SHIFT
from tests.unit.fakes import House, make_wire, publish_method

Runs = list[tuple[int, int]]


def told(channel: Channel) -> list[Runs]:
    """What the queue has told this channel since the last look, notice by notice."""
    notices = list(channel.mailbox.urgent)
    channel.mailbox.urgent.clear()
    assert all(isinstance(notice, Confirmed) and not notice.refused for notice in notices)
    return [notice.numbers for notice in notices if isinstance(notice, Confirmed)]


class Pond:
    """What a queue does with its Saturation: messages come in, leave in order, and it is judged after each turn."""

    def __init__(self, *marks: int) -> None:
        self.house = House()
        self.saturation = Saturation(Watermark(*marks), self.house.clock.now_ns)
        self.sizes: list[int] = []  # of what is in the queue
        self.head = 0
        self.channels: dict[Stage, None] = {}

    def channel(self, mode: ConfirmSelect | TxSelect | None = None) -> Channel:
        peer = self.house.peer(f"peer{len(self.channels)}")
        channel = peer.open(1)
        peer.ask(1, mode or ConfirmSelect())
        self.channels[channel] = None
        return channel

    def arrive(self, count: int, size: int = 1) -> range:
        """Messages come; their positions."""
        first = self.head + len(self.sizes)
        positions = range(first, first + count)
        message: Message = publish_method(1, "q"), make_wire(b"x" * size)
        self.saturation.arrived(positions, [message] * count)
        self.sizes += [size] * count
        return positions

    def publish(self, channel: Channel, first: int, count: int, size: int = 1) -> Runs:
        """Messages come, are on disk at once, and the turn ends; which confirms were free."""
        positions = self.arrive(count, size)
        free = self.saturation.hold(channel, [(first, first + count - 1)], positions)
        self.end_turn()
        return free + [run for runs in told(channel) for run in runs]

    def leave(self, count: int) -> None:
        """Consumers take so many."""
        del self.sizes[:count]
        self.head += count
        self.end_turn()

    def end_turn(self) -> None:
        self.saturation.judge(len(self.sizes), sum(self.sizes), [self.head], self.channels)


def test_a_queue_below_its_mark_confirms_everything_at_the_end_of_the_turn() -> None:
    pond = Pond(10)
    assert pond.publish(pond.channel(), 1, 10) == [(1, 10)]
    assert not pond.saturation.saturated
    assert pond.saturation.held == 0


def test_what_takes_the_queue_above_its_mark_is_held_and_all_that_comes_after() -> None:
    pond = Pond(800, 700)
    channel = pond.channel()
    assert pond.publish(channel, 1, 700) == [(1, 700)]
    assert pond.publish(channel, 701, 150) == [(701, 800)], "800 is not above 800; 801 is"
    assert pond.saturation.saturated
    assert pond.publish(channel, 851, 50) == []
    assert pond.saturation.held == 100


def test_one_message_above_the_mark_is_held_alone() -> None:
    pond = Pond(800, 700)
    channel = pond.channel()
    assert pond.publish(channel, 1, 800) == [(1, 800)]
    assert pond.publish(channel, 801, 1) == []
    assert pond.saturation.held == 1


def test_release_lets_all_go_at_once_in_one_notice() -> None:
    pond = Pond(800, 700)
    channel = pond.channel()
    pond.publish(channel, 1, 500)
    pond.publish(channel, 501, 500)
    pond.publish(channel, 1001, 10)
    pond.leave(310)
    assert len(pond.sizes) == 700
    assert told(channel) == []
    assert pond.saturation.held == 210
    pond.leave(1)
    assert told(channel) == [[(801, 1010)]]
    assert (pond.saturation.held, pond.saturation.saturated) == (0, False)


def test_a_held_message_that_leaves_the_queue_is_confirmed_by_itself() -> None:
    pond = Pond(4, 1)
    channel = pond.channel()
    pond.publish(channel, 1, 10)
    pond.leave(6)
    assert told(channel) == [[(5, 6)]]
    pond.leave(1)
    assert told(channel) == [[(7, 7)]]
    assert pond.saturation.saturated
    assert pond.saturation.held == 3


def test_what_consumers_take_in_the_same_turn_saturates_nothing() -> None:
    pond = Pond(10)
    channel = pond.channel()
    free = pond.saturation.hold(channel, [(1, 100)], pond.arrive(100))
    assert free == [], "until the turn ends"
    pond.leave(95)
    assert told(channel) == [[(1, 100)]]
    assert pond.saturation.times == 0


def test_of_a_batch_that_consumers_took_part_of_the_last_messages_are_held() -> None:
    pond = Pond(10)
    channel = pond.channel()
    pond.saturation.hold(channel, [(1, 100)], pond.arrive(100))
    pond.leave(88)
    assert told(channel) == [[(1, 98)]]
    assert pond.saturation.held == 2


def test_bytes_draw_the_line_too() -> None:
    pond = Pond(-1, -1, 1000, 500)
    channel = pond.channel()
    assert pond.publish(channel, 1, 9, size=100) == [(1, 9)]
    assert pond.publish(channel, 10, 3, size=100) == [(10, 10)]
    assert pond.publish(channel, 13, 1, size=0) == []
    pond.leave(7)
    assert told(channel) == []
    pond.leave(1)
    assert told(channel) == [[(11, 13)]]


def test_a_message_larger_than_the_mark_is_held_and_those_before_it_are_not() -> None:
    pond = Pond(-1, -1, 1000, 500)
    channel = pond.channel()
    positions = [*pond.arrive(2, 10), *pond.arrive(1, 5000), *pond.arrive(1, 10)]
    pond.saturation.hold(channel, [(1, 4)], positions)
    pond.end_turn()
    assert told(channel) == [[(1, 2)]]


def test_what_is_on_disk_later_is_held_by_where_it_stands_not_by_when() -> None:
    pond = Pond(10, 5)
    channel = pond.channel()
    early, late = pond.arrive(10), pond.arrive(5)
    pond.end_turn()
    assert pond.saturation.saturated
    assert pond.saturation.hold(channel, [(1, 10)], early) == [(1, 10)]
    assert pond.saturation.hold(channel, [(11, 15)], late) == []
    pond.leave(13)
    assert told(channel) == [[(11, 15)]]


def test_what_is_on_disk_after_its_queue_was_released_is_confirmed_even_if_it_is_saturated_again() -> None:
    pond = Pond(10, 5)
    channel = pond.channel()
    slow = pond.arrive(12)
    pond.end_turn()
    pond.leave(8)
    assert not pond.saturation.saturated
    pond.arrive(20)
    pond.end_turn()
    assert pond.saturation.saturated
    assert pond.saturation.hold(channel, [(1, 12)], slow) == [(1, 12)]


def test_what_is_on_disk_after_it_left_the_queue_is_confirmed() -> None:
    pond = Pond(4, 1)
    channel = pond.channel()
    slow = pond.arrive(10)
    pond.end_turn()
    pond.leave(6)
    assert pond.saturation.saturated
    assert pond.saturation.hold(channel, [(1, 10)], slow) == [(1, 6)]


def test_transient_messages_may_overtake_persistent_ones_on_their_way_to_a_hold() -> None:
    pond = Pond(1, 0)
    channel = pond.channel()
    pond.arrive(8)
    assert pond.saturation.hold(channel, [(2, 2), (4, 4), (6, 6), (8, 8)], [1, 3, 5, 7]) == []
    pond.end_turn()
    assert pond.saturation.hold(channel, [(1, 1), (3, 3), (5, 5), (7, 7)], [0, 2, 4, 6]) == [(1, 1)]
    pond.leave(5)
    assert told(channel) == [[(2, 5)]]
    pond.leave(3)
    assert told(channel) == [[(6, 8)]]


def test_priorities_are_held_each_by_its_own_positions() -> None:
    pond = Pond(4, 1)
    channel = pond.channel()
    high = 1 << LEVEL_SHIFT
    message: Message = publish_method(1, "q"), make_wire(b"x")
    positions = [0, high, 1, high + 1, 2, high + 2]
    pond.saturation.arrived(positions, [message] * 6)
    assert pond.saturation.hold(channel, [(1, 6)], positions) == []
    pond.saturation.judge(6, 0, [0, high], pond.channels)
    assert told(channel) == [[(1, 4)]]
    pond.saturation.judge(3, 0, [0, high + 3], pond.channels)
    assert told(channel) == [[(6, 6)]], "of the higher ones all have left"
    pond.saturation.judge(0, 0, [3, high + 3], pond.channels)
    assert told(channel) == [[(5, 5)]]


def test_several_channels_are_told_each_its_own() -> None:
    pond = Pond(2, 1)
    one, other = pond.channel(), pond.channel()
    pond.publish(one, 1, 2)
    pond.publish(one, 3, 2)
    pond.publish(other, 1, 3)
    pond.publish(one, 5, 1)
    pond.saturation.release()
    assert told(one) == [[(3, 5)]]
    assert told(other) == [[(1, 3)]]


def test_a_commit_is_not_held() -> None:
    pond = Pond(2, 1)
    channel = pond.channel(TxSelect())
    assert pond.publish(channel, 1, 10) == [(1, 10)]
    assert pond.saturation.saturated


def test_messages_that_nobody_waits_for_saturate_but_are_not_held() -> None:
    pond = Pond(2, 1)
    pond.arrive(5)
    pond.end_turn()
    assert pond.saturation.saturated
    assert pond.saturation.held == 0
    assert pond.publish(pond.channel(), 1, 1) == []
    assert pond.saturation.held == 1


def test_what_comes_back_can_saturate_and_only_what_comes_later_is_held() -> None:
    pond = Pond(10, 5)
    channel = pond.channel()
    assert pond.publish(channel, 1, 10) == [(1, 10)]
    pond.saturation.judge(11, 0, [0], pond.channels)
    assert pond.saturation.saturated
    assert told(channel) == []
    pond.sizes.append(1)
    assert pond.publish(channel, 11, 1) == []


@pytest.mark.parametrize(("marks", "held"), [((100, 80), 0), ((5, 4), 5)])
def test_new_marks_count_at_the_next_judgement(marks: tuple[int, int], held: int) -> None:
    pond = Pond(10, 5)
    channel = pond.channel()
    pond.publish(channel, 1, 15)
    pond.saturation.apply(Watermark(*marks))
    pond.end_turn()
    assert pond.saturation.held == held
    assert pond.saturation.saturated == bool(held)


def test_how_often_and_since_when_are_counted() -> None:
    pond = Pond(2, 1)
    channel = pond.channel()
    pond.house.clock.advance(5)
    pond.publish(channel, 1, 5)
    assert (pond.saturation.times, pond.saturation.since_ns) == (1, pond.house.clock.now_ns())
    pond.leave(5)
    assert (pond.saturation.times, pond.saturation.since_ns) == (1, 0)
    pond.house.clock.advance(5)
    pond.publish(channel, 6, 3)
    pond.publish(channel, 9, 3)
    assert pond.saturation.times == 2
    assert repr(pond.saturation) == "<Saturation saturated times=2 held=4 Watermark(2, 1, -1, -1)>"


def test_channels_that_are_gone_are_not_remembered_for_ever() -> None:
    pond = Pond(1, 0)
    pond.publish(pond.channel(), 1, 2)
    for _ in range(3 * HOLDS_MIN):
        channel = pond.channel()
        pond.publish(channel, 1, 1)
        del pond.channels[channel]
    assert pond.saturation.held <= HOLDS_MIN

"""Mailbox and Scheduler: two lanes, holds, budgets, faults, and turns that end."""

from __future__ import annotations

import pytest

from penstock.runtime import Mailbox, Scheduler
from penstock.runtime.scheduler import BATCH_ANY
from tests.unit.fakes import HandLoop


class Recorder:
    """A stage that notes what it is given. Each item costs what it says; `backlog` is worked off in finish."""

    def __init__(self, scheduler: Scheduler, backlog: int = 0) -> None:
        self.mailbox: Mailbox[int] = Mailbox(scheduler, self)
        self.seen: list[str] = []
        self.finishes = 0
        self.backlog = backlog

    def take(self, item: int) -> int:
        self.seen.append(f"o{item}")
        return item

    def take_urgent(self, item: int) -> None:
        self.seen.append(f"u{item}")

    def finish(self, budget: int) -> int:
        self.finishes += 1
        done = min(budget, self.backlog)
        self.backlog -= done
        if self.backlog:
            self.mailbox.wake()
        return done


def test_urgent_items_overtake_ordinary_ones_and_each_lane_keeps_its_order() -> None:
    loop = HandLoop()
    stage = Recorder(loop.scheduler)
    for item in (1, 2):
        stage.mailbox.cast(item)
    for item in (3, 4):
        stage.mailbox.cast_urgent(item)
    loop.run_until_idle()
    assert stage.seen == ["u3", "u4", "o1", "o2"]
    assert stage.finishes == 1


def test_casting_runs_nothing_and_asks_for_one_turn_only() -> None:
    loop = HandLoop()
    stage = Recorder(loop.scheduler)
    for item in range(1, 100):
        stage.mailbox.cast(item)
    assert stage.seen == []
    assert loop.wakes == 1
    assert len(stage.mailbox) == 99


def test_a_held_mailbox_keeps_its_ordinary_lane_but_serves_the_urgent_one() -> None:
    loop = HandLoop()
    stage = Recorder(loop.scheduler)
    stage.mailbox.hold()
    stage.mailbox.cast(1)
    assert not loop.awake
    stage.mailbox.cast_urgent(2)
    loop.run_until_idle()
    assert stage.seen == ["u2"]
    stage.mailbox.release()
    loop.run_until_idle()
    assert stage.seen == ["u2", "o1"]


def test_two_holders_do_not_release_each_other() -> None:
    loop = HandLoop()
    stage = Recorder(loop.scheduler)
    stage.mailbox.hold()
    stage.mailbox.hold()
    stage.mailbox.cast(1)
    stage.mailbox.release()
    assert not loop.awake
    stage.mailbox.release()
    loop.run_until_idle()
    assert stage.seen == ["o1"]


def test_releasing_what_nobody_holds_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="nobody holds"):
        Recorder(HandLoop().scheduler).mailbox.release()


def test_a_hold_taken_while_working_stops_the_lane_at_once() -> None:
    loop = HandLoop()
    stage = Recorder(loop.scheduler)

    def take_and_hold(item: int) -> int:
        stage.mailbox.hold()
        return Recorder.take(stage, item)

    stage.take = take_and_hold  # type: ignore[method-assign]
    for item in (1, 2):
        stage.mailbox.cast(item)
    loop.run_until_idle()
    assert stage.seen == ["o1"]


def test_wake_gives_a_turn_although_nothing_was_cast() -> None:
    loop = HandLoop()
    stage = Recorder(loop.scheduler)
    stage.mailbox.wake()
    stage.mailbox.wake()
    loop.run_until_idle()
    assert stage.finishes == 1


def test_a_stage_stops_at_its_budget_and_the_next_stage_has_its_turn_before_it_goes_on() -> None:
    loop = HandLoop(stage_budget=10, turn_budget=1000)
    busy, other = Recorder(loop.scheduler), Recorder(loop.scheduler)
    order: list[str] = []
    busy.take = lambda item: order.append("busy") or item  # type: ignore[method-assign,func-returns-value]
    other.take = lambda item: order.append("other") or item  # type: ignore[method-assign,func-returns-value]
    for _ in range(30):
        busy.mailbox.cast(1)
    other.mailbox.cast(1)
    loop.run_until_idle()
    assert order.index("other") == 10
    assert order.count("busy") == 30


def test_a_turn_ends_at_its_budget_and_asks_for_another() -> None:
    loop = HandLoop(stage_budget=10, turn_budget=40)
    stage = Recorder(loop.scheduler)
    for _ in range(100):
        stage.mailbox.cast(1)
    loop.turn()
    assert 30 <= len(stage.seen) <= 50
    assert loop.awake
    loop.run_until_idle()
    assert len(stage.seen) == 100


def test_work_done_at_the_end_of_a_stages_turn_counts_in_the_budget_of_all() -> None:
    loop = HandLoop(stage_budget=10, turn_budget=40)
    stage = Recorder(loop.scheduler, backlog=10_000)
    stage.mailbox.wake()
    loop.turn()
    assert 10_000 - stage.backlog <= 50, "the event loop waits while a backlog is worked off"
    assert loop.awake


def test_stages_that_only_wake_each_other_still_let_the_loop_in() -> None:
    loop = HandLoop()
    first, second = Recorder(loop.scheduler), Recorder(loop.scheduler)
    first.finish = lambda budget: second.mailbox.wake() or 0  # type: ignore[method-assign,func-returns-value]
    second.finish = lambda budget: first.mailbox.wake() or 0  # type: ignore[method-assign,func-returns-value]
    first.mailbox.wake()
    loop.turn()
    assert loop.awake


def test_after_turn_callbacks_run_once_after_all_stages_of_the_turn() -> None:
    loop = HandLoop()
    stage = Recorder(loop.scheduler)
    loop.scheduler.call_after_turn(lambda: stage.seen.append("flush"))
    stage.mailbox.cast(1)
    assert loop.run_until_idle() == 1
    assert stage.seen == ["o1", "flush"]
    stage.mailbox.cast(2)
    loop.run_until_idle()
    assert stage.seen == ["o1", "flush", "o2"]


def test_a_callback_asked_for_in_a_callback_runs_in_the_next_turn() -> None:
    loop = HandLoop()
    seen: list[int] = []
    loop.scheduler.call_after_turn(lambda: loop.scheduler.call_after_turn(lambda: seen.append(2)))
    assert loop.run_until_idle() == 2
    assert seen == [2]


def test_the_delay_fault_holds_the_stage_for_so_long_per_message() -> None:
    loop = HandLoop()
    stage = Recorder(loop.scheduler)
    stage.mailbox.delay_us = 1000
    stage.mailbox.cast(5)
    loop.run_until_idle()
    stage.mailbox.cast(1)
    stage.mailbox.cast_urgent(7)
    loop.run_until_idle()
    assert stage.seen == ["o5", "u7"]
    loop.clock.advance(0.004_9)
    loop.run_until_idle()
    assert stage.seen == ["o5", "u7"]
    loop.clock.advance(0.000_2)
    loop.run_until_idle()
    assert stage.seen == ["o5", "u7", "o1"]


def test_a_bug_in_one_stage_is_told_and_does_not_stop_the_others() -> None:
    crashes: list[str] = []
    loop = HandLoop()
    loop.scheduler.crashed = lambda where, error: crashes.append(f"{where} {error}")
    broken, other = Recorder(loop.scheduler), Recorder(loop.scheduler)

    def crash(item: int) -> int:
        raise RuntimeError("a bug")

    broken.take = crash  # type: ignore[method-assign]
    broken.mailbox.cast(1)
    other.mailbox.cast(1)
    loop.run_until_idle()
    assert other.seen == ["o1"]
    assert len(crashes) == 1
    assert "a bug" in crashes[0]


def test_a_stage_goes_on_with_the_next_item_after_a_bug() -> None:
    loop = HandLoop()
    loop.scheduler.crashed = lambda where, error: None
    stage = Recorder(loop.scheduler)

    def crash_on_1(item: int) -> int:
        if item == 1:
            raise RuntimeError("a bug")
        return Recorder.take(stage, item)

    stage.take = crash_on_1  # type: ignore[method-assign]
    stage.mailbox.cast(1)
    stage.mailbox.cast(2)
    loop.run_until_idle()
    assert stage.seen == ["o2"]


def test_a_stage_that_fails_every_time_does_not_keep_the_loop_out() -> None:
    crashes: list[BaseException] = []
    loop = HandLoop(stage_budget=10, turn_budget=40)
    stage, other = Recorder(loop.scheduler), Recorder(loop.scheduler)

    def note(where: str, error: BaseException) -> None:
        crashes.append(error)
        assert len(crashes) < 1000, "a turn that never ends"

    def crash(budget: int) -> int:
        raise RuntimeError("a bug")

    loop.scheduler.crashed = note
    stage.finish = crash  # type: ignore[method-assign]
    stage.mailbox.wake()
    other.mailbox.cast(1)
    loop.turn()
    assert other.seen == ["o1"]
    assert crashes


def test_without_anybody_to_tell_a_bug_is_raised() -> None:
    loop = HandLoop()
    stage = Recorder(loop.scheduler)
    stage.mailbox.cast("no number")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        loop.turn()


def test_a_closed_mailbox_lets_its_stage_go_and_swallows_what_comes_late() -> None:
    loop = HandLoop()
    stage = Recorder(loop.scheduler)
    stage.mailbox.hold()
    stage.mailbox.cast(1)
    stage.mailbox.close()
    assert len(stage.mailbox) == 0
    stage.mailbox.release()  # an answer that comes after the end
    stage.mailbox.cast(2)
    stage.mailbox.cast_urgent(3)
    loop.run_until_idle()
    assert stage.seen == []
    assert stage.finishes == 0
    assert len(stage.mailbox) == 0


def test_a_mailbox_tells_its_state() -> None:
    stage = Recorder(HandLoop().scheduler)
    stage.mailbox.cast(1)
    stage.mailbox.hold()
    assert repr(stage.mailbox) == "<Mailbox ordinary=1 urgent=0 holds=1>"


class Busy:
    """A stage whose every turn takes so long."""

    def __init__(self, loop: HandLoop, took_s: float) -> None:
        self.mailbox: Mailbox[int] = Mailbox(loop.scheduler, self)
        self._loop = loop
        self.took_s = took_s

    def take(self, item: int) -> int:
        self._loop.clock.advance(self.took_s)
        return item

    def take_urgent(self, item: int) -> None:
        return

    def finish(self, budget: int) -> int:
        return 0


def test_turns_are_counted_and_the_time_they_took_is_told_from_one_in_sixteen() -> None:
    loop = HandLoop()
    stage = Busy(loop, 0.001)
    for turn in range(1, 66):
        stage.mailbox.cast(1)
        loop.run_until_idle()
        assert stage.mailbox.turns == turn
    assert stage.mailbox.busy_ns == 65_000_000, "the first, and four that stand for sixteen each"


def test_a_stage_with_one_long_turn_does_not_look_sixteen_times_as_busy() -> None:
    loop = HandLoop()
    stage = Busy(loop, 1.0)
    stage.mailbox.cast(1)
    loop.run_until_idle()
    assert stage.mailbox.busy_ns == 1_000_000_000


def test_a_delay_that_a_fault_asks_for_counts_as_work() -> None:
    loop = HandLoop()
    stage = Busy(loop, 0.0)
    stage.mailbox.delay_us = 2000
    stage.mailbox.cast(50)
    loop.run_until_idle()
    assert stage.mailbox.busy_ns == 100_000_000


def test_turns_that_take_too_long_make_the_next_ones_shorter_until_they_are_short_again() -> None:
    loop = HandLoop(stage_budget=100, turn_budget=400)
    stage = Busy(loop, 0.01)
    for _ in range(2000):
        stage.mailbox.cast(1)
    for _ in range(20):
        loop.turn()
    began_ns = loop.clock.now_ns()
    loop.turn()
    assert 0 < loop.clock.now_ns() - began_ns <= 40_000_000, "the event loop waits while a heavy stage works"
    assert loop.scheduler.batch_max == loop.scheduler.stage_budget < 100
    stage.took_s = 0.0
    loop.run_until_idle()
    assert (loop.scheduler.stage_budget, loop.scheduler.turn_budget) == (100, 400)
    assert loop.scheduler.batch_max == BATCH_ANY


def test_while_turns_take_too_long_each_one_is_timed() -> None:
    loop = HandLoop()
    stage = Busy(loop, 0.05)
    for turn in range(1, 20):
        stage.mailbox.cast(1)
        loop.turn()
        assert stage.mailbox.busy_ns == turn * 50_000_000


def test_a_turn_always_does_something_however_heavy_it_is() -> None:
    loop = HandLoop(stage_budget=100, turn_budget=400)
    stage = Busy(loop, 60.0)
    for _ in range(30):
        stage.mailbox.cast(1)
    loop.run_until_idle()
    assert not len(stage.mailbox)

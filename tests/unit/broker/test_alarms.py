"""Alarms: when there is one, counted by source, who is told; and how often memory and disk are looked at."""

from __future__ import annotations

import pytest

from penstock.broker.alarms import (
    DISK,
    DISK_CHECK_S_MAX,
    DISK_CHECK_S_MIN,
    MEMORY,
    PUSH_BYTES_MAX,
    STORE,
    Alarms,
    Thresholds,
    Watch,
    disk_check_s,
    low_on_disk,
    low_on_memory,
)
from penstock.runtime import FakeClock

MB = 1_000_000
GB = 1000 * MB


class Ear:
    """A listener that counts."""

    def __init__(self, alarms: Alarms) -> None:
        self.calls = 0
        alarms.listeners[self] = None

    def alarms_changed(self) -> None:
        self.calls += 1


class Machine:
    """Vitals that a test sets."""

    def __init__(self) -> None:
        self.used = 100 * MB
        self.memory = 1 * GB
        self.free: int | None = 10 * GB
        self.kept = 0  # freed, but still the allocator's
        self.looks = 0
        self.disk_looks = 0

    def memory_used_bytes(self) -> int:
        self.looks += 1
        return self.used + self.kept

    def memory_bytes(self) -> int:
        return self.memory

    def disk_free_bytes(self) -> int | None:
        self.disk_looks += 1
        return self.free

    def core_wait(self) -> tuple[int, int]:
        return 0, 0

    def give_back(self) -> None:
        self.kept = 0


class Rig:
    def __init__(self, thresholds: Thresholds | None = None) -> None:
        self.clock = FakeClock()
        self.machine = Machine()
        self.alarms = Alarms(thresholds)
        self.ear = Ear(self.alarms)
        self.watch = Watch(self.clock, self.alarms, self.machine)

    def sources(self) -> list[str]:
        return list(self.alarms.reasons())


# The decision.


@pytest.mark.parametrize(
    ("used", "high", "reason"),
    [
        (812 * MB, 800 * MB, "low on memory: 812 MB used of 800 MB"),
        (800 * MB, 800 * MB, ""),
        (800 * MB + 1, 800 * MB, "low on memory: 800 MB used of 800 MB"),
        (60 * MB, 1, "low on memory: 60 MB used of 1 B"),
        (60 * MB, 1_500_000, "low on memory: 60 MB used of 1.5 MB"),
        (60 * MB, 1_000_000, "low on memory: 60 MB used of 1 MB"),
        (60 * MB, 1_000, "low on memory: 60 MB used of 0.001 MB"),
        (10 * GB, 0, ""),
        (0, 800 * MB, ""),
    ],
)
def test_memory_above_its_watermark_is_an_alarm_with_the_numbers(used: int, high: int, reason: str) -> None:
    assert low_on_memory(used, high) == reason


@pytest.mark.parametrize(
    ("free", "low", "reason"),
    [
        (40 * MB, 50 * MB, "low on disk: 40 MB free, limit 50 MB"),
        (50 * MB, 50 * MB, ""),
        (0, 50 * MB, "low on disk: 0 B free, limit 50 MB"),
        (0, 0, ""),
    ],
)
def test_a_disk_below_its_limit_is_an_alarm_with_the_numbers(free: int, low: int, reason: str) -> None:
    assert low_on_disk(free, low) == reason


def test_a_watermark_in_bytes_counts_before_the_relative_one() -> None:
    assert Thresholds().memory_high(1 * GB) == 600 * MB
    assert Thresholds(memory_bytes_high=5).memory_high(1 * GB) == 5
    assert Thresholds(memory_relative_high=0).memory_high(1 * GB) == 0
    assert Thresholds().memory_high(0) == 0, "where the memory there is cannot be told, a part of it is no watermark"


def test_of_the_two_limits_of_the_disk_the_larger_counts() -> None:
    assert Thresholds().disk_low(1 * GB) == 50 * MB
    assert Thresholds(disk_free_relative_low=1.5).disk_low(1 * GB) == 1500 * MB
    assert Thresholds(disk_free_relative_low=0.01).disk_low(1 * GB) == 50 * MB


def test_the_disk_is_looked_at_the_more_often_the_closer_it_is() -> None:
    assert disk_check_s(100 * GB, 50 * MB) == DISK_CHECK_S_MAX
    assert disk_check_s(1050 * MB, 50 * MB) == 2.0
    assert disk_check_s(51 * MB, 50 * MB) == DISK_CHECK_S_MIN
    assert disk_check_s(0, 50 * MB) == 1.0


# Counting.


def test_what_one_source_clears_another_still_holds() -> None:
    alarms = Alarms()
    alarms.raise_alarm(MEMORY, "low on memory")
    alarms.raise_alarm(STORE, "the journal cannot write: No space left on device")
    alarms.clear(MEMORY)
    assert alarms
    assert alarms.reasons() == {STORE: "the journal cannot write: No space left on device"}
    alarms.clear(STORE)
    assert not alarms


def test_an_alarm_raised_twice_by_its_source_is_cleared_once() -> None:
    alarms = Alarms()
    alarms.raise_alarm(STORE, "one")
    alarms.raise_alarm(STORE, "two")
    assert alarms.text() == "two"
    alarms.clear(STORE)
    alarms.clear(STORE)
    assert not alarms


def test_listeners_are_told_of_every_beginning_change_and_end_and_of_nothing_else() -> None:
    alarms = Alarms()
    ear = Ear(alarms)
    told: list[tuple[str, str]] = []
    alarms.told = lambda source, reason: told.append((source, reason))
    alarms.clear(MEMORY)
    assert ear.calls == 0
    alarms.raise_alarm(MEMORY, "a")
    alarms.raise_alarm(MEMORY, "a")
    assert ear.calls == 1
    alarms.raise_alarm(STORE, "b")
    alarms.raise_alarm(STORE, "c")
    alarms.renew(MEMORY, "newer numbers")
    assert ear.calls == 3
    assert alarms.text() == "newer numbers; c"
    alarms.clear(MEMORY)
    alarms.clear(STORE)
    assert ear.calls == 5
    assert told == [(MEMORY, "a"), (STORE, "b"), (STORE, "c"), (MEMORY, ""), (STORE, "")]


def test_what_is_pushed_under_alarms_is_bounded_once_per_episode() -> None:
    alarms = Alarms()
    assert alarms.admit(10 * PUSH_BYTES_MAX), "without an alarm there is no bound"
    alarms.raise_alarm(MEMORY, "low")
    assert alarms.admit(PUSH_BYTES_MAX - 1)
    assert not alarms.admit(2)
    alarms.raise_alarm(STORE, "too")
    alarms.clear(MEMORY)
    assert not alarms.admit(2), "the episode goes on"
    assert alarms.admit(0)
    alarms.clear(STORE)
    alarms.raise_alarm(STORE, "again")
    assert alarms.admit(PUSH_BYTES_MAX)


# The watch.


def test_an_alarm_is_on_before_the_first_second_and_ends_by_itself() -> None:
    rig = Rig()
    rig.machine.used = 700 * MB
    rig.watch.start()
    assert rig.alarms.text() == "low on memory: 700 MB used of 600 MB"
    rig.machine.used = 500 * MB
    rig.clock.advance(0.9)
    assert rig.alarms
    rig.clock.advance(0.1)
    assert not rig.alarms


def test_while_an_alarm_is_on_its_numbers_are_renewed_and_nobody_is_told_again() -> None:
    rig = Rig()
    rig.machine.used = 700 * MB
    rig.watch.start()
    rig.machine.used = 710 * MB
    rig.clock.advance(1)
    assert rig.alarms.text() == "low on memory: 710 MB used of 600 MB"
    assert rig.ear.calls == 1


def test_memory_that_only_the_allocator_keeps_is_given_back_and_is_no_alarm() -> None:
    rig = Rig()
    rig.machine.kept = 2 * GB
    rig.watch.start()
    assert not rig.alarms


def test_the_disk_is_watched_until_it_fills_and_after() -> None:
    rig = Rig()
    rig.watch.start()
    looks = rig.machine.disk_looks
    rig.clock.advance(9.5)
    assert rig.machine.disk_looks == looks, "far away it is looked at every ten seconds"
    rig.machine.free = 100 * MB
    rig.clock.advance(0.5)
    looks = rig.machine.disk_looks
    rig.clock.advance(0.5)
    assert rig.machine.disk_looks - looks == 5, "close to the limit ten times a second"
    rig.machine.free = 40 * MB
    rig.clock.advance(0.1)
    assert rig.alarms.reasons() == {DISK: "low on disk: 40 MB free, limit 50 MB"}
    rig.machine.free = 60 * MB
    rig.clock.advance(1)
    assert not rig.alarms


def test_without_a_data_directory_there_is_no_disk_alarm() -> None:
    rig = Rig()
    rig.machine.free = None
    rig.watch.start()
    rig.clock.advance(20)
    assert not rig.alarms


def test_memory_and_disk_hold_publishers_each_by_itself() -> None:
    rig = Rig()
    rig.machine.used, rig.machine.free = 700 * MB, 1 * MB
    rig.watch.start()
    assert rig.sources() == [MEMORY, DISK]
    rig.machine.used = 0
    rig.clock.advance(1)
    assert rig.sources() == [DISK]


def test_a_changed_threshold_counts_at_once() -> None:
    rig = Rig()
    rig.watch.start()
    rig.alarms.change(Thresholds(memory_bytes_high=1 * MB))
    assert rig.alarms.text() == "low on memory: 100 MB used of 1 MB"
    rig.alarms.change(Thresholds(memory_bytes_high=200 * MB))
    assert not rig.alarms
    looks = rig.machine.looks
    rig.clock.advance(3)
    assert rig.machine.looks - looks == 3, "there is still one look a second"


def test_a_changed_deadline_is_told() -> None:
    rig = Rig()
    rig.alarms.change(Thresholds(blocked_deadline_s=5))
    assert rig.ear.calls == 1


def test_a_watch_that_is_stopped_looks_no_more() -> None:
    rig = Rig()
    rig.watch.start()
    rig.watch.stop()
    looks = rig.machine.looks
    rig.clock.advance(60)
    assert rig.machine.looks == looks

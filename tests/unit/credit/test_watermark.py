"""Watermark and Gauge: when a queue is saturated, and when it is released again."""

from __future__ import annotations

import pytest

from penstock.credit import Gauge, Watermark
from penstock.credit.watermark import OFF, default_resume, default_stop


def changes(gauge: Gauge, counts: range, size: int = 0) -> list[int]:
    """At which of these counts the gauge changes."""
    changed = []
    for count in counts:
        before = gauge.saturated
        if gauge.read(count, count * size) != before:
            changed.append(count)
    return changed


def test_a_queue_of_1000_is_saturated_at_801_and_released_at_699() -> None:
    gauge = Gauge(Watermark(default_stop(1000)))
    assert gauge.watermark == Watermark(800, 700)
    assert changes(gauge, range(1001)) == [801]
    assert changes(gauge, range(1000, -1, -1)) == [699]


def test_between_the_marks_it_stays_what_it_was() -> None:
    gauge = Gauge(Watermark(800, 700))
    assert not gauge.read(800, 0)
    assert gauge.read(801, 0)
    assert gauge.read(700, 0)
    assert gauge.read(800, 0)
    assert not gauge.read(699, 0)
    assert not gauge.read(800, 0)


def test_bytes_alone_saturate_too() -> None:
    gauge = Gauge(Watermark(stop_bytes=1000, resume_bytes=500))
    assert changes(gauge, range(30), size=100) == [11]
    assert changes(gauge, range(30, -1, -1), size=100) == [4]


def test_either_is_enough_to_saturate_and_both_must_fall_to_release() -> None:
    gauge = Gauge(Watermark(10, 5, 1000, 500))
    assert gauge.read(1, 1001)
    assert not gauge.read(1, 499)
    assert gauge.read(11, 1)
    assert gauge.read(4, 600), "bytes are still above their resume mark"
    assert gauge.read(6, 400), "messages are still above theirs"
    assert not gauge.read(4, 499)


@pytest.mark.parametrize("maximum", [0, 1, 2, 3, 5, 10, 999])
def test_a_queue_at_its_maximum_is_saturated_and_an_empty_one_never_is(maximum: int) -> None:
    gauge = Gauge(Watermark(default_stop(maximum)))
    assert gauge.read(max(1, maximum), 0)
    assert not gauge.read(0, 0)


def test_a_resume_mark_of_0_is_reached_by_an_empty_queue() -> None:
    gauge = Gauge(Watermark(10, 0, 1000, 0))
    assert gauge.read(11, 1100)
    assert gauge.read(1, 0)
    assert not gauge.read(0, 0)


def test_without_a_resume_mark_it_is_seven_eighths_of_the_stop() -> None:
    assert Watermark(800) == Watermark(800, 700)
    assert Watermark(stop_bytes=1600) == Watermark(stop_bytes=1600, resume_bytes=1400)
    assert default_resume(default_stop(10)) == 7


def test_a_resume_mark_above_the_stop_counts_as_the_stop() -> None:
    assert Watermark(10, 20, 5, 6) == Watermark(10, 10, 5, 5)


def test_a_watermark_without_stops_never_saturates() -> None:
    gauge = Gauge(Watermark(OFF, 5, OFF, 5))
    assert not gauge.read(1 << 40, 1 << 50)
    assert Watermark(OFF, 5) == Watermark()


def test_marks_are_told() -> None:
    gauge = Gauge(Watermark(8, 7))
    gauge.read(9, 0)
    assert repr(gauge) == "<Gauge Watermark(8, 7, -1, -1) saturated>"
    assert len({Watermark(8, 7), Watermark(8), Watermark(8, 6)}) == 2

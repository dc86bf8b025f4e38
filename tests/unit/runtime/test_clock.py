"""FakeClock: the time of all the other tests."""

from __future__ import annotations

from penstock.runtime import FakeClock


def test_timers_run_in_the_order_they_fall_due_each_at_its_time() -> None:
    clock = FakeClock()
    seen: list[tuple[str, int]] = []
    for name, delay_s in (("b", 2.0), ("a", 1.0), ("c", 2.0), ("late", 9.0)):
        clock.call_later(delay_s, lambda name=name: seen.append((name, clock.now_ns())))  # type: ignore[misc]
    clock.advance(5)
    assert seen == [("a", 1_000_000_000), ("b", 2_000_000_000), ("c", 2_000_000_000)]
    assert clock.now_ns() == 5_000_000_000


def test_a_cancelled_timer_does_not_run_and_one_set_by_a_timer_runs_in_the_same_advance() -> None:
    clock = FakeClock()
    seen: list[str] = []
    clock.call_later(1, lambda: seen.append("cancelled")).cancel()

    def again() -> None:
        clock.call_later(1, lambda: seen.append("second"))

    clock.call_later(1, again)
    clock.advance(2)
    assert seen == ["second"]

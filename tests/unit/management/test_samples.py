"""Samples, in RabbitMQ's shape."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.management.samples import Span, add_samples, ask

NAMES = ("publish", "messages_ready", "messages_unacknowledged")


def details(*looks: tuple[int, tuple[int, int, int]], span: Span) -> dict[str, Any]:
    part: dict[str, Any] = {f"{name}_details": {"rate": 0.0} for name in (*NAMES, "messages")}
    add_samples(part, NAMES, looks, span)
    return part


def test_samples_are_at_whole_steps_and_the_newest_is_first() -> None:
    part = details((9_000, (1, 0, 0)), (14_000, (5, 0, 0)), (21_000, (9, 0, 0)), span=Span(10, 5))
    assert part["publish_details"]["samples"] == [
        {"sample": 5, "timestamp": 20_000},
        {"sample": 5, "timestamp": 15_000},
        {"sample": 1, "timestamp": 10_000},
    ]


def test_before_the_first_look_all_was_0() -> None:
    part = details((20_000, (9, 0, 0)), span=Span(10, 5))
    assert [one["sample"] for one in part["publish_details"]["samples"]] == [9, 0, 0]


def test_the_average_rate_is_over_the_whole_span() -> None:
    part = details((10_000, (0, 0, 0)), (20_000, (50, 0, 0)), span=Span(10, 5))
    assert part["publish_details"]["avg_rate"] == 5.0
    assert part["publish_details"]["avg"] == pytest.approx(50 / 3)


def test_messages_are_the_ready_and_the_unacknowledged_ones() -> None:
    part = details((20_000, (9, 4, 3)), span=Span(5, 5))
    assert part["messages_details"]["samples"][0]["sample"] == 7


def test_without_a_look_there_are_no_samples() -> None:
    assert details(span=Span(10, 5))["publish_details"]["samples"] == []


def test_a_request_without_both_words_asks_for_nothing() -> None:
    assert not ask({})
    assert not ask({"msg_rates_age": "60"})


def test_a_request_asks_for_rates_or_lengths_or_both() -> None:
    asked = ask({"msg_rates_age": "60", "msg_rates_incr": "5"})
    assert asked
    assert asked.rates == Span(60, 5)
    assert asked.lengths is None


@pytest.mark.parametrize(
    ("age", "step"), [("x", "5"), ("60", "0"), ("-60", "5"), ("0", "5"), ("86400", "1"), ("６０", "5")]
)
def test_a_span_that_makes_no_sense_is_refused(age: str, step: str) -> None:
    with pytest.raises(ValueError):
        ask({"lengths_age": age, "lengths_incr": step})

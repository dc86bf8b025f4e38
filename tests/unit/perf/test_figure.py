"""Figures: percentiles by nearest rank, medians over rounds, and a ratio that is above 1 when the first is ahead."""

import math

import pytest

from penstock.perf.figure import MESSAGES_PER_S, MICROSECONDS, Figure, percentile, ratio, summarise


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (1, 1), (50, 50), (99, 99), (99.5, 100), (100, 100)])
def test_a_percentile_is_the_nearest_rank(percent, value):
    assert percentile(range(1, 101), percent) == value


@pytest.mark.parametrize("percent", [0, 50, 99, 100])
def test_every_percentile_of_one_value_is_that_value(percent):
    assert percentile([7.0], percent) == 7.0


def test_more_messages_and_less_time_are_both_ahead():
    assert ratio(200, 100, MESSAGES_PER_S) == 2
    assert ratio(50, 100, MICROSECONDS) == 2
    assert ratio(1, 0, MESSAGES_PER_S) == math.inf


def test_rounds_are_summarised_by_their_medians():
    rounds = [Figure("", value, MESSAGES_PER_S, cpu, 0.5) for value, cpu in ((10, 3.0), (30, 1.0), (20, None))]
    found = summarise(rounds)
    assert (found.value, found.values, found.broker_cpu_us) == (20, (10, 30, 20), 2.0)


def test_cpu_time_that_no_round_knows_stays_unknown():
    assert summarise([Figure("", 1, MESSAGES_PER_S, None, 0.5)]).broker_cpu_us is None

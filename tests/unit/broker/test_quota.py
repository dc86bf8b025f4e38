"""Quota: how much of a queue must leave RAM, and what of it goes first."""

from __future__ import annotations

import pytest

from penstock.broker.quota import quota, shares, target_count


def test_the_quota_is_what_is_in_ram_above_the_target() -> None:
    assert quota(20_000, 0, 8_000) == 12_000  # FEATURES.md 6
    assert quota(15_000, 5_000, 8_000) == 12_000
    assert quota(5_000, 2_000, 8_000) == 0


def test_the_target_is_a_share_of_what_is_there() -> None:
    assert target_count(20_000, 100, 100) == 20_000
    assert target_count(20_000, 250, 100) == 8_000
    assert target_count(20_000, 100, 0) == 0
    assert target_count(0, 0, 0) == 0


@pytest.mark.parametrize(
    ("ready", "unacked", "ready_growth", "unacked_growth", "expected"),
    [
        (20_000, 0, 20_000, 0, (12_000, 0)),
        (15_000, 15_000, 10, 5, (12_000, 0)),
        (15_000, 15_000, 5, 10, (0, 12_000)),
        (15_000, 15_000, 5, 5, (12_000, 0)),
        (4_000, 16_000, 10, 5, (4_000, 8_000)),
        (16_000, 4_000, 5, 10, (8_000, 4_000)),
        (3_000, 4_000, -10, -5, (3_000, 4_000)),
    ],
)
def test_whichever_grew_faster_goes_first_and_the_other_has_what_is_left(
    ready: int, unacked: int, ready_growth: int, unacked_growth: int, expected: tuple[int, int]
) -> None:
    assert shares(12_000, ready, unacked, ready_growth, unacked_growth) == expected


def test_with_no_quota_nothing_goes() -> None:
    assert shares(0, 10, 10, 1, 0) == (0, 0)
    assert shares(0, 10, 10, 0, 1) == (0, 0)

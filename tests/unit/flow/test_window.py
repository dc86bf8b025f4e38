"""Verdicts of a window that is over: the same rule as live, by the window's own seconds."""

from __future__ import annotations

import pytest

from penstock.flow.window import Finding, Wait, judge

CONNECTION = "connection 10.0.0.5:50112 -> 10.0.0.1:5672"
CHANNEL = "channel 10.0.0.5:50112 -> 10.0.0.1:5672 (1)"
WINDOW = 10_000_000


def verdict(waits: list[Wait], held_us: int = WINDOW) -> Finding | None:
    findings, _ = judge(waits, {CONNECTION: held_us}, WINDOW)
    return findings[0] if findings else None


@pytest.mark.parametrize(
    ("waits", "cause", "bottleneck", "resource"),
    [
        ([Wait(CONNECTION, CHANNEL, WINDOW, 0)], "channel", CHANNEL, "CPU"),
        (
            [Wait(CONNECTION, CHANNEL, WINDOW, WINDOW), Wait(CHANNEL, "queue orders", WINDOW, 0)],
            "queue",
            "queue orders",
            "CPU",
        ),
        (
            [
                Wait(CONNECTION, CHANNEL, WINDOW, WINDOW),
                Wait(CHANNEL, "queue orders", WINDOW, WINDOW),
                Wait("queue orders", "store", WINDOW, 0),
            ],
            "store",
            "store",
            "disk",
        ),
        (
            [
                Wait(CONNECTION, CHANNEL, WINDOW, WINDOW),
                Wait(CHANNEL, "queue orders", WINDOW, WINDOW),
                Wait("queue orders", "queue dead", WINDOW, 0),
            ],
            "dead letters",
            "queue dead",
            "CPU",
        ),
        ([Wait(CONNECTION, "alarm memory", WINDOW, 0)], "memory", "alarm memory", "memory"),
        ([Wait(CONNECTION, "alarm disk", WINDOW, 0)], "disk", "alarm disk", "disk"),
        ([Wait(CONNECTION, "alarm store", WINDOW, 0)], "store fault", "alarm store", "disk"),
        (
            [Wait(CONNECTION, "consumers of queue orders", WINDOW, 0, CHANNEL)],
            "saturated",
            "consumers of queue orders",
            "consumers",
        ),
        (
            [
                Wait(CONNECTION, CHANNEL, WINDOW, WINDOW),
                Wait(CHANNEL, "queue orders", WINDOW, WINDOW),
                Wait("queue orders", "consumers of queue orders", WINDOW, 0),
            ],
            "saturated",
            "consumers of queue orders",
            "consumers",
        ),
    ],
)
def test_the_bottleneck_of_a_window_is_the_first_stage_that_is_not_blocked_itself(waits, cause, bottleneck, resource):
    found = verdict(waits)
    assert found is not None
    assert (found.cause, found.bottleneck, found.resource) == (cause, bottleneck, resource)
    assert found.chain[0] == CONNECTION
    assert found.chain[-1] == bottleneck
    assert found.share == 1.0


def test_a_stage_that_is_blocked_for_less_than_half_of_the_time_is_slow_by_itself():
    waits = [
        Wait(CONNECTION, CHANNEL, 8_000_000, 8_000_000),
        Wait(CHANNEL, "queue orders", 8_000_000, 1_000_000),
        Wait("queue orders", "store", 1_000_000, 0),
    ]
    found = verdict(waits, 8_000_000)
    assert found is not None
    assert (found.cause, found.bottleneck, found.share) == ("queue", "queue orders", 0.8)


@pytest.mark.parametrize(
    ("channel_us", "queue_us", "bottleneck"),
    [
        (WINDOW // 10, WINDOW * 8 // 10, "queue orders"),
        (WINDOW * 8 // 10, WINDOW // 10, CHANNEL),
        (WINDOW * 4 // 10, WINDOW * 6 // 10, CHANNEL),  # the more, but not by far
        (WINDOW // 100, WINDOW * 3 // 10, CHANNEL),  # by far the more, but it is not what was waited for
    ],
)
def test_of_a_channel_and_a_queue_that_share_the_core_the_one_that_takes_it_is_the_bottleneck(
    channel_us, queue_us, bottleneck
):
    wait = Wait(CONNECTION, CHANNEL, WINDOW, 0, "", channel_us, "queue orders", queue_us)
    findings, roots = judge([wait], {CONNECTION: WINDOW}, WINDOW)
    assert [finding.bottleneck for finding in findings] == [bottleneck]
    assert roots == [bottleneck]
    assert findings[0].cause == bottleneck.partition(" ")[0]


def test_a_connection_that_was_held_back_for_less_than_a_twentieth_has_no_verdict():
    assert verdict([Wait(CONNECTION, CHANNEL, 499_999, 0)], 499_999) is None
    assert verdict([Wait(CONNECTION, CHANNEL, 500_000, 0)], 500_000) is not None


def test_an_alarm_counts_if_it_was_on_for_half_of_the_time():
    waits = [Wait(CONNECTION, "alarm memory", 4_000_000, 0), Wait(CONNECTION, CHANNEL, 6_000_000, 0)]
    short = verdict(waits)
    assert short is not None
    assert short.cause == "channel"
    long = verdict([waits[0]._replace(blocked_us=5_000_000), waits[1]])
    assert long is not None
    assert long.cause == "memory"
    alone = verdict([waits[0]], 9_000_000)
    assert alone is not None
    assert alone.cause == "memory"


def test_confirms_that_a_queue_holds_come_by_way_of_the_channel_and_the_queue():
    found = verdict([Wait(CONNECTION, "consumers of queue orders", WINDOW, 0, CHANNEL)])
    assert found is not None
    assert found.chain == (CONNECTION, CHANNEL, "queue orders", "consumers of queue orders")


def test_stages_that_wait_for_each_other_are_an_unknown_cause():
    waits = [
        Wait(CONNECTION, CHANNEL, WINDOW, WINDOW),
        Wait(CHANNEL, "queue a", WINDOW, WINDOW),
        Wait("queue a", "queue b", WINDOW, WINDOW),
        Wait("queue b", "queue a", WINDOW, WINDOW),
    ]
    findings, roots = judge(waits, {CONNECTION: WINDOW}, WINDOW)
    assert [(found.cause, found.bottleneck, found.chain) for found in findings] == [("unknown", None, (CONNECTION,))]
    assert roots == [None, None, None, None]


def test_every_wait_has_the_bottleneck_behind_it():
    waits = [
        Wait(CONNECTION, CHANNEL, WINDOW, WINDOW),
        Wait(CHANNEL, "queue orders", WINDOW, WINDOW),
        Wait("queue orders", "store", WINDOW, 0),
        Wait(CHANNEL, "queue mail", 1_000_000, 0),
        Wait("connection other", "alarm disk", WINDOW, 0),
    ]
    _, roots = judge(waits, {}, WINDOW)
    assert roots == ["store", "store", "store", "queue mail", "alarm disk"]


def test_a_window_in_which_nobody_waited_has_no_verdicts():
    assert judge([], {}, WINDOW) == ([], [])

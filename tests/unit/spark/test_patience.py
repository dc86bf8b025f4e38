"""Patience: the first failure is tried again at once, then ever less often, and a minute later it is the end."""

from __future__ import annotations

import logging

import pytest

from penstock.client.error import ClientError, Closed, LoginRefused, Unreachable
from penstock.spark import patience
from penstock.spark.patience import Patience, is_passing


class Clock:
    """Time that passes only by sleeping."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(patience, "time", clock)
    return clock


def wait_for_ever(waiting: Patience, error: ClientError) -> None:
    while True:
        waiting.wait(error)


def test_waits_grow_and_end_with_the_error_itself(clock: Clock, caplog: pytest.LogCaptureFixture):
    waiting = Patience("stream s", outage_s=10)
    error = Unreachable("no broker at localhost:5672: connection refused")
    with caplog.at_level(logging.INFO), pytest.raises(Unreachable) as caught:
        wait_for_ever(waiting, error)
    assert caught.value is error
    assert clock.slept[:5] == [0.1, 0.2, 0.4, 0.8, 1.6]
    assert max(clock.slept) <= patience.WAIT_S_MAX
    assert 7 <= sum(clock.slept) <= 10
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


def test_a_success_ends_the_outage_and_the_next_one_is_counted_anew(clock: Clock):
    waiting = Patience("stream s", outage_s=1)
    for _ in range(20):
        waiting.wait(Closed("gone"))
        waiting.wait(Closed("gone"))
        waiting.over()
    assert clock.slept == [0.1] * 20


@pytest.mark.parametrize(
    ("error", "passing"),
    [
        (Unreachable("refused"), True),
        (Closed("the socket broke"), True),
        (Closed("shutting down", 320), True),
        (Closed("no such stream", 404), False),
        (Closed("not allowed", 403), False),
        (LoginRefused("who?"), False),
        (ClientError("what?"), False),
    ],
)
def test_only_what_passes_is_waited_for(error: ClientError, passing: bool):
    assert is_passing(error) is passing

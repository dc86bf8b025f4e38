"""Heartbeat: sent when idle, a silent peer noticed in time, and not while its socket is paused."""

from __future__ import annotations

import pytest

from penstock.net.heartbeat import Heartbeat
from penstock.runtime import FakeClock

INTERVAL_S = 10


class Pulse:
    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self.clock = FakeClock()
        self.sent: list[float] = []
        self.lost_at: list[float] = []
        self.is_paused = False
        self.heartbeat = Heartbeat(
            self.clock,
            interval_s,
            lambda: self.sent.append(self.clock.now_ns() / 1e9),
            lambda: self.lost_at.append(self.clock.now_ns() / 1e9),
            lambda: self.is_paused,
        )

    def live(self, seconds: float, every: float) -> None:
        """The peer is heard of so often."""
        for _ in range(int(seconds / every)):
            self.clock.advance(every)
            self.heartbeat.received = True


def test_an_idle_connection_is_asked_to_send_each_half_interval() -> None:
    pulse = Pulse()
    pulse.live(20, 1)
    assert pulse.sent == [5, 10, 15, 20]


@pytest.mark.parametrize("last_heard_s", [0.0, 0.1, 4.9, 5.1, 7.5, 9.9, 23.0])
def test_a_silent_peer_is_lost_after_two_and_within_two_and_a_half_intervals(last_heard_s: float) -> None:
    pulse = Pulse()
    if last_heard_s:
        pulse.heartbeat.received = False
        step = last_heard_s / 10
        for _ in range(10):
            pulse.clock.advance(step)
            pulse.heartbeat.received = True
    heard = pulse.clock.now_ns() / 1e9
    pulse.clock.advance(100)
    (lost,) = pulse.lost_at
    assert 2 * INTERVAL_S <= lost - heard <= 2.5 * INTERVAL_S


def test_a_peer_that_speaks_is_never_lost() -> None:
    pulse = Pulse()
    pulse.live(1000, 19)
    assert not pulse.lost_at


def test_silence_says_nothing_while_its_socket_is_paused() -> None:
    pulse = Pulse()
    pulse.is_paused = True
    pulse.clock.advance(500)
    assert not pulse.lost_at
    assert len(pulse.sent) == 100, "heartbeats are still sent"
    pulse.is_paused = False
    pulse.clock.advance(19.9)
    assert not pulse.lost_at
    pulse.clock.advance(5.1)
    assert len(pulse.lost_at) == 1


def test_after_the_loss_and_after_stop_nothing_is_sent_any_more() -> None:
    lost = Pulse()
    lost.clock.advance(100)
    assert lost.sent[-1] <= 25
    stopped = Pulse()
    stopped.heartbeat.stop()
    stopped.heartbeat.stop()
    stopped.clock.advance(100)
    assert not stopped.sent
    assert not stopped.lost_at

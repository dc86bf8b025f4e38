"""Heartbeat: a frame to the peer when nothing else was sent, and the end of peers that fall silent.

A frame goes out every half interval if nothing else did. The peer is given up after two intervals of silence, looked at
every half interval: 2.5 intervals at the most. While we do not read its socket, its silence says nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime import Clock, Timer


class Heartbeat:
    __slots__ = (
        "_clock",
        "_interval_s",
        "_is_paused",
        "_lost",
        "_send_if_idle",
        "_silent_halves",
        "_timer",
        "received",
    )

    def __init__(
        self,
        clock: Clock,
        interval_s: float,
        send_if_idle: Callable[[], None],
        lost: Callable[[], None],
        is_paused: Callable[[], bool],
    ) -> None:
        self._clock = clock
        self._interval_s = interval_s
        self._send_if_idle = send_if_idle
        self._lost = lost
        self._is_paused = is_paused
        self._silent_halves = 0
        self._timer: Timer | None = None
        self.received = True  # set by the connection whenever bytes come in
        self._arm()

    def _arm(self) -> None:
        self._timer = self._clock.call_later(self._interval_s / 2, self._half)

    def _half(self) -> None:
        self._send_if_idle()
        if self.received or self._is_paused():
            self._silent_halves = 0
        else:
            self._silent_halves += 1
        self.received = False
        if self._silent_halves >= 4:
            self._timer = None
            self._lost()
            return
        self._arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

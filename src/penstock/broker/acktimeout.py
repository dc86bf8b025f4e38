"""Ack timeout: a consumer that keeps a delivery too long loses its channel, as in RabbitMQ.

A client that has forgotten a message would otherwise hold it for ever, and the queue with it. Nothing is stamped per
delivery: at every look, each channel notes its next delivery tag, so an unacked tag below a note that is old enough is
too old itself. That makes the timeout late by at most one look.
Place: beside the chain; server.py starts it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.amqp.close import PRECONDITION_FAILED, CloseChannel
from penstock.runtime import Scheduler, Timer

if TYPE_CHECKING:
    from penstock.broker.channel import Channel

LOOKS_PER_TIMEOUT: Final = 10
LOOK_S_MAX: Final = 60.0  # RabbitMQ looks once a minute
LOOK_S_MIN: Final = 0.05


class AckTimeout:
    __slots__ = ("_look_s", "_marks", "_scheduler", "_timer", "channels", "timeout_ms")

    def __init__(self, scheduler: Scheduler, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms  # 0 is none
        self.channels: dict[Channel, None] = {}  # all that are open; they enter and leave by themselves
        self._marks: dict[Channel, deque[tuple[int, int]]] = {}  # time and next tag, of channels with unacked
        self._scheduler = scheduler
        self._look_s = min(LOOK_S_MAX, max(LOOK_S_MIN, timeout_ms / 1000 / LOOKS_PER_TIMEOUT))
        self._timer: Timer | None = None
        if timeout_ms:
            self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wait(self) -> None:
        self._timer = self._scheduler.clock.call_later(self._look_s, self._look)

    def _look(self) -> None:
        now_ns = self._scheduler.clock.now_ns()
        marks: dict[Channel, deque[tuple[int, int]]] = {}
        for channel in list(self.channels):
            oldest = channel.deliveries.oldest_tag()
            if not oldest:
                continue
            noted = self._marks.get(channel) or deque()
            old_tag = 0
            while noted and noted[0][0] <= now_ns - self.timeout_ms * 1_000_000:
                old_tag = noted.popleft()[1]
            noted.append((now_ns, channel.deliveries.next_tag))
            if oldest < old_tag:
                channel.fail(self._error(channel.number), unasked=True)
            else:
                marks[channel] = noted
        self._marks = marks
        self._wait()

    def _error(self, number: int) -> CloseChannel:
        return CloseChannel(
            PRECONDITION_FAILED,
            f"delivery acknowledgement on channel {number} timed out. Timeout value used: {self.timeout_ms} ms. "
            "This timeout value can be configured, see consumers doc guide to learn more",
        )

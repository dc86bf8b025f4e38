"""Writer: empties a connection's outbox into its socket, once per scheduler turn.

Upstream: broker/outbox.py.  Downstream: the socket.
Full: the transport says so above WRITE_HIGH_BYTES; then consumers get nothing until it has drained. Replies still go
out; a peer that asks on without reading its replies is not read from any more above REPLIES_HIGH_BYTES.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from penstock.amqp.frame import HEARTBEAT_FRAME
from penstock.broker.outbox import Outbox
from penstock.runtime import TIMED_EVERY, Scheduler

WRITE_HIGH_BYTES: Final = 262_144  # about a socket buffer: enough to keep it busy, no more
WRITE_LOW_BYTES: Final = 65_536
REPLIES_HIGH_BYTES: Final = 8_388_608  # replies, returns and confirms a peer may leave unread
JOIN_BYTES_MAX: Final = 65_536  # larger pieces are handed over as they are: a copy would cost more than a call


class Writer:
    __slots__ = (
        "_closing",
        "_overdue_changed",
        "_scheduler",
        "_transport",
        "outbox",
        "overdue",
        "sent",
        "write_ns",
        "writes",
        "wrote",
    )

    def __init__(self, transport: asyncio.Transport, scheduler: Scheduler, overdue_changed: Callable[[], None]) -> None:
        self._overdue_changed = overdue_changed
        self._transport = transport
        self._scheduler = scheduler
        self._closing = False
        self.outbox = Outbox(self._wake)
        self.overdue = False  # too much unread: the reader pauses
        self.wrote = False  # since the heartbeat looked last
        self.sent = 0  # bytes,
        self.writes = 0  # in so many turns
        self.write_ns = 0  # that these took, about: one in TIMED_EVERY is timed
        transport.set_write_buffer_limits(WRITE_HIGH_BYTES, WRITE_LOW_BYTES)

    def _wake(self) -> None:
        self._scheduler.call_after_turn(self.flush)

    def flush(self) -> None:
        size = self.outbox.bytes
        frames = self.outbox.emptied()
        if self._transport.is_closing():
            return
        if frames:
            self.sent += size
            self.writes += 1
            if self.writes % TIMED_EVERY:
                self._write(frames, size)
            else:
                began_ns = time.monotonic_ns()
                self._write(frames, size)
                self.write_ns += (time.monotonic_ns() - began_ns) * TIMED_EVERY
        if not self.overdue and self._transport.get_write_buffer_size() > REPLIES_HIGH_BYTES:
            self.overdue = True
            self._overdue_changed()
        if self._closing:
            self._transport.close()

    def _write(self, frames: list[bytes], size: int) -> None:
        if size > len(HEARTBEAT_FRAME):  # a heartbeat of ours does not make the next one unnecessary
            self.wrote = True
        if size <= JOIN_BYTES_MAX or max(map(len, frames)) <= JOIN_BYTES_MAX:
            self._transport.write(b"".join(frames))
            return
        small: list[bytes] = []
        for frame in frames:
            if len(frame) <= JOIN_BYTES_MAX:
                small.append(frame)
                continue
            if small:
                self._transport.write(b"".join(small))
                small.clear()
            self._transport.write(frame)
        if small:
            self._transport.write(b"".join(small))

    def socket_full(self) -> None:
        self.outbox.socket_full = True

    def socket_drained(self) -> None:
        self.outbox.socket_full = False
        if self.overdue:
            self.overdue = False
            self._overdue_changed()
        self.outbox.feed_starving()

    def close(self) -> None:
        """The socket is gone."""
        self.outbox.close()
        self._overdue_changed = _nobody

    def close_after_flush(self) -> None:
        """Send what is there, then close the socket."""
        self.outbox.closed = True
        self._closing = True
        self._wake()


def _nobody() -> None:
    """Who pauses a socket that is gone."""

"""Outbox: frames on their way to one connection's socket, gathered during a turn.

Place in the chain: consumers and channels append here; net/writer.py empties it once per turn with one write.
Full: while the socket has more to send than it should, or this turn has gathered a lot; then consumers on this
connection get nothing, and the queues that wanted to give them something are woken when it is emptied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.broker.queue import Queue

GATHER_BYTES_MAX: Final = 1_048_576  # deliveries gathered in one turn: a few socket buffers, and a bound on one join


class Outbox:
    __slots__ = ("_starving", "_wake_writer", "bytes", "closed", "frames", "socket_full")

    def __init__(self, wake_writer: Callable[[], None]) -> None:
        self.frames: list[bytes] = []
        self.bytes = 0
        self.socket_full = False
        self.closed = False
        self._wake_writer = wake_writer
        self._starving: dict[Queue, None] = {}

    def send(self, frames: bytes) -> None:
        """One reply, or several frames in one piece."""
        if self.closed:
            return
        if not self.frames:
            self._wake_writer()
        self.frames.append(frames)
        self.bytes += len(frames)

    def gathered(self, bytes_: int) -> None:
        """A consumer appended to `frames` by itself; `opened` was called before."""
        self.bytes += bytes_

    def opened(self) -> list[bytes]:
        """The list to append frames to."""
        if not self.frames:
            self._wake_writer()
        return self.frames

    def close(self) -> None:
        """The socket is gone: nothing more is taken."""
        self.closed = True
        self._wake_writer = _nobody
        self._starving.clear()

    def is_full(self) -> bool:
        return self.socket_full or self.closed or self.bytes > GATHER_BYTES_MAX

    def starve(self, queue: Queue) -> None:
        """This queue has messages for a consumer here, but the outbox is full."""
        self._starving[queue] = None

    def emptied(self) -> list[bytes]:
        """Hand over all frames."""
        frames, self.frames = self.frames, []
        self.bytes = 0
        if self._starving and not self.socket_full:
            self.feed_starving()
        return frames

    def feed_starving(self) -> None:
        starving, self._starving = self._starving, {}
        for queue in starving:
            queue.mailbox.wake()


def _nobody() -> None:
    """Who writes for a closed outbox."""

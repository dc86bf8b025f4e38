"""Inbox: what a socket has brought, read in large pieces and cut into frames at an offset.

Upstream: a socket, plain or TLS.  Downstream: connection.py, consumer.py and publisher.py, one of them at a time.
`buffer` holds bytes and `at` says how far they are used: nothing is copied until more is needed than is there, and
a frame that comes in many small pieces is put together once.
Not here: waiting for a reply, what a frame means.
"""

import socket
import ssl

from penstock.amqp.frame import END, HEAD, HEAD_BYTES, OVERHEAD_BYTES
from penstock.client.error import Closed, reason_of

RECV_BYTES = 262_144  # twice the largest frame: more is seldom there, less would cost calls


class Inbox:
    __slots__ = ("_pieces", "_pieces_bytes", "address", "at", "buffer", "frame_max", "need", "socket")

    def __init__(self, sock: socket.socket, address: str, frame_max: int) -> None:
        self.socket = sock
        self.address = address  # for errors
        self.frame_max = frame_max
        self.buffer = b""
        self.at = 0
        self.need = HEAD_BYTES  # bytes from `at` on without which `next_frame` is of no use
        self._pieces: list[bytes] = []  # what came behind the buffer and is not enough yet
        self._pieces_bytes = 0

    def __repr__(self) -> str:
        return f"<Inbox {self.address} unread={len(self.buffer) - self.at + self._pieces_bytes} need={self.need}>"

    def wait_at_most(self, seconds: float) -> None:
        """How long the socket may block from now on; 0 is not at all."""
        try:
            self.socket.settimeout(seconds)
        except OSError as error:
            raise Closed(f"connection to {self.address} lost: {reason_of(error)}") from None

    def receive(self) -> int:
        """Read the socket once, as its time-out allows; how many bytes came, 0 if none."""
        try:
            data = self.socket.recv(RECV_BYTES)
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError):
            return 0
        except OSError as error:
            raise Closed(f"connection to {self.address} lost: {reason_of(error)}") from None
        if not data:
            raise Closed(f"{self.address} closed the connection without a word")
        if self.at == len(self.buffer) and not self._pieces and len(data) >= self.need:
            self.buffer, self.at = data, 0
            return len(data)
        self._pieces.append(data)
        self._pieces_bytes += len(data)
        if len(self.buffer) - self.at + self._pieces_bytes >= self.need:
            self.buffer = self.take_all()
        return len(data)

    def ready(self) -> bool:
        """Whether as much is there as was missing last."""
        # Who has cut a frame out of the buffer may need less now than when the pieces came: they may be enough.
        if self._pieces and len(self.buffer) - self.at + self._pieces_bytes >= self.need:
            self.buffer = self.take_all()
        return len(self.buffer) - self.at >= self.need

    def next_frame(self) -> tuple[int, int, bytes] | None:
        """The next frame: kind, channel, payload; None if it is not all there, and `need` says how much it takes."""
        there = len(self.buffer) - self.at
        if there < HEAD_BYTES:
            self.need = HEAD_BYTES
            return None
        kind, channel, size = HEAD.unpack_from(self.buffer, self.at)
        if size + OVERHEAD_BYTES > self.frame_max:
            raise self._not_amqp(size)
        if there < size + OVERHEAD_BYTES:
            self.need = size + OVERHEAD_BYTES
            return None
        end = self.at + HEAD_BYTES + size
        if self.buffer[end] != END:
            raise Closed(f"{self.address} does not speak AMQP 0-9-1: a frame of {size} bytes has no end")
        payload = self.buffer[self.at + HEAD_BYTES : end]
        self.at = end + 1
        self.need = HEAD_BYTES
        return kind, channel, payload

    def take_all(self) -> bytes:
        """Everything that was read and not used."""
        unread = b"".join((self.buffer[self.at :], *self._pieces))
        self.buffer = b""
        self.at = self._pieces_bytes = 0
        self._pieces.clear()
        return unread

    def _not_amqp(self, size: int) -> Closed:
        if self.buffer.startswith(b"AMQP", self.at):
            return Closed(f"{self.address} speaks another version of AMQP")
        return Closed(
            f"{self.address} does not speak AMQP 0-9-1: a frame of {size} bytes, {self.frame_max} were agreed on"
        )

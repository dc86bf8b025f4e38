"""ScriptedSocket: a socket that brings prepared bytes in prepared pieces and keeps what is sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from penstock.amqp.content import build_basic
from penstock.amqp.method import BasicConsumeOk, BasicDeliver, encode_method
from penstock.client.connection import Channel, Connection
from penstock.client.consumer import Consumer
from penstock.client.uri import Uri

TAG = "ctag"
FRAME_MAX = 4096


class ScriptedSocket:
    """`recv` gives one piece at a time, then nothing for ever; with `hang_up`, the end."""

    def __init__(self, pieces: Iterable[bytes] = (), hang_up: bool = False) -> None:
        self.pieces = deque(pieces)
        self.sent = b""
        self.hang_up = hang_up
        self.timeout: float | None = None

    def recv(self, size: int) -> bytes:
        if not self.pieces:
            if self.hang_up:
                return b""
            raise BlockingIOError
        piece = self.pieces.popleft()
        assert len(piece) <= size
        return piece

    def settimeout(self, seconds: float | None) -> None:
        self.timeout = seconds

    def sendall(self, data: bytes) -> None:
        self.sent += data

    def send(self, data: bytes) -> int:
        self.sent += data
        return len(data)


def channel_on(socket: ScriptedSocket) -> Channel:
    """Channel 1 of a connection whose handshake is taken as done."""
    connection = Connection(Uri(), socket)  # type: ignore[arg-type]
    connection.frame_max = connection.inbox.frame_max = FRAME_MAX
    return Channel(connection, 1)


def consumer_on(socket: ScriptedSocket, prefetch: int = 0) -> Consumer:
    socket.pieces.appendleft(encode_method(BasicConsumeOk(TAG), 1))
    consumer = Consumer(channel_on(socket), "q", tag=TAG)
    consumer.prefetch = prefetch
    socket.sent = b""
    return consumer


def delivery(
    tag: int,
    body: bytes = b"body",
    properties: bytes = b"\0\0",
    key: str = "key",
    exchange: str = "ex",
    redelivered: bool = False,
    frame_max: int = FRAME_MAX,
    consumer: str = TAG,
) -> bytes:
    method = encode_method(BasicDeliver(consumer, tag, redelivered, exchange, key), 1)
    return method + build_basic(1, properties, body, frame_max)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]

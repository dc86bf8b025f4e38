"""RawClient: a socket and penstock's codec, for what no library would send."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final, TypeVar

from penstock.amqp.content import build_basic
from penstock.amqp.frame import BODY, HEAD_BYTES, HEADER, HEARTBEAT, HEARTBEAT_FRAME, METHOD, PROTOCOL_HEADER
from penstock.amqp.method import (
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    Method,
    decode_method,
    encode_method,
)
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import Table
from tests.wire.waiting import LIMIT_S

CAPABILITIES: Final[Table] = {
    "capabilities": {"consumer_cancel_notify": True, "authentication_failure_close": True, "basic.nack": True}
}
Expected = TypeVar("Expected", bound=Method)


class Gone(Exception):
    """The broker closed the socket."""


class Content:
    """A method's header and body."""

    def __init__(self, header: bytes, body: bytes, body_frames: int) -> None:
        self.header = header
        self.body = body
        self.body_frames = body_frames


class RawClient:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.frame_max = 131_072
        self.heartbeats = 0
        self._buffer = b""
        self._at = 0  # what of the buffer is read already

    def __enter__(self) -> RawClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_socket()

    def close_socket(self) -> None:
        self.socket.close()

    # Sending.

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, method: Method, channel: int = 1) -> None:
        self.send_bytes(encode_method(method, channel))

    def publish(
        self,
        key: str,
        body: bytes = b"",
        exchange: str = "",
        channel: int = 1,
        mandatory: bool = False,
        properties: Properties | None = None,
    ) -> None:
        self.send_bytes(publish_bytes(key, body, exchange, channel, mandatory, properties, self.frame_max))

    def beat(self) -> None:
        self.send_bytes(HEARTBEAT_FRAME)

    # The way in.

    def handshake(
        self,
        properties: Table = CAPABILITIES,
        name: str = "",
        frame_max: int = 131_072,
        channel_max: int = 2047,
        heartbeat: int = 0,
        vhost: str = "/",
        user: bytes = b"guest",
        password: bytes = b"guest",
    ) -> RawClient:
        """Until connection.open-ok."""
        with self._closed_if_it_fails():
            self.send_bytes(PROTOCOL_HEADER)
            self.expect(ConnectionStart, 0)
            if name:
                properties = {**properties, "connection_name": name}
            self.send(ConnectionStartOk(properties, "PLAIN", b"\0" + user + b"\0" + password, "en_US"), 0)
            self.expect(ConnectionTune, 0)
            self.send(ConnectionTuneOk(channel_max, frame_max, heartbeat), 0)
            self.send(ConnectionOpen(vhost), 0)
            self.expect(ConnectionOpenOk, 0)
        self.frame_max = frame_max
        return self

    def open(self, channel: int = 1) -> RawClient:
        with self._closed_if_it_fails():
            self.send(ChannelOpen(), channel)
            self.expect(ChannelOpenOk, channel)
        return self

    @contextmanager
    def _closed_if_it_fails(self) -> Iterator[None]:
        """Nobody has the client yet: an open socket would be a warning in another test."""
        try:
            yield
        except BaseException:
            self.close_socket()
            raise

    # Receiving.

    def read_frame(self) -> tuple[int, int, bytes]:
        """Type, channel, payload; heartbeats are counted and passed over."""
        while True:
            kind, channel, size = struct.unpack(">BHI", self._read(HEAD_BYTES))
            payload = self._read(size + 1)
            assert payload[-1] == 0xCE, "the broker sent a frame without its end octet"
            if kind != HEARTBEAT:
                return kind, channel, payload[:-1]
            self.heartbeats += 1

    def read_heartbeat(self) -> None:
        """The next frame, which must be a heartbeat."""
        frame = self._read(len(HEARTBEAT_FRAME))
        assert frame == HEARTBEAT_FRAME, frame
        self.heartbeats += 1

    def read_method(self) -> tuple[int, Method]:
        kind, channel, payload = self.read_frame()
        assert kind == METHOD, f"frame type {kind} where a method was expected"
        return channel, decode_method(payload)

    def read_content(self, channel: int = 1) -> Content:
        """The header and the body behind a method that has them."""
        kind, number, header = self.read_frame()
        assert (kind, number) == (HEADER, channel)
        size = int.from_bytes(header[4:12], "big")
        body = bytearray()
        frames = 0
        while len(body) < size:
            kind, number, payload = self.read_frame()
            assert (kind, number) == (BODY, channel)
            assert len(payload) + 8 <= self.frame_max
            body += payload
            frames += 1
        return Content(header, bytes(body), frames)

    def expect(self, kind: type[Expected], channel: int = 1) -> Expected:
        """The next method, which must be this one."""
        number, method = self.read_method()
        assert isinstance(method, kind), f"{method} where {kind.NAME} was expected"
        assert number == channel
        return method

    def ask(self, method: Method, kind: type[Expected], channel: int = 1) -> Expected:
        self.send(method, channel)
        return self.expect(kind, channel)

    def expect_channel_close(self, channel: int = 1) -> ChannelClose:
        """It is answered."""
        close = self.expect(ChannelClose, channel)
        self.send(ChannelCloseOk(), channel)
        return close

    def expect_connection_close(self) -> ConnectionClose:
        """It is answered, and the socket must end."""
        while True:  # replies of other channels may still be on their way
            _, method = self.read_method()
            if isinstance(method, ConnectionClose):
                break
        self.send(ConnectionCloseOk(), 0)
        self.expect_gone()
        return method

    def expect_gone(self) -> bytes:
        """The broker closes the socket; what it said before."""
        said = self._buffer[self._at :]
        while True:
            try:
                data = self.socket.recv(65536)
            except ConnectionResetError:
                return said
            if not data:
                return said
            said += data

    def close(self) -> None:
        """As a polite client does."""
        self.send(ConnectionClose(200, "bye", 0, 0), 0)
        while True:
            kind, _, payload = self.read_frame()
            if kind == METHOD and isinstance(decode_method(payload), ConnectionCloseOk):
                break
        self.close_socket()

    def _read(self, size: int) -> bytes:
        while len(self._buffer) - self._at < size:
            try:
                data = self.socket.recv(262_144)
            except ConnectionResetError:
                raise Gone("reset") from None
            if not data:
                raise Gone(f"{len(self._buffer) - self._at} bytes of {size} were left")
            self._buffer = self._buffer[self._at :] + data
            self._at = 0
        self._at += size
        return self._buffer[self._at - size : self._at]


def publish_bytes(
    key: str,
    body: bytes = b"",
    exchange: str = "",
    channel: int = 1,
    mandatory: bool = False,
    properties: Properties | None = None,
    frame_max: int = 131_072,
) -> bytes:
    """A whole message as a client sends it."""
    method = encode_method(BasicPublish(exchange, key, mandatory), channel)
    return method + build_basic(channel, encode_properties(properties or Properties()), body, frame_max)

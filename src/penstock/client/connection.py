"""Connection: one blocking AMQP 0-9-1 connection and its channels.

Upstream: the caller.  Downstream: a TCP socket to any broker; bytes are made and read by penstock.amqp.
A call sends a method and waits for the reply on that channel. What the broker says without being asked
(connection.blocked, heartbeats) is passed over; a close becomes an exception with the broker's code and text.
The load tool takes `socket` and runs its own loops on it; `take_unread` hands over what was read too far.
Not here: addresses (uri.py), TLS, heartbeats of our own (tuned to 0), reconnecting.
"""

import socket
from types import TracebackType
from typing import Self, TypeVar

from penstock.amqp.close import CloseConnection
from penstock.amqp.frame import (
    END,
    FRAME_MAX_BYTES,
    HEAD,
    HEAD_BYTES,
    HEARTBEAT,
    METHOD,
    OVERHEAD_BYTES,
    PROTOCOL_HEADER,
)
from penstock.amqp.method import (
    BasicCancel,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    Method,
    decode_method,
    encode_method,
)
from penstock.amqp.table import Table
from penstock.client.uri import Uri

TIMEOUT_S = 30.0  # a broker that says nothing for so long to a question is gone or stuck
CHANNEL_MAX = 2047  # what RabbitMQ and most clients settle on
RECV_BYTES = 65_536
REPLY_SUCCESS = 200
CLIENT_PROPERTIES: Table = {
    "product": "penstock client",
    "capabilities": {
        "authentication_failure_close": True,  # else a wrong password is a closed socket and no reason
        "publisher_confirms": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
    },
}

M = TypeVar("M", bound=Method)


class ClientError(Exception):
    """Something about the broker that the caller's user must hear; the text is one line."""


class Unreachable(ClientError):
    """No broker answers at this address."""


class LoginRefused(ClientError):
    """The broker knows no such user, password or vhost."""


class Closed(ClientError):
    """The broker closed the channel or the connection, or the connection broke."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class Connection:
    """An open connection. `connect` makes one; close it, or use it in a with-statement."""

    __slots__ = ("_buffer", "_channels", "channel_max", "frame_max", "server_properties", "socket", "uri")

    def __init__(self, uri: Uri, sock: socket.socket) -> None:
        self.uri = uri
        self.socket = sock
        self.frame_max = FRAME_MAX_BYTES
        self.channel_max = CHANNEL_MAX
        self.server_properties: Table = {}
        self._buffer = bytearray()
        self._channels = 0

    @classmethod
    def connect(cls, uri: Uri, timeout_s: float = TIMEOUT_S) -> "Connection":
        """Connect, log in and open the vhost; Unreachable, LoginRefused or Closed says what went wrong."""
        try:
            sock = socket.create_connection((uri.host, uri.port), timeout_s)
        except OSError as error:
            raise Unreachable(f"no broker at {uri.address}: {_reason(error)}") from None
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = cls(uri, sock)
        try:
            connection._handshake()
        except BaseException:
            sock.close()
            raise
        return connection

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.socket.close()

    def __repr__(self) -> str:
        return f"<Connection {self.uri} channels={self._channels} frame_max={self.frame_max}>"

    def open_channel(self) -> "Channel":
        if self._channels >= self.channel_max:
            raise ClientError(f"{self.uri.address} allows {self.channel_max} channels on a connection, all are open")
        self._channels += 1
        channel = Channel(self, self._channels)
        channel.call(ChannelOpen(), ChannelOpenOk)
        return channel

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise Closed(f"connection to {self.uri.address} lost: {_reason(error)}") from None

    def send_method(self, method: Method, channel: int) -> None:
        self.send(encode_method(method, channel))

    def read_frame(self) -> tuple[int, int, bytes]:
        """The next frame: kind, channel, payload."""
        self._fill(HEAD_BYTES)
        kind, channel, size = HEAD.unpack_from(self._buffer)
        self._fill(size + OVERHEAD_BYTES)
        payload = bytes(self._buffer[HEAD_BYTES : HEAD_BYTES + size])
        end = self._buffer[HEAD_BYTES + size]
        del self._buffer[: size + OVERHEAD_BYTES]
        if end != END:
            raise Closed(f"{self.uri.address} does not speak AMQP 0-9-1: a frame of {size} bytes has no end")
        return kind, channel, payload

    def read_method(self, channel: int) -> Method:
        """The next method on this channel. A close from the broker, here or of the whole connection, is raised."""
        while True:
            kind, number, payload = self.read_frame()
            if kind == HEARTBEAT:
                continue
            if kind != METHOD:
                raise Closed(f"{self.uri.address} sent content on channel {number} where a reply was due")
            try:
                method = decode_method(payload)
            except CloseConnection as error:
                raise Closed(f"{self.uri.address} sent a method this client cannot read: {error.text}") from None
            if isinstance(method, ConnectionClose):
                self.send_method(ConnectionCloseOk(), 0)
                raise Closed(f"{self.uri.address} closed the connection: {_told(method)}", method.reply_code)
            if isinstance(method, ConnectionBlocked | ConnectionUnblocked):
                continue
            if number != channel:
                raise Closed(f"{self.uri.address} sent {method.NAME} on channel {number}, a reply was due on {channel}")
            if isinstance(method, ChannelClose):
                self.send_method(ChannelCloseOk(), number)
                raise Closed(f"{self.uri.address} closed the channel: {_told(method)}", method.reply_code)
            if isinstance(method, BasicCancel):
                raise Closed(f"{self.uri.address} cancelled the consumer {method.consumer_tag}")
            return method

    def call(self, method: Method, reply: type[M], channel: int = 0) -> M:
        """Send a method and wait for its reply, which must be of this kind."""
        self.send_method(method, channel)
        return self._expect(reply, channel)

    def take_unread(self) -> bytes:
        """What came behind the last reply. From now on the caller reads the socket, and this object must not."""
        unread = bytes(self._buffer)
        self._buffer.clear()
        return unread

    def close(self) -> None:
        """Say goodbye and wait for the answer: a broker's complaint that is still on its way is raised here."""
        try:
            self.call(ConnectionClose(REPLY_SUCCESS, "goodbye"), ConnectionCloseOk)
        finally:
            self.socket.close()

    def _handshake(self) -> None:
        self.send(PROTOCOL_HEADER)
        start = self._expect(ConnectionStart, 0)
        self.server_properties = start.server_properties
        if b"PLAIN" not in start.mechanisms.split():
            offered = start.mechanisms.decode(errors="replace")
            raise LoginRefused(f"{self.uri.address} offers no PLAIN login, only {offered}")
        response = f"\0{self.uri.user}\0{self.uri.password}".encode()
        self.send_method(ConnectionStartOk(CLIENT_PROPERTIES, "PLAIN", response, "en_US"), 0)
        try:
            tune = self._expect(ConnectionTune, 0)
        except Closed as error:
            raise LoginRefused(f"{self.uri.address} refused the login of {self.uri.user!r}: {error}") from None
        self.frame_max = _lesser(tune.frame_max, FRAME_MAX_BYTES)
        self.channel_max = _lesser(tune.channel_max, CHANNEL_MAX)
        self.send_method(ConnectionTuneOk(self.channel_max, self.frame_max, 0), 0)
        try:
            self.call(ConnectionOpen(self.uri.vhost), ConnectionOpenOk)
        except Closed as error:
            raise LoginRefused(f"{self.uri.address} refused the vhost {self.uri.vhost!r}: {error}") from None

    def _expect(self, reply: type[M], channel: int) -> M:
        method = self.read_method(channel)
        if not isinstance(method, reply):
            raise Closed(f"{self.uri.address} sent {method.NAME} where {reply.NAME} was due")
        return method

    def _fill(self, size: int) -> None:
        """Read until the buffer holds `size` bytes."""
        while len(self._buffer) < size:
            try:
                data = self.socket.recv(RECV_BYTES)
            except OSError as error:
                raise Closed(f"connection to {self.uri.address} lost: {_reason(error)}") from None
            if not data:
                raise Closed(f"{self.uri.address} closed the connection without a word")
            self._buffer += data
            if self._buffer.startswith(b"AMQP"):
                raise Closed(f"{self.uri.address} speaks another version of AMQP")


class Channel:
    """An open channel of a connection."""

    __slots__ = ("connection", "number")

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number

    def __repr__(self) -> str:
        return f"<Channel {self.number} of {self.connection!r}>"

    def call(self, method: Method, reply: type[M]) -> M:
        """Send a method on this channel and wait for its reply."""
        return self.connection.call(method, reply, self.number)

    def send(self, method: Method) -> None:
        """Send a method that has no reply, or was sent with nowait."""
        self.connection.send_method(method, self.number)

    def close(self) -> None:
        self.call(ChannelClose(REPLY_SUCCESS, "goodbye"), ChannelCloseOk)


def _lesser(theirs: int, ours: int) -> int:
    """Tuning: 0 is no limit."""
    return min(theirs, ours) if theirs else ours


def _told(close: ConnectionClose | ChannelClose) -> str:
    # One line, whatever the broker put into it.
    return f"{close.reply_code} {' '.join(close.reply_text.split())}"


def _reason(error: OSError) -> str:
    if isinstance(error, BlockingIOError | TimeoutError):
        return "it did not answer in time"
    return (error.strerror or str(error)).lower()

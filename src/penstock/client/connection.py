"""Connection: one blocking AMQP 0-9-1 connection and its channels.

Upstream: the caller.  Downstream: a TCP or TLS socket to any broker; bytes are made and read by penstock.amqp.
A call sends a method and waits for the reply on that channel. What the broker says without being asked
(connection.blocked, heartbeats) is passed over; a close becomes an exception with the broker's code and text.
One thing at a time reads a connection: calls, or one Consumer (consumer.py), or one Publisher (publisher.py).
The load tool takes `socket` and runs its own loops on it; `take_unread` hands over what was read too far.

Heartbeats are tuned to 0, with every broker: they would have to be sent while the caller is busy elsewhere, and Spark's
driver may sit on a batch for minutes. A thread that sends them would share the socket, which TLS does not allow, and
would keep a stuck program looking alive. So nobody is cut for being slow, and the broker's end is noticed otherwise:
the kernel asks an idle peer (keep-alive, about a minute), a call waits TIMEOUT_S for its reply, a Consumer that hears
nothing for long asks by itself, a Publisher looks when the peer's kernel last answered.
Not here: addresses (uri.py), cutting frames (inbox.py), reconnecting.
"""

import socket
import ssl
from types import TracebackType
from typing import Self, TypeVar

from penstock.amqp.close import CloseConnection
from penstock.amqp.frame import FRAME_MAX_BYTES, HEARTBEAT, METHOD, PROTOCOL_HEADER
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
from penstock.client.error import PASSING_CODES, reason_of
from penstock.client.error import ClientError as ClientError
from penstock.client.error import Closed as Closed
from penstock.client.error import LoginRefused as LoginRefused
from penstock.client.error import Unreachable as Unreachable
from penstock.client.inbox import Inbox
from penstock.client.uri import Tls, Uri

TIMEOUT_S = 30.0  # a broker that says nothing for so long to a question is gone or stuck
CHANNEL_MAX = 2047  # what RabbitMQ and most clients settle on
REPLY_SUCCESS = 200
KEEPALIVE_IDLE_S = 30  # below the idle limit of the usual proxies and NATs (60 s and more)
KEEPALIVE_INTERVAL_S = 10
KEEPALIVE_COUNT = 3
CAPABILITIES: Table = {
    "authentication_failure_close": True,  # else a wrong password is a closed socket and no reason
    "publisher_confirms": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "penstock.deduplication": True,  # who numbers its messages means it
}
# Asked for by a publisher only: others would find these methods among their deliveries.
NOTICES: Table = {"connection.blocked": True, "penstock.flow": True}

M = TypeVar("M", bound=Method)


class Connection:
    """An open connection. `connect` makes one; close it, or use it in a with-statement."""

    __slots__ = (
        "_channels",
        "channel_max",
        "frame_max",
        "inbox",
        "name",
        "notices",
        "server_properties",
        "socket",
        "timeout_s",
        "uri",
    )

    def __init__(self, uri: Uri, sock: socket.socket, timeout_s: float = TIMEOUT_S) -> None:
        self.uri = uri
        self.socket = sock
        self.timeout_s = timeout_s
        self.frame_max = FRAME_MAX_BYTES
        self.channel_max = CHANNEL_MAX
        self.server_properties: Table = {}
        self.name = ""
        self.notices = False
        self.inbox = Inbox(sock, uri.address, FRAME_MAX_BYTES)
        self._channels: dict[int, Channel] = {}  # the open ones, by number

    @classmethod
    def connect(cls, uri: Uri, timeout_s: float = TIMEOUT_S, name: str = "", notices: bool = False) -> "Connection":
        """Connect, log in and open the vhost; Unreachable, LoginRefused or Closed says what went wrong.

        `name` is shown by the broker's management. `notices`: the broker shall tell when it blocks publishes."""
        try:
            sock = socket.create_connection((uri.host, uri.port), timeout_s)
        except OSError as error:
            raise Unreachable(f"no broker at {uri.address}: {reason_of(error)}") from None
        connection: Connection | None = None
        try:
            _tune(sock)
            if uri.tls is not None:
                sock = _secured(sock, uri, uri.tls)
            connection = cls(uri, sock, timeout_s)
            connection.name = name
            connection.notices = notices
            connection._handshake()
        except Closed as error:
            sock.close()
            if uri.tls is None or error.code or (connection is not None and connection.server_properties):
                raise
            raise Closed(f"{error}; over TLS it may want a certificate, or another one, of its client") from None
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
        return f"<Connection {self.uri} channels={len(self._channels)} frame_max={self.frame_max}>"

    def open_channel(self) -> "Channel":
        number = next((number for number in range(1, self.channel_max + 1) if number not in self._channels), 0)
        if not number:
            raise ClientError(f"{self.uri.address} allows {self.channel_max} channels on a connection, all are open")
        self.call(ChannelOpen(), ChannelOpenOk, number)
        channel = self._channels[number] = Channel(self, number)
        return channel

    def forget(self, number: int) -> None:
        """This channel is closed; its number may be used again."""
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.is_open = False

    def send(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except OSError as error:
            self._hear_last_words()
            raise Closed(f"connection to {self.uri.address} lost: {reason_of(error)}") from None

    def send_method(self, method: Method, channel: int) -> None:
        self.send(encode_method(method, channel))

    def read_frame(self) -> tuple[int, int, bytes]:
        """The next frame: kind, channel, payload."""
        inbox = self.inbox
        while True:
            frame = inbox.next_frame()
            if frame is not None:
                return frame
            while not inbox.ready():
                if not inbox.receive():
                    raise Closed(f"connection to {self.uri.address} lost: it did not answer in time")

    def read_method(self, channel: int) -> Method:
        """The next method on this channel. A close from the broker, here or of the whole connection, is raised."""
        while True:
            kind, number, payload = self.read_frame()
            if kind == HEARTBEAT:
                continue
            if kind != METHOD:
                raise Closed(f"{self.uri.address} sent content on channel {number} where a reply was due")
            method = self.heard(number, payload)
            if isinstance(method, ConnectionBlocked | ConnectionUnblocked):
                continue
            if number != channel:
                raise Closed(f"{self.uri.address} sent {method.NAME} on channel {number}, a reply was due on {channel}")
            if isinstance(method, BasicCancel):
                raise Closed(f"{self.uri.address} cancelled the consumer {method.consumer_tag}")
            return method

    def heard(self, channel: int, payload: bytes) -> Method:
        """The method in this payload. A close is answered and raised."""
        try:
            method = decode_method(payload)
        except CloseConnection as error:
            raise Closed(f"{self.uri.address} sent a method this client cannot read: {error.text}") from None
        if isinstance(method, ConnectionClose):
            self._answer(ConnectionCloseOk(), 0)
            raise Closed(f"{self.uri.address} closed the connection: {_told(method)}", method.reply_code)
        if isinstance(method, ChannelClose):
            self._answer(ChannelCloseOk(), channel)
            self.forget(channel)
            raise Closed(f"{self.uri.address} closed the channel: {_told(method)}", method.reply_code)
        return method

    def has(self, capability: str) -> bool:
        """Whether the broker announced this capability."""
        capabilities = self.server_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    def call(self, method: Method, reply: type[M], channel: int = 0) -> M:
        """Send a method and wait for its reply, which must be of this kind."""
        self.send_method(method, channel)
        return self._expect(reply, channel)

    def take_unread(self) -> bytes:
        """What came behind the last reply. From now on the caller reads the socket, and this object must not."""
        return self.inbox.take_all()

    def close(self) -> None:
        """Say goodbye and wait for the answer: a broker's complaint that is still on its way is raised here.

        Deliveries and confirms that are still on their way are passed over."""
        try:
            self.send_method(ConnectionClose(REPLY_SUCCESS, "goodbye"), 0)
            while True:
                kind, number, payload = self.read_frame()
                if kind == METHOD and isinstance(self.heard(number, payload), ConnectionCloseOk):
                    return
        finally:
            self.socket.close()

    def abort(self) -> None:
        """Let go of it without a word: the broker requeues what was not acked."""
        self.socket.close()

    def _handshake(self) -> None:
        self.send(PROTOCOL_HEADER)
        start = self._expect(ConnectionStart, 0)
        self.server_properties = start.server_properties
        # Without a user, the client's certificate says who we are.
        external = not self.uri.user and self.uri.tls is not None and bool(self.uri.tls.cert_file)
        mechanism = "EXTERNAL" if external else "PLAIN"
        if mechanism.encode() not in start.mechanisms.split():
            offered = start.mechanisms.decode(errors="replace")
            raise LoginRefused(f"{self.uri.address} offers no {mechanism} login, only {offered}")
        response = b"" if external else f"\0{self.uri.user}\0{self.uri.password}".encode()
        self.send_method(ConnectionStartOk(self._properties(), mechanism, response, "en_US"), 0)
        try:
            tune = self._expect(ConnectionTune, 0)
        except Closed as error:
            raise self._refused(f"the login of {self.uri.user!r}", error) from None
        self.frame_max = self.inbox.frame_max = _lesser(tune.frame_max, FRAME_MAX_BYTES)
        self.channel_max = _lesser(tune.channel_max, CHANNEL_MAX)
        self.send_method(ConnectionTuneOk(self.channel_max, self.frame_max, 0), 0)
        try:
            self.call(ConnectionOpen(self.uri.vhost), ConnectionOpenOk)
        except Closed as error:
            raise self._refused(f"the vhost {self.uri.vhost!r}", error) from None

    def _refused(self, what: str, error: Closed) -> ClientError:
        """A broker that refuses says so, with a code. One that dies or stops just then has refused nobody."""
        if error.code in PASSING_CODES:
            return Closed(f"{error}, when it was asked for {what}", error.code)
        return LoginRefused(f"{self.uri.address} refused {what}: {error}")

    def _expect(self, reply: type[M], channel: int) -> M:
        method = self.read_method(channel)
        if not isinstance(method, reply):
            raise Closed(f"{self.uri.address} sent {method.NAME} where {reply.NAME} was due")
        return method

    def _properties(self) -> Table:
        capabilities = {**CAPABILITIES, **(NOTICES if self.notices else {})}
        properties: Table = {"product": "penstock client", "capabilities": capabilities}
        if self.name:
            properties["connection_name"] = self.name
        return properties

    def _hear_last_words(self) -> None:
        """Nothing can be sent any more. What the broker said before it hung up is raised, if it said something."""
        inbox = self.inbox
        inbox.wait_at_most(0)
        while True:
            frame = inbox.next_frame()
            if frame is None:
                if not inbox.receive():
                    return
            elif frame[0] == METHOD:
                self.heard(frame[1], frame[2])

    def _answer(self, method: Method, channel: int) -> None:
        """Answer a close. Whether it arrives does not matter: what the broker said does."""
        self.socket.settimeout(0)
        try:
            self.socket.send(encode_method(method, channel))
        except OSError:
            pass
        self.socket.settimeout(self.timeout_s)


class Channel:
    """An open channel of a connection."""

    __slots__ = ("connection", "consumers", "has_publisher", "is_open", "number")

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.is_open = True
        self.consumers = 0  # that were ever on it: names for the next
        self.has_publisher = False  # its confirms are counted from the channel's first publish on: there can be but one

    def __repr__(self) -> str:
        return f"<Channel {self.number} of {self.connection!r} open={self.is_open}>"

    def call(self, method: Method, reply: type[M]) -> M:
        """Send a method on this channel and wait for its reply."""
        self.check()
        return self.connection.call(method, reply, self.number)

    def send(self, method: Method) -> None:
        """Send a method that has no reply, or was sent with nowait."""
        self.check()
        self.connection.send_method(method, self.number)

    def close(self) -> None:
        """Close it, if the broker has not done so."""
        if self.is_open:
            self.call(ChannelClose(REPLY_SUCCESS, "goodbye"), ChannelCloseOk)
            self.connection.forget(self.number)

    def check(self) -> None:
        """Closed if it is: its number may by now be that of another channel."""
        if not self.is_open:
            raise Closed(f"channel {self.number} to {self.connection.uri.address} is closed")


def _lesser(theirs: int, ours: int) -> int:
    """Tuning: 0 is no limit."""
    return min(theirs, ours) if theirs else ours


def _told(close: ConnectionClose | ChannelClose) -> str:
    # One line, whatever the broker put into it.
    return f"{close.reply_code} {' '.join(close.reply_text.split())}"


def _tune(sock: socket.socket) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_S),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_S),
        ("TCP_KEEPCNT", KEEPALIVE_COUNT),
    ):
        if hasattr(socket, name):  # not every system has them all
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _secured(sock: socket.socket, uri: Uri, tls: Tls) -> socket.socket:
    """The socket behind a TLS handshake; it must not be used without."""
    try:
        context = _context(tls)
    except (OSError, ValueError) as error:
        named = ", ".join(filter(None, (tls.ca_file, tls.cert_file, tls.key_file)))
        raise ClientError(f"the files for TLS cannot be used ({named}): {_flat(error)}") from None
    try:
        return context.wrap_socket(sock, server_hostname=uri.host)
    except (OSError, ValueError) as error:
        raise Unreachable(f"no TLS with {uri.address}: {_flat(error)}") from None


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=tls.ca_file or None)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file:
        context.load_cert_chain(tls.cert_file, tls.key_file or None)
    return context


def _flat(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was not accepted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError) and error.strerror and not isinstance(error, ssl.SSLError):
        return error.strerror.lower()
    return " ".join(str(error).split())

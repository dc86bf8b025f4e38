"""Publisher: publishes with confirms, many messages in one send, never more than a window unconfirmed.

Upstream: Spark's sink.  Downstream: a channel of connection.py.
Messages are gathered and sent together; confirms are read whenever something is sent, and the socket never blocks:
a broker that stops reading, because it is blocked, can still tell so and can still confirm.
A message counts when the broker has confirmed it. One that it nacked, or returned because no queue wanted it, is a
Refused that names the message and the reason, from the next `publish` or `flush`.
There is no time limit on a confirm: a broker may rightly hold them back for as long as a slow consumer takes. A broker
that is gone is noticed when its kernel falls silent (SILENT_S, where the system tells: Linux; else by TCP's limit).
Connect with `notices=True`, so that the broker says when it blocks; while it does, nothing is sent.
Not here: message ids and properties (the caller makes them), publishing again after a lost connection.
"""

import select
import socket
import ssl
import struct
import time
from collections.abc import Callable

from penstock.amqp.close import CloseConnection
from penstock.amqp.frame import (
    BODY,
    CONTENT_HEAD,
    END_BYTES,
    HEAD,
    HEADER,
    HEARTBEAT,
    METHOD,
    OVERHEAD_BYTES,
)
from penstock.amqp.method import (
    BasicAck,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionBlocked,
    ConnectionUnblocked,
    Method,
    encode_method,
)
from penstock.amqp.properties import decode_properties
from penstock.client.connection import Channel
from penstock.client.error import Closed, Refused, reason_of

WINDOW = 1000  # messages: enough to keep a broker busy over any usual network, little to send again
GATHER_BYTES = 65_536  # sent in one call
LOOK_S = 5.0  # how often a waiting publisher looks whether the peer's kernel is there
SILENT_S = 250.0  # while a peer does not read, kernels ask up to 120 s apart whether it does: two of that and some
TELL_AGAIN_S = 30.0  # how often `blocked` is told again while it goes on
ROUTES_MAX = 10_000  # encoded methods kept; then begun anew: routing keys may be different for every message
FAULTS_SHOWN = 3

_ACK = struct.Struct(">11sQBB")
_LAST_ACK_RECV_AT = 56  # tcpi_last_ack_recv of Linux's tcp_info, in milliseconds


class Publisher:
    """Publishes on one channel, in confirm mode from then on. `blocked` is told the reason, and "" when it is over."""

    __slots__ = (
        "_ack_start",
        "_blocked",
        "_due",
        "_faults",
        "_faults_count",
        "_faulty",
        "_gathered",
        "_gathered_bytes",
        "_lowest",
        "_methods",
        "_next",
        "_out",
        "_reason",
        "_returned",
        "_returned_left",
        "_told_at",
        "channel",
        "is_blocked",
        "window",
    )

    def __init__(self, channel: Channel, window: int = WINDOW, blocked: Callable[[str], None] | None = None) -> None:
        if window < 1:
            raise ValueError(f"the window is {window}; it must be 1 message or more")
        if channel.has_publisher:
            raise ValueError(f"channel {channel.number} has a publisher already")
        channel.has_publisher = True
        self.channel = channel
        self.window = window
        self.is_blocked = False
        self._blocked = blocked
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._out = memoryview(b"")  # what is being sent: kept, should `blocked` or a signal raise in the middle
        self._methods: dict[tuple[str, str, bool], bytes] = {}
        self._due: dict[int, tuple[str, str, bytes]] = {}  # by delivery tag: exchange, key, properties
        self._next = 1
        self._lowest = 1  # no tag below this is due
        self._faults: list[str] = []  # the first FAULTS_SHOWN
        self._faults_count = 0
        self._faulty: set[int] = set()  # the tags of all faults, as far as they are known
        self._reason = ""
        self._told_at = 0.0
        self._returned: BasicReturn | None = None  # whose content is still coming
        self._returned_left = -1  # bytes of its body; -1: its header is still to come
        number = channel.number.to_bytes(2, "big")
        self._ack_start = bytes((METHOD,)) + number + b"\x00\x00\x00\x0d" + BasicAck.ID.to_bytes(4, "big")
        channel.call(ConfirmSelect(), ConfirmSelectOk)

    def __repr__(self) -> str:
        return f"<Publisher channel={self.channel.number} due={len(self._due)} blocked={self.is_blocked}>"

    def publish(self, exchange: str, routing_key: str, properties: bytes, body: bytes, mandatory: bool = False) -> None:
        """Publish a message with these encoded properties; waits when the window is full.

        The message is taken in any case: what is raised here, Closed or Refused, is about what the broker said or did
        since, and the message has its number."""
        key = (exchange, routing_key, mandatory)
        method = self._methods.get(key)
        if method is None:
            if len(self._methods) >= ROUTES_MAX:
                self._methods.clear()
            method = encode_method(BasicPublish(exchange, routing_key, mandatory), self.channel.number)
            self._methods[key] = method
        self._gather(method, properties, body)
        self._due[self._next] = (exchange, routing_key, properties)
        self._next += 1
        if len(self._due) >= self.window:
            # Half a window at a time: to wake up for every confirm would send messages one by one.
            self._pump(self.window // 2)
        elif self._gathered_bytes >= GATHER_BYTES:
            self._pump(self.window)
        if self._faults_count:
            self._raise()

    def flush(self) -> None:
        """Send what is gathered and wait until all is confirmed; Refused if something was not taken."""
        self._pump(0)
        if self._faults_count:
            self._raise()

    @property
    def published(self) -> int:
        """The number of the last publish; 0 before the first."""
        return self._next - 1

    def unconfirmed(self) -> list[int]:
        """The numbers of the publishes that the broker has not confirmed, refused ones among them; the first is 1.

        After a Closed, these are to be published again, in this order, on a new connection."""
        return sorted(self._faulty.union(self._due))

    def _gather(self, method: bytes, properties: bytes, body: bytes) -> None:
        number = self.channel.number
        size = len(body)
        head = CONTENT_HEAD.pack(HEADER, number, 12 + len(properties), 60, 0, size)
        step = self.channel.connection.frame_max - OVERHEAD_BYTES
        if 12 + len(properties) > step:
            raise ValueError(f"properties of {len(properties)} bytes; a frame of this connection holds {step - 12}")
        if not size:
            self._gathered += (method, head, properties, END_BYTES)
        elif size <= step:
            self._gathered += (method, head, properties, END_BYTES, HEAD.pack(BODY, number, size), body, END_BYTES)
        else:
            self._gathered += (method, head, properties, END_BYTES)
            for start in range(0, size, step):
                piece = body[start : start + step]
                self._gathered += (HEAD.pack(BODY, number, len(piece)), piece, END_BYTES)
        self._gathered_bytes += len(method) + len(properties) + size

    def _pump(self, due_max: int) -> None:
        """Send what is gathered, and read meanwhile; until all is sent and no more than `due_max` are unconfirmed."""
        connection = self.channel.connection
        sock = connection.socket
        self.channel.check()
        self._out = memoryview(b"".join((self._out, *self._gathered)))
        self._gathered.clear()
        self._gathered_bytes = 0
        poll = select.poll()
        connection.inbox.wait_at_most(0)
        try:
            self._read()  # what came behind an earlier reply
            while True:
                self._read_all()
                while self._out and not self.is_blocked:
                    sent = self._send(self._out)
                    if not sent:
                        break
                    self._out = self._out[sent:]
                if not self._out and len(self._due) <= due_max:
                    return
                sending = self._out and not self.is_blocked
                poll.register(sock, select.POLLIN | select.POLLOUT if sending else select.POLLIN)
                if not poll.poll(LOOK_S * 1000):
                    self._look()
                if self.is_blocked and time.monotonic() - self._told_at >= TELL_AGAIN_S:
                    self._tell()
        finally:
            connection.inbox.wait_at_most(connection.timeout_s)

    def _send(self, out: memoryview) -> int:
        """How many bytes the socket took."""
        try:
            return self.channel.connection.socket.send(out)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return 0
        except OSError as error:
            # What the broker said before it hung up is worth more than that it did.
            self._read_all()
            raise Closed(f"connection to {self.channel.connection.uri.address} lost: {reason_of(error)}") from None

    def _read_all(self) -> None:
        """Read what the socket has, until it has no more."""
        inbox = self.channel.connection.inbox
        while inbox.receive():
            if inbox.ready():
                self._read()

    def _look(self) -> None:
        """Nothing happened for a while. A live peer's kernel answers at least when it is asked if there is room."""
        connection = self.channel.connection
        try:
            info = connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _LAST_ACK_RECV_AT + 4)
        except (AttributeError, OSError):
            return  # not Linux, or no TCP
        silent_s = int(struct.unpack_from("=I", info, _LAST_ACK_RECV_AT)[0]) / 1000
        if silent_s > SILENT_S:
            raise Closed(f"connection to {connection.uri.address} lost: its machine is silent for {silent_s:.0f} s")

    def _read(self) -> None:
        """Take every whole frame from the inbox."""
        connection = self.channel.connection
        inbox = connection.inbox
        while True:
            data, at = inbox.buffer, inbox.at
            if len(data) - at >= _ACK.size:
                start, tag, multiple, end = _ACK.unpack_from(data, at)
                if start == self._ack_start and end == 0xCE:
                    inbox.at = at + _ACK.size
                    self._settle(tag, bool(multiple & 1))
                    continue
            frame = inbox.next_frame()
            if frame is None:
                return
            kind, number, payload = frame
            if kind == HEARTBEAT:
                continue
            if kind == METHOD:
                self._hear(connection.heard(number, payload), number)
            else:
                self._take_content(kind, payload)

    def _hear(self, method: Method, number: int) -> None:
        if isinstance(method, ConnectionBlocked | ConnectionUnblocked):
            self.is_blocked = isinstance(method, ConnectionBlocked)
            self._reason = (method.reason or "no reason given") if isinstance(method, ConnectionBlocked) else ""
            self._tell()
            return
        address = self.channel.connection.uri.address
        if number != self.channel.number:
            raise Closed(f"{address} sent {method.NAME} on channel {number} where a confirm was due")
        if isinstance(method, BasicAck):
            self._settle(method.delivery_tag, method.multiple)
        elif isinstance(method, BasicNack):
            first = self._lowest if method.multiple else method.delivery_tag
            for tag in range(first, method.delivery_tag + 1):
                if tag in self._due:
                    self._fault(tag, self._due[tag], "the broker refused it (basic.nack)")
            self._settle(method.delivery_tag, method.multiple)
        elif isinstance(method, BasicReturn):
            self._returned, self._returned_left = method, -1
        else:
            raise Closed(f"{address} sent {method.NAME} on channel {number} where a confirm was due")

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        if self._blocked is not None:
            self._blocked(self._reason)

    def _settle(self, tag: int, multiple: bool) -> None:
        if not multiple:
            self._due.pop(tag, None)
            return
        for settled in range(self._lowest, tag + 1):
            self._due.pop(settled, None)
        self._lowest = max(self._lowest, tag + 1)

    def _take_content(self, kind: int, payload: bytes) -> None:
        """A piece of a returned message: its properties name it, its body is of no use."""
        returned = self._returned
        if returned is None or kind != (HEADER if self._returned_left < 0 else BODY):
            raise Closed(f"{self.channel.connection.uri.address} sent content where a confirm was due")
        if kind == HEADER:
            self._returned_left = int.from_bytes(payload[4:12], "big")
            why = f"it was returned: {returned.reply_code} {returned.reply_text}"
            message = (returned.exchange, returned.routing_key, payload[12:])
            self._fault(self._number_of(message), message, why)
        else:
            self._returned_left -= len(payload)
        if self._returned_left <= 0:
            self._returned = None

    def _number_of(self, message: tuple[str, str, bytes]) -> int:
        """A return carries no number: it is that of the first message like it that is still due; 0 if there is none."""
        for tag, due in self._due.items():
            if due == message and tag not in self._faulty:
                return tag
        return 0

    def _fault(self, tag: int, message: tuple[str, str, bytes], why: str) -> None:
        self._faults_count += 1
        if tag:
            self._faulty.add(tag)
        if len(self._faults) < FAULTS_SHOWN:
            exchange, routing_key, properties = message
            named = f"message {_message_id(properties)}to exchange {exchange!r} with routing key {routing_key!r}"
            self._faults.append(f"{named}: {why}")

    def _raise(self) -> None:
        text = "; ".join(self._faults)
        if self._faults_count > len(self._faults):
            text += f"; and {self._faults_count - len(self._faults)} more"
        numbers = sorted(self._faulty)
        self._faults.clear()
        self._faults_count = 0
        self._faulty.clear()
        raise Refused(f"{self.channel.connection.uri.address} did not take everything: {text}", numbers)


def _message_id(properties: bytes) -> str:
    """The message id, quoted and with a space behind it; empty if there is none."""
    try:
        found = decode_properties(properties, 0, len(properties)).message_id
    except CloseConnection:
        return ""
    return f"{found!r} " if found is not None else ""

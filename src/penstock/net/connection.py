"""Connection: one client, from accept to close. Puts reader, writer, handshake and heartbeat together.

Upstream: the socket.  Downstream: net/reader.py for channels, net/handshake.py for channel 0.
While a login is checked (login.py), what the client sends is held, in order; the handshake timeout goes on.
Not here: parking and credit (reader.py), what a blocked client is told (blocked.py), what channels do (broker/).
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, cast

from penstock.amqp.close import ACCESS_REFUSED, INTERNAL_ERROR, CloseConnection
from penstock.amqp.decoder import Command, Decoder, Item, Publishes
from penstock.amqp.frame import HEARTBEAT_FRAME, PROTOCOL_HEADER
from penstock.amqp.method import ConnectionClose, ConnectionCloseOk, Method, encode_method
from penstock.amqp.table import Table
from penstock.broker.access import Access
from penstock.broker.broker import Broker
from penstock.broker.ledger import Json
from penstock.net import handshake
from penstock.net.blocked import Blocked
from penstock.net.heartbeat import Heartbeat
from penstock.net.limits import Limits
from penstock.net.log import Log
from penstock.net.login import Attempt, Logins
from penstock.net.portrait import Portrait, is_loopback
from penstock.net.reader import Reader
from penstock.net.tls import certificate_user
from penstock.net.writer import Writer
from penstock.runtime import TIMED_EVERY

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.queue import Queue
    from penstock.broker.vhost import VHost

CLOSING: Final = "closing"  # connection.close sent: waiting for close-ok, ignoring the rest
REFUSED: Final = "refused"  # wrong before it has logged in: nothing more is said, and soon the socket is closed
CLOSED: Final = "closed"
REFUSED_DELAY_S: Final = 3.0  # RabbitMQ's: how long a wrong client waits before it is closed without a word
CLOSE_OK_TIMEOUT_S: Final = 30.0  # RabbitMQ's: how long a client may take to answer or to hang up
CLOSE_OK_FRAME: Final = encode_method(ConnectionCloseOk(), 0)
TLS_HELLO: Final = b"\x16\x03"  # how a client begins that speaks TLS to us
LINGER_S: Final = 10.0  # how long the last bytes may take to leave before the socket is cut off


class Connection(asyncio.Protocol):
    __slots__ = (
        "_attempt",
        "_begun",
        "_blocked",
        "_decoder",
        "_gone",
        "_header",
        "_heartbeat",
        "_held",
        "_host",
        "_late",
        "_log",
        "_logins",
        "_lost",
        "_made",
        "_portrait",
        "_read_ns",
        "_reads",
        "_received",
        "_timer",
        "_transport",
        "_unwanted",
        "_user_from",
        "_writer",
        "access",
        "broker",
        "certificate_user",
        "client_properties",
        "exclusive_queues",
        "frame_max",
        "is_client",
        "is_loopback",
        "is_tls",
        "limits",
        "mechanism",
        "name",
        "notify_cancel",
        "numbers",
        "outbox",
        "reader",
        "state",
        "user",
        "vhost",
    )

    def __init__(
        self,
        broker: Broker,
        limits: Limits,
        log: Log,
        gone: Callable[[Connection], None],
        user_from: str = "",
        logins: Logins | None = None,
    ) -> None:
        self.broker = broker
        self.limits = limits
        self.state = handshake.STARTING
        self.name = ""
        self.user = ""
        self.frame_max = 0
        self.is_client = True
        self.notify_cancel = self.numbers = False
        self.is_loopback = self.is_tls = False
        self.certificate_user: str | None = None  # by tls.user_from, if the client gave a certificate
        self.client_properties: Table = {}
        self.exclusive_queues: dict[Queue, None] = {}
        self.vhost: VHost  # from connection.open on, by Broker.enter; there need not be any vhost before
        self.access = Access(broker.users, "", "")  # nothing at all, until then
        self.mechanism = ""  # by which it logged in
        self.reader: Reader | None = None
        self._log = log
        self._gone = gone
        self._user_from = user_from
        self._logins = logins or Logins(broker.users, broker.scheduler.clock, log)
        self._attempt: Attempt | None = None  # a login that is being checked
        self._held: list[Item] = []  # what came in one read with that login
        self._late = b""  # and what came after it
        self._host = ""
        self._received = self._reads = self._read_ns = 0  # bytes, in so many reads, and how long these took, about
        self._header = b""
        self._begun = self._made = self._lost = False
        self._unwanted = False  # it is to be closed as soon as it is made
        self._decoder = Decoder(limits.message_bytes_max, limits.bounds)
        self._decoder.distrust(limits.frame_max)
        self._heartbeat: Heartbeat | None = None
        self._blocked: Blocked | None = None

    # From asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._portrait = Portrait(transport)
        self._host = self._portrait.remote[0]
        self.name = self._portrait.name()
        self.is_loopback = is_loopback(self._host)
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self.is_tls = True
            self.certificate_user = certificate_user(tls.getpeercert(), self._user_from)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._writer = Writer(self._transport, self.broker.scheduler, self._pause_or_resume)
        self.outbox = self._writer.outbox
        clock = self.broker.scheduler.clock
        self._timer = clock.call_later(self.limits.handshake_timeout_s, self._handshake_timeout)
        self._made = True
        if self._unwanted:
            self._close_socket()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        self._reads += 1
        if self._heartbeat is not None:
            self._heartbeat.received = True
        if not self._begun:
            data = self._protocol_header(data)
            if not data:
                return
        if self.state == CLOSED:
            return
        if self._attempt is not None:
            self._late += data
            self._pause_or_resume()
            return
        if self._decoder.error is not None:
            self._look_for_close_ok(data)
            return
        began_ns = 0 if self._reads % TIMED_EVERY else time.monotonic_ns()
        self._take(self._decoder.feed(data))
        if began_ns:
            self._read_ns += (time.monotonic_ns() - began_ns) * TIMED_EVERY

    def _take(self, items: list[Item], login: tuple[str, str] | None = None) -> None:
        """Work on these; before them on the outcome of a login, user and refusal, if it is given."""
        left = iter(items)
        try:
            if self.state == handshake.RUNNING:
                for item in left:
                    self._receive(item)
            else:
                self._shake_hands(left, login)
            if self._decoder.error is not None and self._attempt is None:
                raise self._decoder.error
        except CloseConnection as error:
            self.fail(error)
            for item in left:  # the client's own goodbye may be among them
                self._receive_closing(item)
        except handshake.Refused as refused:
            self._refuse(str(refused))
        except Exception as error:  # a bug of ours must not take the other connections along
            self._log.crash(f"connection {self.name}", error)
            self.fail(CloseConnection(INTERNAL_ERROR, "internal error; the broker's log has the details"))

    def pause_writing(self) -> None:
        self._writer.socket_full()

    def resume_writing(self) -> None:
        self._writer.socket_drained()

    def connection_lost(self, exc: Exception | None) -> None:
        was, self.state = self.state, CLOSED
        self._timer.cancel()
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None
        self._lost = True
        if self._attempt is not None:
            self._logins.cancel(self._attempt)
            self._attempt = None
        self.broker.peers.remove(self)
        self._writer.close()
        self._leave()
        self._let_go()
        if self.user and was not in (CLOSING, CLOSED, REFUSED):
            self._log.info(
                "connection lost",
                peer=self.name,
                user=self.user,
                reason=str(exc or "closed by the client without connection.close"),
            )
        self._gone(self)

    # Receiving.

    def _protocol_header(self, data: bytes) -> bytes:
        """The first eight bytes; what follows them is returned."""
        data = self._header + data
        if len(data) < len(PROTOCOL_HEADER):
            self._header = data
            return b""
        self._begun = True
        self._header = b""
        if not data.startswith(PROTOCOL_HEADER):
            hint = {"hint": "TLS on the plain port"} if data.startswith(TLS_HELLO) else {}
            self._log.info("not AMQP 0-9-1", peer=self.name, header=repr(data[:8]), **hint)
            self._transport.write(PROTOCOL_HEADER)
            self._close_socket()
            return b""
        handshake.begin(self)
        return data[len(PROTOCOL_HEADER) :]

    def _shake_hands(self, items: Iterator[Item], login: tuple[str, str] | None) -> None:
        """As `_receive` of each, until a login is to be checked: the rest waits for the outcome."""
        if login is not None:
            handshake.checked(self, *login)
        for item in items:
            self._receive(item)
            if self._attempt is not None:
                self._held = list(items)
                self._pause_or_resume()
                return

    def _receive(self, item: Item) -> None:
        if self.state == CLOSING or self.state == CLOSED or self.state == REFUSED:
            self._receive_closing(item)
        elif item.channel and self.reader is not None and self.state == handshake.RUNNING:
            self.reader.receive(item)
        else:
            handshake.receive(self, item)

    def _look_for_close_ok(self, data: bytes) -> None:
        """After a broken frame nothing can be cut any more; the client's last word is still known by its bytes."""
        self._header = (self._header + data)[-len(CLOSE_OK_FRAME) :]
        if self._header == CLOSE_OK_FRAME:
            self._close_socket()

    def _receive_closing(self, item: Item) -> None:
        if item.channel or not isinstance(item, Command) or self.state == REFUSED:
            return
        if isinstance(item.method, ConnectionCloseOk):
            self._close_socket()
        elif isinstance(item.method, ConnectionClose):
            self.send(ConnectionCloseOk())

    def send(self, method: Method) -> None:
        self.outbox.send(encode_method(method, 0))

    # From the handshake.

    def introduce(self, properties: Table) -> None:
        self.client_properties = properties
        self.notify_cancel = self.capability("consumer_cancel_notify")
        # Who publishes again what it consumed, headers and all, does not mean to say that it comes again.
        self.numbers = self._decoder.numbers = self.capability("penstock.deduplication")

    def capability(self, name: str) -> bool:
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

    def tuned(self, frame_max: int, channel_max: int, heartbeat_s: int) -> None:
        self.frame_max = frame_max
        self._portrait.channel_max, self._portrait.heartbeat_s = channel_max, heartbeat_s
        self._decoder.tuned(frame_max, channel_max)
        self.reader = Reader(self.broker, self, channel_max, self.limits.parked_bytes_max, self._reader_changed)
        clock, alarms = self.broker.scheduler.clock, self.broker.alarms
        self._blocked = Blocked(clock, alarms, self.reader, self.send, self.fail, self.capability)
        if heartbeat_s:
            self._heartbeat = Heartbeat(clock, heartbeat_s, self._send_heartbeat, self._silent, self._is_paused)

    def opened(self) -> None:
        self._timer.cancel()
        client, name = str(self.client_properties.get("product", "")), self.client_name()
        self._log.info(
            "connection open", peer=self.name, user=self.user, vhost=self.vhost.name, client=client, name=name
        )

    def check_login(self, user: str, password: str | None) -> None:
        """Go on by handshake.checked, now or when it is known."""
        attempt = Attempt(user, password, self._host, self.is_loopback, self.name, self._login_checked)
        if self._logins.check(attempt):
            handshake.checked(self, user, "")
        else:
            self._attempt = attempt

    def _login_checked(self, user: str, refusal: str) -> None:
        self._attempt = None
        if self.state != handshake.SECURING:  # it took too long
            return
        held, late = self._held, self._late
        self._held, self._late = [], b""
        self._take(held, (user, refusal))
        self._pause_or_resume()
        if late:
            self.data_received(late)

    # From channels, and about them.

    def channel_count(self) -> int:
        return len(self.reader.lanes) if self.reader is not None else 0

    def unpark(self, channel: Channel, behind: int) -> list[Publishes]:
        return self.reader.unpark(channel.number, behind) if self.reader is not None else []

    def channel_gone(self, channel: Channel) -> None:
        if self.reader is None:
            return
        lane = self.reader.lanes.get(channel.number)
        if lane is not None and lane.channel is channel:
            self.reader.forget(channel.number)
            self._decoder.forget(channel.number)
        if self.state == CLOSED and not self.reader.lanes:
            self._closed_whole()
            self._let_go()

    # The end, in its four ways: by our error, by the client's wish, by a client that is not let in, by a dead socket.

    def fail(self, error: CloseConnection) -> None:
        if self.state in (CLOSING, CLOSED, REFUSED):
            return
        self._log.warning(
            "connection closed with an error", peer=self.name, user=self.user, code=error.code, text=error.text
        )
        told = self.state in (handshake.OPENING, handshake.RUNNING) or error.code == ACCESS_REFUSED
        if not told:
            self.state = REFUSED
            self._restart_timer(REFUSED_DELAY_S)
            return
        self.state = CLOSING
        self._leave()
        self.send(ConnectionClose(error.code, error.text, error.class_id, error.method_id))
        self._restart_timer(REFUSED_DELAY_S if error.code == ACCESS_REFUSED else CLOSE_OK_TIMEOUT_S)

    def closed_by_peer(self, method: ConnectionClose) -> None:
        self._log.info("connection closed", peer=self.name, user=self.user, code=method.reply_code)
        self.state = CLOSED
        self.broker.peers.remove(self)  # its next connection may be here before its socket is gone
        self._leave(politely=True)
        if self.reader is None or not self.reader.lanes:
            self._closed_whole()

    def close(self, error: CloseConnection) -> None:
        """By the operator."""
        if not self._made:  # accepted, but the loop has not told us yet
            self._unwanted = True
        elif self.state in (handshake.OPENING, handshake.RUNNING):
            self.fail(error)
        else:
            self._close_socket()

    def abort(self) -> None:
        """Cut the socket off."""
        if self._made:
            self._transport.abort()
        else:
            self._unwanted = True

    def _closed_whole(self) -> None:
        """All channels are done: what the client published before its connection.close is with the queues."""
        if not self.outbox.closed:
            self.send(ConnectionCloseOk())
            self._writer.close_after_flush()
            # A client that does not read would keep the socket for ever.
            self._timer.cancel()
            self._timer = self.broker.scheduler.clock.call_later(LINGER_S, self._transport.abort)

    def _refuse(self, reason: str) -> None:
        self._log.warning("handshake refused", peer=self.name, reason=reason)
        self.state = REFUSED
        self._restart_timer(REFUSED_DELAY_S)

    def _restart_timer(self, delay_s: float) -> None:
        self._timer.cancel()
        self._timer = self.broker.scheduler.clock.call_later(delay_s, self._close_socket)

    def _handshake_timeout(self) -> None:
        self._log.warning("handshake timeout", peer=self.name, state=self.state)
        self._close_socket()

    def _close_socket(self) -> None:
        self._timer.cancel()
        self.state = CLOSED
        self._writer.flush()  # a client may answer a close before it has seen it
        self._transport.close()
        self._timer = self.broker.scheduler.clock.call_later(LINGER_S, self._transport.abort)

    def _leave(self, politely: bool = False) -> None:
        """Channels go, and with them the queues that were only for this connection."""
        self.notify_cancel = False  # the client knows that its own queues go: it said so, or was told
        if self._blocked is not None:
            self._blocked.stop()
            self._blocked = None
        if self.reader is not None:
            self.reader.shut_down(politely)
        for queue in list(self.exclusive_queues):
            queue.delete()

    def _let_go(self) -> None:
        """Once socket and channels are gone: break the circle with the reader, so that memory is free at once."""
        if self._lost and self.reader is not None and not self.reader.lanes:
            self.reader.close()
            self.reader = None

    # Pausing and heartbeats.

    def flow_state(self) -> str:
        """As people see it: `starting`, `running`, `flow`, `blocking`, `blocked` or `closing`."""
        if self.state != handshake.RUNNING or self.reader is None:
            return "closing" if self.state in (CLOSING, CLOSED, REFUSED) else "starting"
        return self.reader.flow_state()

    def blocked_by(self) -> list[Json]:
        return [str(reason) for reason in self.reader.blocked_by] if self.reader is not None else []

    def parked_bytes(self) -> int:
        return self.reader.parked_bytes if self.reader is not None else 0

    def client_name(self) -> str:
        name = self.client_properties.get("connection_name")
        return name if isinstance(name, str) else ""

    def octets(self) -> tuple[int, int, int, int]:
        return self._received, self._writer.sent, self._reads, self._writer.writes

    def work(self) -> tuple[int, int, int, int]:
        turns, busy_ns = (self.reader.mailbox.turns, self.reader.mailbox.busy_ns) if self.reader is not None else (0, 0)
        return turns + self._reads, busy_ns + self._read_ns, self._writer.writes, self._writer.write_ns

    def portrait(self) -> dict[str, Json]:
        return self._portrait.view(self) | {"send_pend": self._transport.get_write_buffer_size()}

    def _reader_changed(self) -> None:
        self._pause_or_resume()
        if self._blocked is not None:
            self._blocked.look()

    def _pause_or_resume(self) -> None:
        """The socket is read unless too much is parked, too much that we wrote is unread, or something is held."""
        if self._transport.is_closing():
            return
        full = self.reader is not None and self.reader.is_full
        if full or self._writer.overdue or self._held or self._late:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _is_paused(self) -> bool:
        return not self._transport.is_reading()

    def _send_heartbeat(self) -> None:
        if not self._writer.wrote:
            self.outbox.send(HEARTBEAT_FRAME)
        self._writer.wrote = False

    def _silent(self) -> None:
        self._log.warning("missed heartbeats from client", peer=self.name, user=self.user)
        self._transport.abort()

    def __repr__(self) -> str:
        return f"<Connection {self.name} {self.state} user={self.user!r}>"

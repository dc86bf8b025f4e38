"""Listener: the ports, plain and TLS, and the connections that came through them.

The limit on connections holds for both ports together: it is a bound on open files, and those are the process's.
Not here: certificates (tls.py), what a connection does (connection.py).
"""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from penstock.amqp.close import CONNECTION_FORCED, CloseConnection
from penstock.broker.broker import Broker
from penstock.net.connection import CLOSED, Connection
from penstock.net.limits import Limits
from penstock.net.log import Log
from penstock.net.login import Logins
from penstock.net.tls import Certificates, failure

BACKLOG: Final = 1024  # connections the kernel may hold for us while we are busy
STOP_TIMEOUT_S: Final = 5.0  # how long clients may take to answer connection.close when the broker stops
ACCEPT_RETRY_S: Final = 1.0  # asyncio's: when there are no files left, some may be closed by then
TLS_SHUTDOWN_TIMEOUT_S: Final = 10.0  # how long a client may take to answer close_notify; as the plain socket's linger


class Listener:
    def __init__(self, broker: Broker, limits: Limits, log: Log) -> None:
        self._broker = broker
        self._limits = limits
        self._log = log
        self.logins = Logins(broker.users, broker.scheduler.clock, log)
        self.logins.failed = broker.activity.login_failed
        self._server: asyncio.Server | None = None
        self._tls_sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []  # one per TLS socket
        self._handshakes: set[asyncio.Task[None]] = set()  # TLS clients that are not through yet
        self._all_gone = asyncio.Event()
        self.connections: dict[Connection, None] = {}

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the address and port that it got."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, host, port, backlog=BACKLOG)
        bound: socket.socket = self._server.sockets[0]
        name = bound.getsockname()
        return str(name[0]), int(name[1])

    def _accept(self) -> asyncio.Protocol:
        if self._is_full():
            return _Refusal()
        connection = Connection(self._broker, self._limits, self._log, self._gone, logins=self.logins)
        self.connections[connection] = None
        return connection

    def _is_full(self) -> bool:
        count = len(self.connections) + len(self._handshakes)
        if count < self._limits.connections_max:
            return False
        self._log.warning("connection refused", reason=f"{count} connections are the limit")
        return True

    def _gone(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        if not self.connections:
            self._all_gone.set()

    # TLS. Accepted by hand: create_server(ssl=…) takes one context for ever, and tells nobody when a handshake fails.

    async def start_tls(self, host: str, port: int, certificates: Certificates) -> tuple[str, int]:
        """Listen for TLS; the address and port that it got."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((family, address[:2]) for family, _, _, _, address in found):
            listening = socket.create_server(address, family=family, backlog=BACKLOG)
            listening.setblocking(False)
            self._tls_sockets.append(listening)
            self._accepting.append(loop.create_task(self._accept_tls(listening, certificates)))
        name = self._tls_sockets[0].getsockname()
        return str(name[0]), int(name[1])

    async def _accept_tls(self, listening: socket.socket, certificates: Certificates) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:
                self._log.error("cannot accept a connection", reason=error.strerror)
                await asyncio.sleep(ACCEPT_RETRY_S)
                continue
            if self._is_full():
                accepted.close()
                continue
            task = loop.create_task(self._secure(accepted, f"{address[0]}:{address[1]}", certificates))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _secure(self, accepted: socket.socket, peer: str, certificates: Certificates) -> None:
        """The TLS handshake, with the certificate that is in force now."""
        user_from = certificates.settings.user_from
        connection = Connection(self._broker, self._limits, self._log, self._gone, user_from, self.logins)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=certificates.context,
                ssl_handshake_timeout=self._limits.handshake_timeout_s,
                ssl_shutdown_timeout=TLS_SHUTDOWN_TIMEOUT_S,
            )
        except OSError as error:
            self._log.warning("TLS handshake failed", peer=peer, reason=failure(error))
            return
        if connection.state != CLOSED:  # it may be over already
            self.connections[connection] = None

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Take no more connections; tell the clients, and give them a while to say goodbye."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._stop_tls()
        if self.connections:
            self._all_gone.clear()
            for connection in list(self.connections):
                connection.close(
                    CloseConnection(CONNECTION_FORCED, "broker forced connection closure with reason 'shutdown'")
                )
            try:
                await asyncio.wait_for(self._all_gone.wait(), timeout_s)
            except TimeoutError:
                self._log.warning("clients did not answer connection.close", count=len(self.connections))
                for connection in list(self.connections):
                    connection.abort()
        await asyncio.sleep(0)
        self.logins.close()

    async def _stop_tls(self) -> None:
        tasks = [*self._accepting, *self._handshakes]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._accepting.clear()
        for listening in self._tls_sockets:
            listening.close()
        self._tls_sockets.clear()


class _Refusal(asyncio.Protocol):
    """One connection too many: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()

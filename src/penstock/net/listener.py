"""Listener: a TCP port and the connections that came through it."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

from penstock.amqp.close import CONNECTION_FORCED, CloseConnection
from penstock.broker.broker import Broker
from penstock.net.connection import Connection
from penstock.net.limits import Limits
from penstock.net.log import Log

BACKLOG: Final = 1024  # connections the kernel may hold for us while we are busy
STOP_TIMEOUT_S: Final = 5.0  # how long clients may take to answer connection.close when the broker stops


class Listener:
    def __init__(self, broker: Broker, limits: Limits, log: Log) -> None:
        self._broker = broker
        self._limits = limits
        self._log = log
        self._server: asyncio.Server | None = None
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
        if len(self.connections) >= self._limits.connections_max:
            self._log.warning("connection refused", reason=f"{len(self.connections)} connections are the limit")
            return _Refusal()
        connection = Connection(self._broker, self._limits, self._log, self._gone)
        self.connections[connection] = None
        return connection

    def _gone(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        if not self.connections:
            self._all_gone.set()

    async def stop(self) -> None:
        """Take no more connections; tell the clients, and give them a while to say goodbye."""
        if self._server is None:
            return
        self._server.close()
        if self.connections:
            self._all_gone.clear()
            for connection in list(self.connections):
                connection.close(
                    CloseConnection(CONNECTION_FORCED, "broker forced connection closure with reason 'shutdown'")
                )
            try:
                await asyncio.wait_for(self._all_gone.wait(), STOP_TIMEOUT_S)
            except TimeoutError:
                self._log.warning("clients did not answer connection.close", count=len(self.connections))
                for connection in list(self.connections):
                    connection.abort()
        await asyncio.sleep(0)


class _Refusal(asyncio.Protocol):
    """One connection too many: closed at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()

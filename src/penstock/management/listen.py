"""Listen: the API on a port, in the broker's event loop.

Place: server.py starts and stops it. Not here: what a request does (api.py).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from penstock.management.api import Application

BACKLOG: Final = 128
KEEP_ALIVE_S: Final = 30
REQUESTS_MAX: Final = 256  # at once; more get 503, so that a flood of requests cannot drown the broker
HEAD_S: float = 10.0  # for a request's head, from the connection or its first byte on
BODY_S: float = 60.0  # and for its body: RabbitMQ's files of definitions may be large, and lines slow
STOP_TIMEOUT_S: Final = 2
RETRY_S: Final = 5.0  # before what ended by a bug begins again


class _Uvicorn(uvicorn.Server):
    """Without its own signal handlers: the broker decides when to stop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Http(H11Protocol):
    """With an end to waiting: who says nothing, or a byte now and then, has no place among REQUESTS_MAX for long. A
    connection that has had its answer is closed by KEEP_ALIVE_S."""

    _deadline: asyncio.TimerHandle | None = None
    _awaited: object = None  # the part of a request that the deadline is for

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def _watch(self) -> None:
        awaited = self.conn.their_state
        if awaited not in (h11.IDLE, h11.SEND_BODY):
            self._forget()
        elif self._deadline is None or awaited is not self._awaited:
            self._forget()
            self._awaited = awaited
            self._deadline = self.loop.call_later(HEAD_S if awaited is h11.IDLE else BODY_S, self._give_up)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self.conn.their_state is self._awaited:
            self.transport.abort()


class _Reports(logging.Handler):
    """uvicorn's words, for the broker's log."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report(self.format(record))


class ManagementListener:
    def __init__(self, application: Application, report: Callable[[str], None]) -> None:
        """`report` gets what an operator should know, a bug with its traceback too."""
        config = uvicorn.Config(
            application,
            http=_Http,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            limit_concurrency=REQUESTS_MAX,
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
            server_header=False,
            proxy_headers=False,  # failed logins are slowed down by address: nobody may make one up
        )
        self._application = application
        self._server = _Uvicorn(config)
        self._reports = _Reports(report)
        self._report = report
        self._task: asyncio.Task[None] | None = None
        self._beside: list[asyncio.Task[None]] = []

    async def start(self, host: str, port: int) -> tuple[str, int]:
        """Listen; the address and port that it got. OSError if that cannot be."""
        family, kind, protocol, _, address = (
            await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )[0]
        bound = socket.socket(family, kind, protocol)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(BACKLOG)
        except OSError:
            bound.close()
            raise
        name = bound.getsockname()
        logger = logging.getLogger("uvicorn.error")
        logger.addHandler(self._reports)
        logger.propagate = False
        self._task = asyncio.create_task(self._server.serve([bound]))
        self._beside = [asyncio.create_task(self._keep(run)) for run in self._application.background()]
        return str(name[0]), int(name[1])

    async def _keep(self, run: Callable[[], Awaitable[None]]) -> None:
        """A bug in what runs beside the API is told, and does not end it."""
        while True:
            try:
                await run()
            except Exception:
                self._report(traceback.format_exc())
            await asyncio.sleep(RETRY_S)

    async def stop(self) -> None:
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        self._beside = []
        if self._task is not None:
            self._server.should_exit = True
            await self._task
            self._task = None
            logging.getLogger("uvicorn.error").removeHandler(self._reports)

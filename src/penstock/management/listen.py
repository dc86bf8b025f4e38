"""Listen: the API on a port, in the broker's event loop.

Place: server.py starts and stops it. Not here: what a request does (api.py).
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvicorn
from starlette.types import ASGIApp

BACKLOG: Final = 128
KEEP_ALIVE_S: Final = 30
REQUESTS_MAX: Final = 256  # at once; more get 503, so that a flood of requests cannot drown the broker
STOP_TIMEOUT_S: Final = 2


class _Uvicorn(uvicorn.Server):
    """Without its own signal handlers: the broker decides when to stop."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Reports(logging.Handler):
    """uvicorn's words, for the broker's log."""

    def __init__(self, report: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        self._report(self.format(record))


class ManagementListener:
    def __init__(self, application: ASGIApp, report: Callable[[str], None]) -> None:
        """`report` gets what an operator should know, a bug with its traceback too."""
        config = uvicorn.Config(
            application,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=KEEP_ALIVE_S,
            limit_concurrency=REQUESTS_MAX,
            timeout_graceful_shutdown=STOP_TIMEOUT_S,
            server_header=False,
        )
        self._server = _Uvicorn(config)
        self._reports = _Reports(report)
        self._task: asyncio.Task[None] | None = None

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
        return str(name[0]), int(name[1])

    async def stop(self) -> None:
        if self._task is not None:
            self._server.should_exit = True
            await self._task
            self._task = None
            logging.getLogger("uvicorn.error").removeHandler(self._reports)

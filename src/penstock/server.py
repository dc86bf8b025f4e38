"""Server: puts the parts together, in the order they are started and stopped. The only place that knows them all."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final

from penstock import __version__
from penstock.broker.broker import Broker
from penstock.config import Config
from penstock.credit import Hop
from penstock.net.clock import LoopClock
from penstock.net.limits import Limits
from penstock.net.listener import Listener
from penstock.net.log import Log
from penstock.runtime import Scheduler

# Messages are many small containers that form no cycles: looking through them often costs time and finds nothing.
GC_THRESHOLDS: Final = (50_000, 20, 100)


class StartError(Exception):
    """Why the broker cannot start, in one line."""


class Server:
    """A broker on a port, in the running event loop."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.log = Log(config.word("log.level"), config.word("log.format") == "json")
        self.broker: Broker | None = None
        self.listener: Listener | None = None
        self.host = ""
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        loop = asyncio.get_running_loop()
        config = self.config
        scheduler = Scheduler(LoopClock(loop), lambda: _soon(loop, scheduler), self.log.crash)
        self.broker = Broker(
            scheduler,
            Hop("reader_channel", config.spec("credit.reader_channel"), config.spec("credit.reader_channel_bytes")),
            Hop("channel_queue", config.spec("credit.channel_queue"), config.spec("credit.channel_queue_bytes")),
            config.integer("faults.channel_delay_us"),
            config.integer("faults.queue_delay_us"),
        )
        limits = Limits(
            frame_max=config.integer("limits.frame_max_bytes"),
            channel_max=config.integer("limits.channel_max"),
            heartbeat_s=config.integer("limits.heartbeat_s"),
            message_bytes_max=config.integer("limits.message_bytes"),
            parked_bytes_max=config.integer("limits.parked_bytes"),
            handshake_timeout_s=config.number("limits.handshake_timeout_s"),
            connections_max=config.integer("limits.connections"),
        )
        self.listener = Listener(self.broker, limits, self.log)
        try:
            self.host, self.port = await self.listener.start(host, port)
        except OSError as error:
            known = error.errno in errno.errorcode  # asyncio wraps the reason in a sentence; look-ups have codes apart
            reason = os.strerror(error.errno) if known and error.errno is not None else error.strerror
            raise StartError(f"cannot listen on {host}:{port}: {reason}") from None

    async def stop(self) -> None:
        if self.listener is not None:
            await self.listener.stop()


def _soon(loop: asyncio.AbstractEventLoop, scheduler: Scheduler) -> None:
    loop.call_soon(scheduler.turn)


def prepare_data(directory: Path) -> None:
    """The data directory exists and can be written to."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise StartError(f"data directory {directory}: {error.strerror}") from None


async def serve(config: Config, host: str, port: int, ready: Callable[[Server], None]) -> None:
    """Run until SIGTERM or SIGINT."""
    server = Server(config)
    await server.start(host, port)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    loop_kind = type(loop).__module__.partition(".")[0]
    server.log.info("listening", amqp=f"{server.host}:{server.port}", loop=loop_kind, version=__version__)
    ready(server)
    await stopping.wait()
    server.log.info("stopping")
    await server.stop()
    server.log.info("stopped")


def run_loop(main: Coroutine[None, None, None]) -> None:
    """Run on uvloop if it is there, else on asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)

"""Cable: a TCP relay between a client and the broker that can be cut, or lose what the client sends.

It lets a test break a connection the same way for every broker, from outside, as a network does.
Not here: ending the broker itself (targets.py).
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final

from tests.wire.waiting import LIMIT_S

CHUNK_BYTES: Final = 65_536
HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
RESET: Final = struct.pack("ii", 1, 0)  # SO_LINGER on, 0 s: close sends RST, as RabbitMQ does


class Cable:
    """Relays 127.0.0.1:port to the broker's port, from a thread of its own."""

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cable", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._deaf = False
        self._plugged = True
        self.heartbeats = {"client": 0, "broker": 0}  # frames seen from each side
        self.port = 0

    @property
    def uri(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def __enter__(self) -> Cable:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()

    def unplug(self) -> None:
        """Reset every connection, on both ends, and refuse new ones until `plug`."""

        def pull() -> None:
            self._plugged = False
            self._reset_all()

        self._call(pull)

    def plug(self) -> None:
        self._plugged = True

    def lose_what_the_client_sends(self) -> None:
        """From now on the broker hears nothing more; the other direction works."""
        self._deaf = True

    # On the cable's own thread.

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)

    def _call(self, function: Callable[[], None]) -> None:
        async def wrapped() -> None:
            function()

        self._run(wrapped())

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._plugged:
            reset(writer)
            return
        try:
            there = await asyncio.open_connection("127.0.0.1", self._broker_port)
        except OSError:
            reset(writer)
            return
        pair = {writer, there[1]}
        self._writers |= pair
        for source, sink, sender in ((reader, there[1], "client"), (there[0], writer, "broker")):
            task = asyncio.get_running_loop().create_task(self._relay(source, sink, pair, sender))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _relay(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        pair: set[asyncio.StreamWriter],
        sender: str,
    ) -> None:
        try:
            while data := await source.read(CHUNK_BYTES):
                if self._deaf and sender == "client":
                    continue
                if data == HEARTBEAT:
                    self.heartbeats[sender] += 1
                sink.write(data)
                await sink.drain()
        except OSError:
            pass  # one end is gone; the other is told below
        finally:
            self._writers -= pair
            for writer in pair:
                writer.close()

    def _reset_all(self) -> None:
        for writer in self._writers:
            reset(writer)
        self._writers.clear()

    async def _close(self) -> None:
        self._server.close()
        self._reset_all()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def reset(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        except OSError:
            pass  # closed already
    writer.transport.abort()

"""Embedding: a real broker inside another program, in its event loop (Broker) or in a thread (BrokerThread).

Without a data directory everything is in memory. `stop` and `start` are a restart as clients see it: connections end,
what is not durable goes, and the broker comes back on the same port with the rest.
Not here: the pytest fixture (testing.py), the process that serves (cli.py), how the parts fit (server.py).
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, TextIO, TypeVar
from urllib.parse import quote

from penstock.broker.broker import Broker as Core
from penstock.broker.password import new_secret
from penstock.broker.queue import Queue
from penstock.config import Config, ConfigError
from penstock.net.connection import Connection
from penstock.net.handshake import RUNNING
from penstock.net.listener import STOP_TIMEOUT_S
from penstock.net.log import Log
from penstock.server import Server, StartError, new_event_loop, prepare_data

__all__ = ["Broker", "BrokerThread", "Client", "StartError"]

Result = TypeVar("Result")

CALL_TIMEOUT_S: Final = 10.0  # how long the broker's thread may take to answer: only a bug makes it that long
# A client in another thread answers within milliseconds; one in the thread that waits here cannot answer at all.
FAREWELL_S: Final = 0.2
DEPTH_TIMEOUT_S: Final = 5.0  # how long a test waits for messages by default
DEPTH_POLL_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Client:
    """An open connection."""

    name: str  # addresses and ports, and the name that the client gave itself
    user: str
    vhost: str


class Broker:
    """A broker in the running event loop: `async with Broker() as broker`. Its methods belong to that loop's thread."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls_port: int | None = None,
        data: Path | None = None,
        log: TextIO | None = None,
    ) -> None:
        """Settings as in docs/settings.md; port 0 is a free one; no TLS unless there is a `tls_port`; without a `data`
        directory nothing outlives the program; the log goes to stderr unless there is another stream for it."""
        self.host = host
        self.port = port
        self.tls_port = tls_port
        self._settings = dict(settings or {})
        self._data = data
        self._log = log
        self._server: Server | None = None
        self._listening = False

    async def __aenter__(self) -> Broker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Listen; after `stop` on the same port, with all that is durable. StartError says why it cannot."""
        if self._listening:
            return
        tls = None if self.tls_port is None else (self.host, self.tls_port)
        if self._server is None:
            if self._data is not None:
                prepare_data(self._data)
            server = Server(self._config(), self._data)
            if self._log is not None:
                config = server.config
                server.log = Log(config.word("log.level"), config.word("log.format") == "json", self._log)
            await server.start(self.host, self.port, tls)
            self._server = server
        else:
            await self._server.listen(self.host, self.port, tls)
        self._listening = True
        self.port = self._server.port
        if tls is not None:
            self.tls_port = self._server.tls_port

    def _config(self) -> Config:
        try:
            return Config({name: _text(value) for name, value in self._settings.items()})
        except ConfigError as error:
            raise StartError(str(error)) from None

    async def stop(self, farewell_s: float = STOP_TIMEOUT_S) -> None:
        """As a broker that is shut down: clients are told, and cut off after a while; `start` brings it back."""
        if not self._listening or self._server is None or self._server.listener is None:
            return
        self._listening = False
        await self._server.listener.stop(farewell_s)
        _drop_transient(self.core)

    async def close(self) -> None:
        """For good: nothing is left behind."""
        self._listening = False
        if self._server is not None:
            await self._server.stop()
            self._server = None

    @property
    def is_alive(self) -> bool:
        """Started and not closed; it may be stopped."""
        return self._server is not None

    @property
    def uri(self) -> str:
        """For the default user and vhost."""
        return self.url_for()

    def url_for(self, user: str = "guest", password: str = "guest", vhost: str = "/") -> str:
        return _url("amqp", user, password, self.host, self.port, vhost)

    def tls_url_for(self, user: str = "guest", password: str = "guest", vhost: str = "/") -> str:
        assert self.tls_port is not None, "this broker was made without a tls_port"
        return _url("amqps", user, password, self.host, self.tls_port, vhost)

    # Looking and changing.

    @property
    def server(self) -> Server:
        """The parts inside; they change from version to version."""
        if self._server is None:
            raise StartError("the broker is not running")
        return self._server

    @property
    def core(self) -> Core:
        """The vhosts, exchanges and queues inside; they change from version to version."""
        core = self.server.broker
        assert core is not None
        return core

    @property
    def connections(self) -> list[Client]:
        """The clients that are logged in."""
        running = [one for one in self._all_connections() if one.state == RUNNING]
        return [
            Client(f"{one.name} {one.portrait()['user_provided_name']}".rstrip(), one.user, one.vhost.name)
            for one in running
        ]

    def cut_connections(self) -> int:
        """Cut every client off without a word, as a failing network does; how many there were."""
        connections = self._all_connections()
        for connection in connections:
            connection.abort()
        return len(connections)

    def _all_connections(self) -> list[Connection]:
        listener = self.server.listener
        return list(listener.connections) if listener is not None else []

    def queue_depth(self, name: str, vhost: str = "/") -> int:
        """How many messages are ready to be delivered; LookupError if there is no such queue."""
        return self._queue(name, vhost).count()

    def purge(self, name: str | None = None, vhost: str = "/") -> int:
        """Drop the ready messages of this queue, or of all queues of the vhost; how many there were."""
        queues = [self._queue(name, vhost)] if name is not None else list(self.core.vhosts[vhost].queues.values())
        return sum(queue.purge() for queue in queues)

    def _queue(self, name: str, vhost: str) -> Queue:
        found = self.core.vhosts.get(vhost)
        if found is None:
            raise LookupError(f"no vhost '{vhost}'")
        queue = found.queues.get(name)
        if queue is None:
            raise LookupError(f"no queue '{name}' in vhost '{vhost}'")
        return queue

    def add_vhost(self, name: str) -> None:
        """A vhost in which the default user may do everything."""
        self.core.add_vhost(name)
        self.core.users.set_permission("guest", name, ".*", ".*", ".*")

    async def add_user(self, name: str, password: str, vhost: str = "/") -> None:
        """A user who may do everything in this vhost."""
        if vhost not in self.core.vhosts:
            raise LookupError(f"no vhost '{vhost}'")
        secret = await asyncio.to_thread(new_secret, password)  # slow on purpose
        self.core.users.put_user(name, secret)
        self.core.users.set_permission(name, vhost, ".*", ".*", ".*")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.host}:{self.port} {'running' if self._listening else 'stopped'}>"


class BrokerThread:
    """The same in a thread of its own, for code that blocks: `with BrokerThread() as broker`. Its methods may be called
    from any thread."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tls_port: int | None = None,
        data: Path | None = None,
        log: TextIO | None = None,
    ) -> None:
        self.broker = Broker(settings, host=host, port=port, tls_port=tls_port, data=data, log=log)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> BrokerThread:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Listen; after `stop` on the same port, with all that is durable. StartError says why it cannot."""
        if self._loop is None:
            self._loop = new_event_loop()
            self._thread = threading.Thread(target=_run, args=(self._loop,), name="penstock", daemon=True)
            self._thread.start()
        try:
            self._wait_for(self.broker.start())
        except BaseException:
            if not self.broker.is_alive:  # it never was; a restart may be tried again
                self.close()
            raise

    def stop(self) -> None:
        """As a broker that is shut down: clients are told and cut off; `start` brings it back."""
        if self._loop is not None:
            self._wait_for(self.broker.stop(FAREWELL_S))

    def close(self) -> None:
        """For good: the thread ends."""
        if self._loop is None or self._thread is None:
            return
        self._wait_for(self._cut_and_close())
        loop, self._loop = self._loop, None
        loop.call_soon_threadsafe(loop.stop)
        self._thread.join()
        loop.close()

    async def _cut_and_close(self) -> None:
        # Whoever ends the broker is done with it: no client's farewell is waited for.
        if self.broker.is_alive:
            self.broker.cut_connections()
        await self.broker.close()
        await asyncio.get_running_loop().shutdown_default_executor()

    def call(self, function: Callable[[], Result], timeout_s: float = CALL_TIMEOUT_S) -> Result:
        """Run this on the broker's thread, between its turns; its result."""
        return self._wait_for(_called(function), timeout_s)

    def _wait_for(self, work: Coroutine[None, None, Result], timeout_s: float | None = None) -> Result:
        if self._loop is None:
            work.close()
            raise StartError("the broker is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout_s)

    # What Broker has, from any thread.

    @property
    def host(self) -> str:
        return self.broker.host

    @property
    def port(self) -> int:
        return self.broker.port

    @property
    def tls_port(self) -> int | None:
        return self.broker.tls_port

    @property
    def uri(self) -> str:
        return self.broker.uri

    def url_for(self, user: str = "guest", password: str = "guest", vhost: str = "/") -> str:
        return self.broker.url_for(user, password, vhost)

    def tls_url_for(self, user: str = "guest", password: str = "guest", vhost: str = "/") -> str:
        return self.broker.tls_url_for(user, password, vhost)

    @property
    def connections(self) -> list[Client]:
        return self.call(lambda: self.broker.connections)

    def cut_connections(self) -> int:
        return self.call(self.broker.cut_connections)

    def queue_depth(self, name: str, vhost: str = "/") -> int:
        return self.call(lambda: self.broker.queue_depth(name, vhost))

    def wait_for_depth(self, name: str, depth: int, vhost: str = "/", timeout_s: float = DEPTH_TIMEOUT_S) -> None:
        """Until the queue is there with so many ready messages; TimeoutError says how many there were instead."""
        deadline = time.monotonic() + timeout_s
        while (found := self.call(lambda: self._depth_if_there(name, vhost))) != depth:
            if time.monotonic() > deadline:
                seen = "no such queue" if found is None else f"{found} messages"
                raise TimeoutError(f"queue '{name}': {seen} after {timeout_s} s, {depth} were expected")
            time.sleep(DEPTH_POLL_S)

    def _depth_if_there(self, name: str, vhost: str) -> int | None:
        try:
            return self.broker.queue_depth(name, vhost)
        except LookupError:
            return None

    def purge(self, name: str | None = None, vhost: str = "/") -> int:
        return self.call(lambda: self.broker.purge(name, vhost))

    def add_vhost(self, name: str) -> None:
        self.call(lambda: self.broker.add_vhost(name))

    def add_user(self, name: str, password: str, vhost: str = "/") -> None:
        self._wait_for(self.broker.add_user(name, password, vhost))

    def __repr__(self) -> str:
        return f"<BrokerThread {self.broker!r}>"


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()


async def _called(function: Callable[[], Result]) -> Result:
    return function()


def _drop_transient(core: Core) -> None:
    """What a restart does not bring back. Messages in durable queues stay, transient ones too."""
    for vhost in core.vhosts.values():
        for queue in list(vhost.queues.values()):
            if not queue.durable:
                queue.delete()
        for exchange in list(vhost.exchanges.values()):
            if not exchange.durable:
                vhost.delete_exchange(exchange.name, False)


def _text(value: object) -> str:
    """Settings are written as text; a pair of numbers may be given as one."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value)


def _url(scheme: str, user: str, password: str, host: str, port: int, vhost: str) -> str:
    place = f"[{host}]" if ":" in host else host
    return f"{scheme}://{quote(user, safe='')}:{quote(password, safe='')}@{place}:{port}/{quote(vhost, safe='')}"

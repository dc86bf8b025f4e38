"""Server: puts the parts together, in the order they are started and stopped. The only place that knows them all."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.amqp.bounds import Bounds
from penstock.broker.admin import Admin
from penstock.broker.alarms import Watch
from penstock.broker.broker import Broker
from penstock.broker.definitions import import_definitions, restore
from penstock.broker.eventstream import EventStream
from penstock.broker.ledger import NO_LEDGER
from penstock.broker.plan import DefinitionsError
from penstock.broker.vault import Record, Vault
from penstock.config import Config
from penstock.credit import Hop, Spec
from penstock.messages import DIRECTORY, follow, open_events, open_messages
from penstock.net.clock import LoopClock
from penstock.net.expiry import ends
from penstock.net.limits import Limits
from penstock.net.listener import Listener
from penstock.net.log import Log
from penstock.net.portrait import is_loopback
from penstock.net.tls import Certificates, TlsError, TlsSettings
from penstock.runtime import FakeClock, Scheduler
from penstock.runtime.clock import Clock
from penstock.store.definitions import DefinitionError, DefinitionStore
from penstock.store.document import read_document
from penstock.store.files import Files
from penstock.store.lock import DirectoryInUse, DirectoryLock
from penstock.store.recovery import StoreError
from penstock.tuning import Tuning, thresholds
from penstock.vitals import Vitals

if TYPE_CHECKING:
    from penstock.management.listen import ManagementListener

# Messages are many small containers that form no cycles: looking through them often costs time and finds nothing.
GC_THRESHOLDS: Final = (50_000, 20, 100)


LAST_TURNS_MAX: Final = 10_000  # of the scheduler, before the store is closed: far more than credit lets pile up


class StartError(Exception):
    """Why the broker cannot start, in one line."""


class Server:
    """A broker on a port, in the running event loop."""

    def __init__(self, config: Config, data: Path | None = None, files: Files | None = None) -> None:
        """Without a data directory nothing is kept. `files` is the disk that messages go to, for tests of a bad one."""
        self.config = config
        self.data = data
        self._files = files or Files()
        self.vault: Vault | None = None
        self.event_stream: EventStream | None = None
        self.store: DefinitionStore | None = None
        self._lock: DirectoryLock | None = None
        self.log = Log(config.word("log.level"), config.word("log.format") == "json")
        self.broker: Broker | None = None
        self.tuning: Tuning | None = None
        self._watch: Watch | None = None
        self.listener: Listener | None = None
        self.certificates: Certificates | None = None
        self.host = ""
        self.port = 0
        self.tls_host = ""
        self.tls_port = 0  # 0: no TLS
        self.management: ManagementListener | None = None
        self.management_host = ""
        self.management_port = 0  # 0: no management

    async def start(self, host: str, port: int, tls: tuple[str, int] | None = None) -> None:
        """Listen on host and port; with `tls`, also there, for TLS."""
        loop = asyncio.get_running_loop()
        config = self.config
        scheduler = Scheduler(LoopClock(loop), lambda: _soon(loop, scheduler), self.log.crash)
        self.broker = Broker(
            scheduler,
            Hop("reader_channel", config.spec("credit.reader_channel"), config.spec("credit.reader_channel_bytes")),
            Hop("channel_queue", config.spec("credit.channel_queue"), config.spec("credit.channel_queue_bytes")),
            config.integer("faults.channel_delay_us"),
            config.integer("faults.queue_delay_us"),
            config.integer("limits.ack_timeout_s") * 1000,
        )
        self.broker.users.loopback_only = frozenset(
            name.strip() for name in config.word("users.loopback_only").split(",")
        )
        self.broker.alarms.told = self._alarm_told
        self.broker.alarms.thresholds = thresholds(config)
        self.tuning = Tuning(config, self.broker)
        try:
            self._restore(self.broker, loop)
        except StartError:
            await self.stop()
            raise
        if self.vault is not None:
            follow(self.tuning, config, self.vault)
            self.event_stream = open_events(config, self.broker, self.vault, self.tuning)
        limits = Limits(
            frame_max=config.integer("limits.frame_max_bytes"),
            channel_max=config.integer("limits.channel_max"),
            heartbeat_s=config.integer("limits.heartbeat_s"),
            message_bytes_max=config.integer("limits.message_bytes"),
            parked_bytes_max=config.integer("limits.parked_bytes"),
            handshake_timeout_s=config.number("limits.handshake_timeout_s"),
            connections_max=config.integer("limits.connections"),
            bounds=Bounds(
                table_depth=config.integer("limits.table_depth"),
                table_bytes=config.integer("limits.table_bytes"),
                table_entries=config.integer("limits.table_entries"),
                name_bytes=config.integer("limits.name_bytes"),
                unfinished_bytes=config.integer("limits.unfinished_bytes"),
            ),
        )
        self._watch = Watch(scheduler.clock, self.broker.alarms, Vitals(self.data))
        if self.vault is not None:
            self._watch.observed = self.vault.memory.observed
        if self.event_stream is not None:
            self.event_stream.watch = self._watch
        self._watch.start()
        self.broker.activity.start()
        self.listener = Listener(self.broker, limits, self.log)
        try:
            if tls is not None:  # before any port is open: a wrong certificate is the operator's first news
                self.certificates = self._certificates(scheduler.clock)
            await self.listen(host, port, tls)
        except StartError:
            await self.stop()
            raise

    async def listen(self, host: str, port: int, tls: tuple[str, int] | None) -> None:
        """Open the ports, at the start or again after the listener was stopped."""
        assert self.listener is not None
        with _cannot_listen(host, port):
            self.host, self.port = await self.listener.start(host, port)
        if tls is not None and self.certificates is not None:
            with _cannot_listen(*tls):
                self.tls_host, self.tls_port = await self.listener.start_tls(*tls, self.certificates)

    async def manage(self, host: str, port: int) -> None:
        """Open the HTTP API."""
        from penstock.management.api import application  # here, or a broker without it would start a third slower
        from penstock.management.listen import ManagementListener

        assert self.broker is not None
        assert self.listener is not None
        api = application(
            self.admin(),
            self._authenticate,
            self.config.number("management.session_idle_s"),
            self.config.number("management.session_max_s"),
            self.config.text("management.tables"),
        )
        api.api.certificates = self._certificate_ends
        api.api.attempts = self.listener.logins.attempts
        self.management = ManagementListener(api, self._management_told)
        with _cannot_listen(host, port):
            self.management_host, self.management_port = await self.management.start(host, port)

    def admin(self) -> Admin:
        """The verbs of operators on this broker."""
        assert self.broker is not None
        return Admin(self.broker, self.tuning, Vitals(self.data), self._listeners)

    def _listeners(self) -> list[tuple[str, str, int]]:
        """The open ports: protocol, address, port."""
        ports = [("amqp", self.host, self.port), ("amqp/ssl", self.tls_host, self.tls_port)]
        ports.append(("http", self.management_host, self.management_port))
        return [listener for listener in ports if listener[2]]

    def _certificate_ends(self) -> list[tuple[str, float]]:
        """File and end of every certificate that we show."""
        settings = self.certificates.settings if self.certificates is not None else None
        files = [settings.certificate, settings.ca] if settings is not None else []
        return [(file, end_s) for file in files if file for end_s in ends(Path(file))]

    def _alarm_told(self, source: str, reason: str) -> None:
        if reason:
            self.log.warning("alarm", source=source, reason=reason, effect="publishers are blocked")
        else:
            left = self.broker.alarms.reasons() if self.broker is not None else {}
            effect = f"publishers stay blocked: {', '.join(left)}" if left else "publishers go on"
            self.log.info("alarm over", source=source, effect=effect)

    def _management_told(self, text: str) -> None:
        self.log.warning("management", text=text)

    async def _authenticate(self, user: str, password: str, host: str) -> tuple[str, ...] | None:
        assert self.broker is not None
        assert self.listener is not None
        if not await self.listener.logins.admits(user, password, host, is_loopback(host)):
            return None
        return self.broker.users.tags(user)

    def _restore(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        """What the data directory holds, then what the definitions file says."""
        file = self.config.word("definitions.file")
        warnings: list[str] = []
        try:
            if self.data is not None:
                self._lock = DirectoryLock(self.data)
                self.store = DefinitionStore(self.data, loop.call_soon_threadsafe, self._store_told)
                records: list[Record] = list(self.store.load())
                self.vault = open_messages(
                    self.data / DIRECTORY,
                    self._files,
                    self.config,
                    broker,
                    self.store,
                    records,
                    loop.call_soon_threadsafe,
                    self.log,
                )
                warnings += restore(broker, records, self.store, with_defaults=not file).warnings
                self.vault.begin()
            elif file:
                restore(broker, [], NO_LEDGER, with_defaults=False)
            if file:
                summary = import_definitions(broker, read_document(Path(file)))
                warnings += summary.warnings
                self.log.info("definitions imported", file=file, summary=summary.line())
        except (DirectoryInUse, DefinitionError, StoreError) as error:
            raise StartError(str(error)) from None
        except DefinitionsError as error:
            raise StartError(f"definitions: {error}") from None
        for warning in warnings:
            self.log.warning("definitions", warning=warning)

    def _store_told(self, text: str) -> None:
        if text:
            self.log.error("definitions cannot be written", reason=text)
        else:
            self.log.info("definitions are written again")

    def _certificates(self, clock: Clock) -> Certificates:
        word = self.config.word
        settings = TlsSettings(
            certificate=word("tls.certificate"),
            key=word("tls.key"),
            ca=word("tls.ca"),
            client_certificates=word("tls.client_certificates"),
            minimum=word("tls.minimum"),
            user_from=word("tls.user_from"),
        )
        try:
            return Certificates(settings, clock, self.log)
        except TlsError as error:
            raise StartError(str(error)) from None

    async def stop(self) -> None:
        if self.certificates is not None:
            self.certificates.stop()
        if self.management is not None:
            await self.management.stop()
        if self._watch is not None:
            self._watch.stop()
        if self.broker is not None:
            self.broker.ack_timeout.stop()
            self.broker.activity.stop()
        if self.listener is not None:
            await self.listener.stop()
        if self.vault is not None:  # until now a client may publish something
            self._finish_work()
            if self.event_stream is not None:
                self.event_stream.flush()
                self._finish_work()
                self.event_stream = None
            if not self.vault.store.close():
                self.log.error("messages are lost", reason=self.vault.store.trouble)
            self.vault = None
        if self.store is not None:  # last: until now a client may change something
            self.store.close()
            self.store = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _finish_work(self) -> None:
        """All clients are gone: what they sent last still has its turn, acks above all."""
        assert self.broker is not None
        scheduler = self.broker.scheduler
        for _ in range(LAST_TURNS_MAX):
            if not scheduler.runnable:
                return
            scheduler.turn()


@contextmanager
def _cannot_listen(host: str, port: int) -> Iterator[None]:
    """A port that is taken or an address that is not ours, in one line."""
    try:
        yield
    except OSError as error:
        known = error.errno in errno.errorcode  # asyncio wraps the reason in a sentence; look-ups have codes apart
        reason = os.strerror(error.errno) if known and error.errno is not None else error.strerror
        raise StartError(f"cannot listen on {host}:{port}: {reason}") from None


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


@contextmanager
def stopped_broker(data: Path) -> Iterator[Broker]:
    """The broker of a data directory that nobody serves, to look at and to change; changes are on disk afterwards."""
    failures: list[str] = []
    try:
        lock = _lock_stopped(data)
        try:
            store = DefinitionStore(data, deque[Callable[[], None]]().append, failures.append)
            try:
                # It serves nobody: its clock stands still, and no turn is ever asked for.
                hop = Hop("none", Spec(0, 0), Spec(0, 0))
                broker = Broker(Scheduler(FakeClock(), _never), hop, hop)
                restore(broker, store.load(), store)
                yield broker
            finally:
                store.close()
        finally:
            lock.release()
    except (DefinitionError, DefinitionsError) as error:
        raise StartError(str(error)) from None
    if failures:
        raise StartError(failures[-1])


def _lock_stopped(data: Path) -> DirectoryLock:
    try:
        return DirectoryLock(data)
    except DirectoryInUse as error:
        raise StartError(f"{error}; ask the running broker instead, or stop it first") from None


def _never() -> None:
    return


async def serve(
    config: Config,
    host: str,
    port: int,
    ready: Callable[[Server], None],
    tls: tuple[str, int] | None = None,
    data: Path | None = None,
    management: tuple[str, int] | None = None,
    files: Files | None = None,
) -> None:
    """Run until SIGTERM or SIGINT."""
    server = Server(config, data, files)
    await server.start(host, port, tls)
    if management is not None:
        try:
            await server.manage(*management)
        except StartError:
            await server.stop()
            raise
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if server.certificates is not None:  # without TLS there is nothing to reload, and a hang-up ends the process
        loop.add_signal_handler(signal.SIGHUP, server.certificates.reload)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    loop_kind = type(loop).__module__.partition(".")[0]
    ports = {"amqp": f"{server.host}:{server.port}"}
    if server.tls_port:
        ports["amqps"] = f"{server.tls_host}:{server.tls_port}"
    if server.management_port:
        ports["management"] = f"{server.management_host}:{server.management_port}"
    server.log.info("listening", **ports, loop=loop_kind, version=__version__)
    ready(server)
    await stopping.wait()
    server.log.info("stopping")
    await server.stop()
    server.log.info("stopped")


def run_loop(main: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(main)


def new_event_loop() -> asyncio.AbstractEventLoop:
    """uvloop's if it is there, else asyncio's own."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()

"""Messages: the message store of a server and its event stream, put together with what the data directory has.

Place: server.py uses it between the definitions and the first port.
Not here: its parts (store/, broker/vault.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from penstock.broker.alarms import STORE
from penstock.broker.broker import Broker
from penstock.broker.events import Events
from penstock.broker.eventstream import EventStream
from penstock.broker.ledger import Ledger
from penstock.broker.memory import Memory
from penstock.broker.vault import Record, Vault
from penstock.config import Config
from penstock.credit import Hop
from penstock.net.log import Log
from penstock.store.files import Files
from penstock.store.recovery import Recovered, recover
from penstock.store.store import MessageStore
from penstock.tuning import Tuning

DIRECTORY = "messages"


def open_messages(
    directory: Path,
    files: Files,
    config: Config,
    broker: Broker,
    ledger: Ledger,
    records: list[Record],
    post: Callable[[Callable[[], None]], object],
    log: Log,
) -> Vault:
    """Recover what is there and have the broker keep its messages there; StoreError says why not."""
    files.make_directory(directory)
    began = time.monotonic()
    recovered = recover(directory, files, lambda text: log.info("recovery", progress=text))
    took_s = time.monotonic() - began
    _report_recovery(log, recovered, took_s)

    def told_trouble(text: str) -> None:
        if text:
            log.error("messages cannot be written", reason=text)
            broker.alarms.raise_alarm(STORE, f"message store: {text}")
        else:
            log.info("messages are written again")
            broker.alarms.clear(STORE)

    def report(text: str) -> None:
        log.error("store", text=text)

    hop = Hop("queue_store", config.spec("credit.queue_store"), config.spec("credit.queue_store_bytes"))
    store = MessageStore(
        directory, broker.scheduler, hop, post, told_trouble, report, files, recovered, broker.activity
    )
    store.journal_bytes = config.integer("store.journal_bytes")
    store.embed_below = config.integer("store.embed_below_bytes")
    store.journal.sync_delay_s = config.integer("faults.store_sync_delay_ms") / 1000
    store.begin()
    memory = Memory(store, store.pager, broker.scheduler.clock, report, config.integer("store.cache_bytes"))
    memory.paging_ratio = config.number("store.paging_ratio")
    vault = Vault(store, memory, ledger, records, recovered)
    vault.recovery = {
        "clean": recovered.clean or not recovered.scanned_bytes,  # a new directory is as good
        "queues": len(recovered.logs),
        "messages": recovered.messages,
        "scanned_bytes": recovered.scanned_bytes,
        "damages": len(recovered.damages),
        "cut": recovered.cut is not None,
        "duration_us": int(took_s * 1e6),
    }
    broker.keep_messages(vault)
    return vault


def open_events(config: Config, broker: Broker, vault: Vault, tuning: Tuning) -> EventStream:
    """The stream penstock.events, unless the settings say that there is none."""
    events = Events(config.integer("events.per_second"))
    stream = EventStream(broker, vault, events)

    def change_rate() -> None:
        events.per_second = config.integer("events.per_second")

    tuning.follow("events.per_second", change_rate)
    if config.word("events.enabled") == "true":
        stream.open(config.integer("events.max_bytes"), config.integer("events.max_age_s"))
        stream.recovered(broker.scheduler.clock.now_ns(), vault.recovery)
    return stream


def follow(tuning: Tuning, config: Config, vault: Vault) -> None:
    """Settings of the store that may change while it runs."""
    store, memory = vault.store, vault.memory

    def change_delay() -> None:
        store.journal.sync_delay_s = config.integer("faults.store_sync_delay_ms") / 1000

    def change_cache() -> None:
        memory.cache_bytes = config.integer("store.cache_bytes")

    tuning.follow("credit.queue_store", lambda: store.hop.change(config.spec("credit.queue_store")))
    tuning.follow("credit.queue_store_bytes", lambda: store.hop.change(bytes_=config.spec("credit.queue_store_bytes")))
    tuning.follow("faults.store_sync_delay_ms", change_delay)
    tuning.follow("store.cache_bytes", change_cache)


def _report_recovery(log: Log, recovered: Recovered, took_s: float) -> None:
    if recovered.cut is not None:
        log.warning("recovery", cut=str(recovered.cut))
    for damage in recovered.damages:
        log.error("recovery", damaged=str(damage))
    if recovered.logs:
        log.info(
            "recovered",
            messages=recovered.messages,
            queues=len(recovered.logs),
            stopped="in order" if recovered.clean else "without warning",
            seconds=f"{took_s:.2f}",
        )

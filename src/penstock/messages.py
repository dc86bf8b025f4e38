"""Messages: the message store of a server, put together: opened with what the data directory has, and closed.

Place: server.py uses it between the definitions and the first port.
Not here: its parts (store/, broker/vault.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from penstock.broker.alarms import STORE
from penstock.broker.broker import Broker
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
    _report_recovery(log, recovered, time.monotonic() - began)

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
        directory, broker.scheduler, hop, post, told_trouble, report, files, recovered, broker.block_log
    )
    store.journal_bytes = config.integer("store.journal_bytes")
    store.embed_below = config.integer("store.embed_below_bytes")
    store.journal.sync_delay_s = config.integer("faults.store_sync_delay_ms") / 1000
    store.begin()
    memory = Memory(store, store.pager, broker.scheduler.clock, report, config.integer("store.cache_bytes"))
    memory.paging_ratio = config.number("store.paging_ratio")
    vault = Vault(store, memory, ledger, records, recovered)
    broker.keep_messages(vault)
    return vault


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

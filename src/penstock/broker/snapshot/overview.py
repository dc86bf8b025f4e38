"""Overview: the broker as a whole and its node, in RabbitMQ's JSON.

Place: admin hands these to management. Cheap: nothing here walks over all queues (totals.py does, in slices).
Not here: rates (management/rates.py), alarms and what they are about (alarms.py).
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterable
from typing import Final

from penstock import __version__
from penstock.broker.alarms import DISK, MEMORY, Vitals
from penstock.broker.broker import Broker
from penstock.broker.exchange import TYPES
from penstock.broker.ledger import Json
from penstock.broker.snapshot.common import NS_PER_S, message_stats, node_name
from penstock.broker.snapshot.totals import Sum
from penstock.store.journal import SYNC_BOUNDS_S

COMPATIBLE_VERSION: Final = "3.10.8"  # whose JSON this is; tools read it to know what to expect
FILES: Final = "/proc/self/fd"
FILES_NS: Final = 5_000_000_000  # how long their count is good enough
MECHANISMS: Final = ("PLAIN", "AMQPLAIN", "EXTERNAL")

Listener = tuple[str, str, int]  # protocol, address, port


def overview(broker: Broker, totals: Sum, listeners: Iterable[Listener]) -> dict[str, Json]:
    node = node_name()
    return {
        "management_version": COMPATIBLE_VERSION,
        "rabbitmq_version": COMPATIBLE_VERSION,
        "product_name": "Penstock",
        "product_version": __version__,
        "erlang_version": "",
        "erlang_full_version": f"Python {sys.version.split()[0]}",
        "rates_mode": "basic",
        "disable_stats": False,
        "enable_queue_totals": False,
        "cluster_name": cluster_name(broker),
        "node": node,
        "exchange_types": exchange_types(),
        "object_totals": object_totals(broker, totals),
        "queue_totals": queue_totals(totals),
        "message_stats": message_stats(totals.counts) | disk_stats(broker),
        "churn_rates": churn(broker),
        "listeners": [
            {"node": node, "protocol": protocol, "ip_address": address, "port": port, "socket_opts": {}}
            for protocol, address, port in listeners
        ],
        "contexts": [
            {"description": "Penstock management", "ip": address, "node": node, "path": "/", "port": str(port)}
            for protocol, address, port in listeners
            if protocol.startswith("http")
        ],
        "sample_retention_policies": {"global": [60, 600, 3600, 86400], "basic": [60], "detailed": [60]},
        "statistics_db_event_queue": 0,
    }


def exchange_types() -> list[Json]:
    return [{"name": kind, "description": f"exchange of type {kind}", "enabled": True} for kind in TYPES]


def cluster_name(broker: Broker) -> str:
    name = broker.global_parameters.get("cluster_name")
    return name if isinstance(name, str) else node_name()


def object_totals(broker: Broker, totals: Sum) -> dict[str, Json]:
    vhosts = broker.vhosts.values()
    return {
        "connections": len(broker.peers),
        "channels": len(broker.ack_timeout.channels),
        "exchanges": sum(len(vhost.exchanges) for vhost in vhosts),
        "queues": sum(len(vhost.queues) for vhost in vhosts),
        "consumers": totals.consumers,
    }


def queue_totals(totals: Sum) -> dict[str, Json]:
    return {
        "messages": totals.ready + totals.unacknowledged,
        "messages_ready": totals.ready,
        "messages_unacknowledged": totals.unacknowledged,
    }


def disk_stats(broker: Broker) -> dict[str, Json]:
    vault = broker.vault
    return {
        "disk_reads": vault.memory.read_count if vault is not None else 0,
        "disk_writes": vault.store.received if vault is not None else 0,
    }


def churn(broker: Broker) -> dict[str, Json]:
    """What came and went since the start."""
    past, peers = broker.past, broker.peers
    return {
        "connection_created": peers.gone + len(peers),
        "connection_closed": peers.gone,
        "channel_created": past.channels + len(broker.ack_timeout.channels),
        "channel_closed": past.channels,
        "queue_declared": past.queues_declared,
        "queue_created": past.queues_created,
        "queue_deleted": past.queues_deleted,
    }


class OpenFiles:
    """How many files are open. The kernel's list of them is long with many connections, so it is read seldom."""

    __slots__ = ("_count", "_read_ns")

    def __init__(self) -> None:
        self._count = 0
        self._read_ns = -FILES_NS

    def count(self, now_ns: int) -> int:
        """0 if it cannot be told."""
        if now_ns - self._read_ns >= FILES_NS:
            self._read_ns = now_ns
            try:
                self._count = len(os.listdir(FILES))
            except OSError:
                self._count = 0
        return self._count


def node(broker: Broker, vitals: Vitals | None, files: OpenFiles) -> dict[str, Json]:
    now_ns = broker.scheduler.clock.now_ns()
    alarms, thresholds = broker.alarms.reasons(), broker.alarms.thresholds
    memory = vitals.memory_bytes() if vitals is not None else 0
    files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return {
        "name": node_name(),
        "type": "disc" if broker.vault is not None else "ram",
        "running": True,
        "os_pid": str(os.getpid()),
        "uptime": (now_ns - broker.started_ns) // 1_000_000,
        "processors": os.cpu_count() or 1,
        "run_queue": len(broker.scheduler.runnable),
        "proc_used": _stages(broker),
        "proc_total": 1_048_576,
        "fd_used": files.count(now_ns),
        "fd_total": files_max,
        "sockets_used": len(broker.peers),
        "sockets_total": files_max,
        "mem_used": vitals.memory_used_bytes() if vitals is not None else 0,
        "mem_limit": thresholds.memory_high(memory),
        "mem_alarm": MEMORY in alarms,
        "mem_calculation_strategy": "rss",
        "disk_free": vitals.disk_free_bytes() if vitals is not None else None,
        "disk_free_limit": thresholds.disk_low(memory),
        "disk_free_alarm": DISK in alarms,
        "rates_mode": "basic",
        "net_ticktime": 60,
        "partitions": [],
        "cluster_links": [],
        "enabled_plugins": ["rabbitmq_management"],
        "applications": [{"name": "penstock", "description": "Penstock", "version": __version__}],
        "exchange_types": exchange_types(),
        "auth_mechanisms": [{"name": name, "description": "", "enabled": True} for name in MECHANISMS],
        "contexts": [],
        "store": _store(broker),
        **_io(broker),
        **churn(broker),
    }


def _stages(broker: Broker) -> int:
    """What in RabbitMQ would be a process: connections, channels, queues, and the store."""
    queues = sum(len(vhost.queues) for vhost in broker.vhosts.values())
    return 1 + len(broker.peers) + len(broker.ack_timeout.channels) + queues


def _io(broker: Broker) -> dict[str, Json]:
    """RabbitMQ's names for what the store does; its reads, seeks and times of single writes are nowhere counted."""
    if broker.vault is None:
        return {}
    store, journal = broker.vault.store, broker.vault.store.journal
    return {
        "io_sync_count": journal.syncs,
        "io_sync_avg_time": round(journal.sync_ns / 1e6 / max(1, journal.syncs), 6),
        "io_write_bytes": store.written_bytes,
        "msg_store_write_count": store.received,
        "msg_store_read_count": broker.vault.memory.read_count,
    }


def _store(broker: Broker) -> dict[str, Json] | None:
    """None: nothing is kept."""
    if broker.vault is None:
        return None
    store = broker.vault.store
    journal = store.journal
    return {
        "syncs": journal.syncs,
        "sync_seconds": round(journal.sync_ns / NS_PER_S, 6),
        "sync_last_s": journal.sync_last_ns / NS_PER_S,
        "sync_max_s": journal.sync_max_ns / NS_PER_S,
        "sync_counts": list(journal.sync_counts),
        "sync_bounds_s": list(SYNC_BOUNDS_S),
        "written_bytes": store.written_bytes,
        "pending_messages": store.pending_messages,
        "pending_bytes": store.pending_bytes,
        "trouble": store.trouble,
    }

"""A story for the report's tests and pictures: an hour of a broker, as rows of the pipeline's tables.

    minute 6 to 21    the disk is slow: orders-api and billing are held back by the store
    minute 27 to 35   a queue is slow: camera-3 is held back by queue thumbnails
    minute 42 to 60   the consumers of queue orders are slow: it saturates, orders-api waits for its confirms
    minute 50 to 52   the memory alarm is on: everybody waits
    all the time      queue mail.out grows, and will be full some time after the hour

Windows are 10 s; the story ends at `END` unless told otherwise.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.spark.ledger import Ledger, append
from penstock.spark.tables.schema import TABLES

END = datetime(2026, 3, 4, 15, 0, tzinfo=UTC)
WINDOW_S = 10
MINUTES = 60
KINDS = {
    "string": pa.string(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "array<string>": pa.list_(pa.string()),
    "map<string,bigint>": pa.map_(pa.string(), pa.int64()),
}
CONNECTIONS = {
    "orders-api": "connection 10.0.0.5:50112 -> 10.0.0.1:5672",
    "billing": "connection 10.0.0.6:41222 -> 10.0.0.1:5672",
    "camera-3": "connection 10.0.0.9:33010 -> 10.0.0.1:5672",
}
QUEUES = {"orders-api": "queue orders", "billing": "queue invoices", "camera-3": "queue thumbnails"}
# From minute, to minute, cause, who, share of a window.
ACTS = (
    (6, 21, "store", ("orders-api", "billing"), 0.82),
    (27, 35, "queue", ("camera-3",), 0.55),
    (42, 60, "saturated", ("orders-api",), 0.9),
    (50, 52, "memory", ("orders-api", "billing", "camera-3"), 1.0),
)
# What the advisor might say of it.
ADVICE: dict[str, Any] = {
    "made_ms": 1_772_632_920_000,  # 2026-03-04 14:02 UTC
    "goal": "throughput",
    "for": "orders",
    "scenario": "1 publisher, persistent messages of 100 bytes, confirms in a window of 1000, as fast as they may; "
    "1 queue, 0 consumers",
    "sentence": "`credit.queue_store=8000,2000` gives 31 % more messages per second, for 12 MiB more memory.",
    "current": {
        "settings": {"credit.queue_store": "2000,500"},
        "throughput": 41_000.0,
        "p99_ms": 180.0,
        "memory_bytes": 61_000_000,
    },
    "options": [
        {
            "settings": {"credit.queue_store": "8000,2000", "credit.channel_queue": "800,400"},
            "throughput": 53_800.0,
            "p99_ms": 141.5,
            "memory_bytes": 73_000_000,
            "change": "+31 %",
            "why": "more messages share a sync",
        }
    ],
    "cures": ["No credit makes the consumers of queue `orders` faster."],
    "measured": {
        "before": {
            "throughput": 40_210.0,
            "confirm_ms": 96.0,
            "stay_ms": 0.0,
            "held": 3_860.0,
            "blocked": 0.82,
            "memory_bytes": 212_000_000,
        },
        "after": {
            "throughput": 51_940.0,
            "confirm_ms": 71.0,
            "stay_ms": 0.0,
            "held": 3_870.0,
            "blocked": 0.41,
            "memory_bytes": 220_000_000,
        },
        "again": None,
    },
    "applied": {
        "settings": {"credit.queue_store": "8000,2000", "credit.channel_queue": "800,400"},
        "old": {"credit.queue_store": "2000,500", "credit.channel_queue": "400,200"},
        "rolled_back": False,
        "worse": "",
        "at_ms": 0,
        "sentence": "Measured: 40,210 messages a second before, 51,940 after (+29 %); confirms after 96 ms before, "
        "71 ms after (means).",
    },
}
# Subject, unit, value at the end, limit, trend per second, seconds from the end to the limit.
FORECASTS: tuple[tuple[str, str, float, float, float, float | None], ...] = (
    ("queue mail.out", "messages", 7300.0, 10_000.0, 3.75, 720.0),
    ("queue mail.out", "bytes", 44_040_192.0, 67_108_864.0, 12_000.0, 1922.0),
    ("disk", "bytes", 212e9, 50e6, -1.2e6, None),
    ("memory", "bytes", 610e6, 1600e6, 11_000.0, 90_000.0),
)
RESOURCE = {"store": "disk", "queue": "CPU", "saturated": "consumers", "memory": "memory"}
# Seconds, and how the report and the page say them: the same.
LASTING = (
    (0, "0.0 s"),
    (0.0002, "1 ms"),
    (0.029, "29 ms"),
    (0.0304, "30 ms"),
    (0.0305, "31 ms"),
    (1.25, "1.3 s"),
    (9.0, "9.0 s"),
    (9.96, "10.0 s"),
    (12.5, "13 s"),
    (59.6, "1 min"),
    (200, "3 min 20 s"),
    (3600, "1 h"),
    (18_120, "5 h 2 min"),
    (273_600, "3 d 4 h"),
)

Rows = dict[str, list[dict[str, Any]]]


def channel(connection: str) -> str:
    return connection.replace("connection ", "channel ", 1) + " (1)"


def chain(who: str, cause: str) -> list[str]:
    connection, queue = CONNECTIONS[who], QUEUES[who]
    ends = {
        "store": [channel(connection), queue, "store"],
        "queue": [channel(connection), queue],
        "saturated": [channel(connection), f"consumers of {queue}"],
        "memory": ["alarm memory"],
    }
    return [connection, *ends[cause]]


def arrow(table: str, rows: list[dict[str, Any]]) -> pa.Table:
    """Rows with the columns they have; the others are null."""
    schema = pa.schema([(name, KINDS[kind]) for name, kind, _ in TABLES[table].columns])
    for row in rows:
        row.setdefault("day", row["window"].date())
    return pa.Table.from_pylist(rows, schema=schema)


def story(end: datetime = END) -> Rows:
    rows: Rows = {name: [] for name in TABLES}
    count = MINUTES * 60 // WINDOW_S
    for i in range(count):
        window = end - timedelta(seconds=(count - i) * WINDOW_S)
        minute = i * WINDOW_S / 60
        acts = [act for act in ACTS if act[0] <= minute < act[1]]
        _judge(rows, window, acts, i)
        _gauge(rows, window, minute, i)
        _foretell(rows, window, (count - i - 1) * WINDOW_S)
    last = end - timedelta(seconds=WINDOW_S)
    for who in ("orders-api",):
        began = end - timedelta(minutes=18)
        rows["open"].append({"window": last, "stage": QUEUES[who], "cause": "saturated", "began": began})
    return rows


def _foretell(rows: Rows, window: datetime, left_s: float) -> None:
    """Straight lines: at the end of the story they are where FORECASTS says, `left_s` before that behind."""
    end = window + timedelta(seconds=left_s + WINDOW_S)
    for subject, unit, last, limit, slope, in_s in FORECASTS:
        value = max(0.0, last - slope * left_s)
        known = {"window": window, "subject": subject, "unit": unit, "value": value, "limit": limit}
        hits = {"hits_at": None if in_s is None else end + timedelta(seconds=in_s)}
        ahead = {"in_s": None if in_s is None else in_s + left_s, "over_s": 300.0}
        rows["forecast"].append({**known, "slope_per_s": slope, "r2": 0.97, **hits, **ahead})


def _judge(rows: Rows, window: datetime, acts: list[tuple[Any, ...]], i: int) -> None:
    edges: dict[tuple[str, str], int] = {}
    held: dict[tuple[str, str], list[int]] = {}
    for _, _, cause, everybody, level in acts:
        for n, who in enumerate(everybody):
            share = min(1.0, max(0.05, level - 0.12 * n + 0.12 * math.sin(i / 5 + n)))
            links = chain(who, cause)
            for upstream, downstream in pairwise(links):
                edges[upstream, downstream] = max(edges.get((upstream, downstream), 0), int(share * WINDOW_S * 1e6))
            held.setdefault((links[-1], cause), []).append(int(share * WINDOW_S * 1e6))
            known = {"connection": links[0], "client": who, "user": "shop", "vhost": "/", "resource": RESOURCE[cause]}
            verdict = {**known, "cause": cause, "bottleneck": links[-1], "chain": links, "share": share}
            if not any(one["connection"] == links[0] and one["window"] == window for one in rows["verdicts"][-3:]):
                rows["verdicts"].append({"window": window, **verdict})
    for (upstream, downstream), blocked_us in edges.items():
        edge = {"upstream": upstream, "downstream": downstream, "blocked_us": blocked_us, "blocks": 40 + i % 7}
        rows["chains"].append({"window": window, **edge})
        began = window + timedelta(microseconds=WINDOW_S * 10**6 - blocked_us)
        block = {"stage": upstream, "cause": downstream, "root": downstream, "count": 1, "closed_by": "unblocked"}
        ended = {"began": began, "ended": window + timedelta(seconds=WINDOW_S)}
        lasting = {"duration_us": blocked_us, "longest_us": blocked_us}
        rows["blocks"].append({"window": window, **block, **ended, **lasting})
    ordered = sorted(held.items(), key=lambda one: -sum(one[1]))
    for rank, ((bottleneck, cause), times) in enumerate(ordered, 1):
        blocker = {"bottleneck": bottleneck, "cause": cause, "connections": len(times), "blocked_us": sum(times)}
        rows["blockers"].append({"window": window, **blocker, "rank": rank})


def _gauge(rows: Rows, window: datetime, minute: float, i: int) -> None:
    slow = 6 <= minute < 21
    left_s = MINUTES * 60 - (i + 1) * WINDOW_S  # until the end of the story
    p50 = (31_000 if slow else 620) * (1 + 0.15 * math.sin(i / 4))
    rows["syncs"].append(
        {"window": window, "count": 28 if slow else 410, "p50_us": p50, "p95_us": p50 * 1.9, "p99_us": p50 * 2.8}
        | {"mean_us": p50 * 1.1, "longest_us": int(p50 * 3.4), "pending_messages": 120, "pending_bytes": 40_000}
    )
    late = max(0.0, minute - 42)
    orders = 180 + 90 * math.sin(i / 9) + (min(9800, late * 1200) if late else 0) + (1500 if slow else 0)
    depths = {
        "queue orders": (orders, 8000, 0.0 if late < 7 else 0.9, 2),
        "queue mail.out": (max(900 + 60 * math.sin(i / 6), 7300 - 3.75 * left_s), 10_000, 0.0, 1),
        "queue invoices": (60 + 40 * math.sin(i / 7) + (400 if slow else 0), None, 0.0, 4),
        "queue thumbnails": (20 + 15 * math.sin(i / 3) + (700 if 27 <= minute < 35 else 0), None, 0.0, 2),
    }
    for stage, (length, limit, saturated, consumers) in depths.items():
        whole = max(0, int(length))
        row = {"window": window, "stage": stage, "vhost": "/", "messages_min": whole, "messages_max": whole}
        row |= {"messages_last": whole, "ready_last": whole, "received_rate": 180.0, "sent_rate": 176.0}
        row |= {"consumers": consumers, "saturated_share": saturated, "blocked_share": 0.6 if slow else 0.0}
        row |= {"limit_messages": limit, "limit_share": whole / limit if limit else None}
        row |= {"limit_bytes": 64 << 20 if stage == "queue mail.out" else None}
        rows["depth"].append(row)
    memory = 610e6 - 11_000 * left_s + (1200e6 if 50 <= minute < 52 else 0)
    used = {"memory_used_bytes": int(memory), "memory_limit_bytes": 1_600_000_000, "connections": 9, "channels": 14}
    disk = {
        "disk_free_bytes": int(212e9 + 1.2e6 * left_s),
        "disk_limit_bytes": 50_000_000,
        "queues": 4,
        "events_dropped": 0,
    }
    rows["resources"].append({"window": window, "at": window, **used, **disk})
    for table, rule in (
        ("events", "type is known"),
        ("blocks", "ended is not before began"),
        ("verdicts", "share is 0 to 1"),
    ):
        failures = 1 if table == "events" and i == 100 else 0
        example = '{"type": "sneeze"}' if failures else None
        check = {"batch": i, "table": table, "rule": rule, "rows": 60, "failures": failures, "example": example}
        rows["quality"].append({"window": window, **check})


def write(root: Path, rows: Rows) -> Ledger:
    """As the flow job leaves them."""
    with Ledger(root).writing() as ledger:
        changes = [append(table, arrow(table, own)) for table, own in rows.items() if own]
        ledger.commit(0, changes, query="story", window_s=float(WINDOW_S))
    return Ledger(root)

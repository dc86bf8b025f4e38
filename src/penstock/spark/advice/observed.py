"""Observed: what the tables say of a stretch of time: who published and consumed, how fast, held back by what.

Idle seconds have no samples, so rates are those of the time in which something went on: that is the load to advise on.
Upstream: the ledger's tables, read without a JVM.  Downstream: load.py, words.py, adviser.py.
Not here: what only the running broker knows (clients.py), the fit (penstock.flow.twin).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final, Protocol

import pyarrow as pa

from penstock.spark.complaint import Complaint

Row = Mapping[str, object]

ROWS_MAX: Final = 200_000  # of a table for one advice: hours of a busy broker; the newest count
SAMPLE_COLUMNS: Final = [
    "at",
    "stage",
    "kind",
    "client",
    "messages",
    "consumers",
    "busy_us",
    "turns",
    "write_us",
    "writes",
    "received",
    "sent",
    "interval_s",
    "received_rate",
    "sent_rate",
    "blocked_share",
]
QUEUES: Final = ("queue", "stream")
IDLE_S: Final = 2.0  # a sample comes every second; after so long, there was nothing to tell in between


class Tables(Protocol):
    """What is needed of a ledger."""

    def arrow(
        self,
        table: str,
        since: datetime | None = None,
        until: datetime | None = None,
        columns: list[str] | None = None,
    ) -> pa.Table: ...

    def newest(self) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class Seen:
    """One stage over the stretch."""

    stage: str
    kind: str
    client: str
    seconds: float  # that it was active
    received: float  # messages per second of these
    sent: float
    blocked: float  # part of these
    consumers: int = 0
    messages_min: int = 0
    messages_max: int = 0
    growth: float = 0.0  # messages per second, over the stretch

    @property
    def name(self) -> str:
        """As people call it."""
        return self.client or self.stage.partition(" ")[2] or self.stage


@dataclass(frozen=True, slots=True)
class Held:
    """A bottleneck, as the verdicts name it."""

    cause: str
    bottleneck: str
    resource: str
    share: float  # of the time that somebody published, how much the most held back connection waited
    connections: int
    through: str = ""  # the queue before it, if it is the store


@dataclass(frozen=True, slots=True)
class Observed:
    since: datetime
    until: datetime
    seconds: float  # in which somebody published
    publishing: float  # connections at one time
    throughput: float  # messages per second that connections published
    delivered: float  # messages per second that queues gave to consumers
    taken: float  # messages per second that queues took
    stored: float  # and that the store took
    connections: tuple[Seen, ...]
    queues: tuple[Seen, ...]
    held: tuple[Held, ...]  # the worst first
    content_bytes: float  # of a message with its frames; 0: not known
    cpu_us: float  # of the broker's thread, for each message that was published; 0: not known
    sync_mean_us: float
    memory_used: int
    memory_limit: int
    samples: tuple[Row, ...]  # for the fit
    syncs: tuple[Row, ...]
    resources: tuple[Row, ...]

    @property
    def memory_room(self) -> float:
        """Bytes of the process that a setting may use more: half of what is left below the alarm."""
        return max(0, self.memory_limit - self.memory_used) / 2 if self.memory_limit else float("inf")

    @property
    def blocked(self) -> float:
        """Part of the time that publishers were blocked, each as long as it was active."""
        seconds = sum(one.seconds for one in self.connections)
        return sum(one.blocked * one.seconds for one in self.connections) / seconds if seconds else 0.0


def observe(tables: Tables, over_s: float, subject: str = "", not_before: datetime | None = None) -> Observed:
    """The last `over_s` seconds that the tables know; `subject`: only a connection or queue of this name.

    A Complaint where there is nothing to go by.
    """
    newest = tables.newest()
    if newest is None:
        raise Complaint("the tables are empty: `penstock pipeline flow` fills them while the broker works")
    since = newest - timedelta(seconds=over_s)
    samples = _rows(tables, "samples", since, SAMPLE_COLUMNS)
    if not samples:
        raise Complaint(f"no samples in the last {over_s:g} s that the tables know: was there any load?")
    if not_before is not None and not_before > since:
        since = not_before
        samples = [row for row in samples if _when(row) >= since]
        if not samples:
            raise Complaint(f"no samples yet since the settings were changed at {since:%H:%M:%S} UTC: wait a little")
    seen = [one for one in _stages(samples) if one.seconds > 0]
    connections = [one for one in seen if one.kind == "connection" and one.received > 0]
    queues = [one for one in seen if one.kind in QUEUES]
    if subject:
        chains = _rows(tables, "chains", since, ["upstream", "downstream"])
        connections, queues = _only(subject, connections, queues, chains)
    if not connections:
        whose = f" by or to {subject!r}" if subject else ""
        raise Complaint(f"nothing was published{whose} in the last {over_s:g} s that the tables know")
    names = {one.stage for one in connections}
    seconds = _covered_s([row for row in samples if row["stage"] in names and row["interval_s"]])
    syncs = _rows(tables, "syncs", since)
    resources = _rows(tables, "resources", since)
    newest_resources = resources[-1] if resources else {}
    counts = sum(_number(row, "count") for row in syncs)
    return Observed(
        since=since,
        until=newest,
        seconds=seconds,
        publishing=sum(one.seconds for one in connections) / seconds,
        throughput=sum(one.received * one.seconds for one in connections) / seconds,
        delivered=sum(one.sent * one.seconds for one in queues if one.consumers) / seconds,
        taken=sum(one.received * one.seconds for one in queues) / seconds,
        stored=sum(one.received * one.seconds for one in seen if one.kind == "store") / seconds,
        connections=tuple(sorted(connections, key=lambda one: -one.received * one.seconds)),
        queues=tuple(sorted(queues, key=lambda one: -one.received * one.seconds)),
        held=_held(_rows(tables, "verdicts", since), names, len({row["window"] for row in samples})),
        content_bytes=_content_bytes(_rows(tables, "blocks", since, ["messages", "bytes"]), syncs),
        cpu_us=0.0 if subject else _cpu_us(resources, [row for row in samples if row["stage"] in names]),
        sync_mean_us=sum(_number(row, "mean_us") * _number(row, "count") for row in syncs) / counts if counts else 0.0,
        memory_used=int(_number(newest_resources, "memory_used_bytes")),
        memory_limit=int(_number(newest_resources, "memory_limit_bytes")),
        samples=tuple(samples),
        syncs=tuple(syncs),
        resources=tuple(resources),
    )


def _rows(tables: Tables, name: str, since: datetime, columns: Sequence[str] | None = None) -> list[Row]:
    """A table's rows, the oldest first; of a table that is not there, none; of too many, the newest."""
    wanted = ["window", *columns] if columns is not None else None
    table = tables.arrow(name, since, None, wanted)
    if table.num_rows > ROWS_MAX:  # before they are Python's: a day of blocks would be gigabytes
        table = table.sort_by("window").slice(table.num_rows - ROWS_MAX)
    rows: list[Row] = table.to_pylist()
    return sorted(rows, key=lambda row: str(row.get("at") or row["window"]))


def _stages(samples: Sequence[Row]) -> list[Seen]:
    by_stage: dict[str, list[Row]] = {}
    for row in samples:
        by_stage.setdefault(str(row["stage"]), []).append(row)
    until = max(map(_when, samples))
    return [_seen(stage, rows, until) for stage, rows in by_stage.items()]


def _seen(stage: str, rows: Sequence[Row], until: datetime) -> Seen:
    timed = [row for row in rows if row["interval_s"]]
    seconds = sum(_active_s(row) for row in timed)

    def over(column: str) -> float:
        return sum(_number(row, column) * _number(row, "interval_s") for row in timed) / seconds if seconds else 0.0

    depths = [int(_number(row, "messages")) for row in rows]
    # Of a queue in which nothing happens there are no samples: it stays as it is.
    span = (until - _when(rows[0])).total_seconds()
    return Seen(
        stage=stage,
        kind=str(rows[-1]["kind"]),
        client=next((str(row["client"]) for row in reversed(rows) if row["client"]), ""),
        seconds=seconds,
        received=over("received_rate"),
        sent=over("sent_rate"),
        blocked=min(1.0, over("blocked_share")),
        consumers=int(_number(rows[-1], "consumers")),
        messages_min=min(depths),
        messages_max=max(depths),
        growth=(depths[-1] - depths[0]) / span if span else 0.0,
    )


def _only(
    subject: str, connections: Sequence[Seen], queues: Sequence[Seen], chains: Iterable[Row]
) -> tuple[list[Seen], list[Seen]]:
    """Those of a connection (by address or client's name) or of a queue, and what waited for it or it for."""
    edges = {(str(row["upstream"]), str(row["downstream"])) for row in chains}
    mine = [one for one in connections if subject in (one.client, one.stage, one.stage.partition(" ")[2])]
    if mine:
        return mine, _linked({one.stage for one in mine}, edges, queues) or list(queues)
    of_queue = [one for one in queues if subject in (one.stage, one.stage.partition(" ")[2])]
    if not of_queue:
        known = ", ".join(one.name for one in [*connections[:3], *queues[:3]])
        raise Complaint(f"no connection and no queue {subject!r} in the tables; there are: {known}")
    backwards = {(downstream, upstream) for upstream, downstream in edges}
    return _linked({one.stage for one in of_queue}, backwards, connections) or list(connections), of_queue


def _linked(start: set[str], edges: set[tuple[str, str]], among: Iterable[Seen]) -> list[Seen]:
    """Those of `among` that edges lead to, over whatever is between."""
    reached = set(start)
    grown = True
    while grown:
        more = {downstream for upstream, downstream in edges if upstream in reached} - reached
        reached |= more
        grown = bool(more)
    return [one for one in among if one.stage in reached]


def _held(verdicts: Iterable[Row], connections: set[str], windows: int) -> tuple[Held, ...]:
    """Bottlenecks by how long they held the connection back that they held back longest."""
    waited: dict[tuple[str, str, str], dict[str, float]] = {}
    through: dict[tuple[str, str, str], str] = {}
    for row in verdicts:
        if row["connection"] not in connections:
            continue
        key = (str(row["cause"]), str(row["bottleneck"] or ""), str(row["resource"] or ""))
        one = waited.setdefault(key, {})
        connection = str(row["connection"])
        one[connection] = one.get(connection, 0.0) + _number(row, "share")
        chain = row["chain"]
        if isinstance(chain, list) and len(chain) > 1:
            through[key] = str(chain[-2])
    found = [
        Held(
            *key,
            share=min(1.0, max(shares.values()) / max(1, windows)),
            connections=len(shares),
            through=through.get(key, ""),
        )
        for key, shares in waited.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.share))


def _content_bytes(blocks: Iterable[Row], syncs: Iterable[Row]) -> float:
    """A message's size with its frames: of what was in flight at a block, else of what waited for a sync."""
    for rows, messages, bytes_ in ((blocks, "messages", "bytes"), (syncs, "pending_messages", "pending_bytes")):
        pairs = [(_number(row, messages), _number(row, bytes_)) for row in rows]
        count = sum(one for one, size in pairs if size > 0)
        if count:
            return sum(size for one, size in pairs if one > 0) / count
    return 0.0


def _cpu_us(resources: Sequence[Row], published: Iterable[Row]) -> float:
    """CPU time for each message, over the time that both tables cover."""
    timed = [row for row in resources if row.get("cpu_us") is not None and row.get("at") is not None]
    spent = 0.0
    for before, row in pairwise(timed):
        spent += max(0.0, _number(row, "cpu_us") - _number(before, "cpu_us"))  # below 0: it was restarted in between
    if not spent:
        return 0.0
    first, last = _when(timed[0]), _when(timed[-1])
    within = [row for row in published if first < _when(row) <= last]
    messages = sum(_number(row, "received_rate") * _number(row, "interval_s") for row in within)
    return spent / messages if messages else 0.0


def _number(row: Row, column: str) -> float:
    value = row.get(column)
    return float(value) if isinstance(value, (int, float)) else 0.0


def _when(row: Row) -> datetime:
    at = row["at"]
    assert isinstance(at, datetime)
    return at


def _active_s(row: Row) -> float:
    """How much of the time since the stage's last sample something went on: one that is idle is not sampled."""
    interval_s = _number(row, "interval_s")
    return interval_s if interval_s < IDLE_S else 1.0


def _covered_s(samples: Iterable[Row]) -> float:
    """The time in which any of these stages was active."""
    total, reached = 0.0, float("-inf")
    for end, active_s in sorted((_when(row).timestamp(), _active_s(row)) for row in samples):
        total += min(active_s, end - reached)
        reached = end
    return total

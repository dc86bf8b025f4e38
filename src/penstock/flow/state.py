"""State: one flow snapshot of a broker as frozen values, read from its JSON (docs/flow.md has the fields).

Place: the first step of flow/; broker/snapshot/flow.py makes the JSON, and the stream `penstock.events` carries the
like. What is missing is read as "nothing": older and newer brokers have other fields.
Not here: more than one moment (history.py), what it means (graph.py, verdict.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

CONNECTION: Final = "connection"
CHANNEL: Final = "channel"
QUEUE: Final = "queue"
STREAM: Final = "stream"
STORE: Final = "store"

ALARM: Final = "alarm "  # with a source behind it: what stands for an alarm in a chain
CONSUMERS: Final = "consumers of "  # with a queue's id: what stands for those who should empty it

Json = Mapping[str, Any]

NOTHING: Final[Json] = {}


# Named tuples: there are some thousand of these in a snapshot, and they are made in half the time.


class Reason(NamedTuple):
    """One thing that blocks a stage now."""

    by: str  # the id of a stage, or ALARM and its source, or CONSUMERS and the queue's own id
    for_s: float


class StageState(NamedTuple):
    id: str
    kind: str
    name: str
    vhost: str
    user: str
    number: int  # of a channel
    client_name: str  # of a connection: what the client calls itself
    blocked: bool
    blocked_for_s: float
    blocked_s: float  # all time, the running block included
    busy_s: float  # of a channel or queue: what its turns took, all time
    reasons: tuple[Reason, ...]
    connection: str  # of a channel: whose
    saturated_for_s: float | None  # of a queue: None is not saturated
    held: int  # of a queue: confirms
    held_from: Mapping[str, int] | None  # by channel; None: not told
    unconfirmed: int  # of a channel
    messages: int  # of a queue
    consumers: int | None
    watermark: Json


class LinkState(NamedTuple):
    upstream: str
    downstream: str
    blocking: bool
    blocked_s: float | None  # all time, the running block included; None: not told


@dataclass(frozen=True, slots=True)
class State:
    at_ms: int
    at_s: float  # monotonic
    stages: Mapping[str, StageState]
    links: tuple[LinkState, ...]
    alarms: Mapping[str, str]  # by source: the reason
    settings: Mapping[str, str]
    syncs: int = 0
    sync_seconds: float = 0.0
    last_sync_ms: float | None = None
    downstream: Mapping[str, list[LinkState]] = field(default_factory=dict)  # links by their upstream stage


def read_state(json: Json) -> State:
    stages = {}
    for one in _items(json, "stages"):
        stage = _stage(one)
        stages[stage.id] = stage
    links = tuple([_link(one) for one in _items(json, "links")])
    by_upstream: dict[str, list[LinkState]] = {}
    for link in links:
        by_upstream.setdefault(link.upstream, []).append(link)
    store: Json = json.get("store") or NOTHING
    settings: Json = json.get("settings") or NOTHING
    return State(
        at_ms=json.get("at_ms") or 0,
        at_s=(json.get("at_ns") or 0) / 1e9,
        stages=stages,
        links=links,
        alarms={one["source"]: one.get("reason") or "" for one in _items(json, "alarms")},
        settings={name: str(value) for name, value in settings.items()},
        syncs=store.get("syncs") or 0,
        sync_seconds=store.get("sync_seconds") or 0.0,
        last_sync_ms=store.get("last_sync_ms"),
        downstream=by_upstream,
    )


def _stage(json: Json) -> StageState:
    get = json.get
    id_: str = json["id"]
    reasons = get("blocked_by")
    return StageState(
        id=id_,
        kind=get("kind") or kind_of(id_),
        name=get("name") or id_,
        vhost=get("vhost") or "",
        user=get("user") or "",
        number=get("number") or 0,
        client_name=get("client_name") or "",
        blocked=bool(get("blocked")),
        blocked_for_s=get("blocked_for_s") or 0.0,
        blocked_s=get("blocked_s") or 0.0,
        busy_s=get("busy_s") or 0.0,
        reasons=tuple([_reason(one, id_) for one in reasons]) if reasons else (),
        connection=get("connection") or "",
        saturated_for_s=get("saturated_for_s") or 0.0 if get("saturated") else None,
        held=get("held") or 0,
        held_from=get("held_from"),
        unconfirmed=get("unconfirmed") or 0,
        messages=get("messages") or 0,
        consumers=get("consumers"),
        watermark=get("watermark") or NOTHING,
    )


def _reason(json: Json, stage_id: str) -> Reason:
    """A queue at its maximum has neither a stage nor an alarm to wait for: it waits for its consumers."""
    stage, alarm = json.get("stage"), json.get("alarm")
    if stage:
        by = stage
    elif alarm:
        by = ALARM + alarm
    else:
        by = CONSUMERS + stage_id
    return Reason(by, json.get("for_s") or 0.0)


def _link(json: Json) -> LinkState:
    return LinkState(json["upstream"], json["downstream"], bool(json.get("blocking")), json.get("blocked_s"))


def _items(json: Json, name: str) -> Iterable[Json]:
    return json.get(name) or ()


def kind_of(id_: str) -> str:
    """An id begins with its kind; so one that is gone is still known by it."""
    return id_.partition(" ")[0]

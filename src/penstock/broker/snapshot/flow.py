"""The flow snapshot: who is blocked by whom, since when, and how much credit each link has. Plain values.

Place: admin.py hands it to management/, and that to flow/, which makes verdicts of it; docs/flow.md has its shape.
It holds the stages that matter (activity.py): first those that are blocked or saturated and what is behind them, then
those that did something within the last minute, then what these are linked to. Never more than STAGES_MAX of them:
`left_out` says how many more there were.
Not here: verdicts and history (flow/), events (events.py), HTTP (management/).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.broker.activity import CONNECTION, KINDS, STORE
from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.ledger import Json
from penstock.broker.peer import Peer
from penstock.broker.queue import Queue
from penstock.credit import Hop, Link, Stage, Watermark
from penstock.credit.watermark import OFF
from penstock.store.store import MessageStore

VERSION: Final = 1
STAGES_MAX: Final = 300  # in one snapshot: more than a page can draw, made in less than 5 ms
LINKS_MAX: Final = 600
HELD_MAX: Final = 100  # channels named of those whose confirms a queue holds
NS_PER_S: Final = 1e9
ALARM: Final = " alarm"  # how reasons that are alarms end: net/reader.py
SHOWN: Final = ("credit.", "alarms.", "faults.")  # settings that flow depends on


def flow(broker: Broker, settings: Iterable[Mapping[str, Json]] = ()) -> dict[str, Json]:
    """`settings` are those in force, as Admin.settings() has them."""
    activity = broker.activity
    activity.look()
    now_ns = broker.scheduler.clock.now_ns()
    stages, left_out = _choose(broker)
    links = _links(stages)
    return {
        "version": VERSION,
        "at_ms": int(time.time() * 1000),
        "at_ns": now_ns,
        "stages": [_stage(stage, now_ns) for stage in stages],
        "links": [_link(link, now_ns) for link in links],
        "left_out": left_out,
        "alarms": _alarms(broker, now_ns),
        "store": _store(broker),
        "totals": totals(broker, hops=False),
        "settings": {
            str(setting["name"]): setting["value"] for setting in settings if str(setting["name"]).startswith(SHOWN)
        },
    }


# Which stages.


def _choose(broker: Broker) -> tuple[dict[Stage, None], int]:
    """The stages to be shown, the most important first, and how many there was no room for."""
    activity = broker.activity
    chosen: dict[Stage, None] = {}
    left: set[Stage] = set()

    def add(stage: Stage) -> bool:
        if stage in chosen:
            return False
        if len(chosen) >= STAGES_MAX:
            left.add(stage)
            return False
        chosen[stage] = None
        return True

    if broker.vault is not None:
        add(broker.vault.store)
    for stage in activity.blocking:
        waiting = [stage]
        while waiting:  # what it waits for, and what that waits for
            one = waiting.pop()
            if add(one):
                waiting += [reason.downstream for reason in one.blocked_by if isinstance(reason, Link)]
    for queue in activity.saturated:
        add(queue)
        for channel in queue.incoming:
            add(channel)
            for reader in channel.incoming:
                add(reader)
    for stage in reversed(activity.recent):
        add(stage)
    # From the readers down, so that a chain is whole where there is room for it.
    ring = list(chosen)
    while ring and len(chosen) < STAGES_MAX:
        ring = [further for stage in ring for further in stage.outgoing if add(further)]
    return chosen, len(left)


def _links(stages: Mapping[Stage, None]) -> list[Link]:
    """Between the stages that are shown; those that block first, if there are too many."""
    links = [link for stage in stages for link in stage.outgoing.values() if link.downstream in stages]
    if len(links) > LINKS_MAX:
        links.sort(key=_is_free)
    return links[:LINKS_MAX]


def _is_free(link: Link) -> bool:
    return not link.blocking


# As values.


def _stage(stage: Stage, now_ns: int) -> dict[str, Json]:
    blocked = bool(stage.blocked_by)
    running_ns = now_ns - stage.blocked_at_ns if blocked else 0
    view: dict[str, Json] = {
        "id": stage.name,
        "kind": stage.kind,
        "name": stage.name.partition(" ")[2],
        "vhost": None,
        "user": None,
        "blocked": blocked,
        "blocked_for_s": running_ns / NS_PER_S if blocked else None,
        "blocked_by": [_reason(reason, began, now_ns) for reason, began in stage.blocked_by.items()],
        "blocks": stage.blocks,
        "blocked_s": (stage.blocked_ns + running_ns) / NS_PER_S,
        "mailbox": _waiting(stage),
        "received": stage.received,
        "sent": stage.sent,
    }
    if isinstance(stage, Channel):
        _describe_channel(view, stage)
    elif isinstance(stage, Queue):
        _describe_queue(view, stage, now_ns)
    elif isinstance(stage, MessageStore):
        view |= {"name": STORE, "mailbox": stage.pending_messages, "sent": stage.received - stage.pending_messages}
    else:
        _describe_connection(view, stage)
    return view


def _reason(reason: Link | str, began: tuple[int, int, int], now_ns: int) -> dict[str, Json]:
    since_ns, messages, bytes_ = began
    is_link = isinstance(reason, Link)
    text = "credit" if is_link else str(reason)
    return {
        "stage": str(reason) if is_link else None,
        "alarm": text.removesuffix(ALARM) if text.endswith(ALARM) else None,
        "reason": text,
        "for_s": (now_ns - since_ns) / NS_PER_S,
        "messages": messages,
        "bytes": bytes_,
    }


def _waiting(stage: Stage) -> int:
    """Messages that were cast to it and that it has not taken yet."""
    return sum(link.in_flight() for link in stage.incoming.values())


def _peer(reader: Stage) -> Peer | None:
    for channel in reader.outgoing:
        if isinstance(channel, Channel):
            return channel.peer
    return None


def _describe_connection(view: dict[str, Json], reader: Stage) -> None:
    peer = _peer(reader)  # None: it has no channel any more
    view["received"] = reader.sent
    view["parked_bytes"] = peer.parked_bytes() if peer is not None else 0
    view["state"] = peer.flow_state() if peer is not None else "running"
    view["client_name"] = peer.client_name() if peer is not None else ""
    if peer is not None:
        view |= {"user": peer.user, "vhost": peer.vhost.name}


def _describe_channel(view: dict[str, Json], channel: Channel) -> None:
    view["vhost"] = channel.vhost.name
    view["user"] = channel.peer.user
    view["connection"] = f"{CONNECTION} {channel.peer.name}"
    view["number"] = channel.number
    view["busy_s"] = channel.mailbox.busy_ns / NS_PER_S
    view["unconfirmed"] = channel.confirms.unconfirmed() if channel.confirms is not None else 0


def _describe_queue(view: dict[str, Json], queue: Queue, now_ns: int) -> None:
    saturation = queue.marks.saturation if queue.marks is not None else None
    saturated = saturation is not None and saturation.saturated
    view["name"] = queue.queue_name
    view["vhost"] = queue.vhost_name
    view["received"] = queue.published_count
    view["sent"] = queue.delivered_count
    view["busy_s"] = queue.mailbox.busy_ns / NS_PER_S
    view["messages"] = queue.count() + len(queue.unacked)
    view["consumers"] = len(queue.subscribers)
    if saturation is not None:
        view["watermark"] = _watermark(saturation.watermark)
    view["saturated"] = saturated
    view["saturated_for_s"] = None
    view["held"] = 0
    if saturation is not None and saturated:
        held = sorted(saturation.held_of().items(), key=_how_many, reverse=True)[:HELD_MAX]
        view["saturated_for_s"] = (now_ns - saturation.since_ns) / NS_PER_S
        view["held"] = saturation.held
        view["held_from"] = {channel.name: count for channel, count in held}


def _watermark(watermark: Watermark) -> dict[str, Json]:
    marks = {
        "stop_count": watermark.stop_count,
        "resume_count": watermark.resume_count,
        "stop_bytes": watermark.stop_bytes,
        "resume_bytes": watermark.resume_bytes,
    }
    return {name: mark if mark != OFF else None for name, mark in marks.items()}


def _how_many(item: tuple[Channel, int]) -> int:
    return item[1]


def _link(link: Link, now_ns: int) -> dict[str, Json]:
    hop = link.hop
    began = link.upstream.blocked_by.get(link)
    blocked_ns = link.blocked_ns + (now_ns - began[0] if began is not None else 0)
    return {
        "upstream": link.upstream.name,
        "downstream": link.downstream.name,
        "hop": hop.name,
        "credit": link.credit,
        "initial": hop.messages.initial,
        "credit_bytes": link.credit_bytes,
        "initial_bytes": hop.bytes.initial,
        "in_flight": link.in_flight(),
        "in_flight_bytes": link.in_flight_bytes(),
        "deferred": link.deferred,
        "blocking": link.blocking,
        "blocked_s": blocked_ns / NS_PER_S,
    }


def _alarms(broker: Broker, now_ns: int) -> list[Json]:
    since = broker.activity.alarms
    return [
        {"source": source, "reason": reason, "for_s": (now_ns - since.get(source, now_ns)) / NS_PER_S}
        for source, reason in broker.alarms.reasons().items()
    ]


def _store(broker: Broker) -> dict[str, Json]:
    """All zero where nothing is kept."""
    store = broker.vault.store if broker.vault is not None else None
    journal = store.journal if store is not None else None
    return {
        "syncs": journal.syncs if journal is not None else 0,
        "sync_seconds": journal.sync_ns / NS_PER_S if journal is not None else 0.0,
        "last_sync_ms": journal.sync_last_ns / 1e6 if journal is not None else 0.0,
        "pending_messages": store.pending_messages if store is not None else 0,
        "pending_bytes": store.pending_bytes if store is not None else 0,
        "written_bytes": store.written_bytes if store is not None else 0,
    }


# Sums, without a look at each stage.


def pulse(broker: Broker) -> tuple[int, int, int]:
    """Blocks that began so far, stages that are blocked now, queues that are saturated now."""
    activity = broker.activity
    return sum(total.blocks for total in activity.totals.values()), len(activity.blocking), len(activity.saturated)


def totals(broker: Broker, hops: bool = True) -> dict[str, Json]:
    """Blocks and blocked time only grow: they count all stages there ever were, and blocks that are not over.

    Without `hops` nothing is looked at link by link."""
    activity = broker.activity
    now_ns = broker.scheduler.clock.now_ns()
    blocked = dict.fromkeys(KINDS, 0)
    running_ns = dict.fromkeys(KINDS, 0)
    for stage in activity.blocking:
        blocked[stage.kind] += 1
        running_ns[stage.kind] += now_ns - stage.blocked_at_ns
    held = 0
    events = activity.events
    for queue in activity.saturated:
        if isinstance(queue, Queue) and queue.marks is not None and queue.marks.saturation is not None:
            held += queue.marks.saturation.held
    return {
        "stages": {
            kind: {
                "blocks": total.blocks,
                "blocked_s": (total.blocked_ns + running_ns[kind]) / NS_PER_S,
                "blocked": blocked[kind],
            }
            for kind, total in activity.totals.items()
        },
        "hops": {hop.name: _hop(hop) for hop in activity.hops} if hops else {},
        "parked_bytes": sum(peer.parked_bytes() for peer in _blocked_peers(activity.blocking)),
        "held_confirms": held,
        "saturated_queues": len(activity.saturated),
        "events": {
            "written": events.written if events is not None else 0,
            "dropped": events.dropped if events is not None else 0,
        },
    }


def _blocked_peers(blocking: Iterable[Stage]) -> list[Peer]:
    """Only a connection that is blocked parks anything."""
    found = [_peer(stage) for stage in blocking if stage.kind == CONNECTION]
    return [peer for peer in found if peer is not None]


def _hop(hop: Hop) -> dict[str, Json]:
    blocking = credit = credit_bytes = back = back_bytes = deferred = 0
    for link in hop.links:  # one pass: there may be ten thousand
        blocking += link.blocking
        credit += link.credit
        credit_bytes += link.credit_bytes
        back += link.handled + link.deferred
        back_bytes += link.handled_bytes + link.deferred_bytes
        deferred += link.deferred
    count = len(hop.links)
    return {
        "links": count,
        "blocking": blocking,
        "credit": credit,
        "in_flight": count * hop.messages.initial - credit - back,
        "in_flight_bytes": count * hop.bytes.initial - credit_bytes - back_bytes,
        "deferred": deferred,
    }

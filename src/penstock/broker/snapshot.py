"""Snapshot: queues, connections and channels as an operator sees them, in RabbitMQ's JSON and beyond it.

Place: admin.py hands these to management. Plain values, made anew for every question; nothing here is live.
Beyond RabbitMQ: `blocked_by` says what a stage waits for, `saturation` what its watermarks do.
Not here: verdicts and history (later), HTTP (management/).
"""

from __future__ import annotations

from typing import Final

from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.ledger import Json
from penstock.broker.peer import Peer
from penstock.broker.plain import plain_table
from penstock.broker.queue import Queue
from penstock.broker.stream import Stream
from penstock.credit import Stage

NS_PER_S: Final = 1e9


def queues(broker: Broker, vhost_name: str | None = None) -> list[dict[str, Json]]:
    return [
        queue_view(vhost.name, queue)
        for vhost in broker.vhosts.values()
        if vhost_name is None or vhost.name == vhost_name
        for queue in vhost.queues.values()
    ]


def queue_view(vhost_name: str, queue: Queue) -> dict[str, Json]:
    ready, unacked = queue.count(), len(queue.unacked)
    paged = queue.shelves.paged_count()
    return {
        "name": queue.queue_name,
        "vhost": vhost_name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive,
        "arguments": plain_table(queue.arguments),
        "type": "stream" if isinstance(queue, Stream) else "classic",
        "state": _state(queue),
        "blocked_by": _reasons(queue),
        "consumers": len(queue.subscribers),
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        "messages_paged_out": paged,
        "messages_ram": ready + unacked - paged,
        "saturation": _saturation(queue),
        "stream": _stream(queue),
    }


def _stream(queue: Queue) -> dict[str, Json] | None:
    """None: it is none."""
    if not isinstance(queue, Stream):
        return None
    log = queue.log
    return {
        "first_offset": log.first,
        "next_offset": log.synced,
        "segments": len(log.segments),
        "bytes": log.bytes,
        "producers": len(log.producers),
    }


def _saturation(queue: Queue) -> dict[str, Json] | None:
    """None: the queue has no watermarks."""
    saturation = queue.marks.saturation if queue.marks is not None else None
    if saturation is None:
        return None
    since_s = (queue.clock() - saturation.since_ns) / NS_PER_S if saturation.saturated else None
    return {
        "saturated": saturation.saturated,
        "saturated_for_s": since_s,
        "times": saturation.times,
        "held": saturation.held,
    }


def connections(broker: Broker) -> list[dict[str, Json]]:
    return [
        {
            "name": peer.name,
            "user": peer.user,
            "vhost": peer.vhost.name,
            "state": peer.flow_state(),
            "channels": peer.channel_count(),
            "blocked_by": peer.blocked_by(),
        }
        for peer in broker.peers.all()
    ]


def channels(broker: Broker) -> list[dict[str, Json]]:
    return [_channel_view(channel.peer, channel) for channel in broker.ack_timeout.channels]


def _channel_view(peer: Peer, channel: Channel) -> dict[str, Json]:
    return {
        "name": f"{peer.name} ({channel.number})",
        "number": channel.number,
        "user": peer.user,
        "vhost": peer.vhost.name,
        "state": _state(channel),
        "blocked_by": _reasons(channel),
        "confirm": channel.confirms is not None,
        "transactional": channel.transaction is not None,
        "consumer_count": len(channel.consumers),
        "messages_unacknowledged": len(channel.deliveries.unacked),
        "messages_unconfirmed": channel.confirms.unconfirmed() if channel.confirms is not None else 0,
    }


def _state(stage: Stage) -> str:
    return "flow" if stage.in_flow() else "running"


def _reasons(stage: Stage) -> list[Json]:
    return [str(reason) for reason in stage.blocked_by]

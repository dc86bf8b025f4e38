"""Queues: each as an operator sees it, in RabbitMQ's JSON, and beyond it: what blocks it, what its watermarks do.

Place: admin hands these to management. Plain values, made anew for every question; nothing here is live.
Not here: what holds whom back (flow.py), the queue itself (queue.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import ClassVar, Final

from penstock.amqp.content import FLAGS_OFFSET, properties_end
from penstock.amqp.flags import TIMESTAMP
from penstock.amqp.properties import decode_properties
from penstock.broker.backlog import is_away
from penstock.broker.broker import Broker
from penstock.broker.ledger import Json
from penstock.broker.plain import plain_table
from penstock.broker.policy import QUEUES as QUEUE_POLICIES
from penstock.broker.policy import STREAMS
from penstock.broker.queue import Queue
from penstock.broker.quota import MESSAGE_BYTES
from penstock.broker.snapshot.channels import consumer_view
from penstock.broker.snapshot.common import (
    NS_PER_S,
    OF_QUEUES,
    blocked_seconds,
    message_stats,
    node_name,
    reasons,
    state,
)
from penstock.broker.snapshot.listing import QUEUES, Things, vhosts_among
from penstock.broker.stream import Stream
from penstock.broker.tally import COUNTERS, queue_counts

QUEUE_BYTES: Final = 8192  # about what an empty queue takes in RAM, with its mailbox and its place in the vhost


def queue_view(broker: Broker, queue: Queue, whole: bool = False) -> dict[str, Json]:
    """`whole`: with its consumers one by one, as RabbitMQ's view of a single queue has them."""
    ready, unacked = queue.count(), len(queue.unacked)
    paged, away = queue.shelves.paged_count(), _away(queue)
    capacity, size, paged_bytes = _capacity(queue), _bytes(queue), _paged_bytes(queue)
    view: dict[str, Json] = {
        "name": queue.queue_name,
        "vhost": queue.vhost_name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive,
        "owner_pid_details": _owner(queue),
        "arguments": plain_table(queue.arguments),
        "type": _type(queue),
        "node": node_name(),
        "state": state(queue),
        "blocked_by": reasons(queue),
        "blocked_seconds": blocked_seconds(queue),
        "consumers": len(queue.subscribers),
        "consumer_capacity": capacity,
        "consumer_utilisation": capacity,
        "exclusive_consumer_tag": _exclusive_tag(queue),
        "single_active_consumer_tag": _active_tag(queue),
        "messages": ready + unacked,
        "messages_ready": ready,
        "messages_unacknowledged": unacked,
        "messages_paged_out": paged,
        "messages_ram": ready + unacked - paged - away,
        "messages_ready_ram": ready - paged,
        "messages_unacknowledged_ram": unacked - away,
        "messages_persistent": _persistent(queue, ready + unacked),
        "message_bytes": size,
        "message_bytes_ready": size,
        "message_bytes_ram": size - paged_bytes,
        "message_bytes_paged_out": paged_bytes,
        "head_message_timestamp": _head_timestamp(queue),
        "memory": _memory(queue, ready + unacked - paged - away),
        "message_stats": _stats(queue),
        "saturation": _saturation(queue),
        "stream": _stream(queue),
    }
    view.update(_policies(broker, queue))
    if whole:
        view["consumer_details"] = [consumer_view(consumer) for consumer in queue.subscribers.all()]
        view["incoming"] = []
        view["deliveries"] = []
    return view


def _type(queue: Queue) -> str:
    return "stream" if isinstance(queue, Stream) else "classic"


def _owner(queue: Queue) -> dict[str, Json] | None:
    """The connection that an exclusive queue belongs to."""
    if queue.owner is None:
        return None
    portrait = queue.owner.portrait()
    return {"name": queue.owner.name, "peer_host": portrait.get("peer_host"), "peer_port": portrait.get("peer_port")}


def _capacity(queue: Queue) -> float:
    """Of the consumers, the share that would take a message now. RabbitMQ's is the share of time that one would."""
    if not queue.subscribers.count:
        return 0.0
    consumers = queue.subscribers.all()
    return round(sum(consumer.room() > 0 for consumer in consumers) / len(consumers), 4)


def _exclusive_tag(queue: Queue) -> str | None:
    return queue.subscribers.sole[0].tag if queue.subscribers.has_exclusive() else None


def _active_tag(queue: Queue) -> str | None:
    subscribers = queue.subscribers
    if not subscribers.single_active:
        return None
    return next((consumer.tag for consumer in subscribers.all() if subscribers.is_active(consumer)), None)


def _away(queue: Queue) -> int:
    """Unacked ones that are paged out."""
    return len(queue.paging.away) if queue.paging is not None else 0


def _persistent(queue: Queue, messages: int) -> int | None:
    """All of a stream, and of a queue with nothing else in it; None where some may be transient: nobody counts them."""
    if isinstance(queue, Stream):
        return messages
    if queue.keeping is None or not messages:
        return 0
    return None if queue.keeping.mixed else messages


def _bytes(queue: Queue) -> int:
    """Of what is ready, with its properties: how large unacked ones are is not counted, as it would cost time for each.
    What is paged out counts only where a limit or a watermark has it measured."""
    if isinstance(queue, Stream):
        return queue.log.bytes
    return sum([one.ready_bytes + one.fresh_bytes + one.paged_bytes for one in queue.shelves.levels])


def _paged_bytes(queue: Queue) -> int:
    if isinstance(queue, Stream):
        return queue.log.bytes
    return sum([one.paged_bytes for one in queue.shelves.levels])


def _head_timestamp(queue: Queue) -> int | None:
    """Of the next message, if it is in RAM and has one."""
    ready = queue.shelves.front().ready
    if not ready or is_away(ready[0]):
        return None
    wire = ready[0][1]
    if not int.from_bytes(wire[FLAGS_OFFSET : FLAGS_OFFSET + 2], "big") & TIMESTAMP:
        return None
    return decode_properties(wire, FLAGS_OFFSET, properties_end(wire)).timestamp


def _memory(queue: Queue, in_ram: int) -> int:
    """An estimate: Python does not say."""
    if isinstance(queue, Stream):
        return QUEUE_BYTES + queue.recent_bytes
    in_ram_bytes = sum([one.ready_bytes + one.fresh_bytes for one in queue.shelves.levels])
    return QUEUE_BYTES + in_ram * MESSAGE_BYTES + in_ram_bytes


def _stats(queue: Queue) -> dict[str, Json]:
    stats = message_stats(queue_counts(queue))
    return {name: count for name, count in stats.items() if name not in OF_QUEUES}


def _policies(broker: Broker, queue: Queue) -> dict[str, Json]:
    vhost = broker.vhosts.get(queue.vhost_name)
    if vhost is None or not (vhost.policies.user or vhost.policies.operator):
        return {"policy": None, "operator_policy": None, "effective_policy_definition": {}}
    policies = vhost.policies
    kind, name = STREAMS if isinstance(queue, Stream) else QUEUE_POLICIES, queue.queue_name
    policy, operator = policies.match(kind, name), policies.operator_match(kind, name)
    return {
        "policy": policy.name if policy is not None else None,
        "operator_policy": operator.name if operator is not None else None,
        "effective_policy_definition": policies.settings(kind, name) if policy or operator else {},
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


def _is_saturated(queue: Queue) -> bool:
    saturation = queue.marks.saturation if queue.marks is not None else None
    return saturation is not None and saturation.saturated


def _held(queue: Queue) -> int:
    saturation = queue.marks.saturation if queue.marks is not None else None
    return saturation.held if saturation is not None else 0


COLUMNS: Final[Mapping[str, Callable[[Queue], Json]]] = {
    "name": lambda queue: queue.queue_name,
    "vhost": lambda queue: queue.vhost_name,
    "type": _type,
    "durable": lambda queue: queue.durable,
    "auto_delete": lambda queue: queue.auto_delete,
    "exclusive": lambda queue: queue.exclusive,
    "state": state,
    "consumers": lambda queue: len(queue.subscribers),
    "messages": lambda queue: queue.count() + len(queue.unacked),
    "messages_ready": lambda queue: queue.count(),
    "messages_unacknowledged": lambda queue: len(queue.unacked),
    "messages_paged_out": lambda queue: queue.shelves.paged_count(),
    "messages_ram": lambda queue: queue.count() + len(queue.unacked) - queue.shelves.paged_count() - _away(queue),
    "blocked": lambda queue: bool(queue.blocked_by),
    "blocks": lambda queue: queue.blocks,
    "blocked_seconds": blocked_seconds,
    "saturation.saturated": _is_saturated,
    "saturation.held": _held,
    "message_bytes": _bytes,
    "message_stats.publish": lambda queue: queue.published_count,
    "message_stats.deliver_get": lambda queue: queue.delivered_count,
    "message_stats.redeliver": lambda queue: queue.tally.redeliver,
    "message_stats.ack": lambda queue: queue.acked_count(),
}


class QueueListing(Things[Queue]):
    KIND = QUEUES
    COUNTERS: ClassVar[tuple[str, ...]] = (*COUNTERS, "messages_ready", "messages_unacknowledged")

    def name(self, at: int) -> str:
        return self.things[at].queue_name

    def vhost(self, at: int) -> str:
        return self.things[at].vhost_name

    def is_there(self, thing: Queue) -> bool:
        return not thing.deleted

    def view_of(self, thing: Queue) -> dict[str, Json]:
        return queue_view(self.broker, thing)

    def columns(self) -> Mapping[str, Callable[[Queue], Json]]:
        return COLUMNS

    def counters(self, at: int) -> tuple[int, ...]:
        queue = self.things[at]
        return (*queue_counts(queue), queue.count(), len(queue.unacked)) if self.is_there(queue) else ()


def list_queues(broker: Broker, vhost: str | None = None, among: Container[str] | None = None) -> QueueListing:
    things: list[Queue] = []
    for one in vhosts_among(broker, vhost, among):
        things += one.queues.values()
    return QueueListing(broker, things)

"""Sampling: what a stage has done so far and has to do now, and what the whole broker uses, as fields of events.

Place: eventstream.py asks once a second, for stages that were active or are blocked (activity.py), and for saturated
queues and those whose confirms they hold: these do nothing, and are just what people look for.
Bounded: a sample never looks through more than a queue's first holds, or a channel's first SENDS_LOOK queues; the
caller makes only as many as there is room.
Not here: when that is (eventstream.py), what an event is (events.py), the same for people (snapshot/flow.py).
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from penstock.broker.activity import CONNECTION, STREAM, TEXT_MAX
from penstock.broker.alarms import Watch
from penstock.broker.channel import Channel
from penstock.broker.ledger import Json
from penstock.broker.options import NONE
from penstock.broker.queue import Queue
from penstock.credit import Stage, Watermark
from penstock.credit.watermark import OFF
from penstock.store.journal import SYNC_BOUNDS_S, sync_class
from penstock.store.store import MessageStore

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

HELD_FROM_MAX: Final = 32  # channels named of those whose confirms a queue holds
SENDS_TO_MAX: Final = 8  # queues named of those a channel sends to
SENDS_LOOK: Final = 256  # looked at for that: some 20 us
NS_PER_US: Final = 1000
SYNC_CLASSES: Final = (*(str(round(bound_s * 1e6)) for bound_s in SYNC_BOUNDS_S), "inf")


def sample(stage: Stage, now_ns: int) -> dict[str, Json]:
    """What a stage has done so far, and what it has to do now."""
    blocked_ns = stage.blocked_ns + (now_ns - stage.blocked_at_ns if stage.blocked_by else 0)
    fields: dict[str, Json] = {
        "stage": stage.name,
        "kind": stage.kind,
        "mailbox": sum([link.in_flight() for link in stage.incoming.values()]),
        "blocked": bool(stage.blocked_by),
        "blocks": stage.blocks,
        "blocked_us": blocked_ns // NS_PER_US,
        "received": stage.received,
        "sent": stage.sent,
    }
    if isinstance(stage, Queue):
        _add_queue(fields, stage)
    elif isinstance(stage, Channel):
        _add_work(fields, stage.mailbox.turns, stage.mailbox.busy_ns)
        if stage.peer.is_client:
            fields["connection"] = f"{CONNECTION} {stage.peer.name}"
        if stage.outgoing:
            fields["sends_to"] = _sends_to(stage)
    elif isinstance(stage, MessageStore):
        fields["mailbox"] = stage.pending_messages
        fields["sent"] = stage.received - stage.pending_messages
        journal = stage.journal
        _add_work(fields, journal.syncs, journal.write_ns + journal.sync_ns)
    elif stage.kind == CONNECTION:
        _add_connection(fields, stage)
    return fields


def _add_queue(fields: dict[str, Json], queue: Queue) -> None:
    ready = queue.count()
    fields["received"] = queue.published_count
    fields["sent"] = queue.delivered_count
    _add_work(fields, queue.mailbox.turns, queue.mailbox.busy_ns)
    fields["vhost"] = queue.vhost_name
    fields["messages"] = ready + len(queue.unacked)
    fields["consumers"] = len(queue.subscribers)
    saturation = queue.marks.saturation if queue.marks is not None else None
    fields["saturated"] = saturation is not None and saturation.saturated
    if saturation is not None and saturation.saturated:
        fields["held"] = saturation.held
        fields["held_from"] = [channel.name for channel in saturation.holders(queue.incoming, HELD_FROM_MAX)]
    if queue.kind == STREAM:
        return  # what it keeps at most is nothing that anybody has to wait for
    options = queue.options
    stop_count, stop_bytes = (OFF, OFF) if options.watermark is None else _stops(options.watermark)
    limit, limit_bytes = _lower(stop_count, options.max_length), _lower(stop_bytes, options.max_length_bytes)
    if limit != NONE:
        fields["ready"] = ready
        fields["limit"] = limit
    if limit_bytes != NONE:
        fields["ready_bytes"] = queue.shelves.body_bytes()
        fields["limit_bytes"] = limit_bytes


def _sends_to(channel: Channel) -> list[Json]:
    """The queues behind it; of many, those whose turns took longest: which of them is slow, samples of theirs tell."""
    queues = [stage for stage in islice(channel.outgoing, SENDS_LOOK) if isinstance(stage, Queue)]
    if len(queues) > SENDS_TO_MAX:
        queues = heapq.nlargest(SENDS_TO_MAX, queues, key=_busy_ns)
    return [queue.name for queue in queues]


def _busy_ns(queue: Queue) -> int:
    return queue.mailbox.busy_ns


def _stops(watermark: Watermark) -> tuple[int, int]:
    return watermark.stop_count, watermark.stop_bytes


def _lower(stop: int, maximum: int) -> int:
    """Of the mark and the maximum the one that is reached first; NONE if there is neither."""
    if stop == OFF:
        return maximum
    return stop if maximum == NONE else min(stop, maximum)


def _add_connection(fields: dict[str, Json], reader: Stage) -> None:
    """A connection sends what it has received. Who it is only its channels can tell; without any it is nobody's."""
    fields["received"] = reader.sent
    for channel in reader.outgoing:
        if isinstance(channel, Channel):
            peer = channel.peer
            turns, busy_ns, writes, write_ns = peer.work()
            _add_work(fields, turns, busy_ns)
            fields["writes"] = writes
            fields["write_us"] = write_ns // NS_PER_US
            fields["client"] = peer.client_name()[:TEXT_MAX]
            fields["user"] = peer.user
            fields["vhost"] = peer.vhost.name
            return


def _add_work(fields: dict[str, Json], turns: int, busy_ns: int) -> None:
    fields["turns"] = turns
    fields["busy_us"] = busy_ns // NS_PER_US


def waiting(saturated: Iterable[Stage], count: int, deserted: bool = False) -> dict[Stage, None]:
    """Saturated queues, the channels whose confirms they hold, and their connections: about so many at most.

    Of queues that nobody waits for only if `deserted` ones are asked for: they may be many, and stay so for days."""
    found: dict[Stage, None] = {}
    looked = 0
    for queue in saturated:
        if looked >= count or len(found) >= count:
            break
        if not isinstance(queue, Queue) or queue.marks is None or queue.marks.saturation is None:
            continue
        if deserted:
            found[queue] = None
        if queue.marks.saturation.held:
            looked += 1
            for channel in queue.marks.saturation.holders(queue.incoming, HELD_FROM_MAX):
                found[queue] = None
                found[channel] = None
                if channel.peer.reader is not None:
                    found[channel.peer.reader] = None
    return found


def resources(broker: Broker, watch: Watch | None, dropped: int) -> dict[str, Json]:
    """What the broker uses and may use, as the alarms last saw it; and how much of it there is."""
    fields: dict[str, Json] = {
        "connections": len(broker.peers),
        "channels": len(broker.ack_timeout.channels),
        "queues": sum([len(vhost.queues) for vhost in broker.vhosts.values()]),
        "events_dropped": dropped,
        "cpu_us": time.thread_time_ns() // NS_PER_US,
    }
    if watch is not None:
        if watch.memory_used_bytes:
            fields["memory_used_bytes"] = watch.memory_used_bytes
        if watch.memory_high_bytes:
            fields["memory_limit_bytes"] = watch.memory_high_bytes
        if watch.disk_free_bytes is not None:
            fields["disk_free_bytes"] = watch.disk_free_bytes
            fields["disk_limit_bytes"] = watch.disk_low_bytes
        if watch.core_waits:
            fields["wait_us"] = watch.core_wait_ns // NS_PER_US
            fields["waits"] = watch.core_waits
    return fields


def histogram(durations_ns: Sequence[int]) -> dict[str, Json]:
    """How many syncs there were by how long they took; by the upper bounds in us, and without empty classes."""
    counts = [0] * len(SYNC_CLASSES)
    for took_ns in durations_ns:
        counts[sync_class(took_ns)] += 1
    return {name: count for name, count in zip(SYNC_CLASSES, counts, strict=True) if count}

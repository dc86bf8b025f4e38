"""EventStream: the stream `penstock.events`, and what is written to it once a second.

Place: server.py opens it in a broker with a data directory. It hears of every second from activity.py, adds a sample
of each stage that was active or blocked or waits for confirms, what the broker uses, what the store synced and what
queues paged, and appends all events as one batch, by the same way as any publish but without connection, channel and
credit.
Its own work makes no events: the stream is told of to nobody, and syncs that wrote nothing but events are left out.
A disk that cannot follow is not waited for: then nothing is appended until it has synced, and what is too much
meanwhile is dropped and counted (events.py).
Not here: what an event is (events.py), what a sample has in it (sampling.py), retention (store/stream.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.amqp.content import build_basic
from penstock.amqp.decoder import Message, Publish
from penstock.amqp.frame import HEAD_BYTES
from penstock.amqp.method import BasicPublish, encode_method
from penstock.amqp.properties import PERSISTENT, Properties, encode_properties
from penstock.amqp.table import Table
from penstock.broker.casts import Arrival
from penstock.broker.events import PAGING, RECOVERY, RESOURCES, SAMPLE, SYNC, TYPES, Events
from penstock.broker.ledger import Json
from penstock.broker.options import Options
from penstock.broker.policy import STREAMS
from penstock.broker.records import record_queue
from penstock.broker.sampling import histogram, resources, sample, waiting
from penstock.broker.stream import Stream
from penstock.credit import Stage

if TYPE_CHECKING:
    from penstock.broker.alarms import Watch
    from penstock.broker.broker import Broker
    from penstock.broker.vault import Vault

NAME: Final = "penstock.events"
VHOST: Final = "/"
CHANNEL_NUMBER: Final = 1  # what most consumers have: then nothing is written anew for them
SEGMENTS: Final = 8  # retention drops whole segments: so many of them make what is kept
SEGMENT_BYTES_MIN: Final = 65_536
FRAME_BYTES: Final = 131_072  # larger than any event
NS_PER_US: Final = 1000
# How often although nothing happens: each time costs a sync here, and work for whoever follows the stream.
RESOURCES_NS: Final = 60_000_000_000
DESERTED_NS: Final = 30_000_000_000  # saturated queues that nobody waits for; who is silent for a minute may be gone


class EventStream:
    __slots__ = (
        "_appends",
        "_broker",
        "_deserted_ns",
        "_others",
        "_own",
        "_properties",
        "_publish",
        "_resources_ns",
        "_store",
        "_stream",
        "_turn",
        "_vault",
        "events",
        "watch",
    )

    def __init__(self, broker: Broker, vault: Vault, events: Events) -> None:
        self._broker = broker
        self._vault = vault
        self._store = vault.store
        self.events = events
        self.watch: Watch | None = None  # whoever looks at memory and disk; set by server.py
        self._stream: Stream | None = None
        self._publish = Publish(CHANNEL_NUMBER, encode_method(BasicPublish("", NAME), 0)[HEAD_BYTES:-1])
        self._properties = {
            type_: encode_properties(
                Properties(content_type="application/json", delivery_mode=PERSISTENT, type=type_, app_id="penstock")
            )
            for type_ in TYPES
        }
        vault.store.journal.take_syncs()  # those of the start
        self._resources_ns = -RESOURCES_NS  # when they were last told of
        self._deserted_ns = -DESERTED_NS  # when saturated queues were that nobody waits for
        self._turn = 0  # which of those that come first are next, when there is not room for all
        self._appends = 0  # since syncs were last counted
        self._own = 0  # messages that are events, so far
        self._others = vault.store.received  # messages of others that the store had taken when it last synced

    def open(self, max_bytes: int, max_age_s: int) -> None:
        """The stream is there from now on, kept for so long, and nobody but this writes to it."""
        arguments: Table = {
            "x-queue-type": "stream",
            "x-max-length-bytes": max_bytes,
            "x-stream-max-segment-size-bytes": max(SEGMENT_BYTES_MIN, max_bytes // SEGMENTS),
        }
        if max_age_s:
            arguments["x-max-age"] = f"{max_age_s}s"
        vhost = self._broker.vhosts.get(VHOST)
        if vhost is None:
            return  # definitions did away with it
        queue = vhost.queues.get(NAME)
        if queue is None:
            queue = vhost.add_queue(NAME, True, False, arguments)
        elif queue.arguments != arguments and isinstance(queue, Stream):
            queue.arguments = arguments
            queue.apply(Options(arguments, vhost.policies.settings(STREAMS, NAME)))
            record_queue(vhost.ledger, VHOST, queue)
        if not isinstance(queue, Stream):
            return  # somebody has a queue of this name since the days without events; it is theirs
        queue.block_log = None
        queue.mailbox.delay_us = 0
        vhost.protect(NAME)
        self._stream = queue
        self._broker.activity.events = self.events
        self._broker.activity.told = self.second

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    def recovered(self, at_ns: int, fields: dict[str, Json]) -> None:
        """What the start found."""
        self.events.put(RECOVERY, at_ns, fields)

    def second(self, active: Sequence[Stage], now_ns: int) -> None:
        """Another second is over; these stages were active in it, or are blocked."""
        stream = self._stream
        if stream is None:
            return
        if stream.deleted:  # with its vhost
            self._broker.activity.events = None
            self._stream = None
            return
        events = self.events
        events.gather(now_ns)
        self._tell_syncs(now_ns)
        self._tell_paging(now_ns)
        self._tell_stages(active, now_ns)
        if active or len(events) or now_ns - self._resources_ns >= RESOURCES_NS:
            self._resources_ns = now_ns
            events.put(RESOURCES, now_ns, resources(self._broker, self.watch, events.dropped))
        if stream.log.end == stream.log.synced and not stream.mailbox.ordinary:
            self._append(stream, now_ns)

    def flush(self) -> None:
        """The broker stops: what there is goes to the disk."""
        if self._stream is not None and not self._stream.deleted:
            now_ns = self._broker.scheduler.clock.now_ns()
            self.events.gather(now_ns)
            self._append(self._stream, now_ns)

    def _append(self, stream: Stream, now_ns: int) -> None:
        entries = self.events.take(now_ns, time.time_ns() // NS_PER_US)
        if not entries:
            return
        publish, properties = self._publish, self._properties
        messages: list[Message] = [
            (publish, build_basic(CHANNEL_NUMBER, properties[type_], body, FRAME_BYTES)) for type_, body in entries
        ]
        self._appends += 1
        self._own += len(messages)
        stream.cast(Arrival(None, None, messages, sum([len(wire) for _, wire in messages]), [], PERSISTENT))

    def _tell_stages(self, active: Sequence[Stage], now_ns: int) -> None:
        """A sample of each, as far as there is room; those that are blocked come first, then those that wait."""
        events, activity = self.events, self._broker.activity
        room = events.room(SAMPLE)
        first = len(activity.blocking)
        if activity.saturated:
            deserted = now_ns - self._deserted_ns >= DESERTED_NS
            if deserted:
                self._deserted_ns = now_ns
            held_up = activity.blocking | waiting(activity.saturated, room, deserted)
            first = len(held_up)
            active = list(held_up | dict.fromkeys(active))
        count = len(active)
        if first > room:
            # In turns: who reads the events takes a stage that is silent for a minute for gone, and its block for over.
            begin = self._turn if self._turn < first else 0
            self._turn = (begin + room) % first
            active = [*active[begin:first], *active[:begin]]
        for stage in active[:room]:
            events.put(SAMPLE, now_ns, sample(stage, now_ns))
        events.drop(SAMPLE, count - room)

    def _tell_syncs(self, now_ns: int) -> None:
        """One event for all syncs of this second; those that were only for events are nobody's news."""
        durations_ns = self._store.journal.take_syncs()
        if not durations_ns:
            return
        appends, self._appends = self._appends, 0
        before, self._others = self._others, self._store.received - self._own
        if len(durations_ns) > appends or self._others != before:
            fields: dict[str, Json] = {
                "count": len(durations_ns),
                "duration_us": sum(durations_ns) // NS_PER_US,
                "longest_us": max(durations_ns) // NS_PER_US,
                "histogram": histogram(durations_ns),
                "pending_messages": self._store.pending_messages,
                "pending_bytes": self._store.pending_bytes,
            }
            self.events.put(SYNC, now_ns, fields)

    def _tell_paging(self, now_ns: int) -> None:
        memory = self._vault.memory
        for name, (out, back) in memory.take_moved().items():
            fields: dict[str, Json] = {"stage": name, "out": out, "in": back, "used_bytes": memory.used_bytes}
            self.events.put(PAGING, now_ns, fields)

    def __repr__(self) -> str:
        return f"<EventStream {self._stream!r} {self.events!r}>"

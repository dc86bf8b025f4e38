"""Stream: a queue that keeps what was delivered. An append-only log with offsets, read by many, each at its own place.

Upstream: broker/channel.py, as for any queue.  Downstream: the store, for every message.
Blocked: when the store is out of credit; it works on, but defers its grants.

A turn: give what came its offsets and cast it to the store; deliver to every consumer what is synced, from where its
cursor stands. Nobody sees a message before it is synced, so an offset that was seen means the same message for ever.
Not here: files and retention (store/stream.py), a consumer's place (cursor.py), where it begins (whence.py).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final

from penstock.amqp.close import NOT_IMPLEMENTED, CloseConnection
from penstock.amqp.content import build_basic
from penstock.amqp.decoder import Message, Publish
from penstock.amqp.method import BasicPublish, Method, QueueDeclareOk, encode_method
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.publish import from_origin
from penstock.amqp.stamp import Stamp
from penstock.amqp.table import Table
from penstock.broker.activity import STREAM
from penstock.broker.casts import Arrival, Cast, Count, Delete, Settled, Subscribe, Unsubscribe
from penstock.broker.consumer import Consumer
from penstock.broker.cursor import Chunk, Cursor
from penstock.broker.duplicates import Duplicates
from penstock.broker.options import Options
from penstock.broker.producers import Publishing, highest
from penstock.broker.queue import Queue
from penstock.broker.whence import OFFSET_HEADER, whence
from penstock.credit import BlockLog, Link
from penstock.runtime import Scheduler, Timer
from penstock.store.store import MessageStore
from penstock.store.stream import SEGMENT_BYTES, Append, Read, StreamFound, StreamLog

if TYPE_CHECKING:
    from penstock.broker.channel import Channel

RECENT_BYTES_MAX: Final = 4_194_304  # of what came last, kept in RAM while somebody consumes
CHUNK_BYTES: Final = 65_536  # smaller arrivals are joined, so that few chunks have to be looked through
ORIGINS_MAX: Final = 1024  # remembered; most streams have a few
RETRY_S: Final = 1.0  # until a read that the disk refused is tried again
_pack_offset = Struct(">cq").pack
_QUERY_FRAME_BYTES: Final = 4096  # an answer to a query is far smaller


class Stream(Queue):
    __slots__ = (
        "_cursors",
        "_link",
        "_origins",
        "_recent",
        "_retry",
        "_stamp",
        "_store",
        "log",
        "recent_bytes",
        "settled_count",
    )

    def __init__(
        self,
        name: str,
        vhost_name: str,
        scheduler: Scheduler,
        on_delete: Callable[[Queue], None],
        arguments: Table,
        block_log: BlockLog | None,
        options: Options,
        store: MessageStore,
        log: StreamLog,
    ) -> None:
        super().__init__(
            name,
            vhost_name,
            scheduler,
            on_delete,
            durable=True,
            arguments=arguments,
            block_log=block_log,
            options=options,
        )
        self.kind = STREAM
        self.log = log
        self.settled_count = 0
        log.owner = self
        self._store = store
        self._link: Link | None = None
        self._cursors: dict[Consumer, Cursor] = {}
        self._stamp = Stamp(OFFSET_HEADER)
        self._origins: dict[bytes, Publish] = {}
        self._recent: deque[Chunk] = deque()
        self.recent_bytes = 0
        self._retry: Timer | None = None
        if log.producers:
            self.duplicates = Repeats(self, store)
            self.duplicates.producers.restore(log.producers)
        self._bound_log()

    def _bound_log(self) -> None:
        """Tell the store how much is kept."""
        self.log.max_bytes = self.options.max_length_bytes
        self.log.max_age_ms = self.options.max_age_ms
        self.log.segment_bytes = self.options.segment_bytes or SEGMENT_BYTES

    def apply(self, options: Options) -> None:
        self.options = options
        self._bound_log()

    def _where(self) -> str:
        return f"queue '{self.queue_name}' in vhost '{self.vhost_name}'"

    def refusal(self, what: str) -> CloseConnection:
        """Of a method that makes no sense here."""
        return CloseConnection(NOT_IMPLEMENTED, f"{what} not supported by stream queues {self._where()}")

    def check_consumer(self, consumer: Consumer) -> None:
        whence(self._where(), consumer.arguments, consumer.no_ack, consumer.prefetch)

    # The stage.

    def take(self, item: Cast) -> int:
        if type(item) is Arrival:
            if item.publishings is None:
                self.arrive(item)
            else:
                self._arrive_once(item)
            return len(item.messages)
        if type(item) is Settled:  # however it was: its consumer has room again, and nothing else comes of it
            self.settled_count += len(item.positions)
            return len(item.positions)
        if isinstance(item, Subscribe):
            self._subscribe(item)
        elif isinstance(item, Unsubscribe):
            self._cursors.pop(item.consumer, None)
            self._unsubscribe(item)
            self._forget_recent()
        elif isinstance(item, Count):
            item.channel.answer(
                None if item.nowait else QueueDeclareOk(self.queue_name, self.count(), len(self.subscribers))
            )
        elif isinstance(item, Delete):
            self._delete(item)
        return 1

    def finish(self, budget: int) -> int:
        if self.mailbox.holds:
            return 0
        given = 0
        for cursor in list(self._cursors.values()):
            if given >= budget:
                break
            given += cursor.advance(budget - given)
            if cursor.is_done():
                self._end_consumer(cursor.consumer)
        self.delivered_count += given
        if given >= budget and self._cursors:
            # Who was served last time comes last this time.
            first = next(iter(self._cursors))
            self._cursors[first] = self._cursors.pop(first)
            self.mailbox.wake()
        return given

    def count(self) -> int:
        return self.log.synced - self.log.first

    def acked_count(self) -> int:
        return self.settled_count

    def purge(self) -> int:
        """A stream is emptied by retention only."""
        return 0

    # Messages in.

    def arrive(self, item: Arrival) -> Arrival:
        """Take these messages; a stream refuses none."""
        count = len(item.messages)
        if item.link is not None:
            item.link.handle(count, item.bytes)
        self.published_count += count
        log = self.log
        first = log.end
        messages = self._number(item.messages, first)
        size = sum([len(wire) for _, wire in messages])
        log.end += count
        if self._link is None:
            self._link = self._store.link(self)
        pending = Appended(self, item, Chunk(first, messages, size))
        marks = highest(item.publishings) if item.publishings is not None else None
        self._store.streams.append(Append(log, self._link, first, messages, size, _now_ms(), pending, marks))
        return item

    def _arrive_once(self, item: Arrival) -> None:
        """Some of these are numbered by their producers: what was taken before is not taken again."""
        if self.duplicates is None:
            self.duplicates = Repeats(self, self._store)
        self.duplicates.arrive(item)

    def _number(self, messages: list[Message], first: int) -> list[Message]:
        """Every message carries its offset from now on, so that it is delivered to every reader as it is stored."""
        offsets = [_pack_offset(b"l", offset) for offset in range(first, first + len(messages))]
        return self._stamp.put_each(messages, offsets)

    def is_on_disk(self, item: Arrival, chunk: Chunk) -> None:
        """From the store: these are synced, and can be read."""
        if self._cursors:
            self._remember(chunk)
        self.confirm(item, ())
        if item.burial is not None:
            item.burial.arrived()

    def appended(self) -> None:
        """From the store: there is more to deliver."""
        if self._cursors:
            self.mailbox.wake()

    def retained(self) -> None:
        """From the store: the oldest messages are gone. Cursors find out when they read."""

    # What came last, in RAM.

    def _remember(self, chunk: Chunk) -> None:
        recent = self._recent
        last = recent[-1] if recent else None
        if last is not None and last.end() != chunk.first:
            recent.clear()
            self.recent_bytes = 0
            last = None
        if last is not None and last.bytes < CHUNK_BYTES:
            last.messages += chunk.messages
            last.bytes += chunk.bytes
        else:
            recent.append(Chunk(chunk.first, list(chunk.messages), chunk.bytes))
        self.recent_bytes += chunk.bytes
        while self.recent_bytes > RECENT_BYTES_MAX and len(recent) > 1:
            self.recent_bytes -= recent.popleft().bytes

    def _forget_recent(self) -> None:
        if not self._cursors:
            self._recent.clear()
            self.recent_bytes = 0

    def recent(self, offset: int) -> Chunk | None:
        """The chunk in RAM that has this offset."""
        recent = self._recent
        if not recent or offset < recent[0].first:
            return None
        for chunk in reversed(recent):
            if offset >= chunk.first:
                return chunk if offset < chunk.end() else None
        return None

    # What is read from disk.

    def read(self, read: Read) -> None:
        self._store.streams.read(read)

    def was_read(self, read: Read) -> None:
        if read.trouble:
            if self._retry is None:
                self._retry = self._clock.call_later(RETRY_S, self._try_again)
        else:
            self.mailbox.wake()

    def _try_again(self) -> None:
        self._retry = None
        self.mailbox.wake()

    def chunks(self, found: StreamFound) -> list[Chunk]:
        """As messages: one chunk, or several if something between is damaged."""
        chunks: list[Chunk] = []
        messages: list[Message] = []
        size = 0
        offset = found.first
        at = 0
        for count, origin in found.origins:
            publish = self._origin(origin)
            for content in found.contents[at : at + count]:
                if content is not None:
                    messages.append((publish, content))
                    size += len(content)
                elif messages:
                    chunks.append(Chunk(offset - len(messages), messages, size))
                    messages, size = [], 0
                offset += 1
            at += count
        if messages:
            chunks.append(Chunk(offset - len(messages), messages, size))
        return chunks

    def _origin(self, origin: bytes) -> Publish:
        publish = self._origins.get(origin)
        if publish is None:
            if len(self._origins) >= ORIGINS_MAX:
                self._origins.clear()
            publish = self._origins[origin] = from_origin(origin)
        return publish

    # Consumers.

    def _subscribe(self, item: Subscribe) -> None:
        consumer = item.consumer
        super()._subscribe(item)
        if not consumer.active:  # its channel closed in the meantime, or it was refused
            return
        asked = whence(self._where(), consumer.arguments, consumer.no_ack, consumer.prefetch)
        first = asked.resolve(self.log, _now_ms())
        if asked.is_query:
            self._answer_query(consumer, first)
        else:
            self._cursors[consumer] = Cursor(self, consumer, first, asked.stop)

    def _answer_query(self, consumer: Consumer, offset: int) -> None:
        """One message that says where the stream begins and ends, and what was meant by the offset asked for."""
        headers: Table = {
            "x-stream-first-offset": self.log.first,
            "x-stream-next-offset": self.log.synced,
            OFFSET_HEADER: offset,
        }
        publish = Publish(consumer.channel.number, encode_method(BasicPublish("", self.queue_name), 0)[7:-1])
        properties = encode_properties(Properties(headers=headers))
        wire = build_basic(consumer.channel.number, properties, b"", _QUERY_FRAME_BYTES)
        consumer.deliver((offset,), ((publish, wire),), False)
        self._end_consumer(consumer)

    def _end_consumer(self, consumer: Consumer) -> None:
        """It has got all it asked for."""
        self._cursors.pop(consumer, None)
        self.subscribers.remove(consumer)
        consumer.active = False
        consumer.channel.cancelled(consumer)
        self._forget_recent()

    # The end.

    def _end(self, asker: Channel | None, ok: Method | None) -> None:
        super()._end(asker, ok)
        self._cursors.clear()
        self._forget_recent()
        self._link = None
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self.log.owner = None
        self._store.streams.forget(self.log)

    def __repr__(self) -> str:
        return f"<Stream {self.queue_name} first={self.log.first} next={self.log.synced} cursors={len(self._cursors)}>"


class Repeats(Duplicates):
    """Of a stream: whatever it has taken goes to the disk, so the disk is always waited for."""

    __slots__ = ("_store",)

    def __init__(self, stream: Stream, store: MessageStore) -> None:
        super().__init__(stream)
        self._store = store

    def _confirm(self, channel: Channel, known: list[tuple[int, Publishing]]) -> None:
        numbers = [(number, number) for number, _ in known]
        self._store.when_synced(partial(channel.confirmed, numbers))


class Appended:
    """What waits for an append to be synced: its confirms, and whoever reads."""

    __slots__ = ("_arrival", "_chunk", "_is_doubtful", "_stream")

    def __init__(self, stream: Stream, arrival: Arrival, chunk: Chunk) -> None:
        self._stream = stream
        self._arrival = arrival
        self._chunk = chunk
        self._is_doubtful = False

    def kept(self) -> None:
        if self._is_doubtful:
            self._arrival.numbers = []  # they were refused
        self._stream.is_on_disk(self._arrival, self._chunk)

    def doubted(self) -> None:
        """One nack, whatever follows: the publisher must not believe what we cannot know."""
        if not self._is_doubtful:
            self._is_doubtful = True
            channel = self._arrival.channel
            if channel is not None and self._arrival.numbers:
                channel.refused(self._arrival.numbers)


def _now_ms() -> int:
    return int(time.time() * 1000)

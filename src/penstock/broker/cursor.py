"""Cursor: one consumer's place in a stream. Every consumer has its own, so none disturbs another.

Place in the chain: inside stream.py, on the way to consumer.py. What is due next is in the stream's memory of what came
last, or is read from disk ahead of the consumer: one read at a time, and never more than READ_AHEAD_BYTES wait here.
Full: as its consumer is. A consumer with a stop offset is ended when all below it is delivered.
Not here: reading files (store/streams.py), prefetch (consumer.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.amqp.decoder import Message
from penstock.broker.consumer import Consumer
from penstock.store.stream import Read

if TYPE_CHECKING:
    from penstock.broker.stream import Stream

READ_BYTES: Final = 262_144  # in one read: some hundred microseconds
READ_AHEAD_BYTES: Final = 524_288  # below this the next read begins
GIVE_BYTES_MAX: Final = 262_144  # to one consumer in one round: about what a socket takes at once


class Chunk:
    """Messages with consecutive offsets, in RAM. It may grow at its end while others read it."""

    __slots__ = ("bytes", "first", "messages")

    def __init__(self, first: int, messages: list[Message], bytes_: int) -> None:
        self.first = first
        self.messages = messages
        self.bytes = bytes_

    def end(self) -> int:
        return self.first + len(self.messages)


class Cursor:
    __slots__ = ("_ahead", "_ahead_bytes", "_read", "consumer", "next", "stop", "stream")

    def __init__(self, stream: Stream, consumer: Consumer, first: int, stop: int) -> None:
        self.stream = stream
        self.consumer = consumer
        self.next = first  # offset that is delivered next
        self.stop = stop
        self._ahead: deque[Chunk] = deque()  # read from disk
        self._ahead_bytes = 0
        self._read: Read | None = None  # under way

    def is_done(self) -> bool:
        return self.next >= self.stop

    def advance(self, budget: int) -> int:
        """Deliver what the consumer has room for, at most so many; how many."""
        given = 0
        while given < budget and not self.is_done():
            chunk = self._chunk()
            if chunk is None:
                break
            room = self.consumer.room()
            if room <= 0:
                break
            given += self._give(chunk, min(room, budget - given, self.stop - self.next))
        if not self.is_done():
            self._read_ahead()
        return given

    def _chunk(self) -> Chunk | None:
        """What has the next message, if it is in RAM."""
        while self._ahead:
            chunk = self._ahead[0]
            if self.next < chunk.end():
                # Something between may be damaged, or dropped by retention: it goes on behind it.
                self.next = max(self.next, chunk.first)
                return chunk
            self._ahead.popleft()
            self._ahead_bytes -= chunk.bytes
        return self.stream.recent(self.next)

    def _give(self, chunk: Chunk, limit: int) -> int:
        at = self.next - chunk.first
        messages: Sequence[Message] = chunk.messages[at : at + limit]
        size = 0
        for count, message in enumerate(messages, 1):
            size += len(message[1])
            if size >= GIVE_BYTES_MAX:
                messages = messages[:count]
                break
        count = len(messages)
        self.consumer.deliver(range(self.next, self.next + count), messages, False)
        self.next += count
        return count

    def _read_ahead(self) -> None:
        if self._read is not None or self._ahead_bytes >= READ_AHEAD_BYTES:
            return
        offset = max(self.next, self._ahead[-1].end() if self._ahead else 0)
        log = self.stream.log
        if offset >= min(log.synced, self.stop) or self.stream.recent(offset) is not None:
            return
        if not self._ahead and self.consumer.room() <= 0:
            return  # nobody waits for it
        self._read = Read(self, log, offset, READ_BYTES)
        self.stream.read(self._read)

    def fetched_stream(self, read: Read) -> None:
        """From the store: what was read."""
        if self._read is not read:
            return
        self._read = None
        if not self.consumer.active or self.stream.deleted:
            return
        for found in read.found:
            for chunk in self.stream.chunks(found):
                if chunk.end() > self.next:
                    self._ahead.append(chunk)
                    self._ahead_bytes += chunk.bytes
        if not read.found and not read.trouble:
            # Nothing whole is left of it: it was dropped by retention, or is damaged.
            before, self.next = self.next, max(self.next, read.next, self.stream.log.first)
            if self.next == before:
                read.trouble = "nothing is there to be read"  # not again at once
        self.stream.was_read(read)

    def __repr__(self) -> str:
        return f"<Cursor {self.consumer.tag!r} next={self.next} ahead={self._ahead_bytes}>"

"""Load: publishers and consumers on raw sockets, each a thread.

Threads and processes measured alike (0.5 µs of CPU a message either way): every call that waits lets go of the GIL,
and one call moves hundreds of messages. What costs is waking up: a consumer sets SO_RCVLOWAT, so that the kernel wakes
it once for some hundred deliveries and not for each segment. That alone took it from 2.2 to 0.5 µs a message.
A publisher never runs further ahead of the consumers than BACKLOG_MESSAGES_MAX; else only the broker's back-pressure
holds it.
Not here: what is declared (site.py), which load makes which figure (scenario.py).
"""

import itertools
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

from penstock.client.connection import Channel, ClientError
from penstock.perf.block import Block, NotADelivery, acks, check_delivery, delivery_bytes
from penstock.perf.confirm import Confirms, NotConfirmed

RING_BYTES = 1 << 20  # one read takes what has come; more than fits a receive buffer is never there
RING_DELIVERIES_MIN = 4
CHECKED_DELIVERIES_MAX = 1000  # at the end of a run, of those that are still in the ring
IDLE_S = 0.1  # how long a waiting consumer sleeps before it looks whether the run is over
SEND_TIMEOUT_S = 30  # a broker that takes nothing for so long will take nothing more
STALL_S = 20  # no delivery for so long while some are due: they are lost
BACKLOG_MESSAGES_MAX = 100_000  # deep enough that no broker's consumer runs dry, shallow enough for any memory
BACKLOG_BYTES_MAX = 100_000_000
BACKLOG_POLL_S = 0.005
CONFIRM_RECV_BYTES = 65_536


class LoadError(Exception):
    """The run is worth no number; the text is one line that says why."""


class Worker(threading.Thread, ABC):
    """A thread on one connection. `error` is what ended it before its time."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(daemon=True)
        self.channel = channel
        self.socket = channel.connection.socket
        self.error: str | None = None
        self.stopping = False

    def run(self) -> None:
        try:
            self.work()
        except BlockingIOError:
            self.error = f"the broker took nothing for {SEND_TIMEOUT_S} s"
        except OSError as error:
            self.error = f"connection lost: {error.strerror or error}"
        except (LoadError, NotADelivery, NotConfirmed, ClientError) as error:
            self.error = str(error)

    @abstractmethod
    def work(self) -> None:
        """What the thread does until `stopping`."""

    def abort(self) -> None:
        """End the thread, wherever it waits."""
        self.stopping = True
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # already gone
        if self.is_alive():
            self.join()

    def settle(self) -> None:
        """After the thread: close the channel. One delivery too many, or a complaint of the broker, shows here."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        _set_timeout(self.socket, socket.SO_RCVTIMEO, STALL_S)
        try:
            self.channel.close()
        except ClientError as error:
            raise LoadError(str(error)) from None


class Consumer(Worker):
    """Counts deliveries of one size, acks them in batches (0: the queue was consumed without acks)."""

    def __init__(self, channel: Channel, body_bytes: int, batch: int, wake: int) -> None:
        super().__init__(channel)
        self.body_bytes = body_bytes
        self.batch = batch
        self.wake = wake  # deliveries to sleep for; at most half the prefetch, or the broker would run dry
        self.received = 0
        self.cycle = 0  # messages after which the publisher begins again; 0 if their order is not known
        self.expected = -1  # how many come in all, as soon as that is known

    def work(self) -> None:
        _set_timeout(self.socket, socket.SO_RCVTIMEO, IDLE_S)
        _set_timeout(self.socket, socket.SO_SNDTIMEO, SEND_TIMEOUT_S)
        start = self._first()
        if start:
            self._count(start, delivery_bytes(start))

    def _first(self) -> bytearray:
        """What was read until the first delivery was whole; empty if the run ended before."""
        start = bytearray(self.channel.connection.take_unread())
        while not delivery_bytes(start):
            if self.expected == 0:
                return bytearray()
            start += self._recv(65_536)
        check_delivery(bytes(start[: delivery_bytes(start)]), 1, self.body_bytes, self.cycle)
        return start

    def _count(self, start: bytearray, size: int) -> None:
        # The ring holds a whole number of deliveries, so each lies in one piece and the last can be checked afterwards.
        ring = bytearray(size * max(RING_DELIVERIES_MIN, RING_BYTES // size, len(start) // size + 1))
        ring[: len(start)] = start
        view = memoryview(ring)
        self._wake_at(self.wake * size)
        recv_into = self.socket.recv_into
        batch = self.batch
        total = at = len(start)
        acked = 0
        while True:
            done = total // size
            if batch and done - acked >= batch:
                frames, acked = acks(acked, done, batch)
                self.socket.sendall(frames)
            self.received = done
            if self.expected >= 0:
                if done >= self.expected:
                    break
                if self.expected - done <= self.wake:  # the tail may be less than what we sleep for
                    self._wake_at(self.expected * size - total)
            try:
                got = recv_into(view[at:])
            except BlockingIOError:
                continue  # idle: look whether the run is over
            if not got:
                raise LoadError("the broker closed the connection")
            total += got
            at += got
            if at == len(ring):
                at = 0
        if total != self.expected * size:
            raise LoadError(f"{total} bytes came, {self.expected} deliveries of {size} bytes were due")
        if batch and acked < done:
            self.socket.sendall(acks(acked, done, done - acked)[0])
        for tag in range(max(1, done - min(CHECKED_DELIVERIES_MAX, len(ring) // size) + 1), done + 1):
            lies = (tag - 1) * size % len(ring)
            check_delivery(bytes(view[lies : lies + size]), tag, self.body_bytes, self.cycle)

    def _wake_at(self, size: int) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def _recv(self, size: int) -> bytes:
        try:
            found = self.socket.recv(size)
        except BlockingIOError:
            return b""
        if not found:
            raise LoadError("the broker closed the connection")
        return found


class Publisher(Worker):
    """Sends blocks, round and round, until it is stopped or has sent `limit` messages."""

    def __init__(self, channel: Channel, blocks: Sequence[Block], limit: int | None = None) -> None:
        super().__init__(channel)
        self.blocks = blocks
        self.limit = limit
        self.sent = 0
        self.copies = 1  # deliveries that one message makes
        self.cycle = sum(block.messages for block in blocks)
        self.consumers: Sequence[Consumer] = ()  # those it must not run too far ahead of

    def work(self) -> None:
        _set_timeout(self.socket, socket.SO_SNDTIMEO, SEND_TIMEOUT_S)
        first = self.blocks[0]
        backlog_max = min(BACKLOG_MESSAGES_MAX, BACKLOG_BYTES_MAX * first.messages // len(first.wire))
        sendall = self.socket.sendall
        while True:
            for block in self.blocks:
                if self.stopping or self.sent == self.limit:
                    return
                sendall(block.wire)
                self.sent += block.messages
                while self.consumers and self._backlog() > backlog_max and not self.stopping:
                    time.sleep(BACKLOG_POLL_S)

    def _backlog(self) -> int:
        return self.sent * self.copies - sum(consumer.received for consumer in self.consumers)


class ConfirmedPublisher(Publisher):
    """Sends blocks as long as no more than `window` messages are unconfirmed."""

    def __init__(self, channel: Channel, blocks: Sequence[Block], window: int, limit: int | None = None) -> None:
        super().__init__(channel, blocks, limit)
        self.window = window
        self.confirmed = 0

    def supply(self) -> Iterator[Block]:
        """The blocks in the order they are sent. It may end."""
        return itertools.cycle(self.blocks)

    def work(self) -> None:
        _set_timeout(self.socket, socket.SO_SNDTIMEO, SEND_TIMEOUT_S)
        _set_timeout(self.socket, socket.SO_RCVTIMEO, STALL_S)
        confirms = Confirms()
        supply = self.supply()
        block = next(supply, None)
        while True:
            if self.stopping or self.sent == self.limit:
                block = None
            if block and self.sent + block.messages - self.confirmed <= self.window:
                self.socket.sendall(block.wire)
                self.sent += block.messages
                block = next(supply, None)
                continue
            if not block and self.confirmed >= self.sent:
                break
            try:
                data = self.socket.recv(CONFIRM_RECV_BYTES)
            except BlockingIOError:
                raise LoadError(f"no confirm for {STALL_S} s, {self.sent - self.confirmed} are due") from None
            if not data:
                raise LoadError("the broker closed the connection")
            confirms.feed(data)
            self.confirmed = confirms.confirmed
        if self.confirmed != self.sent:
            raise LoadError(f"{self.confirmed} messages were confirmed, {self.sent} were sent")


def check(workers: Sequence[Worker]) -> None:
    """LoadError if one of them has failed."""
    for worker in workers:
        if worker.error:
            raise LoadError(worker.error)


def drain(publishers: Sequence[Publisher], consumers: Sequence[Consumer], shares: Callable[[], Sequence[int]]) -> None:
    """Stop publishing, and wait until each consumer has exactly its share; LoadError if it does not come."""
    for publisher in publishers:
        publisher.stopping = True
    for publisher in publishers:
        publisher.join()
    check(publishers)
    for consumer, count in zip(consumers, shares(), strict=True):
        consumer.expected = count
    await_all(consumers)
    check(consumers)


def await_all(consumers: Sequence[Consumer]) -> None:
    """Wait for consumers that know what to expect, as long as deliveries come."""
    seen, seen_at = -1, time.monotonic()
    while any(consumer.is_alive() for consumer in consumers):
        received = sum(consumer.received for consumer in consumers)
        if received != seen:
            seen, seen_at = received, time.monotonic()
        elif time.monotonic() > seen_at + STALL_S:
            due = sum(consumer.expected for consumer in consumers)
            raise LoadError(f"{received} messages were delivered, {due} were due; none came for {STALL_S} s")
        for consumer in consumers:
            consumer.join(IDLE_S)


def set_timeouts(sock: socket.socket, seconds: float) -> None:
    """Time-outs in the kernel, and a blocking socket: Python's own would poll before every call."""
    _set_timeout(sock, socket.SO_RCVTIMEO, seconds)
    _set_timeout(sock, socket.SO_SNDTIMEO, seconds)


def _set_timeout(sock: socket.socket, option: int, seconds: float) -> None:
    sock.settimeout(None)
    whole = int(seconds)
    sock.setsockopt(socket.SOL_SOCKET, option, struct.pack("@ll", whole, int((seconds - whole) * 1e6)))

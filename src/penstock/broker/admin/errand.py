"""Errand: a channel without a connection, by which an operator publishes and gets messages as a client would.

It goes the way of every message, so permissions, routing, limits, watermarks and the disk have their say; what the
channel answers is read from the outbox that would otherwise go to a socket. One errand is one channel, and ends with
the answer.
Place: behind Admin; broker/peer.py says what the broker sees of it. It is in no list of connections or channels.
Not here: JSON (messages.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.amqp.close import REPLY_NAMES, CloseConnection
from penstock.amqp.content import build_basic
from penstock.amqp.decoder import Acks, Command, Message, Nack, Publish, Publishes
from penstock.amqp.frame import FRAME_MAX_BYTES, HEAD, HEAD_BYTES, METHOD, OVERHEAD_BYTES
from penstock.amqp.method import (
    BasicAck,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    Method,
    decode_method,
    encode_method,
)
from penstock.broker.access import Access
from penstock.broker.admin.error import AdminError
from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.ledger import Json
from penstock.broker.outbox import Outbox
from penstock.broker.queue import Queue
from penstock.broker.vhost import VHost
from penstock.credit import Stage
from penstock.runtime import Timer

NUMBER: Final = 1  # of its only channel
NAME: Final = "management"
CONFIRM_WAIT_S: Final = 5.0  # a saturated queue holds confirms; whoever asked over HTTP is told that it is routed
GET_BYTES_MAX: Final = 8_388_608  # in one answer: what can be made to JSON without keeping clients waiting

Got = tuple[BasicGetOk, bytes]  # how it came, and its content


class Errand:
    __slots__ = (
        "_broker",
        "_refusal",
        "access",
        "exclusive_queues",
        "frame_max",
        "heard",
        "is_client",
        "name",
        "notify_cancel",
        "numbers",
        "outbox",
        "reader",
        "user",
        "vhost",
    )

    def __init__(self, broker: Broker, vhost: VHost, user: str | None) -> None:
        self._broker = broker
        self.name = NAME
        self.user = user or ""
        self.vhost = vhost
        self.access = Access(broker.users, self.user, vhost.name)
        self.outbox = Outbox(self._wake)
        self.frame_max = FRAME_MAX_BYTES
        self.is_client = False
        self.notify_cancel = False
        self.numbers = False
        self.reader: Stage | None = None
        self.exclusive_queues: dict[Queue, None] = {}
        self.heard: Callable[[], None] = _nobody
        self._refusal: AdminError | None = None

    def open(self) -> Channel:
        channel = Channel(self._broker, self, NUMBER)
        channel.block_log = None  # a stage of which nobody is told: there is no connection it belongs to
        return channel

    def _wake(self) -> None:
        self._broker.scheduler.call_after_turn(self._hear)

    def _hear(self) -> None:
        self.heard()

    def said(self) -> list[tuple[Method, bytes]]:
        """What the channel has sent since the last time, each method with the content behind it. An AdminError if it
        closed itself, or its connection."""
        said = [one for frames in self.outbox.emptied() for one in _methods(frames)]
        for method, _ in said:
            if isinstance(method, ChannelClose):
                self._refuse(method.reply_code, method.reply_text)
        if self._refusal is not None:
            raise self._refusal
        return said

    def _refuse(self, code: int, text: str) -> None:
        name = REPLY_NAMES.get(code, "")
        self._refusal = AdminError(f"{code} {text}", missing=name == "NOT_FOUND", refused=name == "ACCESS_REFUSED")

    # For the broker.

    def fail(self, error: CloseConnection) -> None:
        self._refuse(error.code, error.text)

    def channel_gone(self, channel: Channel) -> None:
        self.heard = _nobody
        self.outbox.close()

    def unpark(self, channel: Channel, behind: int) -> list[Publishes]:
        return []

    def flow_state(self) -> str:
        return "running"

    def blocked_by(self) -> list[Json]:
        return []

    def parked_bytes(self) -> int:
        return 0

    def client_name(self) -> str:
        return ""

    def channel_count(self) -> int:
        return 1

    def octets(self) -> tuple[int, int, int, int]:
        return 0, 0, 0, 0

    def work(self) -> tuple[int, int, int, int]:
        return 0, 0, 0, 0

    def portrait(self) -> dict[str, Json]:
        return {}


class Posting:
    """One message, published."""

    __slots__ = ("_channel", "_done", "_errand", "_routed", "_timer")

    def __init__(self, errand: Errand, done: Callable[[bool], None]) -> None:
        self._errand = errand
        self._done = done
        self._channel = errand.open()
        self._routed = True
        self._timer: Timer | None = None

    def publish(self, exchange: str, key: str, properties: bytes, body: bytes) -> None:
        """An AdminError at once if a client's channel would be closed for it."""
        channel = self._channel
        channel.start_confirms()
        method = BasicPublish(exchange, key, mandatory=True)
        publish = Publish(NUMBER, encode_method(method, NUMBER)[HEAD_BYTES:-1])
        message: Message = publish, build_basic(NUMBER, properties, body, FRAME_MAX_BYTES)
        channel.take(Publishes(NUMBER, [message], len(message[1]), alike=True, plain=False))
        channel.finish(0)  # an unroutable one is confirmed by now
        self._errand.heard = self._hear
        self._timer = channel.mailbox.scheduler.clock.call_later(CONFIRM_WAIT_S, self._end)
        try:
            self._look()
        except AdminError:
            self._stop()
            raise

    def _hear(self) -> None:
        try:
            self._look()
        except AdminError:  # its channel was closed under it: whatever it waited for does not come
            self._end()

    def _look(self) -> None:
        for method, _ in self._errand.said():
            if isinstance(method, BasicReturn):
                self._routed = False
            elif isinstance(method, BasicNack):  # a queue takes no more
                self._routed = False
                self._end()
            elif isinstance(method, BasicAck):
                self._end()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._channel.terminate()

    def _end(self) -> None:
        if self._timer is not None:
            self._stop()
            self._done(self._routed)


class Fetching:
    """Messages that are taken from a queue one by one, and then all acked, dropped or put back."""

    __slots__ = ("_bytes", "_channel", "_count", "_done", "_errand", "_got", "_queue")

    def __init__(self, errand: Errand, queue: str, count: int, done: Callable[[list[Got], Fetching], None]) -> None:
        self._errand = errand
        self._queue = queue
        self._count = count
        self._done = done
        self._got: list[Got] = []
        self._bytes = 0
        self._channel = errand.open()

    def begin(self) -> None:
        """An AdminError at once if a client's channel would be closed for it."""
        self._errand.heard = self._hear
        self._ask()
        try:
            self._errand.said()
        except AdminError:
            self._channel.terminate()
            raise

    def _ask(self) -> None:
        self._channel.take(Command(NUMBER, BasicGet(self._queue)))

    def _hear(self) -> None:
        try:
            said = self._errand.said()
        except AdminError:  # the queue was deleted meanwhile
            self._end()
            return
        for method, content in said:
            if isinstance(method, BasicGetOk):
                self._got.append((method, content))
                self._bytes += len(content)
                if len(self._got) < self._count and self._bytes < GET_BYTES_MAX:
                    self._ask()
                else:
                    self._end()
            elif isinstance(method, BasicGetEmpty):
                self._end()

    def _end(self) -> None:
        self._errand.heard = _nobody
        self._done(self._got, self)

    def abandon(self) -> None:
        """Whoever asked waits no more: what is not settled yet goes back. As often as one likes."""
        self._errand.heard = _nobody
        self._channel.terminate()

    def ack(self) -> None:
        self._settle(Acks(NUMBER, [(0, True)]))

    def reject(self, requeue: bool) -> None:
        self._settle(Nack(NUMBER, BasicNack.ID, 0, True, requeue))

    def _settle(self, item: Acks | Nack) -> None:
        if self._channel.deliveries.unacked:
            self._channel.take(item)
        self._channel.terminate()


def _methods(frames: bytes) -> list[tuple[Method, bytes]]:
    """The methods in these frames, each with the content behind it."""
    found: list[tuple[Method, bytes]] = []
    pos = 0
    while pos < len(frames):
        _, _, size = HEAD.unpack_from(frames, pos)
        method = decode_method(frames[pos + HEAD_BYTES : pos + HEAD_BYTES + size])
        pos += size + OVERHEAD_BYTES
        start = pos
        while pos < len(frames) and frames[pos] != METHOD:
            pos += HEAD.unpack_from(frames, pos)[2] + OVERHEAD_BYTES
        found.append((method, frames[start:pos]))
    return found


def _nobody() -> None:
    """Who listens to an errand that is done."""

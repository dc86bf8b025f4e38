"""Consumer: reads a queue or stream in batches, as many deliveries at a time as have come.

Upstream: a channel of connection.py.  Downstream: Spark's readers, which turn Deliveries into columns.
A read cuts deliveries straight from the inbox: method frame, header frame and one body frame are looked at together,
and exchange, key and redelivered flag are taken from a cache by their bytes. Those that follow two with the same route
and properties of the same length are read by one call each, as long as they are like them. Anything else (a body in
several frames, a close, a heartbeat) goes frame by frame.
While a consumer is on, nothing else may read its connection: other calls need another connection.
A broker that is there but stuck is noticed while reading: after QUIET_S without a byte the consumer asks it something,
and a question of ANSWER_S without any byte is the end. A caller that does not read is never cut.
Not here: what properties mean (amqp/properties.py), offsets of streams (stream.py), reconnecting.
"""

import struct
import time
from collections import deque
from collections.abc import Iterator

from penstock.amqp.frame import BASIC_CLASS, BODY, END, END_BYTES, HEAD_BYTES, HEADER, HEARTBEAT, METHOD, OVERHEAD_BYTES
from penstock.amqp.method import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicNack,
    BasicQos,
    BasicQosOk,
    ConnectionBlocked,
    ConnectionUnblocked,
    Method,
)
from penstock.amqp.table import Table
from penstock.client.connection import Channel
from penstock.client.error import Closed

READ_BYTES_MAX = 64 * 1024 * 1024  # bodies in one read: what a batch of Spark may weigh without being asked
PREFETCH_MAX = 65_535  # basic.qos has 16 bits for it
QUIET_S = 60.0
ANSWER_S = 30.0
ROUTES_MAX = 10_000  # then the cache is begun anew: routing keys may be different for every message

_LATER = struct.Struct(">3sI4xQ")  # a header frame: kind and channel, payload size, class and weight, body size
_LATER_BYTES = 19
_TAG_BYTES = 8
_SIZE_BYTES = 8

Route = tuple[bool, str, str]  # redelivered, exchange, routing key
Delivery = tuple[int, Route, bytes, bytes]  # delivery tag, route, properties, body
_NO_ROUTE: Route = (False, "", "")


class Deliveries:
    """What one read brought: lists of the same length, one entry for each delivery, in the order they came."""

    __slots__ = ("bodies", "bytes", "exchanges", "headers", "redelivered", "routing_keys", "tags")

    def __init__(self) -> None:
        self.tags: list[int] = []
        self.redelivered: list[bool] = []
        self.exchanges: list[str] = []
        self.routing_keys: list[str] = []
        self.headers: list[bytes] = []  # the properties as they came: flags and values (amqp/properties.py reads them)
        self.bodies: list[bytes] = []
        self.bytes = 0  # of the bodies

    def __len__(self) -> int:
        return len(self.tags)

    def __repr__(self) -> str:
        return f"<Deliveries count={len(self.tags)} bytes={self.bytes}>"

    def add(self, tag: int, route: Route, properties: bytes, body: bytes) -> None:
        self.tags.append(tag)
        self.redelivered.append(route[0])
        self.exchanges.append(route[1])
        self.routing_keys.append(route[2])
        self.headers.append(properties)
        self.bodies.append(body)
        self.bytes += len(body)

    def extend(self, more: "Deliveries") -> None:
        """With what a later read gave."""
        self.tags += more.tags
        self.redelivered += more.redelivered
        self.exchanges += more.exchanges
        self.routing_keys += more.routing_keys
        self.headers += more.headers
        self.bodies += more.bodies
        self.bytes += more.bytes

    def rows(self) -> Iterator[Delivery]:
        """One by one, as `add` takes them."""
        routes = zip(self.redelivered, self.exchanges, self.routing_keys)
        return zip(self.tags, routes, self.headers, self.bodies)


class _Coming:
    """A delivery whose content has not all come."""

    __slots__ = ("headed", "left", "parts", "properties", "route", "tag")

    def __init__(self, tag: int, route: Route) -> None:
        self.tag = tag
        self.route = route
        self.headed = False
        self.properties = b""
        self.left = 0
        self.parts: list[bytes] = []


class Consumer:
    """Consumes from one queue on one channel, from the moment it is made."""

    __slots__ = (
        "_asked_at",
        "_body_start",
        "_coming",
        "_early",
        "_first",
        "_header_start",
        "_method_start",
        "_quiet_since",
        "_routes",
        "_started",
        "channel",
        "ended",
        "prefetch",
        "queue",
        "tag",
    )

    def __init__(
        self,
        channel: Channel,
        queue: str,
        prefetch: int = 0,
        no_ack: bool = False,
        arguments: Table | None = None,
        exclusive: bool = False,
        tag: str = "",
    ) -> None:
        if not 0 <= prefetch <= PREFETCH_MAX:
            raise ValueError(f"prefetch is {prefetch}; it can be 1 to {PREFETCH_MAX}, or 0 for no limit")
        self.channel = channel
        self.queue = queue
        self.prefetch = prefetch
        self.ended = False  # the broker cancelled it, or `cancel` did: everything that was sent has been read
        self._coming: _Coming | None = None
        self._routes: dict[bytes, Route] = {}
        self._quiet_since = 0.0  # when a read found nothing for the first time since the last byte; 0 if none did
        self._asked_at = 0.0
        # What came before consume-ok: RabbitMQ begins to deliver from a stream before it says that it will.
        self._early: deque[Delivery] = deque()
        self._started = False
        channel.consumers += 1
        self.tag = tag or f"penstock-{channel.consumers}"
        number = channel.number.to_bytes(2, "big")
        raw = self.tag.encode("utf-8", "surrogateescape")
        # A delivery to this consumer: kind and channel, payload size, class, method and consumer tag; the delivery tag.
        self._first = struct.Struct(f">3sI{5 + len(raw)}sQ")
        self._method_start = (bytes((METHOD,)) + number, BasicDeliver.ID.to_bytes(4, "big") + bytes((len(raw),)) + raw)
        self._header_start = bytes((HEADER,)) + number
        self._body_start = END_BYTES + bytes((BODY,)) + number
        if prefetch:
            channel.call(BasicQos(prefetch_count=prefetch), BasicQosOk)
        channel.send(BasicConsume(queue, self.tag, no_ack=no_ack, exclusive=exclusive, arguments=arguments or {}))
        early = Deliveries()
        while not self._started:
            self._heed(early, *channel.connection.read_frame())
        self._early.extend(early.rows())

    def __repr__(self) -> str:
        return f"<Consumer {self.tag} of {self.queue} prefetch={self.prefetch} ended={self.ended}>"

    def read(self, limit: int, wait_s: float, bytes_max: int = READ_BYTES_MAX) -> Deliveries:
        """What has come: at most `limit` deliveries, and no more once their bodies are `bytes_max` or above.

        Waits for the first one up to `wait_s`; none in that time, or `ended`, is an empty result."""
        got = Deliveries()
        while self._early and len(got) < limit and got.bytes < bytes_max:
            got.add(*self._early.popleft())
        inbox = self.channel.connection.inbox
        deadline = time.monotonic() + wait_s
        try:
            while True:
                if self.ended or len(got) >= limit or got.bytes >= bytes_max or self._take(got, limit, bytes_max):
                    return got
                while not inbox.ready():
                    inbox.wait_at_most(0 if got else max(0.0, deadline - time.monotonic()))
                    if inbox.receive():
                        self._quiet_since = self._asked_at = 0.0
                        continue
                    if got:
                        return got
                    now = time.monotonic()
                    if now >= deadline:
                        self._quiet(now)
                        return got
        finally:
            inbox.wait_at_most(self.channel.connection.timeout_s)

    def ack(self, tag: int, multiple: bool = True) -> None:
        """Ack this delivery, and with `multiple` all before it."""
        self.channel.send(BasicAck(tag, multiple))

    def nack(self, tag: int, multiple: bool = True, requeue: bool = True) -> None:
        """Give this delivery back, and with `multiple` all before it that were not acked."""
        self.channel.send(BasicNack(tag, multiple, requeue))

    def cancel(self) -> Deliveries:
        """End it; what was still under way. Unacked deliveries stay so until the channel closes."""
        got = Deliveries()
        while self._early:
            got.add(*self._early.popleft())
        if self.ended:
            return got
        self.channel.send(BasicCancel(self.tag))
        while not self._heed(got, *self.channel.connection.read_frame()):
            pass
        return got

    def _take(self, got: Deliveries, limit: int, bytes_max: int) -> bool:
        """Take what is whole from the inbox, whose `need` says what the next takes; True if the consumer ended."""
        inbox = self.channel.connection.inbox
        tags, redelivered, exchanges = got.tags, got.redelivered, got.exchanges
        routing_keys, headers, bodies = got.routing_keys, got.headers, got.bodies
        method_start, ident = self._method_start
        header_start, body_start = self._header_start, self._body_start
        first, later, routes = self._first.unpack_from, _LATER.unpack_from, self._routes
        first_bytes = self._first.size
        body_max = inbox.frame_max - OVERHEAD_BYTES
        data, at, end = inbox.buffer, inbox.at, len(inbox.buffer)
        body_size, body_head = -1, b""
        last_size, last_route = -1, _NO_ROUTE
        total = got.bytes
        while len(tags) < limit and total < bytes_max:
            if self._coming is None and end - at > first_bytes + _LATER_BYTES:
                start, size, name, tag = first(data, at)
                header_at = at + size + OVERHEAD_BYTES
                if start == method_start and name == ident and header_at + _LATER_BYTES <= end:
                    start, size, length = later(data, header_at)
                    body_at = header_at + size + OVERHEAD_BYTES
                    stop = body_at + length + OVERHEAD_BYTES
                    if length != body_size and 0 < length <= body_max:
                        body_size, body_head = length, body_start + length.to_bytes(4, "big")
                    if (
                        length == body_size
                        and stop <= end
                        and start == header_start
                        # The end of the header frame and the head of the body frame in one go.
                        and data.startswith(body_head, body_at - 1)
                        and data[stop - 1] == END
                    ):
                        route = routes.get(data[at + first_bytes : header_at])
                        if route is None:
                            route = self._route(data[at + HEAD_BYTES : header_at - 1])
                        tags.append(tag)
                        redelivered.append(route[0])
                        exchanges.append(route[1])
                        routing_keys.append(route[2])
                        headers.append(data[header_at + _LATER_BYTES : body_at - 1])
                        bodies.append(data[body_at + HEAD_BYTES : stop - 1])
                        total += length
                        begun, at = at, stop
                        if route is last_route and size == last_size and len(tags) < limit:
                            got.bytes = total
                            at = self._take_run(got, limit, bytes_max, begun, header_at, size, at)
                            total = got.bytes
                        last_size, last_route = size, route
                        continue
            # In pieces, in several body frames, without a body, or no delivery at all: one frame at a time.
            inbox.at, got.bytes = at, total
            frame = inbox.next_frame()
            if frame is None:
                return False
            if self._heed(got, *frame):
                return True
            at, total = inbox.at, got.bytes
        inbox.at, got.bytes = at, total
        return False

    def _take_run(
        self, got: Deliveries, limit: int, bytes_max: int, begun: int, header_at: int, size: int, at: int
    ) -> int:
        """Take deliveries from `at` on that are like the last one, which is at `begun`, but for their tag, their body
        and its size, and the values of their properties; where the first other one is."""
        data, end = self.channel.connection.inbox.buffer, len(self.channel.connection.inbox.buffer)
        opening = self._body_start
        start = data[begun : begun + self._first.size - _TAG_BYTES]
        middle = data[begun + self._first.size : header_at + _LATER_BYTES - _SIZE_BYTES]
        # Up to the tag, the tag, up to the body size, that size, the properties, up to the size of the body frame.
        form = f">{len(start)}sQ{len(middle)}sQ{size - _LATER_BYTES + HEAD_BYTES}s{len(opening)}sI"
        layout = struct.Struct(form)
        unpack, fixed_bytes = layout.unpack_from, layout.size
        tags, headers, bodies = got.tags, got.headers, got.bodies
        before, total = len(tags), got.bytes
        for _ in range(limit - before):
            if total >= bytes_max or end - at <= fixed_bytes:
                break
            its_start, tag, its_middle, length, properties, its_opening, frame_bytes = unpack(data, at)
            body_at = at + fixed_bytes
            stop = body_at + length
            if (
                its_middle != middle
                or its_start != start
                or its_opening != opening
                or frame_bytes != length  # or the body comes in several frames
                or stop >= end
                or data[stop] != END
            ):
                break
            tags.append(tag)
            headers.append(properties)
            bodies.append(data[body_at:stop])
            total += length
            at = stop + 1
        got.bytes = total
        count = len(tags) - before
        got.redelivered += [got.redelivered[-1]] * count
        got.exchanges += [got.exchanges[-1]] * count
        got.routing_keys += [got.routing_keys[-1]] * count
        return at

    def _route(self, payload: bytes) -> Route:
        """The route in the payload of a basic.deliver, kept for the next."""
        method = self.channel.connection.heard(self.channel.number, payload)
        assert isinstance(method, BasicDeliver)
        route = (method.redelivered, method.exchange, method.routing_key)
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[payload[self._first.size - HEAD_BYTES :] + END_BYTES] = route
        return route

    def _heed(self, got: Deliveries, kind: int, number: int, payload: bytes) -> bool:
        """Do what a frame says; True if the consumer ended by it."""
        connection = self.channel.connection
        if kind == HEARTBEAT:
            return False
        if kind == METHOD:
            self._hear(connection.heard(number, payload), number)
            return self.ended
        coming = self._coming
        if coming is None or number != self.channel.number or kind != (BODY if coming.headed else HEADER):
            raise Closed(f"{connection.uri.address} sent content on channel {number} where none was due")
        if kind == HEADER:
            coming.headed = True
            coming.left = int.from_bytes(payload[4:12], "big")
            coming.properties = payload[12:]
            if int.from_bytes(payload[:2], "big") != BASIC_CLASS:
                raise Closed(f"{connection.uri.address} sent content of another class than basic")
        else:
            coming.parts.append(payload)
            coming.left -= len(payload)
        if coming.left < 0:
            raise Closed(f"{connection.uri.address} sent {-coming.left} bytes more than the body has")
        if not coming.left:
            body = coming.parts[0] if len(coming.parts) == 1 else b"".join(coming.parts)
            got.add(coming.tag, coming.route, coming.properties, body)
            self._coming = None
        return False

    def _hear(self, method: Method, number: int) -> None:
        address = self.channel.connection.uri.address
        if isinstance(method, ConnectionBlocked | ConnectionUnblocked):
            return
        if number != self.channel.number or self._coming is not None:
            raise Closed(f"{address} sent {method.NAME} on channel {number} where a delivery was due")
        if isinstance(method, BasicDeliver) and method.consumer_tag == self.tag:
            self._coming = _Coming(method.delivery_tag, (method.redelivered, method.exchange, method.routing_key))
        elif isinstance(method, BasicCancel | BasicCancelOk) and method.consumer_tag == self.tag:
            self.ended = True
            if isinstance(method, BasicCancel) and not method.nowait:
                self.channel.send(BasicCancelOk(self.tag))
        elif isinstance(method, BasicConsumeOk) and not self._started:
            self._started = True
        elif not isinstance(method, BasicQosOk):  # that is the answer to `_quiet`
            raise Closed(f"{address} sent {method.NAME} on channel {number} where a delivery was due")

    def _quiet(self, now: float) -> None:
        """A read found nothing. Whether the broker lives is asked once in a while, and an answer waited for.

        What counts is that a read just now found nothing: however long the caller was away, an answer that came
        meanwhile would have been there."""
        if not self._quiet_since:
            self._quiet_since = now
        elif self._asked_at:
            if now - self._asked_at >= ANSWER_S:
                address = self.channel.connection.uri.address
                raise Closed(f"connection to {address} lost: it has not answered for {now - self._asked_at:.0f} s")
        elif now - self._quiet_since >= QUIET_S:
            # The least of all questions: what it sets counts for consumers that are yet to come.
            self.channel.send(BasicQos(prefetch_count=self.prefetch))
            self._asked_at = now

"""Channel: routes publishes to queues, keeps track of deliveries and confirms. The second stage.

Upstream: net/reader.py.  Downstream: broker/queue.py.
Blocked: when one of the queues it publishes to is out of credit; it works on, but defers its grants to the reader.
Not here: what each method other than publish, ack and nack does (command.py), deliver frames (consumer.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.amqp import content
from penstock.amqp.close import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    NO_ROUTE,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    CloseChannel,
    CloseConnection,
)
from penstock.amqp.decoder import Acks, Command, Item, Message, Nack, Oversize, Publish, Publishes, within
from penstock.amqp.method import (
    BasicAck,
    BasicCancel,
    BasicGetEmpty,
    BasicGetOk,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    Method,
    encode_method,
)
from penstock.amqp.properties import decode_properties
from penstock.broker import command
from penstock.broker.casts import Arrival, Cast, Settled, Unsubscribe
from penstock.broker.confirms import Confirms
from penstock.broker.consumer import Consumer
from penstock.broker.limiter import Limiter
from penstock.broker.rules import check_rules
from penstock.credit import Link, Stage
from penstock.runtime import Mailbox

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.peer import Peer
    from penstock.broker.queue import Queue
    from penstock.broker.vhost import Route

ROUTES_MAX: Final = 2048  # cached routes per channel; then forgotten all at once

WAITING_LOW: Final = 2048  # items left in the mailbox when a waiting reader may go on

RUNNING: Final = "running"
CLOSING: Final = "closing"  # we sent channel.close; all but close-ok is ignored
CLOSED: Final = "closed"


class Confirmed:
    """From a queue: it has taken these numbers, runs of first and last."""

    __slots__ = ("numbers",)

    def __init__(self, numbers: list[tuple[int, int]]) -> None:
        self.numbers = numbers


class Shutdown:
    """From the connection: it ends; finish what was sent before and go."""

    __slots__ = ()


ChannelItem = Item | Confirmed | Shutdown


class Channel(Stage):
    __slots__ = (
        "_current",
        "_getters",
        "_oldest",
        "_queue_hop",
        "_routes",
        "confirms",
        "consumers",
        "deliveries_paused",
        "frame_max",
        "last_queue",
        "limiter",
        "mailbox",
        "next_tag",
        "number",
        "outbox",
        "peer",
        "prefetch",
        "reader_link",
        "relieve",
        "state",
        "unacked",
        "vhost",
    )

    def __init__(self, broker: Broker, peer: Peer, number: int) -> None:
        super().__init__(f"channel {peer.name} ({number})", broker.scheduler.clock.now_ns, broker.block_log)
        self.peer = peer
        self.number = number
        self.vhost = peer.vhost
        self.outbox = peer.outbox
        self.frame_max = peer.frame_max
        self.mailbox: Mailbox[ChannelItem] = Mailbox(broker.scheduler, self)
        self.mailbox.delay_us = broker.channel_delay_us
        self.state = RUNNING
        self.reader_link: Link | None = None  # set by the reader, which is upstream
        self.relieve: Mailbox[None] | None = None  # the reader's, while it waits for this mailbox to empty
        self.confirms: Confirms | None = None
        self.prefetch = 0  # for consumers still to come
        self.consumers: dict[str, Consumer] = {}
        self.limiter = Limiter(self.consumers)
        self.deliveries_paused = False
        self.last_queue = ""
        self.next_tag = 1
        self.unacked: dict[int, tuple[Consumer, int]] = {}  # delivery tag -> who got it, position in its queue
        self._oldest = 1  # no unacked tag is below
        self._getters: dict[Queue, Consumer] = {}
        self._queue_hop = broker.channel_queue
        self._routes: dict[Publish, Route] = {}
        self._current: type[Method] = Method

    # The stage.

    def take(self, item: ChannelItem) -> int:
        cost = 1
        try:
            if type(item) is Publishes:
                cost = len(item.messages)
                if self.state is RUNNING:
                    self._current = BasicPublish
                    self._publish(item)
                elif self.reader_link is not None:
                    self.reader_link.handle(cost, item.bytes)
            elif type(item) is Acks:
                cost = len(item.acks)
                if self.state is RUNNING:
                    self._current = BasicAck
                    self._ack(item)
            elif type(item) is Command:
                self._current = type(item.method)
                self._command(item.method)
            elif type(item) is Nack:
                if self.state is RUNNING:
                    self._nack(item)
            elif type(item) is Shutdown:
                self.terminate()
            elif type(item) is Oversize and self.state is RUNNING:
                self._current = BasicPublish
                raise CloseChannel(
                    PRECONDITION_FAILED, f"message size {item.size} is larger than configured max size {item.limit}"
                )
        except CloseChannel as error:
            self.fail(error)
        except CloseConnection as fatal:
            self._fail_connection(fatal)
        return cost

    def take_urgent(self, item: ChannelItem) -> None:
        if isinstance(item, Confirmed) and self.confirms is not None:
            for first, last in item.numbers:
                self.confirms.confirm(first, last)

    def finish(self, budget: int) -> int:
        if self.confirms is not None and self.state is RUNNING:
            frames = self.confirms.flush()
            if frames:
                self.outbox.send(frames)
        if self.relieve is not None and len(self.mailbox.ordinary) <= WAITING_LOW:
            reader, self.relieve = self.relieve, None
            reader.wake()
        return 0

    def send(self, method: Method) -> None:
        self.outbox.send(encode_method(method, self.number))

    # Publishes.

    def _publish(self, item: Publishes) -> None:
        """Route, number and pass on, one cast per queue."""
        arrivals: dict[Queue, Arrival] = {}
        try:
            route = self._route(item.messages[0][0]) if item.alike and item.plain else None
            if route is not None and not route.by_headers:
                self._gather_alike(item, route.queues, arrivals)
            else:
                for message in item.messages:
                    self._gather(message, item.plain, arrivals)
        finally:  # what was right before a wrong one goes its way
            self._pass_on(item, arrivals)

    def _gather_alike(self, item: Publishes, queues: tuple[Queue, ...], arrivals: dict[Queue, Arrival]) -> None:
        if not queues and item.messages[0][0].mandatory:
            for message in item.messages:
                self._return(message)
        numbers: list[tuple[int, int]] = []
        if self.confirms is not None:
            first = self.confirms.expect(len(item.messages), len(queues))
            numbers.append((first, first + len(item.messages) - 1))
        for queue in queues:
            arrivals[queue] = Arrival(self, self._link(queue), item.messages, item.bytes, numbers)

    def _gather(self, message: Message, plain: bool, arrivals: dict[Queue, Arrival]) -> None:
        route = self._route(message[0])
        if not plain:
            check_rules(message, self.peer.user)
        queues = self._queues_by_headers(message) if route.by_headers else route.queues
        if not queues and message[0].mandatory:
            self._return(message)
        number = self.confirms.expect(1, len(queues)) if self.confirms is not None else 0
        for queue in queues:
            arrival = arrivals.get(queue)
            if arrival is None:
                arrival = arrivals[queue] = Arrival(self, self._link(queue), [], 0, [])
            arrival.messages.append(message)
            arrival.bytes += len(message[1])
            if number:
                arrival.numbers.append((number, number))

    def _pass_on(self, item: Publishes, arrivals: dict[Queue, Arrival]) -> None:
        """Spend on the arrivals and handle the item, with the result that message by message would have.

        If this blocks the channel, the messages up to the one that used up the credit are granted, others deferred."""
        was_blocked = bool(self.blocked_by)
        for queue, arrival in arrivals.items():
            arrival.link.spend(len(arrival.messages), arrival.bytes)
            queue.mailbox.cast(arrival)
        upstream = self.reader_link
        if upstream is None:
            return
        if was_blocked or not self.blocked_by:
            upstream.handle(len(item.messages), item.bytes)
            return
        free = item.first(min(_free(item, arrival) for arrival in arrivals.values()))
        upstream.handle(len(free.messages), free.bytes, defer=False)
        upstream.handle(len(item.messages) - len(free.messages), item.bytes - free.bytes)

    def _link(self, queue: Queue) -> Link:
        link = self.outgoing.get(queue)
        return link if link is not None else Link(self._queue_hop, self, queue)

    def _queues_by_headers(self, message: Message) -> tuple[Queue, ...]:
        publish, wire = message
        headers = decode_properties(wire, content.FLAGS_OFFSET, content.properties_end(wire)).headers
        exchange = self.vhost.exchange(publish.exchange)
        return self.vhost.route(exchange, publish.routing_key, headers).queues

    def _route(self, publish: Publish) -> Route:
        route = self._routes.get(publish)
        if route is None or route.version != self.vhost.version:
            route = self._find_route(publish)
        return route

    def _find_route(self, publish: Publish) -> Route:
        if publish.immediate:
            raise CloseConnection(NOT_IMPLEMENTED, "immediate=true")
        exchange = self.vhost.exchange(publish.exchange)
        if exchange.internal:
            raise CloseChannel(
                ACCESS_REFUSED, f"cannot publish to internal exchange '{exchange.name}' in vhost '{self.vhost.name}'"
            )
        route = self.vhost.route(exchange, publish.routing_key, None)
        if len(self._routes) >= ROUTES_MAX:
            self._routes.clear()
        self._routes[publish] = route
        return route

    def _return(self, message: Message) -> None:
        publish, wire = message
        method = BasicReturn(NO_ROUTE, "NO_ROUTE", publish.exchange, publish.routing_key)
        self.outbox.send(encode_method(method, self.number) + content.refit(wire, self.number, self.frame_max))

    def confirmed(self, numbers: list[tuple[int, int]]) -> None:
        """Called by a queue."""
        if self.state is RUNNING:
            self.mailbox.cast_urgent(Confirmed(numbers))

    def start_confirms(self) -> None:
        if self.confirms is None:
            self.confirms = Confirms(self.number)

    # Deliveries: acked, or given back.

    def _ack(self, item: Acks) -> None:
        settled: dict[Consumer, list[int]] = {}
        try:
            for tag, multiple in item.acks:
                self._collect(tag, multiple, settled)
        finally:  # what was right before a wrong tag stays acked
            self._settle(settled, False)

    def _nack(self, item: Nack) -> None:
        settled: dict[Consumer, list[int]] = {}
        try:
            self._collect(item.tag, item.multiple, settled)
        except CloseChannel as error:
            error.class_id, error.method_id = 60, item.method_id
            raise
        self._settle(settled, item.requeue)

    def requeue_all(self) -> None:
        settled: dict[Consumer, list[int]] = {}
        if self.unacked:
            self._collect(0, True, settled)
        self._settle(settled, True)

    def _collect(self, tag: int, multiple: bool, settled: dict[Consumer, list[int]]) -> None:
        """Take the unacked deliveries that this tag means out of the list, grouped by consumer."""
        unacked = self.unacked
        if not multiple:
            entry = unacked.pop(tag, None)
            if entry is None:
                raise CloseChannel(PRECONDITION_FAILED, f"unknown delivery tag {tag}")
            consumer, position = entry
            positions = settled.get(consumer)
            if positions is None:
                settled[consumer] = [position]
            else:
                positions.append(position)
            if tag == self._oldest:
                self._oldest = tag + 1
            return
        if tag == 0:
            tag = self.next_tag - 1
        elif tag not in unacked:
            raise CloseChannel(PRECONDITION_FAILED, f"unknown delivery tag {tag}")
        last: Consumer | None = None
        positions = []
        pop = unacked.pop
        for number in range(self._oldest, tag + 1):
            entry = pop(number, None)
            if entry is None:  # acked before, alone
                continue
            consumer, position = entry
            if consumer is not last:
                last = consumer
                positions = settled.setdefault(consumer, [])
            positions.append(position)
        self._oldest = tag + 1

    def _settle(self, settled: dict[Consumer, list[int]], requeue: bool) -> None:
        for consumer, positions in settled.items():
            consumer.settled(len(positions))
            if not consumer.queue.deleted:
                consumer.queue.mailbox.cast(Settled(positions, requeue))

    # Calls to queues: the mailbox is held until the answer, so that replies keep the order of the requests.

    def call(self, queue: Queue, cast: Cast) -> None:
        self.mailbox.hold()
        queue.cast(cast)

    def answer(self, method: Method | None) -> None:
        """From a queue: the reply to the call (None with nowait)."""
        if method is not None and self.state is RUNNING:
            self.send(method)
        self.mailbox.release()

    def answer_error(self, error: CloseChannel) -> None:
        self.mailbox.release()
        self.fail(error)

    def refuse(self, consumer: Consumer, error: CloseChannel) -> None:
        """From a queue: it does not take this consumer."""
        consumer.active = False
        self.consumers.pop(consumer.tag, None)
        self.answer_error(error)

    def answer_get_empty(self) -> None:
        self.answer(BasicGetEmpty())

    def answer_get(
        self, queue: Queue, position: int, message: Message, redelivered: bool, left: int, no_ack: bool
    ) -> None:
        if self.state is RUNNING:
            publish, wire = message
            tag = self.next_tag
            self.next_tag += 1
            method = BasicGetOk(tag, redelivered, publish.exchange, publish.routing_key, left)
            self.outbox.send(encode_method(method, self.number) + content.refit(wire, self.number, self.frame_max))
            if not no_ack:
                self.unacked[tag] = (self._getter(queue), position)
        elif not no_ack:
            queue.cast(Settled([position], True))
        self.mailbox.release()

    def _getter(self, queue: Queue) -> Consumer:
        """Stands for basic.get where a delivery's consumer is asked for. Never subscribed, counted in no prefetch."""
        getter = self._getters.get(queue)
        if getter is None:
            getter = self._getters[queue] = Consumer(self, queue, "", False, False, 0, {}, counted=False)
        return getter

    def cancelled(self, consumer: Consumer) -> None:
        """From a queue: it is deleted, the consumer is gone."""
        if self.consumers.pop(consumer.tag, None) is not None and self.peer.notify_cancel and self.state is RUNNING:
            self.send(BasicCancel(consumer.tag, True))

    # The end.

    def _command(self, method: Method) -> None:
        if isinstance(method, ChannelOpen):
            raise CloseConnection(CHANNEL_ERROR, "second 'channel.open' seen")
        if isinstance(method, ChannelClose):
            if self.state is not CLOSING:  # closes that cross: ours is still to be answered
                self.terminate()
            self.send(ChannelCloseOk())
        elif self.state is RUNNING:
            command.perform(self, method)

    def is_closing(self) -> bool:
        """We sent channel.close and wait for close-ok."""
        return self.state is CLOSING

    def close_ok(self) -> None:
        """The client has answered our channel.close."""
        self._end()

    def fail(self, error: CloseChannel) -> None:
        """Close the channel with this error; from now on it waits for close-ok and ignores the rest."""
        if self.state is not RUNNING:
            return
        self.finish(0)  # confirms that are due go out before the close
        self._leave()
        self.state = CLOSING
        class_id, method_id = self._ids(error)
        self.send(ChannelClose(error.code, error.text, class_id, method_id))

    def _fail_connection(self, error: CloseConnection) -> None:
        error.class_id, error.method_id = self._ids(error)
        self.peer.fail(error)

    def _ids(self, error: CloseChannel | CloseConnection) -> tuple[int, int]:
        if error.class_id:
            return error.class_id, error.method_id
        return self._current.ID >> 16, self._current.ID & 0xFFFF

    def terminate(self) -> None:
        """Closed by the client, or with its connection."""
        if self.state is CLOSED:
            return
        self.finish(0)
        if self.state is RUNNING:
            self._leave()
        self._end()

    def _end(self) -> None:
        self.state = CLOSED
        self.mailbox.close()
        self.reader_link = None
        self.relieve = None
        self.peer.channel_gone(self)

    def _leave(self) -> None:
        """Give everything back: consumers first, or a message could go to one of them again."""
        for consumer in list(self.consumers.values()):
            consumer.active = False
            consumer.queue.cast(Unsubscribe(consumer, answer=False, nowait=True))
        self.consumers.clear()
        self.requeue_all()
        self._getters.clear()
        self._routes.clear()
        self.down()

    def __repr__(self) -> str:
        blocked_by = "{" + ", ".join(map(str, self.blocked_by)) + "}"
        return f"<Channel {self.name} {self.state} unacked={len(self.unacked)} blocked_by={blocked_by}>"


def _free(item: Publishes, arrival: Arrival) -> int:
    """How many messages of the item came before the credit for this arrival was used up, the last one included."""
    link = arrival.link
    if not link.blocking:
        return len(item.messages)
    room = link.room_before(len(arrival.messages))
    count = within(arrival.messages, arrival.bytes, room, link.room_bytes_before(arrival.bytes))
    if arrival.messages is item.messages:
        return count
    last_wire = arrival.messages[count - 1][1]
    return next(at for at, (_, wire) in enumerate(item.messages, 1) if wire is last_wire)

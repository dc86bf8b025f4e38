"""Channel: routes publishes to queues, keeps track of deliveries and confirms. The second stage.

Upstream: net/reader.py.  Downstream: broker/queue.py.
Blocked: when one of the queues it publishes to is out of credit; it works on, but defers its grants to the reader.
Not here: publishes to queues one batch at a time (gathering.py), what each method other than publish, ack and nack
does (command.py), deliver frames (consumer.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.amqp.close import CHANNEL_ERROR, PRECONDITION_FAILED, CloseChannel, CloseConnection
from penstock.amqp.decoder import Acks, Command, Item, Message, Nack, Oversize, Publishes
from penstock.amqp.method import (
    BasicAck,
    BasicCancel,
    BasicGetEmpty,
    BasicPublish,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    Method,
    TxCommitOk,
    encode_method,
)
from penstock.broker import command
from penstock.broker.casts import ACKED, REJECTED, REQUEUED, Arrival, Cast, Settled, Unsubscribe
from penstock.broker.confirms import Confirms
from penstock.broker.consumer import Consumer
from penstock.broker.deliveries import Deliveries, settle
from penstock.broker.gathering import address, gather_alike, gather_one, gather_plain
from penstock.broker.getting import deliver_got
from penstock.broker.handover import cast_all, hand_over
from penstock.broker.limiter import Limiter
from penstock.broker.notices import Confirmed, Shutdown
from penstock.broker.router import Router
from penstock.broker.tally import Tally
from penstock.broker.transaction import Transaction
from penstock.credit import Link, Stage
from penstock.runtime import Mailbox

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.peer import Peer
    from penstock.broker.queue import Queue

WAITING_LOW: Final = 2048  # items left in the mailbox when a waiting reader may go on

RUNNING: Final = "running"
CLOSING: Final = "closing"  # we sent channel.close; all but close-ok is ignored
CLOSED: Final = "closed"


ChannelItem = Item | Confirmed | Shutdown


class Channel(Stage):
    __slots__ = (
        "_behind",
        "_current",
        "_open_channels",
        "confirms",
        "consumers",
        "deliveries",
        "deliveries_paused",
        "frame_max",
        "getters",
        "last_queue",
        "limiter",
        "mailbox",
        "number",
        "outbox",
        "peer",
        "prefetch",
        "queue_hop",
        "reader_link",
        "relieve",
        "replies",
        "router",
        "state",
        "tally",
        "transaction",
        "vhost",
    )

    def __init__(self, broker: Broker, peer: Peer, number: int) -> None:
        super().__init__(f"channel {peer.name} ({number})", broker.scheduler.clock.now_ns, broker.activity, "channel")
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
        self.deliveries = Deliveries()
        self.router = Router(peer)
        self.transaction: Transaction | None = None
        self.replies: Queue | None = None  # where direct replies for this channel come
        self.getters: dict[Queue, Consumer] = {}  # they stand for basic.get (getting.py)
        self.tally = Tally()
        self.queue_hop = broker.channel_queue
        self._open_channels = broker.ack_timeout.channels
        self._open_channels[self] = None
        self._current: type[Method] = Method
        self._behind = 0  # of the item at hand

    # The stage.

    def take(self, item: ChannelItem) -> int:
        cost = 1
        try:
            if type(item) is Publishes:
                if len(item.messages) > self.mailbox.scheduler.batch_max:
                    item = self._cut(item)
                cost = len(item.messages)
                if self.state is RUNNING:
                    self._current = BasicPublish
                    self._behind = 0
                    self._publish(item)
                elif self.reader_link is not None:
                    self.reader_link.handle(cost, item.bytes)
            elif type(item) is Acks:
                cost = len(item.acks)
                if self.state is RUNNING:
                    self._current = BasicAck
                    self._behind = item.behind
                    self._ack(item)
            elif type(item) is Command:
                self._current = type(item.method)
                self._behind = item.behind
                self._command(item.method)
            elif type(item) is Nack:
                if self.state is RUNNING:
                    self._behind = item.behind
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
        awaited = self.transaction if self.transaction is not None else self.confirms
        if not isinstance(item, Confirmed) or awaited is None:
            return
        for first, last in item.numbers:
            if item.refused:
                awaited.reject(first, last)
            else:
                awaited.confirm(first, last)
        if self.transaction is not None and self.transaction.is_complete():
            self._end_commit(self.transaction)

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

    def _cut(self, item: Publishes) -> Publishes:
        """As many as a turn has time for; the rest is next. So queues get no more at a time, either."""
        head = item.cut(self.mailbox.scheduler.batch_max)
        self.mailbox.ordinary.appendleft(item)
        return head

    def _publish(self, item: Publishes) -> None:
        """Route, number and pass on, one cast per queue."""
        arrivals: dict[Queue, Arrival] = {}
        try:
            route = self.router.route(item.messages[0][0]) if item.alike and item.plain else None
            is_alike = route is not None and not route.by_headers
            if self.transaction is not None or not item.plain or (item.publishings and not is_alike):
                for at, message in enumerate(item.messages):
                    gather_one(self, message, item.plain, item.publishings[at] if item.publishings else None, arrivals)
            elif route is not None and is_alike:
                gather_alike(self, item, route, arrivals)
            else:
                gather_plain(self, item, arrivals)
        finally:  # what was right before a wrong one goes its way
            hand_over(self, self.reader_link, item, arrivals)

    def confirmed(self, numbers: list[tuple[int, int]]) -> None:
        """Called by a queue."""
        if self.state is RUNNING:
            self.mailbox.cast_urgent(Confirmed(numbers))

    def refused(self, numbers: list[tuple[int, int]]) -> None:
        """Called by a queue that takes no more."""
        if self.state is RUNNING:
            self.mailbox.cast_urgent(Confirmed(numbers, refused=True))

    def start_confirms(self) -> None:
        if self.confirms is None:
            self.confirms = Confirms(self.number)

    # Transactions.

    def start_transactions(self) -> None:
        if self.transaction is None:
            self.transaction = Transaction(self.number)

    def commit(self, transaction: Transaction) -> None:
        """Cast what was published since the last commit; commit-ok follows when all queues have it."""
        arrivals: dict[Queue, Arrival] = {}
        for posted in transaction.begin_commit():
            queues = tuple(queue for queue in posted.queues if not queue.deleted)
            address(self, posted, queues, transaction.expect(len(queues)), arrivals)
        cast_all(arrivals)
        self.mailbox.hold()
        if transaction.is_complete():
            self._end_commit(transaction)

    def _end_commit(self, transaction: Transaction) -> None:
        transaction.end_commit()
        if transaction.failed:
            self.answer_error(CloseChannel(PRECONDITION_FAILED, "partial tx completion"))
        else:
            self.answer(TxCommitOk())

    def roll_back(self, transaction: Transaction) -> None:
        self.deliveries.put_back(transaction.roll_back())

    # Deliveries: acked, or given back.

    def _ack(self, item: Acks) -> None:
        if self.transaction is not None:
            for tag, multiple in item.acks:
                self.transaction.settle(self.deliveries.take(tag, multiple), ACKED)
            return
        settled: dict[Consumer, list[int]] = {}
        try:
            for tag, multiple in item.acks:
                self.deliveries.collect(tag, multiple, settled)
        finally:  # what was right before a wrong tag stays acked
            settle(settled, ACKED)

    def _nack(self, item: Nack) -> None:
        outcome = REQUEUED if item.requeue else REJECTED
        settled: dict[Consumer, list[int]] = {}
        try:
            if self.transaction is not None:
                self.transaction.settle(self.deliveries.take(item.tag, item.multiple), outcome)
            else:
                self.deliveries.collect(item.tag, item.multiple, settled)
        except CloseChannel as error:
            error.class_id, error.method_id = 60, item.method_id
            raise
        settle(settled, outcome)

    def requeue_all(self) -> None:
        settled: dict[Consumer, list[int]] = {}
        if self.deliveries.unacked:
            self.deliveries.collect(0, True, settled)
        settle(settled, REQUEUED)

    def after_commit(self, then: Callable[[], None]) -> None:
        """Go on with this when what was just changed is on disk; what comes behind it on this channel waits."""
        self.mailbox.hold()
        self.vhost.ledger.after_commit(partial(self._committed, then))

    def _committed(self, then: Callable[[], None]) -> None:
        self.mailbox.release()
        if self.state is RUNNING:
            then()

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
        self.tally.get_empty += 1
        self.answer(BasicGetEmpty())

    def answer_get(
        self, queue: Queue, position: int, message: Message, redelivered: bool, left: int, no_ack: bool
    ) -> None:
        if self.state is RUNNING:
            deliver_got(self, queue, position, message, redelivered, left, no_ack)
        elif not no_ack:
            queue.cast(Settled([position], REQUEUED))
        self.mailbox.release()

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

    def fail(self, error: CloseChannel, unasked: bool = False) -> None:
        """Close the channel with this error, by the method at hand or by none; from now on it waits for close-ok and
        ignores the rest."""
        if self.state is not RUNNING:
            return
        if unasked:
            self._current = Method
        else:
            self._publish_parked()
            if self.state is not RUNNING:
                return
        self.finish(0)  # confirms that are due go out before the close
        self._leave()
        self.state = CLOSING
        class_id, method_id = self._ids(error)
        self.send(ChannelClose(error.code, error.text, class_id, method_id))

    def _fail_connection(self, error: CloseConnection) -> None:
        """What the client sent behind the method that was wrong counts no more."""
        error.class_id, error.method_id = self._ids(error)
        self._publish_parked()
        self.peer.fail(error)
        if self.state is RUNNING:
            self._leave()
            self._end()

    def _publish_parked(self) -> None:
        """A method that is wrong may have overtaken publishes that waited for credit: those were sent before it."""
        for item in self.peer.unpark(self, self._behind) if self._behind else ():
            try:
                self._publish(item)
            except (CloseChannel, CloseConnection):
                return

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
        if self._open_channels.pop(self, False) is None:
            self.vhost.past.retire(self)
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
        if self.transaction is not None:
            self.roll_back(self.transaction)
        self.requeue_all()
        if self.replies is not None:
            self.replies.delete()
            self.replies = None
        self.getters.clear()
        self.down()

    def __repr__(self) -> str:
        blocked_by = "{" + ", ".join(map(str, self.blocked_by)) + "}"
        return f"<Channel {self.name} {self.state} unacked={len(self.deliveries.unacked)} blocked_by={blocked_by}>"

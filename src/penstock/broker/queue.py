"""Queue: keeps messages in order and gives them to consumers. The third stage.

Upstream: broker/channel.py, and queues whose dead letters come here.  Downstream: queues its own dead letters go to;
the store, once there is one.
Blocked: when such a queue is out of credit; it works on, but defers its grants.

A turn: take what came, expire what is due at the head, dispatch, and only then drop what is one too many, so that a
consumer with room gets a message rather than nobody.
Not here: order and deadlines (backlog.py), whose turn it is (subscribers.py), the deliver frames (consumer.py), routing
(exchange.py), declare and its checks (vhost.py), what becomes of dead letters (deadletter.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.amqp.close import ACCESS_REFUSED, PRECONDITION_FAILED, CloseChannel
from penstock.amqp.decoder import Message
from penstock.amqp.method import (
    BasicCancelOk,
    BasicConsumeOk,
    Method,
    QueueDeclareOk,
    QueueDeleteOk,
    QueuePurgeOk,
)
from penstock.amqp.rewrite import rewrite
from penstock.amqp.table import Table
from penstock.broker.casts import (
    ACKED,
    REQUEUED,
    Arrival,
    Cast,
    Count,
    Delete,
    Get,
    Purge,
    Settled,
    Subscribe,
    Unsubscribe,
    answer_as_deleted,
)
from penstock.broker.consumer import Consumer
from penstock.broker.deadletter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED, DeadLetters
from penstock.broker.options import NONE, REJECT_PUBLISH_DLX, Options
from penstock.broker.shelves import NS_PER_MS, Shelves
from penstock.broker.subscribers import Subscribers
from penstock.credit import Block, Stage
from penstock.runtime import Mailbox, Scheduler, Timer

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.peer import Peer

DISPATCH_BYTES_MAX: Final = 262_144  # given to one consumer in one round: about what a socket takes at once


class Queue(Stage):
    __slots__ = (
        "_clock",
        "_dead_letters",
        "_due_ns",
        "_on_delete",
        "_timer",
        "_used_ns",
        "_vacancy",
        "arguments",
        "auto_delete",
        "deleted",
        "delivered_count",
        "durable",
        "exclusive",
        "mailbox",
        "options",
        "owner",
        "published_count",
        "queue_name",
        "shelves",
        "subscribers",
        "unacked",
        "vhost_name",
        "was_consumed",
    )

    def __init__(
        self,
        name: str,
        vhost_name: str,
        scheduler: Scheduler,
        on_delete: Callable[[Queue], None],
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Table | None = None,
        owner: Peer | None = None,
        block_log: deque[Block] | None = None,
        options: Options | None = None,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        super().__init__(f"queue {name}", scheduler.clock.now_ns, block_log)
        self.queue_name = name
        self.vhost_name = vhost_name
        self.mailbox: Mailbox[Cast] = Mailbox(scheduler, self)
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.arguments: Table = arguments or {}
        self.owner = owner
        self.options = options or Options(self.arguments, {})
        self.subscribers = Subscribers(self.options.single_active)
        self.was_consumed = False
        self.deleted = False
        self.unacked: dict[int, Message] = {}  # by position
        self.published_count = 0
        self.delivered_count = 0
        self._clock = scheduler.clock
        self.shelves = Shelves(self.options, scheduler.clock)
        self._dead_letters = dead_letters
        self._on_delete = on_delete
        self._timer: Timer | None = None  # for the deadline of the first message
        self._due_ns = 0
        self._vacancy: Timer | None = None  # for the end of a queue that nobody uses
        self._used_ns = self._clock.now_ns()
        self._watch_vacancy()

    def apply(self, options: Options) -> None:
        """From now on these, as a policy or its end says."""
        if options.expires_ms != self.options.expires_ms:
            self._used_ns = self._clock.now_ns()  # a new limit counts from now, or a policy could delete what lies idle
        self.options = options
        self.shelves.apply(options)
        if self._vacancy is not None:
            self._vacancy.cancel()
            self._vacancy = None
        self._watch_vacancy()
        self.mailbox.wake()

    # The stage.

    def take(self, item: Cast) -> int:
        if type(item) is Arrival:
            self._arrive(item)
            return len(item.messages)
        if type(item) is Settled:
            self._settle(item)
            return len(item.positions)
        if isinstance(item, Subscribe):
            self._subscribe(item)
        elif isinstance(item, Unsubscribe):
            self._unsubscribe(item)
        elif isinstance(item, Get):
            return self._get(item)
        elif isinstance(item, (Count, Purge, Delete)):
            self.finish(self.mailbox.scheduler.stage_budget)  # what is to be counted
            self._answer_count(item)
        return 1

    def _answer_count(self, item: Count | Purge | Delete) -> None:
        if isinstance(item, Count):
            self._used_ns = self._clock.now_ns()
            item.channel.answer(
                None if item.nowait else QueueDeclareOk(self.queue_name, self.count(), len(self.subscribers))
            )
        elif isinstance(item, Purge):
            purged = self.count()
            self.shelves.clear()
            item.channel.answer(None if item.nowait else QueuePurgeOk(purged))
        else:
            self._delete(item)

    def take_urgent(self, item: Cast) -> None:
        raise AssertionError(f"nothing is urgent to a queue, but it got {item!r}")

    def finish(self, budget: int) -> int:
        if self.mailbox.holds:
            return 0
        given = self._dispatch(budget)
        shelves = self.shelves
        if not shelves.timed and not shelves.bounded:
            return given
        # Out of budget, there may still be a consumer with room; the next turn will tell.
        if shelves.timed and (given < budget or not len(shelves)):
            given += self._give_up(shelves.due(budget), EXPIRED, budget)
        if shelves.bounded and given < budget:
            given += self._give_up(shelves.excess(budget), MAXLEN, budget)
        self._watch_deadline()
        return given

    def count(self) -> int:
        return len(self.shelves)

    # Messages in.

    def _arrive(self, item: Arrival) -> None:
        count = len(item.messages)
        if item.link is not None:
            item.link.handle(count, item.bytes)
        self.published_count += count
        shelves = self.shelves
        if shelves.plain and item.ttls_ms is None:
            shelves.lowest.append(item.messages, item.bytes)
        elif shelves.refuses:
            self._admit(item)
            return
        else:
            shelves.append(item.messages, item.bytes, item.ttls_ms)
        if item.numbers and item.channel is not None:
            item.channel.confirmed(item.numbers)

    def _admit(self, item: Arrival) -> None:
        """Message by message, as long as there is space; the rest is refused."""
        shelves, budget = self.shelves, self.mailbox.scheduler.stage_budget
        numbers = [number for first, last in item.numbers for number in range(first, last + 1)]
        taken: list[tuple[int, int]] = []
        refused: list[tuple[int, int]] = []
        dead: list[Message] = []
        for at, message in enumerate(item.messages):
            fits = shelves.has_space(message)
            while not fits and self._dispatch(budget):  # budget or not: consumers may make room for it
                fits = shelves.has_space(message)
            if not fits and shelves.timed:
                self._give_up(shelves.due(budget), EXPIRED)
                fits = shelves.has_space(message)
            if fits:
                shelves.append((message,), len(message[1]), item.ttls_ms[at : at + 1] if item.ttls_ms else None)
            else:
                dead.append(message)
            if numbers:
                (taken if fits else refused).append((numbers[at], numbers[at]))
        if self.options.overflow == REJECT_PUBLISH_DLX:
            self._give_up(dead, MAXLEN)
        if item.channel is not None:
            if taken:
                item.channel.confirmed(taken)
            if refused:
                item.channel.refused(refused)

    # Messages out.

    def _dispatch(self, budget: int) -> int:
        """Give messages to consumers with room, one each in turn; how many it gave, or gave up."""
        given = 0
        subscribers, shelves = self.subscribers, self.shelves
        while subscribers.count:
            if shelves.timed:
                given += self._give_up(shelves.overdue(max(1, budget - given)), EXPIRED)
            backlog = shelves.front() if shelves.several else shelves.lowest
            if not backlog.ready and not backlog.returned:
                break
            if given >= budget:
                self.mailbox.wake()
                break
            group = subscribers.sole
            if group:
                share = group[0].room()
            else:
                group, share = subscribers.with_room(len(backlog))
            if share <= 0 or not group:
                break
            limit = min(share * len(group), budget - given)
            if shelves.timed:
                limit = min(limit, backlog.stretch())
            positions, messages, redelivered = backlog.pop(limit, DISPATCH_BYTES_MAX * len(group))
            if len(group) == 1:
                self._give(group[0], positions, messages, redelivered)
            else:
                self._deal(group, positions, messages, redelivered)
            if subscribers.count > 1:
                subscribers.gave(group, len(messages))
            self.delivered_count += len(messages)
            given += len(messages)
        return given

    def _deal(
        self, group: list[Consumer], positions: Sequence[int], messages: list[Message], redelivered: bool
    ) -> None:
        """One each in turn."""
        count = len(group)
        if self.subscribers.shares_channel:
            # In order on the wire of a channel, whichever of its consumers a message is for.
            for i in range(len(messages)):
                self._give(group[i % count], positions[i : i + 1], messages[i : i + 1], redelivered)
        else:
            # Consumer i gets messages i, i + count, i + 2 * count …: round robin, but a batch for each.
            for i in range(min(count, len(messages))):
                self._give(group[i], positions[i::count], messages[i::count], redelivered)

    def _give(
        self, consumer: Consumer, positions: Sequence[int], messages: Sequence[Message], redelivered: bool
    ) -> None:
        consumer.deliver(positions, messages, redelivered)
        if consumer.no_ack:
            if self.shelves.timed or self.shelves.returns:
                self.shelves.forget(positions)
        elif len(messages) == 1:
            self.unacked[positions[0]] = messages[0]
        else:
            self.unacked.update(zip(positions, messages, strict=False))

    def _get(self, item: Get) -> int:
        self._used_ns = self._clock.now_ns()
        budget = self.mailbox.scheduler.stage_budget
        done = self.finish(budget)  # what came before is for the consumers, or too old, or too much
        if done >= budget:  # there may be much more: others have their turn first
            self.mailbox.ordinary.appendleft(item)
            return done
        backlog = self.shelves.front()
        if not backlog.ready and not backlog.returned:
            item.channel.answer_get_empty()
            return 1
        positions, messages, redelivered = backlog.pop(1, 0)
        if item.no_ack:
            self.shelves.forget(positions)
        else:
            self.unacked[positions[0]] = messages[0]
        self.delivered_count += 1
        if self.shelves.timed:  # those behind it that are due are not counted
            self._give_up(self.shelves.due(budget), EXPIRED, budget)
        item.channel.answer_get(self, positions[0], messages[0], redelivered, self.count(), item.no_ack)
        return 1

    def _settle(self, item: Settled) -> None:
        unacked = self.unacked
        if item.outcome == REQUEUED:
            self._put_back(item.positions)
            return
        if item.outcome == ACKED:
            for position in item.positions:
                del unacked[position]
        else:
            self._give_up([unacked.pop(position) for position in item.positions], REJECTED)
        if self.shelves.timed or self.shelves.returns:
            self.shelves.forget(item.positions)

    def _put_back(self, positions: list[int]) -> None:
        limit, counts = self.options.delivery_limit, self.shelves.returns
        spent: list[Message] = []
        for position in positions:
            message = self.unacked.pop(position)
            if limit != NONE:
                returns = counts.get(position, 0) + 1
                if returns > limit:
                    self.shelves.forget((position,))
                    spent.append(message)
                    continue
                counts[position] = returns
                counted = b"l" + returns.to_bytes(8, "big")
                message = message[0], rewrite(message[1], set_headers={"x-delivery-count": counted})
            self.shelves.put_back(position, message)
        self._give_up(spent, DELIVERY_LIMIT)

    # Messages that die.

    def _give_up(self, dead: list[Message], reason: str, budget: int = 0) -> int:
        """Send these on as dead letters, or drop them; how many. As many as a budget: there may be more."""
        if dead and self._dead_letters is not None and self.options.dead_letter_exchange is not None:
            self._dead_letters.bury(self, dead, reason)
        if budget and len(dead) >= budget:
            self.mailbox.wake()
        return len(dead)

    def _watch_deadline(self) -> None:
        """Have a turn when the first message is due."""
        due_ns = self.shelves.deadline()
        if due_ns == self._due_ns:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_ns = due_ns
        if due_ns:
            delay_s = max(0, due_ns - self._clock.now_ns()) / 1e9
            self._timer = self._clock.call_later(delay_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self._due_ns = 0
        self.mailbox.wake()

    # Consumers.

    def _subscribe(self, item: Subscribe) -> None:
        consumer = item.consumer
        if not consumer.active:  # its channel closed in the meantime
            return
        if self._in_exclusive_use(consumer):
            consumer.channel.refuse(
                consumer,
                CloseChannel(
                    ACCESS_REFUSED, f"queue '{self.queue_name}' in vhost '{self.vhost_name}' in exclusive use"
                ),
            )
            return
        self.subscribers.add(consumer)
        self.was_consumed = True
        consumer.channel.answer(None if item.nowait else BasicConsumeOk(consumer.tag))

    def _in_exclusive_use(self, consumer: Consumer) -> bool:
        if consumer.exclusive and (self.subscribers.count or self.options.single_active):
            return True
        return self.subscribers.has_exclusive()

    def _unsubscribe(self, item: Unsubscribe) -> None:
        consumer = item.consumer
        consumer.active = False
        self.subscribers.remove(consumer)
        if item.answer:
            consumer.channel.answer(None if item.nowait else BasicCancelOk(consumer.tag))
        if self.subscribers.count:
            return
        if self.auto_delete and self.was_consumed:
            self.delete()
            return
        self._used_ns = self._clock.now_ns()
        if self._vacancy is None:
            self._watch_vacancy()

    # The end.

    def _watch_vacancy(self) -> None:
        """A queue with x-expires goes when nobody has used it for so long."""
        if self.options.expires_ms != NONE and not self.subscribers.count:
            self._vacancy = self._clock.call_later(max(0, self._left_ns()) / 1e9, self._vacate)

    def _left_ns(self) -> int:
        return self._used_ns + self.options.expires_ms * NS_PER_MS - self._clock.now_ns()

    def _vacate(self) -> None:
        if self.subscribers.count or self._left_ns() > 0:
            self._vacancy = None
            self._watch_vacancy()
        else:
            self.delete()

    def _delete(self, item: Delete) -> None:
        where = f"queue '{self.queue_name}' in vhost '{self.vhost_name}'"
        if item.if_unused and self.subscribers.count:
            item.channel.answer_error(CloseChannel(PRECONDITION_FAILED, f"{where} in use"))
        elif item.if_empty and self.count():
            item.channel.answer_error(CloseChannel(PRECONDITION_FAILED, f"{where} not empty"))
        else:
            ok = None if item.nowait else QueueDeleteOk(self.count())
            # The answer first: the asking channel may be a consumer, and is told so after.
            self._end(item.channel, ok)

    def delete(self) -> None:
        """Gone, with all its messages: consumers are told, waiting calls answered, confirms not held back."""
        if not self.deleted:
            self._end(None, None)

    def _end(self, asker: Channel | None, ok: Method | None) -> None:
        self.deleted = True
        self._on_delete(self)
        self.owner = None  # routes remembered in publishes may still lead here; they must not keep a connection alive
        consumers = self.subscribers.clear()
        for consumer in consumers:
            consumer.active = False
        if asker is None:
            _cancel(consumers)
        else:
            asker.vhost.ledger.after_commit(partial(asker.answer, ok))
            asker.vhost.ledger.after_commit(partial(_cancel, consumers))
        waiting = list(self.mailbox.ordinary)
        self.mailbox.ordinary.clear()
        for item in waiting:
            answer_as_deleted(self.queue_name, self.vhost_name, item)
        for timer in (self._timer, self._vacancy):
            if timer is not None:
                timer.cancel()
        self._timer = self._vacancy = None
        self.shelves.clear()
        self.unacked.clear()
        self._dead_letters = None
        self.mailbox.close()
        self.down()

    def cast(self, item: Cast) -> None:
        """Put it into the mailbox, or, if the queue has just been deleted, answer as a deleted queue does."""
        if self.deleted:
            answer_as_deleted(self.queue_name, self.vhost_name, item)
        else:
            self.mailbox.cast(item)

    def __repr__(self) -> str:
        blocked_by = "{" + ", ".join(map(str, self.blocked_by)) + "}"
        return f"<Queue {self.queue_name} ready={self.count()} unacked={len(self.unacked)} blocked_by={blocked_by}>"


def _cancel(consumers: list[Consumer]) -> None:
    for consumer in consumers:
        consumer.channel.cancelled(consumer)

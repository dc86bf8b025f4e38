"""Queue: keeps messages in order and gives them to consumers. The third stage.

Upstream: broker/channel.py.  Downstream: the store, once there is one.
Blocked: never yet; with a store, when it is out of store credit.

Every message has a position, counted from 0 as it arrives. `ready` holds what was never delivered, so its positions are
consecutive from `head`; whatever comes back goes to `returned`, by position. Invariant: every returned position is
below `head`, so what comes back is ahead of all that was never delivered, in its original order.

Not here: the deliver frames (consumer.py), routing (exchange.py), declare and its checks (vhost.py).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from penstock.amqp.close import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, CloseChannel
from penstock.amqp.decoder import Message
from penstock.amqp.method import (
    BasicCancelOk,
    BasicConsumeOk,
    QueueDeclareOk,
    QueueDeleteOk,
    QueuePurgeOk,
)
from penstock.amqp.table import Table
from penstock.broker.casts import (
    Arrival,
    Cast,
    Count,
    Delete,
    Get,
    Purge,
    Settled,
    Subscribe,
    Unsubscribe,
)
from penstock.broker.consumer import UNLIMITED, Consumer
from penstock.credit import Block, Stage
from penstock.runtime import Mailbox, Scheduler

if TYPE_CHECKING:
    from penstock.broker.peer import Peer

DISPATCH_BYTES_MAX: Final = 262_144  # given to one consumer in one round: about what a socket takes at once


class Queue(Stage):
    __slots__ = (
        "_next_consumer",
        "_on_delete",
        "arguments",
        "auto_delete",
        "consumers",
        "deleted",
        "delivered_count",
        "durable",
        "exclusive",
        "head",
        "mailbox",
        "owner",
        "published_count",
        "queue_name",
        "ready",
        "ready_bytes",
        "returned",
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
        self.consumers: list[Consumer] = []
        self.was_consumed = False
        self.deleted = False
        self.head = 0  # position of ready[0]
        self.ready: deque[Message] = deque()
        self.ready_bytes = 0
        self.returned: list[tuple[int, Message]] = []  # a heap
        self.unacked: dict[int, Message] = {}
        self.published_count = 0
        self.delivered_count = 0
        self._next_consumer = 0
        self._on_delete = on_delete

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
            self._get(item)
        elif isinstance(item, Count):
            item.channel.answer(
                None if item.nowait else QueueDeclareOk(self.queue_name, self.count(), len(self.consumers))
            )
        elif isinstance(item, Purge):
            purged = self.count()
            self._purge()
            item.channel.answer(None if item.nowait else QueuePurgeOk(purged))
        elif isinstance(item, Delete):
            self._delete(item)
        return 1

    def take_urgent(self, item: Cast) -> None:
        raise AssertionError(f"nothing is urgent to a queue, but it got {item!r}")

    def finish(self, budget: int) -> int:
        if self.mailbox.holds:
            return 0
        return self._dispatch(budget)

    def count(self) -> int:
        return len(self.ready) + len(self.returned)

    # Messages in.

    def _arrive(self, item: Arrival) -> None:
        count = len(item.messages)
        item.link.handle(count, item.bytes)
        self.ready.extend(item.messages)
        self.ready_bytes += item.bytes
        self.published_count += count
        if item.numbers:
            item.channel.confirmed(item.numbers)

    # Messages out.

    def _dispatch(self, budget: int) -> int:
        """Give messages to consumers with room, one each in turn; how many it gave."""
        given = 0
        while (self.ready or self.returned) and self.consumers:
            if given >= budget:
                self.mailbox.wake()
                break
            group, share = self._with_room()
            if share <= 0 or not group:
                break
            limit = min(share * len(group), budget - given)
            if self.returned:
                positions, messages = self._pop_returned(limit)
                self._deliver(group, positions, messages, True)
            else:
                first = self.head
                messages = self._pop_ready(limit, DISPATCH_BYTES_MAX * len(group))
                self._deliver(group, range(first, self.head), messages, False)
            given += len(messages)
        return given

    def _with_room(self) -> tuple[list[Consumer], int]:
        """Consumers that would take a message, beginning with the one whose turn it is; and how many each takes."""
        consumers = self.consumers
        if len(consumers) == 1:
            return consumers, consumers[0].room()
        group: list[Consumer] = []
        share = UNLIMITED
        shared = False
        wanted = self.count()  # with fewer messages than consumers, the others need not be asked
        for turn in range(self._next_consumer, self._next_consumer + len(consumers)):
            consumer = consumers[turn % len(consumers)]
            room = consumer.room()
            if room > 0:
                group.append(consumer)
                share = min(share, room)
                shared = shared or consumer.channel.limiter.prefetch > 0
                if len(group) == wanted:
                    break
        if shared:
            # Room that is shared on a channel may be lost to a neighbour with every delivery: ask again after each.
            return group[:1], 1
        return group, share

    def _deliver(
        self, group: list[Consumer], positions: Sequence[int], messages: list[Message], redelivered: bool
    ) -> None:
        self.delivered_count += len(messages)
        count = len(group)
        if count == 1:
            self._give(group[0], positions, messages, redelivered)
        else:
            # Consumer i gets messages i, i + count, i + 2 * count …: round robin, but a batch for each.
            for i in range(min(count, len(messages))):
                self._give(group[i], positions[i::count], messages[i::count], redelivered)
        if len(self.consumers) > 1:
            last = group[(len(messages) - 1) % count]
            self._next_consumer = self.consumers.index(last) + 1

    def _give(
        self, consumer: Consumer, positions: Sequence[int], messages: Sequence[Message], redelivered: bool
    ) -> None:
        consumer.deliver(positions, messages, redelivered)
        if consumer.no_ack:
            return
        if len(messages) == 1:
            self.unacked[positions[0]] = messages[0]
        else:
            self.unacked.update(zip(positions, messages, strict=False))

    def _pop_ready(self, limit: int, bytes_max: int) -> list[Message]:
        ready = self.ready
        if self.ready_bytes <= bytes_max and len(ready) <= limit:
            messages = list(ready)
            ready.clear()
            self.ready_bytes = 0
            self.head += len(messages)
            return messages
        popleft = ready.popleft
        messages = []
        size = 0
        for _ in range(min(limit, len(ready))):
            message = popleft()
            messages.append(message)
            size += len(message[1])
            if size > bytes_max:
                break
        self.ready_bytes -= size
        self.head += len(messages)
        return messages

    def _pop_returned(self, limit: int) -> tuple[list[int], list[Message]]:
        positions: list[int] = []
        messages: list[Message] = []
        size = 0
        while self.returned and len(positions) < limit and size <= DISPATCH_BYTES_MAX:
            position, message = heapq.heappop(self.returned)
            positions.append(position)
            messages.append(message)
            size += len(message[1])
        return positions, messages

    def _get(self, item: Get) -> None:
        if self.returned:
            redelivered = True
            position, message = heapq.heappop(self.returned)
        elif self.ready:
            redelivered = False
            position = self.head
            message = self._pop_ready(1, 0)[0]
        else:
            item.channel.answer_get_empty()
            return
        if not item.no_ack:
            self.unacked[position] = message
        self.delivered_count += 1
        item.channel.answer_get(self, position, message, redelivered, self.count(), item.no_ack)

    def _settle(self, item: Settled) -> None:
        unacked = self.unacked
        if not item.requeue:
            for position in item.positions:
                del unacked[position]
            return
        for position in item.positions:
            heapq.heappush(self.returned, (position, unacked.pop(position)))

    def _purge(self) -> None:
        self.head += len(self.ready)
        self.ready.clear()
        self.ready_bytes = 0
        self.returned.clear()

    # Consumers.

    def _subscribe(self, item: Subscribe) -> None:
        consumer = item.consumer
        if not consumer.active:  # its channel closed in the meantime
            return
        if self.consumers and (consumer.exclusive or self.consumers[0].exclusive):
            consumer.channel.refuse(
                consumer,
                CloseChannel(
                    ACCESS_REFUSED, f"queue '{self.queue_name}' in vhost '{self.vhost_name}' in exclusive use"
                ),
            )
            return
        self.consumers.append(consumer)
        self.was_consumed = True
        consumer.channel.answer(None if item.nowait else BasicConsumeOk(consumer.tag))

    def _unsubscribe(self, item: Unsubscribe) -> None:
        consumer = item.consumer
        consumer.active = False
        if consumer in self.consumers:
            if self.consumers.index(consumer) < self._next_consumer:
                self._next_consumer -= 1
            self.consumers.remove(consumer)
        if item.answer:
            consumer.channel.answer(None if item.nowait else BasicCancelOk(consumer.tag))
        if self.auto_delete and self.was_consumed and not self.consumers:
            self.delete()

    # The end.

    def _delete(self, item: Delete) -> None:
        where = f"queue '{self.queue_name}' in vhost '{self.vhost_name}'"
        if item.if_unused and self.consumers:
            item.channel.answer_error(CloseChannel(PRECONDITION_FAILED, f"{where} in use"))
        elif item.if_empty and self.count():
            item.channel.answer_error(CloseChannel(PRECONDITION_FAILED, f"{where} not empty"))
        else:
            # The answer first: the asking channel may be a consumer, and is told so after.
            item.channel.answer(None if item.nowait else QueueDeleteOk(self.count()))
            self.delete()

    def delete(self) -> None:
        """Gone, with all its messages: consumers are told, waiting calls answered, confirms not held back."""
        if self.deleted:
            return
        self.deleted = True
        self._on_delete(self)
        waiting = list(self.mailbox.ordinary)
        self.mailbox.ordinary.clear()
        for item in waiting:
            self._bury(item)
        for consumer in self.consumers:
            consumer.active = False
            consumer.channel.cancelled(consumer)
        self.consumers.clear()
        self._purge()
        self.unacked.clear()
        self.mailbox.close()
        self.down()

    def cast(self, item: Cast) -> None:
        """Put it into the mailbox, or, if the queue has just been deleted, answer as a deleted queue does."""
        if self.deleted:
            self._bury(item)
        else:
            self.mailbox.cast(item)

    def _bury(self, item: Cast) -> None:
        missing = CloseChannel(NOT_FOUND, f"no queue '{self.queue_name}' in vhost '{self.vhost_name}'")
        if isinstance(item, Arrival):
            # A deleted queue counts as confirmed, or its publishers would wait for ever.
            if item.numbers:
                item.channel.confirmed(item.numbers)
        elif isinstance(item, Subscribe):
            item.consumer.channel.refuse(item.consumer, missing)
        elif isinstance(item, Unsubscribe):
            if item.answer:
                item.consumer.channel.answer(None if item.nowait else BasicCancelOk(item.consumer.tag))
        elif isinstance(item, Delete):
            item.channel.answer(None if item.nowait else QueueDeleteOk(0))
        elif isinstance(item, (Get, Count, Purge)):
            item.channel.answer_error(missing)

    def __repr__(self) -> str:
        blocked_by = "{" + ", ".join(map(str, self.blocked_by)) + "}"
        return f"<Queue {self.queue_name} ready={self.count()} unacked={len(self.unacked)} blocked_by={blocked_by}>"

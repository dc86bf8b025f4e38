"""Queue: keeps messages in order and gives them to consumers. The third stage.

Upstream: broker/channel.py, and queues whose dead letters come here.  Downstream: queues its own dead letters go to;
the store, for what is persistent.
Blocked: when one of those is out of credit; it works on, but defers its grants.

A turn: take what came, expire what is due at the head, dispatch, and only then drop what is one too many, so that a
consumer with room gets a message rather than nobody.
Not here: order and deadlines (backlog.py), who gets what (dispatch.py), the deliver frames (consumer.py), routing
(exchange.py), declare and its checks (vhost.py), what becomes of dead letters (deadletter.py), what goes to the store
(keeping.py), what is held in RAM (paging.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

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
from penstock.amqp.properties import PERSISTENT
from penstock.amqp.table import Table
from penstock.broker.activity import QUEUE, stage_name
from penstock.broker.admission import admit
from penstock.broker.backlog import counted
from penstock.broker.casts import (
    ACKED,
    REQUEUED,
    Arrival,
    Burial,
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
from penstock.broker.consumer import cancel_all
from penstock.broker.deadletter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED, DeadLetters
from penstock.broker.dispatch import dispatch
from penstock.broker.duplicates import Duplicates, arrive_once
from penstock.broker.keeping import Keeping
from penstock.broker.options import NONE, Options
from penstock.broker.paging import Paging
from penstock.broker.saturation import renewed
from penstock.broker.shelves import Dead, Shelves
from penstock.broker.stamps import Stamps
from penstock.broker.subscribers import Subscribers
from penstock.broker.tally import Tally
from penstock.broker.vacancy import Vacancy
from penstock.broker.wakeup import Wakeup
from penstock.credit import BlockLog, Stage
from penstock.runtime import Mailbox, Scheduler

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.peer import Peer


class Queue(Stage):
    __slots__ = (
        "_clock",
        "_dead_letters",
        "_on_delete",
        "_vacancy",
        "_wakeup",
        "arguments",
        "auto_delete",
        "deleted",
        "delivered_count",
        "duplicates",
        "durable",
        "exclusive",
        "keeping",
        "mailbox",
        "marks",
        "options",
        "owner",
        "paging",
        "published_count",
        "queue_name",
        "shelves",
        "stamps",
        "subscribers",
        "tally",
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
        block_log: BlockLog | None = None,
        options: Options | None = None,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        super().__init__(stage_name(vhost_name, name), scheduler.clock.now_ns, block_log, QUEUE)
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
        self.tally = Tally()
        self._clock = scheduler.clock
        self.shelves = Shelves(self.options, scheduler.clock)
        self._dead_letters = dead_letters
        self._on_delete = on_delete
        self._wakeup = Wakeup(scheduler.clock, self.mailbox.wake)
        self.keeping: Keeping | None = None  # only durable queues of a broker with a store have one
        self.paging: Paging | None = None  # only queues of a broker with a store have one
        self.duplicates: Duplicates | None = None  # only queues whose producers number their messages have them
        self.stamps: Stamps | None = None  # only queues with a consumer that wants to know positions have them
        self.marks = renewed(None, self)  # only queues with watermarks, or a maximum that blocks, have them
        self._vacancy = Vacancy(self._clock, self._vacate)
        self._vacancy.apply(self.options, in_use=False)

    def apply(self, options: Options) -> None:
        """From now on these, as a policy or its end says."""
        self.options = options
        self.shelves.apply(options)
        self.marks = renewed(self.marks, self)
        self._vacancy.apply(options, bool(self.subscribers.count))
        self.mailbox.wake()

    # The stage.

    def take(self, item: Cast) -> int:
        if type(item) is Arrival:
            if item.publishings is None:
                self.arrive(item)
            else:
                arrive_once(self, item)
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
            self._vacancy.used()
            item.channel.answer(
                None if item.nowait else QueueDeclareOk(self.queue_name, self.count(), len(self.subscribers))
            )
        elif isinstance(item, Purge):
            purged = self.purge()
            item.channel.answer(None if item.nowait else QueuePurgeOk(purged))
        else:
            self._delete(item)

    def purge(self) -> int:
        """Drop all that is ready; how many there were."""
        purged = self.count()
        if self.keeping is not None and purged:
            self.keeping.purge()
        if self.paging is not None:
            self.paging.clear()
        self.shelves.clear()
        if self.marks is not None:
            self.mailbox.wake()  # to be judged anew
        return purged

    def take_urgent(self, item: Cast) -> None:
        raise AssertionError(f"nothing is urgent to a queue, but it got {item!r}")

    def finish(self, budget: int) -> int:
        if self.mailbox.holds:
            return 0
        given = dispatch(self, budget)
        shelves = self.shelves
        if shelves.timed or shelves.bounded:
            given = self._trim(given, budget)
        if self.paging is not None:
            self.paging.look()
        if self.marks is not None:
            self.marks.judge()
        return given

    def _trim(self, given: int, budget: int) -> int:
        """Drop what is too old or too much."""
        shelves = self.shelves
        # Out of budget, there may still be a consumer with room; the next turn will tell.
        if shelves.timed and (given < budget or not len(shelves)):
            given += self.give_up(shelves.due(budget), EXPIRED, budget)
        if shelves.bounded and given < budget:
            given += self.give_up(shelves.excess(budget), MAXLEN, budget)
        elif shelves.bounded:
            self.mailbox.wake()
        self._wakeup.at(shelves.deadline())
        return given

    def count(self) -> int:
        return len(self.shelves)

    def acked_count(self) -> int:
        tally = self.tally
        return self.delivered_count - tally.deliver_no_ack - tally.get_no_ack - len(self.unacked) - tally.returned

    # Messages in.

    def arrive(self, item: Arrival) -> Arrival:
        """Take these messages, or refuse some; what was taken."""
        count = len(item.messages)
        if self.marks is not None:
            self.marks.expect(item)
        if item.link is not None:
            item.link.handle(count, item.bytes)
        self.published_count += count
        shelves = self.shelves
        positions: Sequence[int]
        if shelves.plain and item.ttls_ms is None:
            positions = shelves.lowest.append(item.messages, item.bytes)
        elif shelves.refuses:
            item, positions = admit(self, item)
        else:
            positions = shelves.append(item.messages, item.bytes, item.ttls_ms)
        if self.marks is not None:
            self.marks.arrived(item, positions)
        if self.keeping is None or not self._keep(item, positions, self.keeping):
            self.confirm(item, positions)
            if item.burial is not None:
                item.burial.arrived()
        return item

    def _keep(self, item: Arrival, positions: Sequence[int], keeping: Keeping) -> bool:
        """Have the store keep it; whether its confirms, or the queue it died in, wait for that."""
        if not item.modes & PERSISTENT:
            keeping.mixed = True
            return False
        if keeping.mixed and len(self.shelves) == len(item.messages):
            keeping.mixed = bool(self.unacked)
        ttl_ms, ttls_ms = self.options.message_ttl_ms, item.ttls_ms
        if ttl_ms != NONE:
            ttls_ms = [self.shelves.ttl_ms(own) for own in ttls_ms] if ttls_ms else [ttl_ms] * len(item.messages)
        return keeping.keep(item, positions, ttls_ms)

    def confirm(self, item: Arrival, positions: Sequence[int]) -> None:
        """The queue has these messages, on disk where they must be: confirms leave here and nowhere else."""
        if item.numbers and item.channel is not None:
            numbers = item.numbers
            if self.marks is not None:
                numbers = self.marks.hold(item.channel, numbers, positions)
            if numbers:
                item.channel.confirmed(numbers)

    # Messages out.

    def _get(self, item: Get) -> int:
        self._vacancy.used()
        budget = self.mailbox.scheduler.stage_budget
        done = self.finish(budget)  # what came before is for the consumers, or too old, or too much
        if done >= budget:  # there may be much more: others have their turn first
            self.mailbox.ordinary.appendleft(item)
            return done
        backlog = self.shelves.front()
        if not backlog.has_next():
            if self.paging is not None and self.paging.fetch_for(item):
                return 1  # the first message is on disk: it comes when it is here
            self.tally.get_empty += 1
            item.channel.answer_get_empty()
            return 1
        positions, messages, redelivered = backlog.pop(1, 0)
        self.delivered_count += 1
        self.tally.redeliver += redelivered
        if item.no_ack:
            self.tally.get_no_ack += 1
            self.gone(positions)
        else:
            self.tally.get += 1
            self.unacked[positions[0]] = messages[0]
        if self.shelves.timed:  # those behind it that are due are not counted
            self.give_up(self.shelves.due(budget), EXPIRED, budget)
        item.channel.answer_get(self, positions[0], messages[0], redelivered, self.count(), item.no_ack)
        return 1

    def _settle(self, item: Settled) -> None:
        unacked = self.unacked
        if self.paging is not None and self.paging.away:
            self.paging.settled(item.positions)
        if item.outcome == ACKED:
            for position in item.positions:
                del unacked[position]
            self.gone(item.positions)
            return
        self.tally.returned += len(item.positions)
        if item.outcome == REQUEUED:
            self._put_back(item.positions)
            return
        dead = [unacked.pop(position) for position in item.positions]
        if self.shelves.timed or self.shelves.returns:
            self.shelves.forget(item.positions)
        self.give_up((item.positions, dead), REJECTED)

    def gone(self, positions: Sequence[int]) -> None:
        """These messages are done with."""
        if self.shelves.timed or self.shelves.returns:
            self.shelves.forget(positions)
        if self.keeping is not None:
            self.keeping.remove(positions)

    def _put_back(self, positions: list[int]) -> None:
        limit, counts = self.options.delivery_limit, self.shelves.returns
        spent: Dead = [], []
        for position in positions:
            message = self.unacked.pop(position)
            if limit != NONE:
                returns = counts.get(position, 0) + 1
                if returns > limit:
                    self.shelves.forget((position,))
                    spent[0].append(position)
                    spent[1].append(message)
                    continue
                counts[position] = returns
                message = counted(message, returns)
            self.shelves.put_back(position, message)
        self.give_up(spent, DELIVERY_LIMIT)

    # Messages that die.

    def give_up(self, dead: Dead, reason: str, budget: int = 0) -> int:
        """Send these on as dead letters, or drop them; how many. As many as a budget: there may be more."""
        positions, messages = dead
        if messages and self._dead_letters is not None and self.options.dead_letter_exchange is not None:
            if self.paging is None or not self.paging.gives_up_later(dead, reason):
                self.bury(dead, reason)
        elif positions and self.keeping is not None:
            self.keeping.remove(positions)
        if budget and len(messages) >= budget:
            self.mailbox.wake()
        return len(messages)

    def bury(self, dead: Dead, reason: str) -> None:
        """They are dead letters now. On disk they stay in this queue until those they go to have them."""
        if self._dead_letters is None:
            return
        if self.keeping is not None:
            self.keeping.bury(dead[0])
        burial = Burial(self.keeping, dead[0])
        self._dead_letters.bury(self, dead[1], reason, burial)
        burial.arrived()

    # Consumers.

    def _subscribe(self, item: Subscribe) -> None:
        consumer = item.consumer
        if not consumer.active:  # its channel closed in the meantime
            return
        if self.subscribers.refuses(consumer):
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
        self._vacancy.used()
        self._vacancy.watch(in_use=False)

    # The end.

    def _vacate(self) -> None:
        """Nobody has used it for as long as x-expires says."""
        if not self.subscribers.count:
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
            cancel_all(consumers)
        else:
            asker.vhost.ledger.after_commit(partial(asker.answer, ok))
            asker.vhost.ledger.after_commit(partial(cancel_all, consumers))
        waiting = list(self.mailbox.ordinary)
        self.mailbox.ordinary.clear()
        for item in waiting:
            answer_as_deleted(self.queue_name, self.vhost_name, item)
        self._wakeup.stop()
        self._vacancy.end()
        if self.marks is not None:
            self.marks.end()
            self.marks = None
        if self.paging is not None:
            self.paging.end()
            self.paging = None
        if self.keeping is not None:
            self.keeping.forget()
            self.keeping = None
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

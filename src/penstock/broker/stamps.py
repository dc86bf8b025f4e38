"""Stamps: the number of each message in its queue, told to consumers that ask for it.

A consumer with the argument `x-penstock-sequence: true` gets with every delivery the header of that name, a text: the
queue's life, a dash, the message's position. It is the same whenever the message is delivered, and no other message
ever has it; so whoever has seen it knows that the message has come again.

Positions are not used twice while the broker lives. But those of messages that the disk never had (transient ones, and
persistent ones that were delivered before the sync) are unknown to the next life, which would give them again. So a
kept queue reserves positions, a million at a time, beside its number in the definitions; only what is below that,
committed, is stamped, and the next life begins behind it. A queue that is not kept has another life each time.

A persistent message of a kept queue is delivered so when it is synced, not before: one that is lost in a crash and sent
again by its publisher would come a second time, with another number.
Place in the chain: inside queue.py and consumer.py. A queue without such consumers has none of this.
Not here: the bytes (amqp/stamp.py), where the next life begins (keeping.py:restore).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from penstock.amqp.close import PRECONDITION_FAILED, CloseChannel
from penstock.amqp.decoder import Message
from penstock.amqp.stamp import Stamp
from penstock.amqp.table import Table
from penstock.broker.backlog import Backlog
from penstock.broker.consumer import UNLIMITED
from penstock.broker.equivalence import type_name
from penstock.broker.keeping import Keeping, is_persistent
from penstock.broker.ledger import Ledger
from penstock.broker.records import record_log
from penstock.broker.stamped import put_run
from penstock.store.log import LEVEL_SHIFT

if TYPE_CHECKING:
    from penstock.broker.consumer import Consumer
    from penstock.broker.queue import Queue

SEQUENCE: Final = "x-penstock-sequence"
RESERVE: Final = 1_000_000  # positions at a time: a commit every few seconds at most, and 2 to the 48 are enough
TRANSIENT_MAX: Final = 1000  # messages looked at in one round, to see whether they are transient


class Stamps:
    __slots__ = ("_asked", "_id", "_ledger", "_life", "_queue", "_stamp", "_waits", "reserved")

    def __init__(self, queue: Queue, ledger: Ledger) -> None:
        self._queue = queue
        self._ledger = ledger
        self._id = queue.keeping.log.id if queue.keeping is not None else secrets.randbits(62) + 1
        self._life = b"%x-" % self._id
        self._stamp = Stamp(SEQUENCE)
        self._asked = 0  # positions of each priority that are reserved, or will be when that is committed
        self._waits = False  # for the disk
        self.reserved = 0  # committed
        if queue.keeping is not None:
            self._is_reserved()

    def room(self, backlog: Backlog) -> int:
        """How many of the first messages of this backlog may be stamped now. If none, the queue is woken when some
        may."""
        keeping = self._queue.keeping
        if keeping is None:
            return UNLIMITED
        if not self._is_reserved():
            return 0
        room = _synced(backlog, keeping)
        if not room and not self._waits:
            self._waits = True
            keeping.when_synced(self._synced)
        return room

    def _synced(self) -> None:
        self._waits = False
        self._queue.mailbox.wake()

    def _is_reserved(self) -> bool:
        """Whether the positions of all that waits in the queue are. If not, the queue is woken when they are."""
        queue = self._queue
        shelves = queue.shelves
        end = shelves.lowest.end
        if shelves.several:
            end = max(backlog.end - (level << LEVEL_SHIFT) for level, backlog in enumerate(shelves.levels))
        if end > self._asked - RESERVE // 2:
            self._asked = end + RESERVE
            record_log(self._ledger, queue.vhost_name, queue.queue_name, self._id, self._asked)
            self._ledger.after_commit(partial(self._committed, self._asked))
        return end <= self.reserved

    def _committed(self, reserved: int) -> None:
        self.reserved = reserved
        self._queue.mailbox.wake()

    def put_run(
        self, consumer: Consumer, frames: list[bytes], tag: int, first: int, messages: Sequence[Message], again: bool
    ) -> int:
        """Append deliveries of consecutive positions from `first` on to the frames; how many bytes that is."""
        return put_run(consumer, frames, tag, self._stamp, self._life, first, messages, again)

    def stamped(self, positions: Sequence[int], messages: Sequence[Message], frame_max: int) -> list[Message]:
        """The messages with their stamps, whatever their positions."""
        life = self._life
        texts = [life + b"%d" % position for position in positions]
        values = [b"S\0\0\0%c%b" % (len(text), text) for text in texts]
        return self._stamp.put_each(messages, values, frame_max)

    def __repr__(self) -> str:
        return f"<Stamps {self._queue.queue_name} life={self._id:x} reserved={self.reserved}>"


def _synced(backlog: Backlog, keeping: Keeping) -> int:
    """How many of the first messages are on disk, or need not be."""
    end = keeping.log.end(backlog.head >> LEVEL_SHIFT)
    if backlog.returned:
        if end >= backlog.head:
            return UNLIMITED
        position, (_, wire) = backlog.returned[0]
        return 1 if position < end or not is_persistent(wire) else 0
    if end > backlog.head:
        return end - backlog.head
    count = 0
    for _, wire in islice(backlog.ready, TRANSIENT_MAX):
        if is_persistent(wire):
            break
        count += 1
    return count


def stamps_for(queue: Queue, arguments: Table, ledger: Ledger) -> Stamps | None:
    """For a consumer with these arguments: one for all of a queue's, or None if it does not ask."""
    asked = arguments.get(SEQUENCE, False)
    if not isinstance(asked, bool):
        raise CloseChannel(
            PRECONDITION_FAILED,
            f"invalid arg '{SEQUENCE}' for queue '{queue.queue_name}' in vhost '{queue.vhost_name}': "
            f'"expected boolean, got {type_name(asked)}"',
        )
    if asked and queue.stamps is None:
        queue.stamps = Stamps(queue, ledger)
    return queue.stamps if asked else None

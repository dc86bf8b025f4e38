"""Load: clients that keep a broker busy until it dies, and tell the history what they did and saw.

Every client has a connection of its own and runs until its broker is gone. The order of telling and sending matters:
a publish or an ack is told before it is sent, because it may be done from then on; an answer is told when it is read.
Not here: what may be found afterwards (history.py), when the broker dies (rounds.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Iterator, Sequence
from typing import Final

from penstock.amqp.content import build_basic
from penstock.amqp.method import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicReject,
    ConfirmSelect,
    ConfirmSelectOk,
    Method,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
    encode_method,
)
from tests.crash.history import Found, History, Key, Kind, Line
from tests.crash.message import LARGE_MAX, Corrupt, body_of, properties_of, read_message
from tests.crash.peer import FRAME_MAX, Gone, Peer

PRIORITY_MAX: Final = 5
TICK_S: Final = 0.002  # between two bursts of a publisher
FAN: Final = "fan"  # a fanout exchange
FAN_QUEUES: Final = ("fan1", "fan2", "plain")
HOUR_MS: Final = 3_600_000
FLEETING_MS: Final = 300

# What the queues of all rounds are. The first group takes any publisher and any consumer.
ORDINARY: Final = (
    Kind("plain"),
    Kind("slow-to-die", {"x-message-ttl": HOUR_MS}),
    Kind("ranked", {"x-max-priority": PRIORITY_MAX}),
    Kind("capped", {"x-max-length": 300, "x-overflow": "reject-publish"}, refuses=True),
    Kind(
        "source",
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
        dead_letters_to="dead",
    ),
    Kind("lazy", {"x-queue-mode": "lazy"}),
    Kind("single", {"x-single-active-consumer": True}),
    Kind("fan1"),
    Kind("fan2"),
    Kind("short", {"x-max-length": 200}, drops=True),
)
FLEETING: Final = Kind(
    "fleeting",
    {"x-message-ttl": FLEETING_MS, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "expired"},
    drops=True,
    dead_letters_to="expired",
)
TAKEN: Final = Kind("taken", drops=True)  # consumers without acks
SPECIAL: Final = (
    Kind("dead", ordered=False),
    Kind("expired", ordered=False),
    Kind("committed"),
    Kind("recreated"),
    Kind("purged"),
)
KINDS: Final = (*ORDINARY, FLEETING, TAKEN, *SPECIAL)
LETTERS: Final = frozenset(kind.dead_letters_to for kind in KINDS if kind.dead_letters_to)


class Target:
    """Where a publish goes, and to which queues that is."""

    def __init__(self, exchange: str, key: str, queues: tuple[str, ...]) -> None:
        self.exchange = exchange
        self.queues = queues
        self.publish = encode_method(BasicPublish(exchange, key), 1)
        self.is_ranked = "ranked" in queues


TARGETS: Final = (
    *(Target("", kind.name, (kind.name,)) for kind in (*ORDINARY, FLEETING, TAKEN)),
    Target(FAN, "", FAN_QUEUES),
    Target(FAN, "", FAN_QUEUES),
)


class Publisher:
    """A source of numbered messages. It lives as long as the history: its numbers go on in the next life."""

    def __init__(self, number: int, history: History, dice: random.Random) -> None:
        self.number = number
        self.history = history
        self.dice = dice
        self.sent = 0
        self.peer: Peer | None = None
        self.large = 0.0  # the share of bodies of 4 KB and more
        self.transient = 0.0

    def replan(self) -> None:
        """Another mix for the next life."""
        self.large = self.dice.choice((0.0, 0.02, 0.3))
        self.transient = self.dice.choice((0.0, 0.1, 0.5))

    async def run(self, port: int) -> None:
        """Publish until the broker is gone."""
        raise NotImplementedError

    async def leave(self) -> None:
        if self.peer is not None:
            await self.peer.close()

    def message(self, target: Target) -> tuple[Key, bytes]:
        """The next message, told to the history; to be sent."""
        dice = self.dice
        self.sent += 1
        key = self.number, self.sent
        size = dice.randrange(4000, LARGE_MAX) if dice.random() < self.large else dice.randrange(20, 180)
        persistent = dice.random() >= self.transient
        priority = dice.randrange(PRIORITY_MAX + 1) if target.is_ranked else None
        self.history.published(key, target.queues, persistent, priority or 0)
        expiration = str(HOUR_MS) if dice.random() < 0.05 else None
        properties = properties_of(key, persistent, priority, expiration)
        return key, target.publish + build_basic(1, properties, body_of(key, size, target.exchange), FRAME_MAX)


class ConfirmedPublisher(Publisher):
    """Publishes with confirms, with a window, at a pace."""

    def __init__(self, number: int, history: History, dice: random.Random) -> None:
        super().__init__(number, history, dice)
        self.pool: Sequence[Target] = TARGETS  # of which every life has some
        self.targets: list[Target] = []
        self.window = 0
        self.pace = 0.0  # messages per second, at most
        self.tags: dict[int, Key] = {}  # under way, in order
        self.limit: int | None = None  # how many a life has; none: until it ends
        self._room = asyncio.Event()

    def replan(self) -> None:
        super().replan()
        self.targets = self.dice.sample(self.pool, min(len(self.pool), self.dice.randint(1, 5)))
        self.window = self.dice.choice((1, 20, 300, 600))
        self.pace = 10 ** self.dice.uniform(2.3, 4.0)

    async def run(self, port: int) -> None:
        self.tags = {}
        self._room = asyncio.Event()
        self.peer = peer = await Peer.connect(port, on_confirm=self._confirmed)
        await peer.ask(ConfirmSelect(), ConfirmSelectOk)
        tag = 0
        started, sent = asyncio.get_running_loop().time(), 0
        while self.limit is None or sent < self.limit:
            due = int((asyncio.get_running_loop().time() - started) * self.pace) + 1 - sent
            burst = min(due, self.window - len(self.tags)) if peer.blocked is None else 0
            parts = []
            for _ in range(burst):
                tag += 1
                key, data = self.message(self.dice.choice(self.targets))
                self.tags[tag] = key
                parts.append(data)
            if parts:
                sent += len(parts)
                peer.send(b"".join(parts))
                await peer.drain()
            if len(self.tags) >= self.window:
                self._room.clear()
                await first_of(self._room.wait(), peer.gone.wait())
            else:
                await asyncio.sleep(TICK_S)
            if peer.gone.is_set():
                raise peer.fault or Gone
        await self.all_answered()

    async def all_answered(self) -> None:
        assert self.peer is not None
        while self.tags:
            self._room.clear()
            await first_of(self._room.wait(), self.peer.gone.wait())
            if self.peer.gone.is_set():
                raise self.peer.fault or Gone

    def _confirmed(self, tag: int, multiple: bool, good: bool) -> None:
        tell = self.history.confirmed if good else self.history.nacked
        tags = self.tags
        if multiple:
            for first in [one for one in tags if one <= tag]:
                tell(tags.pop(first))
        elif tag in tags:
            tell(tags.pop(tag))
        else:
            self.history.complain(f"publisher {self.number} was answered for tag {tag} twice")
        self._room.set()


class TransactionPublisher(Publisher):
    """Publishes in transactions; a commit that was answered is a confirm for all of it."""

    async def run(self, port: int) -> None:
        self.peer = peer = await Peer.connect(port)
        await peer.ask(TxSelect(), TxSelectOk)
        target = Target("", "committed", ("committed",))
        while True:
            keys = []
            for _ in range(self.dice.randint(1, 30)):
                key, data = self.message(target)
                keys.append(key)
                peer.send(data)
            if self.dice.random() < 0.2 or peer.gone.is_set():
                for key in keys:  # no commit will be sent
                    self.history.withdrawn(key)
                await peer.ask(TxRollback(), TxRollbackOk)
            else:
                await peer.ask(TxCommit(), TxCommitOk)
                for key in keys:
                    self.history.confirmed(key)
                self.history.counts["committed"] += 1
            await asyncio.sleep(self.dice.choice((0, TICK_S)))


class Sweeper(ConfirmedPublisher):
    """Fills a queue of its own, and then deletes and redeclares it, or purges it."""

    def __init__(self, number: int, history: History, dice: random.Random, queue: str) -> None:
        super().__init__(number, history, dice)
        self.queue = queue

    def replan(self) -> None:
        super().replan()
        self.targets = [Target("", self.queue, (self.queue,))]

    async def run(self, port: int) -> None:
        while True:
            self.window, self.pace = 200, 20_000.0
            self.limit = self.dice.choice((1, 50, 400))
            await super().run(port)  # all is confirmed
            peer = self.peer
            assert peer is not None
            if self.dice.random() < 0.5:
                self.history.excuse(self.queue)
                if self.queue == "recreated":
                    await peer.ask(QueueDelete(self.queue), QueueDeleteOk)
                    self.history.deleted(self.queue)
                    await peer.ask(declaration(self.history.kinds[self.queue]), QueueDeclareOk)
                else:
                    await peer.ask(QueuePurge(self.queue), QueuePurgeOk)
            await peer.close()


class Consumer:
    """Takes from one queue. What it does with a delivery is its style."""

    STYLES: Final = ("ack all", "ack each", "ack every other", "requeue some", "keep", "leave", "get")

    def __init__(self, history: History, dice: random.Random, queue: str, style: str, prefetch: int) -> None:
        self.history = history
        self.dice = dice
        self.queue = queue
        self.style = style
        self.prefetch = prefetch
        self.line = Line()
        self.held: dict[int, Key] = {}  # by delivery tag, in order
        self.seen = 0
        self.leaving = False
        self.peer: Peer | None = None
        self.pause = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Consumer of {self.queue}: {self.style}, prefetch {self.prefetch}>"

    async def run(self, port: int) -> None:
        while True:
            self.held = {}
            self.line = Line()
            self.leaving = False
            self.pause = asyncio.Event()
            self.peer = peer = await Peer.connect(port, on_delivery=self._delivered)
            if self.style == "get":
                await self._get(peer)
                return
            if self.prefetch:
                await peer.ask(BasicQos(0, self.prefetch), BasicQosOk)
            no_ack = self.style == "no ack"
            await peer.ask(BasicConsume(self.queue, "c", no_ack=no_ack), BasicConsumeOk)
            await first_of(peer.gone.wait(), self.pause.wait())
            if peer.gone.is_set():
                raise peer.fault or Gone
            await self.leave()

    async def leave(self) -> None:
        # What is still on its way to us is another's as soon as this is read: it must not be told any more.
        self.leaving = True
        for key in self.held.values():
            self.history.requeued(self.queue, key)
        if self.peer is not None:
            await self.peer.close()

    async def _get(self, peer: Peer) -> None:
        while True:
            peer_said = await get(peer, self.queue)
            if peer_said is not None:
                self._settle(peer_said.delivery_tag)
            await asyncio.sleep(TICK_S)

    def _delivered(self, method: BasicDeliver | BasicGetOk, header: bytes, body: bytes) -> None:
        if self.leaving:
            return
        found = found_in(self.queue, method, header, body)
        self.history.delivered(self.queue, found.key, found.priority, method.redelivered, self.line)
        self.held[method.delivery_tag] = found.key
        self.seen += 1
        if self.style != "get":
            self._settle(method.delivery_tag)

    def _settle(self, tag: int) -> None:
        style, dice = self.style, self.dice
        if style == "no ack":
            self.history.acked(self.queue, self.held.pop(tag))
        elif style == "ack all":
            if self.seen % 20 == 0:
                for key in self.held.values():
                    self.history.acked(self.queue, key)
                self.held.clear()
                self._tell(BasicAck(tag, True))
        elif style in ("ack each", "get") or (style == "ack every other" and self.seen % 2):
            self._ack(tag)
        elif style == "requeue some":
            if dice.random() < 0.2:
                self.history.requeued(self.queue, self.held.pop(tag))
                self._tell(BasicNack(tag, False, True))
            else:
                self._ack(tag)
        elif style == "reject some":
            if dice.random() < 0.5:
                self.history.rejected(self.queue, self.held.pop(tag))
                self._tell(BasicReject(tag, False) if dice.random() < 0.5 else BasicNack(tag, False, False))
            else:
                self._ack(tag)
        elif style == "leave":
            if self.seen % 3 == 0:
                self._ack(tag)
            if self.seen % 150 == 0:
                self.pause.set()

    def _ack(self, tag: int) -> None:
        self.history.acked(self.queue, self.held.pop(tag))
        self._tell(BasicAck(tag))

    def _tell(self, method: Method) -> None:
        assert self.peer is not None
        self.peer.tell(method)


def found_in(queue: str, method: BasicDeliver | BasicGetOk, header: bytes, body: bytes) -> Found:
    """A delivery, whole and from where it was published; Corrupt if it is not. Elsewhere a priority means nothing."""
    received = read_message(header, body)
    if queue not in LETTERS and method.exchange != received.exchange:
        raise Corrupt(f"{received} comes from exchange {method.exchange!r}")
    if not method.exchange and method.routing_key != queue:
        raise Corrupt(f"{received} has routing key {method.routing_key!r} in {queue}")
    return Found(received.key, received.priority if queue == "ranked" else 0, method.redelivered)


async def get(peer: Peer, queue: str) -> BasicGetOk | None:
    answer: Method = await peer.ask(BasicGet(queue), Method)
    if isinstance(answer, BasicGetOk):
        return answer
    assert isinstance(answer, BasicGetEmpty), answer
    return None


def consumers(history: History, dice: random.Random) -> Iterator[Consumer]:
    """A random choice for one life."""
    for kind in ORDINARY:
        for _ in range(dice.choice((0, 0, 1, 2))):
            styles = (*Consumer.STYLES, "reject some", "reject some") if kind.dead_letters_to else Consumer.STYLES
            yield Consumer(history, dice, kind.name, dice.choice(styles), dice.choice((0, 1, 10, 500)))
    if dice.random() < 0.7:
        yield Consumer(history, dice, TAKEN.name, "no ack", 0)
    if dice.random() < 0.5:
        yield Consumer(history, dice, "committed", "ack each", 10)


def declaration(kind: Kind) -> QueueDeclare:
    return QueueDeclare(kind.name, durable=True, arguments=dict(kind.arguments))


async def first_of(*waits: Coroutine[None, None, object]) -> None:
    """Until one of these is done."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()

"""A simple model of queues and what connects them, for test_model.py: plain lists, one message at a time.

Whatever comes together is taken together, queue by queue in the order they were told; then the queue gives what it may
to consumers, lets expire what is due at the head, and drops what is one too many. Times are in ms.
Not here: channels and the wire (test_model.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

EXPIRED = "expired"
MAXLEN = "maxlen"
REJECTED = "rejected"
DELIVERY_LIMIT = "delivery_limit"


@dataclass
class Letter:
    """One message; a dead letter is another one with the same number."""

    number: int
    size: int
    priority: int
    exchange: str
    key: str
    deaths: tuple[tuple[str, str], ...] = ()  # queue and reason, the last one first

    def died(self, queue: str, reason: str, exchange: str, key: str | None) -> Letter:
        others = tuple(death for death in self.deaths if death != (queue, reason))
        key = self.key if key is None else key
        return Letter(self.number, self.size, self.priority, exchange, key, ((queue, reason), *others))

    def would_circle(self, target: str) -> bool:
        """Back in a queue it died in, and nobody rejected it since."""
        names = [name for name, _ in self.deaths]
        if target not in names:
            return False
        return all(reason != REJECTED for _, reason in self.deaths[: names.index(target) + 1])


@dataclass(eq=False)
class Entry:
    """A message in a queue."""

    letter: Letter
    level: int
    position: int
    deadline: int | None
    redelivered: bool = False
    returns: int = 0


@dataclass(eq=False)
class ModelConsumer:
    tag: str
    channel: Any
    queue: ModelQueue
    no_ack: bool
    prefetch: int
    priority: int
    exclusive: bool
    unacked: int = 0
    dealt: list[tuple[Entry, bool]] = field(default_factory=list)  # since the last comparison; whether redelivered

    def has_room(self) -> bool:
        return self.no_ack or not self.prefetch or self.unacked < self.prefetch


class World:
    """Queues by name, time, policies, and whose turn it is."""

    def __init__(self) -> None:
        self.now = 0
        self.queues: dict[str, ModelQueue] = {}
        self.policies: dict[tuple[bool, str], tuple[int, set[str], dict[str, Any]]] = {}
        self.waiting: dict[ModelQueue, list[Callable[[], None]]] = {}
        self.targets: dict[str, str] = {}  # dead-letter exchange -> the queue behind it

    def tell(self, queue: ModelQueue, what: Callable[[], None]) -> None:
        self.waiting.setdefault(queue, []).append(what)

    def run(self) -> None:
        while self.waiting:
            queue = next(iter(self.waiting))
            for what in self.waiting.pop(queue):
                what()
            queue.settle()

    def tick(self, ms: int) -> None:
        self.now += ms
        for queue in list(self.queues.values()):
            expires = queue.option("expires")
            if expires is not None and not queue.consumers and queue.used + expires <= self.now:
                queue.delete()
        for queue in self.queues.values():
            self.tell(queue, nothing)
        self.run()

    def settings(self, name: str, operator: bool) -> dict[str, Any]:
        best: tuple[int, dict[str, Any]] | None = None
        for (kind, _), (priority, names, definition) in self.policies.items():
            if kind == operator and name in names and (best is None or priority > best[0]):
                best = (priority, definition)
        return best[1] if best is not None else {}

    def apply(self) -> None:
        for queue in self.queues.values():
            queue.apply()
            self.tell(queue, nothing)
        self.run()


def nothing() -> None:
    return


class ModelQueue:
    def __init__(self, world: World, name: str, arguments: dict[str, Any]) -> None:
        self.world = world
        self.name = name
        self.arguments = arguments
        self.deleted = False
        self.ready: list[Entry] = []  # highest level first, then by position
        self.unacked: list[Entry] = []
        self.consumers: list[ModelConsumer] = []
        self.active: ModelConsumer | None = None
        self.ranks: dict[int, list[ModelConsumer]] = {}  # by priority, in turn
        self.used = world.now
        self.next_position = 0
        self.arrived = False  # a message with a deadline came in this turn
        self.settings: dict[str, Any] = {}
        self.bounds: dict[str, Any] = {}
        world.queues[name] = self
        self.apply()

    def apply(self) -> None:
        before = self.option("expires")
        self.settings = self.world.settings(self.name, False)
        self.bounds = self.world.settings(self.name, True)
        if self.option("expires") != before:
            self.used = self.world.now

    def option(self, name: str) -> Any:
        found = [
            place[key]
            for place, key in ((self.arguments, f"x-{name}"), (self.settings, name), (self.bounds, name))
            if key in place
        ]
        if not found:
            return None
        return min(found) if isinstance(found[0], int) else found[0]

    # Messages in.

    def arrive(self, letters: list[tuple[Letter, int | None]], answer: Callable[[int, bool], None]) -> None:
        """These come together, each with its own time to live; the answer says whether a number was taken."""
        refuses = self.option("overflow") in ("reject-publish", "reject-publish-dlx")
        refused = []
        for letter, ttl in letters:
            if refuses and not self.has_space(letter):
                self.deal()
                self.expire()
            if refuses and not self.has_space(letter):
                refused.append(letter)
                answer(letter.number, False)
                continue
            ttls = [one for one in (ttl, self.option("message-ttl")) if one is not None]
            self.arrived = self.arrived or bool(ttls) or bool(self.arguments.get("x-max-priority"))
            level = min(letter.priority, self.arguments.get("x-max-priority", 0))
            self.put(Entry(letter, level, self.next_position, self.world.now + min(ttls) if ttls else None))
            self.next_position += 1
            answer(letter.number, True)
        if self.option("overflow") == "reject-publish-dlx":
            self.bury(refused, MAXLEN)

    def put(self, entry: Entry) -> None:
        self.ready.append(entry)
        self.ready.sort(key=lambda one: (-one.level, one.position))

    def has_space(self, letter: Letter) -> bool:
        length, size = self.option("max-length"), self.option("max-length-bytes")
        if length is not None and len(self.ready) + 1 > length:
            return False
        return size is None or self.size() + letter.size <= size

    def size(self) -> int:
        return sum(entry.letter.size for entry in self.ready)

    # Messages out.

    def settle(self) -> None:
        self.deal()
        self.arrived = False
        while True:
            self.expire()
            if self.option("overflow") in (None, "drop-head"):
                self.drop_excess()
            if not self.is_due():
                return

    def deal(self) -> None:
        while self.ready and self.consumers:
            while self.is_due() and (not self.arrived or self.ready[0].deadline != self.world.now):
                self.bury([self.ready.pop(0).letter], EXPIRED)
            consumer = self.next_consumer() if self.ready else None
            if consumer is None:
                return
            entry = self.ready.pop(0)
            consumer.dealt.append((entry, entry.redelivered))
            if not consumer.no_ack:
                consumer.unacked += 1
                self.unacked.append(entry)

    def is_due(self) -> bool:
        if not self.ready:
            return False
        deadline = self.ready[0].deadline
        return deadline is not None and deadline <= self.world.now

    def expire(self) -> None:
        while self.is_due():
            self.bury([self.ready.pop(0).letter], EXPIRED)

    def drop_excess(self) -> None:
        length, size = self.option("max-length"), self.option("max-length-bytes")
        while (length is not None and len(self.ready) > length) or (size is not None and self.size() > size):
            self.bury([self.ready.pop(0).letter], MAXLEN)

    def bury(self, letters: list[Letter], reason: str) -> None:
        exchange = self.option("dead-letter-exchange")
        if exchange is None:
            return
        key = self.option("dead-letter-routing-key")
        target = self.world.queues.get(key if exchange == "" else self.world.targets[exchange])
        for letter in letters:
            dead = letter.died(self.name, reason, exchange, key)
            if target is not None and not dead.would_circle(target.name):
                one = (dead, None)
                self.world.tell(target, lambda one=one, to=target: to.arrive([one], no_answer))  # type: ignore[misc]

    def get(self) -> Entry | None:
        self.used = self.world.now
        self.expire()
        return self.ready.pop(0) if self.ready else None

    def acked(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.unacked.remove(entry)

    def rejected(self, entries: list[Entry]) -> None:
        self.acked(entries)
        self.bury([entry.letter for entry in entries], REJECTED)

    def returned(self, entries: list[Entry]) -> None:
        self.acked(entries)
        limit = self.option("delivery-limit")
        spent = []
        for entry in entries:
            if limit is not None:
                entry.returns += 1
                if entry.returns > limit:
                    spent.append(entry.letter)
                    continue
            entry.redelivered = True
            self.put(entry)
        self.bury(spent, DELIVERY_LIMIT)

    # Consumers.

    def refuses(self, exclusive: bool) -> bool:
        if exclusive and (self.consumers or self.arguments.get("x-single-active-consumer")):
            return True
        return any(consumer.exclusive for consumer in self.consumers)

    def subscribe(self, consumer: ModelConsumer) -> None:
        self.consumers.append(consumer)
        self.ranks.setdefault(consumer.priority, []).append(consumer)
        if self.active is None:
            self.active = consumer

    def unsubscribe(self, consumer: ModelConsumer) -> None:
        self.consumers.remove(consumer)
        self.ranks[consumer.priority].remove(consumer)
        if self.active is consumer:  # the oldest of the highest priority follows
            self.active = max(self.consumers, key=lambda one: one.priority, default=None)
        if not self.consumers:
            self.used = self.world.now

    def next_consumer(self) -> ModelConsumer | None:
        if self.arguments.get("x-single-active-consumer"):
            return self.active if self.active is not None and self.active.has_room() else None
        for priority in sorted(self.ranks, reverse=True):
            rank = self.ranks[priority]
            for at, consumer in enumerate(rank):
                if consumer.has_room():
                    self.ranks[priority] = rank[at + 1 :] + rank[: at + 1]
                    return consumer
        return None

    # The end.

    def purge(self) -> int:
        count = len(self.ready)
        self.ready.clear()
        return count

    def delete(self) -> None:
        self.deleted = True
        del self.world.queues[self.name]
        self.ready.clear()
        self.unacked.clear()


def no_answer(number: int, taken: bool) -> None:
    return

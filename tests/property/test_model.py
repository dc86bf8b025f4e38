"""The broker against a simple model (model.py): random histories of everything clients and operators may do.

Several connections, channels (plain, with confirms, in transactions) and queues with random arguments and policies;
after every step what each consumer got, every reply, the set of confirms, and the counts of each queue must be the
model's. When one fails, hypothesis prints the steps of the shortest history it found.

In the normal run a few hundred examples. PENSTOCK_MODEL_EXAMPLES=5000 runs as many of each test.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from penstock.amqp import content
from penstock.amqp.method import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverOk,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
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
)
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import Table
from penstock.broker.policy import Policy
from tests.property.model import Entry, Letter, ModelConsumer, ModelQueue, World, nothing
from tests.unit.fakes import FakePeer, House

EXAMPLES = int(os.environ.get("PENSTOCK_MODEL_EXAMPLES", "0"))
pytestmark = pytest.mark.timeout(900 + EXAMPLES)  # finding the shortest history that fails takes minutes
QUEUES = ("a", "b", "c")
NEXT = {"a": "b", "b": "c", "c": "a"}  # where dead letters may go: a queue has one source of them at most
TICK_MS = 10  # all times to live are multiples of this; queues expire between
PLAIN, CONFIRM, TX = "plain", "confirm", "tx"
MODES = {(0, 1): PLAIN, (0, 2): CONFIRM, (1, 1): TX, (1, 2): PLAIN}

ACKED, DROPPED, REQUEUED = "acked", "dropped", "requeued"


@dataclass(eq=False)
class Delivery:
    consumer: ModelConsumer | None  # None: by basic.get
    queue: ModelQueue
    entry: Entry


@dataclass(eq=False)
class Post:
    letter: Letter
    ttl: int | None
    mandatory: bool
    queues: list[ModelQueue]


@dataclass(eq=False)
class Line:
    """A channel, the client's side and the model's."""

    key: tuple[int, int]
    mode: str
    consumers: list[ModelConsumer] = field(default_factory=list)
    unacked: dict[int, Delivery] = field(default_factory=dict)
    next_tag: int = 1
    next_number: int = 1
    posted: list[Post] = field(default_factory=list)
    settled: list[tuple[str, list[tuple[int, Delivery]]]] = field(default_factory=list)
    # Expected of this step:
    replies: list[Method] = field(default_factory=list)
    confirms: dict[int, bool] = field(default_factory=dict)
    is_partial: bool = False  # a queue refused a part of its transaction

    @property
    def number(self) -> int:
        return self.key[1]


@dataclass
class Kind:
    """Which features a world has. All three at once have an order nobody promises: timers decide who is first."""

    timed: bool
    letters: bool  # dead ones
    priorities: bool
    budgets: dict[str, int] = field(default_factory=dict)


class Bench:
    """The broker and the model side by side. test_paging.py has one with a message store."""

    durable = False  # queues
    delivery_mode: int | None = None  # of the next messages

    def __init__(self, kind: Kind, house: House | None = None) -> None:
        self.kind = kind
        self.house = house or House("400,200", "0,0", **kind.budgets)
        self.house.clock.advance(1)  # a monotonic clock never says 0
        self.counts_late = bool(kind.budgets)  # what a get says is left
        self.world = World()
        self.peers: list[FakePeer] = [self.house.peer("p0"), self.house.peer("p1")]
        self.lines: dict[tuple[int, int], Line] = {}
        self.published = 0
        self.tags = 0
        for name in ("all", "to-a", "to-b", "to-c"):
            self.house.vhost.declare_exchange(ExchangeDeclare(name, "fanout"))
        self.world.targets = {f"to-{name}": name for name in QUEUES}
        for key in MODES:
            self.open(key)

    def open(self, key: tuple[int, int]) -> None:
        peer = self.peers[key[0]]
        peer.open(key[1])
        line = self.lines[key] = Line(key, MODES[key])
        if line.mode == CONFIRM:
            assert peer.ask(key[1], ConfirmSelect()) == [ConfirmSelectOk()]
        elif line.mode == TX:
            assert peer.ask(key[1], TxSelect()) == [TxSelectOk()]

    def declare(self, name: str, arguments: dict[str, Any]) -> None:
        note(f"declare {name} {arguments}")
        queue = self.house.queue(name, durable=self.durable, arguments=arguments)
        vhost = self.house.vhost
        vhost.bind(vhost.exchanges[f"to-{name}"], queue, "", {})
        if name != "b":  # a and c only: b would take what a gives up in the same turn
            vhost.bind(vhost.exchanges["all"], queue, "", {})
        ModelQueue(self.world, name, arguments)
        self.compare()

    def tell(self, line: Line, method: Method) -> None:
        self.peers[line.key[0]].tell(line.number, method)

    # Looking.

    def compare(self) -> None:
        """Let both run to the end; they must have done the same."""
        self.world.run()
        self.run()
        for line in list(self.lines.values()):
            self.fail_if_partial(line)
        for index, peer in enumerate(self.peers):
            self.look(index, peer)
        for line in self.lines.values():
            assert not line.replies, f"missing on {line.key}: {line.replies}"
            assert not line.confirms, f"not confirmed on {line.key}: {line.confirms}"
            for consumer in line.consumers:
                assert not consumer.dealt, f"{consumer.tag} lacks {[one.letter.number for one, _ in consumer.dealt]}"
        vhost = self.house.vhost
        assert list(vhost.queues) == list(self.world.queues)
        for name, queue in self.world.queues.items():
            real = vhost.queues[name]
            assert real.count() == len(queue.ready), name
            assert len(real.unacked) == len(queue.unacked), name
            assert len(real.subscribers) == len(queue.consumers), name
            assert not real.blocked_by

    def run(self) -> None:
        self.house.run_until_idle()
        self.house.clock.advance(0)
        while self.house.awake:
            self.house.run_until_idle()
            self.house.clock.advance(0)

    def look(self, index: int, peer: FakePeer) -> None:
        """What was said on this connection, taken off what is expected."""
        closed = []
        for one in peer.said():
            line = self.lines[index, one.channel]
            method = one.method
            if self.counts_late and isinstance(method, BasicGetOk) and line.replies:
                method.message_count = getattr(line.replies[0], "message_count", 0)  # not all may have expired yet
            if isinstance(method, BasicDeliver):
                self.look_at_delivery(line, method, one.body or b"")
            elif isinstance(method, (BasicAck, BasicNack)):
                self.look_at_confirm(line, method)
            elif isinstance(method, BasicCancel):  # of a deleted queue; in any order
                line.replies.remove(method)
            else:
                assert line.replies, f"{method} on {line.key} is too much"
                expected = line.replies.pop(0)
                if isinstance(expected, ChannelClose) and isinstance(method, ChannelClose):
                    assert method.reply_code == expected.reply_code
                    assert expected.reply_text in method.reply_text
                    closed.append(line)
                else:
                    assert method == expected
        assert not peer.errors
        for line in closed:
            assert not line.replies
            assert not line.confirms
            peer.tell(line.number, ChannelCloseOk())
            self.run()
            self.open(line.key)

    def look_at_delivery(self, line: Line, method: BasicDeliver, body: bytes) -> None:
        assert method.delivery_tag == line.next_tag
        line.next_tag += 1
        (consumer,) = (one for one in line.consumers if one.tag == method.consumer_tag)
        assert consumer.dealt, f"{consumer.tag} got {body!r} too much"
        entry, redelivered = consumer.dealt.pop(0)
        letter = entry.letter
        assert (number_in(body), method.redelivered) == (letter.number, redelivered)
        assert (method.exchange, method.routing_key, len(body)) == (letter.exchange, letter.key, letter.size)
        if not consumer.no_ack:
            line.unacked[method.delivery_tag] = Delivery(consumer, consumer.queue, entry)

    def look_at_confirm(self, line: Line, method: BasicAck | BasicNack) -> None:
        tag = method.delivery_tag
        numbers = [one for one in line.confirms if one <= tag] if method.multiple else [tag]
        for number in numbers:
            assert line.confirms.pop(number) == isinstance(method, BasicAck), number

    # Publishing.

    def publish(self, line: Line, key: str, sizes: list[int], priority: int, ttl: int | None, mandatory: bool) -> None:
        """To a queue by name, or to two of them through an exchange if the key is empty."""
        note(f"publish on {line.key} to {key or 'all'}: {len(sizes)} of {sizes}, {priority=} {ttl=} {mandatory=}")
        exchange = "" if key else "all"
        queues = self.route(key)
        posts = []
        bodies = []
        for size in sizes:
            body = b"%d|" % self.published
            body += b"." * max(0, size - len(body))
            posts.append(Post(Letter(self.published, len(body), priority, exchange, key), ttl, mandatory, queues))
            bodies.append(body)
            self.published += 1
        properties = encode_properties(
            Properties(
                priority=priority or None,
                expiration=str(ttl) if ttl is not None else None,
                delivery_mode=self.delivery_mode,
            )
        )
        peer = self.peers[line.key[0]]
        peer.publish(line.number, key, *bodies, exchange=exchange, mandatory=mandatory, properties=properties)
        if line.mode == TX:
            line.posted += posts
        else:
            self.pass_on(line, posts)
        self.compare()

    def route(self, key: str) -> list[ModelQueue]:
        names = (key,) if key else ("a", "c")
        return [queue for name, queue in self.world.queues.items() if name in names]

    def pass_on(self, line: Line, posts: list[Post]) -> None:
        arrivals: dict[ModelQueue, list[tuple[Letter, int | None]]] = {}
        numbers: dict[int, int] = {}
        for post in posts:
            letter = post.letter
            queues = [queue for queue in post.queues if not queue.deleted]  # in a transaction that takes its time
            if not queues and post.mandatory:
                line.replies.append(BasicReturn(312, "NO_ROUTE", letter.exchange, letter.key))
            if line.mode == CONFIRM:
                numbers[letter.number] = line.next_number
                line.confirms[line.next_number] = True
                line.next_number += 1
            for queue in queues:
                arrivals.setdefault(queue, []).append((letter, post.ttl))

        def answer(number: int, taken: bool) -> None:
            if line.mode == TX:
                line.is_partial = line.is_partial or not taken
            elif line.mode == CONFIRM and not taken:
                line.confirms[numbers[number]] = False

        for queue, letters in arrivals.items():
            self.world.tell(queue, partial(queue.arrive, letters, answer))

    def commit(self, line: Line) -> None:
        note(f"commit {line.key}")
        self.tell(line, TxCommit())
        for outcome, taken in line.settled:
            self.settle([delivery for _, delivery in taken], outcome)
        posts, line.posted, line.settled = line.posted, [], []
        self.pass_on(line, posts)
        line.replies.append(TxCommitOk())
        self.compare()

    def fail_if_partial(self, line: Line) -> None:
        """A queue refused a part of a transaction: it cannot be taken back, so the channel ends."""
        if not line.is_partial:
            return
        line.is_partial = False
        assert line.replies.pop() == TxCommitOk()
        line.replies.append(ChannelClose(406, "partial tx completion"))
        self.leave(line)
        self.world.run()

    def roll_back(self, line: Line) -> None:
        note(f"rollback {line.key}")
        self.tell(line, TxRollback())
        self.undo(line)
        line.replies.append(TxRollbackOk())
        self.compare()

    def undo(self, line: Line) -> None:
        for _, taken in line.settled:
            line.unacked.update(taken)
        line.unacked = dict(sorted(line.unacked.items()))
        line.posted, line.settled = [], []

    # Consuming.

    def consume(self, line: Line, name: str, no_ack: bool, prefetch: int, priority: int, exclusive: bool) -> None:
        note(f"consume on {line.key} from {name}: {no_ack=} {prefetch=} {priority=} {exclusive=}")
        self.tags += 1
        self.tell(line, BasicQos(0, prefetch))
        arguments: Table = {"x-priority": priority} if priority else {}
        self.tell(line, BasicConsume(name, f"c{self.tags}", False, no_ack, exclusive, arguments=arguments))
        line.replies.append(BasicQosOk())
        queue = self.world.queues.get(name)
        if queue is None:
            self.fail(line, 404, f"no queue '{name}'")
        elif queue.refuses(exclusive):
            self.fail(line, 403, "in exclusive use")
        else:
            consumer = ModelConsumer(f"c{self.tags}", line, queue, no_ack, prefetch, priority, exclusive)
            line.consumers.append(consumer)
            line.replies.append(BasicConsumeOk(consumer.tag))
            self.world.tell(queue, partial(queue.subscribe, consumer))
        self.compare()

    def fail(self, line: Line, code: int, text: str) -> None:
        line.replies.append(ChannelClose(code, text))
        self.leave(line)

    def cancel(self, line: Line, consumer: ModelConsumer) -> None:
        note(f"cancel {consumer.tag}")
        self.tell(line, BasicCancel(consumer.tag))
        line.replies.append(BasicCancelOk(consumer.tag))
        line.consumers.remove(consumer)
        self.world.tell(consumer.queue, partial(consumer.queue.unsubscribe, consumer))
        self.compare()

    def get(self, line: Line, name: str, no_ack: bool) -> None:
        note(f"get on {line.key} from {name}: {no_ack=}")
        self.tell(line, BasicGet(name, no_ack))
        queue = self.world.queues.get(name)
        if queue is None:
            self.fail(line, 404, f"no queue '{name}'")
            self.compare()
            return
        entry = queue.get()
        queue.expire()  # those behind it that are due are not counted
        self.world.tell(queue, nothing)
        if entry is None:
            line.replies.append(BasicGetEmpty())
        else:
            tag = line.next_tag
            line.next_tag += 1
            letter = entry.letter
            line.replies.append(BasicGetOk(tag, entry.redelivered, letter.exchange, letter.key, len(queue.ready)))
            if not no_ack:
                line.unacked[tag] = Delivery(None, queue, entry)
                queue.unacked.append(entry)
        self.compare()

    def answer(self, line: Line, tag: int, multiple: bool, outcome: str) -> None:
        """Ack or nack."""
        note(f"{outcome} on {line.key}: {tag=} {multiple=}")
        tags = [one for one in line.unacked if one <= tag or tag == 0] if multiple else [tag]
        taken = [(one, line.unacked.pop(one)) for one in tags]
        peer = self.peers[line.key[0]]
        if outcome == ACKED:
            peer.ack(line.number, tag, multiple=multiple)
        else:
            peer.nack(line.number, tag, multiple, outcome == REQUEUED)
        if line.mode == TX:
            line.settled.append((outcome, taken))
        else:
            self.settle([delivery for _, delivery in taken], outcome)
        self.compare()

    def settle(self, deliveries: list[Delivery], outcome: str) -> None:
        """A queue is told consumer by consumer."""
        groups: dict[tuple[ModelConsumer | None, ModelQueue], list[Entry]] = {}
        for delivery in deliveries:
            groups.setdefault((delivery.consumer, delivery.queue), []).append(delivery.entry)
            if delivery.consumer is not None:
                delivery.consumer.unacked -= 1
        for (_, queue), entries in groups.items():
            if queue.deleted:
                continue
            act = {ACKED: queue.acked, DROPPED: queue.rejected, REQUEUED: queue.returned}[outcome]
            self.world.tell(queue, partial(act, entries))

    def recover(self, line: Line) -> None:
        note(f"recover {line.key}")
        self.tell(line, BasicRecover(True))
        line.replies.append(BasicRecoverOk())
        self.requeue_all(line)
        self.compare()

    def requeue_all(self, line: Line) -> None:
        deliveries = list(line.unacked.values())
        line.unacked.clear()
        self.settle(deliveries, REQUEUED)

    # Ends.

    def leave(self, line: Line) -> None:
        """What a channel's end does to the queues. What was dealt to it in this step comes back too."""
        for consumer in line.consumers:
            if not consumer.queue.deleted:
                self.world.tell(consumer.queue, partial(consumer.queue.unsubscribe, consumer))
        self.undo(line)
        dealt = [Delivery(one, one.queue, entry) for one in line.consumers if not one.no_ack for entry, _ in one.dealt]
        deliveries = [*line.unacked.values(), *dealt]
        line.unacked.clear()
        self.settle(deliveries, REQUEUED)

    def close(self, line: Line) -> None:
        note(f"close {line.key}")
        self.tell(line, ChannelClose(200, "bye"))
        line.replies.append(ChannelCloseOk())
        self.leave(line)
        self.compare()
        self.open(line.key)

    def lose_connection(self, index: int) -> None:
        note(f"lose connection {index}")
        peer = self.peers[index]
        peer.outbox.close()
        peer.reader.shut_down()
        for line in self.lines.values():
            if line.key[0] == index:
                self.leave(line)
        self.peers[index] = self.house.peer(f"p{index}")
        self.compare()
        for key in MODES:
            if key[0] == index:
                self.open(key)

    # Queues and operators.

    def count(self, line: Line, queue: ModelQueue) -> None:
        note(f"count {queue.name}")
        self.tell(line, QueueDeclare(queue.name, passive=True))
        queue.used = self.world.now
        line.replies.append(QueueDeclareOk(queue.name, len(queue.ready), len(queue.consumers)))
        self.compare()

    def purge(self, line: Line, queue: ModelQueue) -> None:
        note(f"purge {queue.name}")
        self.tell(line, QueuePurge(queue.name))
        line.replies.append(QueuePurgeOk(queue.purge()))
        self.compare()

    def delete(self, line: Line, queue: ModelQueue) -> None:
        note(f"delete {queue.name}")
        self.tell(line, QueueDelete(queue.name))
        line.replies.append(QueueDeleteOk(len(queue.ready)))
        for consumer in queue.consumers:
            consumer.channel.replies.append(BasicCancel(consumer.tag, True))
            consumer.channel.consumers.remove(consumer)
        queue.consumers.clear()
        queue.delete()
        self.compare()

    def put_policy(self, name: str, operator: bool, priority: int, names: set[str], definition: dict[str, Any]) -> None:
        note(f"policy {name} {operator=} {priority=} {names} {definition}")
        pattern = f"^[{''.join(sorted(names))}]$"
        self.house.vhost.put_policy(Policy(name, pattern, definition, "queues", priority, operator), operator)
        self.world.policies[operator, name] = (priority, names, definition)
        self.world.apply()
        self.compare()

    def drop_policy(self, name: str, operator: bool) -> None:
        note(f"drop policy {name} {operator=}")
        assert self.house.vhost.drop_policy(name, operator)
        del self.world.policies[operator, name]
        self.world.apply()
        self.compare()

    def tick(self) -> None:
        note("tick")
        self.house.clock.advance(TICK_MS / 1000)
        self.world.tick(TICK_MS)
        self.compare()


def number_in(body: bytes) -> int:
    return int(body.split(b"|")[0])


# Random worlds.


def some(draw: Any, chance: int) -> bool:
    """One time in so many."""
    return bool(draw(st.integers(1, chance)) == chance)


def draw_options(draw: Any, kind: Kind, names: set[str]) -> dict[str, Any]:
    """What an argument or a policy may say about these queues."""
    found: dict[str, Any] = {}
    if kind.timed and some(draw, 3):
        found["message-ttl"] = draw(st.sampled_from((0, 10, 20, 50)))
    if some(draw, 3):
        found["max-length"] = draw(st.integers(0, 4))
    if some(draw, 5):
        found["max-length-bytes"] = draw(st.integers(0, 40))
    if some(draw, 3) and not (kind.timed and kind.letters):
        found["overflow"] = draw(st.sampled_from(("drop-head", "reject-publish", "reject-publish-dlx")))
    if some(draw, 3):
        found["delivery-limit"] = draw(st.integers(0, 2))
    if some(draw, 8):
        found["expires"] = draw(st.sampled_from((15, 35, 75)))
    if kind.letters and len(names) == 1 and not some(draw, 3):
        (name,) = names
        if draw(st.booleans()):
            found["dead-letter-exchange"] = f"to-{NEXT[name]}"
        else:
            found |= {"dead-letter-exchange": "", "dead-letter-routing-key": NEXT[name]}
    return found


def draw_arguments(draw: Any, kind: Kind, name: str) -> dict[str, Any]:
    arguments = {f"x-{key}": value for key, value in draw_options(draw, kind, {name}).items()}
    if kind.priorities and some(draw, 2):
        arguments["x-max-priority"] = draw(st.integers(0, 3))
    if not kind.budgets and some(draw, 4):
        arguments["x-single-active-consumer"] = draw(st.booleans())
    return arguments


OPERATOR_KEYS = ("message-ttl", "max-length", "max-length-bytes", "expires", "delivery-limit")


def draw_policy(draw: Any, bench: Bench) -> None:
    operator = some(draw, 3)
    name = draw(st.sampled_from(("p", "r")))
    if (operator, name) in bench.world.policies and draw(st.booleans()):
        bench.drop_policy(name, operator)
        return
    names = draw(st.sampled_from(({"a"}, {"b"}, {"c"}, {"a", "b"}, {"a", "b", "c"})))
    definition = draw_options(draw, bench.kind, names)
    if operator:
        definition = {key: value for key, value in definition.items() if key in OPERATOR_KEYS}
    if definition:
        bench.put_policy(name, operator, draw(st.integers(0, 2)), names, definition)


def draw_publish(draw: Any, bench: Bench, line: Line) -> None:
    key = draw(st.sampled_from((*QUEUES, *QUEUES, "")))
    ttl = None
    if bench.kind.timed and some(draw, 3):
        ttl = draw(st.sampled_from((0, 10, 20, 50)))
    priority = draw(st.integers(0, 4)) if bench.kind.priorities else 0
    sizes = draw(st.lists(st.integers(4, 20), min_size=1, max_size=6))
    if ttl == 0 or any(queue.option("message-ttl") == 0 for queue in bench.world.queues.values()):
        sizes = sizes[:1]  # several that expire at once: which of them push out others depends on what is read together
    bench.publish(line, key, sizes, priority, ttl, draw(st.booleans()))


def draw_answer(draw: Any, bench: Bench, line: Line, one_by_one: bool) -> None:
    multiple = not one_by_one and draw(st.booleans())
    tag = draw(st.sampled_from([*line.unacked, *([0] if multiple else [])]))
    bench.answer(line, tag, multiple, draw(st.sampled_from((ACKED, ACKED, DROPPED, REQUEUED, REQUEUED))))


def step(draw: Any, bench: Bench, action: str, one_by_one: bool) -> None:
    useful = list(bench.lines.values())
    if action in ("answer", "recover"):
        useful = [line for line in useful if line.unacked]
    elif action == "cancel":
        useful = [line for line in useful if line.consumers]
    elif action == "consume" and bench.kind.letters:
        # A transaction that is refused ends its channel, and its dead letters may come there before or after that.
        useful = [line for line in useful if line.mode != TX]
    elif action in ("commit", "rollback"):
        useful = [line for line in useful if line.posted or line.settled]
    if not useful:
        action = "publish"
        useful = list(bench.lines.values())
    line = bench.lines[draw(st.sampled_from([line.key for line in useful]))]
    name = draw(st.sampled_from(QUEUES))
    queue = bench.world.queues.get(name)
    if one_by_one and queue is None and action in ("consume", "get"):
        # It would close the channel, and what several consumers give back is not one by one: with little budget a queue
        # drops what is too much between them (test_what_a_closed_channel_gives_back_is_within_the_limit…).
        action = "publish"
    if action == "publish":
        draw_publish(draw, bench, line)
    elif action == "answer":
        draw_answer(draw, bench, line, one_by_one)
    elif action == "tick":
        bench.tick()
    elif action == "policy":
        draw_policy(draw, bench)
    elif action == "get":
        bench.get(line, name, draw(st.booleans()))
    elif action == "consume":
        bench.consume(
            line,
            name,
            some(draw, 3),
            draw(st.integers(0, 3)),
            draw(st.integers(0, 2)),
            not one_by_one and some(draw, 6),
        )
    elif action == "cancel":
        bench.cancel(line, line.consumers[draw(st.integers(0, len(line.consumers) - 1))])
    elif action == "recover":
        bench.recover(line)
    elif action == "close":
        bench.close(line)
    elif action == "lose":
        bench.lose_connection(line.key[0])
    elif action == "declare" and queue is None:
        bench.declare(name, draw_arguments(draw, bench.kind, name))
    elif action == "count" and queue is not None:
        bench.count(line, queue)
    elif action == "purge" and queue is not None:
        bench.purge(line, queue)
    elif action == "delete" and queue is not None:
        bench.delete(line, queue)
    elif action == "commit":
        bench.commit(line)
    elif action == "rollback":
        bench.roll_back(line)


OFTEN = ["publish"] * 10 + ["answer"] * 8 + ["consume"] * 5 + ["tick"] * 3 + ["get"] * 3 + ["declare"] * 2
SELDOM = ["policy", "policy", "commit", "commit", "rollback", "count", "purge", "cancel"]
ENDS = ["recover", "close", "lose", "delete"]


def walk(data: st.DataObject, kind: Kind, actions: list[str], one_by_one: bool = False) -> None:
    draw = data.draw
    bench = Bench(kind)
    for name in QUEUES:
        bench.declare(name, draw_arguments(draw, kind, name))
    for _ in range(draw(st.sampled_from((60, 40, 20, 10, 5)))):  # hypothesis likes the end of a list, and short ones
        step(draw, bench, draw(st.sampled_from(actions)), one_by_one)


def often(examples: int) -> settings:
    return settings(
        max_examples=EXAMPLES or examples,
        deadline=None,
        phases=[phase for phase in Phase if phase is not Phase.explain],  # explaining takes minutes here
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@often(100)
@given(st.data())
def test_queues_with_time_limits_and_priorities_do_as_the_model_does(data: st.DataObject) -> None:
    walk(data, Kind(timed=True, letters=False, priorities=True), OFTEN + SELDOM + ENDS)


@often(100)
@given(st.data())
def test_dead_letters_and_time_limits_go_as_in_the_model(data: st.DataObject) -> None:
    walk(data, Kind(timed=True, letters=True, priorities=False), OFTEN + SELDOM + ENDS)


@often(100)
@given(st.data())
def test_dead_letters_of_queues_with_priorities_and_refusals_go_as_in_the_model(data: st.DataObject) -> None:
    walk(data, Kind(timed=False, letters=True, priorities=True), OFTEN + SELDOM + ENDS)


@often(60)
@given(st.data(), st.integers(1, 4))
def test_however_little_a_queue_may_do_in_a_turn_the_outcome_is_the_same(data: st.DataObject, budget: int) -> None:
    kind = Kind(data.draw(st.booleans()), data.draw(st.booleans()), False, {"stage_budget": budget, "turn_budget": 3})
    walk(data, kind, [*OFTEN, "policy", "count", "purge"], one_by_one=True)


@pytest.mark.parametrize(("budget", "kept"), [(400, [2]), (3, [0, 2]), (2, [0, 2]), (1, [0, 2])])
def test_what_a_closed_channel_gives_back_is_within_the_limit_but_which_depends_on_the_turns(
    budget: int, kept: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue is told consumer by consumer. In one turn 0, 1 and 2 come back, and 0 and 1 are too much; in two turns 1
    and 2 do, 1 is too much, and then there is space for 0, which is small."""
    monkeypatch.setattr(sys.modules[__name__], "note", print)
    bench = Bench(Kind(False, False, False, {"stage_budget": budget, "turn_budget": 3}))
    bench.declare("a", {"x-max-length-bytes": 24})
    line, publisher = bench.lines[0, 1], bench.lines[0, 2]
    bench.consume(line, "a", False, 1, 0, False)
    bench.publish(publisher, "a", [4], 0, None, False)
    bench.consume(line, "a", False, 2, 0, False)
    bench.publish(publisher, "a", [20, 20], 0, None, False)
    bench.answer(line, 1, False, REQUEUED)
    bench.tell(line, BasicConsume("b", "c9"))  # which is not there
    bench.run()
    queue = bench.house.vhost.queues["a"]
    assert not queue.unacked
    assert sorted(number_in(content.body(wire)) for _, (_, wire) in queue.shelves.lowest.returned) == kept

"""Routing against a naive model: whatever was declared, deleted, bound and unbound, a publish reaches what it should.

One channel publishes the same methods again and again, so that every route it remembered before a change would show
if it went stale.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.amqp.method import (
    BasicConsume,
    BasicConsumeOk,
    ChannelClose,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueUnbind,
    QueueUnbindOk,
)
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import Table, encode_table
from penstock.broker.hashring import HashRing
from tests.unit.fakes import FakePeer, House

EXCHANGES = ("x0", "x1", "x2", "x3")
QUEUES = ("q0", "q1", "q2")
KINDS = ("direct", "fanout", "topic", "headers", "x-consistent-hash")
HASH = "x-consistent-hash"
KEYS = ("1", "2", "1.2")
BINDING_KEYS = ("1", "2", "1.2", "*", "#.2", "#")
BINDING_ARGUMENTS: tuple[Table, ...] = ({}, {"h": 1}, {"h": 1, "i": 2}, {"x-match": "any", "h": 2, "i": 2})
HEADERS: tuple[Table, ...] = ({}, {"h": 1}, {"h": 1, "i": 2}, {"h": 3})


@dataclass(frozen=True)
class Bound:
    source: str
    to_queue: bool
    destination: str
    key: str
    arguments: int  # which of BINDING_ARGUMENTS


@dataclass
class Declared:
    kind: str
    alternate: str | None
    auto_delete: bool
    hash_header: bool


class Model:
    """Lists that are searched from the beginning each time."""

    def __init__(self) -> None:
        self.exchanges: dict[str, Declared] = {}
        self.queues: list[str] = []
        self.bindings: list[Bound] = []

    def remove(self, gone: list[Bound]) -> None:
        self.bindings = [binding for binding in self.bindings if binding not in gone]
        for name in {binding.source for binding in gone}:
            exchange = self.exchanges.get(name)
            if exchange and exchange.auto_delete and not any(b.source == name for b in self.bindings):
                self.delete_exchange(name)

    def delete_exchange(self, name: str) -> None:
        self.exchanges.pop(name, None)
        self.bindings = [binding for binding in self.bindings if binding.source != name]
        self.remove([b for b in self.bindings if not b.to_queue and b.destination == name])

    def delete_queue(self, name: str) -> None:
        self.queues = [queue for queue in self.queues if queue != name]
        self.remove([b for b in self.bindings if b.to_queue and b.destination == name])

    def matches(self, name: str, key: str, headers: Table) -> list[Bound]:
        mine = [binding for binding in self.bindings if binding.source == name]
        exchange = self.exchanges[name]
        if exchange.kind == HASH:
            hashed = key.encode()
            if exchange.hash_header:
                hashed = encode_table({"": headers["h"]}) if "h" in headers else b""
            return chosen(mine, hashed)
        return [binding for binding in mine if matches_one(exchange.kind, binding, key, headers)]

    def reached(self, exchange: str, key: str, headers: Table) -> set[str]:
        queues: set[str] = set()
        seen: list[str] = []
        waiting = [exchange]
        while waiting:
            name = waiting.pop(0)
            if name in seen or name not in self.exchanges:
                continue
            seen.append(name)
            matched = self.matches(name, key, headers)
            queues |= {binding.destination for binding in matched if binding.to_queue}
            waiting += [binding.destination for binding in matched if not binding.to_queue]
            alternate = self.exchanges[name].alternate
            if not matched and alternate is not None:
                waiting.append(alternate)
        return queues


def chosen(mine: list[Bound], hashed: bytes) -> list[Bound]:
    """From a ring made anew: what came and went before must not matter."""
    ring: HashRing[Bound] = HashRing()
    for binding in mine:
        ring.add(("queue " if binding.to_queue else "exchange ") + binding.destination, binding, int(binding.key))
    found = ring.choose(hashed)
    return [found] if found is not None else []


def matches_one(kind: str, binding: Bound, key: str, headers: Table) -> bool:
    if kind == "fanout":
        return True
    if kind == "direct":
        return binding.key == key
    if kind == "topic":
        words = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
        pattern = "".join(words.get(word, re.escape(word) + r"\.") for word in binding.key.split("."))
        return re.fullmatch(pattern, key + ".") is not None
    arguments = BINDING_ARGUMENTS[binding.arguments]
    held = [name in headers and headers[name] == value for name, value in arguments.items() if name != "x-match"]
    return any(held) if "x-match" in arguments else all(held)


class Pair:
    """A broker with one client that consumes every queue and publishes everything, and the model beside it."""

    def __init__(self) -> None:
        self.peer: FakePeer = House().peer()
        self.peer.open()
        self.model = Model()

    def ask(self, method: Method, reply: type[Method]) -> None:
        replies = self.peer.ask(1, method)
        assert len(replies) == 1
        assert isinstance(replies[0], reply), replies

    def declare(self, name: str, kind: str, alternate: str | None, auto_delete: bool, hash_header: bool) -> None:
        if name in self.model.exchanges:
            return
        arguments: Table = {} if alternate is None else {"alternate-exchange": alternate}
        if hash_header:
            arguments["hash-header"] = "h"
        method = ExchangeDeclare(name, kind, auto_delete=auto_delete, arguments=arguments)
        self.ask(method, ExchangeDeclareOk)
        self.model.exchanges[name] = Declared(kind, alternate, auto_delete, hash_header)

    def delete(self, name: str) -> None:
        self.ask(ExchangeDelete(name), ExchangeDeleteOk)
        self.model.delete_exchange(name)

    def declare_queue(self, name: str) -> None:
        if name not in self.model.queues:
            self.ask(QueueDeclare(name), QueueDeclareOk)
            self.ask(BasicConsume(name, name, no_ack=True), BasicConsumeOk)
            self.model.queues.append(name)

    def delete_queue(self, name: str) -> None:
        self.peer.ask(1, QueueDelete(name))  # answered, and the consumer is told
        self.model.delete_queue(name)

    def bind(self, bound: Bound) -> None:
        known = self.model.queues if bound.to_queue else self.model.exchanges
        if bound.source not in self.model.exchanges or bound.destination not in known:
            return
        if self.model.exchanges[bound.source].kind == HASH and not bound.key.isdigit():
            bound = replace(bound, key="3")  # a weight
        arguments = BINDING_ARGUMENTS[bound.arguments]
        if bound.to_queue:
            self.ask(QueueBind(bound.destination, bound.source, bound.key, arguments=arguments), QueueBindOk)
        else:
            self.ask(ExchangeBind(bound.destination, bound.source, bound.key, arguments=arguments), ExchangeBindOk)
        if bound not in self.model.bindings:
            self.model.bindings.append(bound)

    def unbind(self, bound: Bound) -> None:
        arguments = BINDING_ARGUMENTS[bound.arguments]
        if bound.to_queue:
            self.ask(QueueUnbind(bound.destination, bound.source, bound.key, arguments), QueueUnbindOk)
        else:
            self.ask(ExchangeUnbind(bound.destination, bound.source, bound.key, arguments=arguments), ExchangeUnbindOk)
        if bound in self.model.bindings:
            self.model.remove([bound])

    def check(self) -> None:
        """Publish everything that can be published; who got what is what the model says."""
        expected: list[tuple[str, bytes]] = []
        for exchange in self.model.exchanges:
            for key in KEYS:
                for at, headers in enumerate(HEADERS):
                    body = f"{exchange} {key} {at}".encode()
                    properties = encode_properties(Properties(headers=headers))
                    self.peer.publish(1, key, body, exchange=exchange, properties=properties)
                    expected += [(queue, body) for queue in self.model.reached(exchange, key, headers)]
        for queue in self.model.queues:
            body = f"default {queue}".encode()
            self.peer.publish(1, queue, body)
            expected.append((queue, body))
        assert sorted(self.peer.deliveries()) == sorted(expected)

    def check_missing(self, exchange: str) -> None:
        """Last of all: it closes the channel."""
        for key in KEYS:
            self.peer.publish(1, key, b"lost", exchange=exchange)
        (close,) = self.peer.methods()
        assert isinstance(close, ChannelClose)
        assert close.reply_code == 404


exchange_names = st.sampled_from(EXCHANGES)
queue_names = st.sampled_from(QUEUES)
bounds = st.builds(
    Bound,
    exchange_names,
    st.just(True),
    queue_names,
    st.sampled_from(BINDING_KEYS),
    st.integers(0, len(BINDING_ARGUMENTS) - 1),
) | st.builds(
    Bound,
    exchange_names,
    st.just(False),
    exchange_names,
    st.sampled_from(BINDING_KEYS),
    st.integers(0, len(BINDING_ARGUMENTS) - 1),
)
alternates = st.none() | st.sampled_from((*EXCHANGES, "never there", ""))
described = st.tuples(st.sampled_from(KINDS), alternates, st.booleans(), st.booleans())
declares = st.tuples(st.just("declare"), exchange_names, described)
picks = st.integers(0, 99)
steps = st.one_of(
    declares,
    declares,
    st.tuples(st.just("delete"), exchange_names),
    st.tuples(st.just("declare queue"), queue_names),
    st.tuples(st.just("delete queue"), queue_names),
    st.tuples(st.just("bind"), bounds),
    st.tuples(st.just("bind"), bounds),
    st.tuples(st.just("unbind"), bounds),
    st.tuples(st.just("unbind one"), picks),
    st.tuples(st.just("unbind one"), picks),
)


def perform(pair: Pair, step: tuple[object, ...]) -> None:
    match step:
        case ("declare", str(name), (str(kind), (str() | None) as alternate, bool(auto), bool(by_header))):
            pair.declare(name, kind, alternate, auto, by_header)
        case ("delete", str(name)):
            pair.delete(name)
        case ("declare queue", str(name)):
            pair.declare_queue(name)
        case ("delete queue", str(name)):
            pair.delete_queue(name)
        case ("bind", Bound() as bound):
            pair.bind(bound)
        case ("unbind", Bound() as bound):
            pair.unbind(bound)
        case ("unbind one", int(at)):
            if pair.model.bindings:
                pair.unbind(pair.model.bindings[at % len(pair.model.bindings)])
        case _:
            raise AssertionError(step)


@settings(max_examples=150, deadline=None)
@given(
    st.tuples(*(described for _ in EXCHANGES)),
    st.lists(bounds, min_size=2, max_size=12),
    st.lists(steps, min_size=1, max_size=12),
    picks,
)
def test_a_publish_reaches_what_a_naive_model_says_after_every_change(
    exchanges: tuple[tuple[str, str | None, bool, bool], ...],
    bindings: list[Bound],
    history: list[tuple[object, ...]],
    last: int,
) -> None:
    pair = Pair()
    for name in QUEUES:
        pair.declare_queue(name)
    for name, description in zip(EXCHANGES, exchanges, strict=True):
        pair.declare(name, *description)
    for bound in bindings:
        pair.bind(bound)
    pair.check()
    for step in history:
        perform(pair, step)
        pair.check()
    pair.delete(EXCHANGES[last % len(EXCHANGES)])
    pair.check_missing(EXCHANGES[last % len(EXCHANGES)])

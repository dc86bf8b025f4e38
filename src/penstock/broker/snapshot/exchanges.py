"""Exchanges and bindings: each as an operator sees it, in RabbitMQ's JSON.

A binding is known by its `properties_key`: its routing key quoted, and a digest of its arguments if it has any; `~` is
the binding with neither. The default exchange is shown with the bindings it behaves as if it had.
Place: admin hands these to management. Not here: matching (exchange.py).
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Container, Mapping
from itertools import repeat
from typing import ClassVar, Final
from urllib.parse import quote_plus

from penstock.broker.broker import Broker
from penstock.broker.exchange import Binding, Exchange
from penstock.broker.ledger import Json
from penstock.broker.plain import plain_table
from penstock.broker.policy import EXCHANGES as EXCHANGE_POLICIES
from penstock.broker.queue import Queue
from penstock.broker.snapshot.common import INTERNAL_USER
from penstock.broker.snapshot.listing import BINDINGS, EXCHANGES, Things, vhosts_among
from penstock.broker.vhost import RESERVED_PREFIX, VHost

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"
NEITHER: Final = "~"

Place = tuple[VHost, Exchange]


def exchange_view(vhost: VHost, exchange: Exchange, whole: bool = False) -> dict[str, Json]:
    policy = vhost.policies.match(EXCHANGE_POLICIES, exchange.name)
    own = not exchange.name or exchange.name.startswith(RESERVED_PREFIX)
    view: dict[str, Json] = {
        "name": exchange.name,
        "vhost": vhost.name,
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
        "arguments": plain_table(exchange.arguments),
        "policy": policy.name if policy is not None else None,
        "message_stats": _stats(exchange),
        "user_who_performed_action": INTERNAL_USER if own else "",
    }
    if whole:
        view["incoming"] = []
        view["outgoing"] = []
    return view


def _stats(exchange: Exchange) -> dict[str, Json]:
    if not exchange.publish_in and not exchange.publish_out:
        return {}
    return {"publish_in": exchange.publish_in, "publish_out": exchange.publish_out}


COLUMNS: Final[Mapping[str, Callable[[Place], Json]]] = {
    "name": lambda place: place[1].name,
    "vhost": lambda place: place[0].name,
    "type": lambda place: place[1].kind,
    "durable": lambda place: place[1].durable,
    "auto_delete": lambda place: place[1].auto_delete,
    "internal": lambda place: place[1].internal,
    "message_stats.publish_in": lambda place: place[1].publish_in,
    "message_stats.publish_out": lambda place: place[1].publish_out,
}


class ExchangeListing(Things[Place]):
    KIND = EXCHANGES
    COUNTERS: ClassVar[tuple[str, ...]] = ("publish_in", "publish_out")

    def name(self, at: int) -> str:
        return self.things[at][1].name

    def vhost(self, at: int) -> str:
        return self.things[at][0].name

    def is_there(self, thing: Place) -> bool:
        vhost, exchange = thing
        return vhost.exchanges.get(exchange.name) is exchange

    def view_of(self, thing: Place) -> dict[str, Json]:
        return exchange_view(*thing)

    def columns(self) -> Mapping[str, Callable[[Place], Json]]:
        return COLUMNS

    def counters(self, at: int) -> tuple[int, ...]:
        exchange = self.things[at][1]
        return (exchange.publish_in, exchange.publish_out) if self.is_there(self.things[at]) else ()


def list_exchanges(broker: Broker, vhost: str | None = None, among: Container[str] | None = None) -> ExchangeListing:
    things = [(one, exchange) for one in vhosts_among(broker, vhost, among) for exchange in one.exchanges.values()]
    return ExchangeListing(broker, things)


# Bindings.


def properties_key(key: str, binding: Binding | None) -> str:
    """How a binding is told from others of its source and destination, in a URL."""
    quoted = quote_plus(key, errors="surrogateescape").replace(NEITHER, "%7E")
    if binding is None or not binding.arguments:
        return quoted or NEITHER
    digest = zlib.crc32(binding.identity[2]).to_bytes(4, "big")
    return f"{quoted}{NEITHER}{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


class Bound:
    """A binding in its vhost; one of the default exchange's, which nobody made, is a queue without a binding."""

    __slots__ = ("binding", "queue", "vhost")

    def __init__(self, vhost: VHost, bound: Binding | Queue) -> None:
        self.vhost = vhost
        self.binding = bound if isinstance(bound, Binding) else None
        self.queue = bound if isinstance(bound, Queue) else None

    def source(self) -> str:
        return self.binding.source.name if self.binding is not None else ""

    def destination(self) -> str:
        if self.binding is None:
            return self.queue.queue_name if self.queue is not None else ""
        found = self.binding.destination
        return found.queue_name if isinstance(found, Queue) else found.name

    def kind(self) -> str:
        return EXCHANGE if self.binding is not None and isinstance(self.binding.destination, Exchange) else QUEUE

    def key(self) -> str:
        return self.binding.key if self.binding is not None else self.destination()

    def is_there(self) -> bool:
        if self.binding is None:
            return self.queue is not None and not self.queue.deleted
        return self.binding.source.binding(self.binding.identity) is self.binding

    def view(self) -> dict[str, Json]:
        return {
            "source": self.source(),
            "vhost": self.vhost.name,
            "destination": self.destination(),
            "destination_type": self.kind(),
            "routing_key": self.key(),
            "arguments": plain_table(self.binding.arguments) if self.binding is not None else {},
            "properties_key": properties_key(self.key(), self.binding),
        }


Pair = tuple[VHost, Binding | Queue]  # what a Bound is made of, when it is needed

BINDING_COLUMNS: Final[Mapping[str, Callable[[Pair], Json]]] = {
    "source": lambda pair: Bound(*pair).source(),
    "destination": lambda pair: Bound(*pair).destination(),
    "destination_type": lambda pair: Bound(*pair).kind(),
    "routing_key": lambda pair: Bound(*pair).key(),
    "vhost": lambda pair: pair[0].name,
}


class BindingListing(Things[Pair]):
    KIND = BINDINGS

    def name(self, at: int) -> str:
        """Of its source: that is what RabbitMQ filters by."""
        return Bound(*self.things[at]).source()

    def vhost(self, at: int) -> str:
        return self.things[at][0].name

    def is_there(self, thing: Pair) -> bool:
        return Bound(*thing).is_there()

    def view_of(self, thing: Pair) -> dict[str, Json]:
        return Bound(*thing).view()

    def columns(self) -> Mapping[str, Callable[[Pair], Json]]:
        return BINDING_COLUMNS


def list_bindings(broker: Broker, vhost: str | None = None, among: Container[str] | None = None) -> BindingListing:
    things: list[Pair] = []
    for one in vhosts_among(broker, vhost, among):
        things += zip(repeat(one), one.queues.values(), strict=False)
        for exchange in one.exchanges.values():
            things += zip(repeat(one), exchange.bindings(), strict=False)
    return BindingListing(broker, things)


def bindings_of(vhost: VHost, source: str | None, kind: str | None, destination: str | None) -> list[Bound]:
    """From this exchange, or to this queue or exchange, or both; None is any."""
    found: list[Bound] = []
    if source is None or not source:
        found += _of_default(vhost, kind, destination)
    if source is None:
        things = vhost.queues if kind == QUEUE else vhost.exchanges
        target = things.get(destination or "")
        if target is not None:
            found += [Bound(vhost, binding) for binding in vhost.bindings_to(target)]
        return found
    exchange = vhost.exchanges.get(source)
    bounds = [Bound(vhost, binding) for binding in exchange.bindings()] if exchange is not None else []
    return found + [
        bound
        for bound in bounds
        if (destination is None or bound.destination() == destination) and (kind is None or bound.kind() == kind)
    ]


def _of_default(vhost: VHost, kind: str | None, destination: str | None) -> list[Bound]:
    if kind == EXCHANGE:
        return []
    if destination is None:
        return [Bound(vhost, queue) for queue in vhost.queues.values()]
    queue = vhost.queues.get(destination)
    return [Bound(vhost, queue)] if queue is not None else []

"""VHost: a namespace of exchanges, queues and bindings; declares, deletes and routes.

`version` changes with every change of the topology; route caches live by it.
Not here: what an exchange matches (exchange.py), users (users.py).
"""

from __future__ import annotations

import secrets
from collections import deque
from typing import TYPE_CHECKING, Final

from penstock.amqp.close import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED, RESOURCE_LOCKED, CloseChannel
from penstock.amqp.method import ExchangeDeclare, QueueDeclare
from penstock.amqp.table import Table
from penstock.broker.arguments import check_queue_arguments
from penstock.broker.equivalence import check_arguments, check_flag
from penstock.broker.exchange import DIRECT, FANOUT, HEADERS, TOPIC, Binding, Exchange
from penstock.broker.queue import Queue
from penstock.credit import Block
from penstock.runtime import Scheduler

if TYPE_CHECKING:
    from penstock.broker.peer import Peer

RESERVED_PREFIX: Final = "amq."
PREDECLARED: Final = (
    ("", DIRECT),
    ("amq.direct", DIRECT),
    ("amq.fanout", FANOUT),
    ("amq.topic", TOPIC),
    ("amq.headers", HEADERS),
    ("amq.match", HEADERS),
)
QUEUE_ARGUMENTS: Final = (  # compared on redeclare, as RabbitMQ does; others are not
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-type",
    "x-single-active-consumer",
)


DEFAULT_ARGUMENTS: Final[Table] = {"x-queue-type": "classic"}  # the same whether it is said or not


class Route:
    """Where messages of one publish method go, while the topology has this version."""

    __slots__ = ("by_headers", "queues", "version")

    def __init__(self, version: int, queues: tuple[Queue, ...], by_headers: bool) -> None:
        self.version = version
        self.queues = queues
        self.by_headers = by_headers  # a headers exchange is on the way: every message is routed by itself


class VHost:
    __slots__ = (
        "_bindings_to",
        "_block_log",
        "_queue_delay_us",
        "_scheduler",
        "exchanges",
        "name",
        "queues",
        "version",
    )

    def __init__(self, name: str, scheduler: Scheduler, block_log: deque[Block], queue_delay_us: int = 0) -> None:
        self.name = name
        self.version = 0
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self._bindings_to: dict[Queue | Exchange, dict[Binding, None]] = {}
        self._scheduler = scheduler
        self._block_log = block_log
        self._queue_delay_us = queue_delay_us
        for exchange_name, kind in PREDECLARED:
            self.exchanges[exchange_name] = Exchange(exchange_name, kind, durable=True)

    # Finding.

    def exchange(self, name: str) -> Exchange:
        exchange = self.exchanges.get(name)
        if exchange is None:
            raise CloseChannel(NOT_FOUND, f"no exchange '{name}' in vhost '{self.name}'")
        return exchange

    def queue(self, name: str, peer: Peer) -> Queue:
        """The queue, if this peer may use it."""
        queue = self.queues.get(name)
        if queue is None:
            raise CloseChannel(NOT_FOUND, f"no queue '{name}' in vhost '{self.name}'")
        if queue.owner is not None and queue.owner is not peer:
            raise self._locked(name)
        return queue

    def _locked(self, name: str) -> CloseChannel:
        return CloseChannel(
            RESOURCE_LOCKED,
            f"cannot obtain exclusive access to locked queue '{name}' in vhost '{self.name}'. It could be originally "
            "declared on another connection or the exclusive property value does not match that of the original "
            "declaration.",
        )

    # Queues.

    def declare_queue(self, method: QueueDeclare, peer: Peer) -> Queue:
        name = method.queue
        if method.passive:
            return self.queue(name, peer)
        queue = self.queues.get(name)
        if queue is not None:
            self._check_same_queue(queue, method, peer)
            return queue
        if name.startswith(RESERVED_PREFIX):
            raise CloseChannel(ACCESS_REFUSED, f"queue name '{name}' contains reserved prefix 'amq.*'")
        name = name or "amq.gen-" + secrets.token_urlsafe(16)
        check_queue_arguments(f"queue '{name}' in vhost '{self.name}'", method.arguments)
        queue = Queue(
            name,
            self.name,
            self._scheduler,
            self._forget_queue,
            method.durable,
            method.exclusive,
            method.auto_delete,
            method.arguments,
            peer if method.exclusive else None,
            self._block_log,
        )
        queue.mailbox.delay_us = self._queue_delay_us
        self.queues[name] = queue
        if method.exclusive:
            peer.exclusive_queues[queue] = None
        self.version += 1
        return queue

    def _check_same_queue(self, queue: Queue, method: QueueDeclare, peer: Peer) -> None:
        if (queue.owner is not None and queue.owner is not peer) or queue.exclusive != method.exclusive:
            raise self._locked(queue.queue_name)
        where = f"queue '{queue.queue_name}' in vhost '{self.name}'"
        check_flag("durable", where, method.durable, queue.durable)
        check_flag("auto_delete", where, method.auto_delete, queue.auto_delete)
        check_arguments(
            QUEUE_ARGUMENTS, where, DEFAULT_ARGUMENTS | method.arguments, DEFAULT_ARGUMENTS | queue.arguments
        )

    def _forget_queue(self, queue: Queue) -> None:
        """Called by a queue that is being deleted."""
        del self.queues[queue.queue_name]
        if queue.owner is not None:
            queue.owner.exclusive_queues.pop(queue, None)
        self._forget_bindings_to(queue)
        self.version += 1

    # Exchanges.

    def declare_exchange(self, method: ExchangeDeclare) -> Exchange:
        name = method.exchange
        self.check_not_default(name)
        if method.passive:
            return self.exchange(name)
        created = Exchange(name, method.type, method.durable, method.auto_delete, method.internal, method.arguments)
        exchange = self.exchanges.get(name)
        if exchange is None:
            if name.startswith(RESERVED_PREFIX):
                raise CloseChannel(ACCESS_REFUSED, f"exchange name '{name}' contains reserved prefix 'amq.*'")
            self.exchanges[name] = created
            self.version += 1
            return created
        where = f"exchange '{name}' in vhost '{self.name}'"
        check_flag("type", where, method.type, exchange.kind)
        check_flag("durable", where, method.durable, exchange.durable)
        check_flag("auto_delete", where, method.auto_delete, exchange.auto_delete)
        check_flag("internal", where, method.internal, exchange.internal)
        check_arguments(("alternate-exchange",), where, method.arguments, exchange.arguments)
        return exchange

    def delete_exchange(self, name: str, if_unused: bool) -> None:
        self.check_not_default(name)
        if name.startswith(RESERVED_PREFIX):
            raise CloseChannel(
                ACCESS_REFUSED, f"deletion of system exchange '{name}' in vhost '{self.name}' not allowed"
            )
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.bindings():
            raise CloseChannel(PRECONDITION_FAILED, f"exchange '{name}' in vhost '{self.name}' in use")
        self._remove_exchange(exchange)

    def _remove_exchange(self, exchange: Exchange) -> None:
        del self.exchanges[exchange.name]
        for binding in exchange.bindings():
            self._forget_binding(binding)
        self._forget_bindings_to(exchange)
        self.version += 1

    def check_not_default(self, name: str) -> None:
        if not name:
            raise CloseChannel(ACCESS_REFUSED, "operation not permitted on the default exchange")

    # Bindings.

    def bind(self, source: Exchange, destination: Queue | Exchange, key: str, arguments: Table) -> None:
        binding = Binding(source, destination, key, arguments)
        if source.bind(binding):
            self._bindings_to.setdefault(destination, {})[binding] = None
            self.version += 1

    def unbind(self, source: str, destination: Queue | Exchange | None, key: str, arguments: Table) -> None:
        """Unbinding what is not bound, or not there, is answered ok, as in RabbitMQ."""
        exchange = self.exchanges.get(source)
        if exchange is None or destination is None:
            return
        identity = Binding(exchange, destination, key, arguments).identity()
        for binding in self._bindings_to.get(destination, ()):
            if binding.source is exchange and binding.identity() == identity:
                self._remove_binding(binding)
                return

    def _remove_binding(self, binding: Binding) -> None:
        binding.source.unbind(binding.identity())
        self._forget_binding(binding)
        self.version += 1
        source = binding.source
        if source.auto_delete and not source.bindings() and source.name in self.exchanges:
            self._remove_exchange(source)

    def _forget_binding(self, binding: Binding) -> None:
        same = self._bindings_to.get(binding.destination)
        if same is not None:
            same.pop(binding, None)
            if not same:
                del self._bindings_to[binding.destination]

    def _forget_bindings_to(self, destination: Queue | Exchange) -> None:
        for binding in list(self._bindings_to.get(destination, ())):
            self._remove_binding(binding)

    # Routing.

    def route(self, exchange: Exchange, key: str, headers: Table | None) -> Route:
        """All queues a message goes to, each once, through exchanges bound to exchanges and alternate exchanges."""
        queues: dict[Queue, None] = {}
        by_headers = False
        seen = {exchange}
        waiting = [exchange]
        while waiting:
            source = waiting.pop()
            by_headers = by_headers or source.kind == HEADERS
            found = self._matches(source, key, headers)
            if not found and source.alternate in self.exchanges and source.alternate:
                found = [self.exchanges[source.alternate]]
            for destination in found:
                if isinstance(destination, Queue):
                    queues[destination] = None
                elif destination not in seen:
                    seen.add(destination)
                    waiting.append(destination)
        return Route(self.version, tuple(queues), by_headers)

    def _matches(self, exchange: Exchange, key: str, headers: Table | None) -> list[Queue | Exchange]:
        if exchange.name:
            return exchange.matches(key, headers)
        queue = self.queues.get(key)
        return [queue] if queue is not None else []

    def __repr__(self) -> str:
        return f"<VHost {self.name!r} exchanges={len(self.exchanges)} queues={len(self.queues)}>"

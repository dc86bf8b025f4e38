"""VHost: a namespace of exchanges, queues and bindings; declares, deletes and routes.

`version` changes with every change of the topology; route caches live by it. What is durable is recorded in the ledger.
Not here: what an exchange matches (exchange.py), users (users.py).
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from penstock.amqp.close import (
    ACCESS_REFUSED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RESOURCE_LOCKED,
    CloseChannel,
    CloseConnection,
)
from penstock.amqp.method import ExchangeDeclare, QueueDeclare
from penstock.amqp.properties import Properties
from penstock.amqp.table import Table
from penstock.broker.arguments import MARKS, STREAM, check_queue_arguments, check_stream_flags
from penstock.broker.deadletter import DeadLetters
from penstock.broker.equivalence import check_arguments, check_flag
from penstock.broker.exchange import (
    DIRECT,
    FANOUT,
    HEADERS,
    TOPIC,
    Binding,
    Exchange,
    check_alternate,
    check_type,
)
from penstock.broker.ledger import NO_LEDGER, Json, Ledger
from penstock.broker.options import Options
from penstock.broker.policy import EXCHANGES, QUEUES, STREAMS, Policies, Policy
from penstock.broker.queue import Queue
from penstock.broker.records import (
    drop_binding,
    drop_exchange,
    drop_queue,
    record_binding,
    record_exchange,
    record_queue,
)
from penstock.broker.rules import DIRECT_REPLY
from penstock.broker.stream import Stream
from penstock.broker.tally import Past
from penstock.broker.vault import Vault
from penstock.credit import BlockLog, Hop
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
QUEUE_ARGUMENTS: Final = (  # compared on redeclare, as RabbitMQ does, and watermarks; others are not
    "x-expires",
    "x-max-age",
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
    *MARKS,
)


DEFAULT_ARGUMENTS: Final[Table] = {"x-queue-type": "classic"}  # the same whether it is said or not


class Route:
    """Where messages of one publish method go, while the topology has this version."""

    __slots__ = ("by_headers", "exchange", "queues", "version")

    def __init__(self, version: int, exchange: Exchange, queues: tuple[Queue, ...], by_headers: bool) -> None:
        self.version = version
        self.exchange = exchange  # where it was published to
        self.queues = queues
        self.by_headers = by_headers  # headers or properties decide on the way: every message is routed by itself


class VHost:
    __slots__ = (
        "_bindings_to",
        "_block_log",
        "_dead_letters",
        "_scheduler",
        "exchanges",
        "ledger",
        "limits",
        "metadata",
        "name",
        "parameters",
        "past",
        "policies",
        "protected",
        "queue_delay_us",
        "queues",
        "replies",
        "vault",
        "version",
    )

    def __init__(self, name: str, scheduler: Scheduler, block_log: BlockLog, hop: Hop, queue_delay_us: int = 0) -> None:
        self.name = name
        self.version = 0
        self.exchanges: dict[str, Exchange] = {}
        self.queues: dict[str, Queue] = {}
        self.replies: dict[str, Queue] = {}  # of channels that take direct replies; no client sees them as queues
        self.policies = Policies()
        self.protected: dict[str, None] = {}  # queues that only the broker itself writes to
        self.past = Past()  # what channels counted that are gone
        self._dead_letters = DeadLetters(self, hop)
        self._bindings_to: dict[Queue | Exchange, dict[Binding, None]] = {}
        self._scheduler = scheduler
        self._block_log = block_log
        self.queue_delay_us = queue_delay_us
        self.ledger: Ledger = NO_LEDGER
        self.vault: Vault | None = None
        self.metadata: dict[str, Json] = {"description": "", "tags": []}  # for people; kept as it is given
        self.limits: dict[str, int] = {}  # max-connections, max-queues; negative is no limit
        self.parameters: dict[tuple[str, str], Json] = {}  # by component and name; of plugins, kept for them
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
        if name.startswith(RESERVED_PREFIX):  # even if it is there: a name we gave is not declared again
            raise CloseChannel(ACCESS_REFUSED, f"queue name '{name}' contains reserved prefix 'amq.*'")
        queue = self.queues.get(name)
        if queue is not None:
            self._check_same_queue(queue, method, peer)
            self.past.declared(is_new=False)
            return queue
        is_stream = method.arguments.get("x-queue-type") == STREAM
        if is_stream and not name:
            raise CloseChannel(PRECONDITION_FAILED, "Cannot declare a server-named queue for type rabbit_stream_queue")
        name = name or "amq.gen-" + secrets.token_urlsafe(16)
        where = f"queue '{name}' in vhost '{self.name}'"
        check_queue_arguments(where, method.arguments)
        if is_stream:
            check_stream_flags(where, method.durable, method.exclusive, method.auto_delete)
            if self.vault is None:
                raise CloseConnection(NOT_IMPLEMENTED, f"{where}: a stream needs a broker with a data directory")
        self._check_queue_limit(name)
        queue = self.add_queue(name, method.durable, method.auto_delete, method.arguments, method.exclusive, peer)
        if method.exclusive:
            peer.exclusive_queues[queue] = None
        self.past.declared(is_new=True)
        return queue

    def add_queue(
        self,
        name: str,
        durable: bool,
        auto_delete: bool,
        arguments: Table,
        exclusive: bool = False,
        peer: Peer | None = None,
    ) -> Queue:
        """Make and record it; whoever calls has checked name and arguments."""
        if arguments.get("x-queue-type") == STREAM and self.vault is not None:
            queue = self._make_stream(name, arguments, self.vault)
        else:  # a stream too, of a broker that only looks at its definitions
            queue = Queue(
                name,
                self.name,
                self._scheduler,
                self._forget_queue,
                durable,
                exclusive,
                auto_delete,
                arguments,
                peer if exclusive else None,
                self._block_log,
                Options(arguments, self.policies.settings(QUEUES, name)),
                self._dead_letters,
            )
            if self.vault is not None:
                self.vault.equip(self.name, queue)
        queue.mailbox.delay_us = self.queue_delay_us
        self.queues[name] = queue
        self.version += 1
        record_queue(self.ledger, self.name, queue)
        if queue.keeping is not None or isinstance(queue, Stream):
            # Its messages are safe only when it is itself: until then it takes none, so it confirms none.
            queue.mailbox.hold()
            self.ledger.after_commit(queue.mailbox.release)
        return queue

    def _make_stream(self, name: str, arguments: Table, vault: Vault) -> Queue:
        options = Options(arguments, self.policies.settings(STREAMS, name))
        log, store = vault.stream_log(self.name, name), vault.store
        return Stream(
            name, self.name, self._scheduler, self._forget_queue, arguments, self._block_log, options, store, log
        )

    def protect(self, name: str) -> None:
        """From now on nobody but the broker writes to this queue, deletes it or purges it, not by a policy either."""
        self.protected[name] = None
        queue = self.queues[name]
        queue.apply(Options(queue.arguments, {}))
        self.version += 1

    def check_unprotected(self, name: str) -> None:
        """403 if the queue is the broker's own."""
        if name in self.protected:
            raise CloseChannel(
                ACCESS_REFUSED,
                f"queue '{name}' in vhost '{self.name}' is the broker's own: it may be read, but nobody else writes to "
                "it, purges or deletes it",
            )

    def _check_queue_limit(self, name: str) -> None:
        limit = self.limits.get("max-queues", -1)
        if 0 <= limit <= len(self.queues) - len(self.protected):
            raise CloseChannel(
                PRECONDITION_FAILED,
                f"cannot declare queue '{name}': queue limit in vhost '{self.name}' ({limit}) is reached",
            )

    def open_replies(self, peer: Peer) -> Queue:
        """A place where direct replies for one of the peer's channels come."""
        name = f"{DIRECT_REPLY}.{secrets.token_urlsafe(16)}.{secrets.token_urlsafe(8)}"
        queue = Queue(
            name, self.name, self._scheduler, self._close_replies, exclusive=True, owner=peer, block_log=self._block_log
        )
        self.replies[name] = queue
        self.version += 1
        return queue

    def _close_replies(self, queue: Queue) -> None:
        del self.replies[queue.queue_name]
        self.version += 1

    def _check_same_queue(self, queue: Queue, method: QueueDeclare, peer: Peer) -> None:
        if (queue.owner is not None and queue.owner is not peer) or queue.exclusive != method.exclusive:
            raise self._locked(queue.queue_name)
        where = f"queue '{queue.queue_name}' in vhost '{self.name}'"
        check_flag("durable", where, method.durable, queue.durable)
        check_flag("auto_delete", where, method.auto_delete, queue.auto_delete)
        received, current = method.arguments, queue.arguments
        if not isinstance(queue, Stream) and received.get("x-queue-type") != STREAM:
            received, current = DEFAULT_ARGUMENTS | received, DEFAULT_ARGUMENTS | current
        check_arguments(QUEUE_ARGUMENTS, where, received, current)

    def _forget_queue(self, queue: Queue) -> None:
        """Called by a queue that is being deleted."""
        del self.queues[queue.queue_name]
        self.protected.pop(queue.queue_name, None)
        self.past.deleted()
        if queue.owner is not None:
            queue.owner.exclusive_queues.pop(queue, None)
        drop_queue(self.ledger, self.name, queue)
        self._forget_bindings_to(queue)
        self.version += 1

    # Exchanges.

    def declare_exchange(self, method: ExchangeDeclare) -> Exchange:
        name = method.exchange
        if not method.passive:
            check_type(method.type)
        self.check_not_default(name)
        if method.passive:
            return self.exchange(name)
        where = f"exchange '{name}' in vhost '{self.name}'"
        exchange = self.exchanges.get(name)
        if exchange is None:
            if name.startswith(RESERVED_PREFIX):
                raise CloseChannel(ACCESS_REFUSED, f"exchange name '{name}' contains reserved prefix 'amq.*'")
            check_alternate(where, method.arguments)
            exchange = Exchange(
                name, method.type, method.durable, method.auto_delete, method.internal, method.arguments
            )
            self.add_exchange(exchange)
            return exchange
        check_flag("type", where, method.type, exchange.kind)
        check_flag("durable", where, method.durable, exchange.durable)
        check_flag("auto_delete", where, method.auto_delete, exchange.auto_delete)
        check_flag("internal", where, method.internal, exchange.internal)
        check_arguments(("alternate-exchange",), where, method.arguments, exchange.arguments)
        return exchange

    def add_exchange(self, exchange: Exchange) -> None:
        """Enter and record it; whoever calls has checked its name."""
        self._apply_to_exchange(exchange)
        self.exchanges[exchange.name] = exchange
        self.version += 1
        record_exchange(self.ledger, self.name, exchange)

    def delete_exchange(self, name: str, if_unused: bool) -> None:
        self.check_not_default(name)
        if name.startswith(RESERVED_PREFIX):
            raise CloseChannel(
                ACCESS_REFUSED, f"deletion of system exchange '{name}' in vhost '{self.name}' not allowed"
            )
        exchange = self.exchanges.get(name)
        if exchange is None:
            return
        if if_unused and exchange.is_bound:
            raise CloseChannel(PRECONDITION_FAILED, f"exchange '{name}' in vhost '{self.name}' in use")
        self._remove_exchange(exchange)

    def _remove_exchange(self, exchange: Exchange) -> None:
        """And those that auto-delete with it. A loop, not a recursion: a client may chain as many as it likes."""
        doomed = [exchange]
        while doomed:
            exchange = doomed.pop()
            if self.exchanges.get(exchange.name) is not exchange:
                continue
            del self.exchanges[exchange.name]
            drop_exchange(self.ledger, self.name, exchange)
            for binding in exchange.bindings():
                self._forget_binding(binding)
            for binding in list(self._bindings_to.get(exchange, ())):
                if self._remove_binding(binding):
                    doomed.append(binding.source)
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
            record_binding(self.ledger, self.name, binding)

    def unbind(self, source: str, destination: Queue | Exchange | None, key: str, arguments: Table) -> None:
        """Unbinding what is not bound, or not there, is answered ok, as in RabbitMQ."""
        exchange = self.exchanges.get(source)
        if exchange is None or destination is None:
            return
        binding = exchange.binding(Binding(exchange, destination, key, arguments).identity)
        if binding is not None and self._remove_binding(binding):
            self._remove_exchange(exchange)

    def bindings_to(self, destination: Queue | Exchange) -> list[Binding]:
        return list(self._bindings_to.get(destination, ()))

    def _remove_binding(self, binding: Binding) -> bool:
        """True if this was the last one from an exchange that deletes itself then: the caller must."""
        source = binding.source
        source.unbind(binding.identity)
        self._forget_binding(binding)
        self.version += 1
        return source.auto_delete and not source.is_bound

    def _forget_binding(self, binding: Binding) -> None:
        drop_binding(self.ledger, self.name, binding)
        same = self._bindings_to.get(binding.destination)
        if same is not None:
            same.pop(binding, None)
            if not same:
                del self._bindings_to[binding.destination]

    def _forget_bindings_to(self, queue: Queue) -> None:
        for binding in list(self._bindings_to.get(queue, ())):
            if self._remove_binding(binding):
                self._remove_exchange(binding.source)

    # Policies.

    def put_policy(self, policy: Policy, operator: bool = False) -> None:
        """From now on this one, at once for all it applies to."""
        (self.policies.operator if operator else self.policies.user)[policy.name] = policy
        self.ledger.put("operator_policy" if operator else "policy", (self.name, policy.name), policy.body(self.name))
        self._apply_policies()

    def drop_policy(self, name: str, operator: bool = False) -> bool:
        """False if there is none of this name."""
        policies = self.policies.operator if operator else self.policies.user
        if policies.pop(name, None) is None:
            return False
        self.ledger.drop("operator_policy" if operator else "policy", (self.name, name))
        self._apply_policies()
        return True

    def _apply_policies(self) -> None:
        for name, queue in self.queues.items():
            kind = STREAMS if isinstance(queue, Stream) else QUEUES
            if name not in self.protected:
                queue.apply(Options(queue.arguments, self.policies.settings(kind, name)))
        for exchange in self.exchanges.values():
            self._apply_to_exchange(exchange)
        self.version += 1

    def _apply_to_exchange(self, exchange: Exchange) -> None:
        alternate = self.policies.settings(EXCHANGES, exchange.name).get("alternate-exchange")
        exchange.policy_alternate = alternate if isinstance(alternate, str) else None

    # Routing.

    def route(
        self, exchange: Exchange, key: str, properties: Properties | None = None, more_keys: tuple[str, ...] = ()
    ) -> Route:
        """All queues a message goes to, each once, through exchanges bound to exchanges and alternate exchanges.

        `more_keys` are those of CC and BCC: an alternate exchange is used only if none of all keys leads anywhere."""
        queues: dict[Queue, None] = {}
        by_headers = False
        seen = {exchange}
        waiting = [exchange]
        while waiting:
            source = waiting.pop()
            by_headers = by_headers or source.by_message
            found = source.matches(key, properties, more_keys) if source.name else self._named(key, more_keys)
            if not found and source.alternate:
                alternate = self.exchanges.get(source.alternate)
                if alternate is not None:
                    found = {alternate: None}
            for destination in found:
                if isinstance(destination, Queue):
                    queues[destination] = None
                elif destination not in seen:
                    seen.add(destination)
                    waiting.append(destination)
        for name in self.protected:
            own = self.queues.get(name)
            if own is not None:
                queues.pop(own, None)
        return Route(self.version, exchange, tuple(queues), by_headers)

    def _named(self, key: str, more_keys: tuple[str, ...]) -> dict[Queue | Exchange, None]:
        """The default exchange: to every queue by its name, and to the channel that a direct reply is for."""
        named = (self.queues.get(name) or self.replies.get(name) for name in (key, *more_keys))
        return {queue: None for queue in named if queue is not None}

    def body(self) -> dict[str, Json]:
        """As RabbitMQ's definitions have it. Limits are parameters there."""
        return {"name": self.name, "metadata": dict(self.metadata)}

    def __repr__(self) -> str:
        return f"<VHost {self.name!r} exchanges={len(self.exchanges)} queues={len(self.queues)}>"

"""Exchange: which queues a message goes to. Types direct, fanout, topic and headers; the default exchange is direct.

Place in the chain: channel.py asks `VHost.route` once per new publish method and caches the answer until the
topology's version changes; only a headers exchange on the way needs every message looked at.
Not here: declare and delete and their checks (vhost.py), the topic trie (topic.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.amqp.close import COMMAND_INVALID, PRECONDITION_FAILED, CloseChannel, CloseConnection
from penstock.amqp.table import Table, Value, encode_table
from penstock.broker.equivalence import type_name
from penstock.broker.topic import TopicTrie

if TYPE_CHECKING:
    from penstock.broker.queue import Queue

DIRECT: Final = "direct"
FANOUT: Final = "fanout"
TOPIC: Final = "topic"
HEADERS: Final = "headers"
TYPES: Final = (DIRECT, FANOUT, TOPIC, HEADERS)


class Binding:
    """From a source exchange to a queue or another exchange, by key and arguments."""

    __slots__ = ("arguments", "destination", "key", "source")

    def __init__(self, source: Exchange, destination: Queue | Exchange, key: str, arguments: Table) -> None:
        self.source = source
        self.destination = destination
        self.key = key
        self.arguments = arguments

    def identity(self) -> tuple[Queue | Exchange, str, bytes]:
        """Two bindings with the same identity are the same binding."""
        return self.destination, self.key, encode_table(dict(sorted(self.arguments.items())))

    def __repr__(self) -> str:
        return f"<Binding {self.source.name!r} -> {self.destination.name!r} key={self.key!r}>"


class Exchange:
    __slots__ = (
        "_bindings",
        "_by_key",
        "_trie",
        "alternate",
        "arguments",
        "auto_delete",
        "durable",
        "internal",
        "kind",
        "name",
        "was_bound",
    )

    def __init__(
        self,
        name: str,
        kind: str,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Table | None = None,
    ) -> None:
        if not kind:
            raise CloseConnection(COMMAND_INVALID, "invalid exchange type ''", 40, 10)
        if kind not in TYPES:
            raise CloseConnection(COMMAND_INVALID, f"unknown exchange type '{kind}'", 40, 10)
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments: Table = arguments or {}
        self.alternate = str(self.arguments.get("alternate-exchange", ""))
        self.was_bound = False
        self._bindings: dict[tuple[Queue | Exchange, str, bytes], Binding] = {}
        self._by_key: dict[str, dict[Binding, None]] = {}
        self._trie: TopicTrie[Binding] = TopicTrie()

    def bindings(self) -> list[Binding]:
        return list(self._bindings.values())

    def bind(self, binding: Binding) -> bool:
        """Add a binding; false if it was there already."""
        identity = binding.identity()
        if identity in self._bindings:
            return False
        if self.kind == HEADERS:
            check_headers_arguments(binding.arguments)
        self._bindings[identity] = binding
        self.was_bound = True
        if self.kind == TOPIC:
            self._trie.add(binding.key, binding)
        elif self.kind == DIRECT:
            self._by_key.setdefault(binding.key, {})[binding] = None
        return True

    def unbind(self, identity: tuple[Queue | Exchange, str, bytes]) -> bool:
        """Remove a binding; false if there is none like it."""
        binding = self._bindings.pop(identity, None)
        if binding is None:
            return False
        if self.kind == TOPIC:
            self._trie.remove(binding.key, binding)
        elif self.kind == DIRECT:
            same_key = self._by_key[binding.key]
            del same_key[binding]
            if not same_key:
                del self._by_key[binding.key]
        return True

    def matches(self, key: str, headers: Table | None) -> list[Queue | Exchange]:
        """Destinations of a message, one level deep."""
        if self.kind == DIRECT:
            return [binding.destination for binding in self._by_key.get(key, ())]
        if self.kind == FANOUT:
            return [binding.destination for binding in self._bindings.values()]
        if self.kind == TOPIC:
            return [binding.destination for binding in self._trie.match(key)]
        return [b.destination for b in self._bindings.values() if headers_match(b.arguments, headers or {})]

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r} {self.kind} bindings={len(self._bindings)}>"


def check_headers_arguments(arguments: Table) -> None:
    mode = arguments.get("x-match", "all")
    if not isinstance(mode, str):
        kind = type_name(mode)
        raise CloseChannel(PRECONDITION_FAILED, f"Invalid x-match field type {kind} (value {mode!r}); expected longstr")
    if mode not in ("all", "any", "all-with-x", "any-with-x"):
        raise CloseChannel(
            PRECONDITION_FAILED,
            f'Invalid x-match field value <<"{mode}">>; expected all, any, all-with-x, or any-with-x',
        )


def headers_match(arguments: Table, headers: Table) -> bool:
    """RabbitMQ's rule: `x-match` is all or any; other `x-` arguments count only with `-with-x`; None means present."""
    mode = str(arguments.get("x-match", "all"))
    with_x = mode.endswith("-with-x")
    any_of = mode.startswith("any")
    for name, wanted in arguments.items():
        if name == "x-match" or (not with_x and name.startswith("x-")):
            continue
        matched = name in headers and (wanted is None or same_value(wanted, headers[name]))
        if matched and any_of:
            return True
        if not matched and not any_of:
            return False
    return not any_of


def same_value(wanted: Value, got: Value) -> bool:
    """Equal in type and value: true is not 1 to AMQP, as it would be to Python."""
    return isinstance(wanted, bool) == isinstance(got, bool) and wanted == got

"""Exchange: which queues a message goes to. Types direct, fanout, topic, headers and x-consistent-hash.

Place in the chain: channel.py asks `VHost.route` once per new publish method and caches the answer until the
topology's version changes; only where an exchange on the way looks at headers or properties (`by_message`) is every
message routed by itself. The default exchange is one of type direct without bindings: vhost.py knows its queues.
Not here: declare and delete and their checks (vhost.py), how types find their bindings (topic.py, headers.py,
hashring.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from penstock.amqp.close import COMMAND_INVALID, PRECONDITION_FAILED, CloseChannel, CloseConnection
from penstock.amqp.properties import Properties
from penstock.amqp.table import Table, Value, encode_table
from penstock.broker.equivalence import term, type_name
from penstock.broker.hashring import HashRing
from penstock.broker.headers import HeadersIndex, check_headers_arguments
from penstock.broker.topic import TopicTrie

if TYPE_CHECKING:
    from penstock.broker.queue import Queue

DIRECT: Final = "direct"
FANOUT: Final = "fanout"
TOPIC: Final = "topic"
HEADERS: Final = "headers"
CONSISTENT_HASH: Final = "x-consistent-hash"
TYPES: Final = (DIRECT, FANOUT, TOPIC, HEADERS, CONSISTENT_HASH)

HASH_PROPERTIES: Final = ("correlation_id", "message_id", "timestamp")
NO_ARGUMENTS: Final = encode_table({})
_WEIGHT: Final = re.compile(r"[+-]?[0-9]+")  # what Erlang reads as an integer

Identity = tuple["Queue | Exchange", str, bytes]


class Binding:
    """From a source exchange to a queue or another exchange, by key and arguments."""

    __slots__ = ("arguments", "identity", "key", "source")

    def __init__(self, source: Exchange, destination: Queue | Exchange, key: str, arguments: Table) -> None:
        self.source = source
        self.key = key
        self.arguments = arguments
        # Two bindings of a source with the same identity are the same binding.
        encoded = encode_table(dict(sorted(arguments.items()))) if arguments else NO_ARGUMENTS
        self.identity: Identity = (destination, key, encoded)

    @property
    def destination(self) -> Queue | Exchange:
        return self.identity[0]

    def __repr__(self) -> str:
        return f"<Binding {self.source.name!r} -> {self.destination.name!r} key={self.key!r}>"


class Exchange:
    __slots__ = (
        "_bindings",
        "_by_headers",
        "_by_key",
        "_ring",
        "_trie",
        "arguments",
        "auto_delete",
        "by_message",
        "durable",
        "hash_header",
        "hash_property",
        "internal",
        "kind",
        "name",
        "policy_alternate",
        "publish_in",
        "publish_out",
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
        check_type(kind)
        self.name = name
        self.kind = kind
        self.durable = durable
        self.auto_delete = auto_delete
        self.internal = internal
        self.arguments: Table = arguments or {}
        self.policy_alternate: str | None = None  # a policy's; an argument goes first
        self.publish_in = 0  # messages published here,
        self.publish_out = 0  # and how many queues got them, each queue counted
        self.hash_header: str | None = None
        self.hash_property: str | None = None
        if kind == CONSISTENT_HASH:
            self.hash_header, self.hash_property = hash_on(self.arguments)
        self.by_message = kind == HEADERS or self.hash_header is not None or self.hash_property is not None
        self._bindings: dict[Identity, Binding] = {}
        self._by_key: dict[str, Binding | dict[Binding, None]] = {}  # one is bare: most keys have one
        self._trie: TopicTrie[Binding] | None = TopicTrie() if kind == TOPIC else None
        self._by_headers: HeadersIndex[Binding] | None = HeadersIndex() if kind == HEADERS else None
        self._ring: HashRing[Binding] | None = HashRing() if kind == CONSISTENT_HASH else None

    @property
    def alternate(self) -> str | None:
        """The exchange that gets what nothing here matches; it need not exist."""
        if "alternate-exchange" not in self.arguments:
            return self.policy_alternate
        name = self.arguments["alternate-exchange"]
        return name if isinstance(name, str) else None

    def bindings(self) -> list[Binding]:
        return list(self._bindings.values())

    def binding(self, identity: Identity) -> Binding | None:
        return self._bindings.get(identity)

    @property
    def is_bound(self) -> bool:
        """It is the source of a binding."""
        return bool(self._bindings)

    def bind(self, binding: Binding) -> bool:
        """Add a binding; false if it was there already."""
        weight = 0
        if self.kind == HEADERS:
            check_headers_arguments(binding.arguments)
        elif self.kind == CONSISTENT_HASH:
            weight = hash_weight(binding.key)
        if binding.identity in self._bindings:
            return False
        self._bindings[binding.identity] = binding
        if self.kind == DIRECT:
            same_key = self._by_key.get(binding.key)
            if same_key is None:
                self._by_key[binding.key] = binding
            elif isinstance(same_key, Binding):
                self._by_key[binding.key] = {same_key: None, binding: None}
            else:
                same_key[binding] = None
        elif self._trie is not None:
            self._trie.add(binding.key, binding)
        elif self._by_headers is not None:
            self._by_headers.add(binding.arguments, binding)
        elif self._ring is not None:
            self._ring.add(ring_name(binding.destination), binding, weight)
        return True

    def unbind(self, identity: Identity) -> Binding | None:
        """Remove a binding and return it; None if there is none like it."""
        binding = self._bindings.pop(identity, None)
        if binding is None:
            return None
        if self.kind == DIRECT:
            same_key = self._by_key[binding.key]
            if isinstance(same_key, dict):
                del same_key[binding]
            if isinstance(same_key, Binding) or not same_key:
                del self._by_key[binding.key]
        elif self._trie is not None:
            self._trie.remove(binding.key, binding)
        elif self._by_headers is not None:
            self._by_headers.remove(binding.arguments, binding)
        elif self._ring is not None:
            self._ring.remove(ring_name(binding.destination), binding)
        return binding

    def matches(
        self, key: str, properties: Properties | None = None, more_keys: tuple[str, ...] = ()
    ) -> dict[Queue | Exchange, None]:
        """Destinations of a message, one level deep, each once. `more_keys` are those of CC and BCC."""
        if self.kind == FANOUT:
            return {binding.destination: None for binding in self._bindings.values()}
        if self._by_headers is not None:
            headers = properties.headers if properties is not None else None
            return {binding.destination: None for binding in self._by_headers.match(headers or {})}
        if self._ring is not None:  # by the first key alone: a message goes to one destination
            chosen = self._ring.choose(self._hashed(key, properties))
            return {chosen.destination: None} if chosen is not None else {}
        found = self._match_key(key)
        for another in more_keys:
            found |= self._match_key(another)
        return found

    def _match_key(self, key: str) -> dict[Queue | Exchange, None]:
        if self._trie is not None:
            return {binding.destination: None for binding in self._trie.match(key)}
        same_key = self._by_key.get(key)
        if same_key is None:
            return {}
        if isinstance(same_key, Binding):
            return {same_key.destination: None}
        return {binding.destination: None for binding in same_key}

    def _hashed(self, key: str, properties: Properties | None) -> bytes:
        """What decides on the destination. All messages without the header or property go the same way."""
        if self.hash_header is not None:
            headers = properties.headers if properties is not None else None
            if headers is None or self.hash_header not in headers:
                return b""
            return encode_table({"": headers[self.hash_header]})
        if self.hash_property is not None:
            return _property(self.hash_property, properties)
        return key.encode("utf-8", "surrogateescape")

    def __repr__(self) -> str:
        return f"<Exchange {self.name!r} {self.kind} bindings={len(self._bindings)}>"


def check_type(kind: str) -> None:
    if not kind:
        raise CloseConnection(COMMAND_INVALID, "invalid exchange type ''", 40, 10)
    if kind not in TYPES:
        raise CloseConnection(COMMAND_INVALID, f"unknown exchange type '{kind}'", 40, 10)


def strip_cr_lf(name: str) -> str:
    """RabbitMQ takes line ends out of names in all methods but publish."""
    return name.replace("\r", "").replace("\n", "")


def check_alternate(where: str, arguments: Table) -> None:
    if "alternate-exchange" not in arguments:
        return
    name = arguments["alternate-exchange"]
    if not isinstance(name, (str, bytes)):
        raise CloseChannel(
            PRECONDITION_FAILED, f"invalid type '{type_name(name)}' for arg 'alternate-exchange' in {where}"
        )


def hash_on(arguments: Table) -> tuple[str | None, str | None]:
    """The header and the property that an x-consistent-hash exchange goes by; at most one of them."""
    header = _hash_argument("hash-header", arguments)
    wanted = _hash_argument("hash-property", arguments)
    if header is not None and wanted is not None:
        raise CloseChannel(PRECONDITION_FAILED, "hash-header and hash-property are mutually exclusive")
    if wanted is not None and wanted not in HASH_PROPERTIES:
        raise CloseChannel(PRECONDITION_FAILED, f"Unsupported property: {wanted}")
    return header, wanted


def _hash_argument(name: str, arguments: Table) -> str | None:
    if name not in arguments:
        return None
    value: Value = arguments[name]
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")  # as the keys of tables are read
    if not isinstance(value, str):
        raise CloseChannel(PRECONDITION_FAILED, f"invalid type '{type_name(value)}' for arg '{name}'")
    return value


def hash_weight(key: str) -> int:
    """The weight that a binding's key says."""
    if _WEIGHT.fullmatch(key) is None:
        raise CloseChannel(PRECONDITION_FAILED, f"The binding key must be an integer: {term(key)}")
    weight = int(key)
    if weight < 1:
        raise CloseChannel(PRECONDITION_FAILED, "The binding key must be greater than 0")
    return weight


def ring_name(destination: Queue | Exchange) -> str:
    """A queue and an exchange of the same name are two destinations."""
    if isinstance(destination, Exchange):
        return "exchange " + destination.name
    return "queue " + destination.queue_name


def _property(name: str, properties: Properties | None) -> bytes:
    if properties is None:
        return b""
    if name == "timestamp":
        return b"" if properties.timestamp is None else b"%d" % properties.timestamp
    value = properties.correlation_id if name == "correlation_id" else properties.message_id
    return b"" if value is None else value.encode("utf-8", "surrogateescape")

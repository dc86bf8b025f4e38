"""Plan: a definitions document, read and checked whole, before anything of it is done.

A document is RabbitMQ's JSON. What is wrong in it, or would be refused to a client, is a DefinitionsError that names
the object and the reason. What is right in RabbitMQ but is not here (queue types, exchange types of plugins) is left
out, with a warning that names it; so are bindings to or from what is not there.
Place in the chain: definitions.py makes a plan and then does it.
Not here: doing it (definitions.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from penstock.amqp.close import CloseChannel, CloseConnection
from penstock.amqp.table import SHORT_STRING_BYTES_MAX, Table
from penstock.broker.arguments import QUEUE_TYPES_TO_COME, STREAM, check_queue_arguments, check_stream_flags
from penstock.broker.exchange import DIRECT, FANOUT, TOPIC, TYPES, Binding, Exchange, check_alternate
from penstock.broker.ledger import NO_LEDGER, Json
from penstock.broker.password import NO_PASSWORD
from penstock.broker.plain import plain_table, table_of
from penstock.broker.policy import Policy, PolicyError
from penstock.broker.users import UserError, Users
from penstock.broker.vhost import PREDECLARED, RESERVED_PREFIX

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.queue import Queue

LIMITS: Final = "vhost-limits"
OPERATOR_POLICY: Final = "operator_policy"
VHOST_LIMITS: Final = ("max-connections", "max-queues")
APPLY_TO_OTHERS: Final = ("quorum_queues",)  # of policies for queue types that are not here
OWN_EXCHANGES: Final = frozenset(name for name, _ in PREDECLARED)
SINGULAR: Final = {
    "users": "user",
    "vhosts": "vhost",
    "permissions": "permission",
    "topic_permissions": "topic permission",
    "parameters": "parameter",
    "global_parameters": "global parameter",
    "policies": "policy",
    "queues": "queue",
    "exchanges": "exchange",
    "bindings": "binding",
}


class DefinitionsError(Exception):
    """Why a document cannot be imported: the object and the reason, in one line."""


class Entry:
    """One object of a section, read by name and type."""

    __slots__ = ("body", "vhost", "what")

    def __init__(self, section: str, number: int, body: Json, vhost: str | None) -> None:
        self.what = f"{SINGULAR[section]} number {number + 1}"
        if not isinstance(body, dict):
            raise self.error("is no object")
        self.body = body
        name = body.get("name", body.get("user"))
        if isinstance(name, str):
            self.what = f"{SINGULAR[section]} '{name}'"
        if section == "bindings":
            self.what = f"binding from '{body.get('source')}' to '{body.get('destination')}'"
        self.vhost = ""
        if section not in ("users", "vhosts", "global_parameters"):
            self.vhost = vhost if vhost is not None else self.name("vhost")
            self.what += f" in vhost '{self.vhost}'"

    def error(self, reason: str) -> DefinitionsError:
        return DefinitionsError(f"{self.what}: {reason}")

    def word(self, name: str, default: str | None = None) -> str:
        value = self.body.get(name, default)
        if value is None:
            raise self.error(f"'{name}' is missing")
        if not isinstance(value, str):
            raise self.error(f"'{name}' must be a string, not {value!r}")
        return value

    def name(self, name: str, default: str | None = None) -> str:
        """A word that fits one of AMQP's short strings."""
        value = self.word(name, default)
        try:
            length = len(value.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:
            raise self.error(f"'{name}' is no text") from None
        if length > SHORT_STRING_BYTES_MAX:
            raise self.error(f"'{name}' has {length} bytes, {SHORT_STRING_BYTES_MAX} at most")
        return value

    def flag(self, name: str) -> bool:
        value = self.body.get(name, False)
        if not isinstance(value, bool):
            raise self.error(f"'{name}' must be true or false, not {value!r}")
        return value

    def integer(self, name: str, default: int) -> int:
        value = self.body.get(name, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.error(f"'{name}' must be a whole number, not {value!r}")
        return value

    def object(self, name: str) -> dict[str, Json]:
        return self.as_object(name, self.body.get(name))

    def as_object(self, name: str, value: Json) -> dict[str, Json]:
        """An object; rabbitmqctl writes some as lists of pairs."""
        if isinstance(value, dict):
            return value
        pairs: dict[str, Json] = {}
        for pair in value if isinstance(value, list) else ():
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
                raise self.error(f"'{name}' must be an object, not {value!r}")
            pairs[pair[0]] = pair[1]
        if value is not None and not isinstance(value, list):
            raise self.error(f"'{name}' must be an object, not {value!r}")
        return pairs

    def table(self) -> Table:
        try:
            return table_of(self.object("arguments"))
        except (ValueError, RecursionError) as error:
            raise self.error(f"'arguments' cannot be a table: {error}") from None


class PlannedQueue:
    __slots__ = ("arguments", "auto_delete", "durable", "name", "vhost")

    def __init__(self, vhost: str, name: str, durable: bool, auto_delete: bool, arguments: Table) -> None:
        self.vhost = vhost
        self.name = name
        self.durable = durable
        self.auto_delete = auto_delete
        self.arguments = arguments

    def is_like(self, queue: Queue) -> bool:
        same_flags = (self.durable, self.auto_delete, False) == (queue.durable, queue.auto_delete, queue.exclusive)
        return same_flags and plain_table(self.arguments) == plain_table(queue.arguments)


class PlannedBinding:
    __slots__ = ("arguments", "destination", "key", "source", "to_exchange", "vhost")

    def __init__(
        self, vhost: str, source: str, destination: str, to_exchange: bool, key: str, arguments: Table
    ) -> None:
        self.vhost = vhost
        self.source = source
        self.destination = destination
        self.to_exchange = to_exchange
        self.key = key
        self.arguments = arguments


class Plan:
    """What a document asks for, of which nothing can be refused any more."""

    __slots__ = (
        "_broker",
        "_document",
        "_vhost",
        "bindings",
        "exchanges",
        "global_parameters",
        "limits",
        "operator_policies",
        "parameters",
        "permissions",
        "policies",
        "queues",
        "topic_permissions",
        "users",
        "vhosts",
        "warnings",
    )

    def __init__(self, broker: Broker, document: Json, vhost: str | None = None) -> None:
        """With a vhost: all is for that one, and what belongs to no vhost is passed over."""
        if not isinstance(document, dict):
            raise DefinitionsError("the document is no JSON object")
        self._broker = broker
        self._document = document
        self._vhost = vhost
        self.warnings: list[str] = []
        self.vhosts: dict[str, dict[str, Json] | None] = {}
        self.users: list[dict[str, Json]] = []
        self.permissions: list[dict[str, Json]] = []
        self.topic_permissions: list[dict[str, Json]] = []
        self.policies: list[tuple[str, Policy]] = []
        self.operator_policies: list[tuple[str, Policy]] = []
        self.limits: dict[str, dict[str, int]] = {}
        self.parameters: list[tuple[str, str, str, Json]] = []
        self.global_parameters: dict[str, Json] = {}
        self.exchanges: dict[tuple[str, str], Exchange] = {}
        self.queues: dict[tuple[str, str], PlannedQueue] = {}
        self.bindings: list[PlannedBinding] = []
        if vhost is None:
            self._read_vhosts()
            self._read_users()
            for entry in self._entries("global_parameters"):
                self.global_parameters[entry.word("name")] = entry.body.get("value")
        elif vhost not in broker.vhosts:
            raise DefinitionsError(f"there is no vhost '{vhost}'")
        self._read_parameters()
        for entry in self._entries("policies"):
            self._read_policy(entry, entry.body, operator=False)
        self._read_exchanges()
        self._read_queues()
        self._read_bindings()

    def _entries(self, section: str) -> Iterator[Entry]:
        found = self._document.get(section, [])
        if not isinstance(found, list):
            raise DefinitionsError(f"'{section}' is no list")
        for number, body in enumerate(found):
            entry = Entry(section, number, body, self._vhost)
            if entry.vhost and entry.vhost not in self._broker.vhosts and entry.vhost not in self.vhosts:
                raise entry.error("there is no such vhost")
            yield entry

    # Who.

    def _read_vhosts(self) -> None:
        for entry in self._entries("vhosts"):
            name = entry.name("name")
            if not name:
                raise entry.error("a vhost must have a name")
            self.vhosts[name] = self._metadata(entry)

    def _metadata(self, entry: Entry) -> dict[str, Json] | None:
        """None if the document says nothing, so that what is there stays."""
        given = entry.object("metadata")
        for name in ("description", "tags"):
            if name in entry.body:
                given.setdefault(name, entry.body[name])
        return given or None

    def _read_users(self) -> None:
        rehearsal = Users()  # the same checks as later, where they change nothing
        rehearsal.forget_all()
        for user in self._broker.users:
            rehearsal.put_user(user.name, NO_PASSWORD)
        for entry in self._entries("users"):
            entry.name("name")
            body = entry.body | {"limits": entry.object("limits")}
            self._rehearse(entry, rehearsal.load_user, body)
            self.users.append(body)
        for entry in self._entries("permissions"):
            self._rehearse(entry, rehearsal.load_permission, entry.body)
            self.permissions.append(entry.body)
        for entry in self._entries("topic_permissions"):
            self._rehearse(entry, rehearsal.load_topic_permission, entry.body)
            self.topic_permissions.append(entry.body)

    def _rehearse(self, entry: Entry, load: Callable[[dict[str, Json]], None], body: dict[str, Json]) -> None:
        try:
            load(body)
        except UserError as error:
            raise entry.error(str(error)) from None

    # Settings.

    def _read_parameters(self) -> None:
        for entry in self._entries("parameters"):
            component, name, value = entry.word("component"), entry.word("name"), entry.body.get("value")
            if component == OPERATOR_POLICY:
                self._read_policy(entry, entry.as_object("value", value) | {"name": name}, operator=True)
            elif component == LIMITS:
                self.limits[entry.vhost] = self._read_limits(entry, entry.as_object("value", value))
            else:
                self.parameters.append((entry.vhost, component, name, value))

    def _read_limits(self, entry: Entry, value: dict[str, Json]) -> dict[str, int]:
        limits: dict[str, int] = {}
        for name, limit in value.items():
            if name not in VHOST_LIMITS:
                raise entry.error(f"'{name}' is none of {', '.join(VHOST_LIMITS)}")
            if not isinstance(limit, int) or isinstance(limit, bool):
                raise entry.error(f"'{name}' must be a whole number, not {limit!r}")
            limits[name] = limit
        return limits

    def _read_policy(self, entry: Entry, body: dict[str, Json], operator: bool) -> None:
        reader = Entry("policies", 0, body, entry.vhost)
        reader.what = entry.what
        apply_to = reader.word("apply-to", "all")
        if apply_to in APPLY_TO_OTHERS:
            self.warnings.append(f"{entry.what} is left out: it applies to {apply_to}, which are not supported")
            return
        definition = reader.object("definition")
        try:
            policy = Policy(
                reader.word("name"),
                reader.word("pattern"),
                definition,
                apply_to,
                reader.integer("priority", 0),
                operator,
            )
        except PolicyError as error:
            raise entry.error(str(error).partition(": ")[2]) from None
        (self.operator_policies if operator else self.policies).append((entry.vhost, policy))

    # Topology.

    def _read_exchanges(self) -> None:
        for entry in self._entries("exchanges"):
            name, kind = entry.name("name"), entry.word("type")
            if not name or (entry.vhost, name) in self.exchanges:
                continue
            if kind not in TYPES:
                self.warnings.append(f"{entry.what} is left out: exchange type '{kind}' is not supported")
                continue
            if name.startswith(RESERVED_PREFIX) and name not in OWN_EXCHANGES:
                self.warnings.append(f"{entry.what} is left out: names with 'amq.' are the broker's own")
                continue
            arguments = entry.table()
            try:
                check_alternate("it", arguments)
                exchange = Exchange(
                    name, kind, entry.flag("durable"), entry.flag("auto_delete"), entry.flag("internal"), arguments
                )
            except (CloseChannel, CloseConnection) as error:
                raise entry.error(_reason(error)) from None
            self.exchanges[entry.vhost, name] = exchange

    def _read_queues(self) -> None:
        for entry in self._entries("queues"):
            name, arguments = entry.name("name"), entry.table()
            if not name:
                raise entry.error("a queue must have a name")
            kind = arguments.get("x-queue-type", entry.body.get("type", "classic"))
            if kind in QUEUE_TYPES_TO_COME:
                self.warnings.append(f"{entry.what} is left out: {kind!s} queues are not supported")
                continue
            if kind == STREAM:
                if self._broker.vault is None and self._broker.ledger is NO_LEDGER:
                    self.warnings.append(f"{entry.what} is left out: a stream needs a broker with a data directory")
                    continue
                arguments["x-queue-type"] = STREAM
            try:
                check_queue_arguments("it", arguments)
                if kind == STREAM:
                    check_stream_flags("it", entry.flag("durable"), False, entry.flag("auto_delete"))
            except (CloseChannel, CloseConnection) as error:
                raise entry.error(_reason(error)) from None
            self.queues.setdefault(
                (entry.vhost, name),
                PlannedQueue(entry.vhost, name, entry.flag("durable"), entry.flag("auto_delete"), arguments),
            )

    def _read_bindings(self) -> None:
        for entry in self._entries("bindings"):
            source, destination = entry.name("source"), entry.name("destination")
            kind = entry.word("destination_type")
            if kind not in ("queue", "exchange"):
                raise entry.error(f"'destination_type' is queue or exchange, not '{kind}'")
            binding = PlannedBinding(
                entry.vhost, source, destination, kind == "exchange", entry.name("routing_key", ""), entry.table()
            )
            if not source:
                continue  # the default exchange is bound to every queue anyway
            missing = self._missing_end(binding)
            if missing:
                self.warnings.append(f"{entry.what} is left out: there is no {missing}")
                continue
            self._check_binding(entry, binding)
            self.bindings.append(binding)

    def _missing_end(self, binding: PlannedBinding) -> str:
        vhost = self._broker.vhosts.get(binding.vhost)
        if self._exchange(binding.vhost, binding.source) is None:
            return f"exchange '{binding.source}'"
        if binding.to_exchange:
            found = self._exchange(binding.vhost, binding.destination) is not None
            return "" if found else f"exchange '{binding.destination}'"
        planned = (binding.vhost, binding.destination) in self.queues
        there = vhost is not None and binding.destination in vhost.queues
        return "" if planned or there else f"queue '{binding.destination}'"

    def _exchange(self, vhost_name: str, name: str) -> Exchange | None:
        vhost = self._broker.vhosts.get(vhost_name)
        there = vhost.exchanges.get(name) if vhost is not None else None
        return there or self.exchanges.get((vhost_name, name))

    def _check_binding(self, entry: Entry, binding: PlannedBinding) -> None:
        source = self._exchange(binding.vhost, binding.source)
        assert source is not None, "looked at before"
        if source.kind in (DIRECT, FANOUT, TOPIC):
            return  # they take any key and any arguments
        rehearsal = Exchange("", source.kind, arguments=source.arguments)
        try:
            rehearsal.bind(Binding(rehearsal, rehearsal, binding.key, binding.arguments))
        except CloseChannel as error:
            raise entry.error(_reason(error)) from None


def _reason(error: CloseChannel | CloseConnection) -> str:
    """What a client would be told, without the code's name."""
    return error.text.partition(" - ")[2]

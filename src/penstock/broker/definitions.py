"""Definitions: RabbitMQ's definitions JSON and the live broker, both ways; and the same for what the ledger kept.

Export: what is there. Import, as RabbitMQ does it: users, permissions, policies, parameters and limits are added or
overwritten; exchanges, queues and bindings that are there stay as they are. The whole document is checked first
(plan.py); then all of it is done in one call, which is one transaction of the ledger: all or nothing.
A record of the ledger is one object of a document, so restoring at the start is importing what was kept.
Not here: the checks (plan.py), files and the disk (store/), who may do this (management).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.broker.exchange import Binding, Exchange
from penstock.broker.ledger import Json, Ledger
from penstock.broker.parameters import put_limits, put_parameter
from penstock.broker.password import new_secret
from penstock.broker.plan import DefinitionsError, Plan, PlannedBinding
from penstock.broker.records import (
    BINDING,
    EXCHANGE,
    GLOBAL_PARAMETER,
    OPERATOR_POLICY,
    PARAMETER,
    PERMISSION,
    POLICY,
    QUEUE,
    TOPIC_PERMISSION,
    USER,
    VHOST,
    VHOST_LIMIT,
    binding_body,
    binding_key,
    exchange_body,
    limits_body,
    parameter_body,
    queue_body,
)
from penstock.broker.users import permission_body, topic_permission_body
from penstock.broker.vhost import RESERVED_PREFIX, VHost

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.queue import Queue

FORMAT_VERSION: Final = "3.13.7"  # of RabbitMQ: whose format this is; what clients are told too (net/handshake.py)

Record = tuple[str, tuple[str, ...], dict[str, Json]]

SECTIONS: Final = {  # kind of a record -> where it stands in a document
    VHOST: "vhosts",
    USER: "users",
    PERMISSION: "permissions",
    TOPIC_PERMISSION: "topic_permissions",
    EXCHANGE: "exchanges",
    QUEUE: "queues",
    BINDING: "bindings",
    POLICY: "policies",
    OPERATOR_POLICY: "parameters",
    PARAMETER: "parameters",
    VHOST_LIMIT: "parameters",
    GLOBAL_PARAMETER: "global_parameters",
}
OWN: Final = frozenset({("/", "penstock.events")})  # the broker's own queues (eventstream.py): in no document
STEP: Final = 200  # objects of an export that are made in one go: about a millisecond
VHOST_SECTIONS: Final = ("parameters", "policies", "queues", "exchanges", "bindings")


class Summary:
    """What an import did: by section, how many were new, overwritten, or there already and kept; and what to know."""

    __slots__ = ("added", "changed", "kept", "transient", "warnings")

    def __init__(self) -> None:
        self.added: dict[str, int] = {}
        self.changed: dict[str, int] = {}
        self.kept: dict[str, int] = {}
        self.transient: list[str] = []  # what was added but is not durable: a restart ends it
        self.warnings: list[str] = []

    def count(self, section: str, is_new: bool) -> None:
        """One more of what is overwritten if it was there."""
        counts = self.added if is_new else self.changed
        counts[section] = counts.get(section, 0) + 1

    def count_fixed(self, section: str, is_new: bool) -> None:
        """One more of what is kept if it was there."""
        counts = self.added if is_new else self.kept
        counts[section] = counts.get(section, 0) + 1

    def line(self) -> str:
        """For people, as `2 queues added; 1 users overwritten; 3 bindings kept`."""
        parts = [
            ", ".join(f"{number} {section.replace('_', ' ')}" for section, number in counts.items()) + f" {what}"
            for what, counts in (("added", self.added), ("overwritten", self.changed), ("kept", self.kept))
            if counts
        ]
        return "; ".join(parts) or "nothing to import"

    def __repr__(self) -> str:
        return f"<Summary {self.line()} warnings={len(self.warnings)}>"


# Out.


def export_definitions(broker: Broker, vhost_name: str | None = None) -> dict[str, Json]:
    """All that is there; or one vhost's, without its name in it, as RabbitMQ does."""
    export = Export(broker, vhost_name)
    while not export.step():
        pass
    return export.document()


class Export:
    """The same in steps, so that others have their turn in between: what is in it was there when it began."""

    __slots__ = ("_records", "_sections", "_vhost_name")

    def __init__(self, broker: Broker, vhost_name: str | None = None) -> None:
        self._vhost_name = vhost_name
        self._sections = _no_sections()
        if vhost_name is None:
            self._records = _records(broker)
            return
        vhost = broker.vhosts.get(vhost_name)
        if vhost is None:
            raise DefinitionsError(f"there is no vhost '{vhost_name}'")
        self._records = _vhost_records(vhost)

    def step(self, limit: int = STEP) -> bool:
        """Add so many more; True when all are in."""
        count = 0
        for record in islice(self._records, limit):
            _enter(self._sections, record)
            count += 1
        return count < limit

    def document(self) -> dict[str, Json]:
        document = _document(self._sections)
        return document if self._vhost_name is None else vhost_part(document, self._vhost_name)


def vhost_part(document: dict[str, Json], vhost_name: str) -> dict[str, Json]:
    """The document of one vhost only."""
    part = _head()
    for section in VHOST_SECTIONS:
        found = document[section]
        assert isinstance(found, list)
        part[section] = [
            {name: value for name, value in body.items() if name != "vhost"}
            for body in found
            if isinstance(body, dict) and body.get("vhost") == vhost_name
        ]
    return part


def document_of(records: Iterable[Record], own: bool = False) -> dict[str, Json]:
    """The document that holds these; with the broker's own queues only if it is for itself."""
    sections = _no_sections()
    for record in records:
        _enter(sections, record, own)
    return _document(sections)


def _no_sections() -> dict[str, list[Json]]:
    return {section: [] for section in SECTIONS.values()}


def _enter(sections: dict[str, list[Json]], record: Record, own: bool = False) -> None:
    kind, key, body = record
    section = SECTIONS.get(kind)
    if section is not None and (own or kind != QUEUE or key not in OWN):
        sections[section].append(_operator_parameter(body) if kind == OPERATOR_POLICY else body)


def _document(sections: dict[str, list[Json]]) -> dict[str, Json]:
    document = _head()
    for section in ("users", "vhosts", "permissions", "topic_permissions", "parameters", "global_parameters"):
        document[section] = sections[section]
    for section in ("policies", "queues", "exchanges", "bindings"):
        document[section] = sections[section]
    return document


def _head() -> dict[str, Json]:
    return {
        "rabbit_version": FORMAT_VERSION,
        "rabbitmq_version": FORMAT_VERSION,
        "product_name": "Penstock",
        "product_version": __version__,
    }


def _operator_parameter(body: dict[str, Json]) -> dict[str, Json]:
    """RabbitMQ has operator policies among the parameters."""
    value: dict[str, Json] = {name: one for name, one in body.items() if name not in ("vhost", "name")}
    return parameter_body(str(body["vhost"]), OPERATOR_POLICY, str(body["name"]), value)


def _records(broker: Broker) -> Iterator[Record]:
    """All that is there, durable or not, in the shape of the ledger. Which there are is settled now, whenever it is
    read."""
    records: list[Record] = []
    for vhost in broker.vhosts.values():
        records.append((VHOST, (vhost.name,), vhost.body()))
    for user in broker.users:
        records.append((USER, (user.name,), user.body()))
    for name, vhost_name, permission in broker.users.permissions():
        records.append((PERMISSION, (name, vhost_name), permission_body(name, vhost_name, permission)))
    for name, vhost_name, exchange, topic in broker.users.topic_permissions():
        body = topic_permission_body(name, vhost_name, exchange, topic)
        records.append((TOPIC_PERMISSION, (name, vhost_name, exchange), body))
    for name, value in broker.global_parameters.items():
        records.append((GLOBAL_PARAMETER, (name,), {"name": name, "value": value}))
    return chain(records, *[_vhost_records(vhost) for vhost in broker.vhosts.values()])


def _vhost_records(vhost: VHost) -> Iterator[Record]:
    name = vhost.name
    records: list[Record] = []
    if vhost.limits:
        records.append((VHOST_LIMIT, (name,), limits_body(name, vhost.limits)))
    for (component, parameter), value in vhost.parameters.items():
        body = parameter_body(name, component, parameter, value)
        records.append((PARAMETER, (name, component, parameter), body))
    for policy in vhost.policies.user.values():
        records.append((POLICY, (name, policy.name), policy.body(name)))
    for policy in vhost.policies.operator.values():
        records.append((OPERATOR_POLICY, (name, policy.name), policy.body(name)))
    exchanges, queues = list(vhost.exchanges.values()), list(vhost.queues.values())
    bindings = [binding for exchange in exchanges for binding in exchange.bindings()]
    return chain(records, _topology_records(name, exchanges, queues, bindings))


def _topology_records(
    name: str, exchanges: list[Exchange], queues: list[Queue], bindings: list[Binding]
) -> Iterator[Record]:
    """What a vhost may have thousands of, made one by one."""
    for exchange in exchanges:
        if exchange.name and not exchange.name.startswith(RESERVED_PREFIX):
            yield EXCHANGE, (name, exchange.name), exchange_body(name, exchange)
    for queue in queues:
        if not queue.exclusive:
            yield QUEUE, (name, queue.queue_name), queue_body(name, queue)
    for binding in bindings:
        if isinstance(binding.destination, Exchange) or not binding.destination.exclusive:
            body = binding_body(name, binding)
            yield BINDING, binding_key(body), body


# In.


def import_definitions(broker: Broker, document: Json, vhost_name: str | None = None) -> Summary:
    """Do all that the document says, or, with a DefinitionsError, nothing of it.

    With a vhost, all of it is for that one. On an event loop, call `hash_passwords` before, in a thread.
    """
    hash_passwords(document)
    plan = Plan(broker, document, vhost_name)
    _check_queue_limits(broker, plan)
    summary = Summary()
    summary.warnings += plan.warnings
    _do_people(broker, plan, summary)
    _do_settings(broker, plan, summary)
    _do_topology(broker, plan, summary)
    return summary


def hash_passwords(document: Json) -> None:
    """Turn every "password" of a user into a hash, in place. Slow: tens of milliseconds each."""
    users = document.get("users") if isinstance(document, dict) else None
    for user in users if isinstance(users, list) else ():
        if isinstance(user, dict) and "password_hash" not in user and isinstance(user.get("password"), str):
            secret = new_secret(str(user.pop("password")))
            user["password_hash"], user["hashing_algorithm"] = secret.password_hash, secret.algorithm


def _check_queue_limits(broker: Broker, plan: Plan) -> None:
    new: dict[str, int] = {}
    for vhost_name, name in plan.queues:
        vhost = broker.vhosts.get(vhost_name)
        if vhost is not None and name not in vhost.queues and (vhost_name, name) not in OWN:
            new[vhost_name] = new.get(vhost_name, 0) + 1
    for vhost_name, number in new.items():
        vhost = broker.vhosts[vhost_name]
        limit = vhost.limits.get("max-queues", -1)
        if 0 <= limit < len(vhost.queues) - len(vhost.protected) + number:
            raise DefinitionsError(
                f"vhost '{vhost_name}': {number} more queues would exceed its limit of {limit}, "
                f"it has {len(vhost.queues)} already"
            )


def _do_people(broker: Broker, plan: Plan, summary: Summary) -> None:
    users = broker.users
    for name, metadata in plan.vhosts.items():
        summary.count("vhosts", name not in broker.vhosts)
        broker.add_vhost(name, metadata)
    for body in plan.users:
        summary.count("users", users.get(str(body["name"])) is None)
        users.load_user(body)
    for body in plan.permissions:
        summary.count("permissions", users.permission(str(body["user"]), str(body["vhost"])) is None)
        users.load_permission(body)
    for body in plan.topic_permissions:
        there = users.topic_permission(str(body["user"]), str(body["vhost"]), str(body["exchange"]))
        summary.count("topic_permissions", there is None)
        users.load_topic_permission(body)


def _do_settings(broker: Broker, plan: Plan, summary: Summary) -> None:
    for name, value in plan.global_parameters.items():
        summary.count("global_parameters", name not in broker.global_parameters)
        broker.put_global_parameter(name, value)
    for vhost_name, limits in plan.limits.items():
        summary.count("parameters", not broker.vhosts[vhost_name].limits)
        put_limits(broker.vhosts[vhost_name], limits)
    for vhost_name, component, name, value in plan.parameters:
        summary.count("parameters", (component, name) not in broker.vhosts[vhost_name].parameters)
        put_parameter(broker.vhosts[vhost_name], component, name, value)
    for vhost_name, policy in plan.operator_policies:
        vhost = broker.vhosts[vhost_name]
        summary.count("parameters", policy.name not in vhost.policies.operator)
        vhost.put_policy(policy, operator=True)
    for vhost_name, policy in plan.policies:
        vhost = broker.vhosts[vhost_name]
        summary.count("policies", policy.name not in vhost.policies.user)
        vhost.put_policy(policy)


def _do_topology(broker: Broker, plan: Plan, summary: Summary) -> None:
    for (vhost_name, name), exchange in plan.exchanges.items():
        vhost = broker.vhosts[vhost_name]
        there = vhost.exchanges.get(name)
        summary.count_fixed("exchanges", there is None)
        if there is None:
            vhost.add_exchange(exchange)
            if not exchange.durable:
                summary.transient.append(f"exchange '{name}' in vhost '{vhost_name}'")
        elif exchange_body(vhost_name, there) != exchange_body(vhost_name, exchange):
            summary.warnings.append(f"exchange '{name}' in vhost '{vhost_name}' stays as it is; the document's differs")
    for (vhost_name, name), queue in plan.queues.items():
        vhost = broker.vhosts[vhost_name]
        known = vhost.queues.get(name)
        summary.count_fixed("queues", known is None)
        if known is None:
            vhost.add_queue(name, queue.durable, queue.auto_delete, queue.arguments)
            if not queue.durable:
                summary.transient.append(f"queue '{name}' in vhost '{vhost_name}'")
        elif not queue.is_like(known):
            summary.warnings.append(f"queue '{name}' in vhost '{vhost_name}' stays as it is; the document's differs")
    for binding in plan.bindings:
        summary.count_fixed("bindings", _bind(broker.vhosts[binding.vhost], binding))


def _bind(vhost: VHost, binding: PlannedBinding) -> bool:
    """False if it was there already."""
    ends = vhost.exchanges if binding.to_exchange else vhost.queues
    version = vhost.version
    vhost.bind(vhost.exchanges[binding.source], ends[binding.destination], binding.key, binding.arguments)
    return vhost.version != version


# What the ledger kept.


def restore(broker: Broker, records: Iterable[Record], ledger: Ledger, with_defaults: bool = True) -> Summary:
    """Make a new broker what was recorded, and record in this ledger from now on.

    With no records the ledger is new, and what the broker has by default is what it starts with: recorded once, so that
    it stays deleted when it is. Without defaults there is nothing at first: as in RabbitMQ, whoever brings a file of
    definitions is not given a user that everybody knows.
    """
    found = list(records)
    if found or not with_defaults:
        broker.users.forget_all()
        broker.vhosts.clear()
    summary = import_definitions(broker, document_of(found, own=True)) if found else Summary()
    broker.keep_in(ledger)
    if not found:
        for kind, key, body in _records(broker):
            ledger.put(kind, key, body)
    return summary

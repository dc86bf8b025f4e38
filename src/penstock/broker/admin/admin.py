"""Admin: what an operator can see of a running broker and do to it. One method per verb; the JSON is RabbitMQ's.

Place: management/ and tests call it, on the broker's own thread. Each change takes effect at once and is recorded;
`committed` says when it is on disk. A mistake is an AdminError with one line for the operator. Verbs that a client has
too take a `user`, and check what that user may do as a channel would; None is an operator who may do all.
Not here: HTTP, and who is allowed to call what (management/).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Final

from penstock.broker.admin import messages
from penstock.broker.admin.error import AdminError, Settings
from penstock.broker.admin.topology import Topology
from penstock.broker.alarms import Vitals
from penstock.broker.broker import Broker
from penstock.broker.definitions import Export, Summary, export_definitions, import_definitions
from penstock.broker.ledger import Json
from penstock.broker.parameters import drop_parameter, put_limits, put_parameter
from penstock.broker.password import NO_PASSWORD, Secret
from penstock.broker.peer import Peer
from penstock.broker.peers import close
from penstock.broker.plan import DefinitionsError
from penstock.broker.policy import Policy, PolicyError
from penstock.broker.records import limits_body, parameter_body
from penstock.broker.snapshot import flow
from penstock.broker.snapshot.channels import channel_name, channel_view, open_channels
from penstock.broker.snapshot.connections import connection_view
from penstock.broker.snapshot.exchanges import bindings_of, exchange_view
from penstock.broker.snapshot.kinds import list_kind
from penstock.broker.snapshot.listing import CHANNELS, CONNECTIONS, QUEUES, Listing
from penstock.broker.snapshot.overview import Listener, OpenFiles, node, overview
from penstock.broker.snapshot.queues import queue_view
from penstock.broker.snapshot.totals import Totals
from penstock.broker.snapshot.vhosts import vhost_view
from penstock.broker.users import UserError, permission_body, topic_permission_body
from penstock.broker.vhost import VHost

VHOST_LIMITS: Final = ("max-connections", "max-queues")
USER_LIMITS: Final = ("max-connections", "max-channels")


class Admin:
    __slots__ = ("_broker", "_files", "_listeners", "_settings", "_totals", "_vitals")

    def __init__(
        self,
        broker: Broker,
        settings: Settings | None = None,
        vitals: Vitals | None = None,
        listeners: Callable[[], list[Listener]] | None = None,
    ) -> None:
        """`vitals` and `listeners` are the machine and the open ports, as far as they can be told."""
        self._broker = broker
        self._settings = settings
        self._vitals = vitals
        self._listeners = listeners
        self._totals = Totals(broker)
        self._files = OpenFiles()

    def committed(self, callback: Callable[[], None]) -> None:
        """Call this when all changes until now are on disk."""
        self._broker.ledger.after_commit(callback)

    # Settings, and the alarms that some of them are about.

    def settings(self) -> list[dict[str, Json]]:
        return self._settings.all() if self._settings is not None else []

    def change_setting(self, name: str, text: str) -> None:
        if self._settings is None:
            raise AdminError("this broker's settings cannot be changed")
        self._settings.change(name, text)

    def alarms(self) -> list[dict[str, Json]]:
        return [{"source": source, "reason": reason} for source, reason in self._broker.alarms.reasons().items()]

    # What is there, as it is now.

    def overview(self) -> dict[str, Json]:
        """RabbitMQ's, with cumulative counters. Beyond some thousand queues totals are those of the last `sweep`."""
        listeners = self._listeners() if self._listeners is not None else []
        return overview(self._broker, self._totals.fresh(), listeners)

    def sweep(self) -> bool:
        """Count on, a slice of the queues and channels; True when all are counted. Whoever shows totals of a large
        broker calls this until then, with other work in between."""
        return self._totals.step()

    def node(self) -> dict[str, Json]:
        return node(self._broker, self._vitals, self._files)

    def listing(
        self, kind: str, vhost: str | None = None, among: Container[str] | None = None, user: str | None = None
    ) -> Listing:
        """All of this kind, in a vhost or in all; only in vhosts `among` these; connections, channels and consumers
        only of this user."""
        if vhost is not None:
            self._vhost(vhost)
        return list_kind(self._broker, kind, vhost, among, user)

    def queues(self, vhost: str | None = None) -> list[dict[str, Json]]:
        """All at once: for few. So are the next two."""
        return _views(self.listing(QUEUES, vhost))

    def connections(self) -> list[dict[str, Json]]:
        return _views(self.listing(CONNECTIONS))

    def channels(self) -> list[dict[str, Json]]:
        return _views(self.listing(CHANNELS))

    def queue(self, vhost: str, name: str) -> dict[str, Json]:
        queue = self._vhost(vhost).queues.get(name)
        if queue is None:
            raise AdminError(f"there is no queue '{name}' in vhost '{vhost}'", missing=True)
        return queue_view(self._broker, queue, whole=True)

    def exchange(self, vhost: str, name: str) -> dict[str, Json]:
        place = self._vhost(vhost)
        exchange = place.exchanges.get(name)
        if exchange is None:
            raise AdminError(f"there is no exchange '{name}' in vhost '{vhost}'", missing=True)
        return exchange_view(place, exchange, whole=True)

    def bindings(
        self, vhost: str, source: str | None = None, kind: str | None = None, destination: str | None = None
    ) -> list[dict[str, Json]]:
        """From this exchange, to this queue or exchange (`kind` says which), or both."""
        return [bound.view() for bound in bindings_of(self._vhost(vhost), source, kind, destination)]

    def binding(self, vhost: str, source: str, destination: str, kind: str, props_key: str) -> dict[str, Json]:
        return self._topology(vhost, None).binding(source, destination, kind, props_key).view()

    def connection(self, name: str) -> dict[str, Json]:
        return connection_view(self._peer(name))

    def channel(self, name: str) -> dict[str, Json]:
        for channel in open_channels(self._broker):
            if channel_name(channel) == name:
                return channel_view(channel, whole=True)
        raise AdminError(f"there is no channel '{name}'", missing=True)

    def _peer(self, name: str) -> Peer:
        for peer in self._broker.peers.all():
            if peer.name == name:
                return peer
        raise AdminError(f"there is no connection '{name}'", missing=True)

    # What clients can do too.

    def _topology(self, vhost: str, user: str | None) -> Topology:
        return Topology(self._broker, self._vhost(vhost), user)

    def declare_queue(
        self,
        vhost: str,
        name: str,
        durable: bool = True,
        auto_delete: bool = False,
        arguments: Mapping[str, Json] | None = None,
        type_: str = "",
        user: str | None = None,
    ) -> bool:
        """True if it is new."""
        return self._topology(vhost, user).declare_queue(name, durable, auto_delete, arguments or {}, type_)

    def delete_queue(
        self, vhost: str, name: str, if_empty: bool = False, if_unused: bool = False, user: str | None = None
    ) -> int:
        """How many messages were in it."""
        return self._topology(vhost, user).delete_queue(name, if_empty, if_unused)

    def purge_queue(self, vhost: str, name: str, user: str | None = None) -> int:
        """How many messages there were."""
        return self._topology(vhost, user).purge_queue(name)

    def declare_exchange(
        self,
        vhost: str,
        name: str,
        kind: str = "direct",
        durable: bool = True,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Mapping[str, Json] | None = None,
        user: str | None = None,
    ) -> bool:
        """True if it is new."""
        topology = self._topology(vhost, user)
        return topology.declare_exchange(name, kind, durable, auto_delete, internal, arguments or {})

    def delete_exchange(self, vhost: str, name: str, if_unused: bool = False, user: str | None = None) -> None:
        self._topology(vhost, user).delete_exchange(name, if_unused)

    def bind(
        self,
        vhost: str,
        source: str,
        destination: str,
        kind: str,
        key: str = "",
        arguments: Mapping[str, Json] | None = None,
        user: str | None = None,
    ) -> str:
        """To a `queue` or an `exchange`; the binding's properties_key."""
        return self._topology(vhost, user).bind(source, destination, kind, key, arguments or {})

    def unbind(
        self, vhost: str, source: str, destination: str, kind: str, props_key: str, user: str | None = None
    ) -> None:
        self._topology(vhost, user).unbind(source, destination, kind, props_key)

    def publish(
        self,
        vhost: str,
        exchange: str,
        key: str,
        properties: Mapping[str, Json],
        body: bytes,
        done: Callable[[bool], None],
        *,
        user: str,
    ) -> None:
        """`done` is told, now or later, whether it is in a queue: when all its queues have confirmed it, or after a
        few seconds if they do not. What a client's channel would be closed for is an AdminError at once."""
        messages.publish(self._broker, self._vhost(vhost), user, exchange, key, properties, body, done)

    def get(
        self,
        vhost: str,
        queue: str,
        count: int,
        ackmode: str,
        truncate: int | None,
        done: Callable[[list[dict[str, Json]]], None],
        *,
        user: str,
        encoding: str = "auto",
    ) -> Callable[[], None]:
        """`done` gets the messages, now or later. They are acked, dropped or put back by then, as `ackmode` says.
        What comes back is to be called if nobody waits any more: what is not yet got stays in the queue."""
        place = self._vhost(vhost)
        return messages.get(self._broker, place, user, queue, count, ackmode, encoding, truncate, done)

    def close_connection(self, name: str, reason: str = "") -> None:
        close([self._peer(name)], reason or "Closed via management plugin")

    def close_connections_of(self, user: str, reason: str) -> None:
        self._broker.peers.close_user(user, reason)

    def flow(self) -> dict[str, Json]:
        """Who is blocked by whom; docs/flow.md has its shape."""
        return flow.flow(self._broker, self.settings())

    def flow_totals(self, hops: bool = True) -> dict[str, Json]:
        """The sums of it, without a look at each stage; without `hops`, not at each link either."""
        return flow.totals(self._broker, hops)

    def flow_pulse(self) -> tuple[int, int, int]:
        """Blocks that began so far, stages that are blocked now, queues that are saturated now."""
        return flow.pulse(self._broker)

    # Vhosts.

    def vhosts(self) -> list[dict[str, Json]]:
        """With what is in them: messages, message_stats, bytes; of a large broker, as of the last `sweep`."""
        self._totals.fresh()
        of_vhost = self._totals.of_vhost
        return [vhost_view(self._broker, vhost, of_vhost(name)) for name, vhost in self._broker.vhosts.items()]

    def vhost_names(self) -> list[str]:
        return list(self._broker.vhosts)

    def vhost(self, name: str) -> dict[str, Json]:
        vhost = self._vhost(name)
        self._totals.fresh()
        return vhost_view(self._broker, vhost, self._totals.of_vhost(name))

    def put_vhost(self, name: str, metadata: dict[str, Json] | None = None) -> bool:
        """True if it is new."""
        if not name:
            raise AdminError("a vhost needs a name")
        is_new = name not in self._broker.vhosts
        self._broker.add_vhost(name, metadata)
        return is_new

    def delete_vhost(self, name: str) -> None:
        self._vhost(name)
        self._broker.delete_vhost(name)

    def _vhost(self, name: str) -> VHost:
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            raise AdminError(f"there is no vhost '{name}'", missing=True)
        return vhost

    # Users.

    def users(self) -> list[dict[str, Json]]:
        return [user.body() for user in self._broker.users]

    def user(self, name: str) -> dict[str, Json]:
        found = self._broker.users.get(name)
        if found is None:
            raise AdminError(f"there is no user '{name}'", missing=True)
        return found.body()

    def put_user(self, name: str, secret: Secret | None, tags: Iterable[str]) -> bool:
        """True if it is new. Without a secret no password is right; the caller says so on purpose."""
        is_new = self._broker.users.get(name) is None
        try:
            self._broker.users.put_user(name, secret if secret is not None else NO_PASSWORD, tags)
        except UserError as error:
            raise AdminError(str(error)) from None
        return is_new

    def delete_user(self, name: str) -> None:
        self._check_user(name)
        self._broker.users.delete_user(name)

    def _check_user(self, name: str) -> None:
        if self._broker.users.get(name) is None:
            raise AdminError(f"there is no user '{name}'", missing=True)

    # Permissions.

    def permissions(self, vhost: str | None = None, user: str | None = None) -> list[dict[str, Json]]:
        return [
            permission_body(*entry)
            for entry in self._broker.users.permissions()
            if user in (None, entry[0]) and vhost in (None, entry[1])
        ]

    def set_permissions(self, user: str, vhost: str, configure: str, write: str, read: str) -> bool:
        """True if the user had none there."""
        self._check_user(user)
        self._vhost(vhost)
        is_new = self._broker.users.permission(user, vhost) is None
        try:
            self._broker.users.set_permission(user, vhost, configure, write, read)
        except UserError as error:
            raise AdminError(str(error)) from None
        return is_new

    def clear_permissions(self, user: str, vhost: str) -> None:
        if self._broker.users.permission(user, vhost) is None:
            raise AdminError(f"user '{user}' has no permissions in vhost '{vhost}'", missing=True)
        self._broker.users.clear_permission(user, vhost)

    def topic_permissions(self, vhost: str | None = None, user: str | None = None) -> list[dict[str, Json]]:
        return [
            topic_permission_body(*entry)
            for entry in self._broker.users.topic_permissions()
            if user in (None, entry[0]) and vhost in (None, entry[1])
        ]

    def set_topic_permissions(self, user: str, vhost: str, exchange: str, write: str, read: str) -> bool:
        """True if the user had none for this exchange."""
        self._check_user(user)
        self._vhost(vhost)
        is_new = self._broker.users.topic_permission(user, vhost, exchange) is None
        try:
            self._broker.users.set_topic_permission(user, vhost, exchange, write, read)
        except UserError as error:
            raise AdminError(str(error)) from None
        return is_new

    def clear_topic_permissions(self, user: str, vhost: str) -> None:
        self._check_user(user)
        self._broker.users.clear_topic_permission(user, vhost)

    # Policies.

    def policies(self, vhost: str | None = None, operator: bool = False) -> list[dict[str, Json]]:
        vhosts = self._broker.vhosts.values() if vhost is None else [self._vhost(vhost)]
        return [
            policy.body(one.name)
            for one in vhosts
            for policy in (one.policies.operator if operator else one.policies.user).values()
        ]

    def set_policy(
        self,
        vhost: str,
        name: str,
        pattern: str,
        definition: Mapping[str, Json],
        apply_to: str = "all",
        priority: int = 0,
        operator: bool = False,
    ) -> bool:
        """True if it is new."""
        place = self._vhost(vhost)
        try:
            policy = Policy(name, pattern, definition, apply_to, priority, operator)
        except PolicyError as error:
            raise AdminError(str(error)) from None
        is_new = name not in (place.policies.operator if operator else place.policies.user)
        place.put_policy(policy, operator)
        return is_new

    def delete_policy(self, vhost: str, name: str, operator: bool = False) -> None:
        if not self._vhost(vhost).drop_policy(name, operator):
            raise AdminError(f"there is no policy '{name}' in vhost '{vhost}'", missing=True)

    # Limits.

    def vhost_limits(self) -> list[dict[str, Json]]:
        return [
            {"vhost": vhost.name, "value": dict(vhost.limits)} for vhost in self._broker.vhosts.values() if vhost.limits
        ]

    def set_vhost_limit(self, vhost: str, name: str, value: int | None) -> None:
        """None takes it away; a negative number is no limit either."""
        place = self._vhost(vhost)
        limits = _changed(place.limits, VHOST_LIMITS, name, value)
        put_limits(place, limits)

    def user_limits(self) -> list[dict[str, Json]]:
        return [{"user": user.name, "value": dict(user.limits)} for user in self._broker.users if user.limits]

    def set_user_limit(self, user: str, name: str, value: int | None) -> None:
        self._check_user(user)
        known = self._broker.users.get(user)
        assert known is not None
        self._broker.users.set_limits(user, _changed(known.limits, USER_LIMITS, name, value))

    # Parameters of plugins: kept for them.

    def parameters(self) -> list[dict[str, Json]]:
        return [
            parameter_body(vhost.name, component, name, value)
            for vhost in self._broker.vhosts.values()
            for (component, name), value in vhost.parameters.items()
        ] + [limits_body(vhost.name, vhost.limits) for vhost in self._broker.vhosts.values() if vhost.limits]

    def put_parameter(self, component: str, vhost: str, name: str, value: Json) -> bool:
        """True if it is new."""
        place = self._vhost(vhost)
        is_new = (component, name) not in place.parameters
        put_parameter(place, component, name, value)
        return is_new

    def delete_parameter(self, component: str, vhost: str, name: str) -> None:
        if not drop_parameter(self._vhost(vhost), component, name):
            raise AdminError(f"there is no parameter '{name}' of '{component}' in vhost '{vhost}'", missing=True)

    def global_parameters(self) -> list[dict[str, Json]]:
        return [{"name": name, "value": value} for name, value in self._broker.global_parameters.items()]

    def put_global_parameter(self, name: str, value: Json) -> bool:
        """True if it is new."""
        is_new = name not in self._broker.global_parameters
        self._broker.put_global_parameter(name, value)
        return is_new

    def delete_global_parameter(self, name: str) -> None:
        if not self._broker.drop_global_parameter(name):
            raise AdminError(f"there is no global parameter '{name}'", missing=True)

    # Definitions.

    def export(self, vhost: str | None = None) -> dict[str, Json]:
        try:
            return export_definitions(self._broker, vhost)
        except DefinitionsError as error:
            raise AdminError(str(error), missing=True) from None

    def exporting(self, vhost: str | None = None) -> Export:
        """The same in steps: call `step` until it is True, with other work in between, then `document`."""
        try:
            return Export(self._broker, vhost)
        except DefinitionsError as error:
            raise AdminError(str(error), missing=True) from None

    def load(self, document: Json, vhost: str | None = None) -> Summary:
        """All of it or, with an error, nothing. `hash_passwords` was called before, in a thread."""
        try:
            return import_definitions(self._broker, document, vhost)
        except DefinitionsError as error:
            raise AdminError(str(error)) from None


def _views(listing: Listing) -> list[dict[str, Json]]:
    return [view for view in map(listing.view, range(len(listing))) if view is not None]


def _changed(limits: Mapping[str, int], known: tuple[str, ...], name: str, value: int | None) -> dict[str, int]:
    if name not in known:
        raise AdminError(f"limit '{name}' is none of {', '.join(known)}")
    changed = {key: number for key, number in limits.items() if key != name}
    if value is not None:
        changed[name] = value
    return changed

"""Admin: what an operator can do to a running broker. One method per verb; the values are RabbitMQ's JSON.

Place: management/ and tests call it, on the broker's own thread. Each change takes effect at once and is recorded;
`committed` says when it is on disk. A mistake is an AdminError with one line for the operator.
Not here: HTTP (management/), who is allowed to call what (management/), new hashes for passwords: they are slow and
made by the caller (password.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from penstock.broker import snapshot
from penstock.broker.broker import Broker
from penstock.broker.definitions import Summary, export_definitions, hash_passwords, import_definitions
from penstock.broker.ledger import Json
from penstock.broker.parameters import put_limits
from penstock.broker.password import NO_PASSWORD, Secret, new_secret
from penstock.broker.plan import DefinitionsError
from penstock.broker.policy import Policy, PolicyError
from penstock.broker.records import limits_body, parameter_body
from penstock.broker.users import UserError, permission_body, topic_permission_body
from penstock.broker.vhost import VHost

# What management needs beside the verbs: it may import no other module of the broker.
__all__ = ["Admin", "AdminError", "Json", "Secret", "Summary", "hash_passwords", "new_secret"]

VHOST_LIMITS: Final = ("max-connections", "max-queues")
USER_LIMITS: Final = ("max-connections", "max-channels")


class AdminError(Exception):
    """What was asked for cannot be done; the text is one line for the operator. `missing`: it is not there."""

    def __init__(self, text: str, missing: bool = False) -> None:
        super().__init__(text)
        self.missing = missing


class Settings(Protocol):
    """The broker's settings; tuning.py has them."""

    def all(self) -> list[dict[str, Json]]: ...

    def change(self, name: str, text: str) -> None:
        """From now on, until the broker stops; an AdminError if that cannot be."""
        ...


class Admin:
    __slots__ = ("_broker", "_settings")

    def __init__(self, broker: Broker, settings: Settings | None = None) -> None:
        self._broker = broker
        self._settings = settings

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

    def queues(self, vhost: str | None = None) -> list[dict[str, Json]]:
        if vhost is not None and vhost not in self._broker.vhosts:
            raise AdminError(f"there is no vhost '{vhost}'", missing=True)
        return snapshot.queues(self._broker, vhost)

    def connections(self) -> list[dict[str, Json]]:
        return snapshot.connections(self._broker)

    def channels(self) -> list[dict[str, Json]]:
        return snapshot.channels(self._broker)

    # Vhosts.

    def vhosts(self) -> list[dict[str, Json]]:
        return [vhost.body() for vhost in self._broker.vhosts.values()]

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

    # Definitions.

    def export(self, vhost: str | None = None) -> dict[str, Json]:
        try:
            return export_definitions(self._broker, vhost)
        except DefinitionsError as error:
            raise AdminError(str(error), missing=True) from None

    def load(self, document: Json, vhost: str | None = None) -> Summary:
        """All of it or, with an error, nothing. `hash_passwords` was called before, in a thread."""
        try:
            return import_definitions(self._broker, document, vhost)
        except DefinitionsError as error:
            raise AdminError(str(error)) from None


def _changed(limits: Mapping[str, int], known: tuple[str, ...], name: str, value: int | None) -> dict[str, int]:
    if name not in known:
        raise AdminError(f"limit '{name}' is none of {', '.join(known)}")
    changed = {key: number for key, number in limits.items() if key != name}
    if value is not None:
        changed[name] = value
    return changed

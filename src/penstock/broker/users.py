"""Users: who may log in, with which tags and limits, and what they may do where. Every change is written to the ledger.

Place in the chain: net/login.py asks who it is, access.py what they may do; admin.py and definitions.py change it.
Whoever must know of a change adds a callback to `changed` (the permissions in a vhost) or `deleted` (a user);
broker.py does.

A login has two steps, because verifying is slow: `secret` and, in a thread, password.verify. What was verified last is
remembered per user as HMAC-SHA256 under a random key of this process, never written anywhere: when thousands of
clients reconnect at once, they cost microseconds each instead of a memory-hard hash. The price is that who can
read this process's memory can guess faster; but such a reader finds passwords arriving in the clear there anyway. It is
forgotten when the password changes.

Bodies (`load_…` and the ledger's) have the shape of RabbitMQ's definitions. To restore from disk: `forget_all`, then
`load_…` for every body, all with NO_LEDGER in `ledger`; then put the real one there. A new data directory: set the
ledger first, then `forget_all` and `add_default_user`, so that it is written down and stays deleted once it is.
Not here: hashes (password.py), regular expressions (access.py), counting connections (peers.py).
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from penstock.broker.access import BadRegex, Permission, TopicPermission
from penstock.broker.ledger import NO_LEDGER, Json, Ledger
from penstock.broker.password import DECOY, SHA256, Secret, fault, known_secret
from penstock.broker.records import PERMISSION, TOPIC_PERMISSION, USER

DEFAULT_USER: Final = "guest"
DEFAULT_PASSWORD: Final = "guest"
DEFAULT_TAGS: Final = ("administrator",)
DEFAULT_VHOST: Final = "/"
# The password of the default user is known to everyone, so it may only come from this machine.
LOOPBACK_ONLY: Final = frozenset({DEFAULT_USER})

MAX_CONNECTIONS: Final = "max-connections"
MAX_CHANNELS: Final = "max-channels"
LIMITS: Final = (MAX_CONNECTIONS, MAX_CHANNELS)
NO_LIMIT: Final = -1


class UserError(ValueError):
    """What an operator asked for cannot be done; the text is one line for them."""


class User:
    __slots__ = ("limits", "name", "secret", "tags")

    def __init__(self, name: str, secret: Secret, tags: tuple[str, ...], limits: dict[str, int]) -> None:
        self.name = name
        self.secret = secret
        self.tags = tags
        self.limits = limits  # by RabbitMQ's names; negative, or not there: no limit

    def body(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "password_hash": self.secret.password_hash,
            "hashing_algorithm": self.secret.algorithm,
            "tags": list(self.tags),
            "limits": dict(self.limits),
        }

    def __repr__(self) -> str:
        return f"<User {self.name!r} tags={list(self.tags)} limits={self.limits}>"


class Users:
    __slots__ = (
        "_key",
        "_permissions",
        "_remembered",
        "_topics",
        "_users",
        "changed",
        "deleted",
        "ledger",
        "loopback_only",
    )

    def __init__(self, ledger: Ledger = NO_LEDGER, loopback_only: Iterable[str] = LOOPBACK_ONLY) -> None:
        self.ledger = ledger
        self.changed: list[Callable[[str], None]] = []  # called with a vhost: permissions in it are others now
        self.deleted: list[Callable[[str], None]] = []  # called with a user that is gone
        self.loopback_only = frozenset(loopback_only)
        self._users: dict[str, User] = {}
        self._permissions: dict[tuple[str, str], Permission] = {}  # by user and vhost
        self._topics: dict[tuple[str, str, str], TopicPermission] = {}  # by user, vhost and exchange
        self._key = secrets.token_bytes(32)
        self._remembered: dict[str, bytes] = {}
        self.add_default_user()

    def add_default_user(self) -> None:
        """guest/guest, administrator, with all permissions in the default vhost."""
        self.put_user(DEFAULT_USER, known_secret(DEFAULT_PASSWORD), DEFAULT_TAGS)
        self.set_permission(DEFAULT_USER, DEFAULT_VHOST, ".*", ".*", ".*")

    def forget_all(self) -> None:
        """Before everything is loaded from elsewhere; nothing is recorded, nobody is told."""
        self._users.clear()
        self._permissions.clear()
        self._topics.clear()
        self._remembered.clear()

    # Asking.

    def get(self, name: str) -> User | None:
        return self._users.get(name)

    def tags(self, name: str) -> tuple[str, ...]:
        user = self._users.get(name)
        return user.tags if user is not None else ()

    def limit(self, name: str, limit: str) -> int:
        """MAX_CONNECTIONS or MAX_CHANNELS of a user; NO_LIMIT if there is none."""
        user = self._users.get(name)
        return max(user.limits.get(limit, NO_LIMIT), NO_LIMIT) if user is not None else NO_LIMIT

    def permission(self, user: str, vhost: str) -> Permission | None:
        return self._permissions.get((user, vhost))

    def topic_permission(self, user: str, vhost: str, exchange: str) -> TopicPermission | None:
        return self._topics.get((user, vhost, exchange))

    def __iter__(self) -> Iterator[User]:
        return iter(list(self._users.values()))

    def permissions(self) -> list[tuple[str, str, Permission]]:
        """All of them: user, vhost, permission."""
        return [(user, vhost, permission) for (user, vhost), permission in self._permissions.items()]

    def topic_permissions(self) -> list[tuple[str, str, str, TopicPermission]]:
        """All of them: user, vhost, exchange, permission."""
        return [(user, vhost, exchange, topic) for (user, vhost, exchange), topic in self._topics.items()]

    def bodies(self) -> tuple[list[dict[str, Json]], list[dict[str, Json]], list[dict[str, Json]]]:
        """For an export: users, permissions and topic permissions."""
        return (
            [user.body() for user in self._users.values()],
            [permission_body(*entry) for entry in self.permissions()],
            [topic_permission_body(*entry) for entry in self.topic_permissions()],
        )

    # Logging in.

    def secret(self, name: str) -> Secret:
        """What password.verify must be given; for an unknown user one that takes as long and is never right."""
        user = self._users.get(name)
        return user.secret if user is not None else DECOY

    def recall(self, name: str, password: str) -> bool:
        """Whether this is the password that was verified last for this user."""
        remembered = self._remembered.get(name)
        return remembered is not None and hmac.compare_digest(remembered, self._mac(password))

    def remember(self, name: str, secret: Secret, password: str) -> bool:
        """This password was verified with this secret; False if the user's secret is another one by now."""
        user = self._users.get(name)
        if user is None or user.secret != secret:
            return False
        self._remembered[name] = self._mac(password)
        return True

    def refusal(self, name: str, loopback: bool) -> str:
        """Why a user whose identity is beyond doubt may not come in, for the log; empty if it may."""
        if name not in self._users:
            return invalid_credentials(name)
        if name in self.loopback_only and not loopback:
            return f"user '{name}' can only connect via localhost"
        return ""

    def _mac(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogateescape"), "sha256")

    # Changing users.

    def put_user(
        self, name: str, secret: Secret, tags: Iterable[str] = (), limits: dict[str, int] | None = None
    ) -> None:
        """Add the user, or change it; without `limits` those it has stay."""
        if not name:
            raise UserError("a user's name cannot be empty")
        wrong = fault(secret)
        if wrong:
            raise UserError(f"the password hash of user '{name}' {wrong}")
        known = self._users.get(name)
        if limits is None:
            limits = known.limits if known is not None else {}
        if known is None or known.secret != secret:
            self._remembered.pop(name, None)
        self._record(User(name, secret, tuple(dict.fromkeys(tags)), _checked_limits(limits)))

    def change_password(self, name: str, secret: Secret) -> None:
        user = self._existing(name)
        self.put_user(name, secret, user.tags)

    def set_tags(self, name: str, tags: Iterable[str]) -> None:
        user = self._existing(name)
        self.put_user(name, user.secret, tags)

    def set_limits(self, name: str, limits: dict[str, int]) -> None:
        """These are the user's limits from now on; {} is none. They count for what is opened later."""
        user = self._existing(name)
        self.put_user(name, user.secret, user.tags, limits)

    def delete_user(self, name: str) -> None:
        """And what it may do where."""
        self._existing(name)
        for user, vhost in list(self._permissions):
            if user == name:
                self.clear_permission(name, vhost)
        for user, vhost, exchange in list(self._topics):
            if user == name:
                self.clear_topic_permission(name, vhost, exchange)
        del self._users[name]
        self._remembered.pop(name, None)
        self.ledger.drop(USER, (name,))
        for callback in self.deleted:
            callback(name)

    def _record(self, user: User) -> None:
        self._users[user.name] = user
        self.ledger.put(USER, (user.name,), user.body())

    def _existing(self, name: str) -> User:
        user = self._users.get(name)
        if user is None:
            raise UserError(f"user '{name}' does not exist")
        return user

    # Changing permissions. Whether the vhost exists is for the caller to know.

    def set_permission(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        self._existing(user)
        try:
            permission = Permission(configure, write, read)
        except BadRegex as error:
            raise UserError(str(error)) from None
        self._permissions[user, vhost] = permission
        self.ledger.put(PERMISSION, (user, vhost), permission_body(user, vhost, permission))
        self._tell(vhost)

    def clear_permission(self, user: str, vhost: str) -> None:
        """From now on the user may do nothing in the vhost; its connections there stay open."""
        if self._permissions.pop((user, vhost), None) is not None:
            self.ledger.drop(PERMISSION, (user, vhost))
            self._tell(vhost)

    def set_topic_permission(self, user: str, vhost: str, exchange: str, write: str, read: str) -> None:
        self._existing(user)
        try:
            topic = TopicPermission(write, read, user, vhost)
        except BadRegex as error:
            raise UserError(str(error)) from None
        self._topics[user, vhost, exchange] = topic
        body = topic_permission_body(user, vhost, exchange, topic)
        self.ledger.put(TOPIC_PERMISSION, (user, vhost, exchange), body)
        self._tell(vhost)

    def clear_topic_permission(self, user: str, vhost: str, exchange: str | None = None) -> None:
        """That of one exchange, or of all."""
        for key in list(self._topics):
            if key[:2] == (user, vhost) and exchange in (None, key[2]):
                del self._topics[key]
                self.ledger.drop(TOPIC_PERMISSION, key)
                self._tell(vhost)

    def forget_vhost(self, vhost: str) -> None:
        """The vhost is gone, and with it what anybody might do there."""
        for user, name in list(self._permissions):
            if name == vhost:
                self.clear_permission(user, vhost)
        for user, name, exchange in list(self._topics):
            if name == vhost:
                self.clear_topic_permission(user, vhost, exchange)

    def _tell(self, vhost: str) -> None:
        for callback in self.changed:
            callback(vhost)

    # From bodies: out of the store, or RabbitMQ's definitions.

    def load_user(self, body: dict[str, Json]) -> None:
        """A plain "password" is not taken: hashing is slow, so the caller makes it a hash first, by new_secret."""
        name = _text(body, "name")
        secret = Secret(_text(body, "hashing_algorithm", SHA256), _text(body, "password_hash"))
        tags = body.get("tags", [])
        if isinstance(tags, str):  # before RabbitMQ 3.9
            tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
        limits = body.get("limits") or {}  # RabbitMQ writes [] for none, now and then
        if not isinstance(tags, list) or not isinstance(limits, dict):
            raise UserError(f"user '{name}': tags must be a list and limits an object")
        self.put_user(name, secret, [str(tag) for tag in tags], _integers(name, limits))

    def load_permission(self, body: dict[str, Json]) -> None:
        patterns = [_text(body, field) for field in ("configure", "write", "read")]
        self.set_permission(_text(body, "user"), _text(body, "vhost"), *patterns)

    def load_topic_permission(self, body: dict[str, Json]) -> None:
        patterns = [_text(body, field) for field in ("write", "read")]
        self.set_topic_permission(_text(body, "user"), _text(body, "vhost"), _text(body, "exchange"), *patterns)

    def __repr__(self) -> str:
        return f"<Users {len(self._users)} permissions={len(self._permissions)} topics={len(self._topics)}>"


def invalid_credentials(name: str) -> str:
    """RabbitMQ's words in its log; the client is not told which of the two was wrong."""
    return f"user '{name}' - invalid credentials"


def permission_body(user: str, vhost: str, permission: Permission) -> dict[str, Json]:
    return {
        "user": user,
        "vhost": vhost,
        "configure": permission.configure.text,
        "write": permission.write.text,
        "read": permission.read.text,
    }


def topic_permission_body(user: str, vhost: str, exchange: str, topic: TopicPermission) -> dict[str, Json]:
    return {
        "user": user,
        "vhost": vhost,
        "exchange": exchange,
        "write": topic.write.text,
        "read": topic.read.text,
    }


def _text(body: dict[str, Json], field: str, default: str | None = None) -> str:
    value = body.get(field, default)
    if not isinstance(value, str):
        raise UserError(f"{field!r} must be a string in {sorted(body)}")
    return value


def _integers(name: str, limits: dict[str, Json]) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for limit, value in limits.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise UserError(f"user '{name}': {limit} should be a number, actually was {value!r}")
        numbers[limit] = value
    return numbers


def _checked_limits(limits: dict[str, int]) -> dict[str, int]:
    unknown = [name for name in limits if name not in LIMITS]
    if unknown:
        raise UserError(f"no such limit of a user: {', '.join(unknown)}; there are {', '.join(LIMITS)}")
    return dict(limits)

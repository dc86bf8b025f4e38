"""Access: what one user may do in one vhost: configure, write and read by name, and topics by routing key.

Place in the chain: channel.py and command.py ask before they act; a refusal closes the channel with 403. Every question
is looked up anew, so that a change counts from the next method on. A publish asks only when its route is not cached;
whoever changes permissions also changes `VHost.version`, which empties the route caches (broker.py).

Regular expressions are RabbitMQ's: they search the bytes of a name, anchored only if they say so, and an empty one
matches only the empty name. RabbitMQ's are PCRE, ours Python's: what Python cannot compile is refused when it is set.
Not here: setting permissions (users.py), existence checks (vhost.py).
"""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Final

from penstock.amqp.close import ACCESS_REFUSED, CloseChannel

if TYPE_CHECKING:
    from penstock.broker.users import Users

QUEUE: Final = "queue"
EXCHANGE: Final = "exchange"
DEFAULT_EXCHANGE: Final = "amq.default"  # what the default exchange is called in permissions
IMPERSONATOR: Final = "impersonator"  # the tag of users who may publish in another's name

REGEX_CHARS_MAX: Final = 4096  # some hundred names in a row; a longer one costs more to match than to list
RESULTS_MAX: Final = 1024  # names per regex whose result is remembered; then forgotten all at once

POSIX_CLASSES: Final = {  # PCRE has them in brackets, Python does not
    "[:alnum:]": "0-9A-Za-z",
    "[:alpha:]": "A-Za-z",
    "[:digit:]": "0-9",
    "[:lower:]": "a-z",
    "[:punct:]": r"!-/:-@\[-`{-~",
    "[:space:]": r"\s",
    "[:upper:]": "A-Z",
    "[:word:]": r"\w",
    "[:xdigit:]": "0-9A-Fa-f",
}


class BadRegex(ValueError):
    """A regular expression that cannot be used; the text says why."""


class Pattern:
    """One compiled regular expression, with what it said about the last names.

    Python's `re` has no limit on time: a regex like (a+)+$ can be slow on a long name. Names are at most 255 bytes,
    regexes come from administrators only, and every name is asked about once."""

    __slots__ = ("_compiled", "_everything", "_results", "text")

    def __init__(self, text: str, variables: dict[str, str] | None = None) -> None:
        """`variables` stand in the text as {name}; their values are taken literally."""
        self.text = text
        self._compiled = _compile(text, variables or {})
        self._everything = text in (".*", "^.*")
        self._results: dict[str, bool] = {}

    def matches(self, name: str) -> bool:
        if self._everything:
            return True
        found = self._results.get(name)
        if found is None:
            found = self._compiled.search(name.encode("utf-8", "surrogateescape")) is not None
            if len(self._results) >= RESULTS_MAX:
                self._results.clear()
            self._results[name] = found
        return found

    def __repr__(self) -> str:
        return f"<Pattern {self.text!r}>"


def _compile(text: str, variables: dict[str, str]) -> re.Pattern[bytes]:
    if len(text) > REGEX_CHARS_MAX:
        raise BadRegex(f"a regular expression of {len(text)} characters, {REGEX_CHARS_MAX} at most")
    regex = text or "^$"
    for name, chars in POSIX_CLASSES.items():
        regex = regex.replace(name, chars)
    for name, value in variables.items():
        regex = regex.replace("{" + name + "}", re.escape(value))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # "[[" is two brackets here, as it is in PCRE
            return re.compile(regex.encode("utf-8", "surrogateescape"))
    except (re.error, OverflowError, RecursionError) as error:
        raise BadRegex(f"regular expression {text!r} is invalid: {error}") from None


class Permission:
    """What a user may do in a vhost."""

    __slots__ = ("configure", "read", "write")

    def __init__(self, configure: str, write: str, read: str) -> None:
        self.configure = Pattern(configure)
        self.write = Pattern(write)
        self.read = Pattern(read)

    def __repr__(self) -> str:
        return f"<Permission configure={self.configure.text!r} write={self.write.text!r} read={self.read.text!r}>"


class TopicPermission:
    """Which routing keys a user may publish with, and bind by, at one topic exchange."""

    __slots__ = ("read", "write")

    def __init__(self, write: str, read: str, user: str, vhost: str) -> None:
        variables = {"username": user, "vhost": vhost}
        self.write = Pattern(write, variables)
        self.read = Pattern(read, variables)

    def __repr__(self) -> str:
        return f"<TopicPermission write={self.write.text!r} read={self.read.text!r}>"


class Access:
    """One user in one vhost. Each method returns, or raises CloseChannel 403 that names what was refused."""

    __slots__ = ("_users", "user", "vhost")

    def __init__(self, users: Users, user: str, vhost: str) -> None:
        self._users = users
        self.user = user
        self.vhost = vhost

    def configure(self, kind: str, name: str) -> None:
        permission = self._users.permission(self.user, self.vhost)
        if permission is None or not permission.configure.matches(_asked(kind, name)):
            raise self._refused("configure", kind, name)

    def write(self, kind: str, name: str) -> None:
        permission = self._users.permission(self.user, self.vhost)
        if permission is None or not permission.write.matches(_asked(kind, name)):
            raise self._refused("write", kind, name)

    def read(self, kind: str, name: str) -> None:
        permission = self._users.permission(self.user, self.vhost)
        if permission is None or not permission.read.matches(_asked(kind, name)):
            raise self._refused("read", kind, name)

    def write_topic(self, exchange: str, key: str) -> None:
        """For topic exchanges only, after `write`. Without a topic permission every key may be used."""
        topic = self._users.topic_permission(self.user, self.vhost, exchange)
        if topic is not None and not topic.write.matches(key):
            raise self._topic_refused("write", exchange, key)

    def read_topic(self, exchange: str, key: str) -> None:
        """For topic exchanges only, after `read`."""
        topic = self._users.topic_permission(self.user, self.vhost, exchange)
        if topic is not None and not topic.read.matches(key):
            raise self._topic_refused("read", exchange, key)

    def may_impersonate(self) -> bool:
        """Whether the user may set a message's user_id to a name that is not its own."""
        return IMPERSONATOR in self._users.tags(self.user)

    def _refused(self, permission: str, kind: str, name: str) -> CloseChannel:
        return CloseChannel(
            ACCESS_REFUSED,
            f"{permission} access to {kind} '{_asked(kind, name)}' in vhost '{self.vhost}' refused for user "
            f"'{self.user}'",
        )

    def _topic_refused(self, permission: str, exchange: str, key: str) -> CloseChannel:
        return CloseChannel(
            ACCESS_REFUSED,
            f"{permission} access to topic '{key}' in exchange '{exchange}' in vhost '{self.vhost}' refused for user "
            f"'{self.user}'",
        )

    def __repr__(self) -> str:
        return f"<Access {self.user!r} in {self.vhost!r}>"


def _asked(kind: str, name: str) -> str:
    return name or (DEFAULT_EXCHANGE if kind == EXCHANGE else name)

"""Login: who makes an HTTP request. By HTTP basic authentication with the broker's users, or by a session's cookie.

Tags decide what they may do, as in RabbitMQ; a user without one of them is not let in.
Not here: checking the password, which is slow and done as for AMQP logins (net/login.py, passed in by server.py);
which tag a route needs (route.py); how long a session lives (session.py).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Final

ADMINISTRATOR_TAG: Final = "administrator"
POLICYMAKER_TAG: Final = "policymaker"
MONITORING_TAG: Final = "monitoring"
MANAGEMENT_TAG: Final = "management"
TAGS: Final = (ADMINISTRATOR_TAG, POLICYMAKER_TAG, MONITORING_TAG, MANAGEMENT_TAG)

# User, password, the client's address -> the user's tags, or None if refused.
Authenticate = Callable[[str, str, str], Awaitable[tuple[str, ...] | None]]


class Refused(Exception):
    """401 or 403, with a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Caller:
    """Who asks."""

    __slots__ = ("name", "tags")

    def __init__(self, name: str, tags: tuple[str, ...]) -> None:
        self.name = name
        self.tags = tags

    def sees_all(self) -> bool:
        return ADMINISTRATOR_TAG in self.tags or MONITORING_TAG in self.tags

    def administers(self) -> bool:
        return ADMINISTRATOR_TAG in self.tags

    def __repr__(self) -> str:
        return f"<Caller {self.name!r} {','.join(self.tags)}>"


NOBODY: Final = Caller("", ())


def credentials(header: str) -> tuple[str, str]:
    """User and password of an Authorization header."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise Refused(401, "log in with HTTP basic authentication, or at /login")
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, ValueError):
        raise Refused(401, "the Authorization header cannot be read") from None
    if not colon:
        raise Refused(401, "the Authorization header has no password")
    return name, password


async def caller_of(name: str, password: str, host: str, authenticate: Authenticate) -> Caller:
    tags = await authenticate(name, password, host)
    if tags is None:
        raise Refused(401, "user or password is wrong")
    return tagged(name, tags)


def tagged(name: str, tags: tuple[str, ...]) -> Caller:
    if not any(tag in TAGS for tag in tags):
        raise Refused(401, f"user '{name}' has none of the tags {', '.join(TAGS)}")
    return Caller(name, tags)

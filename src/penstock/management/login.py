"""Login: who makes an HTTP request, and whether they may. HTTP basic authentication with the broker's users.

Tags decide, as in RabbitMQ: `administrator` may do everything, `policymaker` also policies and parameters, `management`
and `monitoring` may look. A user without one of them is not let in.
Not here: checking the password, which is slow and done as for AMQP logins (net/login.py, passed in by server.py).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Final

ADMINISTRATOR: Final = "administrator"
POLICYMAKER: Final = "policymaker"
MONITORING: Final = "monitoring"
TAGS: Final = (ADMINISTRATOR, POLICYMAKER, MONITORING, "management")

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

    def require(self, *tags: str) -> None:
        """Any of these; an administrator may everything."""
        if ADMINISTRATOR not in self.tags and not any(tag in self.tags for tag in tags):
            needed = " or ".join((ADMINISTRATOR, *tags))
            raise Refused(403, f"user '{self.name}' needs the tag {needed}")


async def caller_of(header: str, host: str, authenticate: Authenticate) -> Caller:
    """By the request's Authorization header."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic":
        raise Refused(401, "log in with HTTP basic authentication")
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode("utf-8").partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise Refused(401, "the Authorization header cannot be read") from None
    if not colon:
        raise Refused(401, "the Authorization header has no password")
    tags = await authenticate(name, password, host)
    if tags is None:
        raise Refused(401, "user or password is wrong")
    if not any(tag in TAGS for tag in tags):
        raise Refused(401, f"user '{name}' has none of the tags {', '.join(TAGS)}")
    return Caller(name, tags)

"""Route: one row of the table of routes, and what its handler gets. The table feeds router, authorisation, OpenAPI,
docs and the test that walks all routes with all tags, so that none of them can say something else.

Place: routes/*.py and the other parts with paths of their own have a ROUTES each; api.py joins them.
Not here: matching (router.py), who it is (login.py), what the words of a schema are (schema.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Admin, AdminError
from penstock.management.login import (
    ADMINISTRATOR_TAG,
    MANAGEMENT_TAG,
    MONITORING_TAG,
    POLICYMAKER_TAG,
    Authenticate,
    Caller,
    Refused,
)
from penstock.management.schema import Schema
from penstock.management.session import Sessions

if TYPE_CHECKING:
    from penstock.management.flowapi import FlowWatch
    from penstock.management.sampling import Sampling
    from penstock.management.tables import Tables

BODY_BYTES_MAX: Final = 1_048_576  # decoding it takes the event loop some 5 ms
LARGE_BODY_BYTES_MAX: Final = 16_777_216  # a definitions file of some 50 000 queues, or a message to publish


class BadRequest(Exception):
    """400 with a reason; or another status."""

    def __init__(self, reason: str, error: str = "bad_request", status: int = 400) -> None:
        super().__init__(reason)
        self.error = error
        self.status = status


@dataclass(frozen=True, slots=True)
class Needs:
    """Who may call a route: users with one of these tags. None at all: everybody, without a login."""

    name: str
    tags: tuple[str, ...]

    def check(self, caller: Caller) -> None:
        if self.tags and not any(tag in caller.tags for tag in self.tags):
            raise Refused(403, f"user '{caller.name}' needs the tag {' or '.join(self.tags)}")


PUBLIC: Final = Needs("public", ())
LOGIN: Final = Needs("any", (ADMINISTRATOR_TAG, MONITORING_TAG, POLICYMAKER_TAG, MANAGEMENT_TAG))
# Beside the tag, the user's permissions in the vhost count, as for AMQP. Who only monitors changes nothing.
CHANGE: Final = Needs("management", (ADMINISTRATOR_TAG, POLICYMAKER_TAG, MANAGEMENT_TAG))
POLICYMAKER: Final = Needs("policymaker", (ADMINISTRATOR_TAG, POLICYMAKER_TAG))
MONITORING: Final = Needs("monitoring", (ADMINISTRATOR_TAG, MONITORING_TAG))
ADMINISTRATOR: Final = Needs("administrator", (ADMINISTRATOR_TAG,))
ALL_NEEDS: Final = (PUBLIC, LOGIN, CHANGE, POLICYMAKER, MONITORING, ADMINISTRATOR)


@dataclass(frozen=True, slots=True)
class Query:
    """A parameter behind the question mark, or with `header` in the request's head."""

    name: str
    schema: Schema
    summary: str = ""
    header: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """`{name}` in a path is one part of it, percent-decoded; `{path:path}` at its end is the rest."""

    method: str
    path: str
    handler: Handler
    needs: Needs
    summary: str
    query: tuple[Query, ...] = ()
    body: Schema | None = None  # what it takes as JSON
    body_needed: bool = True
    answer: Schema | None = None  # what it gives as JSON with 200; None: see `statuses` and `media`
    statuses: tuple[int, ...] = ()  # beside 200 with an answer: 201, 204, 303, 503 …
    media: str = "application/json"
    body_max: int = BODY_BYTES_MAX
    page: bool = False  # for people: without a login they are sent to /login

    def __repr__(self) -> str:
        return f"<Route {self.method} {self.path}>"


class Attempts(Protocol):
    """How many logins succeeded and failed, by protocol."""

    def counts(self) -> dict[str, tuple[int, int]]: ...
    def reset(self) -> None: ...


class Api:
    """What handlers need."""

    __slots__ = (
        "admin",
        "attempts",
        "authenticate",
        "certificates",
        "description",
        "flow",
        "routes",
        "sampling",
        "sessions",
        "tables",
    )

    def __init__(self, admin: Admin, authenticate: Authenticate, sessions: Sessions) -> None:
        self.admin = admin
        self.authenticate = authenticate
        self.sessions = sessions
        self.routes: tuple[Route, ...] = ()
        self.description = b""  # of the routes, once somebody has asked for it
        self.sampling: Sampling | None = None
        self.flow: FlowWatch | None = None
        self.tables: Tables | None = None
        self.attempts: Attempts | None = None
        self.certificates: Callable[[], list[tuple[str, float]]] = list  # file and when it ends, seconds since 1970

    async def committed(self) -> None:
        """Until what was changed is on disk."""
        done = asyncio.get_running_loop().create_future()
        self.admin.committed(lambda: None if done.done() else done.set_result(None))
        await done

    async def changed(self, is_new: bool = False) -> Response:
        await self.committed()
        return Response(status_code=201 if is_new else 204)

    # Sight: who neither administers nor monitors sees the vhosts where they have permissions, and their own
    # connections.

    def sight(self, caller: Caller) -> frozenset[str] | None:
        """The vhosts that the caller sees; None: all of them."""
        if caller.sees_all():
            return None
        return frozenset(str(one["vhost"]) for one in self.admin.permissions(user=caller.name))

    def check_sight(self, caller: Caller, vhost: str) -> None:
        """The same answer whether the vhost is there or not: it is none of their business."""
        sight = self.sight(caller)
        if sight is not None and vhost not in sight:
            raise Refused(403, f"user '{caller.name}' has no permissions in vhost '{vhost}'")


Handler = Callable[[Api, Request, Caller], Awaitable[Response]]


def missing(what: str) -> AdminError:
    return AdminError(f"there is no {what}", missing=True)

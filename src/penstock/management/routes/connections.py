"""Connections, channels and consumers: look at them, close a connection."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Json
from penstock.management.answer import json_answer
from penstock.management.body import part, vhost_if_given
from penstock.management.listing import COLUMNS, PAGING, columns_of, listed, of_kind, pick, rated
from penstock.management.login import Caller, Refused
from penstock.management.route import CHANGE, LOGIN, Api, Handler, Query, Route
from penstock.management.schema import LISTED, OBJECT, STRING

REASON: Final = "closed over the management API"
REASON_LENGTH_MAX: Final = 120  # it goes into a reply text of 255 bytes


async def list_connections(api: Api, request: Request, caller: Caller) -> Response:
    return await listed(api, request, "connections", of_kind(api, caller, "connections", vhost_if_given(request)))


async def get_connection(api: Api, request: Request, caller: Caller) -> Response:
    view = _own(caller, api.admin.connection(part(request, "name")))
    return json_answer(pick(rated(api, "connections", view), columns_of(request)))


async def delete_connection(api: Api, request: Request, caller: Caller) -> Response:
    """Administrators close any, others their own."""
    name = part(request, "name")
    _changes(caller, str(api.admin.connection(name)["user"]))
    api.admin.close_connection(name, _reason(request))
    return Response(status_code=204)


async def list_connections_of_user(api: Api, request: Request, caller: Caller) -> Response:
    user = part(request, "user")
    if not caller.sees_all() and user != caller.name:
        raise Refused(403, f"user '{caller.name}' may look at their own connections only")
    items = of_kind(api, caller, "connections")
    return await listed(api, request, "connections", items, lambda at: items.value(at, "user") == user)


async def delete_connections_of_user(api: Api, request: Request, caller: Caller) -> Response:
    user = part(request, "user")
    _changes(caller, user)
    api.admin.close_connections_of(user, _reason(request))
    return Response(status_code=204)


def _own(caller: Caller, view: dict[str, Json]) -> dict[str, Json]:
    if not caller.sees_all() and view["user"] != caller.name:
        raise Refused(403, f"user '{caller.name}' may look at their own connections only")
    return view


def _changes(caller: Caller, user: str) -> None:
    if not caller.administers() and user != caller.name:
        raise Refused(403, f"user '{caller.name}' may close their own connections only")


def _reason(request: Request) -> str:
    given = request.headers.get("x-reason", "").strip()
    return given[:REASON_LENGTH_MAX] or REASON


async def list_channels(api: Api, request: Request, caller: Caller) -> Response:
    return await listed(api, request, "channels", of_kind(api, caller, "channels", vhost_if_given(request)))


async def list_channels_of_connection(api: Api, request: Request, caller: Caller) -> Response:
    name = str(_own(caller, api.admin.connection(part(request, "name")))["name"])
    items = of_kind(api, caller, "channels")
    return await listed(api, request, "channels", items, lambda at: items.name(at).rpartition(" (")[0] == name)


async def get_channel(api: Api, request: Request, caller: Caller) -> Response:
    view = _own(caller, api.admin.channel(part(request, "name")))
    return json_answer(pick(rated(api, "channels", view), columns_of(request)))


async def list_consumers(api: Api, request: Request, caller: Caller) -> Response:
    return await listed(api, request, "consumers", of_kind(api, caller, "consumers", vhost_if_given(request)))


def _list(path: str, handler: Handler, summary: str) -> Route:
    return Route("GET", path, handler, LOGIN, summary, query=PAGING, answer=LISTED)


ONE: Final = "/api/connections/{name}"
OF_USER: Final = "/api/connections/username/{user}"
WHY: Final = Query("X-Reason", STRING, "what the client is told", header=True)
ROUTES: Final = (
    _list("/api/connections", list_connections, "All connections"),
    _list("/api/vhosts/{vhost}/connections", list_connections, "The connections to a vhost"),
    Route("GET", ONE, get_connection, LOGIN, "One connection", query=(COLUMNS,), answer=OBJECT),
    Route(
        "DELETE",
        ONE,
        delete_connection,
        CHANGE,
        "Close it; who is no administrator: their own",
        query=(WHY,),
        statuses=(204,),
    ),
    _list(ONE + "/channels", list_channels_of_connection, "The channels of a connection"),
    _list(OF_USER, list_connections_of_user, "The connections of a user"),
    Route(
        "DELETE",
        OF_USER,
        delete_connections_of_user,
        CHANGE,
        "Close them; who is no administrator: their own",
        query=(WHY,),
        statuses=(204,),
    ),
    _list("/api/channels", list_channels, "All channels"),
    _list("/api/vhosts/{vhost}/channels", list_channels, "The channels in a vhost"),
    Route("GET", "/api/channels/{name}", get_channel, LOGIN, "One channel", query=(COLUMNS,), answer=OBJECT),
    _list("/api/consumers", list_consumers, "All consumers"),
    _list("/api/consumers/{vhost}", list_consumers, "The consumers in a vhost"),
)

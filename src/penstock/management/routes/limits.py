"""Limits: how many connections, channels and queues a vhost or a user may have."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.management.body import number, part, read_body, vhost_if_given
from penstock.management.listing import PAGING, Plain, listed, of_vhosts
from penstock.management.login import Caller
from penstock.management.route import ADMINISTRATOR, LOGIN, Api, Route
from penstock.management.routes.vhosts import check_vhost
from penstock.management.schema import INTEGER, LISTED, obj


async def list_vhost_limits(api: Api, request: Request, caller: Caller) -> Response:
    vhost = vhost_if_given(request)
    if vhost is not None:
        check_vhost(api, vhost)
    found = [one for one in api.admin.vhost_limits() if vhost in (None, one["vhost"])]
    return await listed(api, request, "limits", of_vhosts(api, caller, found))


async def put_vhost_limit(api: Api, request: Request, caller: Caller) -> Response:
    value = number(await read_body(request, needed=True), "value")
    api.admin.set_vhost_limit(part(request, "vhost"), part(request, "name"), value)
    return await api.changed()


async def delete_vhost_limit(api: Api, request: Request, caller: Caller) -> Response:
    api.admin.set_vhost_limit(part(request, "vhost"), part(request, "name"), None)
    return await api.changed()


async def list_user_limits(api: Api, request: Request, caller: Caller) -> Response:
    """Who does not see all sees their own."""
    user = part(request, "user") if "user" in request.path_params else None
    if user is not None and caller.sees_all():
        api.admin.user(user)  # that it is there
    found = [
        one
        for one in api.admin.user_limits()
        if user in (None, one["user"]) and (caller.sees_all() or one["user"] == caller.name)
    ]
    return await listed(api, request, "users", Plain(found))


async def put_user_limit(api: Api, request: Request, caller: Caller) -> Response:
    value = number(await read_body(request, needed=True), "value")
    api.admin.set_user_limit(part(request, "user"), part(request, "name"), value)
    return await api.changed()


async def delete_user_limit(api: Api, request: Request, caller: Caller) -> Response:
    api.admin.set_user_limit(part(request, "user"), part(request, "name"), None)
    return await api.changed()


VALUE: Final = obj({"value": INTEGER})
VHOST: Final = "/api/vhost-limits/{vhost}/{name}"
USER: Final = "/api/user-limits/{user}/{name}"
ROUTES: Final = (
    Route("GET", "/api/vhost-limits", list_vhost_limits, LOGIN, "Limits of vhosts", query=PAGING, answer=LISTED),
    Route(
        "GET", "/api/vhost-limits/{vhost}", list_vhost_limits, LOGIN, "Limits of a vhost", query=PAGING, answer=LISTED
    ),
    Route(
        "PUT",
        VHOST,
        put_vhost_limit,
        ADMINISTRATOR,
        "Set max-connections or max-queues; below 0 is none",
        body=VALUE,
        statuses=(204,),
    ),
    Route("DELETE", VHOST, delete_vhost_limit, ADMINISTRATOR, "Take it away", statuses=(204,)),
    Route("GET", "/api/user-limits", list_user_limits, LOGIN, "Limits of users", query=PAGING, answer=LISTED),
    Route("GET", "/api/user-limits/{user}", list_user_limits, LOGIN, "Limits of a user", query=PAGING, answer=LISTED),
    Route(
        "PUT",
        USER,
        put_user_limit,
        ADMINISTRATOR,
        "Set max-connections or max-channels; below 0 is none",
        body=VALUE,
        statuses=(204,),
    ),
    Route("DELETE", USER, delete_user_limit, ADMINISTRATOR, "Take it away", statuses=(204,)),
)

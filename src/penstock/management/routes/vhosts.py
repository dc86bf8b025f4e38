"""Vhosts, and who has permissions in them."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Admin, AdminError, Json
from penstock.management.answer import json_answer
from penstock.management.body import flag, part, read_body, text, words
from penstock.management.listing import COLUMNS, PAGING, Plain, columns_of, dig, listed, pick, rated
from penstock.management.login import Caller
from penstock.management.route import ADMINISTRATOR, LOGIN, Api, BadRequest, Route, missing
from penstock.management.routes.overview import node_name
from penstock.management.schema import FLAG, LISTED, OBJECT, STRING, array, either, obj

ALL: Final = ".*"


class _Vhosts:
    """All of them by name: a view counts what is in a vhost, and is made only of those that are shown."""

    __slots__ = ("_admin", "_names")

    def __init__(self, admin: Admin, names: list[str]) -> None:
        self._admin = admin
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def name(self, at: int) -> str:
        return self._names[at]

    def value(self, at: int, column: str) -> Json:
        if column == "name":
            return self._names[at]
        return dig(self.view(at) or {}, column)

    def view(self, at: int) -> dict[str, Json] | None:
        try:
            return self._admin.vhost(self._names[at])
        except AdminError:
            return None

    def brief(self, columns: tuple[str, ...]) -> None:
        """They are few."""


async def list_vhosts(api: Api, request: Request, caller: Caller) -> Response:
    sight = api.sight(caller)
    names = [name for name in api.admin.vhost_names() if sight is None or name in sight]
    return await listed(api, request, "vhosts", _Vhosts(api.admin, names))


async def get_vhost(api: Api, request: Request, caller: Caller) -> Response:
    view = rated(api, "vhosts", api.admin.vhost(part(request, "vhost")))
    return json_answer(pick(view, columns_of(request)))


def check_vhost(api: Api, name: str) -> str:
    if name not in api.admin.vhost_names():
        raise missing(f"vhost '{name}'")
    return name


async def put_vhost(api: Api, request: Request, caller: Caller) -> Response:
    """Who makes it has all permissions in it, as in RabbitMQ."""
    body = await read_body(request)
    text(body, "description", "")
    flag(body, "tracing")
    metadata = dict(body)
    if "tags" in body:
        tags: list[Json] = [*words(body["tags"], "tags")]
        metadata["tags"] = tags
    name = part(request, "vhost")
    is_new = api.admin.put_vhost(name, metadata or None)
    if is_new:
        api.admin.set_permissions(caller.name, name, ALL, ALL, ALL)
    return await api.changed(is_new)


async def delete_vhost(api: Api, request: Request, caller: Caller) -> Response:
    api.admin.delete_vhost(part(request, "vhost"))
    return await api.changed()


async def start_vhost(api: Api, request: Request, caller: Caller) -> Response:
    """A vhost that is there runs."""
    check_vhost(api, part(request, "vhost"))
    if part(request, "node") != node_name(api):
        raise BadRequest(f"there is no node '{part(request, 'node')}'")
    return Response(status_code=204)


async def vhost_permissions(api: Api, request: Request, caller: Caller) -> Response:
    name = check_vhost(api, part(request, "vhost"))
    return await listed(api, request, "permissions", Plain(api.admin.permissions(name)))


async def vhost_topic_permissions(api: Api, request: Request, caller: Caller) -> Response:
    name = check_vhost(api, part(request, "vhost"))
    return await listed(api, request, "permissions", Plain(api.admin.topic_permissions(name)))


ONE: Final = "/api/vhosts/{vhost}"
ROUTES: Final = (
    Route("GET", "/api/vhosts", list_vhosts, LOGIN, "The vhosts that I see", query=PAGING, answer=LISTED),
    Route("GET", ONE, get_vhost, LOGIN, "One vhost", query=(COLUMNS,), answer=OBJECT),
    Route(
        "PUT",
        ONE,
        put_vhost,
        ADMINISTRATOR,
        "Make it, with all permissions for me, or change it",
        body=obj({}, {"description": STRING, "tags": either(STRING, array(STRING)), "tracing": FLAG}),
        body_needed=False,
        statuses=(201, 204),
    ),
    Route(
        "DELETE", ONE, delete_vhost, ADMINISTRATOR, "Delete it with all that is in it, connections too", statuses=(204,)
    ),
    Route("POST", ONE + "/start/{node}", start_vhost, ADMINISTRATOR, "Nothing: a vhost always runs", statuses=(204,)),
    Route(
        "GET", ONE + "/permissions", vhost_permissions, ADMINISTRATOR, "Permissions in it", query=PAGING, answer=LISTED
    ),
    Route(
        "GET",
        ONE + "/topic-permissions",
        vhost_topic_permissions,
        ADMINISTRATOR,
        "Topic permissions in it",
        query=PAGING,
        answer=LISTED,
    ),
)

"""Permissions of users in vhosts, and on the keys of topic exchanges."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.management.answer import json_answer
from penstock.management.body import part, read_body, required, text
from penstock.management.listing import COLUMNS, PAGING, Plain, columns_of, listed, pick
from penstock.management.login import Caller
from penstock.management.route import ADMINISTRATOR, Api, Route, missing
from penstock.management.schema import LIST, LISTED, OBJECT, STRING, obj


async def list_permissions(api: Api, request: Request, caller: Caller) -> Response:
    return await listed(api, request, "permissions", Plain(api.admin.permissions()))


async def get_permissions(api: Api, request: Request, caller: Caller) -> Response:
    vhost, user = part(request, "vhost"), part(request, "user")
    found = api.admin.permissions(vhost, user)
    if not found:
        raise missing(f"permission of user '{user}' in vhost '{vhost}'")
    return json_answer(pick(found[0], columns_of(request)))


async def put_permissions(api: Api, request: Request, caller: Caller) -> Response:
    body = await read_body(request, needed=True)
    required(body, "configure", "write", "read")
    patterns = [text(body, name) for name in ("configure", "write", "read")]
    return await api.changed(api.admin.set_permissions(part(request, "user"), part(request, "vhost"), *patterns))


async def delete_permissions(api: Api, request: Request, caller: Caller) -> Response:
    api.admin.clear_permissions(part(request, "user"), part(request, "vhost"))
    return await api.changed()


async def list_topic_permissions(api: Api, request: Request, caller: Caller) -> Response:
    return await listed(api, request, "permissions", Plain(api.admin.topic_permissions()))


async def get_topic_permissions(api: Api, request: Request, caller: Caller) -> Response:
    vhost, user = part(request, "vhost"), part(request, "user")
    found = api.admin.topic_permissions(vhost, user)
    if not found:
        raise missing(f"topic permission of user '{user}' in vhost '{vhost}'")
    return json_answer(found)


async def put_topic_permissions(api: Api, request: Request, caller: Caller) -> Response:
    body = await read_body(request, needed=True)
    required(body, "exchange", "write", "read")
    exchange, write, read = (text(body, name) for name in ("exchange", "write", "read"))
    is_new = api.admin.set_topic_permissions(part(request, "user"), part(request, "vhost"), exchange, write, read)
    return await api.changed(is_new)


async def delete_topic_permissions(api: Api, request: Request, caller: Caller) -> Response:
    api.admin.clear_topic_permissions(part(request, "user"), part(request, "vhost"))
    return await api.changed()


A: Final = ADMINISTRATOR
ONE: Final = "/api/permissions/{vhost}/{user}"
TOPIC: Final = "/api/topic-permissions/{vhost}/{user}"
ROUTES: Final = (
    Route("GET", "/api/permissions", list_permissions, A, "All permissions", query=PAGING, answer=LISTED),
    Route("GET", ONE, get_permissions, A, "A user's permissions in a vhost", query=(COLUMNS,), answer=OBJECT),
    Route(
        "PUT",
        ONE,
        put_permissions,
        A,
        "Set them: regular expressions over names",
        body=obj({"configure": STRING, "write": STRING, "read": STRING}),
        statuses=(201, 204),
    ),
    Route("DELETE", ONE, delete_permissions, A, "Take them away", statuses=(204,)),
    Route(
        "GET",
        "/api/topic-permissions",
        list_topic_permissions,
        A,
        "All topic permissions",
        query=PAGING,
        answer=LISTED,
    ),
    Route("GET", TOPIC, get_topic_permissions, A, "A user's topic permissions in a vhost", answer=LIST),
    Route(
        "PUT",
        TOPIC,
        put_topic_permissions,
        A,
        "Set them for one exchange: regular expressions over keys",
        body=obj({"exchange": STRING, "write": STRING, "read": STRING}),
        statuses=(201, 204),
    ),
    Route("DELETE", TOPIC, delete_topic_permissions, A, "Take all of them away", statuses=(204,)),
)

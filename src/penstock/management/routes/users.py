"""Users, and how much of the broker each may use."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Secret, new_secret
from penstock.management.answer import json_answer
from penstock.management.body import part, read_body, required, text, words
from penstock.management.listing import COLUMNS, PAGING, Plain, columns_of, listed, pick
from penstock.management.login import Caller
from penstock.management.route import ADMINISTRATOR, Api, BadRequest, Route
from penstock.management.schema import LISTED, NAME, OBJECT, STRING, Schema, array, either, obj

ALGORITHM: Final = "rabbit_password_hashing_sha256"  # of a password_hash that does not say


async def list_users(api: Api, request: Request, caller: Caller) -> Response:
    return await listed(api, request, "users", Plain(api.admin.users()))


async def list_users_without_permissions(api: Api, request: Request, caller: Caller) -> Response:
    permitted = {one["user"] for one in api.admin.permissions()}
    found = [user for user in api.admin.users() if user["name"] not in permitted]
    return await listed(api, request, "users", Plain(found))


async def get_user(api: Api, request: Request, caller: Caller) -> Response:
    return json_answer(pick(api.admin.user(part(request, "user")), columns_of(request)))


async def put_user(api: Api, request: Request, caller: Caller) -> Response:
    body = await read_body(request, needed=True)
    secret: Secret | None = None
    algorithm, hashed = text(body, "hashing_algorithm", ALGORITHM), text(body, "password_hash", "")
    required(body, "tags")
    tags = words(body["tags"], "tags")
    if "password" in body:
        secret = await asyncio.to_thread(new_secret, text(body, "password"))
    elif "password_hash" in body:
        if hashed:
            secret = Secret(algorithm, hashed)
    else:
        raise BadRequest("'password' or 'password_hash' is missing; an empty password_hash is no password at all")
    return await api.changed(api.admin.put_user(part(request, "user"), secret, tags))


async def delete_user(api: Api, request: Request, caller: Caller) -> Response:
    api.admin.delete_user(part(request, "user"))
    return await api.changed()


async def delete_users(api: Api, request: Request, caller: Caller) -> Response:
    """All of them or none."""
    body = await read_body(request, needed=True)
    required(body, "users")
    names = body["users"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise BadRequest("'users' is not a list of strings")
    known = {user["name"] for user in api.admin.users()}
    unknown = [str(name) for name in names if name not in known]
    if unknown:
        raise BadRequest(f"there is no user '{unknown[0]}'")
    for name in dict.fromkeys(names):
        api.admin.delete_user(str(name))
    return await api.changed()


async def user_permissions(api: Api, request: Request, caller: Caller) -> Response:
    name = str(api.admin.user(part(request, "user"))["name"])
    return await listed(api, request, "permissions", Plain(api.admin.permissions(user=name)))


async def user_topic_permissions(api: Api, request: Request, caller: Caller) -> Response:
    name = str(api.admin.user(part(request, "user"))["name"])
    return await listed(api, request, "permissions", Plain(api.admin.topic_permissions(user=name)))


USER: Final[Schema] = {
    "type": "object",
    "properties": {
        "password": STRING,
        "password_hash": STRING,
        "hashing_algorithm": STRING,
        "tags": either(STRING, array(STRING)),
    },
    "required": ["tags"],
    "anyOf": [{"required": ["password"]}, {"required": ["password_hash"]}],
}
A: Final = ADMINISTRATOR
ROUTES: Final = (
    Route("GET", "/api/users", list_users, A, "All users", query=PAGING, answer=LISTED),
    Route(
        "GET",
        "/api/users/without-permissions",
        list_users_without_permissions,
        A,
        "Users without permissions in any vhost",
        query=PAGING,
        answer=LISTED,
    ),
    Route(
        "POST",
        "/api/users/bulk-delete",
        delete_users,
        A,
        "Delete several users, all or none",
        body=obj({"users": array(NAME)}),
        statuses=(204,),
    ),
    Route("GET", "/api/users/{user}", get_user, A, "One user", query=(COLUMNS,), answer=OBJECT),
    Route(
        "PUT",
        "/api/users/{user}",
        put_user,
        A,
        "Make or change a user; an empty password_hash is no password at all",
        body=USER,
        statuses=(201, 204),
    ),
    Route("DELETE", "/api/users/{user}", delete_user, A, "Delete a user; its connections are closed", statuses=(204,)),
    Route(
        "GET", "/api/users/{user}/permissions", user_permissions, A, "A user's permissions", query=PAGING, answer=LISTED
    ),
    Route(
        "GET",
        "/api/users/{user}/topic-permissions",
        user_topic_permissions,
        A,
        "A user's topic permissions",
        query=PAGING,
        answer=LISTED,
    ),
)

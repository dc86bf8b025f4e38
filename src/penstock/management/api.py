"""API: HTTP requests to admin verbs. Paths, methods, bodies and status codes are those of RabbitMQ's management plugin.

Place: server.py runs it beside the broker, in the same event loop; a change is answered when it is on disk.
A request that is wrong gets 4xx and {"error", "reason"}, as RabbitMQ has it.
Not here: verbs (broker/admin.py), authentication (login.py), starting and stopping (server.py, listen.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import unquote

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.broker.admin import Admin, AdminError, Json, Secret, hash_passwords, new_secret
from penstock.management.login import MONITORING, POLICYMAKER, Authenticate, Caller, Refused, caller_of

BODY_BYTES_MAX: Final = 16_777_216  # a definitions file of some 50 000 queues
ALGORITHM: Final = "rabbit_password_hashing_sha256"  # of a password_hash that does not say

Handler = Callable[["Api", Request, Caller], Awaitable[Response]]


class BadRequest(Exception):
    """400, with a reason."""


class Api:
    """What the handlers need."""

    __slots__ = ("admin", "authenticate")

    def __init__(self, admin: Admin, authenticate: Authenticate) -> None:
        self.admin = admin
        self.authenticate = authenticate

    async def committed(self) -> None:
        """Until what was changed is on disk."""
        done = asyncio.get_running_loop().create_future()
        self.admin.committed(lambda: None if done.done() else done.set_result(None))
        await done

    async def changed(self, is_new: bool = False) -> Response:
        await self.committed()
        return Response(status_code=201 if is_new else 204)


def application(admin: Admin, authenticate: Authenticate) -> ASGIApp:
    api = Api(admin, authenticate)

    def route(path: str, method: str, handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            return await _answer(api, request, handler)

        return Route(path, endpoint, methods=[method])

    routes = Starlette(routes=[Route("/", root), *(route(*one) for one in ROUTES)])

    async def undecoded(scope: Scope, receive: Receive, send: Send) -> None:
        """A vhost's name may have slashes, as %2F: paths are matched as they came, and decoded part by part."""
        if scope["type"] == "http":
            scope = {**scope, "path": scope["raw_path"].decode("ascii", "replace")}
        await routes(scope, receive, send)

    return undecoded


async def _answer(api: Api, request: Request, handler: Handler) -> Response:
    host = request.client.host if request.client is not None else ""
    try:
        caller = await caller_of(request.headers.get("authorization", ""), host, api.authenticate)
        return await handler(api, request, caller)
    except Refused as refused:
        headers = {"WWW-Authenticate": 'Basic realm="Penstock"'} if refused.status == 401 else None
        return _json({"error": "not_authorised", "reason": str(refused)}, refused.status, headers)
    except BadRequest as error:
        return _json({"error": "bad_request", "reason": str(error)}, 400)
    except AdminError as error:
        if error.missing:
            return _json({"error": "Object Not Found", "reason": str(error)}, 404)
        return _json({"error": "bad_request", "reason": str(error)}, 400)


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


async def _body(request: Request) -> dict[str, Json]:
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise BadRequest(f"the body is larger than {BODY_BYTES_MAX} bytes")
        parts.append(part)
    try:
        value = msgspec.json.decode(b"".join(parts) or b"{}")
    except msgspec.DecodeError as error:
        raise BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise BadRequest("the body is not a JSON object")
    return value


def _text(body: dict[str, Json], name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise BadRequest(f"'{name}' is not a string" if name in body else f"'{name}' is missing")
    return value


def _number(body: dict[str, Json], name: str, default: int | None = None) -> int:
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadRequest(f"'{name}' is not an integer" if name in body else f"'{name}' is missing")
    return value


def _path(request: Request, name: str) -> str:
    return unquote(str(request.path_params[name]))


def _vhost_if_given(request: Request) -> str | None:
    return _path(request, "vhost") if "vhost" in request.path_params else None


def _one(found: list[dict[str, Json]], what: str) -> Response:
    if not found:
        raise AdminError(f"there is no {what}", missing=True)
    return _json(found[0])


def _many(found: list[dict[str, Json]]) -> Response:
    return _json(found)


async def root(request: Request) -> Response:
    return Response("Penstock. The HTTP API is below /api/; there is no page yet.\n", media_type="text/plain")


async def whoami(api: Api, request: Request, caller: Caller) -> Response:
    return _json({"name": caller.name, "tags": list(caller.tags)})


# Settings, for administrators.


async def list_settings(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    return _many(api.admin.settings())


async def get_setting(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    name = _path(request, "name")
    return _one([body for body in api.admin.settings() if body["name"] == name], f"setting '{name}'")


async def put_setting(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    value = (await _body(request)).get("value")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRequest("'value' is neither a string nor a number")
    api.admin.change_setting(_path(request, "name"), str(value))
    return Response(status_code=204)


async def list_alarms(api: Api, request: Request, caller: Caller) -> Response:
    return _many(api.admin.alarms())


# What is there, as it is now.


async def list_queues(api: Api, request: Request, caller: Caller) -> Response:
    caller.require(MONITORING)
    return _many(api.admin.queues(_vhost_if_given(request)))


async def get_queue(api: Api, request: Request, caller: Caller) -> Response:
    caller.require(MONITORING)
    vhost, name = _path(request, "vhost"), _path(request, "name")
    found = [body for body in api.admin.queues(vhost) if body["name"] == name]
    return _one(found, f"queue '{name}' in vhost '{vhost}'")


async def list_connections(api: Api, request: Request, caller: Caller) -> Response:
    caller.require(MONITORING)
    return _many(api.admin.connections())


async def list_channels(api: Api, request: Request, caller: Caller) -> Response:
    caller.require(MONITORING)
    return _many(api.admin.channels())


# Vhosts.


async def list_vhosts(api: Api, request: Request, caller: Caller) -> Response:
    return _many(api.admin.vhosts())


async def get_vhost(api: Api, request: Request, caller: Caller) -> Response:
    name = _path(request, "vhost")
    return _one([body for body in api.admin.vhosts() if body["name"] == name], f"vhost '{name}'")


async def put_vhost(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    body = await _body(request)
    return await api.changed(api.admin.put_vhost(_path(request, "vhost"), body or None))


async def delete_vhost(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    api.admin.delete_vhost(_path(request, "vhost"))
    return await api.changed()


# Users.


async def list_users(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    return _many(api.admin.users())


async def get_user(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    name = _path(request, "user")
    return _one([body for body in api.admin.users() if body["name"] == name], f"user '{name}'")


async def put_user(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    body = await _body(request)
    secret: Secret | None = None
    if "password" in body:
        secret = await asyncio.to_thread(new_secret, _text(body, "password"))
    elif "password_hash" in body:
        if _text(body, "password_hash"):
            secret = Secret(_text(body, "hashing_algorithm", ALGORITHM), _text(body, "password_hash"))
    else:
        raise BadRequest("'password' or 'password_hash' is missing; an empty password_hash is no password at all")
    tags = body.get("tags", [])
    if isinstance(tags, str):
        tags = [tag.strip() for tag in tags.split(",") if tag.strip()]
    if not isinstance(tags, list):
        raise BadRequest("'tags' is neither a list nor a string")
    return await api.changed(api.admin.put_user(_path(request, "user"), secret, [str(tag) for tag in tags]))


async def delete_user(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    api.admin.delete_user(_path(request, "user"))
    return await api.changed()


# Permissions.


async def list_permissions(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    return _many(api.admin.permissions())


async def get_permissions(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    vhost, user = _path(request, "vhost"), _path(request, "user")
    return _one(api.admin.permissions(vhost, user), f"permission of user '{user}' in vhost '{vhost}'")


async def put_permissions(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    body = await _body(request)
    patterns = [_text(body, name) for name in ("configure", "write", "read")]
    is_new = api.admin.set_permissions(_path(request, "user"), _path(request, "vhost"), *patterns)
    return await api.changed(is_new)


async def delete_permissions(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    api.admin.clear_permissions(_path(request, "user"), _path(request, "vhost"))
    return await api.changed()


async def list_topic_permissions(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    return _many(api.admin.topic_permissions())


async def get_topic_permissions(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    return _many(api.admin.topic_permissions(_path(request, "vhost"), _path(request, "user")))


async def put_topic_permissions(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    body = await _body(request)
    exchange, write, read = (_text(body, name) for name in ("exchange", "write", "read"))
    is_new = api.admin.set_topic_permissions(_path(request, "user"), _path(request, "vhost"), exchange, write, read)
    return await api.changed(is_new)


async def delete_topic_permissions(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    api.admin.clear_topic_permissions(_path(request, "user"), _path(request, "vhost"))
    return await api.changed()


# Policies; operator policies are for administrators.


def _is_operator(request: Request) -> bool:
    return request.url.path.startswith("/api/operator-policies")


async def list_policies(api: Api, request: Request, caller: Caller) -> Response:
    caller.require(POLICYMAKER)
    vhost = _vhost_if_given(request)
    return _many(api.admin.policies(vhost, _is_operator(request)))


async def get_policy(api: Api, request: Request, caller: Caller) -> Response:
    caller.require(POLICYMAKER)
    vhost, name = _path(request, "vhost"), _path(request, "name")
    found = [body for body in api.admin.policies(vhost, _is_operator(request)) if body["name"] == name]
    return _one(found, f"policy '{name}' in vhost '{vhost}'")


async def put_policy(api: Api, request: Request, caller: Caller) -> Response:
    operator = _is_operator(request)
    caller.require(*(() if operator else (POLICYMAKER,)))
    body = await _body(request)
    definition = body.get("definition")
    if not isinstance(definition, dict):
        raise BadRequest("'definition' is not an object")
    is_new = api.admin.set_policy(
        _path(request, "vhost"),
        _path(request, "name"),
        _text(body, "pattern"),
        definition,
        _text(body, "apply-to", "queues" if operator else "all"),
        _number(body, "priority", 0),
        operator,
    )
    return await api.changed(is_new)


async def delete_policy(api: Api, request: Request, caller: Caller) -> Response:
    operator = _is_operator(request)
    caller.require(*(() if operator else (POLICYMAKER,)))
    api.admin.delete_policy(_path(request, "vhost"), _path(request, "name"), operator)
    return await api.changed()


# Limits.


async def list_vhost_limits(api: Api, request: Request, caller: Caller) -> Response:
    return _many(api.admin.vhost_limits())


async def put_vhost_limit(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    value = _number(await _body(request), "value")
    api.admin.set_vhost_limit(_path(request, "vhost"), _path(request, "name"), value)
    return await api.changed()


async def delete_vhost_limit(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    api.admin.set_vhost_limit(_path(request, "vhost"), _path(request, "name"), None)
    return await api.changed()


async def list_user_limits(api: Api, request: Request, caller: Caller) -> Response:
    return _many(api.admin.user_limits())


async def put_user_limit(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    value = _number(await _body(request), "value")
    api.admin.set_user_limit(_path(request, "user"), _path(request, "name"), value)
    return await api.changed()


async def delete_user_limit(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    api.admin.set_user_limit(_path(request, "user"), _path(request, "name"), None)
    return await api.changed()


async def list_parameters(api: Api, request: Request, caller: Caller) -> Response:
    caller.require(POLICYMAKER)
    return _many(api.admin.parameters())


# Definitions.


async def get_definitions(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    return _json(api.admin.export(_vhost_if_given(request)))


async def post_definitions(api: Api, request: Request, caller: Caller) -> Response:
    caller.require()
    body = await _body(request)
    await asyncio.to_thread(hash_passwords, body)
    summary = api.admin.load(body, _vhost_if_given(request))
    await api.committed()
    return _json({"summary": summary.line(), "warnings": summary.warnings})


# A vhost is one path segment, with its slashes as %2F: the default vhost is /%2F.
ROUTES: Final[tuple[tuple[str, str, Handler], ...]] = (
    ("/api/whoami", "GET", whoami),
    ("/api/settings", "GET", list_settings),
    ("/api/settings/{name}", "GET", get_setting),
    ("/api/settings/{name}", "PUT", put_setting),
    ("/api/alarms", "GET", list_alarms),
    ("/api/queues", "GET", list_queues),
    ("/api/queues/{vhost}", "GET", list_queues),
    ("/api/queues/{vhost}/{name}", "GET", get_queue),
    ("/api/connections", "GET", list_connections),
    ("/api/channels", "GET", list_channels),
    ("/api/vhosts", "GET", list_vhosts),
    ("/api/vhosts/{vhost}", "GET", get_vhost),
    ("/api/vhosts/{vhost}", "PUT", put_vhost),
    ("/api/vhosts/{vhost}", "DELETE", delete_vhost),
    ("/api/users", "GET", list_users),
    ("/api/users/{user}", "GET", get_user),
    ("/api/users/{user}", "PUT", put_user),
    ("/api/users/{user}", "DELETE", delete_user),
    ("/api/permissions", "GET", list_permissions),
    ("/api/permissions/{vhost}/{user}", "GET", get_permissions),
    ("/api/permissions/{vhost}/{user}", "PUT", put_permissions),
    ("/api/permissions/{vhost}/{user}", "DELETE", delete_permissions),
    ("/api/topic-permissions", "GET", list_topic_permissions),
    ("/api/topic-permissions/{vhost}/{user}", "GET", get_topic_permissions),
    ("/api/topic-permissions/{vhost}/{user}", "PUT", put_topic_permissions),
    ("/api/topic-permissions/{vhost}/{user}", "DELETE", delete_topic_permissions),
    ("/api/policies", "GET", list_policies),
    ("/api/policies/{vhost}", "GET", list_policies),
    ("/api/policies/{vhost}/{name}", "GET", get_policy),
    ("/api/policies/{vhost}/{name}", "PUT", put_policy),
    ("/api/policies/{vhost}/{name}", "DELETE", delete_policy),
    ("/api/operator-policies", "GET", list_policies),
    ("/api/operator-policies/{vhost}", "GET", list_policies),
    ("/api/operator-policies/{vhost}/{name}", "GET", get_policy),
    ("/api/operator-policies/{vhost}/{name}", "PUT", put_policy),
    ("/api/operator-policies/{vhost}/{name}", "DELETE", delete_policy),
    ("/api/vhost-limits", "GET", list_vhost_limits),
    ("/api/vhost-limits/{vhost}/{name}", "PUT", put_vhost_limit),
    ("/api/vhost-limits/{vhost}/{name}", "DELETE", delete_vhost_limit),
    ("/api/user-limits", "GET", list_user_limits),
    ("/api/user-limits/{user}/{name}", "PUT", put_user_limit),
    ("/api/user-limits/{user}/{name}", "DELETE", delete_user_limit),
    ("/api/parameters", "GET", list_parameters),
    ("/api/definitions", "GET", get_definitions),
    ("/api/definitions", "POST", post_definitions),
    ("/api/definitions/{vhost}", "GET", get_definitions),
    ("/api/definitions/{vhost}", "POST", post_definitions),
)

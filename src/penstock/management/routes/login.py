"""Login, logout, and who I am."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import AdminError, Json
from penstock.management.answer import json_answer
from penstock.management.body import json_object, read_raw, text
from penstock.management.login import Caller, caller_of
from penstock.management.route import LOGIN, PUBLIC, Api, BadRequest, Route
from penstock.management.schema import NAME, STRING, array, obj
from penstock.management.session import COOKIE, cookie

FORM: Final = "application/x-www-form-urlencoded"
FORM_BYTES_MAX: Final = 4096


def user_of(api: Api, name: str) -> dict[str, Json] | None:
    try:
        return api.admin.user(name)
    except AdminError:
        return None


def tags_of(user: dict[str, Json]) -> tuple[str, ...]:
    tags = user["tags"]
    return tuple(map(str, tags)) if isinstance(tags, list) else ()


async def log_in(api: Api, request: Request, caller: Caller) -> Response:
    """A session. From a form the browser goes on to the page."""
    is_form = request.headers.get("content-type", "").startswith(FORM)
    raw = await read_raw(request, FORM_BYTES_MAX)
    body = _form(raw) if is_form else json_object(raw)
    name, password = text(body, "username"), text(body, "password")
    host = request.client.host if request.client is not None else ""
    known = await caller_of(name, password, host, api.authenticate)
    user = user_of(api, name)
    proof = str(user["password_hash"]) if user is not None else ""
    token = api.sessions.open(name, proof)
    set_cookie = {"Set-Cookie": cookie(token, request.url.scheme == "https", api.sessions.max_s)}
    if is_form:
        return Response(status_code=303, headers={**set_cookie, "Location": "/"})
    return json_answer({"name": known.name, "tags": list(known.tags)}, headers=set_cookie)


def _form(raw: bytes) -> dict[str, Json]:
    try:
        fields = parse_qs(raw.decode("utf-8"), keep_blank_values=True, max_num_fields=10)
    except ValueError:
        raise BadRequest("the form cannot be read") from None
    return {name: values[0] for name, values in fields.items()}


async def log_out(api: Api, request: Request, caller: Caller) -> Response:
    api.sessions.close(request.cookies.get(COOKIE, ""))
    return Response(status_code=204, headers={"Set-Cookie": cookie("", request.url.scheme == "https", 0)})


async def whoami(api: Api, request: Request, caller: Caller) -> Response:
    return json_answer({"name": caller.name, "tags": list(caller.tags)})


ME: Final = obj({"name": STRING, "tags": array(STRING)})
ROUTES: Final = (
    Route(
        "POST",
        "/login",
        log_in,
        PUBLIC,
        "Open a session; a form is taken too",
        body=obj({"username": NAME, "password": STRING}),
        answer=ME,
        statuses=(303, 401),
    ),
    Route("POST", "/logout", log_out, LOGIN, "End the session", statuses=(204,)),
    Route("GET", "/api/whoami", whoami, LOGIN, "Who I am, and my tags", answer=ME),
)

"""Router and application, by themselves: which path is whose, and what a bug in a handler does."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Admin
from penstock.management.answer import list_answer
from penstock.management.api import Application
from penstock.management.login import Caller
from penstock.management.route import PUBLIC, Api, BadRequest, Route
from penstock.management.router import NotAllowed, NotFound, Router
from penstock.management.session import Sessions


async def handler(api: Api, request: Request, caller: Caller) -> Response:
    return Response("here")


async def bug(api: Api, request: Request, caller: Caller) -> Response:
    raise RuntimeError("a bug")


async def long_list(api: Api, request: Request, caller: Caller) -> Response:
    return list_answer({"number": number} for number in range(20_000))


async def reading(api: Api, request: Request, caller: Caller) -> Response:
    return Response(await request.body())


def route(path: str, method: str = "GET", of: Any = handler) -> Route:
    return Route(method, path, of, PUBLIC, "")


ROUTES = (
    route("/"),
    route("/api/users"),
    route("/api/users/bulk-delete", "POST"),
    route("/api/users/{user}"),
    route("/api/users/{user}", "PUT"),
    route("/api/queues/{vhost}/{name}"),
    route("/api/queues/{vhost}/{name}/get", "POST"),
    route("/api/connections/username/{user}"),
    route("/api/connections/{name}/channels"),
    route("/page/{version}/{path:path}"),
    route("/bug", of=bug),
    route("/body", of=reading),
    route("/list", of=long_list),
)
ROUTER = Router(ROUTES)


@pytest.mark.parametrize(
    ("path", "found", "parameters"),
    [
        (b"/", "/", {}),
        (b"/api/users", "/api/users", {}),
        (b"/api/users/", "/api/users", {}),
        (b"/api/users/alice", "/api/users/{user}", {"user": "alice"}),
        (b"/api/queues/%2F/a%20b", "/api/queues/{vhost}/{name}", {"vhost": "/", "name": "a b"}),
        (b"/api/queues/%2f/%252F", "/api/queues/{vhost}/{name}", {"vhost": "/", "name": "%2F"}),
        (b"/api/connections/username/bob", "/api/connections/username/{user}", {"user": "bob"}),
        (b"/api/connections/username/channels", "/api/connections/username/{user}", {"user": "channels"}),
        (b"/api/connections/c/channels", "/api/connections/{name}/channels", {"name": "c"}),
        (b"/page/1/a/b.js", "/page/{version}/{path:path}", {"version": "1", "path": "a/b.js"}),
    ],
)
def test_a_path_leads_to_its_route(path: bytes, found: str, parameters: dict[str, str]) -> None:
    got, named = ROUTER.match("GET", path)
    assert (got.path, named) == (found, parameters)
    assert ROUTER.match("HEAD", path)[0] is got


@pytest.mark.parametrize("path", [b"/api", b"/api/queues", b"/api/queues//q", b"/api/none", b"/page/1", b"//", b""])
def test_a_path_that_is_not_there_leads_nowhere(path: bytes) -> None:
    if path in (b"", b"//"):
        path = b"/x" + path
    with pytest.raises(NotFound):
        ROUTER.match("GET", path)


def test_a_name_among_words_has_the_methods_of_both() -> None:
    """`bulk-delete` may be a user's name."""
    assert ROUTER.match("POST", b"/api/users/bulk-delete")[0].path == "/api/users/bulk-delete"
    with pytest.raises(NotAllowed) as wrong:
        ROUTER.match("DELETE", b"/api/users/alice")
    assert wrong.value.allow == "GET, HEAD, OPTIONS, PUT"


@pytest.mark.parametrize("path", [b"/api/users/%ff", b"/api/users/" + b"x" * 256, b"/api/users/" + b"%C3%A4" * 128])
def test_a_name_that_amqp_cannot_say_is_refused(path: bytes) -> None:
    with pytest.raises(BadRequest):
        ROUTER.match("GET", path)


ALL = {"type": "http.request", "body": b"", "more_body": False}


def ask(path: str, method: str = "GET", received: dict[str, Any] = ALL) -> list[dict[str, Any]]:
    """What the application sends; what it raises, it raises after that."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return received

    async def send(message: Any) -> None:
        sent.append(dict(message))

    async def authenticate(user: str, password: str, host: str) -> None:
        return None

    api = Api(cast(Admin, None), authenticate, Sessions(1, 1))
    scope = {"type": "http", "method": method, "path": path, "raw_path": path.encode(), "headers": []}
    try:
        asyncio.run(Application(api, ROUTES)({**scope, "query_string": b"", "client": None}, receive, send))
    except RuntimeError:
        sent.append({"type": "raised"})
    return sent


def test_a_bug_is_500_in_json_and_raised_for_the_log() -> None:
    start, body, raised = ask("/bug")
    assert (start["status"], json.loads(body["body"])["error"]) == (500, "internal_error")
    assert raised == {"type": "raised"}


def test_a_client_that_goes_in_the_middle_of_its_request_is_no_bug() -> None:
    assert ask("/body", received={"type": "http.disconnect"}) == []


def test_a_long_list_is_sent_in_pieces_that_make_one_list() -> None:
    start, *pieces = ask("/list")
    assert start["status"] == 200
    assert len([piece for piece in pieces if piece["body"]]) > 2
    assert json.loads(b"".join(piece["body"] for piece in pieces))[-1] == {"number": 19_999}
    assert b"".join(piece["body"] for piece in ask("/list", "HEAD")[1:]) == b""


def test_who_is_not_logged_in_learns_nothing_of_paths() -> None:
    for path in ("/none", "/api/users/%ff"):
        assert ask(path)[0]["status"] == 401
    assert ask("/api/users", "DELETE")[0]["status"] == 401

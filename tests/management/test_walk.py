"""Every route, with every tag and without: who gets in is what the table says, and the docs say the same.

Names that are not there stand in the paths, so that a walk changes nothing but the walkers' own vhost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.management.api import ROUTES
from penstock.management.login import TAGS
from penstock.management.route import PUBLIC, Route
from tests.management.web import Answer, Web

ROOT = Path(__file__).parents[2]
NO_TAG = "impolite"
WALKERS = (*TAGS, NO_TAG)
PASSWORD = "p"


@pytest.fixture(scope="module")
def walkers(url: str, web: Web) -> Iterator[dict[str, Web]]:
    """By tag, one user each; all have every permission in the vhost `walk`."""
    web.put("vhosts/walk")
    made: dict[str, Web] = {}
    for tag in WALKERS:
        web.put(f"users/{tag}", {"password": PASSWORD, "tags": tag})
        web.put(f"permissions/walk/{tag}", {"configure": ".*", "write": ".*", "read": ".*"})
        made[tag] = Web(url, tag, PASSWORD)
    yield made
    for client in made.values():
        client.close()


@pytest.fixture(scope="module")
def nobody(url: str) -> Iterator[Web]:
    client = Web(url, None)
    yield client
    client.close()


def path_of(route: Route, walker: str) -> str:
    """With names in it: nothing is there but the vhost, and who asks for connections by user asks for their own."""
    filled = {"vhost": "gone" if (route.method, route.path) == ("DELETE", "/api/vhosts/{vhost}") else "walk"}
    if route.path.startswith("/api/connections/username/"):
        filled["user"] = walker
    filled |= {"port": "1", "within": "1", "unit": "days"}
    return re.sub(r"{([a-z_]+)(?::path)?}", lambda found: filled.get(found[1], "nothing"), route.path)


def walk(web: Web, route: Route, walker: str) -> Answer:
    return web.ask(route.method, path_of(route, walker))


@pytest.mark.parametrize("route", ROUTES, ids=repr)
def test_a_route_is_open_to_those_the_table_says(route: Route, walkers: dict[str, Web], nobody: Web) -> None:
    answer = walk(nobody, route, "nobody")
    if route.needs is PUBLIC:
        assert answer.status != 403
        return
    assert answer.status == (303 if route.page else 401), answer.raw
    assert walk(walkers[NO_TAG], route, NO_TAG).status == (303 if route.page else 401)
    for tag in TAGS:
        answer = walk(walkers[tag], route, tag)
        if tag in route.needs.tags:
            assert answer.status not in (401, 403, 405, 500), (tag, answer.raw)
        else:
            assert answer.status == 403, (tag, answer.raw)
            assert tag in answer.reason


def test_who_only_monitors_is_let_in_nowhere_but_to_look() -> None:
    changing = [route for route in ROUTES if route.method != "GET" and "monitoring" in route.needs.tags]
    assert [route.path for route in changing] == ["/logout"]


def test_nothing_is_public_but_login_and_liveness() -> None:
    public = {(route.method, route.path) for route in ROUTES if route.needs is PUBLIC}
    assert public == {
        ("GET", "/health/live"),
        ("GET", "/login"),
        ("GET", "/login/{file}"),
        ("POST", "/login"),
    }


def test_paths_and_methods_that_are_not_there_are_told_to_those_who_are_logged_in(nobody: Web, web: Web) -> None:
    for method, path in (
        ("GET", "nothing"),
        ("DELETE", "overview"),
        ("OPTIONS", "overview"),
        ("GET", "/nothing"),
        ("GET", "queues/%ff"),
    ):
        assert nobody.ask(method, path).status == 401, path
    missing = web.ask("GET", "nothing")
    assert (missing.status, missing.json) == (404, {"error": "Object Not Found", "reason": "Not Found"})
    wrong = web.ask("DELETE", "queues/%2F/nothing/get")
    assert (wrong.status, wrong.headers["allow"]) == (405, "OPTIONS, POST")
    wrong = web.ask("PATCH", "queues/%2F/nothing")
    assert (wrong.status, wrong.headers["allow"]) == (405, "DELETE, GET, HEAD, OPTIONS, PUT")
    asked = web.ask("OPTIONS", "queues/%2F/nothing")
    assert (asked.status, asked.headers["allow"], asked.raw) == (200, "DELETE, GET, HEAD, OPTIONS, PUT", b"")


def documented(route: Route) -> str:
    return f"| {route.method} | `{route.path}` | {route.needs.name} | {route.summary} |"


def test_the_docs_have_the_table_of_routes() -> None:
    text = (ROOT / "docs" / "management.md").read_text("utf-8")
    rows = re.findall(r"^\| (?:GET|PUT|POST|DELETE) \| `/[^\n]*$", text, re.MULTILINE)
    wanted = [documented(route) for route in ROUTES]
    assert rows == wanted, "docs/management.md, table of routes:\n" + "\n".join(wanted)

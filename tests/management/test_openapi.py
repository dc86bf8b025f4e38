"""OpenAPI: the description fits the API, and nothing that it allows or forbids makes the API stumble.

schemathesis makes requests from the description, right ones and wrong ones, and checks each answer: no crash, only
documented statuses, types and shapes, 405 with Allow, wrong input refused. It makes the same ones every time; with
PENSTOCK_RANDOM=1 new ones, and PENSTOCK_OPENAPI_EXAMPLES=50 says how many are drawn for each operation. docs/testing.md
has the checks that are off, and why.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.config import SchemathesisConfig
from schemathesis.openapi import from_dict

from penstock.management.api import ROUTES
from penstock.management.listing import PAGING
from penstock.management.openapi import document
from tests.management.web import Web

# Drawn for each operation, beside one for every boundary in its schema.
EXAMPLES = int(os.environ.get("PENSTOCK_OPENAPI_EXAMPLES", "3"))
RANDOM = bool(os.environ.get("PENSTOCK_RANDOM"))
VHOST = "fuzz"
ADMIN = "fuzz-administrator"
PASSWORD = "p"
THERE = {
    "vhost": VHOST,
    "name": "there",
    "source": "there",
    "destination": "there",
    "user": "fuzz",
    "component": "there",
}


def described() -> dict[str, Any]:
    """The description. What all lists have in common only two of them have here: the same code reads it."""
    told: dict[str, Any] = document(ROUTES)
    common = {query.name for query in PAGING}
    for path, methods in told["paths"].items():
        for one in methods.values():
            if path not in ("/api/queues/{vhost}", "/api/users"):
                one["parameters"] = [
                    each for each in one["parameters"] if each["in"] != "query" or each["name"] not in common
                ]
    return told


SCHEMA = from_dict(
    described(),
    config=SchemathesisConfig.from_dict(
        {
            "auth": {"basic": {"username": ADMIN, "password": PASSWORD}},
            "phases": {"coverage": {"unexpected-methods": ["PATCH"]}},
            "checks": {
                # 503 where it is documented: health checks tell the truth.
                "not_a_server_error": {"expected-statuses": ["2xx", "3xx", "4xx", 503]},
                # Right by its schema and wrong for the broker is 400 with a reason: no schema says which regular
                # expressions there are, or what arguments a queue can have.
                "positive_data_acceptance": {"enabled": False},
                # test_walk.py asks this of all routes; here thousands of wrong passwords would wait for their answers.
                "ignored_auth": {"enabled": False},
            },
        }
    ),
)
OPERATIONS = {one["operationId"] for methods in described()["paths"].values() for one in methods.values()}


@pytest.fixture(scope="module")
def administrator(web: Web) -> None:
    """A user that no path means by chance."""
    web.put(f"users/{ADMIN}", {"password": PASSWORD, "tags": "administrator"})


@pytest.fixture(autouse=True)
def something(administrator: None, web: Web) -> None:
    """A vhost with something in it, whatever the operation before has deleted."""
    web.put(f"vhosts/{VHOST}")
    web.put(f"permissions/{VHOST}/{ADMIN}", {"configure": ".*", "write": ".*", "read": ".*"})
    web.ask("PUT", f"permissions/{VHOST}/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    web.ask("PUT", f"queues/{VHOST}/there", {})
    web.ask("PUT", f"exchanges/{VHOST}/there", {"type": "topic"})
    web.ask("POST", f"bindings/{VHOST}/e/there/q/there")
    web.ask("PUT", "users/fuzz", {"password_hash": "", "tags": ""})


def somewhere(case: Case) -> None:
    """Most names become those of what is there: or no request would come far. Wrong ones stay as they are."""
    named = {name: value for name, value in case.path_parameters.items() if name in THERE}
    if not named or not all(isinstance(value, str) and 0 < len(value.encode()) <= 255 for value in named.values()):
        return
    if len(repr((named, case.body, case.query))) % 4:
        case.path_parameters = {**case.path_parameters, **{name: THERE[name] for name in named}}


@settings(
    max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), derandomize=not RANDOM, database=None, deadline=None
)
def does_what_it_says(case: Case, url: str) -> None:
    somewhere(case)
    case.call_and_validate(base_url=url)


# A test for each operation, by a name of its own: schemathesis would give all of them one id, and xdist would run only
# one. Not POST /login: a wrong password waits for its answer, longer every time; test_sessions.py has its wrong bodies.
for operation in sorted(OPERATIONS - {"post_login"}):
    name = f"test_{operation}_does_what_its_description_says"
    globals()[name] = SCHEMA.include(operation_id=operation).parametrize()(does_what_it_says)


def test_the_description_is_there_for_those_who_are_logged_in(web: Web) -> None:
    told = web.get("openapi.json")
    assert told["openapi"].startswith("3.1")
    described = {(method.upper(), path) for path, methods in told["paths"].items() for method in methods}
    assert {("GET", "/api/queues"), ("PUT", "/api/queues/{vhost}/{name}"), ("GET", "/api/flow")} <= described
    assert {(route.method, route.path) for route in ROUTES if route.path.startswith("/api/")} <= described
    assert told["paths"]["/api/users"]["get"]["x-tags"] == ["administrator"]


def test_every_operation_has_a_name_of_its_own(web: Web) -> None:
    told = web.get("openapi.json")["paths"]
    names = [one["operationId"] for methods in told.values() for one in methods.values()]
    assert len(names) == len(set(names))

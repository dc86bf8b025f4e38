"""OpenAPI: the table of routes as a description that tools read. GET /api/openapi.json."""

from __future__ import annotations

import re
from typing import Final

from penstock import __version__
from penstock.broker.admin import Json
from penstock.management.route import PUBLIC, Query, Route
from penstock.management.schema import FAULT, INTEGER, NAME, Schema, one_of

REASONS: Final = {
    200: "done, with an answer",
    201: "made",
    204: "done",
    303: "go there",
    304: "as you know it",
    400: "the request is wrong; the reason says how",
    401: "not logged in",
    403: "not allowed",
    404: "not there",
    405: "not with this method",
    413: "too large",
    503: "not now",
}
JSON: Final = "application/json"
# Of what is one part of a path and no name: what may stand there.
PARTS: Final[dict[str, Schema]] = {
    "port": {**INTEGER, "minimum": 0, "maximum": 999_999_999},
    "within": {**INTEGER, "minimum": 0, "maximum": 999_999},
    "unit": one_of("days", "weeks", "months", "years"),
}
MACHINES: Final = ("/api/", "/health/", "/metrics")
BESIDE: Final = ("/login", "/logout")  # the page's files are no API


def document(routes: tuple[Route, ...]) -> dict[str, Json]:
    paths: dict[str, Json] = {}
    for route in routes:
        if route.path.startswith(MACHINES) or route.path in BESIDE:
            entry = paths.setdefault(route.path, {})
            assert isinstance(entry, dict)
            entry[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock management",
            "version": __version__,
            "description": "RabbitMQ's management API, and what blocks what.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Fault": FAULT},
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
        },
    }


def _operation(route: Route) -> dict[str, Json]:
    parameters: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": PARTS.get(name, NAME)}
        for name in re.findall(r"{([a-z_]+)(?::path)?}", route.path)
    ]
    parameters += [_parameter(query) for query in route.query]
    operation: dict[str, Json] = {
        "summary": route.summary,
        "operationId": _identity(route),
        "parameters": parameters,
        "responses": _responses(route),
        "security": [] if route.needs is PUBLIC else [{"basic": []}],
        "x-tags": list(route.needs.tags),
    }
    if route.body is not None:
        operation["requestBody"] = {
            "required": route.body_needed,
            "content": {JSON: {"schema": route.body}},
        }
    return operation


def _parameter(query: Query) -> dict[str, Json]:
    return {
        "name": query.name,
        "in": "header" if query.header else "query",
        "required": False,
        "description": query.summary,
        "schema": query.schema,
    }


def _identity(route: Route) -> str:
    words = re.findall(r"[a-z_]+", route.path.removeprefix("/api").replace("-", "_"))
    return "_".join((route.method.lower(), *words))


def _responses(route: Route) -> dict[str, Json]:
    said = {*route.statuses, 400, 401}
    if route.answer is not None or not route.statuses:
        said.add(200)
    if route.needs is not PUBLIC:
        said |= {403, 404}
    if route.body is not None:
        said.add(413)
    return {str(status): _response(route, status) for status in sorted(said)}


def _response(route: Route, status: int) -> dict[str, Json]:
    response: dict[str, Json] = {"description": REASONS[status]}
    if status == 200 and (route.answer is not None or route.media != JSON):
        response["content"] = {route.media: {"schema": route.answer or {}}}
    elif status >= 400:
        fault: Json = {"$ref": "#/components/schemas/Fault"}
        own = route.answer if status == 503 and route.answer is not None else None
        schema: Json = {"anyOf": [fault, own]} if own is not None else fault
        response["content"] = {JSON: {"schema": schema}}
    return response

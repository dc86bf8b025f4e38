"""Policies; operator policies are for administrators."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.management.answer import json_answer
from penstock.management.body import number, part, read_body, required, text, vhost_if_given
from penstock.management.listing import COLUMNS, PAGING, columns_of, listed, of_vhosts, pick
from penstock.management.login import Caller
from penstock.management.pattern import within
from penstock.management.route import ADMINISTRATOR, LOGIN, POLICYMAKER, Api, BadRequest, Handler, Needs, Route, missing
from penstock.management.schema import INTEGER, LISTED, OBJECT, STRING, obj, one_of

STEPS_MAX: Final = 600_000  # of a policymaker's pattern in one name: a queue is matched once, when it is declared


def _routes(what: str, operator: bool, changes: Needs) -> tuple[Route, ...]:
    """The same five paths for both."""
    prefix = "/api/operator-policies" if operator else "/api/policies"

    async def list_policies(api: Api, request: Request, caller: Caller) -> Response:
        found = api.admin.policies(vhost_if_given(request), operator)
        return await listed(api, request, "policies", of_vhosts(api, caller, found))

    async def get_policy(api: Api, request: Request, caller: Caller) -> Response:
        vhost, name = part(request, "vhost"), part(request, "name")
        found = next((one for one in api.admin.policies(vhost, operator) if one["name"] == name), None)
        if found is None:
            raise missing(f"{what} '{name}' in vhost '{vhost}'")
        return json_answer(pick(found, columns_of(request)))

    async def put_policy(api: Api, request: Request, caller: Caller) -> Response:
        body = await read_body(request, needed=True)
        required(body, "pattern", "definition")
        pattern, definition = text(body, "pattern"), body["definition"]
        if not isinstance(definition, dict):
            raise BadRequest("'definition' is not an object")
        if not caller.administers():
            within(pattern, STEPS_MAX)
        is_new = api.admin.set_policy(
            part(request, "vhost"),
            part(request, "name"),
            pattern,
            definition,
            text(body, "apply-to", "queues" if operator else "all"),
            number(body, "priority", 0),
            operator,
        )
        return await api.changed(is_new)

    async def delete_policy(api: Api, request: Request, caller: Caller) -> Response:
        api.admin.delete_policy(part(request, "vhost"), part(request, "name"), operator)
        return await api.changed()

    one = prefix + "/{vhost}/{name}"
    plural = what[:-1] + "ies"
    body = obj(
        {"pattern": STRING, "definition": OBJECT},
        {"apply-to": one_of("all", "queues", "exchanges"), "priority": INTEGER},
    )
    rows: tuple[tuple[str, str, Handler, Needs, str], ...] = (
        ("GET", prefix, list_policies, LOGIN, f"All {plural}"),
        ("GET", prefix + "/{vhost}", list_policies, LOGIN, f"The {plural} of a vhost"),
    )
    return (
        *(Route(*row, query=PAGING, answer=LISTED) for row in rows),
        Route("GET", one, get_policy, LOGIN, f"One {what}", query=(COLUMNS,), answer=OBJECT),
        Route("PUT", one, put_policy, changes, "Make or change it", body=body, statuses=(201, 204)),
        Route("DELETE", one, delete_policy, changes, "Delete it", statuses=(204,)),
    )


ROUTES: Final = (*_routes("policy", False, POLICYMAKER), *_routes("operator policy", True, ADMINISTRATOR))

"""Parameters of components in vhosts, and global ones. They are kept for tools and definitions."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Json
from penstock.management.answer import json_answer
from penstock.management.body import part, read_body, required, vhost_if_given
from penstock.management.listing import COLUMNS, PAGING, Plain, columns_of, listed, of_vhosts, pick
from penstock.management.login import Caller
from penstock.management.route import POLICYMAKER, Api, BadRequest, Route, missing
from penstock.management.routes.vhosts import check_vhost
from penstock.management.schema import ANY, LISTED, OBJECT, obj

# What definitions have among the parameters and the broker goes by. It has paths of its own, and needs other tags.
ELSEWHERE: Final = {
    "policy": "/api/policies",
    "operator_policy": "/api/operator-policies",
    "vhost-limits": "/api/vhost-limits",
    "user-limits": "/api/user-limits",
}


async def list_parameters(api: Api, request: Request, caller: Caller) -> Response:
    vhost = vhost_if_given(request)
    if vhost is not None:
        check_vhost(api, vhost)
    component = part(request, "component") if "component" in request.path_params else None
    found = [
        one for one in api.admin.parameters() if component in (None, one["component"]) and vhost in (None, one["vhost"])
    ]
    return await listed(api, request, "parameters", of_vhosts(api, caller, found))


async def get_parameter(api: Api, request: Request, caller: Caller) -> Response:
    wanted = {name: part(request, name) for name in ("component", "vhost", "name")}
    for one in api.admin.parameters():
        if all(one[name] == value for name, value in wanted.items()):
            return json_answer(pick(one, columns_of(request)))
    raise missing(f"parameter '{wanted['name']}' of '{wanted['component']}' in vhost '{wanted['vhost']}'")


async def put_parameter(api: Api, request: Request, caller: Caller) -> Response:
    value = await _value(request)
    component = part(request, "component")
    if component in ELSEWHERE:
        raise BadRequest(f"'{component}' is set at {ELSEWHERE[component]}")
    is_new = api.admin.put_parameter(component, part(request, "vhost"), part(request, "name"), value)
    return await api.changed(is_new)


async def _value(request: Request) -> Json:
    body = await read_body(request, needed=True)
    required(body, "value")
    return body["value"]


async def delete_parameter(api: Api, request: Request, caller: Caller) -> Response:
    api.admin.delete_parameter(part(request, "component"), part(request, "vhost"), part(request, "name"))
    return await api.changed()


async def list_global_parameters(api: Api, request: Request, caller: Caller) -> Response:
    return await listed(api, request, "parameters", Plain(api.admin.global_parameters()))


async def get_global_parameter(api: Api, request: Request, caller: Caller) -> Response:
    name = part(request, "name")
    found = next((one for one in api.admin.global_parameters() if one["name"] == name), None)
    if found is None:
        raise missing(f"global parameter '{name}'")
    return json_answer(pick(found, columns_of(request)))


async def put_global_parameter(api: Api, request: Request, caller: Caller) -> Response:
    value = await _value(request)
    return await api.changed(api.admin.put_global_parameter(part(request, "name"), value))


async def delete_global_parameter(api: Api, request: Request, caller: Caller) -> Response:
    api.admin.delete_global_parameter(part(request, "name"))
    return await api.changed()


P: Final = POLICYMAKER
VALUE: Final = obj({"value": ANY})
ONE: Final = "/api/parameters/{component}/{vhost}/{name}"
GLOBAL: Final = "/api/global-parameters/{name}"
ROUTES: Final = (
    Route("GET", "/api/parameters", list_parameters, P, "All parameters", query=PAGING, answer=LISTED),
    Route(
        "GET", "/api/parameters/{component}", list_parameters, P, "Those of a component", query=PAGING, answer=LISTED
    ),
    Route(
        "GET",
        "/api/parameters/{component}/{vhost}",
        list_parameters,
        P,
        "Those of a component in a vhost",
        query=PAGING,
        answer=LISTED,
    ),
    Route("GET", ONE, get_parameter, P, "One parameter", query=(COLUMNS,), answer=OBJECT),
    Route("PUT", ONE, put_parameter, P, "Make or change it", body=VALUE, statuses=(201, 204)),
    Route("DELETE", ONE, delete_parameter, P, "Delete it", statuses=(204,)),
    Route(
        "GET",
        "/api/global-parameters",
        list_global_parameters,
        P,
        "All global parameters",
        query=PAGING,
        answer=LISTED,
    ),
    Route("GET", GLOBAL, get_global_parameter, P, "One global parameter", query=(COLUMNS,), answer=OBJECT),
    Route("PUT", GLOBAL, put_global_parameter, P, "Make or change it", body=VALUE, statuses=(201, 204)),
    Route("DELETE", GLOBAL, delete_global_parameter, P, "Delete it", statuses=(204,)),
)

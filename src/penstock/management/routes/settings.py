"""Settings of the broker, and the alarms that some of them are about."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.management.answer import json_answer
from penstock.management.body import part, read_body
from penstock.management.listing import COLUMNS, PAGING, Plain, listed, pick
from penstock.management.listing import columns_of as columns
from penstock.management.login import Caller
from penstock.management.route import ADMINISTRATOR, LOGIN, Api, BadRequest, Route, missing
from penstock.management.schema import LISTED, NUMBER, OBJECT, STRING, array, either, obj


async def list_settings(api: Api, request: Request, caller: Caller) -> Response:
    return await listed(api, request, "settings", Plain(api.admin.settings()))


async def get_setting(api: Api, request: Request, caller: Caller) -> Response:
    name = part(request, "name")
    found = next((one for one in api.admin.settings() if one["name"] == name), None)
    if found is None:
        raise missing(f"setting '{name}'")
    return json_answer(pick(found, columns(request)))


async def put_setting(api: Api, request: Request, caller: Caller) -> Response:
    value = (await read_body(request)).get("value")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise BadRequest("'value' is neither a string nor a number")
    api.admin.change_setting(part(request, "name"), str(value))
    return Response(status_code=204)


async def list_alarms(api: Api, request: Request, caller: Caller) -> Response:
    return json_answer(api.admin.alarms())


ROUTES: Final = (
    Route(
        "GET",
        "/api/settings",
        list_settings,
        ADMINISTRATOR,
        "Every setting, with value, default and reason",
        query=PAGING,
        answer=LISTED,
    ),
    Route("GET", "/api/settings/{name}", get_setting, ADMINISTRATOR, "One setting", query=(COLUMNS,), answer=OBJECT),
    Route(
        "PUT",
        "/api/settings/{name}",
        put_setting,
        ADMINISTRATOR,
        "Change a run-time setting, until the broker stops",
        body=obj({"value": either(STRING, NUMBER)}),
        statuses=(204,),
    ),
    Route(
        "GET",
        "/api/alarms",
        list_alarms,
        LOGIN,
        "The alarms that are on",
        answer=array(obj({"source": STRING, "reason": STRING})),
    ),
)

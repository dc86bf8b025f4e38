"""Definitions: all that is declared, in one document."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import hash_passwords
from penstock.management.answer import json_answer
from penstock.management.body import read_body, vhost_if_given
from penstock.management.login import Caller
from penstock.management.route import ADMINISTRATOR, LARGE_BODY_BYTES_MAX, Api, Route
from penstock.management.schema import OBJECT, STRING, array, obj


async def get_definitions(api: Api, request: Request, caller: Caller) -> Response:
    export = api.admin.exporting(vhost_if_given(request))
    while not export.step():
        await asyncio.sleep(0)
    return json_answer(export.document())


async def post_definitions(api: Api, request: Request, caller: Caller) -> Response:
    body = await read_body(request, needed=True)
    await asyncio.to_thread(hash_passwords, body)
    summary = api.admin.load(body, vhost_if_given(request))
    await api.committed()
    return json_answer({"summary": summary.line(), "warnings": summary.warnings})


DONE: Final = obj({"summary": STRING, "warnings": array(STRING)})
ROUTES: Final = tuple(
    route
    for path, of in (
        ("/api/definitions", "All definitions"),
        ("/api/definitions/{vhost}", "The definitions of a vhost"),
    )
    for route in (
        Route("GET", path, get_definitions, ADMINISTRATOR, of, answer=OBJECT),
        Route(
            "POST",
            path,
            post_definitions,
            ADMINISTRATOR,
            "Load a document; all of it or, if something is wrong, nothing",
            body=OBJECT,
            answer=DONE,
            body_max=LARGE_BODY_BYTES_MAX,
        ),
    )
)

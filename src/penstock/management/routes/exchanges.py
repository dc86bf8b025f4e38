"""Exchanges: look, declare, delete, publish."""

from __future__ import annotations

import asyncio
import base64
import binascii
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Json
from penstock.management.answer import json_answer
from penstock.management.body import flag, part, query_flag, read_body, required, short, table, text, vhost_if_given
from penstock.management.listing import COLUMNS, FLAG_WORD, PAGING, columns_of, listed, of_kind, pick, rated
from penstock.management.login import Caller
from penstock.management.route import CHANGE, LARGE_BODY_BYTES_MAX, LOGIN, Api, BadRequest, Query, Route
from penstock.management.schema import BOOLEAN, FLAG, LISTED, OBJECT, SHORT, STRING, TABLE, obj, one_of

DEFAULT: Final = "amq.default"  # the exchange without a name, where a path needs one
ROUTE_TIMEOUT_S: Final = 5.0  # RabbitMQ's; an alarm may hold a message up


def exchange_name(name: str) -> str:
    return "" if name == DEFAULT else name


async def list_exchanges(api: Api, request: Request, caller: Caller) -> Response:
    return await listed(api, request, "exchanges", of_kind(api, caller, "exchanges", vhost_if_given(request)))


async def get_exchange(api: Api, request: Request, caller: Caller) -> Response:
    view = api.admin.exchange(part(request, "vhost"), exchange_name(part(request, "name")))
    return json_answer(pick(rated(api, "exchanges", view), columns_of(request)))


async def put_exchange(api: Api, request: Request, caller: Caller) -> Response:
    body = await read_body(request)
    is_new = api.admin.declare_exchange(
        part(request, "vhost"),
        part(request, "name"),
        text(body, "type", "direct"),
        flag(body, "durable"),
        flag(body, "auto_delete"),
        flag(body, "internal"),
        table(body, "arguments"),
        user=caller.name,
    )
    return await api.changed(is_new)


async def delete_exchange(api: Api, request: Request, caller: Caller) -> Response:
    api.admin.delete_exchange(
        part(request, "vhost"), part(request, "name"), query_flag(request, "if-unused"), user=caller.name
    )
    return await api.changed()


async def publish(api: Api, request: Request, caller: Caller) -> Response:
    body = await read_body(request, needed=True)
    required(body, "properties", "routing_key", "payload", "payload_encoding")
    payload = _payload(text(body, "payload"), text(body, "payload_encoding"))
    routed = await published(
        api,
        part(request, "vhost"),
        exchange_name(part(request, "name")),
        short(body, "routing_key"),
        table(body, "properties"),
        payload,
        caller,
    )
    return json_answer({"routed": routed})


def _payload(payload: str, encoding: str) -> bytes:
    if encoding == "string":
        try:
            return payload.encode("utf-8")
        except UnicodeEncodeError:
            raise BadRequest("'payload' has half of a surrogate pair") from None
    if encoding == "base64":
        try:
            return base64.b64decode(payload, validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest("'payload' is not base64") from None
    raise BadRequest(f"'payload_encoding' is neither string nor base64: '{encoding}'")


async def published(
    api: Api, vhost: str, exchange: str, key: str, properties: dict[str, Json], payload: bytes, caller: Caller
) -> bool:
    """Whether it was routed; 503 if nothing happens for a while."""
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    api.admin.publish(
        vhost,
        exchange,
        key,
        properties,
        payload,
        lambda routed: None if done.done() else done.set_result(routed),
        user=caller.name,
    )
    try:
        return await asyncio.wait_for(done, ROUTE_TIMEOUT_S)
    except TimeoutError:
        raise BadRequest("the message is not routed yet", "timeout", 503) from None


ONE: Final = "/api/exchanges/{vhost}/{name}"
ROUTES: Final = (
    Route("GET", "/api/exchanges", list_exchanges, LOGIN, "All exchanges", query=PAGING, answer=LISTED),
    Route(
        "GET", "/api/exchanges/{vhost}", list_exchanges, LOGIN, "The exchanges of a vhost", query=PAGING, answer=LISTED
    ),
    Route("GET", ONE, get_exchange, LOGIN, "One exchange", query=(COLUMNS,), answer=OBJECT),
    Route(
        "PUT",
        ONE,
        put_exchange,
        CHANGE,
        "Declare it",
        body=obj({}, {"type": STRING, "durable": FLAG, "auto_delete": FLAG, "internal": FLAG, "arguments": TABLE}),
        body_needed=False,
        statuses=(201, 204),
    ),
    Route("DELETE", ONE, delete_exchange, CHANGE, "Delete it", query=(Query("if-unused", FLAG_WORD),), statuses=(204,)),
    Route(
        "POST",
        ONE + "/publish",
        publish,
        CHANGE,
        "Publish one message; for trying things out",
        body=obj(
            {
                "properties": TABLE,
                "routing_key": SHORT,
                "payload": STRING,
                "payload_encoding": one_of("string", "base64"),
            }
        ),
        answer=obj({"routed": BOOLEAN}),
        statuses=(503,),
        body_max=LARGE_BODY_BYTES_MAX,
    ),
)

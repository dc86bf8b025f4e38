"""Queues: look, declare, delete, purge, get."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Json
from penstock.management import samples
from penstock.management.answer import json_answer
from penstock.management.body import count, flag, part, query_flag, read_body, required, table, text, vhost_if_given
from penstock.management.listing import COLUMNS, FLAG_WORD, PAGING, columns_of, listed, of_kind, pick, rated
from penstock.management.login import Caller
from penstock.management.route import CHANGE, LOGIN, Api, BadRequest, Query, Route
from penstock.management.schema import COUNT, FLAG, LIST, LISTED, OBJECT, STRING, TABLE, Schema, obj, one_of

ACK_MODES: Final = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")
ENCODINGS: Final = ("auto", "base64")
GET_MAX: Final = 1000  # messages at once: this is for looking, consumers are for work
PAYLOAD_BYTES_MAX: Final = 16_777_216  # of one message; of all there is a bound in broker/admin/errand.py
ACTIONS: Final = ("sync", "cancel_sync")
GET_TIMEOUT_S: Final = 5.0
SPAN_S_MAX: Final = 86_400


async def list_queues(api: Api, request: Request, caller: Caller) -> Response:
    items = of_kind(api, caller, "queues", vhost_if_given(request))
    kind = request.query_params.get("type")
    keep: Callable[[int], bool] | None = None
    if kind is not None:
        keep = lambda at: items.value(at, "type") == kind  # noqa: E731
    return await listed(api, request, "queues", items, keep)


async def get_queue(api: Api, request: Request, caller: Caller) -> Response:
    view = rated(api, "queues", api.admin.queue(part(request, "vhost"), part(request, "name")))
    asked = past(request)
    if asked and api.sampling is not None:
        api.sampling.rates.add_samples(view, asked)
    return json_answer(pick(view, columns_of(request)))


def past(request: Request) -> samples.Ask:
    """What a request wants to know of the past."""
    for query in PAST:
        text = request.query_params.get(query.name, "1")
        if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= SPAN_S_MAX):
            raise BadRequest(f"'{query.name}' is not a whole number of seconds from 1 to {SPAN_S_MAX}")
    try:
        return samples.ask(request.query_params)
    except ValueError as error:
        raise BadRequest(str(error)) from None


async def put_queue(api: Api, request: Request, caller: Caller) -> Response:
    body = await read_body(request)
    is_new = api.admin.declare_queue(
        part(request, "vhost"),
        part(request, "name"),
        flag(body, "durable"),
        flag(body, "auto_delete"),
        table(body, "arguments"),
        user=caller.name,
    )
    return await api.changed(is_new)


async def delete_queue(api: Api, request: Request, caller: Caller) -> Response:
    api.admin.delete_queue(
        part(request, "vhost"),
        part(request, "name"),
        query_flag(request, "if-empty"),
        query_flag(request, "if-unused"),
        user=caller.name,
    )
    return await api.changed()


async def purge_queue(api: Api, request: Request, caller: Caller) -> Response:
    api.admin.purge_queue(part(request, "vhost"), part(request, "name"), user=caller.name)
    return await api.changed()


async def get_messages(api: Api, request: Request, caller: Caller) -> Response:
    body = await read_body(request, needed=True)
    required(body, "count", "ackmode", "encoding")
    ackmode, encoding = text(body, "ackmode"), text(body, "encoding")
    if ackmode not in ACK_MODES:
        raise BadRequest(f"'ackmode' is none of {', '.join(ACK_MODES)}")
    if encoding not in ENCODINGS:
        raise BadRequest(f"'encoding' is none of {', '.join(ENCODINGS)}")
    truncate = min(count(body, "truncate", PAYLOAD_BYTES_MAX), PAYLOAD_BYTES_MAX)
    wanted = min(count(body, "count"), GET_MAX)
    if truncate < 0 or wanted < 0:
        raise BadRequest("'count' and 'truncate' are not below 0")
    found = await got(api, part(request, "vhost"), part(request, "name"), wanted, ackmode, truncate, encoding, caller)
    return json_answer(found)


async def got(
    api: Api, vhost: str, queue: str, wanted: int, ackmode: str, truncate: int, encoding: str, caller: Caller
) -> list[dict[str, Json]]:
    done: asyncio.Future[list[dict[str, Json]]] = asyncio.get_running_loop().create_future()
    abandon = api.admin.get(
        vhost,
        queue,
        wanted,
        ackmode,
        truncate,
        lambda messages: None if done.done() else done.set_result(messages),
        encoding=encoding,
        user=caller.name,
    )
    try:
        return await asyncio.wait_for(done, GET_TIMEOUT_S)
    except TimeoutError:
        raise BadRequest("the messages are not there yet", "timeout", 503) from None
    finally:
        abandon()


async def act(api: Api, request: Request, caller: Caller) -> Response:
    """RabbitMQ's actions are about mirrors. There are none: they are always in step."""
    action = text(await read_body(request, needed=True), "action")
    if action not in ACTIONS:
        raise BadRequest(f"'action' is none of {', '.join(ACTIONS)}")
    api.admin.queue(part(request, "vhost"), part(request, "name"))
    return Response(status_code=204)


SPAN: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": SPAN_S_MAX}
PAST: Final = tuple(
    Query(name, SPAN, "seconds; both of a pair give samples of the past")
    for name in ("lengths_age", "lengths_incr", "msg_rates_age", "msg_rates_incr")
)
ONE: Final = "/api/queues/{vhost}/{name}"
LISTING: Final = (*PAGING, Query("type", STRING, "classic or stream"))
ROUTES: Final = (
    Route("GET", "/api/queues", list_queues, LOGIN, "All queues", query=LISTING, answer=LISTED),
    Route("GET", "/api/queues/{vhost}", list_queues, LOGIN, "The queues of a vhost", query=LISTING, answer=LISTED),
    Route("GET", ONE, get_queue, LOGIN, "One queue", query=(COLUMNS, *PAST), answer=OBJECT),
    Route(
        "PUT",
        ONE,
        put_queue,
        CHANGE,
        "Declare it",
        body=obj({}, {"durable": FLAG, "auto_delete": FLAG, "arguments": TABLE}),
        body_needed=False,
        statuses=(201, 204),
    ),
    Route(
        "DELETE",
        ONE,
        delete_queue,
        CHANGE,
        "Delete it",
        query=(Query("if-empty", FLAG_WORD), Query("if-unused", FLAG_WORD)),
        statuses=(204,),
    ),
    Route("DELETE", ONE + "/contents", purge_queue, CHANGE, "Purge it", statuses=(204,)),
    Route(
        "POST",
        ONE + "/get",
        get_messages,
        CHANGE,
        "Get messages; what is not acknowledged goes back",
        body=obj({"count": COUNT, "ackmode": one_of(*ACK_MODES), "encoding": one_of(*ENCODINGS)}, {"truncate": COUNT}),
        answer=LIST,
        statuses=(503,),
    ),
    Route(
        "POST",
        ONE + "/actions",
        act,
        CHANGE,
        "RabbitMQ's actions for mirrors; nothing to do here",
        body=obj({"action": one_of(*ACTIONS)}),
        statuses=(204,),
    ),
)

"""Bindings: look, bind, unbind. A binding is named by its two ends and `properties_key`: key and hash of arguments."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from penstock.management.answer import json_answer
from penstock.management.body import part, read_body, short, table, vhost_if_given
from penstock.management.listing import PAGING, Plain, listed, of_kind
from penstock.management.login import Caller
from penstock.management.route import CHANGE, LOGIN, Api, Handler, Route
from penstock.management.routes.exchanges import exchange_name
from penstock.management.schema import LISTED, OBJECT, SHORT, TABLE, obj

KINDS: Final = {"q": "queue", "e": "exchange"}


async def list_bindings(api: Api, request: Request, caller: Caller) -> Response:
    return await listed(api, request, "bindings", of_kind(api, caller, "bindings", vhost_if_given(request)))


async def bindings_of_queue(api: Api, request: Request, caller: Caller) -> Response:
    vhost, name = part(request, "vhost"), part(request, "name")
    api.admin.queue(vhost, name)
    return await _where(api, request, destination=name, kind="queue")


async def bindings_by_source(api: Api, request: Request, caller: Caller) -> Response:
    vhost, name = part(request, "vhost"), exchange_name(part(request, "name"))
    api.admin.exchange(vhost, name)
    return await _where(api, request, source=name)


async def bindings_by_destination(api: Api, request: Request, caller: Caller) -> Response:
    vhost, name = part(request, "vhost"), exchange_name(part(request, "name"))
    api.admin.exchange(vhost, name)
    return await _where(api, request, destination=name, kind="exchange")


async def _where(api: Api, request: Request, **ends: str) -> Response:
    return await listed(api, request, "bindings", Plain(api.admin.bindings(part(request, "vhost"), **ends)))


def _between(kind: str) -> tuple[Handler, Handler, Handler, Handler]:
    """The handlers for the bindings between an exchange and a queue, or between two exchanges."""

    def ends(request: Request) -> dict[str, str]:
        destination = part(request, "destination")
        return {
            "source": exchange_name(part(request, "source")),
            "destination": exchange_name(destination) if kind == "exchange" else destination,
        }

    async def list_between(api: Api, request: Request, caller: Caller) -> Response:
        vhost, between = part(request, "vhost"), ends(request)
        api.admin.exchange(vhost, between["source"])
        (api.admin.queue if kind == "queue" else api.admin.exchange)(vhost, between["destination"])
        return await _where(api, request, kind=kind, **between)

    async def post_binding(api: Api, request: Request, caller: Caller) -> Response:
        body = await read_body(request)
        between = ends(request)
        props = api.admin.bind(
            part(request, "vhost"),
            between["source"],
            between["destination"],
            kind,
            short(body, "routing_key", ""),
            table(body, "arguments"),
            user=caller.name,
        )
        await api.committed()
        # As RabbitMQ has it, from the path on: tools take the second part of it.
        where = f"{quote(between['destination'], safe='')}/{quote(props, safe='')}"
        return Response(status_code=201, headers={"Location": where})

    def place(request: Request) -> tuple[str, str, str, str, str]:
        between = ends(request)
        return part(request, "vhost"), between["source"], between["destination"], kind, part(request, "props")

    async def get_binding(api: Api, request: Request, caller: Caller) -> Response:
        return json_answer(api.admin.binding(*place(request)))

    async def delete_binding(api: Api, request: Request, caller: Caller) -> Response:
        api.admin.unbind(*place(request), user=caller.name)
        return await api.changed()

    return list_between, post_binding, get_binding, delete_binding


def _routes(letter: str) -> tuple[Route, ...]:
    kind = KINDS[letter]
    list_between, post_binding, get_binding, delete_binding = _between(kind)
    both = "/api/bindings/{vhost}/e/{source}/" + letter + "/{destination}"
    one = both + "/{props}"
    body = obj({}, {"routing_key": SHORT, "arguments": TABLE})
    return (
        Route(
            "GET", both, list_between, LOGIN, f"The bindings between exchange and {kind}", query=PAGING, answer=LISTED
        ),
        Route(
            "POST",
            both,
            post_binding,
            CHANGE,
            f"Bind the {kind}; Location says the properties key",
            body=body,
            body_needed=False,
            statuses=(201,),
        ),
        Route("GET", one, get_binding, LOGIN, "One binding, by its properties key", answer=OBJECT),
        Route("DELETE", one, delete_binding, CHANGE, "Unbind it", statuses=(204,)),
    )


def _list(path: str, handler: Handler, summary: str) -> Route:
    return Route("GET", path, handler, LOGIN, summary, query=PAGING, answer=LISTED)


ROUTES: Final = (
    _list("/api/bindings", list_bindings, "All bindings"),
    _list("/api/bindings/{vhost}", list_bindings, "The bindings of a vhost"),
    *_routes("q"),
    *_routes("e"),
    _list("/api/queues/{vhost}/{name}/bindings", bindings_of_queue, "The bindings of a queue"),
    _list(
        "/api/exchanges/{vhost}/{name}/bindings/source", bindings_by_source, "The bindings that begin at an exchange"
    ),
    _list(
        "/api/exchanges/{vhost}/{name}/bindings/destination",
        bindings_by_destination,
        "The bindings that end at an exchange",
    ),
)

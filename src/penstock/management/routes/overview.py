"""The broker as a whole: overview, its one node, its name, and what RabbitMQ has beside that."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Json
from penstock.management import openapi
from penstock.management.answer import Slices, json_answer
from penstock.management.body import part, read_body, required, short
from penstock.management.listing import COLUMNS, columns_of, of_kind, pick, rated
from penstock.management.login import Caller
from penstock.management.route import ADMINISTRATOR, LOGIN, MONITORING, Api, BadRequest, Route, missing
from penstock.management.routes.queues import PAST, past
from penstock.management.schema import LIST, NAME, OBJECT, STRING, obj

OBJECTS: Final = ("connections", "channels", "exchanges", "queues", "consumers")
LENGTHS: Final = ("messages", "messages_ready", "messages_unacknowledged")
QUEUE_TOTALS: Final = (*LENGTHS, *(f"{name}_details" for name in LENGTHS))
NOT_OF_VHOSTS: Final = (
    "listeners",
    "contexts",
    "churn_rates",
)  # of the broker as a whole


async def get_overview(api: Api, request: Request, caller: Caller) -> Response:
    """Who does not see all is told the sums of the vhosts that they see, and of connections their own."""
    view = api.admin.overview()
    asked = past(request)
    if not caller.sees_all():
        view = await _in_sight(api, caller, view)
    elif api.sampling is not None:
        api.sampling.rates.add_overview(view)
        if asked:
            api.sampling.history.add_samples(view, asked)
    return json_answer(pick(view, columns_of(request)))


async def _in_sight(api: Api, caller: Caller, view: dict[str, Json]) -> dict[str, Json]:
    totals: dict[str, Json] = {}
    stats: dict[str, Json] = {}
    slices = Slices()
    for name in api.sight(caller) or ():
        if name not in api.admin.vhost_names():
            continue  # it is gone meanwhile
        vhost = rated(api, "vhosts", api.admin.vhost(name))
        _sum_up(totals, {column: vhost.get(column) for column in QUEUE_TOTALS})
        _sum_up(stats, vhost.get("message_stats"))
        if slices.over():
            await slices.rest()
    objects: dict[str, Json] = {kind: len(of_kind(api, caller, kind)) for kind in OBJECTS}
    seen = {name: value for name, value in view.items() if name not in NOT_OF_VHOSTS}
    return {**seen, "object_totals": objects, "queue_totals": totals, "message_stats": stats}


def _sum_up(total: dict[str, Json], more: Json) -> None:
    """Numbers to numbers, also inside of `_details`."""
    for name, value in more.items() if isinstance(more, dict) else ():
        known = total.get(name, 0)
        if isinstance(value, dict):
            inner = total.setdefault(name, {})
            if isinstance(inner, dict):
                _sum_up(inner, value)
        elif isinstance(value, int | float) and isinstance(known, int | float):
            total[name] = known + value


def node_name(api: Api) -> str:
    return str(api.admin.node()["name"])


async def list_nodes(api: Api, request: Request, caller: Caller) -> Response:
    return json_answer([pick(api.admin.node(), columns_of(request))])


async def get_node(api: Api, request: Request, caller: Caller) -> Response:
    return json_answer(pick(node_of(api, request), columns_of(request)))


def node_of(api: Api, request: Request) -> dict[str, Json]:
    """The node that the path names."""
    node, name = api.admin.node(), part(request, "node")
    # There are tools that write `rabbit@` themselves and only ask for the host.
    if name not in (node["name"], f"rabbit@{str(node['name']).partition('@')[2]}"):
        raise missing(f"node '{name}'")
    return node


async def get_node_memory(api: Api, request: Request, caller: Caller) -> Response:
    """Python does not say what is used for what."""
    used = node_of(api, request)["mem_used"]
    return json_answer({"memory": {"total": {"rss": used, "allocated": used, "erlang": 0}, "strategy": "rss"}})


async def get_cluster_name(api: Api, request: Request, caller: Caller) -> Response:
    return json_answer({"name": api.admin.overview()["cluster_name"]})


async def put_cluster_name(api: Api, request: Request, caller: Caller) -> Response:
    body = await read_body(request, needed=True)
    required(body, "name")
    name = short(body, "name")
    if not name:
        raise BadRequest("'name' is empty")
    api.admin.put_global_parameter("cluster_name", name)
    return await api.changed()


async def list_extensions(api: Api, request: Request, caller: Caller) -> Response:
    return json_answer([])


async def list_feature_flags(api: Api, request: Request, caller: Caller) -> Response:
    return json_answer([])


async def rebalance(api: Api, request: Request, caller: Caller) -> Response:
    raise BadRequest("there is one node: queues cannot be spread over several")


async def reset(api: Api, request: Request, caller: Caller) -> Response:
    """RabbitMQ's database of statistics: there is none. Counters go on from where they are, as Prometheus wants it."""
    if "node" in request.path_params:
        node_of(api, request)
    return Response(status_code=204)


async def list_attempts(api: Api, request: Request, caller: Caller) -> Response:
    node_of(api, request)
    counts = api.attempts.counts() if api.attempts is not None else {}
    return json_answer(
        [
            {
                "protocol": protocol,
                "auth_attempts": good + bad,
                "auth_attempts_failed": bad,
                "auth_attempts_succeeded": good,
            }
            for protocol, (good, bad) in counts.items()
        ]
    )


async def reset_attempts(api: Api, request: Request, caller: Caller) -> Response:
    node_of(api, request)
    if api.attempts is not None:
        api.attempts.reset()
    return Response(status_code=204)


async def get_openapi(api: Api, request: Request, caller: Caller) -> Response:
    api.description = api.description or msgspec.json.encode(openapi.document(api.routes))
    return Response(api.description, media_type="application/json")


ROUTES: Final = (
    Route(
        "GET",
        "/api/overview",
        get_overview,
        LOGIN,
        "Totals, rates, listeners, versions",
        query=(COLUMNS, *PAST),
        answer=OBJECT,
    ),
    Route("GET", "/api/cluster-name", get_cluster_name, LOGIN, "The broker's name", answer=obj({"name": STRING})),
    Route(
        "PUT",
        "/api/cluster-name",
        put_cluster_name,
        ADMINISTRATOR,
        "Change it",
        body=obj({"name": NAME}),
        statuses=(204,),
    ),
    Route("GET", "/api/nodes", list_nodes, MONITORING, "The one node there is", query=(COLUMNS,), answer=LIST),
    Route(
        "GET",
        "/api/nodes/{node}",
        get_node,
        MONITORING,
        "Memory, disk, descriptors, store",
        query=(COLUMNS,),
        answer=OBJECT,
    ),
    Route("GET", "/api/nodes/{node}/memory", get_node_memory, MONITORING, "Memory in use", answer=OBJECT),
    Route("GET", "/api/extensions", list_extensions, LOGIN, "Extensions of the page: none", answer=LIST),
    Route("GET", "/api/feature-flags", list_feature_flags, ADMINISTRATOR, "RabbitMQ's: none", answer=LIST),
    Route("POST", "/api/rebalance/queues", rebalance, ADMINISTRATOR, "Refused: there is one node"),
    Route("DELETE", "/api/reset", reset, ADMINISTRATOR, "Nothing: there is no database of statistics", statuses=(204,)),
    Route("DELETE", "/api/reset/{node}", reset, ADMINISTRATOR, "The same", statuses=(204,)),
    Route("GET", "/api/auth/attempts/{node}", list_attempts, MONITORING, "Logins, by protocol", answer=LIST),
    Route(
        "DELETE", "/api/auth/attempts/{node}", reset_attempts, ADMINISTRATOR, "Count them from 0 again", statuses=(204,)
    ),
    Route("GET", "/api/openapi.json", get_openapi, LOGIN, "This table, as OpenAPI", answer=OBJECT),
)

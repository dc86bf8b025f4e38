"""Health that tells the truth: whether the process lives, and whether it takes messages.

RabbitMQ's checks have RabbitMQ's paths and words; 503 is unhealthy. While an alarm blocks publishers, the broker is not
ready: a load balancer should know.
"""

from __future__ import annotations

import time
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Json
from penstock.management.answer import json_answer
from penstock.management.body import part
from penstock.management.login import Caller
from penstock.management.route import CHANGE, LOGIN, PUBLIC, Api, BadRequest, Handler, Route
from penstock.management.routes.exchanges import published
from penstock.management.routes.overview import node_name, node_of
from penstock.management.routes.queues import got
from penstock.management.schema import STRING, obj

UNITS_S: Final = {"days": 86_400, "weeks": 7 * 86_400, "months": 30 * 86_400, "years": 365 * 86_400}
WITHIN_DIGITS_MAX: Final = 6
PORT_DIGITS_MAX: Final = 9
PROTOCOLS: Final = {
    "amqp091": "amqp",
    "amqp0.9.1": "amqp",
    "amqp0-9-1": "amqp",
    "amqps": "amqp/ssl",
    "amqp091/ssl": "amqp/ssl",
}
PROBE: Final = "aliveness-test"


def _ok(**more: Json) -> Response:
    return json_answer({"status": "ok", **more})


def _failed(reason: str, **more: Json) -> Response:
    return json_answer({"status": "failed", "reason": reason, **more}, 503)


async def live(api: Api, request: Request, caller: Caller) -> Response:
    return _ok()


async def ready(api: Api, request: Request, caller: Caller) -> Response:
    alarms = api.admin.alarms()
    if not alarms:
        return _ok()
    reasons = "; ".join(str(alarm["reason"]) for alarm in alarms)
    return _failed(f"publishers are blocked: {reasons}", alarms=[*alarms])


async def alarms_check(api: Api, request: Request, caller: Caller) -> Response:
    found = api.admin.alarms()
    if not found:
        return _ok()
    node = node_name(api)
    where = "on the node" if request.url.path.endswith("local-alarms") else "in the cluster"
    listed: list[Json] = [{"node": node, "resource": one["source"], "reason": one["reason"]} for one in found]
    return _failed(f"There are alarms in effect {where}", alarms=listed)


async def single_node(api: Api, request: Request, caller: Caller) -> Response:
    return _ok(reason="single node cluster")


def _listeners(api: Api) -> list[dict[str, Json]]:
    found = api.admin.overview()["listeners"]
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


async def port_listener(api: Api, request: Request, caller: Caller) -> Response:
    text = part(request, "port")
    if not (text.isascii() and text.isdigit() and len(text) <= PORT_DIGITS_MAX):
        raise BadRequest("Invalid port")
    ports: list[Json] = [one["port"] for one in _listeners(api)]
    if int(text) in ports:
        return _ok(port=int(text))
    return _failed("No active listener", missing=int(text), ports=ports)


async def protocol_listener(api: Api, request: Request, caller: Caller) -> Response:
    name = part(request, "protocol")
    wanted = PROTOCOLS.get(name, name)
    protocols: list[Json] = [one["protocol"] for one in _listeners(api)]
    if wanted in protocols:
        return _ok(protocol=wanted)
    return _failed("No active listener", missing=name, protocols=protocols)


async def virtual_hosts(api: Api, request: Request, caller: Caller) -> Response:
    """A vhost that is there runs."""
    return _ok()


async def certificates(api: Api, request: Request, caller: Caller) -> Response:
    within, unit = part(request, "within"), part(request, "unit")
    if unit not in UNITS_S:
        raise BadRequest("Time unit not recognised. Supported units: days, weeks, months, years.")
    if not (within.isascii() and within.isdigit() and len(within) <= WITHIN_DIGITS_MAX):
        raise BadRequest("Invalid expiration value.")
    limit_s = time.time() + int(within) * UNITS_S[unit]
    expiring: list[Json] = [
        {"certificate": name, "expires": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end_s))}
        for name, end_s in api.certificates()
        if end_s < limit_s
    ]
    return _failed("Certificates expiring", expired=expiring) if expiring else _ok()


async def node_check(api: Api, request: Request, caller: Caller) -> Response:
    """RabbitMQ's oldest check, which clients still ask for: 200 either way, and the truth in the body."""
    if "node" in request.path_params:
        node_of(api, request)
    alarms = api.admin.alarms()
    if not alarms:
        return _ok()
    return json_answer({"status": "failed", "reason": "; ".join(str(alarm["reason"]) for alarm in alarms)})


async def aliveness(api: Api, request: Request, caller: Caller) -> Response:
    """A message through a queue of its own, as the caller; the queue stays, as in RabbitMQ."""
    vhost = part(request, "vhost")
    alarms = api.admin.alarms()
    if alarms:
        return _failed("; ".join(str(alarm["reason"]) for alarm in alarms))
    api.admin.declare_queue(vhost, PROBE, False, False, {}, user=caller.name)
    await published(api, vhost, "", PROBE, {}, b"test_message", caller)
    found = await got(api, vhost, PROBE, 1, "ack_requeue_false", 100, "auto", caller)
    return _ok() if found else _failed("the message did not come back")


STATUS: Final = obj({"status": STRING})


def _check(path: str, handler: Handler, summary: str) -> Route:
    return Route("GET", "/api/health/checks/" + path, handler, LOGIN, summary, answer=STATUS, statuses=(503,))


ROUTES: Final = (
    Route("GET", "/health/live", live, PUBLIC, "The process lives", answer=STATUS),
    Route("GET", "/health/ready", ready, LOGIN, "It takes messages: no alarm is on", answer=STATUS, statuses=(503,)),
    _check("alarms", alarms_check, "No alarm blocks publishers"),
    _check("local-alarms", alarms_check, "The same"),
    _check("node-is-quorum-critical", single_node, "One node: always well"),
    _check("node-is-mirror-sync-critical", single_node, "One node: always well"),
    _check("port-listener/{port}", port_listener, "Somebody listens on this port"),
    _check("protocol-listener/{protocol}", protocol_listener, "Somebody listens for amqp, amqps, http"),
    _check("virtual-hosts", virtual_hosts, "All vhosts run"),
    _check(
        "certificate-expiration/{within}/{unit}",
        certificates,
        "No certificate ends within so many days, weeks, months or years",
    ),
    Route("GET", "/api/healthchecks/node", node_check, LOGIN, "No alarm is on; 200 if one is, too", answer=STATUS),
    Route("GET", "/api/healthchecks/node/{node}", node_check, LOGIN, "The same", answer=STATUS),
    Route(
        "GET",
        "/api/aliveness-test/{vhost}",
        aliveness,
        CHANGE,
        "Declare, publish, get, as I",
        answer=STATUS,
        statuses=(503,),
    ),
)

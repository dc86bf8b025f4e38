"""Metrics: GET /metrics for Prometheus: the whole broker; GET /metrics/per-object: every queue, channel and connection.

Place: one of the API's parts with routes of its own; needs a login as every other (Prometheus has basic_auth for it).
/metrics costs the same whatever the number of queues. /metrics/per-object walks through all of them, in slices, and the
broker has its turn between two of them.
Not here: names and meanings (families.py), the text format (exposition.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Json
from penstock.management import exposition
from penstock.management.answer import Pieces, Slices
from penstock.management.exposition import END, OPEN, PLAIN, Labels, Number, escape, lines, number, wants_open
from penstock.management.families import (
    ALARM,
    BUILD,
    CHANNEL,
    CONNECTION,
    GLOBAL,
    HOPS,
    IDENTITY,
    LINK,
    MAILBOX,
    MAILBOXES,
    QUEUE,
    SOURCES,
    STAGES,
    SYNC,
    VERSION,
    PerObject,
)
from penstock.management.families import PLAIN as PLAIN_FAMILIES
from penstock.management.login import Caller
from penstock.management.route import MONITORING, Api, BadRequest, Route
from penstock.management.sampling import WALKS_MAX

PIECE_CHARACTERS: Final = 262_144  # sent at once
STEP: Final = 100  # objects whose lines are made at once, in half a millisecond
EACH: Final = frozenset(one.family.name for families in (QUEUE, CHANNEL, CONNECTION) for one in families)
PROTOCOL: Final[Labels] = (("protocol", "amqp091"),)
# Kind of list, its families, and the labels of an object.
LISTED: Final = (
    ("queues", QUEUE, ("vhost", "queue")),
    ("channels", CHANNEL, ("channel",)),
    ("connections", CONNECTION, ("connection",)),
)

View = Mapping[str, Json]


class Listed(Protocol):
    """What is asked of a list of the broker's."""

    def __len__(self) -> int: ...
    def name(self, at: int, /) -> str: ...
    def vhost(self, at: int, /) -> str: ...
    def values(self, column: str, begin: int, end: int, /) -> list[Json]: ...


# The whole broker.


def gather(api: Api) -> dict[str, View]:
    """All numbers of /metrics, by section."""
    overview, node, totals = api.admin.overview(), api.admin.node(), api.admin.flow_totals()
    assert api.sampling is not None
    history = api.sampling.history
    return {
        "overview": overview,
        **{name: _part(overview, name) for name in ("message_stats", "churn_rates", "queue_totals", "object_totals")},
        "node": node,
        "store": _part(node, "store"),
        "flow": totals,
        "stages": _part(totals, "stages"),
        "hops": _part(totals, "hops"),
        "events": _part(totals, "events"),
        "alarms": {str(alarm["source"]): 1 for alarm in api.admin.alarms()},
        "process": {
            "lag_s": history.lag_s,
            "lag_worst_s": history.lag_worst_s,
            "cpu_s": time.process_time(),
            "started_s": api.sampling.started_s(number(node.get("uptime")) / 1000),
        },
    }


def whole(sections: Mapping[str, View], is_open: bool, left_out: frozenset[str] = frozenset()) -> Iterator[str]:
    """Family by family; those that are left out are shown per object."""
    yield exposition.family(BUILD, [(_versions(sections["overview"]), 1)], is_open)
    yield exposition.family(IDENTITY, [(_identity(sections["overview"]), 1)], is_open)
    version = str(sections["overview"].get("product_version", ""))
    yield exposition.family(VERSION, [((("version", version),), 1)], is_open)
    for plain in PLAIN_FAMILIES:
        if plain.family.name not in left_out:
            value = number(sections[plain.section].get(plain.key))
            yield exposition.family(plain.family, [((), value * plain.scale)], is_open)
    for plain in GLOBAL:
        value = number(sections[plain.section].get(plain.key))
        yield exposition.family(plain.family, [(PROTOCOL, value)], is_open)
    for family, key in STAGES:
        yield exposition.family(family, _by("stage", sections["stages"], key), is_open)
    for family, key in HOPS:
        yield exposition.family(family, _by("hop", sections["hops"], key), is_open)
    waiting = [((("stage", stage),), number(_part(sections["hops"], hop).get("in_flight"))) for stage, hop in MAILBOXES]
    yield exposition.family(MAILBOX, waiting, is_open)
    alarms = [((("source", source),), number(sections["alarms"].get(source))) for source in SOURCES]
    yield exposition.family(ALARM, alarms, is_open)
    yield _syncs(sections["store"], is_open)


def _versions(overview: View) -> Labels:
    product = str(overview.get("product_name", "")), str(overview.get("product_version", ""))
    return (
        ("rabbitmq_version", str(overview.get("rabbitmq_version", ""))),
        ("prometheus_plugin_version", product[1]),
        ("prometheus_client_version", product[1]),
        ("erlang_version", str(overview.get("erlang_version", ""))),
        ("product_name", product[0]),
        ("product_version", product[1]),
    )


def _identity(overview: View) -> Labels:
    cluster = str(overview.get("cluster_name", ""))
    return (
        ("rabbitmq_node", str(overview.get("node", ""))),
        ("rabbitmq_cluster", cluster),
        ("rabbitmq_cluster_permanent_id", cluster),
    )


def _by(label: str, parts: View, key: str) -> list[tuple[Labels, Number]]:
    return [(((label, name),), number(_part(parts, name).get(key))) for name in parts]


def _syncs(store: View, is_open: bool) -> str:
    bounds = [float(number(bound)) for bound in _list(store, "sync_bounds_s")]
    counts = [int(number(count)) for count in _list(store, "sync_counts")]
    return exposition.histogram(SYNC, bounds, counts or [0], number(store.get("sync_seconds")), is_open)


# Every object.


async def per_object(api: Api, is_open: bool) -> AsyncIterator[str]:
    """Family by family, in pieces."""
    for kind, families, names in LISTED:
        for text in await _walk(api.admin.listing(kind), families, names, is_open):
            for begin in range(0, len(text), PIECE_CHARACTERS):
                yield text[begin : begin + PIECE_CHARACTERS]
                await asyncio.sleep(0)  # sending does not wait as long as there is room in the socket
    links = [link for link in _list(api.admin.flow(), "links") if isinstance(link, dict)]
    for family, column in LINK:
        samples = [(_ends(link), number(link.get(column))) for link in links]
        yield exposition.family(family, samples, is_open)


async def _walk(
    listing: Listed, families: tuple[PerObject, ...], names: tuple[str, ...], is_open: bool
) -> Iterator[str]:
    """The text of each family. All objects are looked at before the first line goes out, since the lines of a family
    must stand together; by columns, which cost much less than a view of each."""
    texts = [[one.family.head(is_open)] for one in families]
    slices = Slices()
    for begin in range(0, len(listing), STEP):
        end = min(begin + STEP, len(listing))
        labels = [_label(names, listing.vhost(at), listing.name(at)) for at in range(begin, end)]
        for one, text in zip(families, texts):
            text.append(lines(one.family.name, labels, listing.values(one.column, begin, end)))
        if slices.over():
            await slices.rest()
    return ("".join(text) for text in texts)


def _label(names: tuple[str, ...], vhost: str, name: str) -> str:
    """With the space behind it."""
    if len(names) == 1:
        return f'{{{names[0]}="{escape(name)}"}} '
    return f'{{{names[0]}="{escape(vhost)}",{names[1]}="{escape(name)}"}} '


def _ends(link: View) -> Labels:
    return tuple((name, str(link.get(name, ""))) for name in ("hop", "upstream", "downstream"))


def _part(view: View, name: str) -> View:
    part = view.get(name)
    return part if isinstance(part, dict) else {}


def _list(view: View, name: str) -> list[Json]:
    part = view.get(name)
    return part if isinstance(part, list) else []


# Requests.


async def get_metrics(api: Api, request: Request, caller: Caller) -> Response:
    is_open = wants_open(request.headers.get("accept", ""))
    text = "".join(whole(gather(api), is_open))
    return Response(text + END if is_open else text, media_type=OPEN if is_open else PLAIN)


async def get_per_object(api: Api, request: Request, caller: Caller) -> Response:
    assert api.sampling is not None
    if api.sampling.walks.locked():
        raise BadRequest(f"{WALKS_MAX} such answers are being made already", "service_unavailable", 503)
    is_open = wants_open(request.headers.get("accept", ""))
    return Pieces(_everything(api, api.sampling.walks, is_open), media_type=OPEN if is_open else PLAIN)


async def _everything(api: Api, walks: asyncio.Semaphore, is_open: bool) -> AsyncIterator[str]:
    async with walks:
        yield "".join(whole(gather(api), is_open, EACH))
        async for piece in per_object(api, is_open):
            yield piece
        if is_open:
            yield END


ROUTES: Final = (
    Route("GET", "/metrics", get_metrics, MONITORING, "All numbers of the broker, for Prometheus", media="text/plain"),
    Route(
        "GET",
        "/metrics/per-object",
        get_per_object,
        MONITORING,
        "The same, for every queue, channel and connection",
        statuses=(200, 503),
        media="text/plain",
    ),
)

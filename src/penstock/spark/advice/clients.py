"""Clients: what the tables do not know and the running broker tells over HTTP: settings, windows, prefetches, marks.

A confirm window is seen, not told: the most that a channel ever has unconfirmed, and that its connection has parked, is
what its client allows itself. So they are looked at several times.
Marks have a ceiling: the queue's own arguments, since of these and a policy the smallest number counts; and what its
maximum allows, so that advice never trades confirms that are held for messages that are lost.
Upstream: adviser.py, with an HTTP API that pipeline/advise.py gives it.  Downstream: load.py.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final, Protocol
from urllib.parse import quote

from penstock.spark.complaint import Complaint

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Row = dict[str, Json]

LOOKS: Final = 12  # at the channels
PAUSE_S: Final = 0.15
STREAM_OF_EVENTS: Final = "penstock.events"
NO_CEILING: Final = 2**62  # more than any queue has
# How clients spell a queue's own marks; the first that is there counts.
STOP_SPELLINGS: Final = ("x-flow-stop-count", "qpid.flow_stop_count")
RESUME_SPELLINGS: Final = ("x-flow-resume-count", "qpid.flow_resume_count")
BLOCK_PUBLISH: Final = "block-publish"
STOP_PERCENT: Final = 80  # of a maximum: the broker's own stop mark for a queue that blocks there


class Api(Protocol):
    """A running broker's HTTP API: console/site.py has one. What goes wrong is an error of one line."""

    def get(self, *path: str, **query: str) -> Json: ...

    def put(self, *path: str, body: Json = None) -> Json: ...

    def delete(self, *path: str, **query: str) -> Json: ...


@dataclass(frozen=True, slots=True)
class Publishing:
    """A channel that publishes."""

    connection: str  # by its stage's name: `connection 10.0.0.5:50112 -> 10.0.0.1:5672`
    confirms: bool
    unconfirmed_max: int
    unconfirmed_mean: float
    parked_max_bytes: int = 0  # of its connection: sent by the client, and not yet seen by the channel


@dataclass(frozen=True, slots=True)
class Consuming:
    """A consumer of a queue."""

    queue: str  # by its stage's name
    acks: bool
    prefetch: int  # 0: no limit


@dataclass(frozen=True, slots=True)
class Clients:
    settings: dict[str, str] = field(default_factory=dict)  # of the broker, by their names
    publishing: tuple[Publishing, ...] = ()
    consuming: tuple[Consuming, ...] = ()
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)  # queue -> stop, resume, in messages
    marked: dict[str, tuple[str, str]] = field(default_factory=dict)  # the same queues -> vhost, name
    ceilings: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # queue -> the largest stop and resume that count
    in_bytes: tuple[str, ...] = ()  # queues with marks in bytes, by their stages' names


def ask(api: Api, looks: int = LOOKS, pause_s: float = PAUSE_S) -> Clients:
    """What the broker says now."""
    settings = {str(row["name"]): str(row["value"]) for row in rows_of(api.get("settings"))}
    seen: dict[str, list[int]] = {}
    parked: dict[str, int] = {}
    confirms: dict[str, tuple[str, bool]] = {}
    marks: dict[str, tuple[int, int]] = {}
    marked: dict[str, tuple[str, str]] = {}
    in_bytes: dict[str, None] = {}
    for look in range(looks):
        if look:
            time.sleep(pause_s)
        flow = api.get("flow")
        for row, mark in _marks(flow):
            marks[str(row["id"])] = mark
            marked[str(row["id"])] = (str(row["vhost"]), str(row["name"]))
        in_bytes.update(dict.fromkeys(_marked_in_bytes(flow)))
        for connection, size in _parked(flow):
            parked[connection] = max(size, parked.get(connection, 0))
        for row in rows_of(api.get("channels")):
            rates = row.get("message_stats")
            details = rates.get("publish_details") if isinstance(rates, dict) else None
            if not isinstance(details, dict) or not details.get("rate"):
                continue
            name = str(row["name"])
            seen.setdefault(name, []).append(_whole(row.get("messages_unconfirmed")))
            confirms[name] = ("connection " + name.rpartition(" (")[0], bool(row.get("confirm")))
    return Clients(
        settings=settings,
        publishing=tuple(
            Publishing(*confirms[name], max(counts), sum(counts) / len(counts), parked.get(confirms[name][0], 0))
            for name, counts in seen.items()
        ),
        consuming=tuple(_consumer(row) for row in rows_of(api.get("consumers"))),
        marks=marks,
        marked=marked,
        ceilings=_ceilings(api, marks, marked) if marked else {},
        in_bytes=tuple(in_bytes),
    )


def stage_of(row: Row) -> str:
    """A queue's name as events have it: broker/activity.py:stage_name."""
    vhost, name = str(row.get("vhost")), str(row.get("name"))
    if vhost == "/" and "/" not in name:
        return f"queue {name}"
    return f"queue {quote(vhost, safe='')}/{name}"


def _consumer(row: Row) -> Consuming:
    queue = row.get("queue")
    return Consuming(
        queue=stage_of(queue) if isinstance(queue, dict) else "",
        acks=bool(row.get("ack_required")),
        prefetch=_whole(row.get("prefetch_count")),
    )


def _parked(flow: Json) -> list[tuple[str, int]]:
    stages = flow.get("stages") if isinstance(flow, dict) else None
    return [(str(row["id"]), _whole(row["parked_bytes"])) for row in rows_of(stages) if "parked_bytes" in row]


def _marks(flow: Json) -> list[tuple[Row, tuple[int, int]]]:
    """Queues with their stop and resume marks, in messages, as the broker makes them of arguments and policies."""
    stages = flow.get("stages") if isinstance(flow, dict) else None
    found: list[tuple[Row, tuple[int, int]]] = []
    for row in rows_of(stages):
        mark = row.get("watermark")
        if isinstance(mark, dict) and (stop := _whole(mark.get("stop_count"))):
            found.append((row, (stop, _whole(mark.get("resume_count")))))
    return found


def _marked_in_bytes(flow: Json) -> list[str]:
    stages = flow.get("stages") if isinstance(flow, dict) else None
    marks = ((row, row.get("watermark")) for row in rows_of(stages))
    return [str(row["id"]) for row, mark in marks if isinstance(mark, dict) and _whole(mark.get("stop_bytes"))]


def _ceilings(
    api: Api, marks: dict[str, tuple[int, int]], marked: dict[str, tuple[str, str]]
) -> dict[str, tuple[int, int]]:
    rows = rows_of(api.get("queues", columns="vhost,name,arguments,effective_policy_definition"))
    places = {(str(row.get("vhost")), str(row.get("name"))): row for row in rows}
    return {stage: _ceiling(places[place], marks[stage][0]) for stage, place in marked.items() if place in places}


def _ceiling(queue: Row, stop_now: int) -> tuple[int, int]:
    """The largest stop and resume mark that a policy can give this queue without losing what is held back now."""
    arguments, policy = queue.get("arguments"), queue.get("effective_policy_definition")
    own = arguments if isinstance(arguments, dict) else {}
    given = policy if isinstance(policy, dict) else {}
    # A stop mark of 0 is none; a resume mark of 0 is one.
    stop = next((_whole(own[name]) for name in STOP_SPELLINGS if name in own), 0) or NO_CEILING
    resume = next((_whole(own[name]) for name in RESUME_SPELLINGS if name in own), NO_CEILING)
    lengths = [_whole(one) for one in (own.get("x-max-length"), given.get("max-length")) if one is not None]
    is_bounded = bool(lengths) or "x-max-length-bytes" in own or "max-length-bytes" in given
    if not is_bounded:
        return stop, resume
    if own.get("x-overflow", given.get("overflow")) != BLOCK_PUBLISH:
        # It drops or refuses at its maximum. The twin knows no maximum, so it is not moved any nearer to it.
        return min(stop, stop_now), resume
    # As the broker's own mark has it: above that its publishers' channels are blocked before confirms are held.
    return min([stop, *(max(stop_now, one * STOP_PERCENT // 100) for one in lengths)]), resume


def _whole(value: Json) -> int:
    return int(value) if isinstance(value, (int, float)) else 0


def object_of(value: Json) -> Row:
    if not isinstance(value, dict):
        raise Complaint("the answer is not an object: is this a broker's HTTP API?")
    return value


def rows_of(value: Json) -> list[Row]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []

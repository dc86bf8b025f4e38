"""Flow API: GET /api/flow, what blocks what and why, and GET /api/flow/history, the minute before and past verdicts.

Place: api.py makes the FlowWatch, the listener runs it beside the API; handlers ask it. Once a second it looks whether
anything was blocked since the last time, which costs microseconds; only then does it take a snapshot and keep what is
in it, in slices between which the broker has its turns.
Not here: the snapshot (broker/snapshot/flow.py), what it means (flow/).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Json
from penstock.flow.history import MINUTE_S, History, Sample, Shares
from penstock.flow.past import Past
from penstock.flow.state import State, read_state
from penstock.flow.verdict import Verdict, each_verdict, worst_first
from penstock.management import schema
from penstock.management.answer import Slices, json_answer
from penstock.management.login import Caller
from penstock.management.route import MONITORING, Api, BadRequest, Query, Route

STEP_S: Final = 1.0
AGE_S_MAX: Final = int(MINUTE_S)
ROWS_MAX: Final = 500  # stages in a history: as many as a snapshot has


class Watched(Protocol):
    """What is asked of the broker."""

    def flow(self) -> dict[str, Json]: ...

    def flow_pulse(self) -> tuple[int, int, int]: ...


class FlowWatch:
    """The last minute of a broker, and the verdicts of its life."""

    __slots__ = ("_admin", "_blocks", "_history", "_past")

    def __init__(self, admin: Watched) -> None:
        self._admin = admin
        self._history = History()
        self._past = Past()
        self._blocks = -1  # that had begun when it last looked; at first it looks anyway, for what was before

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(STEP_S)

    async def look(self) -> None:
        """One more second."""
        blocks, blocked, saturated = self._admin.flow_pulse()
        is_quiet = blocks == self._blocks and not blocked and not saturated
        self._blocks = blocks
        # A verdict stays for some seconds after the last block: as long as one does, it is looked at.
        if is_quiet and not self._past.running():
            self._history.quiet(time.monotonic(), int(time.time() * 1000))
            return
        json = self._admin.flow()
        await asyncio.sleep(0)
        state = read_state(json)
        await asyncio.sleep(0)
        self._history.add(state)
        await asyncio.sleep(0)
        self._past.note(await _verdicts(state, self._history.shares(state)), state.at_ms)

    async def now(self) -> dict[str, object]:
        """The snapshot, with shares and verdicts in it."""
        json = self._admin.flow()
        await asyncio.sleep(0)
        state = read_state(json)
        await asyncio.sleep(0)
        shares = self._history.shares(state)
        await asyncio.sleep(0)
        _add_shares(json, shares)
        await asyncio.sleep(0)
        found = await _verdicts(state, shares)
        return {**json, "blocked": bool(found), "verdicts": [verdict.json() for verdict in found]}

    async def past(self, age_s: int) -> dict[str, object]:
        """Of the last seconds the blocked share of each stage, and the verdicts that are kept."""
        samples = [one for one in self._history.samples if one.at_s > time.monotonic() - age_s]
        slices = Slices()
        total: dict[str, float] = {}
        for sample in samples:
            for id_, seconds in (*sample.stages.items(), *sample.held.items()):
                total[id_] = total.get(id_, 0.0) + seconds
            if slices.over():
                await slices.rest()
        rows: dict[str, list[float]] = {}
        for id_ in sorted(total, key=lambda id_: (-total[id_], id_))[:ROWS_MAX]:
            rows[id_] = [_share(sample, id_) for sample in samples]
            if slices.over():
                await slices.rest()
        return {
            "step_s": STEP_S,
            "at_ms": [sample.at_ms for sample in samples],
            "stages": rows,
            "verdicts": [entry.json() for entry in self._past.entries()],
        }


async def _verdicts(state: State, shares: Shares) -> list[Verdict]:
    found, slices = [], Slices()
    for verdict in each_verdict(state, shares):
        found.append(verdict)
        if slices.over():
            await slices.rest()
    return worst_first(found)


def _share(sample: Sample, id_: str) -> float:
    """The part of this step in which the stage was blocked or, a connection, waited for confirms."""
    seconds = max(sample.stages.get(id_, 0.0), sample.held.get(id_, 0.0))
    return round(min(1.0, seconds / sample.step_s), 4) if seconds else 0.0


def _add_shares(json: dict[str, Json], shares: Shares) -> None:
    stages, links = json.get("stages"), json.get("links")
    if isinstance(stages, list):
        for stage in stages:
            if isinstance(stage, dict):
                stage["share_1m"] = round(shares.share_1m(str(stage.get("id"))), 4)
    if isinstance(links, list):
        for link in links:
            if isinstance(link, dict):
                edge = (str(link.get("upstream")), str(link.get("downstream")))
                link["share_1m"] = round(shares.edge_share_1m(edge), 4)


# Handlers.


async def get_flow(api: Api, request: Request, caller: Caller) -> Response:
    return json_answer(await _watch(api).now())


async def get_history(api: Api, request: Request, caller: Caller) -> Response:
    return json_answer(await _watch(api).past(_age(request.query_params)))


def _watch(api: Api) -> FlowWatch:
    assert api.flow is not None
    return api.flow


def _age(query: Mapping[str, str]) -> int:
    text = query.get("age", str(AGE_S_MAX))
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= AGE_S_MAX):
        raise BadRequest(f"'age' is not a whole number of seconds from 1 to {AGE_S_MAX}")
    return int(text)


_VERDICT: Final = schema.obj(
    {
        "connection": schema.STRING,
        "id": schema.STRING,
        "name": schema.STRING,
        "user": schema.STRING,
        "vhost": schema.STRING,
        "cause": schema.one_of(
            "channel", "queue", "store", "dead letters", "memory", "disk", "store fault", "saturated", "unknown"
        ),
        "bottleneck": schema.either(schema.STRING, {"type": "null"}),
        "chain": schema.array(schema.STRING),
        "since_s": schema.NUMBER,
        "share_1m": schema.NUMBER,
        "resource": schema.STRING,
        "sentence": schema.STRING,
        "knobs": schema.array(
            schema.obj(
                {
                    "setting": schema.STRING,
                    "value": schema.STRING,
                    "advice": schema.STRING,
                    "kind": schema.one_of("setting", "policy", "client", "machine"),
                },
                {"policy": schema.obj({"vhost": schema.STRING, "queue": schema.STRING, "key": schema.STRING})},
            )
        ),
        "also": schema.array(schema.STRING),
    }
)
_FLOW: Final = schema.obj(
    {
        "version": schema.INTEGER,
        "at_ms": schema.INTEGER,
        "at_ns": schema.INTEGER,
        "stages": schema.LIST,
        "links": schema.LIST,
        "left_out": schema.INTEGER,
        "alarms": schema.LIST,
        "store": schema.OBJECT,
        "settings": schema.OBJECT,
        "blocked": schema.BOOLEAN,
        "verdicts": schema.array(_VERDICT),
    }
)
_HISTORY: Final = schema.obj(
    {
        "step_s": schema.NUMBER,
        "at_ms": schema.array(schema.INTEGER),
        "stages": {"type": "object", "additionalProperties": schema.array(schema.NUMBER)},
        "verdicts": schema.LIST,
    }
)
_AGE: Final = Query("age", {"type": "integer", "minimum": 1, "maximum": AGE_S_MAX}, "seconds, 60 by default")

ROUTES: Final = (
    Route("GET", "/api/flow", get_flow, MONITORING, "What blocks what, and a verdict per publisher", answer=_FLOW),
    Route(
        "GET",
        "/api/flow/history",
        get_history,
        MONITORING,
        "Blocked shares of each stage by second, and verdicts with begin and end",
        query=(_AGE,),
        answer=_HISTORY,
    ),
)

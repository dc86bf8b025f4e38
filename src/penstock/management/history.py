"""History: the whole broker over the last minute, hour and day, for charts.

Place: beside the API, in the same event loop; one look a second, whatever the number of queues. A look is the counters
as they are, so a rate over any stretch is a difference, and RabbitMQ's samples come from the same rows.
Three rings: every second for a minute, every 10 s for an hour, every 5 min for a day; some 200 kB together. The last
row of a ring is always the newest look. Lengths are those at the end of a step; `blocked_connections` is the most that
there were at any look of it.
Not here: rates of single objects (rates.py), who was blocked by what (flow/).
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, Protocol

from starlette.requests import Request
from starlette.responses import Response

from penstock.broker.admin import Json
from penstock.management.answer import json_answer
from penstock.management.login import Caller
from penstock.management.route import MONITORING, Api, BadRequest, Query, Route
from penstock.management.samples import Ask, Look, Span, add_samples
from penstock.management.schema import INTEGER, OBJECT, obj
from penstock.management.schema import array as array_of

TICK_S: Final = 1.0
RINGS: Final = ((1, 60), (10, 3600), (300, 86_400))  # step and age, in seconds
AGE_S: Final = 60
AGE_MAX_S: Final = 86_400
AGE_DIGITS_MAX: Final = 5

# The columns of a row. What only grows:
COUNTERS: Final = (
    "publish",
    "confirm",
    "return_unroutable",
    "drop_unroutable",
    "deliver",
    "deliver_no_ack",
    "get",
    "get_no_ack",
    "get_empty",
    "deliver_get",
    "redeliver",
    "ack",
    "disk_reads",
    "disk_writes",
)
SYNCS: Final = ("syncs", "sync_seconds")
TOTALS: Final = ("messages_ready", "messages_unacknowledged")
OBJECTS: Final = ("connections", "channels", "queues", "consumers")
NODE: Final = (  # name here, name in the node's view
    ("memory_used", "mem_used"),
    ("memory_limit", "mem_limit"),
    ("disk_free", "disk_free"),
    ("disk_free_limit", "disk_free_limit"),
)
BLOCKED: Final = "blocked_connections"
COLUMNS: Final = (*COUNTERS, *SYNCS, *TOTALS, *OBJECTS, *(name for name, _ in NODE), BLOCKED)
LEVELS: Final = (*TOTALS, *OBJECTS, *(name for name, _ in NODE), BLOCKED)  # shown as they are
RATED: Final = ("publish", "confirm", "deliver_get", "ack", "redeliver", "get", "return_unroutable", "drop_unroutable")
PLACE: Final = {name: at for at, name in enumerate(COLUMNS)}

View = dict[str, Json]


class Observed(Protocol):
    """What is asked of the broker; all of it without a walk through its queues."""

    def overview(self) -> View: ...
    def node(self) -> View: ...
    def flow_totals(self, hops: bool = True) -> View: ...


class Ring:
    """Rows of one step: the newest is replaced until its step is over."""

    __slots__ = ("_step", "age_s", "rows", "step_s")

    def __init__(self, step_s: int, age_s: int) -> None:
        self.step_s = step_s
        self.age_s = age_s
        self.rows: deque[tuple[int, array[float]]] = deque(maxlen=age_s // step_s + 1)
        self._step = -1

    def add(self, tick: int, at_ms: int, row: array[float]) -> None:
        step = tick // self.step_s
        if step == self._step and self.rows:
            worst = max(row[PLACE[BLOCKED]], self.rows[-1][1][PLACE[BLOCKED]])
            row = array("d", row)
            row[PLACE[BLOCKED]] = worst
            self.rows[-1] = (at_ms, row)
        else:
            self._step = step
            self.rows.append((at_ms, row))


class History:
    __slots__ = ("_admin", "_ticks", "lag_s", "lag_worst_s", "rings")

    def __init__(self, admin: Observed) -> None:
        self._admin = admin
        self._ticks = 0
        self.rings = [Ring(step_s, age_s) for step_s, age_s in RINGS]
        self.lag_s = 0.0  # how late the last look came: how long the event loop was held just then
        self.lag_worst_s = 0.0

    async def run(self) -> None:
        """Look every TICK_S, until cancelled."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            self.tick()
            due_s = max(due_s + TICK_S, loop.time())  # looks that were missed are not made up for
            await asyncio.sleep(due_s - loop.time())
            self.lag_s = max(0.0, loop.time() - due_s)
            self.lag_worst_s = max(self.lag_worst_s, self.lag_s)

    def tick(self, clock: Callable[[], float] = time.time) -> None:
        row = self._look()
        at_ms = int(clock() * 1000)
        for ring in self.rings:
            ring.add(self._ticks, at_ms, row)
        self._ticks += 1

    def _look(self) -> array[float]:
        overview, node, totals = self._admin.overview(), self._admin.node(), self._admin.flow_totals(hops=False)
        stats, lengths, objects = (_part(overview, name) for name in ("message_stats", "queue_totals", "object_totals"))
        store = _part(node, "store")
        stages = _part(totals, "stages")
        return array(
            "d",
            (
                *(_number(stats, name) for name in COUNTERS),
                *(_number(store, name) for name in SYNCS),
                *(_number(lengths, name) for name in TOTALS),
                *(_number(objects, name) for name in OBJECTS),
                *(_number(node, name) for _, name in NODE),
                _number(_part(stages, "connection"), "blocked"),
            ),
        )

    # What was seen.

    def series(self, age_s: int) -> View:
        """The last `age_s` seconds, in the finest steps that reach so far back; rates are per second."""
        ring = self._ring(age_s)
        newest_ms = ring.rows[-1][0] if ring.rows else 0
        since_ms = newest_ms - age_s * 1000
        rows = [row for row in ring.rows if row[0] >= since_ms]
        pairs = list(pairwise(rows))
        series: dict[str, Json] = {name: [_rate(PLACE[name], *pair) for pair in pairs] for name in RATED}
        series |= {name: [row[PLACE[name]] for _, (_, row) in pairs] for name in LEVELS}
        series["sync_ms"] = [_sync_ms(before[1], now[1]) for before, now in pairs]
        return {"step_s": ring.step_s, "at_ms": [at_ms for _, (at_ms, _) in pairs], "series": series}

    def add_samples(self, overview: View, ask: Ask) -> None:
        """RabbitMQ's samples of the overview, after its rates were added."""
        for name, span in (("message_stats", ask.rates), ("queue_totals", ask.lengths)):
            part = overview.get(name)
            if isinstance(part, dict) and span is not None:
                add_samples(part, COLUMNS, self._looks(span), span)

    def _looks(self, span: Span) -> Sequence[Look]:
        return self._ring(span.age_s).rows

    def _ring(self, age_s: int) -> Ring:
        return next((ring for ring in self.rings if ring.age_s >= age_s), self.rings[-1])


# Requests.


async def get_history(api: Api, request: Request, caller: Caller) -> Response:
    given = request.query_params.get("age", str(AGE_S))
    if not (given.isascii() and given.isdigit() and len(given) <= AGE_DIGITS_MAX and 0 < int(given) <= AGE_MAX_S):
        raise BadRequest(f"'age' is whole seconds, 1 to {AGE_MAX_S}")
    assert api.sampling is not None
    return json_answer(api.sampling.history.series(int(given)))


ROUTES: Final = (
    Route(
        "GET",
        "/api/history",
        get_history,
        MONITORING,
        "Rates and lengths of the whole broker over the last minute, hour or day",
        query=(Query("age", {"type": "integer", "minimum": 1, "maximum": AGE_MAX_S}, "how far back, in seconds"),),
        answer=obj({"step_s": INTEGER, "at_ms": array_of(INTEGER), "series": OBJECT}),
    ),
)


def _part(view: View, name: str) -> View:
    part = view.get(name)
    return part if isinstance(part, dict) else {}


def _number(part: View, name: str) -> float:
    value = part.get(name, 0)
    return float(value) if isinstance(value, int | float) else 0.0


def _rate(at: int, before: tuple[int, array[float]], now: tuple[int, array[float]]) -> float:
    passed_ms = now[0] - before[0]
    return round((now[1][at] - before[1][at]) * 1000 / passed_ms, 2) if passed_ms > 0 else 0.0


def _sync_ms(before: array[float], now: array[float]) -> float | None:
    """How long a sync took on average; None: there was none."""
    syncs, seconds = (PLACE[name] for name in SYNCS)
    count = now[syncs] - before[syncs]
    return round((now[seconds] - before[seconds]) * 1000 / count, 3) if count > 0 else None

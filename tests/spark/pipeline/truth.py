"""Truth: overloads played on brokers that run, with a record of which stage was slow and when. For the tables to find.

    play = Play(process, ("store", "saturated"), ("memory",))
    play.run(windows=20, calm=4)
    play.spells   what was true from when to when, windows cut to what nobody can argue about

Causes of one act are played at the same time, each with a publisher and a queue of its own: a slow disk does not hold
up transient messages, and a queue that nobody consumes from holds up only its own publisher. Between acts all is calm:
nothing is slow, and the only publisher is a bystander whom a slowed stage would not hold up either; so he must be
blamed for nothing at any time but while there is an alarm.
Times are the broker's, which is on the same machine. When an act has begun is seen at the broker itself: the publisher
is blocked, or its confirms are held; and a calm, when nobody waits any more. The window in which that happens is not
counted. So what the tables say is not asked for in all windows since the fault was set, or lifted: `left_out` says in
how many, and the test bounds it.
"""

from __future__ import annotations

import json
import math
import re
import time
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.ledger import Ledger
from tests.spark.pipeline.flowsite import STREAM, next_offset, take_all
from tests.wire.live import ServeProcess
from tests.wire.overloads import SYNC_DELAY_MS, Overload, bystander, overload
from tests.wire.waiting import LIMIT_S, wait_until

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

BYSTANDER: Final = "bystander"
MANAGEMENT: Final = ("--management", "127.0.0.1:0")  # what a broker of a play is started with, beside a data directory
TRIGGER_S: Final = 1.0  # between two batches of a job that follows
GO_ON_S: Final = 300.0  # for its batches, on a machine that others use
CALM: Final = ""  # the cause of a spell in which nothing is slow
ALARMS: Final = ("memory",)  # causes that hold everybody up
CHANNEL: Final = "channel "  # how the names of channels begin
_MANAGEMENT: Final = re.compile(r"management (http://[^\s/]+)")


@dataclass(frozen=True, slots=True)
class Spell:
    """From `began_s` to `ended_s`, seconds since 1970, this was slow and held that client up; in a calm, nothing. It
    had been slow, or nothing had been, since `set_s`."""

    cause: str
    client: str
    bottleneck: str  # as the verdicts name it; of a channel, whose port is not known before, the first word of it
    set_s: float
    began_s: float
    ended_s: float

    def windows(self, window_s: int) -> list[int]:
        """Starts of the windows wholly within it, but for the first: what is slow must show first."""
        numbers = range(self._first(window_s), math.floor(self.ended_s / window_s))
        return [number * window_s for number in numbers]

    def left_out(self, window_s: int) -> int:
        """Windows wholly behind `set_s` before the first one that counts."""
        return max(0, self._first(window_s) - math.ceil(self.set_s / window_s))

    def _first(self, window_s: int) -> int:
        return math.ceil(self.began_s / window_s) + 1


class Play:
    """Acts on one broker, one after the other."""

    def __init__(self, process: ServeProcess, *acts: tuple[str, ...]) -> None:
        found = _MANAGEMENT.search(process.ready_line)
        assert found is not None, f"the broker has no HTTP API: {process.ready_line}"
        self._process = process
        self._management = found[1]
        self._acts = acts
        self._lifted_s = 0.0  # since when nothing is slow
        self.spells: list[Spell] = []

    def run(self, windows: int, calm: int, window_s: int = 1) -> None:
        """Every cause for so many windows that count, and a calm of so many before and after each act."""
        with bystander(self._process.port, BYSTANDER, BYSTANDER):
            self._lifted_s = time.time()
            self._rest(calm, window_s)
            for act in self._acts:
                self._play(act, windows, window_s)
                self._rest(calm, window_s)

    def _rest(self, windows: int, window_s: int) -> None:
        wait_until(lambda: not self._flow()["verdicts"], what="a broker that nobody waits for")
        self._last(Spell(CALM, "", "", self._lifted_s, time.time(), 0.0), windows, window_s)

    def _play(self, act: tuple[str, ...], windows: int, window_s: int) -> None:
        with ExitStack() as clients:
            started: list[Spell] = []
            for kind in act:
                one = clients.enter_context(
                    overload(kind, self._process.port, self._management, f"{kind}-publisher", f"{kind}-orders")
                )
                set_s = time.time()
                wait_until(partial(self._has_begun, one), what=f"{one.connection} is held up")
                started.append(Spell(one.cause, one.connection, _bottleneck(one), set_s, time.time(), 0.0))
            for spell in started:
                self._last(spell, windows, window_s)
            # A sync that has begun is as slow as it was told to be.
            self._lifted_s = time.time() + (SYNC_DELAY_MS / 1000 if "store" in act else 0.0)

    def _last(self, spell: Spell, windows: int, window_s: int) -> None:
        """Let it be so for so many windows."""

        def until_now() -> Spell:
            return replace(spell, ended_s=time.time())

        wait_until(lambda: len(until_now().windows(window_s)) >= windows, (windows + 3) * window_s + LIMIT_S)
        self.spells.append(until_now())

    def _has_begun(self, one: Overload) -> bool:
        for stage in self._flow()["stages"]:
            if stage["id"] == f"queue {one.queue}" and stage["held"]:
                return True
            if stage["kind"] == "connection" and stage["client_name"] == one.connection and stage["blocked"]:
                return True
        return False

    def _flow(self) -> dict[str, Any]:
        request = urllib.request.Request(f"{self._management}/api/flow")
        request.add_header("Authorization", "Basic " + b64encode(b"guest:guest").decode())
        with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
            return dict(json.load(answer))


def _bottleneck(one: Overload) -> str:
    if one.cause in ALARMS:
        return f"alarm {one.cause}"
    named = {"store": "store", "queue": f"queue {one.queue}", "saturated": f"consumers of queue {one.queue}"}
    return named.get(one.kind, CHANNEL)


@dataclass(frozen=True, slots=True)
class Score:
    """Of one cause: windows that counted, and of these the ones that the tables were right about."""

    cause: str
    windows: int
    matched: int
    wrong: tuple[str, ...]  # the first that were not, for people

    @property
    def share(self) -> float:
        return self.matched / self.windows if self.windows else 0.0


Verdicts = dict[int, dict[str, list[tuple[str, str]]]]  # window -> client -> cause and bottleneck


def scores(spells: list[Spell], verdicts: Verdicts, window_s: int) -> Iterator[Score]:
    """Of each cause and of calm. A window is right if it blames the one stage that was slow, and nobody blames any
    for the bystander, who is held up by alarms only."""
    for cause in dict.fromkeys(spell.cause for spell in spells):
        windows = matched = 0
        wrong: list[str] = []
        for spell in [one for one in spells if one.cause == cause]:
            for window in spell.windows(window_s):
                windows += 1
                found = verdicts.get(window, {})
                if _is_right(spell, found):
                    matched += 1
                else:
                    wrong.append(f"{window}: {found}")
        yield Score(cause, windows, matched, tuple(wrong[:5]))


def _is_right(spell: Spell, found: dict[str, list[tuple[str, str]]]) -> bool:
    calm = found.get(BYSTANDER, [])
    if spell.cause == CALM:
        return not found
    if calm and (spell.cause not in ALARMS or {cause for cause, _ in calm} != {spell.cause}):
        return False
    told = found.get(spell.client, [])
    if [cause for cause, _ in told] != [spell.cause]:
        return False
    stage = told[0][1]
    return stage.startswith(CHANNEL) if spell.bottleneck == CHANNEL else stage == spell.bottleneck


@contextmanager
def following(spark: SparkSession, uri: str, tables: Path, window_s: int) -> Iterator[None]:
    """The flow job at work beside a broker; from its first batch on, until all that the broker has told is in the
    tables."""
    from penstock.spark.flowjob import FlowJob, FlowSettings

    with Ledger(tables).writing() as ledger, ThreadPoolExecutor(1) as pool:
        job = FlowJob(spark, ledger, FlowSettings(uri, tables, window_s, trigger_s=TRIGGER_S))

        def has(offset: int) -> bool:
            return ledger.manifest().marks.get(STREAM, 0) >= offset or running.done()

        running = pool.submit(job.run)
        try:
            wait_until(partial(has, 1), GO_ON_S, "the first batch")
            yield
            wait_until(partial(has, next_offset(uri)), GO_ON_S, "all events in the tables")
        finally:
            job.stop()
            running.result(GO_ON_S)


def read_verdicts(spark: SparkSession, uri: str, tables: Path, window_s: int) -> Verdicts:
    """What the flow job says of a broker's events so far, as it writes it to these tables."""
    take_all(spark, uri, tables, window_s)
    return verdicts_in(tables)


def verdicts_in(tables: Path) -> Verdicts:
    return verdicts_of(Ledger(tables).arrow("verdicts"))


def verdicts_of(rows: pa.Table) -> Verdicts:
    found: Verdicts = {}
    for row in rows.to_pylist():
        window = round(row["window"].replace(tzinfo=UTC).timestamp())
        told = found.setdefault(window, {}).setdefault(row["client"] or row["connection"], [])
        told.append((row["cause"], row["bottleneck"] or ""))
    return found

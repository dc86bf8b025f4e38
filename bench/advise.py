"""Is advice good? Badly set brokers, what `penstock pipeline advise --apply` makes of them, measured: make advisebench

For each scenario: a broker (`penstock serve`) with a bad setting is loaded and measured by its clients; the pipeline
fills tables (`flow --once`); `advise --apply` with the scenario's goal sets credit and watermarks. A prefetch is the
consumers' own: a load is played anew with the one that was advised. Then the clients measure again. Printed as a
Markdown table: what was advised, the goal's figure as predicted and as measured, now and then, how many times as much,
and how far what was predicted for then is from what was measured; all values go to bench/results/advise.json. Each case
is badly set, so the exit code is 1 if one could not be measured, nothing was advised, it was taken back, or the goal's
figure is not better by more than NOISE.
Not here: the loads (twinload.py), how right the twin is (twin.py), advice itself (src/penstock/spark/advice).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from brokers import Running, end_with_us, fail, named, running_penstock, tell
from twin import BODY_BYTES, NO_ACKS, SLOW, consumer_of, credit, credits_of, publisher_of
from twinload import FAULTS, FRAMING_BYTES, Measured, SlowConsumer, put_setting, watch

from penstock.client.connection import ClientError
from penstock.client.uri import parse_uri
from penstock.console.site import Site as Api
from penstock.console.site import SiteError
from penstock.flow.twin import Load, Publishers, Settings
from penstock.perf.block import NotADelivery
from penstock.perf.load import Consumer, LoadError, Publisher, check, drain
from penstock.perf.rabbitmq import NotStarted
from penstock.perf.site import Site

RESULTS = Path(__file__).resolve().parent / "results" / "advise.json"
SECONDS = 5.0  # of a measurement
LOADED_S = 20.0  # before the tables are filled
SETTLE_S = 3.0
SETTINGS = 2000
NOISE = 0.1  # between two measurements of the same on this kind of machine
POLICY = "advised"
COMMAND_TIMEOUT_S = 900
UNITS = {"throughput": "msg/s", "latency": "ms", "memory": "KB"}
NAMES = {"prefetch": "prefetch", "flow-stop-count": "stop", "flow-resume-count": "resume"}


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    goal: str
    load: Load
    bad: Settings
    faults: dict[str, str] = field(default_factory=dict)


CASES = (
    Case(
        "slow disk, small credit",
        "throughput",
        Load(Publishers(window=1000, persistent=True), NO_ACKS),
        credit("20,10", "20,10"),
        {"faults.store_sync_delay_ms": "20"},
    ),
    Case(
        "slow queue, large credit",
        "latency",
        Load(Publishers(), NO_ACKS),
        credit("50000,25000"),
        {"faults.queue_delay_us": "20"},
    ),
    Case(
        "slow channel, large credit",
        "memory",
        Load(Publishers(), NO_ACKS),
        credit("50000,25000"),
        {"faults.channel_delay_us": "20"},
    ),
    Case(
        "slow consumer, high marks",
        "memory",
        Load(Publishers(window=5000), SLOW),
        Settings(stop=50_000, resume=43_750),
    ),
    Case(
        "slow consumer, large prefetch",
        "memory",
        Load(Publishers(window=5000), replace(SLOW, prefetch=20_000)),
        Settings(stop=1000, resume=875, prefetch=20_000),
    ),
)


@dataclass(slots=True)
class Line:
    """What came of one case."""

    case: Case
    advice: dict[str, Any]
    before: Measured
    after: Measured | None  # None: nothing was advised

    @property
    def option(self) -> dict[str, Any] | None:
        """What was set."""
        options = self.advice["options"]
        return options[0] if options else None

    def predicted(self, which: Mapping[str, Any]) -> float:
        goal = self.case.goal
        return float(
            {"latency": which["p99_ms"], "memory": which["memory_bytes"] / 1000}.get(goal, which["throughput"])
        )

    def measured(self, which: Measured) -> float:
        held = max(which.held) * (BODY_BYTES + FRAMING_BYTES) / 1000
        return {"latency": which.p99_ms, "memory": held}.get(self.case.goal, which.throughput)

    def cells(self) -> list[str]:
        first = [self.case.goal, self.case.name]
        now, before = self.predicted(self.advice["current"]), self.measured(self.before)
        if self.option is None or self.after is None:
            return [*first, "nothing", f"{now:,.0f}", "", f"{before:,.0f}", "", "", self.advice["sentence"]]
        then, after = self.predicted(self.option), self.measured(self.after)
        shown = ", ".join(f"{name.removeprefix('credit.')} {value}" for name, value in self.option["settings"].items())
        unit = UNITS[self.case.goal]
        applied = self.advice.get("applied")
        other = f"{100 * (self.after.throughput / self.before.throughput - 1):+.0f} %"
        return [
            *first,
            shown + (" (taken back)" if applied and applied["rolled_back"] else ""),
            f"{now:,.0f} to {then:,.0f} {unit}",
            _times(then, now),
            f"{before:,.0f} to {after:,.0f} {unit}",
            _times(after, before),
            f"{100 * (then / after - 1):+.0f} %" if after else "",
            other,
        ]

    @property
    def is_good(self) -> bool:
        """Something was advised and kept, and it is better for what it was for."""
        applied = self.advice.get("applied")
        if self.after is None or (applied and applied["rolled_back"]):
            return False
        if not self.after.throughput:
            return False  # a p99 of nothing is 0
        times = self.measured(self.after) / max(self.measured(self.before), 1e-9)
        return times > 1 + NOISE if self.case.goal == "throughput" else times < 1 - NOISE


def _times(then: float, now: float) -> str:
    return f"{then / now:.2f}" if now else ""


def main() -> None:
    end_with_us()
    options = _options()
    chosen = named({one.name: one for one in CASES}, options.cases, "case") or CASES
    lines: list[Line] = []
    for case in chosen:
        try:
            lines.append(run(case, options.seconds, options.settings))
        except (LoadError, NotADelivery, ClientError, NotStarted, SiteError, subprocess.SubprocessError) as error:
            tell(f"{case.name}: {error}")
            continue
        print(table(lines[-1:]), flush=True)
    print()
    print(table(lines))
    if not options.cases:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps([_as_json(line) for line in lines], indent=1) + "\n")
    bad = [case.name for case in chosen if not any(line.case is case and line.is_good for line in lines)]
    if bad:
        fail(f"no good advice: {', '.join(bad)}", 1)


def run(case: Case, seconds: float, settings: int) -> Line:
    tell(f"{case.name}: for {case.goal}")
    with running_penstock(credits_of(case.bad) | case.faults) as broker, tempfile.TemporaryDirectory() as tables:
        api = Api(broker.management)
        set_marks(api, case.bad)
        with Playing(case, broker, seconds, case.bad) as playing:
            playing.wait(LOADED_S)
            before = playing.measure()
            command("flow", "--once", "--tables", tables, "--uri", broker.uri)
            words = ("--goal", case.goal, "--settings", str(settings), "--apply", "--measure", f"{seconds}s", "--json")
            where = ("--tables", tables, "--uri", broker.uri, "--management", broker.management)
            advice = json.loads(command("advise", *where, *words))
            tell(f"{case.name}: {advice['sentence']} {advice.get('applied', {}).get('sentence', '')}")
            if not advice["options"]:
                return Line(case, advice, before, None)
            given = advice["options"][0]["settings"]
            better = replace(case.bad, **{mine: int(given[name]) for name, mine in NAMES.items() if name in given})
            if better.prefetch == case.bad.prefetch:
                playing.wait(SETTLE_S)
                return Line(case, advice, before, playing.measure())
        for name, value in given.items():  # all of it, not only what --apply has set
            if name.startswith("credit."):
                put_setting(broker, name, value)
        for name, value in case.faults.items():
            put_setting(broker, name, value)
        set_marks(api, better)
        with Playing(case, broker, seconds, better) as playing:
            playing.wait(LOADED_S)
            return Line(case, advice, before, playing.measure())


class Playing:
    """The load of a case while it goes on."""

    def __init__(self, case: Case, broker: Running, seconds: float, settings: Settings) -> None:
        self._broker = broker
        self._site = Site(parse_uri(broker.uri), broker.pid, seconds, BODY_BYTES)
        self._case = case
        self._settings = settings
        self._publishers: list[Publisher] = []
        self._consumers: list[Consumer] = []

    def __enter__(self) -> "Playing":
        load = self._case.load
        site = self._site.__enter__()
        (queue,) = site.queues(1, load.publishers.persistent)
        self._consumers = [consumer_of(site, queue, load.consumers, self._settings)]
        publisher = publisher_of(site, queue, load)
        self._publishers = [publisher]
        for worker in (*self._consumers, *self._publishers):
            worker.start()
        return self

    def __exit__(self, *error: Any) -> None:
        try:
            if error[0] is None:
                self._end()
        finally:
            self._site.__exit__(*error)

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)
        check([*self._publishers, *self._consumers])

    def measure(self) -> Measured:
        return watch(self._site, self._broker, self._publishers, self._consumers)

    def _end(self) -> None:
        for name in FAULTS:
            put_setting(self._broker, name, "0")
        for consumer in self._consumers:
            if isinstance(consumer, SlowConsumer):
                consumer.message_us = 0.0
        drain(self._publishers, self._consumers, lambda: [one.sent for one in self._publishers])


def set_marks(api: Api, settings: Settings) -> None:
    """By a policy, as it can be changed while the queue is there."""
    if settings.stop > 0:
        marks = {"flow-stop-count": settings.stop, "flow-resume-count": settings.resume}
        api.put("policies", "/", POLICY, body={"pattern": "^perf", "definition": marks, "apply-to": "queues"})


def command(verb: str, *words: str) -> str:
    """What `penstock pipeline` says on stdout; its own line of why not is the error."""
    found = subprocess.run(
        [sys.executable, "-m", "penstock", "pipeline", verb, *words],
        capture_output=True,
        text=True,
        timeout=COMMAND_TIMEOUT_S,
    )
    if found.returncode:
        raise LoadError(f"pipeline {verb}: {found.stderr.strip().splitlines()[-1:]}")
    return found.stdout


def table(lines: Sequence[Line]) -> str:
    head = ["goal", "load", "advised", "predicted", "times", "measured", "times", "foretold", "throughput, measured"]
    rows = [head, ["---"] * len(head), *(line.cells() for line in lines)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _as_json(line: Line) -> dict[str, Any]:
    after = asdict(line.after) if line.after is not None else None
    return {"case": line.case.name, "advice": line.advice, "before": asdict(line.before), "after": after}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("cases", nargs="*", help="by name; without any, all")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each measurement")
    parser.add_argument("--settings", type=int, default=SETTINGS, help="that advise simulates")
    return parser.parse_args()


if __name__ == "__main__":
    main()

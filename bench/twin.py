"""Is the twin right? What it predicts against what a real broker does, for the benchmark's loads: make twinbench

For each scenario: a broker (`penstock serve`) is loaded at the default settings and at others, in turns. From its own
events at the default the plant is fitted and tuned (penstock.flow.twin), and then all settings are predicted. Printed
as a Markdown table: throughput, p99 of the latency and how many messages the broker held, by the twin, measured (the
median of all stretches at that setting; the lowest and highest where they are 20 % apart), and the difference; all
values go to bench/results/twin.json. At the default, throughput and p99 are what the twin was tuned to, and are
counted apart. Marked is what is more than 20 % off the median (and, of p99, 0.1 ms), and bold what is more than 20 %
off every single stretch. The exit code is 1 if a prediction is marked, or a scenario could not be measured.
Latency is publish to confirm where there are confirms, else publish to delivery.
Not here: the loads (twinload.py), the twin (src/penstock/flow/twin), advice (src/penstock/spark/advice).
"""

import argparse
import json
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from brokers import Running, end_with_us, named, running_penstock, tell
from twinload import (
    FAULTS,
    FRAMING_BYTES,
    Measured,
    SlowConsumer,
    StampedConfirmed,
    StampedConsumer,
    StampedPublisher,
    play,
    put_setting,
    read_events,
)

from penstock.amqp.method import BasicQos, BasicQosOk, ConfirmSelect, ConfirmSelectOk
from penstock.amqp.properties import PERSISTENT, TRANSIENT, Properties
from penstock.amqp.table import Table
from penstock.client.connection import ClientError
from penstock.client.uri import parse_uri
from penstock.flow.twin import Consumers, Load, Outcome, Plant, Publishers, Settings, fit, simulate, tune
from penstock.flow.twin.clients import METHOD_BYTES, block_of
from penstock.perf.block import NotADelivery, block
from penstock.perf.load import Consumer, LoadError, Publisher
from penstock.perf.site import Site
from penstock.spark.advice.rank import mean

RESULTS = Path(__file__).resolve().parent / "results" / "twin.json"
SECONDS = 2.5
ROUNDS = 4
TRIES = 4
BODY_BYTES = 100
NEAR = 0.2
SMALL_HELD = 1000  # messages
GRAIN_MS = 0.1  # two wakings of a thread
LEAD_MAX = 100_000  # perf/load.py
PAIRS = 5  # perf/scenario.py
TUNE_S = 4.0  # simulated, for each try: a p99 of few messages needs more time than the throughput of many
TELL_S = 6.0  # simulated, for each prediction,
TELL_SEEDS = (1, 2, 3, 4, 5, 6)  # with each of these, as the p99 of half a second of syncs is luck; advice has two
FLOODED_BYTES = 1_000_000  # in the kernel: more of a flood are not on their way, but wait because it is full


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    about: str
    load: Load
    others: tuple[Settings, ...]
    faults: dict[str, str] = field(default_factory=dict)
    stretch: float = 1.0  # times the usual seconds: where messages are few, so are those above the p99
    rounds: int = 1  # times the usual: where one stretch has half the p99 of another, as the disk and the cores go


def credit(both: str, store: str = "2000,500", **more: Any) -> Settings:
    return Settings(reader_channel=both, channel_queue=both, queue_store=store, **more)


def credit_bytes(count: int, messages: str = "400,200") -> Settings:
    """Credit for the bytes of so many messages, which are out before the messages are."""
    bytes_ = count * (BODY_BYTES + FRAMING_BYTES)
    return credit(
        messages, reader_channel_bytes=f"{bytes_},{bytes_ // 2}", channel_queue_bytes=f"{bytes_},{bytes_ // 2}"
    )


SMALL, LARGE = credit("50,25"), credit("2000,1000")
FAST = Consumers(wake=200)
NO_ACKS = Consumers(acks=False, wake=500)
QUICK = Consumers(message_us=2.0, ack_batch=10, chunk=10, wake=10, prefetch=100)
SLOW = Consumers(message_us=100.0, ack_batch=10, chunk=10, wake=10, prefetch=100)

SCENARIOS = (
    Scenario("acks", "flood, consumer with acks", Load(Publishers(lead_max=LEAD_MAX), FAST), (SMALL, LARGE), rounds=2),
    Scenario(
        "acks, credit in bytes",
        "flood, consumer with acks",
        Load(Publishers(lead_max=LEAD_MAX), FAST),
        (credit_bytes(50), credit_bytes(200, messages="2000,1000")),
        rounds=2,
    ),
    Scenario("confirms", "window 1000, transient", Load(Publishers(window=1000), NO_ACKS), (SMALL, LARGE), rounds=2),
    Scenario(
        "persistent",
        "window 1000, persistent",
        Load(Publishers(window=1000, persistent=True), NO_ACKS),
        (credit("50,25"), credit("400,200", "200,50")),
        rounds=2,
    ),
    Scenario(
        "kb",
        "as acks, with bodies of 1 KB",
        Load(Publishers(body_bytes=1024, lead_max=LEAD_MAX), FAST),
        (SMALL, LARGE),
    ),
    Scenario(
        "slow channel",
        "flood, 20 µs per message in the channel",
        Load(Publishers(), FAST),
        (SMALL, LARGE),
        {"faults.channel_delay_us": "20"},
    ),
    Scenario(
        "slow queue",
        "flood, 20 µs per message in the queue",
        Load(Publishers(), NO_ACKS),
        (SMALL, LARGE),
        {"faults.queue_delay_us": "20"},
    ),
    Scenario(
        "slow store",
        "flood of persistent messages, 20 ms per sync",
        Load(Publishers(persistent=True), NO_ACKS),
        (credit("400,200", "500,250"), credit("400,200", "8000,2000")),
        {"faults.store_sync_delay_ms": "20"},
        rounds=2,
    ),
    Scenario(
        "slow store, confirms",
        "window 1000, persistent, 20 ms per sync",
        Load(Publishers(window=1000, persistent=True), NO_ACKS),
        (credit("50,25"), credit("400,200", "200,50")),
        {"faults.store_sync_delay_ms": "20"},
    ),
    Scenario(
        "slow consumer",
        "2000 msg/s, a consumer of 100 µs per message",
        Load(Publishers(rate=2000, block=10), SLOW),
        (Settings(prefetch=10), Settings(prefetch=1000)),
        stretch=4.0,
        rounds=2,
    ),
    Scenario(
        "prefetch",
        "flood, a consumer that takes ten at a time and sleeps for 20 µs",
        Load(Publishers(lead_max=LEAD_MAX), QUICK),
        (Settings(prefetch=10), Settings(prefetch=20)),
    ),
    Scenario(
        "watermark",
        "window 500, a slow consumer: stop mark 2000, resume 1000",
        Load(Publishers(window=500), SLOW),
        (Settings(stop=2000, resume=250), Settings(stop=8000, resume=4000)),
        stretch=2.0,
    ),
)
# Only by name. Five pairs in one process share its interpreter unevenly: the p99 of one stretch is twice another's.
ON_REQUEST = (
    Scenario(
        "pairs",
        "5 publishers, each with its queue and consumer, acks",
        Load(Publishers(count=PAIRS, lead_max=LEAD_MAX), replace(FAST, count=PAIRS), queues=PAIRS),
        (SMALL, LARGE),
    ),
)
DEFAULTS = {"watermark": Settings(stop=2000, resume=1000)}


@dataclass(frozen=True, slots=True)
class Figure:
    """One prediction, and what the stretches at that setting measured."""

    name: str
    predicted: float
    measured: list[float]
    tuned: bool  # the twin was told what was measured

    @property
    def median(self) -> float:
        return statistics.median(self.measured)

    @property
    def is_told(self) -> bool:
        """A few hundred messages come and go within a turn; between turns, when the broker is asked, they are gone."""
        return self.name != "held" or max(self.predicted, self.median) >= SMALL_HELD

    @property
    def error(self) -> float:
        """Against the median."""
        return self.predicted / self.median - 1 if self.median else math.inf

    @property
    def is_fine(self) -> bool:
        """So little that stretches at one setting differ by more."""
        return self.name == "p99 ms" and abs(self.predicted - self.median) < GRAIN_MS

    @property
    def is_near(self) -> bool:
        return abs(self.error) <= NEAR or self.is_fine

    @property
    def is_possible(self) -> bool:
        """Near to what some stretch measured: measurements that differ by more than that tell no better."""
        return (1 - NEAR) * min(self.measured) <= self.predicted <= (1 + NEAR) * max(self.measured)

    def cells(self) -> list[str]:
        shown = "{:,.2f}" if self.name == "p99 ms" else "{:,.0f}"
        measured = shown.format(self.median)
        low, high = min(self.measured), max(self.measured)
        if self.is_told and high > (1 + NEAR) * low:
            measured += f" ({shown.format(low)} to {shown.format(high)})"
        return [shown.format(self.predicted), measured, self._error_text()]

    def _error_text(self) -> str:
        if not self.is_told:
            return "small"
        if self.is_near:
            return f"{self.error:+.0%}" if abs(self.error) <= NEAR else f"{self.error:+.0%}, small"
        return f"{self.error:+.0%} !" if self.is_possible else f"**{self.error:+.0%}**"


@dataclass(slots=True)
class Line:
    """One scenario at one setting."""

    scenario: str
    setting: str
    predicted: Outcome
    measured: list[Measured]
    at_default: bool

    def figures(self) -> list[Figure]:
        return [
            Figure("msg/s", self.predicted.throughput, [one.throughput for one in self.measured], self.at_default),
            Figure("p99 ms", self.predicted.p99_ms, [one.p99_ms for one in self.measured], self.at_default),
            Figure("held", self.predicted.in_flight, [one.mean_held for one in self.measured], False),
        ]


def main() -> None:
    end_with_us()
    options = _options()
    known = {one.name: one for one in (*SCENARIOS, *ON_REQUEST)}
    chosen = named(known, options.scenarios, "scenario") or SCENARIOS
    lines: list[Line] = []
    lost: list[str] = []
    found: dict[str, Any] = {"seconds": options.seconds, "rounds": options.rounds, "scenarios": {}}
    for scenario in chosen:
        try:
            if options.again:
                more, plant = again(scenario, options.again)
            else:
                more, plant = run(scenario, options.seconds, options.rounds, options.tries, options.keep)
        except (LoadError, NotADelivery, ClientError) as error:
            tell(f"{scenario.name}: {error}")
            lost.append(scenario.name)
            continue
        lines += more
        found["scenarios"][scenario.name] = {"plant": asdict(plant), "lines": [_as_json(line) for line in more]}
        print(table(more), flush=True)
    print()
    print(table(lines))
    figures = [figure for line in lines for figure in line.figures() if figure.is_told]
    print(verdict(figures))
    if lost:
        print(f"not measured: {', '.join(lost)}")
    if not options.scenarios and not options.again:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    if lost or not is_right(figures):
        sys.exit(1)


def run(scenario: Scenario, seconds: float, rounds: int, tries: int, keep: Path | None) -> tuple[list[Line], Plant]:
    settings = [DEFAULTS.get(scenario.name, Settings()), *scenario.others]
    measured: list[list[Measured]] = [[] for _ in settings]
    slept: list[float] = []
    seconds, rounds = seconds * scenario.stretch, rounds * scenario.rounds
    alike = len({(one.prefetch, one.stop, one.resume) for one in settings}) == 1
    with running_penstock() as broker:
        if alike:  # they change while the load goes on
            tell(f"{scenario.name}: {len(settings)} settings in turns, {rounds} rounds of {seconds:.1f} s")
            measured = measure(scenario, settings, broker, seconds, rounds, tries, slept)
        else:
            for turn in range(rounds):
                for at, setting in enumerate(settings):
                    tell(f"{scenario.name}: {words(setting)}, round {turn + 1} of {rounds}")
                    measured[at] += measure(scenario, [setting], broker, seconds, 1, tries, slept)[0]
        waited = max(one.waited for group in measured for one in group)
        tell(f"{scenario.name}: at most {waited:.0%} of the time without a core")
        events = read_events(broker)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        kept = {"events": events, "slept": slept, "measured": [[asdict(one) for one in group] for group in measured]}
        _kept(keep, scenario).write_text(json.dumps(kept))
    return predicted(scenario, events, measured, slept)


def again(scenario: Scenario, keep: Path) -> tuple[list[Line], Plant]:
    """What was measured before, predicted by the twin as it is now."""
    try:
        kept = json.loads(_kept(keep, scenario).read_text())
    except FileNotFoundError:
        raise LoadError(f"nothing was kept of it in {keep}") from None
    measured = [[Measured(**one) for one in group] for group in kept["measured"]]
    return predicted(scenario, kept["events"], measured, kept["slept"])


def _kept(keep: Path, scenario: Scenario) -> Path:
    return keep / f"{scenario.name.replace(' ', '-').replace(',', '')}.json"


def predicted(
    scenario: Scenario, events: Sequence[dict[str, Any]], measured: list[list[Measured]], slept: Sequence[float]
) -> tuple[list[Line], Plant]:
    settings = [DEFAULTS.get(scenario.name, Settings()), *scenario.others]
    load = heard(scenario.load, slept)
    plant = fitted(scenario, events, measured[0])
    throughput = statistics.median(one.throughput for one in measured[0])
    cpu_us = statistics.median(one.cpu_us for one in measured[0])
    p99_ms = statistics.median(one.p99_ms for one in measured[0])
    plant = tune(plant, load, settings[0], throughput, cpu_us, seconds=TUNE_S, p99_ms=p99_ms)
    lines = [
        Line(scenario.name, words(setting), told(plant, load, setting), group, at == 0)
        for at, (setting, group) in enumerate(zip(settings, measured, strict=True))
    ]
    return lines, plant


def told(plant: Plant, load: Load, setting: Settings) -> Outcome:
    """The prediction, as advice makes it: the mean of some runs."""
    return mean([simulate(plant, load, setting, TELL_S, seed) for seed in TELL_SEEDS])


def heard(load: Load, slept: Sequence[float]) -> Load:
    """The load as it was: a sleep is longer than what was asked for."""
    if not slept:
        return load
    return replace(load, consumers=replace(load.consumers, message_us=statistics.mean(slept), call_us=30.0))


def fitted(scenario: Scenario, events: Sequence[dict[str, Any]], measured: Sequence[Measured]) -> Plant:
    """From the events of the time in which these were measured."""
    rows = [
        event | {"at": event["at_us"] / 1e6}
        for event in events
        if any(one.began_s <= event["at_us"] / 1e6 <= one.ended_s + 0.2 for one in measured)
    ]
    samples = [row for row in rows if row["type"] == "sample"]
    syncs = [row for row in rows if row["type"] == "sync"]
    resources = [row for row in rows if row["type"] == "resources"]
    if not any("wait_us" in row for row in resources):
        resources = [row for one in measured for row in one.sched]
    body_bytes = scenario.load.publishers.body_bytes
    plant = fit(samples, syncs, resources, settings=scenario.faults, body_bytes=body_bytes)
    publishers = scenario.load.publishers
    if publishers.rate or publishers.window or publishers.lead_max:
        return plant  # its publishers may wait for something else
    messages = max(count for one in measured for count in one.in_kernel) / publishers.count
    in_kernel_bytes = round(messages * (body_bytes + FRAMING_BYTES + METHOD_BYTES))
    return replace(plant, socket_bytes=in_kernel_bytes) if in_kernel_bytes >= FLOODED_BYTES else plant


def measure(
    scenario: Scenario,
    settings: Sequence[Settings],
    broker: Running,
    seconds: float,
    rounds: int,
    tries: int,
    slept: list[float],
) -> list[list[Measured]]:
    load, first = scenario.load, settings[0]
    for name in FAULTS:
        put_setting(broker, name, "0")
    with Site(parse_uri(broker.uri), broker.pid, seconds, load.publishers.body_bytes) as site:
        marks = {"x-flow-stop-count": first.stop, "x-flow-resume-count": first.resume}
        arguments: Table = {name: value for name, value in marks.items() if value >= 0}
        queues = site.queues(load.queues, load.publishers.persistent, arguments)
        consumers = [consumer_of(site, queue, load.consumers, first) for queue in queues]
        publishers = [publisher_of(site, queue, load) for queue in queues]
        if load.publishers.lead_max:
            for publisher, consumer in zip(publishers, consumers, strict=True):
                publisher.consumers = [consumer]
        for name, value in scenario.faults.items():
            put_setting(broker, name, value)
        found = play(site, broker, publishers, consumers, [credits_of(one) for one in settings], rounds, tries)
        for consumer in consumers:
            if isinstance(consumer, SlowConsumer) and consumer.asleep_for:
                slept.append(consumer.slept_s * 1e6 / consumer.asleep_for)
        return found


def consumer_of(site: Site, queue: str, load: Consumers, setting: Settings) -> Consumer:
    channel = site.channel()
    prefetch = setting.prefetch if setting.prefetch is not None else load.prefetch
    if load.acks:
        channel.call(BasicQos(prefetch_count=prefetch), BasicQosOk)
    consumer: Consumer
    if load.chunk:
        consumer = SlowConsumer(channel, site.body_bytes, load.chunk, load.message_us)
    else:
        consumer = StampedConsumer(channel, site.body_bytes, load.ack_batch if load.acks else 0, load.wake)
    site._workers.append(consumer)
    site.consume(consumer, [queue])
    return consumer


def publisher_of(site: Site, queue: str, load: Load) -> Publisher:
    channel, how = site.channel(), load.publishers
    if how.window:
        channel.call(ConfirmSelect(), ConfirmSelectOk)
    properties = Properties(delivery_mode=PERSISTENT if how.persistent else TRANSIENT)
    count = block_of(how, len(site.message(channel, "", queue, properties)))
    blocks = [block(site.message(channel, "", queue, properties, number) for number in range(count))]
    publisher: Publisher
    if how.window:
        publisher = StampedConfirmed(channel, blocks, how.window)
    else:
        publisher = StampedPublisher(channel, blocks, count / how.rate if how.rate else 0.0)
    site._workers.append(publisher)
    return publisher


def credits_of(setting: Settings) -> dict[str, str]:
    return {
        "credit.reader_channel": setting.reader_channel,
        "credit.channel_queue": setting.channel_queue,
        "credit.queue_store": setting.queue_store,
        "credit.reader_channel_bytes": setting.reader_channel_bytes,
        "credit.channel_queue_bytes": setting.channel_queue_bytes,
        "credit.queue_store_bytes": setting.queue_store_bytes,
    }


def words(setting: Settings) -> str:
    """What differs from the default."""
    told = [f"{name.removeprefix('credit.')} {value}" for name, value in credits_of(setting).items()]
    usual = [f"{name.removeprefix('credit.')} {value}" for name, value in credits_of(Settings()).items()]
    found = [one for one in told if one not in usual]
    if setting.prefetch is not None:
        found.append(f"prefetch {setting.prefetch}")
    if setting.stop >= 0:
        found.append(f"stop {setting.stop}, resume {setting.resume}")
    return ", ".join(found) or "default"


def table(lines: Sequence[Line]) -> str:
    text = [
        "| scenario | setting | msg/s, twin | measured | | p99 ms, twin | measured | | held, twin | measured | |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for line in lines:
        cells = [line.scenario, line.setting]
        for figure in line.figures():
            cells += figure.cells()
        text.append("| " + " | ".join(cells) + " |")
    return "\n".join(text)


def is_right(figures: Sequence[Figure]) -> bool:
    """Whether the twin foretold all that it had not been told."""
    return all(one.is_near for one in figures if not one.tuned)


def verdict(figures: Sequence[Figure]) -> str:
    told = [one for one in figures if not one.tuned]
    known = [one for one in figures if one.tuned]
    near, possible = sum(one.is_near for one in told), sum(one.is_possible for one in told)
    return (
        f"{near} of {len(told)} predictions are within {NEAR:.0%} of the median of what was measured, "
        f"{possible} within {NEAR:.0%} of a stretch; of the {len(known)} figures that the twin was tuned to, "
        f"{sum(one.is_near for one in known)} are within {NEAR:.0%} of the median"
    )


def _as_json(line: Line) -> dict[str, Any]:
    return {
        "setting": line.setting,
        "predicted": asdict(line.predicted),
        "measured": [asdict(one) for one in line.measured],
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", help="by name; without any, all but those that are only played by name")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each run")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--tries", type=int, default=TRIES, help="for each round, until one is quiet")
    parser.add_argument("--again", type=Path, help="such a directory: predict again, measure nothing")
    parser.add_argument("--keep", type=Path, help="a directory for events and measurements, to fit again later")
    return parser.parse_args()


if __name__ == "__main__":
    main()

"""What events cost: CPU time per message with the event stream on and off, in turns, in one broker under full load.

    make eventsbench                            about six minutes
    make eventsbench ARGS="acks --seconds 60"
    make eventsbench ARGS=each                  two seconds: what one event costs, without load

The broker runs in this process, so that its processor time is this process's; the load is `penstock perf` in another.
Every WINDOW_S events are switched on or off; pairs of neighbouring windows are compared, so that whatever else the
machine does hits both. Throughput depends on who else wants the cores, CPU time per message far less.
Exit code 1: events take more than 2 % for sure, as far as chance can be told from these pairs; stderr says of what.
Not here: how fast the broker is (compare.py).
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.broker.activity import Activity
from penstock.broker.events import SAMPLE, TYPES
from penstock.broker.eventstream import NAME
from penstock.broker.sampling import sample
from penstock.broker.stream import Stream
from penstock.embed import BrokerThread

WINDOW_S = 2.0  # two ticks of the event stream
EACH = "each"
SCENARIOS = (EACH, "acks", "pairs", "persistent", "queues")
COST_MAX = 0.02  # of CPU time, what events may take
ERRORS = 2  # standard errors that the mean may be off by chance
PAIRS_MIN = 2  # fewer have no standard error
BATCHES = 100  # of events, to know what one costs
POLL_S = 0.01


def main() -> int:
    options = _options()
    complaints = []
    for scenario in options.scenarios:
        with tempfile.TemporaryDirectory() as directory:
            if scenario == EACH:
                complaint = _measure_each(Path(directory))
            else:
                complaint = too_dear(_measure(scenario, options.seconds, Path(directory)))
        if complaint:
            complaints.append(complaint)
            print(f"{scenario}: {complaint}", file=sys.stderr, flush=True)
    return 1 if complaints else 0


def too_dear(ratios: Sequence[float]) -> str:
    """Why these ratios of CPU per message, with events to without, are not good enough; empty if they are."""
    if len(ratios) < PAIRS_MIN:
        return f"too few pairs of windows to judge by, {len(ratios)}: --seconds must be more"
    least = statistics.mean(ratios) - ERRORS * standard_error(ratios) - 1
    return f"events take at least {least:.1%} of CPU per message, {COST_MAX:.0%} is allowed" if least > COST_MAX else ""


def standard_error(ratios: Sequence[float]) -> float:
    return statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) >= PAIRS_MIN else 0.0


def _measure_each(directory: Path) -> str:
    """What one event costs: made, encoded, appended, written and synced, in batches as large as a second may have."""
    with BrokerThread({"log.level": "error"}, data=directory) as broker:
        core, stream = broker.broker.core, broker.broker.server.event_stream
        assert stream is not None, "this broker has no event stream"
        events = stream.events
        queue = broker.call(lambda: core.vhosts["/"].add_queue("orders", True, False, {}))
        kept = core.vhosts["/"].queues[NAME]
        assert isinstance(kept, Stream)

        def put() -> None:
            now_ns = time.monotonic_ns()
            for _ in range(events.room(SAMPLE)):
                events.put(SAMPLE, now_ns, sample(queue, now_ns))
            stream.second([], now_ns)

        written, cpu_s = events.written, time.process_time()
        for _ in range(BATCHES):
            broker.call(put)
            while not broker.call(lambda: kept.log.synced == kept.log.end and not kept.mailbox.ordinary):
                time.sleep(POLL_S)
        assert events.written - written >= BATCHES * events.bound(SAMPLE), "not every batch was written"
        each_s = (time.process_time() - cpu_s) / (events.written - written)
        most = sum(events.bound(type_) for type_ in TYPES)
    cost = most * each_s
    print(
        f"an event: {each_s * 1e6:.1f} us of CPU; all types at their bounds at once, {most} events a second: "
        f"{cost:.2%} of a core",
        flush=True,
    )
    return f"at their bounds events take {cost:.1%} of a core, {COST_MAX:.0%} is allowed" if cost > COST_MAX else ""


def _measure(scenario: str, seconds: float, directory: Path) -> list[float]:
    """The ratios of CPU per message, with events to without, pair by pair."""
    with BrokerThread({"log.level": "error"}, data=directory) as broker:
        core = broker.broker.core
        activity = core.activity
        events, told = activity.events, activity.told
        assert events is not None, "this broker has no event stream"
        command = [sys.executable, "-m", "penstock", "perf", scenario, "--uri", broker.uri, "--seconds", str(seconds)]
        load = subprocess.Popen(command, stdout=subprocess.DEVNULL)

        def sent() -> int:
            return sum(stage.sent for stage in {link.upstream for link in core.reader_channel.links})

        def window(is_on: bool) -> tuple[float, float] | None:
            """CPU time per message in microseconds, and messages per second; none if the load ended meanwhile."""

            def switch() -> None:
                activity.events = events if is_on else None
                activity.told = told if is_on else _nobody

            broker.call(switch)
            cpu_s, count, at_s = time.process_time(), broker.call(sent), time.monotonic()
            time.sleep(WINDOW_S)
            messages = broker.call(sent) - count
            if messages <= 0:  # fewer than before: the load's connection ended in this window
                return None
            return (time.process_time() - cpu_s) / messages * 1e6, messages / (time.monotonic() - at_s)

        pairs = []
        time.sleep(5)  # the load's start and warm-up
        blocks = broker.call(lambda: _blocks(activity))
        written, dropped = events.written, events.dropped
        began_s = time.monotonic()
        while load.poll() is None and time.monotonic() - began_s < seconds - 2 * WINDOW_S:
            with_events, without = window(True), window(False)
            if with_events is not None and without is not None:
                pairs.append((*with_events, *without))
        took_s = time.monotonic() - began_s
        blocks = broker.call(lambda: _blocks(activity)) - blocks
        load.terminate()
        load.wait()
    ratios = [with_us / without_us for with_us, _, without_us, _ in pairs]
    if not ratios:
        return ratios
    with_us, with_rate, without_us, without_rate = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(
        f"{scenario}: {with_rate:,.0f} msg/s with, {without_rate:,.0f} without; "
        f"CPU {with_us:.2f} and {without_us:.2f} us a message; "
        f"ratio of CPU: median {statistics.median(ratios):.3f}, mean {statistics.mean(ratios):.3f} "
        f"+- {standard_error(ratios):.3f} ({len(ratios)} pairs); "
        f"{blocks / took_s:,.0f} blocks/s, {(events.written - written) / took_s * 2:,.1f} events/s, "
        f"{events.dropped - dropped} dropped",
        flush=True,
    )
    return ratios


def _blocks(activity: Activity) -> int:
    return sum(total.blocks for total in activity.totals.values())


def _nobody(active: object, now_ns: int) -> None:
    """Nobody is told."""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", default=SCENARIOS, help=f"of penstock perf, or {EACH}")
    parser.add_argument("--seconds", type=float, default=80.0, help="of load for each scenario")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

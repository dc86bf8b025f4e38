"""What events cost: CPU time per message with the event stream on and off, in turns, in one broker under full load.

    .venv/bin/python bench/events.py            about four minutes
    .venv/bin/python bench/events.py acks --seconds 60

The broker runs in this process, so that its processor time is this process's; the load is `penstock perf` in another.
Every WINDOW_S events are switched on or off; pairs of neighbouring windows are compared, so that whatever else the
machine does hits both. Throughput depends on who else wants the cores, CPU time per message far less.
Not here: how fast the broker is (compare.py).
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from penstock.broker.activity import Activity
from penstock.embed import BrokerThread

WINDOW_S = 2.0  # two ticks of the event stream
SCENARIOS = ("acks", "pairs", "persistent")


def main() -> None:
    options = _options()
    for scenario in options.scenarios:
        with tempfile.TemporaryDirectory() as directory:
            _measure(scenario, options.seconds, Path(directory))


def _measure(scenario: str, seconds: float, directory: Path) -> None:
    with BrokerThread({"log.level": "error"}, data=directory) as broker:
        core = broker.broker.core
        activity = core.activity
        events, told = activity.events, activity.told
        assert events is not None, "this broker has no event stream"
        command = [sys.executable, "-m", "penstock", "perf", scenario, "--uri", broker.uri, "--seconds", str(seconds)]
        load = subprocess.Popen(command, stdout=subprocess.DEVNULL)

        def sent() -> int:
            return sum(stage.sent for stage in {link.upstream for link in core.reader_channel.links})

        costs: dict[bool, list[float]] = {True: [], False: []}
        rates: dict[bool, list[float]] = {True: [], False: []}
        is_on = False
        time.sleep(5)  # the load's start and warm-up
        blocks = broker.call(lambda: _blocks(activity))
        written, dropped = events.written, events.dropped
        began_s = time.monotonic()
        while load.poll() is None and time.monotonic() - began_s < seconds - 2 * WINDOW_S:
            is_on = not is_on

            def switch(on: bool = is_on) -> None:
                activity.events = events if on else None
                activity.told = told if on else _nobody

            broker.call(switch)
            cpu_s, count, at_s = time.process_time(), broker.call(sent), time.monotonic()
            time.sleep(WINDOW_S)
            messages = broker.call(sent) - count
            if messages > 0:  # fewer than before: the load's connection ended in this window
                costs[is_on].append((time.process_time() - cpu_s) / messages * 1e6)
                rates[is_on].append(messages / (time.monotonic() - at_s))
        took_s = time.monotonic() - began_s
        blocks = broker.call(lambda: _blocks(activity)) - blocks
        load.terminate()
        load.wait()
    pairs = min(len(costs[True]), len(costs[False]))
    ratios = [costs[True][at] / costs[False][at] for at in range(pairs)]
    spread = statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
    median = statistics.median
    print(
        f"{scenario}: {median(rates[True]):,.0f} msg/s with, {median(rates[False]):,.0f} without; "
        f"CPU {median(costs[True]):.2f} and {median(costs[False]):.2f} us a message; "
        f"ratio of CPU: median {median(ratios):.3f}, mean {statistics.mean(ratios):.3f} +- {spread:.3f} "
        f"({pairs} pairs); {blocks / took_s:,.0f} blocks/s, {(events.written - written) / took_s * 2:,.1f} events/s, "
        f"{events.dropped - dropped} dropped"
    )


def _blocks(activity: Activity) -> int:
    return sum(total.blocks for total in activity.totals.values())


def _nobody(active: object, now_ns: int) -> None:
    """Nobody is told."""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("scenarios", nargs="*", default=SCENARIOS)
    parser.add_argument("--seconds", type=float, default=80.0, help="of load for each scenario")
    return parser.parse_args()


if __name__ == "__main__":
    main()

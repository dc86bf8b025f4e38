"""Penstock against RabbitMQ on this machine, in turns, in one run: `make bench`.

Starts both brokers on free loopback ports, plays every scenario of `penstock perf` A B A B …, prints the table and
writes bench/results/latest.json. Where rabbitmq-server is not installed, Penstock is measured alone. The defaults take
about nine minutes: 25 scenarios, 2 brokers, 3 rounds of 2 seconds, each with its warm-up.
Not here: the load (src/penstock/perf), how brokers are started (brokers.py), what happens in overload (overload.py).
"""

import argparse
import json
import os
import platform
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from brokers import brokers, end_with_us, fail, running, tell

from penstock.client.connection import ClientError
from penstock.perf.command import measured, show
from penstock.perf.rabbitmq import NotStarted
from penstock.perf.run import ALL, ROUNDS, Report, UnknownScenario, choose

RESULTS = Path(__file__).resolve().parent / "results" / "latest.json"
SECONDS = 2.0  # with three rounds, `make bench` stays below ten minutes


def main() -> int:
    options = _options()
    end_with_us()
    begun_s = time.monotonic()
    try:
        choose(options.scenarios)
        report = _compare(options)
    except KeyboardInterrupt:
        fail("stopped", 130)
    except UnknownScenario as error:
        fail(str(error), 2)
    except (ClientError, NotStarted) as error:
        fail(str(error), 1)
    show(report, options.json)
    _write(report)
    tell(f"took {time.monotonic() - begun_s:.0f} s")
    return 1 if report.errors else 0


def _compare(options: argparse.Namespace) -> Report:
    with ExitStack() as stack:
        found = [stack.enter_context(running(broker, {})) for broker in brokers()]
        first, second = found[0], found[1] if len(found) > 1 else None
        return measured(
            options.scenarios,
            first.uri,
            second.uri if second else None,
            options.seconds,
            options.rounds,
            pid=first.pid,
            compare_pid=second.pid if second else None,
        )


def _write(report: Report) -> None:
    machine = {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": machine, **report.as_json()}, indent=2, ensure_ascii=False) + "\n")
    tell(f"written to {RESULTS}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/compare.py", description="Penstock against RabbitMQ, in turns.")
    parser.add_argument("scenarios", nargs="*", default=[ALL], help="scenarios of `penstock perf`, or all (default)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each run is measured")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each scenario on each broker")
    parser.add_argument("--json", action="store_true", help="JSON to stdout instead of the table")
    options = parser.parse_args()
    if options.seconds <= 0 or options.rounds < 1:
        parser.error("--seconds must be above 0 and --rounds at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())

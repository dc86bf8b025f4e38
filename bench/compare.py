"""Penstock against RabbitMQ on this machine, in turns, in one run: `make bench`.

Starts both brokers on free loopback ports, plays every scenario of `penstock perf` A B A B …, prints the table and
writes bench/results/latest.json. Where rabbitmq-server is not installed, Penstock is measured alone. The defaults take
about five minutes: 13 scenarios, 2 brokers, 3 rounds of 2 seconds, each with a second of warm-up.
Not here: the load (src/penstock/perf), how RabbitMQ is started (src/penstock/perf/rabbitmq.py).
"""

import argparse
import json
import os
import platform
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

from penstock.client.connection import ClientError
from penstock.perf.command import measured, show
from penstock.perf.rabbitmq import NotInstalled, NotStarted, RabbitMQ, running_rabbitmq
from penstock.perf.run import ALL, ROUNDS, Report, UnknownScenario, choose

RESULTS = Path(__file__).resolve().parent / "results" / "latest.json"
SECONDS = 2.0  # with three rounds, `make bench` stays below six minutes
START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 20
READY = re.compile(r"^ready: amqp ([^\s,]+)")


@dataclass(frozen=True, slots=True)
class Penstock:
    uri: str
    pid: int


@contextmanager
def running_penstock() -> Iterator[Penstock]:
    """Start the broker in this environment on free ports with a data directory of its own; stop it at the end."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        command = [sys.executable, "-m", "penstock", "serve", "--listen", "127.0.0.1:0"]
        command += ["--management", "127.0.0.1:0", "--data", f"{directory}/data"]
        with open(f"{directory}/log", "w+") as log:
            # Its own session: Ctrl-C is for us, and we stop the broker when the objects of the run are deleted.
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
            try:
                yield Penstock(f"amqp://guest:guest@{_ready_address(process, log)}/%2f", process.pid)
            finally:
                _stop(process)


def main() -> int:
    options = _options()
    # SIGTERM as Ctrl-C: brokers must not outlive us.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        choose(options.scenarios)
        report = _compare(options)
    except KeyboardInterrupt:
        _fail("stopped", 130)
    except UnknownScenario as error:
        _fail(str(error), 2)
    except (ClientError, NotStarted) as error:
        _fail(str(error), 1)
    show(report, options.json)
    _write(report)
    return 1 if report.errors else 0


def _compare(options: argparse.Namespace) -> Report:
    with ExitStack() as stack:
        rabbitmq = _rabbitmq(stack)
        penstock = stack.enter_context(running_penstock())
        return measured(
            options.scenarios,
            penstock.uri,
            rabbitmq.uri if rabbitmq else None,
            options.seconds,
            options.rounds,
            pid=penstock.pid,
            compare_pid=rabbitmq.pid if rabbitmq else None,
        )


def _rabbitmq(stack: ExitStack) -> RabbitMQ | None:
    try:
        return stack.enter_context(running_rabbitmq())
    except NotInstalled as error:
        print(f"bench: {error}; Penstock is measured alone", file=sys.stderr)
        return None


def _ready_address(process: subprocess.Popen[str], log: IO[str]) -> str:
    """host:port from the line that says ready. A thread goes on reading: a full pipe would stop the broker."""
    assert process.stdout is not None
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True).start()
    try:
        while line := lines.get(timeout=START_TIMEOUT_S):
            if found := READY.match(line):
                return found[1]
        why = f"ended with code {process.wait()}"
    except queue.Empty:
        why = f"was not ready within {START_TIMEOUT_S} s"
    log.seek(0)
    told = log.read().strip().splitlines()
    raise NotStarted(f"penstock serve {why}: {told[-1] if told else 'it said nothing'}")


def _read_lines(stdout: IO[str], lines: "queue.Queue[str]") -> None:
    for line in stdout:
        lines.put(line)
    lines.put("")


def _stop(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _write(report: Report) -> None:
    machine = {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({"machine": machine, **report.as_json()}, indent=2, ensure_ascii=False) + "\n")
    print(f"bench: written to {RESULTS}", file=sys.stderr)


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


def _fail(text: str, code: int) -> NoReturn:
    print(f"bench: {text}", file=sys.stderr)
    raise SystemExit(code)


if __name__ == "__main__":
    sys.exit(main())

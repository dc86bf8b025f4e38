"""Rows per second into Spark and out of it, against Spark's own source and the naive way, in turns: `make sparkbench`.

Starts `penstock serve` and one session of Spark on two cores; plays every way of sparkways.py A B C A B C …, after a
short turn of each that does not count; then measures how long a message takes to the sink. Prints a Markdown table,
ratios first, and writes bench/results/spark.json. With --memory: thirty million rows through one query instead, and the
memory of all its processes.
Not here: the ways (sparkways.py, sparknaive.py), latency (sparklatency.py), the watching of memory (sparkmemory.py).
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from brokers import end_with_us, fail, running_penstock, tell

from penstock.client.connection import ClientError
from penstock.perf.rabbitmq import NotStarted

HERE = Path(__file__).resolve().parent

try:
    import pyspark
    from sparklatency import Latency, measure
    from sparkmemory import Passage, long_query
    from sparknaive import NaiveSource
    from sparkways import (
        BODY_BYTES,
        Bed,
        FromQueue,
        FromQueueInTwo,
        FromRate,
        FromStream,
        Naively,
        NaivelyByGet,
        OutNaively,
        OutOfSpark,
        Turn,
        Way,
        WrongRows,
    )

    from penstock.spark.session import local_session
except ImportError as error:
    fail(f"{error}: Spark is measured with what `make setup` installs", 2)

RESULTS = HERE / "results"
ROWS = 2_000_000
MEMORY_ROWS = 30_000_000  # of the first ten million a part is the warming up of a JVM and of a broker's memory
ROUNDS = 3
WAYS = ("stream", "stream-2", "queue", "queue-2", "rate", "naive", "naive-get", "sink", "naive-sink")
LATENCY_MESSAGES = 200
WARM_UP_SHARE = 4  # the warm-up is this part of a turn
# Slower ways get fewer rows, so that a turn of each takes seconds.
SHARES = {"queue": 2, "queue-2": 2, "naive": 20, "naive-get": 100, "sink": 2, "naive-sink": 200}
REFERENCE = {
    "stream": "naive",
    "stream-2": "naive",
    "queue": "naive",
    "queue-2": "naive",
    "rate": "naive",
    "sink": "naive-sink",
}


def ways(bed: Bed, rows: int) -> list[Way]:
    def share(name: str) -> int:
        return max(1, rows // SHARES.get(name, 1))

    return [
        FromStream(bed, "stream", "stream to Parquet, one task", rows, "1"),
        FromStream(bed, "stream-2", "stream to Parquet, two tasks (`minPartitions` 2)", rows, "2"),
        FromQueue(bed, "queue", "queue to Parquet, one task", share("queue")),
        FromQueueInTwo(bed, "queue-2", "queue to Parquet, two tasks", share("queue")),
        FromRate(bed, "rate", "Spark's own `rate-micro-batch` to Parquet, two tasks", rows),
        Naively(bed, "naive", "naive: pika's `consume` in a SimpleDataSourceStreamReader", share("naive")),
        NaivelyByGet(bed, "naive-get", "naive, with `basic_get`", share("naive-get")),
        OutOfSpark(bed, "sink", "`df.write` to a durable queue, confirmed", share("sink")),
        OutNaively(
            bed, "naive-sink", "naive: pika's `basic_publish` with confirms in `foreachPartition`", share("naive-sink")
        ),
    ]


def in_turns(all_ways: Sequence[Way], rounds: int) -> dict[str, list[Turn]]:
    turns: dict[str, list[Turn]] = {way.name: [] for way in all_ways}
    for number in range(rounds + 1):
        for way in all_ways:
            # The JVM compiles what it runs often, and Python workers are started once: the first turn is for that.
            turn = way.turn(way.rows if number else max(1, way.rows // WARM_UP_SHARE))
            which = f"round {number}" if number else "warm-up"
            tell(f"{which}: {way.name}: {turn.rows:,} rows, {turn.seconds:.2f} s, {turn.rate:,.0f} rows/s")
            if number:
                turns[way.name].append(turn)
    return turns


def table(all_ways: Sequence[Way], turns: Mapping[str, Sequence[Turn]]) -> Iterator[str]:
    medians = {name: statistics.median(one.rate for one in found) for name, found in turns.items()}
    yield "| times the naive way | times `rate` | what | rows per second |"
    yield "| --- | --- | --- | --- |"
    for way in all_ways:
        median = medians[way.name]
        naive = medians.get(REFERENCE.get(way.name, ""))
        to_naive = f"{median / naive:.1f}" if naive else ""
        to_rate = f"{median / medians['rate']:.2f}" if "rate" in medians and "sink" not in way.name else ""
        yield f"| {to_naive} | {to_rate} | {way.what} | {median:,.0f} |"


def latency_table(found: Mapping[str, Latency]) -> Iterator[str]:
    yield "| from confirm to sink | p50 | p99 |"
    yield "| --- | --- | --- |"
    for kind, one in found.items():
        yield f"| {kind} | {one.p50:.0f} ms | {one.p99:.0f} ms |"


def memory_table(found: Sequence[Passage]) -> Iterator[str]:
    yield "| source | processes | first half, highest | second half, highest | flat | course |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for passage in found:
        for group, course in passage.courses.items():
            yield (
                f"| {passage.source} | {group} ({passage.processes[group]}) | {course.first_half:,.0f} MB "
                f"| {course.second_half:,.0f} MB | {'yes' if course.flat else 'no'} | `{course.line}` |"
            )


def rates(bed: Bed, options: argparse.Namespace) -> dict[str, Any]:
    asked = [way for way in ways(bed, options.rows) if not options.ways or way.name in options.ways]
    turns = in_turns(asked, options.rounds)
    show(table(asked, turns))
    latencies: dict[str, Latency] = {}
    if options.latency:
        latencies = {kind: measure(bed, kind, options.latency) for kind in ("stream", "queue")}
        print()
        show(latency_table(latencies))
    return {
        "turns": {name: [{**asdict(one), "rate": one.rate} for one in found] for name, found in turns.items()},
        "latency_ms": {kind: asdict(one) for kind, one in latencies.items()},
    }


def memory(bed: Bed, options: argparse.Namespace, broker_pid: int) -> dict[str, Any]:
    found = []
    for kind in options.sources:
        passage = long_query(bed, broker_pid, kind, options.rows)
        turn = passage.turn
        tell(
            f"{kind}: filled in {passage.fill_s:.0f} s; {turn.rows:,} rows in {turn.batches} batches, "
            f"{turn.seconds:.1f} s, {turn.rate:,.0f} rows/s"
        )
        found.append(passage)
    show(memory_table(found))
    return {
        "passages": [
            {
                "source": one.source,
                "turn": {**asdict(one.turn), "rate": one.turn.rate},
                "processes": dict(one.processes),
                "resident_mb": {
                    group: {
                        "first_half": course.first_half,
                        "second_half": course.second_half,
                        "flat": course.flat,
                        "values": [round(value, 1) for value in course.values],
                    }
                    for group, course in one.courses.items()
                },
            }
            for one in found
        ]
    }


def show(lines: Iterator[str]) -> None:
    for line in lines:
        print(line, flush=True)


@contextmanager
def bed_made() -> Iterator[tuple[Bed, int]]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as scratch, running_penstock() as broker:
        spark = local_session("penstock bench", cores=2)
        try:
            spark.dataSource.register(NaiveSource)
            yield Bed(spark, broker.uri, Path(scratch)), broker.pid
        finally:
            spark.stop()


def main() -> int:
    options = _options()
    end_with_us()
    begun_s = time.monotonic()
    try:
        with bed_made() as (bed, broker_pid):
            found = memory(bed, options, broker_pid) if options.memory else rates(bed, options)
            java = bed.spark._jvm.java.lang.System.getProperty("java.version") if bed.spark._jvm else ""
    except KeyboardInterrupt:
        fail("stopped", 130)
    except (ClientError, NotStarted, WrongRows, TimeoutError) as error:
        fail(str(error), 1)
    machine = {
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": java,
        "spark": pyspark.__version__,
        "cores": os.cpu_count(),
    }
    results = {"machine": machine, "rows": options.rows, "body_bytes": BODY_BYTES, **found}
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    tell(f"written to {options.results}")
    tell(f"took {time.monotonic() - begun_s:.0f} s")
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/spark.py", description="Rows per second into Spark and out of it.")
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"some of {', '.join(WAYS)}; all by default")
    parser.add_argument("--rows", type=int, help=f"of a turn; slower ways get a part of it; {ROWS:,}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="turns of each way")
    parser.add_argument("--latency", type=int, default=LATENCY_MESSAGES, help="messages one by one; 0: none")
    parser.add_argument("--memory", action="store_true", help=f"one query of {MEMORY_ROWS:,} rows, and its memory")
    parser.add_argument("--sources", nargs="+", choices=("stream", "queue"), default=["stream", "queue"])
    parser.add_argument("--results", type=Path, help="where the JSON goes")
    options = parser.parse_args()
    options.rows = options.rows or (MEMORY_ROWS if options.memory else ROWS)
    options.results = options.results or RESULTS / ("spark-memory.json" if options.memory else "spark.json")
    if unknown := set(options.ways) - set(WAYS):
        parser.error(f"no way {', '.join(sorted(unknown))}; there are {', '.join(WAYS)}")
    if options.rows < 1 or options.rounds < 1 or options.latency < 0:
        parser.error("--rows and --rounds must be at least 1, --latency at least 0")
    return options


if __name__ == "__main__":
    sys.exit(main())

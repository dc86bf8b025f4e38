"""The flow pipeline: does it keep up, how late is a row, and what do many events cost: `make pipelinebench`.

    emitted    events a second that a broker writes at full load (penstock perf, several scenarios)
    sustained  events a second that the streaming job takes from a stream that is full of them, on local[2]
    delay      from a block's end to its row in the tables, with events coming as fast as emitted, and ten times so
    batch      seconds of a rebuild over 1e5, 1e6 and 1e7 events: seconds for each million. The smaller ones are made
               before the largest and behind it, and their means count: a machine may be slower by then

Prints Markdown and writes bench/results/pipeline.json. --small does the same with few events, to see that it runs.
Exit code 1: it does not keep up with ten times what the broker emits, or a rebuild's cost is no straight line.
Not here: the made-up events (madeevents.py).
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from brokers import end_with_us, fail, running_penstock, tell
from madeevents import BEGIN_US, MadeBroker, made, write_archive

from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from penstock.amqp.properties import PERSISTENT, Properties, encode_properties
from penstock.client.connection import Connection
from penstock.client.publisher import Publisher
from penstock.client.stream import offsets
from penstock.client.uri import parse_uri

try:
    import pyspark

    from penstock.spark.flowjob import FlowJob, FlowSettings, config, rebuild
    from penstock.spark.ledger import Ledger
    from penstock.spark.session import local_session
except ImportError as error:
    fail(f"{error}: the pipeline is measured with what `make setup` installs", 2)

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
STREAM = "penstock.events"
TIMES = 10  # what the pipeline must keep up with: so many times what the broker emits
LEAST = 0.95  # of what comes so many is taken as fast, from commit to commit
STRAIGHT = 1.3  # a further million may take so many times what it takes between the two sizes before
# Many stages, each with a sample a second, and small credit, so that they block and unblock: most events come then.
SMALL_CREDIT = {"credit.reader_channel": "50,25", "credit.channel_queue": "50,25"}
LOADS: dict[str, tuple[str, dict[str, str]]] = {
    "acks": ("acks", {}),
    "pairs": ("pairs", {}),
    "persistent": ("persistent", {}),
    "queues": ("queues", {}),
    "queues, credit 50,25": ("queues", SMALL_CREDIT),
}
SILENT = {"events.enabled": "false"}  # the stream is ours to write
PROPERTIES = encode_properties(Properties(delivery_mode=PERSISTENT, content_type="application/json"))
PUBLISHERS = 5  # of the made-up broker
PUBLISHER_PER_S = 40  # events, of each: ten times the events are of ten times the stages
EMITTED_S = 5  # the busiest so many seconds of a load count
POLL_S = 0.02
WARM_UP = 4000  # events
HOUR_US = 3_600_000_000
MEMORY = "2g"
MASTER = "local[2]"


@dataclass(frozen=True, slots=True)
class Sizes:
    load_s: float
    prefilled: int
    paced_s: float
    batches: tuple[int, ...]


WHOLE = Sizes(20.0, 1_000_000, 120.0, (100_000, 1_000_000, 10_000_000))
SMALL = Sizes(8.0, 5_000, 20.0, (10_000, 30_000))


@dataclass(slots=True)
class Delays:
    """Of events that come as they happen."""

    came_per_s: float
    taken_per_s: float  # between the first commit that counts and the last one while they come
    p50_s: float  # from a block's end to the commit that has its row
    p99_s: float


@dataclass(slots=True)
class Figures:
    """All that was measured."""

    emitted_per_s: dict[str, float]
    sustained_per_s: float
    paced: list[Delays]
    batch_s: dict[int, float]


def emitted(load: str, settings: dict[str, str], seconds: float) -> float:
    """Events a second while this load is on, in its busiest seconds."""
    with running_penstock(settings) as broker:
        command = [sys.executable, "-m", "penstock", "perf", load, "--uri", broker.uri, "--seconds", str(seconds)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        seen: list[tuple[float, int]] = []  # when, up to which offset
        while process.poll() is None:
            time.sleep(1.0)
            seen.append((time.monotonic(), next_offset(broker.uri)))
        if process.returncode or len(seen) <= EMITTED_S:
            fail(f"penstock perf {load} ended with {process.returncode} after {len(seen)} s", 1)
        spans = zip(seen, seen[EMITTED_S:])
        return max((last - first) / (end_s - began_s) for (began_s, first), (end_s, last) in spans)


def next_offset(uri: str) -> int:
    with Connection.connect(parse_uri(uri)) as connection:
        return offsets(connection.open_channel(), STREAM).next


@contextmanager
def silent_broker() -> Iterator[str]:
    """A broker that leaves the events stream to us; its address."""
    with running_penstock(SILENT) as broker:
        with Connection.connect(parse_uri(broker.uri)) as connection:
            channel = connection.open_channel()
            channel.call(QueueDeclare(STREAM, durable=True, arguments={"x-queue-type": "stream"}), QueueDeclareOk)
        yield broker.uri


def fill(uri: str, count: int, begin_us: int) -> None:
    with Connection.connect(parse_uri(uri)) as connection:
        publisher = Publisher(connection.open_channel(), 5000)
        for _, body in made(count, PUBLISHERS, begin_us=begin_us):
            publisher.publish("", STREAM, PROPERTIES, body.encode())
        publisher.flush()


def sustained(spark: "pyspark.sql.SparkSession", count: int, directory: Path) -> float:
    """Events a second from a full stream, the JVM warm."""
    with silent_broker() as uri:
        with Ledger(directory).writing() as ledger:
            # The first batches warm the JVM up, and are not counted.
            fill(uri, WARM_UP, BEGIN_US)
            FlowJob(spark, ledger, FlowSettings(uri, directory, batch_events=WARM_UP // 4)).run(once=True)
            fill(uri, count, BEGIN_US + HOUR_US)
            began_s = time.perf_counter()
            FlowJob(spark, ledger, FlowSettings(uri, directory)).run(once=True)
            took_s = time.perf_counter() - began_s
            assert ledger.rows("events") == WARM_UP + count, "events are missing or double"
        return count / took_s


class Paced(threading.Thread):
    """Publishes events as they happen, so many a second; knows when each of them happened."""

    def __init__(self, uri: str, per_s: float, seconds: float) -> None:
        super().__init__(daemon=True)
        self._broker = MadeBroker(max(1, round(per_s / PUBLISHER_PER_S)), begin_us=0)
        self.happened: list[float] = []  # by offset
        self.ends: list[int] = []  # offsets of those that end a block
        self.ended_s = 0.0  # when the last one had been published; 0 before
        self._uri = uri
        self._per_s = per_s
        self._seconds = seconds

    def run(self) -> None:
        began_s = time.time()
        second: list[tuple[int, str]] = []
        with Connection.connect(parse_uri(self._uri)) as connection:
            publisher = Publisher(connection.open_channel(), 5000)
            while (now := time.time()) < began_s + self._seconds:
                for _ in range(int((now - began_s) * self._per_s) - len(self.happened)):
                    if not second:
                        second = list(reversed(self._broker.second()))
                    at_us, body = second.pop()
                    if '"unblocked"' in body:
                        self.ends.append(len(self.happened))
                    self.happened.append(now)
                    body = body.replace(f'"at_us":{at_us}', f'"at_us":{int(now * 1e6)}', 1)
                    publisher.publish("", STREAM, PROPERTIES, body.encode())
                publisher.flush()
                time.sleep(POLL_S)
        self.ended_s = time.time()


def delays(spark: "pyspark.sql.SparkSession", per_s: float, seconds: float, directory: Path) -> Delays:
    """While events come so fast. The first quarter does not count: Spark's workers start then."""
    with silent_broker() as uri:
        feed = Paced(uri, per_s, seconds)
        with Ledger(directory).writing() as ledger:
            job = FlowJob(spark, ledger, FlowSettings(uri, directory))
            runner = threading.Thread(target=job.run, daemon=True)
            runner.start()
            counts_s = time.time() + seconds / 4
            feed.start()
            seen: list[tuple[float, int]] = []  # when, up to which offset
            while feed.is_alive() or not seen or seen[-1][1] < len(feed.happened):
                mark = ledger.manifest().marks.get(STREAM, 0)
                if not seen or mark > seen[-1][1]:
                    seen.append((time.time(), mark))
                assert runner.is_alive(), "the job ended by itself"
                time.sleep(POLL_S)
            job.stop()
            runner.join()
    found = []
    commits = iter(seen)
    at, mark = next(commits)
    for offset in feed.ends:
        while mark <= offset:
            at, mark = next(commits)
        if feed.happened[offset] > counts_s:
            found.append(at - feed.happened[offset])
    # The batch behind the feed's end is left out: it has what came in a part of its time.
    counted = [one for one in seen if counts_s < one[0] <= feed.ended_s]
    if len(counted) < 2:
        fail(f"{len(counted)} commits while {per_s:,.0f} events a second came: too few to say how many are taken", 1)
    (first_s, first), (last_s, last) = counted[0], counted[-1]
    quantiles = statistics.quantiles(found, n=100)
    return Delays(per_s, (last - first) / max(last_s - first_s, 1e-9), quantiles[49], quantiles[98])


def taken(spark: "pyspark.sql.SparkSession", count: int, scratch: Path) -> float:
    """Seconds of a rebuild over so many events."""
    with tempfile.TemporaryDirectory(dir=scratch) as name:
        archive = Path(name) / "archive"
        write_archive(archive, count, PUBLISHERS)
        with Ledger(Path(name) / "tables").writing() as ledger:
            began_s = time.perf_counter()
            done = rebuild(spark, ledger, 10, archive)
            took_s = time.perf_counter() - began_s
    assert done.events == count, f"{done.events} of {count} events"
    return took_s


def measured(sizes: Sizes, scratch: Path) -> Figures:
    tell("what a broker emits at full load")
    loads = {name: emitted(load, settings, sizes.load_s) for name, (load, settings) in LOADS.items()}
    most = max(loads.values())
    tell(f"{most:,.0f} events a second")
    spark = local_session("pipeline bench", 2, MEMORY, **config(MASTER))
    try:
        tell(f"{sizes.prefilled:,} events from a full stream")
        rate = sustained(spark, sizes.prefilled, scratch / "full")
        tell(f"{rate:,.0f} events a second")
        paced = []
        for per_s in (most, TIMES * most):
            tell(f"{per_s:,.0f} events a second for {sizes.paced_s:g} s")
            found = delays(spark, per_s, sizes.paced_s, scratch / f"paced-{per_s:.0f}")
            tell(f"{found.taken_per_s:,.0f} events a second, {found.p50_s:.1f} s until half of the rows were there")
            paced.append(found)
    finally:
        spark.stop()
    return Figures(loads, rate, paced, rebuilds(sizes, scratch))


def rebuilds(sizes: Sizes, scratch: Path) -> dict[int, float]:
    """Seconds of a rebuild, by how many events there were."""
    spark = local_session("pipeline bench", 2, MEMORY, **config(MASTER))
    there, back = sizes.batches, sizes.batches[-2::-1]
    try:
        tell("a rebuild that does not count: the JVM is cold")
        taken(spark, there[0], scratch)
        batches: dict[int, list[float]] = {}
        for count in (*there, *back):
            tell(f"a rebuild over {count:,} events")
            took_s = taken(spark, count, scratch)
            tell(f"{took_s:.1f} s")
            batches.setdefault(count, []).append(took_s)
    finally:
        spark.stop()
    return {count: statistics.fmean(seconds) for count, seconds in batches.items()}


def shown(figures: Figures) -> list[str]:
    most = max(figures.emitted_per_s.values())
    lines = ["| what | figure |", "| --- | --- |"]
    for load, rate in figures.emitted_per_s.items():
        lines.append(f"| a broker under `perf` {load} emits | {rate:,.0f} events/s |")
    lines += [
        f"| the pipeline on local[2], from a full stream | {figures.sustained_per_s:,.0f} events/s, "
        f"{figures.sustained_per_s / most:,.0f} times that |",
        *(
            f"| from a block's end to its row, {one.came_per_s:,.0f} events/s coming, {one.taken_per_s:,.0f} taken | "
            f"p50 {one.p50_s:.1f} s, p99 {one.p99_s:.1f} s |"
            for one in figures.paced
        ),
        "",
    ]
    return [*lines, *shown_rebuilds(figures.batch_s)]


def shown_rebuilds(batch_s: dict[int, float]) -> list[str]:
    return [
        "| events in a batch | s | s per million |",
        "| --- | --- | --- |",
        *(f"| {count:,} | {took_s:.1f} | {took_s / count * 1e6:.1f} |" for count, took_s in batch_s.items()),
        "",
        *(
            f"{took_s:.1f} s for a further million up to {count:,} events."
            for count, took_s in further(batch_s).items()
        ),
    ]


def further(batch_s: dict[int, float]) -> dict[int, float]:
    """Seconds for each million more than the size before had, by size: what planning costs is not in it."""
    sizes = sorted(batch_s)
    return {more: (batch_s[more] - batch_s[few]) / (more - few) * 1e6 for few, more in pairwise(sizes)}


def is_straight(batch_s: dict[int, float]) -> bool:
    """Whether more events do not cost more each."""
    costs = list(further(batch_s).values())
    return all(more <= STRAIGHT * few for few, more in pairwise(costs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few events: to see that it runs")
    parser.add_argument("--batch", action="store_true", help="only the rebuilds")
    parser.add_argument("--output", type=Path, help="where the figures go; --small writes none without it")
    options = parser.parse_args()
    end_with_us()
    with tempfile.TemporaryDirectory(prefix="penstock-pipeline-") as name:
        sizes = SMALL if options.small else WHOLE
        if options.batch:
            batch_s = rebuilds(sizes, Path(name))
            print("\n".join(shown_rebuilds(batch_s)))
            sys.exit(0 if is_straight(batch_s) else 1)
        figures = measured(sizes, Path(name))
    for line in shown(figures):
        print(line)
    most = max(figures.emitted_per_s.values())
    kept_up = figures.sustained_per_s >= TIMES * most and figures.paced[-1].taken_per_s >= LEAST * TIMES * most
    print(f"\nThe pipeline {'keeps' if kept_up else 'DOES NOT keep'} up with {TIMES} times what the broker emits.")
    straight = is_straight(figures.batch_s)
    if len(figures.batch_s) > 2:  # two sizes cannot say
        print(f"A rebuild's cost {'is' if straight else 'IS NOT'} a straight line.")
    output = options.output or (None if options.small else RESULTS / "pipeline.json")
    if output is not None:
        document = {
            "machine": {"cpus": os.cpu_count(), "python": platform.python_version(), "pyspark": pyspark.__version__},
            "figures": asdict(figures),
        }
        output.parent.mkdir(exist_ok=True)
        output.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if kept_up and straight else 1)


if __name__ == "__main__":
    main()

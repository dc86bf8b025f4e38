"""Does the API answer while the broker works, and what does it cost to ask? Penstock alone: make managementbench

answers  how long requests take: on an idle broker, at full load, with 10,000 queues, and with both; and the two long
         answers, of every queue: without load and with it
holds    how long a message waits while one request after the other is made: what a request holds the event loop
page     how long a view of the page takes in Chromium, from the click to what it shows: idle, and with both
scraping messages per second with a scrape of /metrics every 5 s and without, in turns; CPU of one scrape
Prints Markdown tables; all values go to bench/results/management.json. Exit code 1: a p99 is above 200 ms, or a scrape
every 5 s takes more than 2 % of a core.
Requests come from a process of their own, so that they do not wait for the load tool.
Not here: how fast the broker is (compare.py), whether answers are right (the tests).
"""

import argparse
import base64
import http.client
import itertools
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from brokers import Running, end_with_us, fail, running_penstock, tell

from penstock.client.connection import ClientError
from penstock.client.uri import parse_uri
from penstock.perf.cpu import used_s
from penstock.perf.figure import percentile
from penstock.perf.load import LoadError, drain
from penstock.perf.measure import WARM_UP_S, last
from penstock.perf.rabbitmq import NotStarted
from penstock.perf.roundtrip import RoundTrip
from penstock.perf.site import Site

RESULTS = Path(__file__).resolve().parent / "results" / "management.json"
SECONDS = 10.0
ANSWERS = 4  # times the seconds: enough requests of each path for a p99
ROUNDS = 5
QUEUES = 10_000
BODY_BYTES = 100
SCRAPE_S = 5.0
PER_OBJECT_S = 30.0
PAUSE_S = 0.02  # between two requests: a page and a few scrapers, not a flood
LIMIT_MS = 200.0  # what the p99 of a request may be
COST_MAX = 0.02  # of a core, what scraping may take
SCRAPES = 100  # to know what one costs
USER = "guest:guest"
PER_OBJECT = "/metrics/per-object"
PATHS = (
    "/api/overview",
    "/api/queues?page=1&page_size=100&sort=messages&sort_reverse=true",
    "/api/connections?page=1&page_size=100",
    "/api/flow",
    "/api/history?age=3600",
    "/metrics",
    "/api/queues?columns=name,messages",  # what rabbitmqadmin asks for: all queues, some columns
    "/api/exchanges",
    "/api/nodes",
    "/api/definitions",
)
LONG = (PER_OBJECT, "/api/queues")  # megabytes, made in slices, so that messages do not wait for them

Times = dict[str, list[float]]  # path -> seconds each request took


# Requests, in a process of their own.


class Client:
    """One kept connection, as a browser or Prometheus has it."""

    def __init__(self, url: str) -> None:
        found = urllib.parse.urlsplit(url)
        self._connection = http.client.HTTPConnection(found.hostname or "", found.port, timeout=60)
        self.size = 0
        self._head = {"Authorization": f"Basic {base64.b64encode(USER.encode()).decode()}"}

    def get(self, path: str) -> float:
        """Seconds it took; `size` is that of the answer."""
        begun = time.perf_counter()
        self._connection.request("GET", path, headers=self._head)
        answer = self._connection.getresponse()
        body = answer.read()
        took = time.perf_counter() - begun
        self.size = len(body)
        if answer.status != 200:
            raise LoadError(f"GET {path}: {answer.status} {body[:200]!r}")
        return took


def ask(url: str, paths: Sequence[str], pause_s: float, until: Pipe) -> None:
    """Ask for each path in turn until told to end; then send what each request took."""
    times: Times = {path: [] for path in paths}
    try:
        client = Client(url)
        client.get(paths[0])  # the first request logs in, and hashes a password
        until.send("ready")
        for path in itertools.cycle(paths):
            times[path].append(client.get(path))
            if until.poll(pause_s):
                break
        until.send(times)
    except (LoadError, OSError, http.client.HTTPException) as error:
        until.send(f"{type(error).__name__}: {error}")


@contextmanager
def asking(url: str, paths: Sequence[str], pause_s: float = PAUSE_S) -> Iterator[Times]:
    """Requests one after the other meanwhile; the dict is filled at the end."""
    times: Times = {}
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=ask, args=(url, paths, pause_s, theirs), daemon=True)
    process.start()
    try:
        _hear(ours)
        yield times
        ours.send("end")
        found = _hear(ours)
        assert isinstance(found, dict)
        times.update(found)
    finally:
        process.terminate()
        process.join()


def _hear(pipe: Pipe) -> object:
    if not pipe.poll(120):
        raise LoadError("the process that makes requests does not answer")
    told = pipe.recv()
    if isinstance(told, str) and told != "ready":
        raise LoadError(told)
    return told


# Load.


@contextmanager
def loaded(site: Site) -> Iterator[None]:
    """As many messages as go: one publisher, one consumer, acks in batches."""
    (queue,) = site.queues(1)
    publisher, consumer = site.publisher("", queue), site.consumer([queue])
    publisher.consumers = [consumer]
    site.start([publisher], [consumer])
    last(WARM_UP_S, [publisher, consumer])
    yield
    drain([publisher], [consumer], lambda: [publisher.sent])


def many_queues(site: Site, count: int) -> None:
    for begin in range(0, count, 500):
        site.queues(min(500, count - begin))


# What is measured.


def answers(broker: Running, seconds: float, queues: int, with_load: bool) -> Times:
    with site_of(broker, seconds) as site:
        if queues:
            many_queues(site, queues)
            time.sleep(6.0)  # until rates and totals have seen them
        with loaded(site) if with_load else nullcontext(), asking(broker.management, PATHS) as times:
            time.sleep(seconds)
    return times


def long_answers(broker: Running, seconds: float, queues: int) -> tuple[dict[str, Times], dict[str, int]]:
    """What they take without load and with it, and how many bytes they are."""
    found: dict[str, Times] = {}
    with site_of(broker, seconds) as site:
        many_queues(site, queues)
        client = Client(broker.management)
        sizes = {path: (client.get(path), client.size)[1] for path in LONG}
        with asking(broker.management, LONG) as found["no load"]:
            time.sleep(seconds)
        with loaded(site), asking(broker.management, LONG) as found["full load"]:
            time.sleep(seconds)
    return found, sizes


def views(broker: Running, seconds: float, queues: int, with_load: bool) -> Times:
    """The same of the page's views, by name."""
    from page import opened

    with site_of(broker, seconds) as site:
        many_queues(site, queues)
        with loaded(site) if with_load else nullcontext():
            return opened(broker.management, seconds)


def has_browser() -> bool:
    try:
        from page import chromium
    except ImportError:
        return False
    return chromium() is not None


def holds(broker: Running, seconds: float, queues: int) -> dict[str, list[float]]:
    """Round trips of one message, alone and while one path is asked for again and again."""
    found: dict[str, list[float]] = {}
    with site_of(broker, seconds) as site:
        many_queues(site, queues)
        (queue,) = site.queues(1)
        trip = RoundTrip(site, queue)
        for path in ("", *PATHS, PER_OBJECT):
            with asking(broker.management, [path], 0.0) if path else nullcontext():
                until = time.monotonic() + seconds / 2
                took = []
                while time.monotonic() < until:
                    took.append(trip.go())
            found[path or "nobody asks"] = sorted(took)
    return found


def scraping(broker: Running, seconds: float, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """(messages per second, CPU µs per message) with a scrape every SCRAPE_S and without, in turns, under one load."""
    found: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
    with site_of(broker, seconds) as site:
        (queue,) = site.queues(1)
        publisher, consumer = site.publisher("", queue), site.consumer([queue])
        publisher.consumers = [consumer]
        site.start([publisher], [consumer])
        last(WARM_UP_S, [publisher, consumer])
        for turn in range(2 * rounds):
            # Without, with; with, without: what drifts falls on both.
            kind = ("without", "with", "with", "without")[turn % 4]
            with asking(broker.management, ["/metrics"], SCRAPE_S) if kind == "with" else nullcontext():
                start, before = site.read_clocks(), consumer.received
                last(seconds, [publisher, consumer])
                end, after = site.read_clocks(), consumer.received
            figure = site.rate("", "msg/s", start, end, after - before, after - before)
            found[kind].append((figure.value, figure.broker_cpu_us or 0.0))
        drain([publisher], [consumer], lambda: [publisher.sent])
    return found


def idle_share(broker: Running) -> float:
    """What an idle broker takes of a core: rates, history and flow look at it all the time."""
    begun_s, before = time.perf_counter(), used_s(broker.pid) or 0.0
    time.sleep(2 * SCRAPE_S)
    return ((used_s(broker.pid) or 0.0) - before) / (time.perf_counter() - begun_s)


def scrape_cpu_ms(broker: Running, path: str, scrapes: int, idle: float) -> float:
    """CPU of one scrape on an idle broker, less what it uses anyway."""
    client = Client(broker.management)
    client.get(path)
    begun_s, before = time.perf_counter(), used_s(broker.pid) or 0.0
    for _ in range(scrapes):
        client.get(path)
    took_s, used = time.perf_counter() - begun_s, (used_s(broker.pid) or 0.0) - before
    return (used - idle * took_s) / scrapes * 1e3


@contextmanager
def site_of(broker: Running, seconds: float) -> Iterator[Site]:
    with Site(parse_uri(broker.uri), broker.pid, seconds, BODY_BYTES) as site:
        yield site


# Tables.


def ms(times: Sequence[float], percent: float) -> float:
    return percentile(sorted(times), percent) * 1e3


def show_answers(table: dict[str, Times], what: str, rows: Sequence[str]) -> None:
    print(f"| {what} | " + " | ".join(f"{name}, p50 / p99 / max ms" for name in table) + " |")
    print("| --- |" + " --- |" * len(table))
    for path in rows:
        cells = [_cell(times[path]) for times in table.values()]
        print(f"| {_named(path)} | " + " | ".join(cells) + " |")


def _named(path: str) -> str:
    """Without most of what is behind the question mark."""
    base, _, query = path.partition("?")
    return f"`{base}`" + (", a page" if "page=" in query else ", some columns" if "columns=" in query else "")


def _cell(times: Sequence[float]) -> str:
    return f"{ms(times, 50):.1f} / {ms(times, 99):.1f} / {max(times) * 1e3:.1f}"


def show_holds(found: dict[str, list[float]]) -> None:
    print("\n| while this is asked for without a pause | round trip of a message, p50 / p99 / max ms |")
    print("| --- | --- |")
    for path, took in found.items():
        print(f"| `{path}` | {ms(took, 50):.2f} / {ms(took, 99):.2f} / {took[-1] * 1e3:.2f} |")


def show_scraping(
    found: dict[str, list[tuple[float, float]]], costs_ms: dict[str, float], idle: dict[str, float]
) -> None:
    rates = {kind: statistics.median(rate for rate, _ in values) for kind, values in found.items()}
    cpus = {kind: statistics.median(cpu for _, cpu in values) for kind, values in found.items()}
    print(f"\n| scrape of /metrics every {SCRAPE_S:.0f} s | without | with | ratio |\n| --- | --- | --- | --- |")
    for what, medians, places in (("messages per second", rates, 0), ("CPU per message, µs", cpus, 3)):
        without, scraped = medians["without"], medians["with"]
        print(f"| {what} | {without:,.{places}f} | {scraped:,.{places}f} | {scraped / without:.3f} |")
    for what, cost_ms in costs_ms.items():
        print(f"| CPU of one answer, {what} | | {cost_ms:.2f} ms | {1 - cost_ms / 1e3 / SCRAPE_S:.4f} |")
    for what, share in idle.items():
        print(f"| CPU of an idle broker that nobody asks, {what} | {share:.1%} of a core | | |")


def too_late(table: dict[str, Times]) -> list[str]:
    cells = [(name, what, took) for name, times in table.items() for what, took in times.items()]
    return [f"p99 of {what} ({name})" for name, what, took in cells if ms(took, 99) > LIMIT_MS]


def is_dear(what: str, cost_ms: float) -> bool:
    """Every object is for every 30 s (docs/metrics.md)."""
    every_s = PER_OBJECT_S if PER_OBJECT in what else SCRAPE_S
    return cost_ms / 1e3 > COST_MAX * every_s


def machine() -> dict[str, object]:
    return {"cores": os.cpu_count(), "python": platform.python_version(), "load": os.getloadavg()}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("parts", nargs="*", default=["answers", "page", "holds", "scraping"])
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of scraping, each way")
    parser.add_argument("--queues", type=int, default=QUEUES)
    options = parser.parse_args()
    end_with_us()
    results: dict[str, object] = {"machine": machine(), "queues": options.queues}
    late: list[str] = []
    try:
        if "answers" in options.parts:
            table: dict[str, Times] = {}
            for name, queues, load in (
                ("idle", 0, False),
                ("full load", 0, True),
                (f"{options.queues:,} queues", options.queues, False),
                ("both", options.queues, True),
            ):
                with running_penstock() as broker:
                    table[name] = answers(broker, ANSWERS * options.seconds, queues, load)
            show_answers(table, "request", PATHS)
            results["answers"] = table
            late += too_late(table)
            with running_penstock() as broker:
                each, sizes = long_answers(broker, ANSWERS * options.seconds, options.queues)
            print()
            show_answers(each, f"{options.queues:,} queues", LONG)
            print("\n" + "; ".join(f"`{path}` is {size / 1e6:.1f} MB" for path, size in sizes.items()))
            results["long"] = {"times": each, "bytes": sizes}
            late += [one for one in too_late(each) if PER_OBJECT in one]
        if "page" in options.parts and not has_browser():
            tell("page: left out, because there is no Chromium, or no playwright")
        elif "page" in options.parts:
            seen: dict[str, Times] = {}
            for name, queues, load in (
                ("idle", 0, False),
                (f"full load, {options.queues:,} queues", options.queues, True),
            ):
                with running_penstock() as broker:
                    seen[name] = views(broker, options.seconds, queues, load)
            print()
            show_answers(seen, "view", tuple(seen["idle"]))
            results["page"] = seen
            late += too_late(seen)
        if "holds" in options.parts:
            with running_penstock() as broker:
                results["holds"] = found = holds(broker, options.seconds, options.queues)
            show_holds(found)
        if "scraping" in options.parts:
            with running_penstock() as broker:
                turns = scraping(broker, options.seconds, options.rounds)
                idle = {"no queues": idle_share(broker)}
                costs_ms = {"no queues": scrape_cpu_ms(broker, "/metrics", SCRAPES, idle["no queues"])}
                with site_of(broker, 1.0) as site:
                    many_queues(site, options.queues)
                    many = f"{options.queues:,} queues"
                    idle[many] = idle_share(broker)
                    costs_ms[many] = scrape_cpu_ms(broker, "/metrics", SCRAPES, idle[many])
                    costs_ms[f"{PER_OBJECT}, {many}"] = scrape_cpu_ms(broker, PER_OBJECT, 5, idle[many])
            show_scraping(turns, costs_ms, idle)
            late += [f"a scrape, {what}: {ms_:.1f} ms of CPU" for what, ms_ in costs_ms.items() if is_dear(what, ms_)]
            results["scraping"] = {"turns": turns, "cost_ms": costs_ms, "idle": idle}
    except (LoadError, ClientError, NotStarted) as error:
        fail(str(error), 1)
    except KeyboardInterrupt:
        sys.exit(130)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    for one in late:
        tell(f"above its limit: {one}")
    sys.exit(1 if late else 0)


if __name__ == "__main__":
    main()

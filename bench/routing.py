"""How long does it take to route one key, with 10, 1000 and 100 000 bindings? Run: python bench/routing.py

For each type of exchange: microseconds to route a key that the channel has not cached, to bind and to unbind one, and
bytes of memory per binding; then the deletion of a destination with all of them, and the topic patterns that cost most.
Each figure is CPU time, the best of several rounds, since noise only ever adds. Nothing is sent: it is VHost alone,
without frames and queues' work.
Not here: messages per second through the broker (bench/compare.py).
"""

import argparse
import gc
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.amqp.method import ExchangeDeclare
from penstock.amqp.properties import Properties
from penstock.amqp.table import Table
from penstock.broker.broker import Broker
from penstock.broker.exchange import Exchange
from penstock.broker.topic import TopicTrie
from penstock.broker.vhost import VHost
from penstock.credit import Hop, Spec
from penstock.runtime import FakeClock, Scheduler

COUNTS = (10, 1000, 100_000)
ROUNDS = 5
LOOKUPS = 2000  # per round: different keys, as many as a channel caches
DESTINATIONS = 1000  # bindings share them, except of a hash exchange, where a destination counts once


@dataclass(frozen=True)
class Bound:
    destination: int
    key: str
    arguments: Table


@dataclass(frozen=True)
class Sent:
    key: str
    properties: Properties | None


@dataclass(frozen=True)
class Case:
    name: str
    kind: str
    bound: Callable[[int], Bound]
    sent: Callable[[int], Sent]
    arguments: Table


def topic_pattern(number: int) -> str:
    """A quarter each: exact, a `*` in the middle, `#` at the end, `#` in front."""
    word, other = f"w{number // 4}", f"v{number // 400}"
    return (f"{word}.{other}.x", f"{word}.*.x", f"{word}.{other}.#", f"#.{word}")[number % 4]


def make_cases() -> Iterator[Case]:
    share = DESTINATIONS
    yield Case("direct", "direct", lambda n: Bound(n % share, f"key.{n}", {}), lambda n: Sent(f"key.{n}", None), {})
    yield Case(
        "topic, 3 of 4 with wildcards",
        "topic",
        lambda n: Bound(n % share, topic_pattern(n), {}),
        lambda n: Sent(f"w{n // 4}.v{n // 400}.x", None),
        {},
    )
    yield Case(
        "topic, all *.*.word.#",
        "topic",
        lambda n: Bound(n % share, f"*.*.w{n}.#", {}),
        lambda n: Sent(f"a.b.w{n}.d.e", None),
        {},
    )
    yield Case(
        "headers, all of two",
        "headers",
        lambda n: Bound(n % share, "", {"type": "order", "number": n}),
        lambda n: Sent("", Properties(headers={"type": "order", "number": n})),
        {},
    )
    yield Case(
        "headers, any of two",
        "headers",
        lambda n: Bound(n % share, "", {"x-match": "any", "number": n, "other": n}),
        lambda n: Sent("", Properties(headers={"type": "order", "number": n})),
        {},
    )
    yield Case("hash by key", "x-consistent-hash", lambda n: Bound(n, "1", {}), lambda n: Sent(f"key {n}", None), {})
    yield Case(
        "hash by message_id",
        "x-consistent-hash",
        lambda n: Bound(n, "1", {}),
        lambda n: Sent("", Properties(message_id=f"message {n}")),
        {"hash-property": "message_id"},
    )


def make_vhost() -> VHost:
    hop = Hop("any", Spec(400, 200), Spec(0, 0))
    return Broker(Scheduler(FakeClock(), lambda: None, None), hop, hop).vhosts["/"]


class Site:
    """One exchange in its vhost, and what is bound to it: exchanges, since a queue is heavier than its binding."""

    def __init__(self, case: Case, count: int) -> None:
        self.vhost = make_vhost()
        self.source = self.vhost.declare_exchange(ExchangeDeclare("source", case.kind, arguments=case.arguments))
        self.bounds = [case.bound(number) for number in range(count)]
        self.shuffled = random.Random(count).sample(self.bounds, count)  # they go in any order
        needed = max(bound.destination for bound in self.bounds) + 1
        self.ends = [Exchange(f"x{number}", "fanout") for number in range(needed)]

    def bind(self) -> None:
        vhost, source, ends = self.vhost, self.source, self.ends
        for bound in self.bounds:
            vhost.bind(source, ends[bound.destination], bound.key, bound.arguments)

    def unbind(self) -> None:
        vhost, ends = self.vhost, self.ends
        for bound in self.shuffled:
            vhost.unbind("source", ends[bound.destination], bound.key, bound.arguments)


def seconds(work: Callable[[], object]) -> float:
    gc.collect()
    gc.disable()  # as the broker nearly does; a collection of 100 000 objects in one of the rounds says nothing
    start = time.thread_time()
    work()
    taken = time.thread_time() - start
    gc.enable()
    return taken


def measure(case: Case, count: int, rounds: int) -> str:
    site = Site(case, count)
    chosen = random.Random(count).choices(range(count), k=LOOKUPS)
    sent = [case.sent(number) for number in chosen]

    def route() -> None:
        for one in sent:
            site.vhost.route(site.source, one.key, one.properties)

    binds, routes, unbinds = [], [], []
    for _ in range(rounds):
        binds.append(seconds(site.bind) / count)
        routes.append(seconds(route) / len(sent))
        unbinds.append(seconds(site.unbind) / count)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    site.bind()
    size = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    figures = (f"{min(values) * 1e6:9.2f}" for values in (routes, binds, unbinds))
    return f"{case.name:30}{count:9,}{''.join(figures)}{size:10.0f}"


def measure_deletion(kind: str, count: int, rounds: int) -> str:
    """All bindings lead to one exchange, which is deleted: as with a queue."""
    taken = []
    for _ in range(rounds):
        vhost = make_vhost()
        source = vhost.declare_exchange(ExchangeDeclare("source", kind))
        end = vhost.declare_exchange(ExchangeDeclare("end", "fanout"))
        for number in range(count):
            vhost.bind(source, end, f"key.{number}", {})

        taken.append(seconds(lambda held=vhost: held.delete_exchange("end", False)))  # type: ignore[misc]  # a default
    return f"delete the one destination of {count:,} {kind} bindings: {min(taken) * 1e3:.1f} ms"


HARD: tuple[tuple[str, list[str], str], ...] = (
    ("#.#.# … 128 times, key of 128 words", [".".join(["#"] * 128)], ".".join("a" * 128)),
    ("#.a.#.a … 64 times, key a.a.a … of 128 words", [".".join(["#", "a"] * 64)], ".".join("a" * 128)),
    ("the same with an end that never comes", [".".join([*["#", "a"] * 63, "b"])], ".".join("a" * 128)),
    ("63 patterns #.a.#.a … of 2 to 126 words", [".".join(["#", "a"] * n) for n in range(1, 64)], ".".join("a" * 128)),
    ("an empty word 255 times, pattern #", ["#"], "." * 255),
)


def measure_hard(name: str, patterns: list[str], key: str, rounds: int) -> str:
    trie: TopicTrie[int] = TopicTrie()
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number)
    taken = min(seconds(lambda: trie.match(key)) for _ in range(rounds))
    return f"{name:50}{taken * 1e6:12.1f} us"


def main() -> None:
    parser = argparse.ArgumentParser(description="time to route, bind and unbind")
    parser.add_argument("--counts", type=int, nargs="+", default=COUNTS, help="how many bindings")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="cases whose name starts so")
    options = parser.parse_args()
    print(f"{'us, best of ' + str(options.rounds):30}{'bindings':>9}{'route':>9}{'bind':>9}{'unbind':>9}{'bytes':>10}")
    for case in make_cases():
        if case.name.startswith(options.only):
            for count in options.counts:
                print(measure(case, count, options.rounds), flush=True)
    print()
    for kind in ("direct", "topic"):
        print(measure_deletion(kind, max(options.counts), options.rounds))
    print()
    for name, patterns, key in HARD:
        print(measure_hard(name, patterns, key, options.rounds))


if __name__ == "__main__":
    main()

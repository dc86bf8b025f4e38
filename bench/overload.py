"""What happens to those who publish too much, and to those beside them? Penstock and RabbitMQ in turns: make overload

Four situations, each the same procedure for both brokers, each with brokers started anew:
memory   a publisher without confirms floods a durable queue that nobody reads; both have the same memory limit
flow     the same without a limit; a second connection publishes to the same queue, one message at a time, with confirms
slow     the disk is slow (slow_disk.c); one channel publishes more to it than it takes, and an innocent channel of the
         same connection publishes transient messages to a queue that is read; then the disk is fast again
alarm    the free disk space falls below the limit, and later does not: a large file comes and goes
Prints a Markdown table, ratio first, above 1.0 Penstock is ahead; all values go to bench/results/overload.json.
Not here: how fast brokers are that are not overloaded (compare.py), a store that sleeps (slowdisk.py).
"""

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from brokers import PENSTOCK, RABBITMQ, Running, SlowDisk, brokers, end_with_us, fail, running, slow_disk, tell
from neighbour import Neighbour, Neighbours

from penstock.amqp.method import ConfirmSelect, ConfirmSelectOk
from penstock.amqp.properties import PERSISTENT, TRANSIENT, Properties
from penstock.client.connection import Channel, ClientError, Connection
from penstock.client.uri import parse_uri
from penstock.perf.block import Block, NotADelivery, block, block_messages
from penstock.perf.figure import percentile
from penstock.perf.load import Consumer, LoadError, Publisher, Worker, check, set_timeouts
from penstock.perf.measure import last
from penstock.perf.memory import MemoryWatch, resident_bytes
from penstock.perf.rabbitmq import NotStarted
from penstock.perf.run import product_of
from penstock.perf.site import POLL_S, WAKE_UNACKED, Site

RESULTS = Path(__file__).resolve().parent / "results" / "overload.json"
SECONDS = 5.0
ROUNDS = 3
MEMORY_LIMIT_BYTES = 400_000_000  # above what RabbitMQ needs at rest, soon reached by a flood
FLOOD_BODY_BYTES = 1000
BODY_BYTES = 100
SLOW_BYTES_PER_S = 1_000_000  # a few thousand small messages per second
SLOW_SYNC_US = 20_000
NEIGHBOUR_WINDOW = 5000  # more than all credit of either broker; less than a connection of Penstock parks (1 MiB)
NEIGHBOUR_BLOCK = 100
INNOCENT_WINDOW = 1000
GOES_ON_MESSAGES = 5000  # more than sockets hold: they went through the broker
SPACE_MARGIN_BYTES = 500_000_000  # the disk limit is so far below what is free, and the file is twice as large
HOLD_S = 2.0  # at least
# Rounds are spread over the time between two looks at the disk, or all would meet the same wait. RabbitMQ's is longest:
HOLD_SPREAD_S = 10.0  # while the alarm is on
CALM_SPREAD_S = 4.0  # with this margin
HELD_S = 1.0  # no confirm for so long: held
PATIENCE_S = 30.0
TICK_S = 0.005
MEGABYTE = 1e6
CONFIRM_BYTES = 21

Values = dict[str, float | None]  # None: it did not happen
Settings = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Question:
    key: str
    about: str
    unit: str
    much_is_good: bool = False


QUESTIONS = (
    Question("memory", "memory ceiling: highest resident memory under a flood, limit 400 MB", "MB"),
    Question("memory_at_rest", "for reference: resident memory before it", "MB"),
    Question("memory_taken", "for reference: messages of 1 KB taken in meanwhile", "msg/s", True),
    Question("idle_p99", "for reference: p99 of a persistent confirm on an idle broker", "ms"),
    Question("flow_p50", "p50 of a persistent confirm while another connection floods the queue", "ms"),
    Question("flow_p99", "p99 of it", "ms"),
    Question("flow_end", "flood ends: until all that was sent is in the queue", "ms"),
    Question("innocent_alone", "for reference: an innocent queue alone on its connection", "msg/s", True),
    Question(
        "innocent_window", "the same beside a channel with 5000 unconfirmed, blocked by a slow disk", "msg/s", True
    ),
    Question("innocent_flood", "the same beside a channel that floods the slow disk without confirms", "msg/s", True),
    Question("slow_end", "the slow disk is fast again: until the flood has sent 5000 messages more", "ms"),
    Question("alarm_held", "disk alarm: until a publisher is held", "ms"),
    Question("alarm_end", "disk alarm over: until the held publisher has its next confirm", "ms"),
)


class Ticker(Worker):
    """Publishes one message at a time and waits for its confirm; `at_s` is when confirms came, `took_s` after what."""

    def __init__(self, site: Site, queue: str, delivery_mode: int, pause_s: float = 0.0) -> None:
        super().__init__(site.channel())
        self.channel.call(ConfirmSelect(), ConfirmSelectOk)
        self.message = site.message(self.channel, "", queue, Properties(delivery_mode=delivery_mode))
        self.pause_s = pause_s
        self.at_s: list[float] = []
        self.took_s: list[float] = []

    def work(self) -> None:
        set_timeouts(self.socket, PATIENCE_S)
        while not self.stopping:
            begun = time.perf_counter()
            self.socket.sendall(self.message)
            got = 0
            while got < CONFIRM_BYTES:
                found = self.socket.recv(CONFIRM_BYTES - got)
                if not found:
                    raise LoadError("the broker closed the connection")
                got += len(found)
            self.at_s.append(time.perf_counter())
            self.took_s.append(self.at_s[-1] - begun)
            if self.pause_s:
                time.sleep(self.pause_s)

    def percentile_ms(self, percent: float) -> float:
        if not self.took_s:
            return math.inf  # not one confirm in all the time
        return percentile(sorted(self.took_s), percent) * 1e3


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a situation is played. `share` is the round's place among all rounds, above 0 and below 1."""

    site: Site
    broker: Running
    disk: SlowDisk | None
    share: float


@contextmanager
def working(*workers: Worker) -> Iterator[None]:
    """Start them, and end them wherever they wait."""
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.stopping = True
        for worker in workers:
            worker.abort()


def play_memory(scene: Scene) -> Values:
    site, broker = scene.site, scene.broker
    (queue,) = site.queues(1, durable=True)
    flood = flooder(site, queue)
    at_rest = resident_bytes(broker.pid)
    with MemoryWatch(broker.pid) as watch, working(flood):
        last(site.seconds, [flood])
        taken = site.message_count(queue)
    return {
        "memory": watch.highest_bytes / MEGABYTE,
        "memory_at_rest": at_rest / MEGABYTE,
        "memory_taken": taken / site.seconds,
    }


def play_flow(scene: Scene) -> Values:
    site = scene.site
    (queue,) = site.queues(1, durable=True)
    idle = Ticker(site, queue, PERSISTENT)
    with working(idle):
        last(min(site.seconds, 1.0), [idle])
    asked = Ticker(site, queue, PERSISTENT)
    flood = flooder(site, queue)
    with working(flood):
        with working(asked):
            last(site.seconds, [flood, asked])
        flood.stopping = True
        flood.join(PATIENCE_S)
        check([flood])
        ended_s = time.perf_counter()
        # The tickers were cut off: each may have one message in the queue whose confirm it did not see.
        least = flood.sent + len(idle.took_s) + len(asked.took_s)
        wait_until(lambda: site.message_count(queue) >= least, f"the queue does not count {least} messages")
        end_s = time.perf_counter() - ended_s
    return {
        "idle_p99": idle.percentile_ms(99),
        "flow_p50": asked.percentile_ms(50),
        "flow_p99": asked.percentile_ms(99),
        "flow_end": end_s * 1e3,
    }


def play_slow(scene: Scene) -> Values:
    site, disk = scene.site, scene.disk
    (slow,) = site.queues(1, durable=True)
    (innocent,) = site.queues(1)
    consumer = Consumer(site.channel(), site.body_bytes, 0, WAKE_UNACKED)
    site.consume(consumer, [innocent])
    values: Values = {}
    with working(consumer):
        values["innocent_alone"], _ = innocent_rate(site, slow, innocent, 0)
        if disk:
            disk.begin()
        try:
            values["innocent_window"], _ = innocent_rate(site, slow, innocent, NEIGHBOUR_WINDOW)
            values["innocent_flood"], values["slow_end"] = innocent_rate(site, slow, innocent, None, disk)
        finally:
            if disk:
                disk.end()
    return values


def innocent_rate(
    site: Site, slow: str, innocent: str, window: int | None, disk: SlowDisk | None = None
) -> tuple[float, float | None]:
    """Confirms per second of the innocent channel beside a neighbour of this window (None: endless, 0: there is none).

    With a disk: then it gets fast again, and the second value is how long the neighbour needs to go on.
    """
    channel = site.channel()
    other = channel.connection.open_channel()
    neighbour = Neighbour(channel, messages_to(site, channel, slow, PERSISTENT, NEIGHBOUR_BLOCK), window)
    beside = Neighbour(other, messages_to(site, other, innocent, TRANSIENT, NEIGHBOUR_BLOCK), INNOCENT_WINDOW)
    for member in (neighbour, beside):
        if member.window:
            member.channel.call(ConfirmSelect(), ConfirmSelectOk)
    both = Neighbours([beside] if window == 0 else [neighbour, beside])
    with working(both):
        last(min(site.seconds, 1.0), [both])  # until the neighbour is blocked, if it will ever be
        begin_s, begin = time.perf_counter(), beside.confirms.confirmed
        last(site.seconds, [both])
        rate = (beside.confirms.confirmed - begin) / (time.perf_counter() - begin_s)
        if disk is None:
            return rate, None
        sent, ended_s = neighbour.sent, time.perf_counter()
        disk.end()
        wait_until(lambda: neighbour.sent >= sent + GOES_ON_MESSAGES, "the neighbour does not go on")
        return rate, (time.perf_counter() - ended_s) * 1e3


def play_alarm(scene: Scene) -> Values:
    site = scene.site
    (queue,) = site.queues(1)
    ticker = Ticker(site, queue, TRANSIENT, TICK_S)
    large = Path(tempfile.gettempdir()) / f"penstock-bench-large-{os.getpid()}"
    with working(ticker):
        last(min(site.seconds, 1.0) + CALM_SPREAD_S * scene.share, [ticker])
        try:
            with open(large, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, 2 * SPACE_MARGIN_BYTES)
            low_s = time.perf_counter()
            held = arrives(lambda: bool(ticker.error) or time.perf_counter() - ticker.at_s[-1] > HELD_S)
            check([ticker])
            if not held:
                return {"alarm_held": None, "alarm_end": None}
            held_s = ticker.at_s[-1] - low_s
            last(HOLD_S + HOLD_SPREAD_S * scene.share, [ticker])
            confirmed = len(ticker.at_s)
        finally:
            large.unlink(missing_ok=True)
        enough_s = time.perf_counter()
        wait_until(lambda: bool(ticker.error) or len(ticker.at_s) > confirmed, "the publisher stays held")
        check([ticker])
        return {"alarm_held": held_s * 1e3, "alarm_end": (ticker.at_s[confirmed] - enough_s) * 1e3}


def flooder(site: Site, queue: str) -> Publisher:
    """A publisher of persistent messages that nothing holds but the broker. In the end it is cut off."""
    channel = site.channel()
    count = block_messages(len(site.message(channel, "", queue)))
    return Publisher(channel, [messages_to(site, channel, queue, PERSISTENT, count)])


def messages_to(site: Site, channel: Channel, queue: str, delivery_mode: int, count: int) -> Block:
    properties = Properties(delivery_mode=delivery_mode)
    return block(site.message(channel, "", queue, properties, number) for number in range(count))


def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    if not arrives(condition):
        raise LoadError(f"{otherwise} within {PATIENCE_S:g} s")


def arrives(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


@dataclass(frozen=True, slots=True)
class Situation:
    name: str
    body_bytes: int
    play: Callable[[Scene], Values]
    settings: Callable[[], Settings] = dict
    slow: bool = False


def memory_limit() -> Settings:
    limit = str(MEMORY_LIMIT_BYTES)
    return {
        PENSTOCK: {"alarms.memory_bytes_high": limit},
        RABBITMQ: {"vm_memory_high_watermark.absolute": limit},
    }


def disk_limit() -> Settings:
    # Temporary directories are on one file system, so what is free here is free for both.
    found = os.statvfs(tempfile.gettempdir())
    limit = str(found.f_bavail * found.f_frsize - SPACE_MARGIN_BYTES)
    return {PENSTOCK: {"alarms.disk_free_bytes_low": limit}, RABBITMQ: {"disk_free_limit.absolute": limit}}


SITUATIONS = (
    Situation("memory", FLOOD_BODY_BYTES, play_memory, memory_limit),
    Situation("flow", FLOOD_BODY_BYTES, play_flow),
    Situation("slow", BODY_BYTES, play_slow, slow=True),
    Situation("alarm", BODY_BYTES, play_alarm, disk_limit),
)


def play(situation: Situation, name: str, seconds: float, share: float) -> tuple[str, Values]:
    """The broker's name and the values of one round."""
    with (
        slow_disk(SLOW_BYTES_PER_S, SLOW_SYNC_US) if situation.slow else nullcontext() as disk,
        running(name, situation.settings(), disk) as broker,
    ):
        uri = parse_uri(broker.uri)
        with Connection.connect(uri) as connection:
            product = product_of(connection.server_properties)
        with Site(uri, broker.pid, seconds, situation.body_bytes) as site:
            return product, situation.play(Scene(site, broker, disk, share))


def main() -> int:
    options = _options()
    end_with_us()
    names = [PENSTOCK] if options.alone else brokers()
    products = dict.fromkeys(names, "")
    found: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    failed = False
    try:
        for turn in range(options.rounds):
            for situation in (one for one in SITUATIONS if one.name in options.situations):
                for name in names:
                    tell(f"{situation.name}: {name}, round {turn + 1} of {options.rounds}")
                    try:
                        products[name], values = play(situation, name, options.seconds, (turn + 0.5) / options.rounds)
                    except (LoadError, NotADelivery, ClientError, NotStarted, OSError) as error:
                        failed = True
                        tell(f"{situation.name} on {name}: {error}")
                        continue
                    for key, value in values.items():
                        if value is not None:
                            found[name].setdefault(key, []).append(value)
    except KeyboardInterrupt:
        fail("stopped", 130)
    print(table(found, products), end="")
    _write(found, products, options)
    return 1 if failed else 0


def table(found: Mapping[str, Mapping[str, Sequence[float]]], products: Mapping[str, str]) -> str:
    """Markdown: ratio, question, and each broker's median."""
    lines = ["| ratio | what | " + " | ".join(product or name for name, product in products.items()) + " |"]
    lines.append("| --- " * (2 + len(found)) + "|")
    for question in QUESTIONS:
        sides = [side.get(question.key) for side in found.values()]
        if any(sides):
            medians = [statistics.median(values) if values else None for values in sides]
            cells = [_ratio(question, medians), question.about, *(_shown(value, question.unit) for value in medians)]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _ratio(question: Question, medians: Sequence[float | None]) -> str:
    if len(medians) < 2 or medians[0] is None or medians[1] is None:
        return "-"
    first, second = (medians[0], medians[1]) if question.much_is_good else (medians[1], medians[0])
    return f"{first / second:.2f}" if second else "∞"


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f} {unit}"


def _write(
    found: Mapping[str, Mapping[str, Sequence[float]]], products: Mapping[str, str], options: argparse.Namespace
) -> None:
    machine = {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()}
    report = {
        "machine": machine,
        "seconds": options.seconds,
        "rounds": options.rounds,
        "brokers": products,
        "values": found,
    }
    options.results.parent.mkdir(parents=True, exist_ok=True)
    options.results.write_text(json.dumps(report, indent=2) + "\n")
    tell(f"written to {options.results}")


def _options() -> argparse.Namespace:
    names = [situation.name for situation in SITUATIONS]
    parser = argparse.ArgumentParser(
        prog="bench/overload.py", description="Penstock and RabbitMQ in overload, in turns."
    )
    parser.add_argument("situations", nargs="*", default=names, help=f"of {', '.join(names)}; all by default")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each load lasts")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="runs of each situation on each broker")
    parser.add_argument("--alone", action="store_true", help="Penstock without RabbitMQ")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where the JSON goes")
    options = parser.parse_args()
    if unknown := set(options.situations) - set(names):
        parser.error(f"no situation {sorted(unknown)[0]!r}; there are {', '.join(names)}")
    if options.seconds <= 0 or options.rounds < 1:
        parser.error("--seconds must be above 0 and --rounds at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())

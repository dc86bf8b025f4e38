"""The loads that the twin is measured against: publishers and consumers of penstock.perf that note when they do what.

When a message was sent, confirmed or delivered is known without a word in its body: order is kept, so counting is
enough. What the broker holds is asked over its HTTP API, after the stretch in which times count: an answer takes the
broker some milliseconds, and a few of those in a second are its p99.
Not here: which loads (twin.py), how fast the broker is (compare.py).
"""

import base64
import json
import socket
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from brokers import Running

from penstock.client.connection import Channel, Connection
from penstock.client.consumer import Consumer as EventReader
from penstock.client.uri import parse_uri
from penstock.perf.block import Block, acks
from penstock.perf.load import ConfirmedPublisher, Consumer, LoadError, Publisher, Worker, check, drain, set_timeouts
from penstock.perf.site import Site

WARM_UP_S = 1.0
SETTLE_S = 0.8  # after a change of settings, before it counts
LOOK_S = 0.15  # between two questions what the broker holds
LOOKS = 12
STALL_S = 20.0
FRAMING_BYTES = 31  # of a content beside its body, as credit and parking count it
QUIET_S = 1.5  # no event for so long: all were read
QUIET = 0.05  # of the time without a core; a stretch with more of it is measured again
FAULTS = ("faults.channel_delay_us", "faults.queue_delay_us", "faults.store_sync_delay_ms")

Stamp = tuple[int, float]  # messages so far, when


class StampedSocket:
    """A socket that notes when each send began."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self.began_s: list[float] = []

    def sendall(self, wire: bytes) -> None:
        self.began_s.append(time.perf_counter())
        self._real.sendall(wire)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Stamps:
    """Counters that note when they change."""

    stamps: list[Stamp]

    def note(self, count: int) -> None:
        self.stamps.append((count, time.perf_counter()))


class StampedPublisher(Publisher, _Stamps):
    def __init__(self, channel: Channel, blocks: Sequence[Block], pause_s: float = 0.0) -> None:
        super().__init__(channel, blocks)
        self.stamped = StampedSocket(self.socket)
        self.socket = self.stamped  # type: ignore[assignment]
        self.pause_s = pause_s  # from block to block, for a publisher with a rate

    def work(self) -> None:
        if not self.pause_s:
            super().work()
            return
        set_timeouts(self.stamped, STALL_S)  # type: ignore[arg-type]
        due_s = time.perf_counter()
        while not self.stopping:
            self.stamped.sendall(self.blocks[0].wire)
            self.sent += self.blocks[0].messages
            due_s += self.pause_s
            time.sleep(max(0.0, due_s - time.perf_counter()))


class StampedConfirmed(ConfirmedPublisher, _Stamps):
    def __init__(self, channel: Channel, blocks: Sequence[Block], window: int) -> None:
        self.stamps = []
        self._confirmed = 0
        super().__init__(channel, blocks, window)
        self.stamped = StampedSocket(self.socket)
        self.socket = self.stamped  # type: ignore[assignment]

    @property
    def confirmed(self) -> int:
        return self._confirmed

    @confirmed.setter
    def confirmed(self, count: int) -> None:
        if count != self._confirmed:
            self.note(count)
        self._confirmed = count


class StampedConsumer(Consumer, _Stamps):
    def __init__(self, channel: Channel, body_bytes: int, batch: int, wake: int) -> None:
        self.stamps = []
        self._received = 0
        super().__init__(channel, body_bytes, batch, wake)

    @property
    def received(self) -> int:
        return self._received

    @received.setter
    def received(self, count: int) -> None:
        if count != self._received:
            self.note(count)
        self._received = count


class SlowConsumer(StampedConsumer):
    """Takes a chunk of deliveries, sleeps for each of them, acks the chunk."""

    def __init__(self, channel: Channel, body_bytes: int, chunk: int, message_us: float) -> None:
        super().__init__(channel, body_bytes, chunk, 1)
        self.chunk = chunk
        self.message_us = message_us
        self.slept_s = 0.0
        self.asleep_for = 0  # messages

    def _count(self, start: bytearray, size: int) -> None:
        set_timeouts(self.socket, 0.1)
        total, done = len(start), 0
        room = memoryview(bytearray(size * self.chunk))
        while self.expected < 0 or done < self.expected:
            more = min(self.chunk, self.expected - done) if self.expected >= 0 else self.chunk
            while total < (done + more) * size:
                try:
                    got = self.socket.recv_into(room[: (done + more) * size - total])
                except BlockingIOError:
                    if self.expected >= 0:
                        more = min(more, self.expected - done)
                    continue
                if not got:
                    raise LoadError("the broker closed the connection")
                total += got
            if not more:
                continue
            before, done = done, done + more
            self.received = done
            if self.message_us:
                began_s = time.perf_counter()
                time.sleep(more * self.message_us / 1e6)
                self.slept_s += time.perf_counter() - began_s
                self.asleep_for += more
            self.socket.sendall(acks(before, done, more)[0])


@dataclass(slots=True)
class Measured:
    """What one run saw."""

    throughput: float
    p50_ms: float
    p99_ms: float
    held: list[int]  # messages that the broker had, by look
    in_kernel: list[int]  # messages sent and not read by the broker, by look
    began_s: float  # by the wall clock
    ended_s: float
    sched: list[dict[str, float]] = field(default_factory=list)  # of the broker's thread: ran, waited for a core

    @property
    def waited(self) -> float:
        """The part of the time in which the broker's thread, or ours, was ready to run and had no core."""
        took_us = (self.ended_s - self.began_s) * 1e6
        return max((self.sched[-1][name] - self.sched[0][name]) / took_us for name in ("wait_us", "load_wait_us"))

    @property
    def cpu_us(self) -> float:
        """CPU time of the broker's thread per message."""
        messages = self.throughput * (self.sched[-1]["at"] - self.sched[0]["at"])
        return (self.sched[-1]["cpu_us"] - self.sched[0]["cpu_us"]) / messages if messages else 0.0

    @property
    def mean_held(self) -> float:
        return sum(self.held) / len(self.held) if self.held else 0.0


def play(
    site: Site,
    broker: Running,
    publishers: Sequence[Publisher],
    consumers: Sequence[Consumer],
    settings: Sequence[Mapping[str, str]],
    rounds: int,
    tries: int,
) -> list[list[Measured]]:
    """Start all, wait until it is warm; then the settings in turns, `site.seconds` each, while the load goes on. What
    was measured by setting and round."""
    for worker in (*consumers, *publishers):
        worker.start()
    _wait(WARM_UP_S, [*publishers, *consumers])
    found: list[list[Measured]] = [[] for _ in settings]
    for _ in range(rounds * tries):
        for at, chosen in enumerate(settings):
            if sum(one.waited <= QUIET for one in found[at]) >= rounds:
                continue
            for name, value in chosen.items():
                put_setting(broker, name, value)
            _wait(SETTLE_S, [*publishers, *consumers])
            found[at].append(watch(site, broker, publishers, consumers))
    for name in FAULTS:
        put_setting(broker, name, "0")
    for consumer in consumers:
        if isinstance(consumer, SlowConsumer):
            consumer.message_us = 0.0
    drain(publishers, consumers, lambda: _shares(publishers, consumers))
    return [quietest(group, rounds) for group in found]


def quietest(group: Sequence[Measured], count: int) -> list[Measured]:
    """Those of a group in which others used the cores least."""
    return sorted(group, key=lambda one: one.waited)[:count]


def watch(site: Site, broker: Running, publishers: Sequence[Publisher], consumers: Sequence[Consumer]) -> Measured:
    """One stretch of time; and then what the broker holds."""
    confirmed = [one for one in publishers if isinstance(one, StampedConfirmed)]
    enders: Sequence[_Stamps] = confirmed or [one for one in consumers if isinstance(one, _Stamps)]
    clocks, walls = [time.perf_counter()], [time.time()]
    sched = [schedule_of(broker.pid)]
    _wait(site.seconds, [*publishers, *consumers])
    sched.append(schedule_of(broker.pid))
    clocks.append(time.perf_counter())
    walls.append(time.time())
    held: list[int] = []
    in_kernel: list[int] = []
    for _ in range(LOOKS):
        _wait(LOOK_S, [*publishers, *consumers])
        sent = sum(one.sent for one in publishers)
        inside, received = look(broker, site.body_bytes + FRAMING_BYTES)
        held.append(inside)
        in_kernel.append(max(0, sent - received))
    took = _took(publishers, enders, clocks[0], clocks[1])
    return Measured(
        throughput=sum(count for _, count in took) / (clocks[1] - clocks[0]),
        p50_ms=_percentile(took, 50) * 1e3,
        p99_ms=_percentile(took, 99) * 1e3,
        held=held,
        in_kernel=in_kernel,
        began_s=walls[0],
        ended_s=walls[1],
        sched=sched,
    )


def _shares(publishers: Sequence[Publisher], consumers: Sequence[Consumer]) -> list[int]:
    if len(publishers) == len(consumers):
        return [one.sent for one in publishers]
    return [sum(one.sent for one in publishers)]


def _wait(seconds: float, workers: Sequence[Worker]) -> None:
    time.sleep(seconds)
    check(workers)


def _took(
    publishers: Sequence[Publisher], enders: Sequence[_Stamps], since_s: float, until_s: float
) -> list[tuple[float, int]]:
    """How long messages took that came to their end in this time, with their counts, sorted."""
    found: list[tuple[float, int]] = []
    for publisher, ender in zip(publishers, enders, strict=True):
        step = publisher.blocks[0].messages
        began = publisher.stamped.began_s  # type: ignore[attr-defined]
        before = 0
        for count, at_s in list(ender.stamps):
            message = before
            while message < count and since_s <= at_s <= until_s:
                block = message // step
                part = min(count, (block + 1) * step) - message
                found.append((at_s - began[block], part))
                message += part
            before = count
    found.sort()
    return found


def _percentile(took: list[tuple[float, int]], percent: float) -> float:
    rank = sum(count for _, count in took) * percent / 100
    for value, count in took:
        rank -= count
        if rank <= 0:
            return value
    return 0.0


# The broker, asked.


def look(broker: Running, content_bytes: int) -> tuple[int, int]:
    """Messages that the broker has of ours, and messages that it has read so far."""
    found = ask(broker, "/api/flow")
    held = read = 0
    for stage in found["stages"]:
        if stage["kind"] == "connection":
            parked = stage["parked_bytes"] // content_bytes
            held += parked
            read += stage["sent"] + parked
        elif stage["kind"] == "queue":
            held += stage["messages"]
    held += sum(link["in_flight"] for link in found["links"] if link["hop"] != "queue_store")
    return held, read


def schedule_of(pid: int) -> dict[str, float]:
    """What the kernel says of the broker's main thread: how long it ran, and waited for a core, and how often."""
    run_ns, wait_ns, waits = map(int, Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split())
    ours = [path.read_text().split() for path in Path("/proc/self/task").glob("*/schedstat")]
    return {
        "at": time.time(),
        "cpu_us": run_ns / 1000,
        "wait_us": wait_ns / 1000,
        "waits": waits,
        "load_wait_us": max(int(words[1]) for words in ours) / 1000,
    }


def ask(broker: Running, path: str) -> Any:
    return json.loads(_open(broker, path).read())


def put_setting(broker: Running, name: str, value: str) -> None:
    _open(broker, f"/api/settings/{name}", json.dumps({"value": value}).encode()).read()


def _open(broker: Running, path: str, body: bytes | None = None) -> Any:
    request = urllib.request.Request(broker.management.rstrip("/") + path, data=body, method="PUT" if body else "GET")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
    request.add_header("Content-Type", "application/json")
    return urllib.request.urlopen(request, timeout=30)


def read_events(broker: Running) -> list[dict[str, Any]]:
    """All events that the broker has written so far, and those of the next moment."""
    with Connection.connect(parse_uri(broker.uri)) as connection:
        channel = connection.open_channel()
        reader = EventReader(channel, "penstock.events", prefetch=5000, arguments={"x-stream-offset": "first"})
        events: list[dict[str, Any]] = []
        while got := reader.read(1000, QUIET_S):
            events += [json.loads(bytes(body)) for body in got.bodies]
            reader.ack(got.tags[-1])
        return events

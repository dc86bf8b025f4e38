"""Simulate: a plant, a load and settings put together, run, and summed up.

Place: the top of the twin. Not here: the parts (machine.py, stages.py, disk.py, clients.py), the values (plant.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.credit import Link
from penstock.flow.twin.clients import Births, ConsumerClient, Lane, PublisherClient, block_of
from penstock.flow.twin.disk import Store
from penstock.flow.twin.machine import Machine
from penstock.flow.twin.plant import Load, Outcome, Plant, Settings
from penstock.flow.twin.stages import FRAMING_BYTES, Channel, Queue, Reader

WARM_UP: Final = 0.25  # of the time, before anything counts
STEPS_MAX: Final = 15_000  # steps of the machine that count; small batches are steady soon
WARM_STEPS_MAX: Final = 30_000  # before them
OLD: Final = 0.3  # messages on their way for longer than that part of the warm-up: it was too short,
AGES: Final = 3  # and goes on for so many times their age,
MORE_MAX_US: Final = 5e6  # but no longer than that,
MORE_STEPS_MAX: Final = 60_000  # nor for more steps in all
REACHED: Final = 0.9  # of the lead that publishers may have: they have it
LEAD_STEPS: Final = 20_000  # between two looks whether a smaller lead still grows,
LEAD_GROWS: Final = 1.03  # which it does if it is so many times what it was,
LEAD_STEPS_MAX: Final = 200_000  # and for so many steps it may
LEAD_US: Final = 600e6  # between two looks, at the most
HELD_BACK: Final = 0.05  # blocked less than that, credit does its daily work: flow/verdict.py
PASSES_ON: Final = 0.5  # flow/graph.py


class Chain:
    """All that is simulated. `round` goes on by one round of the event loop."""

    __slots__ = (
        "_held",
        "channels",
        "consumers",
        "lanes",
        "machine",
        "mean",
        "peak",
        "publishers",
        "queues",
        "readers",
        "store",
    )

    def __init__(self, plant: Plant, load: Load, settings: Settings, seed: int = 0) -> None:
        self.machine = machine = Machine(plant, seed)
        self.peak = 0  # messages held at one time
        self.mean = 0.0  # messages held, times microseconds
        self._held = 0  # after the last round
        outer, inner = settings.hop("reader_channel"), settings.hop("channel_queue")
        watermark = settings.watermark()
        self.store = Store(machine, settings.hop("queue_store"))
        self.queues = [Queue(machine, f"queue {at}", watermark, self.store) for at in range(max(1, load.queues))]
        self.readers: list[Reader] = []
        self.channels: list[Channel] = []
        self.publishers: list[PublisherClient] = []
        self.consumers: list[ConsumerClient] = []
        self.lanes: list[Lane] = []
        prefetch = settings.prefetch if settings.prefetch is not None else load.consumers.prefetch
        content_bytes = load.publishers.body_bytes + FRAMING_BYTES
        for at in range(load.consumers.count):
            queue = self.queues[at % len(self.queues)]
            self.consumers.append(
                ConsumerClient(machine, load.consumers, queue, f"consumer {at}", prefetch, content_bytes)
            )
        for at in range(load.publishers.count):
            goals = self.queues if load.fanout else [self.queues[at % len(self.queues)]]
            lane = Lane(machine, load.publishers, len(goals))
            channel = Channel(machine, f"channel {at}", lane)
            channel.links = [(Link(inner, channel, queue), queue) for queue in goals]
            lane.channel = channel
            lane.delivered = {queue: Births(lane.sent) for queue in goals}
            reader = Reader(machine, f"connection {at}", lane, channel, outer)
            publisher = PublisherClient(machine, load.publishers, lane, reader, _begins_us(load, lane, at))
            publisher.sharing = load.publishers.count if load.fanout else _sharing(load, at)
            self.lanes.append(lane)
            self.readers.append(reader)
            self.channels.append(channel)
            self.publishers.append(publisher)
        for queue in self.queues:
            if load.backlog:
                queue.fill(load.backlog)

    def round(self, until_us: float) -> bool:
        machine, before, began_us = self.machine, self._held, self.machine.now_us
        went_on = machine.round(until_us)
        held = self._held = self.held()
        self.peak = max(self.peak, held)
        # Asleep it had what the round before left; at work, something between that and what it has now.
        woke_us = machine.woke_us if went_on else machine.now_us
        self.mean += before * (woke_us - began_us) + (before + held) / 2 * (machine.now_us - woke_us)
        return went_on

    def held(self) -> int:
        """Messages that the broker has now: parked, in mailboxes, ready, unacked."""
        total = 0
        for reader in self.readers:
            total += reader.parked_count
        for channel in self.channels:
            total += channel.waiting
        for queue in self.queues:
            total += queue.waiting + queue.ready_count + queue.unacked
        return total

    def lead(self) -> int:
        """Messages that publishers are ahead of their consumers."""
        return sum(one.lead_now() for one in self.publishers)

    def links(self) -> Iterable[Link]:
        for reader in self.readers:
            yield reader.link
        for channel in self.channels:
            for link, _ in channel.links:
                yield link
        for queue in self.queues:
            if queue.store_link is not None:
                yield queue.store_link


class Reading:
    """Counters of a chain at one moment."""

    __slots__ = (
        "at_us",
        "blocked_ns",
        "busy_us",
        "confirmed",
        "delivered",
        "edges_ns",
        "mean",
        "saturated_us",
        "syncs",
        "taken",
    )

    def __init__(self, chain: Chain) -> None:
        self.at_us = chain.machine.now_us
        self.busy_us = chain.machine.busy_us
        self.confirmed = sum(one.confirmed for one in chain.publishers)
        self.delivered = sum(one.received for one in chain.consumers)
        self.taken = sum(queue.taken for queue in chain.queues)
        self.mean = chain.mean
        self.syncs = chain.store.syncs
        self.saturated_us = max(queue.saturated_so_far_us() for queue in chain.queues)
        now_ns = chain.machine.clock_ns()
        self.blocked_ns = {
            stage: stage.blocked_ns + (now_ns - stage.blocked_at_ns if stage.blocked_by else 0)
            for stage in (*chain.readers, *chain.channels, *chain.queues)
        }
        self.edges_ns = {
            link: link.blocked_ns + (now_ns - link.upstream.blocked_by[link][0] if link.blocking else 0)
            for link in chain.links()
        }


def simulate(plant: Plant, load: Load, settings: Settings, seconds: float = 2.0, seed: int = 0) -> Outcome:
    """What this load would see of this plant with these settings, in about so much simulated time."""
    chain = Chain(plant, load, settings, seed)
    warm_us = seconds * 1e6 * WARM_UP
    _run(chain, warm_us, WARM_STEPS_MAX)
    age_us = _age_us(chain, load)
    if age_us > OLD * warm_us:  # what was there at the start is still on its way
        warm_us = chain.machine.now_us + min(AGES * age_us, MORE_MAX_US)
        _run(chain, warm_us, MORE_STEPS_MAX)
    if load.publishers.lead_max:
        _get_ahead(chain, REACHED * load.publishers.lead_max * load.publishers.count)
    before = Reading(chain)
    chain.peak = chain.held()
    for lane in chain.lanes:
        lane.confirms.took.clear()
        for births in lane.delivered.values():
            births.took.clear()
    _run(chain, chain.machine.now_us + seconds * 1e6 * (1 - WARM_UP), chain.machine.steps + STEPS_MAX)
    return _sum_up(chain, load, before, Reading(chain))


def _begins_us(load: Load, lane: Lane, number: int) -> float:
    """Publishers with a rate take turns: at the same moment all of them would be a burst that nobody sends."""
    publishers = load.publishers
    if not publishers.rate:
        return 0.0
    return block_of(publishers, lane.wire_bytes) * 1e6 / publishers.rate * number / publishers.count


def _sharing(load: Load, number: int) -> int:
    """How many publishers send to the queue of this one."""
    queues = max(1, load.queues)
    return (load.publishers.count - 1 - number % queues) // queues + 1


def _run(chain: Chain, until_us: float, steps_max: int) -> None:
    while chain.machine.steps < steps_max and chain.round(until_us):
        pass


def _get_ahead(chain: Chain, enough: float) -> None:
    """Publishers that are a little faster than their consumers get ahead slowly, until they are as far ahead as they
    go: only then it is steady."""
    until, lead = chain.machine.steps + LEAD_STEPS_MAX, chain.lead()
    while lead < enough and chain.machine.steps < until:
        _run(chain, chain.machine.now_us + LEAD_US, chain.machine.steps + LEAD_STEPS)
        before, lead = lead, chain.lead()
        if lead <= before * LEAD_GROWS:
            break


def _age_us(chain: Chain, load: Load) -> float:
    """Of the oldest message that nobody has confirmed, or got, yet; 0 where nobody would."""
    ages = [0.0]
    for lane in chain.lanes:
        if load.publishers.window:
            ages.append(lane.confirms.age_us(chain.machine.now_us))
        else:
            ages += [births.age_us(chain.machine.now_us) for queue, births in lane.delivered.items() if queue.consumers]
    return max(ages)


def _sum_up(chain: Chain, load: Load, before: Reading, after: Reading) -> Outcome:
    took_us = max(1e-9, after.at_us - before.at_us)
    took_s = took_us / 1e6
    confirms = load.publishers.window > 0
    delivered = (after.delivered - before.delivered) / took_s
    if confirms:
        throughput = (after.confirmed - before.confirmed) / took_s
    elif chain.consumers:
        throughput = delivered
    else:
        throughput = (after.taken - before.taken) / took_s
    samples: list[tuple[float, int]] = []
    for lane in chain.lanes:
        for births in [lane.confirms] if confirms else lane.delivered.values():
            samples += births.took
    samples.sort()
    content_bytes = load.publishers.body_bytes + FRAMING_BYTES
    blocked: dict[str, float] = {"connection": 0.0, "channel": 0.0, "queue": 0.0}
    for stage, blocked_ns in after.blocked_ns.items():
        share = (blocked_ns - before.blocked_ns.get(stage, 0)) / 1000 / took_us
        blocked[stage.kind] = max(blocked[stage.kind], share)
    saturated = (after.saturated_us - before.saturated_us) / took_us
    return Outcome(
        throughput=throughput,
        delivered=delivered,
        p50_ms=_percentile(samples, 50) / 1000,
        p99_ms=_percentile(samples, 99) / 1000,
        memory_bytes=chain.peak * content_bytes,
        in_flight=(after.mean - before.mean) / took_us,
        blocked=blocked,
        saturated=saturated,
        bottleneck=_bottleneck(chain, before, after, took_us)
        or ("saturated" if saturated > HELD_BACK and confirms else ""),
        cpu=(after.busy_us - before.busy_us) / took_us,
        syncs=(after.syncs - before.syncs) / took_s,
        seconds=took_s,
        steps=chain.machine.steps,
    )


def _bottleneck(chain: Chain, before: Reading, after: Reading, took_us: float) -> str:
    """The kind of the first stage that is not blocked, behind the connection that is blocked most."""

    def blocked_us(link: Link) -> float:
        return (after.edges_ns[link] - before.edges_ns.get(link, 0)) / 1000

    if not chain.readers:
        return ""
    link = max((reader.link for reader in chain.readers), key=blocked_us)
    if blocked_us(link) < HELD_BACK * took_us:
        return ""
    while True:
        stage = link.downstream
        onward = list(stage.outgoing.values())
        if not onward:
            return stage.kind
        further = max(onward, key=blocked_us)
        if blocked_us(further) < PASSES_ON * blocked_us(link):
            return stage.kind
        link = further


def _percentile(samples: list[tuple[float, int]], percent: float) -> float:
    """Of sorted values with counts: the least that so many percent do not exceed."""
    total = sum(count for _, count in samples)
    rank = total * percent / 100
    seen = 0
    for value, count in samples:
        seen += count
        if seen >= rank:
            return value
    return 0.0

"""Tune: a fitted plant, once more, against what a whole load was seen to do.

Service times tell what each stage takes. Two things they do not tell: what is in nobody's turns (the kernel's part of
sockets, the event loop, threads that wait for the interpreter), and how soon clients answer. Both show in what a load
did at the settings of that time: CPU time per message, and throughput where the CPU was not the limit. So the plant's
costs are scaled as one until the twin's CPU time per message is that of the broker. Then the time that sleepers need to
wake is raised, or lowered with the clients' own work, or on a busy machine the time without a core lowered, until its
throughput is. Where clients have told the p99 of their latency, their waits for a core are raised, or their work and
waking lowered, or syncs made more alike, or what the kernel holds of a flood changed, until the twin has it too: the
broker sees little or nothing of these.
What the twin says of any other setting is a prediction.
Upstream: fit.py.  Downstream: simulate.py. Not here: which load it was (who calls knows).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from penstock.flow.twin.plant import Cost, Load, Plant, Settings
from penstock.flow.twin.simulate import simulate

SCALINGS: Final = 3
SCALE_MAX: Final = 4.0  # beyond that the load is not the one that was measured
HALVINGS: Final = 7
WAKE_MAX_US: Final = 20_000.0
HURRY_LEAST: Final = 0.1  # of the time that clients need by the prior
NAP_MAX_US: Final = 1000.0  # a longer wait, as a mean, is not for a core
KERNEL_MOST: Final = 1.3  # times what the kernel is thought to hold: it counts more than bytes, and grows its buffers
NEAR: Final = 0.03  # nearer than that is near enough


def tune(
    plant: Plant,
    load: Load,
    settings: Settings,
    throughput: float,
    cpu_us: float | None = None,
    seconds: float = 0.6,
    seed: int = 0,
    p99_ms: float | None = None,
) -> Plant:
    """The plant that shows this throughput with this load and these settings, and this much CPU time per message."""
    if throughput <= 0:
        return plant
    if cpu_us is not None and cpu_us > 0:
        for _ in range(SCALINGS):
            seen = simulate(plant, load, settings, seconds, seed)
            if seen.throughput <= 0 or seen.cpu <= 0:
                return plant
            scale = cpu_us / (seen.cpu * 1e6 / seen.throughput)
            if abs(scale - 1) < NEAR:
                break
            plant = scaled(plant, min(SCALE_MAX, max(1 / SCALE_MAX, scale)))
    plant = _as_fast(plant, load, settings, throughput, seconds, seed)
    if p99_ms is None:
        return plant
    even = _as_even(plant, load, settings, p99_ms, seconds, seed)
    return plant if even is plant else _as_fast(even, load, settings, throughput, seconds, seed)


def _as_fast(plant: Plant, load: Load, settings: Settings, throughput: float, seconds: float, seed: int) -> Plant:
    """Where the twin is faster than the broker was, clients and threads wake later. Where it is slower on a busy
    machine, some of the waiting for a core was in time that nobody missed; else, clients work and wake sooner."""

    def waking(wake_us: float) -> Plant:
        return replace(plant, wake_us=wake_us)

    def sharing(part: float) -> Plant:
        return replace(plant, stolen=plant.stolen * part)

    def is_faster(found: Plant) -> bool:
        return simulate(found, load, settings, seconds, seed).throughput > throughput

    seen = simulate(plant, load, settings, seconds, seed).throughput
    if abs(seen / throughput - 1) <= NEAR:
        return plant
    if seen < throughput:
        if plant.stolen > 0 and is_faster(sharing(0.0)):
            return _between(sharing, is_faster, 0.0, 1.0)
        return _between(partial(hurried, plant), is_faster, HURRY_LEAST, 1.0)
    high = plant.wake_us
    while is_faster(waking(high)):
        high *= 2
        if high > WAKE_MAX_US:
            return plant  # no wait explains it: the publishers send less than the load says
    return _between(waking, is_faster, high / 2, high)


def _as_even(plant: Plant, load: Load, settings: Settings, p99_ms: float, seconds: float, seed: int) -> Plant:
    """Where the twin's latencies are too even, clients wait longer for a core now and then; where they are too long,
    syncs differ less (events count them in wide classes), or clients work and wake sooner. Only if that is what it
    takes: a wait that does not matter at these settings may be all that matters at others. Else, where publishers
    flood, the kernel holds more or less of what they sent."""

    def napping(nap_us: float) -> Plant:
        return replace(plant, nap_us=nap_us)

    def holding(part: float) -> Plant:
        return replace(plant, socket_bytes=round(plant.socket_bytes * part))

    def p99_of(found: Plant) -> float:
        return simulate(found, load, settings, seconds, seed).p99_ms

    def is_below(found: Plant) -> bool:
        return p99_of(found) < p99_ms

    seen = p99_of(plant)
    if abs(seen / p99_ms - 1) <= NEAR:
        return plant
    if seen < p99_ms and not is_below(napping(NAP_MAX_US)):
        return _between(napping, is_below, 0.0, NAP_MAX_US)
    # Syncs first: they leave the throughput, which is right already, as it is.
    for change, least in ((partial(steadied, plant), 0.0), (partial(hurried, plant), HURRY_LEAST)):
        if seen > p99_ms and seen - p99_of(change(least)) >= (seen - p99_ms) / 2:
            return _between(change, is_below, least, 1.0)
    publishers = load.publishers
    if publishers.rate or publishers.window or publishers.lead_max:
        return plant
    return _between(holding, is_below, 1 / KERNEL_MOST, KERNEL_MOST)


def _between(make: Callable[[float], Plant], is_before: Callable[[Plant], bool], low: float, high: float) -> Plant:
    """The plant at the point where `is_before` ends to hold, upwards."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if is_before(make(middle)):
            low = middle
        else:
            high = middle
    return make((low + high) / 2)


def hurried(plant: Plant, part: float) -> Plant:
    """Clients' own work, and waking up, take so much of their time."""
    return replace(plant, client=plant.client * part, wake_us=plant.wake_us * part)


def steadied(plant: Plant, part: float) -> Plant:
    """Syncs are only so far from their mean as before, times this part."""
    mean_us = sum(plant.sync_us) / len(plant.sync_us)
    return replace(plant, sync_us=tuple(mean_us + part * (one_us - mean_us) for one_us in plant.sync_us))


def scaled(plant: Plant, scale: float) -> Plant:
    """All that takes CPU time takes so many times as much."""

    def cost(one: Cost) -> Cost:
        return Cost(one.turn_us * scale, one.message_us * scale)

    return replace(
        plant,
        read=cost(plant.read),
        reader=cost(plant.reader),
        channel=cost(plant.channel),
        queue=cost(plant.queue),
        deliver=cost(plant.deliver),
        ack=cost(plant.ack),
        settle=cost(plant.settle),
        confirm=cost(plant.confirm),
        store=cost(plant.store),
        deposit_us=plant.deposit_us * scale,
        synced=cost(plant.synced),
        write=cost(plant.write),
        loop_us=plant.loop_us * scale,
        byte_us=plant.byte_us * scale,
        write_out_byte_us=plant.write_out_byte_us * scale,
    )

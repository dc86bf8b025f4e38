"""Load: what clients do, as the twin wants it: out of the tables and, if there is one, of the running broker.

The twin knows one kind of publishers and one of consumers. Where there are several, the mean stands for all, and a note
says so. What cannot be known is assumed, and a note says that too.
Upstream: observed.py, clients.py.  Downstream: penstock.flow.twin.
Not here: what the broker's work costs (the twin's fit).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from penstock.flow.twin import Consumers, Load, Plant, Publishers, Settings, simulate, tune
from penstock.flow.twin.clients import METHOD_BYTES, block_of
from penstock.flow.twin.stages import FRAMING_BYTES
from penstock.spark.advice.clients import Clients, Consuming, Publishing
from penstock.spark.advice.grid import HOPS, SECTION
from penstock.spark.advice.observed import Observed, Seen
from penstock.spark.complaint import Complaint

HELD_BACK: Final = 0.05  # blocked more than this, a publisher would send more if it might; flow/verdict.py
HELD_BYTES: Final = 120  # what Python takes for a message that waits, beside body and framing; docs/advice.md
BODY_BYTES: Final = 100  # where nothing is known
PERSISTENT: Final = 0.5  # of what queues take, from there on the load is a persistent one
STEADY: Final = 0.02  # a queue that grows by less than this part of what comes in does not grow
ALWAYS: Final = 500  # messages: a queue that never had fewer ready is one whose consumers are slow
CHUNK_US: Final = 10_000.0  # of a slow consumer's work, before it acks
PUBLISHERS_MAX: Final = 64  # more of them cost the twin time and change nothing: all share one core
QUEUES_MAX: Final = 64
MESSAGE_US: Final = Consumers().message_us  # of a consumer that is not slow
SEEN: Final = Consumers(wake=1)  # a consumer of which nothing more is known: it takes what there is when it comes
TICK_S: Final = 0.005  # publishers with a rate send what has come together in that time, as their loops do
SHORT_S: Final = 0.4  # simulated, where syncs are as short as usual
SHORT_MAX_S: Final = 4.0
FEW: Final = 100  # messages that a simulation should see where publishers send few
FEW_MAX_S: Final = 600.0
SYNCS: Final = 100  # that a simulation should see
CYCLES: Final = 4  # and how often a queue should be saturated in it
CYCLES_MAX_S: Final = 10.0
TUNE: Final = 2.0  # times that, for tuning
TUNE_STEPS: Final = 6
CLOSE: Final = 0.03  # so near to the measured throughput, tuning is done
FACTOR_MAX: Final = 3.0  # what is further off is no question of a factor
MUST_BE_BROKER: Final = 0.3  # publishers that are blocked so much are not slow themselves
BUSY: Final = 0.8  # of the loop's time: below it, it is not the core that is short
CREDITS: Final = tuple(hop + end for hop in HOPS for end in ("", "_bytes"))
NUMBERS: Final = (
    "faults.channel_delay_us",
    "faults.queue_delay_us",
    "faults.store_sync_delay_ms",
    "limits.parked_bytes",
)
NAMES: Final = (*(SECTION + name for name in CREDITS), *NUMBERS)


@dataclass(frozen=True, slots=True)
class Model:
    """The twin of what was observed."""

    plant: Plant
    load: Load
    settings: Settings  # the current ones
    error: float  # how far its throughput is from the measured one, as a part of that
    notes: tuple[str, ...]

    @property
    def full(self) -> bool:
        """Whether queues are at their marks, so that these decide how much there is in them."""
        return 0 < self.settings.resume <= 2 * self.load.backlog and self.load.consumers.count > 0


def settings_of(given: Mapping[str, str]) -> Settings:
    """The twin's settings out of the broker's, by their names; the broker's defaults for what is left out."""
    known = {name: given[SECTION + name] for name in CREDITS if SECTION + name in given}
    settings = Settings(**known)  # type: ignore[arg-type]
    for hop in HOPS:
        try:
            settings.hop(hop)
        except ValueError as error:
            raise Complaint(f"{SECTION}{hop}: {error}") from None
    return settings


def check_given(given: Mapping[str, str]) -> None:
    """What a user says is set: a Complaint about what is no setting that counts here, or no value of it."""
    settings_of(given)
    for name, value in given.items():
        if name in NUMBERS:
            try:
                if 0 <= float(value) < inf:
                    continue
            except ValueError:
                pass
            raise Complaint(f"{name}: {value!r} is no number from 0 on")
        if name not in NAMES:
            raise Complaint(f"{name} is no setting that advice knows: there are {', '.join(NAMES)}")


def load_of(observed: Observed, clients: Clients | None) -> tuple[Load, list[str]]:
    """What the clients do, and what had to be assumed."""
    notes: list[str] = []
    names = {one.stage for one in observed.connections}
    publishing = [one for one in clients.publishing if one.connection in names] if clients else []
    if clients is not None and not publishing:
        publishing = list(clients.publishing)  # they have connected again since
        if not publishing:
            notes.append("nobody publishes at the moment: publishers are taken for such without confirms")
    window = _window(publishing, observed.content_bytes, notes)
    if clients is None:
        notes.append("the broker's HTTP API was not asked: publishers are taken for such without confirms")
    persistent = observed.stored >= observed.taken * PERSISTENT > 0
    if 0.1 < (observed.stored / observed.taken if observed.taken else 0.0) < 0.9:
        kind = "persistent" if persistent else "transient"
        part = _percent(observed.stored / observed.taken)
        notes.append(f"{part} of the messages are persistent: all are simulated as {kind}")
    body = round(max(1.0, observed.content_bytes - FRAMING_BYTES)) if observed.content_bytes else BODY_BYTES
    if not observed.content_bytes:
        notes.append(f"nothing had to wait, so the tables have no size of messages: {BODY_BYTES} bytes are assumed")
    count = min(PUBLISHERS_MAX, max(1, round(observed.publishing)))
    pushes = observed.blocked >= HELD_BACK or _is_full(publishing)
    active = [one for one in observed.queues if one.received > 0]
    queues = max(1, min(QUEUES_MAX, len(active)))
    fanout = observed.taken > observed.throughput * 1.5 and len(active) > 1
    consumers = _consumers(observed, active, clients)
    if not consumers.count and any(one.consumers for one in active):
        notes.append("consumers take nothing")
    publishers = Publishers(
        count=count,
        rate=0.0 if pushes else observed.throughput / count,
        window=window,
        persistent=persistent,
        body_bytes=body,
        lead_max=0 if window or not pushes else _lead(active, count if fanout else -(-count // queues)),
    )
    publishers = replace(publishers, block=_block(publishers))
    backlog = min((_ready_min(one, consumers) for one in active), default=0)
    return Load(publishers, consumers, queues, fanout, min(backlog, 100_000)), notes


def tuned(plant: Plant, load: Load, settings: Settings, observed: Observed) -> Model:
    """The twin made to meet what was measured: CPU time and throughput.

    What then still differs, where publishers push, is put down to what the tables cannot know: if the twin is faster
    than publishers that the broker did not block, to the time that they take themselves; else, where it waits for the
    disk, to the disk.
    """
    measured = throughput_of(load, observed)
    seconds = max(TUNE * short_s(plant, load), cycles_s(settings, observed.delivered))
    load = _with_consumers(plant, load, settings, measured, seconds)
    plant = tune(plant, load, settings, measured, observed.cpu_us or None, seconds)
    best = Model(plant, load, settings, float("inf"), ())
    factor = 1.0
    for _ in range(TUNE_STEPS):
        outcome = simulate(plant, load, settings, seconds)
        ratio = outcome.throughput / measured if measured else 1.0
        if abs(ratio - 1.0) < best.error:
            best = Model(plant, load, settings, abs(ratio - 1.0), _tuning_notes(factor, load))
        if best.error < CLOSE or not outcome.throughput or load.publishers.rate > 0:
            break
        if ratio > 1.0 and observed.blocked < MUST_BE_BROKER:
            # The time of a message is the publisher's share of the whole, and what is missing is its client's own.
            missing_us = 1e6 * load.publishers.count * (1.0 / measured - 1.0 / outcome.throughput)
            send_us = load.publishers.send_us + missing_us
            load = replace(load, publishers=replace(load.publishers, send_us=send_us))
        elif load.publishers.persistent and outcome.cpu < BUSY and 1.0 / FACTOR_MAX < factor < FACTOR_MAX:
            ratio = min(FACTOR_MAX / factor, max(1.0 / FACTOR_MAX / factor, ratio))
            factor *= ratio
            plant = replace(plant, sync_us=tuple(one * ratio for one in plant.sync_us))
        else:
            break
    return best


def _with_consumers(plant: Plant, load: Load, settings: Settings, measured: float, seconds: float) -> Load:
    """Consumers that always had something to take, and set the pace: of the time that a message took them, the way to
    the broker and back is not theirs. With a small prefetch it is most of it."""
    for _ in range(TUNE_STEPS):
        consumers = load.consumers
        if consumers.message_us <= MESSAGE_US or not measured or (load.publishers.window and settings.stop <= 0):
            break
        seen = simulate(plant, load, settings, seconds).throughput
        if not seen or abs(seen / measured - 1.0) < CLOSE:
            break
        own_us = consumers.message_us + 1e6 * consumers.count * (1.0 / measured - 1.0 / seen)
        load = replace(load, consumers=replace(consumers, message_us=max(MESSAGE_US, own_us)))
    return load


def throughput_of(load: Load, observed: Observed) -> float:
    """The measured rate of what the twin calls throughput."""
    return observed.throughput if load.publishers.window or not load.consumers.count else observed.delivered


def message_room(memory_room: float, body_bytes: int) -> float:
    """How many bytes of messages, as the twin counts them, fit into so much of the process's memory."""
    size = body_bytes + FRAMING_BYTES
    return memory_room * size / (size + HELD_BYTES)


def short_s(plant: Plant, load: Load) -> float:
    """How long a setting must be simulated so that chance does not decide: with a slow disk or few messages, longer."""
    publishers, enough_s = load.publishers, SHORT_S
    if publishers.rate:
        enough_s = max(enough_s, min(FEW_MAX_S, FEW / (publishers.rate * publishers.count)))
    if publishers.persistent:
        sync_us = sum(plant.sync_us) / len(plant.sync_us) + plant.sync_delay_us
        enough_s = max(enough_s, min(SHORT_MAX_S, SYNCS * sync_us / 1e6))
    return enough_s


def cycles_s(settings: Settings, pace: float) -> float:
    """How long it takes until a queue from which so many messages a second leave was saturated and released a few
    times; 0 without marks."""
    mark = settings.watermark()
    if mark is None or pace <= 0:
        return 0.0
    return min(CYCLES_MAX_S, CYCLES * (mark.stop_count - mark.resume_count) / pace)


def _tuning_notes(factor: float, load: Load) -> tuple[str, ...]:
    """What the twin was told beyond the tables."""
    notes: list[str] = []
    if not 0.8 < factor < 1.25:
        notes.append(f"the time of a sync was multiplied by {factor:.2g} to meet the measured throughput")
    send_us = load.publishers.send_us
    if send_us > 1.0:
        took = f"{send_us:,.0f}" if send_us >= 100 else f"{send_us:.3g}"
        notes.append(f"the publishers themselves seem to take {took} us for each message")
    return tuple(notes)


def _window(publishing: Sequence[Publishing], content_bytes: float, notes: list[str]) -> int:
    """How many confirms a publisher waits for at most: what was seen; 0: most of them ask for none.

    What is parked waits for its confirm too. What a paused socket keeps in the kernel is not seen, but then there is as
    much parked as may be, and a window of that size is as good as none."""
    confirming = [one for one in publishing if one.confirms]
    if len(confirming) * 2 < len(publishing) or not confirming:
        if confirming:
            notes.append(
                f"{len(confirming)} of {len(publishing)} publishers ask for confirms: simulated as if none did"
            )
        return 0
    if len(confirming) < len(publishing):
        notes.append(f"{len(confirming)} of {len(publishing)} publishers ask for confirms: simulated as if all did")
    size = content_bytes or BODY_BYTES + FRAMING_BYTES
    seen = sum(one.unconfirmed_max + one.parked_max_bytes / size for one in confirming) / len(confirming)
    return max(1, round(seen))


def _is_full(publishing: Sequence[Publishing]) -> bool:
    """Whether windows are used up most of the time: these publishers would send more if confirms came sooner."""
    confirming = [one for one in publishing if one.confirms and one.unconfirmed_max]
    if not confirming:
        return False
    return sum(one.unconfirmed_mean / one.unconfirmed_max for one in confirming) / len(confirming) >= 0.5


def _block(publishers: Publishers) -> int:
    """What a publisher sends at once; 0: as much as it can, it is held back."""
    usual = block_of(publishers, publishers.body_bytes + FRAMING_BYTES + METHOD_BYTES)
    return min(usual, max(1, round(publishers.rate * TICK_S))) if publishers.rate else 0


def _consumers(observed: Observed, queues: Sequence[Seen], clients: Clients | None) -> Consumers:
    count = sum(one.consumers for one in queues)
    sent = sum(one.sent for one in queues)
    if not count or not sent:
        return Consumers(count=0)
    names = {one.stage for one in queues}
    known: list[Consuming] = [one for one in clients.consuming if one.queue in names] if clients else []
    acking = [one for one in known if one.acks]
    limits = sorted(one.prefetch for one in acking if one.prefetch)
    consumers = replace(
        SEEN,
        count=count,
        acks=len(acking) * 2 >= len(known),
        prefetch=limits[len(limits) // 2] if limits else 0 if known else SEEN.prefetch,
    )
    consumers = within_prefetch(consumers, consumers.prefetch)
    if any(_ready_min(one, consumers) > ALWAYS for one in queues):
        # There was always something to take: so it is they who are slow. They do not take all that is there at once:
        # who works for seconds acks in between.
        message_us = max(consumers.message_us, 1e6 * count / sent)
        chunk = max(1, min(consumers.ack_batch, round(CHUNK_US / message_us)))
        consumers = replace(consumers, message_us=message_us, chunk=chunk, ack_batch=chunk)
    return consumers


def within_prefetch(consumers: Consumers, prefetch: int | None) -> Consumers:
    """Who may have ten messages does not wait for a hundred before it acks."""
    if not prefetch:
        return consumers
    batch = max(1, min(consumers.ack_batch, prefetch // 4))
    wake = max(1, min(consumers.wake, prefetch // 2))
    return replace(consumers, ack_batch=batch, wake=wake, chunk=min(consumers.chunk, batch))


def _ready_min(queue: Seen, consumers: Consumers) -> int:
    """The least that ever waited in a queue: what it had, less what consumers may have had of it."""
    return max(0, queue.messages_min - queue.consumers * consumers.prefetch * consumers.acks)


def _lead(queues: Sequence[Seen], sharing: int) -> int:
    """Publishers without confirms that push and yet fill no queue: something lets them wait for the consumers. So many
    of them share a queue."""
    longest = max((one.messages_max for one in queues if one.consumers), default=0)
    grows = any(one.growth > STEADY * one.received for one in queues)
    return 0 if grows or not longest else max(1000, longest // sharing)


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %"

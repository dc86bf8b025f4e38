"""Scenario: what is measured. One function each; a table names them.

Rates count messages that arrived: deliveries, or confirms. Clocks are read after a warm-up, and again `seconds` later;
then the publishers stop, and a run whose consumers do not get exactly what was sent makes no figure but an error.
Not here: what the disk must hold (durable.py), clocks (measure.py), loops (load.py), turns and medians (run.py).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.amqp.properties import PERSISTENT, TRANSIENT, Properties
from penstock.client.connection import Channel
from penstock.perf.block import Block, block, block_messages
from penstock.perf.durable import (
    BACKLOG_MESSAGES_PER_S,
    BODIES,
    DURABLE_QUEUES,
    WINDOWS,
    PersistentConfirms,
    play_backlog,
    play_drain_disk,
    play_durable_queues,
)
from penstock.perf.figure import MEGABYTES_PER_S, MESSAGES_PER_S, MICROSECONDS, Figure, percentile
from penstock.perf.load import Consumer, Publisher, drain
from penstock.perf.measure import WARM_UP_S, await_count, drain_all, measure
from penstock.perf.roundtrip import RoundTrip
from penstock.perf.site import WAKE_UNACKED, Site

BODY_BYTES = 100
KB_BYTES = 1000
LARGE_BYTES = 1_000_000
CONFIRM_WINDOW = 1000
FANOUT_QUEUES = 10
PAIRS = 5
QUEUES = 1000
QUEUE_CONNECTIONS = 4
KEYS = 100
IDENTIFIED_MESSAGES = 10_000  # a message-id comes again only after so many others
FILL_MESSAGES_PER_S = 50_000  # for each second asked for; about what RabbitMQ takes, so a fill lasts about so long
ROUND_TRIPS_MIN = 2000
LARGE_PREFETCH = 8


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    about: str
    body_bytes: int
    play: Callable[[Site], list[Figure]]


def play_acks(site: Site) -> list[Figure]:
    (queue,) = site.queues(1)
    return _flow(site, [site.publisher("", queue)], [site.consumer([queue])])


def play_noack(site: Site) -> list[Figure]:
    (queue,) = site.queues(1)
    return _flow(site, [site.publisher("", queue)], [site.consumer([queue], batch=0, wake=WAKE_UNACKED)])


def play_confirms(site: Site) -> list[Figure]:
    return _confirmed(site, durable=False, delivery_mode=TRANSIENT)


def play_persistent(site: Site) -> list[Figure]:
    return _confirmed(site, durable=True, delivery_mode=PERSISTENT)


def play_fanout(site: Site) -> list[Figure]:
    queues = site.queues(FANOUT_QUEUES)
    exchange = site.exchange("fanout")
    site.bind(queues, exchange, [""] * len(queues))
    publisher = site.publisher(exchange, "")
    return _flow(site, [publisher], [site.consumer([queue]) for queue in queues], copies=FANOUT_QUEUES)


def play_pairs(site: Site) -> list[Figure]:
    queues = site.queues(PAIRS)
    return _flow(site, [site.publisher("", queue) for queue in queues], [site.consumer([queue]) for queue in queues])


def play_queues(site: Site) -> list[Figure]:
    queues = site.queues(QUEUES)
    exchange = site.exchange("direct")
    keys = [f"{index:04d}" for index in range(QUEUES)]
    site.bind(queues, exchange, keys)
    share = QUEUES // QUEUE_CONNECTIONS
    consumers = [site.consumer(queues[start : start + share]) for start in range(0, QUEUES, share)]
    channel = site.channel()
    # One block is one message to every queue.
    rounds = block(site.message(channel, exchange, key) for key in keys)
    return _flow(site, [site.publisher_of(channel, [rounds])], consumers)


def play_ids(site: Site) -> list[Figure]:
    (queue,) = site.queues(1)
    channel = site.channel()
    return _flow(site, [site.publisher_of(channel, _identified(site, channel, "", [queue]))], [site.consumer([queue])])


def play_keys(site: Site) -> list[Figure]:
    (queue,) = site.queues(1)
    exchange = site.exchange("topic")
    site.bind([queue], exchange, ["stock.#"])
    channel = site.channel()
    keys = [f"stock.{index:02d}.price" for index in range(KEYS)]
    return _flow(
        site, [site.publisher_of(channel, _identified(site, channel, exchange, keys))], [site.consumer([queue])]
    )


def _identified(site: Site, channel: Channel, exchange: str, keys: Sequence[str]) -> list[Block]:
    """Blocks in which every message has a message-id of its own, and the keys take turns."""
    messages = [
        site.message(
            channel,
            exchange,
            keys[number % len(keys)],
            Properties(delivery_mode=TRANSIENT, message_id=f"{number:08d}"),
            number,
        )
        for number in range(IDENTIFIED_MESSAGES)
    ]
    step = block_messages(len(messages[0]))
    return [block(messages[start : start + step]) for start in range(0, len(messages), step)]


def play_large(site: Site) -> list[Figure]:
    (queue,) = site.queues(1)
    consumer = site.consumer([queue], batch=1, wake=1, prefetch=LARGE_PREFETCH)
    return _flow(site, [site.publisher("", queue)], [consumer], unit=MEGABYTES_PER_S)


def play_latency(site: Site) -> list[Figure]:
    (queue,) = site.queues(1)
    trip = RoundTrip(site, queue)
    _repeat(trip, time.perf_counter() + WARM_UP_S, 1)
    start = site.read_clocks()
    times = _repeat(trip, start.at_s + site.seconds, ROUND_TRIPS_MIN)
    end = site.read_clocks()
    trip.check(site.body_bytes)
    costs = site.rate("", "", start, end, len(times), 0)
    times.sort()
    return [
        Figure(f"p{percent}", percentile(times, percent) * 1e6, MICROSECONDS, costs.broker_cpu_us, costs.load_cpu_us)
        for percent in (50, 99)
    ]


def _repeat(trip: RoundTrip, until_s: float, least: int) -> list[float]:
    times: list[float] = []
    while len(times) < least or time.perf_counter() < until_s:
        times.append(trip.go())
    return times


def play_filldrain(site: Site) -> list[Figure]:
    (queue,) = site.queues(1)
    publisher = site.publisher("", queue)
    step = publisher.blocks[0].messages
    messages = max(1, int(FILL_MESSAGES_PER_S * site.seconds) // step) * step
    publisher.limit = messages
    start = site.read_clocks()
    site.start([publisher], [])
    await_count(site, publisher, [queue], messages)
    filled = site.read_clocks()
    draining, drained = drain_all(site, queue, messages, publisher.cycle)
    return [
        site.rate("fill", MESSAGES_PER_S, start, filled, messages, messages),
        site.rate("drain", MESSAGES_PER_S, draining, drained, messages, messages),
    ]


def _flow(
    site: Site,
    publishers: Sequence[Publisher],
    consumers: Sequence[Consumer],
    copies: int = 1,
    unit: str = MESSAGES_PER_S,
) -> list[Figure]:
    """Publishers to consumers. Several publishers mean pairs; else each consumer gets its share of what one sends."""
    if len(publishers) > 1:
        for publisher, consumer in zip(publishers, consumers, strict=True):
            publisher.consumers, consumer.cycle = [consumer], publisher.cycle
    else:
        publishers[0].consumers, publishers[0].copies = consumers, copies
        for consumer in consumers:
            # A consumer that gets only a share, of many queues, sees no order that is promised.
            consumer.cycle = publishers[0].cycle if copies == len(consumers) else 0
    start, end, messages = measure(site, publishers, consumers, lambda: sum(one.received for one in consumers))
    drain(publishers, consumers, lambda: _shares(publishers, consumers, copies))
    amount = messages * site.body_bytes / 1e6 if unit == MEGABYTES_PER_S else messages
    return [site.rate("", unit, start, end, messages, amount)]


def _confirmed(site: Site, durable: bool, delivery_mode: int) -> list[Figure]:
    (queue,) = site.queues(1, durable)
    consumer = site.consumer([queue], batch=0, wake=WAKE_UNACKED)
    publisher = site.confirmed_publisher([queue], CONFIRM_WINDOW, delivery_mode)
    consumer.cycle = publisher.cycle
    start, end, messages = measure(site, [publisher], [consumer], lambda: publisher.confirmed)
    drain([publisher], [consumer], lambda: [publisher.sent])
    return [site.rate("", MESSAGES_PER_S, start, end, messages, messages)]


def _shares(publishers: Sequence[Publisher], consumers: Sequence[Consumer], copies: int) -> list[int]:
    """How many deliveries each consumer is due."""
    if len(publishers) == len(consumers):
        return [publisher.sent for publisher in publishers]
    return [publishers[0].sent * copies // len(consumers)] * len(consumers)


def _unconfirmed(window: int) -> str:
    return "each confirmed before the next" if window == 1 else f"confirms in a window of {window}"


SCENARIOS: tuple[Scenario, ...] = (
    Scenario("acks", "1 publisher, 1 consumer: acks in batches of 100, prefetch 1000", BODY_BYTES, play_acks),
    Scenario("noack", "1 publisher, 1 consumer without acks", BODY_BYTES, play_noack),
    Scenario("kb", "as acks, with bodies of 1 KB", KB_BYTES, play_acks),
    Scenario("ids", "as acks, with a new message-id each time: no two heads alike", BODY_BYTES, play_ids),
    Scenario("keys", "as ids, through a topic exchange with 100 keys in turn", BODY_BYTES, play_keys),
    Scenario(
        "confirms", "confirms in a window of 1000; the queue has a consumer without acks", BODY_BYTES, play_confirms
    ),
    Scenario("persistent", "as confirms, persistent messages to a durable queue", BODY_BYTES, play_persistent),
    Scenario(
        "fanout", "1 publisher, a fanout exchange to 10 queues with a consumer each; acks", BODY_BYTES, play_fanout
    ),
    Scenario("pairs", "5 publishers, each with its queue and consumer; acks", BODY_BYTES, play_pairs),
    Scenario("queues", "1000 queues by key in turn, consumers on 4 connections; acks", BODY_BYTES, play_queues),
    Scenario("filldrain", "fill a queue without consumer, then drain it with acks", BODY_BYTES, play_filldrain),
    Scenario("latency", "one message in flight: publish, deliver, ack", BODY_BYTES, play_latency),
    Scenario("large", "bodies of 1 MB in frames of the negotiated size, each acked", LARGE_BYTES, play_large),
    *(
        Scenario(
            f"persist-{window}-{size}",
            f"persistent messages of {size} to a durable queue without consumer; {_unconfirmed(window)}",
            body_bytes,
            PersistentConfirms(window),
        )
        for window in WINDOWS
        for size, body_bytes in BODIES
    ),
    Scenario(
        f"durable-{DURABLE_QUEUES}",
        f"persistent messages to {DURABLE_QUEUES} durable queues in turn; confirms in a window of 1000",
        BODY_BYTES,
        play_durable_queues,
    ),
    Scenario(
        "backlog",
        f"fill a durable queue with persistent messages, {BACKLOG_MESSAGES_PER_S:,} for each second; confirms as above",
        BODY_BYTES,
        play_backlog,
    ),
    Scenario(
        "drain-disk",
        "the same into a lazy queue, which keeps none in memory; then drain it with acks",
        BODY_BYTES,
        play_drain_disk,
    ),
)

"""Plant, Load, Settings, Outcome: what the twin is told, and what it tells. Plain values, frozen, picklable.

The plant is the broker with its machine as measured (fit.py); the load is what clients do; settings are what an
operator may turn. Times are microseconds and sizes bytes, unless a name says otherwise.
Not here: how they act on each other (stages.py, clients.py, simulate.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.credit import Hop, Spec, Watermark
from penstock.credit.watermark import OFF

BYTES_CREDIT = "16777216,8388608"


@dataclass(frozen=True, slots=True)
class Cost:
    """What work takes of the broker's one CPU: so much for each turn, and so much for each message in it."""

    turn_us: float
    message_us: float

    def of(self, messages: int) -> float:
        return self.turn_us + self.message_us * messages


@dataclass(frozen=True, slots=True)
class Plant:
    """The broker and its machine. The defaults are those of Python 3.11, interpreted, on a core of a cloud server."""

    read: Cost = Cost(21.0, 0.24)  # a read from a socket, decoded and given to the reader
    reader: Cost = Cost(10.5, 0.028)  # a turn of the reader: parked publishes are sent on
    channel: Cost = Cost(12.0, 0.03)  # publishes routed and cast
    queue: Cost = Cost(7.0, 0.05)  # arrivals taken
    deliver: Cost = Cost(11.0, 0.14)  # dispatched and made frames
    ack: Cost = Cost(6.0, 0.11)  # acks looked up by the channel
    settle: Cost = Cost(4.0, 0.26)  # what the queue does for a delivery that is to be acked, and for its ack
    confirm: Cost = Cost(4.0, 0.0)  # a turn of the channel that tells of confirms
    store: Cost = Cost(15.0, 0.36)  # deposits encoded and handed to the journal's thread
    deposit_us: float = 25.0  # beside that, for each batch of them: encoded, placed, and later told of
    synced: Cost = Cost(14.0, 0.002)  # what the loop does when it hears of a sync
    write: Cost = Cost(16.0, 0.14)  # a connection's frames joined and given to the kernel
    loop_us: float = 8.0  # a round of the event loop beside all that
    byte_us: float = 0.0004  # for each byte read
    write_out_byte_us: float = 0.0003  # for each byte written to a socket

    stolen: float = 0.0  # microseconds that the broker waits for a core, for each that it works
    steal_us: float = 1000.0  # and how long such a wait is, on average
    nap_us: float = 0.0  # how long a client's wait for a core is, if that is longer: others than the broker are there
    client: float = 1.0  # how long clients' own work takes, as a part of what the load says
    wake_us: float = 40.0  # until a thread that slept, of the broker or of a client, runs
    timer_us: float = 1000.0  # the event loop's timers know no less

    sync_us: tuple[float, ...] = (300.0,)  # how long syncs take: each of these equally often
    write_byte_us: float = 0.001  # the journal's thread, per byte, before the sync
    channel_delay_us: float = 0.0  # faults.channel_delay_us and its fellows
    queue_delay_us: float = 0.0
    sync_delay_us: float = 0.0

    stage_budget: int = 1000  # runtime/scheduler.py
    turn_budget: int = 4000
    parked_bytes_max: int = 1_048_576  # limits.parked_bytes
    read_bytes: int = 256_000  # the most that one read of a socket brings
    reads_max: int = 32  # reads of one socket in a row, while each is full
    socket_bytes: int = 5_600_000  # what the kernel holds between a sender and a receiver that does not read
    socket_free: float = 0.32  # the part of that which must be free again before a sender that found it full goes on
    write_high_bytes: int = 262_144  # net/writer.py
    gather_us: float = 10_000.0  # store.py: how long what nobody waits for is gathered
    gather_bytes_max: int = 4_194_304
    heavy_bytes: int = 1_048_576


@dataclass(frozen=True, slots=True)
class Publishers:
    """Some clients that publish alike, each on a connection and channel of its own."""

    count: int = 1
    rate: float = 0.0  # messages per second of each; 0: as fast as they are taken
    window: int = 0  # unconfirmed messages at most; 0: without confirms
    persistent: bool = False
    body_bytes: int = 100
    block: int = 0  # messages sent at once; 0: a tenth of the window, else what makes 64 KB
    send_us: float = 0.15  # of the client's own CPU, per message
    call_us: float = 20.0  # and per block
    lead_max: int = 0  # it waits when it is so many messages ahead of the consumers; 0: never


@dataclass(frozen=True, slots=True)
class Consumers:
    """Some clients that consume alike, each on a connection and channel of its own."""

    count: int = 1
    message_us: float = 0.25  # of the client's own time, per message: CPU time, or if it takes chunks, whatever it does
    call_us: float = 20.0  # and each time it wakes
    acks: bool = True
    ack_batch: int = 100
    wake: int = 200  # deliveries it sleeps for
    chunk: int = 0  # deliveries it works on at a time; 0: all that came
    prefetch: int = 1000  # what it asks for, where the settings say nothing; 0: no limit


@dataclass(frozen=True, slots=True)
class Load:
    """What clients do. Publisher and consumer number i use queue i, modulo the queues; with `fanout`, each message goes
    to all of them."""

    publishers: Publishers = field(default_factory=Publishers)
    consumers: Consumers = field(default_factory=Consumers)
    queues: int = 1
    fanout: bool = False
    backlog: int = 0  # messages in each queue at the start


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be turned while the broker runs; credit as users write it, `initial,more_after`."""

    reader_channel: str = "400,200"
    channel_queue: str = "400,200"
    queue_store: str = "2000,500"
    reader_channel_bytes: str = BYTES_CREDIT
    channel_queue_bytes: str = BYTES_CREDIT
    queue_store_bytes: str = BYTES_CREDIT
    prefetch: int | None = None  # instead of what consumers ask for
    stop: int = OFF  # x-flow-stop-count; OFF: no watermark
    resume: int = OFF

    def hop(self, name: str) -> Hop:
        """A hop of the broker's own kind, with these settings. ValueError as for a user who writes it wrong."""
        messages, bytes_ = {
            "reader_channel": (self.reader_channel, self.reader_channel_bytes),
            "channel_queue": (self.channel_queue, self.channel_queue_bytes),
            "queue_store": (self.queue_store, self.queue_store_bytes),
        }[name]
        return Hop(name, Spec.parse(messages), Spec.parse(bytes_))

    def watermark(self) -> Watermark | None:
        return Watermark(self.stop, self.resume) if self.stop != OFF else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a load would see, in the time after the warm-up."""

    throughput: float  # messages per second: confirmed where there are confirms, else delivered, else taken by a queue
    delivered: float  # messages per second to consumers
    p50_ms: float  # from publish to confirm where there are confirms, else to delivery
    p99_ms: float
    memory_bytes: int  # the most that was held of messages at one time: parked, in mailboxes, ready, unacked
    in_flight: float  # the same in messages, as a mean
    blocked: dict[str, float]  # kind of stage -> part of the time that its most blocked one was blocked
    saturated: float  # part of the time that queues were above their stop mark
    bottleneck: str  # channel, queue, store, saturated, or "": the publishers themselves
    cpu: float  # part of the time that the event loop worked
    syncs: float  # per second
    seconds: float  # simulated, after the warm-up
    steps: int  # of the simulation: what it cost

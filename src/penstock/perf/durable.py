"""Durable: what is measured of a broker's disk. Persistent messages to durable queues, with confirms.

There are no consumers while messages come: a message that is acked in time, or taken at once without acks, need not be
written. A run is worth a figure only if the queues count exactly what was confirmed.
Not here: the names (scenario.py), clocks (measure.py); a broker that is started again (bench/backlog.py).
"""

from dataclasses import dataclass

from penstock.amqp.properties import PERSISTENT
from penstock.amqp.table import Table
from penstock.perf.figure import MESSAGES_PER_S, Figure
from penstock.perf.load import ConfirmedPublisher
from penstock.perf.measure import await_count, drain_all, measure
from penstock.perf.site import Reading, Site

WINDOWS = (1, 100, 1000)
BODIES = (("100b", 100), ("4k", 4096), ("64k", 65_536))  # both brokers store from 4096 bytes on apart from the index
DURABLE_QUEUES = 100
WINDOW = 1000
WARM_UP_S = 0.5  # nothing but the disk to get warm, and what it costs is space: there is no consumer
BACKLOG_MESSAGES_PER_S = 50_000  # for each second asked for, as in filldrain
LAZY: Table = {"x-queue-mode": "lazy"}  # RabbitMQ then keeps every body on disk only; it must be read back


@dataclass(frozen=True, slots=True)
class PersistentConfirms:
    """At most `window` messages unconfirmed."""

    window: int

    def __call__(self, site: Site) -> list[Figure]:
        return _confirmed(site, site.queues(1, durable=True), self.window)


def play_durable_queues(site: Site) -> list[Figure]:
    return _confirmed(site, site.queues(DURABLE_QUEUES, durable=True), WINDOW)


def play_backlog(site: Site) -> list[Figure]:
    (queue,) = site.queues(1, durable=True)
    start, end, publisher = _fill(site, queue)
    return [site.rate("", MESSAGES_PER_S, start, end, publisher.sent, publisher.sent)]


def play_drain_disk(site: Site) -> list[Figure]:
    (queue,) = site.queues(1, durable=True, arguments=LAZY)
    _, _, publisher = _fill(site, queue)
    start, end = drain_all(site, queue, publisher.sent, publisher.cycle)
    return [site.rate("", MESSAGES_PER_S, start, end, publisher.sent, publisher.sent)]


def _confirmed(site: Site, queues: list[str], window: int) -> list[Figure]:
    publisher = site.confirmed_publisher(queues, window, PERSISTENT)
    start, end, messages = measure(site, [publisher], [], lambda: publisher.confirmed, WARM_UP_S)
    publisher.stopping = True
    publisher.join()  # only then is it known how many were sent
    await_count(site, publisher, queues, publisher.sent)
    return [site.rate("", MESSAGES_PER_S, start, end, messages, messages)]


def _fill(site: Site, queue: str) -> tuple[Reading, Reading, ConfirmedPublisher]:
    """Clocks before the first message is sent and after the last is confirmed."""
    publisher = site.confirmed_publisher([queue], WINDOW, PERSISTENT)
    publisher.limit = max(1, int(BACKLOG_MESSAGES_PER_S * site.seconds) // publisher.cycle) * publisher.cycle
    start = site.read_clocks()
    site.start([publisher], [])
    publisher.join()
    end = site.read_clocks()
    await_count(site, publisher, [queue], publisher.limit)
    return start, end, publisher

"""Measure: clocks around a load, and the checks that make what was counted worth a figure.

Upstream: scenario.py and durable.py say what load.  Downstream: the workers of load.py, the clocks of site.py.
Not here: which load makes which figure (scenario.py, durable.py).
"""

import time
from collections.abc import Callable, Sequence

from penstock.perf.load import STALL_S, Consumer, LoadError, Publisher, Worker, await_all, check
from penstock.perf.site import POLL_S, Reading, Site

WARM_UP_S = 1.0
CHECK_S = 0.25  # how often a failed worker is looked for while a run lasts
FILL_STALL_S = 20


def measure(
    site: Site,
    publishers: Sequence[Publisher],
    consumers: Sequence[Consumer],
    count: Callable[[], int],
    warm_up_s: float = WARM_UP_S,
) -> tuple[Reading, Reading, int]:
    """Clocks before and after the time that counts, and how many messages came between.

    A short time on a busy machine may see none (consumers wake up for hundreds at once): it goes on until one came.
    """
    site.start(publishers, consumers)
    last(warm_up_s, [*publishers, *consumers])
    start, before = site.read_clocks(), count()
    last(site.seconds, [*publishers, *consumers])
    deadline = time.monotonic() + STALL_S
    while count() == before and time.monotonic() < deadline:
        last(POLL_S, [*publishers, *consumers])
    end, after = site.read_clocks(), count()
    return start, end, after - before


def last(seconds: float, workers: Sequence[Worker]) -> None:
    """Sleep, but not beyond the failure of a worker."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, CHECK_S))
        check(workers)


def await_count(site: Site, publisher: Publisher, queues: Sequence[str], messages: int) -> None:
    """Until the publisher has ended, and the broker itself counts all its messages in the queues."""
    publisher.join()
    check([publisher])
    seen, seen_at = -1, time.monotonic()
    while (count := sum(site.message_count(queue) for queue in queues)) != messages:
        if count != seen:
            seen, seen_at = count, time.monotonic()
        if count > messages or time.monotonic() > seen_at + FILL_STALL_S:
            counts = "the queue counts" if len(queues) == 1 else f"{len(queues)} queues count"
            raise LoadError(f"{counts} {count} messages, {messages} were published")
        time.sleep(POLL_S)


def drain_all(site: Site, queue: str, messages: int, cycle: int) -> tuple[Reading, Reading]:
    """Clocks before and after a consumer with acks has taken all that is in the queue."""
    consumer = site.consumer([])
    consumer.expected, consumer.cycle = messages, cycle
    start = site.read_clocks()
    site.consume(consumer, [queue])
    site.start([], [consumer])
    await_all([consumer])
    check([consumer])
    return start, site.read_clocks()

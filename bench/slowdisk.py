"""A publisher outruns a slow store: who is held, who is not, and does it end by itself? Run: make slowdisk

Penstock alone, its store slowed down by `faults.store_sync_delay_ms`. A publisher without confirms floods a durable
queue with persistent messages; meanwhile, on connections of their own, a bystander's messages go round one at a time
through another queue. Printed every half second: what was sent, the broker's memory, and the states of connections,
channels and queues as the HTTP API shows them; in the end, how long the bystander's messages took before, during and
after the flood, and how long it took until all that was sent was in the queue.
Not here: RabbitMQ on a slow disk (overload.py).
"""

import argparse
import base64
import json
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter

from brokers import Running, end_with_us, fail, running_penstock, slow_disk, tell
from overload import flooder, wait_until, working

from penstock.client.connection import ClientError
from penstock.client.uri import parse_uri
from penstock.config import SETTINGS
from penstock.perf.block import NotADelivery
from penstock.perf.figure import percentile
from penstock.perf.load import LoadError, check
from penstock.perf.memory import MemoryWatch, resident_bytes
from penstock.perf.rabbitmq import NotStarted
from penstock.perf.roundtrip import RoundTrip
from penstock.perf.site import Site

SECONDS = 5.0
SYNC_MS = 200
BODY_BYTES = 100
SHOW_S = 0.5
SETTING = "faults.store_sync_delay_ms"
SLOW_BYTES_PER_S = 1e12  # where that setting is not there yet, a slow disk sleeps at every sync alone
KINDS = ("connections", "channels", "queues")
MEGABYTE = 1e6


class Bystander(threading.Thread):
    """One message at a time, round and round; how long each took, by phase."""

    def __init__(self, site: Site, queue: str) -> None:
        super().__init__(daemon=True)
        self.trip = RoundTrip(site, queue)
        self.phase = "before"
        self.took_s: dict[str, list[float]] = {}
        self.stopping = False
        self.error = ""

    def run(self) -> None:
        try:
            while not self.stopping:
                phase = self.phase
                self.took_s.setdefault(phase, []).append(self.trip.go())
        except (LoadError, OSError) as error:
            self.error = str(error)

    def told(self, phase: str) -> str:
        took = sorted(self.took_s.get(phase, []))
        if not took:
            return f"bystander {phase} the flood: not one message"
        p50, p99 = (percentile(took, percent) * 1e3 for percent in (50, 99))
        return f"bystander {phase} the flood: {len(took):,} messages, p50 {p50:.2f} ms, p99 {p99:.2f} ms"


def states(broker: Running) -> str:
    """How many connections, channels and queues are in which state; empty where the API does not tell."""
    shown = []
    for kind in KINDS:
        found = Counter(str(one["state"]) for one in _listed(broker, kind) if "state" in one)
        if found:
            shown.append(f"{kind}: " + ", ".join(f"{count} {state}" for state, count in sorted(found.items())))
    return "; ".join(shown)


def _listed(broker: Running, kind: str) -> list[dict[str, object]]:
    request = urllib.request.Request(f"{broker.management.rstrip('/')}/api/{kind}")
    request.add_header("Authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            found = json.load(answer)
    except (urllib.error.URLError, ValueError):
        return []
    return found if isinstance(found, list) else []


def flood(site: Site, broker: Running, seconds: float) -> None:
    (slow,) = site.queues(1, durable=True)
    (quick,) = site.queues(1)
    bystander = Bystander(site, quick)
    publisher = flooder(site, slow)
    bystander.start()
    time.sleep(min(1.0, seconds))
    begun_s = time.perf_counter()
    bystander.phase = "during"
    with MemoryWatch(broker.pid) as watch, working(publisher):
        while time.perf_counter() < begun_s + seconds:
            time.sleep(min(SHOW_S, seconds))
            check([publisher])
            memory = resident_bytes(broker.pid) / MEGABYTE
            at_s = time.perf_counter() - begun_s
            print(f"{at_s:5.1f} s: sent {publisher.sent:,}, {memory:.0f} MB; {states(broker)}".rstrip("; "), flush=True)
        publisher.stopping = True
        publisher.join()
        check([publisher])
        ended_s = time.perf_counter()
        wait_until(lambda: site.message_count(slow) >= publisher.sent, f"not all {publisher.sent} are in the queue")
        took_s = time.perf_counter() - ended_s
    bystander.phase = "after"
    time.sleep(min(1.0, seconds))
    bystander.stopping = True
    bystander.join()
    if bystander.error:
        raise LoadError(f"the bystander was held up: {bystander.error}")
    bystander.trip.check(site.body_bytes)
    print(f"flood over: all {publisher.sent:,} in the queue after {took_s:.2f} s; {states(broker)}".rstrip("; "))
    print(f"memory: at most {watch.highest_bytes / MEGABYTE:.0f} MB")
    for phase in ("before", "during", "after"):
        print(bystander.told(phase))


def play(seconds: float, sync_ms: int) -> None:
    known = any(setting.name == SETTING for setting in SETTINGS)
    if not known:
        tell(f"this Penstock has no setting {SETTING}: a slow disk instead")
    with slow_disk(SLOW_BYTES_PER_S, sync_ms * 1e3) as disk:
        slow = None if known else disk
        settings = {SETTING: str(sync_ms)} if known else {}
        with running_penstock(settings, slow.variables if slow else {}) as broker:
            if slow:
                slow.begin()
            with Site(parse_uri(broker.uri), broker.pid, seconds, BODY_BYTES) as site:
                flood(site, broker, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench/slowdisk.py", description="A publisher outruns a slow store.")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the flood lasts")
    parser.add_argument("--sync-ms", type=int, default=SYNC_MS, help="how long a sync takes")
    options = parser.parse_args()
    if options.seconds <= 0 or options.sync_ms < 0:
        parser.error("--seconds must be above 0 and --sync-ms at least 0")
    end_with_us()
    try:
        play(options.seconds, options.sync_ms)
    except KeyboardInterrupt:
        fail("stopped", 130)
    except (LoadError, NotADelivery, ClientError, NotStarted) as error:
        fail(str(error), 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())

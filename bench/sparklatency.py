"""How long after its confirm a message's row is in the sink, while messages come one by one.

Messages are published at irregular intervals, each noted when its confirm came; the sink is foreachBatch, which notes
when it has the rows. It is one clock: Spark calls foreachBatch in this process. The first messages warm the
query up and do not count.
Not here: how many rows a second (sparkways.py).
"""

import random
import threading
import time
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from sparkways import DIGITS, Bed, body_of

from penstock.amqp.properties import PERSISTENT, Properties, encode_properties
from penstock.client.publisher import Publisher
from penstock.perf.figure import percentile

PAUSE_S = (0.02, 0.18)  # irregular: else publishes and batches could keep step
WARM_UP = 20
WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds."""

    messages: int
    p50: float
    p99: float
    batches: int


class Seen:
    """The sink: when the row of each number came."""

    def __init__(self) -> None:
        self.at_s: dict[int, float] = {}
        self.batches = 0
        self._changed = threading.Condition()

    def __call__(self, frame: DataFrame, batch: int) -> None:
        rows = frame.select(F.substring("body", 1, DIGITS).cast("string").alias("number")).collect()
        now_s = time.perf_counter()
        with self._changed:
            self.batches += 1
            for row in rows:
                self.at_s.setdefault(int(row.number), now_s)
            self._changed.notify_all()

    def wait_for(self, number: int) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: number in self.at_s, WAIT_S):
                raise TimeoutError(f"row {number} did not come within {WAIT_S:.0f} s")


def measure(bed: Bed, kind: str, messages: int) -> Latency:
    """`kind` is stream or queue."""
    name = f"bench.latency.{kind}"
    bed.declare(name, "stream" if kind == "stream" else "classic")
    own = {"startingOffsets": "earliest"} if kind == "stream" else {"spoolDir": str(bed.new_path("spool"))}
    frame = bed.spark.readStream.format("amqp").options(uri=bed.uri, **{kind: name}, **own).load()
    seen = Seen()
    query = frame.writeStream.foreachBatch(seen).option("checkpointLocation", str(bed.new_path("checkpoint"))).start()
    try:
        confirmed_s = _trickle(bed, name, messages + WARM_UP, seen)
        seen.wait_for(messages + WARM_UP - 1)
    finally:
        query.stop()
        bed.delete(name)
    took_ms = sorted(1000 * (seen.at_s[n] - confirmed_s[n]) for n in range(WARM_UP, messages + WARM_UP))
    return Latency(messages, percentile(took_ms, 50), percentile(took_ms, 99), seen.batches)


def _trickle(bed: Bed, name: str, messages: int, seen: Seen) -> list[float]:
    """When the confirm of each message came."""
    properties = encode_properties(Properties(delivery_mode=PERSISTENT))
    pauses = random.Random(7)
    confirmed_s: list[float] = []
    with bed.channel() as channel:
        publisher = Publisher(channel)
        for number in range(messages):
            publisher.publish("", name, properties, body_of(number))
            publisher.flush()
            confirmed_s.append(time.perf_counter())
            if number == 0:
                seen.wait_for(0)  # the query's start takes seconds
            time.sleep(pauses.uniform(*PAUSE_S))
    return confirmed_s

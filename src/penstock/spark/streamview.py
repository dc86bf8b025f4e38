"""Stream view: what the driver knows of a stream: its partitions, their first and next offsets, how large messages are.

Upstream: the driver side of streamreader.py and batchreader.py.  Downstream: one connection to the broker, kept.
Spark asks about every 12 ms while a query is idle, so an answer is good for a moment (FRESH_S). A connection that is
lost is made again inside; only the very first one of a new query is not waited for: then the address may be wrong.
Not here: what of it a batch may take (offsets.py), reading rows (rangereader.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from penstock.amqp.table import Timestamp
from penstock.client.connection import Channel, Connection
from penstock.client.error import ClientError
from penstock.client.stream import QUERY_CAPABILITY, partitions
from penstock.client.stream import Offsets as Ends
from penstock.client.stream import offsets as query_offsets
from penstock.spark.columns import NoOffset
from penstock.spark.fault import BrokerAway, broker_fault, missing_stream, not_a_stream
from penstock.spark.options import Options
from penstock.spark.patience import Patience, is_passing
from penstock.spark.reading import Reading

FRESH_S: Final = 0.02  # less than two polls of an idle query: a new message waits no longer than that
PROBED_FRESH_S: Final = 0.25  # where the end must be found by reading (RabbitMQ), asking costs much more
PARTITIONS_FRESH_S: Final = 60.0  # how long a partition that was added may go unseen
SAMPLE_ROWS: Final = 32
SAMPLE_BYTES: Final = 4 * 1024 * 1024

T = TypeVar("T")


class StreamView:
    """Of one stream, plain or partitioned. Close it when done."""

    def __init__(self, options: Options) -> None:
        assert options.stream is not None
        self._options = options
        self._stream = options.stream
        self._channel: Channel | None = None
        self.patient = False  # a broker that is not there is one that comes back; so it is after the first connection
        self._names: list[str] = []
        self._names_at = 0.0
        self._ends: dict[str, Ends] = {}
        self._ends_at = 0.0
        self._means: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<StreamView {self._stream} at {self._options.uri} partitions={len(self._names)}>"

    def names(self) -> list[str]:
        """The partitions' streams, in order: the stream itself, or its -0, -1, … up to the first that is missing."""
        now = time.monotonic()
        plain = self._names == [self._stream]
        if not self._names or (not plain and now - self._names_at > PARTITIONS_FRESH_S):
            self._names = self._call(lambda channel: _discover(self._options, self._stream))
            self._names_at = now
            if not self._names:
                raise missing_stream(self._stream, self._options.uri)
        return self._names

    def ends(self, fresh: bool = False) -> dict[str, Ends]:
        """First and next offset of every partition, not older than a moment; `fresh`: as of now."""
        names = self.names()
        now = time.monotonic()
        if fresh or now - self._ends_at > self._fresh_s() or names != list(self._ends):
            found = self._call(lambda channel: {name: query_offsets(channel, name) for name in names})
            self._ends = found if self.exact else {name: self._not_before(name, one) for name, one in found.items()}
            self._ends_at = time.monotonic()
        return self._ends

    @property
    def exact(self) -> bool:
        """Whether the broker says where a stream ends. Elsewhere it is found by reading, and may be found too early."""
        return self._channel is not None and self._channel.connection.has(QUERY_CAPABILITY)

    def _not_before(self, name: str, found: Ends) -> Ends:
        seen = self._ends.get(name, found)
        return found if found.next >= seen.next else seen

    def offset_at(self, name: str, timestamp_ms: int) -> int:
        """The first offset that is not older than this time, as exactly as the broker knows it; the end if none is."""
        # AMQP counts whole seconds. Rounded down: rather some messages too many than one too few.
        asked = Timestamp(timestamp_ms // 1000)
        return self._call(lambda channel: query_offsets(channel, name, asked).resolved)

    def mean_size(self, name: str, start: int, end: int) -> float:
        """Bytes of a message about there, from a sample at `start`; earlier samples count for half."""

        def sample(channel: Channel) -> float:
            reading = Reading(channel, name, start, min(end, start + SAMPLE_ROWS), self._options.prefetch)
            got = reading.gather(SAMPLE_ROWS, SAMPLE_BYTES)
            while not reading.done:
                reading.gather(SAMPLE_ROWS, SAMPLE_BYTES)
            reading.finish()
            return (got.bytes + sum(map(len, got.headers))) / len(got) if got else 1.0

        mean = self._call(sample)
        if name in self._means:
            mean = (mean + self._means[name]) / 2
        self._means[name] = mean
        return mean

    def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            try:
                channel.connection.close()
            except ClientError:
                pass  # it is gone already

    def _fresh_s(self) -> float:
        return FRESH_S if self.exact else PROBED_FRESH_S

    def _call(self, ask: Callable[[Channel], T]) -> T:
        """Ask the broker, over a new connection if the old one is lost. SourceError in the end."""
        patience = Patience(f"stream {self._stream}")
        while True:
            try:
                answer = ask(self._open())
                patience.over()
                return answer
            except NoOffset:
                raise not_a_stream(self._stream, self._options.uri) from None
            except ClientError as error:
                self._lose()
                fault = broker_fault(error, self._options.uri)
                if not is_passing(error):
                    raise fault from None
                if not self.patient:
                    raise BrokerAway(str(fault)) from None
                try:
                    patience.wait(error)
                except ClientError as last:
                    raise broker_fault(last, self._options.uri) from None
            except BaseException:
                self._lose()  # in the middle of something: nothing can be asked on it any more
                raise

    def _open(self) -> Channel:
        if self._channel is None:
            name = f"spark driver, {self._options.consumer_name or self._stream}"
            self._channel = Connection.connect(self._options.uri, name=name).open_channel()
            self.patient = True
        return self._channel

    def _lose(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            channel.connection.abort()


def _discover(options: Options, stream: str) -> list[str]:
    # A connection of its own: asking for what is not there closes a channel.
    with Connection.connect(options.uri) as connection:
        return partitions(connection, stream)

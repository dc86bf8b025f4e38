"""Reading: a consumer that reads one range of a stream, [start, end), and then is done.

Upstream: a channel of the client.  Downstream: rangereader.py, and the samples of streamview.py.
On Penstock the broker itself ends the consumer at the end of the range, so nothing is acked and nothing is sent in
vain: what is not read waits in TCP. On other brokers the range ends where we stop: deliveries are acked, which only
asks for more, and what came too much is dropped.
Not here: reconnecting, rows (columns.py).
"""

from __future__ import annotations

from typing import Final

from penstock.amqp.table import Table
from penstock.client.connection import Channel
from penstock.client.consumer import Consumer, Deliveries
from penstock.client.error import Closed
from penstock.client.stream import QUERY_CAPABILITY
from penstock.spark.columns import cut_offsets

PREFETCH: Final = 5_000  # for brokers that must be acked: about a megabyte of small messages under way
WAIT_S: Final = 30.0
WAITS_MAX: Final = 4  # a range is read only after the broker said that it is there; but one large body may take long


class Reading:
    """From its making to `finish`, nothing else may use the channel's connection."""

    __slots__ = ("_consumer", "_end", "_last", "_no_ack", "_ranged", "stream")

    def __init__(
        self, channel: Channel, stream: str, start: int, end: int, prefetch: int | None, tag: str = ""
    ) -> None:
        self.stream = stream
        self._end = end
        self._last = start - 1  # the last offset that came
        self._ranged = channel.connection.has(QUERY_CAPABILITY)
        arguments: Table = {"x-stream-offset": start}
        if self._ranged:
            arguments["x-stream-stop-offset"] = end
        # With prefetch given, Penstock too waits for acks: somebody wants less under way than TCP holds.
        self._no_ack = self._ranged and prefetch is None
        self._consumer = Consumer(
            channel,
            stream,
            prefetch=prefetch or (0 if self._ranged else PREFETCH),
            no_ack=self._no_ack,
            arguments=arguments,
            tag=tag,
        )

    @property
    def dense(self) -> bool:
        """Whether every offset is a message. RabbitMQ may use some for notes of its own."""
        return self._ranged

    @property
    def done(self) -> bool:
        """Nothing will come any more, or nothing that belongs to the range."""
        return self._consumer.ended or self._last >= self._end - 1

    def gather(self, rows: int, size: int) -> Deliveries:
        """About so many rows, or bytes of bodies: less only at the end of the range. Raises Closed if nothing comes."""
        got = self._read(rows, size)
        while not self.done and len(got) < rows and got.bytes < size:
            got.extend(self._read(rows - len(got), size - got.bytes))
        return got

    def finish(self) -> None:
        """Leave the channel as it was before, for the next range."""
        if self._ranged:
            # The broker's own cancel is on its way. One of ours would cross it, and its answer be nobody's.
            while not self._consumer.ended:
                self._read(1, 1)
            return
        left = self._consumer.cancel()
        if left and not self._no_ack:
            self._consumer.ack(left.tags[-1])

    def _read(self, rows: int, size: int) -> Deliveries:
        """What has come, at least one unless the consumer ended."""
        waits = 0
        while not (got := self._consumer.read(rows, WAIT_S, size)) and not self._consumer.ended:
            waits += 1
            if waits == WAITS_MAX:
                waited = f"{WAITS_MAX * WAIT_S:.0f} s"
                raise Closed(f"nothing came from stream {self.stream} at offset {self._last + 1} for {waited}")
        if got:
            # This raises for what is not a stream, before the ack that would remove its messages.
            self._last = cut_offsets(got.headers[-1:])[0][0]
            if not self._no_ack:
                self._consumer.ack(got.tags[-1])
        return got

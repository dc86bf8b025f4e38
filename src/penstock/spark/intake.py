"""Intake: the connection on which a query takes from its queue, and what of it the broker waits to see acked.

Upstream: the broker, which sends up to the prefetch ahead.  Downstream: queuereader.py, in the driver.
Back-pressure: nothing is read from the socket but for the batch that Spark asks for, and for one more while a full one
runs; nothing is acked before Spark has it. What Spark does not take stays in the broker.
A delivery waits for the row that must be committed before it may be acked. Acks go out for as long a run from the first
tag on as may be acked, so one frame does for thousands. When the connection is lost all tags are void: the broker
delivers again what was not acked, and the spool knows it again.
A new query fails at once if it cannot connect, and says why. Later the broker may be away for OUTAGE_S, with lines in
the log; what will not mend by itself (no such queue, no permission) ends the query at once.
Not here: what is new among the deliveries (sift.py).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from penstock.amqp.table import Table
from penstock.client.connection import Connection
from penstock.client.consumer import PREFETCH_MAX, Consumer, Deliveries
from penstock.client.error import ClientError, Closed
from penstock.client.uri import Uri
from penstock.spark.fault import SourceError, broker_fault
from penstock.spark.identity import SEQUENCE_CAPABILITY, SEQUENCE_HEADER
from penstock.spark.patience import OUTAGE_S, is_passing

CONNECT_TIMEOUT_S: Final = 10.0  # Spark's thread waits meanwhile
RETRY_S: Final = 0.2  # after the first failure; doubled each time
RETRY_MAX_S: Final = 5.0
CLOSE_S: Final = 3.0  # for a polite end; the broker gives back what is unacked without one too
# Reading goes on as long as there is plenty: a batch should be large if the queue is full, and early if it is not.
GATHER_S: Final = 1.0
GATHER_WAIT_S: Final = 0.002
GATHER_ROWS_MIN: Final = 50
# The same for a batch that nobody waits for yet: it may wait to be full. Once somebody does, it has had so long.
FILL_S: Final = 1.0
FILL_WAIT_S: Final = 0.05
_STREAM_OFFSET: Final = b"\x0fx-stream-offsetl"  # a header's key and type

log = logging.getLogger("penstock.spark")


class Intake:
    """One consumer on the queue, made when it is first needed, and again when its connection was lost."""

    __slots__ = (
        "_consumer",
        "_lost_at",
        "_patient",
        "_queue",
        "_retry_at",
        "_retry_s",
        "_runs",
        "_tag",
        "_uri",
        "connects",
        "hurry",
        "prefetch",
        "stamped",
    )

    def __init__(self, uri: Uri, queue: str, prefetch: int, tag: str = "", patient: bool = False) -> None:
        """`patient`: the query has run before, so that a broker which is not there is one that comes back."""
        self.prefetch = prefetch
        self.connects = 0
        self.hurry = False  # somebody waits for what is being taken; set from another thread
        self.stamped = False  # whether the broker stamps a sequence on each delivery
        self._uri = uri
        self._queue = queue
        self._tag = tag
        self._consumer: Consumer | None = None
        self._runs: deque[tuple[int, int]] = deque()  # last tag, row that must be committed; tags ascend
        self._patient = patient
        self._lost_at = 0.0  # when the outage began; 0 if there is none
        self._retry_at = 0.0
        self._retry_s = RETRY_S

    def __repr__(self) -> str:
        return f"<Intake {self._queue} connected={self.connected} connects={self.connects} runs={len(self._runs)}>"

    @property
    def connected(self) -> bool:
        return self._consumer is not None

    def take(self, rows: int, bytes_max: int, wait_s: float, fill: bool = False) -> Deliveries:
        """What has come, and what comes on its heels; nothing if nothing comes within `wait_s`, or without a broker.

        `fill`: there is time to wait until so many rows have come, unless there is a hurry."""
        got = Deliveries()
        for _ in range(2):  # a connection that turns out to be lost is made again at once
            consumer = self._consumer or self._connect(wait_s)
            if consumer is None:
                return got
            try:
                got = self._gather(consumer, rows, bytes_max, wait_s, fill)
                break
            except Closed as error:
                # What was read is left out too: without a connection it cannot be acked, and it comes again.
                self._lose(error)
        if got and got.headers[0].find(_STREAM_OFFSET) >= 0 and not got.redelivered[0]:
            raise SourceError(f"{self._queue} at {self._uri} is a stream: read it with the option stream, not queue")
        return got

    def _gather(self, consumer: Consumer, rows: int, bytes_max: int, wait_s: float, fill: bool) -> Deliveries:
        most_s, gap_s, least = (FILL_S, FILL_WAIT_S, 1) if fill else (GATHER_S, GATHER_WAIT_S, GATHER_ROWS_MIN)
        deadline = time.monotonic() + most_s
        got = consumer.read(rows, wait_s, bytes_max)
        gain = len(got)
        while gain >= least and len(got) < rows and got.bytes < bytes_max:
            if time.monotonic() >= deadline and (self.hurry or not fill):
                break
            more = consumer.read(rows - len(got), gap_s, bytes_max - got.bytes)
            gain = len(more)
            got.extend(more)
        if consumer.ended:
            raise Closed(f"{self._uri.address} cancelled the consumer: the queue {self._queue!r} is gone or moved")
        return got

    def expect(self, tags: Sequence[int], needs: Sequence[int]) -> None:
        """These deliveries may be acked when all rows below `needs` are committed. In order of tags."""
        if self._consumer is None:
            return
        runs = self._runs
        if needs and needs.count(needs[0]) == len(needs):  # as mostly: one ack does for all
            tags, needs = tags[-1:], needs[-1:]
        for tag, need in zip(tags, needs):
            if runs and runs[-1][1] == need:
                runs[-1] = (tag, need)
            else:
                runs.append((tag, need))

    def ack(self, row: int) -> None:
        """All rows below this one are committed."""
        last = 0
        while self._runs and self._runs[0][1] <= row:
            last = self._runs.popleft()[0]
        if last and self._consumer is not None:
            try:
                self._consumer.ack(last)
            except Closed as error:
                self._lose(error)

    def hang_up(self) -> None:
        """Close, and wait for the broker's word: by then it has heard all acks. What was not acked it gives back.

        A socket that is just closed while deliveries wait in it may take the last acks with it."""
        consumer, self._consumer = self._consumer, None
        self._runs.clear()
        if consumer is None:
            return
        connection = consumer.channel.connection
        connection.socket.settimeout(CLOSE_S)
        try:
            connection.close()
        except Closed as error:
            log.info("queue %s: %s", self._queue, error)

    def _connect(self, wait_s: float) -> Consumer | None:
        left = self._retry_at - time.monotonic()
        if left > 0:
            time.sleep(min(left, wait_s))
            if left > wait_s:
                return None
        try:
            consumer = self._consume()
        except ClientError as error:
            if not is_passing(error) or not (self.connects or self._patient):
                raise broker_fault(error, self._uri) from None
            self._later(error)
            return None
        if self._lost_at:
            log.warning("queue %s: the broker is back after %.1f s", self._queue, time.monotonic() - self._lost_at)
        self.connects += 1
        self._lost_at = 0.0
        self._retry_s = RETRY_S
        self._consumer = consumer
        return consumer

    def _consume(self) -> Consumer:
        connection = Connection.connect(self._uri, CONNECT_TIMEOUT_S, name=f"spark queue {self._queue}")
        try:
            self.stamped = connection.has(SEQUENCE_CAPABILITY)
            arguments: Table = {SEQUENCE_HEADER: True} if self.stamped else {}
            prefetch = self._allowed_prefetch()
            return Consumer(connection.open_channel(), self._queue, prefetch, arguments=arguments, tag=self._tag)
        except BaseException:
            connection.abort()
            raise

    def _allowed_prefetch(self) -> int:
        """A prefetch has 16 bits on the wire. Above that, Penstock sends without one, as fast as we read: TCP holds it
        back. Other brokers need not be so careful with their memory: there the largest must do."""
        if self.prefetch <= PREFETCH_MAX:
            return self.prefetch
        return 0 if self.stamped else PREFETCH_MAX

    def _lose(self, error: ClientError) -> None:
        assert self._consumer is not None
        self._consumer.channel.connection.abort()
        self._consumer = None
        self._runs.clear()
        self._lost_at = time.monotonic()
        self._retry_at = 0.0
        log.warning("queue %s: %s; connecting again", self._queue, error)

    def _later(self, error: ClientError) -> None:
        now = time.monotonic()
        if not self._lost_at:
            self._lost_at = now
        elif now - self._lost_at > OUTAGE_S:
            raise broker_fault(error, self._uri)
        log.warning("queue %s: %s; next try in %.1f s", self._queue, error, self._retry_s)
        self._retry_at = now + self._retry_s
        self._retry_s = min(self._retry_s * 2, RETRY_MAX_S)

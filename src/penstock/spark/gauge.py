"""Gauge: how many messages wait in a queue, asked on a connection of its own.

Used by queuereader.py and browse.py: how much AvailableNow is to take, and the lag that a query's progress shows.
The connection that consumes cannot be asked: its answers stand behind its deliveries.
Not here: taking (intake.py).
"""

from __future__ import annotations

import time
from typing import Final

from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from penstock.client.connection import Connection
from penstock.client.error import ClientError
from penstock.client.uri import Uri
from penstock.spark.fault import broker_fault, log
from penstock.spark.patience import Patience, is_passing

CONNECT_TIMEOUT_S: Final = 10.0
FRESH_S: Final = 1.0  # so long an answer is good enough to be shown: Spark asks many times a second


class Gauge:
    """A passive declare now and then. Made and closed as often as needed; the broker need not be there."""

    __slots__ = ("_connection", "_queue", "_read_at", "_ready", "_uri")

    def __init__(self, uri: Uri, queue: str) -> None:
        self._uri = uri
        self._queue = queue
        self._connection: Connection | None = None
        self._read_at = 0.0
        self._ready: int | None = None

    def __repr__(self) -> str:
        return f"<Gauge {self._queue} ready={self._ready}>"

    def count_ready(self, patient: bool = False) -> int:
        """Messages in the queue, those that some consumer holds left out; SourceError if the broker does not say.

        `patient`: a broker that is not there is one that comes back, and is waited for."""
        patience = Patience(f"queue {self._queue}")
        kept = self._connection is not None  # it may have been idle, and the broker or something between has cut it
        while True:
            try:
                ready = self._ask()
                patience.over()
                return ready
            except ClientError as error:
                if not is_passing(error) or not (patient or kept):
                    raise broker_fault(error, self._uri) from None
                kept = False
                try:
                    patience.wait(error)
                except ClientError as last:
                    raise broker_fault(last, self._uri) from None

    def recent(self) -> int | None:
        """The same, not older than FRESH_S; None if there was no answer."""
        now = time.monotonic()
        if now - self._read_at >= FRESH_S:
            self._read_at = now
            try:
                self._ready = self._ask()
            except ClientError as error:
                log.info("queue %s: %s", self._queue, error)
                self._ready = None
        return self._ready

    def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    def _ask(self) -> int:
        try:
            if self._connection is None:
                name = f"spark gauge of {self._queue}"
                self._connection = Connection.connect(self._uri, CONNECT_TIMEOUT_S, name=name)
            # A channel each time: a queue that is gone closes it.
            channel = self._connection.open_channel()
            count = channel.call(QueueDeclare(self._queue, passive=True), QueueDeclareOk).message_count
            channel.close()
        except ClientError:
            self.close()
            raise
        return count

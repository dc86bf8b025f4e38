"""Producer: publishes the numbers 0, 1, 2 … for as long as a test lasts, each taken exactly once.

It waits for its confirms burst by burst. What was not confirmed when a broker died is sent again, in order, with the
same publishing ids: so what a queue has twice, or lacks, is the fault of what comes behind it.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from penstock.amqp.properties import PERSISTENT, PRODUCER, PUBLISHING_ID, Properties, encode_properties
from penstock.amqp.table import Table
from penstock.client.connection import Connection
from penstock.client.error import ClientError, Closed, Unreachable
from penstock.client.publisher import Publisher
from penstock.client.uri import parse_uri

BURST: Final = 1000  # messages sent before their confirms are waited for
PAUSE_S: Final = 0.01  # between bursts, where there is a rate
RETRY_S: Final = 0.05  # while there is no broker
_ANY_ID: Final = 0x0123456789ABCDEF
_BEHIND_ID: Final = 9  # bytes: the id itself, and the delivery mode


class Producer(threading.Thread):
    """To an exchange; the routing key is `key`, or the number itself."""

    def __init__(
        self,
        uri: str,
        name: str,
        exchange: str = "",
        key: str | None = None,
        rate: float | None = None,
        burst: int = BURST,
        size: int = 100,
    ) -> None:
        """`rate` is messages a second, while there is a broker; None: as many as it takes."""
        super().__init__(name=f"producer {name}", daemon=True)
        self.count = 0  # numbers that were sent
        self.confirmed = 0  # all below this number are confirmed
        self.resent = 0
        self.error: Exception | None = None
        self.blocked: list[str] = []  # the reasons that the broker gave
        self._uri = parse_uri(uri)
        self._exchange = exchange
        self._key = key
        self._rate = rate
        self._burst = burst
        self._size = size
        self._halt = threading.Event()
        self._abandoned = False
        headers: Table = {PRODUCER: name, PUBLISHING_ID: _ANY_ID}
        encoded = encode_properties(Properties(delivery_mode=PERSISTENT, headers=headers))
        assert encoded[-_BEHIND_ID:-1] == _ANY_ID.to_bytes(8, "big")
        self._head, self._tail = encoded[:-_BEHIND_ID], encoded[-1:]

    def finish(self) -> int:
        """No more; how many were sent. On return all of them are confirmed."""
        self._halt.set()
        self.join(120)
        self.check()
        assert not self.is_alive(), f"{self.count - self.confirmed} messages are not confirmed"
        return self.count

    def abandon(self) -> None:
        """No more, whatever is confirmed: the test is over."""
        self._abandoned = True
        self._halt.set()

    def check(self) -> None:
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        try:
            again: list[int] = []
            while not self._halt.is_set() or (again and not self._abandoned):
                again = self._life(again)
        except Exception as error:
            self.error = error

    def _life(self, again: list[int]) -> list[int]:
        """Publish over one connection, until it is lost or all is over; the numbers that are not confirmed."""
        try:
            connection = Connection.connect(self._uri, name=self.name, notices=True)
        except (Closed, Unreachable):
            time.sleep(RETRY_S)
            return again
        first = self.count
        publisher = None
        try:
            publisher = Publisher(connection.open_channel(), self._burst, self._tell)
            self.resent += len(again)
            for number in again:
                self._send(publisher, number)
            publisher.flush()
            self._publish(publisher)
            connection.close()
        except ClientError as error:
            connection.abort()
            if not isinstance(error, Closed) or error.code not in (0, 320):
                raise
            if publisher is None:
                return again
            # A number's place on this connection is its tag.
            tags = publisher.unconfirmed()
            sent = publisher.published
            left = [again[tag - 1] if tag <= len(again) else first + tag - len(again) - 1 for tag in tags]
            return left + again[sent:]
        return []

    def _publish(self, publisher: Publisher) -> None:
        began, first = time.monotonic(), self.count
        while not self._halt.is_set():
            self.confirmed = self.count
            due = self._burst
            if self._rate is not None:
                due = int((time.monotonic() - began) * self._rate) - (self.count - first)
            for _ in range(min(due, self._burst)):
                number = self.count
                self.count += 1
                self._send(publisher, number)
            publisher.flush()
            if self._rate is not None and due < self._burst:
                self._halt.wait(PAUSE_S)
        self.confirmed = self.count

    def _send(self, publisher: Publisher, number: int) -> None:
        properties = self._head + number.to_bytes(8, "big") + self._tail
        key = self._key if self._key is not None else str(number)
        publisher.publish(self._exchange, key, properties, (b"%d" % number).ljust(self._size))

    def _tell(self, reason: str) -> None:
        if reason:
            self.blocked.append(reason)

"""Outlet: where a task's messages leave: published in order, and again if a connection broke before their confirm.

Upstream: sink.py, with messages from encoder.py.  Downstream: client/publisher.py, over a connection that the Python
worker keeps for its next task: a login costs tens of milliseconds, as long as a small batch.
A connection that breaks, or a broker that restarts, is waited for; then exactly the messages that were not confirmed
are sent again, in their order and with the ids they had. Without progress this ends, with an error: Spark tries again.
What the broker says about a message (no such exchange, no permission, refused, returned) is an error at once.
Blocked: publish waits, for as long as the broker blocks; a line in the log says so, and again while it goes on.
Not here: ids (encoder.py), confirms and the window (client/publisher.py).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from functools import partial
from itertools import islice
from typing import Final

from penstock.client.connection import Connection
from penstock.client.error import ClientError, Closed, Refused
from penstock.client.publisher import Publisher
from penstock.client.uri import Uri
from penstock.spark.encoder import Outgoing
from penstock.spark.patience import OUTAGE_S, Patience, is_passing

FIRST_OUTAGE_S: Final = 5.0  # of a broker that nobody saw yet: a wrong address should not take long to show
LOSSES_MAX: Final = 5  # connections lost in a row without one confirm in between
ROWS_SHOWN: Final = 3
KEPT_MAX: Final = 4  # connections that wait for a next task: a worker may serve several queries, to several brokers
CONNECTION_NAME: Final = "spark sink"  # in the broker's list; tasks of any query may share it

log: Final = logging.getLogger("penstock.spark")
# Publishers with nothing unconfirmed, for the next task of this process. A task takes its own out.
_kept: Final[dict[tuple[Uri, int], Publisher]] = {}


class NotPublished(Exception):
    """Rows did not get to the broker, or it did not take them; the text is one line that says which and why."""


class Outlet:
    """The publishing of one task. Nothing connects before the first message."""

    __slots__ = ("_again", "_losses", "_mandatory", "_name", "_patience_s", "_publisher", "_sent", "_uri", "_window")

    def __init__(self, uri: Uri, window: int, mandatory: bool = False, name: str = "", known: bool = False) -> None:
        self._uri = uri
        self._window = window
        self._mandatory = mandatory
        self._name = name  # who publishes, for errors
        # `known`: others have published there, so the address is right, and a broker that is away comes back.
        self._patience_s = OUTAGE_S if known else FIRST_OUTAGE_S
        self._publisher: Publisher | None = None
        # By the publisher's number, in order: what may not be confirmed. Never much more than two windows, even if one
        # message waits for its confirm while thousands of others are confirmed.
        self._sent: dict[int, Outgoing] = {}
        self._again: deque[Outgoing] = deque()  # to be sent again, before anything else
        self._losses = 0  # since the last confirm

    def __repr__(self) -> str:
        return f"<Outlet {self._name} to {self._uri} sent={len(self._sent)} again={len(self._again)}>"

    def publish(self, messages: Iterable[Outgoing]) -> None:
        """Publish these, one at least. Not all of them need be confirmed when it returns."""
        coming = iter(messages)
        while True:
            try:
                publisher = self._open()
                self._send_again(publisher)
                while self._send(publisher, islice(coming, self._window)):
                    self._forget_confirmed(publisher)
                return
            except Closed as error:
                self._recover(error)
            except Refused as error:
                raise self._refused(error) from None

    def flush(self) -> None:
        """Wait until all is confirmed; then the connection is kept for the next task."""
        while self._publisher is not None or self._again:
            try:
                publisher = self._open()
                self._send_again(publisher)
                publisher.flush()
            except Closed as error:
                self._recover(error)
            except Refused as error:
                raise self._refused(error) from None
            else:
                self._keep(publisher)

    def drop(self) -> None:
        """Cut the connection: after an error nobody knows what is still on its way."""
        publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.channel.connection.abort()

    def _open(self) -> Publisher:
        if self._publisher is None:
            self._publisher = _kept.pop((self._uri, self._window), None) or self._connect(self._patience_s)
        return self._publisher

    def _send(self, publisher: Publisher, messages: Iterable[Outgoing]) -> bool:
        """Publish these; False if there were none."""
        sent, publish, mandatory = self._sent, publisher.publish, self._mandatory
        before = number = publisher.published
        for message in messages:
            number += 1
            sent[number] = message  # first: if publish fails, it is one of those to send again
            row, exchange, key, properties, body = message
            try:
                publish(exchange, key, properties, body, mandatory)
            except ValueError as error:
                raise NotPublished(f"{self._name}: row {row} of the partition: {error}") from None
        return number > before

    def _send_again(self, publisher: Publisher) -> None:
        while self._again:
            self._send(publisher, (self._again.popleft(),))

    def _forget_confirmed(self, publisher: Publisher) -> None:
        due = publisher.unconfirmed()
        if len(due) < len(self._sent):
            self._sent = {number: self._sent[number] for number in due}
            self._losses = 0

    def _recover(self, error: Closed) -> None:
        """After a lost connection: a new one, and what was not confirmed is to be sent again."""
        publisher = self._publisher
        self.drop()
        if not is_passing(error):
            raise NotPublished(f"{self._name}: {error}") from None
        if publisher is not None:
            due, last = set(publisher.unconfirmed()), publisher.published
            again = [message for number, message in self._sent.items() if number in due or number > last]
            if len(again) < len(self._sent):  # some were confirmed
                self._losses = 0
            self._again.extendleft(reversed(again))
            self._sent = {}
        self._losses += 1
        if self._losses > LOSSES_MAX:
            raise NotPublished(f"{self._name}: {LOSSES_MAX} connections lost, nothing confirmed: {error}") from None
        log.warning("%s: %s; connecting again, %d rows are not confirmed", self._name, error, len(self._again))
        self._publisher = self._connect(OUTAGE_S, was_there=True)

    def _connect(self, patience_s: float, was_there: bool = False) -> Publisher:
        """A new connection and its publisher; a broker that is away is waited for."""
        patience = Patience(self._name, patience_s)
        while True:
            try:
                publisher = self._log_in()
            except ClientError as error:
                # A broker that is just starting may refuse what it allowed this task before; otherwise it means it.
                if not was_there and not is_passing(error):
                    raise NotPublished(f"{self._name}: {error}") from None
                try:
                    patience.wait(error)
                except ClientError:
                    raise NotPublished(f"{self._name}: {error}") from None
            else:
                patience.over()
                return publisher

    def _log_in(self) -> Publisher:
        connection = Connection.connect(self._uri, name=CONNECTION_NAME, notices=True)
        try:
            return Publisher(connection.open_channel(), self._window, partial(tell_blocked, self._uri.address))
        except BaseException:
            connection.abort()
            raise

    def _keep(self, publisher: Publisher) -> None:
        self._sent.clear()
        self._publisher = None
        other = _kept.setdefault((self._uri, self._window), publisher)
        if other is not publisher:
            publisher.channel.connection.abort()
        while len(_kept) > KEPT_MAX:
            _kept.pop(next(iter(_kept))).channel.connection.abort()

    def _refused(self, error: Refused) -> NotPublished:
        rows = [self._sent[number][0] for number in error.numbers if number in self._sent]
        self.drop()
        shown = ", ".join(map(str, rows[:ROWS_SHOWN]))
        if len(rows) > ROWS_SHOWN:
            shown += f" and {len(rows) - ROWS_SHOWN} more"
        named = f"row{'s' * (len(rows) > 1)} {shown} of the partition: " if rows else ""
        return NotPublished(f"{self._name}: {named}{error}")


def tell_blocked(address: str, reason: str) -> None:
    """The publisher calls it when the broker blocks, again while it does, and without a reason when it is over."""
    if reason:
        log.warning("%s blocks publishers (%s); the amqp sink waits", address, reason)
    else:
        log.warning("%s takes messages again", address)


def close_kept() -> None:
    """Close the connections that are kept for the next task: for tests, and whoever uses the sink without Spark."""
    while _kept:
        _, publisher = _kept.popitem()
        publisher.channel.connection.abort()

"""Blocked: what a client is told while its publishes are held back, and how long that may last.

Place: beside the reader of one connection, which says when it is blocked; net/connection.py puts them together.

- By alarms: `connection.blocked` with the reasons at once, `connection.unblocked` when the last of them is gone, to
  clients that announced the capability `connection.blocked`; once per episode, whatever alarms come and go meanwhile.
  After `alarms.blocked_deadline_s` the connection is closed with 320, and what it had parked is dropped.
- By credit: nothing, as in RabbitMQ. A client with the capability `penstock.flow` is told by the same two methods once
  its socket has been paused for FLOW_NOTICE_S: credit comes and goes many times a second, and that must not.

Not here: parking, and when the socket pauses (reader.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.amqp.close import CONNECTION_FORCED, CloseConnection
from penstock.amqp.method import ConnectionBlocked, ConnectionUnblocked, Method
from penstock.broker.alarms import Alarms
from penstock.net.reader import Reader
from penstock.runtime import Clock, Timer

ALARMS_CAPABILITY: Final = "connection.blocked"
FLOW_CAPABILITY: Final = "penstock.flow"
FLOW_NOTICE_S: Final = 1.0
REASON_BYTES_MAX: Final = 255  # a short string


class Blocked:
    __slots__ = (
        "_alarms",
        "_blocked_ns",
        "_clock",
        "_deadline",
        "_fail",
        "_flow",
        "_reader",
        "_send",
        "_told",
        "_wants_alarms",
        "_wants_flow",
    )

    def __init__(
        self,
        clock: Clock,
        alarms: Alarms,
        reader: Reader,
        send: Callable[[Method], None],
        fail: Callable[[CloseConnection], None],
        has: Callable[[str], bool],
    ) -> None:
        self._clock = clock
        self._alarms = alarms
        self._reader = reader
        self._send = send
        self._fail = fail
        self._wants_alarms = has(ALARMS_CAPABILITY)
        self._wants_flow = has(FLOW_CAPABILITY)
        self._told = False
        self._blocked_ns = -1  # when alarms began to block it; negative: they do not
        self._deadline: Timer | None = None
        self._flow: Timer | None = None

    def look(self) -> None:
        """The reader's state may have changed."""
        by_alarms = self._reader.alarm_blocked
        if by_alarms:
            if self._blocked_ns < 0:
                self._blocked_ns = self._clock.now_ns()
            if self._wants_alarms:
                self._tell(self._alarms.text())
        else:
            self._blocked_ns = -1
        self._set_deadline()
        by_credit = self._wants_flow and self._reader.is_full
        if not by_credit:
            self._cancel_flow()
        elif self._flow is None and not self._told:
            self._flow = self._clock.call_later(FLOW_NOTICE_S, self._paused_long)
        if self._told and not by_alarms and not by_credit:
            self._told = False
            self._send(ConnectionUnblocked())

    def stop(self) -> None:
        """The connection ends: nothing more is said."""
        self._told = False
        self._blocked_ns = -1
        self._set_deadline()
        self._cancel_flow()

    def _tell(self, reason: str) -> None:
        if not self._told:
            self._told = True
            self._send(ConnectionBlocked(_short(reason)))

    # Credit.

    def _paused_long(self) -> None:
        self._flow = None
        waits_for = ", ".join(str(reason) for reason in self._reader.blocked_by)
        self._tell(f"flow: waiting for {waits_for}" if waits_for else "flow")

    def _cancel_flow(self) -> None:
        if self._flow is not None:
            self._flow.cancel()
            self._flow = None

    # The deadline; it may change while it runs.

    def _set_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        allowed_s = self._alarms.thresholds.blocked_deadline_s
        if self._blocked_ns >= 0 and allowed_s:
            waited_s = (self._clock.now_ns() - self._blocked_ns) / 1e9
            self._deadline = self._clock.call_later(max(0.0, allowed_s - waited_s), self._expired)

    def _expired(self) -> None:
        self._deadline = None
        allowed_s = self._alarms.thresholds.blocked_deadline_s
        text = f"publishing was blocked for {allowed_s:g} s (alarms.blocked_deadline_s): {self._alarms.text()}"
        self._reader.drop_parked()
        self._fail(CloseConnection(CONNECTION_FORCED, text))


def _short(text: str) -> str:
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= REASON_BYTES_MAX:
        return encoded.decode("utf-8")
    return encoded[: REASON_BYTES_MAX - 3].decode("utf-8", "ignore") + "..."

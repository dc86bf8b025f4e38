"""Roundtrip: one message at a time, from publish to delivery to ack, and how long it took.

Publisher and consumer are two connections of one thread: what is measured is the broker and the kernel, not two threads
that wake each other.
Not here: percentiles (figure.py), how often (scenario.py).
"""

import struct
import time

from penstock.amqp.frame import END, METHOD
from penstock.amqp.method import BasicAck
from penstock.perf.block import ACK, ACK_PAYLOAD_BYTES, CHANNEL, check_delivery, delivery_bytes
from penstock.perf.load import STALL_S, LoadError, set_timeouts
from penstock.perf.site import Site

DELIVERY_EXTRA_BYTES = 1024  # a delivery names a consumer and a tag that its publish did not
TAG_OFFSET = 11  # of the delivery tag in an ack frame
ROUND_TRIP_BATCH = 1


class RoundTrip:
    """`go` sends one message and takes it back. Deliveries are of one size, known from the first."""

    __slots__ = ("_ack", "_buffer", "_message", "_receive", "_send", "_size", "_tag")

    def __init__(self, site: Site, queue: str) -> None:
        publishing = site.channel()
        consuming = site.consumer([queue], batch=ROUND_TRIP_BATCH).channel
        self._message = site.message(publishing, "", queue)
        self._send = publishing.connection.socket
        self._receive = consuming.connection.socket
        for sock in (self._send, self._receive):
            set_timeouts(sock, STALL_S)
        self._buffer = memoryview(bytearray(len(self._message) + DELIVERY_EXTRA_BYTES))
        self._ack = bytearray(ACK.pack(METHOD, CHANNEL, ACK_PAYLOAD_BYTES, BasicAck.ID, 0, 0, END))
        self._size = 0
        self._tag = 0

    def go(self) -> float:
        """Seconds from the send of the message to its last byte back; the ack follows and is not waited for."""
        self._tag += 1
        begun = time.perf_counter()
        self._send.sendall(self._message)
        got = self._take()
        taken = time.perf_counter() - begun
        if got != self._size:
            raise LoadError(f"message {self._tag} is a delivery of {got} bytes, {self._size} were due")
        struct.pack_into(">Q", self._ack, TAG_OFFSET, self._tag)
        self._receive.sendall(self._ack)
        return taken

    def check(self, body_bytes: int) -> None:
        """Look at the last delivery: NotADelivery if messages were lost or doubled on the way to it."""
        check_delivery(bytes(self._buffer[: self._size]), self._tag, body_bytes)

    def _take(self) -> int:
        got = 0
        while not self._size or got < self._size:
            try:
                more = self._receive.recv_into(self._buffer[got:])
            except BlockingIOError:
                raise LoadError(f"message {self._tag} did not arrive within {STALL_S} s") from None
            if not more:
                raise LoadError("the broker closed the connection")
            got += more
            if not self._size:
                self._size = delivery_bytes(bytes(self._buffer[:got]))
        return got

"""Confirm: which publishes the broker has confirmed, from the bytes of its acks. No I/O.

Brokers confirm one by one or many at once, and not always in order; a count of ack frames would lie.
Not here: when to send more (load.py).
"""

import struct

from penstock.amqp.frame import END, METHOD
from penstock.amqp.method import BasicAck, BasicNack, decode_method

ACK = struct.Struct(">BHIIQBB")
ACK_BYTES = ACK.size
NACK_PREFIX = BasicNack.ID.to_bytes(4, "big")


class NotConfirmed(Exception):
    """The broker refused a message, or said something else where a confirm was due."""


class Confirms:
    """`confirmed` publishes have been confirmed, counted from 1; all up to `up_to` without a gap."""

    __slots__ = ("_rest", "_singles", "up_to")

    def __init__(self) -> None:
        self.up_to = 0
        self._singles: set[int] = set()  # confirmed beyond a gap
        self._rest = b""

    def __repr__(self) -> str:
        return f"<Confirms up_to={self.up_to} beyond={len(self._singles)}>"

    @property
    def confirmed(self) -> int:
        return self.up_to + len(self._singles)

    def feed(self, data: bytes) -> None:
        """Take what the socket gave, however it is cut."""
        if self._rest:
            data = self._rest + data
        whole = len(data) - len(data) % ACK_BYTES
        self._rest = data[whole:]
        up_to = self.up_to
        singles = self._singles
        for kind, _, _, method_id, tag, multiple, end in ACK.iter_unpack(data[:whole] if self._rest else data):
            if method_id != BasicAck.ID or kind != METHOD or end != END:
                raise NotConfirmed(_unexpected(data))
            if tag == up_to + 1 or (multiple and tag > up_to):
                up_to = tag
            elif tag > up_to and tag not in singles:
                singles.add(tag)
            else:
                raise NotConfirmed(f"the broker confirmed message {tag} twice")
        if singles:
            up_to = self._close_gaps(up_to)
        self.up_to = up_to

    def _close_gaps(self, up_to: int) -> int:
        while up_to + 1 in self._singles:
            up_to += 1
        self._singles = {tag for tag in self._singles if tag > up_to}
        return up_to


def _unexpected(data: bytes) -> str:
    if NACK_PREFIX in data:
        return "the broker refused messages (basic.nack)"
    size = int.from_bytes(data[3:7], "big")
    return f"the broker sent {decode_method(data[7 : 7 + size])} where a confirm was due"

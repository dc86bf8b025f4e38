"""Two channels of one connection, as one client uses them: one that publishes more than the broker takes, and an
innocent one beside it.

One thread sends for both in turn, a block each, as far as their windows allow; another reads the confirms. What the
client sends goes through one socket: whatever the broker does with the one channel, the other's bytes come behind.
Not here: what is measured with it (overload.py).
"""

import threading

from penstock.amqp.frame import HEAD
from penstock.client.connection import Channel
from penstock.perf.block import Block
from penstock.perf.confirm import ACK_BYTES, Confirms, NotConfirmed
from penstock.perf.load import LoadError, Worker, set_timeouts

TIMEOUT_S = 60.0  # the broker may take nothing for seconds: that is what is measured
WAIT_S = 0.05
RECV_BYTES = 65_536


class Neighbour:
    """One channel's share: a block that is sent again and again while no more than `window` messages are unconfirmed.

    A window of None is a publisher without confirms and without end.
    """

    __slots__ = ("block", "channel", "confirms", "sent", "window")

    def __init__(self, channel: Channel, block: Block, window: int | None) -> None:
        self.channel = channel
        self.block = block
        self.window = window
        self.sent = 0
        self.confirms = Confirms()

    def __repr__(self) -> str:
        return f"<Neighbour channel={self.channel.number} sent={self.sent} confirmed={self.confirms.confirmed}>"

    def may_send(self) -> bool:
        if self.window is None:
            return True
        return self.sent + self.block.messages - self.confirms.confirmed <= self.window


class Neighbours(Worker):
    """A thread that sends for all channels of one connection in turn."""

    def __init__(self, members: list[Neighbour]) -> None:
        super().__init__(members[0].channel)
        self.members = members
        self._confirmed = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def work(self) -> None:
        set_timeouts(self.socket, TIMEOUT_S)
        self._reader.start()
        while not self.stopping and not self.error:
            self._confirmed.clear()
            ready = [member for member in self.members if member.may_send()]
            for member in ready:
                self.socket.sendall(member.block.wire)
                member.sent += member.block.messages
            if not ready:
                self._confirmed.wait(WAIT_S)

    def _read(self) -> None:
        rest = b""
        while not self.stopping:
            try:
                data = self.socket.recv(RECV_BYTES)
                if not data:
                    raise LoadError("the broker closed the connection")
                data = rest + data
                whole = len(data) - len(data) % ACK_BYTES
                self._share(data[:whole])
                rest = data[whole:]
            except BlockingIOError:
                continue  # nothing to confirm: a publisher without confirms
            except (OSError, LoadError, NotConfirmed) as error:
                if not self.stopping:
                    self.error = str(error)
                return
            self._confirmed.set()

    def _share(self, acks: bytes) -> None:
        """Give each channel its own."""
        shares: dict[int, bytearray] = {member.channel.number: bytearray() for member in self.members}
        for start in range(0, len(acks), ACK_BYTES):
            _, number, _ = HEAD.unpack_from(acks, start)
            if number not in shares:
                raise LoadError(f"the broker sent a frame on channel {number} where a confirm was due")
            shares[number] += acks[start : start + ACK_BYTES]
        for member in self.members:
            if found := shares[member.channel.number]:
                member.confirms.feed(bytes(found))

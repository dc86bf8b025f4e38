"""Reader: socket bytes to items, items to channels. The first stage.

Upstream: the socket.  Downstream: broker/channel.py.
Blocked: when one of its channels is out of credit; then that channel's publishes are parked, in order, and all else is
served. And by alarms, from the connection's first publish on: then all its publishes are parked. Only when more than
`parked_bytes_max` is parked does the socket pause. It pauses too for a client that asks faster than its channel can
answer.

What may overtake a channel's parked publishes is decided by one table, `ORDER`: the consumer's side of a channel and
declarations overtake, methods that mean "after what I published" push the parked publishes out first (they are few,
and bounded by the parking space; under an alarm also by `Alarms.admit`, and beyond that they wait in line), tx waits
in line, as it is publishing too.

Not here: the handshake and methods on channel 0 (handshake.py), what a method does (broker/), what a blocked client is
told (blocked.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.amqp.close import CHANNEL_ERROR, NOT_ALLOWED, CloseConnection
from penstock.amqp.decoder import Acks, Command, Item, Nack, Oversize, Publishes, within
from penstock.amqp.method import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ExchangeDelete,
    ExchangeUnbind,
    Method,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxRollback,
    TxSelect,
    encode_method,
)
from penstock.broker.broker import Broker
from penstock.broker.channel import Channel
from penstock.broker.notices import Shutdown
from penstock.broker.peer import Peer
from penstock.credit import Link, Stage
from penstock.runtime import Mailbox

OVERTAKE: Final = 0
PUSH: Final = 1
WAIT: Final = 2
ORDER: Final[dict[type[Method], int]] = {
    ChannelClose: PUSH,
    ConfirmSelect: PUSH,
    QueuePurge: PUSH,
    QueueDelete: PUSH,
    QueueUnbind: PUSH,
    ExchangeDelete: PUSH,
    ExchangeUnbind: PUSH,
    TxSelect: WAIT,
    TxCommit: WAIT,
    TxRollback: WAIT,
}


PARKED_METHOD_BYTES: Final = 256  # about what a method costs in memory while it waits in line
# Acks and methods spend no credit, so a client could pile them up in a channel faster than it works them off.
WAITING_MAX: Final = 4096  # items in a channel's mailbox; then the socket pauses until half of them are done


Parked = Publishes | Command | Oversize | Shutdown


class Lane:
    """One channel as its reader sees it: the link to it, and what is parked for it."""

    __slots__ = ("channel", "closing", "gone", "link", "parked")

    def __init__(self, channel: Channel, link: Link) -> None:
        self.channel = channel
        self.link = link
        self.parked: deque[Parked] = deque()
        self.gone = 0  # items that were parked and are no more: so the first one parked has this number
        self.closing = False


class Reader(Stage):
    __slots__ = (
        "_alarms",
        "_broker",
        "_changed",
        "_channel_max",
        "_flooded",
        "_parked_bytes_max",
        "_peer",
        "alarm_blocked",
        "alarmed",
        "is_full",
        "lanes",
        "mailbox",
        "parked_bytes",
    )

    def __init__(
        self, broker: Broker, peer: Peer, channel_max: int, parked_bytes_max: int, changed: Callable[[], None]
    ) -> None:
        """`changed` is called when it becomes full or is so no more, and about alarms if they block it."""
        super().__init__(f"connection {peer.name}", broker.scheduler.clock.now_ns, broker.activity, "connection")
        self._broker = broker
        self._peer = peer
        self._channel_max = channel_max
        self._parked_bytes_max = parked_bytes_max
        self._changed = changed
        self._alarms = broker.alarms
        self._alarms.listeners[self] = None
        self.mailbox: Mailbox[None] = Mailbox(broker.scheduler, self)
        self.lanes: dict[int, Lane] = {}
        self._flooded: dict[int, Lane] = {}  # more than WAITING_MAX items wait for their channels
        self.parked_bytes = 0
        self.is_full = False
        self.alarmed = bool(self._alarms)  # an alarm is on: the next publish blocks
        self.alarm_blocked = False  # and there was one

    # Items from the decoder.

    def receive(self, item: Item) -> None:
        """One decoded item of a channel."""
        lane = self.lanes.get(item.channel)
        if lane is None:
            self._open(item)
        elif lane.closing and not lane.channel.is_closing():
            self._receive_after_close(item)
        elif type(item) is Publishes:
            if lane.parked or lane.link.blocking or self.alarmed or not self._send_whole(lane, item):
                self._park(lane, item)
        elif lane.parked and isinstance(item, (Command, Oversize)):
            self._receive_behind(lane, item)
        else:
            self._pass(lane, item)

    def _open(self, item: Item) -> None:
        if not isinstance(item, Command) or not isinstance(item.method, ChannelOpen):
            raise CloseConnection(CHANNEL_ERROR, "expected 'channel.open'", *_ids(item))
        if len(self.lanes) >= self._channel_max:
            raise CloseConnection(
                NOT_ALLOWED,
                f"number of channels opened ({len(self.lanes)}) has reached the negotiated channel_max "
                f"({self._channel_max})",
            )
        self._broker.peers.check_channel(self._peer.user)
        channel = Channel(self._broker, self._peer, item.channel)
        link = Link(self._broker.reader_channel, self, channel)
        channel.reader_link = link
        self.lanes[item.channel] = Lane(channel, link)
        self._peer.outbox.send(encode_method(ChannelOpenOk(), item.channel))

    def _receive_behind(self, lane: Lane, item: Command | Oversize) -> None:
        """Something else for a channel whose publishes are parked."""
        order = ORDER.get(type(item.method), OVERTAKE) if isinstance(item, Command) else PUSH
        if order == OVERTAKE:
            self._pass(lane, item)
        elif order == PUSH and self._alarms.admit(_lane_bytes(lane)):
            self._push(lane)
            self._pass(lane, item)
        else:
            lane.closing = isinstance(item, Command) and type(item.method) is ChannelClose
            lane.parked.append(item)
            self.parked_bytes += PARKED_METHOD_BYTES
            self._weigh()

    def _pass(self, lane: Lane, item: Item) -> None:
        if type(item) is Command:
            if type(item.method) is ChannelCloseOk and lane.channel.is_closing():
                lane.channel.close_ok()  # now, not in its turn: the next frame may open the number again
                return
            lane.closing = type(item.method) is ChannelClose
        if lane.parked and isinstance(item, (Command, Acks, Nack)):
            item.behind = lane.gone + len(lane.parked)
        mailbox = lane.channel.mailbox
        mailbox.cast(item)
        if len(mailbox.ordinary) > WAITING_MAX and lane.channel.relieve is None:
            lane.channel.relieve = self.mailbox
            self._flooded[item.channel] = lane
            self._weigh()

    def _receive_after_close(self, item: Item) -> None:
        """The client has closed the channel and did not wait for the answer: the rest is ignored, as in RabbitMQ."""
        if isinstance(item, Command):
            if isinstance(item.method, ChannelOpen):
                raise CloseConnection(CHANNEL_ERROR, "second 'channel.open' seen", *_ids(item))
            if isinstance(item.method, ChannelClose):
                self._peer.outbox.send(encode_method(ChannelCloseOk(), item.channel))

    # Publishes: sent as far as credit goes, the rest parked.

    def _send_whole(self, lane: Lane, item: Publishes) -> bool:
        link = lane.link
        count = len(item.messages)
        if count > link.room() or item.bytes > link.room_bytes():
            return False
        link.spend(count, item.bytes)
        lane.channel.mailbox.cast(item)
        return True

    def _park(self, lane: Lane, item: Publishes) -> None:
        lane.parked.append(item)
        self.parked_bytes += item.bytes
        if self.alarmed:
            if not self.alarm_blocked:
                self._block_by_alarms()
        elif not lane.link.blocking:
            self._release(lane)
        self._weigh()

    def _release(self, lane: Lane) -> None:
        """Send parked publishes for as long as there is credit."""
        link = lane.link
        while lane.parked and not link.blocking and not self.alarmed:
            item = lane.parked[0]
            if not isinstance(item, Publishes):
                lane.parked.popleft()
                lane.gone += 1
                self.parked_bytes -= PARKED_METHOD_BYTES
                lane.channel.mailbox.cast(item)
                continue
            head = _split(item, link.room(), link.room_bytes())
            if head is item:
                lane.parked.popleft()
                lane.gone += 1
            self.parked_bytes -= head.bytes
            link.spend(len(head.messages), head.bytes)
            lane.channel.mailbox.cast(head)

    def _push(self, lane: Lane) -> None:
        """Send all that is parked for a channel, credit or not, alarm or not."""
        for item in lane.parked:
            self.parked_bytes -= _parked_bytes(item)
            if isinstance(item, Publishes):
                lane.link.spend(len(item.messages), item.bytes)
            lane.channel.mailbox.cast(item)
        lane.gone += len(lane.parked)
        lane.parked.clear()
        self._weigh()

    def unpark(self, number: int, behind: int) -> list[Publishes]:
        """The publishes that a method overtook, taken out of what is parked and paid for."""
        lane = self.lanes.get(number)
        items: list[Publishes] = []
        if lane is None or not self._alarms.admit(_lane_bytes(lane)):
            return items
        while lane.parked and lane.gone < behind:
            item = lane.parked.popleft()
            lane.gone += 1
            self.parked_bytes -= _parked_bytes(item)
            if isinstance(item, Publishes):
                lane.link.spend(len(item.messages), item.bytes)
                items.append(item)
        self._weigh()
        return items

    def _weigh(self) -> None:
        """Full above a limit, and then until half of it is free: the socket follows."""
        limit = self._parked_bytes_max // 2 if self.is_full else self._parked_bytes_max
        full = self.parked_bytes > limit or bool(self._flooded)
        if full != self.is_full:
            self.is_full = not self.is_full
            self._changed()

    # Alarms.

    def alarms_changed(self) -> None:
        """One began, ended or has another reason. Who has published nothing since it began is not blocked by it."""
        self.alarmed = bool(self._alarms)
        if self.alarm_blocked or any(lane.parked for lane in self.lanes.values()):
            self._block_by_alarms()

    def _block_by_alarms(self) -> None:
        """Blocked by exactly the alarms that are on; free of them if there are none."""
        self.alarm_blocked = self.alarmed
        names = [f"{source} alarm" for source in self._alarms.reasons()]
        for name in names:
            self.block(name)
        for reason in list(self.blocked_by):
            if isinstance(reason, str) and reason not in names:
                self.unblock(reason)
        self._changed()

    def flow_state(self) -> str:
        """As people see it."""
        if self.alarmed:
            return "blocked" if self.alarm_blocked else "blocking"
        return "flow" if self.in_flow() else "running"

    # The stage.

    def unblock(self, reason: Link | str) -> None:
        super().unblock(reason)
        self.mailbox.wake()

    def take(self, item: None) -> int:
        return 1

    def take_urgent(self, item: None) -> None:
        return

    def finish(self, budget: int) -> int:
        for lane in self.lanes.values():
            if lane.parked:
                self._release(lane)
        self._flooded = {number: lane for number, lane in self._flooded.items() if lane.channel.relieve is not None}
        self._weigh()
        return 0

    # The end.

    def shut_down(self, politely: bool = False) -> None:
        """The connection ends: channels finish what was read from the socket before, then go.

        What alarms do not let through waits for their end if the client asked politely; else it is dropped, as what is
        still in a socket that breaks."""
        for lane in list(self.lanes.values()):
            if self._alarms.admit(_lane_bytes(lane)):
                self._push(lane)
            elif politely:
                lane.parked.append(Shutdown())
                self.parked_bytes += PARKED_METHOD_BYTES
                continue
            else:
                self._drop(lane)
            lane.channel.mailbox.cast(Shutdown())

    def drop_parked(self) -> None:
        """The client is told that nobody will take these."""
        for lane in self.lanes.values():
            self._drop(lane)

    def _drop(self, lane: Lane) -> None:
        self.parked_bytes -= _lane_bytes(lane)
        lane.gone += len(lane.parked)
        lane.parked.clear()
        self._weigh()

    def close(self) -> None:
        """Socket and channels are gone."""
        self._alarms.listeners.pop(self, None)
        self.down()
        self.mailbox.close()

    def forget(self, number: int) -> None:
        """The channel has terminated."""
        lane = self.lanes.pop(number, None)
        self._flooded.pop(number, None)
        if lane is not None:
            self.parked_bytes -= _lane_bytes(lane)
            self._weigh()

    def __repr__(self) -> str:
        blocked_by = "{" + ", ".join(map(str, self.blocked_by)) + "}"
        return (
            f"<Reader {self.name} channels={len(self.lanes)} parked_bytes={self.parked_bytes} blocked_by={blocked_by}>"
        )


def _split(item: Publishes, room: int, room_bytes: int) -> Publishes:
    """As much of the item as there is room for, at least one message; the item keeps the rest."""
    count = within(item.messages, item.bytes, room, room_bytes)
    return item if count >= len(item.messages) else item.cut(count)


def _parked_bytes(item: Parked) -> int:
    return item.bytes if isinstance(item, Publishes) else PARKED_METHOD_BYTES


def _lane_bytes(lane: Lane) -> int:
    return sum(map(_parked_bytes, lane.parked))


def _ids(item: Item) -> tuple[int, int]:
    if isinstance(item, Command):
        return item.method.ID >> 16, item.method.ID & 0xFFFF
    if isinstance(item, Acks):
        return 60, 80
    return 60, item.method_id if isinstance(item, Nack) else 40

"""Script: the little language of the cases. A case is a function of a Script; what the broker says is its transcript.

`s.channel()` is channel 1 of connection `c`, opened when first asked for; `s.channel(2)`, `s.channel(1, "d")` are
others. `ask` sends a method and waits for its reply; `send` only sends. Everything that arrives is recorded where it
belongs, whoever waits. A server's close is recorded and answered, and ends what it closes: a script that goes on there
has come to its end, and its transcript so far is compared.

Waiting is for a reply, a number of deliveries, all confirms, or a count; never for a time. `barrier(queue)` makes sure
that what the queue sent before is recorded: two round trips, because a delivery may be on its way to the channel while
the queue answers it. A passive declare overtakes publishes in RabbitMQ's queues, so counts are polled (`until_count`);
`basic.get` does not overtake.
Not here: what a line looks like and what is normalised (transcript.py), who plays (player.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock.amqp.content import build_basic
from penstock.amqp.method import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicReturn,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConnectionClose,
    ConnectionCloseOk,
    ExchangeBind,
    ExchangeDeclare,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    encode_method,
)
from tests.differential.admin import Admin
from tests.differential.transcript import Names, Transcript, read_reply_to, show_content, show_method
from tests.differential.typed import method_bytes, properties_bytes
from tests.wire.raw import Gone, RawClient
from tests.wire.waiting import LIMIT_S

TIMEOUT_S: Final = LIMIT_S  # for a reply or a condition; what takes longer does not come
POLL_S: Final = 0.01
PROBE: Final = 60_000  # a channel number no case uses
UNASKED: Final = (BasicDeliver, BasicReturn, BasicAck, BasicNack, BasicCancel)  # come without a request
WITH_CONTENT: Final = (BasicDeliver, BasicReturn, BasicGetOk)
NOTHING: Final = "(nothing came)"
GONE: Final = "gone"
FAILURES: Final = (NOTHING, "never: ", "failed: ")  # how lines begin that a recording must not have
SETTLE_ROUNDS: Final = 3  # the first may overtake what a busy queue has still to do


@dataclass(frozen=True, slots=True)
class Target:
    """A broker to play to."""

    name: str
    port: int
    admin: Admin


class Stop(Exception):
    """The case is over: the broker closed what the script needs next, or stays silent."""


@dataclass(slots=True)
class Nothing(Method):
    """Where a method was waited for and none came."""

    NAME = "nothing"


@dataclass(slots=True)
class Event:
    channel: int
    method: Method
    line: str


class Script:
    def __init__(self, target: Target) -> None:
        self.target = target
        self.transcript: Transcript = {}
        self.names = Names()
        self.connections: dict[str, Connection] = {}
        self.queues: list[str] = []  # what the janitor must delete
        self.exchanges: list[str] = []

    @property
    def admin(self) -> Admin:
        return self.target.admin

    def record(self, stream: str, line: str) -> None:
        self.transcript.setdefault(stream, []).append(self.names.normalise(line))

    def bare(self, name: str = "c") -> Connection:
        """A connection before its handshake; everything is recorded."""
        connection = Connection(self, name)
        self.connections[name] = connection
        return connection

    def connect(self, name: str = "c", **handshake: object) -> Connection:
        """A connection that is open; its handshake is not recorded unless it fails."""
        connection = self.bare(name)
        connection.greet(**handshake)
        return connection

    def channel(self, number: int = 1, on: str = "c") -> Channel:
        connection = self.connections.get(on) or self.connect(on)
        return connection.channels.get(number) or connection.open_channel(number)

    def poll(self, what: str, condition: Callable[[], bool]) -> None:
        """Until the condition holds; a line in any case."""
        deadline = time.monotonic() + TIMEOUT_S
        while not condition():
            if time.monotonic() > deadline:
                self.record("script", f"never: {what}")
                raise Stop
            time.sleep(POLL_S)
        self.record("script", what)

    def until_missing(self, queue: str, on: str = "c") -> None:
        """Until there is no such queue."""
        self.poll(f"queue {queue} is gone", lambda: self.connections[on].probe(queue) is None)

    def until_count(self, queue: str, count: int, on: str = "c") -> None:
        """Until the queue has so many ready messages."""

        def holds() -> bool:
            answer = self.connections[on].probe(queue)
            return answer is not None and answer.message_count == count

        self.poll(f"queue {queue} has {count}", holds)

    def until_consumers(self, queue: str, count: int, on: str = "c") -> None:
        def holds() -> bool:
            answer = self.connections[on].probe(queue)
            return answer is not None and answer.consumer_count == count

        self.poll(f"queue {queue} has {count} consumers", holds)

    def settle(self) -> None:
        """All that is still under way arrives and is recorded."""
        for connection in self.connections.values():
            if connection.ended or not connection.opened:
                continue
            for _ in range(SETTLE_ROUNDS):
                for queue in self.queues:
                    connection.probe(queue)
                for channel in list(connection.channels.values()):
                    if not channel.ended:
                        channel.barrier()


class Connection(RawClient):
    """One connection of a case."""

    def __init__(self, script: Script, name: str) -> None:
        super().__init__(script.target.port)
        self.socket.settimeout(TIMEOUT_S)
        self.script = script
        self.name = name
        self.channels: dict[int, Channel] = {}
        self.opened = False
        self.ended = False
        self.answer_closes = True
        self.reply_to = ""  # of the last content that had one

    def greet(self, **handshake: object) -> None:
        self.handshake(**handshake)  # type: ignore[arg-type]  # RawClient's own defaults and types
        self.opened = True
        self.socket.settimeout(TIMEOUT_S)

    def open_channel(self, number: int) -> Channel:
        channel = Channel(self, number)
        self.channels[number] = channel
        self.send_bytes(encode_method(ChannelOpen(), number))
        event = channel.await_reply(record=False)
        if not isinstance(event.method, ChannelOpenOk):
            self.record(event)
        return channel

    def tell(self, method: Method, channel: int = 0) -> None:
        """Send a method on any channel, open or not."""
        if self.ended:
            raise Stop
        try:
            self.send_bytes(method_bytes(method, channel))
        except (BrokenPipeError, ConnectionResetError):
            pass  # what it said before is read next

    def record(self, event: Event) -> None:
        self.script.record(f"{self.name}.{event.channel}", event.line)

    def event(self, waiting_on: int = 0, record: bool = True) -> Event:
        """The next thing the broker says. Silence, or an end of the socket, is an event too."""
        if self.ended:
            raise Stop
        try:
            channel, method = self.read_method()
            line = show_method(method)
            if isinstance(method, WITH_CONTENT):
                content = self.read_content(channel)
                self.reply_to = read_reply_to(content.header) or self.reply_to
                line = f"{line} {show_content(content.header, content.body, content.body_frames)}"
        except Gone:
            self.ended = True
            event = Event(0, Nothing(), GONE)
            self.record(event)
            return event
        except TimeoutError:
            self.record(Event(waiting_on, Nothing(), NOTHING))
            raise Stop from None
        event = Event(channel, method, line)
        unasked = channel != waiting_on or isinstance(method, UNASKED)
        if not self._settles(event) and (record or unasked):
            self.record(event)
        self._react(event)
        return event

    def _settles(self, event: Event) -> bool:
        """True for a confirm, which is told by `confirmed`."""
        channel = self.channels.get(event.channel)
        return channel is not None and channel.take_confirm(event.method)

    def _react(self, event: Event) -> None:
        """A server's close is answered and ends what it closes."""
        if isinstance(event.method, ChannelClose):
            if event.channel in self.channels:
                self.channels[event.channel].ended = True
            if self.answer_closes:
                self.tell(ChannelCloseOk(), event.channel)
        elif isinstance(event.method, ChannelCloseOk) and event.channel in self.channels:
            self.channels[event.channel].ended = True
        elif isinstance(event.method, ConnectionClose) and self.answer_closes:
            self.tell(ConnectionCloseOk(), 0)
            self.until_gone()

    def until_gone(self) -> None:
        while not self.ended:
            self.event()

    def probe(self, queue: str) -> QueueDeclareOk | None:
        """A passive declare on a channel of its own, not recorded; None if it is refused."""
        if PROBE not in self.channels or self.channels[PROBE].ended:
            self.open_channel(PROBE)
        channel = self.channels[PROBE]
        self.tell(QueueDeclare(queue, passive=True), PROBE)
        answer = channel.await_reply(record=False).method
        return answer if isinstance(answer, QueueDeclareOk) else None

    def bye(self) -> None:
        """The polite end. What still comes is not recorded."""
        if self.opened and not self.ended:
            try:
                self.close()
            except (Gone, OSError, AssertionError):
                pass  # the case has said what it had to say; how its connection ends is no part of it
        self.close_socket()


@dataclass(slots=True)
class Channel:
    """One channel of a case."""

    connection: Connection
    number: int
    ended: bool = False
    confirming: bool = False
    confirm_frames: bool = False  # record confirms as they come
    published: int = 0
    settled: dict[int, str] = field(default_factory=dict)
    delivered: int = 0

    @property
    def script(self) -> Script:
        return self.connection.script

    # Sending.

    def send(self, method: Method) -> None:
        if self.ended:
            raise Stop
        if isinstance(method, QueueDeclare) and method.nowait and method.queue:
            self.script.queues.append(method.queue)
        elif isinstance(method, ExchangeDeclare) and not method.passive:
            self.script.exchanges.append(method.exchange)
        elif isinstance(method, ConfirmSelect):
            self.confirming = True
        self.connection.tell(method, self.number)

    def ask(self, method: Method) -> Method:
        """Send, and wait for the reply or a close."""
        self.send(method)
        answer = self.await_reply().method
        if isinstance(answer, QueueDeclareOk):  # the name may be another than asked for
            self.script.queues.append(answer.queue)
        return answer

    def await_reply(self, record: bool = True) -> Event:
        """The next answer on this channel, or the connection's end. Only the answer itself may stay unrecorded."""
        while True:
            event = self.connection.event(self.number, record)
            if self.connection.ended or isinstance(event.method, ConnectionClose):
                return event
            if event.channel == self.number and not isinstance(event.method, UNASKED):
                return event

    def publish(
        self,
        key: str,
        body: bytes = b"",
        exchange: str = "",
        mandatory: bool = False,
        immediate: bool = False,
        **properties: object,
    ) -> None:
        if self.ended or self.connection.ended:
            raise Stop
        self.published += self.confirming
        head = encode_method(BasicPublish(exchange, key, mandatory, immediate), self.number)
        content = build_basic(self.number, properties_bytes(properties), body, self.connection.frame_max)
        self.connection.send_bytes(head + content)

    # Short forms.

    def declare(self, queue: str, **arguments: object) -> Method:
        """A queue with these arguments; `x_max_length=5` is x-max-length."""
        return self.ask(QueueDeclare(queue, arguments=dashed(arguments)))

    def exchange(self, exchange: str, kind: str = "direct", **arguments: object) -> Method:
        return self.ask(ExchangeDeclare(exchange, kind, arguments=dashed(arguments)))

    def bind(self, queue: str, exchange: str, key: str = "", **arguments: object) -> Method:
        return self.ask(QueueBind(queue, exchange, key, arguments=dashed(arguments)))

    def bind_exchange(self, destination: str, source: str, key: str = "", **arguments: object) -> Method:
        return self.ask(ExchangeBind(destination, source, key, arguments=dashed(arguments)))

    def consume(self, queue: str, tag: str = "t", no_ack: bool = False, **arguments: object) -> Method:
        return self.ask(BasicConsume(queue, tag, no_ack=no_ack, arguments=dashed(arguments)))

    def get(self, queue: str, no_ack: bool = True) -> Method:
        return self.ask(BasicGet(queue, no_ack))

    def count(self, queue: str) -> Method:
        """Ready messages and consumers, by a passive declare."""
        return self.ask(QueueDeclare(queue, passive=True))

    def fill(self, queue: str, *bodies: bytes, **properties: object) -> None:
        """Publish these, and wait until the queue has them all."""
        before = self.connection.probe(queue)
        for body in bodies:
            self.publish(queue, body, **properties)  # type: ignore[arg-type]  # the rest are properties
        self.script.until_count(queue, (before.message_count if before else 0) + len(bodies), self.connection.name)

    def drain(self, queue: str) -> None:
        """Get until it is empty."""
        while isinstance(self.get(queue), BasicGetOk):
            pass

    def get_when_there(self, queue: str) -> Method:
        """Get, as soon as there is something."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            self.send(BasicGet(queue, True))
            event = self.await_reply(record=False)
            if event.method.NAME != "basic.get-empty":
                self.connection.record(event)
                return event.method
            if time.monotonic() > deadline:
                self.script.record("script", f"never: a message in {queue}")
                raise Stop
            time.sleep(POLL_S)

    # Waiting.

    def deliveries(self, count: int) -> None:
        """Until so many more have come on this channel than the last wait asked for."""
        target = self.delivered + count
        while self._lines(BasicDeliver.NAME) < target:
            event = self.connection.event(self.number)
            if self.connection.ended or (event.channel == self.number and isinstance(event.method, ChannelClose)):
                raise Stop
        self.delivered = target

    def _lines(self, name: str) -> int:
        lines = self.script.transcript.get(f"{self.connection.name}.{self.number}", [])
        return sum(line.startswith(f"{name} ") for line in lines)

    def returns(self, count: int = 1) -> None:
        """Until so many returns have come on this channel in all."""
        while self._lines(BasicReturn.NAME) < count:
            self.connection.event(self.number)
            if self.connection.ended or self.ended:
                raise Stop

    def until(self, kind: type[Method]) -> None:
        """Until the broker has said this on this channel, now or before."""
        while not self._lines(kind.NAME):
            self.connection.event(self.number)
            if self.connection.ended or self.ended:
                raise Stop

    def confirmed(self) -> None:
        """Until every publish is confirmed; one line that says how."""
        while len(self.settled) < self.published:
            self.connection.event(self.number)
            if self.connection.ended or self.ended:
                raise Stop
        if not self.confirm_frames:
            words = [f"{number} {self.settled[number]}" for number in sorted(self.settled)]
            self.script.record(f"{self.connection.name}.{self.number}", f"confirms: {', '.join(words)}")

    def take_confirm(self, method: Method) -> bool:
        """Note a confirm; False if the method is something else, or shall be recorded."""
        if not isinstance(method, BasicAck | BasicNack):
            return False
        word = "ack" if isinstance(method, BasicAck) else f"nack requeue={method.requeue}"
        open_numbers = [number for number in range(1, self.published + 1) if number not in self.settled]
        tag = method.delivery_tag
        covered = [number for number in open_numbers if number <= tag] if method.multiple else [tag]
        for number in covered:
            twice = number in self.settled
            self.settled[number] = f"{self.settled[number]} and {word}" if twice else word
        return not self.confirm_frames

    def barrier(self, *queues: str) -> None:
        """All that these queues, and the channel itself, have sent before is recorded now."""
        if self.ended or self.connection.ended:
            raise Stop
        for queue in queues:
            self.connection.tell(QueueDeclare(queue, passive=True), self.number)
            self._unrecorded_reply()
        self.connection.tell(ExchangeDeclare("amq.direct", passive=True), self.number)
        self._unrecorded_reply()

    def _unrecorded_reply(self) -> None:
        event = self.await_reply(record=False)
        if isinstance(event.method, ChannelClose):
            self.connection.record(event)
            raise Stop


def dashed(arguments: dict[str, object]) -> dict:
    return {
        name.replace("_", "-") if name.startswith(("x_", "alternate_")) else name: value
        for name, value in arguments.items()
    }

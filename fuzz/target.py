"""Target: what an input is fed to, and what must hold while and after it is.

    decoder    the stream decoder alone: only close codes come out, and the same values however the stream is split
    handshake  a whole connection from its first byte
    session    a whole connection that has logged in already

A connection runs on a House: a real broker, a clock turned by hand, a transport that keeps what is written. Another
client is there too, and must be served afterwards as if nothing had happened.
A Finding is raised as soon as something does not hold. Not here: which inputs (mutation.py, engine.py).
"""

from __future__ import annotations

import io
import random
import resource
import signal
import zlib
from types import FrameType
from typing import Final, NoReturn

from fuzz.coverage import NO_COVERAGE, Coverage
from fuzz.mutation import cut
from fuzz.sessions import CHANNEL_MAX, FRAME_MAX, LOGIN
from penstock.amqp import content
from penstock.amqp.bounds import Bounds
from penstock.amqp.close import REPLY_NAMES
from penstock.amqp.decoder import Acks, Decoder, Item, Nack, Oversize, Publishes
from penstock.amqp.frame import PROTOCOL_HEADER, encode_frame
from penstock.amqp.method import ConnectionClose, ConnectionOpenOk, QueueDeclare, QueueDeclareOk
from penstock.net.connection import Connection
from penstock.net.handshake import SECURING
from penstock.net.limits import Limits
from penstock.net.log import Log
from penstock.net.login import Logins
from tests.unit.fakes import FakePeer, FakeTransport, House, Said, read_said

DECODER: Final = "decoder"
HANDSHAKE: Final = "handshake"
SESSION: Final = "session"
TARGETS: Final = (DECODER, HANDSHAKE, SESSION)

HANG_S: Final = 5.0  # an input takes milliseconds; traced and on a busy machine some tens of them
GROWTH_BYTES_MAX: Final = 128 << 20  # of the process, by one input of at most 24 KB
BODY_MAX: Final = 1 << 20
STRANGER_BYTES_OUT_MAX: Final = 4096  # what is written to a client that has not logged in, besides one answer per frame
BOUNDS: Final = Bounds(table_depth=16, table_bytes=8192, table_entries=512, name_bytes=64, unfinished_bytes=10_000)
LIMITS: Final = Limits(
    frame_max=FRAME_MAX,
    channel_max=CHANNEL_MAX,
    heartbeat_s=60,
    message_bytes_max=BODY_MAX,
    parked_bytes_max=4096,
    handshake_timeout_s=10,
    connections_max=10,
    bounds=BOUNDS,
)


class Finding(Exception):
    """What did not hold. `kind` and the text are the same for inputs that show the same fault."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Hang(BaseException):
    """Raised by the alarm; no Exception, or the broker's own nets would catch it."""


def run(target: str, data: bytes, coverage: Coverage = NO_COVERAGE) -> None:
    """Feed one input to a target: frame by frame and watched, then whole, then in pieces. Raises Finding."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    old = signal.signal(signal.SIGALRM, _ring)
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        if target == DECODER:
            _run_decoder(data, coverage)
        else:
            _run_connection(target, data, coverage)
    except Finding:
        raise
    except Hang:
        raise Finding("hang", f"not done after {HANG_S} s") from None
    except AssertionError as error:
        raise Finding("assertion", _where(error)) from error
    except Exception as error:
        raise Finding("crash", _where(error)) from error
    finally:
        coverage.stop()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if grown > GROWTH_BYTES_MAX:
        raise Finding("growth", f"the process grew by more than {GROWTH_BYTES_MAX >> 20} MiB")


def _ring(number: int, frame: FrameType | None) -> NoReturn:
    raise Hang


def _where(error: BaseException) -> str:
    trace = error.__traceback__
    place = ""
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{code.co_filename.rpartition('/')[2]}:{trace.tb_lineno} {code.co_name}"
        trace = trace.tb_next
    return f"{type(error).__name__} at {place}: {error}"


def by_frames(data: bytes) -> list[bytes]:
    """Frame by frame, as from a client that waits for each answer: acks then mean deliveries that were made."""
    head, frames, tail = cut(data)
    return [head, *(encode_frame(*frame) for frame in frames), tail]


def pieces(data: bytes) -> list[bytes]:
    """The same split whenever the same input is run: byte by byte if it is short, or else at random places."""
    chance = random.Random(zlib.crc32(data))
    if len(data) < 200:
        return [data[at : at + 1] for at in range(len(data))]
    cuts = sorted(chance.randrange(len(data)) for _ in range(chance.choice((1, 3, 20))))
    return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)])]


# The decoder.


def _run_decoder(data: bytes, coverage: Coverage) -> None:
    coverage.start()
    whole = _decoded([data])
    coverage.stop()
    for split in (by_frames(data), pieces(data)):
        values = _decoded(split)
        if whole != values:
            raise Finding("split", f"whole: {_first_difference(whole, values)}")


def _first_difference(one: list[tuple[object, ...]], other: list[tuple[object, ...]]) -> str:
    for at, (left, right) in enumerate(zip(one, other)):
        if left != right:
            return f"value {at} is {left!r:.200}, split: {right!r:.200}"
    return f"{len(one)} values, split: {len(other)}"


def _decoded(stream: list[bytes]) -> list[tuple[object, ...]]:
    decoder = Decoder(BODY_MAX, BOUNDS)
    decoder.frame_max = FRAME_MAX
    values: list[tuple[object, ...]] = []
    fed = 0
    for piece in stream:
        for item in decoder.feed(piece):
            values += _values(item)
        fed += len(piece)
        kept = decoder.buffered_bytes()
        if kept > fed:
            raise Finding("growth", "the decoder keeps more than it was fed")
        if kept > BOUNDS.unfinished_bytes + 4 * FRAME_MAX:
            raise Finding("growth", "the decoder keeps more than its bounds allow")
    if decoder.error is not None:
        if decoder.error.code not in REPLY_NAMES:
            raise Finding("code", f"no reply code: {decoder.error.code}")
        values.append(("error", decoder.error.code, decoder.error.text))
    return values


def _values(item: Item) -> list[tuple[object, ...]]:
    """Messages and acks one by one: how many come in one item depends on the split."""
    if isinstance(item, Publishes):
        return [
            ("publish", how.exchange, how.routing_key, how.mandatory, content.header_payload(wire), content.body(wire))
            for how, wire in item.messages
        ]
    if isinstance(item, Acks):
        return [("ack", item.channel, *ack) for ack in item.acks]
    if isinstance(item, Nack):
        return [("nack", item.channel, item.method_id, item.tag, item.multiple, item.requeue)]
    if isinstance(item, Oversize):
        return [("oversize", item.channel, item.size)]
    return [("command", item.channel, repr(item.method))]


# A whole connection.


class Listening(Log):
    """A log that keeps nothing and lets a crash through."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__("info", stream=io.StringIO())

    def crash(self, where: str, error: BaseException) -> None:
        raise error


class Door(Logins):
    """Logins whose passwords are compared and not hashed, in the clock's time and not in threads."""

    __slots__ = ("_house",)

    def __init__(self, house: House) -> None:
        super().__init__(house.broker.users, house.clock, Listening())
        self._house = house

    def _start(self) -> None:
        self._house.clock.call_later(0.001, self._open)

    def _open(self) -> None:
        while self._waiting:
            attempt = self._next()
            self._decide(attempt, (attempt.user, attempt.password) == ("guest", "guest"))


class Client:
    """A connection on a house, and its transport."""

    def __init__(self, house: House, limits: Limits = LIMITS) -> None:
        self.house = house
        self.transport = FakeTransport()
        self.gone = 0
        self.connection = Connection(house.broker, limits, Listening(), self._gone, logins=Door(house))
        self.connection.connection_made(self.transport)
        self.bytes_in = 0

    def _gone(self, connection: Connection) -> None:
        self.gone += 1

    def feed(self, data: bytes) -> None:
        if not self.transport.closing and data:
            self.bytes_in += len(data)
            self.connection.data_received(data)
            self.house.run_until_idle()
            while self.connection.state == SECURING:  # a login that fails is answered late, within the timeout
                self.house.clock.advance(0.1)
                self.house.run_until_idle()

    def said(self) -> list[Said]:
        stream = b"".join(self.transport.written)
        return read_said(stream.removeprefix(PROTOCOL_HEADER))

    def lose(self) -> None:
        self.transport.closing = True  # nothing may be written any more
        self.connection.connection_lost(None)
        self.house.run_until_idle()


def _run_connection(target: str, data: bytes, coverage: Coverage) -> None:
    slowly = talk(target, by_frames(data), coverage)
    for stream in ([data], pieces(data)):
        other = talk(target, stream)
        # Once channels are open, which of two errors is told first depends on when they are seen.
        if all(one.channel == 0 for one in slowly + other) and _told(slowly) != _told(other):
            raise Finding("split", f"{_told(slowly)[-1:]} but {_told(other)[-1:]}")


def _told(said: list[Said]) -> list[str]:
    return [repr(one.method) if isinstance(one.method, ConnectionClose) else one.method.NAME for one in said]


def talk(target: str, stream: list[bytes], coverage: Coverage = NO_COVERAGE) -> list[Said]:
    """One connection from accept to its end; what it was told."""
    house = House("20,10", "40000,20000")
    bystander = house.peer("bystander")
    bystander.open()
    bystander.ask(1, QueueDeclare("lock", exclusive=True))
    bystander.consume(1, "lock", "mine", no_ack=True)
    bystander.ask(1, QueueDeclare("q"))
    bystander.publish(1, "q", b"first", b"second")
    bystander.methods()
    client = Client(house)
    if target == SESSION:
        client.feed(LOGIN)
    coverage.start()
    for piece in stream:
        client.feed(piece)
        _check_bytes_out(client)
    said = client.said()
    _check_end(client, said)
    client.lose()
    house.clock.advance(120)
    house.run_until_idle()
    coverage.stop()
    check_nothing_left(client)
    _check_consumers(house, bystander)
    bystander.publish(1, "lock", b"still served")
    if bystander.bodies()[-1:] != [b"still served"]:
        raise Finding("bystander", "another client's own queue no longer works")
    return said


def _check_bytes_out(client: Client) -> None:
    out = sum(map(len, client.transport.written))
    most = STRANGER_BYTES_OUT_MAX + 2 * client.bytes_in
    if client.connection.reader is not None and client.connection.state == "running":
        most = (1 << 20) + client.bytes_in**2  # one nack may bring back all that was published
    if out > most:
        raise Finding("growth", f"{out} bytes out for {client.bytes_in} in")


def _check_end(client: Client, said: list[Said]) -> None:
    """A client that was told to go, or never came in, is gone in the end, although it does nothing itself."""
    closed = any(isinstance(one.method, ConnectionClose) for one in said)
    opened = any(isinstance(one.method, ConnectionOpenOk) for one in said)
    if closed or not opened:
        client.house.clock.advance(61)
        client.house.run_until_idle()
        if not client.transport.closing:
            raise Finding("end", f"still there after a minute: {client.connection.state}")


def check_nothing_left(client: Client) -> None:
    """After connection_lost: no channel, consumer, exclusive queue, link or work of this connection."""
    broker = client.house.broker
    left: list[str] = []
    if client.gone != 1:
        left.append(f"told {client.gone} times that it is gone")
    if client.connection.reader is not None:
        left.append(f"its reader {client.connection.reader!r}")
    if client.connection.exclusive_queues:
        left.append(f"{len(client.connection.exclusive_queues)} exclusive queues")
    for hop in (broker.reader_channel, broker.channel_queue):
        left += [f"a link of {hop.name}" for link in hop.links if client.connection.name in link.upstream.name]
    for vhost in broker.vhosts.values():
        for queue in vhost.queues.values():
            if queue.owner is not None and queue.owner.name == client.connection.name:
                left.append("a queue that it owned")
            if queue.owner is None and queue.unacked:
                left.append("unacked messages of a queue")
    if left:
        raise Finding("left behind", ", ".join(sorted(set(left))))


def _check_consumers(house: House, bystander: FakePeer) -> None:
    """No queue has a consumer but the bystander's, as it is told when it asks."""
    bystander.said()  # what was published to its own queue
    for name, queue in list(house.vhost.queues.items()):
        if queue.owner is None:
            (answer,) = bystander.ask(1, QueueDeclare(name, passive=True))
            if not isinstance(answer, QueueDeclareOk) or answer.consumer_count:
                raise Finding("left behind", f"a consumer: {answer!r}")

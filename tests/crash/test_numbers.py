"""kill -9 under producers that number their messages and send again what was not confirmed, and under consumers that
are told the numbers of what they get: nothing twice, nothing lost, no number for two messages.

More rounds: CRASH_ROUNDS=50. A failed run is repeated, as far as chance allows, with the CRASH_SEED it names.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Final

import pytest

from penstock.amqp.content import build_basic
from penstock.amqp.method import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    encode_method,
)
from penstock.amqp.properties import Properties, decode_properties, encode_properties
from tests.crash.peer import FRAME_MAX, Gone, Peer
from tests.crash.rounds import LIFE_S, MORE_ROUNDS, ROUNDS, SEED, SERVE, Broker, chosen_settings

QUEUES: Final = ("first", "second")
WATCHED: Final = "watched"
WINDOW: Final = 500
DRAIN_S: Final = 60.0


def frames(exchange: str, key: str, properties: Properties, body: bytes) -> bytes:
    method = encode_method(BasicPublish(exchange, key), 1)
    return method + build_basic(1, encode_properties(properties), body, FRAME_MAX)


class Life:
    """A broker process, killed when the block ends."""

    def __init__(self, directory: Path, dice: random.Random) -> None:
        self._broker = Broker(directory, SERVE, *chosen_settings(dice))
        self.port = self._broker.wait_ready()
        assert self.port, self._broker.buried()

    def kill(self) -> None:
        self._broker.kill()

    def end(self) -> None:
        self.kill()
        log = self._broker.buried()
        assert "Traceback" not in log, log[-3000:]
        assert " crash " not in log, log[-3000:]


class Producer:
    """Sends in order, again from the first that was not confirmed on whenever it connects, and sometimes from further
    back, as one does who has lost a little of what he knew."""

    def __init__(self, name: str, dice: random.Random) -> None:
        self.name = name
        self.next = 0
        self.confirmed = 0  # all below this
        self._dice = dice
        self._first = 0  # the id of confirm number 1
        self._open: set[int] = set()  # numbers
        self._sent = 0
        self._moved = asyncio.Event()

    async def run(self, port: int, most: int) -> None:
        """Until the broker is gone, or so many were sent and all are confirmed."""
        peer = await Peer.connect(port, on_confirm=self._settled)
        await peer.ask(ConfirmSelect(), ConfirmSelectOk)
        self._open.clear()
        self._sent = 0
        self._first = max(0, self.confirmed - self._dice.choice((0, 0, 1, 50)))
        while self._first + self._sent < most or self._open:
            if peer.gone.is_set():
                raise peer.fault or Gone
            if self._first + self._sent < most and len(self._open) < WINDOW:
                for _ in range(min(self._dice.choice((1, 10, 100)), most - self._first - self._sent)):
                    self._publish(peer)
                await peer.drain()
                await asyncio.sleep(0)
                continue
            self._moved.clear()
            waits = [asyncio.ensure_future(event.wait()) for event in (self._moved, peer.gone)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        await peer.close()

    def _publish(self, peer: Peer) -> None:
        id_ = self._first + self._sent
        self._sent += 1
        self._open.add(self._sent)
        headers = Properties(
            headers={"x-penstock-producer": self.name, "x-penstock-publishing-id": id_}, delivery_mode=2
        )
        padding = b"." * (id_ % 5000 if id_ % 50 == 0 else 9)  # some are large
        peer.send(frames("fan", "", headers, f"{self.name} {id_}".encode() + padding))
        self.next = max(self.next, id_ + 1)

    def _settled(self, tag: int, multiple: bool, is_ack: bool) -> None:
        assert is_ack, "nothing here refuses anything"
        done = {number for number in self._open if number <= tag} if multiple else {tag}
        self._open -= done
        below = min(self._open, default=self._sent + 1)
        self.confirmed = max(self.confirmed, self._first + below - 1)
        self._moved.set()


async def produce(port: int, producers: list[Producer], most: int) -> None:
    await asyncio.gather(*(producer.run(port, most) for producer in producers), return_exceptions=True)


async def declare(port: int) -> None:
    peer = await Peer.connect(port)
    await peer.ask(ExchangeDeclare("fan", "fanout", durable=True), ExchangeDeclareOk)
    for queue in (*QUEUES, WATCHED):
        await peer.ask(QueueDeclare(queue, durable=True), QueueDeclareOk)
        await peer.ask(QueueBind(queue, "fan", ""), QueueBindOk)
    await peer.close()


def parsed(body: bytes) -> tuple[str, int]:
    name, id_ = body.rstrip(b".").decode().rsplit(" ", 1)
    return name, int(id_)


async def drained(port: int, queue: str) -> list[tuple[str, int]]:
    """Producer and id of all that is in the queue."""
    found: list[tuple[str, int]] = []
    came = asyncio.Event()

    def delivered(method: BasicDeliver | BasicGetOk, header: bytes, body: bytes) -> None:
        found.append(parsed(body))
        came.set()

    peer = await Peer.connect(port, on_delivery=delivered)
    told = (await peer.ask(QueueDeclare(queue, passive=True), QueueDeclareOk)).message_count
    await peer.ask(BasicConsume(queue, "c", no_ack=True), BasicConsumeOk)
    async with asyncio.timeout(DRAIN_S):
        while len(found) < told:
            came.clear()
            await came.wait()
    await peer.close()
    return found


@pytest.mark.timeout(max(300, ROUNDS * 45))
def test_producers_that_send_again_after_a_kill_double_and_lose_nothing(tmp_path: Path) -> None:
    print(f"CRASH_SEED={SEED}")
    dice = random.Random(SEED)
    producers = [Producer(f"producer {at}", dice) for at in range(3)]
    witness = Witness(WATCHED, dice)

    async def round_() -> None:
        life = Life(tmp_path, dice)
        try:
            await declare(life.port)
            asyncio.get_running_loop().call_later(dice.uniform(*LIFE_S), life.kill)
            watching = asyncio.ensure_future(witness.run(life.port))
            await produce(life.port, producers, 1 << 40)
            await watching
        except Gone:
            pass
        finally:
            life.end()

    async def last() -> dict[str, list[tuple[str, int]]]:
        life = Life(tmp_path, dice)
        try:
            await declare(life.port)
            await produce(life.port, producers, max(producer.next for producer in producers))
            return {queue: await drained(life.port, queue) for queue in (*QUEUES, WATCHED)}
        finally:
            life.end()

    for number in range(ROUNDS + MORE_ROUNDS):
        if number >= ROUNDS and any(producer.next for producer in producers):
            break
        asyncio.run(round_())
    found = asyncio.run(last())
    most = max(producer.next for producer in producers)
    assert most, "every process was killed before it took anything"
    for queue in QUEUES:
        for producer in producers:
            ids = [id_ for name, id_ in found[queue] if name == producer.name]
            assert ids == list(range(most)), f"CRASH_SEED={SEED}: {queue} of {producer.name}: {_wrong(ids, most)}"
    every = {(producer.name, id_) for producer in producers for id_ in range(most)}
    assert {parsed(body) for body in witness.stamps} | set(found[WATCHED]) == every
    print(f"{most} messages of each producer; {len(witness.stamps)} seen with numbers, {witness.again} of them again")


def _wrong(ids: list[int], most: int) -> str:
    missing = sorted(set(range(most)) - set(ids))[:10]
    twice = sorted({id_ for id_ in ids if ids.count(id_) > 1})[:10] if len(ids) < 20_000 else "…"
    return f"{len(ids)} of {most}, missing {missing}, twice {twice}, in order: {ids == sorted(ids)}"


class Witness:
    """Consumes with numbers and remembers them over all lives: one body per number, and one number per body."""

    def __init__(self, queue: str, dice: random.Random) -> None:
        self.queue = queue
        self.bodies: dict[str, bytes] = {}
        self.stamps: dict[bytes, str] = {}
        self.again = 0
        self._dice = dice
        self._peer: Peer | None = None

    async def run(self, port: int) -> None:
        self._peer = await Peer.connect(port, on_delivery=self._delivered)
        await self._peer.ask(BasicQos(0, 200, False), BasicQosOk)
        await self._peer.ask(BasicConsume(self.queue, "c", arguments={"x-penstock-sequence": True}), BasicConsumeOk)
        await self._peer.gone.wait()
        if self._peer.fault is not None:
            raise self._peer.fault

    def _delivered(self, method: BasicDeliver | BasicGetOk, header: bytes, body: bytes) -> None:
        headers = decode_properties(header, 12, len(header)).headers or {}
        stamp = str(headers["x-penstock-sequence"])
        self.again += stamp in self.bodies
        assert self.bodies.setdefault(stamp, body) == body, f"{stamp} for two messages"
        assert self.stamps.setdefault(body, stamp) == stamp, f"{body!r} has two numbers"
        assert self._peer is not None
        luck = self._dice.random()
        if luck < 0.85:
            self._peer.tell(BasicAck(method.delivery_tag))
        elif luck < 0.97:
            self._peer.tell(BasicNack(method.delivery_tag))


async def chatter(port: int, first: int, dice: random.Random) -> int:
    """Publish persistent and transient messages, of all priorities, until the broker is gone; the next number."""
    number = first
    peer = await Peer.connect(port)
    while not peer.gone.is_set():
        for _ in range(dice.choice((1, 20))):
            mode = dice.choice((1, 2))
            peer.send(frames("", "numbered", Properties(delivery_mode=mode, priority=number % 3), b"%d" % number))
            number += 1
        await asyncio.sleep(dice.choice((0, 0.001)))
    return number


@pytest.mark.timeout(max(300, ROUNDS * 45))
def test_no_number_is_ever_told_for_two_messages(tmp_path: Path) -> None:
    print(f"CRASH_SEED={SEED}")
    dice = random.Random(SEED)
    witness = Witness("numbered", dice)
    sent = 0

    async def round_() -> None:
        nonlocal sent
        life = Life(tmp_path, dice)
        try:
            peer = await Peer.connect(life.port)
            await peer.ask(QueueDeclare("numbered", durable=True, arguments={"x-max-priority": 2}), QueueDeclareOk)
            asyncio.get_running_loop().call_later(dice.uniform(*LIFE_S), life.kill)
            watching = asyncio.ensure_future(witness.run(life.port))
            sent = await chatter(life.port, sent, dice)
            await watching
        except Gone:
            pass
        finally:
            life.end()

    for number in range(ROUNDS + 2 + MORE_ROUNDS):
        if number >= ROUNDS + 2 and witness.bodies:
            break
        asyncio.run(round_())
    print(f"{len(witness.bodies)} numbers for {sent} messages; {witness.again} came again")
    assert witness.bodies

"""Streams under kill -9 and power loss: a confirmed message keeps its offset for ever, and so does one that was read.

Publishers and readers work on two streams with small segments until the process dies at a random moment; the next one,
on the same directory, is read through. What was confirmed is there, once and in each publisher's order; what a reader
saw at an offset is what stands there; offsets have no hole.
More rounds: CRASH_ROUNDS=200.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from penstock.amqp.method import QueueDeclare, QueueDeclareOk
from penstock.amqp.properties import Properties, decode_properties, encode_properties
from penstock.amqp.table import Table
from penstock.client.connection import Connection
from penstock.client.consumer import Consumer, Deliveries
from penstock.client.error import ClientError, Closed
from penstock.client.publisher import Publisher
from penstock.client.stream import offsets
from penstock.client.uri import parse_uri
from tests.crash.rounds import END_S, MORE_ROUNDS, POWERLESS, ROUNDS, SEED, SERVE, Broker

STREAMS: Final = ("plain", "numbered")  # to the second one publishers send again what was not confirmed, numbered
ARGUMENTS: Final[Table] = {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 20_000}
NO_PROPERTIES: Final = encode_properties(Properties())


class Site:
    """A data directory, and what is known of its streams."""

    def __init__(self, directory: Path, seed: int, power_loss: bool) -> None:
        self.directory = directory
        self.dice = random.Random(seed)
        self.power_loss = power_loss
        self.seen: dict[str, dict[int, bytes]] = {name: {} for name in STREAMS}  # by offset, whoever saw it
        self.confirmed: dict[str, set[bytes]] = {name: set() for name in STREAMS}
        self.sent = dict.fromkeys(STREAMS, 0)
        self.again: list[int] = []  # numbered, and not confirmed: sent again in the next life
        self.faults: list[BaseException] = []

    def run(self, rounds: int) -> None:
        for number in range(rounds + MORE_ROUNDS):
            if number >= rounds and all(self.confirmed.values()):
                break
            broker = self._start()
            try:
                self._check(broker.port)
                self._load(broker)
            finally:
                broker.kill()
                log = broker.buried()
            assert "Traceback" not in log, log[-3000:]
            assert not self.faults, self.faults
        broker = self._start()
        self._check(broker.port)
        broker.kill()
        broker.buried()

    def _start(self) -> Broker:
        command: tuple[str, ...] = SERVE
        arguments = ["--set", f"store.journal_bytes={self.dice.choice((65_536, 1_000_000))}"]
        if self.power_loss:
            command = POWERLESS
            arguments += ["--seed", str(self.dice.randrange(1 << 32))]
        broker = Broker(self.directory, command, *arguments)
        assert broker.wait_ready(), broker.buried()
        return broker

    def _load(self, broker: Broker) -> None:
        with connect(broker.port) as connection:
            for name in STREAMS:
                connection.open_channel().call(QueueDeclare(name, durable=True, arguments=ARGUMENTS), QueueDeclareOk)
        workers = [self._spawn(self._publish, broker.port, name) for name in STREAMS]
        workers += [self._spawn(self._read, broker.port, name) for name in STREAMS]
        time.sleep(self.dice.uniform(0.05, 1.0))  # a random moment to die, nothing is waited for
        if self.power_loss and self.dice.random() < 0.7:
            broker.order("cut")
        else:
            broker.kill()
        for worker in workers:
            worker.join(END_S)
            assert not worker.is_alive(), "a client did not notice the end of the broker"

    def _spawn(self, work: Callable[[Connection, str], None], port: int, name: str) -> threading.Thread:
        def run() -> None:
            try:
                connection = connect(port)
                try:
                    work(connection, name)
                finally:
                    connection.abort()
            except ClientError:
                pass  # the broker is dead
            except BaseException as error:
                self.faults.append(error)

        worker = threading.Thread(target=run, daemon=True)
        worker.start()
        return worker

    def _publish(self, connection: Connection, name: str) -> None:
        is_numbered = name == "numbered"
        publisher = Publisher(connection.open_channel(), window=200)
        numbers: list[int] = []  # by confirm number
        try:
            for number in self.again if is_numbered else ():
                numbers.append(number)
                publisher.publish("", name, numbered(number), b"%d" % number)
            while True:
                number, self.sent[name] = self.sent[name], self.sent[name] + 1
                numbers.append(number)
                publisher.publish("", name, numbered(number) if is_numbered else NO_PROPERTIES, b"%d" % number)
        finally:
            numbers = numbers[: publisher.published]
            self.sent[name] = max([self.sent[name], *(number + 1 for number in numbers)])
            open_ = {numbers[at - 1] for at in publisher.unconfirmed()}
            self.confirmed[name] |= {b"%d" % number for number in numbers if number not in open_}
            if is_numbered:
                # Whatever was not confirmed, also what was not sent at all, comes next, in order.
                known = {int(body) for body in self.confirmed[name]}
                self.again = [number for number in range(self.sent[name]) if number not in known]

    def _read(self, connection: Connection, name: str) -> None:
        start = self.dice.randrange(len(self.seen[name]) + 1)
        consumer = Consumer(connection.open_channel(), name, prefetch=100, arguments={"x-stream-offset": start})
        while True:
            got = consumer.read(100, 30.0)
            self._note(name, got)
            if len(got):
                consumer.ack(got.tags[-1])

    def _note(self, name: str, got: Deliveries) -> list[int]:
        """What stands at an offset stands there for ever."""
        found = []
        for properties, body in zip(got.headers, got.bodies, strict=True):
            headers = decode_properties(properties, 0, len(properties)).headers or {}
            offset = headers["x-stream-offset"]
            assert isinstance(offset, int)
            assert self.seen[name].setdefault(offset, body) == body, f"{name}: another message at offset {offset}"
            found.append(offset)
        return found

    def _check(self, port: int) -> None:
        with connect(port) as connection:
            for name in STREAMS:
                try:
                    end = offsets(connection.open_channel(), name).next
                except Closed:
                    assert not self.confirmed[name]
                    continue
                arguments: Table = {"x-stream-offset": 0, "x-stream-stop-offset": end}
                consumer = Consumer(connection.open_channel(), name, no_ack=True, arguments=arguments)
                found: list[int] = []
                while not consumer.ended:
                    found += self._note(name, consumer.read(10_000, 30.0))
                assert found == list(range(end)), f"{name}: the offsets have a hole, or an end too early"
                assert max(self.seen[name], default=-1) < end, f"{name}: what was read before is gone"
                bodies = [self.seen[name][offset] for offset in found]
                assert len(set(bodies)) == len(bodies), f"{name}: a message is there twice"
                assert self.confirmed[name] <= set(bodies), f"{name}: a confirmed message is lost"
                numbers = [int(body) for body in bodies]
                assert numbers == sorted(numbers), f"{name}: out of order"


def numbered(number: int) -> bytes:
    headers: Table = {"x-penstock-producer": "p", "x-penstock-publishing-id": number}
    return encode_properties(Properties(headers=headers))


def connect(port: int) -> Connection:
    return Connection.connect(parse_uri(f"amqp://127.0.0.1:{port}"))


@pytest.mark.timeout(max(300, ROUNDS * 45))
@pytest.mark.parametrize("power_loss", [False, True], ids=["killed", "without power"])
def test_a_message_keeps_its_offset_for_ever(tmp_path: Path, power_loss: bool) -> None:
    print(f"CRASH_SEED={SEED}")
    site = Site(tmp_path, SEED, power_loss)
    site.run(ROUNDS)
    assert all(site.confirmed.values()), "every process died before it confirmed anything"

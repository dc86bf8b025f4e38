"""Overloads: five ways to hold a publisher back, each with a cause that is known, on any broker that runs.

    with overload("store", amqp_port, management_url) as one:
        …  GET /api/flow must say one.cause of the connection one.connection
        one.lift()
        …  and soon nothing: the publisher goes on, at a pace that a healthy broker takes

| kind      | how                                                | cause     |
| --------- | -------------------------------------------------- | --------- |
| store     | faults.store_sync_delay_ms, persistent messages    | store     |
| queue     | faults.queue_delay_us                              | queue     |
| channel   | faults.channel_delay_us, as heavy routing would    | channel   |
| memory    | alarms.memory_bytes_high below what is used        | memory    |
| saturated | x-flow-stop-count and a publisher with confirms    | saturated |

    with bystander(amqp_port, "calm", "calm"):
        …  a publisher so slow that no slowed stage holds it back, only an alarm
    with publisher(amqp_port, "orders-api", "orders", "numbered", "exchange=work"):
        …  one as fast as that of the overloads, on a broker that is slow by itself (test_slow_stages.py)

The broker needs the HTTP API, and for `store` a data directory. The publisher is pika in a process of its own, so that
it is a client like any other and takes no turns from a broker in the test's process. Used by test_flow.py, by
the tests in the browser, and where Spark must find the same truth (tests/spark/pipeline/truth.py).
"""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pika
from pika.adapters.blocking_connection import BlockingChannel

CONNECTION: Final = "orders-api"  # the connection_name of the publisher
QUEUE: Final = "orders"

BATCH: Final = 100  # messages at a time: a quarter of the credit of a hop, so that a healthy broker never blocks
PAUSE_S: Final = 0.025  # after a batch: 4000 messages a second at most, by far more than a slowed broker takes
CALM_BATCH: Final = 5  # of a bystander: 100 messages a second, a fifth of what a slowed stage takes
CALM_PAUSE_S: Final = 0.05
BODY: Final = b"x" * 100
DELAY_US: Final = 2000  # per message: 500 messages a second
SYNC_DELAY_MS: Final = 5000  # 2800 messages are on their way to the disk at most: 560 a second
STOP_COUNT: Final = 50
NUMBERED: Final = {"kind": "order"}  # and a number
LIMIT_S: Final = 60.0  # as in waiting.py, which the clients' processes cannot import: only ends what would hang


@dataclass(frozen=True, slots=True)
class Kind:
    cause: str  # what the verdict must say
    resource: str
    setting: str = ""  # set to `value` it makes the overload, set to 0 it ends it
    value: int = 0
    persistent: bool = False
    confirms: bool = False


KINDS: Final[dict[str, Kind]] = {
    "store": Kind("store", "disk", "faults.store_sync_delay_ms", SYNC_DELAY_MS, persistent=True),
    "queue": Kind("queue", "CPU", "faults.queue_delay_us", DELAY_US),
    "channel": Kind("channel", "CPU", "faults.channel_delay_us", DELAY_US),
    "memory": Kind("memory", "memory", "alarms.memory_bytes_high", 1_000_000),
    "saturated": Kind("saturated", "consumers", confirms=True),
}


class Overload:
    """One that is on. `lift` ends its cause, `stop` the clients too."""

    def __init__(
        self,
        kind: str,
        port: int,
        management: str,
        user: str = "guest",
        password: str = "guest",
        connection: str = CONNECTION,
        queue: str = QUEUE,
    ) -> None:
        self.kind = kind
        self.what = KINDS[kind]
        self.connection = connection
        self.queue = queue
        self._port = port
        self._management = management.rstrip("/")
        self._authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        self._clients: list[subprocess.Popen[str]] = []

    @property
    def cause(self) -> str:
        return self.what.cause

    def start(self) -> None:
        """Returns when the publisher is connected and the broker has been told to be slow."""
        self._client("publish", "persistent" * self.what.persistent, "confirms" * self.what.confirms)
        if self.what.setting:
            self.set(self.what.setting, self.what.value)

    def lift(self) -> None:
        """What holds the publisher back is gone; the publisher is not."""
        if self.what.setting:
            self.set(self.what.setting, 0)
        else:
            self._client("consume")

    def stop(self) -> None:
        for client in self._clients:
            _end(client)
        self._clients.clear()

    def set(self, name: str, value: int) -> None:
        request = urllib.request.Request(f"{self._management}/api/settings/{name}", method="PUT")
        request.add_header("Authorization", self._authorization)
        request.data = json.dumps({"value": str(value)}).encode()
        with urllib.request.urlopen(request, timeout=LIMIT_S):
            pass

    def _client(self, *arguments: str) -> None:
        role, *options = arguments
        name = self.connection if role == "publish" else f"{self.queue}-worker"
        self._clients.append(_begin(self._port, role, name, self.queue, *filter(None, options)))


def _begin(port: int, role: str, *arguments: str) -> subprocess.Popen[str]:
    """A client's process; it says a line when it has begun."""
    command = [sys.executable, __file__, str(port), role, *arguments]
    client = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert client.stdout is not None
    assert client.stderr is not None
    if not client.stdout.readline():
        raise AssertionError(f"the {role} client of the overload ended: {client.stderr.read()}")
    return client


def _end(client: subprocess.Popen[str]) -> None:
    client.kill()
    client.wait(LIMIT_S)
    for pipe in (client.stdout, client.stderr):
        if pipe is not None:
            pipe.close()


@contextmanager
def bystander(port: int, connection: str, queue: str) -> Iterator[None]:
    """A publisher that is held back by nothing but an alarm."""
    with publisher(port, connection, queue, "calm"):
        yield


@contextmanager
def publisher(port: int, connection: str, queue: str, *options: str) -> Iterator[None]:
    """Options: persistent, confirms, calm, numbered (headers that no message has twice; the queue is there already),
    exchange=NAME."""
    client = _begin(port, "publish", connection, queue, *options)
    try:
        yield
    finally:
        _end(client)


@contextmanager
def overload(
    kind: str, port: int, management: str, connection: str = CONNECTION, queue: str = QUEUE
) -> Iterator[Overload]:
    """An overload of this kind, from begin to end: its clients are gone and its settings are 0 afterwards."""
    one = Overload(kind, port, management, connection=connection, queue=queue)
    try:
        one.start()
        yield one
    finally:
        if one.what.setting:
            one.set(one.what.setting, 0)
        one.stop()


def _publish(channel: BlockingChannel, queue: str, options: Collection[str]) -> None:
    confirms, calm, numbered = (option in options for option in ("confirms", "calm", "numbered"))
    exchange = next((option.partition("=")[2] for option in options if option.startswith("exchange=")), "")
    if not numbered:
        channel.queue_declare(queue, durable=True, arguments={"x-flow-stop-count": STOP_COUNT} if confirms else {})
    if confirms:
        channel.confirm_delivery()  # from now on every publish waits for its confirm
    properties = pika.BasicProperties(delivery_mode=2 if "persistent" in options else 1)
    print("publishing", flush=True)
    numbers = itertools.count()
    while True:
        for _ in range(CALM_BATCH if calm else BATCH):
            if numbered:
                properties.headers = {**NUMBERED, "number": next(numbers)}
            channel.basic_publish(exchange, queue, BODY, properties)
        time.sleep(CALM_PAUSE_S if calm else PAUSE_S)


def _consume(channel: BlockingChannel, queue: str) -> None:
    channel.basic_consume(queue, lambda *delivery: None, auto_ack=True)
    print("consuming", flush=True)
    channel.start_consuming()


def _main(port: str, role: str, name: str, queue: str, *options: str) -> None:
    parameters = pika.ConnectionParameters(
        "127.0.0.1", int(port), client_properties={"connection_name": name}, heartbeat=0
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        if role == "publish":
            _publish(channel, queue, options)
        else:
            _consume(channel, queue)


if __name__ == "__main__":
    _main(*sys.argv[1:])

"""Fixtures of the everyday tests: `target`, the broker under test. The same tests for Penstock and for RabbitMQ.

RabbitMQ's half runs when EVERYDAY says so (EVERYDAY=both, EVERYDAY=rabbitmq); otherwise test_targets.py puts one line
into the summary. One broker of each kind serves the whole session, so every test uses names of its own (fixture `q`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pika
import pytest

from tests.everyday.cable import Cable
from tests.everyday.targets import Penstock, RabbitMQ, Target, chosen_targets

numbers = itertools.count(1)


@pytest.fixture(scope="session", params=chosen_targets())
def session_target(request: pytest.FixtureRequest) -> Iterator[Target]:
    started: Target = Penstock() if request.param == "penstock" else RabbitMQ()
    try:
        started.start()
        yield started
    finally:
        started.end()


@pytest.fixture
def target(session_target: Target) -> Iterator[Target]:
    """A running broker. The test fails if the broker logs a fault of its own meanwhile."""
    session_target.start()
    session_target.complaint()
    yield session_target
    complaint = session_target.complaint()
    assert not complaint, complaint


@pytest.fixture
def cable(target: Target) -> Iterator[Cable]:
    with Cable(target.port) as relay:
        yield relay


class Outage:
    """One way to lose the connection to the broker, and to get it back."""

    def __init__(self, how: str, target: Target, cable: Cable) -> None:
        self.how = how
        self._target = target
        self._cable = cable
        # Through the cable only where it is the cable that breaks: otherwise the client is to see the broker itself go.
        self.port = cable.port if how == "cut" else target.port
        self.uri = f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    @property
    def told(self) -> bool:
        """Whether the broker says goodbye: connection.close with 320."""
        return self.how == "stopped"

    @property
    def keeps_messages(self) -> bool:
        """Whether the broker lives on, and with it everything that was confirmed."""
        return self.how == "cut"

    def begin(self) -> None:
        {"cut": self._cable.unplug, "killed": self._target.kill, "stopped": self._target.stop}[self.how]()

    def end(self) -> None:
        self._cable.plug()
        self._target.start()


@pytest.fixture(params=["cut", "killed", "stopped"])
def outage(request: pytest.FixtureRequest, target: Target, cable: Cable) -> Outage:
    return Outage(request.param, target, cable)


@pytest.fixture
def uri(target: Target) -> str:
    return f"amqp://guest:guest@127.0.0.1:{target.port}/%2F"


@pytest.fixture
def q() -> str:
    """A name that no other test has used with this broker."""
    return f"q{next(numbers)}"


class SomebodyElse:
    """Another client of the broker: what happens to a queue from outside the client under test. Speaks pika."""

    def __init__(self, port: int) -> None:
        self._parameters = pika.ConnectionParameters("127.0.0.1", port)

    def _connected(self, work: Callable[[pika.adapters.blocking_connection.BlockingChannel], object]) -> object:
        with pika.BlockingConnection(self._parameters) as connection:
            return work(connection.channel())

    def publish(self, queue: str, *bodies: bytes, exchange: str = "") -> None:
        """Published, confirmed and in a queue."""

        def work(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
            channel.confirm_delivery()
            for body in bodies:
                channel.basic_publish(exchange, queue, body, mandatory=True)

        self._connected(work)

    def delete(self, queue: str) -> None:
        self._connected(lambda channel: channel.queue_delete(queue))

    def counts(self, queue: str) -> tuple[int, int]:
        """Ready messages and consumers; (-1, -1) if there is no such queue."""

        def work(channel: pika.adapters.blocking_connection.BlockingChannel) -> tuple[int, int]:
            try:
                found = channel.queue_declare(queue, passive=True).method
            except pika.exceptions.ChannelClosedByBroker as closed:
                if closed.reply_code != 404:
                    raise
                return -1, -1
            return found.message_count, found.consumer_count

        counts = self._connected(work)
        assert isinstance(counts, tuple)
        return counts

    def exclusive_is_gone(self, queue: str) -> bool:
        """Whether another connection's exclusive queue went with it: locked while it lives, then missing."""

        def work(channel: pika.adapters.blocking_connection.BlockingChannel) -> int:
            try:
                channel.queue_declare(queue, passive=True)
            except pika.exceptions.ChannelClosedByBroker as closed:
                return int(closed.reply_code)
            return 0

        return self._connected(work) == 404

    def consumers(self, queue: str) -> int:
        return self.counts(queue)[1]


@pytest.fixture
def other(target: Target) -> SomebodyElse:
    return SomebodyElse(target.port)

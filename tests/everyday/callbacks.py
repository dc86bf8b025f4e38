"""Callbacks: pika's SelectConnection with its loop in a thread, so that a test can wait for what a callback brings.

Everything that touches the connection runs on the loop's thread, as pika demands; the test sees lists and futures.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pika
import pika.channel
import pika.exceptions
from pika.adapters.select_connection import IOLoop

from tests.wire.waiting import wait_until

REPLY_TIMEOUT_S = 60.0


class Callbacks:
    """One SelectConnection. `closed` and `failed` hold what its close and open-error callbacks were given."""

    def __init__(self, port: int, **parameters: Any) -> None:
        self.closed: list[BaseException] = []
        self.failed: list[BaseException] = []
        self._opened = threading.Event()
        self._loop = IOLoop()
        self._thread = threading.Thread(target=self._loop.start, name="select", daemon=True)
        self.connection = pika.SelectConnection(
            pika.ConnectionParameters("127.0.0.1", port, **parameters),
            on_open_callback=lambda _connection: self._opened.set(),
            on_open_error_callback=lambda _connection, error: self._end(self.failed, error),
            on_close_callback=lambda _connection, error: self._end(self.closed, error),
            custom_ioloop=self._loop,
        )
        self._thread.start()

    def _end(self, where: list[BaseException], error: BaseException) -> None:
        where.append(error)
        self._opened.set()
        self._loop.stop()

    def opened(self) -> Callbacks:
        """Wait until it is open; an assertion error if it failed instead."""
        assert self._opened.wait(REPLY_TIMEOUT_S)
        assert not self.failed, self.failed
        return self

    def ended(self) -> BaseException:
        """Wait for the end; what the close callback (or the open-error callback) was given."""
        self._thread.join(REPLY_TIMEOUT_S)
        assert not self._thread.is_alive()
        (error,) = self.closed + self.failed
        return error

    def close(self) -> None:
        if self._thread.is_alive():
            self.call(lambda: self.connection.close() if self.connection.is_open else self._loop.stop())
            self._thread.join(REPLY_TIMEOUT_S)
        self._loop.close()

    def call(self, function: Callable[[], Any]) -> Any:
        """Run this on the loop's thread; its result."""
        outcome: Future[Any] = Future()

        def run() -> None:
            try:
                outcome.set_result(function())
            except BaseException as error:
                outcome.set_exception(error)

        self._loop.add_callback_threadsafe(run)
        return outcome.result(REPLY_TIMEOUT_S)

    def channel(self) -> SelectChannel:
        arrived: queue.SimpleQueue[pika.channel.Channel] = queue.SimpleQueue()
        self.call(lambda: self.connection.channel(on_open_callback=arrived.put))
        return SelectChannel(self, arrived.get(timeout=REPLY_TIMEOUT_S))


class SelectChannel:
    """A channel of it. `closed` is what its close callback was given."""

    def __init__(self, owner: Callbacks, raw: pika.channel.Channel) -> None:
        self.owner = owner
        self.raw = raw
        self.closed: list[BaseException] = []
        self._waiting: list[Future[Any]] = []
        owner.call(lambda: raw.add_on_close_callback(self._on_close))

    def _on_close(self, _channel: pika.channel.Channel, reason: BaseException) -> None:
        self.closed.append(reason)
        for future in self._waiting:
            if not future.done():
                future.set_exception(reason)

    def call(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method of the channel that wants no callback."""
        return self.owner.call(lambda: getattr(self.raw, method)(*arguments, **named))

    def ask(self, method: str, *arguments: Any, **named: Any) -> Any:
        """Call a method that takes a callback; the method frame it brings. The channel's close is raised."""
        answer: Future[Any] = Future()
        self._waiting.append(answer)
        self.call(method, *arguments, callback=answer.set_result, **named)
        return answer.result(REPLY_TIMEOUT_S).method

    def get(self, queue_name: str, **named: Any) -> tuple[Any, Any, bytes] | None:
        """basic.get: (method, properties, body), or None of an empty queue."""
        answer: Future[Any] = Future()
        self._waiting.append(answer)

        def empty(_frame: Any) -> None:
            if not answer.done():
                answer.set_result(None)

        def ask() -> None:
            self.raw.add_callback(empty, [pika.spec.Basic.GetEmpty])
            self.raw.basic_get(queue_name, lambda _channel, *what: answer.set_result(what), **named)

        self.owner.call(ask)
        return answer.result(REPLY_TIMEOUT_S)

    def consume(self, queue_name: str, **named: Any) -> list[tuple[Any, Any, bytes]]:
        """Consume into the list that is returned, once consume-ok is there."""
        got: list[tuple[Any, Any, bytes]] = []
        self.ask("basic_consume", queue_name, lambda _channel, *what: got.append(what), **named)
        return got

    def settle(self) -> None:
        """A round trip behind everything the broker has sent on this channel. Its close is raised."""
        try:
            self.ask("queue_declare", "", exclusive=True)
        except pika.exceptions.ChannelWrongStateError:
            raise self.closed[0] from None  # the broker's close was faster than the question


def wait_for(got: list[Any], count: int) -> list[Any]:
    """Wait until a callback has collected so many."""
    wait_until(lambda: len(got) >= count, what=f"{count} of {got}")
    return got

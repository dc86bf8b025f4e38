"""Peer: a client with one channel, in asyncio, small and quick enough that a round's load fits into a test.

It reads frames, hands deliveries and confirms to whoever made it, and everything else to the one who waits for an
answer. When the broker dies, whoever waits gets Gone; what the broker said before is read to the end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from penstock.amqp.frame import BODY, HEAD, HEAD_BYTES, HEADER, HEARTBEAT, OVERHEAD_BYTES, PROTOCOL_HEADER
from penstock.amqp.method import (
    BasicAck,
    BasicDeliver,
    BasicGetOk,
    BasicNack,
    ChannelClose,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    Method,
    decode_method,
    encode_method,
)
from penstock.amqp.table import Table

FRAME_MAX: Final = 131_072
ANSWER_S: Final = 60.0  # a broker that does not answer for so long hangs
STOPPING: Final = 320  # CONNECTION_FORCED: the broker is told to stop
PROPERTIES: Final[Table] = {
    "capabilities": {
        "connection.blocked": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "penstock.deduplication": True,
    }
}
Answer = TypeVar("Answer", bound=Method)
Delivered = Callable[[BasicDeliver | BasicGetOk, bytes, bytes], None]  # method, content header, body
Settled = Callable[[int, bool, bool], None]  # tag, multiple, whether it is an ack


class Gone(Exception):
    """The broker is not there any more."""


class Refused(Exception):
    """The broker closed the channel or the connection, which it has no reason to."""


class Peer(asyncio.Protocol):
    def __init__(self, on_delivery: Delivered | None = None, on_confirm: Settled | None = None) -> None:
        self.blocked: str | None = None  # the reason, while the broker takes no publishes
        self.blocked_before: list[str] = []  # all reasons so far
        self._on_delivery = on_delivery
        self._on_confirm = on_confirm
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._answers: deque[asyncio.Future[Method]] = deque()
        self._content: BasicDeliver | BasicGetOk | None = None
        self._header = b""
        self._body = bytearray()
        self._writable = asyncio.Event()
        self._writable.set()
        self.gone = asyncio.Event()
        self.fault: Exception | None = None  # what the reading side found wrong

    @classmethod
    async def connect(cls, port: int, on_delivery: Delivered | None = None, on_confirm: Settled | None = None) -> Peer:
        """With channel 1 open; Gone if the broker is not there."""
        peer = cls(on_delivery, on_confirm)
        try:
            await asyncio.get_running_loop().create_connection(lambda: peer, "127.0.0.1", port)
        except OSError:
            raise Gone from None
        start = peer._expect()
        peer.send(PROTOCOL_HEADER)
        assert isinstance(await peer._wait(start), ConnectionStart)
        await peer.ask(ConnectionStartOk(PROPERTIES, "PLAIN", b"\0guest\0guest", "en_US"), ConnectionTune, 0)
        peer.send(encode_method(ConnectionTuneOk(2047, FRAME_MAX, 0), 0))
        await peer.ask(ConnectionOpen("/"), ConnectionOpenOk, 0)
        await peer.ask(ChannelOpen(), ChannelOpenOk)
        return peer

    # Sending.

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def tell(self, method: Method) -> None:
        self.send(encode_method(method, 1))

    async def ask(self, method: Method, kind: type[Answer], channel: int = 1) -> Answer:
        answer = self._expect()
        self.send(encode_method(method, channel))
        found = await self._wait(answer)
        if not isinstance(found, kind):
            raise Refused(f"{found} where {kind.NAME} was due")
        return found

    async def drain(self) -> None:
        """Wait until what was sent is nearly all with the kernel."""
        if not self._writable.is_set():
            await self._writable.wait()
        if self.gone.is_set():
            raise Gone

    async def close(self) -> None:
        """Politely: all that was sent before is done when it returns."""
        await self.ask(ConnectionClose(200, "bye"), ConnectionCloseOk, 0)
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Receiving: asyncio calls these.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set()
        self._writable.set()
        for answer in self._answers:
            if not answer.done():
                answer.set_exception(self.fault or Gone())

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= HEAD_BYTES:
                kind, _, size = HEAD.unpack_from(buffer, at)
                end = at + size + OVERHEAD_BYTES
                if len(buffer) < end:
                    break
                self._frame(kind, bytes(buffer[at + HEAD_BYTES : end - 1]))
                at = end
        except Exception as fault:  # asyncio would only log it
            self.fault = fault
            self.abort()
        del buffer[:at]

    def _frame(self, kind: int, payload: bytes) -> None:
        if kind == HEARTBEAT:
            return
        if kind == HEADER:
            self._header = payload
            self._body.clear()
        elif kind == BODY:
            self._body += payload
        else:
            self._method(decode_method(payload))
            return
        if self._content is not None and len(self._body) == int.from_bytes(self._header[4:12], "big"):
            method, self._content = self._content, None
            if isinstance(method, BasicGetOk):
                self._answer(method)
            if self._on_delivery is not None:
                self._on_delivery(method, self._header, bytes(self._body))

    def _method(self, method: Method) -> None:
        if isinstance(method, BasicDeliver | BasicGetOk):
            self._content = method
        elif isinstance(method, BasicAck) and self._on_confirm is not None:
            self._on_confirm(method.delivery_tag, method.multiple, True)
        elif isinstance(method, BasicNack) and self._on_confirm is not None:
            self._on_confirm(method.delivery_tag, method.multiple, False)
        elif isinstance(method, ConnectionBlocked):
            self.blocked = method.reason
            self.blocked_before.append(method.reason)
        elif isinstance(method, ConnectionUnblocked):
            self.blocked = None
        elif isinstance(method, ConnectionClose) and method.reply_code == STOPPING:
            raise Gone
        elif isinstance(method, ChannelClose | ConnectionClose):
            raise Refused(f"the broker said {method}")
        else:
            self._answer(method)

    def _answer(self, method: Method) -> None:
        if not self._answers:
            raise Refused(f"the broker said {method}, and nobody asked")
        answer = self._answers.popleft()
        if not answer.done():
            answer.set_result(method)

    def _expect(self) -> asyncio.Future[Method]:
        if self.gone.is_set():
            raise self.fault or Gone()
        answer: asyncio.Future[Method] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        return answer

    async def _wait(self, answer: asyncio.Future[Method]) -> Method:
        async with asyncio.timeout(ANSWER_S):
            return await answer

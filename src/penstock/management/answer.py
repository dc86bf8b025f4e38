"""Answer: values to HTTP answers. JSON in one piece, or a long list piece by piece.

A long list is made and encoded in slices, with the broker's turn between them: ten thousand queues are ten megabytes,
and half a second of work.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final

import msgspec
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

SLICE_NS: Final = 2_000_000  # of work before the broker has its turn
PIECE_BYTES: Final = 65_536  # sent at once
_encode: Final = msgspec.json.Encoder().encode


def json_answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(value), status, dict(headers) if headers else None, "application/json")


def fault(status: int, error: str, reason: str, headers: Mapping[str, str] | None = None) -> Response:
    return json_answer({"error": error, "reason": reason}, status, headers)


class Slices:
    """Says when to let others work: `if slices.over(): await slices.rest()`."""

    __slots__ = ("_began_ns",)

    def __init__(self) -> None:
        self._began_ns = time.perf_counter_ns()

    def over(self) -> bool:
        return time.perf_counter_ns() - self._began_ns > SLICE_NS

    async def rest(self) -> None:
        await asyncio.sleep(0)
        self._began_ns = time.perf_counter_ns()


class Pieces(StreamingResponse):
    """Without starlette's second task that waits for the client to go: it costs more than most lists do."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream_response(send)


def list_answer(items: Iterable[object]) -> Response:
    """A JSON list of items that are made while it is sent."""
    return Pieces(_pieces(items), media_type="application/json")


async def _pieces(items: Iterable[object]) -> AsyncIterator[bytes]:
    piece = bytearray(b"[")
    slices = Slices()
    first = True
    for item in items:
        if not first:
            piece += b","
        first = False
        piece += _encode(item)
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
        if slices.over():
            await slices.rest()
    yield bytes(piece) + b"]"

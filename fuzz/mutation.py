"""Mutation: one input from another. Half of it knows frames, so that what comes out is still read to its end.

Known to it: the protocol header, frames with their sizes, length fields inside payloads. It breaks one of these at a
time; a stream that is wrong everywhere is refused at its first frame and finds nothing.
"""

from __future__ import annotations

import random
from typing import Final

from fuzz.sessions import word
from penstock.amqp.frame import END_BYTES, HEAD, HEAD_BYTES, OVERHEAD_BYTES, PROTOCOL_HEADER, encode_frame
from penstock.amqp.method import METHODS

INPUT_BYTES_MAX: Final = 24_576  # three frames of the sessions' frame_max; longer ones only take longer
BYTES: Final = (0, 1, 2, 3, 4, 8, 10, 20, 40, 50, 60, 0x7F, 0x80, 0xCE, 0xFE, 0xFF)
LENGTHS: Final = (0, 1, 4, 255, 4088, 4096, 8184, 8192, 8193, 1 << 16, 1 << 31, (1 << 32) - 1)
LETTERS: Final = b"tbBsuIilLfdDSxAFTV?"

Frame = tuple[int, int, bytes]  # type, channel, payload


def cut(data: bytes) -> tuple[bytes, list[Frame], bytes]:
    """The protocol header if there is one, all whole frames, and what is left."""
    head = PROTOCOL_HEADER if data.startswith(PROTOCOL_HEADER) else b""
    pos = len(head)
    frames: list[Frame] = []
    while len(data) - pos >= OVERHEAD_BYTES:
        kind, channel, size = HEAD.unpack_from(data, pos)
        stop = pos + size + OVERHEAD_BYTES
        if stop > len(data) or data[stop - 1 : stop] != END_BYTES:
            break
        frames.append((kind, channel, data[pos + HEAD_BYTES : stop - 1]))
        pos = stop
    return head, frames, data[pos:]


def joined(head: bytes, frames: list[Frame], tail: bytes) -> bytes:
    return head + b"".join(encode_frame(*frame) for frame in frames) + tail


def mutate(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """Another input: one to four changes, mostly to frames, sometimes to bytes."""
    for _ in range(chance.choice((1, 1, 2, 4))):
        data = _change_frames(chance, data, other) if chance.random() < 0.75 else _change_bytes(chance, data, other)
    return data[:INPUT_BYTES_MAX]


def _change_frames(chance: random.Random, data: bytes, other: bytes) -> bytes:
    head, frames, tail = cut(data)
    at = chance.randrange(len(frames) + 1)
    kind = chance.randrange(10)
    if kind <= 2 or not frames:
        _, words, rest = cut(word(chance))
        frames[at:at] = words
        return joined(head, frames, rest + tail)
    at = min(at, len(frames) - 1)
    if kind == 3:
        frames[at:at] = [frames[at]] * chance.choice((1, 1, 2, 16))
    elif kind == 4:
        del frames[at : at + chance.choice((1, 1, 2, 8))]
    elif kind == 5:
        to = chance.randrange(len(frames))
        frames[at], frames[to] = frames[to], frames[at]
    elif kind == 6:
        _, others, _ = cut(other)
        start = chance.randrange(len(others) + 1)
        frames[at:at] = others[start : start + chance.choice((1, 2, 8))]
    else:
        frames[at] = _changed(chance, frames[at])
    return joined(head, frames, tail)


def _changed(chance: random.Random, frame: Frame) -> Frame:
    kind, channel, payload = frame
    what = chance.randrange(6)
    if what == 0:
        return kind, chance.choice((0, 1, 2, 3, 16, 17, 65535)), payload
    if what == 1:
        return chance.choice((1, 2, 3, 8, 0, 4)), channel, payload
    if what == 2:
        return kind, channel, chance.choice(METHODS).ID.to_bytes(4, "big") + payload[4:]
    if what == 3 and payload:
        at = chance.randrange(len(payload))
        return kind, channel, payload[:at] + bytes((chance.choice(LETTERS),)) + payload[at + 1 :]
    if what == 4:
        return kind, channel, payload[: chance.randrange(len(payload) + 1)]
    return kind, channel, _change_bytes(chance, payload, payload)


def _change_bytes(chance: random.Random, data: bytes, other: bytes) -> bytes:
    if not data:
        return bytes((chance.choice(BYTES),))
    at = chance.randrange(len(data))
    kind = chance.randrange(9)
    if kind == 0:
        return data[:at] + bytes((data[at] ^ 1 << chance.randrange(8),)) + data[at + 1 :]
    if kind == 1:
        return data[:at] + bytes((chance.choice(BYTES),)) + data[at + 1 :]
    if kind == 2:
        return data[:at] + chance.choice(LENGTHS).to_bytes(4, "big") + data[at + 4 :]
    if kind == 3:
        return data[:at] + chance.choice(LENGTHS).to_bytes(8, "big") + data[at + 8 :]
    if kind == 4:
        return data[:at] + data[at + chance.choice((1, 2, 8, 64)) :]
    if kind == 5:
        return data[:at]
    if kind == 6:
        return data[:at] + chance.randbytes(chance.choice((1, 4, 16))) + data[at:]
    if kind == 7:
        return data[:at] + data[at : at + chance.choice((1, 8, 64))] * chance.choice((2, 3, 40)) + data[at:]
    start = chance.randrange(len(other)) if other else 0
    return data[:at] + other[start : start + chance.choice((4, 32, 256))] + data[at:]

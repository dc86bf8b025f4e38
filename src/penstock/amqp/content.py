"""Content: a message's header frame and body frames, kept as the one slice of bytes they came in ("wire").

Most messages leave on the channel number they came on and in frames the consumer accepts; then the wire is sent as it
is. Otherwise `refit` writes the same content for another channel or a smaller frame size.
Not here: decoding properties (properties.py), cutting the slice from the stream (decoder.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.amqp.frame import BODY, CONTENT_HEAD, END_BYTES, HEAD, HEAD_BYTES, HEADER, OVERHEAD_BYTES

if TYPE_CHECKING:
    from penstock.amqp.decoder import Publish

FLAGS_OFFSET: Final = 19  # where the property flags begin in a wire


class Coming:
    """A content that is still coming: whole frames in `parts`, then, if they come small, bare bytes in `crumbs`."""

    __slots__ = ("crumbs", "dropped", "headed", "kept", "left", "mode", "parts", "publish")

    def __init__(self, publish: Publish) -> None:
        self.publish = publish
        self.parts: list[bytes | memoryview] = []
        self.crumbs = bytearray()
        self.headed = False
        self.mode = 0  # as properties.py:check_properties says
        self.left = 0
        self.kept = 0  # bytes in parts and crumbs
        self.dropped = False


def body_size(wire: bytes) -> int:
    return int.from_bytes(wire[11:19], "big")


def header_payload(wire: bytes) -> bytes:
    """Class, weight, body size, flags and properties."""
    return wire[HEAD_BYTES : HEAD_BYTES + int.from_bytes(wire[3:7], "big")]


def properties_end(wire: bytes) -> int:
    return HEAD_BYTES + int.from_bytes(wire[3:7], "big")


def body(wire: bytes) -> bytes:
    """The body alone, out of however many frames."""
    pos = properties_end(wire) + 1
    parts = []
    while pos < len(wire):
        size = int.from_bytes(wire[pos + 3 : pos + 7], "big")
        parts.append(wire[pos + HEAD_BYTES : pos + HEAD_BYTES + size])
        pos += size + OVERHEAD_BYTES
    return parts[0] if len(parts) == 1 else b"".join(parts)


def largest_frame(wire: bytes) -> int:
    """The size of the largest frame of the wire, head and end included."""
    pos = 0
    largest = 0
    while pos < len(wire):
        size = int.from_bytes(wire[pos + 3 : pos + 7], "big") + OVERHEAD_BYTES
        largest = max(largest, size)
        pos += size
    return largest


def fits(wire: bytes, frame_max: int) -> bool:
    """Whether every frame of the wire may be sent to a peer with this frame_max (0 is no limit)."""
    return len(wire) <= frame_max or not frame_max or largest_frame(wire) <= frame_max


def build(channel: int, header: bytes, content_body: bytes, frame_max: int) -> bytes:
    """A wire from a header payload and a body. `header` must already carry the right body size."""
    parts: list[bytes | memoryview] = [HEAD.pack(HEADER, channel, len(header)), header, END_BYTES]
    step = (frame_max - OVERHEAD_BYTES) if frame_max else max(len(content_body), 1)
    view = memoryview(content_body)
    for start in range(0, len(content_body), step):
        chunk = view[start : start + step]
        parts += (HEAD.pack(BODY, channel, len(chunk)), chunk, END_BYTES)
    return b"".join(parts)


def build_basic(channel: int, properties: bytes, content_body: bytes, frame_max: int) -> bytes:
    """A wire of class basic from encoded properties (flags and values) and a body."""
    head = CONTENT_HEAD.pack(HEADER, channel, 12 + len(properties), 60, 0, len(content_body))
    return build(channel, head[HEAD_BYTES:] + properties, content_body, frame_max)


def refit(wire: bytes, channel: int, frame_max: int) -> bytes:
    """The same content on another channel, in frames of at most frame_max."""
    if fits(wire, frame_max):
        number = channel.to_bytes(2, "big")
        end = properties_end(wire) + 1
        body_end = end + OVERHEAD_BYTES + body_size(wire)
        if end == len(wire):
            return b"".join((wire[:1], number, wire[3:]))
        if body_end == len(wire):  # the body came in one frame
            return b"".join((wire[:1], number, wire[3:end], b"\x03", number, wire[end + 3 :]))
    return build(channel, header_payload(wire), body(wire), frame_max)

"""Frames: the constants and the few bytes around every payload.

    octet type | short channel | long payload size | payload | 0xCE

Not here: what payloads mean (method.py, properties.py), cutting a stream into frames (decoder.py).
"""

from __future__ import annotations

import struct
from typing import Final

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
END: Final = 0xCE
END_BYTES: Final = b"\xce"

HEAD_BYTES: Final = 7
OVERHEAD_BYTES: Final = 8  # head and end octet

FRAME_MIN_BYTES: Final = 4096  # the least a peer may ask for, and the limit before tuning (AMQP 0-9-1)
FRAME_MAX_BYTES: Final = 131_072  # what RabbitMQ offers in tune; clients are tested against it

PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

HEAD: Final = struct.Struct(">BHI")
# A content header frame up to the body size: head, class, weight, body size.
CONTENT_HEAD: Final = struct.Struct(">BHIHHQ")
CONTENT_HEAD_BYTES: Final = 19
BASIC_CLASS: Final = 60


def encode_frame(kind: int, channel: int, payload: bytes) -> bytes:
    return HEAD.pack(kind, channel, len(payload)) + payload + END_BYTES

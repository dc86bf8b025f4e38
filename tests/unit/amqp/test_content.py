"""Content: a wire taken apart, put together, and refitted for another channel or smaller frames."""

from __future__ import annotations

import pytest

from penstock.amqp import content
from penstock.amqp.frame import BODY, FRAME_MIN_BYTES, encode_frame
from penstock.amqp.properties import Properties, decode_properties, encode_properties

PROPERTIES = encode_properties(Properties(content_type="text/plain", delivery_mode=2))


def frames_of(wire: bytes) -> list[tuple[int, int, int]]:
    """Type, channel and whole size of each frame."""
    found = []
    pos = 0
    while pos < len(wire):
        size = int.from_bytes(wire[pos + 3 : pos + 7], "big") + 8
        assert wire[pos + size - 1] == 0xCE
        found.append((wire[pos], int.from_bytes(wire[pos + 1 : pos + 3], "big"), size))
        pos += size
    assert pos == len(wire)
    return found


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, 8176, 8177, 100_000])
def test_a_body_of_any_size_is_found_again(size: int) -> None:
    body = bytes(range(256)) * (size // 256 + 1)
    body = body[:size]
    wire = content.build_basic(7, PROPERTIES, body, FRAME_MIN_BYTES)
    assert content.body(wire) == body
    assert content.body_size(wire) == size
    assert content.largest_frame(wire) <= FRAME_MIN_BYTES
    found = decode_properties(wire, content.FLAGS_OFFSET, content.properties_end(wire))
    assert (found.content_type, found.delivery_mode) == ("text/plain", 2)
    assert {channel for _, channel, _ in frames_of(wire)} == {7}
    assert [kind for kind, _, _ in frames_of(wire)] == [2] + [3] * -(-size // 4088)


@pytest.mark.parametrize("size", [0, 10, 4088, 50_000])
@pytest.mark.parametrize("frame_max", [FRAME_MIN_BYTES, 131_072])
def test_a_refitted_wire_has_the_new_channel_in_every_frame_and_none_above_frame_max(size: int, frame_max: int) -> None:
    body = b"\x03\x00\x01\xce" * (size // 4)
    wire = content.build_basic(1, PROPERTIES, body, 131_072)
    fitted = content.refit(wire, 500, frame_max)
    assert content.body(fitted) == body
    assert content.header_payload(fitted) == content.header_payload(wire)
    assert all(channel == 500 and whole <= frame_max for _, channel, whole in frames_of(fitted))


def test_a_body_in_many_frames_keeps_its_bytes_when_only_the_channel_changes() -> None:
    wire = content.build_basic(1, PROPERTIES, b"", 0)[:11] + (6).to_bytes(8, "big")
    wire += PROPERTIES + b"\xce" + b"".join(encode_frame(BODY, 1, part) for part in (b"abc", b"", b"de", b"f"))
    assert content.body(wire) == b"abcdef"
    fitted = content.refit(wire, 2, 131_072)
    assert content.body(fitted) == b"abcdef"
    assert {channel for _, channel, _ in frames_of(fitted)} == {2}


def test_fits_looks_at_frames_and_not_at_the_whole() -> None:
    wire = content.build_basic(1, PROPERTIES, b"x" * 10_000, FRAME_MIN_BYTES)
    assert content.fits(wire, FRAME_MIN_BYTES)
    assert not content.fits(wire, FRAME_MIN_BYTES - 1)
    assert content.fits(wire, 0)

"""Stamped: deliveries that follow each other put on the wire with the number of each, with little work for each.

Consecutive messages have consecutive delivery tags and positions, so nearly all bytes of a delivery are those of the
one before: but for the last octet of its tag, the last three digits of its position, and its body. Those are looked up
in tables, and the rest is made anew only where it changes.
Place in the chain: inside consumer.py, for consumers that asked for numbers.
Not here: positions that do not follow each other (amqp/stamp.py:put_each), what is stamped and when (stamps.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from penstock.amqp.content import FLAGS_OFFSET, fits, refit
from penstock.amqp.decoder import Message, Publish
from penstock.amqp.frame import HEAD, HEAD_BYTES, HEADER, OVERHEAD_BYTES
from penstock.amqp.stamp import Stamp

if TYPE_CHECKING:
    from penstock.broker.consumer import Consumer

LOW_END: Final = 256  # the last octet of a tag
LOW_OCTETS: Final = tuple(bytes((octet,)) for octet in range(LOW_END))
THOUSAND: Final = 1000  # positions below it have fewer digits than the table
DIGITS: Final = tuple(b"%03d" % number for number in range(THOUSAND))
SIZE_OFFSET: Final = 11  # where the size of the body is in a wire: behind the frame's head, class and weight
UNKNOWN: Final = b"\0"  # no wire begins so


def put_run(
    consumer: Consumer,
    frames: list[bytes],
    tag: int,
    stamp: Stamp,
    life: bytes,
    position: int,
    messages: Sequence[Message],
    redelivered: bool,
) -> int:
    """Append the frames of these deliveries, with tags and positions from these on; how many bytes that is.

    A stamp's text is `life` and the position, which must be THOUSAND or above."""
    channel = consumer.channel
    number, frame_max = channel.number, channel.frame_max
    last: Publish | None = None
    own_number = False
    at = size = overhead = known_bytes = 0
    head = high = tail = start = middle = finish = behind = b""
    # What the next message must begin with to be like the last one; and if only its body is of another size.
    known = known_head = known_properties = UNKNOWN
    while at < len(messages):
        low, digit = (tag + at) % LOW_END, (position + at) % THOUSAND
        stop = min(len(messages), at + LOW_END - low, at + THOUSAND - digit)
        high_tag = ((tag + at) // LOW_END).to_bytes(7, "big")
        high = head + high_tag
        text = life + b"%d" % ((position + at) // THOUSAND)
        value = b"S" + (len(text) + 3).to_bytes(4, "big") + text
        known = known_head = UNKNOWN
        some = messages[at:stop]
        at = stop
        for (publish, wire), octet, digits in zip(some, LOW_OCTETS[low:], DIGITS[digit:], strict=False):
            if publish is not last:
                last = publish
                own_number = publish.channel == number
                tail = publish.deliver_tail
                if redelivered:
                    tail = b"\x01" + tail[1:]
                head = consumer.head(len(tail))
                high = head + high_tag
                known = known_head = UNKNOWN
            if not own_number or (len(wire) > frame_max and not fits(wire, frame_max)):
                wire = refit(wire, number, frame_max)
            if not wire.startswith(known):
                if not wire.startswith(known_head) or not wire.startswith(known_properties, FLAGS_OFFSET):
                    end = HEAD_BYTES + int.from_bytes(wire[3:7], "big")
                    payload_bytes, before, behind = stamp.template(wire, wire[FLAGS_OFFSET:end], len(value) + 3)
                    if frame_max and payload_bytes + OVERHEAD_BYTES > frame_max:
                        # Whoever gets it could not read it with one more header: so it goes as it is.
                        known = known_head = UNKNOWN
                        frames += (high, octet, tail, wire)
                        size += len(high) + 1 + len(tail) + len(wire)
                        continue
                    start = tail + HEAD.pack(HEADER, number, payload_bytes)
                    finish = before + value
                    known_head, known_properties = wire[:SIZE_OFFSET], wire[FLAGS_OFFSET : end + 1]
                    known_bytes = end + 1
                known = wire[:known_bytes]
                middle = start + wire[HEAD_BYTES:FLAGS_OFFSET] + finish
                overhead = len(high) + 1 + len(middle) + 3 + len(behind) - known_bytes
            frames += (high, octet, middle, digits, behind, wire[known_bytes:])
            size += overhead + len(wire)
    return size

"""Sequence: publishes whose bodies count up without end, and the check that deliveries count up too. No I/O.

A body begins with the number of its block and its place in the block, so that a block is a template with one number to
fill in, and a block of deliveries is checked column by column: twelve slices for hundreds of messages, not a loop.
Not here: sockets (load.py), who fills and drains (bench/backlog.py).
"""

from collections.abc import Sequence

from penstock.amqp.properties import Properties
from penstock.perf.block import Block, NotADelivery, delivery_bytes, publish, read_delivery

BLOCK_DIGITS = 8
PLACE_DIGITS = 4
BODY_BYTES_MIN = BLOCK_DIGITS + PLACE_DIGITS
MARK = b"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8"  # stands for the block's number in the template: in nothing else


class Blocks:
    """Blocks of `places` messages to each queue, the queues in turn message by message."""

    __slots__ = ("_template", "messages", "places")

    def __init__(
        self, queues: Sequence[str], places: int, body_bytes: int, properties: Properties, frame_max: int
    ) -> None:
        if body_bytes < BODY_BYTES_MIN:
            raise ValueError(f"a body of {body_bytes} bytes has no room for its number: {BODY_BYTES_MIN} at least")
        self.places = places
        self.messages = places * len(queues)
        self._template = b"".join(
            publish("", queue, properties, _body(MARK, place, body_bytes), frame_max)
            for place in range(places)
            for queue in queues
        )

    def block(self, number: int) -> Block:
        return Block(self._template.replace(MARK, b"%0*d" % (BLOCK_DIGITS, number)), self.messages)


class Order:
    """Deliveries of one queue, taken block by block: each must be the one whose turn it is."""

    __slots__ = ("_columns", "_offset", "checked", "places", "size")

    def __init__(self, first: bytes, places: int) -> None:
        """`first` begins with the first delivery: it tells the size of all, and where their bodies lie."""
        self.size = delivery_bytes(first)
        found = read_delivery(first[: self.size])
        self._offset = self.size - 1 - found.body_bytes  # one frame: it ends with one byte after the body
        self.places = places
        self.checked = 0  # blocks
        # What the last digits of a body are, down a block's column.
        places_digits = [b"%0*d" % (PLACE_DIGITS, place) for place in range(places)]
        self._columns = [bytes(digits[column] for digits in places_digits) for column in range(PLACE_DIGITS)]

    @property
    def block_bytes(self) -> int:
        return self.size * self.places

    def check(self, block: bytes | bytearray | memoryview) -> None:
        """NotADelivery unless this, of block_bytes, is the next block."""
        digits = b"%0*d" % (BLOCK_DIGITS, self.checked)
        at, size, places = self._offset, self.size, self.places
        for column in range(BLOCK_DIGITS):
            if bytes(block[at + column :: size]) != digits[column : column + 1] * places:
                raise NotADelivery(self._wrong(bytes(block)))
        at += BLOCK_DIGITS
        for column, due in enumerate(self._columns):
            if bytes(block[at + column :: size]) != due:
                raise NotADelivery(self._wrong(bytes(block)))
        self.checked += 1

    def _wrong(self, block: bytes) -> str:
        """Which delivery of the block is not the one that was due."""
        for place in range(self.places):
            at = place * self.size + self._offset
            found = block[at : at + BODY_BYTES_MIN]
            due = b"%0*d%0*d" % (BLOCK_DIGITS, self.checked, PLACE_DIGITS, place)
            if found != due:
                return f"delivery {self.checked * self.places + place + 1} is message {found!r} where {due!r} was due"
        raise AssertionError("the block was right")


def _body(number: bytes, place: int, size: int) -> bytes:
    return (number + b"%0*d" % (PLACE_DIGITS, place)).ljust(size, b"x")

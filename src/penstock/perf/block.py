"""Block: the bytes of a load, made before it starts and checked after it ends. No I/O.

A publisher sends blocks: many publishes in one bytes object, so that a message costs it no Python at all.
A consumer counts bytes: all deliveries of a run have one size, which it learns from the first of them.
Not here: sockets and time (load.py), confirms (confirm.py).
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.amqp.close import CloseConnection
from penstock.amqp.content import build_basic
from penstock.amqp.frame import (
    BASIC_CLASS,
    BODY,
    CONTENT_HEAD,
    CONTENT_HEAD_BYTES,
    END,
    HEAD,
    HEAD_BYTES,
    HEADER,
    METHOD,
    OVERHEAD_BYTES,
)
from penstock.amqp.method import BasicAck, BasicDeliver, BasicPublish, decode_method, encode_method
from penstock.amqp.properties import Properties, encode_properties

CHANNEL = 1  # a worker has a connection of its own, and opens one channel
BLOCK_BYTES = 65_536  # about what a sender's socket buffer takes at once; larger measured no cheaper
BLOCK_MESSAGES_MAX = 500  # so that a stop, which waits for the block's end, comes soon
NUMBER_BYTES = 8  # a body begins with its message's number in the publisher's cycle, if it is long enough

ACK = struct.Struct(">BHIIQBB")  # head, method id, tag, multiple, end: a whole frame
ACK_PAYLOAD_BYTES = 13


class NotADelivery(Exception):
    """The broker sent something else where a delivery was due, or a delivery that is not what was published."""


@dataclass(frozen=True, slots=True)
class Block:
    """Publishes ready to be sent, and how many they are."""

    wire: bytes
    messages: int


@dataclass(frozen=True, slots=True)
class Delivery:
    tag: int
    exchange: str
    routing_key: str
    body_bytes: int
    number: bytes  # the first bytes of the body


def numbered_body(number: int, size: int) -> bytes:
    """A body that tells which message it is: no two of a cycle are alike, and all are of one size."""
    return (b"%0*d" % (NUMBER_BYTES, number)).ljust(size, b"x") if size >= NUMBER_BYTES else b"x" * size


def publish(
    exchange: str, routing_key: str, properties: Properties, body: bytes, frame_max: int, channel: int = CHANNEL
) -> bytes:
    """One message as its publisher sends it: method, header and as many body frames as frame_max asks for."""
    method = encode_method(BasicPublish(exchange, routing_key), channel)
    return method + build_basic(channel, encode_properties(properties), body, frame_max)


def block_messages(message_bytes: int) -> int:
    """How many messages of this size make a block."""
    return max(1, min(BLOCK_MESSAGES_MAX, BLOCK_BYTES // message_bytes))


def block(messages: Iterable[bytes]) -> Block:
    wires = list(messages)
    return Block(b"".join(wires), len(wires))


def acks(acked: int, delivered: int, batch: int) -> tuple[bytes, int]:
    """Ack frames for every whole batch between the two tags, and the last tag acked."""
    tags = range(acked + batch, delivered + 1, batch)
    frames = [ACK.pack(METHOD, CHANNEL, ACK_PAYLOAD_BYTES, BasicAck.ID, tag, 1, END) for tag in tags]
    return b"".join(frames), tags[-1] if tags else acked


def delivery_bytes(buffer: bytes | bytearray) -> int:
    """The size of the delivery at the start of the buffer; 0 while it is not all there; NotADelivery if it is none."""
    method_end = _frame_end(buffer, 0, METHOD)
    if not method_end or len(buffer) < method_end + CONTENT_HEAD_BYTES:
        return 0
    if int.from_bytes(buffer[HEAD_BYTES : HEAD_BYTES + 4], "big") != BasicDeliver.ID:
        raise NotADelivery(_unexpected(bytes(buffer[HEAD_BYTES : method_end - 1])))
    _, _, _, class_id, _, left = CONTENT_HEAD.unpack_from(buffer, method_end)
    end = _frame_end(buffer, method_end, HEADER)
    if class_id != BASIC_CLASS:
        raise NotADelivery(f"the broker sent a content header of class {class_id}")
    while end and left:
        stop = _frame_end(buffer, end, BODY)
        if not stop:
            return 0
        left -= stop - end - OVERHEAD_BYTES
        end = stop
    return end


def read_delivery(buffer: bytes) -> Delivery:
    """The delivery in this buffer, which must hold it and nothing else."""
    if delivery_bytes(buffer) != len(buffer):
        raise NotADelivery(f"a delivery is {delivery_bytes(buffer)} bytes where {len(buffer)} were due")
    method_end = _frame_end(buffer, 0, METHOD)
    method = decode_method(buffer[HEAD_BYTES : method_end - 1])
    assert isinstance(method, BasicDeliver)  # delivery_bytes saw its id
    _, _, header_bytes, _, _, body_bytes = CONTENT_HEAD.unpack_from(buffer, method_end)
    body_at = method_end + header_bytes + OVERHEAD_BYTES + HEAD_BYTES
    number = buffer[body_at : body_at + NUMBER_BYTES] if body_bytes >= NUMBER_BYTES else b""
    return Delivery(method.delivery_tag, method.exchange, method.routing_key, body_bytes, number)


def check_delivery(buffer: bytes, tag: int, body_bytes: int, cycle: int = 0) -> None:
    """NotADelivery unless tag and body size are these and, of a publisher that goes through `cycle` messages in order,
    the body is the one whose turn it is (0: the order is not known).
    """
    found = read_delivery(buffer)
    if found.tag != tag:
        raise NotADelivery(f"delivery {tag} carries the tag {found.tag}: messages were lost or doubled")
    if found.body_bytes != body_bytes:
        raise NotADelivery(f"delivery {tag} has a body of {found.body_bytes} bytes, {body_bytes} were published")
    if cycle and body_bytes >= NUMBER_BYTES:
        due = numbered_body((tag - 1) % cycle, NUMBER_BYTES)
        if found.number != due:
            raise NotADelivery(
                f"delivery {tag} is message {found.number!r} where {due!r} was due: order or bodies are wrong"
            )


def _frame_end(buffer: bytes | bytearray, start: int, kind: int) -> int:
    """Where the frame at `start` ends; 0 while it is not all there."""
    if len(buffer) < start + HEAD_BYTES:
        return 0
    found, channel, size = HEAD.unpack_from(buffer, start)
    if found != kind or channel != CHANNEL:
        if found == METHOD and len(buffer) >= start + size + OVERHEAD_BYTES:
            raise NotADelivery(_unexpected(bytes(buffer[start + HEAD_BYTES : start + HEAD_BYTES + size])))
        raise NotADelivery(f"the broker sent a frame of type {found} on channel {channel}, type {kind} was due")
    end: int = start + size + OVERHEAD_BYTES
    if len(buffer) < end:
        return 0
    if buffer[end - 1] != END:
        raise NotADelivery(f"a frame of {size} bytes has no end")
    return end


def _unexpected(payload: bytes) -> str:
    try:
        return f"the broker sent {decode_method(payload)} where a delivery was due"
    except CloseConnection as error:
        return f"the broker sent a method that cannot be read: {error.text}"

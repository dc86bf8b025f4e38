"""Publish: a decoded basic.publish, the message it came with, and several of them in a row.

Place in the chain: made by decoder.py, through which they are imported; carried from there to the consumer's wire.
Not here: cutting them from the stream (decoder.py), the content's bytes (content.py).
"""

from __future__ import annotations

from typing import Final

from penstock.amqp.fault import bad_publish
from penstock.amqp.method import BasicPublish

_PUBLISH_START: Final = BasicPublish.ID.to_bytes(4, "big") + b"\0\0"
BOTH: Final = 3  # delivery modes

Publishing = tuple[str, int]  # a producer, and the id it gave a message


class Publish:
    """A decoded basic.publish; one object for all publishes of a connection with the same bytes."""

    __slots__ = (
        "_origin",
        "bcc",
        "channel",
        "deliver_tail",
        "exchange",
        "immediate",
        "mandatory",
        "route",
        "routing_key",
    )

    def __init__(self, channel: int, payload: bytes) -> None:
        # class and method (4), reserved (2), exchange, routing key, flags (1)
        try:
            key_at = 7 + payload[6]
            end = key_at + 1 + payload[key_at]
            flags = payload[end]
        except IndexError:
            raise bad_publish(payload) from None
        if len(payload) != end + 1:
            raise bad_publish(payload)
        self.channel = channel
        # Names are bytes to RabbitMQ; surrogates keep what is not UTF-8 apart and intact.
        self.exchange = payload[7:key_at].decode("utf-8", "surrogateescape")
        self.routing_key = payload[key_at + 1 : end].decode("utf-8", "surrogateescape")
        self.mandatory = bool(flags & 1)
        self.immediate = bool(flags & 2)
        # Exchange and key as short strings are the end of basic.deliver too; here with redelivered=false before them.
        self.deliver_tail = b"\x00" + payload[6:end] + b"\xce"
        self.route: object = None  # where it led last, for whoever routes (broker/router.py)
        self.bcc: tuple[str, ...] = ()  # keys a message was routed by that no consumer may see (rules.py sets them)
        self._origin = b""

    def origin(self) -> bytes:
        """All of it that outlives the connection, as bytes; `from_origin` reads them."""
        if not self._origin:
            parts = [self.channel.to_bytes(2, "big"), self.deliver_tail[1:-1]]
            parts += (_short(key) for key in self.bcc)
            self._origin = b"".join(parts)
        return self._origin

    def hiding(self, keys: tuple[str, ...]) -> Publish:
        """The same publish, routed by these keys too."""
        flags = bytes((self.mandatory | self.immediate << 1,))
        publish = Publish(self.channel, _PUBLISH_START + self.deliver_tail[1:-1] + flags)
        publish.bcc = keys
        return publish

    def __repr__(self) -> str:
        return f"<Publish exchange={self.exchange!r} key={self.routing_key!r}>"


def from_origin(origin: bytes) -> Publish:
    """The publish that these bytes were made of."""
    strings: list[bytes] = []
    at = 2
    while at < len(origin):
        stop = at + 1 + origin[at]
        strings.append(origin[at:stop])
        at = stop
    publish = Publish(int.from_bytes(origin[:2], "big"), b"".join((_PUBLISH_START, *strings[:2], b"\0")))
    publish.bcc = tuple(key[1:].decode("utf-8", "surrogateescape") for key in strings[2:])
    return publish


def _short(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogateescape")
    return bytes((len(raw),)) + raw


Message = tuple[Publish, bytes]  # how it was published, and its content as it was on the wire (content.py)


class Publishes:
    """Consecutive publishes of one channel. `alike`: all with the same method, so that one routing serves them all;
    `plain`: none has a property that the broker has rules for; `modes`: TRANSIENT, PERSISTENT or both; `publishings`,
    if there: all are plain but for the number that their producer gave them, and these are the numbers."""

    __slots__ = ("alike", "bytes", "channel", "messages", "modes", "plain", "publishings")

    def __init__(
        self,
        channel: int,
        messages: list[Message],
        bytes_: int,
        alike: bool,
        plain: bool = True,
        modes: int = BOTH,
        publishings: list[Publishing] | None = None,
    ) -> None:
        self.channel = channel
        self.messages = messages
        self.bytes = bytes_  # of the contents
        self.alike = alike
        self.plain = plain
        self.modes = modes
        self.publishings = publishings

    def first(self, count: int) -> Publishes:
        """The first messages of this item as an item."""
        messages = self.messages[:count]
        size = sum(len(wire) for _, wire in messages)
        publishings = self.publishings[:count] if self.publishings is not None else None
        return Publishes(self.channel, messages, size, self.alike, self.plain, self.modes, publishings)

    def cut(self, count: int) -> Publishes:
        """The first messages of this item as an item; they are not in this one any more."""
        head = self.first(count)
        self.messages = self.messages[count:]
        self.bytes -= head.bytes
        if self.publishings is not None:
            self.publishings = self.publishings[count:]
        return head

    def __repr__(self) -> str:
        first = self.messages[0][0]
        return f"<Publishes channel={self.channel} {first!r} messages={len(self.messages)} bytes={self.bytes}>"


def within(messages: list[Message], bytes_: int, room: int, room_bytes: int) -> int:
    """How many of the messages, of this many bytes, use up a room; the one that crosses it by its bytes still goes."""
    count = min(room, len(messages))
    if bytes_ > room_bytes:
        size = 0
        for at, (_, wire) in enumerate(messages[:count], 1):
            size += len(wire)
            if size >= room_bytes:
                return at
    return count

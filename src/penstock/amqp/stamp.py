"""Stamp: one header more in contents that are otherwise passed on as they are, quickly.

Most messages have the same properties as the one before, so the bytes around the header are made once for all of them;
then a stamp is a lookup and a join. An entry of the same name that the publisher put in is replaced.
Place in the chain: beside it. Not here: what is stamped, and for whom (broker/stamps.py); rare changes (rewrite.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.amqp.content import FLAGS_OFFSET, properties_end
from penstock.amqp.flags import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    HEADERS,
)
from penstock.amqp.frame import HEAD, HEAD_BYTES, HEADER
from penstock.amqp.publish import Message
from penstock.amqp.table import encode_short_string, table_entries

TEMPLATES_MAX: Final = 1024  # then they are forgotten all at once
PROPERTIES_BYTES_MAX: Final = 1024  # longer ones are stamped, but not remembered


# Bytes of the header frame's payload, what comes before the value, and what comes behind it, the frame's end included.
Template = tuple[int, bytes, bytes]


class Stamp:
    __slots__ = ("_entry", "_name", "_templates")

    def __init__(self, name: str) -> None:
        self._name = name
        self._entry = encode_short_string(name)
        # By the length of the value, then by the properties.
        self._templates: dict[int, dict[bytes, Template]] = {}

    def put(self, wire: bytes, value: bytes, frame_max: int = 0) -> bytes:
        """The content with this header; the value is given as its bytes, letter and all. If the header frame would be
        larger than frame_max (0 is no limit), the content as it is: whoever gets it could not read it otherwise."""
        end = HEAD_BYTES + int.from_bytes(wire[3:7], "big")
        size, before, behind = self.template(wire, wire[FLAGS_OFFSET:end], len(value))
        if frame_max and size + HEAD_BYTES + 1 > frame_max:
            return wire
        head = HEAD.pack(HEADER, wire[1] << 8 | wire[2], size)
        return b"".join((head, wire[HEAD_BYTES:FLAGS_OFFSET], before, value, behind, wire[end + 1 :]))

    def put_each(self, messages: Sequence[Message], values: Sequence[bytes], frame_max: int = 0) -> list[Message]:
        """The same for many: what a message shares with the one before is not looked up again."""
        stamped: list[Message] = []
        known = head = before = behind = b""
        value_bytes = -1
        fits = False
        for (publish, wire), value in zip(messages, values, strict=True):
            end = HEAD_BYTES + int.from_bytes(wire[3:7], "big")
            properties = wire[1:3] + wire[FLAGS_OFFSET:end]  # the channel's number is in the head too
            if properties != known or len(value) != value_bytes:
                size, before, behind = self.template(wire, wire[FLAGS_OFFSET:end], len(value))
                head = HEAD.pack(HEADER, wire[1] << 8 | wire[2], size)
                fits = not frame_max or size + HEAD_BYTES + 1 <= frame_max
                known, value_bytes = properties, len(value)
            if fits:
                wire = b"".join((head, wire[HEAD_BYTES:FLAGS_OFFSET], before, value, behind, wire[end + 1 :]))
            stamped.append((publish, wire))
        return stamped

    def template(self, wire: bytes, properties: bytes, value_bytes: int) -> Template:
        """What stands around a value of so many bytes in the header frame of a content with these properties."""
        templates = self._templates.get(value_bytes)
        template = templates.get(properties) if templates is not None else None
        if template is None:
            template = self._make(wire, value_bytes)
            if len(properties) <= PROPERTIES_BYTES_MAX:
                self._remember(value_bytes, properties, template)
        return template

    def _remember(self, value_bytes: int, properties: bytes, template: Template) -> None:
        templates = self._templates.setdefault(value_bytes, {})
        if len(templates) >= TEMPLATES_MAX:
            templates.clear()
        templates[properties] = template

    def _make(self, wire: bytes, value_bytes: int) -> Template:
        end = properties_end(wire)
        flags = int.from_bytes(wire[FLAGS_OFFSET : FLAGS_OFFSET + 2], "big")
        table_at = FLAGS_OFFSET + 2
        if flags & CONTENT_TYPE:
            table_at += 1 + wire[table_at]
        if flags & CONTENT_ENCODING:
            table_at += 1 + wire[table_at]
        rest_at = table_at
        entries = b""
        if flags & HEADERS:
            rest_at += 4 + int.from_bytes(wire[table_at : table_at + 4], "big")
            entries = wire[table_at + 4 : rest_at]
            if self._entry in entries:
                entries = b"".join(
                    wire[start:stop] for key, start, stop in table_entries(wire, table_at) if key != self._name
                )
        before = b"".join(
            (
                (flags | HEADERS).to_bytes(2, "big"),
                wire[FLAGS_OFFSET + 2 : table_at],
                (len(entries) + len(self._entry) + value_bytes).to_bytes(4, "big"),
                entries,
                self._entry,
            )
        )
        behind = wire[rest_at : end + 1]
        size = FLAGS_OFFSET - HEAD_BYTES + len(before) + value_bytes + len(behind) - 1
        return size, before, behind

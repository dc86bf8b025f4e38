"""Decoder: a byte stream, however it is split, to the values the reader works with. No I/O.

Place in the chain: the socket's bytes come in by `feed`; what comes out goes to net/reader.py.
The path of publishes and acks is by hand, because it is taken for every message: consecutive publishes of a channel
become one `Publishes`, a method frame seen before is looked up by its bytes, and while even the properties and the body
size repeat, a whole message costs one comparison and one slice. Every other method goes through the table in method.py.
A fault of the peer ends the stream: `error` is set, and what was decoded before it is still returned.
Not here: whether a channel is open or a method allowed (net/reader.py, broker/channel.py).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from penstock.amqp.bounds import UNBOUNDED, Bounds
from penstock.amqp.close import COMMAND_INVALID, UNEXPECTED_FRAME, CloseConnection
from penstock.amqp.content import FLAGS_OFFSET, Coming
from penstock.amqp.fault import bad_frame, frame_too_large, not_open, unexpected, unfinished, wrong_class
from penstock.amqp.frame import (
    BASIC_CLASS,
    BODY,
    CONTENT_HEAD,
    CONTENT_HEAD_BYTES,
    END,
    FRAME_MIN_BYTES,
    HEAD,
    HEAD_BYTES,
    HEADER,
    HEARTBEAT,
    METHOD,
    OVERHEAD_BYTES,
    encode_frame,
)
from penstock.amqp.item import Acks as Acks
from penstock.amqp.item import Command as Command
from penstock.amqp.item import Nack as Nack
from penstock.amqp.item import Oversize as Oversize
from penstock.amqp.method import (
    BasicAck,
    BasicDeliver,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicReject,
    BasicReturn,
    ConnectionTuneOk,
    decode_method,
)
from penstock.amqp.numbering import NUMBERED_BYTES, Numbering
from penstock.amqp.properties import SPECIAL, check_properties
from penstock.amqp.publish import BOTH, Publishing
from penstock.amqp.publish import Message as Message
from penstock.amqp.publish import Publish as Publish
from penstock.amqp.publish import Publishes as Publishes
from penstock.amqp.publish import within as within

_NUMBERED_MODE: Final = 8  # beside the delivery mode
PUBLISH_CACHE_MAX: Final = 2048  # distinct publish methods remembered per connection; then forgotten all at once
GOOD_PROPERTIES_MAX: Final = 256  # distinct properties remembered per connection as well formed and plain
GOOD_PROPERTIES_BYTES_MAX: Final = 256

PUBLISH: Final = BasicPublish.ID
ACK: Final = BasicAck.ID
NACK: Final = BasicNack.ID
REJECT: Final = BasicReject.ID
ACK_FRAME_BYTES: Final = 21
CONTENTS_MAX: Final = 65_535  # as many as there are channel numbers
STRANGER_CONTENTS_MAX: Final = 16  # contents begun before the login is done: only by who sends it all in one go,
STRANGER_BYTES_MAX: Final = 262_144  # and then as much as one read from the socket brings
CHUNKS_MAX: Final = 64  # pieces of a frame kept apart: many tiny ones would cost more than their bytes
LONG_FRAME_BYTES: Final = 16_384  # from here on, joining the frame alone beats joining all that came with its end
CRUMB_BYTES: Final = FRAME_MIN_BYTES - OVERHEAD_BYTES  # body frames below this, but for the last, are put together

_METHOD_ID = Struct(">I")
_TAG_FLAGS = Struct(">QB")
_unpack_head = HEAD.unpack_from
_unpack_id = _METHOD_ID.unpack_from
_unpack_content = CONTENT_HEAD.unpack_from
_unpack_tag = _TAG_FLAGS.unpack_from


Item = Publishes | Acks | Nack | Command | Oversize


class Decoder:
    __slots__ = (
        "_chunks",
        "_contents",
        "_good_properties",
        "_have",
        "_mode",
        "_need",
        "_numbering",
        "_offered",
        "_publishes",
        "_unfinished",
        "body_max",
        "bounds",
        "contents_max",
        "error",
        "frame_max",
        "numbers",
        "unfinished_max",
    )

    def __init__(self, body_max: int, bounds: Bounds = UNBOUNDED) -> None:
        self.frame_max = FRAME_MIN_BYTES  # until tuned
        self.body_max = body_max
        self.bounds = bounds
        self.contents_max = CONTENTS_MAX  # begun and not finished, at a time
        self.unfinished_max = bounds.unfinished_bytes
        self.error: CloseConnection | None = None
        self._offered = 0  # in tune, while there is no tune-ok
        self._chunks: list[bytes] = []
        self._have = self._need = 0
        self._contents: dict[int, Coming] = {}
        self._unfinished = 0  # bytes kept of contents still coming
        self._publishes: dict[bytes, Publish] = {}
        self._good_properties: dict[bytes, int] = {}  # with their delivery mode
        self._mode = 0  # of the content at hand; and whether it is numbered
        self._numbering = Numbering(bounds)
        self.numbers = True  # whether the peer means it when its messages are numbered

    def feed(self, data: bytes) -> list[Item]:
        """Decode what is whole; keep the rest. After a fault `error` is set and nothing more is decoded."""
        items: list[Item] = []
        if self.error is not None:
            return items
        pos = 0
        try:
            if self._chunks:
                if self._have + len(data) < self._need:
                    self._keep(data)
                    return items
                if self._need >= LONG_FRAME_BYTES:
                    # Complete the one frame and leave the rest of the data where it is.
                    pos = self._need - self._have
                    self._chunks.append(data[:pos])
                    self._cut(b"".join(self._chunks), 0, items)
                else:
                    self._chunks.append(data)
                    data = b"".join(self._chunks)
                self._chunks.clear()
                self._have = 0
            pos = self._cut(data, pos, items)
        except CloseConnection as fault:
            self.error = fault
            self._chunks.clear()
            self._contents.clear()
            self._unfinished = 0
            return items
        if pos < len(data):
            self._keep(data[pos:] if pos else data)
        return items

    def distrust(self, offered: int) -> None:
        """Until `tuned`: the peer has not logged in, and a larger frame_max than AMQP's least is only offered."""
        self._offered = offered
        self.contents_max = STRANGER_CONTENTS_MAX
        self.unfinished_max = min(STRANGER_BYTES_MAX, self.bounds.unfinished_bytes)

    def tuned(self, frame_max: int, channel_max: int) -> None:
        self._offered = 0
        self.frame_max = frame_max
        self.contents_max = channel_max
        self.unfinished_max = self.bounds.unfinished_bytes

    def _keep(self, data: bytes) -> None:
        """The begin of a frame. Joined when the frame is whole, or a slow sender would cost a copy per packet."""
        self._chunks.append(data)
        self._have += len(data)
        if len(self._chunks) >= CHUNKS_MAX:
            self._chunks = [b"".join(self._chunks)]

    def forget(self, channel: int) -> None:
        """The channel is closed: a content it began will not be finished."""
        content = self._contents.pop(channel, None)
        if content is not None:
            self._unfinished -= content.kept

    def buffered_bytes(self) -> int:
        """What waits here for the rest of a frame or of a body."""
        total = sum(map(len, self._chunks))
        for content in self._contents.values():
            total += sum(map(len, content.parts)) + len(content.crumbs)
        return total

    def _cut(self, buf: bytes, pos: int, items: list[Item]) -> int:
        """Cut frames from here on; where the first one begins that is not whole."""
        end = len(buf)
        contents = self._contents
        while end - pos >= HEAD_BYTES:
            kind, channel, size = _unpack_head(buf, pos)
            if size > self.frame_max:  # RabbitMQ too grants 8 bytes more than frame_max says
                raise frame_too_large(kind, size, self.frame_max)
            stop = pos + size + OVERHEAD_BYTES
            if stop > end:
                self._need = stop - pos
                return pos
            if buf[stop - 1] != END:
                raise bad_frame(buf, pos, stop, f"{{invalid_frame_end_marker,{buf[stop - 1]}}}")
            if kind == METHOD:
                if contents and channel in contents:
                    raise unexpected(True, contents[channel].headed)
                if size < 4:
                    raise bad_frame(buf, pos, stop, "unknown_frame")
                method_id = _unpack_id(buf, pos + HEAD_BYTES)[0]
                if method_id == PUBLISH and channel:
                    pos = self._cut_publishes(buf, pos, stop, channel, items)
                    continue
                if method_id == ACK and size == 13 and channel:
                    pos = self._cut_acks(buf, pos, channel, items)
                    continue
                self._method(buf, pos, stop, channel, method_id, items)
            elif kind == HEADER:
                self._header(buf, pos, stop, channel, items)
            elif kind == BODY:
                self._body(buf, pos, stop, channel, items)
            elif kind != HEARTBEAT or size:
                raise bad_frame(buf, pos, stop, "unknown_frame")
            elif channel:
                raise CloseConnection(UNEXPECTED_FRAME, f"type {HEARTBEAT}, all octets = <<>>")
            pos = stop
        self._need = HEAD_BYTES
        return pos

    def _cut_publishes(self, buf: bytes, pos: int, stop: int, channel: int, items: list[Item]) -> int:
        """From a whole basic.publish frame on: this message and all that follow with the very same method frame."""
        end = len(buf)
        payload = buf[pos + HEAD_BYTES : stop - 1]
        key = buf[pos + 1 : stop - 1]  # channel and payload
        publish = self._publishes.get(key)
        if publish is None:
            publish = Publish(channel, payload)
            if len(self._publishes) >= PUBLISH_CACHE_MAX:
                self._publishes.clear()
            self._publishes[key] = publish
        method_frame = buf[pos:stop]
        method_bytes = stop - pos
        begin = pos
        modes = 0
        messages: list[Message] = []
        publishings: list[Publishing] = []
        while True:
            at = pos + method_bytes
            done = self._whole_content(buf, at, channel)
            if not done:
                # Cut by the end of the buffer, in several body frames, not plain, or wrong: it goes frame by frame.
                self._begin(channel, publish)
                stop = at
                break
            mode = self._mode
            if mode != modes and messages and (mode ^ modes) & _NUMBERED_MODE:
                size = pos - begin - len(messages) * method_bytes
                self._add(channel, messages, size, True, modes & BOTH, items, publishings or None)
                messages, publishings, modes, begin = [], [], 0, pos
            messages.append((publish, buf[at:done]))
            modes |= mode
            # While method, properties and body size repeat to the byte, a message is one comparison and one slice.
            body_bytes = int.from_bytes(buf[at + 11 : at + CONTENT_HEAD_BYTES], "big")
            prefix = buf[pos : done - body_bytes - 1] if body_bytes else buf[pos:done]
            stride = done - pos
            pos = done
            done += stride
            while done <= end and buf.startswith(prefix, pos) and buf[done - 1] == END:
                messages.append((publish, buf[pos + method_bytes : done]))
                pos = done
                done += stride
            if mode & _NUMBERED_MODE:  # the same number as often as the same message
                publishings += [self._numbering.publishing] * (len(messages) - len(publishings))
            if not buf.startswith(method_frame, pos):
                stop = pos
                break
        if messages:
            size = pos - begin - len(messages) * method_bytes
            self._add(channel, messages, size, True, modes & BOTH, items, publishings or None)
        return stop

    def _begin(self, channel: int, publish: Publish) -> None:
        """A content comes in pieces. The reader sees a publish when it is whole, so channels that were never opened
        must be found here, or a peer could begin a content on every number, even before it has logged in."""
        if len(self._contents) >= self.contents_max:
            raise not_open()
        self._contents[channel] = Coming(publish)

    def _keep_content(self, content: Coming, size: int) -> None:
        content.kept += size
        self._unfinished += size
        if content.left and self._unfinished > self.unfinished_max:
            raise unfinished(self.unfinished_max)

    def _add(
        self,
        channel: int,
        messages: list[Message],
        bytes_: int,
        plain: bool,
        modes: int,
        items: list[Item],
        publishings: list[Publishing] | None = None,
    ) -> None:
        """Publishes that follow each other on a channel are one item, whatever their methods."""
        if items:
            last = items[-1]
            if (
                type(last) is Publishes
                and last.channel == channel
                and last.plain == plain
                and (last.publishings is None) == (publishings is None)
            ):
                last.alike = last.alike and last.messages[0][0] is messages[0][0]
                last.messages += messages
                last.bytes += bytes_
                last.modes |= modes
                if last.publishings is not None and publishings is not None:
                    last.publishings += publishings
                return
        items.append(Publishes(channel, messages, bytes_, True, plain, modes, publishings))

    def _whole_content(self, buf: bytes, at: int, channel: int) -> int:
        """Where the content ends whose header frame begins here, if whole, right, plain, and in one body frame."""
        end = len(buf)
        if end - at < CONTENT_HEAD_BYTES:
            return 0
        kind, number, size, class_id, weight, body_bytes = _unpack_content(buf, at)
        body_at = at + size + OVERHEAD_BYTES
        done: int = body_at + body_bytes + OVERHEAD_BYTES if body_bytes else body_at
        if done > end or kind != HEADER or number != channel or class_id != BASIC_CLASS or weight:
            return 0
        if size > self.frame_max or body_bytes > self.frame_max or body_bytes > self.body_max:
            return 0
        if buf[body_at - 1] != END or buf[done - 1] != END:
            return 0
        if body_bytes and _unpack_head(buf, body_at) != (BODY, channel, body_bytes):
            return 0
        properties = buf[at + FLAGS_OFFSET : body_at - 1]
        mode = self._good_properties.get(properties, 0)
        if not mode:
            try:
                if self.numbers and len(properties) >= NUMBERED_BYTES and self._numbering.read(properties):
                    mode = self._numbering.mode | _NUMBERED_MODE
                else:
                    mode = self._check_properties(properties)
            except CloseConnection:
                return 0  # raised again, in its turn
            if mode & SPECIAL:
                return 0
        self._mode = mode
        return done

    def _cut_acks(self, buf: bytes, pos: int, channel: int, items: list[Item]) -> int:
        end = len(buf)
        prefix = buf[pos : pos + 11]
        acks: list[tuple[int, bool]] = []
        while True:
            tag, flags = _unpack_tag(buf, pos + 11)
            acks.append((tag, flags & 1 == 1))
            pos += ACK_FRAME_BYTES
            if pos + ACK_FRAME_BYTES > end or not buf.startswith(prefix, pos) or buf[pos + 20] != END:
                items.append(Acks(channel, acks))
                return pos

    def _method(self, buf: bytes, pos: int, stop: int, channel: int, method_id: int, items: list[Item]) -> None:
        if channel and stop - pos == ACK_FRAME_BYTES and method_id in (NACK, REJECT):
            tag, flags = _unpack_tag(buf, pos + 11)
            if method_id == NACK:
                items.append(Nack(channel, method_id, tag, flags & 1 == 1, flags & 2 == 2))
            else:
                items.append(Nack(channel, method_id, tag, False, flags & 1 == 1))
            return
        method = decode_method(buf[pos + HEAD_BYTES : stop - 1], self.bounds)
        if isinstance(method, (BasicDeliver, BasicReturn, BasicGetOk)):
            # Only a server sends these, and a content behind them: said at once, or the content would be the fault.
            raise CloseConnection(COMMAND_INVALID, "unimplemented method", method_id >> 16, method_id & 0xFFFF)
        items.append(Command(channel, method))
        # The next frame of the same read may be as large as tune-ok says; whether it may say so is seen later.
        if isinstance(method, ConnectionTuneOk) and FRAME_MIN_BYTES <= method.frame_max <= self._offered:
            self.frame_max = method.frame_max

    def _check_properties(self, properties: bytes) -> int:
        """Broken properties are the publisher's fault: found here, not by whoever reads them later."""
        mode = check_properties(properties, 0, len(properties), self.bounds)
        if not mode & SPECIAL and len(properties) <= GOOD_PROPERTIES_BYTES_MAX:
            if len(self._good_properties) >= GOOD_PROPERTIES_MAX:
                self._good_properties.clear()
            self._good_properties[properties] = mode
        return mode

    def _header(self, buf: bytes, pos: int, stop: int, channel: int, items: list[Item]) -> None:
        content = self._contents.get(channel)
        if content is None or content.headed:
            raise unexpected(content is not None, True)
        if stop - pos < 14 + OVERHEAD_BYTES:
            raise bad_frame(buf, pos, stop, "unknown_frame")
        _, _, _, class_id, weight, size = _unpack_content(buf, pos)
        if class_id != BASIC_CLASS:
            raise wrong_class(class_id)
        if weight:
            raise unexpected(True, False)
        content.mode = self._check_properties(buf[pos + FLAGS_OFFSET : stop - 1])
        content.headed = True
        content.left = size
        if size > self.body_max:
            content.dropped = True
            items.append(Oversize(channel, size, self.body_max))
        else:
            content.parts.append(buf[pos:stop])
            self._keep_content(content, stop - pos)
        if not size:
            self._complete(channel, content, items)

    def _body(self, buf: bytes, pos: int, stop: int, channel: int, items: list[Item]) -> None:
        content = self._contents.get(channel)
        size = stop - pos - OVERHEAD_BYTES
        if content is None or not content.headed or size > content.left:
            raise unexpected(content is not None, content is not None and content.headed)
        content.left -= size
        if content.dropped:
            pass
        elif content.crumbs or (content.left and size < CRUMB_BYTES):
            # Frames of one byte would cost nine in memory and on every consumer's wire: keep the bytes alone.
            content.crumbs += memoryview(buf)[pos + HEAD_BYTES : stop - 1]
        elif size * 4 >= len(buf):
            content.parts.append(memoryview(buf)[pos:stop])  # copied once, when the body is whole
        else:
            content.parts.append(buf[pos:stop])  # a view would keep all of the buffer
        if not content.dropped:
            self._keep_content(content, size)
        if not content.left:
            self._complete(channel, content, items)

    def _complete(self, channel: int, content: Coming, items: list[Item]) -> None:
        del self._contents[channel]
        self._unfinished -= content.kept
        if content.dropped:
            return
        step = self.frame_max - OVERHEAD_BYTES
        for at in range(0, len(content.crumbs), step):
            content.parts.append(encode_frame(BODY, channel, bytes(content.crumbs[at : at + step])))
        wire = b"".join(content.parts)
        plain = not content.mode & SPECIAL
        self._add(channel, [(content.publish, wire)], len(wire), plain, content.mode & BOTH, items)

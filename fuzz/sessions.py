"""Sessions: what well-behaved clients send, as the first inputs of the fuzzer; and the words of the language.

`SEEDS` are streams of whole frames, by target; `WORDS` is one frame of every method, and of the contents and arguments
that have rules. mutation.py makes the rest of them.
"""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Final

from penstock.amqp.content import build_basic
from penstock.amqp.decoder import STRANGER_CONTENTS_MAX
from penstock.amqp.frame import BODY, FRAME_MIN_BYTES, HEARTBEAT_FRAME, PROTOCOL_HEADER, encode_frame
from penstock.amqp.method import (
    METHODS,
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicReject,
    ChannelClose,
    ChannelFlow,
    ChannelOpen,
    ConfirmSelect,
    ConnectionClose,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxRollback,
    TxSelect,
    encode_method,
)
from penstock.amqp.properties import Properties, encode_properties
from penstock.amqp.table import ByteArray, Table, Timestamp, Value, encode_table

FRAME_MAX: Final = 8192  # what the sessions ask for in tune-ok: small, so that inputs near it stay small
CHANNEL_MAX: Final = STRANGER_CONTENTS_MAX  # no more, or whether login and contents come in one read made a difference
PLAIN: Final = encode_properties(Properties())
CAPABILITIES: Final[Table] = {"consumer_cancel_notify": True, "authentication_failure_close": True, "basic.nack": True}

NAMES: Final = ("", "q", "r", "x", "amq.topic", "amq.fanout", "amq.headers", "amq.direct", "a.b", "#.#", "*.b", "lock")
TYPES: Final = ("direct", "fanout", "topic", "headers", "x-consistent-hash", "none")
VALUES: Final[tuple[Value, ...]] = (
    0, 1, -1, 2, 10, 255, 256, 1 << 31, (1 << 32) - 1, (1 << 63) - 1, -(1 << 63), True, False, None, "", "q", "x",
    "all", "any", "drop-head", "reject-publish", "classic", "quorum", "lazy", 1.5, Decimal("1.5"), b"\xff",
    ByteArray(b"x"),
    Timestamp(0), [], ["q", "r"], [1, ["q"]], {}, {"a": {"b": [{}]}},
)  # fmt: skip
ARGUMENTS: Final = (
    "x-expires", "x-message-ttl", "x-dead-letter-exchange", "x-dead-letter-routing-key", "x-max-length",
    "x-max-length-bytes", "x-max-priority", "x-overflow", "x-queue-mode", "x-queue-type", "x-single-active-consumer",
    "x-delivery-limit",
    "x-queue-version", "x-max-age", "x-priority", "x-cancel-on-ha-failover", "x-match", "alternate-exchange",
    "x-consumer-timeout", "x-dead-letter-strategy", "hash-header", "a", "",
)  # fmt: skip


def publish(
    channel: int, body: bytes, key: str = "q", exchange: str = "", properties: bytes = PLAIN, **flags: bool
) -> bytes:
    method = encode_method(BasicPublish(exchange, key, **flags), channel)
    return method + build_basic(channel, properties, body, FRAME_MIN_BYTES)


def said(channel: int, *methods: Method) -> bytes:
    return b"".join(encode_method(method, channel) for method in methods)


def start_ok(mechanism: str = "PLAIN", response: bytes = b"\0guest\0guest", properties: Table | None = None) -> bytes:
    table: Table = {"capabilities": dict(CAPABILITIES)} if properties is None else properties
    return said(0, ConnectionStartOk(table, mechanism, response, "en_US"))


AMQPLAIN: Final = encode_table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]
LOGIN: Final = PROTOCOL_HEADER + start_ok() + said(0, ConnectionTuneOk(CHANNEL_MAX, FRAME_MAX, 0), ConnectionOpen("/"))

COPIED: Final = encode_properties(Properties(headers={"CC": ["q"], "BCC": ["r"]}, user_id="guest"))
DEAD: Final[Table] = {"x-max-length": 2, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}

HANDSHAKES: Final = (
    LOGIN + said(1, ChannelOpen(), QueueDeclare("h", exclusive=True)) + said(0, ConnectionClose(200, "bye")),
    PROTOCOL_HEADER
    + start_ok("AMQPLAIN", AMQPLAIN)
    + said(0, ConnectionTuneOk(CHANNEL_MAX, 4096, 10), ConnectionOpen("/")),
    PROTOCOL_HEADER + start_ok("PLAIN", b"\0guest\0wrong", {"capabilities": {}}),
    PROTOCOL_HEADER + start_ok("EXTERNAL", b"", {"connection_name": "n\n\x00", "product": "p", "deep": [{"a": [1]}]}),
    PROTOCOL_HEADER + start_ok() + said(0, ConnectionTuneOk(0, 0, 0), ConnectionOpen("none")),
    LOGIN + publish(1, b"channel 1 is not open") + publish(0, b""),
    b"AMQP\x00\x00\x09\x00" + LOGIN,
)

SESSIONS: Final = (
    said(1, ChannelOpen(), QueueDeclare("q"), BasicQos(0, 2, False), BasicConsume("q", "c"), ConfirmSelect())
    + publish(1, b"one") * 4
    + said(1, BasicAck(1), BasicAck(2), BasicNack(4, True, True), BasicReject(5, False), BasicCancel("c"))
    + said(1, ChannelClose(200, "bye"))
    + said(0, ConnectionClose(200, "bye")),
    said(1, ChannelOpen(), ExchangeDeclare("x", "topic"), QueueDeclare("", exclusive=True), QueueBind("", "x", "a.*"))
    + said(1, ExchangeDeclare("r", "fanout", auto_delete=True), ExchangeBind("r", "x", "#.#"), QueueBind("q", "r"))
    + publish(1, b"routed" * 300, "a.b", "x") * 2
    + publish(1, b"returned", "none", "x", mandatory=True)
    + said(1, BasicGet("", True), BasicGet(""), BasicAck(0, True), QueuePurge(""), QueueUnbind("", "x", "a.*"))
    + said(1, ExchangeUnbind("r", "x", "#.#"), ExchangeDelete("r"), QueueDelete("")),
    said(1, ChannelOpen())
    + said(2, ChannelOpen(), QueueDeclare("r", auto_delete=True), BasicConsume("r", "", no_ack=True))
    + publish(1, b"x" * 9000, "r") * 2
    + HEARTBEAT_FRAME
    + publish(2, b"", "r", properties=COPIED)
    + said(2, ChannelFlow(False))
    + publish(1, b"waits", "r", properties=encode_properties(Properties(expiration="10", priority=5, delivery_mode=2)))
    + said(2, ChannelFlow(True), BasicRecover(True), ChannelClose(0, "")),
    said(1, ChannelOpen(), QueueDeclare("x", arguments=DEAD))
    + publish(1, b"dead", "x") * 5
    + said(1, QueueBind("x", "amq.headers", "", arguments={"x-match": "any", "a": 1, "b": None}))
    + publish(1, b"", "", "amq.headers", encode_properties(Properties(headers={"a": 1, "n": {"t": [Timestamp(1)]}})))
    + said(1, TxSelect(), TxCommit(), TxRollback()),
    said(1, ChannelOpen(), QueueDeclare("r", arguments={"x-max-priority": 3, "x-message-ttl": 10, "x-expires": 1000}))
    + said(1, BasicConsume("amq.rabbitmq.reply-to", "t", no_ack=True))
    + publish(1, b"p", "r", properties=encode_properties(Properties(priority=9, reply_to="amq.rabbitmq.reply-to")))
    + publish(1, b"p", "r", properties=encode_properties(Properties(priority=1))) * 3
    + said(1, BasicGet("r", True), QueueDeclare("r", passive=True))
    + said(2, ChannelOpen(), BasicConsume("lock"))
    + said(1, ChannelOpen()),
    said(1, ChannelOpen(), TxSelect())
    + publish(1, b"t", "q") * 2
    + said(1, BasicGet("q"), BasicAck(1), TxCommit(), BasicGet("q"), BasicNack(2), TxRollback(), BasicRecover(True))
    + said(2, ChannelOpen(), QueueDeclare("s", arguments={"x-single-active-consumer": True, "x-max-length": 1}))
    + said(2, BasicConsume("s", "a", arguments={"x-priority": 5}), BasicConsume("s", "b"), BasicCancel("a"))
    + said(3, ChannelOpen(), ExchangeDeclare("h", "x-consistent-hash"))
    + said(3, QueueBind("q", "h", "1"), QueueBind("s", "h", "2"))
    + publish(3, b"hashed", "a", "h")
    + publish(3, b"hashed", "b", "h"),
)  # fmt: skip


def word(chance: random.Random) -> bytes:
    """A frame, or a method with its content, that means something; on channel 1, 2 or 3."""
    channel = chance.choice((1, 1, 1, 2, 3))
    arguments = {chance.choice(ARGUMENTS): chance.choice(VALUES) for _ in range(chance.choice((0, 0, 1, 2)))}
    name, other = chance.choice(NAMES), chance.choice(NAMES)
    flags = [chance.random() < 0.3 for _ in range(5)]
    kind = chance.randrange(14)
    if kind == 0:
        return said(channel, QueueDeclare(name, flags[0], flags[1], flags[2], flags[3], flags[4], arguments))
    if kind == 1:
        how = chance.choice(TYPES)
        return said(channel, ExchangeDeclare(name, how, flags[0], flags[1], flags[2], flags[3], flags[4], arguments))
    if kind == 2:
        return said(channel, QueueBind(name, other, chance.choice(NAMES), flags[0], arguments))
    if kind == 3:
        return said(channel, ExchangeBind(name, other, chance.choice(NAMES), flags[0], arguments))
    if kind == 4:
        tag = chance.choice(("", "c", "d"))
        return said(channel, BasicConsume(name, tag, flags[0], flags[1], flags[2], flags[3], arguments))
    if kind in (5, 6, 7):
        return _content(chance, channel, name, other, flags)
    if kind == 8:
        return said(channel, BasicAck(chance.randrange(6), flags[0]))
    if kind == 9:
        return said(channel, BasicNack(chance.randrange(6), flags[0], flags[1]))
    if kind == 10:
        return said(channel, ChannelOpen())
    if kind == 11:
        return said(channel, chance.choice((BasicGet(name, flags[0]), QueueDelete(name), ExchangeDelete(name))))
    if kind == 12:
        return encode_frame(BODY, channel, chance.randbytes(chance.choice((0, 1, 50, 4096))))
    return said(chance.choice((0, channel)), chance.choice(METHODS)())


def _content(chance: random.Random, channel: int, name: str, other: str, flags: list[bool]) -> bytes:
    properties = Properties()
    if chance.random() < 0.5:
        properties = Properties(
            headers={chance.choice(("CC", "BCC", "a", "x-death", "x-delay")): chance.choice(VALUES)}
            if flags[1]
            else None,
            expiration=chance.choice(("0", "5", "-1", "x", "", "9" * 250)) if flags[2] else None,
            priority=chance.randrange(256) if flags[3] else None,
            delivery_mode=chance.randrange(4) if flags[4] else None,
            reply_to=chance.choice(("q", "amq.rabbitmq.reply-to", "amq.rabbitmq.reply-to.x")) if flags[2] else None,
            user_id=chance.choice(("guest", "x")) if flags[3] else None,
        )
    body = b"b" * chance.choice((0, 1, 3, 30, 5000))
    return publish(channel, body, name, other, encode_properties(properties), mandatory=flags[0])

"""Rules: what some properties of a message mean to the broker, and what they must not say, in RabbitMQ's words.

The decoder sorts out the messages that have such a property at all (expiration, user id, CC and BCC, the number that a
producer gave, a direct reply, an unknown delivery mode); only those come here.
Not here: whether the properties can be decoded (amqp/decoder.py), routing by the keys found here (router.py).
"""

from __future__ import annotations

from typing import Final

from penstock.amqp import content
from penstock.amqp.close import PRECONDITION_FAILED, CloseChannel
from penstock.amqp.decoder import Message
from penstock.amqp.properties import (
    DIRECT_REPLY_TO,
    PERSISTENT,
    PRODUCER,
    PRODUCER_BYTES_MAX,
    PUBLISHING_ID,
    TRANSIENT,
    Properties,
    decode_properties,
)
from penstock.amqp.rewrite import rewrite
from penstock.amqp.table import Table
from penstock.broker.casts import NO_TTL
from penstock.broker.equivalence import type_name
from penstock.broker.producers import Publishing

DIRECT_REPLY: Final = DIRECT_REPLY_TO.decode()
MORE_KEYS: Final = ("CC", "BCC")
TTL_MS_MAX: Final = 315_360_000_000  # RabbitMQ's: ten years
PUBLISHING_ID_MAX: Final = (1 << 63) - 1  # AMQP's largest number


class Examined:
    """A message as it goes on, and what its properties ask for."""

    __slots__ = ("message", "more_keys", "properties", "publishing", "ttl_ms")

    def __init__(self, message: Message, properties: Properties) -> None:
        self.message = message
        self.properties = properties
        self.more_keys: tuple[str, ...] = ()
        self.publishing: Publishing | None = None
        self.ttl_ms = NO_TTL


def examine(message: Message, user: str, may_impersonate: bool, reply_name: str, numbers: bool = True) -> Examined:
    """Check the message, say what it asks for. `reply_name` is where direct replies to its channel go, if anywhere;
    `numbers`: a producer's number counts, if it has one."""
    wire = message[1]
    properties = decode_properties(wire, content.FLAGS_OFFSET, content.properties_end(wire))
    if properties.user_id is not None and properties.user_id != user and not may_impersonate:
        raise CloseChannel(
            PRECONDITION_FAILED,
            f"user_id property set to '{properties.user_id}' but authenticated user was '{user}'",
        )
    found = Examined(message, properties)
    if properties.expiration is not None:
        found.ttl_ms = _ttl_ms(properties.expiration)
    if properties.delivery_mode not in (None, TRANSIENT, PERSISTENT):
        raise CloseChannel(
            PRECONDITION_FAILED, f"invalid message: {{delivery_mode_unknown,{properties.delivery_mode}}}"
        )
    if properties.headers is not None:
        _find_keys(found, properties.headers)
        if numbers and (PRODUCER in properties.headers or PUBLISHING_ID in properties.headers):
            found.publishing = _publishing(properties.headers)
    if properties.reply_to == DIRECT_REPLY:
        if not reply_name:
            raise CloseChannel(PRECONDITION_FAILED, "fast reply consumer does not exist")
        found.message = found.message[0], rewrite(found.message[1], reply_to=reply_name)
    return found


def header_keys(headers: Table) -> tuple[str, ...]:
    """The routing keys in the headers CC and BCC."""
    keys: list[str] = []
    for name in MORE_KEYS:
        values = headers.get(name)
        for key in values if isinstance(values, list) else ():
            if isinstance(key, str):
                keys.append(key)
            elif isinstance(key, bytes):
                keys.append(key.decode("utf-8", "surrogateescape"))
    return tuple(keys)


def _find_keys(found: Examined, headers: Table) -> None:
    for name in MORE_KEYS:
        if name in headers and not isinstance(headers[name], list):
            kind = type_name(headers[name])
            raise CloseChannel(PRECONDITION_FAILED, f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}')
    found.more_keys = header_keys(headers)
    if "BCC" in headers:
        publish, wire = found.message
        hidden = header_keys({"BCC": headers["BCC"]})
        found.message = publish.hiding(hidden), rewrite(wire, drop_headers=("BCC",))


def _publishing(headers: Table) -> Publishing:
    """Who numbered the message, and how. Half of it, or a wrong one, would be a message that is not told from its copy:
    better refused."""
    for name in (PRODUCER, PUBLISHING_ID):
        if name not in headers:
            other = PUBLISHING_ID if name == PRODUCER else PRODUCER
            raise CloseChannel(PRECONDITION_FAILED, f"invalid message: header '{other}' without '{name}'")
    producer, id_ = headers[PRODUCER], headers[PUBLISHING_ID]
    if not isinstance(producer, str):
        raise CloseChannel(
            PRECONDITION_FAILED, f"invalid message: header '{PRODUCER}' must be text, got {type_name(producer)}"
        )
    size = len(producer.encode("utf-8", "surrogateescape"))
    if not 1 <= size <= PRODUCER_BYTES_MAX:
        raise CloseChannel(
            PRECONDITION_FAILED,
            f"invalid message: header '{PRODUCER}' must have 1 to {PRODUCER_BYTES_MAX} bytes, got {size}",
        )
    if isinstance(id_, bool) or not isinstance(id_, int):
        raise CloseChannel(
            PRECONDITION_FAILED, f"invalid message: header '{PUBLISHING_ID}' must be an integer, got {type_name(id_)}"
        )
    if not 0 <= id_ <= PUBLISHING_ID_MAX:
        raise CloseChannel(
            PRECONDITION_FAILED, f"invalid message: header '{PUBLISHING_ID}' must not be negative, got {id_}"
        )
    return producer, id_


def _ttl_ms(expiration: str) -> int:
    fault = expiration_fault(expiration)
    if fault:
        raise CloseChannel(PRECONDITION_FAILED, f"invalid expiration '{expiration}': {fault}")
    return int(expiration)


def expiration_fault(text: str) -> str:
    """What is wrong with a message's time to live, which is milliseconds in decimal digits."""
    sign = text[:1] in ("-", "+")
    length = 1 if sign else 0
    while length < len(text) and text[length] in "0123456789":
        length += 1
    if length == (1 if sign else 0):
        return "no_integer"
    if length < len(text):
        rest = text[length:].replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
        return f'{{leftover_string,"{rest}"}}'
    if int(text) < 0:
        return f"{{value_negative,{int(text)}}}"
    return f"{{value_too_large,{int(text)}}}" if int(text) > TTL_MS_MAX else ""

"""Rules: what some properties of a message mean to the broker, and what they must not say, in RabbitMQ's words.

The decoder sorts out the messages that have such a property at all (expiration, user id, CC and BCC, a direct reply, an
unknown delivery mode); only those come here.
Not here: whether the properties can be decoded (amqp/decoder.py), routing by the keys found here (router.py).
"""

from __future__ import annotations

from typing import Final

from penstock.amqp import content
from penstock.amqp.close import PRECONDITION_FAILED, CloseChannel
from penstock.amqp.decoder import Message
from penstock.amqp.properties import DIRECT_REPLY_TO, PERSISTENT, TRANSIENT, Properties, decode_properties
from penstock.amqp.rewrite import rewrite
from penstock.amqp.table import Table
from penstock.broker.casts import NO_TTL
from penstock.broker.equivalence import type_name

DIRECT_REPLY: Final = DIRECT_REPLY_TO.decode()
MORE_KEYS: Final = ("CC", "BCC")
TTL_MS_MAX: Final = 315_360_000_000  # RabbitMQ's: ten years


class Examined:
    """A message as it goes on, and what its properties ask for."""

    __slots__ = ("message", "more_keys", "properties", "ttl_ms")

    def __init__(self, message: Message, properties: Properties) -> None:
        self.message = message
        self.properties = properties
        self.more_keys: tuple[str, ...] = ()
        self.ttl_ms = NO_TTL


def examine(message: Message, user: str, may_impersonate: bool, reply_name: str) -> Examined:
    """Check the message, say what it asks for. `reply_name` is where direct replies to its channel go, if anywhere."""
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

"""Rules: what a message's properties must not say, as RabbitMQ has it and in its words.

The decoder sorts out the messages that have such a property at all; only those come here.
Not here: whether the properties can be decoded (amqp/decoder.py).
"""

from __future__ import annotations

from typing import Final

from penstock.amqp import content
from penstock.amqp.close import PRECONDITION_FAILED, CloseChannel
from penstock.amqp.decoder import Message
from penstock.amqp.properties import DIRECT_REPLY_TO, PERSISTENT, TRANSIENT, decode_properties
from penstock.broker.equivalence import type_name

DIRECT_REPLY: Final = DIRECT_REPLY_TO.decode()
MORE_KEYS: Final = ("CC", "BCC")


def check_rules(message: Message, user: str) -> None:
    wire = message[1]
    properties = decode_properties(wire, content.FLAGS_OFFSET, content.properties_end(wire))
    if properties.user_id is not None and properties.user_id != user:
        raise CloseChannel(
            PRECONDITION_FAILED,
            f"user_id property set to '{properties.user_id}' but authenticated user was '{user}'",
        )
    if properties.expiration is not None:
        fault = expiration_fault(properties.expiration)
        if fault:
            raise CloseChannel(PRECONDITION_FAILED, f"invalid expiration '{properties.expiration}': {fault}")
    if properties.delivery_mode not in (None, TRANSIENT, PERSISTENT):
        raise CloseChannel(
            PRECONDITION_FAILED, f"invalid message: {{delivery_mode_unknown,{properties.delivery_mode}}}"
        )
    for name in MORE_KEYS:
        keys = (properties.headers or {}).get(name, [])
        if not isinstance(keys, list):
            kind = type_name(keys)
            raise CloseChannel(PRECONDITION_FAILED, f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}')
    if properties.reply_to == DIRECT_REPLY:
        # Direct replies are not there yet, so nobody can consume them.
        raise CloseChannel(PRECONDITION_FAILED, "fast reply consumer does not exist")


def expiration_fault(text: str) -> str:
    """What is wrong with a message's time to live, which is milliseconds in decimal digits."""
    sign = text[:1] in ("-", "+")
    length = 1 if sign else 0
    while length < len(text) and text[length] in "0123456789":
        length += 1
    if length == (1 if sign else 0):
        return "no_integer"
    if length < len(text):
        return f'{{leftover_string,"{text[length:]}"}}'
    return f"{{value_negative,{int(text)}}}" if int(text) < 0 else ""

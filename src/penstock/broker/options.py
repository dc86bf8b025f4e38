"""Options: what a queue does beyond keeping messages in order, from its arguments and its policies together.

A number in both: the smaller one counts. Anything else: the queue's own argument counts, as in RabbitMQ.
Not here: checking arguments (arguments.py), policies (policy.py), doing it (queue.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.amqp.table import Table, Value
from penstock.broker.ledger import Json

NONE: Final = -1  # a number that is not set

DROP_HEAD: Final = "drop-head"
REJECT_PUBLISH: Final = "reject-publish"
REJECT_PUBLISH_DLX: Final = "reject-publish-dlx"


class Options:
    __slots__ = (
        "dead_letter_exchange",
        "dead_letter_key",
        "delivery_limit",
        "expires_ms",
        "max_length",
        "max_length_bytes",
        "max_priority",
        "message_ttl_ms",
        "overflow",
        "single_active",
    )

    def __init__(self, arguments: Table, settings: Mapping[str, Json]) -> None:
        self.message_ttl_ms = _number("message-ttl", arguments, settings)
        self.expires_ms = _number("expires", arguments, settings)
        self.max_length = _number("max-length", arguments, settings)
        self.max_length_bytes = _number("max-length-bytes", arguments, settings)
        self.delivery_limit = _number("delivery-limit", arguments, settings)
        self.overflow = _word("overflow", arguments, settings) or DROP_HEAD
        self.dead_letter_exchange = _word("dead-letter-exchange", arguments, settings)  # None is none; "" is a name
        self.dead_letter_key = _word("dead-letter-routing-key", arguments, settings)
        self.max_priority = max(0, _integer(arguments.get("x-max-priority")))
        self.single_active = arguments.get("x-single-active-consumer") is True

    def has_limit(self) -> bool:
        return self.max_length != NONE or self.max_length_bytes != NONE


def _integer(value: Value) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else NONE


def _number(name: str, arguments: Table, settings: Mapping[str, Json]) -> int:
    argument = _integer(arguments.get(f"x-{name}"))
    given = settings.get(name)
    setting = given if isinstance(given, int) and not isinstance(given, bool) else NONE
    if argument == NONE or setting == NONE:
        return max(argument, setting)
    return min(argument, setting)


def _word(name: str, arguments: Table, settings: Mapping[str, Json]) -> str | None:
    value = arguments.get(f"x-{name}", settings.get(name))
    return value if isinstance(value, str) else None

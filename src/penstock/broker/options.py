"""Options: what a queue does beyond keeping messages in order, from its arguments and its policies together.

A number in both: the smaller one counts. Anything else: the queue's own argument counts, as in RabbitMQ.
Watermarks that contradict the queue's maximum, as a policy may make them, are cut down to it.
Not here: checking arguments (arguments.py), policies (policy.py), doing it (queue.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.amqp.table import Table, Value
from penstock.broker.age import age_ms
from penstock.broker.arguments import MARK_SPELLINGS
from penstock.broker.ledger import Json
from penstock.credit import Watermark
from penstock.credit.watermark import OFF, default_stop

NONE: Final = -1  # a number that is not set

DROP_HEAD: Final = "drop-head"
REJECT_PUBLISH: Final = "reject-publish"
REJECT_PUBLISH_DLX: Final = "reject-publish-dlx"
BLOCK_PUBLISH: Final = "block-publish"  # not RabbitMQ's: nothing is lost, publishers wait


class Options:
    __slots__ = (
        "dead_letter_exchange",
        "dead_letter_key",
        "delivery_limit",
        "expires_ms",
        "lazy",
        "max_age_ms",
        "max_length",
        "max_length_bytes",
        "max_priority",
        "message_ttl_ms",
        "overflow",
        "segment_bytes",
        "single_active",
        "watermark",
    )

    def __init__(self, arguments: Table, settings: Mapping[str, Json]) -> None:
        self.message_ttl_ms = _number("message-ttl", arguments, settings)
        self.expires_ms = _number("expires", arguments, settings)
        self.lazy = _word("queue-mode", arguments, settings) == "lazy"
        self.max_length = _number("max-length", arguments, settings)
        self.max_length_bytes = _number("max-length-bytes", arguments, settings)
        self.delivery_limit = _number("delivery-limit", arguments, settings)
        self.overflow = _word("overflow", arguments, settings) or DROP_HEAD
        self.dead_letter_exchange = _word("dead-letter-exchange", arguments, settings)  # None is none; "" is a name
        self.dead_letter_key = _word("dead-letter-routing-key", arguments, settings)
        self.max_priority = max(0, _integer(arguments.get("x-max-priority")))
        self.single_active = arguments.get("x-single-active-consumer") is True
        self.max_age_ms = _age("max-age", arguments, settings)
        self.segment_bytes = max(0, _number("stream-max-segment-size-bytes", arguments, settings))  # 0: as we like
        self.watermark = self._watermark(arguments, settings)  # None: never saturated

    def has_limit(self) -> bool:
        return self.max_length != NONE or self.max_length_bytes != NONE

    def refuses(self) -> bool:
        """What comes when the queue is at its limit is refused."""
        return self.has_limit() and self.overflow in (REJECT_PUBLISH, REJECT_PUBLISH_DLX)

    def blocks(self) -> bool:
        """Who publishes when the queue is at its limit is blocked."""
        return self.has_limit() and self.overflow == BLOCK_PUBLISH

    def is_at_limit(self, count: int, bytes_: int) -> bool:
        """A limit of 0 is reached by the first message: a queue that is empty has nothing to wait for."""
        return (self.max_length != NONE and count >= max(1, self.max_length)) or (
            self.max_length_bytes != NONE and bytes_ >= max(1, self.max_length_bytes)
        )

    def counts_bytes(self) -> bool:
        """Whether it matters how many bytes the bodies have."""
        return self.max_length_bytes != NONE or (self.watermark is not None and self.watermark.stop_bytes != OFF)

    def _watermark(self, arguments: Table, settings: Mapping[str, Json]) -> Watermark | None:
        stop_count, resume_count = self._marks("count", self.max_length, arguments, settings)
        stop_bytes, resume_bytes = self._marks("bytes", self.max_length_bytes, arguments, settings)
        if stop_count == OFF and stop_bytes == OFF:
            return None
        return Watermark(stop_count, resume_count, stop_bytes, resume_bytes)

    def _marks(self, dimension: str, maximum: int, arguments: Table, settings: Mapping[str, Json]) -> tuple[int, int]:
        """Stop and resume. A queue that drops or refuses at its maximum has none unless it is told: it may stay there
        for ever, and so would the confirms."""
        stop = _stop(f"flow-stop-{dimension}", arguments, settings)
        resume = _number(f"flow-resume-{dimension}", arguments, settings)
        if stop == NONE and maximum != NONE and (resume != NONE or self.overflow == BLOCK_PUBLISH):
            return default_stop(maximum), resume
        if stop <= 0:
            return OFF, OFF
        return (stop if maximum == NONE else min(stop, maximum)), resume


def _integer(value: Value) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else NONE


def _argument(name: str, arguments: Table) -> int:
    """The number itself, or the first of its spellings that is there."""
    for spelling in MARK_SPELLINGS.get(name, (f"x-{name}",)):
        if spelling in arguments:
            return _integer(arguments[spelling])
    return NONE


def _setting(name: str, settings: Mapping[str, Json]) -> int:
    given = settings.get(name)
    return given if isinstance(given, int) and not isinstance(given, bool) else NONE


def _number(name: str, arguments: Table, settings: Mapping[str, Json]) -> int:
    argument, setting = _argument(name, arguments), _setting(name, settings)
    if argument == NONE or setting == NONE:
        return max(argument, setting)
    return min(argument, setting)


def _stop(name: str, arguments: Table, settings: Mapping[str, Json]) -> int:
    """As a number, but 0 is no mark, and so never the smaller one."""
    argument, setting = _argument(name, arguments), _setting(name, settings)
    return max(argument, setting) if min(argument, setting) <= 0 else min(argument, setting)


def _age(name: str, arguments: Table, settings: Mapping[str, Json]) -> int:
    """In milliseconds; of two, the shorter one."""
    given = (arguments.get(f"x-{name}"), settings.get(name))
    ages = [age_ms(age) for age in given if isinstance(age, str)]
    return min((age for age in ages if age >= 0), default=NONE)


def _word(name: str, arguments: Table, settings: Mapping[str, Json]) -> str | None:
    value = arguments.get(f"x-{name}", settings.get(name))
    return value if isinstance(value, str) else None

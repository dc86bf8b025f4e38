"""Policy: settings for all queues or exchanges whose name matches a pattern, changeable while they live.

Of the policies that match, the one with the highest priority counts, alone; an operator policy is merged into it, and
of two numbers the smaller one wins, so that operators can bound what users ask for.
Place: vhost.py holds them and applies them; options.py says what becomes of a setting and a queue's own argument.
Not here: what a setting does (queue.py, exchange.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

from penstock.amqp.table import Value
from penstock.broker.arguments import CHECKS, MARK_SPELLINGS, contradiction
from penstock.broker.ledger import Json

QUEUES: Final = "queues"
EXCHANGES: Final = "exchanges"
STREAMS: Final = "streams"
APPLIES: Final = {  # which words after apply-to mean a thing of this kind
    QUEUES: ("all", QUEUES, "classic_queues"),
    STREAMS: ("all", QUEUES, STREAMS),
    EXCHANGES: ("all", EXCHANGES),
}
OF_STREAMS: Final = ("max-age", "max-length-bytes", "stream-max-segment-size-bytes")
APPLY_TO: Final = ("all", QUEUES, EXCHANGES, "classic_queues", STREAMS)
PATTERN_LENGTH_MAX: Final = 1024  # patterns are for people

EFFECTIVE: Final = frozenset(
    (
        "alternate-exchange",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "delivery-limit",
        "expires",
        "max-age",
        "max-length",
        "max-length-bytes",
        "message-ttl",
        "overflow",
        "stream-max-segment-size-bytes",
        *MARK_SPELLINGS,
    )
)
# Of RabbitMQ's plugins, clusters and other queue types: taken, so that definitions move over whole, without effect.
IDLE: Final = frozenset(
    (
        "consumer-timeout",
        "federation-upstream",
        "federation-upstream-set",
        "ha-mode",
        "ha-params",
        "ha-promote-on-failure",
        "ha-promote-on-shutdown",
        "ha-sync-batch-size",
        "ha-sync-mode",
        "initial-cluster-size",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "queue-leader-locator",
        "queue-master-locator",
        "queue-mode",
        "queue-version",
        "target-group-size",
    )
)
OPERATOR_KEYS: Final = frozenset(
    (
        "delivery-limit",
        "expires",
        "max-in-memory-bytes",
        "max-in-memory-length",
        "max-length",
        "max-length-bytes",
        "message-ttl",
    )
)


class PolicyError(ValueError):
    """Why a policy is refused, in one line."""


class Policy:
    __slots__ = ("_regex", "apply_to", "definition", "name", "pattern", "priority")

    def __init__(
        self,
        name: str,
        pattern: str,
        definition: Mapping[str, Json],
        apply_to: str = "all",
        priority: int = 0,
        operator: bool = False,
    ) -> None:
        if apply_to not in APPLY_TO:
            raise PolicyError(f"policy '{name}': apply-to '{apply_to}' is none of {', '.join(APPLY_TO)}")
        if len(pattern) > PATTERN_LENGTH_MAX:
            raise PolicyError(f"policy '{name}': a pattern has at most {PATTERN_LENGTH_MAX} characters")
        try:
            self._regex = re.compile(pattern)
        except re.error as error:
            raise PolicyError(f"policy '{name}': pattern '{pattern}': {error}") from None
        _check_definition(name, definition, operator)
        self.name = name
        self.pattern = pattern
        self.definition = dict(definition)
        self.apply_to = apply_to
        self.priority = priority

    def matches(self, kind: str, name: str) -> bool:
        return self.apply_to in APPLIES[kind] and self._regex.search(name) is not None

    def body(self, vhost: str) -> dict[str, Json]:
        """As RabbitMQ's definitions have it."""
        return {
            "vhost": vhost,
            "name": self.name,
            "pattern": self.pattern,
            "apply-to": self.apply_to,
            "definition": dict(self.definition),
            "priority": self.priority,
        }

    def __repr__(self) -> str:
        return f"<Policy {self.name!r} {self.pattern!r} {self.apply_to} priority={self.priority} {self.definition}>"


def _check_definition(name: str, definition: Mapping[str, Json], operator: bool) -> None:
    if not definition:
        raise PolicyError(f"policy '{name}': the definition is empty")
    for key, value in definition.items():
        if operator and key not in OPERATOR_KEYS:
            raise PolicyError(f"operator policy '{name}': '{key}' is no setting for operator policies")
        if key not in EFFECTIVE and key not in IDLE:
            raise PolicyError(f"policy '{name}': '{key}' is no known setting")
        check = CHECKS.get(f"x-{key}")
        fault = check(cast(Value, value)) if check is not None else ""  # what JSON has, tables have
        if key == "alternate-exchange" and not isinstance(value, str):
            fault = "not a string"
        if fault:
            raise PolicyError(f"policy '{name}': '{key}': {fault}")
    key, fault = contradiction(definition, "")
    if fault:
        raise PolicyError(f"policy '{name}': '{key}': {fault}")


class Policies:
    """Those of one vhost."""

    __slots__ = ("operator", "user")

    def __init__(self) -> None:
        self.user: dict[str, Policy] = {}
        self.operator: dict[str, Policy] = {}

    def match(self, kind: str, name: str) -> Policy | None:
        return _best(self.user, kind, name)

    def operator_match(self, kind: str, name: str) -> Policy | None:
        return _best(self.operator, kind, name)

    def settings(self, kind: str, name: str) -> dict[str, Json]:
        """What the policies say about this queue or exchange."""
        policy, operator = self.match(kind, name), self.operator_match(kind, name)
        settings: dict[str, Json] = dict(policy.definition) if policy is not None else {}
        for key, bound in operator.definition.items() if operator is not None else ():
            value = settings.get(key)
            if not isinstance(value, int) or (isinstance(bound, int) and bound < value):
                settings[key] = bound
        if kind == STREAMS:  # a policy for all queues must not make one expire
            settings = {key: value for key, value in settings.items() if key in OF_STREAMS}
        return settings


def _best(policies: dict[str, Policy], kind: str, name: str) -> Policy | None:
    found: Policy | None = None
    for policy in policies.values():
        if (found is None or policy.priority > found.priority) and policy.matches(kind, name):
            found = policy
    return found

"""Names: stages as people know them. A connection is what its client calls itself, a channel has its owner and number.

A client that comes back ten times is ten connections in the tables and one in a report. Place: the parts of the digest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from penstock.flow.state import ALARM, CHANNEL, CONNECTION, CONSUMERS, QUEUE, STORE, STREAM

KINDS: Final = (CONNECTION, CHANNEL, QUEUE, STREAM, STORE, "alarm", "other")  # in the order of the chain
NAME_LETTERS_MAX: Final = 120  # a queue's name may have 255; whole ones are in the tables

_CHANNEL: Final = re.compile(r"channel (.*) \((\d+)\)$", re.DOTALL)
_ALARM_END: Final = " alarm"  # as events have it: "memory alarm"


class Names:
    """Labels by id; `clients` has for a connection, without the word, what it calls itself."""

    __slots__ = ("_clients", "_known")

    def __init__(self, clients: dict[str, str]) -> None:
        self._clients = clients
        self._known: dict[str, str] = {}

    def label(self, id_: str) -> str:
        if id_ not in self._known:
            self._known[id_] = cut(self._label(id_))
        return self._known[id_]

    def labels(self, ids: Iterable[str]) -> dict[str, str]:
        return {id_: self.label(id_) for id_ in ids}

    def _label(self, id_: str) -> str:
        if id_.startswith(CONNECTION + " "):
            return self._client(id_.removeprefix(CONNECTION + " "))
        channel = _CHANNEL.match(id_)
        if channel is not None:
            return f"channel {channel[2]} of {self._client(channel[1])}"
        if id_.startswith(ALARM):
            return id_.removeprefix(ALARM) + _ALARM_END
        return id_

    def _client(self, connection: str) -> str:
        given = self._clients.get(connection) or connection.partition(" -> ")[0]
        # One that calls itself "store" is not the store.
        return given if kind_of(given) == "other" else f"client {given}"


def kind_of(id_: str) -> str:
    """One of KINDS."""
    if id_.startswith(ALARM) or (id_.endswith(_ALARM_END) and not id_.startswith((QUEUE, STREAM))):
        return "alarm"
    if id_.startswith(CONSUMERS):
        return "other"
    first = id_.partition(" ")[0]
    return first if first in KINDS else "other"


def bare(connection: str) -> str:
    """A connection's id or name, without the word."""
    return connection.removeprefix(CONNECTION + " ")


def cut(name: str) -> str:
    return name if len(name) <= NAME_LETTERS_MAX else name[: NAME_LETTERS_MAX - 1] + "…"

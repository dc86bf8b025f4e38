"""Listing: all things of one kind as they were when it was made, to be sorted and shown without making a view of each.

Place: admin hands one to management, which sorts by `value`, shows some by `view` and counts by `counters`. It holds
the things themselves, so it is cheap to make; one that is gone meanwhile has no view.
Not here: what a view has in it (queues.py, exchanges.py, connections.py, channels.py), pages and filters (management/).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Mapping, Sequence
from typing import ClassVar, Final, Generic, TypeVar

from penstock.broker.broker import Broker
from penstock.broker.ledger import Json
from penstock.broker.vhost import VHost

QUEUES: Final = "queues"
EXCHANGES: Final = "exchanges"
BINDINGS: Final = "bindings"
CONNECTIONS: Final = "connections"
CHANNELS: Final = "channels"
CONSUMERS: Final = "consumers"

UNSEEN: Final = ("blocked", "blocks")  # columns for metrics, which no view has

Thing = TypeVar("Thing")


class Listing(ABC):
    """Numbered from 0 to len() - 1. One class for each kind says the rest."""

    KIND: ClassVar[str] = ""
    COUNTERS: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name(self, at: int) -> str: ...

    @abstractmethod
    def vhost(self, at: int) -> str: ...

    @abstractmethod
    def view(self, at: int) -> dict[str, Json] | None:
        """None: it is gone meanwhile."""

    @abstractmethod
    def value(self, at: int, column: str) -> Json:
        """One column of its view, a dotted one for what is deeper; None if it has none. Cheap for the usual ones."""

    @abstractmethod
    def values(self, column: str, begin: int, end: int) -> list[Json]:
        """The same of those from `begin` up to `end`: much cheaper than as many calls of `value`."""

    def brief(self, columns: Sequence[str]) -> Callable[[int], dict[str, Json] | None] | None:
        """What makes views with these columns only; None: they cost as much as whole ones."""
        return None

    def counters(self, at: int) -> tuple[int, ...]:
        """In the order of COUNTERS; empty if it is gone meanwhile."""
        return ()

    def __repr__(self) -> str:
        return f"<Listing {len(self)} {self.KIND}>"


class Things(Listing, Generic[Thing]):
    """A listing of these things."""

    def __init__(self, broker: Broker, things: list[Thing]) -> None:
        self.broker = broker
        self.things = things

    def __len__(self) -> int:
        return len(self.things)

    def value(self, at: int, column: str) -> Json:
        cheap = self.columns().get(column)
        if cheap is not None:
            return cheap(self.things[at])
        return value_in(self.view(at), column)

    def values(self, column: str, begin: int, end: int) -> list[Json]:
        cheap = self.columns().get(column)
        if cheap is not None:
            return list(map(cheap, self.things[begin:end]))
        return [value_in(self.view(at), column) for at in range(begin, min(end, len(self.things)))]

    def view(self, at: int) -> dict[str, Json] | None:
        thing = self.things[at]
        return self.view_of(thing) if self.is_there(thing) else None

    def brief(self, columns: Sequence[str]) -> Callable[[int], dict[str, Json] | None] | None:
        cheap = self.columns()
        if not all(column in cheap and "." not in column and column not in UNSEEN for column in columns):
            return None
        wanted = [(column, cheap[column]) for column in columns]
        things, is_there = self.things, self.is_there

        def made(at: int) -> dict[str, Json] | None:
            thing = things[at]
            return {column: read(thing) for column, read in wanted} if is_there(thing) else None

        return made

    @abstractmethod
    def columns(self) -> Mapping[str, Callable[[Thing], Json]]:
        """Those that cost no view."""

    @abstractmethod
    def is_there(self, thing: Thing) -> bool:
        """Not gone meanwhile."""

    @abstractmethod
    def view_of(self, thing: Thing) -> dict[str, Json]: ...


def value_in(view: dict[str, Json] | None, column: str) -> Json:
    """What a dotted name means in a view: `message_stats.publish`."""
    if view is None:
        return None
    if column in view:
        return view[column]
    value: Json = view
    for part in column.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(part)
    return value


def vhosts_among(broker: Broker, vhost: str | None, among: Container[str] | None) -> list[VHost]:
    """The one asked for, or all; and of those only the ones that may be seen."""
    if vhost is not None:
        found = broker.vhosts.get(vhost)
        return [found] if found is not None and (among is None or vhost in among) else []
    return [one for one in broker.vhosts.values() if among is None or one.name in among]

"""Ledger: where changes of durable definitions are written down. store/definitions.py is the real one.

Place in the chain: beside it. vhost.py, users.py and admin.py record what they change; whoever answers a client first
waits for `after_commit`, so that what was answered is there after kill -9.
Not here: what a definition means (definitions.py), how it gets to the disk (store/).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


class Ledger(Protocol):
    def put(self, kind: str, key: tuple[str, ...], body: dict[str, Json]) -> None:
        """This definition is new, or is now so."""
        ...

    def drop(self, kind: str, key: tuple[str, ...]) -> None:
        """This definition is gone."""
        ...

    def after_commit(self, callback: Callable[[], None]) -> None:
        """Call this when all that was put or dropped until now is on disk; at once if nothing waits."""
        ...


class NoLedger:
    """Nothing is kept: a broker in memory only."""

    __slots__ = ()

    def put(self, kind: str, key: tuple[str, ...], body: dict[str, Json]) -> None:
        return

    def drop(self, kind: str, key: tuple[str, ...]) -> None:
        return

    def after_commit(self, callback: Callable[[], None]) -> None:
        callback()


NO_LEDGER: Final = NoLedger()

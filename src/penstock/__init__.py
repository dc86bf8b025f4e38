"""Penstock: an AMQP 0-9-1 broker whose centre is credit-based back-pressure.

`Broker`, `BrokerThread` and `StartError` are imported when they are first asked for: a program that only wants the
version, or a pytest run that uses no broker, should not pay for one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.embed import Broker, BrokerThread, StartError

__version__ = "0.1.0"
__all__ = ["Broker", "BrokerThread", "StartError", "__version__"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from penstock import embed

    return getattr(embed, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])

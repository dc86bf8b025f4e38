"""Kinds: a listing by the name of what it lists.

Place: between admin and the listings of each kind. Not here: what they list (queues.py, exchanges.py and so on).
"""

from __future__ import annotations

from collections.abc import Container

from penstock.broker.broker import Broker
from penstock.broker.snapshot.channels import list_channels, list_consumers
from penstock.broker.snapshot.connections import list_connections
from penstock.broker.snapshot.exchanges import list_bindings, list_exchanges
from penstock.broker.snapshot.listing import BINDINGS, CHANNELS, CONNECTIONS, CONSUMERS, EXCHANGES, QUEUES, Listing
from penstock.broker.snapshot.queues import list_queues


def list_kind(
    broker: Broker,
    kind: str,
    vhost: str | None = None,
    among: Container[str] | None = None,
    user: str | None = None,
) -> Listing:
    if kind == QUEUES:
        return list_queues(broker, vhost, among)
    if kind == EXCHANGES:
        return list_exchanges(broker, vhost, among)
    if kind == BINDINGS:
        return list_bindings(broker, vhost, among)
    if kind == CONNECTIONS:
        return list_connections(broker, vhost, among, user)
    if kind == CHANNELS:
        return list_channels(broker, vhost, among, user)
    assert kind == CONSUMERS, f"there is no listing of {kind}"
    return list_consumers(broker, vhost, among, user)

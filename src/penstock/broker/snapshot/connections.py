"""Connections: each as an operator sees it, in RabbitMQ's JSON, and beyond it: what its publishes wait for.

Place: admin hands these to management. What only the socket knows is in `Peer.portrait` (net/portrait.py).
Not here: what a connection does (net/connection.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import ClassVar, Final

from penstock.broker.broker import Broker
from penstock.broker.ledger import Json
from penstock.broker.peer import Peer
from penstock.broker.snapshot.common import blocked_seconds, node_name
from penstock.broker.snapshot.listing import CONNECTIONS, Things

OCTETS: Final = ("recv_oct", "send_oct", "recv_cnt", "send_cnt")


def connection_view(peer: Peer) -> dict[str, Json]:
    view: dict[str, Json] = {
        "name": peer.name,
        "user": peer.user,
        "user_who_performed_action": peer.user,
        "vhost": peer.vhost.name,
        "node": node_name(),
        "type": "network",
        "state": peer.flow_state(),
        "channels": peer.channel_count(),
        "blocked_by": peer.blocked_by(),
        "blocked_seconds": _blocked_seconds(peer),
        "blocks": _blocks(peer),
        "parked_bytes": peer.parked_bytes(),
    }
    view.update(zip(OCTETS, peer.octets(), strict=True))
    view.update(peer.portrait())
    return view


def _blocked_seconds(peer: Peer) -> float:
    return blocked_seconds(peer.reader) if peer.reader is not None else 0.0


def _blocks(peer: Peer) -> int:
    return peer.reader.blocks if peer.reader is not None else 0


COLUMNS: Final[Mapping[str, Callable[[Peer], Json]]] = {
    "name": lambda peer: peer.name,
    "user": lambda peer: peer.user,
    "vhost": lambda peer: peer.vhost.name,
    "state": lambda peer: peer.flow_state(),
    "channels": lambda peer: peer.channel_count(),
    "parked_bytes": lambda peer: peer.parked_bytes(),
    "blocked": lambda peer: peer.reader is not None and bool(peer.reader.blocked_by),
    "blocks": _blocks,
    "blocked_seconds": _blocked_seconds,
    "recv_oct": lambda peer: peer.octets()[0],
    "send_oct": lambda peer: peer.octets()[1],
    "recv_cnt": lambda peer: peer.octets()[2],
    "send_cnt": lambda peer: peer.octets()[3],
}


class ConnectionListing(Things[Peer]):
    KIND = CONNECTIONS
    COUNTERS: ClassVar[tuple[str, ...]] = OCTETS

    def name(self, at: int) -> str:
        return self.things[at].name

    def vhost(self, at: int) -> str:
        return self.things[at].vhost.name

    def user(self, at: int) -> str:
        return self.things[at].user

    def is_there(self, thing: Peer) -> bool:
        return thing in self.broker.peers

    def view_of(self, thing: Peer) -> dict[str, Json]:
        return connection_view(thing)

    def columns(self) -> Mapping[str, Callable[[Peer], Json]]:
        return COLUMNS

    def counters(self, at: int) -> tuple[int, ...]:
        peer = self.things[at]
        return peer.octets() if self.is_there(peer) else ()


def list_connections(
    broker: Broker, vhost: str | None = None, among: Container[str] | None = None, user: str | None = None
) -> ConnectionListing:
    peers = [
        peer
        for peer in (broker.peers.all() if vhost is None else broker.peers.of_vhost(vhost))
        if user in (None, peer.user) and (among is None or peer.vhost.name in among)
    ]
    return ConnectionListing(broker, peers)

"""Peers: the connections that are open, by user and by vhost. For the limits on them, and for closing them.

Place in the chain: net/handshake.py brings a connection in through `Broker.enter`, net/connection.py takes it out when
its socket is gone or its client said goodbye; net/reader.py asks before it opens a channel.
Not here: how many connections a port takes (net/listener.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.amqp.close import CONNECTION_FORCED, NOT_ALLOWED, CloseConnection
from penstock.broker.users import MAX_CHANNELS, MAX_CONNECTIONS, NO_LIMIT, Users

if TYPE_CHECKING:
    from penstock.broker.peer import Peer
    from penstock.broker.vhost import VHost


class Peers:
    __slots__ = ("_by_user", "_by_vhost", "_places", "_users", "gone")

    def __init__(self, users: Users) -> None:
        self._users = users
        self._places: dict[Peer, tuple[str, str]] = {}  # user and vhost
        self.gone = 0  # how many were here and are not any more
        self._by_user: dict[str, dict[Peer, None]] = {}
        self._by_vhost: dict[str, dict[Peer, None]] = {}

    def add(self, peer: Peer) -> None:
        self._places[peer] = peer.user, peer.vhost.name
        self._by_user.setdefault(peer.user, {})[peer] = None
        self._by_vhost.setdefault(peer.vhost.name, {})[peer] = None

    def remove(self, peer: Peer) -> None:
        """As often as one likes, also if it never came in."""
        place = self._places.pop(peer, None)
        if place is not None:
            self.gone += 1
            user, vhost = place
            _take(self._by_user, user, peer)
            _take(self._by_vhost, vhost, peer)

    def of_user(self, user: str) -> list[Peer]:
        return list(self._by_user.get(user, ()))

    def of_vhost(self, vhost: str) -> list[Peer]:
        return list(self._by_vhost.get(vhost, ()))

    def __contains__(self, peer: Peer) -> bool:
        return peer in self._places

    def all(self) -> list[Peer]:
        return list(self._places)

    # Limits, in RabbitMQ's words and order: the vhost's, then the user's.

    def check_connection(self, user: str, vhost: VHost) -> None:
        """One more connection of this user to this vhost, or 530."""
        limit = max(vhost.limits.get(MAX_CONNECTIONS, NO_LIMIT), NO_LIMIT)
        if limit != NO_LIMIT and len(self._by_vhost.get(vhost.name, ())) >= limit:
            raise CloseConnection(
                NOT_ALLOWED,
                f"access to vhost '{vhost.name}' refused for user '{user}': connection limit ({limit}) is reached",
                10,
                40,
            )
        limit = self._users.limit(user, MAX_CONNECTIONS)
        if limit != NO_LIMIT and len(self._by_user.get(user, ())) >= limit:
            raise CloseConnection(
                NOT_ALLOWED, f"connection refused for user '{user}': user connection limit ({limit}) is reached", 10, 40
            )

    def check_channel(self, user: str) -> None:
        """One more channel of this user, on whichever of its connections, or 530."""
        limit = self._users.limit(user, MAX_CHANNELS)
        if limit != NO_LIMIT and sum(peer.channel_count() for peer in self._by_user.get(user, ())) >= limit:
            raise CloseConnection(
                NOT_ALLOWED,
                f"number of channels opened for user '{user}' has reached the maximum allowed user limit of ({limit})",
            )

    # Closing.

    def close_user(self, user: str, reason: str) -> None:
        close(self.of_user(user), reason)

    def close_vhost(self, vhost: str, reason: str) -> None:
        close(self.of_vhost(vhost), reason)

    def __len__(self) -> int:
        return len(self._places)

    def __repr__(self) -> str:
        return f"<Peers {len(self)} users={len(self._by_user)} vhosts={len(self._by_vhost)}>"


def close(peers: list[Peer], reason: str) -> None:
    """By an operator: 320 with this reason."""
    for peer in peers:
        peer.fail(CloseConnection(CONNECTION_FORCED, reason))


def _take(table: dict[str, dict[Peer, None]], key: str, peer: Peer) -> None:
    peers = table[key]
    del peers[peer]
    if not peers:
        del table[key]

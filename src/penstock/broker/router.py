"""Router: from a publish to the queues it goes to, for one channel.

What it found is remembered in the Publish itself, of which there is one for all publishes of a connection with the same
bytes. A remembered route holds as long as the vhost's version; changes of exchanges, queues, bindings, policies and
permissions all change that, so nothing here can go stale.
Place: inside channel.py. Not here: what an exchange matches (exchange.py), the way through several of them (vhost.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.amqp import content
from penstock.amqp.close import ACCESS_REFUSED, NOT_IMPLEMENTED, CloseChannel, CloseConnection
from penstock.amqp.decoder import Message, Publish
from penstock.amqp.properties import decode_properties
from penstock.broker.exchange import TOPIC
from penstock.broker.rules import Examined
from penstock.broker.vhost import Route

if TYPE_CHECKING:
    from penstock.broker.peer import Peer
    from penstock.broker.queue import Queue


class Router:
    __slots__ = ("_peer", "_vhost")

    def __init__(self, peer: Peer) -> None:
        self._peer = peer
        self._vhost = peer.vhost

    def route(self, publish: Publish) -> Route:
        route = publish.route
        if type(route) is Route and route.version == self._vhost.version:
            return route
        return self._find(publish)

    def queues(self, message: Message, examined: Examined | None) -> tuple[Queue, ...]:
        """Where this message goes, whose properties were examined if they have to be."""
        publish = message[0]
        route = self.route(publish)
        if examined is not None and examined.more_keys:
            return self._vhost.route(
                self._vhost.exchange(publish.exchange), publish.routing_key, examined.properties, examined.more_keys
            ).queues
        if not route.by_headers:
            return route.queues
        wire = message[1]
        properties = (
            examined.properties
            if examined is not None
            else decode_properties(wire, content.FLAGS_OFFSET, content.properties_end(wire))
        )
        return self._vhost.route(self._vhost.exchange(publish.exchange), publish.routing_key, properties).queues

    def _find(self, publish: Publish) -> Route:
        vhost = self._vhost
        if publish.immediate:
            raise CloseConnection(NOT_IMPLEMENTED, "immediate=true")
        access = self._peer.access
        access.write("exchange", publish.exchange)
        exchange = vhost.exchange(publish.exchange)
        if exchange.internal:
            raise CloseChannel(
                ACCESS_REFUSED, f"cannot publish to internal exchange '{exchange.name}' in vhost '{vhost.name}'"
            )
        if not exchange.name:
            vhost.check_unprotected(publish.routing_key)
        if exchange.kind == TOPIC:
            access.write_topic(exchange.name, publish.routing_key)
        route = vhost.route(exchange, publish.routing_key, None)
        publish.route = route
        return route

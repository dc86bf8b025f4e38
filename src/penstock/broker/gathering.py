"""Gathering: a batch of publishes, routed, numbered and sorted into one arrival for each queue they go to.

Three ways, by what the batch needs: all alike (one route, one arrival per queue, the batch as it is), plain (each by
its own route), one by one (with properties that the broker has rules for, or in a transaction). Counted here too: what
was published, to which exchange, and what led nowhere.
Place: inside channel.py. Not here: finding the route (router.py), handing over and credit (handover.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.amqp import content
from penstock.amqp.close import NO_ROUTE
from penstock.amqp.decoder import Message, Publishes
from penstock.amqp.method import BasicReturn, encode_method
from penstock.broker.casts import NO_TTL, Arrival
from penstock.broker.producers import Publishing
from penstock.broker.rules import examine
from penstock.broker.transaction import Posted
from penstock.credit import Link

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.exchange import Exchange
    from penstock.broker.queue import Queue
    from penstock.broker.vhost import Route


def gather_alike(channel: Channel, item: Publishes, route: Route, arrivals: dict[Queue, Arrival]) -> None:
    queues, exchange, count = route.queues, route.exchange, len(item.messages)
    channel.tally.publish += count
    exchange.publish_in += count
    exchange.publish_out += count * len(queues)
    if not queues:
        _unroutable(channel, item.messages)
    numbers: list[tuple[int, int]] = []
    if channel.confirms is not None:
        first = channel.confirms.expect(count, len(queues))
        numbers.append((first, first + count - 1))
    for queue in queues:
        arrival = Arrival(channel, _link(channel, queue), item.messages, item.bytes, numbers, item.modes)
        arrival.publishings = list(item.publishings) if item.publishings is not None else None
        arrivals[queue] = arrival


def gather_plain(channel: Channel, item: Publishes, arrivals: dict[Queue, Arrival]) -> None:
    confirms, router = channel.confirms, channel.router
    exchange: Exchange | None = None
    taken = given = 0  # how many it got in a row, and queues got of them
    try:
        for message in item.messages:
            route = router.route(message[0])
            if route.exchange is not exchange:
                _count(channel, exchange, taken, given)
                exchange, taken, given = route.exchange, 0, 0
            queues = router.queues(message, None) if route.by_headers else route.queues
            taken += 1
            given += len(queues)
            if not queues:
                _unroutable(channel, (message,))
            number = confirms.expect(1, len(queues)) if confirms is not None else 0
            for queue in queues:
                arrival = arrivals.get(queue)
                if arrival is None:
                    arrival = arrivals[queue] = Arrival(channel, _link(channel, queue), [], 0, [], item.modes)
                arrival.messages.append(message)
                arrival.bytes += len(message[1])
                if number:
                    arrival.numbers.append((number, number))
    finally:  # what was right before a wrong one counts
        _count(channel, exchange, taken, given)


def gather_one(
    channel: Channel, message: Message, plain: bool, publishing: Publishing | None, arrivals: dict[Queue, Arrival]
) -> None:
    ttl_ms = NO_TTL
    if plain:
        queues = channel.router.queues(message, None)
    else:
        channel.router.route(message[0])  # a missing exchange is said before a wrong property
        reply_name = channel.replies.queue_name if channel.replies is not None else ""
        peer = channel.peer
        examined = examine(message, peer.user, peer.access.may_impersonate(), reply_name, peer.numbers)
        queues = channel.router.queues(message, examined)
        message, ttl_ms, publishing = examined.message, examined.ttl_ms, examined.publishing
    posted = Posted(message, queues, ttl_ms, publishing)
    if channel.transaction is not None:
        channel.transaction.post(posted)
        return
    number = channel.confirms.expect(1, len(queues)) if channel.confirms is not None else 0
    address(channel, posted, queues, number, arrivals)


def address(
    channel: Channel, posted: Posted, queues: tuple[Queue, ...], number: int, arrivals: dict[Queue, Arrival]
) -> None:
    """One message to these queues."""
    channel.tally.publish += 1
    exchange = channel.vhost.exchanges.get(posted.message[0].exchange)
    if exchange is not None:  # in a transaction it may be gone by now
        exchange.publish_in += 1
        exchange.publish_out += len(queues)
    if not queues:
        _unroutable(channel, (posted.message,))
    for queue in queues:
        arrival = arrivals.get(queue)
        if arrival is None:
            arrival = arrivals[queue] = Arrival(channel, _link(channel, queue), [], 0, [])
        arrival.add(posted.message, number, posted.ttl_ms, posted.publishing)


def _link(channel: Channel, queue: Queue) -> Link:
    link = channel.outgoing.get(queue)
    return link if link is not None else Link(channel.queue_hop, channel, queue)


def _count(channel: Channel, exchange: Exchange | None, taken: int, given: int) -> None:
    channel.tally.publish += taken
    if exchange is not None:
        exchange.publish_in += taken
        exchange.publish_out += given


def _unroutable(channel: Channel, messages: Sequence[Message]) -> None:
    """All of them were published in the same way."""
    publish = messages[0][0]
    if not publish.mandatory:
        channel.tally.drop_unroutable += len(messages)
        return
    channel.tally.return_unroutable += len(messages)
    method = encode_method(BasicReturn(NO_ROUTE, "NO_ROUTE", publish.exchange, publish.routing_key), channel.number)
    for _, wire in messages:
        channel.outbox.send(method + content.refit(wire, channel.number, channel.frame_max))

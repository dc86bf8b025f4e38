"""Channels and consumers: each as an operator sees it, in RabbitMQ's JSON, and beyond it: what a channel waits for.

Place: admin hands these to management. Not here: what a channel does (channel.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import ClassVar, Final

from penstock.broker.broker import Broker
from penstock.broker.channel import CLOSED, CLOSING, Channel
from penstock.broker.consumer import Consumer
from penstock.broker.ledger import Json
from penstock.broker.plain import plain_table
from penstock.broker.snapshot.common import blocked_seconds, message_stats, node_name, reasons, state
from penstock.broker.snapshot.listing import CHANNELS, CONSUMERS, Things
from penstock.broker.tally import COUNTERS, channel_counts


def channel_name(channel: Channel) -> str:
    return f"{channel.peer.name} ({channel.number})"


def channel_view(channel: Channel, whole: bool = False) -> dict[str, Json]:
    """`whole`: with its consumers one by one, as RabbitMQ's view of a single channel has them."""
    peer, transaction = channel.peer, channel.transaction
    portrait = peer.portrait()
    view: dict[str, Json] = {
        "name": channel_name(channel),
        "number": channel.number,
        "user": peer.user,
        "user_who_performed_action": peer.user,
        "vhost": channel.vhost.name,
        "node": node_name(),
        "state": _state(channel),
        "blocked_by": reasons(channel),
        "blocked_seconds": blocked_seconds(channel),
        "connection_details": {
            "name": peer.name,
            "peer_host": portrait.get("peer_host"),
            "peer_port": portrait.get("peer_port"),
        },
        "confirm": channel.confirms is not None,
        "transactional": transaction is not None,
        "consumer_count": len(channel.consumers),
        "prefetch_count": channel.prefetch,
        "global_prefetch_count": channel.limiter.prefetch,
        "messages_unacknowledged": len(channel.deliveries.unacked),
        "messages_unconfirmed": channel.confirms.unconfirmed() if channel.confirms is not None else 0,
        "messages_uncommitted": transaction.unpublished() if transaction is not None else 0,
        "acks_uncommitted": transaction.unsettled() if transaction is not None else 0,
        "message_stats": message_stats(channel_counts(channel)),
    }
    if whole:
        view["consumer_details"] = [consumer_view(consumer) for consumer in channel.consumers.values()]
        view["publishes"] = []
        view["deliveries"] = []
    return view


def _state(channel: Channel) -> str:
    return "closing" if channel.state in (CLOSING, CLOSED) else state(channel)


COLUMNS: Final[Mapping[str, Callable[[Channel], Json]]] = {
    "name": channel_name,
    "number": lambda channel: channel.number,
    "user": lambda channel: channel.peer.user,
    "vhost": lambda channel: channel.vhost.name,
    "state": _state,
    "confirm": lambda channel: channel.confirms is not None,
    "consumer_count": lambda channel: len(channel.consumers),
    "prefetch_count": lambda channel: channel.prefetch,
    "messages_unacknowledged": lambda channel: len(channel.deliveries.unacked),
    "messages_unconfirmed": lambda channel: channel.confirms.unconfirmed() if channel.confirms is not None else 0,
    "messages_uncommitted": lambda channel: channel.transaction.unpublished() if channel.transaction else 0,
    "acks_uncommitted": lambda channel: channel.transaction.unsettled() if channel.transaction else 0,
    "global_prefetch_count": lambda channel: channel.limiter.prefetch,
    "blocked": lambda channel: bool(channel.blocked_by),
    "blocks": lambda channel: channel.blocks,
    "blocked_seconds": blocked_seconds,
    "message_stats.confirm": lambda channel: channel.confirms.confirmed() if channel.confirms is not None else 0,
    "message_stats.ack": lambda channel: channel_counts(channel)[COUNTERS.index("ack")],
    "message_stats.publish": lambda channel: channel.tally.publish,
    "message_stats.deliver_get": lambda channel: channel.deliveries.next_tag - 1,
}


class ChannelListing(Things[Channel]):
    KIND = CHANNELS
    COUNTERS: ClassVar[tuple[str, ...]] = COUNTERS

    def name(self, at: int) -> str:
        return channel_name(self.things[at])

    def vhost(self, at: int) -> str:
        return self.things[at].vhost.name

    def user(self, at: int) -> str:
        return self.things[at].peer.user

    def is_there(self, thing: Channel) -> bool:
        return thing.state != CLOSED

    def view_of(self, thing: Channel) -> dict[str, Json]:
        return channel_view(thing)

    def columns(self) -> Mapping[str, Callable[[Channel], Json]]:
        return COLUMNS

    def counters(self, at: int) -> tuple[int, ...]:
        channel = self.things[at]
        return channel_counts(channel) if self.is_there(channel) else ()


def open_channels(
    broker: Broker, vhost: str | None = None, among: Container[str] | None = None, user: str | None = None
) -> list[Channel]:
    """Those of connections; errands of operators are none of their business."""
    return [
        channel
        for channel in broker.ack_timeout.channels
        if channel.peer.is_client
        and vhost in (None, channel.vhost.name)
        and user in (None, channel.peer.user)
        and (among is None or channel.vhost.name in among)
    ]


def list_channels(
    broker: Broker, vhost: str | None = None, among: Container[str] | None = None, user: str | None = None
) -> ChannelListing:
    return ChannelListing(broker, open_channels(broker, vhost, among, user))


# Consumers.


def consumer_view(consumer: Consumer) -> dict[str, Json]:
    channel, queue = consumer.channel, consumer.queue
    portrait = channel.peer.portrait()
    is_active = queue.subscribers.is_active(consumer)
    return {
        "consumer_tag": consumer.tag,
        "queue": {"name": queue.queue_name, "vhost": queue.vhost_name},
        "ack_required": not consumer.no_ack,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch,
        "active": is_active,
        "activity_status": "up" if is_active or not queue.subscribers.single_active else "waiting",
        "arguments": plain_table(consumer.arguments),
        "messages_unacknowledged": consumer.unacked,
        "channel_details": {
            "name": channel_name(channel),
            "number": channel.number,
            "connection_name": channel.peer.name,
            "peer_host": portrait.get("peer_host"),
            "peer_port": portrait.get("peer_port"),
            "user": channel.peer.user,
            "node": node_name(),
        },
    }


CONSUMER_COLUMNS: Final[Mapping[str, Callable[[Consumer], Json]]] = {
    "consumer_tag": lambda consumer: consumer.tag,
    "queue.name": lambda consumer: consumer.queue.queue_name,
    "queue.vhost": lambda consumer: consumer.queue.vhost_name,
    "prefetch_count": lambda consumer: consumer.prefetch,
    "channel_details.name": lambda consumer: channel_name(consumer.channel),
}


class ConsumerListing(Things[Consumer]):
    KIND = CONSUMERS

    def name(self, at: int) -> str:
        return self.things[at].tag

    def vhost(self, at: int) -> str:
        return self.things[at].queue.vhost_name

    def is_there(self, thing: Consumer) -> bool:
        return thing.active

    def view_of(self, thing: Consumer) -> dict[str, Json]:
        return consumer_view(thing)

    def columns(self) -> Mapping[str, Callable[[Consumer], Json]]:
        return CONSUMER_COLUMNS


def list_consumers(
    broker: Broker, vhost: str | None = None, among: Container[str] | None = None, user: str | None = None
) -> ConsumerListing:
    channels = open_channels(broker, vhost, among, user)
    return ConsumerListing(broker, [consumer for channel in channels for consumer in channel.consumers.values()])

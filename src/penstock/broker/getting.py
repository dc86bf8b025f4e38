"""Getting: the answer to basic.get, and who stands for it where a delivery's consumer is asked for.

Place: inside channel.py, which a queue tells what it found.
Not here: taking the message (queue.py), acks of it (deliveries.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.amqp import content
from penstock.amqp.decoder import Message
from penstock.amqp.method import BasicGetOk, encode_method
from penstock.broker.consumer import Consumer

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.queue import Queue


def deliver_got(
    channel: Channel, queue: Queue, position: int, message: Message, redelivered: bool, left: int, no_ack: bool
) -> None:
    publish, wire = message
    deliveries, tally = channel.deliveries, channel.tally
    tag = deliveries.next_tag
    deliveries.next_tag += 1
    method = BasicGetOk(tag, redelivered, publish.exchange, publish.routing_key, left)
    channel.outbox.send(encode_method(method, channel.number) + content.refit(wire, channel.number, channel.frame_max))
    tally.redeliver += redelivered
    if no_ack:
        tally.get_no_ack += 1
    else:
        tally.get += 1
        deliveries.unacked[tag] = (_getter(channel, queue), position)


def _getter(channel: Channel, queue: Queue) -> Consumer:
    """Never subscribed, counted in no prefetch."""
    getter = channel.getters.get(queue)
    if getter is None:
        getter = channel.getters[queue] = Consumer(channel, queue, "", False, False, 0, {}, counted=False)
    return getter

"""Command: what a channel does on each method but publish, ack and nack. One function per method.

The class and method ids of a refusal are filled in by channel.py, which knows the method at hand.
Not here: methods of class connection (net/handshake.py), tx (refused until it exists).
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from penstock.amqp.close import (
    COMMAND_INVALID,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    CloseChannel,
    CloseConnection,
)
from penstock.amqp.method import (
    AccessRequest,
    AccessRequestOk,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicGet,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    ChannelFlow,
    ChannelFlowOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    Method,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueueUnbind,
    QueueUnbindOk,
    TxCommit,
    TxRollback,
    TxSelect,
)
from penstock.broker.casts import Count, Delete, Get, Purge, Subscribe, Unsubscribe
from penstock.broker.consumer import Consumer

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.queue import Queue


def perform(channel: Channel, method: Method) -> None:
    match method:
        case BasicConsume():
            consume(channel, method)
        case BasicGet():
            channel.call(_queue(channel, method.queue), Get(channel, method.no_ack))
        case BasicCancel():
            cancel(channel, method)
        case BasicQos():
            qos(channel, method)
        case QueueDeclare():
            queue_declare(channel, method)
        case QueueBind():
            queue_bind(channel, method)
        case QueueUnbind():
            queue_unbind(channel, method)
        case QueuePurge():
            channel.call(_queue(channel, method.queue), Purge(channel, method.nowait))
        case QueueDelete():
            queue_delete(channel, method)
        case ExchangeDeclare():
            channel.vhost.declare_exchange(method)
            _reply(channel, method.nowait, ExchangeDeclareOk())
        case ExchangeDelete():
            channel.vhost.delete_exchange(method.exchange, method.if_unused)
            _reply(channel, method.nowait, ExchangeDeleteOk())
        case ExchangeBind():
            exchange_bind(channel, method)
        case ExchangeUnbind():
            exchange_unbind(channel, method)
        case ConfirmSelect():
            channel.start_confirms()
            _reply(channel, method.nowait, ConfirmSelectOk())
        case BasicRecover():
            recover(channel, method.requeue)
            channel.send(BasicRecoverOk())
        case BasicRecoverAsync():
            recover(channel, method.requeue)
        case ChannelFlow():
            flow(channel, method)
        case AccessRequest():
            channel.send(AccessRequestOk(1))  # a relic of AMQP 0-8; old clients still ask
        case TxSelect() | TxCommit() | TxRollback():
            raise CloseConnection(NOT_IMPLEMENTED, f"{method.NAME} is not supported yet")
        case _:
            raise CloseConnection(COMMAND_INVALID, "unimplemented method")


def _reply(channel: Channel, nowait: bool, method: Method) -> None:
    if not nowait:
        channel.send(method)


def _queue_name(channel: Channel, name: str) -> str:
    """An empty name means the queue declared last on this channel."""
    if name:
        return name
    if not channel.last_queue:
        raise CloseChannel(NOT_FOUND, "no previously declared queue")
    return channel.last_queue


def _queue(channel: Channel, name: str) -> Queue:
    return channel.vhost.queue(_queue_name(channel, name), channel.peer)


def _binding_key(channel: Channel, queue: str, key: str) -> str:
    """With neither queue nor key given, the key is the queue's name too."""
    return channel.last_queue if not queue and not key else key


def queue_declare(channel: Channel, method: QueueDeclare) -> None:
    queue = channel.vhost.declare_queue(method, channel.peer)
    channel.last_queue = queue.queue_name
    channel.call(queue, Count(channel, method.nowait))


def queue_bind(channel: Channel, method: QueueBind) -> None:
    name = _queue_name(channel, method.queue)
    channel.vhost.check_not_default(method.exchange)
    exchange = channel.vhost.exchange(method.exchange)
    key = _binding_key(channel, method.queue, method.routing_key)
    channel.vhost.bind(exchange, channel.vhost.queue(name, channel.peer), key, method.arguments)
    _reply(channel, method.nowait, QueueBindOk())


def queue_unbind(channel: Channel, method: QueueUnbind) -> None:
    name = _queue_name(channel, method.queue)
    channel.vhost.check_not_default(method.exchange)
    queue = channel.vhost.queue(name, channel.peer) if name in channel.vhost.queues else None
    key = _binding_key(channel, method.queue, method.routing_key)
    channel.vhost.unbind(method.exchange, queue, key, method.arguments)
    channel.send(QueueUnbindOk())


def queue_delete(channel: Channel, method: QueueDelete) -> None:
    name = _queue_name(channel, method.queue)
    if name not in channel.vhost.queues:
        _reply(channel, method.nowait, QueueDeleteOk(0))
        return
    queue = channel.vhost.queue(name, channel.peer)
    channel.call(queue, Delete(channel, method.if_unused, method.if_empty, method.nowait))


def exchange_bind(channel: Channel, method: ExchangeBind) -> None:
    vhost = channel.vhost
    vhost.check_not_default(method.source)
    vhost.check_not_default(method.destination)
    source = vhost.exchange(method.source)
    vhost.bind(source, vhost.exchange(method.destination), method.routing_key, method.arguments)
    _reply(channel, method.nowait, ExchangeBindOk())


def exchange_unbind(channel: Channel, method: ExchangeUnbind) -> None:
    vhost = channel.vhost
    vhost.check_not_default(method.source)
    vhost.check_not_default(method.destination)
    destination = vhost.exchanges.get(method.destination)
    vhost.unbind(method.source, destination, method.routing_key, method.arguments)
    _reply(channel, method.nowait, ExchangeUnbindOk())


def consume(channel: Channel, method: BasicConsume) -> None:
    queue = _queue(channel, method.queue)
    tag = method.consumer_tag or "amq.ctag-" + secrets.token_urlsafe(16)
    if tag in channel.consumers:
        raise CloseConnection(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    consumer = Consumer(channel, queue, tag, method.no_ack, method.exclusive, channel.prefetch, method.arguments)
    channel.consumers[tag] = consumer
    channel.call(queue, Subscribe(consumer, method.nowait))


def cancel(channel: Channel, method: BasicCancel) -> None:
    consumer = channel.consumers.pop(method.consumer_tag, None)
    if consumer is None:
        _reply(channel, method.nowait, BasicCancelOk(method.consumer_tag))
    else:
        channel.call(consumer.queue, Unsubscribe(consumer, answer=True, nowait=method.nowait))


def qos(channel: Channel, method: BasicQos) -> None:
    if method.prefetch_size:
        raise CloseConnection(NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.limiter.change(method.prefetch_count)
    else:
        channel.prefetch = method.prefetch_count
    channel.send(BasicQosOk())


def recover(channel: Channel, requeue: bool) -> None:
    if not requeue:
        raise CloseConnection(NOT_IMPLEMENTED, "requeue=false")
    channel.requeue_all()


def flow(channel: Channel, method: ChannelFlow) -> None:
    channel.deliveries_paused = not method.active
    if method.active:
        for consumer in channel.consumers.values():
            consumer.queue.mailbox.wake()
    channel.send(ChannelFlowOk(method.active))

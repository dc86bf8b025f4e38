"""Command: what a channel does on each method but publish, ack and nack. One function per method.

The class and method ids of a refusal are filled in by channel.py, which knows the method at hand.
Not here: methods of class connection (net/handshake.py).
"""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING

from penstock.amqp.close import (
    COMMAND_INVALID,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
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
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueueUnbind,
    QueueUnbindOk,
    TxCommit,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from penstock.amqp.table import Table
from penstock.broker.access import EXCHANGE, QUEUE
from penstock.broker.casts import Count, Delete, Get, Purge, Subscribe, Unsubscribe
from penstock.broker.consumer import Consumer
from penstock.broker.equivalence import type_name
from penstock.broker.exchange import TOPIC, TYPES, strip_cr_lf
from penstock.broker.rules import DIRECT_REPLY
from penstock.broker.stamps import stamps_for
from penstock.broker.stream import Stream
from penstock.broker.vhost import RESERVED_PREFIX
from penstock.broker.whence import check_no_stream

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.queue import Queue
    from penstock.broker.transaction import Transaction


def perform(channel: Channel, method: Method) -> None:
    match method:
        case BasicConsume():
            consume(channel, method)
        case BasicGet():
            channel.call(_destructive(channel, method.queue, "basic.get"), Get(channel, method.no_ack))
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
            channel.call(_destructive(channel, method.queue, "queue.purge"), Purge(channel, method.nowait))
        case QueueDelete():
            queue_delete(channel, method)
        case ExchangeDeclare():
            exchange_declare(channel, method)
        case ExchangeDelete():
            exchange_delete(channel, method)
        case ExchangeBind():
            exchange_bind(channel, method)
        case ExchangeUnbind():
            exchange_unbind(channel, method)
        case ConfirmSelect():
            if channel.transaction is not None:
                raise CloseChannel(PRECONDITION_FAILED, "cannot switch from tx to confirm mode")
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
        case TxSelect():
            if channel.confirms is not None:
                raise CloseChannel(PRECONDITION_FAILED, "cannot switch from confirm to tx mode")
            channel.start_transactions()
            channel.send(TxSelectOk())
        case TxCommit():
            channel.commit(_transaction(channel))
        case TxRollback():
            channel.roll_back(_transaction(channel))
            channel.send(TxRollbackOk())
        case _:
            raise CloseConnection(COMMAND_INVALID, "unimplemented method")


def _reply(channel: Channel, nowait: bool, method: Method) -> None:
    if not nowait:
        channel.send(method)


def _reply_when_kept(channel: Channel, nowait: bool, method: Method) -> None:
    """After a change of what is declared: a client that was answered must find it after kill -9."""
    channel.after_commit(partial(_reply, channel, nowait, method))


def _transaction(channel: Channel) -> Transaction:
    if channel.transaction is None:
        raise CloseChannel(PRECONDITION_FAILED, "channel is not transactional")
    return channel.transaction


def _queue_name(channel: Channel, name: str) -> str:
    """An empty name means the queue declared last on this channel."""
    if name:
        return name
    if not channel.last_queue:
        raise CloseChannel(NOT_FOUND, "no previously declared queue")
    return channel.last_queue


def _readable_queue(channel: Channel, name: str) -> Queue:
    """The queue, if it may be read from; who may not is not told whether it exists, as in RabbitMQ."""
    name = _queue_name(channel, name)
    channel.peer.access.read(QUEUE, name)
    return channel.vhost.queue(name, channel.peer)


def _destructive(channel: Channel, name: str, what: str) -> Queue:
    """The same, for a method that takes messages away, which no stream lets happen."""
    queue = _readable_queue(channel, name)
    if what == "queue.purge":
        channel.vhost.check_unprotected(queue.queue_name)
    if isinstance(queue, Stream):
        raise queue.refusal(what)
    return queue


def _binding_key(channel: Channel, queue: str, key: str) -> str:
    """With neither queue nor key given, the key is the queue's name too."""
    return channel.last_queue if not queue and not key else key


def queue_declare(channel: Channel, method: QueueDeclare) -> None:
    method.queue = strip_cr_lf(method.queue)
    if method.queue.startswith(DIRECT_REPLY):
        if method.queue != DIRECT_REPLY and method.queue not in channel.vhost.replies:
            raise CloseChannel(NOT_FOUND, f"no queue '{method.queue}' in vhost '{channel.vhost.name}'")
        _reply(channel, method.nowait, QueueDeclareOk(method.queue, 0, 1))
        return
    if not method.passive and not method.queue.startswith(RESERVED_PREFIX):  # that is refused by the vhost, to anybody
        name = method.queue or "amq.gen-" + secrets.token_urlsafe(16)  # as the vhost will name it, by another chance
        _check_declare(channel, QUEUE, name, "x-dead-letter-exchange", method.arguments)
    queue = channel.vhost.declare_queue(method, channel.peer)
    channel.last_queue = queue.queue_name
    channel.after_commit(partial(channel.call, queue, Count(channel, method.nowait)))


def _check_declare(channel: Channel, kind: str, name: str, beyond: str, arguments: Table) -> None:
    """Declaring configures. If messages can go on from there, it also reads there, and writes where they go.

    A redeclaration changes nothing, so it does not matter where messages go."""
    vhost, access = channel.vhost, channel.peer.access
    access.configure(kind, name)
    exists = name in (vhost.queues if kind == QUEUE else vhost.exchanges)
    target = arguments.get(beyond)
    if not exists and isinstance(target, str):
        access.read(kind, name)
        access.write(EXCHANGE, target)


def queue_bind(channel: Channel, method: QueueBind) -> None:
    method.queue, method.exchange = strip_cr_lf(method.queue), strip_cr_lf(method.exchange)
    name = _queue_name(channel, method.queue)
    key = _binding_key(channel, method.queue, method.routing_key)
    _check_bind(channel, QUEUE, name, method.exchange, key)
    exchange = channel.vhost.exchange(method.exchange)
    channel.vhost.bind(exchange, channel.vhost.queue(name, channel.peer), key, method.arguments)
    _reply_when_kept(channel, method.nowait, QueueBindOk())


def _check_bind(channel: Channel, kind: str, destination: str, source: str, key: str) -> None:
    """Binding and unbinding write to the destination and read from the source, and from a topic exchange by key."""
    vhost, access = channel.vhost, channel.peer.access
    access.write(kind, destination)
    if kind == EXCHANGE:
        vhost.check_not_default(destination)
    else:
        vhost.check_unprotected(destination)
    vhost.check_not_default(source)
    access.read(EXCHANGE, source)
    exchange = vhost.exchanges.get(source)
    if exchange is not None and exchange.kind == TOPIC:
        access.read_topic(source, key)


def queue_unbind(channel: Channel, method: QueueUnbind) -> None:
    method.queue, method.exchange = strip_cr_lf(method.queue), strip_cr_lf(method.exchange)
    name = _queue_name(channel, method.queue)
    key = _binding_key(channel, method.queue, method.routing_key)
    _check_bind(channel, QUEUE, name, method.exchange, key)
    queue = channel.vhost.queue(name, channel.peer) if name in channel.vhost.queues else None
    channel.vhost.unbind(method.exchange, queue, key, method.arguments)
    _reply_when_kept(channel, False, QueueUnbindOk())


def queue_delete(channel: Channel, method: QueueDelete) -> None:
    name = _queue_name(channel, strip_cr_lf(method.queue))
    channel.peer.access.configure(QUEUE, name)
    channel.vhost.check_unprotected(name)
    if name not in channel.vhost.queues:
        _reply(channel, method.nowait, QueueDeleteOk(0))
        return
    queue = channel.vhost.queue(name, channel.peer)
    channel.call(queue, Delete(channel, method.if_unused, method.if_empty, method.nowait))


def exchange_declare(channel: Channel, method: ExchangeDeclare) -> None:
    method.exchange = strip_cr_lf(method.exchange)
    if not method.passive and method.type in TYPES and method.exchange:  # the rest is refused by the vhost, to anybody
        _check_declare(channel, EXCHANGE, method.exchange, "alternate-exchange", method.arguments)
    channel.vhost.declare_exchange(method)
    _reply_when_kept(channel, method.nowait, ExchangeDeclareOk())


def exchange_delete(channel: Channel, method: ExchangeDelete) -> None:
    method.exchange = strip_cr_lf(method.exchange)
    if not method.exchange.startswith(RESERVED_PREFIX) and method.exchange:  # those are refused by the vhost
        channel.peer.access.configure(EXCHANGE, method.exchange)
    channel.vhost.delete_exchange(method.exchange, method.if_unused)
    _reply_when_kept(channel, method.nowait, ExchangeDeleteOk())


def exchange_bind(channel: Channel, method: ExchangeBind) -> None:
    method.source, method.destination = strip_cr_lf(method.source), strip_cr_lf(method.destination)
    vhost = channel.vhost
    _check_bind(channel, EXCHANGE, method.destination, method.source, method.routing_key)
    source = vhost.exchange(method.source)
    vhost.bind(source, vhost.exchange(method.destination), method.routing_key, method.arguments)
    _reply_when_kept(channel, method.nowait, ExchangeBindOk())


def exchange_unbind(channel: Channel, method: ExchangeUnbind) -> None:
    method.source, method.destination = strip_cr_lf(method.source), strip_cr_lf(method.destination)
    vhost = channel.vhost
    _check_bind(channel, EXCHANGE, method.destination, method.source, method.routing_key)
    destination = vhost.exchanges.get(method.destination)
    vhost.unbind(method.source, destination, method.routing_key, method.arguments)
    _reply_when_kept(channel, method.nowait, ExchangeUnbindOk())


def consume(channel: Channel, method: BasicConsume) -> None:
    tag = method.consumer_tag or "amq.ctag-" + secrets.token_urlsafe(16)
    if tag in channel.consumers:
        raise CloseConnection(NOT_ALLOWED, f"attempt to reuse consumer tag '{tag}'")
    if method.queue == DIRECT_REPLY:
        queue = _open_replies(channel, method.no_ack)
    else:
        queue = _readable_queue(channel, method.queue)
    consumer = Consumer(
        channel,
        queue,
        tag,
        method.no_ack,
        method.exclusive,
        channel.prefetch,
        method.arguments,
        priority=_priority(queue, method.arguments),
        stamps=None if isinstance(queue, Stream) else stamps_for(queue, method.arguments, channel.vhost.ledger),
    )
    if isinstance(queue, Stream):
        queue.check_consumer(consumer)
    else:
        check_no_stream(f"queue '{queue.queue_name}' in vhost '{queue.vhost_name}'", method.arguments)
    channel.consumers[tag] = consumer
    channel.call(queue, Subscribe(consumer, method.nowait))


def _open_replies(channel: Channel, no_ack: bool) -> Queue:
    if not no_ack:
        raise CloseChannel(PRECONDITION_FAILED, "reply consumer cannot acknowledge")
    if channel.replies is not None:
        raise CloseChannel(PRECONDITION_FAILED, "reply consumer already set")
    channel.replies = channel.vhost.open_replies(channel.peer)
    return channel.replies


def _priority(queue: Queue, arguments: Table) -> int:
    priority = arguments.get("x-priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise CloseChannel(
            PRECONDITION_FAILED,
            f"invalid arg 'x-priority' for queue '{queue.queue_name}' in vhost '{queue.vhost_name}': "
            f'"expected integer, got {type_name(priority)}"',
        )
    return priority


def cancel(channel: Channel, method: BasicCancel) -> None:
    consumer = channel.consumers.pop(method.consumer_tag, None)
    if consumer is None:
        _reply(channel, method.nowait, BasicCancelOk(method.consumer_tag))
    elif consumer.queue is channel.replies:
        channel.replies = None
        _reply(channel, method.nowait, BasicCancelOk(method.consumer_tag))
        consumer.queue.delete()
    else:
        channel.call(consumer.queue, Unsubscribe(consumer, answer=True, nowait=method.nowait))


def qos(channel: Channel, method: BasicQos) -> None:
    if method.prefetch_size:
        raise CloseConnection(NOT_IMPLEMENTED, f"prefetch_size!=0 ({method.prefetch_size})")
    if method.global_:
        channel.limiter.change(method.prefetch_count)
    else:
        channel.prefetch = method.prefetch_count
        if channel.limiter.prefetch:  # RabbitMQ's: a limit for consumers takes the channel's away
            channel.limiter.change(0)
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

"""Method: every method of AMQP 0-9-1 with RabbitMQ's extensions, one table for both directions.

One dataclass per method: `ID` and `NAME`, its arguments in wire order, and in WIRE their codes (argument.py).
Upstream: a method frame's payload from decoder.py. Downstream: values for net and broker; and back, whole frames.
An unknown method is 503: RabbitMQ 3.10 drops the socket without a word, a code says why. Arguments that do not fit
are 501, as in RabbitMQ, with the method's ids.
Own, not pamqp: that refuses names outside ASCII, bytes in tables and 64-bit timestamps, all of which RabbitMQ takes.
Dataclasses with class attributes do not compile with mypyc: this file and session.py stay interpreted.
Not here: the methods of connection, channel, access, confirm and tx (session.py, to be imported from here like the
rest), the fast path of publishes and acks (decoder.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from penstock.amqp.argument import Argument, MalformedText, read_arguments, write_arguments
from penstock.amqp.bounds import NAME_BYTES_MAX, UNBOUNDED, Bounds
from penstock.amqp.close import COMMAND_INVALID, FRAME_ERROR, NOT_ALLOWED, CloseConnection
from penstock.amqp.frame import METHOD, encode_frame
from penstock.amqp.session import SESSION_METHODS
from penstock.amqp.session import AccessRequest as AccessRequest
from penstock.amqp.session import AccessRequestOk as AccessRequestOk
from penstock.amqp.session import ChannelClose as ChannelClose
from penstock.amqp.session import ChannelCloseOk as ChannelCloseOk
from penstock.amqp.session import ChannelFlow as ChannelFlow
from penstock.amqp.session import ChannelFlowOk as ChannelFlowOk
from penstock.amqp.session import ChannelOpen as ChannelOpen
from penstock.amqp.session import ChannelOpenOk as ChannelOpenOk
from penstock.amqp.session import ConfirmSelect as ConfirmSelect
from penstock.amqp.session import ConfirmSelectOk as ConfirmSelectOk
from penstock.amqp.session import ConnectionBlocked as ConnectionBlocked
from penstock.amqp.session import ConnectionClose as ConnectionClose
from penstock.amqp.session import ConnectionCloseOk as ConnectionCloseOk
from penstock.amqp.session import ConnectionOpen as ConnectionOpen
from penstock.amqp.session import ConnectionOpenOk as ConnectionOpenOk
from penstock.amqp.session import ConnectionSecure as ConnectionSecure
from penstock.amqp.session import ConnectionSecureOk as ConnectionSecureOk
from penstock.amqp.session import ConnectionStart as ConnectionStart
from penstock.amqp.session import ConnectionStartOk as ConnectionStartOk
from penstock.amqp.session import ConnectionTune as ConnectionTune
from penstock.amqp.session import ConnectionTuneOk as ConnectionTuneOk
from penstock.amqp.session import ConnectionUnblocked as ConnectionUnblocked
from penstock.amqp.session import ConnectionUpdateSecret as ConnectionUpdateSecret
from penstock.amqp.session import ConnectionUpdateSecretOk as ConnectionUpdateSecretOk
from penstock.amqp.session import Method as Method
from penstock.amqp.session import TxCommit as TxCommit
from penstock.amqp.session import TxCommitOk as TxCommitOk
from penstock.amqp.session import TxRollback as TxRollback
from penstock.amqp.session import TxRollbackOk as TxRollbackOk
from penstock.amqp.session import TxSelect as TxSelect
from penstock.amqp.session import TxSelectOk as TxSelectOk
from penstock.amqp.table import Table


# exchange
@dataclass(slots=True)
class ExchangeDeclare(Method):
    ID = 40 << 16 | 10
    NAME = "exchange.declare"
    WIRE = "-hssbbbbbt"
    exchange: str = ""
    type: str = "direct"
    passive: bool = False
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    nowait: bool = False
    arguments: Table = field(default_factory=dict)


@dataclass(slots=True)
class ExchangeDeclareOk(Method):
    ID = 40 << 16 | 11
    NAME = "exchange.declare-ok"


@dataclass(slots=True)
class ExchangeDelete(Method):
    ID = 40 << 16 | 20
    NAME = "exchange.delete"
    WIRE = "-hsbb"
    exchange: str = ""
    if_unused: bool = False
    nowait: bool = False


@dataclass(slots=True)
class ExchangeDeleteOk(Method):
    ID = 40 << 16 | 21
    NAME = "exchange.delete-ok"


@dataclass(slots=True)
class ExchangeBind(Method):
    ID = 40 << 16 | 30
    NAME = "exchange.bind"
    WIRE = "-hsssbt"
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: Table = field(default_factory=dict)


@dataclass(slots=True)
class ExchangeBindOk(Method):
    ID = 40 << 16 | 31
    NAME = "exchange.bind-ok"


@dataclass(slots=True)
class ExchangeUnbind(Method):
    ID = 40 << 16 | 40
    NAME = "exchange.unbind"
    WIRE = "-hsssbt"
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: Table = field(default_factory=dict)


@dataclass(slots=True)
class ExchangeUnbindOk(Method):
    ID = 40 << 16 | 51
    NAME = "exchange.unbind-ok"


# queue
@dataclass(slots=True)
class QueueDeclare(Method):
    ID = 50 << 16 | 10
    NAME = "queue.declare"
    WIRE = "-hsbbbbbt"
    queue: str = ""
    passive: bool = False
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    nowait: bool = False
    arguments: Table = field(default_factory=dict)


@dataclass(slots=True)
class QueueDeclareOk(Method):
    ID = 50 << 16 | 11
    NAME = "queue.declare-ok"
    WIRE = "sll"
    queue: str = ""
    message_count: int = 0
    consumer_count: int = 0


@dataclass(slots=True)
class QueueBind(Method):
    ID = 50 << 16 | 20
    NAME = "queue.bind"
    WIRE = "-hsssbt"
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: Table = field(default_factory=dict)


@dataclass(slots=True)
class QueueBindOk(Method):
    ID = 50 << 16 | 21
    NAME = "queue.bind-ok"


@dataclass(slots=True)
class QueuePurge(Method):
    ID = 50 << 16 | 30
    NAME = "queue.purge"
    WIRE = "-hsb"
    queue: str = ""
    nowait: bool = False


@dataclass(slots=True)
class QueuePurgeOk(Method):
    ID = 50 << 16 | 31
    NAME = "queue.purge-ok"
    WIRE = "l"
    message_count: int = 0


@dataclass(slots=True)
class QueueDelete(Method):
    ID = 50 << 16 | 40
    NAME = "queue.delete"
    WIRE = "-hsbbb"
    queue: str = ""
    if_unused: bool = False
    if_empty: bool = False
    nowait: bool = False


@dataclass(slots=True)
class QueueDeleteOk(Method):
    ID = 50 << 16 | 41
    NAME = "queue.delete-ok"
    WIRE = "l"
    message_count: int = 0


@dataclass(slots=True)
class QueueUnbind(Method):
    ID = 50 << 16 | 50
    NAME = "queue.unbind"
    WIRE = "-hssst"
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    arguments: Table = field(default_factory=dict)


@dataclass(slots=True)
class QueueUnbindOk(Method):
    ID = 50 << 16 | 51
    NAME = "queue.unbind-ok"


# basic
@dataclass(slots=True)
class BasicQos(Method):
    ID = 60 << 16 | 10
    NAME = "basic.qos"
    WIRE = "lhb"
    prefetch_size: int = 0
    prefetch_count: int = 0
    global_: bool = False


@dataclass(slots=True)
class BasicQosOk(Method):
    ID = 60 << 16 | 11
    NAME = "basic.qos-ok"


@dataclass(slots=True)
class BasicConsume(Method):
    ID = 60 << 16 | 20
    NAME = "basic.consume"
    WIRE = "-hssbbbbt"
    queue: str = ""
    consumer_tag: str = ""
    no_local: bool = False
    no_ack: bool = False
    exclusive: bool = False
    nowait: bool = False
    arguments: Table = field(default_factory=dict)


@dataclass(slots=True)
class BasicConsumeOk(Method):
    ID = 60 << 16 | 21
    NAME = "basic.consume-ok"
    WIRE = "s"
    consumer_tag: str = ""


@dataclass(slots=True)
class BasicCancel(Method):
    ID = 60 << 16 | 30
    NAME = "basic.cancel"
    WIRE = "sb"
    consumer_tag: str = ""
    nowait: bool = False


@dataclass(slots=True)
class BasicCancelOk(Method):
    ID = 60 << 16 | 31
    NAME = "basic.cancel-ok"
    WIRE = "s"
    consumer_tag: str = ""


@dataclass(slots=True)
class BasicPublish(Method):
    ID = 60 << 16 | 40
    NAME = "basic.publish"
    WIRE = "-hnnbb"
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = False
    immediate: bool = False


@dataclass(slots=True)
class BasicReturn(Method):
    ID = 60 << 16 | 50
    NAME = "basic.return"
    WIRE = "hnnn"
    reply_code: int = 0
    reply_text: str = ""
    exchange: str = ""
    routing_key: str = ""


@dataclass(slots=True)
class BasicDeliver(Method):
    ID = 60 << 16 | 60
    NAME = "basic.deliver"
    WIRE = "nLbnn"
    consumer_tag: str = ""
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""


@dataclass(slots=True)
class BasicGet(Method):
    ID = 60 << 16 | 70
    NAME = "basic.get"
    WIRE = "-hsb"
    queue: str = ""
    no_ack: bool = False


@dataclass(slots=True)
class BasicGetOk(Method):
    ID = 60 << 16 | 71
    NAME = "basic.get-ok"
    WIRE = "Lbnnl"
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""
    message_count: int = 0


@dataclass(slots=True)
class BasicGetEmpty(Method):
    ID = 60 << 16 | 72
    NAME = "basic.get-empty"
    WIRE = "-s"


@dataclass(slots=True)
class BasicAck(Method):
    ID = 60 << 16 | 80
    NAME = "basic.ack"
    WIRE = "Lb"
    delivery_tag: int = 0
    multiple: bool = False


@dataclass(slots=True)
class BasicReject(Method):
    ID = 60 << 16 | 90
    NAME = "basic.reject"
    WIRE = "Lb"
    delivery_tag: int = 0
    requeue: bool = True


@dataclass(slots=True)
class BasicRecoverAsync(Method):
    ID = 60 << 16 | 100
    NAME = "basic.recover-async"
    WIRE = "b"
    requeue: bool = False


@dataclass(slots=True)
class BasicRecover(Method):
    ID = 60 << 16 | 110
    NAME = "basic.recover"
    WIRE = "b"
    requeue: bool = False


@dataclass(slots=True)
class BasicRecoverOk(Method):
    ID = 60 << 16 | 111
    NAME = "basic.recover-ok"


@dataclass(slots=True)
class BasicNack(Method):
    ID = 60 << 16 | 120
    NAME = "basic.nack"
    WIRE = "Lbb"
    delivery_tag: int = 0
    multiple: bool = False
    requeue: bool = True


METHODS: Final[tuple[type[Method], ...]] = (
    *SESSION_METHODS,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeBind,
    ExchangeBindOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueBind,
    QueueBindOk,
    QueuePurge,
    QueuePurgeOk,
    QueueDelete,
    QueueDeleteOk,
    QueueUnbind,
    QueueUnbindOk,
    BasicQos,
    BasicQosOk,
    BasicConsume,
    BasicConsumeOk,
    BasicCancel,
    BasicCancelOk,
    BasicPublish,
    BasicReturn,
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicGetEmpty,
    BasicAck,
    BasicReject,
    BasicRecoverAsync,
    BasicRecover,
    BasicRecoverOk,
    BasicNack,
)

_BY_ID: Final[dict[int, type[Method]]] = {method.ID: method for method in METHODS}

NAMING_CLASSES: Final = (40, 50, 60)  # exchange, queue, basic: whose short strings are names that the broker may keep


def decode_method(payload: bytes, bounds: Bounds = UNBOUNDED) -> Method:
    """The method in a method frame's payload; CloseConnection 501 or 503 if there is none."""
    if len(payload) < 4:
        shown = ",".join(map(str, payload))
        raise CloseConnection(FRAME_ERROR, f"type 1, all octets = <<{shown}>>: unknown_frame")
    method_id = int.from_bytes(payload[:4], "big")
    method = _BY_ID.get(method_id)
    if method is None:
        class_id, index = method_id >> 16, method_id & 0xFFFF
        raise CloseConnection(COMMAND_INVALID, f"unimplemented method {class_id}.{index}", class_id, index)
    try:
        arguments = read_arguments(method.WIRE, payload, 4, bounds)
        if bounds.name_bytes < NAME_BYTES_MAX and method_id >> 16 in NAMING_CLASSES:
            _check_names(arguments, bounds.name_bytes)
        return method(*arguments)
    except MalformedText:
        raise
    except CloseConnection as close:
        close.class_id, close.method_id = method_id >> 16, method_id & 0xFFFF
        raise


def _check_names(arguments: list[Argument], most: int) -> None:
    for name in arguments:
        if isinstance(name, str) and len(name) * 4 > most:  # four bytes are the longest character
            size = len(name.encode("utf-8", "surrogateescape"))
            if size > most:
                raise CloseConnection(NOT_ALLOWED, f"a name of {size} bytes is longer than limits.name_bytes, {most}")


def encode_method(method: Method, channel: int) -> bytes:
    """The whole frame. A value that does not fit is our bug: ValueError, struct.error or AssertionError."""
    values: list[Argument] = [getattr(method, name) for name in method.__match_args__]
    payload = method.ID.to_bytes(4, "big") + write_arguments(method.WIRE, values)
    return encode_frame(METHOD, channel, payload)

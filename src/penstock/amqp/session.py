"""Session: what a method is, and the methods that open, tune, hold and close a connection and its channels.

One dataclass per method, its arguments in wire order, their codes in WIRE (argument.py).
Imported through method.py, which has the other methods and the codec.
Not here: who may say what and when (net, broker).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from penstock.amqp.argument import Argument
from penstock.amqp.table import Table


class Method:
    """What one peer says to the other. Each method is a dataclass of this class, its arguments in wire order."""

    __slots__ = ()
    __match_args__: tuple[str, ...] = ()  # dataclass fills it: the arguments' names, in order
    ID: ClassVar[int] = 0  # class id << 16 | method id
    NAME: ClassVar[str] = ""
    WIRE: ClassVar[str] = ""

    def __init__(self, *arguments: Argument) -> None:
        raise AssertionError("only a particular method can be made")


# connection
@dataclass(slots=True)
class ConnectionStart(Method):
    ID = 10 << 16 | 10
    NAME = "connection.start"
    WIRE = "ootSS"
    version_major: int = 0
    version_minor: int = 9
    server_properties: Table = field(default_factory=dict)
    mechanisms: bytes = b"PLAIN"
    locales: bytes = b"en_US"


@dataclass(slots=True)
class ConnectionStartOk(Method):
    ID = 10 << 16 | 11
    NAME = "connection.start-ok"
    WIRE = "tsSs"
    client_properties: Table = field(default_factory=dict)
    mechanism: str = "PLAIN"
    response: bytes = b""
    locale: str = "en_US"


@dataclass(slots=True)
class ConnectionSecure(Method):
    ID = 10 << 16 | 20
    NAME = "connection.secure"
    WIRE = "S"
    challenge: bytes = b""


@dataclass(slots=True)
class ConnectionSecureOk(Method):
    ID = 10 << 16 | 21
    NAME = "connection.secure-ok"
    WIRE = "S"
    response: bytes = b""


@dataclass(slots=True)
class ConnectionTune(Method):
    ID = 10 << 16 | 30
    NAME = "connection.tune"
    WIRE = "hlh"
    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


@dataclass(slots=True)
class ConnectionTuneOk(Method):
    ID = 10 << 16 | 31
    NAME = "connection.tune-ok"
    WIRE = "hlh"
    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


@dataclass(slots=True)
class ConnectionOpen(Method):
    ID = 10 << 16 | 40
    NAME = "connection.open"
    WIRE = "s-s-b"
    virtual_host: str = "/"


@dataclass(slots=True)
class ConnectionOpenOk(Method):
    ID = 10 << 16 | 41
    NAME = "connection.open-ok"
    WIRE = "-s"


@dataclass(slots=True)
class ConnectionClose(Method):
    ID = 10 << 16 | 50
    NAME = "connection.close"
    WIRE = "hshh"
    reply_code: int = 0
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0


@dataclass(slots=True)
class ConnectionCloseOk(Method):
    ID = 10 << 16 | 51
    NAME = "connection.close-ok"


@dataclass(slots=True)
class ConnectionBlocked(Method):
    ID = 10 << 16 | 60
    NAME = "connection.blocked"
    WIRE = "s"
    reason: str = ""


@dataclass(slots=True)
class ConnectionUnblocked(Method):
    ID = 10 << 16 | 61
    NAME = "connection.unblocked"


@dataclass(slots=True)
class ConnectionUpdateSecret(Method):
    ID = 10 << 16 | 70
    NAME = "connection.update-secret"
    WIRE = "Ss"
    new_secret: bytes = b""
    reason: str = ""


@dataclass(slots=True)
class ConnectionUpdateSecretOk(Method):
    ID = 10 << 16 | 71
    NAME = "connection.update-secret-ok"


# channel
@dataclass(slots=True)
class ChannelOpen(Method):
    ID = 20 << 16 | 10
    NAME = "channel.open"
    WIRE = "-s"


@dataclass(slots=True)
class ChannelOpenOk(Method):
    ID = 20 << 16 | 11
    NAME = "channel.open-ok"
    WIRE = "-S"


@dataclass(slots=True)
class ChannelFlow(Method):
    ID = 20 << 16 | 20
    NAME = "channel.flow"
    WIRE = "b"
    active: bool = False


@dataclass(slots=True)
class ChannelFlowOk(Method):
    ID = 20 << 16 | 21
    NAME = "channel.flow-ok"
    WIRE = "b"
    active: bool = False


@dataclass(slots=True)
class ChannelClose(Method):
    ID = 20 << 16 | 40
    NAME = "channel.close"
    WIRE = "hshh"
    reply_code: int = 0
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0


@dataclass(slots=True)
class ChannelCloseOk(Method):
    ID = 20 << 16 | 41
    NAME = "channel.close-ok"


# access: gone from AMQP 0-9-1, but old clients still ask for a ticket and RabbitMQ still gives one
@dataclass(slots=True)
class AccessRequest(Method):
    ID = 30 << 16 | 10
    NAME = "access.request"
    WIRE = "sbbbbb"
    realm: str = "/data"
    exclusive: bool = False
    passive: bool = True
    active: bool = True
    write: bool = True
    read: bool = True


@dataclass(slots=True)
class AccessRequestOk(Method):
    ID = 30 << 16 | 11
    NAME = "access.request-ok"
    WIRE = "h"
    ticket: int = 1


# confirm and tx: how a channel publishes
@dataclass(slots=True)
class ConfirmSelect(Method):
    ID = 85 << 16 | 10
    NAME = "confirm.select"
    WIRE = "b"
    nowait: bool = False


@dataclass(slots=True)
class ConfirmSelectOk(Method):
    ID = 85 << 16 | 11
    NAME = "confirm.select-ok"


@dataclass(slots=True)
class TxSelect(Method):
    ID = 90 << 16 | 10
    NAME = "tx.select"


@dataclass(slots=True)
class TxSelectOk(Method):
    ID = 90 << 16 | 11
    NAME = "tx.select-ok"


@dataclass(slots=True)
class TxCommit(Method):
    ID = 90 << 16 | 20
    NAME = "tx.commit"


@dataclass(slots=True)
class TxCommitOk(Method):
    ID = 90 << 16 | 21
    NAME = "tx.commit-ok"


@dataclass(slots=True)
class TxRollback(Method):
    ID = 90 << 16 | 30
    NAME = "tx.rollback"


@dataclass(slots=True)
class TxRollbackOk(Method):
    ID = 90 << 16 | 31
    NAME = "tx.rollback-ok"


SESSION_METHODS: Final[tuple[type[Method], ...]] = (
    ConnectionStart,
    ConnectionStartOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionBlocked,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    ChannelOpen,
    ChannelOpenOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelClose,
    ChannelCloseOk,
    AccessRequest,
    AccessRequestOk,
    ConfirmSelect,
    ConfirmSelectOk,
    TxSelect,
    TxSelectOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
)

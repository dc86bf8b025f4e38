"""Handshake: from the protocol header to connection.open-ok, as a table of states. Also the methods on channel 0 after.

    starting --start-ok--> securing --login checked--> tuning --tune-ok--> opening --open--> running

A client that is wrong before it has logged in is not told why (RabbitMQ neither): it is closed a little later, so that
guessing is slow. After tune-ok it gets connection.close with the code.
Not here: reading and writing (connection.py), credentials (login.py).
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from penstock import __version__
from penstock.amqp.close import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    UNEXPECTED_FRAME,
    CloseConnection,
)
from penstock.amqp.decoder import Command, Item
from penstock.amqp.frame import FRAME_MIN_BYTES, HEAD_BYTES
from penstock.amqp.method import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Method,
    encode_method,
)
from penstock.amqp.table import Table
from penstock.net.login import EXTERNAL, MECHANISMS, credentials

if TYPE_CHECKING:
    from penstock.net.connection import Connection

STARTING: Final = "starting"
SECURING: Final = "securing"
TUNING: Final = "tuning"
OPENING: Final = "opening"
RUNNING: Final = "running"

# Clients choose their behaviour by product and version (kombu: how basic.qos works), so these two name what we behave
# like; `platform` and `penstock` name what we are.
COMPATIBLE_PRODUCT: Final = "RabbitMQ"
COMPATIBLE_VERSION: Final = "3.13.7"


def server_properties() -> Table:
    return {
        "capabilities": {
            "publisher_confirms": True,
            "exchange_exchange_bindings": True,
            "basic.nack": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
            "consumer_priorities": True,
            "authentication_failure_close": True,
            "per_consumer_qos": True,
            "direct_reply_to": True,
            # What RabbitMQ has not, for clients that ask before they use it (docs/protocol.md).
            "penstock.deduplication": True,
            "penstock.sequence": True,
            "penstock.streams": True,
        },
        "cluster_name": "penstock",
        "copyright": "The Penstock authors",
        "information": "Licensed under the Apache License 2.0",
        "platform": f"Penstock {__version__}, Python {sys.version_info.major}.{sys.version_info.minor}",
        "product": COMPATIBLE_PRODUCT,
        "version": COMPATIBLE_VERSION,
        "penstock": __version__,
    }


class Refused(Exception):
    """The peer is wrong before it has logged in: closed without a word, after a while."""


def begin(connection: Connection) -> None:
    """The protocol header was right."""
    mechanisms = MECHANISMS + b" " + EXTERNAL.encode() if connection.certificate_user else MECHANISMS
    connection.send(ConnectionStart(0, 9, server_properties(), mechanisms, b"en_US"))


def receive(connection: Connection, item: Item) -> None:
    """One item on channel 0, or on any channel before the connection is open."""
    if not isinstance(item, Command):
        raise CloseConnection(CHANNEL_ERROR, f"unexpected method in connection state {connection.state}", 60, 40)
    method = item.method
    state = connection.state
    if state == STARTING and isinstance(method, ConnectionStartOk) and not item.channel:
        _start_ok(connection, method)
    elif state == TUNING and isinstance(method, ConnectionTuneOk) and not item.channel:
        _tune_ok(connection, method)
    elif state in (STARTING, SECURING, TUNING):
        raise Refused(f"{method.NAME} in state {state}")
    elif item.channel:
        octets = ",".join(map(str, encode_method(method, item.channel)[HEAD_BYTES:-1]))
        raise CloseConnection(UNEXPECTED_FRAME, f"type 1, all octets = <<{octets}>>")
    elif state == OPENING and isinstance(method, ConnectionOpen):
        _open(connection, method)
    elif state == RUNNING and isinstance(method, ConnectionClose):
        connection.closed_by_peer(method)
    elif state == RUNNING and isinstance(method, ConnectionUpdateSecret):
        connection.send(ConnectionUpdateSecretOk())
    else:
        raise CloseConnection(CHANNEL_ERROR, f"unexpected method in connection state {state}", *_ids(method))


def _start_ok(connection: Connection, method: ConnectionStartOk) -> None:
    connection.introduce(method.client_properties)
    connection.mechanism = method.mechanism
    pair: tuple[str, str | None] | None = credentials(method.mechanism, method.response)
    if method.mechanism == EXTERNAL and connection.certificate_user:
        pair = connection.certificate_user, None
    if pair is None:
        raise Refused(f"mechanism '{method.mechanism}' with a response that does not fit it")
    connection.state = SECURING
    connection.check_login(*pair)


def checked(connection: Connection, user: str, refusal: str) -> None:
    """The login was looked at: why it is refused, or an empty string."""
    if refusal:
        if connection.capability("authentication_failure_close"):
            raise CloseConnection(
                ACCESS_REFUSED,
                f"Login was refused using authentication mechanism {connection.mechanism}. "
                "For details see the broker logfile.",
            )
        raise Refused(refusal)
    connection.user = user
    limits = connection.limits
    connection.send(ConnectionTune(limits.channel_max, limits.frame_max, limits.heartbeat_s))
    connection.state = TUNING


def _tune_ok(connection: Connection, method: ConnectionTuneOk) -> None:
    limits = connection.limits
    if not FRAME_MIN_BYTES <= method.frame_max <= limits.frame_max:
        raise Refused(f"frame_max {method.frame_max}, {FRAME_MIN_BYTES} to {limits.frame_max} were offered")
    if not 1 <= method.channel_max <= limits.channel_max:
        raise Refused(f"channel_max {method.channel_max}, 1 to {limits.channel_max} were offered")
    connection.tuned(method.frame_max, method.channel_max, method.heartbeat)
    connection.state = OPENING


def _open(connection: Connection, method: ConnectionOpen) -> None:
    connection.broker.enter(connection, method.virtual_host)
    connection.send(ConnectionOpenOk())
    connection.state = RUNNING
    connection.opened()


def _ids(method: Method) -> tuple[int, int]:
    return method.ID >> 16, method.ID & 0xFFFF

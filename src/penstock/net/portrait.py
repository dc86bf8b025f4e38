"""Portrait: a connection's socket and client, in RabbitMQ's JSON: addresses, what was agreed on, TLS, properties.

Place: net/connection.py has one from the accept on; broker/snapshot/connections.py shows it.
Not here: what is counted (connection.py, writer.py), state and flow (reader.py).
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
import time
from typing import TYPE_CHECKING

from penstock.broker.ledger import Json
from penstock.broker.plain import plain_table

if TYPE_CHECKING:
    from penstock.net.connection import Connection

Address = tuple[str, int]
NOWHERE: Address = ("0.0.0.0", 0)


class Portrait:
    __slots__ = ("_tls", "channel_max", "connected_ms", "heartbeat_s", "local", "remote")

    def __init__(self, transport: asyncio.BaseTransport) -> None:
        self.remote: Address = (transport.get_extra_info("peername") or NOWHERE)[:2]
        self.local: Address = (transport.get_extra_info("sockname") or NOWHERE)[:2]
        self.connected_ms = int(time.time() * 1000)
        self.channel_max = 0
        self.heartbeat_s = 0
        self._tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")

    def name(self) -> str:
        """RabbitMQ's: both ends, so that it is the only one of this name."""
        return f"{_shown(self.remote)} -> {_shown(self.local)}"

    def view(self, connection: Connection) -> dict[str, Json]:
        name = connection.client_properties.get("connection_name")
        return {
            "peer_host": self.remote[0],
            "peer_port": self.remote[1],
            "host": self.local[0],
            "port": self.local[1],
            "protocol": "AMQP 0-9-1",
            "connected_at": self.connected_ms,
            "auth_mechanism": connection.mechanism,
            "user_provided_name": name if isinstance(name, str) else "",
            "client_properties": plain_table(connection.client_properties),
            "frame_max": connection.frame_max,
            "channel_max": self.channel_max,
            "timeout": self.heartbeat_s,
            **self._security(),
        }

    def _security(self) -> dict[str, Json]:
        cipher = self._tls.cipher() if self._tls is not None else None
        certificate = self._tls.getpeercert() if self._tls is not None else None
        return {
            "ssl": self._tls is not None,
            "ssl_protocol": self._tls.version() if self._tls is not None else None,
            "ssl_cipher": cipher[0] if cipher is not None else None,
            "ssl_key_exchange": None,
            "ssl_hash": None,
            "peer_cert_subject": _names(certificate.get("subject")) if certificate else None,
            "peer_cert_issuer": _names(certificate.get("issuer")) if certificate else None,
            "peer_cert_validity": (
                f"{certificate.get('notBefore')} - {certificate.get('notAfter')}" if certificate else None
            ),
        }


def is_loopback(host: str) -> bool:
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _names(found: object) -> str:
    """A distinguished name as ssl has it: ((("commonName", "x"),), …)."""
    pairs = [pair for part in found for pair in part] if isinstance(found, tuple) else []
    return ",".join(f"{name}={value}" for name, value in pairs)

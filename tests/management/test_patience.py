"""Patience: a client that does not finish its request has no place for long."""

from __future__ import annotations

import socket

import pytest

from penstock.management import listen
from tests.wire.live import LiveBroker
from tests.wire.waiting import LIMIT_S

HEAD = b"GET /health/live HTTP/1.1\r\nHost: x\r\n"
LOGIN = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"


def connect(broker: LiveBroker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.manage()), timeout=LIMIT_S)


def is_closed(client: socket.socket) -> bool:
    """Waits for it."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("said", [b"", b"G", HEAD, LOGIN + b"{"])
def test_who_does_not_finish_a_request_is_sent_away(
    broker: LiveBroker, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(listen, "HEAD_S", 0.05)
    monkeypatch.setattr(listen, "BODY_S", 0.05)
    with connect(broker) as client:
        client.sendall(said)
        assert is_closed(client)

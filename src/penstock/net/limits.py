"""Limits: what one connection may cost. The same for all connections of a listener; config.py has the defaults."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.amqp.bounds import Bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    frame_max: int
    channel_max: int
    heartbeat_s: int
    message_bytes_max: int
    parked_bytes_max: int
    handshake_timeout_s: float
    connections_max: int
    bounds: Bounds  # what the codec takes: tables, names, contents still coming

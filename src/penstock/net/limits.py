"""Limits: what one connection may cost. Set from the configuration, the same for all connections of a listener."""

from __future__ import annotations

from typing import Final

from penstock.amqp.frame import FRAME_MAX_BYTES

CHANNEL_MAX: Final = 2047  # RabbitMQ's
MESSAGE_BYTES_MAX: Final = 536_870_912  # RabbitMQ's hard limit; its default is 128 MiB
PARKED_BYTES_MAX: Final = 1_048_576  # thousands of small publishes: enough to see the acks behind them
HANDSHAKE_TIMEOUT_S: Final = 10.0  # RabbitMQ's
HEARTBEAT_S: Final = 60  # RabbitMQ's offer
CONNECTIONS_MAX: Final = 65_536


class Limits:
    __slots__ = (
        "channel_max",
        "connections_max",
        "frame_max",
        "handshake_timeout_s",
        "heartbeat_s",
        "message_bytes_max",
        "parked_bytes_max",
    )

    def __init__(
        self,
        frame_max: int = FRAME_MAX_BYTES,
        channel_max: int = CHANNEL_MAX,
        heartbeat_s: int = HEARTBEAT_S,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        parked_bytes_max: int = PARKED_BYTES_MAX,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
        connections_max: int = CONNECTIONS_MAX,
    ) -> None:
        self.frame_max = frame_max
        self.channel_max = channel_max
        self.heartbeat_s = heartbeat_s
        self.message_bytes_max = message_bytes_max
        self.parked_bytes_max = parked_bytes_max
        self.handshake_timeout_s = handshake_timeout_s
        self.connections_max = connections_max

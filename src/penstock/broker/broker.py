"""Broker: what all connections share: vhosts, users, the hops' credit settings, the scheduler and the block log.

Not here: sockets (net/), the order in which things are started and stopped (server.py).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from penstock.broker.users import Users
from penstock.broker.vhost import VHost
from penstock.credit import Block, Hop
from penstock.runtime import Scheduler

BLOCK_LOG_MAX: Final = 1000  # the last blocks kept in memory, for a first look; the event stream keeps them all


class Broker:
    __slots__ = (
        "block_log",
        "channel_delay_us",
        "channel_queue",
        "queue_delay_us",
        "reader_channel",
        "scheduler",
        "users",
        "vhosts",
    )

    def __init__(
        self,
        scheduler: Scheduler,
        reader_channel: Hop,
        channel_queue: Hop,
        channel_delay_us: int = 0,
        queue_delay_us: int = 0,
    ) -> None:
        self.scheduler = scheduler
        self.reader_channel = reader_channel
        self.channel_queue = channel_queue
        self.channel_delay_us = channel_delay_us
        self.queue_delay_us = queue_delay_us
        self.block_log: deque[Block] = deque(maxlen=BLOCK_LOG_MAX)
        self.users = Users()
        self.vhosts = {"/": VHost("/", scheduler, self.block_log, queue_delay_us)}

    def __repr__(self) -> str:
        return f"<Broker vhosts={len(self.vhosts)}>"
